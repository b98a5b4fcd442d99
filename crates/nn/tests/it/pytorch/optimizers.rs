//! A hundred steps of every optimizer, and every schedule.

use panoply_nn::optim::UpdateRule;
use panoply_nn::{
    Adagrad, Adam, AdamW, ForwardContext, Linear, Lion, LrSchedule, Optimizer, Param, ReduceLrOnPlateau, RmsProp, Sgd,
};
use panoply_tensor::Rng;

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
        follows("sgd, nesterov", Sgd::new(0.02).nesterov(0.9));
        follows("adam", Adam::new(0.05).weight_decay(0.01));
        follows("adamw", AdamW::new(0.05).weight_decay(0.1));
        follows("rmsprop", RmsProp::new(0.01));
        follows("rmsprop, centered, momentum", RmsProp::new(0.005).centered().momentum(0.9));
        let mut adagrad = Adagrad::new(0.3);
        adagrad.rule.lr_decay = 0.01;
        follows("adagrad", adagrad);
        follows("lion", Lion::new(0.013).weight_decay(0.1));
        follows("clipped by norm", Sgd::new(0.1).clip_grad_norm(0.3));
        follows("clipped by value", Sgd::new(0.1).clip_grad_value(0.05));
    });
}

#[test]
fn schedules_follow_pytorch() {
    let file = Fixture::new(OPTIMIZERS, "schedule");
    for (name, schedule) in [
        ("step", LrSchedule::Step { step_size: 7, gamma: 0.3 }),
        ("cosine", LrSchedule::Cosine { t_max: 30, min_factor: 0.02 }),
        ("one_cycle", LrSchedule::one_cycle(31)),
        ("exponential", LrSchedule::Exponential(0.9)),
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
