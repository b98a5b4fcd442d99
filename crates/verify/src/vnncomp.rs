//! The files of the Verification of Neural Networks Competition (VNN-COMP): compressed inputs, results and counterexamples.
//!
//! The first line of a result is `unsat` (proven), `sat` (a counterexample), `timeout`, `unknown` or `error`. After `sat`, the counterexample
//! follows as a list of assignments `((X_0 0.5) … (Y_0 1.25) …)`.

use std::fmt::Write;
use std::path::Path;

use panoply_tensor::{Error, ReadBudget, Result};

use crate::{Counterexample, Verdict};

/// Maximum number of inputs, and of outputs, in a counterexample.
const MAX_VALUES: usize = 1 << 20;

/// Reads a file, which is decompressed with gzip if its name ends in `.gz`.
///
/// # Errors
/// If the file cannot be read, or takes too much memory.
pub fn read_file(path: &Path) -> Result<Vec<u8>> {
    read_within(path, &ReadBudget::for_file(path)?)
}

/// Reads a file within a memory limit.
pub(crate) fn read_within(path: &Path, budget: &ReadBudget) -> Result<Vec<u8>> {
    if path.extension().is_none_or(|extension| extension != "gz") {
        return budget.read_file(path);
    }
    let fail = |error| Error::io(format!("cannot read {}", path.display()), error);
    let file = std::fs::File::open(path).map_err(fail)?;
    budget.read_to_end(flate2::read::MultiGzDecoder::new(file), path, fail)
}

/// Returns the text of a result file.
pub fn result(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Proven => "unsat\n".to_string(),
        Verdict::Counterexample(found) => format!("sat\n{}", counterexample(found)),
        Verdict::Undecided(reason) if reason.starts_with("the time limit") => "timeout\n".to_string(),
        Verdict::Undecided(_) => "unknown\n".to_string(),
    }
}

/// Returns the assignments of a counterexample. Every decimal reads back as the same f32.
pub fn counterexample(found: &Counterexample) -> String {
    let mut text = String::from("(");
    for (name, values) in [("X", &found.input), ("Y", &found.output)] {
        for (n, value) in values.iter().enumerate() {
            let space = if text.len() == 1 { "" } else { "\n" };
            let _ = write!(text, "{space}({name}_{n} {value:?})");
        }
    }
    text + ")\n"
}

/// Reads a counterexample; a first line `sat` and the values of outputs are optional.
///
/// # Errors
/// If the file cannot be read or is not a counterexample; the message contains line and column.
pub fn read(path: &Path) -> Result<Counterexample> {
    let budget = ReadBudget::for_file(path)?;
    let bytes = read_within(path, &budget)?;
    let text = String::from_utf8(bytes).map_err(|_| Error::corrupt(format!("{}: not a text file", path.display())))?;
    // A vector takes up to four times the memory of its values; an assignment has at least seven characters.
    budget.take_values(text.len(), 8, path)?;
    parse(&text).map_err(|why| Error::corrupt(format!("{}:{why}", path.display())))
}

/// Returns true if a text, or its beginning, is a result of VNN-COMP or a list of assignments.
pub fn is_result(text: &str) -> bool {
    let text = text.trim_ascii_start();
    let is_open = |text: &str| text.starts_with('(');
    if let Some(after) = text.strip_prefix("sat") {
        return is_open(after.trim_ascii_start());
    }
    let inner = text.strip_prefix('(').map(|inner| inner.trim_ascii_start());
    let inner = inner.and_then(|inner| inner.strip_prefix('(')).map(|inner| inner.trim_ascii_start());
    inner.is_some_and(|inner| inner.starts_with("X_") || inner.starts_with("Y_")) || is_verdict(text.trim_ascii_end())
}

/// Returns true for the verdicts that have no counterexample.
fn is_verdict(text: &str) -> bool {
    ["unsat", "timeout", "unknown"].contains(&text)
}

/// Parses a counterexample. Its output is empty if the text has no values of outputs.
///
/// # Errors
/// If the text is not a counterexample; the message begins with line and column.
pub fn parse(text: &str) -> std::result::Result<Counterexample, String> {
    assignments(text).map_err(|(at, why)| {
        let before = &text[..at];
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        format!("{}:{column}: {why}", before.matches('\n').count() + 1)
    })
}

