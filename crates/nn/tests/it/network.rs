//! Networks as data: inferred sizes, mistakes with file, line and field, and the same model from every form of description.

mod claims;
mod files;

use panoply_nn::network::layer_spec::{
    ConvTransposeSpec, PoolSpec, RnnSpec, TransformerDecoderSpec, TransformerEncoderSpec,
};
use panoply_nn::{Activation, ForwardContext, Layer, LayerSpec, Loss, Module, Network, Padding};
use panoply_tensor::{Device, Rng};

const DIGITS: &str = r#"
input = [1, 8, 8]
loss = { label_smoothing = 0.1 }

[[layer]]
kind = "conv"
out_channels = 4
kernel_size = [3, 3]
padding = [1, 1]
bias = false

[[layer]]
kind = "batch_norm"

[[layer]]
kind = "relu"

[[layer]]
kind = "max_pool"
kernel_size = [2, 2]

[[layer]]
kind = "flatten"

[[layer]]
kind = "linear"
in_features = 64
out_features = 10
"#;

fn digits() -> Network {
    Network::with_input(&[1, 8, 8])
        .add_layer(LayerSpec::Conv {
            out_channels: 4,
            in_channels: None,
            kernel_size: vec![3, 3],
            stride: vec![],
            padding: [1, 1].into(),
            dilation: vec![],
            groups: 1,
            bias: false,
        })
        .add_layer(LayerSpec::batch_norm())
        .add_layer(LayerSpec::Relu {})
        .add_layer(LayerSpec::max_pool(&[2, 2]))
        .add_layer(LayerSpec::Flatten {})
        .add_layer(LayerSpec::linear(10).with_inputs(64))
        .loss(Loss { label_smoothing: 0.1, ..Loss::default() })
}

#[test]
fn text_builder_and_json_agree() {
    let network = Network::parse(DIGITS).unwrap();
    assert_eq!(network, digits());
    let text = serde_json::to_string(&network).unwrap();
    assert_eq!(serde_json::from_str::<Network>(&text).unwrap(), network);
    let shapes: Vec<Vec<usize>> =
        vec![vec![1, 8, 8], vec![4, 8, 8], vec![4, 8, 8], vec![4, 8, 8], vec![4, 4, 4], vec![64], vec![10]];
    assert_eq!(network.layer_shapes().unwrap(), shapes);
}

/// A convolution and a norm with a skip connection.
fn block(conv: LayerSpec, shortcut: Vec<LayerSpec>) -> LayerSpec {
    LayerSpec::Residual { layers: vec![conv, LayerSpec::batch_norm(), LayerSpec::Relu {}], shortcut }
}

/// Nested layers: the same from a file, from JSON and from code, with hierarchical parameter names.
#[test]
fn nested_layers() {
    let file = r#"
        input = [2, 6, 6]
        [[layer]]
        kind = "residual"
        shortcut = [{ kind = "conv", out_channels = 4, kernel_size = [1, 1] }, { kind = "batch_norm" }]
        [[layer.layers]]
        kind = "conv"
        out_channels = 4
        kernel_size = [3, 3]
        padding = [1, 1]
        [[layer.layers]]
        kind = "batch_norm"
        [[layer.layers]]
        kind = "relu"
        [[layer]]
        kind = "activation_checkpoint"
        layers = [{ kind = "flatten" }, { kind = "linear", out_features = 3 }]
    "#;
    let network = Network::parse(file).unwrap();
    let shortcut = LayerSpec::Conv {
        out_channels: 4,
        in_channels: None,
        kernel_size: vec![1, 1],
        stride: vec![],
        padding: Padding::default(),
        dilation: vec![],
        groups: 1,
        bias: true,
    };
    let same = Network::with_input(&[2, 6, 6])
        .add_layer(block(LayerSpec::conv(4, &[3, 3]).with_padding([1, 1]), vec![shortcut, LayerSpec::batch_norm()]))
        .add_layer(LayerSpec::ActivationCheckpoint { layers: vec![LayerSpec::Flatten {}, LayerSpec::linear(3)] });
    assert_eq!(network, same);
    let text = serde_json::to_string(&network).unwrap();
    assert_eq!(serde_json::from_str::<Network>(&text).unwrap(), network);
    Device::get("cpu").unwrap().scope(|| {
        let mut rng = Rng::seed_from_u64(0);
        let model = network.build(&mut rng).unwrap();
        let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names[..2], ["0.layers.0.weight", "0.layers.0.bias"]);
        assert!(names.contains(&"0.shortcut.1.running_var".to_string()) && names.contains(&"1.1.weight".to_string()));
        // Recorded outputs name the inner layers, so that the source of a non-finite value is found.
        let mut pass = ForwardContext::train(&mut rng).record_outputs();
        model.forward(&Rng::seed_from_u64(1).normal([2, 2, 6, 6]), &mut pass);
        let seen: Vec<&str> = pass.recorded_outputs().iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(seen[..2], ["layer 0 (residual): layer 0", "layer 0 (residual): layer 1"]);
        assert_eq!(seen.last(), Some(&"layer 1 (activation_checkpoint)"));
        let text = model.summary().unwrap().to_string();
        assert!(
            text.contains("  0  residual               [4, 6, 6]  ")
                && text.contains("  1  activation_checkpoint  [3]  "),
            "{text}"
        );
    });
}

