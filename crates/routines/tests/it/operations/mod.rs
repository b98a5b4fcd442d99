//! Convolution, pooling and attention on random shapes against their definitions in f64, with every instruction set of the machine.
//!
//! The references are loops over all indices and share no code with the routines.

mod eigh;
mod linalg;

use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::kernel::Access;
use panoply_ir::routine::{self, Attention, Conv, ConvAxis, Mask, PoolAxis, Routine};
use panoply_ir::{DType, Element, Scalar, bf16, f16};
use panoply_routines::{offers, run};

/// A pseudo-random generator with the same numbers on every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % count
    }

    fn of(&mut self, choices: &[usize]) -> usize {
        choices[self.below(choices.len())]
    }

    fn many(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.below(4001) as f64 / 2000.0 - 1.0).collect()
    }
}

trait Float: Element + bytemuck::Pod {
    fn of(value: f64) -> Self;
    fn wide(self) -> f64;
    const TOLERANCE: f64;
}

impl Float for f32 {
    fn of(value: f64) -> f32 {
        value as f32
    }
    fn wide(self) -> f64 {
        self.into()
    }
    const TOLERANCE: f64 = 2e-5;
}

impl Float for f64 {
    fn of(value: f64) -> f64 {
        value
    }
    fn wide(self) -> f64 {
        self
    }
    const TOLERANCE: f64 = 1e-12;
}

macro_rules! half {
    ($half:ident, $digits:literal) => {
        impl Float for $half {
            fn of(value: f64) -> $half {
                $half::from_f64(value)
            }
            fn wide(self) -> f64 {
                self.to_f64()
            }
            // Summed in f32 and rounded once.
            const TOLERANCE: f64 = 1.0 / (1u32 << $digits) as f64;
        }
    };
}

half!(bf16, 10);
half!(f16, 13);

/// Number of elements after a buffer that must not be written.
const GUARD: usize = 100;
const UNTOUCHED: f64 = 77.0;

/// Runs a routine and returns its outputs. A bool mask is given as zeros and ones.
fn outputs<T: Float>(pool: &Pool, isa: Isa, routine: &Routine, inputs: &[&[f64]]) -> Vec<Vec<f64>> {
    assert!(offers(routine), "{routine}");
    let mut inputs = inputs.iter();
    let mut memory: Vec<Vec<T>> = Vec::new();
    for operand in routine.operands() {
        let elems = operand.elems.expect("small") as usize;
        let values: Vec<T> = match operand.access {
            Access::In => inputs.next().expect("one input per operand").iter().map(|value| T::of(*value)).collect(),
            Access::Out | Access::InOut => vec![T::of(f64::NAN); elems],
        };
        assert_eq!(values.len(), elems, "{}", operand.name);
        memory.push(if operand.dtype == DType::Bool {
            let bytes: Vec<u8> = values.iter().map(|value| u8::from(value.wide() != 0.0)).collect();
            let mut packed = vec![T::of(0.0); elems.div_ceil(size_of::<T>())];
            bytemuck::cast_slice_mut::<T, u8>(&mut packed)[..elems].copy_from_slice(&bytes);
            packed
        } else {
            values
        });
        memory.last_mut().expect("pushed").extend([T::of(UNTOUCHED); GUARD]);
    }
    let buffers: Vec<*mut u8> = memory.iter_mut().map(|buffer| buffer.as_mut_ptr().cast()).collect();
    // SAFETY: the buffers have the lengths of the routine and do not overlap; the set is available.
    unsafe { run(pool, isa, routine, &buffers) };
    let mut written = Vec::new();
    for (operand, buffer) in routine.operands().zip(&memory) {
        let (values, guard) = buffer.split_at(buffer.len() - GUARD);
        assert!(guard.iter().all(|value| value.wide() == UNTOUCHED), "{routine} wrote beyond {}", operand.name);
        if operand.access != Access::In {
            written.push(values.iter().map(|value| value.wide()).collect());
        }
    }
    written
}

