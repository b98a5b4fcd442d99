//! A model whose stages are on different devices trains like the same model on one device.

use panoply_nn::optim::GradScaler;
use panoply_nn::{BatchNorm, ForwardContext, Lambda, Layer, Linear, ModelParallel, Module, Sequential, Sgd};
use panoply_tensor::{DType, Device, Rng, Tensor};

/// Relative tolerance of losses and parameters: the devices round differently.
const TOLERANCE: f64 = 1e-4;

fn stages() -> [Sequential; 3] {
    let mut rng = Rng::seed_from_u64(1);
    let mut rng = |inputs, outputs| Linear::new(inputs, outputs, &mut rng);
    [
        Sequential::new().add(rng(6, 8)).add(BatchNorm::new(8)).add(Lambda(Tensor::tanh)),
        Sequential::new().add(rng(8, 8)).add(Lambda(Tensor::relu)),
        Sequential::new().add(rng(8, 3)),
    ]
}

fn values(model: &dyn Module) -> Vec<f32> {
    model.named_parameters().iter().flat_map(|(_, param)| param.tensor().to_vec::<f32>().unwrap()).collect()
}

#[test]
fn stages_on_two_devices_train_like_one_device() {
    let cpu = Device::get("cpu").unwrap();
    let other = Device::get("cpu:checked").unwrap();
    let mut rng = Rng::seed_from_u64(2);
    let (x, y) = cpu.scope(|| {
        let (x, y) = (rng.normal([12, 6]), (rng.uniform([12]) * 3.0).cast(DType::I32));
        panoply_tensor::eval(&[&x, &y]).unwrap();
        (x.detach(), y.detach())
    });
    let (model, losses) = cpu.scope(|| {
        let mut model = stages().into_iter().fold(Sequential::new(), Sequential::add);
        let mut optimizer = Sgd::new(0.3);
        let losses: Vec<f64> = (0..20)
            .map(|_| {
                let mut rng = Rng::seed_from_u64(0);
                let mut pass = ForwardContext::train(&mut rng);
                let loss = model.forward(&x, &mut pass).cross_entropy(&y);
                optimizer.step(&mut model, loss, pass).unwrap()
            })
            .collect();
        (values(&model), losses)
    });
    let [first, second, third] = stages();
    let devices = [&cpu, &other, &cpu].map(Clone::clone);
    let mut parallel = ModelParallel::new(devices.into_iter().zip([first, second, third])).unwrap();
    let mut optimizers = [Sgd::new(0.3), Sgd::new(0.3), Sgd::new(0.3)];
    for want in &losses {
        let have = parallel.step(&mut optimizers, &x, |outputs| outputs.cross_entropy(&y), &mut rng).unwrap();
        assert!((have - want).abs() <= TOLERANCE * want, "{have}, on one device {want}");
    }
    assert!(losses[19] < 0.9 * losses[0], "{losses:?}");
    for (have, want) in values(&parallel).iter().zip(&model) {
        assert!(f64::from((have - want).abs()) < 1e-3, "{have}, on one device {want}");
    }
    let device = |at: usize| parallel.stages()[at].model.named_parameters()[0].1.tensor().device().cloned();
    assert_eq!([0, 1, 2].map(device), [&cpu, &other, &cpu].map(|device| Some(device.clone())));
    let outputs = parallel.predict(&x).unwrap();
    assert_eq!(outputs.dims::<2>().unwrap(), [12, 3]);
    assert_eq!(outputs.device(), Some(&cpu));
}

#[test]
fn step_that_fails_changes_no_stage() {
    let cpu = Device::get("cpu").unwrap();
    let mut rng = Rng::seed_from_u64(2);
    let [first, second, _] = stages();
    let mut parallel = ModelParallel::new([(cpu.clone(), first), (cpu.clone(), second)]).unwrap();
    let mut optimizers = [Sgd::new(0.3), Sgd::new(0.3)];
    let before = values(&parallel);
    let x = cpu.scope(|| Tensor::from_slice(&[1.0f32; 24], [4, 6]));
    // The derivative of the square root is infinite at 0, and the loss is finite.
    let step = parallel.step(&mut optimizers, &x, |outputs| (outputs * 0.0).sqrt().sum(..), &mut rng);
    assert!(step.unwrap_err().is_diverged());
    assert_eq!(values(&parallel), before);
    // The gradients are finite, but not the norm that the last stage clips.
    let mut clipped = [Sgd::new(0.3), Sgd::new(0.3).clip_grad_norm(1.0)];
    let step = parallel.step(&mut clipped, &x, |outputs| (outputs * 1e25).sum(..), &mut rng);
    assert!(step.unwrap_err().is_diverged());
    assert_eq!(values(&parallel), before);
    let mut scaled = [Sgd::new(0.3), Sgd::new(0.3).grad_scaler(GradScaler::default())];
    let error = parallel.step(&mut scaled, &x, |outputs| outputs.sum(..), &mut rng).unwrap_err();
    assert_eq!(error.message(), "a gradient scaler of one stage cannot skip the step of the others");
    let error = parallel.step(&mut optimizers[..1], &x, |outputs| outputs.sum(..), &mut rng).unwrap_err();
    assert_eq!(error.message(), "1 optimizers for 2 stages");
    assert!(ModelParallel::<Sequential>::new([]).is_err());
}
