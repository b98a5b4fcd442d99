//! A `state_dict` as PyTorch saves it becomes a model that computes the same.

use std::path::PathBuf;

use panoply_nn::layers::BlockShape;
use panoply_nn::{Cell, EncoderBlock, Layer, Module, Pass, Recurrent, checkpoint, state_dict};
use panoply_tensor::{Rng, Tensor};

use super::{Fixture, LAYERS, close, on_cpu};

/// The state of a fixture in a file of its own.
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
    checkpoint::write_arrays(&path, &arrays, Default::default()).unwrap();
    (file, path)
}

fn without_net(name: &str) -> Option<String> {
    name.strip_prefix("net.").map(str::to_string)
}

#[test]
fn a_state_dict_is_loaded_by_name() {
    on_cpu(|| {
        let (file, path) = saved("encoder, norm first");
        let shape = BlockShape { width: 8, heads: 2, inner: 16, norm_first: true, dropout: 0.0, causal: false };
        let mut encoder = EncoderBlock::new(shape, &mut Rng::seed(0));
        state_dict::load(&mut encoder, &path, without_net).unwrap();
        let output = encoder.forward(&file.get("in/0"), &mut Pass::eval());
        close("encoder", &output, &file.get("out/0"), 1e-5);
        // With other names nothing fits, and nothing is loaded.
        let before = encoder.norms[0].weight.tensor().to_vec::<f32>().unwrap();
        let error = state_dict::load(&mut encoder, &path, |name| Some(name.to_string())).unwrap_err();
        assert!(
            error.message().contains("16 missing (attention.query.weight, ")
                && error.message().ends_with("nothing was loaded"),
            "{error}"
        );
        assert_eq!(encoder.norms[0].weight.tensor().to_vec::<f32>().unwrap(), before);
        std::fs::remove_file(path).unwrap();

        let (file, path) = saved("lstm");
        let mut lstm = Recurrent::new(Cell::Lstm, 5, 4, 2, true, &mut Rng::seed(0));
        state_dict::load(&mut lstm, &path, without_net).unwrap();
        close("lstm", &lstm.forward(&file.get("in/0"), &mut Pass::eval()), &file.get("out/0"), 1e-5);
        assert_eq!(lstm.named_params().len(), 16);
        std::fs::remove_file(path).unwrap();
    });
}
