//! Products with packed weights against sums in f64 of what the encodings' own decoders give: error bounds, and bits that depend neither
//! on the number of columns nor on that of threads.

use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::routine::{ExpertMatmul, QuantizedMatmul, Routine};
use panoply_ir::{DType, Encoding, bf16, f16};
use panoply_routines::{offers, run};

/// Numbers of a fixed sequence (Marsaglia's xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// About normal, of unit variance.
    fn normal(&mut self) -> f32 {
        let unit = |numbers: &mut Numbers| (numbers.next() >> 40) as f32 / (1 << 24) as f32;
        (0..12).map(|_| unit(self)).sum::<f32>() - 6.0
    }
}

/// Random bits with scales that are numbers of moderate size.
fn packed(encoding: Encoding, rows: usize, k: usize, numbers: &mut Numbers) -> Vec<u8> {
    let scale = |numbers: &mut Numbers| f16::from_f32(numbers.normal() * 0.01).to_le_bytes();
    let halves: &[usize] = match encoding {
        Encoding::F32 => return (0..rows * k).flat_map(|_| numbers.normal().to_le_bytes()).collect(),
        Encoding::F16 => return (0..rows * k).flat_map(|_| f16::from_f32(numbers.normal()).to_le_bytes()).collect(),
        Encoding::BF16 => return (0..rows * k).flat_map(|_| bf16::from_f32(numbers.normal()).to_le_bytes()).collect(),
        Encoding::Q4_0 | Encoding::Q5_0 | Encoding::Q8_0 => &[0],
        Encoding::Q4_1 | Encoding::Q5_1 | Encoding::Q4K | Encoding::Q5K => &[0, 2],
        Encoding::Q2K => &[80, 82],
        Encoding::Q3K => &[108],
        Encoding::Q6K => &[208],
        Encoding::IQ2Xxs | Encoding::IQ2Xs | Encoding::IQ2S | Encoding::IQ3Xxs | Encoding::IQ3S => &[0],
        Encoding::IQ1S | Encoding::IQ4Nl | Encoding::IQ4Xs => &[0],
        Encoding::TQ1_0 => &[52],
        Encoding::TQ2_0 => &[64],
        // Their scales are below.
        Encoding::IQ1M | Encoding::MXFP4 | Encoding::NVFP4 => &[],
    };
    let mut bytes: Vec<u8> = (0..rows * encoding.row_bytes(k).unwrap()).map(|_| numbers.next() as u8).collect();
    for block in bytes.chunks_exact_mut(encoding.block_bytes()) {
        for at in halves {
            block[*at..at + 2].copy_from_slice(&scale(numbers));
        }
        match encoding {
            // The exponent is in the highest bits of the last word.
            Encoding::IQ1M => block[55] = block[55] & 15 | 0x20,
            Encoding::MXFP4 => block[0] = 120 + block[0] % 4,
            Encoding::NVFP4 => block[..4].iter_mut().for_each(|scale| *scale %= 64),
            _ => {}
        }
    }
    bytes
}

fn encode(values: &[f32], dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F16 => values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect(),
        DType::BF16 => values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
    }
}