#[track_caller]
fn close(what: &dyn std::fmt::Display, have: &[f64], want: &[f64], tolerance: f64) {
    let scale = want.iter().filter(|x| x.is_finite()).fold(1.0f64, |top, x| top.max(x.abs()));
    for (at, (have, want)) in have.iter().zip(want).enumerate() {
        let same = (have.is_nan() && want.is_nan()) || have == want || (have - want).abs() <= tolerance * scale;
        assert!(same, "{what}: element {at} is {have}, not {want}");
    }
    assert_eq!(have.len(), want.len(), "{what}");
}

/// Calls `f` with the indices of every output, input and filter element that are combined.
fn each_product(conv: &Conv, mut f: impl FnMut(usize, usize, usize)) {
    let at = |axes: [usize; 3], lengths: [usize; 3]| (axes[0] * lengths[1] + axes[1]) * lengths[2] + axes[2];
    let all = |lengths: [usize; 3]| {
        let [a, b, c] = lengths;
        (0..a * b * c).map(move |at| [at / (b * c), at / c % b, at % c]).collect::<Vec<[usize; 3]>>()
    };
    let (lengths, sizes, positions) = (conv.lengths(), conv.sizes(), conv.positions());
    let elems = |lengths: [usize; 3]| lengths.iter().product::<usize>();
    for item in 0..conv.batch * conv.groups {
        for (output, input) in (0..conv.outputs).flat_map(|o| (0..conv.inputs).map(move |i| (o, i))) {
            let filter = (item % conv.groups * conv.outputs + output) * conv.inputs + input;
            for position in all(positions) {
                for tap in all(sizes) {
                    let place: Option<Vec<usize>> = (0..3)
                        .map(|i| {
                            let ConvAxis { length, stride, dilation, padding, .. } = conv.axes[i];
                            (position[i] * stride + tap[i] * dilation).checked_sub(padding).filter(|at| *at < length)
                        })
                        .collect();
                    let Some(place) = place else { continue };
                    f(
                        (item * conv.outputs + output) * elems(positions) + at(position, positions),
                        (item * conv.inputs + input) * elems(lengths) + at([place[0], place[1], place[2]], lengths),
                        filter * elems(sizes) + at(tap, sizes),
                    );
                }
            }
        }
    }
}

fn random_conv(numbers: &mut Numbers, dtype: DType) -> Conv {
    let real = 1 + numbers.below(3);
    let most = [40, 14, 6][real - 1];
    let axes = std::array::from_fn(|axis| {
        if axis < 3 - real {
            return ConvAxis::NONE;
        }
        let (size, stride, dilation) = (1 + numbers.below(4), numbers.of(&[1, 1, 2, 3]), numbers.of(&[1, 1, 2]));
        let (padding, span) = (numbers.below(4), (size - 1) * dilation + 1);
        let length = (1 + numbers.below(most)).max(span.saturating_sub(2 * padding));
        ConvAxis { length, size, positions: (length + 2 * padding - span) / stride + 1, stride, dilation, padding }
    });
    let (inputs, outputs) = (numbers.of(&[1, 2, 3, 5, 17]), numbers.of(&[1, 2, 4, 7, 8, 19, 33]));
    Conv { dtype, batch: 1 + numbers.below(3), groups: numbers.of(&[1, 1, 2, 3]), inputs, outputs, axes }
}

fn check_conv<T: Float>(pool: &Pool, isa: Isa, conv: Conv, numbers: &mut Numbers) {
    let elems = |routine: Routine| routine.operands().map(|one| one.elems.unwrap() as usize).collect::<Vec<usize>>();
    let [x, w, y] = elems(Routine::Conv(conv)).try_into().expect("three buffers");
    let [x, w, g] =
        [x, w, y].map(|count| numbers.many(count).into_iter().map(|value| T::of(value).wide()).collect::<Vec<f64>>());
    let (mut output, mut to_x, mut to_w) = (vec![0.0; y], vec![0.0; x.len()], vec![0.0; w.len()]);
    each_product(&conv, |at_y, at_x, at_w| {
        output[at_y] += x[at_x] * w[at_w];
        to_x[at_x] += g[at_y] * w[at_w];
        to_w[at_w] += g[at_y] * x[at_x];
    });
    for (routine, inputs, want) in [
        (Routine::Conv(conv), [&x, &w], output),
        (Routine::ConvBackwardData(conv), [&g, &w], to_x),
        (Routine::ConvBackwardFilter(conv), [&g, &x], to_w),
    ] {
        let have = outputs::<T>(pool, isa, &routine, &inputs.map(|input| &input[..]));
        close(&format!("{routine} with {isa}"), &have[0], &want, 4.0 * T::TOLERANCE);
    }
}

