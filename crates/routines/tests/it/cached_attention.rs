//! Attention to a key-value cache against sums in f64, and bits that depend neither on other tokens nor on threads.

use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::routine::{CachedAttention, Routine};
use panoply_ir::{DType, Scalar};
use panoply_routines::{offers, run};

fn number(at: usize, seed: usize) -> f32 {
    let (at, seed) = (at as u64, seed as u64);
    let hash = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)) >> 20;
    (hash % 4001) as f32 / 1000.0 - 2.0
}

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|at| number(at, seed)).collect()
}

/// The output, whose memory is filled with NaN before.
fn output(
    of: CachedAttention,
    [queries, keys, values]: [&[f32]; 3],
    rows: &[i32],
    isa: Isa,
    threads: usize,
) -> Vec<f32> {
    let routine = Routine::CachedAttention(of);
    routine.check().unwrap();
    assert!(offers(&routine), "{routine}");
    let mut output = vec![f32::NAN; queries.len()];
    let start = |data: &[f32]| data.as_ptr().cast_mut().cast::<u8>();
    let buffers =
        [start(queries), start(keys), start(values), rows.as_ptr().cast_mut().cast(), output.as_mut_ptr().cast()];
    // SAFETY: the buffers are as long as the routine says, and only the output is written.
    unsafe { run(&Pool::new(threads), isa, &routine, &buffers) };
    output
}

/// The output of a query head in f64.
fn expected(of: CachedAttention, [query, keys, values]: [&[f32]; 3], row: i32) -> Vec<f64> {
    let (first, width) = (row as usize / of.slot_rows * of.slot_rows, of.width);
    let first = of.window.map_or(first, |window| first.max((row as usize + 1).saturating_sub(window)));
    let score = |row: usize| {
        let products = query.iter().zip(&keys[row * width..]).map(|(query, key)| f64::from(*query) * f64::from(*key));
        let score = products.sum::<f64>() * of.scale.to_f64();
        of.soft_cap.map_or(score, |cap| cap.to_f64() * (score / cap.to_f64()).tanh())
    };
    let scores: Vec<f64> = (first..=row as usize).map(score).collect();
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.iter().map(|score| (score - top).exp()).sum();
    let value = |at: usize| {
        let terms = scores.iter().enumerate();
        terms.map(|(n, score)| (score - top).exp() / sum * f64::from(values[(first + n) * width + at])).sum()
    };
    (0..width).map(value).collect()
}

#[test]
fn results_equal_f64_and_depend_neither_on_other_tokens_nor_on_threads() {
    for (n, (heads, key_heads, width)) in
        [(4, 2, 64), (6, 1, 40), (3, 3, 7), (8, 2, 80), (2, 1, 128)].into_iter().enumerate()
    {
        for (soft_cap, window) in [(None, None), (Some(3.0), None), (None, Some(70)), (Some(2.0), Some(3))] {
            let of = CachedAttention {
                tokens: 7,
                heads,
                key_heads,
                slots: 3,
                slot_rows: 200,
                width,
                scale: Scalar::from_f64(DType::F32, 0.3),
                soft_cap: soft_cap.map(|cap| Scalar::from_f64(DType::F32, cap)),
                window,
            };
            let cache = key_heads * 600 * width;
            let (queries, keys, values) =
                (numbers(7 * heads * width, n), numbers(cache, n + 10), numbers(cache, n + 20));
            // The first and the last rows of slots, one of the middle, and two that are out of range.
            let rows = [0, 199, 200, 475, 599, -1, 600];
            for isa in Isa::available() {
                let all = output(of, [&queries, &keys, &values], &rows, isa, 2);
                assert_eq!(all, output(of, [&queries, &keys, &values], &rows, isa, 1), "{of:?} on {isa}");
                for (token, row) in rows.iter().enumerate() {
                    let query = &queries[token * heads * width..][..heads * width];
                    let own = &all[token * heads * width..][..heads * width];
                    let alone = output(CachedAttention { tokens: 1, ..of }, [query, &keys, &values], &[*row], isa, 2);
                    assert_eq!(own, alone, "{of:?} on {isa}, row {row}");
                    if !(0..600).contains(row) {
                        assert!(own.iter().all(|value| *value == 0.0), "{of:?} on {isa}, row {row}");
                        continue;
                    }
                    for head in 0..heads {
                        let start = head / (heads / key_heads) * 600 * width;
                        let inputs = [&query[head * width..][..width], &keys[start..], &values[start..]];
                        for (have, want) in own[head * width..].iter().zip(expected(of, inputs, *row)) {
                            let close = (f64::from(*have) - want).abs() < 2e-5;
                            assert!(close, "{of:?} on {isa}, row {row}, head {head}: {have}, not {want}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn numbers_that_are_not_finite_stay_with_their_sequence() {
    let of = CachedAttention {
        tokens: 2,
        heads: 1,
        key_heads: 1,
        slots: 2,
        slot_rows: 4,
        width: 16,
        scale: Scalar::from_f64(DType::F32, 1.0),
        soft_cap: None,
        window: None,
    };
    let (queries, mut keys, values) = (numbers(32, 1), numbers(128, 2), numbers(128, 3));
    keys[5 * 16 + 3] = f32::NAN;
    for isa in Isa::available() {
        let output = output(of, [&queries, &keys, &values], &[3, 6], isa, 1);
        assert!(output[..16].iter().all(|value| value.is_finite()), "{isa}");
        assert!(output[16..].iter().all(|value| value.is_nan()), "{isa}");
    }
}
