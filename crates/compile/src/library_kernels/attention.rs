//! Attention in one kernel, without storing the score matrix.
//!
//! A group owns some queries of one head and iterates over tiles of the keys visible to them. For each query it
//! maintains the running maximum of the scores and the sum of exponentials relative to it, and rescales its
//! accumulators when the maximum grows. A query without visible keys gives zeros, like the body of the call.
//!
//! Sources: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; Dao, FlashAttention-2, 2023, algorithm 1.

mod gradient;

use std::sync::Arc;

use panoply_ir::alu::{Alu, Math};
use panoply_ir::builder::Builder;
use panoply_ir::custom_kernel::CustomKernel;
use panoply_ir::kernel::{Access, Builtin, ExprId, Guard, LocalId, MemId};
use panoply_ir::routine::{Attention, Mask, Routine};
use panoply_ir::target::Style;
use panoply_ir::{DType, MathMode, Shape, Target};

use super::custom_kernel;
use super::tiles::{MatrixRef, SharedTile, Tiles};
use super::tiling::Tiling;
use crate::opt::contract;

pub(super) use gradient::gradient;

/// Maximum width of queries, keys and values for which accumulators fit in registers.
const WIDEST: usize = 128;
/// Minimum number of queries; fewer would leave most of a tile empty.
const MIN_QUERIES: usize = 16;
/// Number of keys up to which fewer queries are accepted: for more keys, the body's kernels are better because they
/// divide the keys among groups.
const FEW_KEYS: usize = 128;
/// Number of groups along an axis that every device supports.
const MAX_GROUPS: usize = 65_535;

/// Returns the kernel for the output and the log-sum-exp of the scores, the latter in the accumulation type; `None` if
/// the body is faster.
pub(super) fn output(
    of: &Attention,
    results: &[Shape],
    target: &Target,
    math_mode: MathMode,
) -> Option<Arc<CustomKernel>> {
    let routine = Routine::Attention(*of);
    if !fits(&routine, of, target, math_mode, routine.operands().count()) {
        return None;
    }
    let (sum, width, depth) = (wide(of.dtype), of.width as u64, of.depth as u64);
    let bytes = |t: Tiling| {
        let streamed = t.bytes(sum, t.streamed(), width).max(t.transposed_bytes(sum, t.streamed(), depth));
        t.bytes(sum, t.owned(), width) + streamed + t.weights_bytes(sum) + t.owned() * t.line() * sum.bytes() as u64
    };
    let (rows, matrices) = (of.queries as u64, (of.batch * of.heads) as u64);
    let fused = contract::in_sums(target, math_mode);
    let write = |t: Tiling| (Forward::write(of, t, fused), t.grid(rows, matrices));
    let variants = Tiling::fitting(target, fragments(of, target), [rows, matrices], bytes);
    custom_kernel(variants.into_iter().map(write), results)
}

/// Returns true if the tiled kernels for attention, or its gradient, fit a target and bind at most its number of
/// buffers.
fn fits(routine: &Routine, of: &Attention, target: &Target, math_mode: MathMode, bindings: usize) -> bool {
    let most = target.max_seen_bytes();
    let seen = |elems: Option<u64>, dtype: DType| {
        elems.and_then(|elems| elems.checked_mul(dtype.bytes() as u64)).is_some_and(|bytes| bytes <= most)
    };
    target.style == Style::Gpu
        && math_mode != MathMode::Exact
        && (wide(of.dtype) != DType::F64 || target.f64)
        && of.width.max(of.depth) <= WIDEST
        && (of.queries >= MIN_QUERIES || of.keys <= FEW_KEYS)
        && of.batch * of.heads <= MAX_GROUPS
        && of.queries.max(of.keys) <= MAX_GROUPS * MIN_QUERIES
        && bindings <= target.max_bindings as usize
        && routine.operands().all(|operand| seen(operand.elems, operand.dtype))
}

