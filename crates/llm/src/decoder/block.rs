//! A transformer block: attention and a feed-forward layer, each with its norms.

use panoply_tensor::{Result, Tensor, ValuesWithIndices};

use super::{NormWeights, Tokens, rotated};
use crate::config::{Activation, BlockConfig, Config, Experts, FeedForward};
use crate::packed::Packed;
use crate::weight_reader::{Linear, WeightReader};

/// Weights of a block.
#[derive(Debug)]
pub(super) struct Block {
    attention_norm: NormWeights,
    query: Linear,
    key: Linear,
    value: Linear,
    /// Norms of the heads of queries and keys.
    query_key_norm: Option<[NormWeights; 2]>,
    attention_output: Linear,
    attention_post_norm: Option<NormWeights>,
    feed_forward_norm: NormWeights,
    feed_forward: Layer,
    feed_forward_post_norm: Option<NormWeights>,
}

/// Weights of a feed-forward layer.
#[derive(Debug)]
enum Layer {
    Dense(Dense),
    Experts(Box<Mixture>),
}

#[derive(Debug)]
struct Dense {
    gate: Option<Linear>,
    up: Linear,
    down: Linear,
}

/// Experts, with their matrices concatenated.
#[derive(Debug)]
struct Mixture {
    router: Linear,
    gate: Packed,
    up: Packed,
    down: Packed,
    /// Shared expert and its gate.
    shared: Option<(Linear, Dense)>,
}

impl Block {
    pub fn load(reader: &WeightReader<'_>, config: &Config, number: usize) -> Result<Block> {
        let names = reader.names();
        let of = |name: &str| name.replace("{}", &number.to_string());
        let Config { hidden, head_dim, biases, .. } = *config;
        let (wide, narrow) = (config.heads * head_dim, config.kv_heads * head_dim);
        let norm = |name: &str, width| NormWeights::load(reader, &of(name), width, config.norm);
        let fused = of(names.query_key_value);
        let projections = match reader.has(&fused) {
            true => reader.fused(&fused, &[wide, narrow, narrow], hidden, biases.query_key_value)?,
            false => [(names.query, wide), (names.key, narrow), (names.value, narrow)]
                .into_iter()
                .map(|(name, rows)| reader.linear(&of(name), [rows, hidden], biases.query_key_value))
                .collect::<Result<_>>()?,
        };
        let [query, key, value] = <[Linear; 3]>::try_from(projections).expect("there are three projections");
        Ok(Block {
            attention_norm: norm(names.attention_norm, hidden)?,
            query,
            key,
            value,
            query_key_norm: match config.query_key_norm {
                true => Some([norm(names.query_norm, head_dim)?, norm(names.key_norm, head_dim)?]),
                false => None,
            },
            attention_output: reader.linear(&of(names.attention_output), [hidden, wide], biases.attention_output)?,
            attention_post_norm: match config.post_norms {
                true => Some(norm(names.attention_post_norm, hidden)?),
                false => None,
            },
            feed_forward_norm: norm(names.feed_forward_norm, hidden)?,
            feed_forward: match config.blocks[number].feed_forward {
                FeedForward::Dense(width) => {
                    let own = [names.gate, names.up, names.gate_up, names.down].map(of);
                    Layer::Dense(Dense::load(reader, config, own, width)?)
                }
                FeedForward::Experts(experts) => Layer::Experts(Box::new(Mixture::load(reader, config, experts, &of)?)),
            },
            feed_forward_post_norm: match config.post_norms {
                true => Some(norm(names.feed_forward_post_norm, hidden)?),
                false => None,
            },
        })
    }

    /// Returns the block's output for the residual stream `x` `[n, hidden]`, and writes keys and values into the cache.
    pub fn apply(
        &self,
        x: Tensor,
        config: &Config,
        shape: &BlockConfig,
        cache: &mut [Tensor; 2],
        tokens: &Tokens,
    ) -> Tensor {
        let post = |y: Tensor, norm: &Option<NormWeights>| match norm {
            Some(norm) => norm.apply(&y, config.norm),
            None => y,
        };
        let attended = self.attention(&self.attention_norm.apply(&x, config.norm), config, shape, cache, tokens);
        let x = x + post(attended, &self.attention_post_norm);
        let normalized = self.feed_forward_norm.apply(&x, config.norm);
        let fed = match (&self.feed_forward, shape.feed_forward) {
            (Layer::Dense(dense), _) => dense.apply(&normalized, config),
            (Layer::Experts(mixture), FeedForward::Experts(experts)) => mixture.apply(&normalized, config, experts),
            (Layer::Experts(_), FeedForward::Dense(_)) => unreachable!("weights are read as the configuration says"),
        };
        x + post(fed, &self.feed_forward_post_norm)
    }

