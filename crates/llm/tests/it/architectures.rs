//! Every architecture in both worlds against the logits of `transformers`.

use std::sync::Arc;

use panoply_llm::Config;
use panoply_llm::config::{Activation, FeedForward, NormKind};
use panoply_llm::decoder::{Cache, Weights, empty_cache};
use panoply_llm::folder::Folder;
use panoply_llm::gguf::Gguf;
use panoply_runtime::Backend;
use panoply_tensor::{Device, Result, RopeStyle, Tensor, jit_with_state};

use crate::fixtures::{arrays, devices, f32s, ids, path};

const MODELS: [&str; 14] = [
    "llama",
    "llama-linear",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen2moe",
    "qwen3moe",
    "gemma",
    "gemma2",
    "gemma3",
    "phi3",
    "phi3-long",
    "gpt2",
];

/// Of the largest logit.
const TOLERANCE: f32 = 1e-5;
/// The same on devices that add and round in other orders.
const DEVICE_TOLERANCE: f32 = 1e-4;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    Gguf,
    Folder,
}

/// Returns logits for the cache, ids, rows where sequences start, and the last token of the first one.
type Step = Box<dyn Fn(&mut Cache, &[u32], &[i32], usize) -> Vec<f32>>;

struct Case {
    name: &'static str,
    tokens: Vec<u32>,
    /// At every position, f32 `[tokens, vocab]`.
    logits: Vec<f32>,
}

impl Case {
    fn new(name: &'static str) -> Case {
        let golden = arrays(&format!("models/{name}.safetensors"));
        Case { name, tokens: ids(&golden["ids"].1), logits: f32s(&golden["logits"].1) }
    }

    fn largest(&self) -> f32 {
        self.logits.iter().fold(0.0, |largest, x| largest.max(x.abs()))
    }

    /// Positions of the cache: no more than there are tokens, so that long rotary factors serve long texts alone.
    fn context(&self) -> usize {
        self.tokens.len()
    }

    /// Logits after `tokens`, step by step with these numbers of tokens; the configuration is changed before weights are read.
    fn run(&self, format: Format, steps: &[usize], change: impl Fn(&mut Config)) -> Result<Vec<Vec<f32>>> {
        let context = self.context();
        let (config, weights) = match format {
            Format::Gguf => {
                let file = Gguf::open(&path(&format!("models/{}.gguf", self.name)))?;
                let mut config = Config::from_gguf(&file)?;
                change(&mut config);
                let weights = Weights::from_gguf(&file, &config, context, &mut |_, _| {})?;
                (config, weights)
            }
            Format::Folder => {
                let folder = Folder::open(&path(&format!("models/{}", self.name)))?;
                let mut config = Config::from_folder(&folder)?;
                change(&mut config);
                let weights = Weights::from_folder(&folder, &config, context, &mut |_, _| {})?;
                (config, weights)
            }
        };
        let mut cache = empty_cache(&config, 1, context);
        let config = Arc::new(config);
        let step = jit_with_state(move |cache: &mut Cache, inputs| [weights.step(&config, context, cache, inputs)]);
        let (mut at, mut all) = (0, Vec::new());
        for count in steps {
            let tokens: Vec<i32> = self.tokens[at..at + count].iter().map(|id| *id as i32).collect();
            let tokens = Tensor::from_slice(&tokens, [*count]);
            let (start, last) = (Tensor::from_slice(&[at as i32], [1]), Tensor::scalar(*count as i32 - 1));
            let [logits] = step.call_with_state(&mut cache, [&tokens, &start, &last])?;
            at += count;
            all.push(logits.to_vec::<f32>()?);
        }
        Ok(all)
    }

    /// The configuration, and a function that runs a step.
    fn step(&self) -> (Arc<Config>, Step) {
        let file = Gguf::open(&path(&format!("models/{}.gguf", self.name))).unwrap();
        let (config, context) = (Config::from_gguf(&file).unwrap(), self.context());
        let weights = Weights::from_gguf(&file, &config, context, &mut |_, _| {}).unwrap();
        let config = Arc::new(config);
        let shape = config.clone();
        let step = jit_with_state(move |cache: &mut Cache, inputs| [weights.step(&shape, context, cache, inputs)]);
        let run = move |cache: &mut Cache, ids: &[u32], starts: &[i32], last: usize| {
            let ids: Vec<i32> = ids.iter().map(|id| *id as i32).collect();
            let [ids, starts] = [&ids[..], starts].map(|numbers| Tensor::from_slice(numbers, [numbers.len()]));
            let [logits] = step.call_with_state(cache, [&ids, &starts, &Tensor::scalar(last as i32)]).unwrap();
            logits.to_vec::<f32>().unwrap()
        };
        (config, Box::new(run))
    }

    /// The largest difference from the logits after `position`.
    fn off(&self, logits: &[f32], position: usize) -> f32 {
        let vocab = self.logits.len() / self.tokens.len();
        assert_eq!(logits.len(), vocab);
        let expected = &self.logits[position * vocab..][..vocab];
        logits.iter().zip(expected).fold(0.0, |off, (x, y)| if x.is_nan() { f32::NAN } else { off.max((x - y).abs()) })
    }
}

