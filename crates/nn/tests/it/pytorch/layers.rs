//! Layers with PyTorch's weights: outputs, gradients of inputs and weights, running statistics.

use panoply_nn::{
    BatchNorm, Embedding, ForwardContext, Gru, GruCell, Layer, LayerNorm, LstmCell, Module, MultiHeadAttention,
    Nonlinearity, RecurrentCell, Rnn, RnnBase, RnnCell, RnnOptions, RnnState, Sgd, TransformerConfig,
    TransformerDecoderLayer, TransformerEncoderLayer,
};
use panoply_tensor::{AttentionOptions, DType, Rng, Tensor};

use super::{Fixture, LAYERS, PACKED, close, on_cpu, set, set_linear, weighted};

/// Compares outputs, and gradients of the sum of all weighted outputs with respect to inputs and some weights, by PyTorch's names.
fn compare(name: &str, file: &Fixture, inputs: &[Tensor], outputs: &[Tensor], weights: &[(&str, &Tensor)]) {
    for (i, output) in outputs.iter().enumerate() {
        close(&format!("{name}: output {i}"), output, &file.get(&format!("out/{i}")), 4e-6);
    }
    let total = outputs.iter().map(weighted).reduce(|sum, loss| sum + loss).unwrap();
    let wanted: Vec<&Tensor> = inputs.iter().chain(weights.iter().map(|(_, weight)| *weight)).collect();
    let gradients = total.gradients(&wanted).unwrap();
    let names = (0..inputs.len()).map(|i| format!("grad/{i}"));
    let names = names.chain(weights.iter().map(|(name, _)| format!("grad/{name}")));
    for (gradient, key) in gradients.iter().zip(names) {
        close(&format!("{name}: {key}"), gradient, &file.get(&key), 2e-5);
    }
}

/// Returns two bidirectional layers with the weights of a fixture.
fn recurrent<C: RecurrentCell + Default>(file: &Fixture) -> RnnBase<C> {
    let options = RnnOptions { num_layers: 2, bidirectional: true, ..RnnOptions::default() };
    let mut network = RnnBase::with_options(5, 4, options, &mut Rng::seed_from_u64(0));
    for (depth, layer) in network.layers.iter_mut().enumerate() {
        for (direction, end) in layer.directions.iter_mut().zip(["", "_reverse"]) {
            let of = |what: &str| file.get(&format!("state/{what}_l{depth}{end}"));
            set(&mut direction.weight_ih, &of("weight_ih"));
            set(&mut direction.weight_hh, &of("weight_hh"));
            set(&mut direction.bias_ih, &of("bias_ih"));
            set(&mut direction.bias_hh, &of("bias_hh"));
        }
    }
    network
}

/// Compares the results of a network: outputs, last states and gradients.
fn compare_recurrent<C>(
    name: &str,
    file: &Fixture,
    network: &RnnBase<C>,
    inputs: &[Tensor],
    given: (Tensor, RnnState),
) {
    let (output, memory) = given;
    let mut outputs = vec![output, memory.hidden];
    if name.starts_with("lstm") {
        outputs.push(memory.cell);
    }
    let [first, second] = [&network.layers[0].directions[0], &network.layers[1].directions[1]];
    let weights = [
        ("weight_ih_l0", first.weight_ih.tensor()),
        ("weight_hh_l0", first.weight_hh.tensor()),
        ("bias_hh_l1_reverse", second.bias_hh.tensor()),
    ];
    compare(name, file, inputs, &outputs, &weights);
}

/// Compares two bidirectional layers with PyTorch's over whole sequences.
fn compare_whole<C: RecurrentCell + Default>(name: &str) {
    let file = Fixture::new(LAYERS, name);
    let network = recurrent::<C>(&file);
    let input = file.get("in/0");
    let given = network.forward_with_state(&input, None, &mut ForwardContext::eval());
    compare_recurrent(name, &file, &network, &[input], given);
}

#[test]
fn recurrent_layers() {
    on_cpu(|| {
        compare_whole::<RnnCell>("rnn");
        compare_whole::<LstmCell>("lstm");
        compare_whole::<GruCell>("gru");
    });
}

/// Compares two bidirectional layers with PyTorch's over packed sequences, from zeros and from a state.
fn compare_packed<C: RecurrentCell + Default>(name: &str) {
    let lengths = Tensor::from_slice(&[6i32, 2, 4], [3]);
    let file = Fixture::new(PACKED, name);
    let network = recurrent::<C>(&file);
    let input = file.get("in/0");
    let given = network.forward_packed(&input, &lengths, None, &mut ForwardContext::eval());
    compare_recurrent(name, &file, &network, &[input], given);

    let count = if name == "lstm" { 3 } else { 2 };
    let name = format!("{name} with a state");
    let file = Fixture::new(PACKED, &name);
    let network = recurrent::<C>(&file);
    let inputs: Vec<Tensor> = (0..count).map(|i| file.get(&format!("in/{i}"))).collect();
    let start = RnnState { hidden: inputs[1].clone(), cell: inputs[count - 1].clone() };
    let given = network.forward_packed(&inputs[0], &lengths, Some(&start), &mut ForwardContext::eval());
    compare_recurrent(&name, &file, &network, &inputs, given);
}

