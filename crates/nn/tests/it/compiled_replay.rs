//! A compiled network replays recorded commands: the same numbers as the layers in an expression, without building, hashing or looking up
//! anything. It is a single test, because statistics are global to the process.

use panoply_nn::compiled::{CompileOptions, OptLevel, Precision, compile};
use panoply_nn::{ForwardContext, Layer, LayerSpec, Module, Network, Padding, Param};
use panoply_runtime::device_report;
use panoply_tensor::{DType, Device, Rng, Tensor, eval, plan_cache_stats};

fn network() -> Network {
    Network::with_input(&[2, 6, 6])
        .add_layer(LayerSpec::conv(4, &[3, 3]).with_padding(Padding::Same))
        .add_layer(LayerSpec::batch_norm())
        .add_layer(LayerSpec::Relu {})
        .add_layer(LayerSpec::Flatten {})
        .add_layer(LayerSpec::Dropout { p: 0.3 })
        .add_layer(LayerSpec::linear(3))
        .add_layer(LayerSpec::Softmax {})
}

#[test]
fn a_compiled_network_only_replays() {
    let devices: Vec<Device> = device_report().unwrap().devices().cloned().collect();
    for device in devices {
        device.scope(|| {
            for (optimize, precision) in [
                (OptLevel::Default, Precision::F32),
                (OptLevel::Aggressive, Precision::Mixed),
                (OptLevel::None, Precision::F32),
            ] {
                replays(&device, &CompileOptions { opt_level: optimize, precision, ..CompileOptions::default() });
            }
            later_weights_are_in_what_is_compiled_later();
        });
    }
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

fn replays(device: &Device, options: &CompileOptions) {
    let model = network().build(&mut Rng::seed_from_u64(1)).unwrap();
    let ready = compile(&model, options).unwrap();
    for turn in 0..8u64 {
        // Two alternating shapes.
        let batch = [5, 8][turn as usize % 2];
        let x = Rng::seed_from_u64(turn).normal([batch, 2, 6, 6]).detach();
        eval(&[&x]).unwrap();
        let before = plan_cache_stats();
        let output = ready.run(&x).unwrap();
        let after = plan_cache_stats();
        let captured = options.opt_level != OptLevel::None;
        if captured && turn > 3 {
            let looked_up = (after.misses - before.misses, after.hits - before.hits, after.replays - before.replays);
            assert_eq!(looked_up, (0, 0, 1), "{device}, {options:?}, turn {turn}");
        }
        let plain = ready.forward(&x, &mut ForwardContext::eval());
        assert_eq!(output.shape().unwrap().dims(), [batch, 3]);
        assert_eq!(bits(&output), bits(&plain), "{device}, {options:?}, turn {turn}");
    }
    let error = ready.run(&Tensor::from_slice(&[0f32; 12], [2, 6])).unwrap_err();
    assert!(error.is_mistake() && error.message().starts_with("Conv2d(2 → 4, [3, 3]) got [2, 6]"), "{error}");
    // A failed run leaves nothing that is replayed.
    let x = Rng::seed_from_u64(0).normal([5, 2, 6, 6]);
    assert_eq!(bits(&ready.run(&x).unwrap()), bits(&ready.forward(&x, &mut ForwardContext::eval())));
}

fn later_weights_are_in_what_is_compiled_later() {
    let (mut model, other) =
        (network().build(&mut Rng::seed_from_u64(1)).unwrap(), network().build(&mut Rng::seed_from_u64(2)).unwrap());
    let x = Rng::seed_from_u64(3).normal([4, 2, 6, 6]).detach();
    let first = compile(&model, &CompileOptions::default()).unwrap();
    let old = bits(&first.run(&x).unwrap());
    let loaded = other.named_parameters();
    let mut load = |name: &str, param: &mut Param| {
        let (_, value) = loaded.iter().find(|(known, _)| known == name).expect("both models have the same layers");
        param.set(value.tensor())
    };
    model.visit_mut(&mut panoply_nn::module::ParamVisitorMut::new(&mut load)).unwrap();
    let second = compile(&model, &CompileOptions::default()).unwrap();
    let want = bits(&compile(&other, &CompileOptions::default()).unwrap().run(&x).unwrap());
    assert_ne!(old, want);
    assert_eq!(bits(&second.run(&x).unwrap()), want);
    assert_eq!(bits(&first.run(&x).unwrap()), old);
    // As a layer it is differentiable.
    let leaf = x.cast(DType::F32);
    let grads = second.forward(&leaf, &mut ForwardContext::eval()).square().sum(..).gradients(&[&leaf]).unwrap();
    assert!(grads[0].abs().sum(..).item::<f64>().unwrap() > 0.0);
}
