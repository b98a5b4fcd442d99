//! Reference implementations of routines: f64 loops over all indices.

use panoply_ir::routine::*;
use panoply_ir::{DType, Scalar};

/// Compares all buffers after a routine with those before it. Matrix factorizations and attention gradients have separate tests.
pub fn compare(routine: &Routine, given: &[Vec<f64>], after: &[Vec<f64>]) {
    let operands: Vec<Operand> = routine.operands().collect();
    let check = |at: usize, want: &[f64], tolerance: f64| {
        let dtype = operands[at].dtype;
        let scale = want.iter().fold(1.0f64, |scale, value| scale.max(value.abs()));
        for (elem, (have, want)) in after[at].iter().zip(want).enumerate() {
            let want = Scalar::from_f64(dtype, *want).to_f64();
            let same = have == &want || (have - want).abs() <= tolerance * scale || have.is_nan() && want.is_nan();
            assert!(same, "{routine:?}: element {elem} of {} is {have}, not {want}", operands[at].name);
        }
    };
    let last = operands.len() - 1;
    let float = if operands[0].dtype == DType::F64 { 1e-11 } else { 2e-5 };
    match routine {
        // Sums of small integers are exact in f32 and rounded once.
        Routine::Gemm(of) => check(last, &gemm(of, given), 0.0),
        Routine::Conv(of) => check(last, &conv(of, given)[0], 0.0),
        Routine::ConvBackwardData(of) => check(last, &conv(of, given)[1], 0.0),
        Routine::ConvBackwardFilter(of) => check(last, &conv(of, given)[2], 0.0),
        Routine::Attention(of) => check(last - 1, &attention(of, given), 8.0 * float),
        Routine::CachedAttention(of) => check(last, &cached_attention(of, given), 8.0 * float),
        Routine::Sort(of) => {
            let [values, places] = sort(of, &given[0]);
            check(1, &values, 0.0);
            check(2, &places, 0.0);
        }
        Routine::Scatter(of) => check(last, &scatter(of, given), 0.0),
        Routine::Fourier(of) => check(last, &fourier(of, &given[0]), 4.0 * float),
        Routine::MaxPoolBackward(of) => pool_sum(of, given, &after[last], float),
        Routine::SolveTriangular(_) | Routine::Cholesky(_) | Routine::Lu(_) | Routine::Qr(_) | Routine::Eigh(_) => {}
        // Its test in `cpu` has a bound of its own.
        Routine::AttentionBackward(_) | Routine::QuantizedMatmul(_) | Routine::ExpertMatmul(_) => {}
    }
}

fn gemm(of: &Gemm, given: &[Vec<f64>]) -> Vec<f64> {
    let at = |layout: Layout, batch: usize, row: usize, column: usize| {
        layout.offset + batch * layout.batch + row * layout.row + column * layout.column
    };
    let mut result = given[2].clone();
    if of.n == 0 {
        return result;
    }
    for (i, row) in (0..of.batch).flat_map(|i| (0..of.m).map(move |row| (i, row))) {
        for column in 0..of.n {
            let product = |k: usize| given[0][at(of.a, i, row, k)] * given[1][at(of.b, i, k, column)];
            result[at(of.c, i, row, column)] = (0..of.k).map(product).sum();
        }
    }
    result
}

fn split(number: usize, lengths: [usize; 3]) -> [usize; 3] {
    [number / (lengths[1] * lengths[2]), number / lengths[2] % lengths[1], number % lengths[2]]
}