/// Returns the element type of matrix fragments, if the device supports them for this type.
fn fragments(of: &Attention, target: &Target) -> Option<DType> {
    (target.mma && wide(of.dtype) != of.dtype).then_some(of.dtype)
}

/// Returns the accumulation type.
fn wide(dtype: DType) -> DType {
    if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype }
}

/// An attention kernel under construction, with its inputs.
struct Heads<'a> {
    of: &'a Attention,
    tiles: Tiles,
    queries: MemId,
    keys: MemId,
    values: MemId,
    mask: Option<(Mask, MemId)>,
}

/// The inputs of one head.
#[derive(Clone, Copy)]
struct Head {
    queries: MatrixRef,
    keys: MatrixRef,
    values: MatrixRef,
    /// Mask, its buffer, and the index of its first element.
    mask: Option<(Mask, MemId, ExprId)>,
}

impl<'a> Heads<'a> {
    fn new(name: &str, of: &'a Attention, t: Tiling, fused: bool) -> Heads<'a> {
        let mut tiles = Tiles::new(name, t, wide(of.dtype), fused);
        let [queries, keys, values] =
            ["queries", "keys", "values"].map(|name| tiles.b.buffer(name, of.dtype, Access::In));
        let mask = of.mask.map(|mask| (mask, tiles.b.buffer("mask", mask.dtype, Access::In)));
        Heads { of, tiles, queries, keys, values, mask }
    }

    /// Returns the `number`-th matrix of a buffer that holds one matrix per head.
    fn matrix(&mut self, mem: MemId, number: ExprId, rows: usize, width: usize) -> MatrixRef {
        let start = self.tiles.times(number, (rows * width) as u64);
        MatrixRef { mem, start: self.tiles.b.bind("head", start), rows: rows as u64, width: width as u64 }
    }

    /// Returns the inputs of a query head. `number` is its index over the whole batch, `item` the batch index, and
    /// `head` the index within the item.
    fn head(&mut self, number: ExprId, item: ExprId, head: ExprId) -> Head {
        let Attention { heads, key_heads, queries, keys, width, depth, .. } = *self.of;
        let (own, _) = self.tiles.split(head, (heads / key_heads) as u64);
        let before = self.tiles.times(item, key_heads as u64);
        let shared = self.tiles.b.alu(Alu::Add, &[before, own]);
        let mask = self.mask.map(|(mask, mem)| {
            let (item, head) = (self.tiles.times(item, mask.batch as u64), self.tiles.times(head, mask.head as u64));
            let start = self.tiles.b.alu(Alu::Add, &[item, head]);
            (mask, mem, self.tiles.b.bind("mask", start))
        });
        Head {
            queries: self.matrix(self.queries, number, queries, width),
            keys: self.matrix(self.keys, shared, keys, width),
            values: self.matrix(self.values, shared, keys, depth),
            mask,
        }
    }

    /// Returns the group's query head with its index.
    fn own_head(&mut self) -> (ExprId, Head) {
        let number = self.tiles.b.builtin(Builtin::GroupId(2));
        let (item, head) = self.tiles.split(number, self.of.heads as u64);
        (number, self.head(number, item, head))
    }

    /// Returns the first row that a group owns.
    fn first(&mut self) -> ExprId {
        let group = self.tiles.b.builtin(Builtin::GroupId(0));
        let first = self.tiles.times(group, self.tiles.t.owned());
        self.tiles.b.bind("first", first)
    }

    /// Returns the number of keys before the first query, if some key is not visible to all queries.
    fn past(&self) -> Option<u64> {
        self.of.past.filter(|past| *past < self.of.keys - 1).map(|past| past as u64)
    }

    /// Returns the exclusive end of the keys visible to the group's queries from `first` on.
    fn end(&mut self, first: ExprId) -> ExprId {
        let keys = self.tiles.b.index(self.of.keys as u64);
        let Some(past) = self.past() else { return keys };
        let last = self.tiles.plus(first, past + self.tiles.t.owned());
        let end = self.tiles.b.alu(Alu::Min, &[last, keys]);
        self.tiles.b.bind("end", end)
    }

    /// Returns the score for the product of a query and a key, minus infinity if the key is masked or either is out of
    /// range.
    fn score(&mut self, product: ExprId, head: &Head, query: (ExprId, bool), key: (ExprId, bool)) -> ExprId {
        let (scale, never) = (self.tiles.number(self.of.scale.to_f64()), self.tiles.number(f64::NEG_INFINITY));
        let mut score = self.tiles.b.alu(Alu::Mul, &[product, scale]);
        let open = [(query, self.of.queries), (key, self.of.keys)];
        let open = open.map(|((at, open), bound)| open.then_some((at, bound as u64)));
        let mut seen = self.tiles.below(&open);
        if let Some(past) = self.past() {
            let last = self.tiles.plus(query.0, past);
            let before = self.tiles.b.alu(Alu::Le, &[key.0, last]);
            seen = self.tiles.both(seen, before);
        }
        if let Some((mask, mem, start)) = head.mask {
            let (row, column) =
                (self.tiles.times(query.0, mask.query as u64), self.tiles.times(key.0, mask.key as u64));
            let at = self.tiles.b.alu(Alu::Add, &[start, row]);
            let at = self.tiles.b.alu(Alu::Add, &[at, column]);
            let mask_value = self.tiles.b.load(mem, at, if seen.is_some() { Guard::Checked } else { Guard::Proven });
            score = if mask.dtype == DType::Bool {
                self.tiles.b.alu(Alu::Select, &[mask_value, score, never])
            } else {
                let added = self.tiles.b.cast(self.tiles.sum, mask_value);
                self.tiles.b.alu(Alu::Add, &[score, added])
            };
        }
        let score = seen.map_or(score, |seen| self.tiles.b.alu(Alu::Select, &[seen, score, never]));
        self.tiles.b.bind("score", score)
    }

    /// Returns the value subtracted before exponentials: the maximum, or 0 if it is minus infinity because no key is
    /// visible.
    fn base(&mut self, top: ExprId) -> ExprId {
        let (never, zero) = (self.tiles.number(f64::NEG_INFINITY), self.tiles.number(0.0));
        let blind = self.tiles.b.alu(Alu::Eq, &[top, never]);
        let base = self.tiles.b.alu(Alu::Select, &[blind, zero, top]);
        self.tiles.b.bind("base", base)
    }

    /// Returns `exp(of - less)`.
    fn power(&mut self, of: ExprId, less: ExprId) -> ExprId {
        let difference = self.tiles.b.alu(Alu::Sub, &[of, less]);
        let power = self.tiles.b.alu(Alu::Math(Math::Exp), &[difference]);
        self.tiles.b.bind("power", power)
    }
}

/// The forward kernel, with the state of each of a work-item's queries.
struct Forward<'a> {
    heads: Heads<'a>,
    /// Running maximum of the scores.
    tops: Vec<LocalId>,
    /// A work-item's part of the sum of exponentials.
    parts: Vec<LocalId>,
    /// Output before division by the sum.
    sums: Vec<LocalId>,
    /// Shared memory for exchanging one number per work-item within a line.
    line: MemId,
}