#[test]
fn prefill_and_cached_steps_equal_transformers_in_both_worlds() {
    let device = Device::get("cpu").unwrap();
    device.scope(|| {
        for name in MODELS {
            let case = Case::new(name);
            let count = case.tokens.len();
            for format in [Format::Gguf, Format::Folder] {
                // All at once; then a few and one by one.
                let one_by_one: Vec<usize> = std::iter::once(3).chain((3..count).map(|_| 1)).collect();
                for steps in [vec![count], one_by_one] {
                    let logits = case.run(format, &steps, |_| {}).unwrap_or_else(|error| panic!("{name}: {error}"));
                    let mut position = 0;
                    for (logits, step) in logits.iter().zip(&steps) {
                        position += step;
                        let off = case.off(logits, position - 1);
                        let limit = TOLERANCE * case.largest();
                        assert!(
                            off <= limit,
                            "{name} of {format:?} after {position} tokens: off by {off}, over {limit}"
                        );
                    }
                }
            }
        }
    });
}

/// Each sequence is computed by itself, in pieces or token by token; then all at once in other slots, beside rows that are dropped.
#[test]
fn logits_of_a_sequence_do_not_depend_on_the_batch() {
    let device = Device::get("cpu").unwrap();
    device.scope(|| {
        for name in MODELS {
            let case = Case::new(name);
            let (count, context) = (case.tokens.len(), case.context());
            let (config, run) = case.step();
            let vocab = config.vocab;
            // The tokens, and the same from the end.
            let turned: Vec<u32> = case.tokens.iter().rev().copied().collect();
            let sequences = [&case.tokens, &turned];
            let alone = sequences.map(|tokens| {
                let mut cache = empty_cache(&config, 1, context);
                (0..count).map(|at| run(&mut cache, &tokens[at..=at], &[at as i32], 0)).collect::<Vec<Vec<f32>>>()
            });
            // The first sequence in slot 2 starts with a piece of 3 tokens, of which the last is replaced later; the other is in slot 0.
            let mut cache = empty_cache(&config, 3, context);
            let start = |slot: usize, at: usize| (slot * context + at) as i32;
            let ids = [&case.tokens[..2], &[0], &turned[..1]].concat();
            let logits = run(&mut cache, &ids, &[start(2, 0), start(0, 0)], 1);
            assert!(logits == [&alone[0][1][..], &alone[1][0]].concat(), "{name}, piece");
            for at in 1..count {
                // One of them is ahead by a token at first, and is finished earlier.
                let (first, second) = (at + 1, at);
                let (id, row) = case.tokens.get(first).map_or((0, start(3, 0)), |id| (*id, start(2, first)));
                let logits = run(&mut cache, &[turned[second], id, 0], &[start(0, second), row, start(3, 0)], 0);
                assert!(logits[..vocab] == alone[1][second], "{name}, position {second}");
                if first < count {
                    assert!(logits[vocab..2 * vocab] == alone[0][first], "{name}, position {first} beside another");
                }
            }
        }
    });
}

/// Devices other than the CPU compute attention to the cache with tensor operations, in a copy of the own slot for each of several sequences.
#[test]
fn logits_on_every_device_equal_transformers() {
    let models = if std::env::var("PANOPLY_TEST_FULL").is_ok_and(|value| value == "1") {
        &MODELS[..]
    } else {
        &["llama", "gemma2"]
    };
    let is_tested = |device: &Device| device.info().kind != Backend::Cpu && !device.info().name.contains("SwiftShader");
    for device in devices().into_iter().filter(is_tested) {
        device.scope(|| {
            for name in models {
                let case = Case::new(name);
                let (count, context) = (case.tokens.len(), case.context());
                let (config, run) = case.step();
                let mut cache = empty_cache(&config, 2, context);
                let check = |logits: &[f32], position: usize| {
                    let (off, limit) = (case.off(logits, position), DEVICE_TOLERANCE * case.largest());
                    assert!(off <= limit, "{name} on {device}, position {position}: off by {off}, over {limit}");
                };
                // All but three tokens at once in the second slot; then with a token of the same text in the first slot.
                let (second, prompt) = (context as i32, count - 3);
                check(&run(&mut cache, &case.tokens[..prompt], &[second], prompt - 1), prompt - 1);
                for at in 0..3 {
                    let ids = [case.tokens[prompt + at], case.tokens[at]];
                    let logits = run(&mut cache, &ids, &[second + (prompt + at) as i32, at as i32], 0);
                    check(&logits[..config.vocab], prompt + at);
                    check(&logits[config.vocab..], at);
                }
            }
        });
    }
}

/// A name, a model that has the field, and how the field is ignored.
type Ignored = (&'static str, &'static str, fn(&mut Config));

fn experts(config: &mut Config, change: impl Fn(&mut panoply_llm::config::Experts)) {
    for block in &mut config.blocks {
        if let FeedForward::Experts(experts) = &mut block.feed_forward {
            change(experts);
        }
    }
}

