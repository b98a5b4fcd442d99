//! A network learns real digits on every device, and its parameters survive a file.

use std::collections::HashMap;
use std::task::{Context, Poll, Waker};

use panoply_nn::conformance::{self, FirstSteps};
use panoply_nn::data::{Dataset, Targets, digits};
use panoply_nn::trainer::NoCallback;
use panoply_nn::{
    AdamW, EpochReport, ForwardContext, Linear, Loss, Mlp, Module, Sgd, TrainConfig, Trainer, checkpoint, evaluate,
};
use panoply_tensor::{Device, Result, Rng, Tensor};

fn learn(epochs: usize) -> Result<(Mlp, Vec<EpochReport>, Dataset)> {
    let mut rng = Rng::seed_from_u64(0);
    let (train, held) = digits::load()?.train_test_split(0.2, &mut rng)?;
    let model = Mlp::new(&[64, 32, 10], 0.0, &mut rng);
    let mut run = Trainer::new(model, AdamW::new(5e-3).clip_grad_norm(1.0), rng);
    run.fit(&TrainConfig::new(epochs, 64), &train, &held, &mut NoCallback)?;
    Ok((run.best_model().clone(), run.state.history, held))
}

#[test]
fn training_learns_digits_and_survives_a_checkpoint() {
    Device::get("cpu").unwrap().scope(|| {
        let (model, history, held) = learn(12).unwrap();
        let best = history.iter().map(|epoch| epoch.val_score).fold(0.0, f64::max);
        assert!(best > 0.94, "validation accuracy {best}; history {history:?}");
        assert!(history.last().unwrap().train_loss < 0.2 * history[0].train_loss);
        let file = std::env::temp_dir().join(format!("panoply-digits-{}.safetensors", std::process::id()));
        checkpoint::save(&model, &file, HashMap::from([("kind".into(), "mlp".into())])).unwrap();
        assert_eq!(checkpoint::metadata(&file).unwrap()["kind"], "mlp");
        let mut other = Mlp::new(&[64, 32, 10], 0.0, &mut Rng::seed_from_u64(99));
        assert_ne!(
            evaluate(&other, &held, &Loss::default()).unwrap(),
            evaluate(&model, &held, &Loss::default()).unwrap()
        );
        checkpoint::load(&mut other, &file).unwrap();
        assert_eq!(
            evaluate(&other, &held, &Loss::default()).unwrap(),
            evaluate(&model, &held, &Loss::default()).unwrap()
        );
        // Loading into another network fails and does not change it.
        let mut wider = Mlp::new(&[64, 33, 10], 0.0, &mut Rng::seed_from_u64(99));
        let before = wider.named_parameters()[0].1.tensor().to_vec::<f32>().unwrap();
        let error = checkpoint::load(&mut wider, &file).unwrap_err();
        assert!(error.is_mistake() && error.message().ends_with("; nothing was loaded"), "{error}");
        assert!(error.message().contains("3 mismatched (layers.0.weight is f32[32, 64], not f32[33, 64]"), "{error}");
        assert_eq!(wider.named_parameters()[0].1.tensor().to_vec::<f32>().unwrap(), before);
        let mut deeper = Mlp::new(&[64, 32, 10, 10], 0.0, &mut Rng::seed_from_u64(99));
        let error = checkpoint::load(&mut deeper, &file).unwrap_err();
        assert!(error.message().contains("2 missing (layers.2.weight, layers.2.bias)"), "{error}");
        // A file with other names is not corrupt; a prefix that a wrapper added is named.
        let renamed = |rename: fn(String) -> String| {
            let arrays =
                model.named_parameters().into_iter().map(|(name, param)| (rename(name), param.tensor().clone()));
            checkpoint::save_tensors(&file, &arrays.collect::<Vec<_>>(), HashMap::new()).unwrap();
            let error = checkpoint::load(&mut model.clone(), &file).unwrap_err();
            assert!(
                error.is_mistake() && error.message().contains("4 missing (") && error.message().contains("4 extra (")
            );
            error.notes().join("; ")
        };
        let remedy = "pass a `key_map` to `nn::state_dict::load`";
        for (rename, expected) in [
            ((|name| format!("module.{name}")) as fn(String) -> String, "the file's names begin with `module.`"),
            (|name| format!("module._orig_mod.{name}"), "the file's names begin with `module._orig_mod.`"),
            (|name| format!("net.{name}"), "the file's names begin with `net.`"),
            (|name| format!("_orig_mod.{}", name.replace("layers", "fc")), "the file's names begin with `_orig_mod.`"),
            (|name| name.replace("layers", "fc"), "the file holds other names"),
        ] {
            assert_eq!(renamed(rename), format!("{expected}; {remedy}"));
        }
        checkpoint::save(&model, &file, HashMap::new()).unwrap();
        // A truncated file is an error and never a panic.
        let whole = std::fs::read(&file).unwrap();
        for length in [0, 7, 8, 100, whole.len() - 1] {
            std::fs::write(&file, &whole[..length]).unwrap();
            assert!(checkpoint::load(&mut other, &file).unwrap_err().is_corrupt(), "cut to {length} bytes");
        }
        std::fs::remove_file(&file).unwrap();
    });
}