/// Returns the output for the first two buffers, and the gradients of input and filters with the first buffer as the output's gradient.
fn conv(of: &Conv, given: &[Vec<f64>]) -> [Vec<f64>; 3] {
    let (lengths, sizes, positions) = (of.lengths(), of.sizes(), of.positions());
    let [long, taps, short] = [lengths, sizes, positions].map(|axes| axes.iter().product::<usize>());
    let (sources, results) = (of.batch * of.groups * of.inputs * long, of.batch * of.groups * of.outputs * short);
    let mut all = [vec![0.0; results], vec![0.0; sources], vec![0.0; of.groups * of.outputs * of.inputs * taps]];
    let get = |at: usize, elem: usize| given[at].get(elem).copied().unwrap_or(0.0);
    for item in 0..of.batch * of.groups {
        for (output, input) in (0..of.outputs).flat_map(|output| (0..of.inputs).map(move |input| (output, input))) {
            for (position, tap) in (0..short).flat_map(|position| (0..taps).map(move |tap| (position, tap))) {
                let (positions, taps_at) = (split(position, positions), split(tap, sizes));
                let place = [0, 1, 2].map(|i| {
                    let ConvAxis { length, stride, dilation, padding, .. } = of.axes[i];
                    (positions[i] * stride + taps_at[i] * dilation).checked_sub(padding).filter(|at| *at < length)
                });
                let [Some(a), Some(b), Some(c)] = place else { continue };
                let source = (item * of.inputs + input) * long + (a * lengths[1] + b) * lengths[2] + c;
                let result = (item * of.outputs + output) * short + position;
                let filter = ((item % of.groups * of.outputs + output) * of.inputs + input) * taps + tap;
                all[0][result] += get(0, source) * get(1, filter);
                all[1][source] += get(0, result) * get(1, filter);
                all[2][filter] += get(0, result) * get(1, source);
            }
        }
    }
    all
}

fn attention(of: &Attention, given: &[Vec<f64>]) -> Vec<f64> {
    let Attention { heads, key_heads, queries, keys, width, depth, past, scale, mask, .. } = *of;
    let rows = of.batch * heads * queries;
    let mut result = vec![0.0; rows * depth];
    for row in 0..rows {
        let (item, head, query) = (row / (heads * queries), row / queries % heads, row % queries);
        let first = (item * key_heads + head / (heads / key_heads)) * keys;
        let score = |key: usize| {
            let products = (0..width).map(|i| given[0][row * width + i] * given[1][(first + key) * width + i]);
            let score = products.sum::<f64>() * scale.to_f64();
            let masked = mask.map_or(score, |mask| {
                let value = given[3][item * mask.batch + head * mask.head + query * mask.query + key * mask.key];
                match mask.dtype {
                    DType::Bool if value == 0.0 => f64::NEG_INFINITY,
                    DType::Bool => score,
                    _ => score + value,
                }
            });
            if past.is_some_and(|past| key > past + query) { f64::NEG_INFINITY } else { masked }
        };
        let scores: Vec<f64> = (0..keys).map(score).collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max).max(f64::MIN);
        let sum: f64 = scores.iter().map(|score| (score - top).exp()).sum();
        for (key, score) in scores.iter().enumerate().filter(|_| sum > 0.0) {
            for i in 0..depth {
                result[row * depth + i] += (score - top).exp() / sum * given[2][(first + key) * depth + i];
            }
        }
    }
    result
}

fn cached_attention(of: &CachedAttention, given: &[Vec<f64>]) -> Vec<f64> {
    let CachedAttention { tokens, heads, key_heads, slots, slot_rows, width, scale, soft_cap, window } = *of;
    let mut result = vec![0.0; tokens * heads * width];
    for (token, head) in (0..tokens).flat_map(|token| (0..heads).map(move |head| (token, head))) {
        let own = given[3][token] as i64;
        let is_visible = |row: &i64| {
            let is_inside = (0..(slots * slot_rows) as i64).contains(&own);
            let is_near = window.is_none_or(|window| usize::try_from(own - row).is_ok_and(|rows| rows < window));
            is_inside && *row / slot_rows as i64 == own / slot_rows as i64 && *row <= own && is_near
        };
        let rows: Vec<usize> = (0..(slots * slot_rows) as i64).filter(is_visible).map(|row| row as usize).collect();
        let start = |row: usize| (head / (heads / key_heads) * slots * slot_rows + row) * width;
        let query = &given[0][(token * heads + head) * width..][..width];
        let score = |row: &usize| {
            let products = query.iter().zip(&given[1][start(*row)..][..width]).map(|(query, key)| query * key);
            let score = products.sum::<f64>() * scale.to_f64();
            soft_cap.map_or(score, |cap| cap.to_f64() * (score / cap.to_f64()).tanh())
        };
        let scores: Vec<f64> = rows.iter().map(score).collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - top).exp()).sum();
        for (row, score) in rows.iter().zip(&scores) {
            for i in 0..width {
                result[(token * heads + head) * width + i] += (score - top).exp() / sum * given[2][start(*row) + i];
            }
        }
    }
    result
}

