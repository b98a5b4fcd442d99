//! The tokenizer of a GGUF file.

use ahash::AHashMap;
use panoply_tensor::{Error, Result};
use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer as Pipeline};

use super::added_tokens::AddedTokens;
use super::pre_tokenizers::{self, PreTokenizer};
use super::sentence_piece::SentencePiece;
use super::{END_TOKENS, Engine, SpecialTokens, Tokenizer, byte_level, byte_token, sentence_piece_bytes};
use crate::gguf::{Gguf, Value};

/// Values of `token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Piece of text, unknown token, or byte.
    Text,
    /// Control token, which is not text.
    Control,
    /// User-defined token, which is matched before the text is split.
    UserDefined,
    /// Unused token.
    Unused,
}

/// Vocabulary of a file.
struct Vocabulary<'a> {
    file: &'a Gguf,
    tokens: Vec<&'a str>,
    kinds: Vec<Kind>,
}

impl Tokenizer {
    /// Returns the tokenizer of a file.
    ///
    /// # Errors
    ///
    /// If the kind of vocabulary is not supported, or the vocabulary is inconsistent.
    pub fn from_gguf(file: &Gguf) -> Result<Tokenizer> {
        let vocabulary = Vocabulary::read(file)?;
        match file.required("tokenizer.ggml.model", "a string", Value::as_str)? {
            "gpt2" => vocabulary.byte_level(),
            "llama" => vocabulary.sentence_piece(),
            other => {
                let what = format!("tokenizer {other:?} is not supported; gpt2 and llama are");
                Err(Error::unsupported(format!("{}: {what}", file.path().display())))
            }
        }
    }
}

fn strings<'a>(file: &'a Gguf, key: &str) -> Result<Vec<&'a str>> {
    let values = file.required(key, "an array", Value::as_array)?;
    let strings: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
    strings.ok_or_else(|| Error::corrupt(format!("{}: {key} is not an array of strings", file.path().display())))
}

