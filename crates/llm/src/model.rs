//! A language model: file, tokenizer, weights and the compiled step.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use panoply_tensor::{Device, Error, JitFunction, Result, Tensor, jit_with_state};

use crate::chat::{ChatTemplate, Message};
use crate::config::Config;
use crate::decoder::{Cache, Weights, check_step, empty_cache};
use crate::folder::Folder;
use crate::gguf::{Gguf, Value};
use crate::packed::groups_by_expert;
use crate::tokenizer::Tokenizer;
use crate::weight_reader::stored_bytes;

/// Chunk sizes of prompts: a step takes one of these numbers of tokens. The last tokens of a prompt are padded to the smallest one.
pub(crate) const PIECES: [usize; 3] = [16, 64, 256];

/// Options for opening a model.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelOptions {
    /// Number of positions of the key-value cache; `None` for the context length of the model.
    pub context_length: Option<usize>,
}

/// Source of the error of [`Model::open`] for a context length that the model does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLengthError {
    /// Context length of the options.
    pub context_length: usize,
    /// Context length of the model.
    pub maximum: usize,
}

impl std::error::Error for ContextLengthError {}

impl fmt::Display for ContextLengthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "context length {} is not between 1 and the model's {}", self.context_length, self.maximum)
    }
}

type Step = JitFunction<'static, 3, 1, Cache>;

/// Tokens of a step; see [`Weights::step`].
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Tokens of the first sequence, then one of each other.
    pub ids: Vec<i32>,
    /// Row of the first token of each sequence.
    pub starts: Vec<i32>,
    /// Index of the token of the first sequence whose logits are returned.
    pub last: usize,
}

impl Batch {
    /// Tokens of one sequence, the first at `row`. Several are padded to `piece` tokens: whatever is then written beyond the last is
    /// replaced before it is read.
    pub fn piece(ids: &[u32], row: usize, piece: usize) -> Batch {
        let length = if ids.len() > 1 { piece } else { 1 };
        let padded = ids.iter().map(|id| *id as i32).chain(std::iter::repeat(0)).take(length);
        Batch { ids: padded.collect(), starts: vec![row as i32], last: ids.len() - 1 }
    }
}

