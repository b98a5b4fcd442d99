//! Sequences of different lengths in a padded batch: padding changes nothing, and each sequence gives the same result as alone.

use panoply_nn::compiled::{CompileOptions, compile};
use panoply_nn::data::Dataset;
use panoply_nn::layers::{
    CrossAttention, MultiHeadAttention, Sequential, TransformerConfig, TransformerDecoder, TransformerDecoderLayer,
};
use panoply_nn::network::layer_spec::{RnnSpec, TransformerEncoderSpec};
use panoply_nn::trainer::NoCallback;
use panoply_nn::{
    AdamW, ForwardContext, Layer, LayerSpec, Loss, Network, Standardize, TrainConfig, Trainer, evaluate, predict,
};
use panoply_tensor::{DType, Device, Rng, Tensor};

const TIME: usize = 7;
const FEATURES: usize = 4;

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

/// Returns networks with every layer that uses sequence lengths, and some that process each time step separately, for sequences of this
/// length.
fn networks(time: usize) -> Vec<Network> {
    let start = Network::with_input(&[time, FEATURES]);
    let memory = |layers, both| RnnSpec { num_layers: layers, bidirectional: both, ..RnnSpec::new(3) };
    let attention =
        LayerSpec::MultiHeadAttention { num_heads: 2, num_kv_heads: Some(1), is_causal: true, memory: vec![] };
    vec![
        start.clone().add_layer(LayerSpec::Lstm(memory(2, true))).add_layer(LayerSpec::LastTimeStep {}),
        start.clone().add_layer(LayerSpec::Gru(memory(1, true))).add_layer(LayerSpec::TimeMean {}),
        start.clone().add_layer(LayerSpec::Rnn(memory(1, false))).add_layer(LayerSpec::LastTimeStep {}),
        start
            .clone()
            .add_layer(LayerSpec::linear(6))
            .add_layer(LayerSpec::PositionalEncoding {})
            .add_layer(LayerSpec::transformer_encoder_layer(2, 5))
            .add_layer(LayerSpec::TransformerEncoderLayer(TransformerEncoderSpec {
                is_causal: true,
                norm_first: false,
                ..TransformerEncoderSpec::new(3, 5)
            }))
            .add_layer(LayerSpec::layer_norm())
            .add_layer(LayerSpec::TimeMean {})
            .add_layer(LayerSpec::linear(2)),
        start
            .add_layer(LayerSpec::Residual {
                layers: vec![LayerSpec::multi_head_attention(4), LayerSpec::Tanh {}],
                shortcut: vec![],
            })
            .add_layer(LayerSpec::ActivationCheckpoint {
                layers: vec![attention, LayerSpec::RmsNorm { epsilon: 1e-5 }],
            })
            .add_layer(LayerSpec::LastTimeStep {}),
    ]
}

/// Returns one row for each length, with random numbers up to the length and `behind` as padding.
fn padded(lengths: &[i32], behind: f32) -> Vec<f32> {
    let mut rows = Rng::seed_from_u64(4).normal([lengths.len(), TIME, FEATURES]).to_vec::<f32>().unwrap();
    for (row, length) in rows.chunks_exact_mut(TIME * FEATURES).zip(lengths) {
        row[*length as usize * FEATURES..].fill(behind);
    }
    rows
}

