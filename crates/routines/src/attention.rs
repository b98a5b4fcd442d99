//! Attention and its gradient, block by block: the matrix of all scores is never stored.
//!
//! Scores are stored as keys by queries, so that vectors run along queries. Their maxima and sums then need no
//! horizontal operations, and only a block of queries is transposed, not keys or values. The running maximum of the
//! scores and the sum of exponentials are carried over the blocks of keys. The gradient recomputes the scores and uses
//! their log-sum-exp.
//!
//! Sources: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; Rabe and Staats, Self-attention
//! Does Not Need O(n²) Memory, 2021; Dao et al., FlashAttention, 2022.

mod gradient;

use panoply_ir::routine::{Attention, Mask};
use panoply_ir::{DType, Scalar};

use super::tile::Product;
use super::{Shared, in_numbers};
use panoply_host::isa::{Isa, Simd};
use panoply_host::pool::Pool;
use panoply_host::simd::{self, Real, Task, Vector};

pub use gradient::gradient;

/// Queries per block: a multiple of the vector length of every machine and of the widest tile.
const QUERIES: usize = 48;
/// Keys per block: the scores with the queries take a part of the L1 cache.
const KEYS: usize = 128;

/// One number for each query of a block.
type PerQuery<T> = [T; QUERIES];

/// Computes the output, and for each query the logarithm of the sum of exponentials of its scores (log-sum-exp), which the
/// gradient needs. `buffers` are the operands of [`Attention`]: queries, keys, values, the mask if there is one, the output
/// `[batch, heads, queries, depth]`, and the log-sum-exp `[batch, heads, queries]`.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn output<T: Real>(pool: &Pool, isa: Isa, attention: &Attention, buffers: &[*mut u8]) {
    let inputs = Inputs::new(attention, buffers);
    let (output, logsumexp) = (Shared(buffers[inputs.count]), Shared(buffers[inputs.count + 1]));
    let blocks = attention.queries.div_ceil(QUERIES);
    in_numbers(pool, attention.batch * attention.heads * blocks, work(attention), |number| {
        let (head, first) = (number / blocks, number % blocks * QUERIES);
        let query = head * attention.queries + first;
        let block = Block::<T> {
            head: inputs.head(head),
            pool,
            first,
            output: output.at(0).cast::<T>().wrapping_add(query * attention.depth),
            logsumexp: logsumexp.at(0).cast::<T>().wrapping_add(query),
        };
        // SAFETY: the caller's promise; blocks write disjoint rows.
        unsafe { simd::run(isa, block) };
    });
}

/// Returns the approximate number of multiply-adds of the forward pass.
fn work(attention: &Attention) -> usize {
    let Attention { batch, heads, queries, keys, width, depth, .. } = *attention;
    [batch, heads, queries, keys, width + depth]
        .iter()
        .fold(1, |product: usize, factor| product.saturating_mul(*factor))
}

/// Inputs of the forward and the backward pass.
struct Inputs<'a> {
    attention: &'a Attention,
    buffers: [Shared; 3],
    mask: Option<(Mask, Shared)>,
    /// Number of input buffers.
    count: usize,
}

impl<'a> Inputs<'a> {
    fn new(attention: &'a Attention, buffers: &[*mut u8]) -> Inputs<'a> {
        let mask = attention.mask.map(|mask| (mask, Shared(buffers[3])));
        let count = 3 + usize::from(mask.is_some());
        Inputs { attention, buffers: [0, 1, 2].map(|at| Shared(buffers[at])), mask, count }
    }

    /// Returns head `number`, counted over the heads of all batch items.
    fn head<T: Real>(&self, number: usize) -> Head<'a, T> {
        let Attention { heads, key_heads, queries, keys, width, depth, .. } = *self.attention;
        let (item, head) = (number / heads, number % heads);
        let key_head = item * key_heads + head / (heads / key_heads);
        let start = |buffer: usize, at: usize| self.buffers[buffer].at(at * size_of::<T>()).cast::<T>().cast_const();
        let mask = self.mask.map(|(mask, buffer)| {
            let at = item * mask.batch + head * mask.head;
            (mask, buffer.at(at * mask.dtype.bytes()).cast_const())
        });
        Head {
            attention: self.attention,
            queries: start(0, number * queries * width),
            keys: start(1, key_head * keys * width),
            values: start(2, key_head * keys * depth),
            mask,
        }
    }
}

/// One head of one batch item.
struct Head<'a, T> {
    attention: &'a Attention,
    queries: *const T,
    keys: *const T,
    values: *const T,
    mask: Option<(Mask, *const u8)>,
}