#[test]
fn recurrent_layers_over_packed_sequences() {
    on_cpu(|| {
        compare_packed::<RnnCell>("rnn");
        compare_packed::<LstmCell>("lstm");
        compare_packed::<GruCell>("gru");
        // A sequence of length zero keeps its initial state; a length above the number of time steps is clamped.
        let network = Gru::new(5, 4, &mut Rng::seed_from_u64(0));
        let x = Rng::seed_from_u64(1).normal([2, 3, 5]);
        let lengths = Tensor::from_slice(&[0u8, 9], [2]);
        let (output, memory) = network.forward_packed(&x, &lengths, None, &mut ForwardContext::eval());
        let (whole, last) = network.forward_with_state(&x, None, &mut ForwardContext::eval());
        assert_eq!(output.slice((0,)).to_vec::<f32>().unwrap(), [0.0; 12]);
        assert_eq!(memory.hidden.slice((0, 0)).to_vec::<f32>().unwrap(), [0.0; 4]);
        close("a length above the number of time steps", &output.slice((1,)), &whole.slice((1,)), 1e-6);
        close("last state", &memory.hidden.slice((0, 1)), &last.hidden.slice((0, 1)), 1e-6);
        let wrong = [Tensor::from_slice(&[1i32, 2, 3], [3]), Tensor::from_slice(&[1f32, 2.0], [2])];
        for lengths in wrong {
            let error = network.forward_packed(&x, &lengths, None, &mut ForwardContext::eval()).0.check().unwrap_err();
            assert!(error.message().contains("must have an integer type and be of shape [batch]"), "{error}");
        }
    });
}

/// PyTorch keeps the three input projections in one array.
fn set_attention(attention: &mut MultiHeadAttention, file: &Fixture, prefix: &str) {
    let of = |what: &str| file.get(&format!("state/{prefix}{what}"));
    let (weights, biases) = (of("in_proj_weight").split(&[8; 3], 0), of("in_proj_bias").split(&[8; 3], 0));
    set_linear(&mut attention.query, &weights[0], &biases[0]);
    set_linear(&mut attention.key, &weights[1], &biases[1]);
    set_linear(&mut attention.value, &weights[2], &biases[2]);
    set_linear(&mut attention.output, &of("out_proj.weight"), &of("out_proj.bias"));
}

fn set_norm(norm: &mut LayerNorm, file: &Fixture, name: &str) {
    set(&mut norm.weight, &file.get(&format!("state/{name}.weight")));
    set(&mut norm.bias, &file.get(&format!("state/{name}.bias")));
}

#[test]
fn multi_head_attention() {
    on_cpu(|| {
        let file = Fixture::new(LAYERS, "attention");
        let mut attention = MultiHeadAttention::new(8, 2, &mut Rng::seed_from_u64(0));
        set_attention(&mut attention, &file, "");
        let inputs = [file.get("in/0"), file.get("in/1")];
        let output =
            attention.attend(&inputs[0], &inputs[1], &AttentionOptions::default(), &mut ForwardContext::eval());
        let weights = [("out_proj.weight", attention.output.weight.tensor())];
        compare("attention", &file, &inputs, &[output], &weights);
    });
}

#[test]
fn transformer_blocks() {
    on_cpu(|| {
        for norm_first in [false, true] {
            let place = if norm_first { "first" } else { "last" };
            let shape = TransformerConfig {
                d_model: 8,
                num_heads: 2,
                dim_feedforward: 16,
                norm_first,
                dropout: 0.0,
                is_causal: false,
            };
            let dense = |file: &Fixture, name: &str| {
                (file.get(&format!("state/{name}.weight")), file.get(&format!("state/{name}.bias")))
            };

            let name = format!("encoder, norm {place}");
            let file = Fixture::new(LAYERS, &name);
            let mut encoder = TransformerEncoderLayer::new(shape, &mut Rng::seed_from_u64(0));
            set_attention(&mut encoder.attention, &file, "self_attn.");
            let ((up, up_bias), (down, down_bias)) = (dense(&file, "linear1"), dense(&file, "linear2"));
            set_linear(&mut encoder.dense.up, &up, &up_bias);
            set_linear(&mut encoder.dense.down, &down, &down_bias);
            (0..2).for_each(|i| set_norm(&mut encoder.norms[i], &file, &format!("norm{}", i + 1)));
            let input = file.get("in/0");
            let output = encoder.forward(&input, &mut ForwardContext::eval());
            let weights = [
                ("linear1.weight", encoder.dense.up.weight.tensor()),
                ("norm1.weight", encoder.norms[0].weight.tensor()),
            ];
            compare(&name, &file, &[input], &[output], &weights);

            let name = format!("decoder, norm {place}");
            let file = Fixture::new(LAYERS, &name);
            let mut decoder = TransformerDecoderLayer::new(shape, &mut Rng::seed_from_u64(0));
            set_attention(&mut decoder.attention, &file, "self_attn.");
            set_attention(&mut decoder.cross, &file, "multihead_attn.");
            let ((up, up_bias), (down, down_bias)) = (dense(&file, "linear1"), dense(&file, "linear2"));
            set_linear(&mut decoder.dense.up, &up, &up_bias);
            set_linear(&mut decoder.dense.down, &down, &down_bias);
            (0..3).for_each(|i| set_norm(&mut decoder.norms[i], &file, &format!("norm{}", i + 1)));
            let inputs = [file.get("in/0"), file.get("in/1")];
            let output = decoder.forward_with_memory(&inputs[0], &inputs[1], &mut ForwardContext::eval());
            compare(&name, &file, &inputs, &[output], &[("norm3.bias", decoder.norms[2].bias.tensor())]);
        }
    });
}