/// Every layer has the output shape of its description, for flat and shaped inputs.
#[test]
fn output_shapes_match_the_description() {
    Device::get("cpu").unwrap().scope(|| {
        let mut rng = Rng::seed_from_u64(0);
        let memory = |both, layers| RnnSpec { bidirectional: both, num_layers: layers, ..RnnSpec::new(6) };
        let image = Network::with_input(&[3, 8, 8]);
        let row = Network::with_input(&[8, 4]);
        let networks = [
            image
                .clone()
                .add_layer(LayerSpec::conv(4, &[3, 5]).with_padding(Padding::Same))
                .add_layer(LayerSpec::GlobalAvgPool {}),
            image.clone().add_layer(LayerSpec::avg_pool(&[3, 2])).add_layer(LayerSpec::Silu {}),
            image.clone().add_layer(LayerSpec::Conv {
                out_channels: 6,
                in_channels: Some(3),
                kernel_size: vec![2, 3],
                stride: vec![2, 1],
                padding: Padding::default(),
                dilation: vec![],
                groups: 3,
                bias: true,
            }),
            image
                .clone()
                .add_layer(LayerSpec::Reshape { shape: vec![24, 8] })
                .add_layer(LayerSpec::Lstm(memory(true, 2))),
            image.clone().add_layer(LayerSpec::Conv {
                out_channels: 2,
                in_channels: None,
                kernel_size: vec![3, 2],
                stride: vec![],
                padding: [1, 0].into(),
                dilation: vec![2, 3],
                groups: 1,
                bias: true,
            }),
            image.clone().add_layer(LayerSpec::ConvTranspose(ConvTransposeSpec {
                padding: vec![1, 0],
                output_padding: vec![1, 0],
                groups: 3,
                ..ConvTransposeSpec::new(6, &[3, 4], &[2, 3])
            })),
            Network::with_input(&[2, 5])
                .add_layer(LayerSpec::ConvTranspose(ConvTransposeSpec::new(3, &[2], &[2])).with_inputs(2))
                .add_layer(LayerSpec::AdaptiveMaxPool { output_size: vec![4] })
                .add_layer(LayerSpec::GlobalMaxPool {}),
            image.clone().add_layer(LayerSpec::MaxPool(PoolSpec {
                kernel_size: vec![3, 3],
                stride: vec![2, 1],
                padding: vec![1, 1],
            })),
            image
                .clone()
                .add_layer(LayerSpec::RandomShift { max_shift: 2 })
                .add_layer(LayerSpec::RandomHorizontalFlip { p: 0.5 })
                .add_layer(LayerSpec::GaussianNoise { stddev: 0.1 })
                .add_layer(LayerSpec::GroupNorm { num_groups: 3, epsilon: 1e-5 })
                .add_layer(LayerSpec::AdaptiveAvgPool { output_size: vec![3, 5] })
                .add_layer(LayerSpec::RmsNorm { epsilon: 1e-6 })
                .add_layer(LayerSpec::LeakyRelu { negative_slope: 0.2 })
                .add_layer(LayerSpec::Elu {})
                .add_layer(LayerSpec::Softplus {})
                .add_layer(LayerSpec::Mish {})
                .add_layer(LayerSpec::InverseStandardize {}),
            Network::with_input(&[6])
                .add_layer(LayerSpec::Embedding { num_embeddings: 9, embedding_dim: 4 })
                .add_layer(LayerSpec::TransformerEncoderLayer(TransformerEncoderSpec {
                    is_causal: true,
                    ..TransformerEncoderSpec::new(2, 8)
                }))
                .add_layer(LayerSpec::linear(9)),
            image.clone().add_layer(block(LayerSpec::conv(3, &[3, 3]).with_padding(Padding::Same), vec![])).add_layer(
                block(
                    LayerSpec::conv(5, &[3, 3]).with_padding(Padding::Same),
                    vec![LayerSpec::conv(5, &[1, 1]), LayerSpec::batch_norm()],
                ),
            ),
            row.clone()
                .add_layer(LayerSpec::MultiHeadAttention {
                    num_heads: 4,
                    num_kv_heads: Some(2),
                    is_causal: true,
                    memory: vec![],
                })
                .add_layer(LayerSpec::ActivationCheckpoint {
                    layers: vec![LayerSpec::transformer_encoder_layer(2, 8), LayerSpec::linear(3)],
                })
                .add_layer(LayerSpec::GeluTanh {})
                .add_layer(LayerSpec::Selu {})
                .add_layer(LayerSpec::Relu6 {})
                .add_layer(LayerSpec::Hardsigmoid {})
                .add_layer(LayerSpec::Hardswish {})
                .add_layer(LayerSpec::Softsign {})
                .add_layer(LayerSpec::Logsigmoid {})
                .add_layer(LayerSpec::LogSoftmax {}),
            row.clone().add_layer(LayerSpec::Gru(memory(false, 1))).add_layer(LayerSpec::LastTimeStep {}),
            row.clone().add_layer(LayerSpec::Rnn(memory(true, 1))).add_layer(LayerSpec::TimeMean {}),
            row.clone()
                .add_layer(LayerSpec::PositionalEncoding {})
                .add_layer(LayerSpec::transformer_encoder_layer(2, 8))
                .add_layer(LayerSpec::layer_norm()),
            Network::with_input(&[6])
                .add_layer(LayerSpec::Embedding { num_embeddings: 9, embedding_dim: 4 })
                .add_layer(LayerSpec::TransformerDecoder(TransformerDecoderSpec {
                    num_heads: 2,
                    dim_feedforward: 8,
                    num_layers: 2,
                    dropout: 0.1,
                    norm_first: false,
                    activation: Activation::Gelu,
                    epsilon: 1e-5,
                    target: vec![LayerSpec::Narrow { start: 2, length: 4 }, LayerSpec::PositionalEncoding {}],
                    memory: vec![LayerSpec::Narrow { start: 0, length: 2 }, LayerSpec::transformer_encoder_layer(2, 8)],
                }))
                .add_layer(LayerSpec::TransformerEncoderLayer(TransformerEncoderSpec {
                    norm_first: false,
                    ..TransformerEncoderSpec::new(2, 8)
                })),
            row.clone()
                .add_layer(LayerSpec::conv(5, &[3]).with_padding(Padding::Same))
                .add_layer(LayerSpec::Softmax {}),
            row.clone().add_layer(LayerSpec::Rnn(memory(false, 3))).add_layer(LayerSpec::Gru(memory(true, 2))),
            row.clone()
                .add_layer(LayerSpec::batch_norm())
                .add_layer(LayerSpec::GroupNorm { num_groups: 2, epsilon: 1e-5 }),
            row.add_layer(LayerSpec::RmsNorm { epsilon: 1e-5 })
                .add_layer(LayerSpec::MultiHeadAttention {
                    num_heads: 4,
                    num_kv_heads: Some(2),
                    is_causal: true,
                    memory: vec![],
                })
                .add_layer(LayerSpec::InverseStandardize {}),
        ];
        for network in networks {
            let model = network.build(&mut rng).unwrap();
            let want = [&[2], &network.output_shape().unwrap()[..]].concat();
            let shaped = rng.normal([&[2], &network.input[..]].concat());
            for input in [shaped.clone(), shaped.flatten(1, -1)] {
                let output = model.forward(&input, &mut ForwardContext::eval());
                assert_eq!(output.shape().unwrap().dims(), want, "{network:?}");
            }
            let summary = model.summary().unwrap();
            assert_eq!(summary.trainable_parameters, model.num_parameters(), "{network:?}");
            // The size computed from the description is that of the model.
            let (extent, built) = (network.extent().unwrap(), model.named_parameters().len() as u128);
            let numel = (summary.trainable_parameters + summary.non_trainable) as u128;
            assert_eq!((extent.arrays, extent.numel), (built, numel), "{network:?}");
        }
    });
}

