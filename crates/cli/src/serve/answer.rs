//! Answers of OpenAI's API: whole documents and chunks of a stream.

use panoply::llm::tokenizer::Tokenizer;
use panoply::llm::{Completion, FinishReason, TokenLogprob};
use serde_json::{Map, Value, json};

use super::request::Api;

/// In place of minus infinity, which JSON does not have.
const MIN_LOGPROB: f32 = -9999.0;

/// The members that all documents of an answer share.
pub struct Answer {
    pub api: Api,
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    pub model: String,
    /// True if the client wants the probabilities of tokens.
    pub has_logprobs: bool,
    /// True if chunks have a field for the counts of tokens.
    pub includes_usage: bool,
    /// Characters of the tokens before the next chunk, for the offsets of completions.
    pub offset: usize,
}

impl Answer {
    /// The whole answer.
    pub fn whole(&mut self, tokenizer: &Tokenizer, text: &str, logprobs: &[TokenLogprob], end: &Completion) -> Value {
        let logprobs = self.logprobs(tokenizer, logprobs);
        let reason = reason(end.finish_reason);
        let choice = match self.api {
            Api::Chat => {
                let message = json!({"role": "assistant", "content": text, "refusal": null});
                json!({"index": 0, "message": message, "logprobs": logprobs, "finish_reason": reason})
            }
            Api::Completion => json!({"index": 0, "text": text, "logprobs": logprobs, "finish_reason": reason}),
        };
        let object = match self.api {
            Api::Chat => "chat.completion",
            Api::Completion => "text_completion",
        };
        self.document(object, json!([choice]), Some(usage(end)))
    }

    /// The first chunk of a stream, where the API has one without text.
    pub fn first_chunk(&self) -> Option<Value> {
        let delta = json!({"role": "assistant", "content": ""});
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": null});
        (self.api == Api::Chat).then(|| self.chunk_of(choice))
    }

    /// A chunk with a piece of text.
    pub fn text_chunk(&mut self, tokenizer: &Tokenizer, text: &str, logprobs: &[TokenLogprob]) -> Value {
        let logprobs = self.logprobs(tokenizer, logprobs);
        self.chunk_of(match self.api {
            Api::Chat => json!({"index": 0, "delta": {"content": text}, "logprobs": logprobs, "finish_reason": null}),
            Api::Completion => json!({"index": 0, "text": text, "logprobs": logprobs, "finish_reason": null}),
        })
    }

    /// The chunks after the last piece of text.
    pub fn last_chunks(&self, end: &Completion) -> Vec<Value> {
        let reason = reason(end.finish_reason);
        let last = self.chunk_of(match self.api {
            Api::Chat => json!({"index": 0, "delta": {}, "logprobs": null, "finish_reason": reason}),
            Api::Completion => json!({"index": 0, "text": "", "logprobs": null, "finish_reason": reason}),
        });
        let usage = self.includes_usage.then(|| self.document(self.chunk_object(), json!([]), Some(usage(end))));
        std::iter::once(last).chain(usage).collect()
    }

    fn chunk_object(&self) -> &'static str {
        match self.api {
            Api::Chat => "chat.completion.chunk",
            Api::Completion => "text_completion",
        }
    }

    fn chunk_of(&self, choice: Value) -> Value {
        self.document(self.chunk_object(), json!([choice]), self.includes_usage.then_some(Value::Null))
    }

    fn document(&self, object: &str, choices: Value, usage: Option<Value>) -> Value {
        let mut document = json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices,
        });
        if let Some(usage) = usage {
            document["usage"] = usage;
        }
        document
    }

    fn logprobs(&mut self, tokenizer: &Tokenizer, logprobs: &[TokenLogprob]) -> Value {
        if !self.has_logprobs {
            return Value::Null;
        }
        let bytes = |token: u32| tokenizer.bytes(token).unwrap_or_default();
        let text = |token: u32| String::from_utf8_lossy(bytes(token)).into_owned();
        if self.api == Api::Chat {
            let entry = |token: u32, logprob: f32| json!({"token": text(token), "logprob": logprob.max(MIN_LOGPROB), "bytes": bytes(token)});
            let content = logprobs.iter().map(|of| {
                let mut document = entry(of.token, of.logprob);
                document["top_logprobs"] = of.top.iter().map(|(token, logprob)| entry(*token, *logprob)).collect();
                document
            });
            return json!({"content": content.collect::<Vec<Value>>(), "refusal": null});
        }
        let top = |of: &TokenLogprob| {
            let pairs = of.top.iter().map(|(token, logprob)| (text(*token), logprob.max(MIN_LOGPROB).into()));
            Value::Object(pairs.collect::<Map<String, Value>>())
        };
        let tokens: Vec<String> = logprobs.iter().map(|of| text(of.token)).collect();
        let offsets = tokens.iter().map(|token| {
            let start = self.offset;
            self.offset += token.chars().count();
            start
        });
        let offsets: Vec<usize> = offsets.collect();
        json!({
            "text_offset": offsets, "tokens": tokens,
            "token_logprobs": logprobs.iter().map(|of| of.logprob.max(MIN_LOGPROB)).collect::<Vec<f32>>(),
            "top_logprobs": logprobs.iter().map(top).collect::<Vec<Value>>(),
        })
    }
}

fn reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
    }
}

fn usage(end: &Completion) -> Value {
    json!({
        "prompt_tokens": end.prompt_tokens, "completion_tokens": end.completion_tokens,
        "total_tokens": end.prompt_tokens + end.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": end.reused_tokens},
    })
}