fn decode(bytes: &[u8], dtype: DType) -> Vec<f32> {
    match dtype {
        DType::F16 => bytes.chunks(2).map(|bytes| f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()).collect(),
        DType::BF16 => bytes.chunks(2).map(|bytes| bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32()).collect(),
        _ => bytes.chunks(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect(),
    }
}

fn product(of: QuantizedMatmul, x: &[u8], weight: &[u8], isa: Isa, threads: usize) -> Vec<u8> {
    output(Routine::QuantizedMatmul(of), &[x, weight], of.m * of.n * of.dtype.bytes(), isa, threads)
}

/// The bytes of the output; 8 bytes more on both sides of each buffer stay as they are.
fn output(routine: Routine, inputs: &[&[u8]], bytes: usize, isa: Isa, threads: usize) -> Vec<u8> {
    routine.check().unwrap();
    assert!(offers(&routine), "{routine}");
    let around = |bytes: &[u8]| [&[0xa5; 8], bytes, &[0xa5; 8]].concat();
    let output = vec![0x5a; bytes];
    let mut buffers: Vec<Vec<u8>> = inputs.iter().map(|input| around(input)).chain([around(&output)]).collect();
    let before = buffers.clone();
    let starts: Vec<*mut u8> = buffers.iter_mut().map(|buffer| buffer[8..].as_mut_ptr()).collect();
    // SAFETY: the buffers are as long as the routine says, and apart.
    unsafe { run(&Pool::new(threads), isa, &routine, &starts) };
    let (output, inputs) = buffers.split_last().unwrap();
    let (untouched, before) = before.split_last().unwrap();
    assert!(inputs == before, "{routine} changed an input");
    let end = output.len() - 8;
    assert!(output[..8] == untouched[..8] && output[end..] == untouched[end..], "{routine} wrote outside");
    output[8..end].to_vec()
}

fn encodings_and_lengths() -> impl Iterator<Item = (Encoding, usize)> {
    Encoding::ALL.into_iter().flat_map(|encoding| {
        let lengths: &[usize] = match encoding.block_elems() {
            1 => &[1, 7, 16, 37, 600],
            32 => &[32, 96, 288, 544],
            64 => &[64, 320],
            _ => &[256, 768],
        };
        lengths.iter().map(move |k| (encoding, *k))
    })
}

/// Bound of the difference of an output from the exact sum: with integers half a scale of each block of x times the weights of the block, and
/// the roundings of f32. Each term is rounded a few times, and each partial sum at most once for every block or element before it.
fn bound(encoding: Encoding, x: &[f32], weights: &[f32]) -> f64 {
    let pairs = || x.iter().zip(weights).map(|(x, w)| (f64::from(*x), f64::from(*w)));
    let eps = f64::from(f32::EPSILON) / 2.0;
    if encoding.block_elems() == 1 {
        let sum: f64 = pairs().map(|(x, w)| (x * w).abs()).sum();
        return (x.len() as f64 + 16.0) * eps * sum;
    }
    let (mut rounding, mut magnitude) = (0.0, 0.0);
    for (x, w) in x.chunks(32).zip(weights.chunks(32)) {
        let largest = x.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        let scale = f64::from((largest / 127.0).max(2f32.powi(-120)));
        let norm: f64 = w.iter().map(|w| f64::from(w.abs())).sum();
        rounding += scale / 2.0 * norm;
        // Of weights with a minimum, both parts may be larger than their difference.
        let parts: f64 = w.iter().map(|w| f64::from(w.abs())).fold(0.0, f64::max) + spread(w);
        magnitude += 32.0 * f64::from(largest) * parts;
    }
    let terms = 3.0 * (x.len() / 16) as f64 + 16.0;
    rounding + terms * eps * magnitude
}

/// The largest difference between weights of a block, which the part without the minimum is at most, and that minimum.
fn spread(w: &[f32]) -> f64 {
    let (least, most) = w.iter().fold((f32::MAX, f32::MIN), |(least, most), w| (least.min(*w), most.max(*w)));
    32.0 * f64::from(most - least)
}

#[test]
fn results_are_within_the_proven_bound() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut worst = 0.0f64;
    for (encoding, k) in encodings_and_lengths() {
        for (n, m, dtype) in
            [(1, 1, DType::F32), (40, 1, DType::F32), (21, 5, DType::F16), (70, 9, DType::BF16), (3, 2, DType::F32)]
        {
            let weight = packed(encoding, n, k, &mut numbers);
            let x: Vec<f32> = (0..m * k).map(|_| numbers.normal()).collect();
            let x = encode(&x, dtype);
            let values = decode(&x, dtype);
            let mut rows = vec![0.0; n * k];
            encoding.decode(&weight, &mut rows);
            let of = QuantizedMatmul { dtype, encoding, m, n, k, interleaved: false };
            for isa in Isa::available() {
                let output = decode(&product(of, &x, &weight, isa, 1), dtype);
                for (at, have) in output.iter().enumerate() {
                    let (x, w) = (&values[at / n * k..][..k], &rows[at % n * k..][..k]);
                    let want: f64 = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
                    let rounded = match dtype {
                        DType::F16 => 2f64.powi(-11),
                        DType::BF16 => 2f64.powi(-8),
                        _ => 0.0,
                    };
                    let exact_bound = bound(encoding, x, w);
                    let bound = exact_bound + rounded * (want.abs() + exact_bound) + 1e-7;
                    let error = (f64::from(*have) - want).abs();
                    worst = worst.max(error / bound);
                    assert!(error <= bound, "{of:?} on {isa}: {at} is {have}, not {want}; allowed {bound}");
                }
            }
        }
    }
    // A bound that nothing comes near would prove nothing.
    assert!(worst > 0.02, "{worst}");
}

