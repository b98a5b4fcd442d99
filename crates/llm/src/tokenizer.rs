//! Text to token ids and back.
//!
//! Byte-level BPE and `tokenizer.json` run on Hugging Face's `tokenizers`; merges by score, which it does not have, are in
//! [`sentence_piece`]. Ids become bytes by a table, so text can be streamed whatever the vocabulary is.

mod added_tokens;
mod gguf;
mod hugging_face;
mod pre_tokenizers;
mod sentence_piece;

use panoply_tensor::{Error, Result};
use tokenizers::Tokenizer as Pipeline;

use sentence_piece::SentencePiece;

/// Tokens that end an answer, whatever the file says: their only use is that.
const END_TOKENS: &[&str] = &[
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<EOT>",
];

/// A tokenizer with its special tokens.
pub struct Tokenizer {
    engine: Engine,
    /// The bytes of each token; none for control tokens, which are not text.
    bytes: Vec<Vec<u8>>,
    /// The token put before every prompt, if any, where the engine does not put it itself.
    bos: Option<u32>,
    /// Tokens that end a generation.
    end: Vec<u32>,
    /// True if a space stands before the first word that is not part of the text.
    adds_space: bool,
    special: SpecialTokens,
    chat_template: Option<String>,
}

/// The implementation that turns text into ids.
enum Engine {
    Pipeline(Box<Pipeline>),
    SentencePiece(Box<SentencePiece>),
}

/// Texts of special tokens, as chat templates use them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Begins a prompt.
    pub bos: Option<String>,
    /// Ends a text.
    pub eos: Option<String>,
}

impl Tokenizer {
    /// The ids of a prompt, after the token that begins every prompt if the model has one.
    ///
    /// # Errors
    ///
    /// If the text cannot be tokenized.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let ids = self.ids(text, true)?;
        Ok(self.bos.into_iter().chain(ids).collect())
    }

    /// The ids of a text that has its special tokens already, as chat templates write it.
    ///
    /// # Errors
    ///
    /// As for [`Tokenizer::encode`].
    pub fn encode_as_is(&self, text: &str) -> Result<Vec<u32>> {
        self.ids(text, false)
    }

    fn ids(&self, text: &str, adds_special: bool) -> Result<Vec<u32>> {
        match &self.engine {
            Engine::SentencePiece(pieces) => Ok(pieces.encode(text)),
            Engine::Pipeline(pipeline) => {
                let encoding = pipeline.encode_fast(text, adds_special);
                let wrong = |error| Error::mistake(format!("the prompt cannot be tokenized: {error}"));
                Ok(encoding.map_err(wrong)?.get_ids().to_vec())
            }
        }
    }

    /// The text of ids, without control tokens; U+FFFD for bytes that are not UTF-8 and for ids outside the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut stream = DecodeStream::default();
        let mut text: String = ids.iter().map(|id| stream.push(self, *id)).collect();
        text += &stream.finish();
        if self.adds_space && text.starts_with(' ') {
            text.remove(0);
        }
        text
    }

    /// The bytes of a token: none for control tokens, `None` for ids outside the vocabulary.
    pub fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.bytes.get(id as usize).map(Vec::as_slice)
    }

    /// Number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.bytes.len()
    }

    /// True if a token ends a generation.
    pub fn is_end(&self, id: u32) -> bool {
        self.end.contains(&id)
    }

    /// Texts of special tokens.
    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.special
    }

    /// The chat template of the model, if it has one.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }
}

/// Text from tokens as they come: holds bytes back until they are a whole character.
#[derive(Debug, Default)]
pub struct DecodeStream {
    pending: Vec<u8>,
}

impl DecodeStream {
    /// Adds a token; returns the text that is complete with it, perhaps none.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> String {
        self.pending.extend(tokenizer.bytes(id).unwrap_or("\u{fffd}".as_bytes()));
        let mut text = String::new();
        loop {
            let error = match std::str::from_utf8(&self.pending) {
                Ok(rest) => {
                    text.push_str(rest);
                    self.pending.clear();
                    return text;
                }
                Err(error) => error,
            };
            let rest = self.pending.split_off(error.valid_up_to());
            text.push_str(&String::from_utf8_lossy(&self.pending));
            self.pending = rest;
            let Some(wrong) = error.error_len() else { return text };
            text.push('\u{fffd}');
            self.pending.drain(..wrong);
        }
    }

    /// The text of bytes that are still held back.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// The bytes of a token of a byte-level vocabulary; `None` if a character is not of its alphabet.
fn byte_level(token: &str) -> Option<Vec<u8>> {
    token.chars().map(byte_of).collect()
}

/// The byte that GPT-2's byte-level vocabularies write as a character; `None` for other characters.
fn byte_of(character: char) -> Option<u8> {
    let is_itself = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let code = u32::from(character);
    match u8::try_from(code) {
        Ok(byte) => is_itself(byte).then_some(byte),
        // The others follow 255 in their order.
        Err(_) => (0..=255u8).filter(|byte| !is_itself(*byte)).nth(code as usize - 256),
    }
}

/// The bytes of a token of a SentencePiece vocabulary: `▁` is a space, `<0xNN>` is a byte.
fn sentence_piece_bytes(token: &str) -> Vec<u8> {
    match byte_token(token) {
        Some(byte) => vec![byte],
        None => token.replace('▁', " ").into_bytes(),
    }
}

/// The byte that a token `<0xNN>` stands for.
fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 { None } else { u8::from_str_radix(digits, 16).ok() }
}
