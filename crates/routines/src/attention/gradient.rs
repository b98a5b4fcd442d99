//! The gradient of attention.
//!
//! With the attention weights `p` and the gradient `g` of the output, the gradient of the values is `pᵀ g`, and that of
//! the scores is `p (g valuesᵀ - Σ g · output)`. The gradients of queries and keys follow from the products that form
//! the scores. A thread takes heads that share keys and processes their queries block by block, with the gradients of
//! all keys and values in scratch memory.

use panoply_host::isa::{Isa, Simd};
use panoply_host::pool::Pool;
use panoply_host::simd::{self, Real, Task};
use panoply_ir::routine::Attention;

use super::{Head, Inputs, KEYS, PerQuery, QUERIES, factor, max_or_zero, padded_rows, transpose, work};
use crate::tile::Product;
use crate::{PARTS, Shared, in_numbers};

/// Maximum size of the sums of all parts, unless there is one part.
const PARTIAL_BYTES: usize = 64 << 20;

/// Computes the gradients of queries, keys and values.
///
/// # Safety
/// As [`crate::run`].
pub unsafe fn gradient<T: Real>(pool: &Pool, isa: Isa, attention: &Attention, buffers: &[*mut u8]) {
    let inputs = Inputs::new(attention, buffers);
    let Attention { batch, heads, key_heads, queries, keys, width, depth, .. } = *attention;
    let [output, logsumexp, grad_output, grad_queries, grad_keys, grad_values] =
        [0, 1, 2, 3, 4, 5].map(|at| Shared(buffers[inputs.count + at]));
    let lanes = 64 / size_of::<T>();
    let rows = [width, depth].map(|width| width.next_multiple_of(lanes));
    let (sharing, blocks) = (heads / key_heads, queries.div_ceil(QUERIES));
    // If there are few heads, the queries are split and the parts are summed separately, the same for every number of threads.
    let sums = keys * (rows[0] + rows[1]);
    let most = (PARTIAL_BYTES / (batch * key_heads * sums * size_of::<T>()).max(1)).max(1);
    let splits = PARTS.div_ceil(batch * key_heads).min(sharing * blocks).min(most);
    let mut partial = pool.scratch().take::<T>(if splits > 1 { batch * key_heads * splits * sums } else { 0 });
    let partial = Shared(partial.start().cast());
    let write = |shared: usize, sums: *const T, parts: usize| {
        let part = keys * (rows[0] + rows[1]);
        for (to, first, width, row) in [(grad_keys, 0, width, rows[0]), (grad_values, keys * rows[0], depth, rows[1])] {
            let to = to.at(0).cast::<T>().wrapping_add(shared * keys * width);
            for (key, at) in (0..keys).flat_map(|key| (0..width).map(move |at| (key, at))) {
                let from = sums.wrapping_add(first + key * row + at);
                // SAFETY: the caller's promise; all parts have been computed.
                unsafe {
                    let sum = (1..parts).fold(*from, |sum, number| T::add(sum, *from.add(number * part)));
                    *to.add(key * width + at) = sum;
                }
            }
        }
    };
    in_numbers(pool, batch * key_heads * splits, 3 * work(attention), |number| {
        let (shared, split) = (number / splits, number % splits);
        let mut own = pool.scratch().take::<T>(if splits > 1 { 0 } else { sums });
        let sums = if splits > 1 { partial.at(0).cast::<T>().wrapping_add(number * sums) } else { own.start() };
        let part = QueryBlock::<T> {
            inputs: &inputs,
            pool,
            heads: shared * sharing..(shared + 1) * sharing,
            split: [split, splits],
            output: output.at(0).cast(),
            logsumexp: logsumexp.at(0).cast(),
            grad_output: grad_output.at(0).cast(),
            grad_queries: grad_queries.at(0).cast(),
            grad_keys: sums,
            grad_values: sums.wrapping_add(keys * rows[0]),
            rows,
        };
        // SAFETY: the caller's promise; parts have separate sums and queries.
        unsafe { simd::run(isa, part) };
        if splits == 1 {
            write(shared, sums, 1);
        }
    });
    if splits > 1 {
        in_numbers(pool, batch * key_heads, work(attention), |shared| {
            write(shared, partial.at(0).cast::<T>().wrapping_add(shared * splits * sums), splits);
        });
    }
}

/// Some queries of the heads that share keys.
struct QueryBlock<'a, T> {
    inputs: &'a Inputs<'a>,
    pool: &'a Pool,
    heads: std::ops::Range<usize>,
    /// The index of this part and the number of parts.
    split: [usize; 2],
    output: *const T,
    logsumexp: *const T,
    grad_output: *const T,
    grad_queries: *mut T,
    /// Gradient sums of all keys, and of all values.
    grad_keys: *mut T,
    grad_values: *mut T,
    /// Elements from one row of these sums to the next.
    rows: [usize; 2],
}

impl<T: Real> Task for QueryBlock<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Attention { queries, keys, .. } = *self.inputs.attention;
        let [split, splits] = self.split;
        let blocks = queries.div_ceil(QUERIES);
        // SAFETY: the caller's promise, here and below: there is room for the sums of all keys.
        unsafe {
            (0..keys * self.rows[0]).for_each(|at| *self.grad_keys.add(at) = T::default());
            (0..keys * self.rows[1]).for_each(|at| *self.grad_values.add(at) = T::default());
        }
        let all = self.heads.clone().flat_map(|head| (0..blocks).map(move |block| (head, block)));
        for (head, block) in all.enumerate().filter(|(number, _)| number % splits == split).map(|(_, block)| block) {
            // SAFETY: as above; no other part writes these queries.
            unsafe { self.block::<M>(head, block * QUERIES) };
        }
    }
}

