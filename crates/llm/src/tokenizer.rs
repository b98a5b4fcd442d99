//! Conversion of text to token ids and back, with the vocabulary of a GGUF file.

use ahash::AHashMap;
use panoply_tensor::{Error, Result};
use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer as Pipeline};

use crate::gguf::{Gguf, Value};

/// `token_type` of control tokens, which are not text.
const CONTROL: usize = 3;
/// `token_type` of tokens that are matched before the text is split.
const USER_DEFINED: usize = 4;
/// A tokenizer with its special tokens.
pub struct Tokenizer {
    pipeline: Pipeline,
    /// Bytes of each token; empty for control tokens.
    bytes: Vec<Vec<u8>>,
    /// Beginning-of-sequence token that precedes every prompt, if any.
    bos: Option<u32>,
    /// Tokens that end a generation.
    end: Vec<u32>,
}

impl Tokenizer {
    /// Creates the tokenizer of a file.
    ///
    /// # Errors
    ///
    /// If the vocabulary is not supported or inconsistent.
    pub fn from_gguf(file: &Gguf) -> Result<Tokenizer> {
        let wrong = |what: String| Error::corrupt(format!("{}: {what}", file.path().display()));
        let model = file.required("tokenizer.ggml.model", "a string", Value::as_str)?;
        let pre = file.optional("tokenizer.ggml.pre", "a string", Value::as_str)?.unwrap_or("default");
        if (model, pre) != ("gpt2", "gpt-2") {
            let what = format!("tokenizer {model:?} with pre-tokenizer {pre:?} is not supported; gpt2 with gpt-2 is");
            return Err(Error::unsupported(format!("{}: {what}", file.path().display())));
        }
        let tokens = strings(file, "tokenizer.ggml.tokens")?;
        let vocabulary: AHashMap<String, u32> =
            tokens.iter().zip(0u32..).map(|(token, id)| (token.to_string(), id)).collect();
        if vocabulary.len() != tokens.len() {
            return Err(wrong("tokenizer.ggml.tokens holds a token twice".to_string()));
        }
        let mut merges = Vec::new();
        for merge in strings(file, "tokenizer.ggml.merges")? {
            let (left, right) =
                merge.split_once(' ').ok_or_else(|| wrong(format!("merge {merge:?} is not two tokens")))?;
            merges.push((left.to_string(), right.to_string()));
        }
        let bpe = BPE::builder().vocab_and_merges(vocabulary, merges).build();
        let mut pipeline =
            Pipeline::new(bpe.map_err(|error| wrong(format!("the merges do not fit the tokens: {error}")))?);
        pipeline.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
        let bytes = add_special_tokens(&mut pipeline, file, &tokens)?;
        let id = |key: &str| -> Result<Option<u32>> {
            let Some(id) = file.optional(key, "a token id", Value::as_usize)? else { return Ok(None) };
            if id >= tokens.len() {
                return Err(wrong(format!("{key} is {id}, but there are {} tokens", tokens.len())));
            }
            Ok(Some(id as u32))
        };
        let adds_bos = file.optional("tokenizer.ggml.add_bos_token", "a bool", Value::as_bool)?.unwrap_or(false);
        let bos = id("tokenizer.ggml.bos_token_id")?;
        if adds_bos && bos.is_none() {
            return Err(wrong("add_bos_token is set, but bos_token_id is missing".to_string()));
        }
        let end = [id("tokenizer.ggml.eos_token_id")?, id("tokenizer.ggml.eot_token_id")?];
        Ok(Tokenizer { pipeline, bytes, bos: bos.filter(|_| adds_bos), end: end.into_iter().flatten().collect() })
    }

    /// Returns the ids of a prompt, after the beginning-of-sequence token if the model has one.
    ///
    /// # Errors
    ///
    /// If the text cannot be tokenized.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.pipeline.encode(text, false);
        let encoding = encoding.map_err(|error| Error::mistake(format!("the prompt cannot be tokenized: {error}")))?;
        Ok(self.bos.into_iter().chain(encoding.get_ids().iter().copied()).collect())
    }

    /// Returns the text of ids without control tokens; U+FFFD for bytes that are not UTF-8 and for ids outside of the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut stream = DecodeStream::default();
        let text: String = ids.iter().map(|id| stream.push(self, *id)).collect();
        text + &stream.finish()
    }

    /// Returns true if a token ends a generation.
    pub fn is_end(&self, id: u32) -> bool {
        self.end.contains(&id)
    }
}

/// Incremental decoder: holds bytes back until they form a complete character.
#[derive(Debug, Default)]
pub struct DecodeStream {
    pending: Vec<u8>,
}

impl DecodeStream {
    /// Adds a token; returns the text that it completes, which can be empty.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> String {
        let unknown = "\u{fffd}".as_bytes();
        self.pending.extend(tokenizer.bytes.get(id as usize).map_or(unknown, Vec::as_slice));
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

    /// Returns the text of the bytes that are still held back.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// Returns the byte that a character of GPT-2's byte-level alphabet represents; `None` for other characters.
fn byte_of(character: char) -> Option<u8> {
    let is_itself = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let code = u32::from(character);
    match u8::try_from(code) {
        Ok(byte) => is_itself(byte).then_some(byte),
        // The other bytes are represented by the characters from 256 on, in their order.
        Err(_) => (0..=255u8).filter(|byte| !is_itself(*byte)).nth(code as usize - 256),
    }
}

fn strings<'a>(file: &'a Gguf, key: &str) -> Result<Vec<&'a str>> {
    let values = file.required(key, "an array", Value::as_array)?;
    let strings: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
    strings.ok_or_else(|| Error::corrupt(format!("{}: {key} is not an array of strings", file.path().display())))
}

/// Adds the control and user-defined tokens; returns the bytes of each token.
fn add_special_tokens(pipeline: &mut Pipeline, file: &Gguf, tokens: &[&str]) -> Result<Vec<Vec<u8>>> {
    let wrong = |what: String| Error::corrupt(format!("{}: {what}", file.path().display()));
    let types = file.optional("tokenizer.ggml.token_type", "an array", Value::as_array)?.unwrap_or_default();
    if !types.is_empty() && types.len() != tokens.len() {
        return Err(wrong(format!("{} token types for {} tokens", types.len(), tokens.len())));
    }
    let mut bytes = Vec::with_capacity(tokens.len());
    for (n, token) in tokens.iter().enumerate() {
        let kind = types.get(n).and_then(Value::as_usize);
        let is_control = kind == Some(CONTROL);
        if is_control || kind == Some(USER_DEFINED) {
            let added = [AddedToken::from(*token, is_control).normalized(false)];
            let result = if is_control { pipeline.add_special_tokens(added) } else { pipeline.add_tokens(added) };
            result.map_err(|error| wrong(format!("token {token:?} cannot be added: {error}")))?;
            bytes.push(if is_control { Vec::new() } else { token.as_bytes().to_vec() });
            continue;
        }
        let decoded: Option<Vec<u8>> = token.chars().map(byte_of).collect();
        bytes.push(decoded.ok_or_else(|| wrong(format!("token {token:?} is not in the byte-level alphabet")))?);
    }
    Ok(bytes)
}
