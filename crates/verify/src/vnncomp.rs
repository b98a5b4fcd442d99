//! The files of the Verification of Neural Networks Competition (VNN-COMP): compressed inputs, results and counterexamples.
//!
//! The first line of a result is `unsat` (proven), `sat` (a counterexample), `timeout`, `unknown` or `error`. After `sat`, the counterexample
//! follows as a list of assignments `((X_0 0.5) … (Y_0 1.25) …)`.

use std::fmt::Write;
use std::path::Path;

use panoply_tensor::{Error, ReadBudget, Result};

use crate::{Counterexample, Verdict};

/// Maximum number of inputs in a counterexample.
const MAX_INPUTS: usize = 1 << 20;

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

/// Reads the input of a counterexample; a first line `sat` and the values of outputs are optional.
///
/// # Errors
/// If the file cannot be read or is not a counterexample.
pub fn read_input(path: &Path) -> Result<Vec<f32>> {
    let budget = ReadBudget::for_file(path)?;
    let bytes = read_within(path, &budget)?;
    let text = String::from_utf8(bytes).map_err(|_| Error::corrupt(format!("{}: not a text file", path.display())))?;
    budget.take_values(text.len() / 4, 8, path)?;
    parse_input(&text).map_err(|why| Error::corrupt(format!("{}: {why}", path.display())))
}

/// Returns the input of a counterexample.
///
/// # Errors
/// If the text is not a counterexample; the message says why.
pub fn parse_input(text: &str) -> std::result::Result<Vec<f32>, String> {
    let text = text.trim();
    if ["unsat", "timeout", "unknown"].contains(&text) {
        return Err(format!("the verdict is `{text}`; the file contains no counterexample"));
    }
    let text = text.strip_prefix("sat").unwrap_or(text).trim();
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    let inner = inner.ok_or("expected assignments in brackets, such as `((X_0 0.5) (X_1 1))`")?;
    let mut input: Vec<Option<f32>> = Vec::new();
    for part in inner.split('(').skip(1) {
        let (assignment, rest) = part.split_once(')').ok_or("a bracket is not closed")?;
        let shown = || assignment.chars().take(40).collect::<String>().escape_debug().to_string();
        if !rest.trim().is_empty() {
            return Err(format!("unexpected text after `({})`", shown()));
        }
        let mut words = assignment.split_whitespace();
        let (Some(name), Some(value), None) = (words.next(), words.next(), words.next()) else {
            return Err(format!("`({})` is not a variable with its value", shown()));
        };
        let value: f32 = value.parse().map_err(|_| format!("`({})` has no number", shown()))?;
        let Some(index) = name.strip_prefix("X_") else {
            match name.strip_prefix("Y_") {
                Some(_) => continue,
                None => return Err(format!("`({})` is not a variable `X_i` or `Y_j`", shown())),
            }
        };
        let index: usize =
            index.parse().ok().filter(|index| *index < MAX_INPUTS).ok_or("the index of an input is wrong")?;
        input.resize(input.len().max(index + 1), None);
        if input[index].replace(value).is_some() {
            return Err(format!("X_{index} has two values"));
        }
    }
    let missing = input.iter().position(Option::is_none);
    match missing {
        Some(index) => Err(format!("X_{index} has no value")),
        None if input.is_empty() => Err("there is no input `X_0`".to_string()),
        None => Ok(input.into_iter().flatten().collect()),
    }
}
