//! Texts as sequences of characters for next-character prediction.
//!
//! A text is cut into consecutive windows. The features of a window are the indices of its characters in the vocabulary, its targets are
//! the same indices shifted by one character.

use std::path::Path;

use panoply_tensor::{Error, Result};

use super::{Dataset, ReadBudget, TextEncoding, csv, read_text};

/// Default number of characters in a window.
pub const DEFAULT_CONTEXT_LENGTH: usize = 64;

/// Maximum vocabulary size; a file with more distinct characters is not considered text.
const MAX_CHARACTERS: usize = 8192;

/// Reads a text in an encoding; UTF-8, or UTF-16 if its bytes are that, if `None`.
///
/// # Errors
/// A file that cannot be read, is too large, or is not text in the encoding.
pub fn load(path: &Path, encoding: Option<TextEncoding>) -> Result<String> {
    let budget = ReadBudget::for_file(path)?;
    let text = read_text(path, encoding, &budget)?;
    // Budget of the data set: characters, their indices, features and targets.
    budget.take_values(text.len(), 4 * size_of::<f32>(), path)?;
    Ok(text)
}

/// Returns the distinct characters of a text, sorted by code point.
pub fn vocabulary(text: &str) -> Vec<char> {
    let mut letters: Vec<char> = text.chars().collect();
    letters.sort_unstable();
    letters.dedup();
    letters
}

/// Returns the indices of the characters in a vocabulary.
///
/// # Errors
/// The line and the character that is not in the vocabulary.
pub fn encode(text: &str, vocabulary: &[char]) -> Result<Vec<i32>, (usize, char)> {
    let mut line = 1;
    let place = |letter: char| {
        let place = vocabulary.binary_search(&letter).map_err(|_| (line, letter))?;
        line += usize::from(letter == '\n');
        Ok(place as i32)
    };
    text.chars().map(place).collect()
}

/// The characters of a text that a vocabulary has, and a sentence about those that are left out.
pub fn known_characters(text: &str, vocabulary: &[char], path: &Path) -> (String, Option<String>) {
    let is_known = |letter: &char| vocabulary.binary_search(letter).is_ok();
    let unknown: Vec<char> = text.chars().filter(|letter| !is_known(letter)).collect();
    if unknown.is_empty() {
        return (text.to_string(), None);
    }
    let mut distinct = unknown.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let shown: Vec<String> = distinct.iter().take(8).map(|letter| format!("{letter:?}")).collect();
    let more = if distinct.len() > shown.len() { ", …" } else { "" };
    let (count, shown) = (unknown.len(), shown.join(", "));
    let note =
        format!("{}: {count} characters that training did not have are left out ({shown}{more})", path.display());
    (text.chars().filter(is_known).collect(), Some(note))
}

/// Returns windows of `time` characters that follow each other. Characters at the end that fill no window are left out.
pub fn windows(text: &str, vocabulary: &[char], time: usize, path: &Path) -> Result<Dataset> {
    let wrong = |what: String| Error::corrupt(format!("{}: {what}", path.display()));
    if vocabulary.len() > MAX_CHARACTERS {
        return Err(wrong(format!("{} distinct characters are too many for a text", vocabulary.len())));
    }
    let tokens = encode(text, vocabulary).map_err(|(line, letter)| {
        Error::corrupt(format!("{}:{line}: {letter:?} is not in the network's vocabulary", path.display()))
    })?;
    let count = tokens.len().saturating_sub(1) / time.max(1);
    if time == 0 || count < 2 {
        let what = format!("{} characters are too few for two windows of {time}", tokens.len());
        return Err(wrong(what).note("use `--context-length N` to set the window length"));
    }
    let features = tokens[..count * time].iter().map(|place| *place as f32).collect();
    Dataset::classification(features, tokens[1..=count * time].to_vec())
        .example_shape(&[time])
        .targets_per_example(time)
        .num_classes(vocabulary.len())
        .build()
}

/// Returns true if a text is a table: its first lines have the same number of cells; see the rules of the CSV reader.
pub fn is_table(text: &str) -> bool {
    csv::is_table(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Targets;

    #[test]
    fn text_windows_have_the_next_characters_as_targets() {
        let letters = vocabulary("abcab\n");
        assert_eq!(letters, ['\n', 'a', 'b', 'c']);
        let data = windows("abcabc", &letters, 2, Path::new("t")).unwrap();
        let Targets::Classes { labels, num_classes: 4, labels_per_example: 2 } = &data.targets else {
            panic!("{data:?}")
        };
        assert_eq!((&data.features[..], &labels[..]), (&[1.0, 2.0, 3.0, 1.0][..], &[2, 3, 1, 2][..]));
        let error = windows("abc\nad", &letters, 2, Path::new("t")).unwrap_err();
        assert_eq!(error.message(), "t:2: 'd' is not in the network's vocabulary");
        let error = windows("abca", &letters, 2, Path::new("t")).unwrap_err();
        assert_eq!(error.message(), "t: 4 characters are too few for two windows of 2");
    }

    #[test]
    fn unknown_characters_are_left_out() {
        let letters = vocabulary("abc ");
        let (known, note) = known_characters("a7b-c 7", &letters, Path::new("t"));
        assert_eq!(
            (known.as_str(), note.unwrap().as_str()),
            ("abc ", "t: 3 characters that training did not have are left out ('-', '7')")
        );
        assert_eq!(known_characters("cab", &letters, Path::new("t")), ("cab".to_string(), None));
    }

    #[test]
    fn prose_is_no_table() {
        assert!(is_table("a,b\n1,2\n") && is_table("1\n2\n") && is_table("a;\"b;c\"\n1;2\n"));
        assert!(!is_table("one, line") && !is_table(""));
        assert!(!is_table("Call me Ishmael.\nSome years ago, never mind\n") && !is_table("one, two\nthree\n"));
    }
}