/// Language model on a device.
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
    /// Numbers of tokens of a prompt that a step takes, ascending.
    pieces: &'static [usize],
    device: Device,
    step: Step,
    weight_bytes_per_token: u64,
    /// Compiled on first use.
    template: OnceLock<ChatTemplate>,
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
    /// Opens a GGUF file or a Hugging Face folder on the current device.
    ///
    /// # Errors
    ///
    /// If the file is not valid, contains something unsupported, or does not fit the device.
    pub fn open(path: &Path, options: &ModelOptions) -> Result<Model> {
        Model::open_with_progress(path, options, &mut |_, _| {})
    }

    /// Opens a model as [`Model::open`] does; `progress` receives the bytes of weights that are loaded, and of all.
    ///
    /// # Errors
    ///
    /// As for [`Model::open`].
    pub fn open_with_progress(
        path: &Path,
        options: &ModelOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Model> {
        if path.is_dir() {
            let folder = Folder::open(path)?;
            let (config, context) = sized(Config::from_folder(&folder)?, options)?;
            let tokenizer = Tokenizer::from_folder(&folder, config.vocab)?;
            let weights = Weights::from_folder(&folder, &config, context, progress)?;
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            return Model::new(name, (config, context), tokenizer, weights, stored_bytes(&folder));
        }
        let file = Gguf::open(path)?;
        let (config, context) = sized(Config::from_gguf(&file)?, options)?;
        let tokenizer = Tokenizer::from_gguf(&file)?;
        let weights = Weights::from_gguf(&file, &config, context, progress)?;
        let name = file.optional("general.name", "a string", Value::as_str)?.map(str::to_string);
        Model::new(name, (config, context), tokenizer, weights, stored_bytes(&file))
    }

    fn new(
        name: Option<String>,
        (config, context): (Arc<Config>, usize),
        tokenizer: Tokenizer,
        weights: Weights,
        stored_bytes: u64,
    ) -> Result<Model> {
        let [all, active] = config.weight_counts();
        let weight_bytes_per_token = (stored_bytes as f64 * (active as f64 / all as f64)) as u64;
        let device = Device::current()?;
        // Elsewhere experts are decoded for each token, which needs memory for each.
        let is_grouped = !config.has_experts() || groups_by_expert(&device);
        let pieces: &[usize] = if is_grouped { &PIECES } else { &[1] };
        let (shape, slot_rows) = (config.clone(), context + pieces[0] - 1);
        let step = jit_with_state(move |cache: &mut Cache, inputs| [weights.step(&shape, slot_rows, cache, inputs)]);
        Ok(Model {
            name,
            config,
            tokenizer,
            context,
            pieces,
            device,
            step,
            weight_bytes_per_token,
            template: OnceLock::new(),
        })
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

    /// Returns the number of bytes of weights that a generated token reads.
    pub fn weight_bytes_per_token(&self) -> u64 {
        self.weight_bytes_per_token
    }

    /// Returns the number of positions of the key-value cache.
    pub fn context_length(&self) -> usize {
        self.context
    }

    /// Renders a conversation to the text that the model continues with the assistant's answer.
    ///
    /// # Errors
    ///
    /// If the model has no chat template, or the template rejects the conversation.
    pub fn chat_text(&self, messages: &[Message]) -> Result<String> {
        let source = self.tokenizer.chat_template().ok_or_else(|| {
            Error::unsupported("the model has no chat template").note("continue a plain text with it instead")
        })?;
        let template = match self.template.get() {
            Some(template) => template,
            None => {
                let template = ChatTemplate::new(source)?;
                self.template.get_or_init(|| template)
            }
        };
        template.render(messages, true, self.tokenizer.special_tokens())
    }

    /// Returns the logits after the last of `ids`, the first of which is at `position`. Their keys and values are added to the cache.
    ///
    /// # Errors
    ///
    /// If an id is outside the vocabulary, the positions are outside the cache, or the device fails.
    pub fn logits(&self, cache: &mut Cache, ids: &[u32], position: usize) -> Result<Vec<f32>> {
        check_step(&self.config, self.context, ids, position)?;
        let (mut row, mut rest, mut logits) = (position, ids, None);
        while !rest.is_empty() {
            let piece = self.piece_size(rest.len());
            let (part, after) = rest.split_at(piece.min(rest.len()));
            logits = Some(self.step(cache, &Batch::piece(part, row, piece))?);
            (row, rest) = (row + part.len(), after);
        }
        logits.expect("there are tokens").to_vec::<f32>()
    }

    /// Runs a step and returns the logits of each sequence, f32 `[sequences, vocab]`.
    pub(crate) fn step(&self, cache: &mut Cache, batch: &Batch) -> Result<Tensor> {
        let array = |numbers: &[i32]| Tensor::from_slice_on(&self.device, numbers, [numbers.len()]);
        let inputs = [&array(&batch.ids), &array(&batch.starts), &Tensor::scalar(batch.last as i32)];
        let [logits] = self.step.call_with_state(cache, inputs)?;
        Ok(logits)
    }

    /// Numbers of tokens of a prompt that a step takes, ascending.
    pub(crate) fn pieces(&self) -> &'static [usize] {
        self.pieces
    }

    /// Returns the chunk size for the next of `count` tokens: the largest one that they fill, else the smallest.
    pub(crate) fn piece_size(&self, count: usize) -> usize {
        self.pieces.iter().rev().find(|piece| **piece <= count).copied().unwrap_or(self.pieces[0])
    }

    /// Returns the number of rows of the cache per sequence: the positions of the context, and those that a padded chunk can reach beyond it.
    pub(crate) fn slot_rows(&self) -> usize {
        self.context + self.pieces[0] - 1
    }

    /// Creates an empty cache for [`Model::logits`].
    pub fn new_cache(&self) -> Cache {
        self.device.scope(|| empty_cache(&self.config, 1, self.slot_rows()))
    }

    /// Creates and allocates an empty cache for `slots` sequences.
    pub(crate) fn allocate_cache(&self, slots: usize) -> Result<Cache> {
        self.device.scope(|| {
            let cache = empty_cache(&self.config, slots, self.slot_rows());
            cache.iter().flatten().try_for_each(Tensor::eval)?;
            Ok(cache)
        })
    }
}

/// Returns the configuration and the number of positions of the cache.
fn sized(config: Config, options: &ModelOptions) -> Result<(Arc<Config>, usize)> {
    let trained = config.context_length;
    let context = options.context_length.unwrap_or(trained);
    if context == 0 || context > trained {
        let cause = ContextLengthError { context_length: context, maximum: trained };
        return Err(Error::mistake(cause.to_string()).with_source(cause));
    }
    Ok((Arc::new(config), context))
}