#[test]
fn random_convolutions_equal_the_definition() {
    let mut numbers = Numbers(1);
    let pools = [Pool::new(1), Pool::new(3)];
    for round in 0..60 {
        let single = random_conv(&mut numbers, DType::F32);
        for isa in Isa::available() {
            check_conv::<f32>(&pools[round % 2], isa, single, &mut numbers);
            check_conv::<f64>(&pools[round % 2], isa, Conv { dtype: DType::F64, ..single }, &mut numbers);
            check_conv::<bf16>(&pools[round % 2], isa, Conv { dtype: DType::BF16, ..single }, &mut numbers);
            check_conv::<f16>(&pools[round % 2], isa, Conv { dtype: DType::F16, ..single }, &mut numbers);
        }
    }
}

#[test]
fn blocked_convolutions_equal_the_definition() {
    // More channels than a block has, bands of more than one row, filters in slices, a convolution that is a matrix product, and groups of one
    // channel, of which a task computes several, in one band and in two.
    let axis = |length: usize, size: usize, stride: usize| {
        let padding = size / 2;
        ConvAxis { length, size, positions: (length + 2 * padding - size) / stride + 1, stride, dilation: 1, padding }
    };
    let mut numbers = Numbers(2);
    for (batch, groups, inputs, outputs, length, size, stride) in [
        (1, 1, 100, 20, 9, 3, 1),
        (2, 1, 6, 9, 70, 5, 2),
        (1, 1, 3, 40, 40, 7, 2),
        (2, 1, 70, 30, 13, 1, 1),
        (2, 30, 1, 1, 21, 3, 1),
        (3, 20, 1, 2, 17, 3, 2),
        (2, 2, 40, 24, 12, 1, 1),
        (1, 50, 1, 1, 70, 3, 1),
        (3, 70, 1, 1, 33, 3, 2),
    ] {
        let axes = [ConvAxis::NONE, axis(length, size, stride), axis(length, size, stride)];
        let conv = Conv { dtype: DType::F32, batch, groups, inputs, outputs, axes };
        for threads in [1, 2, 5] {
            check_conv::<f32>(&Pool::new(threads), Isa::best(), conv, &mut numbers);
            check_conv::<bf16>(&Pool::new(threads), Isa::best(), Conv { dtype: DType::BF16, ..conv }, &mut numbers);
        }
    }
}

/// Checks convolutions after others that leave only infinities and NaN in scratch memory.
fn after_infinities<T: Float>(pool: &Pool, conv: Conv, numbers: &mut Numbers) {
    for routine in [Routine::Conv(conv), Routine::ConvBackwardData(conv), Routine::ConvBackwardFilter(conv)] {
        let elems: Vec<usize> = routine.operands().map(|one| one.elems.unwrap() as usize).collect();
        let [a, b] = [vec![f64::INFINITY; elems[0]], vec![f64::NAN; elems[1]]];
        outputs::<T>(pool, Isa::best(), &routine, &[&a, &b]);
    }
    check_conv::<T>(pool, Isa::best(), conv, numbers);
}

