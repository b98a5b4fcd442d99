//! Fourier transforms of many lengths: the sums of their definition in f64, waves of known frequency, and there and back.

use std::f64::consts::TAU;

use panoply_tensor::{DType, Device, Rng, Tensor};

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.cast(DType::F64).to_vec::<f64>().unwrap()
}

/// Real and imaginary parts in turn, a power of the magnitude 1 at most.
fn data(n: usize) -> Vec<f64> {
    let numbers = Rng::seed(n as u64).uniform([2 * n]).to_vec::<f32>().unwrap();
    numbers.into_iter().map(|x| f64::from(x) - 0.5).collect()
}

/// Its definition.
fn sums(x: &[f64]) -> Vec<f64> {
    let n = x.len() / 2;
    let term = |k: usize, j: usize| {
        let (s, c) = (-TAU * (j * k % n) as f64 / n as f64).sin_cos();
        [x[2 * j] * c - x[2 * j + 1] * s, x[2 * j] * s + x[2 * j + 1] * c]
    };
    (0..n).flat_map(|k| (0..n).map(|j| term(k, j)).fold([0.0; 2], |[a, b], [c, d]| [a + c, b + d])).collect()
}

/// The largest difference, as a share of the root of the mean square.
fn error(have: &[f64], want: &[f64]) -> f64 {
    assert_eq!(have.len(), want.len());
    let scale = (want.iter().map(|x| x * x).sum::<f64>() / want.len() as f64).sqrt();
    have.iter().zip(want).map(|(have, want)| (have - want).abs()).fold(0.0, f64::max) / scale
}

#[test]
fn any_length_gives_the_sums_of_the_definition() {
    on_cpu(|| {
        // One matrix, several factors, and lengths with a prime factor beyond them.
        for n in [1, 2, 3, 4, 7, 16, 97, 127, 128, 129, 131, 144, 200, 257, 262, 1000, 1013] {
            let x = data(n);
            let want = sums(&x);
            for (dtype, limit) in [(DType::F64, 1e-13), (DType::F32, 2e-6)] {
                let transform = Tensor::from_slice(&x, [n, 2]).cast(dtype).fft(-1);
                let worst = error(&numbers(&transform), &want);
                assert!(worst <= limit, "{n} of {dtype}: {worst}");
                let worst = error(&numbers(&transform.ifft(-1)), &x);
                assert!(worst <= limit, "{n} of {dtype} and back: {worst}");
            }
        }
    });
}

#[test]
fn waves_have_one_frequency() {
    on_cpu(|| {
        // Three factors, and a convolution of as many.
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

#[test]
fn real_numbers_come_back() {
    on_cpu(|| {
        for n in [1, 2, 5, 64, 129, 300, 4096, 5003] {
            let x = Tensor::from_slice(&data(n)[..n], [n]);
            let frequencies = x.rfft(-1);
            assert_eq!(frequencies.shape().unwrap().dims(), [n / 2 + 1, 2]);
            let whole = Tensor::complex(&x, &x.zeros_like()).fft(0).narrow(0, 0, n / 2 + 1);
            assert_eq!(numbers(&frequencies), numbers(&whole), "{n}");
            let worst = error(&numbers(&frequencies.irfft(n, -1)), &numbers(&x));
            assert!(worst < 1e-13, "{n}: {worst}");
        }
    });
}

/// Tables of f64 take some 32 bytes for each number.
#[test]
fn tables_take_no_more_than_their_room() {
    on_cpu(|| {
        let device = Device::current().unwrap();
        for n in (0..9).map(|i| (1 << 20) - (i << 14)) {
            let wave = Tensor::full([n, 2], 1f64).fft(0).narrow(0, 0, 2);
            assert_eq!(numbers(&wave)[0], n as f64);
        }
        let used = device.stats().allocated;
        assert!((128 << 20..280 << 20).contains(&used), "{used}");
    });
}
