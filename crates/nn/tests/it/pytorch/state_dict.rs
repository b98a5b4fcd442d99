//! A PyTorch `state_dict` is loaded into a model that then computes the same.

use std::path::PathBuf;

use panoply_nn::layers::TransformerConfig;
use panoply_nn::{
    Activation, ForwardContext, Gru, Layer, LayerNorm, Linear, Lstm, Module, MultiHeadAttention, Nonlinearity,
    ParamVisitor, ParamVisitorMut, Rnn, RnnOptions, TransformerEncoderLayer, checkpoint, state_dict,
};
use panoply_tensor::{DType, Result, Rng, Tensor};

use super::{Fixture, LAYERS, close, on_cpu};

/// Writes the state of a fixture to a file.
fn saved(part: &str) -> (Fixture, PathBuf) {
    let file = Fixture::new(LAYERS, part);
    let prefix = format!("{part}/state/");
    let names: Vec<String> =
        file.file.names().iter().filter_map(|name| name.strip_prefix(&prefix)).map(str::to_string).collect();
    let arrays: Vec<(String, Tensor)> =
        names.into_iter().map(|name| (format!("net.{name}"), file.get(&format!("state/{name}")))).collect();
    let path = std::env::temp_dir().join(format!(
        "panoply-state-{}-{}.safetensors",
        part.replace([' ', ','], "-"),
        std::process::id()
    ));
    checkpoint::save_tensors(&path, &arrays, Default::default()).unwrap();
    (file, path)
}

fn without_net(name: &str) -> Option<String> {
    name.strip_prefix("net.").map(str::to_string)
}

#[test]
fn a_state_dict_is_loaded_by_name() {
    on_cpu(|| {
        let (file, path) = saved("encoder, norm first");
        let shape = TransformerConfig {
            d_model: 8,
            num_heads: 2,
            dim_feedforward: 16,
            norm_first: true,
            dropout: 0.0,
            is_causal: false,
        };
        let mut encoder = TransformerEncoderLayer::new(shape, &mut Rng::seed_from_u64(0));
        state_dict::load(&mut encoder, &path, without_net).unwrap();
        let output = encoder.forward(&file.get("in/0"), &mut ForwardContext::eval());
        close("encoder", &output, &file.get("out/0"), 1e-5);
        // With other names nothing matches, and nothing is loaded.
        let before = encoder.norms[0].weight.tensor().to_vec::<f32>().unwrap();
        let error = state_dict::load(&mut encoder, &path, |name| Some(name.to_string())).unwrap_err();
        assert!(
            error.message().contains("16 missing (attention.query.weight, ")
                && error.message().ends_with("nothing was loaded")
                && error.is_mistake(),
            "{error}"
        );
        let names =
            "the file holds other names; `key_map` must return the names of the model, or None to skip an array";
        assert_eq!(error.notes(), [names]);
        assert_eq!(encoder.norms[0].weight.tensor().to_vec::<f32>().unwrap(), before);
        std::fs::remove_file(path).unwrap();

        let (file, path) = saved("lstm");
        let mut lstm = Lstm::with_options(5, 4, TWO_BIDIRECTIONAL, &mut Rng::seed_from_u64(0));
        state_dict::load(&mut lstm, &path, without_net).unwrap();
        close("lstm", &lstm.forward(&file.get("in/0"), &mut ForwardContext::eval()), &file.get("out/0"), 1e-5);
        assert_eq!(lstm.named_parameters().len(), 16);
        std::fs::remove_file(path).unwrap();
    });
}

/// Returns the name unchanged.
fn same(name: &str) -> Option<String> {
    Some(name.to_string())
}

/// Writes these arrays to a file.
fn file_of(name: &str, arrays: &[(&str, Tensor)]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("panoply-state-{name}-{}.safetensors", std::process::id()));
    let arrays: Vec<(String, Tensor)> =
        arrays.iter().map(|(name, tensor)| (name.to_string(), tensor.clone())).collect();
    checkpoint::save_tensors(&path, &arrays, Default::default()).unwrap();
    path
}

/// Options of the recurrent layers of the fixtures.
const TWO_BIDIRECTIONAL: RnnOptions = RnnOptions { num_layers: 2, bidirectional: true, dropout: 0.0 };

/// A struct whose fields have the names of PyTorch's modules.
struct Own {
    self_attn: MultiHeadAttention,
    multihead_attn: MultiHeadAttention,
    norm1: LayerNorm,
    linear1: Lstm,
}