    /// Returns the grouped-query attention of `x` `[n, hidden]` over the cache, to which its keys and values are added.
    fn attention(
        &self,
        x: &Tensor,
        config: &Config,
        shape: &BlockConfig,
        cache: &mut [Tensor; 2],
        tokens: &Tokens,
    ) -> Tensor {
        let heads = |linear: &Linear, heads| linear.apply(x).unflatten(-1, &[heads, config.head_dim]);
        let placed = |x: Tensor, norm: Option<&NormWeights>| {
            let x = norm.map_or_else(|| x.clone(), |norm| norm.apply(&x, config.norm));
            shape.rotary.map_or_else(|| x.clone(), |n| rotated(&x, &config.rotaries[n], &tokens.turns[n]))
        };
        let [query_norm, key_norm] = match &self.query_key_norm {
            Some([query, key]) => [Some(query), Some(key)],
            None => [None, None],
        };
        let query = placed(heads(&self.query, config.heads), query_norm);
        let key = placed(heads(&self.key, config.kv_heads), key_norm);
        let new = [key, heads(&self.value, config.kv_heads)];
        for (cache, new) in cache.iter_mut().zip(new) {
            *cache = tokens.rows.write(cache, &new.transpose(0, 1));
        }
        let attended = tokens.rows.attention(config, shape.window, &query, cache);
        self.attention_output.apply(&attended.flatten(1, -1))
    }
}

fn activated(x: &Tensor, activation: Activation) -> Tensor {
    match activation {
        Activation::Silu => x.silu(),
        Activation::Gelu => x.gelu(),
        Activation::GeluTanh => x.gelu_tanh(),
        Activation::Relu => x.relu(),
    }
}

impl Dense {
    fn load(
        reader: &WeightReader<'_>,
        config: &Config,
        [gate, up, gate_up, down]: [String; 4],
        width: usize,
    ) -> Result<Dense> {
        let (hidden, has_bias) = (config.hidden, config.biases.feed_forward);
        let down = reader.linear(&down, [hidden, width], has_bias)?;
        if config.is_gated && !reader.has(&gate) && reader.has(&gate_up) {
            let parts = reader.fused(&gate_up, &[width, width], hidden, has_bias)?;
            let [gate, up] = <[Linear; 2]>::try_from(parts).expect("there are two parts");
            return Ok(Dense { gate: Some(gate), up, down });
        }
        let gate = config.is_gated.then(|| reader.linear(&gate, [width, hidden], has_bias)).transpose()?;
        Ok(Dense { gate, up: reader.linear(&up, [width, hidden], has_bias)?, down })
    }

    fn apply(&self, x: &Tensor, config: &Config) -> Tensor {
        let up = self.up.apply(x);
        let inner = match &self.gate {
            Some(gate) => activated(&gate.apply(x), config.activation) * up,
            None => activated(&up, config.activation),
        };
        self.down.apply(&inner)
    }
}

impl Mixture {
    fn load(
        reader: &WeightReader<'_>,
        config: &Config,
        experts: Experts,
        of: &dyn Fn(&str) -> String,
    ) -> Result<Mixture> {
        let names = reader.names();
        let (hidden, Experts { count, width, .. }) = (config.hidden, experts);
        let shared = match experts.shared {
            None => None,
            Some(width) => {
                let own = [names.shared_gate, names.shared_up, "", names.shared_down].map(of);
                let router = Linear { weight: reader.matrix(&of(names.shared_router), [1, hidden])?, bias: None };
                Some((router, Dense::load(reader, config, own, width)?))
            }
        };
        Ok(Mixture {
            router: reader.linear(&of(names.router), [count, hidden], false)?,
            gate: reader.experts(&of(names.expert_gate), count, [width, hidden])?,
            up: reader.experts(&of(names.expert_up), count, [width, hidden])?,
            down: reader.experts(&of(names.expert_down), count, [hidden, width])?,
            shared,
        })
    }

    /// Returns the weighted sum of the outputs of the selected experts for each token of `x` `[n, hidden]`.
    fn apply(&self, x: &Tensor, config: &Config, experts: Experts) -> Tensor {
        let ValuesWithIndices { values: mut weights, indices: chosen } =
            self.router.apply(x).softmax(-1).topk(experts.used, -1);
        if experts.is_normalized {
            weights = &weights / weights.sum(-1).unsqueeze(-1);
        }
        let product = |packed: &Packed, x: &Tensor| packed.expert_matmul(x, &chosen, experts.count);
        let row = x.unsqueeze(1);
        let hidden = activated(&product(&self.gate, &row), config.activation) * product(&self.up, &row);
        let mut sum = (product(&self.down, &hidden) * weights.unsqueeze(-1)).sum(1);
        if let Some((gate, dense)) = &self.shared {
            sum += gate.apply(x).sigmoid() * dense.apply(x, config);
        }
        sum
    }
}
