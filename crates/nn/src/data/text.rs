//! Texts as sequences of characters: each is to be told from those before it.
//!
//! A text is cut into windows that follow each other. The features of a window are its characters' places in the vocabulary, its
//! targets the same one character later.

use std::path::Path;

use panoply_tensor::{Error, Result};

use super::{Dataset, ReadBudget, csv, read_text};

/// Characters of a window if nobody says how many.
pub const DEFAULT_CONTEXT_LENGTH: usize = 64;

/// More characters than this are taken for something that is no text.
const MOST_CHARACTERS: usize = 8192;

/// Reads a text.
pub fn load(path: &Path) -> Result<String> {
    let budget = ReadBudget::for_file(path)?;
    let text = read_text(path, &budget)?;
    // What becomes of it: characters, their places, features and targets.
    budget.take_values(text.len(), 4 * size_of::<f32>(), path)?;
    Ok(text)
}

/// The characters of a text, each once, in the order of their numbers.
pub fn vocabulary(text: &str) -> Vec<char> {
    let mut letters: Vec<char> = text.chars().collect();
    letters.sort_unstable();
    letters.dedup();
    letters
}

/// The places of characters in a vocabulary, or the line and the character that is not in it.
pub fn encode(text: &str, vocabulary: &[char]) -> Result<Vec<i32>, (usize, char)> {
    let mut line = 1;
    let place = |letter: char| {
        let place = vocabulary.binary_search(&letter).map_err(|_| (line, letter))?;
        line += usize::from(letter == '\n');
        Ok(place as i32)
    };
    text.chars().map(place).collect()
}

/// The windows of a text, so many characters each. What is left at its end is not looked at.
pub fn windows(text: &str, vocabulary: &[char], time: usize, path: &Path) -> Result<Dataset> {
    let wrong = |what: String| Error::corrupt(format!("{}: {what}", path.display()));
    if vocabulary.len() > MOST_CHARACTERS {
        return Err(wrong(format!("{} different characters are no text", vocabulary.len())));
    }
    let tokens = encode(text, vocabulary).map_err(|(line, letter)| {
        Error::corrupt(format!("{}:{line}: {letter:?} is no character that this network knows", path.display()))
    })?;
    let count = tokens.len().saturating_sub(1) / time.max(1);
    if time == 0 || count < 2 {
        let what = format!("{} characters are too few for two windows of {time}", tokens.len());
        return Err(wrong(what).note("`--context-length N` makes windows of N characters"));
    }
    let features = tokens[..count * time].iter().map(|place| *place as f32).collect();
    Dataset::sequence_labels(features, time, tokens[1..=count * time].to_vec(), vocabulary.len(), time)
}

/// Whether lines of a text are rows of a table: the first twenty, two at least, of as many cells each.
pub fn is_table(text: &str) -> bool {
    csv::is_table(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Targets;

    #[test]
    fn windows_know_what_follows() {
        let letters = vocabulary("abcab\n");
        assert_eq!(letters, ['\n', 'a', 'b', 'c']);
        let data = windows("abcabc", &letters, 2, Path::new("t")).unwrap();
        let Targets::Classes { labels, num_classes: 4, labels_per_example: 2 } = &data.targets else {
            panic!("{data:?}")
        };
        assert_eq!((&data.features[..], &labels[..]), (&[1.0, 2.0, 3.0, 1.0][..], &[2, 3, 1, 2][..]));
        let error = windows("abc\nad", &letters, 2, Path::new("t")).unwrap_err();
        assert_eq!(error.message(), "t:2: 'd' is no character that this network knows");
        let error = windows("abca", &letters, 2, Path::new("t")).unwrap_err();
        assert_eq!(error.message(), "t: 4 characters are too few for two windows of 2");
    }

    #[test]
    fn prose_is_no_table() {
        assert!(is_table("a,b\n1,2\n") && is_table("1\n2\n") && is_table("a;\"b;c\"\n1;2\n"));
        assert!(!is_table("one, line") && !is_table(""));
        assert!(!is_table("Call me Ishmael.\nSome years ago, never mind\n") && !is_table("one, two\nthree\n"));
    }
}