impl Module for Own {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) {
        visitor.field("self_attn", &self.self_attn);
        visitor.field("multihead_attn", &self.multihead_attn);
        visitor.field("norm1", &self.norm1);
        visitor.field("linear1", &self.linear1);
    }

    fn visit_mut(&mut self, visitor: &mut ParamVisitorMut<'_>) -> Result<()> {
        visitor.field("self_attn", &mut self.self_attn)?;
        visitor.field("multihead_attn", &mut self.multihead_attn)?;
        visitor.field("norm1", &mut self.norm1)?;
        visitor.field("linear1", &mut self.linear1)
    }
}

/// Returns the arrays of a fixture with a prefix, renamed to another prefix.
fn moved(file: &Fixture, from: &str, to: &str) -> Vec<(String, Tensor)> {
    let prefix = format!("{}/state/{from}", file.part);
    let names = file.file.names();
    let names = names.iter().filter_map(|name| name.strip_prefix(&prefix));
    names.map(|name| (format!("{to}{name}"), file.get(&format!("state/{from}{name}")))).collect()
}

#[test]
fn names_that_the_model_has_are_not_translated() {
    on_cpu(|| {
        let encoder = Fixture::new(LAYERS, "encoder, norm first");
        let lstm = Fixture::new(LAYERS, "lstm");
        let mut arrays = moved(&encoder, "self_attn.", "self_attn.");
        arrays.extend(moved(&encoder, "self_attn.", "multihead_attn."));
        arrays.extend(moved(&encoder, "norm1.", "norm1."));
        arrays.extend(moved(&lstm, "", "linear1."));
        let arrays: Vec<(&str, Tensor)> = arrays.iter().map(|(name, x)| (name.as_str(), x.clone())).collect();
        let path = file_of("own", &arrays);
        let mut rng = Rng::seed_from_u64(0);
        let mut own = Own {
            self_attn: MultiHeadAttention::new(8, 2, &mut rng),
            multihead_attn: MultiHeadAttention::new(8, 2, &mut rng),
            norm1: LayerNorm::new(8),
            linear1: Lstm::with_options(5, 4, TWO_BIDIRECTIONAL, &mut rng),
        };
        state_dict::load(&mut own, &path, same).unwrap();
        let weight = encoder.get("state/self_attn.in_proj_weight");
        for attention in [&own.self_attn, &own.multihead_attn] {
            for (at, linear) in [&attention.query, &attention.key, &attention.value].into_iter().enumerate() {
                close("in_proj", linear.weight.tensor(), &weight.narrow(0, 8 * at, 8), 0.0);
            }
            close("out_proj", attention.output.weight.tensor(), &encoder.get("state/self_attn.out_proj.weight"), 0.0);
        }
        close("norm1", own.norm1.weight.tensor(), &encoder.get("state/norm1.weight"), 0.0);
        close("lstm", &own.linear1.forward(&lstm.get("in/0"), &mut ForwardContext::eval()), &lstm.get("out/0"), 1e-5);
        // Arrays that match nothing are reported by their name in the file.
        let mut norm = LayerNorm::new(8);
        let error = state_dict::load(&mut norm, &path, same).unwrap_err();
        let message = error.message();
        assert!(
            message.contains("2 missing (weight, bias), ") && message.contains("self_attn.in_proj_weight"),
            "{error}"
        );
        assert!(!message.contains("attention.query") && !message.contains("norms.0"), "{error}");
        std::fs::remove_file(path).unwrap();
    });
}

/// A model and the arrays of a file, two of which map to the same parameter.
type Clash<'a> = (&'a mut dyn Module, &'a [(&'a str, Tensor)]);

