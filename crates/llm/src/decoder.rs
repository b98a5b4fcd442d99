//! The decoder: its weights, its key-value cache, and one step over some tokens, as a [`Config`] describes them.
//!
//! It must not depend on architectures or file formats.
//!
//! Sources: Touvron et al., LLaMA, 2023; Gemma Team, Gemma 2, 2024 (soft caps, norms behind); Jiang et al., Mistral 7B and Mixtral, 2023 and
//! 2024 (window, experts).

mod block;
mod cache;

use panoply_tensor::{DType, Error, Result, RopeStyle, Tensor};

use crate::architectures::{self, GGUF_NAMES};
use crate::config::{Config, Norm, NormKind, Rotary};
use crate::folder::Folder;
use crate::gguf::Gguf;
use crate::packed::Packed;
use crate::weight_reader::WeightReader;

use block::Block;
use cache::Rows;
pub use cache::{Cache, empty_cache};

/// Weights of a decoder.
#[derive(Debug)]
pub struct Weights {
    embedding: Packed,
    position_embedding: Option<Packed>,
    blocks: Vec<Block>,
    output_norm: NormWeights,
    /// Output projection; the matrix of the embedding if the weights are tied.
    output: Packed,
    /// Angles per position of each rotary embedding: f32 `[width / 2]`.
    frequencies: Vec<Tensor>,
}

/// Weight and bias of a norm: f32 `[width]`.
#[derive(Debug)]
struct NormWeights {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl NormWeights {
    fn load(reader: &WeightReader<'_>, name: &str, width: usize, norm: Norm) -> Result<NormWeights> {
        let weight = reader.vector(name, ".weight", width, if norm.adds_one { 1.0 } else { 0.0 })?;
        let bias = match norm.kind {
            NormKind::Rms => None,
            NormKind::Layer => Some(reader.vector(name, ".bias", width, 0.0)?),
        };
        Ok(NormWeights { weight, bias })
    }

