//! Output to stdout and stderr.
//!
//! `println!` and `eprintln!` in this crate are the macros below. Those of the standard library panic if the reader is gone, and
//! pass control characters from file names through to the terminal. If stdout cannot be written, the program ends with an error.
//! Lines for stderr that cannot be written are dropped: there is no other place to report it, and training should not end for it.

use std::borrow::Cow;
use std::fmt;
use std::io::{ErrorKind, Write, stderr, stdout};

/// Exit code after a closed pipe: 128 plus the number of SIGPIPE.
const READER_GONE: i32 = 141;

/// Writes a line of results to stdout.
macro_rules! println {
    () => { $crate::console::print(format_args!("")) };
    ($($argument:tt)*) => { $crate::console::print(format_args!($($argument)*)) };
}

/// Writes a line of progress or diagnostics to stderr.
macro_rules! eprintln {
    ($($argument:tt)*) => { $crate::console::report(format_args!($($argument)*)) };
}

/// Writes a line to stdout; ends the program if it cannot be written.
pub fn print(line: fmt::Arguments<'_>) {
    write(&printable(&line.to_string()));
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
    let mut stdout = stdout().lock();
    if let Err(error) = writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        // The reader closed the pipe (`panoply devices | head`): exit like a program that SIGPIPE ends.
        if error.kind() == ErrorKind::BrokenPipe {
            std::process::exit(READER_GONE);
        }
        report(format_args!("panoply: cannot write to stdout: {error}"));
        std::process::exit(1);
    }
}

/// Writes a line to stderr, if it can be written.
pub fn report(line: fmt::Arguments<'_>) {
    let _ = writeln!(stderr(), "{}", printable(&line.to_string()));
}

/// Escapes text for a terminal: line feeds and tabs are kept, other control characters are escaped.
pub fn printable(text: &str) -> Cow<'_, str> {
    escape(text, |letter| is_unprintable(letter) && letter != '\n' && letter != '\t')
}

/// Escapes all control characters of a name from a file, as `\n` or `\u{1b}`, for use within a line, a table or an image.
pub fn escaped(name: &str) -> Cow<'_, str> {
    escape(name, is_unprintable)
}

fn escape(text: &str, wrong: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&wrong) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match wrong(letter) {
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
}