#[test]
fn embedding() {
    on_cpu(|| {
        let file = Fixture::new(LAYERS, "embedding");
        let mut embedding = Embedding::new(7, 3, &mut Rng::seed_from_u64(0));
        set(&mut embedding.weight, &file.get("state/weight"));
        let output =
            embedding.forward(&Tensor::from_slice(&[1i32, 2, 1, 0, 6, 2], [2, 3]), &mut ForwardContext::eval());
        compare("embedding", &file, &[], &[output], &[("weight", embedding.weight.tensor())]);
    });
}

#[test]
fn batch_norm_and_its_running_statistics() {
    on_cpu(|| {
        let file = Fixture::new(LAYERS, "batch_norm");
        let mut layer = BatchNorm::new(3);
        set(&mut layer.weight, &file.get("weight"));
        set(&mut layer.bias, &file.get("bias"));
        let mut rng = Rng::seed_from_u64(0);
        // A step with learning rate 0 commits the statistics without changing parameters.
        let mut still = Sgd::new(0.0);
        for step in 0..3 {
            let mut pass = ForwardContext::train(&mut rng);
            let output = layer.forward(&file.get(&format!("in/{step}")), &mut pass);
            close("output in training", &output, &file.get(&format!("out/{step}")), 4e-6);
            still.step(&mut layer, output.square().mean(..), pass).unwrap();
            close("running mean", layer.running_mean.tensor(), &file.get(&format!("mean/{step}")), 4e-6);
            close("running variance", layer.running_var.tensor(), &file.get(&format!("var/{step}")), 4e-6);
        }
        let output = layer.forward(&file.get("in/2"), &mut ForwardContext::eval());
        close("output in evaluation", &output, &file.get("eval"), 4e-6);
        assert_eq!(layer.num_parameters(), 6, "running statistics are not trained");
        assert_eq!(layer.named_parameters().len(), 4, "running statistics are saved");
    });
}

/// PyTorch's `RNN(nonlinearity="relu")`: h = relu(x Wᵀ + b + h Uᵀ + c) at each time step, computed in f64.
#[test]
fn recurrent_layers_with_relu() {
    on_cpu(|| {
        let network = Rnn::new(3, 4, &mut Rng::seed_from_u64(2)).nonlinearity(Nonlinearity::Relu);
        let x = Rng::seed_from_u64(1).normal([2, 5, 3]);
        let (output, memory) = network.forward_with_state(&x, None, &mut ForwardContext::eval());
        let weights = &network.layers[0].directions[0];
        let wide = |tensor: &Tensor| tensor.cast(DType::F64);
        let [w, u, b, c] = [&weights.weight_ih, &weights.weight_hh, &weights.bias_ih, &weights.bias_hh]
            .map(|weight| wide(weight.tensor()));
        let mut hidden = Tensor::zeros([2, 4], DType::F64);
        for time in 0..5 {
            let at = wide(&x).narrow(1, time, 1).squeeze(1);
            let sum = at.matmul(&w.t()) + &b + hidden.matmul(&u.t()) + &c;
            hidden = sum.where_self(&sum.gt(&sum.zeros_like()), &sum.zeros_like());
            close(&format!("time {time}"), &output.narrow(1, time, 1).squeeze(1), &hidden.cast(DType::F32), 1e-6);
        }
        close("the last state", &memory.hidden.squeeze(0), &hidden.cast(DType::F32), 1e-6);
        let zeros = output.eq(&output.zeros_like()).any(..).to_vec::<bool>().unwrap();
        assert_eq!(zeros, [true], "the sums have both signs");
    });
}
