//! Default settings that are omitted from files, the settings beside the network, and descriptions whose sizes exceed their files.

use panoply_nn::network::file::FileSections;
use panoply_nn::network::layer_spec::{RnnSpec, TransformerEncoderSpec};
use panoply_nn::{Activation, LayerSpec, Network};
use panoply_tensor::{Device, Rng, Tensor};

/// Settings of blocks are not written if they have the default value: models of earlier versions read and write identically.
#[test]
fn default_settings_are_not_written() {
    let network = Network::with_input(&[4, 6])
        .add_layer(LayerSpec::transformer_encoder_layer(2, 8))
        .add_layer(LayerSpec::Rnn(RnnSpec::new(3)));
    let text = serde_json::to_string(&network).unwrap();
    assert!(!text.contains("activation") && !text.contains("nonlinearity"), "{text}");
    let block =
        TransformerEncoderSpec { activation: Activation::Relu, epsilon: 1e-6, ..TransformerEncoderSpec::new(2, 8) };
    let network = Network::with_input(&[4, 6]).add_layer(LayerSpec::TransformerEncoderLayer(block));
    let text = serde_json::to_string(&network).unwrap();
    assert!(text.contains("\"activation\":\"relu\"") && text.contains("\"epsilon\":1e-6"), "{text}");
    assert_eq!(serde_json::from_str::<Network>(&text).unwrap(), network);
}

/// A description with sizes that its file does not have: nothing is built, and nothing of those sizes is allocated.
#[test]
fn a_file_without_the_arrays_of_its_network_is_rejected_before_building() {
    Device::get("cpu").unwrap().scope(|| {
        let path = std::env::temp_dir().join(format!("panoply-claims-{}.safetensors", std::process::id()));
        let one = [("0.mean".to_string(), Tensor::from_slice(&[0f32; 4], [4]))];
        panoply_nn::checkpoint::save_tensors(&path, &one, Default::default()).unwrap();
        let decoder =
            "[[layer]]\nkind = \"transformer_decoder\"\nnum_heads = 1\ndim_feedforward = 4\nnum_layers = 4096\nmemory = [{ kind = \"relu\" }]\n";
        let huge = [
            (
                "input = [1048576, 1048576]\n[[layer]]\nkind = \"standardize\"\n".to_string(),
                "2 arrays with 2199023255552 numbers",
            ),
            (format!("input = [8, 8]\n{}", decoder.repeat(8)), "arrays with"),
            ("input = [1, 16777216]\n[[layer]]\nkind = \"layer_norm\"\n".to_string(), "2 arrays with 33554432 numbers"),
        ];
        for (text, expected) in huge {
            let network = Network::parse(&text).unwrap();
            let error = network.load(&path).unwrap_err();
            assert!(error.is_corrupt() && error.message().contains(expected), "{error}");
            assert!(error.message().contains("the file has 1 arrays with 4"), "{error}");
        }
        // Without a file, the arrays that are allocated immediately have a separate limit.
        let network = Network::parse("input = [1048576, 1048576]\n[[layer]]\nkind = \"standardize\"\n").unwrap();
        let error = network.build(&mut Rng::seed_from_u64(0)).unwrap_err();
        assert!(error.is_mistake() && error.message().contains("hold 2199023255552 numbers"), "{error}");
        std::fs::remove_file(&path).unwrap();
    });
}

/// Numbers of a section `[training]` are normalized, whatever their notation.
#[test]
fn numeric_settings_are_normalized() {
    let file = std::env::temp_dir().join(format!("panoply-settings-{}.toml", std::process::id()));
    let training =
        "epochs = 1_000\nseed = 0x10\nlearning_rate = 1_0.0\nmomentum = 5e-1\nclip_norm = +2\noptimizer = \"sgd\"\n";
    let data = "[data]\nlabel = [\"a\", \"b, c\"]\nheader = true\ndrop_columns = []\n";
    let text = format!("input = [4]\n[training]\n{training}{data}[[layer]]\nkind = \"linear\"\nout_features = 2\n");
    std::fs::write(&file, text).unwrap();
    let (_, FileSections { training: settings, data }) = Network::read_with_sections(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let mut lines: Vec<(usize, &str)> = settings.iter().map(|setting| (setting.line, setting.value.as_str())).collect();
    lines.sort_unstable();
    assert_eq!(lines, [(3, "1000"), (4, "16"), (5, "10.0"), (6, "0.5"), (7, "2"), (8, "sgd")]);
    let columns: Vec<(usize, &str, &str)> =
        data.iter().map(|setting| (setting.line, setting.name.as_str(), setting.value.as_str())).collect();
    assert_eq!(columns, [(11, "header", "true"), (10, "label", "a"), (10, "label", "b, c")]);
    for (label, what) in [("[\"y\", [\"z\"]]", "not array"), ("{ y = 1 }", "not table")] {
        let text = format!("input = [4]\n[data]\nlabel = {label}\n[[layer]]\nkind = \"relu\"\n");
        let wrong = format!("data: label: takes text, numbers or a list of them, {what}");
        assert_eq!(Network::parse(&text).unwrap_err(), (3, wrong));
    }
}
