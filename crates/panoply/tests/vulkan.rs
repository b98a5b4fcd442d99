//! Vulkan on whatever is here, mostly Mesa's lavapipe and Chromium's SwiftShader: the kernels that ship, and a network that learns as on
//! the CPU.

use panoply::kernels::{self, Size};
use panoply::nn::{Layer, Mlp, Module, Pass, Sgd};
use panoply::{Device, Kind, Rng, Tensor};

const SEED: u64 = 0x5eed;

fn vulkan() -> Vec<Device> {
    if let Err(error) = Device::get("vulkan:0") {
        eprintln!("SKIPPED: nothing ran on Vulkan: {}", error.message());
    }
    let devices = Device::all().expect("devices can be listed").into_iter();
    devices.filter(|device| device.info().kind == Kind::Vulkan).collect()
}

#[test]
fn the_kernels_that_ship_agree() {
    for device in vulkan() {
        for shipped in kernels::ALL {
            let verdict = shipped.check(&device, Size::Tiny, SEED);
            let verdict = verdict.unwrap_or_else(|error| panic!("{} on {device}: {error}", shipped.name));
            assert!(verdict.passed(), "{} on {device}: {verdict}", shipped.name);
        }
    }
}

/// Three steps of training: the losses and what was learned.
fn train(device: &Device) -> (Vec<f64>, Vec<Vec<f32>>) {
    device.scope(|| {
        let mut rng = Rng::seed(3);
        let mut model = Mlp::new(&[12, 9, 4], 0.0, &mut rng);
        let x = rng.normal([10, 12]);
        let labels: Vec<i32> = (0..10).map(|i| i % 4).collect();
        let y = Tensor::from_slice(&labels, [10]);
        let mut optimiser = Sgd::new(0.1);
        let step = |_| {
            let mut pass = Pass::train(&mut rng);
            let loss = model.forward(&x, &mut pass).cross_entropy(&y);
            optimiser.step(&mut model, &loss, pass).unwrap()
        };
        let losses = (0..3).map(step).collect();
        let params = model.named_params().iter().map(|(_, param)| param.tensor().to_vec().unwrap()).collect();
        (losses, params)
    })
}

#[test]
fn a_network_trains_as_on_the_cpu() {
    let (cpu_losses, cpu_params) = train(&Device::get("cpu").unwrap());
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-5 * (1.0 + b.abs());
    // SwiftShader's compiler takes minutes for the kernel that draws the parameters, with its 24 logarithms and cosines.
    for device in vulkan().into_iter().filter(|device| !device.info().name.contains("SwiftShader")) {
        let (losses, params) = train(&device);
        assert!(losses.iter().zip(&cpu_losses).all(|(a, b)| near(*a, *b)), "{device}: {losses:?}, not {cpu_losses:?}");
        assert!(losses[2] < losses[0], "it learns on {device}: {losses:?}");
        for (found, expected) in params.iter().flatten().zip(cpu_params.iter().flatten()) {
            assert!(near(f64::from(*found), f64::from(*expected)), "{device}: {found}, not {expected}");
        }
    }
}
