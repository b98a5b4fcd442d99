//! Output to stdout and stderr: text of this program and names from files.
//!
//! `println!` and `eprintln!` of this crate are the macros below, not those of the standard library, which panic if nobody can read them
//! and hand control characters on to the terminal. Results that cannot be written end the program with an error; lines on stderr that
//! cannot be written are left out, since there is nowhere left to say so and a training should not end for it.

use std::borrow::Cow;
use std::fmt;
use std::io::{ErrorKind, Write, stderr, stdout};

/// The exit code after a closed pipe: 128 and the number of SIGPIPE.
const READER_GONE: i32 = 141;

/// Writes a line of results to stdout.
macro_rules! println {
    () => { $crate::console::print(format_args!("")) };
    ($($argument:tt)*) => { $crate::console::print(format_args!($($argument)*)) };
}

/// Writes a line about what happens to stderr.
macro_rules! eprintln {
    ($($argument:tt)*) => { $crate::console::report(format_args!($($argument)*)) };
}

/// Writes a line to stdout; ends the program if it cannot be written.
pub fn print(line: fmt::Arguments<'_>) {
    write(&printable(&line.to_string()));
}

/// Writes a document of JSON to stdout. Control characters above those that JSON escapes itself stand only in its strings.
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
        // Whoever reads has had enough of it (`panoply devices | head`): as a program does that a signal ends.
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

/// Text that may go to a terminal: line feeds and tabs stay, other control characters are escaped.
pub fn printable(text: &str) -> Cow<'_, str> {
    escape(text, |letter| is_unprintable(letter) && letter != '\n' && letter != '\t')
}

/// A name out of a file as a part of a line, of a table or of a picture: all control characters are escaped, as `\n` or `\u{1b}`.
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

/// Control characters, line and paragraph separators, those that turn the direction of writing around, and those that XML excludes.
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