impl<T: Real> Head<'_, T> {
    /// Returns how many leading keys the block of queries that begins with query `first` needs, given causal masking.
    fn num_visible_keys(&self, first: usize) -> usize {
        let Attention { keys, past, queries, .. } = *self.attention;
        let last = (first + QUERIES).min(queries);
        past.map_or(keys, |past| keys.min(past.saturating_add(last)))
    }

    /// Computes the masked scores of a range of keys with the block of queries that begins with query `first`, as a matrix of keys
    /// by [`QUERIES`]. `transposed` holds the queries as a scaled matrix of elements by [`QUERIES`].
    #[inline(always)]
    unsafe fn scores<M: Simd>(&self, transposed: *const T, first: usize, keys: std::ops::Range<usize>, scores: *mut T) {
        let Attention { width, queries, .. } = *self.attention;
        let product = Product {
            left: self.keys.wrapping_add(keys.start * width),
            left_row: width,
            left_column: 1,
            right: transposed,
            right_row: QUERIES,
            depth: width,
            result: scores,
            result_row: QUERIES,
            adds: false,
        };
        let count = QUERIES.min(queries - first);
        // SAFETY: the caller's promise: there is a score for every key of the block with every query.
        unsafe {
            product.run::<M>(keys.len(), QUERIES);
            if let Some((mask, start)) = self.mask {
                apply_mask(mask, start, first..first + count, keys.clone(), scores);
            }
        }
        let Some(past) = self.attention.past.filter(|past| past + first + 1 < keys.end) else { return };
        for (at, key) in keys.enumerate() {
            for query in 0..key.saturating_sub(past + first).min(QUERIES) {
                // SAFETY: as above.
                unsafe { *scores.add(at * QUERIES + query) = T::LOWEST };
            }
        }
    }
}

/// Applies a mask to a matrix of scores of some keys by some queries. `start` is the mask of the head.
#[inline(always)]
unsafe fn apply_mask<T: Real>(
    mask: Mask,
    start: *const u8,
    queries: std::ops::Range<usize>,
    keys: std::ops::Range<usize>,
    scores: *mut T,
) {
    for (column, query) in queries.enumerate() {
        for (row, key) in keys.clone().enumerate() {
            let at = query * mask.query + key * mask.key;
            // SAFETY: the caller's promise; a bool is 0 or 1.
            unsafe {
                let score = scores.add(row * QUERIES + column);
                if mask.dtype != DType::Bool {
                    *score = T::add(*score, *start.cast::<T>().add(at));
                } else if *start.add(at) == 0 {
                    *score = T::LOWEST;
                }
            }
        }
    }
}

/// Transposes `count` rows of a block to a matrix of `width` by [`QUERIES`], scaled by a factor; missing rows become zeros.
#[inline(always)]
unsafe fn transpose<T: Real>(rows: *const T, count: usize, width: usize, factor: T, to: *mut T) {
    for column in 0..width {
        // SAFETY: the caller's promise.
        let line = unsafe { &mut *to.add(column * QUERIES).cast::<PerQuery<T>>() };
        for (row, element) in line.iter_mut().enumerate() {
            *element = T::default();
            if row < count {
                // SAFETY: as above.
                *element = T::mul(unsafe { *rows.add(row * width + column) }, factor);
            }
        }
    }
}

/// Pads rows to whole vectors: returns the rows themselves if their width is a multiple of the vector length, otherwise a copy
/// in `scratch`. Returns their start, and the number of elements from one row to the next.
#[inline(always)]
unsafe fn padded_rows<M: Simd, T: Real>(
    rows: *const T,
    count: usize,
    width: usize,
    scratch: *mut T,
) -> (*const T, usize) {
    let whole = width.next_multiple_of(<T::Vector<M> as Vector>::LANES);
    if whole == width {
        return (rows, width);
    }
    for row in 0..count {
        // SAFETY: the caller's promise: the scratch memory has space for the padded rows.
        unsafe { std::ptr::copy_nonoverlapping(rows.add(row * width), scratch.add(row * whole), width) };
    }
    (scratch, whole)
}

/// Returns the scale of the scores.
fn factor<T: Real>(scale: Scalar) -> T {
    T::of(scale.to_f64())
}

/// Returns the value subtracted from scores before exponentiation: their maximum, or 0 if that is minus infinity because all keys
/// are masked, which would give NaN.
#[inline(always)]
fn max_or_zero<T: Real>(max: T) -> T {
    if max == T::LOWEST { T::default() } else { max }
}