/// Shared memory of the forward kernel.
#[derive(Clone, Copy)]
struct SharedTiles {
    queries: SharedTile,
    keys: SharedTile,
    values: SharedTile,
    weights: Option<SharedTile>,
}

impl<'a> Forward<'a> {
    fn write(of: &'a Attention, t: Tiling, fused: bool) -> Builder {
        let mut heads = Heads::new("attention", of, t, fused);
        let tiles = &mut heads.tiles;
        let output = tiles.b.buffer("output", of.dtype, Access::Out);
        let logsumexp = tiles.b.buffer("logsumexp", tiles.sum, Access::Out);
        let queries = tiles.shared_tile("tile_of_queries", t.owned(), of.width as u64);
        let [keys, values] = tiles.either("tile_of_keys", t.streamed(), of.width as u64, of.depth as u64);
        let shared = SharedTiles { queries, keys, values, weights: tiles.weights("weights") };
        let line = tiles.b.shared("line", tiles.sum, (t.owned() * t.line()) as u32);
        let ((number, head), first) = (heads.own_head(), heads.first());
        let tiles = &mut heads.tiles;
        tiles.load_tile(head.queries, first, queries);
        let never = tiles.number(f64::NEG_INFINITY);
        let tops = (0..tiles.rows()).map(|_| tiles.b.declare("top", never, true)).collect();
        let (parts, sums) = (tiles.zeros("part", tiles.rows()), tiles.result(of.depth as u64));
        let (start, end) = (tiles.b.index(0), heads.end(first));
        let step = heads.tiles.b.index(t.streamed());
        let tile = heads.tiles.b.begin_for("tile", start, end, step);
        let mut forward = Forward { heads, tops, parts, sums, line };
        forward.process_key_tile(&head, [first, tile], shared);
        forward.heads.tiles.b.end();
        let output = forward.heads.matrix(output, number, of.queries, of.depth);
        let logsumexp = forward.heads.matrix(logsumexp, number, of.queries, 1);
        forward.finish(output, logsumexp, first);
        forward.heads.tiles.b
    }

