//! Generation: requests, sessions, and the loop that samples one token after another.

use std::collections::BTreeMap;

use panoply_tensor::{Error, Result};

use crate::chat::Message;
use crate::decoder::Cache;
use crate::model::Model;
use crate::sampling::{Sampling, TokenLogprob};
use crate::stop::StopStrings;
use crate::tokenizer::{DecodeStream, Tokenizer};

/// Prompt: the text, conversation or tokens to continue.
#[derive(Clone, Copy, Debug)]
pub enum Prompt<'a> {
    /// Plain text.
    Text(&'a str),
    /// Conversation, formatted by the model's chat template; the model writes the next message of the assistant.
    Chat(&'a [Message]),
    /// Token ids.
    Tokens(&'a [u32]),
}

/// Generation request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Prompt: the text, conversation or tokens to continue.
    pub prompt: Prompt<'a>,
    /// Maximum number of new tokens; `None` generates until the context is full.
    pub max_tokens: Option<usize>,
    /// Sampling parameters.
    pub sampling: Sampling,
    /// Seed of the sampling. The same seed and prompt give the same text.
    pub seed: u64,
    /// Stop strings. The text ends before the first one that occurs.
    pub stop: Vec<String>,
    /// Logit bias of each token id; minus infinity forbids the token.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Number of most likely tokens whose log probabilities are returned beside that of each generated token; `None` returns none.
    pub logprobs: Option<usize>,
}

impl<'a> Request<'a> {
    /// Creates a request to continue a text, with the default sampling and seed 0.
    pub fn new(text: &'a str) -> Request<'a> {
        Request::of(Prompt::Text(text))
    }

    /// Creates a request to answer the last message of a conversation.
    pub fn chat(messages: &'a [Message]) -> Request<'a> {
        Request::of(Prompt::Chat(messages))
    }

    fn of(prompt: Prompt<'a>) -> Request<'a> {
        Request {
            prompt,
            max_tokens: None,
            sampling: Sampling::default(),
            seed: 0,
            stop: Vec::new(),
            logit_bias: BTreeMap::new(),
            logprobs: None,
        }
    }

    fn check(&self, vocab: usize) -> Result<()> {
        self.sampling.check()?;
        if let Some((token, _)) = self.logit_bias.iter().find(|(token, _)| **token as usize >= vocab) {
            return Err(Error::mistake(format!("the logit bias names token {token}, which is not one of {vocab}")));
        }
        match self.logit_bias.iter().find(|(_, bias)| bias.is_nan() || **bias == f32::INFINITY) {
            Some((token, bias)) => Err(Error::mistake(format!("the logit bias of token {token} is {bias}"))),
            None => Ok(()),
        }
    }
}

/// Key-value cache of a conversation, and the tokens whose keys and values are in it.
#[derive(Debug)]
pub struct Session {
    pub(crate) cache: Cache,
    pub(crate) tokens: Vec<u32>,
}

impl Session {
    /// Returns the tokens whose keys and values are in the cache.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Removes all tokens from the cache.
    pub fn reset(&mut self) {
        self.tokens.clear();
    }
}

/// Cache of a generation.
pub(crate) enum SessionRef<'m> {
    Own(Box<Session>),
    Lent(&'m mut Session),
}

impl SessionRef<'_> {
    fn get(&mut self) -> &mut Session {
        match self {
            SessionRef::Own(session) => session,
            SessionRef::Lent(session) => session,
        }
    }
}

impl Model {
    /// Starts a generation. The returned iterator yields pieces of text as they are complete.
    ///
    /// # Errors
    ///
    /// If the prompt is empty for a model without a beginning token, does not fit the context, or a setting is out of range.
    pub fn generate(&self, request: &Request<'_>) -> Result<Generation<'_>> {
        Generation::new(self, SessionRef::Own(Box::new(self.session())), request)
    }

    /// Starts a generation with the cache of earlier requests. The tokens of a common prefix are not computed again.
    ///
    /// # Errors
    ///
    /// As for [`Model::generate`], and if the session is not of this model.
    pub fn generate_in<'m>(&'m self, session: &'m mut Session, request: &Request<'_>) -> Result<Generation<'m>> {
        Generation::new(self, SessionRef::Lent(session), request)
    }

    /// Creates an empty cache for the requests of a conversation.
    pub fn session(&self) -> Session {
        Session { cache: self.new_cache(), tokens: Vec::new() }
    }

    /// Returns the token ids of a prompt.
    ///
    /// # Errors
    ///
    /// If it cannot be tokenized, the model has no chat template, or the template rejects the conversation.
    pub fn tokenize(&self, prompt: &Prompt<'_>) -> Result<Vec<u32>> {
        match prompt {
            Prompt::Text(text) => self.tokenizer().encode(text),
            Prompt::Tokens(tokens) => Ok(tokens.to_vec()),
            Prompt::Chat(messages) => self.tokenizer().encode_as_is(&self.chat_text(messages)?),
        }
    }
}

/// Reason why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model generated an end token, or a stop string was found.
    Stop,
    /// The maximum number of tokens or the end of the context was reached.
    Length,
}

/// State of a sequence that is being generated.
pub(crate) struct Sequence {
    prompt: Vec<u32>,
    limit: usize,
    tokens: Vec<u32>,
    sampling: Sampling,
    seed: u64,
    logit_bias: BTreeMap<u32, f32>,
    wanted_logprobs: Option<usize>,
    logprobs: Vec<TokenLogprob>,
    text: DecodeStream,
    stop: StopStrings,
    finished: Option<FinishReason>,
}

impl Sequence {
    /// Creates the sequence of a request, before its first token.
    pub fn new(model: &Model, request: &Request<'_>) -> Result<Sequence> {
        request.check(model.config().vocab)?;
        let prompt = model.tokenize(&request.prompt)?;
        if prompt.is_empty() {
            return Err(Error::mistake("the prompt has no tokens; give a text to continue"));
        }
        let vocab = model.config().vocab;
        if let Some(id) = prompt.iter().find(|id| **id as usize >= vocab) {
            return Err(Error::mistake(format!("token {id} is not one of {vocab}")));
        }
        let context = model.context_length();
        if prompt.len() >= context {
            let message = format!("the prompt has {} tokens and the context {context} positions", prompt.len());
            return Err(Error::mistake(message).note("shorten the prompt or raise the context length"));
        }
        let left = context - prompt.len();
        let limit = request.max_tokens.map_or(left, |limit| limit.min(left));
        Ok(Sequence {
            prompt,
            limit,
            tokens: Vec::new(),
            sampling: request.sampling,
            seed: request.seed,
            logit_bias: request.logit_bias.clone(),
            wanted_logprobs: request.logprobs,
            logprobs: Vec::new(),
            text: DecodeStream::default(),
            stop: StopStrings::new(&request.stop),
            finished: (limit == 0).then_some(FinishReason::Length),
        })
    }

    pub fn prompt(&self) -> &[u32] {
        &self.prompt
    }

    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    pub fn logprobs(&self) -> &[TokenLogprob] {
        &self.logprobs
    }

    /// Returns the reason for the end; `None` before it.
    pub fn finished(&self) -> Option<FinishReason> {
        self.finished
    }

    /// Returns the length of the common prefix of the prompt and the cached tokens. The last token of the prompt is computed again, for its
    /// logits.
    pub fn common_with(&self, cached: &[u32]) -> usize {
        let (_, prompt) = self.prompt.split_last().expect("a prompt has tokens");
        cached.iter().zip(prompt).take_while(|(x, y)| x == y).count()
    }

    /// Samples the next token and returns the text that is complete with it.
    pub fn advance(&mut self, tokenizer: &Tokenizer, logits: &[f32]) -> Result<String> {
        let token = self.draw(logits)?;
        if tokenizer.is_end(token) {
            return Ok(self.finish(FinishReason::Stop));
        }
        self.tokens.push(token);
        self.logprobs.extend(self.wanted_logprobs.map(|count| TokenLogprob::new(logits, token, count)));
        let (mut text, stopped) = self.stop.push(&self.text.push(tokenizer, token));
        if stopped {
            self.finished = Some(FinishReason::Stop);
        } else if self.tokens.len() == self.limit {
            text += &self.finish(FinishReason::Length);
        }
        Ok(text)
    }

    /// Ends the sequence and returns the rest of the text.
    fn finish(&mut self, reason: FinishReason) -> String {
        let rest = self.text.finish();
        let (mut text, stopped) = self.stop.push(&rest);
        self.finished = Some(if stopped { FinishReason::Stop } else { reason });
        if !stopped {
            text += &self.stop.finish();
        }
        text
    }

    /// Samples the token that follows the generated ones.
    fn draw(&self, logits: &[f32]) -> Result<u32> {
        let mut adjusted = logits.to_vec();
        self.sampling.penalize(&mut adjusted, &self.prompt, &self.tokens);
        for (token, bias) in &self.logit_bias {
            adjusted[*token as usize] += bias;
        }
        self.sampling.sample(&adjusted, self.seed, self.prompt.len() + self.tokens.len())
    }
}

/// Running generation: an iterator over pieces of text.
pub struct Generation<'m> {
    model: &'m Model,
    session: SessionRef<'m>,
    reused: usize,
    /// Input tokens of the next step.
    next: Vec<u32>,
    sequence: Sequence,
    /// True after an error, which ends the iteration.
    has_failed: bool,
}

