//! The tokenizer of a folder: `tokenizer.json`, and what other files say about special tokens.

use std::path::Path;

use panoply_tensor::{Error, Result};
use serde_json::{Map, Value};
use tokenizers::Tokenizer as Pipeline;

use super::{END_TOKENS, Engine, SpecialTokens, Tokenizer, byte_level, sentence_piece_bytes};
use crate::folder::{Folder, json_object, text};

impl Tokenizer {
    /// Returns the tokenizer of a folder, for a model of `vocab` tokens.
    ///
    /// # Errors
    ///
    /// If a file is missing or not valid, the kind of vocabulary is not supported, or it has more tokens than the model.
    pub fn from_folder(folder: &Folder, vocab: usize) -> Result<Tokenizer> {
        let path = folder.path().join("tokenizer.json");
        let wrong = |what: String| Error::corrupt(format!("{}: {what}", path.display()));
        if !path.exists() {
            let message = format!("{}: tokenizer.json is missing", folder.path().display());
            return Err(Error::mistake(message).note("save the tokenizer with a recent version of transformers"));
        }
        let content = text(&path)?;
        let json: Map<String, Value> =
            serde_json::from_str(&content).map_err(|error| wrong(format!("it is not a JSON object: {error}")))?;
        let pipeline: Pipeline = content.parse().map_err(|error| wrong(format!("it is not a tokenizer: {error}")))?;
        json.get("post_processor").map_or(Ok(()), check_templates).map_err(wrong)?;
        let decoder = decoder(&json).ok_or_else(|| {
            let what = "its decoder is neither ByteLevel nor one of SentencePiece, which is not supported";
            Error::unsupported(format!("{}: {what}", path.display()))
        })?;
        let bytes = bytes(&pipeline, &json, (decoder, vocab)).map_err(wrong)?;
        let settings = optional_object(&folder.path().join("tokenizer_config.json"))?;
        let special = SpecialTokens { bos: token(&settings, "bos_token"), eos: token(&settings, "eos_token") };
        let end = end_tokens(folder, &pipeline, &special)?;
        Ok(Tokenizer {
            engine: Engine::Pipeline(Box::new(pipeline)),
            bytes,
            // The post-processor adds it.
            bos: None,
            end,
            adds_space: decoder == Decoder::SentencePiece(true),
            special,
            chat_template: chat_template(folder.path(), &settings)?,
        })
    }
}

/// Returns an error if the template of a post-processor has a special token without a definition, or the second text of a pair where there
/// is one text: `tokenizers` panics at these.
fn check_templates(processor: &Value) -> std::result::Result<(), String> {
    if let Some(parts) = processor.get("processors").and_then(Value::as_array) {
        return parts.iter().try_for_each(check_templates);
    }
    let tokens = processor.get("special_tokens");
    for piece in processor.get("single").and_then(Value::as_array).into_iter().flatten() {
        let id = |kind: &str| piece.get(kind).and_then(|piece| piece.get("id")).and_then(Value::as_str);
        if let Some(token) = id("SpecialToken").filter(|token| tokens.and_then(|tokens| tokens.get(token)).is_none()) {
            return Err(format!("its post_processor uses a special token that it does not define: {token:?}"));
        }
        if id("Sequence").is_some_and(|sequence| sequence != "A") {
            return Err("its post_processor uses a second text in the template for one text".to_string());
        }
    }
    Ok(())
}

fn optional_object(path: &Path) -> Result<Map<String, Value>> {
    if path.exists() { json_object(path) } else { Ok(Map::new()) }
}

/// Rules by which tokens become text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decoder {
    ByteLevel,
    /// `▁` is a space; whether one before the text is left out.
    SentencePiece(bool),
}

