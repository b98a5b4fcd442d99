//! The data that describe a decoder.
//!
//! Every language model here is the same program ([`crate::decoder`]) over this data; [`crate::architectures`] reads it from files. It
//! must not depend on files.

use panoply_tensor::{Error, Result, RopeStyle};

/// Maximum of each size, which bounds products of sizes.
pub(crate) const MAX_SIZE: usize = 1 << 24;
/// Maximum number of transformer blocks.
pub(crate) const MAX_BLOCKS: usize = 1 << 12;

/// Sizes, constants and options of a decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Number of token ids.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Context length that the model was trained for.
    pub context_length: usize,
    /// Norm of the residual stream.
    pub norm: Norm,
    /// True if blocks normalize the outputs of attention and feed-forward too, before they are added.
    pub post_norms: bool,
    /// True if each head of queries and keys is normalized before the rotation, with the kind of `norm`.
    pub query_key_norm: bool,
    /// Linear layers that add a bias.
    pub biases: Biases,
    /// Factor of attention scores.
    pub attention_scale: f64,
    /// Soft cap c of attention scores: x becomes c · tanh(x / c).
    pub attention_soft_cap: Option<f64>,
    /// Soft cap c of logits: x becomes c · tanh(x / c).
    pub logit_soft_cap: Option<f64>,
    /// Factor of token embeddings.
    pub embedding_scale: f64,
    /// True if the embedding and the output projection share their weight.
    pub is_tied: bool,
    /// True if learned position embeddings are added.
    pub has_position_embedding: bool,
    /// Rotary embeddings; each block refers to one by its index.
    pub rotaries: Vec<Rotary>,
    /// Activation of feed-forward layers.
    pub activation: Activation,
    /// True if the activation gates a second projection, as in SwiGLU.
    pub is_gated: bool,
    /// Transformer blocks.
    pub blocks: Vec<BlockConfig>,
}

/// Norm over the width of the residual stream or of a head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Kind of norm.
    pub kind: NormKind,
    /// Constant added to the variance or the mean square.
    pub epsilon: f64,
    /// True if the file stores weights minus one.
    pub adds_one: bool,
}

/// Kinds of norms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// RMS norm: unit mean square, then a weight.
    Rms,
    /// Layer norm: zero mean and unit variance, then a weight and a bias.
    Layer,
}

/// Linear layers that add a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    /// Query, key and value projections.
    pub query_key_value: bool,
    /// Output projection of attention.
    pub attention_output: bool,
    /// Feed-forward layers.
    pub feed_forward: bool,
}

/// Activation functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// x · sigmoid(x).
    Silu,
    /// x · Φ(x).
    Gelu,
    /// [`Activation::Gelu`] with the hyperbolic tangent in place of the error function.
    GeluTanh,
    /// max(x, 0).
    Relu,
}

/// Rotary position embedding (RoPE): pair i of a head is rotated by position · `base`^(-2i / `width`) / (`scale` · factor i).
#[derive(Clone, Debug, PartialEq)]
pub struct Rotary {
    /// Number of elements at the beginning of a head that are rotated.
    pub width: usize,
    /// Base of the frequencies.
    pub base: f64,
    /// Elements that form a pair.
    pub style: RopeStyle,
    /// Linear scaling, which divides all frequencies.
    pub scale: f64,
    /// Divisor of each frequency: `width / 2` numbers, or none.
    pub factors: Vec<f64>,
    /// Other factors for long contexts.
    pub long: Option<LongFactors>,
    /// Factor of the cosines and sines.
    pub magnitude: f64,
}

/// Factors of frequencies for contexts of more than `original` positions.
#[derive(Clone, Debug, PartialEq)]
pub struct LongFactors {
    /// Longest context with the usual factors.
    pub original: usize,
    /// `width / 2` numbers.
    pub factors: Vec<f64>,
}

/// Options that differ from block to block.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockConfig {
    /// Sliding window: number of positions that a query attends to, its own included; `None` for all earlier positions.
    pub window: Option<usize>,
    /// Index of the rotary embedding of queries and keys; `None` without one.
    pub rotary: Option<usize>,
    /// Feed-forward layer.
    pub feed_forward: FeedForward,
}

/// Feed-forward layer of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FeedForward {
    /// Dense layer of this inner width.
    Dense(usize),
    /// Mixture of experts.
    Experts(Experts),
}

/// Mixture of experts: each token uses the `used` experts with the largest router probabilities, which weight their outputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// Number of experts.
    pub count: usize,
    /// Number of experts per token.
    pub used: usize,
    /// Inner width of an expert.
    pub width: usize,
    /// True if the weights of a token's experts are scaled to sum to 1.
    pub is_normalized: bool,
    /// Inner width of the shared expert, which every token uses, weighted by its own sigmoid gate; `None` without one.
    pub shared: Option<usize>,
}

impl Rotary {
    /// Creates a rotary embedding of `width` elements without scaling.
    pub fn new(width: usize, base: f64, style: RopeStyle) -> Rotary {
        Rotary { width, base, style, scale: 1.0, factors: Vec::new(), long: None, magnitude: 1.0 }
    }

