//! Imported ONNX networks as models: the same outputs and parameters as the network that was exported, compiled, trained and written again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::process::Command;

use panoply_nn::compiled::{CompileOptions, OptLevel, Precision};
use panoply_nn::data::npy;
use panoply_nn::network::Model;
use panoply_nn::onnx::{self, Imported};
use panoply_nn::{ForwardContext, Layer, LayerSpec, Loss, Module, Network, Sgd, checkpoint, compile};
use panoply_tensor::{Device, Rng, Tensor};

use crate::onnx::{folder, networks, python, trained};
use crate::onnx_read::{Message, floats, model};

fn forward(model: &Model, x: &Tensor) -> Vec<f32> {
    model.forward(x, &mut ForwardContext::eval()).to_vec::<f32>().unwrap()
}

fn parse(bytes: &[u8]) -> Imported {
    Imported::parse(Path::new("net.onnx"), bytes).unwrap()
}

#[track_caller]
fn assert_close(have: &[f32], want: &[f32], tolerance: f32, what: &str) {
    assert_eq!(have.len(), want.len(), "{what}");
    let top = want.iter().fold(f32::MIN_POSITIVE, |top, x| top.max(x.abs()));
    let error = have.iter().zip(want).fold(0f32, |most, (a, b)| most.max((a - b).abs())) / top;
    assert!(error <= tolerance, "{what}: {error}");
}

/// Adds the names of the layers and of their sublayers.
fn add_kinds(layers: &[LayerSpec], kinds: &mut BTreeSet<&'static str>) {
    for layer in layers {
        kinds.insert(layer.kind());
        layer.sublayers().iter().for_each(|part| add_kinds(part.layers, kinds));
    }
}