/// A block of queries of one head.
struct Block<'a, T> {
    head: Head<'a, T>,
    pool: &'a Pool,
    /// The first query.
    first: usize,
    output: *mut T,
    logsumexp: *mut T,
}

impl<T: Real> Task for Block<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Attention { width, depth, queries, scale, .. } = *self.head.attention;
        let count = QUERIES.min(queries - self.first);
        let whole = depth.next_multiple_of(<T::Vector<M> as Vector>::LANES);
        let mut scratch = self.pool.scratch().take::<T>(QUERIES * (width + KEYS + whole) + KEYS * whole);
        let transposed = scratch.start();
        let scores = transposed.wrapping_add(QUERIES * width);
        let accumulators = scores.wrapping_add(QUERIES * KEYS);
        let padded = accumulators.wrapping_add(QUERIES * whole);
        let mut state = OnlineSoftmax { max: [T::LOWEST; QUERIES], sum: [T::default(); QUERIES] };
        let visible = self.head.num_visible_keys(self.first);
        // SAFETY: the caller's promise; the scratch memory has room for all parts.
        unsafe {
            transpose(self.head.queries.add(self.first * width), count, width, factor(scale), transposed);
            (0..QUERIES * whole).for_each(|at| *accumulators.add(at) = T::default());
            for start in (0..visible).step_by(KEYS) {
                let keys = start..visible.min(start + KEYS);
                self.head.scores::<M>(transposed, self.first, keys.clone(), scores);
                let correction = state.add::<M>(scores, keys.len());
                if start > 0 {
                    rescale(accumulators, whole, count, &correction);
                }
                let (right, right_row) =
                    padded_rows::<M, T>(self.head.values.add(start * depth), keys.len(), depth, padded);
                let product = Product {
                    left: scores.cast_const(),
                    left_row: 1,
                    left_column: QUERIES,
                    right,
                    right_row,
                    depth: keys.len(),
                    result: accumulators,
                    result_row: whole,
                    adds: true,
                };
                product.run::<M>(count, depth);
            }
            for query in 0..count {
                let sum = state.sum[query];
                let reciprocal = if sum == T::default() { T::default() } else { T::div(T::of(1.0), sum) };
                for at in 0..depth {
                    *self.output.add(query * depth + at) = T::mul(*accumulators.add(query * whole + at), reciprocal);
                }
                *self.logsumexp.add(query) = T::add(max_or_zero(state.max[query]), sum.ln::<M::Math>());
            }
        }
    }
}

/// The running maximum of each query's scores, and the sum of exponentials of the scores minus that maximum.
struct OnlineSoftmax<T> {
    max: PerQuery<T>,
    sum: PerQuery<T>,
}

impl<T: Real> OnlineSoftmax<T> {
    /// Adds a block of keys: replaces its scores by their exponentials relative to the new maxima, and adds these to the sums.
    /// Returns for each query the factor that corrects what was accumulated relative to the old maximum.
    #[inline(always)]
    unsafe fn add<M: Simd>(&mut self, scores: *mut T, keys: usize) -> PerQuery<T> {
        let before = self.max;
        for key in 0..keys {
            // SAFETY: the caller's promise: there are scores for `keys` keys.
            let row = unsafe { &*scores.add(key * QUERIES).cast::<PerQuery<T>>() };
            for (max, score) in self.max.iter_mut().zip(row) {
                *max = if *score > *max { *score } else { *max };
            }
        }
        let maxima: PerQuery<T> = self.max.map(max_or_zero);
        let mut correction = [T::default(); QUERIES];
        for query in 0..QUERIES {
            correction[query] = T::sub(before[query], maxima[query]).exp::<M::Math>();
            self.sum[query] = T::mul(self.sum[query], correction[query]);
        }
        for key in 0..keys {
            // SAFETY: as above.
            let row = unsafe { &mut *scores.add(key * QUERIES).cast::<PerQuery<T>>() };
            for query in 0..QUERIES {
                row[query] = T::sub(row[query], maxima[query]).exp::<M::Math>();
                self.sum[query] = T::add(self.sum[query], row[query]);
            }
        }
        correction
    }
}

/// Multiplies each row by a factor.
#[inline(always)]
unsafe fn rescale<T: Real>(accumulators: *mut T, row: usize, count: usize, factors: &PerQuery<T>) {
    for (number, factor) in factors.iter().enumerate().take(count) {
        for at in 0..row {
            // SAFETY: the caller's promise.
            unsafe { *accumulators.add(number * row + at) = T::mul(*accumulators.add(number * row + at), *factor) };
        }
    }
}