    /// Returns the angle per position of each pair, for a context of `context` positions.
    pub fn frequencies(&self, context: usize) -> Vec<f32> {
        let long = self.long.as_ref().filter(|long| context > long.original);
        let factors = long.map_or(&self.factors, |long| &long.factors);
        let frequency = |n: usize| {
            let plain = self.base.powf(-2.0 * n as f64 / self.width as f64);
            (plain / (self.scale * factors.get(n).copied().unwrap_or(1.0))) as f32
        };
        (0..self.width / 2).map(frequency).collect()
    }
}

impl Experts {
    /// Returns the inner widths of an expert and of the shared expert.
    fn widths(&self) -> impl Iterator<Item = usize> {
        [Some(self.width), self.shared].into_iter().flatten()
    }
}

impl Config {
    /// Returns true if a block has experts.
    pub(crate) fn has_experts(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block.feed_forward, FeedForward::Experts(_)))
    }

    /// Checks that sizes fit each other and that constants are numbers a model can have.
    ///
    /// # Errors
    ///
    /// If they do not. The message does not name a file.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::corrupt(what));
        let Config { vocab, hidden, heads, kv_heads, head_dim, context_length, .. } = *self;
        let sizes = [
            ("the vocabulary", vocab),
            ("the hidden size", hidden),
            ("the number of heads", heads),
            ("the number of key heads", kv_heads),
            ("the head width", head_dim),
        ];
        let inner = self.blocks.iter().flat_map(|block| match block.feed_forward {
            FeedForward::Dense(width) => vec![width],
            FeedForward::Experts(experts) => experts.widths().collect(),
        });
        let inner = inner.map(|width| ("a feed-forward width", width));
        let context = [("the context length", context_length)];
        if let Some((name, size)) =
            sizes.into_iter().chain(inner).chain(context).find(|(_, size)| *size == 0 || *size > MAX_SIZE)
        {
            return wrong(format!("{name} is {size}, not between 1 and {MAX_SIZE}"));
        }
        if self.blocks.is_empty() || self.blocks.len() > MAX_BLOCKS {
            return wrong(format!("{} blocks; there must be 1 to {MAX_BLOCKS}", self.blocks.len()));
        }
        if !heads.is_multiple_of(kv_heads) {
            return wrong(format!("{heads} heads are not a multiple of {kv_heads} key heads"));
        }
        if heads.checked_mul(head_dim).is_none_or(|width| width > MAX_SIZE) {
            return wrong(format!("{heads} heads of width {head_dim} are too large"));
        }
        let positive = |number: f64| number.is_finite() && number > 0.0;
        let caps = [self.attention_soft_cap, self.logit_soft_cap].into_iter().flatten();
        let constants = [self.norm.epsilon, self.attention_scale, self.embedding_scale];
        if let Some(number) = constants.into_iter().chain(caps).find(|number| !positive(*number)) {
            return wrong(format!("a constant of the configuration is {number}, not a positive number"));
        }
        self.rotaries.iter().try_for_each(|rotary| rotary.check(head_dim))?;
        self.blocks.iter().try_for_each(|block| block.check(self.rotaries.len()))
    }
}

impl Rotary {
    fn check(&self, head_dim: usize) -> Result<()> {
        let Rotary { width, base, scale, magnitude, .. } = *self;
        if width == 0 || !width.is_multiple_of(2) || width > head_dim {
            return Err(Error::corrupt(format!(
                "{width} rotary elements are not an even part of a head of {head_dim}"
            )));
        }
        let long = self.long.as_ref().map(|long| &long.factors);
        for factors in [Some(&self.factors).filter(|factors| !factors.is_empty()), long].into_iter().flatten() {
            if factors.len() != width / 2 {
                return Err(Error::corrupt(format!("{} rotary factors for {} pairs", factors.len(), width / 2)));
            }
        }
        let factors = self.factors.iter().chain(long.into_iter().flatten());
        let mut numbers = [base, scale, magnitude].into_iter().chain(factors.copied());
        match numbers.find(|number| !number.is_finite() || *number <= 0.0) {
            Some(number) => {
                Err(Error::corrupt(format!("a constant of rotary positions is {number}, not a positive number")))
            }
            None => Ok(()),
        }
    }
}

impl BlockConfig {
    fn check(&self, rotaries: usize) -> Result<()> {
        if self.window == Some(0) {
            return Err(Error::corrupt("the attention window is 0 positions"));
        }
        if let Some(rotary) = self.rotary.filter(|rotary| *rotary >= rotaries) {
            return Err(Error::corrupt(format!("rotary embedding {rotary} of {rotaries}")));
        }
        if let FeedForward::Experts(experts) = self.feed_forward {
            let Experts { count, used, .. } = experts;
            if used == 0 || used > count || count > 1 << 12 {
                return Err(Error::corrupt(format!("{used} of {count} experts are used")));
            }
        }
        Ok(())
    }
}