#[test]
fn stale_scratch_memory_does_not_affect_results() {
    // Scratch memory still contains the previous values; infinities multiplied by zero would be visible.
    let pool = Pool::new(2);
    let mut numbers = Numbers(3);
    for _ in 0..10 {
        let conv = random_conv(&mut numbers, DType::F32);
        after_infinities::<f32>(&pool, conv, &mut numbers);
        after_infinities::<bf16>(&pool, Conv { dtype: DType::BF16, ..conv }, &mut numbers);
        after_infinities::<f16>(&pool, Conv { dtype: DType::F16, ..conv }, &mut numbers);
        let attention = random_attention(&mut numbers, DType::F32);
        let mut inputs = attention_inputs(&attention, &mut numbers);
        inputs[..3].iter_mut().for_each(|input| input.fill(f64::NAN));
        let nothing = attention_of(&attention, &inputs);
        outputs::<f32>(&pool, Isa::best(), &Routine::Attention(attention), &views(&inputs));
        outputs::<f32>(&pool, Isa::best(), &Routine::AttentionBackward(attention), &gradient_views(&inputs, &nothing));
        check_attention::<f32>(&pool, Isa::best(), &attention, &mut numbers);
    }
}

#[test]
fn scratch_memory_is_bounded() {
    // A longer batch uses the same scratch memory, from as many items on as have sums of their own.
    let axis = ConvAxis { length: 40, size: 3, positions: 40, stride: 1, dilation: 1, padding: 1 };
    let axes = [ConvAxis::NONE, axis, axis];
    let conv = |batch| Conv { dtype: DType::F32, batch, groups: 1, inputs: 16, outputs: 16, axes };
    let bytes = |batch: usize| {
        let pool = Pool::new(1);
        check_conv::<f32>(&pool, Isa::best(), conv(batch), &mut Numbers(4));
        pool.scratch_bytes()
    };
    let few = bytes(16);
    assert!(few < 2 << 20, "{few} bytes");
    assert_eq!(bytes(48), few);
}

/// Checks that a routine gives the same bits with every number of threads.
fn same_bits<T: Float>(routine: &Routine, inputs: &[&[f64]], isa: Isa) {
    let of = |threads: usize| outputs::<T>(&Pool::new(threads), isa, routine, inputs);
    let alone = of(1);
    let bits = |outputs: &[Vec<f64>]| outputs.iter().flatten().map(|value| value.to_bits()).collect::<Vec<u64>>();
    for threads in [2, 3, 7] {
        assert_eq!(bits(&of(threads)), bits(&alone), "{routine} with {isa} on {threads} threads");
    }
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    let mut numbers = Numbers(6);
    let axis = |length: usize, size: usize, stride: usize| {
        let padding = size / 2;
        ConvAxis { length, size, positions: (length + 2 * padding - size) / stride + 1, stride, dilation: 1, padding }
    };
    let planes = |length, size, stride| [ConvAxis::NONE, axis(length, size, stride), axis(length, size, stride)];
    // Sums over many items, few and many channels, few filters, and planes that are read in bands.
    let mut convs: Vec<Conv> = [
        (40, 1, 3, 8, planes(16, 3, 1)),
        (33, 1, 1, 4, planes(28, 5, 1)),
        (20, 1, 100, 9, planes(7, 3, 1)),
        (7, 2, 6, 3, planes(70, 5, 2)),
        (18, 1, 4, 2, planes(150, 1, 1)),
    ]
    .map(|(batch, groups, inputs, outputs, axes)| Conv { dtype: DType::F32, batch, groups, inputs, outputs, axes })
    .to_vec();
    convs.extend((0..10).map(|_| Conv { batch: 19, ..random_conv(&mut numbers, DType::F32) }));
    for conv in convs {
        for routine in [Routine::Conv, Routine::ConvBackwardData, Routine::ConvBackwardFilter] {
            let elems: Vec<usize> = routine(conv).operands().map(|one| one.elems.unwrap() as usize).collect();
            let [a, b] = [elems[0], elems[1]].map(|count| numbers.many(count));
            for isa in Isa::available() {
                same_bits::<f32>(&routine(conv), &[&a, &b], isa);
            }
            same_bits::<f64>(&routine(Conv { dtype: DType::F64, ..conv }), &[&a, &b], Isa::best());
            same_bits::<bf16>(&routine(Conv { dtype: DType::BF16, ..conv }), &[&a, &b], Isa::best());
        }
    }
    for _ in 0..12 {
        let attention = random_attention(&mut numbers, DType::F32);
        let inputs = attention_inputs(&attention, &mut numbers);
        let forward = attention_of(&attention, &inputs);
        for isa in Isa::available() {
            same_bits::<f32>(&Routine::Attention(attention), &views(&inputs), isa);
            same_bits::<f32>(&Routine::AttentionBackward(attention), &gradient_views(&inputs, &forward), isa);
        }
    }
}