    /// Processes a tile of keys and values.
    fn process_key_tile(&mut self, head: &Head, [first, tile]: [ExprId; 2], shared: SharedTiles) {
        self.heads.tiles.load_tile(head.keys, tile, shared.keys);
        self.heads.tiles.b.barrier();
        let products = self.heads.tiles.outer_products(shared.queries, shared.keys);
        let scores = self.scores(head, [first, tile], products);
        for (row, scores) in scores.chunks(scores.len() / self.tops.len()).enumerate() {
            let b = &mut self.heads.tiles.b;
            let largest = scores.iter().copied().reduce(|x, y| b.alu(Alu::Max, &[x, y]));
            self.publish(row, largest.expect("every work-item has at least one column"));
        }
        self.heads.tiles.b.barrier();
        let (mut weights, mut shrunk) = (Vec::with_capacity(scores.len()), Vec::new());
        for (row, scores) in scores.chunks(scores.len() / self.tops.len()).enumerate() {
            let before = self.heads.tiles.b.get(self.tops[row]);
            let before = self.heads.tiles.b.bind("before", before);
            let top = self.line_reduce(row, Alu::Max, before);
            self.heads.tiles.b.assign(self.tops[row], top);
            let base = self.heads.base(top);
            let less = self.heads.power(before, base);
            let part = self.heads.tiles.b.get(self.parts[row]);
            let mut part = self.heads.tiles.b.alu(Alu::Mul, &[part, less]);
            for score in scores {
                let power = self.heads.power(*score, base);
                part = self.heads.tiles.b.alu(Alu::Add, &[part, power]);
                weights.push(power);
            }
            self.heads.tiles.b.assign(self.parts[row], part);
            shrunk.push(less);
        }
        let tiles = &mut self.heads.tiles;
        tiles.store_weights(shared.weights, &weights);
        tiles.load_tile(head.values, tile, shared.values);
        tiles.b.barrier();
        tiles.add_weighted(shared.weights, &weights, shared.values, &shrunk, &self.sums);
        tiles.b.barrier();
    }

