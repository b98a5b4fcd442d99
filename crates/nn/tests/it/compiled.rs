//! Compiled networks: folding gives the same outputs with fewer layers, lower precision is close, properties are checked, and a device that
//! computes wrong results is detected.

use std::sync::Arc;

use panoply_cpu::{CpuDriver, CpuOptions};
use panoply_device::Driver;
use panoply_nn::compiled::{CompileOptions, OptLevel, Precision, compile};
use panoply_nn::network::layer_spec::TransformerDecoderSpec;
use panoply_nn::property::Property;
use panoply_nn::{
    Activation, ForwardContext, Layer, LayerSpec, Loss, Model, Module, Network, Padding, Sgd, Standardize, ensure,
};
use panoply_runtime::{ActivityKind, DeviceOptions, Profiler};
use panoply_tensor::{DType, Device, Rng, Tensor};

use crate::support::faulty_device::FaultyDevice;

/// Returns a small network with non-default running statistics.
fn trained() -> Model {
    let mut rng = Rng::seed_from_u64(0);
    let network = Network::with_input(&[2, 6, 6])
        .add_layer(LayerSpec::conv(4, &[3, 3]).with_padding(Padding::Same))
        .add_layer(LayerSpec::batch_norm())
        .add_layer(LayerSpec::Relu {})
        .add_layer(LayerSpec::Flatten {})
        .add_layer(LayerSpec::Linear { out_features: 8, in_features: None, bias: false })
        .add_layer(LayerSpec::batch_norm())
        .add_layer(LayerSpec::Dropout { p: 0.3 })
        .add_layer(LayerSpec::linear(3))
        .add_layer(LayerSpec::Softmax {});
    let mut model = network.build(&mut rng).unwrap();
    let mut optimizer = Sgd::new(0.1);
    for _ in 0..3 {
        let x = rng.normal([8, 2, 6, 6]) * 2.0 + 1.0;
        let mut pass = ForwardContext::train(&mut rng);
        let loss = Loss::default()
            .compute(&model.forward(&x, &mut pass), &Tensor::from_slice(&[0i32, 1, 2, 0, 1, 2, 0, 1], [8]));
        optimizer.step_keeping_graph(&mut model, &loss, pass).unwrap();
    }
    model
}

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

#[test]
fn folding_removes_norms_and_dropout_and_keeps_outputs() {
    on_cpu(|| {
        let model = trained();
        let options = CompileOptions {
            properties: vec![Property::Probabilities, Property::Finite],
            verify: true,
            ..CompileOptions::default()
        };
        let ready = compile(&model, &options).unwrap();
        let kinds: Vec<&str> = ready.model().network.layers.iter().map(LayerSpec::kind).collect();
        assert_eq!(kinds, ["conv", "relu", "flatten", "linear", "linear", "softmax"]);
        assert_eq!(ready.model().num_parameters(), 0, "all parameters are frozen");
        let x = Rng::seed_from_u64(5).normal([7, 2, 6, 6]);
        let want = model.forward(&x, &mut ForwardContext::eval()).to_vec::<f32>().unwrap();
        for (have, want) in ready.run(&x).unwrap().to_vec::<f32>().unwrap().iter().zip(&want) {
            assert!((have - want).abs() < 1e-5, "{have}, expected {want}");
        }
        // Without folding the outputs are identical.
        let same = compile(&model, &CompileOptions { opt_level: OptLevel::None, ..CompileOptions::default() }).unwrap();
        assert_eq!(same.run(&x).unwrap().to_vec::<f32>().unwrap(), want);
        let kinds = [(Precision::BF16, DType::BF16), (Precision::F16, DType::F16), (Precision::Mixed, DType::F32)];
        for (precision, dtype) in kinds {
            let ready =
                compile(&model, &CompileOptions { precision, verify: true, ..CompileOptions::default() }).unwrap();
            let far = ready.verify(&model, &x).unwrap();
            assert!(far > 1e-6, "{precision:?} was not used");
            let params = ready.model().named_parameters();
            assert!(params.iter().all(|(_, param)| param.tensor().dtype() == dtype));
        }
        let mut frozen = model.clone();
        frozen.freeze().unwrap();
        let ready =
            compile(&frozen, &CompileOptions { precision: Precision::BF16, ..CompileOptions::default() }).unwrap();
        assert!(ready.model().named_parameters().iter().all(|(_, param)| param.tensor().dtype() == DType::BF16));
    });
}