impl<'a> Vocabulary<'a> {
    fn read(file: &'a Gguf) -> Result<Vocabulary<'a>> {
        let tokens = strings(file, "tokenizer.ggml.tokens")?;
        let types = file.optional("tokenizer.ggml.token_type", "an array", Value::as_array)?.unwrap_or_default();
        if !types.is_empty() && types.len() != tokens.len() {
            let what = format!("{} token types for {} tokens", types.len(), tokens.len());
            return Err(Error::corrupt(format!("{}: {what}", file.path().display())));
        }
        let kind = |n: usize| match types.get(n).and_then(Value::as_usize) {
            Some(3) => Kind::Control,
            Some(4) => Kind::UserDefined,
            Some(5) => Kind::Unused,
            Some(_) | None => Kind::Text,
        };
        let kinds = (0..tokens.len()).map(kind).collect();
        Ok(Vocabulary { file, tokens, kinds })
    }

    fn wrong(&self, what: &str) -> Error {
        Error::corrupt(format!("{}: {what}", self.file.path().display()))
    }

    /// Byte-level BPE: merges in the order of a list.
    fn byte_level(&self) -> Result<Tokenizer> {
        let name = self.file.optional("tokenizer.ggml.pre", "a string", Value::as_str)?.unwrap_or("default");
        let pre = pre_tokenizers::find(name).ok_or_else(|| {
            let what = format!("pre-tokenizer {name:?} is not supported; supported are {}", pre_tokenizers::names());
            Error::unsupported(format!("{}: {what}", self.file.path().display()))
                .note("convert the model again with a converter that writes tokenizer.ggml.pre, or use its folder")
        })?;
        let mut pipeline = Pipeline::new(self.bpe(pre)?);
        let mut splits = Vec::<PreTokenizerWrapper>::new();
        for pattern in pre.patterns {
            let pattern = SplitPattern::Regex(pattern.to_string());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
            splits.push(split.map_err(|error| self.wrong(&format!("pre-tokenizer {name}: {error}")))?.into());
        }
        splits.push(ByteLevel::new(false, true, false).into());
        pipeline.with_pre_tokenizer(Some(Sequence::new(splits)));
        for (token, kind) in self.tokens.iter().zip(&self.kinds) {
            let added = |is_special: bool| [AddedToken::from(*token, is_special).normalized(false)];
            let result = match kind {
                Kind::Control => pipeline.add_special_tokens(added(true)),
                Kind::UserDefined => pipeline.add_tokens(added(false)),
                Kind::Text | Kind::Unused => continue,
            };
            result.map_err(|error| self.wrong(&format!("token {token:?} cannot be added: {error}")))?;
        }
        let bytes = self.bytes(|token| {
            byte_level(token).ok_or_else(|| self.wrong(&format!("token {token:?} is not in the byte-level alphabet")))
        })?;
        self.tokenizer(Engine::Pipeline(Box::new(pipeline)), bytes, (pre.adds_bos, false))
    }

    fn bpe(&self, pre: &PreTokenizer) -> Result<BPE> {
        let vocabulary: AHashMap<String, u32> =
            self.tokens.iter().zip(0u32..).map(|(token, id)| (token.to_string(), id)).collect();
        if vocabulary.len() != self.tokens.len() {
            return Err(self.wrong("tokenizer.ggml.tokens holds a token twice"));
        }
        let mut merges = Vec::new();
        for merge in strings(self.file, "tokenizer.ggml.merges")? {
            let two = merge.split_once(' ').ok_or_else(|| self.wrong(&format!("merge {merge:?} is not two tokens")));
            let (left, right) = two?;
            merges.push((left.to_string(), right.to_string()));
        }
        let builder = BPE::builder().vocab_and_merges(vocabulary, merges).ignore_merges(pre.ignores_merges);
        builder.build().map_err(|error| self.wrong(&format!("the merges do not fit the tokens: {error}")))
    }

    /// SentencePiece: merges in the order of scores.
    fn sentence_piece(&self) -> Result<Tokenizer> {
        let scores = self.file.required("tokenizer.ggml.scores", "an array", Value::as_array)?;
        let scores: Option<Vec<f32>> = scores.iter().map(|score| score.as_f64().map(|score| score as f32)).collect();
        let scores = scores.filter(|scores| scores.len() == self.tokens.len() && !scores.iter().any(|x| x.is_nan()));
        let scores = scores.ok_or_else(|| self.wrong("tokenizer.ggml.scores is not a number for each token"))?;
        let adds_space =
            self.file.optional("tokenizer.ggml.add_space_prefix", "a bool", Value::as_bool)?.unwrap_or(true);
        let unknown = self.id("tokenizer.ggml.unknown_token_id")?;
        let is_added = |n: &usize| matches!(self.kinds[*n], Kind::Control | Kind::UserDefined);
        let added = (0..self.tokens.len()).filter(is_added).map(|n| (self.tokens[n].to_string(), n as u32));
        let is_text = |n: usize| self.kinds[n] == Kind::Text && Some(n as u32) != unknown;
        let added = AddedTokens::new(added);
        let pieces = SentencePiece::new(&self.tokens, scores, is_text, unknown, added, adds_space);
        let bytes = self.bytes(|token| Ok(sentence_piece_bytes(token)))?;
        self.tokenizer(Engine::SentencePiece(Box::new(pieces)), bytes, (true, adds_space))
    }

    /// The bytes of each token, by `text` those of text.
    fn bytes(&self, text: impl Fn(&str) -> Result<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let bytes = |(token, kind): (&&str, &Kind)| match kind {
            Kind::Control => Ok(Vec::new()),
            Kind::UserDefined if byte_token(token).is_none() => Ok(token.replace('▁', " ").into_bytes()),
            Kind::Text | Kind::UserDefined | Kind::Unused => text(token),
        };
        self.tokens.iter().zip(&self.kinds).map(bytes).collect()
    }

    fn id(&self, key: &str) -> Result<Option<u32>> {
        let Some(id) = self.file.optional(key, "a token id", Value::as_usize)? else { return Ok(None) };
        if id >= self.tokens.len() {
            return Err(self.wrong(&format!("{key} is {id}, but there are {} tokens", self.tokens.len())));
        }
        Ok(Some(id as u32))
    }

    /// The rest, which all kinds have alike. `adds_bos` is for files that do not say it.
    fn tokenizer(
        &self,
        engine: Engine,
        bytes: Vec<Vec<u8>>,
        (adds_bos, adds_space): (bool, bool),
    ) -> Result<Tokenizer> {
        let bos = self.id("tokenizer.ggml.bos_token_id")?;
        let given = self.file.optional("tokenizer.ggml.add_bos_token", "a bool", Value::as_bool)?;
        if given == Some(true) && bos.is_none() {
            return Err(self.wrong("add_bos_token is set, but bos_token_id is missing"));
        }
        let eos = self.id("tokenizer.ggml.eos_token_id")?;
        let turn = [self.id("tokenizer.ggml.eot_token_id")?, self.id("tokenizer.ggml.eom_token_id")?];
        let named = self.tokens.iter().zip(0u32..).filter(|(token, _)| END_TOKENS.contains(token)).map(|(_, id)| id);
        let mut end: Vec<u32> = [eos, turn[0], turn[1]].into_iter().flatten().chain(named).collect();
        end.sort_unstable();
        end.dedup();
        let text = |id: Option<u32>| id.map(|id| self.tokens[id as usize].to_string());
        let template = self.file.optional("tokenizer.chat_template", "a string", Value::as_str)?;
        Ok(Tokenizer {
            engine,
            bytes,
            bos: bos.filter(|_| given.unwrap_or(adds_bos)),
            end,
            adds_space,
            special: SpecialTokens { bos: text(bos), eos: text(eos) },
            chat_template: template.map(str::to_string),
        })
    }
}
