//! Attention of single tokens to a key-value cache.
//!
//! A part of the work is one token and one head of keys, with all query heads that share it, over the rows that the token attends to and no
//! others. Rows are taken in blocks counted from the first of them, and the running maximum and sum are carried over the blocks. So the bits
//! of a token's result depend neither on the other tokens nor on the number of threads.
//!
//! Scores are dot products whose lanes run along the width; the sums of as many rows as there are lanes are turned into one vector by
//! interleaving halves. The weighted sum of values keeps its lanes along the width, too.
//!
//! Source: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018.

use std::ops::Range;

use panoply_host::isa::{Isa, Simd};
use panoply_host::lane_sums::add_lane_pairs;
use panoply_host::math::single::{exp, tanh};
use panoply_host::pool::Pool;
use panoply_host::simd::{self, Real, Task, Vector};
use panoply_ir::routine::CachedAttention;

use super::{Shared, in_numbers};

/// Rows per block: the keys or values of a head of usual width take a part of the first-level cache.
const ROWS: usize = 64;
/// Lanes of the widest vector of f32.
const MAX_LANES: usize = 16;

/// Computes the output.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn run(pool: &Pool, isa: Isa, of: &CachedAttention, buffers: &[*mut u8]) {
    let CachedAttention { tokens, heads, key_heads, width, .. } = *of;
    // SAFETY: the caller's promise: there is a row for each token.
    let rows = unsafe { std::slice::from_raw_parts(buffers[3].cast::<i32>().cast_const(), tokens) };
    let attended = rows.iter().fold(0usize, |sum, row| sum.saturating_add(of.visible(*row).len()));
    let work = [heads, width, 2].iter().fold(attended, |product, factor| product.saturating_mul(*factor));
    let buffers = [0, 1, 2, 4].map(|at| Shared(buffers[at]));
    in_numbers(pool, tokens * key_heads, work, |number| {
        let task = Group { of, pool, buffers, token: number / key_heads, head: number % key_heads, rows };
        // SAFETY: the caller's promise; groups write disjoint parts of the output.
        unsafe { simd::run(isa, task) };
    });
}

/// The query heads of a token that share a head of keys.
struct Group<'a> {
    of: &'a CachedAttention,
    pool: &'a Pool,
    /// Queries, keys, values, output.
    buffers: [Shared; 4],
    token: usize,
    head: usize,
    rows: &'a [i32],
}

impl Task for Group<'_> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let CachedAttention { heads, key_heads, slots, slot_rows, width, scale, soft_cap, .. } = *self.of;
        let (shared, visible) = (heads / key_heads, self.of.visible(self.rows[self.token]));
        let at = |buffer: usize, elem: usize| self.buffers[buffer].at(elem * size_of::<f32>()).cast::<f32>();
        let first = (self.token * heads + self.head * shared) * width;
        let (queries, output) = (at(0, first).cast_const(), at(3, first));
        let row = |buffer: usize, row: usize| at(buffer, (self.head * slots * slot_rows + row) * width).cast_const();
        let mut scratch = self.pool.scratch().take::<f32>(ROWS + MAX_LANES + 2 * shared);
        let scores = scratch.start();
        let state = scores.wrapping_add(ROWS + MAX_LANES);
        let (scale, cap) = (scale.to_f64() as f32, soft_cap.map(|cap| cap.to_f64() as f32));
        // SAFETY: the caller's promise; visible rows are rows of the cache, and the scratch memory has room for all parts.
        unsafe {
            std::slice::from_raw_parts_mut(output, shared * width).fill(0.0);
            let states = std::slice::from_raw_parts_mut(state.cast::<[f32; 2]>(), shared);
            states.fill([f32::LOWEST, 0.0]);
            for rows in blocks(visible) {
                let (keys, values, count) = (row(1, rows.start), row(2, rows.start), rows.len());
                for (query, state) in states.iter_mut().enumerate() {
                    dot_products::<M::Single>(queries.add(query * width), keys, width, count, scores);
                    let scores = std::slice::from_raw_parts_mut(scores, count);
                    let shrunk = weights::<M>(scores, scale, cap, state);
                    add_values::<M::Single>(scores, values, width, shrunk, output.add(query * width));
                }
            }
            for (query, [_, sum]) in states.iter().enumerate().filter(|(_, [_, sum])| *sum != 0.0) {
                let output = std::slice::from_raw_parts_mut(output.add(query * width), width);
                output.iter_mut().for_each(|value| *value /= sum);
            }
        }
    }
}