fn random_attention(numbers: &mut Numbers, dtype: DType) -> Attention {
    let key_heads = 1 + numbers.below(3);
    let heads = key_heads * numbers.of(&[1, 1, 2, 3]);
    let (queries, keys) = (numbers.of(&[1, 2, 7, 48, 50, 130]), numbers.of(&[1, 3, 16, 129, 140, 300]));
    let (width, depth) = (numbers.of(&[1, 4, 16, 20, 33]), numbers.of(&[1, 5, 16, 32, 40]));
    let batch = 1 + numbers.below(3);
    let repeated = |numbers: &mut Numbers, distance: usize| if numbers.below(3) == 0 { 0 } else { distance };
    let mask = (numbers.below(2) == 0).then(|| Mask {
        dtype: if numbers.below(2) == 0 { DType::Bool } else { dtype },
        batch: repeated(numbers, heads * queries * keys),
        head: repeated(numbers, queries * keys),
        query: repeated(numbers, keys),
        key: repeated(numbers, 1),
    });
    let past = (numbers.below(2) == 0).then(|| numbers.below(keys + 2));
    let scale = Scalar::from_f64(dtype, 1.0 / (width as f64).sqrt());
    Attention { dtype, batch, heads, key_heads, queries, keys, width, depth, past, scale, mask }
}

fn attention_inputs(attention: &Attention, numbers: &mut Numbers) -> Vec<Vec<f64>> {
    let operands = Routine::Attention(*attention).operands().filter(|one| one.access == Access::In);
    let mut inputs: Vec<Vec<f64>> = operands.map(|one| numbers.many(one.elems.unwrap() as usize)).collect();
    if let (Some(mask), Some(values)) = (attention.mask, inputs.get_mut(3)) {
        let hidden = if mask.dtype == DType::Bool { 0.0 } else { f64::NEG_INFINITY };
        values.iter_mut().for_each(|value| {
            *value = if *value < -0.6 {
                hidden
            } else if mask.dtype == DType::Bool {
                1.0
            } else {
                *value
            };
        });
    }
    let grad_output = attention.batch * attention.heads * attention.queries * attention.depth;
    inputs.push(numbers.many(grad_output));
    inputs
}

fn views(inputs: &[Vec<f64>]) -> Vec<&[f64]> {
    inputs[..inputs.len() - 1].iter().map(|input| &input[..]).collect()
}

fn gradient_views<'a>(inputs: &'a [Vec<f64>], results: &'a [Vec<f64>]) -> Vec<&'a [f64]> {
    let (grad_output, given) = inputs.split_last().expect("there are inputs");
    given.iter().chain(&results[..2]).chain([grad_output]).map(|input| &input[..]).collect()
}