/// Returns the device of this name, or prints that it is skipped.
fn device(name: &str) -> Option<Device> {
    let found = Device::get(name).map_err(|error| error.message().to_string());
    let quick = found.and_then(|device| match device.info().name.contains("SwiftShader") {
        true => Err("SwiftShader takes minutes to compile the kernel that initializes the parameters".to_string()),
        false => Ok(device),
    });
    quick.map_err(|why| eprintln!("SKIPPED: training on {name}: {why}")).ok()
}

/// All device names that a machine can have, including software implementations. Either Vulkan device can be SwiftShader.
const DEVICES: [&str; 9] =
    ["cuda:0", "rocm:0", "metal:0", "oneapi:0", "opencl:0", "opencl:1", "vulkan:0", "vulkan:1", "dx12:0"];

#[test]
fn every_device_learns_digits_as_well_as_the_cpu() {
    let reached = |device: &Device| {
        let history = device.scope(|| learn(10)).unwrap().1;
        (history[0].train_loss, history.iter().map(|epoch| epoch.val_score).fold(0.0, f64::max))
    };
    let (first, accuracy) = reached(&Device::get("cpu").unwrap());
    assert!(accuracy > 0.93, "validation accuracy {accuracy}");
    for (name, device) in DEVICES.iter().filter_map(|name| Some((name, device(name)?))) {
        let (loss, share) = reached(&device);
        eprintln!("{name}: loss {loss:.6} of the first epoch, accuracy {share:.4}; on cpu {first:.6}, {accuracy:.4}");
        // The first epoch has 23 steps, over which rounding errors have little time to grow.
        assert!((first - loss).abs() < 1e-4 * first, "loss {first} on cpu, {loss} on {name}");
        assert!((accuracy - share).abs() < 0.015, "accuracy {accuracy} on cpu, {share} on {name}");
    }
}

/// The checked device is too slow for whole epochs and runs the first twenty steps.
#[test]
fn the_checked_cpu_takes_the_same_first_steps() {
    let device = Device::get("cpu:checked").unwrap();
    for outcome in conformance::first_steps(&device).unwrap() {
        assert!(outcome.passed(), "{}: {outcome}", outcome.name);
    }
    let FirstSteps { losses, .. } = FirstSteps::run(&device).unwrap();
    let [first, last] = [&losses[..5], &losses[15..20]].map(|five| five.iter().sum::<f64>());
    assert!(last < 0.95 * first, "the loss does not decrease: {losses:?}");
}

/// An awaited step gives the same bits and the same errors as a blocking one.
#[test]
fn async_steps_equal_blocking_ones() {
    let device = Device::get("cpu").unwrap();
    let awaited = soon(FirstSteps::run_async(&device)).unwrap();
    assert_eq!(awaited, FirstSteps::run(&device).unwrap());
    device.scope(|| {
        let mut rng = Rng::seed_from_u64(0);
        let mut model = Linear::new(2, 1, &mut rng);
        model.bias = None;
        // The derivative of the square root at 0 is infinite.
        let steep = |model: &Linear| (model.weight.tensor() * 0.0).sqrt().sum(..);
        let mut optimizer = AdamW::new(0.1);
        let loss = steep(&model);
        let waited = optimizer.step(&mut model, loss, ForwardContext::train(&mut rng)).unwrap_err();
        let loss = steep(&model);
        let awaited = soon(optimizer.step_async(&mut model, loss, ForwardContext::train(&mut rng))).unwrap_err();
        assert!(waited.message().contains("first that of weight"), "{waited}");
        assert_eq!((awaited.message(), optimizer.steps), (waited.message(), 0));
    });
}

/// Polls a future until it is ready.
fn soon<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
        std::thread::yield_now();
    }
}

/// Several steps of each optimizer, compared with PyTorch's documented formulas in f64.
#[test]
fn optimizers_follow_their_formulas() {
    Device::get("cpu").unwrap().scope(|| {
        let start = [0.5f32, -1.0, 2.0, 0.25];
        // loss = mean((w · 3)²), so the gradient is 2 · 9 · w / 4.
        let gradient = |w: f64| 18.0 * w / 4.0;
        let model = |rng: &mut Rng| {
            let mut linear = Linear::new(2, 2, rng);
            linear.bias = None;
            linear.weight.set(&Tensor::from_slice(&start, [2, 2])).unwrap();
            linear
        };
        let mut rng = Rng::seed_from_u64(0);
        let loss = |model: &Linear| (model.weight.tensor() * 3.0).square().mean(..);

        let mut trained = model(&mut rng);
        let mut adam = AdamW::new(0.1).weight_decay(0.02);
        let (mut want, mut m, mut v) = (start.map(f64::from), [0.0; 4], [0.0; 4]);
        for step in 1..=5 {
            let value = loss(&trained);
            adam.step_keeping_graph(&mut trained, &value, panoply_nn::ForwardContext::train(&mut rng)).unwrap();
            for i in 0..4 {
                let g = gradient(want[i]);
                m[i] = 0.9 * m[i] + 0.1 * g;
                v[i] = 0.999 * v[i] + 0.001 * g * g;
                let (mean, square) = (m[i] / (1.0 - 0.9f64.powi(step)), v[i] / (1.0 - 0.999f64.powi(step)));
                want[i] = want[i] * (1.0 - 0.1 * 0.02) - 0.1 * mean / (square.sqrt() + 1e-8);
            }
        }
        close(&trained, &want, 1e-5);

        let mut trained = model(&mut rng);
        let mut sgd = Sgd::new(0.01).momentum(0.9);
        let (mut want, mut velocity) = (start.map(f64::from), [0.0; 4]);
        for _ in 0..5 {
            let value = loss(&trained);
            sgd.step_keeping_graph(&mut trained, &value, panoply_nn::ForwardContext::train(&mut rng)).unwrap();
            for i in 0..4 {
                velocity[i] = 0.9 * velocity[i] + gradient(want[i]);
                want[i] -= 0.01 * velocity[i];
            }
        }
        close(&trained, &want, 1e-5);
    });
}

