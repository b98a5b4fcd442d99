//! Fourier transforms of many lengths, compared with their definition in f64; waves of known frequency; inverse transforms.

use std::f64::consts::TAU;
use std::sync::{PoisonError, RwLock};

use panoply_tensor::{DType, Device, MathMode, Rng, Tensor, jit};

/// Held for writing while the math mode is changed, and for reading while transforms are computed.
static ACCURACY: RwLock<()> = RwLock::new(());

/// Runs with the device's library routine.
fn on_cpu(work: impl FnOnce()) {
    let _held = ACCURACY.read().unwrap_or_else(PoisonError::into_inner);
    Device::get("cpu").unwrap().scope(work);
}

/// Runs with matrix products, as on devices without the routine.
fn by_products(work: impl FnOnce()) {
    let _held = ACCURACY.write().unwrap_or_else(PoisonError::into_inner);
    let cpu = Device::get("cpu").unwrap();
    cpu.set_math_mode(MathMode::Exact);
    cpu.scope(work);
    cpu.set_math_mode(MathMode::default());
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.cast(DType::F64).to_vec::<f64>().unwrap()
}

/// Returns interleaved real and imaginary parts, uniform in -0.5 to 0.5.
fn data(n: usize) -> Vec<f64> {
    let numbers = Rng::seed_from_u64(n as u64).uniform([2 * n]).to_vec::<f32>().unwrap();
    numbers.into_iter().map(|x| f64::from(x) - 0.5).collect()
}

/// Computes the transform from its definition.
fn sums(x: &[f64]) -> Vec<f64> {
    let n = x.len() / 2;
    let term = |k: usize, j: usize| {
        let (s, c) = (-TAU * (j * k % n) as f64 / n as f64).sin_cos();
        [x[2 * j] * c - x[2 * j + 1] * s, x[2 * j] * s + x[2 * j + 1] * c]
    };
    (0..n).flat_map(|k| (0..n).map(|j| term(k, j)).fold([0.0; 2], |[a, b], [c, d]| [a + c, b + d])).collect()
}

/// Returns the largest difference, relative to the root mean square.
fn error(have: &[f64], want: &[f64]) -> f64 {
    assert_eq!(have.len(), want.len());
    let scale = (want.iter().map(|x| x * x).sum::<f64>() / want.len() as f64).sqrt();
    have.iter().zip(want).map(|(have, want)| (have - want).abs()).fold(0.0, f64::max) / scale
}

/// Tests transforms of many lengths, with these error limits for f64 and f32.
fn any_length(limits: [f64; 2]) {
    // Lengths computed by one matrix, by several factors, and with large prime factors.
    for n in [1, 2, 3, 4, 7, 16, 97, 127, 128, 129, 131, 144, 200, 257, 262, 1000, 1013] {
        let x = data(n);
        let want = sums(&x);
        for (dtype, limit) in [DType::F64, DType::F32].into_iter().zip(limits) {
            let transform = Tensor::from_slice(&x, [n, 2]).cast(dtype).fft(-1);
            let worst = error(&numbers(&transform), &want);
            assert!(worst <= limit, "{n} of {dtype}: {worst}");
            let worst = error(&numbers(&transform.ifft(-1)), &x);
            assert!(worst <= limit, "{n} of {dtype} and back: {worst}");
        }
    }
}

#[test]
fn transforms_of_any_length_agree_with_the_definition() {
    on_cpu(|| any_length([2e-14, 1.5e-6]));
    by_products(|| any_length([1e-13, 2e-6]));
}

#[test]
fn a_wave_has_one_frequency() {
    on_cpu(|| {
        // Three factors, and a convolution with three factors.
        for (n, frequency) in [(20480, 1234), (30011, 29000)] {
            let wave = |j: usize| {
                let (s, c) = (TAU * (j * frequency % n) as f64 / n as f64).sin_cos();
                [c, s]
            };
            let x: Vec<f64> = (0..n).flat_map(wave).collect();
            let spectrum = Tensor::from_slice(&x, [n, 2]).fft(-1);
            for (k, size) in numbers(&spectrum.complex_abs()).into_iter().enumerate() {
                let want = if k == frequency { n as f64 } else { 0.0 };
                assert!((size - want).abs() < 1e-10 * n as f64, "{n}: frequency {k} is {size}");
            }
        }
    });
}

fn real_numbers() {
    for n in [1, 2, 5, 64, 129, 300, 4096, 5003] {
        let x = Tensor::from_slice(&data(n)[..n], [n]);
        let frequencies = x.rfft(-1);
        assert_eq!(frequencies.shape().unwrap().dims(), [n / 2 + 1, 2]);
        let whole = Tensor::complex(&x, &x.zeros_like()).fft(0).narrow(0, 0, n / 2 + 1);
        let worst = error(&numbers(&frequencies), &numbers(&whole));
        assert!(worst < 1e-14, "{n}: {worst}");
        let worst = error(&numbers(&frequencies.irfft(n, -1)), &numbers(&x));
        assert!(worst < 1e-13, "{n}: {worst}");
    }
}

