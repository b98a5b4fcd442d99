//! Output to stdout and stderr.
//!
//! `println!` and `eprintln!` in this crate are the macros below. Those of the standard library panic if the other end of a pipe is closed,
//! and pass control characters in file names to the terminal. If stdout cannot be written, the program ends with an error.
//! Lines for stderr that cannot be written are dropped: there is no other place to report it, and training should not end for it.
//!
//! A mark (✓, ✗ or !) at the beginning of a line is colored; `anstream` removes the color under NO_COLOR and where no terminal reads it.

use std::borrow::Cow;
use std::fmt;
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};
use std::sync::OnceLock;

use ratatui_crossterm::crossterm::terminal;

/// Exit code after a closed pipe: 128 plus the number of SIGPIPE, as shells report it.
const SIGPIPE_EXIT_CODE: i32 = 141;

/// Writes a line of results to stdout.
macro_rules! println {
    () => { $crate::console::print(format_args!("")) };
    ($($argument:tt)*) => { $crate::console::print(format_args!($($argument)*)) };
}

/// Writes a line to stderr that `--quiet` does not suppress: an error, a warning, or an answer of the program.
macro_rules! eprintln {
    ($($argument:tt)*) => { $crate::console::report(format_args!($($argument)*)) };
}

/// Writes a line of progress or information to stderr, unless `--quiet` is set.
macro_rules! note {
    ($($argument:tt)*) => {
        if !$crate::console::is_quiet() {
            $crate::console::report(format_args!($($argument)*))
        }
    };
}

/// Amount of output to stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verbosity {
    /// Errors and warnings, and lines that a user needs, such as the address of a server.
    Quiet,
    /// Also progress and the choice of the device.
    #[default]
    Normal,
    /// Also the reasons for the choice.
    Verbose,
}

/// Set once, before the command runs.
static VERBOSITY: OnceLock<Verbosity> = OnceLock::new();

/// Sets the amount of output to stderr; only the first call has an effect.
pub fn set_verbosity(verbosity: Verbosity) {
    VERBOSITY.get_or_init(|| verbosity);
    if is_quiet() {
        panoply::runtime::log::silence();
    }
}

/// Returns true under `--quiet`.
pub fn is_quiet() -> bool {
    VERBOSITY.get() == Some(&Verbosity::Quiet)
}

/// Returns true under `--verbose`.
pub fn is_verbose() -> bool {
    VERBOSITY.get() == Some(&Verbosity::Verbose)
}

/// Writes a line to stdout; ends the program if it cannot be written.
pub fn print(line: fmt::Arguments<'_>) {
    write(&with_colored_marks(&printable(&line.to_string())));
}

/// Writes a line to stdout, wrapped at the width of the terminal if it is one.
pub fn print_wrapped(line: &str) {
    print(format_args!("{}", wrapped(line, stdout().is_terminal().then(width).flatten())));
}

/// Writes a JSON document to stdout. Control characters beyond those that JSON escapes occur only in its strings.
pub fn print_json(document: &serde_json::Value) {
    write_json(&format!("{document:#}"));
}

/// Writes a document of JSON to stdout in one line.
pub fn print_json_line(document: &serde_json::Value) {
    write_json(&document.to_string());
}

fn write_json(text: &str) {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' => escaped.push(letter),
            _ if is_unprintable(letter) => escaped += &format!("\\u{:04x}", u32::from(letter)),
            _ => escaped.push(letter),
        }
    }
    write(&escaped);
}

fn write(text: &str) {
    let mut stdout = anstream::stdout().lock();
    if let Err(error) = writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        // The reader closed the pipe (`panoply devices | head`): exit like a program that SIGPIPE ends.
        if error.kind() == ErrorKind::BrokenPipe {
            std::process::exit(SIGPIPE_EXIT_CODE);
        }
        report(format_args!("panoply: cannot write to stdout: {error}"));
        std::process::exit(1);
    }
}

/// Writes a line to stderr, if it can be written, wrapped at the width of the terminal if it is one.
pub fn report(line: fmt::Arguments<'_>) {
    let mut line = wrapped(&printable(&line.to_string()), stderr().is_terminal().then(width).flatten()).into_owned();
    line.push('\n');
    // One write, so that the lines of processes with the same stderr, such as the ranks of `mesh run`, are not mixed.
    let _ = anstream::stderr().write_all(with_colored_marks(&line).as_bytes());
}

/// Returns the number of columns of the terminal; `None` if it is unknown or below [`MIN_WIDTH`].
fn width() -> Option<usize> {
    terminal::size().ok().map(|(columns, _)| usize::from(columns)).filter(|columns| *columns >= MIN_WIDTH)
}

