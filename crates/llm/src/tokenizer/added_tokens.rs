//! Tokens that are found in a text before it is split: the longest at the leftmost place.

use std::collections::HashMap;

/// Tokens by their first byte, the longest first.
#[derive(Debug, Default)]
pub(super) struct AddedTokens {
    by_first: HashMap<u8, Vec<(String, u32)>>,
}

/// Part of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    Text(&'a str),
    Token(u32),
}

impl AddedTokens {
    /// Creates the table of these tokens with their ids; empty ones are ignored.
    pub fn new(tokens: impl IntoIterator<Item = (String, u32)>) -> AddedTokens {
        let mut by_first: HashMap<u8, Vec<(String, u32)>> = HashMap::new();
        for (token, id) in tokens {
            if let Some(first) = token.as_bytes().first() {
                by_first.entry(*first).or_default().push((token, id));
            }
        }
        by_first.values_mut().for_each(|tokens| tokens.sort_by_key(|(token, _)| std::cmp::Reverse(token.len())));
        AddedTokens { by_first }
    }

    /// Returns the added tokens of a text, and the text between them.
    pub fn split<'a>(&self, text: &'a str) -> Vec<Part<'a>> {
        let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
        while at < text.len() {
            let rest = &text.as_bytes()[at..];
            let tokens = self.by_first.get(&rest[0]);
            let found = tokens.and_then(|tokens| tokens.iter().find(|(token, _)| rest.starts_with(token.as_bytes())));
            let Some((token, id)) = found else {
                at += 1;
                continue;
            };
            if start < at {
                parts.push(Part::Text(&text[start..at]));
            }
            parts.push(Part::Token(*id));
            at += token.len();
            start = at;
        }
        if start < text.len() {
            parts.push(Part::Text(&text[start..]));
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_token_at_the_leftmost_place_is_found() {
        let tokens = AddedTokens::new([("<a>".into(), 1), ("<a><b>".into(), 2), ("é".into(), 3), (String::new(), 4)]);
        use Part::{Text, Token};
        assert_eq!(tokens.split("x<a><b>y<a>é"), [Text("x"), Token(2), Text("y"), Token(1), Token(3)]);
        assert_eq!(tokens.split("ê<"), [Text("ê<")]);
        assert_eq!(tokens.split(""), []);
    }
}