#[test]
fn a_summary_counts_parameters_and_activations() {
    Device::get("cpu").unwrap().scope(|| {
        let model = digits().build(&mut Rng::seed_from_u64(0)).unwrap();
        let summary = model.summary().unwrap();
        // 4 · 9 filters, 2 · 4 of the norm, 64 · 10 + 10; and two running statistics of 4.
        assert_eq!((summary.trainable_parameters, summary.non_trainable, summary.bytes), (36 + 8 + 650, 8, 4 * 702));
        assert_eq!(summary.activation_bytes, 4 * (3 * 256 + 64 + 64 + 10));
        let mut frozen = model.clone();
        frozen.freeze().unwrap();
        let frozen = frozen.summary().unwrap();
        assert_eq!((&frozen.layers, frozen.trainable_parameters, frozen.frozen_parameters), (&summary.layers, 0, 694));
        assert!(frozen.to_string().contains("\n0 trainable parameters, 694 frozen, 8 in buffers, 2808 bytes"));
        let mut partially_frozen = model.clone();
        partially_frozen.layers.layers[0].freeze().unwrap();
        let partially_frozen = partially_frozen.summary().unwrap();
        assert_eq!((partially_frozen.trainable_parameters, partially_frozen.frozen_parameters), (8 + 650, 36));
        assert!(
            partially_frozen.to_string().contains("\n658 trainable parameters, 36 frozen, 8 in buffers, 2808 bytes")
        );
        let text = summary.to_string();
        assert!(text.contains("  0  conv        [4, 8, 8]                 36         144\n"), "{text}");
        assert!(
            text.ends_with(
                "694 trainable parameters, 8 in buffers, 2808 bytes; 3624 bytes of activations per example\n"
            ),
            "{text}"
        );
    });
}