#[test]
fn real_transforms_are_inverted_exactly() {
    on_cpu(real_numbers);
    by_products(real_numbers);
}

/// Compares every transform along every axis, with first and second derivatives, `jvp`, `vmap` and `jit`.
#[test]
fn the_routine_agrees_with_matrix_products() {
    let transforms: [fn(&Tensor) -> Tensor; 8] = [
        |x| x.fft(1),
        |x| x.ifft(-2),
        |x| x.fft2().fft(0),
        |x| x.real().rfft(1),
        |x| x.real().rfft(-1),
        |x| x.irfft(18, 1),
        |x| x.irfft(13, -1),
        |x| x.real().rfft2().ifft(0).irfft2(7),
    ];
    let all = || -> Vec<Vec<f64>> {
        let x = Tensor::from_slice(&data(3 * 10 * 4 * 7), [3, 10, 4, 7, 2]);
        let each = transforms.iter().flat_map(|transform| {
            let (x, y) = (&x, transform(&x));
            let grad = (&y * &y * &y).sum(..).gradients(&[x]).unwrap().remove(0);
            let second = (&grad * &grad).sum(..).gradients(&[x]).unwrap().remove(0);
            let moved = y.jvp(&[x], &[&(x * x)]).unwrap();
            let [each] = Tensor::vmap([x], |[x]| [transform(&x.unsqueeze(0)) * 2.0]);
            let both = jit(|[x]: [&Tensor; 1]| [transform(&(x * 3.0))]);
            let [first, again] = [x.clone(), x * 2.0].map(|x| both.call([&x]).unwrap()[0].clone());
            [y, grad, second, moved, each, first, again]
        });
        each.map(|tensor| numbers(&tensor)).collect()
    };
    let (mut have, mut want) = (Vec::new(), Vec::new());
    on_cpu(|| have = all());
    by_products(|| want = all());
    for (at, (have, want)) in have.iter().zip(&want).enumerate() {
        let worst = error(have, want);
        assert!(worst < 1e-12, "{at}: {worst}");
    }
}

#[test]
fn an_empty_batch_has_an_empty_transform() {
    on_cpu(|| {
        let [none] = Tensor::vmap([&Tensor::zeros([0, 131], DType::F32)], |[x]| [x.rfft(0)]);
        assert_eq!(none.shape().unwrap().dims(), [0, 66, 2]);
        assert!(numbers(&none).is_empty());
    });
}

/// Tables that the routine does not read are not allocated.
#[test]
fn tables_are_created_only_if_they_are_read() {
    let used = || Device::get("cpu").unwrap().memory_stats().allocated;
    let wave = || Tensor::full([1 << 20, 2], 1f64).fft(0).narrow(0, 0, 1).sum(..);
    let table = 32 << 20;
    on_cpu(|| {
        let before = used();
        assert_eq!(wave().item::<f64>().unwrap(), f64::from(2 << 20));
        assert!(used() < before + table, "{} after {before}", used());
    });
}

/// An f64 table takes about 32 bytes for each number.
#[test]
fn the_table_cache_is_bounded() {
    by_products(|| {
        let device = Device::current().unwrap();
        for n in (0..9).map(|i| (1 << 20) - (i << 14)) {
            let wave = Tensor::full([n, 2], 1f64).fft(0).narrow(0, 0, 2);
            assert_eq!(numbers(&wave)[0], n as f64);
        }
        let used = device.memory_stats().allocated;
        assert!((128 << 20..280 << 20).contains(&used), "{used}");
    });
}

#[test]
fn magnitudes_do_not_overflow() {
    Device::get("cpu").unwrap().scope(|| {
        // 3² + 4² = 5², at both ends of the types.
        let x = Tensor::from_slice(&[3e30f32, 4e30, 3e-30, 4e-30, -3.0, 4.0, 0.0, 0.0], [4, 2]);
        let found = x.complex_abs().to_vec::<f32>().unwrap();
        let expected = [5e30f32, 5e-30, 5.0, 0.0];
        assert!(found.iter().zip(expected).all(|(x, y)| (x - y).abs() <= 2e-7 * y), "{found:?}");
        let y = Tensor::from_slice(&[3e200f64, 4e200], [1, 2]);
        assert!((y.complex_abs().item::<f64>().unwrap() / 5e200 - 1.0).abs() < 1e-15);
        let gradient = x.complex_abs().sum(..).gradients(&[&x]).unwrap().remove(0).to_vec::<f32>().unwrap();
        let expected = [0.6f32, 0.8, 0.6, 0.8, -0.6, 0.8, 0.0, 0.0];
        assert!(gradient.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-6), "{gradient:?}");
    });
}
