//! Networks as data: sizes that follow, mistakes with file, line and field, and the same model from every spelling.

use panoply_nn::network::layer_spec::Memory;
use panoply_nn::{Layer, LayerSpec, Loss, Module, Network, Pass};
use panoply_tensor::{Device, Rng};

const DIGITS: &str = r#"
input = [1, 8, 8]
loss = { label_smoothing = 0.1 }

[[layer]]
kind = "conv"
outputs = 4
size = [3, 3]
padding = [1, 1]
bias = false

[[layer]]
kind = "batch_norm"

[[layer]]
kind = "relu"

[[layer]]
kind = "max_pool"
size = [2, 2]

[[layer]]
kind = "flatten"

[[layer]]
kind = "linear"
inputs = 64
outputs = 10
"#;

fn digits() -> Network {
    Network::with_input(&[1, 8, 8])
        .add_layer(LayerSpec::Conv {
            outputs: 4,
            inputs: None,
            size: vec![3, 3],
            stride: vec![],
            padding: vec![1, 1],
            groups: 1,
            bias: false,
        })
        .add_layer(LayerSpec::batch_norm())
        .add_layer(LayerSpec::Relu {})
        .add_layer(LayerSpec::max_pool(&[2, 2]))
        .add_layer(LayerSpec::Flatten {})
        .add_layer(LayerSpec::linear(10).taking(64))
        .loss(Loss { label_smoothing: 0.1 })
}

#[test]
fn text_builder_and_manifest_say_the_same() {
    let network = Network::parse(DIGITS).unwrap();
    assert_eq!(network, digits());
    let text = serde_json::to_string(&network).unwrap();
    assert_eq!(serde_json::from_str::<Network>(&text).unwrap(), network);
    let shapes: Vec<Vec<usize>> =
        vec![vec![1, 8, 8], vec![4, 8, 8], vec![4, 8, 8], vec![4, 8, 8], vec![4, 4, 4], vec![64], vec![10]];
    assert_eq!(network.shapes().unwrap(), shapes);
}

/// Every layer gives what its description says, flat rows or shaped.
#[test]
fn what_is_built_gives_the_shapes_that_were_said() {
    Device::get("cpu").unwrap().scope(|| {
        let mut rng = Rng::seed(0);
        let memory = |both, layers| Memory { both, layers, ..Memory::new(6) };
        let image = Network::with_input(&[3, 8, 8]);
        let row = Network::with_input(&[8, 4]);
        let networks = [
            image.clone().add_layer(LayerSpec::conv(4, &[3, 5])).add_layer(LayerSpec::GlobalAveragePool {}),
            image.clone().add_layer(LayerSpec::AveragePool { size: vec![3, 2] }).add_layer(LayerSpec::Silu {}),
            image.clone().add_layer(LayerSpec::Conv {
                outputs: 6,
                inputs: Some(3),
                size: vec![2, 3],
                stride: vec![2, 1],
                padding: vec![],
                groups: 3,
                bias: true,
            }),
            image.add_layer(LayerSpec::Reshape { lengths: vec![24, 8] }).add_layer(LayerSpec::Lstm(memory(true, 2))),
            row.clone().add_layer(LayerSpec::Gru(memory(false, 1))).add_layer(LayerSpec::Last {}),
            row.clone().add_layer(LayerSpec::Rnn(memory(true, 1))).add_layer(LayerSpec::MeanOverTime {}),
            row.clone()
                .add_layer(LayerSpec::Positions {})
                .add_layer(LayerSpec::Encoder { heads: 2, inner: 8, dropout: 0.0 })
                .add_layer(LayerSpec::layer_norm()),
            row.add_layer(LayerSpec::conv(5, &[3])).add_layer(LayerSpec::Softmax {}),
        ];
        for network in networks {
            let model = network.build(&mut rng).unwrap();
            let want = [&[2], &network.output().unwrap()[..]].concat();
            let shaped = rng.normal([&[2], &network.input[..]].concat());
            for input in [shaped.clone(), shaped.flatten(1)] {
                let output = model.forward(&input, &mut Pass::eval());
                assert_eq!(output.shape().unwrap().dims(), want, "{network:?}");
            }
            let summary = model.summary().unwrap();
            assert_eq!(summary.parameters, model.param_count(), "{network:?}");
        }
    });
}