/// Returns a regression model with scaled inputs and targets.
fn regression() -> Model {
    let network = Network::with_input_size(5)
        .add_layer(LayerSpec::Standardize {})
        .add_layer(LayerSpec::linear(7))
        .add_layer(LayerSpec::Tanh {})
        .add_layer(LayerSpec::Linear { out_features: 2, in_features: None, bias: false })
        .add_layer(LayerSpec::InverseStandardize {});
    let mut model = network.build(&mut Rng::seed_from_u64(3)).unwrap();
    let rows: Vec<f32> = (0..40).map(|i| (i as f32 * 0.9).sin() * (1 + i % 5) as f32 + 4.0).collect();
    model.layers.layers[0] = Box::new(Standardize::from_rows(&rows, &[5]));
    model.layers.layers[4] = Box::new(panoply_nn::InverseStandardize(Standardize::from_rows(&rows, &[2])));
    model
}

/// Returns the number of kernels and routines that run for an output.
fn launches(run: impl Fn() -> Tensor) -> u64 {
    let device = Device::current().unwrap();
    panoply_tensor::eval(&[&run()]).unwrap();
    let profile = Profiler::start(&device).unwrap();
    panoply_tensor::eval(&[&run()]).unwrap();
    let report = profile.finish().unwrap();
    report
        .work
        .iter()
        .filter(|work| matches!(work.kind, ActivityKind::Kernel | ActivityKind::Routine))
        .map(|work| work.calls)
        .sum()
}

/// Each level gives the network's outputs. A level has fewer layers than the previous one if it can fold more, and fewer launches than the
/// uncompiled network.
#[test]
fn optimization_levels_reduce_launches() {
    // This test has its own device, because the launches on it are counted.
    // SAFETY: only `runtime` uses the devices, and it validates what it passes on.
    let raw = unsafe { CpuDriver::new(CpuOptions::default()).probe() }.unwrap().swap_remove(0);
    Device::new(raw, DeviceOptions::default()).scope(|| {
        for (model, input, fewer) in
            [(trained(), vec![3, 2, 6, 6], [true, false]), (regression(), vec![3, 5], [false, true])]
        {
            let x = (Rng::seed_from_u64(5).normal(input) + 1.0).detach();
            panoply_tensor::eval(&[&x]).unwrap();
            let want = model.forward(&x, &mut ForwardContext::eval()).to_vec::<f32>().unwrap();
            let mut counts = Vec::new();
            for optimize in [OptLevel::None, OptLevel::Default, OptLevel::Aggressive] {
                let ready =
                    compile(&model, &CompileOptions { opt_level: optimize, ..CompileOptions::default() }).unwrap();
                let have = ready.run(&x).unwrap().to_vec::<f32>().unwrap();
                let scale = want.iter().fold(0f32, |top, x| top.max(x.abs()));
                let far = have.iter().zip(&want).map(|(have, want)| (have - want).abs() / scale).fold(0.0, f32::max);
                assert!(far < 1e-5, "{optimize:?}: {far}");
                counts.push((
                    ready.model().network.layers.len(),
                    launches(|| ready.forward(&x, &mut ForwardContext::eval())),
                ));
            }
            eprintln!("layers and launches without, with default and with aggressive optimization: {counts:?}");
            for (pair, fewer) in counts.windows(2).zip(fewer) {
                assert_eq!(pair[1].0 < pair[0].0, fewer, "{counts:?}");
            }
            let [none, usual, aggressive] = [0, 1, 2].map(|at| counts[at].1);
            assert!(usual < none && aggressive <= usual, "{counts:?}");
        }
    });
}

