//! Evaluation in parts: each part has its values when it is reported, and a CPU has not computed the later ones, on every device present.

use panoply_runtime::{Device, device_report};
use panoply_tensor::{Error, Tensor, eval_in_parts, plan_cache_stats};

const SIDE: usize = 24;

/// Integers whose sums of products are exact in f32.
fn data(turn: usize) -> Vec<f32> {
    (0..SIDE * SIDE).map(|i| ((i * 5 + turn * 3) % 7) as f32 - 3.0).collect()
}

/// Computes the product with loops of integers.
fn product(a: &[i64], b: &[i64]) -> Vec<i64> {
    let cell = |row: usize, column: usize| (0..SIDE).map(|k| a[row * SIDE + k] * b[k * SIDE + column]).sum();
    (0..SIDE * SIDE).map(|at| cell(at / SIDE, at % SIDE)).collect()
}

fn integers(tensor: &Tensor) -> Vec<i64> {
    tensor.to_vec::<f32>().unwrap().into_iter().map(|value| value as i64).collect()
}

/// Three products, each of which needs the one before it.
fn products(turn: usize) -> [Tensor; 3] {
    let x = Tensor::from_slice(&data(turn), [SIDE, SIDE]);
    let first = x.matmul(&x).relu();
    let second = first.matmul(&x);
    let third = second.matmul(&x).sum(0);
    [first, second, third]
}

fn evaluated(tensors: &[Tensor; 3]) -> [bool; 3] {
    tensors.each_ref().map(Tensor::is_evaluated)
}

fn on(device: &Device) {
    let is_cpu = device.device_string().starts_with("cpu");
    for turn in 0..5 {
        let tensors = products(turn);
        let [first, second, third] = &tensors;
        let x: Vec<i64> = data(turn).into_iter().map(|value| value as i64).collect();
        let wanted: Vec<i64> = product(&x, &x).into_iter().map(|value| value.max(0)).collect();
        let (before, mut reported) = (plan_cache_stats(), Vec::new());
        // A part can be empty, and can have tensors of an earlier one.
        eval_in_parts(&[&[first], &[], &[second, first], &[third]], |part| {
            let known = evaluated(&tensors);
            let expected = [[true, false, false], [true, false, false], [true, true, false], [true; 3]][part];
            let enough = known.iter().zip(expected).all(|(known, expected)| *known || !expected);
            assert!(if is_cpu { known == expected } else { enough }, "{device}, turn {turn}, part {part}: {known:?}");
            // The three ranges of steps are recorded in their second run. The third one runs after the report of the second.
            if is_cpu && turn > 1 {
                assert_eq!(plan_cache_stats().replays - before.replays, [1, 1, 2, 3][part], "turn {turn}, part {part}");
            }
            if part == 0 {
                assert_eq!(integers(first), wanted, "{device}, turn {turn}");
            }
            reported.push(part);
            Ok(())
        })
        .unwrap();
        assert_eq!(reported, [0, 1, 2, 3], "{device}, turn {turn}");
        let second_wanted = product(&wanted, &x);
        assert_eq!(integers(second), second_wanted, "{device}, turn {turn}");
        let whole = product(&second_wanted, &x);
        let sums: Vec<i64> = (0..SIDE).map(|column| (0..SIDE).map(|row| whole[row * SIDE + column]).sum()).collect();
        assert_eq!(integers(third), sums, "{device}, turn {turn}");
        let (after, ranges) = (plan_cache_stats(), if is_cpu { 3 } else { 1 });
        let counted = (after.misses - before.misses, after.replays - before.replays);
        assert_eq!(counted, (u64::from(turn == 0), if turn > 1 { ranges } else { 0 }), "{device}, turn {turn}");
    }
    // The same tensors in one part are one range of steps.
    let [first, second, third] = products(9);
    eval_in_parts(&[&[&first, &second, &third]], |_| Ok(())).unwrap();
    assert!(third.is_evaluated(), "{device}");
    eval_in_parts(&[&[&first], &[&second]], |_| Ok(())).unwrap();
}

/// Returns true for SwiftShader, which compiles a product for minutes.
fn is_slow(device: &Device) -> bool {
    device.info().name.contains("SwiftShader")
}

/// One test, which counts the plans of the process.
#[test]
fn parts_are_reported_when_they_are_computed() {
    for device in device_report().expect("the environment variables are valid").devices() {
        match is_slow(device) {
            true => eprintln!("SKIPPED: evaluation in parts on {device}: SwiftShader is too slow"),
            false => device.scope(|| on(device)),
        }
    }
    an_error_of_the_caller_ends_the_evaluation();
    tensors_of_several_devices_are_evaluated_before_the_first_report();
}

fn an_error_of_the_caller_ends_the_evaluation() {
    Device::get("cpu").unwrap().scope(|| {
        let tensors = products(0);
        let [first, second, third] = &tensors;
        let error = eval_in_parts(&[&[first], &[second, third]], |_| Err(Error::mistake("the receiver is gone")));
        assert_eq!(error.unwrap_err().message(), "the receiver is gone");
        assert_eq!(evaluated(&tensors), [true, false, false]);
        let wrong = first.matmul(&Tensor::from_slice(&[1f32; 9], [3, 3]));
        let error = eval_in_parts(&[&[second], &[&wrong]], |_| panic!("a part was computed")).unwrap_err();
        assert!(error.message().contains("matmul"), "{error}");
        assert_eq!(evaluated(&tensors), [true, false, false]);
    });
}

fn tensors_of_several_devices_are_evaluated_before_the_first_report() {
    let report = device_report().expect("the environment variables are valid");
    let [first, second, third] = Device::get("cpu").unwrap().scope(|| products(1));
    let on_cpu = Device::get("cpu").unwrap().scope(|| second.to_vec::<f32>().unwrap());
    let is_other = |device: &&Device| !device.device_string().starts_with("cpu") && !is_slow(device);
    let Some(other) = report.devices().find(is_other) else { return };
    let elsewhere = other.scope(|| products(1)[1].to(other) * Tensor::from_slice_on(other, &[1f32], [1]));
    let mut count = 0;
    eval_in_parts(&[&[&first], &[&elsewhere], &[&third]], |_| {
        assert!(first.is_evaluated() && elsewhere.is_evaluated() && third.is_evaluated());
        count += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!((count, elsewhere.to_vec::<f32>().unwrap()), (3, on_cpu));
}