#[test]
fn a_summary_counts_what_there_is() {
    Device::get("cpu").unwrap().scope(|| {
        let model = digits().build(&mut Rng::seed(0)).unwrap();
        let summary = model.summary().unwrap();
        // 4 · 9 filters, 2 · 4 of the norm, 64 · 10 + 10; and two running statistics of 4.
        assert_eq!((summary.parameters, summary.states, summary.bytes), (36 + 8 + 650, 8, 4 * 702));
        assert_eq!(summary.activation_bytes, 4 * (3 * 256 + 64 + 64 + 10));
        let text = summary.to_string();
        assert!(text.contains("  1  conv        [4, 8, 8]                 36         144\n"), "{text}");
        assert!(
            text.ends_with(
                "694 parameters to train and 8 kept beside them, 2808 bytes; 3624 bytes of activations an example\n"
            ),
            "{text}"
        );
    });
}

#[test]
fn mistakes_name_line_and_field() {
    let table = [
        ("outputs = 4", "outputs = 0", 7, "layer 1 (conv): outputs 0 is not in 1 ..= 16777216"),
        (
            "outputs = 4",
            "outputs = \"four\"",
            7,
            "layer 1 (conv): `outputs`: invalid type: string \"four\", expected usize",
        ),
        ("outputs = 4", "outputs = -4", 7, "layer 1 (conv): `outputs`: invalid value: integer `-4`, expected usize"),
        ("outputs = 4", "outptus = 4", 7, "layer 1 (conv): unknown field `outptus`"),
        ("outputs = 4\n", "\n", 5, "layer 1 (conv): missing field `outputs`"),
        (
            "size = [3, 3]",
            "size = [9, 11]",
            8,
            "layer 1 (conv): size [9, 11] does not fit into the lengths [8, 8] of the input",
        ),
        (
            "size = [3, 3]",
            "size = [3]",
            8,
            "layer 1 (conv): size [3] needs [channels, 1 lengths], not the [1, 8, 8] of the input",
        ),
        ("kind = \"relu\"", "kind = \"rleu\"", 16, "layer 3: unknown variant `rleu`"),
        ("kind = \"relu\"\n", "", 15, "layer 3: `kind` is missing"),
        (
            "inputs = 64",
            "inputs = 65",
            27,
            "layer 6 (linear): inputs 65 are not the 64 numbers that layer 5 (flatten) gives",
        ),
        ("input = [1, 8, 8]", "input = [1, 8, 0]", 1, "the input [1, 8, 0] needs axes of at least 1"),
        ("input = [1, 8, 8]", "inputs = [1, 8, 8]", 2, "unknown field `inputs`"),
        ("label_smoothing = 0.1", "label_smoothing = 1.1", 1, "label_smoothing 1.1 is not in 0 .. 1"),
        ("size = [2, 2]", "size = [2, 2", 22, "missing comma between array elements"),
    ];
    for (from, to, line, want) in table {
        let text = DIGITS.replacen(from, to, 1);
        let (at, what) = Network::parse(&text).unwrap_err();
        assert!(at == line && what.contains(want), "{to}: line {at}, {what}");
    }
    let file = std::env::temp_dir().join(format!("panoply-network-{}.toml", std::process::id()));
    std::fs::write(&file, DIGITS.replace("outputs = 10", "outputs = 0")).unwrap();
    let error = Network::read(&file).unwrap_err();
    let want = format!("{}:28: layer 6 (linear): outputs 0 is not in 1 ..= 16777216", file.display());
    assert!(error.is_corrupt() && error.message() == want, "{error}");
    std::fs::remove_file(&file).unwrap();
    let error = digits().add_layer(LayerSpec::Last {}).build(&mut Rng::seed(0)).unwrap_err();
    assert_eq!(error.message(), "layer 7 (last): needs [time, features], not the [10] of layer 6 (linear)");
}