#[track_caller]
fn close(model: &Linear, want: &[f64], tolerance: f64) {
    let have = model.weight.tensor().to_vec::<f32>().unwrap();
    for (have, want) in have.iter().zip(want) {
        assert!((f64::from(*have) - want).abs() < tolerance, "{have}, expected {want}");
    }
}

#[test]
fn a_step_that_fails_changes_nothing() {
    Device::get("cpu").unwrap().scope(|| {
        let mut rng = Rng::seed_from_u64(0);
        let mut model = Linear::new(3, 2, &mut rng);
        let before = model.weight.tensor().to_vec::<f32>().unwrap();
        let mut optimizer = AdamW::new(0.1);
        // The loss does not depend on the bias, which therefore has no gradient.
        let loss = model.weight.tensor().sum(..);
        let error = optimizer.step(&mut model, loss, panoply_nn::ForwardContext::train(&mut rng)).unwrap_err();
        assert!(error.is_mistake() && error.message().contains("does not depend on"), "{error}");
        let loss = model.weight.tensor().sum(..);
        let error = optimizer.step(&mut model, loss, panoply_nn::ForwardContext::eval()).unwrap_err();
        assert!(error.message().contains("needs a training pass"), "{error}");
        assert_eq!((optimizer.steps, model.weight.tensor().to_vec::<f32>().unwrap()), (0, before));
    });
}

#[test]
fn invalid_data_is_described() {
    let six = || vec![0.0; 6];
    for (builder, message) in [
        (Dataset::classification(six(), vec![0, 5]).num_classes(5), "example 1 has class 5, which is not in 0 .. 5"),
        (Dataset::classification(six(), vec![-1, 1]), "example 0 has class -1, which is not in 0 .. 2"),
        (Dataset::classification(vec![0.0; 7], vec![0, 1]), "7 features do not divide among 2 examples"),
        (Dataset::classification(vec![0.0; 7], vec![0, 1]).example_shape(&[3]), "7 features are not 2 examples of [3]"),
        (Dataset::regression(six(), vec![1.0; 5]).targets_per_example(2), "5 targets are not 2 for each example"),
        (Dataset::regression(six(), vec![1.0; 4]).targets_per_example(0), "4 targets are not 0 for each example"),
        (Dataset::regression(six(), vec![1.0, f32::NAN]), "example 1 has the target NaN, which is not a finite number"),
        (Dataset::multilabel(six(), vec![0.0, 2.0]), "example 1 has the label 2, which is neither 0 nor 1"),
        (
            Dataset::regression(six(), vec![1.0; 2]).num_classes(3),
            "`num_classes` needs class labels, and these targets have none",
        ),
        (Dataset::classification(Vec::new(), Vec::new()), "0 features do not divide among 0 examples"),
        (
            Dataset::classification(six(), vec![0; 6]).example_shape(&[usize::MAX, 2]),
            "6 features are not 6 examples of [18446744073709551615, 2]",
        ),
    ] {
        assert_eq!(builder.build().unwrap_err().message(), message);
    }
    let images = Dataset::regression(vec![0.0; 12], vec![1.0; 4]).targets_per_example(2).example_shape(&[1, 2, 3]);
    let images = images.build().unwrap();
    assert_eq!((images.len(), images.num_features, images.example_shape), (2, 6, vec![1, 2, 3]));
    assert_eq!(images.targets, Targets::Regression { values: vec![1.0; 4], num_outputs: 2 });
    let digits = digits::load().unwrap();
    assert!(digits.train_test_split(1.5, &mut Rng::seed_from_u64(0)).unwrap_err().is_mistake());
    let (kept, held) = digits.train_test_split(0.25, &mut Rng::seed_from_u64(0)).unwrap();
    assert_eq!(kept.len() + held.len(), digits.len());
    for class in 0..10 {
        let count = |data: &Dataset| data.labels().iter().filter(|label| **label == class).count() as f64;
        assert!((count(&held) / count(&digits) - 0.25).abs() < 0.01, "class {class} is not split in proportion");
    }
}