#[test]
fn bits_depend_neither_on_columns_nor_on_threads() {
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    for (encoding, k) in encodings_and_lengths() {
        let n = 150;
        let weight = packed(encoding, n, k, &mut numbers);
        let x: Vec<f32> = (0..64 * k).map(|_| numbers.normal()).collect();
        let x = encode(&x, DType::F32);
        for isa in Isa::available() {
            let of = |m: usize| QuantizedMatmul { dtype: DType::F32, encoding, m, n, k, interleaved: false };
            let alone: Vec<u8> = x.chunks(4 * k).flat_map(|x| product(of(1), x, &weight, isa, 1)).collect();
            for m in [1, 2, 3, 7, 8, 31, 32, 64] {
                for threads in [1, 2] {
                    let output = product(of(m), &x[..4 * m * k], &weight, isa, threads);
                    assert!(output == alone[..4 * m * n], "{:?} on {isa} with {threads} threads", of(m));
                }
            }
            let of = QuantizedMatmul { n: 1, ..of(1) };
            let bytes = weight.len() / n;
            for row in [0, 3, 77, n - 1] {
                let single = product(of, &x[..4 * k], &weight[row * bytes..][..bytes], isa, 1);
                assert_eq!(single, alone[4 * row..][..4], "row {row} of {encoding:?} alone on {isa}");
            }
        }
    }
}

#[test]
fn interleaved_rows_give_the_bits_of_stored_ones() {
    let mut numbers = Numbers(0x7a3c_91d5_0b6e_4f21);
    let mut interleaved_encodings = 0;
    for (encoding, k) in encodings_and_lengths() {
        let n = 144;
        if !encoding.can_interleave(n) {
            continue;
        }
        interleaved_encodings += 1;
        assert!(!encoding.can_interleave(n + 1));
        let weight = packed(encoding, n, k, &mut numbers);
        let mut interleaved = vec![0; weight.len()];
        encoding.interleave(&weight, weight.len() / n, &mut interleaved);
        assert!(interleaved != weight, "{encoding:?}");
        let mut stored = vec![0; weight.len()];
        encoding.deinterleave(&interleaved, weight.len() / n, &mut stored);
        assert!(stored == weight, "{encoding:?}");
        let x: Vec<f32> = (0..9 * k).map(|_| numbers.normal()).collect();
        let x = encode(&x, DType::F32);
        for (isa, m) in Isa::available().into_iter().flat_map(|isa| [(isa, 1), (isa, 2), (isa, 9)]) {
            let of = QuantizedMatmul { dtype: DType::F32, encoding, m, n, k, interleaved: false };
            let expected = product(of, &x[..4 * m * k], &weight, isa, 1);
            for threads in [1, 3] {
                let output =
                    product(QuantizedMatmul { interleaved: true, ..of }, &x[..4 * m * k], &interleaved, isa, threads);
                assert!(output == expected, "{of:?} on {isa} with {threads} threads");
            }
        }
    }
    assert_eq!(interleaved_encodings, 4 * 5 + 2 * 5, "ten encodings of integers");
}

#[test]
fn products_with_experts_are_those_of_each_row() {
    let mut numbers = Numbers(0x1234_5678_9abc_def1);
    let cases = [Encoding::Q4K, Encoding::Q8_0, Encoding::F16, Encoding::IQ4Nl].into_iter();
    for (encoding, dtype) in cases.zip([DType::F32, DType::F16, DType::BF16, DType::F32]) {
        let (m, used, experts, n, k) = (9, 3, 5, 40, 512);
        let weight = packed(encoding, experts * n, k, &mut numbers);
        let matrix = weight.len() / experts;
        for slots in [1, used] {
            let x: Vec<f32> = (0..m * slots * k).map(|_| numbers.normal()).collect();
            let x = encode(&x, dtype);
            // Experts repeat, one is not used, and ids beyond all of them give zeros.
            let ids: Vec<i32> =
                (0..m * used).map(|_| [0, 1, 3, 4, 4, -1, 5, i32::MAX][numbers.next() as usize % 8]).collect();
            let id_bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            let of = ExpertMatmul { dtype, encoding, m, slots, used, experts, n, k };
            let (row, result) = (k * dtype.bytes(), n * dtype.bytes());
            for isa in Isa::available() {
                let outputs = output(Routine::ExpertMatmul(of), &[&x, &weight, &id_bytes], m * used * result, isa, 2);
                for (pair, id) in ids.iter().enumerate() {
                    let source = if slots == 1 { pair / used } else { pair };
                    let want = match usize::try_from(*id).ok().filter(|id| *id < experts) {
                        Some(id) => {
                            let weight = &weight[id * matrix..][..matrix];
                            product(of.of_one(1), &x[source * row..][..row], weight, isa, 1)
                        }
                        None => vec![0; result],
                    };
                    assert!(
                        outputs[pair * result..][..result] == want,
                        "{of:?} on {isa}: pair {pair} with expert {id}"
                    );
                }
            }
        }
    }
}

