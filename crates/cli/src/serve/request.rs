//! Requests of OpenAI's API. A parameter that would change the answer and is not supported is refused by name.

use std::collections::BTreeMap;

use panoply::llm::{Message, Prompt, Request, Sampling};
use serde_json::{Map, Value, json};

use super::error::ApiError;

/// Stop strings of a request, at most.
const MAX_STOPS: usize = 16;
/// Tokens whose probabilities are reported, at most.
const MAX_LOGPROBS: u64 = 20;
/// Tokens of a completion without `max_tokens`, as OpenAI defines it.
const COMPLETION_TOKENS: u64 = 16;

/// Parameters that do not change the answer.
const HARMLESS: &[&str] =
    &["user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls"];

/// The two kinds of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Chat,
    Completion,
}

/// A prompt that owns its text.
#[derive(Debug, PartialEq)]
pub enum OwnedPrompt {
    Text(String),
    Chat(Vec<Message>),
    Tokens(Vec<u32>),
}

/// A request as a client wrote it.
#[derive(Debug)]
pub struct ApiRequest {
    pub prompt: OwnedPrompt,
    pub max_tokens: Option<usize>,
    pub sampling: Sampling,
    pub seed: Option<u64>,
    pub stop: Vec<String>,
    pub logit_bias: BTreeMap<u32, f32>,
    pub logprobs: Option<usize>,
    pub is_stream: bool,
    /// True if a stream ends with the counts of tokens.
    pub includes_usage: bool,
}

impl ApiRequest {
    /// Reads the body of a request for the model `name`.
    pub fn parse(api: Api, body: &[u8], name: &str) -> Result<ApiRequest, ApiError> {
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| ApiError::invalid(None, format!("the body is not valid JSON: {error}")))?;
        let Value::Object(fields) = body else {
            return Err(ApiError::invalid(None, "the body must be a JSON object"));
        };
        let mut fields = Fields(fields);
        if let Some(wanted) = fields.text("model")?.filter(|wanted| wanted != name) {
            return Err(ApiError::no_such_model(&wanted, name));
        }
        fields.check_neutral()?;
        let prompt = match api {
            Api::Chat => OwnedPrompt::Chat(messages(&mut fields)?),
            Api::Completion => prompt(&mut fields)?,
        };
        let sampling = Sampling {
            temperature: fields.float("temperature")?.unwrap_or(1.0),
            top_k: fields.count("top_k", u64::MAX)?.unwrap_or(0) as usize,
            top_p: fields.float("top_p")?.unwrap_or(1.0),
            min_p: fields.float("min_p")?.unwrap_or(0.0),
            repetition_penalty: fields.float("repetition_penalty")?.unwrap_or(1.0),
            presence_penalty: fields.float("presence_penalty")?.unwrap_or(0.0),
            frequency_penalty: fields.float("frequency_penalty")?.unwrap_or(0.0),
        };
        let old_limit = fields.count("max_tokens", u64::MAX)?;
        let max_tokens = match api {
            Api::Chat => fields.count("max_completion_tokens", u64::MAX)?.or(old_limit),
            Api::Completion => Some(old_limit.unwrap_or(COMPLETION_TOKENS)),
        };
        let is_stream = fields.flag("stream")?;
        let request = ApiRequest {
            prompt,
            max_tokens: max_tokens.map(|count| count as usize),
            sampling,
            seed: fields.seed()?,
            stop: fields.stop()?,
            logit_bias: fields.logit_bias()?,
            logprobs: fields.logprobs(api)?,
            is_stream,
            includes_usage: fields.includes_usage(is_stream)?,
        };
        fields.finish()?;
        Ok(request)
    }

    /// The request to the model, with a seed for one that has none.
    pub fn request(&self, seed: u64) -> Request<'_> {
        Request {
            prompt: match &self.prompt {
                OwnedPrompt::Text(text) => Prompt::Text(text),
                OwnedPrompt::Chat(messages) => Prompt::Chat(messages),
                OwnedPrompt::Tokens(tokens) => Prompt::Tokens(tokens),
            },
            max_tokens: self.max_tokens,
            sampling: self.sampling,
            seed: self.seed.unwrap_or(seed),
            stop: self.stop.clone(),
            logit_bias: self.logit_bias.clone(),
            logprobs: self.logprobs,
        }
    }
}