#[test]
fn two_arrays_for_one_parameter_are_named() {
    on_cpu(|| {
        let mut linear = Linear::new(2, 1, &mut Rng::seed_from_u64(0)).without_bias();
        let before = linear.weight.tensor().to_vec::<f32>().unwrap();
        let number = |number: f32| Tensor::from_slice(&[number; 2], [1, 2]);
        let path = file_of("twice", &[("model.weight", number(1.0)), ("ema.weight", number(5.0))]);
        let error =
            state_dict::load(&mut linear, &path, |n| n.split_once('.').map(|(_, rest)| rest.to_string())).unwrap_err();
        assert!(
            error.is_mistake()
                && error.message().ends_with("ema.weight and model.weight both become weight; nothing was loaded"),
            "{error}"
        );
        assert_eq!(linear.weight.tensor().to_vec::<f32>().unwrap(), before);
        std::fs::remove_file(path).unwrap();

        let mut rnn = Rnn::new(2, 2, &mut Rng::seed_from_u64(0));
        let mut attention = MultiHeadAttention::new(2, 1, &mut Rng::seed_from_u64(0));
        let square = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0], [2, 2]);
        let six = Tensor::from_slice(&[0.5f32; 12], [6, 2]);
        let cases: [Clash<'_>; 4] = [
            (&mut rnn, &[("weight_ih_l0", square.clone()), ("weight_ih_l00", square.clone())]),
            (
                &mut Gru::new(2, 2, &mut Rng::seed_from_u64(0)),
                &[("layers.0.directions.0.weight_ih", six.clone()), ("weight_ih_l0", six.clone())],
            ),
            (&mut attention, &[("in_proj_weight", six.clone()), ("query.weight", square.clone())]),
            (
                &mut MultiHeadAttention::new(2, 1, &mut Rng::seed_from_u64(0)),
                &[("out_proj.weight", square.clone()), ("output.weight", square.clone())],
            ),
        ];
        for (model, arrays) in cases {
            let path = file_of("clash", arrays);
            let error = state_dict::load(model, &path, same).unwrap_err();
            let [(one, _), (other, _)] = arrays else { panic!("two arrays") };
            assert!(error.message().contains(&format!("{one} and {other} both become ")), "{error}");
            std::fs::remove_file(path).unwrap();
        }
    });
}

#[test]
fn stacked_weights_of_the_wrong_size_are_named() {
    on_cpu(|| {
        for (array, expected) in [
            (Tensor::zeros([25, 8], DType::F32), "in_proj_weight is f32[25, 8], not [24, 8]"),
            (Tensor::zeros([26, 8], DType::F32), "in_proj_weight is f32[26, 8], not [24, 8]"),
            (Tensor::zeros([27, 8], DType::F32), "in_proj_weight is f32[27, 8], not [24, 8]"),
            (Tensor::zeros([24, 7], DType::F32), "in_proj_weight is f32[24, 7], not [24, 8]"),
            (Tensor::zeros([24], DType::F32), "in_proj_weight is f32[24], not [24, 8]"),
            (Tensor::scalar(1f32), "in_proj_weight is f32[], not [24, 8]"),
        ] {
            let path = file_of("stacked", &[("in_proj_weight", array)]);
            let mut attention = MultiHeadAttention::new(8, 2, &mut Rng::seed_from_u64(0));
            let error = state_dict::load(&mut attention, &path, same).unwrap_err();
            let message = error.message();
            assert!(error.is_mistake() && message.contains("panoply-state-stacked"), "{error}");
            assert!(message.contains(expected), "{error}");
            std::fs::remove_file(path).unwrap();
        }
    });
}

/// Same conversion as `load_state_dict`: f16 and bf16 are exact in f32, and f64 is rounded once.
#[test]
fn floats_of_other_types_are_converted() {
    on_cpu(|| {
        let numbers = [1.5f64, -0.1, 3.0e-5, 65504.0, 0.333333333333333, -2.0, 1.0e-8, f64::NAN, f64::INFINITY];
        let wanted = |round: fn(f64) -> f32| numbers.map(round);
        let to_bits =
            |x: &[f32]| x.iter().map(|x| if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() }).collect::<Vec<u32>>();
        let half = [1.5f32, -0.099975586, 2.9981136e-5, 65504.0, 0.33325195, -2.0, 0.0, f32::NAN, f32::INFINITY];
        let brain =
            [1.5f32, -0.100097656, 3.0040741e-5, 65536.0, 0.33398438, -2.0, 1.0011718e-8, f32::NAN, f32::INFINITY];
        for (dtype, wanted) in [
            (DType::F64, wanted(|x| x as f32)),
            (DType::F16, half),
            (DType::BF16, brain),
            (DType::F32, wanted(|x| x as f32)),
        ] {
            let wide = Tensor::from_slice(&numbers, [1, 9]).cast(dtype);
            let path = file_of("types", &[("weight", wide)]);
            let mut linear = Linear::new(9, 1, &mut Rng::seed_from_u64(0)).without_bias();
            state_dict::load(&mut linear, &path, same).unwrap();
            let have = linear.weight.tensor();
            assert_eq!(
                (have.dtype(), to_bits(&have.to_vec::<f32>().unwrap())),
                (DType::F32, to_bits(&wanted)),
                "{dtype}"
            );
            std::fs::remove_file(path).unwrap();
        }
        let mut linear = Linear::new(1, 1, &mut Rng::seed_from_u64(0)).without_bias();
        for (array, expected) in [
            (Tensor::from_slice(&[1e300f64], [1, 1]), "weight holds f64 values outside the range of f32"),
            (Tensor::from_slice(&[1i32], [1, 1]), "weight is i32[1, 1], not f32[1, 1]"),
        ] {
            let path = file_of("range", &[("weight", array)]);
            let error = state_dict::load(&mut linear, &path, same).unwrap_err();
            assert!(error.message().contains(expected), "{error}");
            std::fs::remove_file(path).unwrap();
        }
        // Parts of a stacked weight are converted as well.
        let whole = Rng::seed_from_u64(3).normal([24, 8]).detach();
        let path = file_of(
            "half-stacked",
            &[
                ("in_proj_weight", whole.cast(DType::F16)),
                ("in_proj_bias", Tensor::zeros([24], DType::BF16)),
                ("out_proj.weight", Tensor::zeros([8, 8], DType::F64)),
                ("out_proj.bias", Tensor::zeros([8], DType::F32)),
            ],
        );
        let mut attention = MultiHeadAttention::new(8, 2, &mut Rng::seed_from_u64(0));
        state_dict::load(&mut attention, &path, same).unwrap();
        close("value", attention.value.weight.tensor(), &whole.cast(DType::F16).cast(DType::F32).narrow(0, 16, 8), 0.0);
        std::fs::remove_file(path).unwrap();
    });
}