fn sort(of: &Sort, given: &[f64]) -> [Vec<f64>; 2] {
    let mut all = [Vec::new(), Vec::new()];
    for row in given.chunks(of.length) {
        let mut order: Vec<usize> = (0..of.length).collect();
        order.sort_by(|a, b| {
            let least_first = row[*a].total_cmp(&row[*b]);
            if of.descending { least_first.reverse() } else { least_first }
        });
        for place in &order[..of.count] {
            all[0].push(row[*place]);
            all[1].push(*place as f64);
        }
    }
    all
}

fn scatter(of: &Scatter, given: &[Vec<f64>]) -> Vec<f64> {
    let mut result = given[0].clone();
    for (b, i) in (0..of.batch).flat_map(|b| (0..of.count).map(move |i| (b, i))) {
        let position = given[1][i];
        if position < 0.0 || position >= of.length as f64 {
            continue;
        }
        for column in 0..of.columns {
            let to = &mut result[(b * of.length + position as usize) * of.columns + column];
            let value = given[2][(b * of.count + i) * of.columns + column];
            *to = if of.accumulate { *to + value } else { value };
        }
    }
    result
}

/// Computes transforms by their definition.
fn fourier(of: &Fourier, given: &[f64]) -> Vec<f64> {
    let n = of.length;
    let [read, written] = of.kind.elems(n);
    let mut result = vec![0.0; of.outer * written * of.inner];
    let complex_inner = |of_real: bool| if of_real { 1 } else { 2 };
    let (from, to) =
        (complex_inner(of.kind == FourierKind::RealToComplex), complex_inner(of.kind == FourierKind::ComplexToReal));
    for (outer, inner) in (0..of.outer).flat_map(|outer| (0..of.inner).map(move |inner| (outer, inner))) {
        let source = |at: usize, part: usize| given[((outer * read / from + at) * of.inner + inner) * from + part];
        let number = |at: usize| -> (f64, f64) {
            match of.kind {
                FourierKind::Forward | FourierKind::Backward => (source(at, 0), source(at, 1)),
                FourierKind::RealToComplex => (source(at, 0), 0.0),
                FourierKind::ComplexToReal if at == 0 || 2 * at == n => (source(at, 0), 0.0),
                FourierKind::ComplexToReal if 2 * at < n => (source(at, 0), source(at, 1)),
                FourierKind::ComplexToReal => (source(n - at, 0), -source(n - at, 1)),
            }
        };
        let sign = if matches!(of.kind, FourierKind::Forward | FourierKind::RealToComplex) { -1.0 } else { 1.0 };
        for at in 0..written / to {
            let (mut real, mut imaginary) = (0.0, 0.0);
            for j in 0..n {
                let (sin, cos) = (sign * std::f64::consts::TAU * (at * j % n) as f64 / n as f64).sin_cos();
                let (a, b) = number(j);
                real += a * cos - b * sin;
                imaginary += a * sin + b * cos;
            }
            let place = ((outer * written / to + at) * of.inner + inner) * to;
            result[place] = real * of.scale.to_f64();
            if to == 2 {
                result[place + 1] = imaginary * of.scale.to_f64();
            }
        }
    }
    result
}

/// Compares sums per plane: each window passes its gradient once to its maximal elements.
fn pool_sum(of: &Pool, given: &[Vec<f64>], after: &[f64], tolerance: f64) {
    let [lengths, positions, sizes] =
        [of.axes.map(|axis| axis.length), of.axes.map(|axis| axis.positions), of.axes.map(|axis| axis.size)];
    let [long, short, taps] = [lengths, positions, sizes].map(|axes| axes.iter().product::<usize>());
    let mut want = vec![0.0; of.planes * long];
    for window in 0..of.planes * short {
        let (plane, at) = (window / short, split(window % short, positions));
        let elements = (0..taps).map(|tap| {
            let tap = split(tap, sizes);
            let place = [0, 1, 2].map(|i| at[i] * of.axes[i].stride + tap[i] * of.axes[i].dilation);
            plane * long + (place[0] * lengths[1] + place[1]) * lengths[2] + place[2]
        });
        let equal: Vec<usize> = elements.filter(|at| given[0][*at] == given[1][window]).collect();
        equal.iter().for_each(|at| want[*at] += given[2][window] / equal.len() as f64);
    }
    for (have, want) in after.iter().zip(&want) {
        assert!((have - want).abs() <= tolerance * (1.0 + want.abs()) * 8.0, "{of:?}: {have}, not {want}");
    }
}
