//! A hundred steps of every optimizer, and every schedule.

use panoply_nn::optim::UpdateRule;
use panoply_nn::{
    Adagrad, Adam, AdamW, ForwardContext, Linear, Lion, LrSchedule, Optimizer, Param, ReduceLrOnPlateau, RmsProp, Sgd,
};
use panoply_tensor::{Rng, Tensor};

use super::{Fixture, OPTIMIZERS, close, on_cpu};

fn follows<R: UpdateRule>(name: &str, mut optimizer: Optimizer<R>) {
    let file = Fixture::new(OPTIMIZERS, "");
    let (x, y) = (file.get("x"), file.get("y"));
    let mut model = Linear { weight: Param::new(file.get("start")), bias: None };
    let mut rng = Rng::seed_from_u64(0);
    for step in 1..=100 {
        let loss = (x.matmul(model.weight.tensor()) - &y).square().mean(..);
        optimizer.step(&mut model, loss, ForwardContext::train(&mut rng)).unwrap();
        if [1, 2, 10, 100].contains(&step) {
            let want = file.get(&format!("{name}/{step}"));
            close(&format!("{name}, step {step}"), model.weight.tensor(), &want, 1e-5);
        }
    }
}

#[test]
fn optimizers_follow_pytorch() {
    on_cpu(|| {
        follows("sgd", Sgd::new(0.05));
        follows("sgd, momentum", Sgd::new(0.02).momentum(0.9).weight_decay(0.01));
        follows("sgd, nesterov", Sgd::new(0.02).nesterov().momentum(0.9));
        follows("adam", Adam::new(0.05).weight_decay(0.01));
        follows("adamw", AdamW::new(0.05).weight_decay(0.1));
        follows("rmsprop", RmsProp::new(0.01));
        follows("rmsprop, centered, momentum", RmsProp::new(0.005).centered().momentum(0.9));
        follows("adagrad", Adagrad::new(0.3).lr_decay(0.01));
        follows("lion", Lion::new(0.013).weight_decay(0.1));
        follows("clipped by norm", Sgd::new(0.1).clip_grad_norm(0.3));
        follows("clipped by value", Sgd::new(0.1).clip_grad_value(0.05));
    });
}

/// Returns the values of a single parameter, whose gradients are given, after each step.
fn values<R: UpdateRule>(mut optimizer: Optimizer<R>, start: f64, gradients: &[f64]) -> Vec<f64> {
    let mut model = Linear { weight: Param::new(Tensor::from_slice(&[start as f32], [1, 1])), bias: None };
    let mut rng = Rng::seed_from_u64(0);
    let mut step = |gradient: &f64| {
        let loss = (model.weight.tensor() * *gradient).sum(..);
        optimizer.step(&mut model, loss, ForwardContext::train(&mut rng)).unwrap();
        model.weight.tensor().item::<f64>().unwrap()
    };
    gradients.iter().map(&mut step).collect()
}

/// Settings other than the defaults, compared with the equations of the papers in f64.
#[test]
fn settings_of_the_rules() {
    on_cpu(|| {
        let gradients = [0.5, -1.5, 2.0, 0.25];
        let agree = |name: &str, have: Vec<f64>, rule: &mut dyn FnMut(usize, f64, f64) -> f64| {
            let mut want = 0.75;
            for (step, (have, gradient)) in have.iter().zip(gradients).enumerate() {
                want = rule(step + 1, want, gradient);
                assert!((have - want).abs() < 1e-5, "{name}, step {}: {have}, expected {want}", step + 1);
            }
        };
        let (mut m, mut v) = (0.0, 0.0);
        let adam = values(Adam::new(0.1).betas(0.6, 0.8).eps(0.05), 0.75, &gradients);
        agree("adam", adam, &mut |step, x, g| {
            (m, v) = (0.6 * m + 0.4 * g, 0.8 * v + 0.2 * g * g);
            let (mean, square) = (m / (1.0 - 0.6f64.powi(step as i32)), v / (1.0 - 0.8f64.powi(step as i32)));
            x - 0.1 * mean / (square.sqrt() + 0.05)
        });
        let (mut m, mut v) = (0.0, 0.0);
        let adamw = values(AdamW::new(0.1).betas(0.6, 0.8).eps(0.05).weight_decay(0.5), 0.75, &gradients);
        agree("adamw", adamw, &mut |step, x, g| {
            (m, v) = (0.6 * m + 0.4 * g, 0.8 * v + 0.2 * g * g);
            let (mean, square) = (m / (1.0 - 0.6f64.powi(step as i32)), v / (1.0 - 0.8f64.powi(step as i32)));
            x * (1.0 - 0.1 * 0.5) - 0.1 * mean / (square.sqrt() + 0.05)
        });
        let mut v = 0.0;
        let rmsprop = values(RmsProp::new(0.1).alpha(0.7).eps(0.05), 0.75, &gradients);
        agree("rmsprop", rmsprop, &mut |_, x, g| {
            v = 0.7 * v + 0.3 * g * g;
            x - 0.1 * g / (v.sqrt() + 0.05)
        });
        let mut v = 0.0;
        let adagrad = values(Adagrad::new(0.1).lr_decay(0.5).eps(0.05), 0.75, &gradients);
        agree("adagrad", adagrad, &mut |step, x, g| {
            v += g * g;
            x - 0.1 / (1.0 + (step - 1) as f64 * 0.5) * g / (v.sqrt() + 0.05)
        });
        let mut m = 0.0;
        let lion = values(Lion::new(0.1).betas(0.3, 0.6), 0.75, &gradients);
        agree("lion", lion, &mut |_, x, g| {
            let direction: f64 = 0.3 * m + 0.7 * g;
            m = 0.6 * m + 0.4 * g;
            x - 0.1 * direction.signum()
        });
    });
}