/// The fields of an object that were not read yet.
struct Fields(Map<String, Value>);

impl Fields {
    /// A field that is there and not null.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    fn read<T>(&mut self, name: &str, wanted: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Option<T>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match read(&value) {
            Some(value) => Ok(Some(value)),
            None => Err(ApiError::invalid(Some(name), format!("`{name}` must be {wanted}"))),
        }
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        self.read(name, "a string", |value| value.as_str().map(str::to_string))
    }

    fn flag(&mut self, name: &str) -> Result<bool, ApiError> {
        Ok(self.read(name, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    fn float(&mut self, name: &str) -> Result<Option<f32>, ApiError> {
        self.read(name, "a number", |value| value.as_f64().map(|number| number as f32))
    }

    fn count(&mut self, name: &str, most: u64) -> Result<Option<u64>, ApiError> {
        let wanted = match most {
            u64::MAX => "a whole number from 0 on".to_string(),
            _ => format!("a whole number from 0 to {most}"),
        };
        self.read(name, &wanted, |value| value.as_u64().filter(|count| *count <= most))
    }

    fn seed(&mut self) -> Result<Option<u64>, ApiError> {
        self.read("seed", "a whole number of 64 bits", |value| {
            value.as_u64().or_else(|| value.as_i64().map(|seed| seed as u64))
        })
    }

    fn stop(&mut self) -> Result<Vec<String>, ApiError> {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_string);
        let stop =
            self.read("stop", &format!("a string or up to {MAX_STOPS} strings, none empty"), |value| match value {
                Value::Array(all) if all.len() <= MAX_STOPS => all.iter().map(text).collect(),
                value => text(value).map(|text| vec![text]),
            });
        Ok(stop?.unwrap_or_default())
    }

    fn logit_bias(&mut self) -> Result<BTreeMap<u32, f32>, ApiError> {
        let wanted = "an object from token ids to numbers from -100 to 100";
        let bias = self.read("logit_bias", wanted, |value| {
            let pair = |(id, bias): (&String, &Value)| {
                let bias = bias.as_f64().filter(|bias| (-100.0..=100.0).contains(bias))?;
                Some((id.parse().ok()?, bias as f32))
            };
            value.as_object()?.iter().map(pair).collect()
        });
        Ok(bias?.unwrap_or_default())
    }

    fn logprobs(&mut self, api: Api) -> Result<Option<usize>, ApiError> {
        if api == Api::Completion {
            return Ok(self.count("logprobs", MAX_LOGPROBS)?.map(|count| count as usize));
        }
        let (is_wanted, top) = (self.flag("logprobs")?, self.count("top_logprobs", MAX_LOGPROBS)?);
        match top {
            Some(1..) if !is_wanted => {
                Err(ApiError::invalid(Some("top_logprobs"), "`top_logprobs` needs `logprobs` to be true"))
            }
            top => Ok(is_wanted.then(|| top.unwrap_or(0) as usize)),
        }
    }

    fn includes_usage(&mut self, is_stream: bool) -> Result<bool, ApiError> {
        let options = self.read("stream_options", "an object", |value| value.as_object().cloned())?;
        let Some(options) = options else { return Ok(false) };
        if !is_stream {
            return Err(ApiError::invalid(Some("stream_options"), "`stream_options` needs `stream` to be true"));
        }
        let mut options = Fields(options);
        let includes_usage = options.flag("include_usage")?;
        // It pads chunks to hide their lengths.
        options.take("include_obfuscation");
        options.finish()?;
        Ok(includes_usage)
    }

    /// Removes parameters that are not supported, where their value asks for what happens anyway.
    fn check_neutral(&mut self) -> Result<(), ApiError> {
        let neutral = [
            ("n", json!(1)),
            ("best_of", json!(1)),
            ("echo", json!(false)),
            ("suffix", json!("")),
            ("tools", json!([])),
            ("tool_choice", json!("none")),
            ("functions", json!([])),
            ("function_call", json!("none")),
            ("response_format", json!({"type": "text"})),
            ("modalities", json!(["text"])),
        ];
        for (name, value) in neutral {
            if let Some(other) = self.take(name).filter(|other| *other != value) {
                let other: String = other.to_string().chars().take(100).collect();
                let message = format!("`{name}` is not supported, except as {value}; it was {other}");
                return Err(ApiError::invalid(Some(name), message));
            }
        }
        HARMLESS.iter().for_each(|name| drop(self.take(name)));
        Ok(())
    }

    /// Refuses what was not read.
    fn finish(self) -> Result<(), ApiError> {
        match self.0.into_iter().find(|(_, value)| !value.is_null()) {
            Some((name, _)) => {
                let name: String = name.chars().take(100).collect();
                let message = format!("the parameter `{name}` is not supported; remove it");
                Err(ApiError::invalid(Some(&name), message))
            }
            None => Ok(()),
        }
    }
}

/// The conversation of a chat request.
fn messages(fields: &mut Fields) -> Result<Vec<Message>, ApiError> {
    let wrong = |message: String| ApiError::invalid(Some("messages"), message);
    let Some(Value::Array(all)) = fields.take("messages").filter(|value| value != &json!([])) else {
        return Err(wrong("`messages` must be a list of one or more messages".to_string()));
    };
    let message = |(n, message): (usize, Value)| {
        let Value::Object(message) = message else { return Err(wrong(format!("message {n} is not an object"))) };
        let mut message = Fields(message);
        let role = message.text("role")?.ok_or_else(|| wrong(format!("message {n} has no `role`")))?;
        // OpenAI's newer name of the same role.
        let role = if role == "developer" { "system".to_string() } else { role };
        let content = message.take("content").and_then(|content| text_of(&content));
        let content = content.ok_or_else(|| wrong(format!("the content of message {n} must be text")))?;
        // Clients repeat the fields of an answer, most of them empty.
        for name in ["refusal", "tool_calls", "function_call", "audio", "annotations"] {
            if message.0.get(name).is_some_and(|value| value == &json!([]) || value == &json!("")) {
                message.take(name);
            }
        }
        message.finish()?;
        Ok(Message::new(role, content))
    };
    all.into_iter().enumerate().map(message).collect()
}

/// The text of a message: a string or parts of type `text`.
fn text_of(content: &Value) -> Option<String> {
    let part = |part: &Value| match part.get("type")?.as_str()? {
        "text" => part.get("text")?.as_str().map(str::to_string),
        _ => None,
    };
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => parts.iter().map(part).collect::<Option<String>>(),
        _ => None,
    }
}

