//! The random number generator, compared with the published vectors; tensors of random numbers, compared with the host.

use panoply_tensor::random::philox;
use panoply_tensor::{DType, Device, MemoryPlan, Replacement, Rng, Tensor};

#[test]
fn philox_matches_the_published_vectors() {
    // Random123 1.09, tests/kat_vectors, philox4x32 with 10 rounds.
    assert_eq!(philox([0; 4], 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    assert_eq!(philox([!0; 4], !0), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    let counter = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
    let key = u64::from(0xa409_3822u32) | u64::from(0x299f_31d0u32) << 32;
    assert_eq!(philox(counter, key), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
}

#[test]
fn tensors_have_the_same_words_on_every_device() {
    for name in ["cpu", "opencl:0"] {
        let Ok(device) = Device::get(name) else {
            eprintln!("SKIPPED: random numbers on {name}: no such device");
            continue;
        };
        device.scope(|| {
            // The counter is about to carry into its high word, and about to wrap.
            for counter in [u64::from(u32::MAX) - 1, u64::MAX - 1] {
                let mut rng = Rng::seed_from_u64(0x1234_5678_9abc_def0);
                rng.counter = counter;
                let mut host = rng.clone();
                let words = rng.bits([11]).to_vec::<u32>().unwrap();
                let want: Vec<u32> = (0..3).flat_map(|_| host.next_words()).take(11).collect();
                assert_eq!(words, want, "on {name}");
                assert_eq!(rng, host, "both generators are in the same state");
            }
        });
    }
}

#[test]
fn uniform_and_normal_have_their_moments() {
    let device = Device::get("cpu").unwrap();
    device.scope(|| {
        let mut rng = Rng::seed_from_u64(7);
        let count = 100_000;
        let moments = |values: Vec<f32>| {
            let mean = values.iter().map(|x| f64::from(*x)).sum::<f64>() / f64::from(count);
            let variance = values.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / f64::from(count);
            (mean, variance)
        };
        // Five standard errors of the mean and the variance.
        let (mean, variance) = moments(rng.uniform([count as usize]).to_vec().unwrap());
        assert!((mean - 0.5).abs() < 5.0 * (1.0f64 / 12.0 / f64::from(count)).sqrt(), "uniform mean {mean}");
        assert!((variance - 1.0 / 12.0).abs() < 1.5e-3, "uniform variance {variance}");
        let (mean, variance) = moments(rng.normal([count as usize]).to_vec().unwrap());
        assert!(mean.abs() < 5.0 / f64::from(count).sqrt(), "normal mean {mean}");
        assert!((variance - 1.0).abs() < 5.0 * (2.0 / f64::from(count)).sqrt(), "normal variance {variance}");
    });
}

#[test]
fn forks_and_permutations_are_determined_by_the_seed() {
    let (mut a, mut b) = (Rng::seed_from_u64(3), Rng::seed_from_u64(3));
    assert_eq!(a.fork(), b.fork());
    assert_ne!(a.fork(), Rng::seed_from_u64(3).fork(), "each fork is different");
    let mut order = a.permutation(100);
    assert_ne!(order, (0..100).collect::<Vec<usize>>());
    order.sort_unstable();
    assert_eq!(order, (0..100).collect::<Vec<usize>>());
}

#[test]
fn drawing_needs_little_temporary_memory() {
    Device::get("cpu").unwrap().scope(|| {
        let drawn = Rng::seed_from_u64(1).normal([1000, 1000]);
        let plan = MemoryPlan::for_eval(&[&drawn]).unwrap();
        assert!(plan.temp <= 2 * plan.outputs + 4096, "{} bytes for {}", plan.temp, plan.outputs);
    });
}

#[test]
fn uniform_numbers_of_every_float_type_stay_below_one() {
    let device = Device::get("cpu").unwrap();
    device.scope(|| {
        let count = 400_000;
        for (dtype, digits) in [(DType::F16, 11), (DType::BF16, 8), (DType::F32, 24), (DType::F64, 53)] {
            let uniform = Rng::seed_from_u64(5).uniform_of([count], dtype);
            assert_eq!(uniform.dtype(), dtype);
            let numbers = uniform.cast(DType::F64).to_vec::<f64>().unwrap();
            let unit = 2f64.powi(-digits);
            assert!(numbers.iter().all(|x| (0.0..=1.0 - unit).contains(x) && (x / unit).fract() == 0.0), "{dtype}");
            let mean = numbers.iter().sum::<f64>() / count as f64;
            // Five standard errors, for numbers that are half a unit too small on average.
            assert!((mean + unit / 2.0 - 0.5).abs() < 5.0 * (1.0 / 12.0 / count as f64).sqrt(), "{dtype}: {mean}");
            // Types with few digits take all of their values.
            if digits <= 11 {
                assert_eq!((numbers.iter().cloned().fold(0.0, f64::max), numbers.contains(&0.0)), (1.0 - unit, true));
            }
            assert!((1.0 - uniform).log().is_finite().all(..).to_vec::<bool>().unwrap()[0], "{dtype}");
        }
        // f32 numbers rounded to bf16 reach 1.
        assert_eq!(Rng::seed_from_u64(5).uniform([count]).cast(DType::BF16).max(..).item::<f64>().unwrap(), 1.0);
        assert!(
            Rng::seed_from_u64(5)
                .uniform_of([2], DType::I32)
                .check()
                .unwrap_err()
                .message()
                .contains("use a float type")
        );
    });
}

/// Checks that counts agree with expected ones by Pearson's chi-squared test. The limit is exceeded once in a million.
#[track_caller]
fn fits(counts: &[u32], expected: &[f64], limit: f64) {
    let square = |(count, expected): (&u32, &f64)| match (*count, *expected) {
        (0, 0.0) => 0.0,
        (count, expected) => (f64::from(count) - expected).powi(2) / expected,
    };
    let statistic: f64 = counts.iter().zip(expected).map(square).sum();
    assert!(statistic < limit, "{counts:?} instead of {expected:?}: {statistic}");
}

fn counted(positions: &[i32], len: usize) -> Vec<u32> {
    let mut counts = vec![0; len];
    positions.iter().for_each(|at| counts[*at as usize] += 1);
    counts
}

#[test]
fn integers_are_uniform_within_their_bounds() {
    Device::get("cpu").unwrap().scope(|| {
        let mut rng = Rng::seed_from_u64(11);
        let drawn = rng.randint(-3, 7, [20, 1000]);
        assert_eq!((drawn.dtype(), drawn.dims().unwrap()), (DType::I32, [20, 1000]));
        let drawn = (drawn + 3).to_vec::<i32>().unwrap();
        // Nine degrees of freedom.
        fits(&counted(&drawn, 10), &[2000.0; 10], 45.1);
        let whole = rng.randint(i32::MIN, i32::MAX, [10_000]).to_vec::<i32>().unwrap();
        let below = whole.iter().filter(|x| **x < 0).count();
        assert!((below as f64 - 5000.0).abs() < 5.0 * 50.0, "{below}");
        assert_eq!(rng.randint(5, 6, [3]).to_vec::<i32>().unwrap(), [5; 3]);
        let wrong = rng.randint(2, 2, [3]).check().unwrap_err();
        assert_eq!(wrong.message(), "randint: low must be less than high, got low 2 and high 2");
    });
}

#[test]
fn permutations_of_tensors_are_permutations_and_equally_likely() {
    Device::get("cpu").unwrap().scope(|| {
        let mut rng = Rng::seed_from_u64(12);
        for len in [0, 1, 2, 100, 5000] {
            let mut order = rng.randperm(len).to_vec::<i32>().unwrap();
            assert!(len < 100 || !order.is_sorted());
            order.sort_unstable();
            assert!(order.into_iter().eq(0..len as i32), "{len}");
        }
        let mut counts = [0; 6];
        for _ in 0..1200 {
            let order = rng.randperm(3).to_vec::<i32>().unwrap();
            counts[(order[0] * 2 + i32::from(order[1] > order[2])) as usize] += 1;
        }
        // Five degrees of freedom.
        fits(&counts, &[200.0; 6], 35.9);
    });
}

#[test]
fn bernoulli_draws_ones_with_their_probabilities() {
    Device::get("cpu").unwrap().scope(|| {
        for dtype in [DType::F16, DType::F32, DType::F64] {
            let probabilities = Tensor::from_slice(&[0f32, 0.25, 0.5, 1.0], [4]).cast(dtype);
            let drawn = Rng::seed_from_u64(13).bernoulli(&probabilities.broadcast_to([10_000, 4]));
            assert_eq!(drawn.dtype(), dtype);
            assert!((drawn.eq(0) | drawn.eq(1)).all(..).item::<bool>().unwrap());
            let means = drawn.cast(DType::F64).mean(0).to_vec::<f64>().unwrap();
            // Five standard errors.
            let errors = [0.0, 0.25, 0.5, 1.0].map(|p: f64| 5.0 * (p * (1.0 - p) / 10_000.0).sqrt());
            assert!(
                means.iter().zip([0.0, 0.25, 0.5, 1.0]).zip(errors).all(|((mean, p), e)| (mean - p).abs() <= e),
                "{means:?}"
            );
        }
        let wrong = Rng::seed_from_u64(1).bernoulli(&Tensor::arange(2)).check().unwrap_err();
        assert!(wrong.message().starts_with("bernoulli: i32[2]"), "{wrong}");
    });
}

#[test]
fn samples_have_the_probabilities_of_their_weights() {
    Device::get("cpu").unwrap().scope(|| {
        let mut rng = Rng::seed_from_u64(14);
        let weights = Tensor::from_slice(&[0f32, 2.0, 1.0, 0.0, 5.0, 0.0, 0.0, 3.0, 0.0, 9.0], [2, 5]);
        let drawn = rng.multinomial(&weights, 4000, Replacement::Yes);
        assert_eq!((drawn.dtype(), drawn.dims().unwrap()), (DType::I32, [2, 4000]));
        let drawn = drawn.to_vec::<i32>().unwrap();
        fits(&counted(&drawn[..4000], 5), &[0.0, 1000.0, 500.0, 0.0, 2500.0], 27.7);
        fits(&counted(&drawn[4000..], 5), &[0.0, 0.0, 1000.0, 0.0, 3000.0], 23.9);

        // Without replacement: the probability of each ordered pair is w[i] / 8 · w[j] / (8 - w[i]).
        let rows = weights.narrow(0, 0, 1).broadcast_to([4000, 5]);
        let drawn = rng.multinomial(&rows, 2, Replacement::No).to_vec::<i32>().unwrap();
        let pairs: Vec<i32> = drawn.chunks(2).map(|pair| pair[0] * 5 + pair[1]).collect();
        let given = [0.0, 2.0, 1.0, 0.0, 5.0];
        let expected: Vec<f64> = (0..25)
            .map(|at| (at / 5, at % 5))
            .map(|(i, j)| if i == j { 0.0 } else { 4000.0 * given[i] / 8.0 * given[j] / (8.0 - given[i]) })
            .collect();
        fits(&counted(&pairs, 25), &expected, 35.9);
        let all = rng.multinomial(&Tensor::from_slice(&[0.5f64, 0.1, 0.9], [3]), 3, Replacement::No);
        let mut all = all.to_vec::<i32>().unwrap();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);

        // No element of weight 0, however many there are.
        let few = Tensor::arange(10_000).remainder(1000).eq(7).cast(DType::F32) * 0.1;
        let drawn = rng.multinomial(&few, 2000, Replacement::Yes);
        assert!(few.index_select(0, &drawn).gt(0).all(..).item::<bool>().unwrap());

        let wrong = rng.multinomial(&weights, 6, Replacement::No).check().unwrap_err();
        assert_eq!(wrong.message().split(" has ").nth(1).unwrap(), "too few elements for 6 samples");
    });
}