/// Returns the output, the log-sum-exp of the scores, and the gradients of queries, keys and values.
fn attention_of(attention: &Attention, inputs: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let Attention { batch, heads, key_heads, queries, keys, width, depth, past, scale, mask, .. } = *attention;
    let (q, k, v, g) = (&inputs[0], &inputs[1], &inputs[2], &inputs[inputs.len() - 1]);
    let rows = batch * heads * queries;
    let (mut y, mut logsumexp) = (vec![0.0; rows * depth], vec![0.0; rows]);
    let (mut to_q, mut to_k, mut to_v) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]);
    for row in 0..rows {
        let (item, head, query) = (row / (heads * queries), row / queries % heads, row % queries);
        let first = (item * key_heads + head / (heads / key_heads)) * keys;
        let score = |key: usize| {
            let products = (0..width).map(|i| q[row * width + i] * k[(first + key) * width + i]);
            let score = products.sum::<f64>() * scale.to_f64();
            let masked = match mask {
                None => score,
                Some(mask) => {
                    let value = inputs[3][item * mask.batch + head * mask.head + query * mask.query + key * mask.key];
                    match mask.dtype {
                        DType::Bool if value == 0.0 => f64::NEG_INFINITY,
                        DType::Bool => score,
                        _ => score + value,
                    }
                }
            };
            if past.is_some_and(|past| key > past + query) { f64::NEG_INFINITY } else { masked }
        };
        let scores: Vec<f64> = (0..keys).map(score).collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, |a, b| if b.is_nan() { b } else { a.max(b) });
        let base = if top == f64::NEG_INFINITY { 0.0 } else { top };
        let sum: f64 = scores.iter().map(|score| (score - base).exp()).sum();
        logsumexp[row] = base + sum.ln();
        let weights: Vec<f64> =
            scores.iter().map(|score| if sum == 0.0 { 0.0 } else { (score - base).exp() / sum }).collect();
        let grad_output = |i: usize| g[row * depth + i];
        let grad_weights: Vec<f64> =
            (0..keys).map(|key| (0..depth).map(|i| grad_output(i) * v[(first + key) * depth + i]).sum()).collect();
        let mean: f64 = weights.iter().zip(&grad_weights).map(|(weight, grad)| weight * grad).sum();
        for key in 0..keys {
            for i in 0..depth {
                y[row * depth + i] += weights[key] * v[(first + key) * depth + i];
                to_v[(first + key) * depth + i] += weights[key] * grad_output(i);
            }
            let grad_score = weights[key] * (grad_weights[key] - mean) * scale.to_f64();
            for i in 0..width {
                to_q[row * width + i] += grad_score * k[(first + key) * width + i];
                to_k[(first + key) * width + i] += grad_score * q[row * width + i];
            }
        }
    }
    vec![y, logsumexp, to_q, to_k, to_v]
}

fn check_attention<T: Float>(pool: &Pool, isa: Isa, attention: &Attention, numbers: &mut Numbers) {
    let inputs = attention_inputs(attention, numbers);
    let want = attention_of(attention, &inputs);
    let (forward, backward) = (Routine::Attention(*attention), Routine::AttentionBackward(*attention));
    let mut have = outputs::<T>(pool, isa, &forward, &views(&inputs));
    have.extend(outputs::<T>(pool, isa, &backward, &gradient_views(&inputs, &want)));
    for (have, want) in have.iter().zip(&want) {
        close(&format!("{forward} with {isa}"), have, want, 4.0 * T::TOLERANCE);
    }
}

#[test]
fn random_attention_equals_the_definition() {
    let mut numbers = Numbers(5);
    let pools = [Pool::new(1), Pool::new(5)];
    for round in 0..40 {
        let single = random_attention(&mut numbers, DType::F32);
        for isa in Isa::available() {
            check_attention::<f32>(&pools[round % 2], isa, &single, &mut numbers);
            let scale = Scalar::from_f64(DType::F64, single.scale.to_f64());
            let mask = single.mask.map(|mask| match mask.dtype {
                DType::Bool => mask,
                _ => Mask { dtype: DType::F64, ..mask },
            });
            let double = Attention { dtype: DType::F64, scale, mask, ..single };
            check_attention::<f64>(&pools[round % 2], isa, &double, &mut numbers);
        }
    }
}

