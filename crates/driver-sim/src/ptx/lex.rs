//! Tokens with their lines.

/// A piece of text and where it stood.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// A word, a number or one character.
    pub text: String,
    /// Counted from 1.
    pub line: u32,
}

/// The tokens of a text without its comments.
pub fn tokens(source: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    for (at, line) in source.lines().enumerate() {
        let number = at as u32 + 1;
        let code = line.split("//").next().unwrap_or_default();
        let mut rest = code.trim_start();
        while let Some(first) = rest.chars().next() {
            let length =
                if is_word(first) { rest.find(|c| !is_word(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
            if !is_word(first) && !",;:{}()[]<>@!+-".contains(first) {
                return Err(format!("line {number}: {first:?} is no part of PTX"));
            }
            tokens.push(Token { text: rest[..length].to_string(), line: number });
            rest = rest[length..].trim_start();
        }
    }
    Ok(tokens)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_$%.".contains(c)
}
