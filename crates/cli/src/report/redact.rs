//! Removes what identifies a machine or a person from text.

use serde_json::Value;

/// Replaces paths by `(path)`, and the names of the host and the user by `(name)`. In a path with spaces, the words after the first are
/// only checked for names.
pub struct Redaction {
    names: Vec<String>,
}

impl Redaction {
    /// Creates the redaction for this machine and user.
    pub fn new() -> Redaction {
        let home = std::env::home_dir().and_then(|home| Some(home.file_name()?.to_string_lossy().into_owned()));
        Redaction::of([whoami::hostname().ok(), whoami::username().ok(), home].into_iter().flatten())
    }

    /// Creates a redaction of these names; common words are not names.
    fn of(names: impl IntoIterator<Item = String>) -> Redaction {
        // A host name can be followed by its domain, and a user name can have several words.
        let parts = |name: String| {
            let host = name.trim().split('.').next().unwrap_or_default().to_string();
            let words: Vec<String> = name.split_whitespace().map(str::to_string).collect();
            words.into_iter().chain([host])
        };
        let names = names.into_iter().flat_map(parts);
        let is_name = |name: &String| name.len() > 2 && !["root", "localhost", "user"].contains(&name.as_str());
        Redaction { names: names.filter(is_name).collect() }
    }

    /// Redacts every string in a document, except keys.
    pub fn apply(&self, document: &mut Value) {
        match document {
            Value::String(text) => *text = self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.apply(value)),
            Value::Object(entries) => entries.values_mut().for_each(|value| self.apply(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&self, text: &str) -> String {
        let ends = |letter: char| letter.is_whitespace() || "\"'`()[]<>=,;".contains(letter);
        let (mut redacted, mut rest) = (String::with_capacity(text.len()), text);
        while !rest.is_empty() {
            let length = rest.find(ends).unwrap_or(rest.len());
            let (word, after) = rest.split_at(length);
            redacted += &self.word(word);
            let separator = after.chars().next().map_or(0, char::len_utf8);
            redacted += &after[..separator];
            rest = &after[separator..];
        }
        redacted
    }

    fn word(&self, word: &str) -> String {
        // A path has a separator after neither a letter nor a digit: `/x`, `~/x`, `../x`, `C:\x`, `file:///x`, but not `GB/s` or `1/2`.
        let begins_path =
            |(at, letter): (usize, char)| matches!(letter, '/' | '\\') && !word[..at].ends_with(char::is_alphanumeric);
        if word.len() > 1 && word.char_indices().any(begins_path) {
            return "(path)".to_string();
        }
        // A name can end with punctuation, and a host name with its domain.
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '-' || letter == '_';
        let names = |part: &str| self.names.iter().any(|name| name == part);
        match names(word) || word.split(|letter| !is_part(letter)).any(names) {
            true => "(name)".to_string(),
            false => word.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_names_are_removed() {
        let redaction = Redaction::of(["gpu-box.lan\n", "ada", "root", "Grace Hopper"].map(str::to_string));
        for (text, redacted) in [
            ("cannot read /srv/ada/x.csv: gone", "cannot read (path) gone"),
            ("log in 'C:\\Users\\ada\\log.txt', line 3", "log in '(path)', line 3"),
            ("LD_LIBRARY_PATH=/opt/lib:/usr/lib", "LD_LIBRARY_PATH=(path)"),
            ("~/.cache (file:///tmp/x)", "(path) ((path))"),
            ("dlopen:/opt/lib/x.so failed, see ../log", "(path) failed, see (path)"),
            ("C:\\Users\\Grace Hopper\\x", "(path) (name)"),
            ("ada@gpu-box.lan: the root of 2", "(name) the root of 2"),
            ("30.1 GB/s, x / y, adapter 1/2, and Adam", "30.1 GB/s, x / y, adapter 1/2, and Adam"),
            ("NVIDIA H100 80GB HBM3 (CUDA 12.4, 550.54.14)", "NVIDIA H100 80GB HBM3 (CUDA 12.4, 550.54.14)"),
        ] {
            assert_eq!(redaction.text(text), redacted);
        }
        let mut document = serde_json::json!({"a": ["/x/y", 1], "b": {"c": "ada"}, "d": null});
        redaction.apply(&mut document);
        assert_eq!(document, serde_json::json!({"a": ["(path)", 1], "b": {"c": "(name)"}, "d": null}));
    }
}