/// The prompt of a completion: a text or token ids, also as a list of one.
fn prompt(fields: &mut Fields) -> Result<OwnedPrompt, ApiError> {
    let tokens = |value: &Value| {
        let id = |id: &Value| u32::try_from(id.as_u64()?).ok();
        value.as_array().filter(|ids| !ids.is_empty())?.iter().map(id).collect::<Option<Vec<u32>>>()
    };
    let one = |value: &Value| match value {
        Value::String(text) => Some(OwnedPrompt::Text(text.clone())),
        value => tokens(value).map(OwnedPrompt::Tokens),
    };
    let prompt = fields.read("prompt", "a text or a list of token ids, one for each request", |value| {
        one(value).or_else(|| match &value.as_array()?[..] {
            [value] => one(value),
            _ => None,
        })
    });
    prompt?.ok_or_else(|| ApiError::invalid(Some("prompt"), "`prompt` is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(more: Value) -> Result<ApiRequest, ApiError> {
        let mut body = json!({"messages": [{"role": "user", "content": "hello"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ApiRequest::parse(Api::Chat, body.to_string().as_bytes(), "tiny")
    }

    #[test]
    fn everything_that_is_supported_is_read() {
        let request = chat(json!({
            "model": "tiny", "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "seed": -1, "stop": "x",
            "max_tokens": 3, "max_completion_tokens": 4, "presence_penalty": 0.25, "frequency_penalty": -0.5,
            "repetition_penalty": 1.5, "logit_bias": {"5": -100}, "logprobs": true, "top_logprobs": 2, "stream": true,
            "stream_options": {"include_usage": true}, "n": 1, "user": "me", "tools": [], "response_format": {"type": "text"},
        }))
        .unwrap();
        let Sampling { temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty } =
            request.sampling;
        assert_eq!([temperature, top_p, min_p, repetition_penalty], [0.5, 0.9, 0.1, 1.5]);
        assert_eq!((top_k, presence_penalty, frequency_penalty), (7, 0.25, -0.5));
        assert_eq!((request.max_tokens, request.seed, request.stop.len()), (Some(4), Some(u64::MAX), 1));
        assert_eq!((request.logit_bias[&5], request.logprobs), (-100.0, Some(2)));
        assert!(request.is_stream && request.includes_usage);
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let request = chat(json!({"messages": [{"role": "developer", "content": parts, "refusal": null}]})).unwrap();
        assert_eq!(request.prompt, OwnedPrompt::Chat(vec![Message::new("system", "ab")]));
        for (prompt, expected) in [
            (json!("a"), OwnedPrompt::Text("a".into())),
            (json!(["a"]), OwnedPrompt::Text("a".into())),
            (json!([1, 2]), OwnedPrompt::Tokens(vec![1, 2])),
            (json!([[1, 2]]), OwnedPrompt::Tokens(vec![1, 2])),
        ] {
            let body = json!({"prompt": prompt}).to_string();
            let request = ApiRequest::parse(Api::Completion, body.as_bytes(), "tiny").unwrap();
            assert_eq!((request.prompt, request.max_tokens), (expected, Some(16)));
        }
    }

    #[test]
    fn what_is_not_supported_or_wrong_is_refused_by_name() {
        for (wrong, param, message) in [
            (json!({"n": 2}), "n", "`n` is not supported, except as 1; it was 2"),
            (json!({"tools": [1]}), "tools", "not supported"),
            (json!({"response_format": {"type": "json_object"}}), "response_format", "not supported"),
            (json!({"mirostat": 1}), "mirostat", "the parameter `mirostat` is not supported; remove it"),
            (json!({"temperature": "hot"}), "temperature", "must be a number"),
            (json!({"max_tokens": -1}), "max_tokens", "must be a whole number from 0 on"),
            (json!({"max_tokens": 1.5}), "max_tokens", "must be a whole number from 0 on"),
            (json!({"top_logprobs": 3}), "top_logprobs", "needs `logprobs`"),
            (json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs", "from 0 to 20"),
            (json!({"stop": ["a", ""]}), "stop", "none empty"),
            (json!({"logit_bias": {"x": 1}}), "logit_bias", "token ids"),
            (json!({"logit_bias": {"1": 101}}), "logit_bias", "from -100 to 100"),
            (json!({"stream_options": {"include_usage": true}}), "stream_options", "needs `stream`"),
            (json!({"stream": true, "stream_options": {"x": 1}}), "x", "not supported"),
            (json!({"messages": []}), "messages", "one or more"),
            (json!({"messages": [{"role": "user"}]}), "messages", "the content of message 0 must be text"),
            (json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}), "messages", "must be text"),
            (json!({"messages": [{"role": "user", "content": "x", "name": "me"}]}), "name", "not supported"),
        ] {
            let error = chat(wrong.clone()).unwrap_err();
            assert_eq!((error.status.as_u16(), error.param.as_deref()), (400, Some(param)), "{wrong}: {error:?}");
            assert!(error.message.contains(message), "{wrong}: {}", error.message);
        }
        assert_eq!(chat(json!({"model": "other"})).unwrap_err().status.as_u16(), 404);
        let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
        for (body, message) in
            [(&b"{"[..], "not valid JSON"), (b"[]", "must be a JSON object"), (&deep, "recursion limit")]
        {
            let error = ApiRequest::parse(Api::Chat, body, "tiny").unwrap_err();
            assert!(error.message.contains(message), "{}", error.message);
        }
    }
}
