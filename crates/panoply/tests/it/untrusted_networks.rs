//! Mutated ONNX files with a property to verify, in a process with little memory: each is proven, violated, undecided or refused with an
//! error, never a crash, a panic or memory in proportion to a size in the file.

#[path = "../../../nn/tests/it/file_formats/fuzz/limited.rs"]
mod limited;

use std::path::Path;

use panoply::nn::{LayerSpec, Network, onnx};
use panoply::verify::{Options, Verdict, verify, vnnlib};
use panoply::{Device, Error, Result, Rng, Tensor};

use limited::{FULL, Random, each_seed, in_child, mutate};

/// Verifies a network as the command does, within a time limit.
fn verified(path: &Path, property: &Path, seconds: f64) -> Result<Verdict> {
    let network = onnx::Imported::open(path)?;
    let ([input], [_]) = (&network.inputs[..], &network.outputs[..]) else {
        return Err(Error::unsupported("one input and one output are supported"));
    };
    let shape: Vec<usize> = input.dims.iter().map(|dim| dim.unwrap_or(1)).collect();
    let function = |x: &Tensor| Ok(network.forward(std::slice::from_ref(x))?.swap_remove(0));
    let options = Options { seconds, threads: Some(1), ..Options::default() };
    Ok(verify(&function, shape, &vnnlib::read(property)?, &options, &mut |_| {})?.verdict)
}

#[test]
fn mutated_networks_are_verified_or_refused() {
    let Some(folder) = in_child("untrusted_networks::mutated_networks_are_verified_or_refused", "64MiB") else {
        return;
    };
    let (path, property) = (folder.join("net.onnx"), folder.join("a.vnnlib"));
    let names = ["X_0", "X_1", "Y_0", "Y_1"];
    let declared: String = names.map(|name| format!("(declare-const {name} Real)\n")).concat();
    let set = "(assert (<= X_0 1)) (assert (>= X_0 0)) (assert (<= X_1 1)) (assert (>= X_1 0))\n(assert (>= Y_0 1e6))";
    std::fs::write(&property, declared + set).unwrap();
    Device::get("cpu").unwrap().scope(|| {
        let network = Network::with_input_size(2)
            .add_layer(LayerSpec::linear(5))
            .add_layer(LayerSpec::Relu {})
            .add_layer(LayerSpec::linear(2));
        let bytes = onnx::to_bytes(&network.build(&mut Rng::seed_from_u64(1)).unwrap()).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(verified(&path, &property, Options::default().seconds).unwrap(), Verdict::Proven);
        each_seed(&folder, "net.onnx", FULL, |seed| {
            let mut mutated = bytes.clone();
            mutate(&mut mutated, &mut Random(seed));
            std::fs::write(&path, &mutated).unwrap();
            if let Err(error) = verified(&path, &property, 0.05) {
                assert!(!error.message().is_empty(), "seed {seed}");
            }
        });
    });
}