#[test]
fn fully_masked_queries_give_zeros_and_nan_masks_give_nan() {
    let mask = Mask { dtype: DType::F32, batch: 0, head: 0, query: 3, key: 1 };
    let attention = Attention {
        dtype: DType::F32,
        batch: 1,
        heads: 1,
        key_heads: 1,
        queries: 4,
        keys: 3,
        width: 2,
        depth: 2,
        past: None,
        scale: Scalar::from_f64(DType::F32, 1.0),
        mask: Some(mask),
    };
    let never = f64::NEG_INFINITY;
    let scores = vec![never, never, never, 0.0, never, 0.0, f64::NAN, 0.0, never, f64::INFINITY, 0.0, 0.0];
    let inputs = [vec![0.0; 8], vec![1.0; 6], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], scores].map(|values| values.to_vec());
    let inputs: Vec<&[f64]> = inputs.iter().map(|input| &input[..]).collect();
    let have = outputs::<f32>(&Pool::new(1), Isa::best(), &Routine::Attention(attention), &inputs);
    assert_eq!(have[0][..4], [0.0, 0.0, 3.0, 4.0]);
    assert!(have[0][4..].iter().all(|value| value.is_nan()), "{:?}", have[0]);
    assert_eq!((have[1][0], have[1][1] as f32), (never, std::f32::consts::LN_2));
}

#[test]
fn max_pool_gradients_go_to_the_largest_elements() {
    let mut numbers = Numbers(6);
    for round in 0..60 {
        let axes: [PoolAxis; 3] = std::array::from_fn(|axis| {
            let (size, stride, dilation) = (1 + numbers.below(3), 1 + numbers.below(3), 1 + numbers.below(2));
            // In half of the rounds the windows of a row are adjacent, and rows often have many windows.
            let (stride, dilation) = if axis == 2 && round % 2 == 0 { (size, 1) } else { (stride, dilation) };
            let span = (size - 1) * dilation + 1;
            let length = span + numbers.below(if axis == 2 && round % 3 > 0 { 90 } else { 8 });
            PoolAxis { length, size, positions: (length - span) / stride + 1, stride, dilation }
        });
        let planes = 1 + numbers.below(4);
        let pool = routine::Pool { dtype: DType::F32, planes, axes };
        let [long, short] = [axes.map(|axis| axis.length), axes.map(|axis| axis.positions)];
        // Few different numbers, so that equal maxima are common.
        let input: Vec<f64> = (0..planes * long.iter().product::<usize>()).map(|_| numbers.below(4) as f64).collect();
        let windows = planes * short.iter().product::<usize>();
        let grad_output = numbers.many(windows);
        let (mut output, mut want) = (Vec::new(), vec![0.0; input.len()]);
        for (window, grad_output) in grad_output.iter().enumerate() {
            let [a, b, c] = short;
            let at = [window / (b * c) % a, window / c % b, window % c];
            let elements: Vec<usize> = (0..axes[0].size * axes[1].size * axes[2].size)
                .map(|n| {
                    let tap = [n / (axes[1].size * axes[2].size), n / axes[2].size % axes[1].size, n % axes[2].size];
                    let place = |i: usize| at[i] * axes[i].stride + tap[i] * axes[i].dilation;
                    ((window / (a * b * c) * long[0] + place(0)) * long[1] + place(1)) * long[2] + place(2)
                })
                .collect();
            let top = elements.iter().map(|at| input[*at]).fold(f64::NEG_INFINITY, f64::max);
            let largest: Vec<usize> = elements.into_iter().filter(|at| input[*at] == top).collect();
            largest.iter().for_each(|at| want[*at] += grad_output / largest.len() as f64);
            output.push(top);
        }
        let routine = Routine::MaxPoolBackward(pool);
        let have = outputs::<f32>(&Pool::new(2), Isa::best(), &routine, &[&input, &output, &grad_output]);
        close(&routine, &have[0], &want, 1e-6);
    }
}

#[test]
fn empty_and_integer_convolutions_are_not_supported() {
    let none = Conv { dtype: DType::F32, batch: 0, groups: 1, inputs: 1, outputs: 1, axes: [ConvAxis::NONE; 3] };
    assert!(!offers(&Routine::Conv(none)));
    assert!(offers(&Routine::Conv(Conv { batch: 1, ..none })));
    assert!(!offers(&Routine::Conv(Conv { batch: 1, dtype: DType::I32, ..none })), "only floats are supported");
}
