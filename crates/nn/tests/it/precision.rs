//! Mixed precision and non-finite numbers: rejected and skipped steps, and the accuracy of bf16 and f16.

use panoply_nn::data::{Dataset, digits};
use panoply_nn::optim::GradScaler;
use panoply_nn::trainer::NoCallback;
use panoply_nn::{
    AdamW, ForwardContext, Layer, LayerSpec, Linear, Loss, Model, Module, Network, Padding, Sgd, TrainConfig, Trainer,
};
use panoply_tensor::{DType, Device, Rng, Tensor};

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

fn values(model: &dyn Module) -> Vec<f32> {
    model.named_parameters().iter().flat_map(|(_, param)| param.tensor().to_vec::<f32>().unwrap()).collect()
}

fn mlp() -> Network {
    Network::with_input_size(64)
        .add_layer(LayerSpec::linear(32))
        .add_layer(LayerSpec::Relu {})
        .add_layer(LayerSpec::linear(10))
}

/// Returns the gradients of one step of a model in a precision: the change by gradient descent at learning rate 1.
fn gradients(model: &Model, precision: DType, scale: Option<GradScaler>) -> Vec<f32> {
    let data = digits::load().unwrap().with_shape(&model.network.input).unwrap();
    let batch = data.select(&(0..64).collect::<Vec<usize>>()).full_batch();
    let (mut moved, mut rng) = (model.clone(), Rng::seed_from_u64(1));
    let mut pass = ForwardContext::train(&mut rng).autocast(precision);
    let loss = Loss::default().compute(&moved.forward(&batch.inputs, &mut pass), &batch.targets);
    let mut optimizer = Sgd::new(1.0);
    optimizer.grad_scaler = scale;
    optimizer.step_keeping_graph(&mut moved, &loss, pass).unwrap();
    let trained = |model: &Model| -> Vec<f32> {
        let params = model.named_parameters().into_iter().filter(|(_, param)| param.requires_grad());
        params.flat_map(|(_, param)| param.tensor().to_vec::<f32>().unwrap()).collect()
    };
    trained(model).iter().zip(trained(&moved)).map(|(before, after)| before - after).collect()
}

/// Rounding the inputs and the output of a product changes it by some half units in the last place: 2^-9 for bf16, 2^-12 for f16. Through
/// the few layers of these networks, the gradient as a whole must stay within sixteen of them: 3 % and 0.4 %.
#[test]
fn half_precision_gradients_are_close_to_f32() {
    on_cpu(|| {
        let padded = LayerSpec::conv(4, &[3, 3]).with_padding(Padding::Same);
        let networks = [
            mlp(),
            Network::with_input(&[1, 8, 8])
                .add_layer(padded)
                .add_layer(LayerSpec::batch_norm())
                .add_layer(LayerSpec::Relu {})
                .add_layer(LayerSpec::max_pool(&[2, 2]))
                .add_layer(LayerSpec::Flatten {})
                .add_layer(LayerSpec::linear(10)),
            Network::with_input(&[8, 8])
                .add_layer(LayerSpec::linear(8))
                .add_layer(LayerSpec::PositionalEncoding {})
                .add_layer(LayerSpec::transformer_encoder_layer(2, 16))
                .add_layer(LayerSpec::layer_norm())
                .add_layer(LayerSpec::Lstm(panoply_nn::network::layer_spec::RnnSpec::new(8)))
                .add_layer(LayerSpec::LastTimeStep {})
                .add_layer(LayerSpec::linear(10)),
        ];
        for network in networks {
            let model = network.build(&mut Rng::seed_from_u64(0)).unwrap();
            let exact = gradients(&model, DType::F32, None);
            for (precision, half_unit, scale) in [
                (DType::BF16, 2f64.powi(-9), None),
                (DType::F16, 2f64.powi(-12), Some(GradScaler { scale: 1024.0, ..GradScaler::default() })),
            ] {
                let rough = gradients(&model, precision, scale);
                let length = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
                let error = length(&mut exact.iter().zip(&rough).map(|(a, b)| f64::from(a - b)));
                let relative = error / length(&mut exact.iter().map(|x| f64::from(*x)));
                eprintln!("{precision}: {:.2} half units", relative / half_unit);
                assert!(
                    relative < 16.0 * half_unit,
                    "{precision}: relative error {relative} of the gradient, {network:?}"
                );
                assert!(relative > 0.1 * half_unit, "{precision} was not used: {relative}");
            }
        }
    });
}

#[test]
fn training_converges_in_every_precision() {
    on_cpu(|| {
        for precision in [DType::BF16, DType::F16] {
            let mut rng = Rng::seed_from_u64(0);
            let (train, held) = digits::load().unwrap().train_test_split(0.2, &mut rng).unwrap();
            let model = mlp().build(&mut rng).unwrap();
            let mut run = Trainer::new(model, AdamW::new(5e-3).clip_grad_norm(1.0), rng);
            let training = TrainConfig { precision, ..TrainConfig::new(8, 64) };
            run.fit(&training, &train, &held, &mut NoCallback).unwrap();
            let best = run.state.history.iter().map(|epoch| epoch.val_score).fold(0.0, f64::max);
            assert!(best > 0.9, "{precision}: validation accuracy {best}");
            assert!(run.model.named_parameters().iter().all(|(_, param)| param.tensor().dtype() == DType::F32));
            assert_eq!(run.optimizer.grad_scaler.is_some(), precision == DType::F16);
        }
    });
}