/// A block with ReLU and a custom epsilon equals the composition of its parts, and differs from one with GELU.
#[test]
fn activation_and_epsilon_of_blocks_are_options() {
    on_cpu(|| {
        let (file, path) = saved("encoder, norm first");
        let shape = TransformerConfig {
            d_model: 8,
            num_heads: 2,
            dim_feedforward: 16,
            norm_first: true,
            dropout: 0.0,
            is_causal: false,
        };
        let block = || TransformerEncoderLayer::new(shape, &mut Rng::seed_from_u64(0));
        let mut relu = block().activation(Activation::Relu).epsilon(1e-2);
        state_dict::load(&mut relu, &path, without_net).unwrap();
        let input = file.get("in/0");
        let pass = &mut ForwardContext::eval();
        let norm =
            |x: &Tensor, at: usize| x.layer_norm(1e-2) * relu.norms[at].weight.tensor() + relu.norms[at].bias.tensor();
        let seen = &input + relu.attention.forward(&norm(&input, 0), pass);
        let wanted = &seen + relu.dense.down.forward(&relu.dense.up.forward(&norm(&seen, 1), pass).relu(), pass);
        close("relu", &relu.forward(&input, pass), &wanted, 1e-6);
        let mut gelu = block();
        state_dict::load(&mut gelu, &path, without_net).unwrap();
        close("gelu", &gelu.forward(&input, pass), &file.get("out/0"), 1e-5);
        let apart = (gelu.forward(&input, pass) - relu.forward(&input, pass)).abs().max(..).item::<f64>().unwrap();
        assert!(apart > 1e-3, "{apart}");
        std::fs::remove_file(path).unwrap();
    });
}

/// Compares with the equation of PyTorch's `nn.RNN(nonlinearity="relu")`, in f64.
#[test]
fn an_rnn_with_relu() {
    on_cpu(|| {
        let rnn = Rnn::new(3, 4, &mut Rng::seed_from_u64(4)).nonlinearity(Nonlinearity::Relu);
        let input = Rng::seed_from_u64(5).normal([2, 6, 3]);
        let output = rnn.forward(&input, &mut ForwardContext::eval()).to_vec::<f32>().unwrap();
        let numbers =
            |tensor: &Tensor| -> Vec<f64> { tensor.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect() };
        let one = &rnn.layers[0].directions[0];
        let [w, u, b, c] = [&one.weight_ih, &one.weight_hh, &one.bias_ih, &one.bias_hh].map(|p| numbers(p.tensor()));
        let x = numbers(&input);
        for batch in 0..2 {
            let mut hidden = vec![0.0; 4];
            for time in 0..6 {
                let next: Vec<f64> = (0..4)
                    .map(|i| {
                        let seen: f64 = (0..3).map(|j| w[3 * i + j] * x[(batch * 6 + time) * 3 + j]).sum();
                        let kept: f64 = (0..4).map(|j| u[4 * i + j] * hidden[j]).sum();
                        (seen + b[i] + kept + c[i]).max(0.0)
                    })
                    .collect();
                hidden = next;
                for i in 0..4 {
                    let have = f64::from(output[(batch * 6 + time) * 4 + i]);
                    assert!((have - hidden[i]).abs() < 1e-5, "{batch}, {time}, {i}: {have}, expected {}", hidden[i]);
                }
            }
        }
    });
}