#[test]
fn mistakes_name_line_and_field() {
    let table = [
        ("out_channels = 4", "out_channels = 0", 7, "layer 0 (conv): out_channels 0 is not in 1 ..= 16777216"),
        (
            "out_channels = 4",
            "out_channels = \"four\"",
            7,
            "layer 0 (conv): `out_channels`: invalid type: string \"four\", expected usize",
        ),
        (
            "out_channels = 4",
            "out_channels = -4",
            7,
            "layer 0 (conv): `out_channels`: invalid value: integer `-4`, expected usize",
        ),
        ("out_channels = 4", "outptus = 4", 7, "layer 0 (conv): unknown field `outptus`"),
        ("out_channels = 4\n", "\n", 5, "layer 0 (conv): missing field `out_channels`"),
        (
            "kernel_size = [3, 3]",
            "kernel_size = [9, 11]",
            8,
            "layer 0 (conv): kernel_size [9, 11] does not fit into the axes [8, 8] of the input",
        ),
        (
            "kernel_size = [3, 3]",
            "kernel_size = [3]",
            8,
            "layer 0 (conv): kernel_size [3] expects [channels, 1 lengths], got [1, 8, 8] from the input",
        ),
        ("kind = \"relu\"", "kind = \"rleu\"", 16, "layer 2: unknown variant `rleu`"),
        ("kind = \"relu\"\n", "", 15, "layer 2: `kind` is missing"),
        (
            "in_features = 64",
            "in_features = 65",
            27,
            "layer 5 (linear): in_features 65 does not match the 64 of layer 4 (flatten)",
        ),
        ("input = [1, 8, 8]", "input = [1, 8, 0]", 1, "the input [1, 8, 0] must have axes of at least 1"),
        (
            "input = [1, 8, 8]",
            "input = [1099511627776, 8, 8]",
            1,
            "the input [1099511627776, 8, 8] has too many elements",
        ),
        ("input = [1, 8, 8]", "inputs = [1, 8, 8]", 2, "unknown field `inputs`"),
        ("label_smoothing = 0.1", "label_smoothing = 1.1", 1, "label_smoothing 1.1 is not in [0, 1)"),
        ("kernel_size = [2, 2]", "kernel_size = [2, 2", 22, "missing comma between array elements"),
    ];
    for (from, to, line, want) in table {
        let text = DIGITS.replacen(from, to, 1);
        let (at, what) = Network::parse(&text).unwrap_err();
        assert!(at == line && what.contains(want), "{to}: line {at}, {what}");
    }
    let file = std::env::temp_dir().join(format!("panoply-network-{}.toml", std::process::id()));
    std::fs::write(&file, DIGITS.replace("out_features = 10", "out_features = 0")).unwrap();
    let error = Network::read(&file).unwrap_err();
    let want = format!("{}:28: layer 5 (linear): out_features 0 is not in 1 ..= 16777216", file.display());
    assert!(error.is_corrupt() && error.message() == want, "{error}");
    std::fs::remove_file(&file).unwrap();
    let error = digits().add_layer(LayerSpec::LastTimeStep {}).build(&mut Rng::seed_from_u64(0)).unwrap_err();
    assert_eq!(error.message(), "layer 6 (last_time_step): expected [time, features], got [10] from layer 5 (linear)");
}

