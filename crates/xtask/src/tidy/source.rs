//! A source file for the rules: its text, the same text without comments and literals, and the lines that are test code.
//!
//! This is a lexer, not a parser: it recognizes strings, comments, attributes and brackets, which suffices for the rules. A plain search
//! would also match text in comments.

/// A file of the repository.
#[derive(Debug)]
pub struct Source {
    /// Path from the repository's root, with `/`.
    pub path: String,
    /// Text of the file.
    pub text: String,
    /// For a Rust file, the text with comments and contents of literals blanked, with the same length and lines; else empty.
    pub code: String,
    /// True if the whole file is test code.
    all_test: bool,
    /// Line ranges (from 0, end excluded) of items that are compiled for tests only.
    test_lines: Vec<std::ops::Range<usize>>,
}

impl Source {
    /// Creates the source of the file at `path`.
    pub fn new(path: &str, text: &str) -> Source {
        let code = if path.ends_with(".rs") { blank(text) } else { String::new() };
        let mut source = Source {
            path: path.to_string(),
            text: text.to_string(),
            all_test: test_path(path) || code.contains("#![cfg(test)]"),
            test_lines: Vec::new(),
            code,
        };
        source.test_lines = test_items(&source.code).into_iter().map(|item| item.lines).collect();
        source
    }

    /// Returns true for Rust files.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns the file name without folder and extension.
    pub fn stem(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        name.split('.').next().unwrap_or(name)
    }

    /// Returns true if line `index` (from 0) is compiled only for tests, benchmarks and examples.
    pub fn is_test_line(&self, index: usize) -> bool {
        self.all_test || self.test_lines.iter().any(|lines| lines.contains(&index))
    }

    /// Marks the file as test code: its parent declared it under `#[cfg(test)]`.
    pub fn mark_as_test(&mut self) {
        self.all_test = true;
    }

    /// Returns the possible files of `#[cfg(test)] mod name;` in this file.
    pub fn test_modules(&self) -> Vec<String> {
        let folder = self.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let own = match self.stem() {
            "lib" | "main" | "mod" => folder.to_string(),
            stem => format!("{folder}/{stem}"),
        };
        let names = test_items(&self.code).into_iter().filter_map(|item| item.module);
        names.flat_map(|name| [format!("{own}/{name}.rs"), format!("{own}/{name}/mod.rs")]).collect()
    }
}

fn test_path(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "benches" | "examples" | "tests.rs"))
}

/// Blanks comments and the contents of string and character literals, byte for byte.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let (keep, end) = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => (0, line_end(bytes, at)),
            b'/' if bytes[at..].starts_with(b"/*") => (0, comment_end(bytes, at)),
            b'"' => (1, string_end(bytes, at + 1)),
            b'r' if raw_hashes(bytes, at).is_some() => {
                let hashes = raw_hashes(bytes, at).unwrap_or(0);
                (hashes + 2, raw_end(bytes, at + hashes + 2, hashes))
            }
            b'\'' => match char_end(bytes, at) {
                Some(end) => (1, end),
                None => (1, at + 1),
            },
            _ => (1, at + 1),
        };
        for byte in &mut out[(at + keep).min(end)..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |length| at + length)
}

fn comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if bytes[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Returns the number of `#` if a raw string starts at this `r`.
fn raw_hashes(bytes: &[u8], at: usize) -> Option<usize> {
    let before = |back: usize| at.checked_sub(back).map(|index| bytes[index]);
    let starts_word = match before(1) {
        Some(b'b' | b'c') => !before(2).is_some_and(is_word),
        Some(byte) => !is_word(byte),
        None => true,
    };
    let hashes = bytes[at + 1..].iter().take_while(|&&byte| byte == b'#').count();
    (starts_word && bytes.get(at + 1 + hashes) == Some(&b'"')).then_some(hashes)
}

fn raw_end(bytes: &[u8], at: usize, hashes: usize) -> usize {
    let closing = [&b"\""[..], &b"#".repeat(hashes)].concat();
    let found = bytes[at..].windows(closing.len()).position(|window| window == closing);
    found.map_or(bytes.len(), |length| at + length + closing.len())
}

/// Returns the end of a character literal, or `None` if `'` starts a lifetime.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        let closing = bytes[at + 3..].iter().position(|&byte| byte == b'\'')?;
        return Some(at + 3 + closing + 1);
    }
    let text = std::str::from_utf8(&bytes[at + 1..(at + 6).min(bytes.len())]);
    let valid = match &text {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[at + 1..at + 1 + error.valid_up_to()]).unwrap_or(""),
    };
    let character = valid.chars().next()?;
    let closing = at + 1 + character.len_utf8();
    (bytes.get(closing) == Some(&b'\'')).then_some(closing + 1)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