#[test]
fn a_padded_sequence_gives_the_same_result_as_alone() {
    on_cpu(|| {
        let lengths = [3, 7, 1, 5];
        let ends = Tensor::from_slice(&lengths, [4]);
        for (network, n) in networks(TIME).iter().zip(0..) {
            let model = network.build(&mut Rng::seed_from_u64(n)).unwrap();
            let output = |behind: f32| {
                let input = Tensor::from_slice(&padded(&lengths, behind), [4, TIME, FEATURES]);
                model
                    .forward(&input, &mut ForwardContext::eval().with_seq_lengths(Some(&ends)))
                    .to_vec::<f32>()
                    .unwrap()
            };
            let together = output(0.0);
            assert_eq!(together, output(1e3), "{network:?}: padding changes the result");
            let width = together.len() / lengths.len();
            for (at, length) in lengths.iter().enumerate() {
                let time = *length as usize;
                // The same parameters for a network over sequences of this length.
                let shorter = networks(time).swap_remove(n as usize);
                let mut alone = model.clone();
                alone.network = shorter;
                let row = &padded(&lengths, 0.0)[at * TIME * FEATURES..][..time * FEATURES];
                let input = Tensor::from_slice(row, [1, time, FEATURES]);
                let want = alone.forward(&input, &mut ForwardContext::eval()).to_vec::<f32>().unwrap();
                for (have, want) in together[at * width..].iter().zip(&want) {
                    assert!((have - want).abs() < 1e-5, "{network:?}, length {length}: {have}, expected {want}");
                }
            }
        }
    });
}

/// Layers with cross-attention ignore padding of the memory, and report an error if its lengths are unknown.
#[test]
fn padding_of_a_memory_is_ignored() {
    on_cpu(|| {
        let mut rng = Rng::seed_from_u64(6);
        let shape = TransformerConfig {
            d_model: FEATURES,
            num_heads: 2,
            dim_feedforward: 5,
            norm_first: true,
            is_causal: true,
            dropout: 0.0,
        };
        let attention = MultiHeadAttention::new(FEATURES, 2, &mut rng);
        let block = TransformerDecoderLayer::new(shape, &mut rng);
        let cross = CrossAttention { attention, memory: Sequential::default() };
        let (layers, source) = (Sequential::default(), Sequential::default());
        let decoder = TransformerDecoder { target: layers, memory: source, layers: vec![block.clone()] };
        let lengths = [3, 7, 1, 5];
        let ends = Tensor::from_slice(&lengths, [4]);
        let input = |behind: f32| Tensor::from_slice(&padded(&lengths, behind), [4, TIME, FEATURES]);
        for layer in [&cross as &dyn Layer, &decoder] {
            let output = |behind: f32| {
                let output = layer.forward(&input(behind), &mut ForwardContext::eval().with_seq_lengths(Some(&ends)));
                let rows = output.to_vec::<f32>().unwrap();
                let counts = |(row, length): (&[f32], &i32)| row[..*length as usize * FEATURES].to_vec();
                rows.chunks_exact(TIME * FEATURES).zip(&lengths).flat_map(counts).collect::<Vec<f32>>()
            };
            assert_eq!(output(0.0), output(1e3));
        }
        let other = input(0.0).narrow(1, 0, 2);
        let error = block
            .forward_with_memory(&input(0.0), &other, &mut ForwardContext::eval().with_seq_lengths(Some(&ends)))
            .check()
            .unwrap_err();
        assert!(error.message().contains("sequences of 7 time steps, the memory has 2"), "{error}");
    });
}