/// Minimum width for wrapping, in columns: in narrower terminals the indent leaves too little room for words.
const MIN_WIDTH: usize = 40;

/// Breaks lines between words so that each has at most `width` characters; what follows a break is indented by two more spaces than the
/// line. A word that is longer, such as a path, is kept whole.
fn wrapped(text: &str, width: Option<usize>) -> Cow<'_, str> {
    let Some(width) = width.filter(|width| text.lines().any(|line| line.chars().count() > *width)) else {
        return Cow::Borrowed(text);
    };
    let wrap = |line: &str| {
        let indent = line.chars().take_while(|letter| *letter == ' ').count();
        let (mut wrapped, mut column) = (" ".repeat(indent), indent);
        for (at, word) in line[indent..].split_inclusive(' ').enumerate() {
            if at > 0 && column + word.trim_end().chars().count() > width {
                wrapped.truncate(wrapped.trim_end().len());
                wrapped += &format!("\n{}", " ".repeat(indent + 2));
                column = indent + 2;
            }
            wrapped += word;
            column += word.chars().count();
        }
        wrapped
    };
    Cow::Owned(text.split('\n').map(wrap).collect::<Vec<String>>().join("\n"))
}

/// Colors the mark at the beginning of each line.
fn with_colored_marks(text: &str) -> Cow<'_, str> {
    const MARKS: [(&str, u8); 3] = [("✓ ", 32), ("✗ ", 31), ("! ", 33)];
    let paint = |line: &str| {
        let (indent, rest) = line.split_at(line.len() - line.trim_start_matches(' ').len());
        let (mark, color) = MARKS.iter().find(|(mark, _)| rest.starts_with(mark))?;
        Some(format!("{indent}\x1b[{color}m{}\x1b[0m{}", mark.trim_end(), &rest[mark.len() - 1..]))
    };
    if !text.lines().any(|line| paint(line).is_some()) {
        return Cow::Borrowed(text);
    }
    let lines = text.split('\n').map(|line| paint(line).unwrap_or_else(|| line.to_string()));
    Cow::Owned(lines.collect::<Vec<String>>().join("\n"))
}

/// Escapes text for a terminal: line feeds and tabs are kept, other control characters are escaped.
pub fn printable(text: &str) -> Cow<'_, str> {
    escape(text, |letter| is_unprintable(letter) && letter != '\n' && letter != '\t')
}

/// Escapes all control characters of a name from a file, as `\n` or `\u{1b}`, for use within a line, a table or an image.
pub fn escaped(name: &str) -> Cow<'_, str> {
    escape(name, is_unprintable)
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match is_escaped(letter) {
            true => escaped.extend(letter.escape_default()),
            false => escaped.push(letter),
        }
    }
    Cow::Owned(escaped)
}

/// Returns true for control characters, line and paragraph separators, bidirectional controls, and characters that XML excludes.
fn is_unprintable(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escaped("\u{1b}[2Jcat\n\u{9b}31m"), "\\u{1b}[2Jcat\\n\\u{9b}31m");
        assert_eq!(printable("a\tb\nc\rd\u{202e}e\u{7f}"), "a\tb\nc\\rd\\u{202e}e\\u{7f}");
        assert!(matches!(escaped("Århus 東京 🦀"), Cow::Borrowed("Århus 東京 🦀")));
    }

    #[test]
    fn words_wrap_at_the_width() {
        let text = "  CUDA: libcuda.so.1 cannot be loaded\nshort";
        assert_eq!(wrapped(text, Some(20)), "  CUDA: libcuda.so.1\n    cannot be loaded\nshort");
        assert_eq!(wrapped("a/path/without/spaces b", Some(8)), "a/path/without/spaces\n  b");
        assert!(matches!(wrapped(text, None), Cow::Borrowed(_)) && matches!(wrapped(text, Some(60)), Cow::Borrowed(_)));
        let long = "één woord per regel ".repeat(9).trim_end().to_string();
        assert!(wrapped(&long, Some(17)).lines().all(|line| line.chars().count() <= 17));
    }

    #[test]
    fn marks_are_colored() {
        assert_eq!(
            with_colored_marks("  ✓ cpu\nno ✓ here\n✗ gone"),
            "  \x1b[32m✓\x1b[0m cpu\nno ✓ here\n\x1b[31m✗\x1b[0m gone"
        );
        assert!(matches!(with_colored_marks("plain"), Cow::Borrowed("plain")));
    }
}