/// Norms within blocks are folded as well.
#[test]
fn residual_blocks_are_folded() {
    on_cpu(|| {
        let block = |shortcut: Vec<LayerSpec>| LayerSpec::Residual {
            layers: vec![
                LayerSpec::conv(4, &[3, 3]).with_padding(Padding::Same),
                LayerSpec::batch_norm(),
                LayerSpec::Relu {},
                LayerSpec::conv(4, &[3, 3]).with_padding(Padding::Same),
                LayerSpec::batch_norm(),
            ],
            shortcut,
        };
        let network = Network::with_input(&[2, 6, 6])
            .add_layer(block(vec![LayerSpec::conv(4, &[1, 1]), LayerSpec::batch_norm()]))
            .add_layer(LayerSpec::ActivationCheckpoint { layers: vec![block(vec![]), LayerSpec::Relu {}] })
            .add_layer(LayerSpec::Residual { layers: vec![LayerSpec::Dropout { p: 0.5 }], shortcut: vec![] })
            .add_layer(LayerSpec::Reshape { shape: vec![24, 6] })
            .add_layer(LayerSpec::TransformerDecoder(TransformerDecoderSpec {
                num_heads: 2,
                dim_feedforward: 4,
                num_layers: 1,
                dropout: 0.1,
                norm_first: true,
                activation: Activation::Gelu,
                epsilon: 1e-5,
                target: vec![],
                memory: vec![LayerSpec::conv(5, &[3]).with_padding(Padding::Same), LayerSpec::batch_norm()],
            }))
            .add_layer(LayerSpec::Flatten {})
            .add_layer(LayerSpec::linear(3));
        let mut rng = Rng::seed_from_u64(0);
        let mut model = network.build(&mut rng).unwrap();
        let mut optimizer = Sgd::new(0.1);
        for _ in 0..3 {
            let x = rng.normal([4, 2, 6, 6]) * 2.0 + 1.0;
            let mut pass = ForwardContext::train(&mut rng);
            let outputs = model.forward(&x, &mut pass);
            let loss = Loss::default().compute(&outputs, &Tensor::from_slice(&[0i32, 1, 2, 0], [4]));
            optimizer.step_keeping_graph(&mut model, &loss, pass).unwrap();
        }
        let ready = compile(&model, &CompileOptions { verify: true, ..CompileOptions::default() }).unwrap();
        let text = serde_json::to_string(&ready.model().network).unwrap();
        assert!(!text.contains("batch_norm") && text.contains("dropout"), "{text}");
        let x = Rng::seed_from_u64(5).normal([3, 2, 6, 6]);
        let want = model.forward(&x, &mut ForwardContext::eval()).to_vec::<f32>().unwrap();
        for (have, want) in ready.run(&x).unwrap().to_vec::<f32>().unwrap().iter().zip(&want) {
            assert!((have - want).abs() < 1e-4 * want.abs().max(1.0), "{have}, expected {want}");
        }
    });
}

#[test]
fn violated_properties_are_errors() {
    on_cpu(|| {
        let mut model = trained();
        model.network.layers.pop();
        model.layers.layers.pop();
        let options =
            CompileOptions { properties: vec![Property::Probabilities], verify: true, ..CompileOptions::default() };
        let error = compile(&model, &options).unwrap_err();
        assert!(
            error.message().starts_with("output [4, 3] is not probabilities: 12 of 12 elements, the first "),
            "{error}"
        );
        let x = Tensor::from_slice(&[0.5f32, f32::NAN, -1.0, 2.0, f32::INFINITY, 0.0], [2, 3]);
        let error = ensure!(x, finite).unwrap_err();
        assert_eq!(error.message(), "x [2, 3] is not finite: 2 of 6 elements, the first NaN at [0, 1]");
        let error = ensure!(x, within(-1.0, 2.0)).unwrap_err();
        assert_eq!(error.message(), "x [2, 3] is not within -1 ..= 2: 2 of 6 elements, the first NaN at [0, 1]");
        ensure!(x.narrow(1, 0, 1), finite, within(0.0, 2.0)).unwrap();
    });
}

#[test]
fn a_device_that_computes_wrong_results_is_detected() {
    // SAFETY: only `runtime` uses the devices, and it validates what it passes on.
    let raw = unsafe { CpuDriver::new(CpuOptions::default()).probe() }.unwrap().swap_remove(0);
    let network = Network::with_input_size(4)
        .add_layer(LayerSpec::linear(8))
        .add_layer(LayerSpec::Tanh {})
        .add_layer(LayerSpec::linear(2));
    let build = |device: &Device| {
        device.scope(|| {
            let mut model = network.build(&mut Rng::seed_from_u64(0)).unwrap();
            // The weights are given, because a wrong device would initialize different ones.
            let numbers: Vec<f32> = (0..40).map(|i| (i as f32 * 0.7).sin()).collect();
            let mut set = |_: &str, param: &mut panoply_nn::Param| {
                let shape = param.tensor().shape()?.clone();
                param.set(&Tensor::from_slice(&numbers[..shape.numel()], shape))
            };
            model.visit_mut(&mut panoply_nn::ParamVisitorMut::new(&mut set)).unwrap();
            let samples = Tensor::from_slice(&numbers[..12], [3, 4]);
            compile(&model, &CompileOptions::default()).unwrap().verify(&model, &samples)
        })
    };
    build(&Device::new(raw.clone(), DeviceOptions::default())).unwrap();
    // A CPU whose compiler replaces the hyperbolic tangent by the sine.
    let wrong = FaultyDevice { target: raw.target().clone(), cpu: raw, text: |kernel| kernel.replace("tanh(", "sin(") };
    let error = build(&Device::new(Arc::new(wrong), DeviceOptions::default())).unwrap_err();
    assert!(
        error.message().starts_with("verification failed: cpu gives ") && error.message().contains("cpu:checked gives"),
        "{error}"
    );
}