/// Arrays with the right number of elements are accepted if the order of the elements is the same, and rejected if the axes are permuted.
#[test]
fn permuted_axes_are_rejected() {
    Device::get("cpu").unwrap().scope(|| {
        let network = |input: &[usize]| {
            Network::with_input(input).add_layer(LayerSpec::Flatten {}).add_layer(LayerSpec::linear(2))
        };
        for (input, given, taken) in [
            (&[3, 4, 4][..], &[3, 4, 4][..], true),
            (&[3, 4, 4], &[48], true),
            (&[48], &[4, 4, 3], true),
            (&[1, 8, 6], &[8, 6], true),
            (&[1, 8, 6], &[8, 6, 1], true),
            (&[3, 4, 4], &[4, 4, 3], false),
            (&[3, 4, 4], &[4, 3, 4], false),
            (&[1, 8, 6], &[6, 8], false),
            (&[8, 6], &[4, 12], false),
        ] {
            let network = network(input);
            assert_eq!(network.accepts_shape(given), taken, "{given:?} into {input:?}");
            let model = network.build(&mut Rng::seed_from_u64(0)).unwrap();
            let x = Rng::seed_from_u64(1).normal([&[5], given].concat());
            let y = model.forward(&x, &mut ForwardContext::eval());
            if taken {
                let shaped = x.reshape([5, -1]).unflatten(1, input);
                let want = model.forward(&shaped, &mut ForwardContext::eval()).to_vec::<f32>().unwrap();
                assert_eq!(y.to_vec::<f32>().unwrap(), want, "{given:?} into {input:?}");
            } else {
                let error = y.check().unwrap_err();
                let want = format!("examples of shape {given:?} do not match the network's input {input:?}");
                assert!(error.is_mistake() && error.message() == want, "{error}");
            }
        }
        assert!(!network(&[3, 4, 4]).accepts_shape(&[3, 4, 5]) && !network(&[48]).accepts_shape(&[]));
    });
}

/// The guide's table has a row for every layer kind, as listed in the message about an unknown one, and its example files are valid.
#[test]
fn the_guide_lists_every_layer_kind() {
    let (_, what) = Network::parse("input = [1]\n[[layer]]\nkind = \"?\"\n").unwrap_err();
    let guide = include_str!("../../../../docs/guide/2-network.md");
    let kinds: Vec<&str> = what.split('`').skip(3).step_by(2).collect();
    assert!(kinds.len() > 45 && kinds.contains(&"residual"), "{what}");
    let missing: Vec<&&str> = kinds.iter().filter(|kind| !guide.contains(&format!("`{kind}`"))).collect();
    assert!(missing.is_empty(), "docs/guide/2-network.md says nothing of {missing:?}");
    let pages = [guide, include_str!("../../../../docs/guide/6-data.md")];
    let blocks = pages.iter().flat_map(|page| page.split("```toml\n").skip(1));
    let files = blocks.map(|rest| rest.split("```").next().unwrap());
    let read: Vec<Network> =
        files.filter(|file| file.starts_with("input")).map(|f| Network::parse(f).unwrap()).collect();
    assert!(read.len() > 2);
}