#[test]
fn integer_encodings_give_the_same_integers_on_all_sets() {
    // Of one block with powers of two as scales nothing is rounded but activations, and those alike.
    let k = 32;
    let weight: Vec<u8> = (0..48u8)
        .flat_map(|row| {
            let d = f16::from_f32(0.25).to_le_bytes();
            let q = (0..32u8).map(move |i| row.wrapping_mul(37).wrapping_add(i.wrapping_mul(83)));
            d.into_iter().chain(q)
        })
        .collect();
    let x: Vec<f32> = (0..32).map(|i| (i * 29 % 255 - 127) as f32).collect();
    assert!(x.contains(&-127.0));
    let of = QuantizedMatmul { dtype: DType::F32, encoding: Encoding::Q8_0, m: 1, n: 48, k, interleaved: false };
    let mut rows = vec![0.0; 48 * k];
    Encoding::Q8_0.decode(&weight, &mut rows);
    for isa in Isa::available() {
        let output = decode(&product(of, &encode(&x, DType::F32), &weight, isa, 2), DType::F32);
        for (row, have) in output.iter().enumerate() {
            let want: f32 = x.iter().zip(&rows[row * k..]).map(|(x, w)| x * w).sum();
            assert_eq!(*have, want, "row {row} on {isa}");
        }
    }
}

#[test]
fn numbers_that_are_not_finite_stay_visible() {
    let mut numbers = Numbers(7);
    for encoding in [Encoding::Q4_0, Encoding::Q6K, Encoding::F16] {
        let (k, n) = (512, 20);
        let weight = packed(encoding, n, k, &mut numbers);
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = vec![1.0; 2 * k];
            x[k + 300] = wrong;
            let of = QuantizedMatmul { dtype: DType::F32, encoding, m: 2, n, k, interleaved: false };
            for isa in Isa::available() {
                let output = decode(&product(of, &encode(&x, DType::F32), &weight, isa, 1), DType::F32);
                assert!(output[..n].iter().all(|value| value.is_finite()), "{encoding:?} on {isa}");
                assert!(
                    output[n..].iter().all(|value| !value.is_finite()),
                    "{encoding:?} on {isa}: {:?}",
                    &output[n..]
                );
            }
        }
    }
}

#[test]
fn tiny_and_huge_activations_keep_their_bound() {
    let mut numbers = Numbers(11);
    let (k, n, encoding) = (64, 16, Encoding::Q8_0);
    let weight = packed(encoding, n, k, &mut numbers);
    let mut rows = vec![0.0; n * k];
    encoding.decode(&weight, &mut rows);
    for magnitude in [0.0, 1e-44, 1e-37, 1e-35, 1e-30, 1e30, 1e36] {
        let x: Vec<f32> = (0..k).map(|_| (numbers.normal() * magnitude).clamp(-f32::MAX, f32::MAX)).collect();
        let of = QuantizedMatmul { dtype: DType::F32, encoding, m: 1, n, k, interleaved: false };
        for isa in Isa::available() {
            let output = decode(&product(of, &encode(&x, DType::F32), &weight, isa, 1), DType::F32);
            for (row, have) in output.iter().enumerate() {
                let w = &rows[row * k..][..k];
                let want: f64 = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
                let bound = bound(encoding, &x, w) + 1e-43;
                assert!(
                    (f64::from(*have) - want).abs() <= bound,
                    "{magnitude}: row {row} on {isa} is {have}, not {want}"
                );
            }
        }
    }
}

#[test]
fn what_cannot_be_multiplied_is_refused() {
    let of = QuantizedMatmul { dtype: DType::F32, encoding: Encoding::Q4K, m: 1, n: 4, k: 256, interleaved: false };
    let refused = |of: QuantizedMatmul| Routine::QuantizedMatmul(of).check().unwrap_err().to_string();
    assert!(refused(QuantizedMatmul { k: 255, ..of }).contains("k is 255; it is a multiple of 256, the block of Q4_K"));
    assert!(
        refused(QuantizedMatmul { interleaved: true, ..of })
            .contains("4 rows of Q4_K are interleaved; only whole groups of 16 rows of some encodings are")
    );
    assert!(refused(QuantizedMatmul { dtype: DType::F64, ..of }).contains("dtype is f64; it is f32, f16 or bf16"));
    assert!(refused(QuantizedMatmul { n: usize::MAX, ..of }).contains("weight has more than"));
    let (dtype, encoding) = (of.dtype, of.encoding);
    let experts = ExpertMatmul { dtype, encoding, m: 1, slots: 2, used: 3, experts: 4, n: 4, k: 256 };
    let refused = |of: ExpertMatmul| Routine::ExpertMatmul(of).check().unwrap_err().to_string();
    assert!(refused(experts).contains("slots is 2; it must be 1 or used, 3"));
    assert!(refused(ExpertMatmul { slots: 1, k: 100, ..experts }).contains("k is 100; it is a multiple of 256"));
}
