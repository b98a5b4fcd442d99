//! Tokens with their line numbers.

/// A token and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// A word, a number or one character.
    pub text: String,
    /// The line number, counted from 1.
    pub line: u32,
}

/// Splits a text into tokens, without comments.
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
                return Err(format!("line {number}: unexpected character {first:?}"));
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