/// Every layer survives export and import: the model of the file has the outputs and the number of trained elements of the network, the
/// compiled model has its outputs, and the model can be written as a run folder holds it and as ONNX, with the same bits.
#[test]
fn every_layer_survives_export_and_import() {
    let mut kinds = BTreeSet::new();
    networks().iter().for_each(|network| add_kinds(&network.layers, &mut kinds));
    // The names of all layers stand between quotes in this file.
    let source = include_str!("../../src/network/layer_spec/kind.rs");
    let all: BTreeSet<&str> = source.split('"').skip(1).step_by(2).filter(|kind| *kind != "onnx").collect();
    let untested: Vec<&&str> = all.iter().filter(|kind| !kinds.contains(**kind)).collect();
    assert!(untested.is_empty() && all.len() > 45, "{untested:?}");
    Device::get("cpu").unwrap().scope(|| {
        for (at, network) in networks().iter().enumerate() {
            let (own, x) = trained(network, at as u64);
            let want = forward(&own, &x);
            let imported = parse(&onnx::to_bytes(&own).unwrap());
            let model = imported.to_model(None).unwrap();
            assert_eq!(model.network.output_shape().unwrap(), network.output_shape().unwrap(), "{network:?}");
            assert_eq!(model.num_parameters(), own.num_parameters(), "{network:?}");
            let have = forward(&model, &x);
            assert_close(&have, &want, 1e-5, &format!("network {at}"));
            for opt_level in [OptLevel::None, OptLevel::Default] {
                let compiled = compile(&model, &CompileOptions { opt_level, ..CompileOptions::default() }).unwrap();
                let outputs = compiled.run(&x).unwrap().to_vec::<f32>().unwrap();
                assert_close(&outputs, &have, 1e-5, &format!("network {at} compiled by {opt_level:?}"));
            }
            // The description of the network and its parameters, as a run folder holds them.
            let path = std::env::temp_dir().join(format!("panoply-onnx-layer-{}-{at}.safetensors", std::process::id()));
            checkpoint::save(&model, &path, HashMap::new()).unwrap();
            let text = serde_json::to_string(&model.network).unwrap();
            let described: Network = serde_json::from_str(&text).unwrap();
            assert_eq!(described, model.network);
            let loaded = described.load(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            assert_eq!(forward(&loaded, &x), have, "network {at} loaded");
            let again = parse(&onnx::to_bytes(&loaded).unwrap()).to_model(None).unwrap();
            assert_eq!(forward(&again, &x), have, "network {at} exported again");
            assert_eq!(again.network, model.network);
        }
    });
}

/// `verify` of a compiled model compares with another executor, for which the constants of the graph are moved.
#[test]
fn compiled_network_is_verified_and_refuses_other_precisions() {
    Device::get("cpu").unwrap().scope(|| {
        let (own, x) = trained(&networks()[1], 1);
        let model = parse(&onnx::to_bytes(&own).unwrap()).to_model(None).unwrap();
        let options = CompileOptions { verify: true, ..CompileOptions::default() };
        let compiled = compile(&model, &options).unwrap();
        assert!(compiled.verify(&model, &x).unwrap() < 1e-5);
        let options = CompileOptions { precision: Precision::BF16, ..CompileOptions::default() };
        let error = compile(&model, &options).unwrap_err();
        assert_eq!(error.message(), "an imported ONNX network computes in the element types of its file");
    });
}

/// Fine-tuning an imported network changes it as training changes the network that was exported.
#[test]
fn imported_network_is_trained_like_the_exported_one() {
    Device::get("cpu").unwrap().scope(|| {
        let network = Network::with_input(&[2, 6, 6])
            .add_layer(LayerSpec::Standardize {})
            .add_layer(LayerSpec::conv(4, &[3, 3]))
            .add_layer(LayerSpec::Relu {})
            .add_layer(LayerSpec::max_pool(&[2, 2]))
            .add_layer(LayerSpec::Flatten {})
            .add_layer(LayerSpec::linear(8))
            .add_layer(LayerSpec::Gelu {})
            .add_layer(LayerSpec::layer_norm())
            .add_layer(LayerSpec::linear(3));
        let lstm = Network::with_input(&[5, 4])
            .add_layer(LayerSpec::Lstm(panoply_nn::network::layer_spec::RnnSpec::new(6)))
            .add_layer(LayerSpec::LastTimeStep {})
            .add_layer(LayerSpec::linear(3));
        for (network, tolerance) in [(network, 1e-5), (lstm, 1e-5)] {
            let (mut own, x) = trained(&network, 3);
            let mut model = parse(&onnx::to_bytes(&own).unwrap()).to_model(None).unwrap();
            let before = forward(&own, &x);
            let labels = Tensor::from_slice(&[0i32, 1, 2], [3]);
            for _ in 0..5 {
                for model in [&mut own, &mut model] {
                    let mut rng = Rng::seed_from_u64(0);
                    let mut pass = ForwardContext::train(&mut rng);
                    let loss = Loss::default().compute(&model.forward(&x, &mut pass), &labels);
                    Sgd::new(0.1).step_keeping_graph(model, &loss, pass).unwrap();
                }
            }
            let (have, want) = (forward(&model, &x), forward(&own, &x));
            let moved = before.iter().zip(&want).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
            assert!(moved > 0.05, "training changed the outputs by {moved}");
            assert_close(&have, &want, tolerance, "after five steps");
        }
    });
}

/// A file whose batch is fixed is run for each part of a batch; the last part is padded.
#[test]
fn fixed_batch_is_run_in_parts() {
    Device::get("cpu").unwrap().scope(|| {
        let weights: Vec<f32> = (0..12).map(|n| (n as f32 * 0.7).sin()).collect();
        let bytes = model(("MatMul", 13), &[2, 3], &[(&[3, 4], 1, floats(&weights))], &[]);
        let model = parse(&bytes).to_model(None).unwrap();
        assert_eq!((&model.network.input[..], model.num_parameters()), (&[3][..], 12));
        for rows in [0, 1, 2, 5] {
            let x = Rng::seed_from_u64(rows as u64).normal([rows, 3]).detach();
            let want = x.matmul(&Tensor::from_slice(&weights, [3, 4])).to_vec::<f32>().unwrap();
            assert_close(&forward(&model, &x), &want, 1e-6, &format!("{rows} rows"));
        }
        let error = model.forward(&Tensor::zeros([2, 5], panoply_tensor::DType::F32), &mut ForwardContext::eval());
        let error = error.check().unwrap_err();
        assert_eq!(error.message(), "the ONNX network expects an input of shape [batch, 3], got [2, 5]");
    });
}

/// Returns a node with attributes that are integers.
fn node(operator: &str, inputs: &[&str], output: &str, attributes: &[(&str, i64)]) -> Message {
    let node = inputs.iter().fold(Message::default(), |node, input| node.text(1, input)).text(2, output);
    attributes.iter().fold(node.text(4, operator), |node, (name, value)| {
        node.message(5, &Message::default().text(1, name).int(3, *value).int(20, 2))
    })
}

/// Returns a model of nodes from `x` `[batch, width]` to `y`. Constants are name, shape, type and bytes.
fn graph(nodes: &[Message], constants: &[(&str, &[i64], i64, Vec<u8>)], input: (i64, i64)) -> Vec<u8> {
    let (kind, width) = input;
    let mut graph = nodes.iter().fold(Message::default(), |graph, node| graph.message(1, node)).text(2, "test");
    for (name, dims, kind, raw) in constants {
        let tensor = dims.iter().fold(Message::default(), |tensor, dim| tensor.int(1, *dim));
        graph = graph.message(5, &tensor.int(2, *kind).text(8, name).bytes(9, raw));
    }
    let batch = Message::default().text(2, "batch");
    let shape = Message::default().message(1, &batch).message(1, &Message::default().int(1, width));
    let tensor = Message::default().int(1, kind).message(2, &shape);
    let described = |name: &str, tensor: &Message| {
        Message::default().text(1, name).message(2, &Message::default().message(1, tensor))
    };
    let graph = graph.message(11, &described("x", &tensor)).message(12, &described("y", &Message::default().int(1, 1)));
    let entry = Message::default().text(1, "author").text(2, "a test");
    let opset = Message::default().text(1, "").int(2, 17);
    Message::default().int(1, 8).text(2, "hand").message(7, &graph).message(8, &opset).message(14, &entry).0
}

/// Quantized networks and networks with f16 weights: onnxruntime gives the same outputs. Only float weights are trainable.
#[test]
fn quantized_and_f16_networks_run() {
    let half = |values: &[f32]| -> Vec<u8> {
        values.iter().flat_map(|value| panoply_tensor::f16::from_f32(*value).to_bits().to_le_bytes()).collect()
    };
    let weights: Vec<f32> = (0..12).map(|n| (n as f32 * 0.7).sin()).collect();
    let scale = |name: &'static str, value: f32| (name, &[][..], 1, floats(&[value]));
    let zero = |name: &'static str| (name, &[][..], 3, vec![0u8]);
    let bytes: Vec<u8> = weights.iter().map(|value| (value * 100.0).round() as i8 as u8).collect();
    let quantized = graph(
        &[
            node("QuantizeLinear", &["x", "xs", "xz"], "q", &[]),
            node("DequantizeLinear", &["q", "xs", "xz"], "d", &[]),
            node("DequantizeLinear", &["w", "ws", "wz"], "f", &[]),
            node("MatMul", &["d", "f"], "y", &[]),
        ],
        &[scale("xs", 0.03), zero("xz"), ("w", &[3, 4], 3, bytes), scale("ws", 0.01), zero("wz")],
        (1, 3),
    );
    let narrow = graph(
        &[
            node("Cast", &["x"], "h", &[("to", 10)]),
            node("MatMul", &["h", "w"], "p", &[]),
            node("Cast", &["p"], "y", &[("to", 1)]),
        ],
        &[("w", &[3, 4], 10, half(&weights))],
        (1, 3),
    );
    let folder = folder("types");
    let x = Rng::seed_from_u64(4).normal([5, 3]).detach();
    Device::get("cpu").unwrap().scope(|| {
        for (at, (bytes, trainable)) in [(&quantized, 0), (&narrow, 12)].into_iter().enumerate() {
            std::fs::write(folder.join(format!("{at}.onnx")), bytes).unwrap();
            let imported = Imported::open(&folder.join(format!("{at}.onnx"))).unwrap();
            assert_eq!(imported.info.metadata, BTreeMap::from([("author".to_string(), "a test".to_string())]));
            let model = imported.to_model(None).unwrap();
            assert_eq!(model.num_parameters(), trainable);
            let y = model.forward(&x, &mut ForwardContext::eval());
            let compiled = compile(&model, &CompileOptions::default()).unwrap();
            assert_close(
                &compiled.run(&x).unwrap().to_vec::<f32>().unwrap(),
                &y.to_vec::<f32>().unwrap(),
                1e-6,
                "compiled",
            );
            npy::save(&x, &folder.join(format!("{at}.in.npy"))).unwrap();
            npy::save(&y, &folder.join(format!("{at}.out.npy"))).unwrap();
        }
    });
    let script = "
import sys, numpy as np, onnxruntime
for i, tolerance in enumerate([1e-6, 1e-3]):
    run = onnxruntime.InferenceSession(f'{sys.argv[1]}/{i}.onnx', providers=['CPUExecutionProvider'])
    want, = run.run(None, {'x': np.load(f'{sys.argv[1]}/{i}.in.npy')})
    have = np.load(f'{sys.argv[1]}/{i}.out.npy')
    error = np.abs(have - want).max() / np.abs(want).max()
    assert have.shape == want.shape and error <= tolerance, (i, error)
";
    if let Some(python) = python("quantized ONNX networks") {
        let output = Command::new(python).args(["-c", script]).arg(&folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Networks without exactly one input and one output are refused as layers, and so are descriptions that are not ONNX.
#[test]
fn other_networks_are_refused() {
    Device::get("cpu").unwrap().scope(|| {
        let fails = |bytes: &[u8]| parse(bytes).to_model(None).unwrap_err().message().to_string();
        let summed = graph(&[node("ReduceSum", &["x"], "y", &[("keepdims", 0)])], &[], (1, 3));
        let message = fails(&summed);
        assert!(message.contains("its first axis must be the batch"), "{message}");
        let dynamic = graph(&[node("Relu", &["x"], "y", &[])], &[], (1, 0));
        assert_eq!(fails(&dynamic), "the lengths of the input `x` are dynamic");
        let model = parse(&dynamic).to_model(Some(&[7])).unwrap();
        assert_eq!(model.network.output_shape().unwrap(), [7]);
        let text = serde_json::to_string(&model.network).unwrap();
        for wrong in [text.replace("\"onnx\":\"", "\"onnx\":\"!"), text.replace("\"onnx\":\"", "\"onnx\":\"AAAA")] {
            assert!(serde_json::from_str::<Network>(&wrong).is_err(), "{wrong}");
        }
        // Every changed byte gives a network or an error.
        let structure = text.find("\"onnx\":\"").unwrap() + 8;
        for at in structure..text.len() - 2 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'B' { b'C' } else { b'B' };
            if let Ok(network) = serde_json::from_slice::<Network>(&bytes) {
                let _ = network.build(&mut Rng::seed_from_u64(0));
            }
        }
    });
}