/// Every field of the configuration that is not the size of a tensor.
const IGNORED: &[Ignored] = &[
    ("heads", "llama", |config| (config.heads, config.head_dim, config.kv_heads) = (2, 16, 1)),
    ("norm.kind", "gpt2", |config| config.norm.kind = NormKind::Rms),
    ("norm.epsilon", "llama", |config| config.norm.epsilon = 1e-6),
    ("norm.adds_one", "gemma", |config| config.norm.adds_one = false),
    ("post_norms", "gemma2", |config| config.post_norms = false),
    ("query_key_norm", "qwen3", |config| config.query_key_norm = false),
    ("biases.query_key_value", "qwen2", |config| config.biases.query_key_value = false),
    ("biases.attention_output", "llama-linear", |config| config.biases.attention_output = false),
    ("biases.feed_forward", "llama-linear", |config| config.biases.feed_forward = false),
    ("attention_scale", "llama", |config| config.attention_scale = 1.0),
    ("attention_soft_cap", "gemma2", |config| config.attention_soft_cap = None),
    ("logit_soft_cap", "gemma2", |config| config.logit_soft_cap = None),
    ("embedding_scale", "gemma", |config| config.embedding_scale = 1.0),
    ("is_tied", "llama", |config| config.is_tied = true),
    ("has_position_embedding", "gpt2", |config| config.has_position_embedding = false),
    ("rotary.width", "phi3-long", |config| {
        config.rotaries[0].width = 8;
        config.rotaries[0].long = None;
    }),
    ("rotary.base", "llama", |config| config.rotaries[0].base = 10_000.0),
    ("rotary.style", "llama", |config| config.rotaries[0].style = RopeStyle::Interleaved),
    ("rotary.scale", "llama-linear", |config| config.rotaries[0].scale = 1.0),
    ("rotary.factors", "llama", |config| config.rotaries[0].factors.clear()),
    ("rotary.long", "phi3-long", |config| config.rotaries[0].long = None),
    ("rotary.long.original", "phi3-long", |config| {
        config.rotaries[0].long.as_mut().unwrap().original = 1000;
    }),
    ("rotary.magnitude", "phi3-long", |config| config.rotaries[0].magnitude = 1.0),
    ("activation", "gemma", |config| config.activation = Activation::Gelu),
    ("is_gated", "llama", |config| config.is_gated = false),
    ("block.window", "mistral", |config| config.blocks.iter_mut().for_each(|block| block.window = None)),
    ("block.window of some", "gemma2", |config| config.blocks.iter_mut().for_each(|block| block.window = Some(5))),
    ("block.rotary", "gemma3", |config| config.blocks.iter_mut().for_each(|block| block.rotary = Some(0))),
    ("experts.used", "mixtral", |config| experts(config, |experts| experts.used = 1)),
    ("experts.is_normalized", "qwen2moe", |config| experts(config, |experts| experts.is_normalized = true)),
    ("experts.shared", "qwen2moe", |config| experts(config, |experts| experts.shared = None)),
];

#[test]
fn no_field_of_the_configuration_can_be_ignored_unseen() {
    let device = Device::get("cpu").unwrap();
    device.scope(|| {
        for (field, name, ignore) in IGNORED {
            let case = Case::new(name);
            let count = case.tokens.len();
            match case.run(Format::Folder, &[count], ignore) {
                // Its tensors are left over.
                Err(error) => assert!(error.message().contains("is not part of the architecture"), "{field}: {error}"),
                Ok(logits) => {
                    let (off, least) = (case.off(&logits[0], count - 1), 10.0 * TOLERANCE * case.largest());
                    assert!(off > least, "{field} of {name}: off by {off} only, not over {least}");
                }
            }
        }
    });
}

#[test]
fn both_worlds_give_one_configuration() {
    for name in MODELS {
        let gguf = Config::from_gguf(&Gguf::open(&path(&format!("models/{name}.gguf"))).unwrap()).unwrap();
        let folder = Config::from_folder(&Folder::open(&path(&format!("models/{name}"))).unwrap()).unwrap();
        let mut expected = folder.clone();
        // Different on purpose: how files store the pairs and the norms. Different by rounding: factors, which logits compare.
        expected.norm.adds_one = gguf.norm.adds_one;
        expected.norm.epsilon = gguf.norm.epsilon;
        for (expected, rotary) in expected.rotaries.iter_mut().zip(&gguf.rotaries) {
            let off = expected.factors.iter().zip(&rotary.factors).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
            assert!(off < 1e-6 && (expected.magnitude - rotary.magnitude).abs() < 1e-6, "{name}");
            (expected.style, expected.magnitude) = (rotary.style, rotary.magnitude);
            expected.factors.clone_from(&rotary.factors);
            expected.long.clone_from(&rotary.long);
        }
        assert!(!gguf.norm.adds_one, "{name}");
        assert_eq!(gguf, expected, "{name}");
    }
}