/// Settings that contradict each other or are out of range fail in the step, which changes nothing.
#[test]
fn contradictory_settings_are_reported() {
    on_cpu(|| {
        fn message<R: UpdateRule>(mut optimizer: Optimizer<R>) -> String {
            let mut model = Linear { weight: Param::new(Tensor::from_slice(&[1f32], [1, 1])), bias: None };
            let mut rng = Rng::seed_from_u64(0);
            let loss = model.weight.tensor().sum(..);
            let error = optimizer.step(&mut model, loss.clone(), ForwardContext::train(&mut rng)).unwrap_err();
            let waiting = optimizer.accumulate(&mut model, &loss, ForwardContext::train(&mut rng)).unwrap_err();
            assert!(error.is_mistake() && waiting.message() == error.message(), "{error}, {waiting}");
            assert_eq!((model.weight.tensor().item::<f64>().unwrap(), optimizer.steps), (1.0, 0));
            error.to_string()
        }
        let line = line!() + 1;
        let clipped = message(Sgd::new(0.1).clip_grad_norm(1.0).clip_grad_value(0.5));
        assert!(clipped.starts_with("the optimizer has both clip_grad_norm and clip_grad_value; use one"), "{clipped}");
        assert!(clipped.ends_with(&format!("optimizers.rs:{line}")), "{clipped}");
        let nesterov = message(Sgd::new(0.1).nesterov());
        assert!(nesterov.starts_with("Nesterov momentum needs a momentum factor"), "{nesterov}");
        let betas = message(AdamW::new(0.1).betas(0.9, 1.5));
        assert_eq!(betas, "the optimizer's beta2 is 1.5, which is not in 0 .. 1");
        for rate in [f64::NAN, f64::INFINITY, -0.1] {
            let text = message(Sgd::new(rate));
            assert_eq!(text, format!("the learning rate is {rate}; it must be a finite number of at least 0"));
        }
        let limit = message(Sgd::new(0.1).clip_grad_norm(-1.0));
        assert_eq!(limit, "the limit of gradient clipping is -1; it must be above 0");
        // The last of two settings of the same kind counts.
        let value = values(Sgd::new(1.0).clip_grad_norm(4.0).clip_grad_norm(0.5), 2.0, &[3.0])[0];
        assert!((value - 1.5).abs() < 1e-5, "{value}");
    });
}

#[test]
fn schedules_follow_pytorch() {
    let file = Fixture::new(OPTIMIZERS, "schedule");
    for (name, schedule) in [
        ("step", LrSchedule::Step { step_size: 7, gamma: 0.3 }),
        ("cosine", LrSchedule::Cosine { t_max: 30, min_factor: 0.02 }),
        ("one_cycle", LrSchedule::one_cycle(31)),
        ("exponential", LrSchedule::Exponential { gamma: 0.9 }),
        ("warmup", LrSchedule::Constant.with_warmup(10, 0.1)),
    ] {
        on_cpu(|| {
            for (step, want) in file.get(name).to_vec::<f32>().unwrap().into_iter().enumerate() {
                let rate = 0.5 * schedule.factor(step as u64);
                assert!((rate - f64::from(want)).abs() < 1e-6, "{name}: {rate} at step {step}, expected {want}");
            }
        });
    }
}

#[test]
fn reduce_on_plateau_follows_pytorch() {
    on_cpu(|| {
        let file = Fixture::new(OPTIMIZERS, "plateau");
        let values = |name: &str| file.get(name).to_vec::<f32>().unwrap();
        let (mut plateau, mut rate) = (ReduceLrOnPlateau::new(0.2, 2), 0.5);
        for (step, (loss, want)) in values("losses").into_iter().zip(values("rates")).enumerate() {
            rate = plateau.step(loss.into(), rate);
            assert!((rate - f64::from(want)).abs() < 1e-6, "{rate} at step {step}, expected {want}");
        }
    });
}