    /// Returns a work-item's scores, query by query.
    fn scores(&mut self, head: &Head, [first, tile]: [ExprId; 2], products: Vec<ExprId>) -> Vec<ExprId> {
        let (of, t) = (self.heads.of, self.heads.tiles.t);
        // A query out of range reads no mask; its scores are discarded.
        let open_query = !(of.queries as u64).is_multiple_of(t.owned()) && head.mask.is_some();
        let open_key = !(of.keys as u64).is_multiple_of(t.streamed());
        let columns = self.heads.tiles.columns();
        let score = |(n, product)| {
            let tiles = &mut self.heads.tiles;
            let (row, column) = (tiles.owned_row(n / columns), tiles.streamed_row(n % columns));
            let (query, key) = (tiles.b.alu(Alu::Add, &[first, row]), tiles.b.alu(Alu::Add, &[tile, column]));
            self.heads.score(product, head, (query, open_query), (key, open_key))
        };
        (0..).zip(products).map(score).collect()
    }

    /// Publishes a number of an owned row to the line.
    fn publish(&mut self, row: usize, value: ExprId) {
        let start = self.place(row);
        let tiles = &mut self.heads.tiles;
        let at = tiles.b.alu(Alu::Add, &[start, tiles.column]);
        tiles.b.store(self.line, at, value, Guard::Proven);
    }

    /// Reduces the numbers that a line's work-items have published.
    fn line_reduce(&mut self, row: usize, op: Alu, first: ExprId) -> ExprId {
        let start = self.place(row);
        let tiles = &mut self.heads.tiles;
        let mut all = first;
        for n in 0..tiles.t.line() {
            let at = tiles.plus(start, n);
            let one = tiles.b.load(self.line, at, Guard::Proven);
            all = tiles.b.alu(op, &[all, one]);
        }
        tiles.b.bind("all", all)
    }

    fn place(&mut self, row: usize) -> ExprId {
        let row = self.heads.tiles.owned_row(row as u64);
        self.heads.tiles.times(row, self.heads.tiles.t.line())
    }

    /// Divides by the sums, and stores the log-sum-exp.
    fn finish(&mut self, output: MatrixRef, logsumexp: MatrixRef, first: ExprId) {
        for (row, part) in self.parts.clone().into_iter().enumerate() {
            let part = self.heads.tiles.b.get(part);
            self.publish(row, part);
        }
        self.heads.tiles.b.barrier();
        let [never, zero, one] = [f64::NEG_INFINITY, 0.0, 1.0].map(|value| self.heads.tiles.number(value));
        let (mut values, mut divisors) = (Vec::new(), Vec::new());
        for (row, top) in self.tops.clone().into_iter().enumerate() {
            let total = self.line_reduce(row, Alu::Add, zero);
            let top = self.heads.tiles.b.get(top);
            let base = self.heads.base(top);
            let b = &mut self.heads.tiles.b;
            let blind = b.alu(Alu::Eq, &[top, never]);
            let divisor = b.alu(Alu::Select, &[blind, one, total]);
            divisors.push(b.bind("divisor", divisor));
            let logarithm = b.alu(Alu::Math(Math::Log), &[total]);
            values.push(b.alu(Alu::Add, &[base, logarithm]));
        }
        let tiles = &mut self.heads.tiles;
        tiles.store(output, first, &self.sums, |tiles, row, sum| tiles.b.alu(Alu::Div, &[sum, divisors[row]]));
        let line_start = tiles.b.index(0);
        let once = tiles.b.alu(Alu::Eq, &[tiles.column, line_start]);
        tiles.b.begin_if(once);
        for (row, value) in (0..).zip(values) {
            let row = tiles.owned_row(row);
            let query = tiles.b.alu(Alu::Add, &[first, row]);
            let open = !logsumexp.rows.is_multiple_of(tiles.t.owned());
            let inside = tiles.below(&[open.then_some((query, logsumexp.rows))]);
            inside.iter().for_each(|inside| tiles.b.begin_if(*inside));
            let at = tiles.b.alu(Alu::Add, &[logsumexp.start, query]);
            tiles.b.store(logsumexp.mem, at, value, Guard::Proven);
            inside.iter().for_each(|_| tiles.b.end());
        }
        tiles.b.end();
    }
}