/// A result, or the byte where the text is wrong and the reason.
type Parsed<T> = std::result::Result<T, (usize, String)>;

/// The words and brackets of a text.
struct Words<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Words<'t> {
    /// Returns the next word or bracket with its position; empty at the end of the text.
    fn next(&mut self) -> (usize, &'t str) {
        let rest = self.text[self.at..].trim_start();
        let begin = self.text.len() - rest.len();
        let is_end = |letter: char| letter.is_whitespace() || letter == '(' || letter == ')';
        let length = match rest.chars().next() {
            Some('(' | ')') => 1,
            _ => rest.find(is_end).unwrap_or(rest.len()),
        };
        self.at = begin + length;
        (begin, &rest[..length])
    }

    /// Fails unless the next word is this one.
    fn expect(&mut self, word: &str, purpose: &str) -> Parsed<()> {
        match self.next() {
            (_, found) if found == word => Ok(()),
            (at, found) => Err((at, format!("expected `{word}` {purpose}, found {}", shown(found)))),
        }
    }
}

/// Returns a word as it appears in a message.
fn shown(word: &str) -> String {
    match word {
        "" => "the end of the file".to_string(),
        _ => format!("`{}`", word.chars().take(40).collect::<String>().escape_debug()),
    }
}

fn assignments(text: &str) -> Parsed<Counterexample> {
    let mut words = Words { text, at: 0 };
    let (mut at, mut word) = words.next();
    if is_verdict(word) && words.next().1.is_empty() {
        return Err((at, format!("the verdict is `{word}`; the file contains no counterexample")));
    }
    if word == "sat" {
        (at, word) = words.next();
    }
    if word != "(" {
        return Err((at, format!("expected assignments such as `((X_0 0.5) (X_1 1))`, found {}", shown(word))));
    }
    let mut found = [Vec::new(), Vec::new()];
    loop {
        match words.next() {
            (_, ")") => break,
            (_, "(") => assignment(&mut words, &mut found)?,
            (at, other) => return Err((at, format!("expected `(` or `)`, found {}", shown(other)))),
        }
    }
    let end = words.at;
    let (at, more) = words.next();
    if !more.is_empty() {
        return Err((at, format!("expected the end of the file after the assignments, found {}", shown(more))));
    }
    let [input, output] = found;
    if input.is_empty() {
        return Err((end, "the assignments have no input `X_0`".to_string()));
    }
    let complete = |name: &str, values: Vec<Option<f32>>| match values.iter().position(Option::is_none) {
        Some(index) => Err((end, format!("{name}_{index} has no value"))),
        None => Ok(values.into_iter().flatten().collect()),
    };
    Ok(Counterexample { input: complete("X", input)?, output: complete("Y", output)? })
}

/// Parses an assignment, whose opening bracket was read, to an input or an output.
fn assignment(words: &mut Words<'_>, [input, output]: &mut [Vec<Option<f32>>; 2]) -> Parsed<()> {
    let (at, name) = words.next();
    let (values, index) = match (name.strip_prefix("X_"), name.strip_prefix("Y_")) {
        (Some(index), _) => (input, index),
        (_, Some(index)) => (output, index),
        _ => return Err((at, format!("expected a variable `X_i` or `Y_j`, found {}", shown(name)))),
    };
    let digits = Some(index).filter(|index| index.bytes().all(|byte| byte.is_ascii_digit()));
    let index: usize = digits
        .and_then(|digits| digits.parse().ok())
        .filter(|index| *index < MAX_VALUES)
        .ok_or_else(|| (at, format!("the index of {} is not a number below {MAX_VALUES}", shown(name))))?;
    let (value_at, value) = words.next();
    let value: f32 =
        value.parse().map_err(|_| (value_at, format!("expected the value of {name}, found {}", shown(value))))?;
    words.expect(")", &format!("after the value of {name}"))?;
    values.resize(values.len().max(index + 1), None);
    match values[index].replace(value) {
        Some(_) => Err((at, format!("{name} has two values"))),
        None => Ok(()),
    }
}
