//! A model that generates text: combines file, tokenizer, weights, cache and step.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use panoply_tensor::{Device, Error, JitFunction, Result, Tensor, jit_with_state};

use crate::config::Config;
use crate::decoder::{Cache, Weights, empty_cache};
use crate::gguf::{Gguf, Value};
use crate::sampling::Sampling;
use crate::tokenizer::{DecodeStream, Tokenizer};

/// Number of prompt tokens per prefill step; the remaining tokens are processed one at a time.
const PREFILL: usize = 16;

/// Options for opening a model.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelOptions {
    /// Capacity of the key-value cache in tokens [default: the context length of the model].
    pub context_length: Option<usize>,
}

/// A request to generate text.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The text to continue.
    pub prompt: &'a str,
    /// Maximum number of tokens to generate [default: until the context is full].
    pub max_tokens: Option<usize>,
    /// Sampling parameters.
    pub sampling: Sampling,
    /// Random seed; the same seed and prompt give the same text.
    pub seed: u64,
}

impl<'a> Request<'a> {
    /// Creates a request to continue a prompt, with the default sampling and seed 0.
    pub fn new(prompt: &'a str) -> Request<'a> {
        Request { prompt, max_tokens: None, sampling: Sampling::default(), seed: 0 }
    }
}

type Step = JitFunction<'static, 2, 1, Cache>;

/// A language model on a device.
///
/// ```no_run
/// # use panoply_llm::{Model, ModelOptions, Request};
/// # use std::path::Path;
/// let model = Model::open(Path::new("model.gguf"), &ModelOptions::default())?;
/// for piece in &mut model.generate(&Request::new("Once upon a time"))? {
///     print!("{}", piece?);
/// }
/// # Ok::<(), panoply_tensor::Error>(())
/// ```
pub struct Model {
    name: Option<String>,
    config: Arc<Config>,
    tokenizer: Tokenizer,
    context: usize,
    device: Device,
    step: Step,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Model { name, config, context, device, .. } = self;
        let mut debug = f.debug_struct("Model");
        debug.field("name", name).field("config", config).field("context", context);
        debug.field("device", &device.to_string()).finish_non_exhaustive()
    }
}

impl Model {
    /// Opens a GGUF file on the current device.
    ///
    /// # Errors
    ///
    /// If the file is not valid or not supported, or the device fails.
    pub fn open(path: &Path, options: &ModelOptions) -> Result<Model> {
        let file = Gguf::open(path)?;
        let config = Arc::new(Config::from_gguf(&file)?);
        let trained = config.context_length;
        let context = options.context_length.unwrap_or(trained);
        if context == 0 || context > trained {
            let message = format!("context length {context} is not between 1 and the model's {trained}");
            return Err(Error::mistake(message));
        }
        let tokenizer = Tokenizer::from_gguf(&file)?;
        let weights = Weights::load(&file, &config)?;
        let shape = config.clone();
        let step = jit_with_state(move |cache: &mut Cache, inputs| [weights.step(&shape, cache, inputs)]);
        let name = file.optional("general.name", "a string", Value::as_str)?.map(str::to_string);
        Ok(Model { name, config, tokenizer, context, device: Device::current()?, step })
    }

    /// Returns the name of the model in the file.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the configuration of the decoder.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Returns the capacity of the key-value cache in tokens.
    pub fn context_length(&self) -> usize {
        self.context
    }