/// Returns a range in blocks.
fn blocks(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(ROWS).map(move |start| start..end.min(start + ROWS))
}

/// Stores the products of a query with `count` keys; what follows them up to a whole vector is overwritten.
#[inline(always)]
unsafe fn dot_products<V: Vector<Elem = f32>>(
    query: *const f32,
    keys: *const f32,
    width: usize,
    count: usize,
    scores: *mut f32,
) {
    let whole = width / V::LANES * V::LANES;
    for first in (0..count).step_by(V::LANES) {
        // Beyond the last key its own product is computed again and left out.
        let key = |lane: usize| keys.wrapping_add((first + lane).min(count - 1) * width);
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = [V::splat(0.0); MAX_LANES];
            for at in (0..whole).step_by(V::LANES) {
                let query = V::load(query.add(at));
                for (lane, sum) in sums.iter_mut().enumerate().take(V::LANES) {
                    *sum = V::load(key(lane).add(at)).mul_add(query, *sum);
                }
            }
            // Then lane i has the sum of vector i.
            add_lane_pairs(&mut sums[..V::LANES]);
            sums[0].store(scores.add(first));
            for lane in 0..V::LANES.min(count - first) {
                for at in whole..width {
                    *scores.add(first + lane) += *query.add(at) * *key(lane).add(at);
                }
            }
        }
    }
}

/// Replaces scores by their exponentials relative to the largest score so far, and adds these to the state: maximum and sum. Returns the
/// factor of what was summed before.
#[inline(always)]
fn weights<M: Simd>(scores: &mut [f32], scale: f32, cap: Option<f32>, [top, sum]: &mut [f32; 2]) -> f32 {
    scores.iter_mut().for_each(|score| *score *= scale);
    if let Some(cap) = cap {
        scores.iter_mut().for_each(|score| *score = cap * tanh::<M::Math>(*score / cap));
    }
    let before = *top;
    *top = scores.iter().fold(*top, |top, score| if *score > top { *score } else { top });
    // Scores of minus infinity alone, or NaN, leave no maximum to subtract.
    let base = if *top == f32::LOWEST { 0.0 } else { *top };
    let shrunk = exp::<M::Math>(before - base);
    scores.iter_mut().for_each(|score| *score = exp::<M::Math>(*score - base));
    *sum = scores.iter().fold(*sum * shrunk, |sum, score| sum + score);
    shrunk
}

/// Multiplies the output `[width]` by a factor and adds the values of rows times their weights.
#[inline(always)]
unsafe fn add_values<V: Vector<Elem = f32>>(
    weights: &[f32],
    values: *const f32,
    width: usize,
    factor: f32,
    output: *mut f32,
) {
    let mut at = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while at + 4 * V::LANES <= width {
            add_columns::<V, 4>(weights, values.add(at), width, factor, output.add(at));
            at += 4 * V::LANES;
        }
        while at + V::LANES <= width {
            add_columns::<V, 1>(weights, values.add(at), width, factor, output.add(at));
            at += V::LANES;
        }
        for at in at..width {
            let mut sum = *output.add(at) * factor;
            for (row, weight) in weights.iter().enumerate() {
                sum += weight * *values.add(row * width + at);
            }
            *output.add(at) = sum;
        }
    }
}

/// [`add_values`] for as many columns as `C` vectors have.
#[inline(always)]
unsafe fn add_columns<V: Vector<Elem = f32>, const C: usize>(
    weights: &[f32],
    values: *const f32,
    width: usize,
    factor: f32,
    output: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let (factor, zero) = (V::splat(factor), V::splat(0.0));
        let mut sums = [zero; C];
        for (column, sum) in sums.iter_mut().enumerate() {
            *sum = V::load(output.add(column * V::LANES)).mul_add(factor, zero);
        }
        for (row, weight) in weights.iter().enumerate() {
            let (weight, values) = (V::splat(*weight), values.add(row * width));
            for (column, sum) in sums.iter_mut().enumerate() {
                *sum = V::load(values.add(column * V::LANES)).mul_add(weight, *sum);
            }
        }
        for (column, sum) in sums.into_iter().enumerate() {
            sum.store(output.add(column * V::LANES));
        }
    }
}