    fn apply(&self, x: &Tensor, norm: Norm) -> Tensor {
        let normalized = match norm.kind {
            NormKind::Rms => x.rms_norm(norm.epsilon),
            NormKind::Layer => x.layer_norm(norm.epsilon),
        };
        let scaled = normalized * &self.weight;
        match &self.bias {
            Some(bias) => scaled + bias,
            None => scaled,
        }
    }
}

/// Tokens of a step: their rows of the cache, and the cosines and sines of each rotary embedding, f32 `[n, 1, width / 2]`.
struct Tokens {
    rows: Rows,
    turns: Vec<[Tensor; 2]>,
}

impl Weights {
    /// Reads the weights of a GGUF file onto the current device, for a cache of `context` positions; `progress` receives the bytes that are
    /// read, and of all.
    ///
    /// # Errors
    ///
    /// If a tensor is missing, has another shape than the configuration asks for, or is not part of it.
    pub fn from_gguf(
        file: &Gguf,
        config: &Config,
        context: usize,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Weights> {
        Weights::load(WeightReader::new(file, &GGUF_NAMES, progress)?, config, context)
    }

    /// Reads the weights of a folder.
    ///
    /// # Errors
    ///
    /// As for [`Weights::from_gguf`].
    pub fn from_folder(
        folder: &Folder,
        config: &Config,
        context: usize,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Weights> {
        Weights::load(WeightReader::new(folder, architectures::names(folder)?, progress)?, config, context)
    }

    fn load(reader: WeightReader<'_>, config: &Config, context: usize) -> Result<Weights> {
        let (hidden, names) = (config.hidden, reader.names());
        let embedding = reader.matrix(names.embedding, [config.vocab, hidden])?;
        let position_embedding = match config.has_position_embedding {
            true => Some(reader.matrix(names.position_embedding, [config.context_length, hidden])?),
            false => None,
        };
        let blocks = (0..config.blocks.len()).map(|n| Block::load(&reader, config, n)).collect::<Result<_>>()?;
        let output_norm = NormWeights::load(&reader, names.output_norm, hidden, config.norm)?;
        // Files of tied models may hold the matrix a second time.
        let output = match config.is_tied {
            true => {
                reader.skip(names.output);
                embedding.clone()
            }
            false => reader.multiplied_matrix(names.output, [config.vocab, hidden])?,
        };
        reader.finish()?;
        let frequencies = |rotary: &Rotary| {
            let frequencies = rotary.frequencies(context);
            Tensor::from_slice(&frequencies, [frequencies.len()])
        };
        let frequencies = config.rotaries.iter().map(frequencies).collect();
        Ok(Weights { embedding, position_embedding, blocks, output_norm, output, frequencies })
    }

    /// Computes a step of several sequences, each of which has a slot of `slot_rows` rows of the cache: writes the keys and values of the tokens
    /// `ids` i32 `[n]` into the cache and returns logits f32 `[s, vocab]`.
    ///
    /// `starts` i32 `[s]` is for each sequence the row of its first token, its slot times `slot_rows` plus the token's position. The first
    /// `n - s + 1` tokens are of the first sequence, and the logits are those after its token `last`, i32 `[]`; each further sequence has one
    /// token. A sequence whose row is out of range is not kept.
    pub fn step(
        &self,
        config: &Config,
        slot_rows: usize,
        cache: &mut Cache,
        [ids, starts, last]: [&Tensor; 3],
    ) -> Tensor {
        let (count, sequences) = match (ids.shape(), starts.shape()) {
            (Ok(ids), Ok(starts)) => (ids.numel(), starts.numel()),
            (Err(error), _) | (_, Err(error)) => return Tensor::from_mistake(error),
        };
        if sequences == 0 || sequences > count {
            let message = format!("a step of {count} tokens of {sequences} sequences; each has at least one");
            return Tensor::from_mistake(Error::mistake(message));
        }
        let rows = Rows::new(starts, count, sequences, slot_rows);
        let positions = rows.positions();
        let mut x = self.embedding.index_select(ids);
        if config.embedding_scale != 1.0 {
            x *= config.embedding_scale;
        }
        if let Some(embedding) = &self.position_embedding {
            x += embedding.index_select(&positions);
        }
        let tokens = Tokens { turns: self.turns(config, &positions), rows };
        for ((block, shape), cache) in self.blocks.iter().zip(&config.blocks).zip(cache) {
            x = block.apply(x, config, shape, cache, &tokens);
        }
        let piece = tokens.rows.piece;
        if piece > 1 {
            let last = last.unsqueeze(0);
            let wanted = match sequences {
                1 => last,
                _ => Tensor::concat([last, Tensor::arange(sequences - 1) + piece as f64], 0),
            };
            x = x.index_select(0, &wanted);
        }
        let logits = self.output.matmul(&self.output_norm.apply(&x, config.norm));
        soft_capped(logits, config.logit_soft_cap)
    }

    fn turns(&self, config: &Config, positions: &Tensor) -> Vec<[Tensor; 2]> {
        let turns = config.rotaries.iter().zip(&self.frequencies).map(|(rotary, frequencies)| {
            let angles = (positions.cast(DType::F32).unsqueeze(1) * frequencies).unsqueeze(1);
            let scaled = |x: Tensor| if rotary.magnitude == 1.0 { x } else { x * rotary.magnitude };
            [scaled(angles.cos()), scaled(angles.sin())]
        });
        turns.collect()
    }
}

/// Returns cap · tanh(x / cap).
fn soft_capped(x: Tensor, cap: Option<f64>) -> Tensor {
    match cap {
        Some(cap) => (x * (1.0 / cap)).tanh() * cap,
        None => x,
    }
}

/// Applies the rotary embedding to the first elements of heads `[n, heads, head width]`.
fn rotated(x: &Tensor, rotary: &Rotary, [cosines, sines]: &[Tensor; 2]) -> Tensor {
    let width = match x.shape() {
        Ok(shape) => shape.dims().last().copied().unwrap_or(0),
        Err(error) => return Tensor::from_mistake(error),
    };
    let half = rotary.width / 2;
    let turning = if rotary.width == width { x.clone() } else { x.narrow(-1, 0, rotary.width) };
    let (lengths, axis) = match rotary.style {
        RopeStyle::RotateHalf => ([2, half], -2),
        RopeStyle::Interleaved => ([half, 2], -1),
    };
    let split = turning.unflatten(-1, &lengths);
    let part = |n: usize| split.narrow(axis, n, 1).squeeze(axis);
    let (a, b) = (part(0), part(1));
    let turned = [&a * cosines - &b * sines, &a * sines + &b * cosines];
    let turned = Tensor::stack(&turned, axis).flatten(-2, -1);
    if rotary.width == width {
        return turned;
    }
    Tensor::concat([turned, x.narrow(-1, rotary.width, width - rotary.width)], -1)
}

/// Checks ids and positions of a step against the sizes of a model.
pub(crate) fn check_step(config: &Config, context: usize, ids: &[u32], position: usize) -> Result<()> {
    if let Some(id) = ids.iter().find(|id| **id as usize >= config.vocab) {
        return Err(Error::mistake(format!("token {id} is not one of {}", config.vocab)));
    }
    if ids.is_empty() || position.checked_add(ids.len()).is_none_or(|end| end > context) {
        let message = format!("{} tokens at position {position} do not fit {context} positions", ids.len());
        return Err(Error::mistake(message));
    }
    Ok(())
}