#[test]
fn the_grad_scaler_backs_off_and_grows() {
    let mut scale = GradScaler { growth_interval: 3, ..GradScaler::default() };
    assert!(!scale.update(false) && !scale.update(false));
    assert_eq!((scale.scale, scale.skipped_steps), (16384.0, 2));
    assert!(scale.update(true) && scale.update(true) && !scale.update(false) && scale.update(true));
    assert_eq!((scale.scale, scale.growth_tracker, scale.skipped_steps), (8192.0, 1, 3));
    assert!(scale.update(true) && scale.update(true));
    assert_eq!((scale.scale, scale.growth_tracker), (16384.0, 0));
}

#[test]
fn an_overflowing_step_is_skipped_and_the_scale_is_reduced() {
    on_cpu(|| {
        let (mut rng, x) = (Rng::seed_from_u64(0), Rng::seed_from_u64(1).normal([4, 8]));
        let mut model = Linear::new(8, 2, &mut rng);
        let before = values(&model);
        let mut optimizer = Sgd::new(0.1).grad_scaler(GradScaler { scale: 2f64.powi(24), ..GradScaler::default() });
        let mut steps = 0;
        while values(&model) == before {
            let mut pass = ForwardContext::train(&mut rng).autocast(DType::F16);
            let loss = model.forward(&x, &mut pass).cast(DType::F32).square().mean(..);
            assert!(optimizer.step_keeping_graph(&mut model, &loss, pass).unwrap().is_finite());
            steps += 1;
            assert!(steps < 20, "the scale never became small enough");
        }
        let scale = optimizer.grad_scaler.unwrap();
        assert_eq!((scale.skipped_steps, optimizer.steps), (steps - 1, 1));
        assert!(scale.skipped_steps > 3 && scale.scale == 2f64.powi(24 - scale.skipped_steps as i32), "{scale:?}");
        assert!(values(&model).iter().all(|x| x.is_finite()));
    });
}

/// The derivative of √w at 0 is infinite, while the loss is finite.
#[test]
fn a_non_finite_gradient_is_rejected_and_named() {
    on_cpu(|| {
        let mut rng = Rng::seed_from_u64(0);
        for (clip, what) in [(None, "without clipping"), (Some(1.0), "with clipping")] {
            let mut model = Linear::new(2, 2, &mut rng);
            model.bias.as_mut().unwrap().set(&Tensor::from_slice(&[0f32, 1.0], [2])).unwrap();
            let before = values(&model);
            let mut optimizer = AdamW::new(0.1);
            optimizer.grad_clip = clip.map(panoply_nn::optim::GradClip::Norm);
            let bias = model.bias.as_ref().unwrap().tensor();
            let loss = model.weight.tensor().square().sum(..) + bias.sqrt().sum(..);
            let error = optimizer.step_keeping_graph(&mut model, &loss, ForwardContext::train(&mut rng)).unwrap_err();
            let want = "but a gradient is not finite, first that of bias; the parameters from before the step are kept";
            assert!(
                error.message().starts_with("the loss of step 1 is ") && error.message().ends_with(want),
                "{what}: {error}"
            );
            assert_eq!((values(&model), optimizer.steps, optimizer.state.len()), (before, 0, 0), "{what}");
        }
    });
}

#[test]
fn the_first_non_finite_layer_is_named() {
    on_cpu(|| {
        let training = TrainConfig::new(1, 4);
        let data = |value: f32| {
            let mut features = vec![0.5; 16 * 64];
            features[7] = value;
            Dataset::classification(features, (0..16).map(|i| i % 10).collect()).build().unwrap()
        };
        let run = |weight: f32| {
            let mut model = mlp().build(&mut Rng::seed_from_u64(0)).unwrap();
            let mut grow = |name: &str, param: &mut panoply_nn::Param| match name {
                "2.weight" => param.set(&(param.tensor() * f64::from(weight))),
                _ => Ok(()),
            };
            model.visit_mut(&mut panoply_nn::ParamVisitorMut::new(&mut grow)).unwrap();
            Trainer::new(model, Sgd::new(0.1), Rng::seed_from_u64(0))
        };
        for (weight, value, place) in [
            (1.0, f32::NAN, "in the inputs"),
            (f32::NAN, 0.5, "in 2.weight"),
            (3e38, 0.5, "in the output of layer 2 (linear)"),
        ] {
            let mut run = run(weight);
            let examples = data(value);
            let error = run.fit(&training, &examples, &data(0.5), &mut NoCallback).unwrap_err();
            let want = format!("the first non-finite values are {place}");
            assert!(error.notes().contains(&want), "{error}");
            assert_eq!(run.optimizer.steps, run.state.step as u64);
        }
    });
}