#[test]
fn padding_is_ignored_in_training_evaluation_and_prediction() {
    on_cpu(|| {
        let lengths: Vec<i32> = (0..48).map(|at| 1 + at * 5 % TIME as i32).collect();
        let learned = |behind: f32, precision: DType| {
            let labels = (0..48).map(|at| at % 3).collect();
            let data = Dataset::classification(padded(&lengths, behind), labels).num_classes(3);
            let data = data.example_shape(&[TIME, FEATURES]).build().unwrap();
            let data = data.with_seq_lengths(lengths.clone()).unwrap();
            let network = Network::with_input(&[TIME, FEATURES])
                .add_layer(LayerSpec::Standardize {})
                .add_layer(LayerSpec::linear(6))
                .add_layer(LayerSpec::transformer_encoder_layer(2, 5))
                .add_layer(LayerSpec::Gru(RnnSpec::new(4)))
                .add_layer(LayerSpec::LastTimeStep {})
                .add_layer(LayerSpec::linear(3));
            let mut rng = Rng::seed_from_u64(0);
            let mut model = network.build(&mut rng).unwrap();
            model.layers.layers[0] = Box::new(Standardize::fit(&data, &[TIME, FEATURES]).unwrap());
            let mut run = Trainer::new(model, AdamW::new(1e-2), rng);
            let training = TrainConfig { precision, ..TrainConfig::new(3, 16) };
            run.fit(&training, &data, &data.select(&[5, 0, 9, 20]), &mut NoCallback).unwrap();
            let evaluation = evaluate(&run.model, &data, &Loss::default()).unwrap();
            let probabilities = predict(&run.model, &data, &Loss::default()).unwrap().to_vec::<f32>().unwrap();
            (run, data, evaluation, probabilities)
        };
        for precision in [DType::F32, DType::BF16] {
            let ((_, _, evaluation, probabilities), (_, _, other, others)) =
                (learned(0.0, precision), learned(7.5, precision));
            assert_eq!((evaluation, probabilities), (other, others), "{precision}");
        }
        let (run, data, _, probabilities) = learned(0.0, DType::F32);
        let ready = compile(&run.model, &CompileOptions::default()).unwrap();
        for (have, want) in
            predict(&ready, &data, &Loss::default()).unwrap().to_vec::<f32>().unwrap().iter().zip(&probabilities)
        {
            assert!((have - want).abs() < 1e-5, "{have}, expected {want}");
        }
        let longest = Dataset { seq_lengths: None, ..data.clone() };
        assert_ne!(
            predict(&run.model, &longest, &Loss::default()).unwrap().to_vec::<f32>().unwrap(),
            probabilities,
            "without lengths all time steps count"
        );
        assert_ne!(longest.fingerprint(), data.fingerprint());
    });
}

#[test]
fn unsupported_sequence_lengths_are_mistakes() {
    on_cpu(|| {
        let data = Dataset::classification(vec![0.5; 2 * 8], vec![0, 1]).example_shape(&[4, 2]).build().unwrap();
        for (ends, wrong) in [
            (vec![4], "1 lengths for 2 sequences"),
            (vec![4, 0], "sequence 1 has the length 0, which is not in 1 ..= 4"),
            (vec![5, 1], "sequence 0 has the length 5, which is not in 1 ..= 4"),
        ] {
            assert_eq!(data.clone().with_seq_lengths(ends).unwrap_err().message(), wrong);
        }
        let each =
            Dataset::classification(vec![0.5; 8], vec![0; 8]).targets_per_example(4).num_classes(2).build().unwrap();
        assert!(each.with_seq_lengths(vec![4, 1]).unwrap_err().message().contains("must have the same length"));
        let data = data.with_seq_lengths(vec![4, 1]).unwrap();
        let start = Network::with_input(&[4, 2]);
        for (layers, wrong) in [
            (vec![LayerSpec::Flatten {}], "layer 0 (flatten): it mixes time steps"),
            (vec![LayerSpec::Relu {}, LayerSpec::conv(4, &[3]).with_padding([1])], "layer 1 (conv): it mixes"),
            (vec![LayerSpec::batch_norm()], "layer 0 (batch_norm): it mixes"),
            (
                vec![LayerSpec::ActivationCheckpoint { layers: vec![LayerSpec::Flatten {}] }],
                "layer 0 (activation_checkpoint): it mixes",
            ),
        ] {
            let network = layers.into_iter().fold(start.clone(), Network::add_layer);
            let network = network.add_layer(LayerSpec::Flatten {}).add_layer(LayerSpec::linear(2));
            let mut rng = Rng::seed_from_u64(0);
            let mut run = Trainer::new(network.build(&mut rng).unwrap(), AdamW::new(1e-3), rng);
            let error = run.fit(&TrainConfig::new(1, 2), &data, &data, &mut NoCallback).unwrap_err();
            assert!(error.message().starts_with(wrong), "{error}");
        }
    });
}
