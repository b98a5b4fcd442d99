//! A training step updates parameters and optimizer state in place, and only if the step is valid.

use std::sync::{Mutex, MutexGuard, PoisonError};

use panoply_nn::{AdamW, ForwardContext, Layer, Linear, Module};
use panoply_tensor::{Device, Rng, Tensor};

/// Memory statistics of a device cover all threads.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn values(model: &dyn Module) -> Vec<f32> {
    model.named_parameters().iter().flat_map(|(_, param)| param.tensor().to_vec::<f32>().unwrap()).collect()
}

/// Takes a step of Adam that donates all earlier values, or keeps them.
fn adam(optimizer: &mut AdamW, model: &mut Linear, x: &Tensor, kept: bool) -> f64 {
    let held = kept.then(|| optimizer.state.clone());
    let mut rng = Rng::seed_from_u64(0);
    let mut pass = ForwardContext::train(&mut rng);
    let loss = model.forward(x, &mut pass).square().mean(..);
    let value = if kept { optimizer.step_keeping_graph(model, &loss, pass) } else { optimizer.step(model, loss, pass) };
    drop(held);
    value.unwrap()
}

#[test]
fn a_step_with_a_donated_loss_holds_parameters_and_moments_once() {
    let _alone = alone();
    for device in ["cpu", "cpu:checked"].map(|name| Device::get(name).unwrap()) {
        device.scope(|| {
            let mut rng = Rng::seed_from_u64(4);
            let mut model = Linear::new(300, 200, &mut rng);
            let (start, x) = (model.clone(), rng.normal([3, 300]));
            x.eval().unwrap();
            let (x, params) = (x.detach(), 4 * model.num_parameters() as u64);
            let mut optimizer = AdamW::new(0.1);
            (0..2).for_each(|_| _ = adam(&mut optimizer, &mut model, &x, false));
            let added = |optimizer: &mut AdamW, model: &mut Linear, kept: bool| {
                device.reset_peak_memory_stats();
                let before = device.memory_stats().allocated;
                adam(optimizer, model, &x, kept);
                device.memory_stats().peak_allocated - before
            };
            let given = added(&mut optimizer, &mut model, false);
            assert!(
                given < params + params / 10,
                "{device}: {given} bytes in addition to {params} of parameters; only gradients are expected"
            );
            let snapshot = model.clone();
            let before = values(&snapshot);
            let kept = added(&mut optimizer, &mut model, true);
            assert!(
                kept > given + 5 * params / 2,
                "{device}: {kept} bytes if everything is kept, {given} if nothing is"
            );
            let beside = added(&mut optimizer, &mut model, false);
            assert!(
                beside <= given,
                "{device}: {beside} bytes, {given} before: only the previous step must copy for the snapshot"
            );
            assert!(values(&snapshot) == before, "{device}: the snapshot changed");
            // The oracle is a run that keeps everything, so that nothing is ever overwritten.
            let (mut plain, mut other) = (start, AdamW::new(0.1));
            (0..5).for_each(|_| _ = adam(&mut other, &mut plain, &x, true));
            assert!(values(&model) == values(&plain), "{device}");
            assert_eq!(optimizer.steps, 5);
        });
    }
}

/// Lazy parameters are initialized before the first step, not in it, and the memory of the initialization is freed.
#[test]
fn the_first_step_needs_no_more_memory_than_the_next() {
    let _alone = alone();
    let device = Device::get("cpu").unwrap();
    device.scope(|| {
        let mut rng = Rng::seed_from_u64(4);
        let x = rng.normal([3, 300]);
        let (x, mut optimizer) = (x.eval().map(|()| x.detach()).unwrap(), AdamW::new(0.1));
        device.trim();
        device.reset_peak_memory_stats();
        let before = device.memory_stats().allocated;
        let mut model = Linear::new(300, 200, &mut rng);
        let params = 4 * model.num_parameters() as u64;
        adam(&mut optimizer, &mut model, &x, false);
        let after = device.memory_stats();
        let peak = after.peak_allocated - before;
        // The parameters, two moments of each, and the gradient.
        assert!(peak < 4 * params + params / 10, "{peak} bytes for {params} of parameters");
        assert!(after.reserved <= after.peak_allocated + params / 10, "{after:?}");
    });
}

#[test]
fn an_invalid_step_keeps_all_values() {
    let _alone = alone();
    for device in panoply_runtime::device_report().unwrap().devices().cloned().collect::<Vec<Device>>() {
        if device.info().name.contains("SwiftShader") {
            eprintln!("SKIPPED: invalid steps on {device}: SwiftShader is too slow");
            continue;
        }
        device.scope(|| {
            let mut model = Linear::new(20, 10, &mut Rng::seed_from_u64(4));
            let x = Rng::seed_from_u64(5).normal([3, 20]);
            let mut optimizer = AdamW::new(0.1);
            let remembered = |optimizer: &AdamW| {
                let moments = optimizer.state.values().flatten().map(|moment| moment.to_vec::<f32>().unwrap());
                moments.collect::<Vec<Vec<f32>>>()
            };
            (0..3).for_each(|_| _ = adam(&mut optimizer, &mut model, &x, false));
            let before = (values(&model), remembered(&optimizer));
            // The loss is finite, but its gradient at zero is not.
            let mut rng = Rng::seed_from_u64(0);
            let mut pass = ForwardContext::train(&mut rng);
            let loss = (model.forward(&x, &mut pass) * 0.0).sqrt().sum(..);
            let error = optimizer.step(&mut model, loss, pass).unwrap_err();
            assert!(error.message().contains("but a gradient is not finite, first that of"), "{error}");
            assert!((values(&model), remembered(&optimizer)) == before, "{device}");
            assert_eq!(optimizer.steps, 3);
            adam(&mut optimizer, &mut model, &x, false);
            assert!(values(&model) != before.0);
        });
    }
}
