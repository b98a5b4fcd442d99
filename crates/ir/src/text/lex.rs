//! Lexer of the text form. Tokens borrow from the text and are read one at a time, so memory use is bounded by the text.

/// A token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'t> {
    /// An identifier or keyword.
    Word(&'t str),
    /// The contents of a string in double quotes, with escapes.
    Quoted(&'t str),
    /// `.` and digits directly after a name: the number of a repeated name.
    Which(u32),
    /// `%` and digits.
    Definition(u32),
    /// A number with its type suffix, which can be empty.
    Number { digits: &'t str, suffix: &'t str },
    /// The digits after `0x`.
    Hex(&'t str),
    /// Punctuation.
    Sign(&'static str),
    /// The rest of the line after `//@`.
    Place(&'t str),
    /// The end of the text.
    End,
}

/// The lexer with its position.
#[derive(Clone, Copy)]
pub(super) struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

/// Punctuation; longer ones come first.
const SIGNS: [&str; 18] = ["::", ":=", "..", "(", ")", "[", "]", "{", "}", "<", ">", ",", ";", ":", "=", "&", ".", "%"];

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Lexer<'t> {
        Lexer { text, at: 0 }
    }

    /// Returns line and column, from 1, of a byte of the text.
    pub(super) fn line_and_column(&self, at: usize) -> (usize, usize) {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        (line, column)
    }

    /// Returns the next token and its first byte, or the position of an invalid character.
    pub(super) fn next(&mut self) -> Result<(Token<'t>, usize), usize> {
        let after_name = self.at;
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start().len();
            self.at += blank;
            let rest = self.rest();
            if rest.starts_with("//@") {
                return Ok(self.take(line(rest).len(), |text| Token::Place(text[3..].trim())));
            }
            if !rest.starts_with("//") {
                break;
            }
            self.at += line(rest).len();
        }
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok((Token::End, self.at)) };
        if first == '_' || first.is_ascii_alphabetic() {
            return Ok(self.take(span(rest, is_word), Token::Word));
        }
        if first.is_ascii_digit() || first == '-' && rest[1..].starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return self.number();
        }
        if first == '"' {
            return self.quoted();
        }
        if first == '.' && after_name == self.at || first == '%' {
            let digits = span(&rest[1..], |c| c.is_ascii_digit());
            if let Ok(number) = rest[1..=digits].parse() {
                let which = first == '.';
                return Ok(self.take(
                    digits + 1,
                    |_| {
                        if which { Token::Which(number) } else { Token::Definition(number) }
                    },
                ));
            }
        }
        match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => Ok(self.take(sign.len(), |_| Token::Sign(sign))),
            None => Err(self.at),
        }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn take(&mut self, len: usize, token: impl FnOnce(&'t str) -> Token<'t>) -> (Token<'t>, usize) {
        let start = self.at;
        self.at += len;
        (token(&self.text[start..self.at]), start)
    }

    fn quoted(&mut self) -> Result<(Token<'t>, usize), usize> {
        let mut escaped = false;
        for (i, c) in self.rest().char_indices().skip(1) {
            match c {
                '"' if !escaped => return Ok(self.take(i + 1, |text| Token::Quoted(&text[1..text.len() - 1]))),
                '\n' => break,
                _ => escaped = c == '\\' && !escaped,
            }
        }
        Err(self.at)
    }

    fn number(&mut self) -> Result<(Token<'t>, usize), usize> {
        let rest = self.rest();
        if let Some(hex) = rest.strip_prefix("0x") {
            let digits = span(hex, |c| c.is_ascii_hexdigit());
            return Ok(self.take(digits + 2, |text| Token::Hex(&text[2..])));
        }
        let digit = |c: char| c.is_ascii_digit();
        let mut len = usize::from(rest.starts_with('-'));
        len += span(&rest[len..], digit);
        if rest[len..].starts_with('.') && rest[len + 1..].starts_with(digit) {
            len += 1 + span(&rest[len + 1..], digit);
        }
        if let Some(exponent) = rest[len..].strip_prefix('e') {
            let sign = usize::from(exponent.starts_with('-'));
            let digits = span(&exponent[sign..], digit);
            len += if digits > 0 { 1 + sign + digits } else { 0 };
        }
        let suffix = span(&rest[len..], is_word);
        Ok(self.take(len + suffix, |text| Token::Number { digits: &text[..len], suffix: &text[len..] }))
    }
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric()
}

/// Returns the number of leading bytes whose characters match.
fn span(text: &str, is: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is(c)).unwrap_or(text.len())
}

/// Returns the first line of the text.
fn line(text: &str) -> &str {
    text.split('\n').next().unwrap_or(text)
}