impl<T: Real> QueryBlock<'_, T> {
    /// Processes a block of queries of one head.
    #[inline(always)]
    unsafe fn block<M: Simd>(&self, head: usize, first: usize) {
        let Attention { width, depth, queries, scale, .. } = *self.inputs.attention;
        let one: Head<'_, T> = self.inputs.head(head);
        let count = QUERIES.min(queries - first);
        let query = head * queries + first;
        let [wide, deep] = self.rows;
        let mut scratch =
            self.pool.scratch().take::<T>(QUERIES * (width + depth + 2 * KEYS + 2 * wide + deep) + KEYS * wide);
        let transposed_queries = scratch.start();
        let transposed_grad = transposed_queries.wrapping_add(QUERIES * width);
        let weights = transposed_grad.wrapping_add(QUERIES * depth);
        let grad_scores = weights.wrapping_add(QUERIES * KEYS);
        let sums = grad_scores.wrapping_add(QUERIES * KEYS);
        let query_room = sums.wrapping_add(QUERIES * wide);
        let grad_room = query_room.wrapping_add(QUERIES * wide);
        let key_room = grad_room.wrapping_add(QUERIES * deep);
        let (own, grad_output) =
            (one.queries.wrapping_add(first * width), self.grad_output.wrapping_add(query * depth));
        // SAFETY: the caller's promise; the scratch memory has room for all parts.
        unsafe {
            transpose(own, count, width, factor(scale), transposed_queries);
            transpose(grad_output, count, depth, T::of(1.0), transposed_grad);
            let (query_rows, query_row) = padded_rows::<M, T>(own, count, width, query_room);
            let (grad_rows, grad_row) = padded_rows::<M, T>(grad_output, count, depth, grad_room);
            let (mut logsumexp, mut means) = ([T::default(); QUERIES], [T::default(); QUERIES]);
            for at in 0..count {
                logsumexp[at] = max_or_zero(*self.logsumexp.add(query + at));
                let output = self.output.add((query + at) * depth);
                let products = (0..depth).map(|i| T::mul(*output.add(i), *grad_output.add(at * depth + i)));
                means[at] = products.fold(T::default(), T::add);
            }
            (0..QUERIES * wide).for_each(|at| *sums.add(at) = T::default());
            let visible = one.num_visible_keys(first);
            for start in (0..visible).step_by(KEYS) {
                let keys = start..visible.min(start + KEYS);
                let height = keys.len();
                one.scores::<M>(transposed_queries, first, keys, weights);
                let values = Product {
                    left: one.values.wrapping_add(start * depth),
                    left_row: depth,
                    left_column: 1,
                    right: transposed_grad.cast_const(),
                    right_row: QUERIES,
                    depth,
                    result: grad_scores,
                    result_row: QUERIES,
                    adds: false,
                };
                values.run::<M>(height, QUERIES);
                through_softmax::<M, T>(weights, grad_scores, height, &logsumexp, &means, factor(scale));
                let by_key =
                    Product { left: weights.cast_const(), left_row: QUERIES, left_column: 1, adds: true, ..values };
                let grad_values = Product {
                    right: grad_rows,
                    right_row: grad_row,
                    depth: count,
                    result: self.grad_values.wrapping_add(start * deep),
                    result_row: deep,
                    ..by_key
                };
                grad_values.run::<M>(height, depth);
                let grad_keys = Product {
                    left: grad_scores.cast_const(),
                    right: query_rows,
                    right_row: query_row,
                    depth: count,
                    result: self.grad_keys.wrapping_add(start * wide),
                    result_row: wide,
                    ..by_key
                };
                grad_keys.run::<M>(height, width);
                let (right, right_row) = padded_rows::<M, T>(one.keys.add(start * width), height, width, key_room);
                let grad_queries = Product {
                    left: grad_scores.cast_const(),
                    left_row: 1,
                    left_column: QUERIES,
                    right,
                    right_row,
                    depth: height,
                    result: sums,
                    result_row: wide,
                    adds: true,
                };
                grad_queries.run::<M>(count, width);
            }
            for at in 0..count {
                let to = self.grad_queries.add((query + at) * width);
                std::ptr::copy_nonoverlapping(sums.add(at * wide), to, width);
            }
        }
    }
}

/// Replaces the scores by attention weights, and the gradients of the weights by those of the unscaled scores.
#[inline(always)]
unsafe fn through_softmax<M: Simd, T: Real>(
    scores: *mut T,
    grad_scores: *mut T,
    keys: usize,
    logsumexp: &PerQuery<T>,
    means: &PerQuery<T>,
    scale: T,
) {
    for key in 0..keys {
        // SAFETY: the caller's promise: both have rows for `keys` keys.
        let (row, grad_score) = unsafe {
            (
                &mut *scores.add(key * QUERIES).cast::<PerQuery<T>>(),
                &mut *grad_scores.add(key * QUERIES).cast::<PerQuery<T>>(),
            )
        };
        for query in 0..QUERIES {
            row[query] = T::sub(row[query], logsumexp[query]).exp::<M::Math>();
            // With weight 1, a single key's gradient equals the mean, except that the mean's sum was rounded in another
            // order; the result must be 0.
            let apart = if row[query] == T::of(1.0) { T::default() } else { T::sub(grad_score[query], means[query]) };
            grad_score[query] = T::mul(T::mul(row[query], apart), scale);
        }
    }
}