    /// Starts to continue a prompt; the returned iterator yields pieces of text as they become complete.
    ///
    /// # Errors
    ///
    /// If the prompt has no tokens, does not fit the context, or a sampling parameter is out of range.
    pub fn generate(&self, request: &Request<'_>) -> Result<Generation<'_>> {
        request.sampling.check()?;
        let prompt = self.tokenizer.encode(request.prompt)?;
        if prompt.is_empty() {
            return Err(Error::mistake("the prompt has no tokens; pass a text to continue"));
        }
        if prompt.len() >= self.context {
            let message = format!("the prompt has {} tokens and the context {} positions", prompt.len(), self.context);
            return Err(Error::mistake(message).note("shorten the prompt or raise the context length"));
        }
        let left = self.context - prompt.len();
        let limit = request.max_tokens.map_or(left, |limit| limit.min(left));
        let cache = self.device.scope(|| empty_cache(&self.config, self.context));
        Ok(Generation {
            model: self,
            prompt_tokens: prompt.len(),
            next: prompt,
            position: 0,
            limit,
            tokens: Vec::new(),
            cache,
            sampling: request.sampling,
            seed: request.seed,
            text: DecodeStream::default(),
            finished: None,
        })
    }

    /// Returns the logits after the last of `ids`, whose first is at `position`; adds their keys and values to the cache.
    ///
    /// # Errors
    ///
    /// If an id is not in the vocabulary, a position is outside the cache, or the device fails.
    pub fn logits(&self, cache: &mut Cache, ids: &[u32], position: usize) -> Result<Vec<f32>> {
        if let Some(id) = ids.iter().find(|id| **id as usize >= self.config.vocab) {
            return Err(Error::mistake(format!("token {id} is not in the vocabulary of {}", self.config.vocab)));
        }
        if ids.is_empty() || position.checked_add(ids.len()).is_none_or(|end| end > self.context) {
            let message = format!("{} tokens at position {position} do not fit {} positions", ids.len(), self.context);
            return Err(Error::mistake(message));
        }
        let (mut at, mut logits) = (0, None);
        while at < ids.len() {
            let count = if ids.len() - at >= PREFILL { PREFILL } else { 1 };
            let part: Vec<i32> = ids[at..at + count].iter().map(|id| *id as i32).collect();
            let tokens = Tensor::from_slice_on(&self.device, &part, [count]);
            let [output] = self.step.call_with_state(cache, [&tokens, &Tensor::scalar((position + at) as i32)])?;
            (at, logits) = (at + count, Some(output));
        }
        logits.expect("there are tokens").to_vec::<f32>()
    }

    /// Returns an empty cache for [`Model::logits`].
    pub fn new_cache(&self) -> Cache {
        self.device.scope(|| empty_cache(&self.config, self.context))
    }
}

/// Reason for the end of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model generated an end token.
    Stop,
    /// The maximum number of tokens or the end of the context was reached.
    Length,
}

/// A running generation; iterate over it for pieces of text.
pub struct Generation<'m> {
    model: &'m Model,
    prompt_tokens: usize,
    /// Tokens of the next step.
    next: Vec<u32>,
    /// Position of the first of them.
    position: usize,
    limit: usize,
    tokens: Vec<u32>,
    cache: Cache,
    sampling: Sampling,
    seed: u64,
    text: DecodeStream,
    finished: Option<FinishReason>,
}

impl Generation<'_> {
    /// Returns the number of tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// Returns the tokens generated so far, without the end token.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Returns the reason for the end of the generation; `None` while it is running.
    pub fn finish_reason(&self) -> Option<FinishReason> {
        self.finished
    }

    /// Generates one token; returns the text that it completes.
    fn advance(&mut self) -> Result<String> {
        if self.tokens.len() == self.limit {
            self.finished = Some(FinishReason::Length);
            return Ok(self.text.finish());
        }
        let logits = self.model.logits(&mut self.cache, &self.next, self.position)?;
        self.position += self.next.len();
        let token = self.sampling.sample(&logits, self.seed, self.position)?;
        if self.model.tokenizer.is_end(token) {
            self.finished = Some(FinishReason::Stop);
            return Ok(self.text.finish());
        }
        self.tokens.push(token);
        self.next = vec![token];
        Ok(self.text.push(&self.model.tokenizer, token))
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Result<String>> {
        while self.finished.is_none() {
            match self.advance() {
                Ok(text) if text.is_empty() => {}
                Ok(text) => return Some(Ok(text)),
                Err(error) => {
                    // Generation cannot continue after an error.
                    self.finished = Some(FinishReason::Length);
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