impl<'m> Generation<'m> {
    fn new(model: &'m Model, mut session: SessionRef<'m>, request: &Request<'_>) -> Result<Generation<'m>> {
        let sequence = Sequence::new(model, request)?;
        let cached = &mut session.get().tokens;
        let reused = sequence.common_with(cached);
        cached.truncate(reused);
        let next = sequence.prompt()[reused..].to_vec();
        Ok(Generation { model, session, reused, next, sequence, has_failed: false })
    }

    /// Returns the number of tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.sequence.prompt().len()
    }

    /// Returns the number of tokens of the prompt that were in the session's cache.
    pub fn reused_tokens(&self) -> usize {
        self.reused
    }

    /// Returns the tokens generated so far, without the one that ended the text.
    pub fn tokens(&self) -> &[u32] {
        self.sequence.tokens()
    }

    /// Returns the log probabilities of [`Generation::tokens`]; empty if the request does not ask for them.
    pub fn logprobs(&self) -> &[TokenLogprob] {
        self.sequence.logprobs()
    }

    /// Returns the reason for the end of the generation; `None` before its end and after an error.
    pub fn finish_reason(&self) -> Option<FinishReason> {
        self.sequence.finished()
    }

    /// Generates one token and returns the text that is complete with it.
    fn advance(&mut self) -> Result<String> {
        let session = self.session.get();
        let position = session.tokens.len();
        let logits = self.model.logits(&mut session.cache, &self.next, position);
        // What the cache holds after a failed step is not known.
        let logits = logits.inspect_err(|_| session.tokens.clear())?;
        session.tokens.append(&mut self.next);
        let text = self.sequence.advance(self.model.tokenizer(), &logits)?;
        self.next.extend(self.sequence.tokens().last());
        Ok(text)
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Result<String>> {
        while !self.has_failed && self.sequence.finished().is_none() {
            match self.advance() {
                Ok(text) if text.is_empty() => {}
                Ok(text) => return Some(Ok(text)),
                Err(error) => {
                    self.has_failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