struct TestItem {
    lines: std::ops::Range<usize>,
    /// Name in `mod name;`.
    module: Option<String>,
}

/// Returns items under `#[test]` or a `cfg` that requires `test`.
fn test_items(code: &str) -> Vec<TestItem> {
    let bytes = code.as_bytes();
    let line_of = |at: usize| bytes[..at].iter().filter(|&&byte| byte == b'\n').count();
    let mut items = Vec::new();
    let mut at = 0;
    while let Some(start) = code[at..].find("#[").map(|found| at + found) {
        let end = bracket_end(bytes, start + 1);
        at = end;
        if !is_test_attribute(&code[start..end]) {
            continue;
        }
        let (item_end, has_body) = item_end(bytes, end);
        let declaration = &code[end..item_end];
        let module = declaration
            .rsplit_once("mod ")
            .filter(|_| !has_body)
            .map(|(_, name)| name.trim_end_matches([';', ' ', '\n']).to_string());
        items.push(TestItem { lines: line_of(start)..line_of(item_end.saturating_sub(1)) + 1, module });
        at = item_end.max(end);
    }
    items
}

fn is_test_attribute(attribute: &str) -> bool {
    let compact: String = attribute.chars().filter(|character| !character.is_whitespace()).collect();
    let mut words = compact.split(|character: char| !(character.is_alphanumeric() || character == '_'));
    compact == "#[test]"
        || (compact.starts_with("#[cfg(") && words.any(|word| word == "test") && !compact.contains("not(test"))
}

/// Returns the end of the bracket that opens at `at`.
fn bracket_end(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0usize;
    for (index, byte) in bytes.iter().enumerate().skip(at) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return index + 1;
        }
    }
    bytes.len()
}

/// Returns the end of the item after its attribute, and true if it has a body in braces.
fn item_end(bytes: &[u8], mut at: usize) -> (usize, bool) {
    while at < bytes.len() {
        match bytes[at] {
            b'(' | b'[' => at = bracket_end(bytes, at),
            b'{' => return (bracket_end(bytes, at), true),
            b';' => return (at + 1, false),
            _ => at += 1,
        }
    }
    (bytes.len(), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked() {
        // `~` represents a blanked byte.
        let check = |text: &str, code: &str| assert_eq!(blank(text), code.replace('~', " "), "{text}");
        check("a // b\nc", "a ~~~~\nc");
        check("a /* x /* y */ z */ b", "a ~~~~~~~~~~~~~~~~~ b");
        check(r#"f("x\"y") + 1"#, r#"f("~~~~~) + 1"#);
        check(r##"f(r#"x"y"#) + 1"##, r##"f(r#"~~~~~) + 1"##);
        check("fn f<'a>(x: &'a str) { 'x' }", "fn f<'a>(x: &'a str) { '~~ }");
        check(r"m('\'', '\u{1F600}', b'\\')", r"m('~~~, '~~~~~~~~~~, b'~~~)");
        check("let r#type = for_\"x\"", "let r#type = for_\"~~");
        check("'ä' 'b", "'~~~ 'b");
        assert_eq!(blank("\"never ends").len(), "\"never ends".len());
    }

    #[test]
    fn test_items_end_at_their_closing_brace() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { \"}\" }\n}\nfn c() {}\n#[test]\nfn d(x: [u8; 3]) {\n}\nfn e() {}\n";
        let source = Source::new("crates/x/src/y.rs", text);
        let marked: Vec<usize> = (0..10).filter(|&line| source.is_test_line(line)).collect();
        assert_eq!(marked, [1, 2, 3, 4, 6, 7, 8]);
        let not =
            Source::new("crates/x/src/y.rs", "#[cfg(not(test))]\nfn a() {}\n#[cfg(feature = \"test\")]\nfn b() {}\n");
        assert!((0..4).all(|line| !not.is_test_line(line)));
    }

    #[test]
    fn test_modules_are_found() {
        let source = Source::new("crates/x/src/lower.rs", "#[cfg(test)]\nmod oracle;\nmod real;\n");
        assert_eq!(source.test_modules(), ["crates/x/src/lower/oracle.rs", "crates/x/src/lower/oracle/mod.rs"]);
        let root = Source::new("crates/x/src/lib.rs", "#[cfg(all(test, unix))]\npub(crate) mod gen;\n");
        assert_eq!(root.test_modules(), ["crates/x/src/gen.rs", "crates/x/src/gen/mod.rs"]);
    }
}
