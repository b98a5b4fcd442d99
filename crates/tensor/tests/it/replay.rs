//! A plan that runs again is replayed: with other data, other scalars and leaves at other offsets, on every device present.

use panoply_runtime::{Device, device_report};
use panoply_tensor::{Shape, Tensor, plan_cache_stats};

const LEN: usize = 300;

fn data(turn: u32) -> Vec<f32> {
    (0..LEN as u32).map(|i| ((i * 7 + turn * 13) % 97) as f32 / 8.0 - 6.0).collect()
}

/// Several kernels: reductions between elementwise operations, and a scalar of the launch.
fn chain(x: &Tensor, by: f32) -> [Tensor; 2] {
    let centered = x - x.mean(..);
    let scaled = &centered * &Tensor::scalar(by);
    let normed = &scaled / (&scaled * &scaled).sum(..).sqrt();
    [normed, scaled.max(..)]
}

/// Computes the same with loops in f64.
fn expected(x: &[f32], by: f32) -> (Vec<f64>, f64) {
    let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / x.len() as f64;
    let scaled: Vec<f64> = x.iter().map(|x| (f64::from(*x) - mean) * f64::from(by)).collect();
    let norm = scaled.iter().map(|x| x * x).sum::<f64>().sqrt();
    (scaled.iter().map(|x| x / norm).collect(), scaled.iter().copied().fold(f64::MIN, f64::max))
}

fn check(x: &[f32], tensor: &Tensor, by: f32, what: &str) {
    let [normed, most] = chain(tensor, by);
    panoply_tensor::eval(&[&normed, &most]).unwrap_or_else(|error| panic!("{what}: {error}"));
    let (expected, expected_most) = expected(x, by);
    for (found, expected) in normed.to_vec::<f32>().unwrap().iter().zip(&expected) {
        assert!((f64::from(*found) - expected).abs() < 1e-6, "{what}: {found} and {expected}");
    }
    assert!((most.item::<f64>().unwrap() - expected_most).abs() < 1e-4 * expected_most.abs(), "{what}");
}

fn on(device: &Device) {
    for turn in 0..6 {
        let (x, before) = (data(turn), plan_cache_stats());
        check(&x, &Tensor::from_slice(&x, [LEN]), 0.5 + turn as f32, &format!("{device}, turn {turn}"));
        let after = plan_cache_stats();
        let (planned, replayed) = (after.misses - before.misses, after.replays - before.replays);
        assert_eq!((planned, replayed), (u64::from(turn == 0), u64::from(turn > 1)), "{device}, turn {turn}");
    }
    let before = plan_cache_stats().replays;
    // A leaf at an offset of 4 bytes in its memory differs from the recorded ones.
    let x = data(9);
    let bytes: Vec<u8> = [&[0.0], &x[..]].concat().iter().flat_map(|x: &f32| x.to_le_bytes()).collect();
    let storage = device.upload(&bytes).unwrap();
    let part = storage.slice(4..bytes.len() as u64).unwrap();
    let odd = Tensor::from_storage(part, Shape::from([LEN]), panoply_ir::DType::F32);
    check(&x, &odd, 2.0, &format!("{device}, a slice of other memory"));
    assert_eq!(plan_cache_stats().replays, before, "{device}: it is not replayed");
    // Leaves with this layout are recorded as well, and the earlier recordings are kept.
    check(&x, &odd, 3.0, &format!("{device}, the same part"));
    check(&data(3), &Tensor::from_slice(&data(3), [LEN]), 3.0, &format!("{device}, again"));
    // Both leaves alias the same memory when they are recorded, but not when they are replayed.
    let (a, b) = (data(1), data(2));
    let memory = [&a, &b].map(|x| device.buffer(x).unwrap());
    for second in [0, 0, 0, 1] {
        let [left, right] = [0, second].map(|which| {
            Tensor::from_storage(memory[which].storage().clone(), Shape::from([LEN]), panoply_ir::DType::F32)
        });
        let sum: Vec<f32> = a.iter().zip([&a, &b][second]).map(|(a, b)| a + 2.0 * b).collect();
        assert_eq!((left + right * 2.0).to_vec::<f32>().unwrap(), sum, "{device}");
    }
    assert_eq!(plan_cache_stats().replays, before + 4, "{device}");
}

/// A scalar that differs in each step is an argument of one program. Scalars that allow simplifications remain constants of the program.
fn numbers_that_differ_share_a_program() {
    let device = Device::get("cpu").unwrap();
    device.scope(|| {
        let x = Tensor::from_slice(&[0.5f32, 1.0, 2.0, 4.0], [4]);
        let results = |number: f64| {
            [
                &x + Tensor::full([4], number as f32),
                x.pow(number),
                &x * Tensor::linspace(number, 2.0 * number, 4, panoply_ir::DType::F32),
            ]
        };
        let wanted = |number: f64| -> [Vec<f64>; 3] {
            let all = [0.5f64, 1.0, 2.0, 4.0];
            [
                all.iter().map(|x| x + f64::from(number as f32)).collect(),
                all.iter().map(|x| x.powf(number)).collect(),
                all.iter().enumerate().map(|(at, x)| x * (number + number * at as f64 / 3.0)).collect(),
            ]
        };
        let run = |number: f64| {
            let results = results(number);
            panoply_tensor::eval(&[&results[0], &results[1], &results[2]]).unwrap();
            for (have, want) in results.iter().zip(wanted(number)) {
                for (have, want) in have.to_vec::<f32>().unwrap().iter().zip(want) {
                    assert!(
                        (f64::from(*have) - want).abs() <= 1e-6 * want.abs(),
                        "{have}, expected {want} for {number}"
                    );
                }
            }
        };
        run(0.1);
        let (before, compiled) = (plan_cache_stats().misses, device.program_cache_stats().compiled);
        (0..200).for_each(|step| run(0.1 + 0.01 * f64::from(step)));
        let (plans, programs) = (plan_cache_stats().misses - before, device.program_cache_stats().compiled - compiled);
        // Some of the scalars, their doubles and thirds are half-integers: each such combination is a separate program.
        assert!(plans <= 8 && programs <= 16, "{plans} plans and {programs} programs");
    });
}

#[test]
fn replayed_plans_give_the_same_results() {
    numbers_that_differ_share_a_program();
    for device in device_report().expect("the environment variables are valid").devices() {
        device.scope(|| on(device));
    }
}