/// The decoder of a tokenizer; none if it is of another kind.
fn decoder(json: &Map<String, Value>) -> Option<Decoder> {
    let decoder = json.get("decoder")?;
    let all = match decoder.get("decoders").and_then(Value::as_array) {
        Some(decoders) => decoders.as_slice(),
        None => std::slice::from_ref(decoder),
    };
    let find = |kind: &str| all.iter().find(|decoder| decoder.get("type").and_then(Value::as_str) == Some(kind));
    if find("ByteLevel").is_some() {
        return Some(Decoder::ByteLevel);
    }
    let strips = find("Metaspace").is_some_and(|decoder| decoder.get("prepend_scheme") != Some(&"never".into()));
    let is_ours = ["Metaspace", "ByteFallback", "Replace"].into_iter().any(|kind| find(kind).is_some());
    is_ours.then(|| Decoder::SentencePiece(strips || find("Strip").is_some()))
}

/// Returns the bytes of each token.
fn bytes(
    pipeline: &Pipeline,
    json: &Map<String, Value>,
    (decoder, vocab): (Decoder, usize),
) -> std::result::Result<Vec<Vec<u8>>, String> {
    let tokens = pipeline.get_vocab(true);
    let count = tokens.values().max().map_or(0, |id| *id as usize + 1);
    if count > vocab {
        return Err(format!("it has {count} tokens, but the model has {vocab}; they are not of one model"));
    }
    let mut bytes = vec![Vec::new(); count];
    for (token, id) in tokens {
        let plain = match decoder {
            Decoder::ByteLevel => byte_level(&token),
            Decoder::SentencePiece(_) => Some(sentence_piece_bytes(&token)),
        };
        // A token outside the alphabet can only be an added one, which stands for itself.
        bytes[id as usize] = plain.unwrap_or_else(|| token.into_bytes());
    }
    let added = json.get("added_tokens").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for token in added {
        let id = token.get("id").and_then(Value::as_u64).and_then(|id| usize::try_from(id).ok());
        let content = token.get("content").and_then(Value::as_str).unwrap_or_default();
        let is_special = token.get("special").and_then(Value::as_bool).unwrap_or(false);
        if let Some(bytes) = id.and_then(|id| bytes.get_mut(id)) {
            *bytes = if is_special { Vec::new() } else { content.as_bytes().to_vec() };
        }
    }
    Ok(bytes)
}

/// A token of `tokenizer_config.json`: text, or an object with its content.
fn token(settings: &Map<String, Value>, key: &str) -> Option<String> {
    let value = settings.get(key)?;
    value.as_str().or_else(|| value.get("content")?.as_str()).map(str::to_string)
}

/// Returns the ids that end a text, from all files that name some.
fn end_tokens(folder: &Folder, pipeline: &Pipeline, special: &SpecialTokens) -> Result<Vec<u32>> {
    let generation = optional_object(&folder.path().join("generation_config.json"))?;
    let mut end = Vec::new();
    for object in [folder.config(), &generation] {
        let numbers = match object.get("eos_token_id") {
            Some(Value::Array(ids)) => ids.as_slice(),
            Some(id) => std::slice::from_ref(id),
            None => &[],
        };
        end.extend(numbers.iter().filter_map(Value::as_u64).filter_map(|id| u32::try_from(id).ok()));
    }
    let named = END_TOKENS.iter().copied().chain(special.eos.as_deref());
    end.extend(named.filter_map(|token| pipeline.token_to_id(token)));
    end.sort_unstable();
    end.dedup();
    Ok(end)
}

/// The chat template: a file of its own or a text of `tokenizer_config.json`, there perhaps one of several.
fn chat_template(path: &Path, settings: &Map<String, Value>) -> Result<Option<String>> {
    let file = path.join("chat_template.jinja");
    if file.exists() {
        return text(&file).map(Some);
    }
    let template = settings.get("chat_template");
    let named = template.and_then(Value::as_array).and_then(|templates| {
        templates.iter().find(|template| template.get("name").and_then(Value::as_str) == Some("default"))
    });
    let named = named.and_then(|template| template.get("template"));
    Ok(named.or(template).and_then(Value::as_str).map(str::to_string))
}
