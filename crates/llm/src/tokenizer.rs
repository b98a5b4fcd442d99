//! Text to token ids and back.
//!
//! Byte-level BPE and `tokenizer.json` run on Hugging Face's `tokenizers`; merges by score, which it does not have, are in
//! [`sentence_piece`]. Ids are decoded to bytes by a table, so text can be streamed with every vocabulary.

mod added_tokens;
mod gguf;
mod hugging_face;
mod pre_tokenizers;
mod sentence_piece;

use panoply_tensor::{Error, Result};
use tokenizers::Tokenizer as Pipeline;

use sentence_piece::SentencePiece;

/// Tokens that end an answer whatever the file says, since they have no other use.
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

/// Tokenizer with its special tokens.
pub struct Tokenizer {
    engine: Engine,
    /// Bytes of each token; empty for control tokens, which are not text.
    bytes: Vec<Vec<u8>>,
    /// Token before every prompt, if any, where the engine does not add it itself.
    bos: Option<u32>,
    /// Tokens that end a generation.
    end: Vec<u32>,
    /// True if the first word is preceded by a space that is not part of the text.
    adds_space: bool,
    special: SpecialTokens,
    chat_template: Option<String>,
}

/// Implementation that converts text to ids.
enum Engine {
    Pipeline(Box<Pipeline>),
    SentencePiece(Box<SentencePiece>),
}

/// Texts of special tokens, as chat templates use them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Token that begins a prompt.
    pub bos: Option<String>,
    /// Token that ends a text.
    pub eos: Option<String>,
}

impl Tokenizer {
    /// Returns the ids of a prompt, after the token that begins every prompt if the model has one.
    ///
    /// # Errors
    ///
    /// If the text cannot be tokenized.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let ids = self.ids(text, true)?;
        Ok(self.bos.into_iter().chain(ids).collect())
    }

    /// Returns the ids of a text that already contains its special tokens, such as the output of a chat template.
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

    /// Returns the text of ids, without control tokens; U+FFFD for bytes that are not UTF-8 and for ids outside the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut stream = DecodeStream::default();
        let mut text: String = ids.iter().map(|id| stream.push(self, *id)).collect();
        text += &stream.finish();
        if self.adds_space && text.starts_with(' ') {
            text.remove(0);
        }
        text
    }

    /// Returns the bytes of a token: empty for control tokens, `None` for ids outside the vocabulary.
    pub fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.bytes.get(id as usize).map(Vec::as_slice)
    }

    /// Returns the number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns true if a token ends a generation.
    pub fn is_end(&self, id: u32) -> bool {
        self.end.contains(&id)
    }

    /// Returns the texts of special tokens.
    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.special
    }

    /// Returns the chat template of the model, if it has one.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }
}

/// Decodes a stream of tokens: keeps bytes until they form a complete character.
#[derive(Debug, Default)]
pub struct DecodeStream {
    pending: Vec<u8>,
}

impl DecodeStream {
    /// Adds a token and returns the text that is complete with it, possibly empty.
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

    /// Returns the text of the remaining bytes.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// Returns the bytes of a token of a byte-level vocabulary; `None` if a character is not in its alphabet.
fn byte_level(token: &str) -> Option<Vec<u8>> {
    token.chars().map(byte_of).collect()
}

/// Returns the byte that GPT-2's byte-level vocabularies write as a character; `None` for other characters.
fn byte_of(character: char) -> Option<u8> {
    let is_itself = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let code = u32::from(character);
    match u8::try_from(code) {
        Ok(byte) => is_itself(byte).then_some(byte),
        // The others follow 255 in their order.
        Err(_) => (0..=255u8).filter(|byte| !is_itself(*byte)).nth(code as usize - 256),
    }
}

/// Returns the bytes of a token of a SentencePiece vocabulary: `▁` is a space, `<0xNN>` is a byte.
fn sentence_piece_bytes(token: &str) -> Vec<u8> {
    match byte_token(token) {
        Some(byte) => vec![byte],
        None => token.replace('▁', " ").into_bytes(),
    }
}

/// Returns the byte of a token `<0xNN>`.
fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 { None } else { u8::from_str_radix(digits, 16).ok() }
}
