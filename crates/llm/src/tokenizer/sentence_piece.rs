//! SentencePiece's BPE: neighbors merge in the order of the score of what they make, characters that are not tokens are written as bytes.
//!
//! Turning the scores into a unigram model, as others do, segments differently. Work is n log n in the length of the text.
//!
//! Source: Kudo and Richardson, SentencePiece, 2018; google/sentencepiece, src/bpe_model.cc.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use super::added_tokens::{AddedTokens, Part};
use super::byte_token;

/// Vocabulary with scores.
pub(super) struct SentencePiece {
    ids: HashMap<String, u32>,
    scores: Vec<f32>,
    /// Tokens of single bytes.
    bytes: [Option<u32>; 256],
    unknown: Option<u32>,
    added: AddedTokens,
    /// True if a space is put before the text and before what follows an added token.
    adds_space: bool,
}

/// Two neighbors that may merge.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Bytes of both; others than these mean that one of them has changed since.
    length: usize,
}

impl Ord for Pair {
    /// The greatest is the next to merge: the highest score, then the leftmost.
    fn cmp(&self, other: &Pair) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Pair) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Pair) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

/// A piece of the text: `start .. start + length`; merged pieces have length 0.
#[derive(Clone, Copy)]
struct Piece {
    start: usize,
    length: usize,
    previous: Option<usize>,
    next: Option<usize>,
}

impl SentencePiece {
    /// Creates a vocabulary of these tokens; `is_text` returns true for those that merges can produce.
    pub fn new(
        tokens: &[&str],
        scores: Vec<f32>,
        is_text: impl Fn(usize) -> bool,
        unknown: Option<u32>,
        added: AddedTokens,
        adds_space: bool,
    ) -> SentencePiece {
        let (mut ids, mut bytes) = (HashMap::new(), [None; 256]);
        for (n, token) in tokens.iter().enumerate() {
            match byte_token(token) {
                Some(byte) => bytes[usize::from(byte)] = Some(n as u32),
                None if is_text(n) => {
                    ids.insert(token.to_string(), n as u32);
                }
                None => {}
            }
        }
        SentencePiece { ids, scores, bytes, unknown, added, adds_space }
    }

    /// Returns the ids of a text.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let (mut ids, mut follows_token) = (Vec::new(), true);
        for part in self.added.split(text) {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text(text) => {
                    let space = if self.adds_space && follows_token { "▁" } else { "" };
                    self.merge(&format!("{space}{}", text.replace(' ', "▁")), &mut ids);
                }
            }
            follows_token = matches!(part, Part::Token(_));
        }
        ids
    }

    fn merge(&self, text: &str, ids: &mut Vec<u32>) {
        let count = text.chars().count();
        let piece = |(n, (start, character)): (usize, (usize, char))| Piece {
            start,
            length: character.len_utf8(),
            previous: n.checked_sub(1),
            next: Some(n + 1).filter(|next| *next < count),
        };
        let mut pieces: Vec<Piece> = text.char_indices().enumerate().map(piece).collect();
        let mut pairs = BinaryHeap::new();
        let pair = |pieces: &[Piece], left: usize, right: usize| -> Option<Pair> {
            let (a, b) = (pieces[left], pieces[right]);
            let length = a.length + b.length;
            let id = *self.ids.get(&text[a.start..a.start + length])?;
            Some(Pair { score: self.scores.get(id as usize).copied().unwrap_or(0.0), left, right, length })
        };
        pairs.extend((1..count).filter_map(|right| pair(&pieces, right - 1, right)));
        while let Some(Pair { left, right, length, .. }) = pairs.pop() {
            let (a, b) = (pieces[left], pieces[right]);
            if a.length == 0 || b.length == 0 || a.length + b.length != length {
                continue;
            }
            (pieces[left].length, pieces[left].next, pieces[right].length) = (length, b.next, 0);
            if let Some(next) = b.next {
                pieces[next].previous = Some(left);
                pairs.extend(pair(&pieces, left, next));
            }
            pairs.extend(a.previous.and_then(|previous| pair(&pieces, previous, left)));
        }
        for Piece { start, length, .. } in pieces.into_iter().filter(|piece| piece.length > 0) {
            let piece = &text[start..start + length];
            match self.ids.get(piece) {
                Some(id) => ids.push(*id),
                None => self.fall_back(piece, ids),
            }
        }
    }

    /// Returns the byte tokens of a character that is not a token; the unknown token if the vocabulary has no byte tokens.
    fn fall_back(&self, character: &str, ids: &mut Vec<u32>) {
        let bytes: Option<Vec<u32>> = character.bytes().map(|byte| self.bytes[usize::from(byte)]).collect();
        match bytes {
            Some(bytes) => ids.extend(bytes),
            None => ids.extend(self.unknown),
        }
    }
}
