//! The gradient of attention in two kernels. A group owns queries in one and keys in the other, so no group adds to
//! results of another. Both recompute the scores, and the attention weights from the log-sum-exp.
//!
//! With attention weights p and their gradient d, which is the output gradient times the values, the gradient of the
//! scores is p (d - mean). The mean of d weighted by p equals the product of the output with its gradient, summed over
//! each row. Both kernels receive that mean as an input.
//!
//! Source: Dao, FlashAttention-2, 2023, algorithm 2, without its atomic additions.

use std::sync::Arc;

use panoply_ir::alu::Alu;
use panoply_ir::builder::Builder;
use panoply_ir::custom_kernel::CustomKernel;
use panoply_ir::kernel::{Access, Builtin, ExprId, LocalId, MemId};
use panoply_ir::routine::{Attention, Routine};
use panoply_ir::{MathMode, Shape, Target};

use super::super::custom_kernel;
use super::super::tiles::{MatrixRef, SharedTile};
use super::super::tiling::Tiling;
use super::{Head, Heads, fits, fragments, wide};
use crate::opt::contract;

/// Returns the kernels for the gradient of the queries, and of keys and values; `None` if the body is faster.
pub(in super::super) fn gradient(
    of: &Attention,
    results: &[Shape],
    target: &Target,
    math_mode: MathMode,
) -> Option<[Arc<CustomKernel>; 2]> {
    let routine = Routine::AttentionBackward(*of);
    // Neither kernel writes all results.
    if !fits(&routine, of, target, math_mode, routine.operands().count() - 1) {
        return None;
    }
    let (sum, width, depth) = (wide(of.dtype), of.width as u64, of.depth as u64);
    let bytes = |t: Tiling, side: OwnedRows| {
        let both = |rows: u64| t.bytes(sum, rows, width) + t.bytes(sum, rows, depth);
        let copies = t.copy_bytes(sum, t.streamed(), width);
        let more = match side {
            OwnedRows::Queries => t.weights_bytes(sum),
            OwnedRows::Keys => 2 * t.weights_bytes(sum) + t.copy_bytes(sum, t.streamed(), depth),
        };
        both(t.owned()) + both(t.streamed()) + copies + more
    };
    let (fused, fragments) = (contract::in_sums(target, math_mode), fragments(of, target));
    let written = |side: OwnedRows, rows: usize, matrices: usize, results: &[Shape]| {
        let (rows, matrices) = (rows as u64, matrices as u64);
        let write = |t: Tiling| {
            let kernel = match side {
                OwnedRows::Queries => Backward::grad_queries(of, t, fused),
                OwnedRows::Keys => Backward::grad_keys_values(of, t, fused),
            };
            (kernel, t.grid(rows, matrices))
        };
        let variants = Tiling::fitting(target, fragments, [rows, matrices], |t| bytes(t, side));
        custom_kernel(variants.into_iter().map(write), results)
    };
    Some([
        written(OwnedRows::Queries, of.queries, of.batch * of.heads, &results[..1])?,
        written(OwnedRows::Keys, of.keys, of.batch * of.key_heads, &results[1..])?,
    ])
}

/// Matrix whose rows a group owns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnedRows {
    Queries,
    Keys,
}

/// A gradient kernel under construction, with its inputs besides queries, keys, values and mask.
struct Backward<'a> {
    heads: Heads<'a>,
    side: OwnedRows,
    logsumexp: MemId,
    means: MemId,
    grad_output: MemId,
    /// Output buffers.
    results: Vec<MemId>,
    /// Tiles of (queries, output gradient) or (keys, values): the group's owned rows, and the streamed rows.
    owned: [SharedTile; 2],
    streamed: [SharedTile; 2],
    /// Tiles of the streamed rows in the layout for weighted sums; the second is used only for the gradient of the values.
    summed: [SharedTile; 2],
    /// Tiles through which weights are exchanged: the gradient of the scores, and for values the attention weights.
    through: [Option<SharedTile>; 2],
}

/// Per query, the values subtracted from its scores and from the gradient of its attention weights.
#[derive(Clone, Copy)]
struct RowStats {
    base: ExprId,
    mean: ExprId,
}

impl<'a> Backward<'a> {
    fn new(side: OwnedRows, of: &'a Attention, t: Tiling, fused: bool) -> Backward<'a> {
        let (name, results) = match side {
            OwnedRows::Queries => ("attention_grad_queries", &["grad_queries"][..]),
            OwnedRows::Keys => ("attention_grad_keys", &["grad_keys", "grad_values"][..]),
        };
        let mut heads = Heads::new(name, of, t, fused);
        let (sum, tiles) = (heads.tiles.sum, &mut heads.tiles);
        let [logsumexp, means] = ["logsumexp", "means"].map(|name| tiles.b.buffer(name, sum, Access::In));
        let grad_output = tiles.b.buffer("grad_output", of.dtype, Access::In);
        let results = results.iter().map(|name| tiles.b.buffer(name, of.dtype, Access::Out)).collect();
        let mut shared = |names: [&str; 2], rows: u64| {
            [(names[0], of.width), (names[1], of.depth)]
                .map(|(name, width)| tiles.shared_tile(name, rows, width as u64))
        };
        let (of_queries, of_keys) = (["tile_of_queries", "tile_of_grad_output"], ["tile_of_keys", "tile_of_values"]);
        let (owned, streamed) = match side {
            OwnedRows::Queries => (shared(of_queries, t.owned()), shared(of_keys, t.streamed())),
            OwnedRows::Keys => (shared(of_keys, t.owned()), shared(of_queries, t.streamed())),
        };
        let (mut summed, mut through) = (streamed, [tiles.weights("grad_scores"), None]);
        summed[0] = tiles.transposed("transposed", streamed[0]);
        if side == OwnedRows::Keys {
            summed[1] = tiles.transposed("transposed_grad_output", streamed[1]);
            through[1] = tiles.weights("weights");
        }
        Backward { heads, side, logsumexp, means, grad_output, results, owned, streamed, summed, through }
    }

    fn grad_queries(of: &'a Attention, t: Tiling, fused: bool) -> Builder {
        let mut this = Backward::new(OwnedRows::Queries, of, t, fused);
        let ((number, head), first) = (this.heads.own_head(), this.heads.first());
        let grad_output = this.heads.matrix(this.grad_output, number, of.queries, of.depth);
        this.load_tiles([head.queries, grad_output], first, this.owned);
        let rows = this.heads.tiles.rows();
        let stats: Vec<RowStats> = (0..rows).map(|n| this.owned_stats(number, first, n)).collect();
        let sums = this.heads.tiles.result(of.width as u64);
        let (start, end) = (this.heads.tiles.b.index(0), this.heads.end(first));
        let step = this.heads.tiles.b.index(t.streamed());
        let tile = this.heads.tiles.b.begin_for("tile", start, end, step);
        this.load_streamed([head.keys, head.values], tile);
        this.heads.tiles.b.barrier();
        let [grad_scores, _] = this.weights(&head, [first, tile], |[row, _]| stats[row as usize]);
        this.heads.tiles.store_weights(this.through[0], &grad_scores);
        this.heads.tiles.b.barrier();
        this.heads.tiles.add_weighted(this.through[0], &grad_scores, this.summed[0], &[], &sums);
        this.heads.tiles.b.barrier();
        this.heads.tiles.b.end();
        let to = this.heads.matrix(this.results[0], number, of.queries, of.width);
        this.store_scaled(to, first, &sums);
        this.heads.tiles.b
    }

    fn grad_keys_values(of: &'a Attention, t: Tiling, fused: bool) -> Builder {
        let mut this = Backward::new(OwnedRows::Keys, of, t, fused);
        let (shared, first) = (this.heads.tiles.b.builtin(Builtin::GroupId(2)), this.heads.first());
        let (item, key_head) = this.heads.tiles.split(shared, of.key_heads as u64);
        let keys = this.heads.matrix(this.heads.keys, shared, of.keys, of.width);
        let values = this.heads.matrix(this.heads.values, shared, of.keys, of.depth);
        this.load_tiles([keys, values], first, this.owned);
        let sums = [of.width, of.depth].map(|width| this.heads.tiles.result(width as u64));
        // Iterate over the query heads that share these keys.
        let together = (of.heads / of.key_heads) as u64;
        let tiles = &mut this.heads.tiles;
        let [start, end, step] = [0, together, 1].map(|number| tiles.b.index(number));
        let number = tiles.b.begin_for("head", start, end, step);
        let before = tiles.times(key_head, together);
        let head = tiles.b.alu(Alu::Add, &[before, number]);
        let before = tiles.times(item, of.heads as u64);
        let number = tiles.b.alu(Alu::Add, &[before, head]);
        let number = tiles.b.bind("number", number);
        let head = this.heads.head(number, item, head);
        this.all_queries(number, &head, first, &sums);
        this.heads.tiles.b.end();
        let grad_keys = this.heads.matrix(this.results[0], shared, of.keys, of.width);
        let grad_values = this.heads.matrix(this.results[1], shared, of.keys, of.depth);
        this.store_scaled(grad_keys, first, &sums[0]);
        this.heads.tiles.store(grad_values, first, &sums[1], |_, _, sum| sum);
        this.heads.tiles.b
    }

    /// Iterates over the queries of a head that see keys from `first` on.
    fn all_queries(&mut self, number: ExprId, head: &Head, first: ExprId, sums: &[Vec<LocalId>; 2]) {
        let (of, streamed) = (self.heads.of, self.heads.tiles.t.streamed());
        let grad_output = self.heads.matrix(self.grad_output, number, of.queries, of.depth);
        let start = self.first_query(first);
        let [end, step] = [of.queries as u64, streamed].map(|number| self.heads.tiles.b.index(number));
        let tile = self.heads.tiles.b.begin_for("tile", start, end, step);
        self.load_streamed([head.queries, grad_output], tile);
        self.heads.tiles.b.barrier();
        let columns = self.heads.tiles.columns();
        let stats: Vec<RowStats> = (0..columns).map(|n| self.streamed_stats(number, tile, n)).collect();
        let weights = self.weights(head, [first, tile], |[_, column]| stats[column as usize]);
        let tiles = &mut self.heads.tiles;
        self.through.iter().zip(&weights).for_each(|(through, weights)| tiles.store_weights(*through, weights));
        tiles.b.barrier();
        for (at, weights) in weights.iter().enumerate() {
            tiles.add_weighted(self.through[at], weights, self.summed[at], &[], &sums[at]);
        }
        tiles.b.barrier();
        tiles.b.end();
    }

    /// Returns the first query of the first tile that sees keys from `first` on.
    fn first_query(&mut self, first: ExprId) -> ExprId {
        let past = self.heads.past();
        let tiles = &mut self.heads.tiles;
        let Some(past) = past else { return tiles.b.index(0) };
        // Avoids wrapping below zero.
        let past = tiles.b.index(past);
        let most = tiles.b.alu(Alu::Max, &[first, past]);
        let query = tiles.b.alu(Alu::Sub, &[most, past]);
        let (tile, _) = tiles.split(query, tiles.t.streamed());
        let start = tiles.times(tile, tiles.t.streamed());
        tiles.b.bind("start", start)
    }

    fn load_tiles(&mut self, from: [MatrixRef; 2], first: ExprId, to: [SharedTile; 2]) {
        from.into_iter().zip(to).for_each(|(from, to)| self.heads.tiles.load_tile(from, first, to));
    }

    fn load_streamed(&mut self, from: [MatrixRef; 2], first: ExprId) {
        self.load_tiles(from, first, self.streamed);
        for ((from, whole), summed) in from.into_iter().zip(self.streamed).zip(self.summed) {
            if summed != whole {
                self.heads.tiles.load_tile(from, first, summed);
            }
        }
    }

    /// Loads the statistics of the n-th of a work-item's owned queries, for the head with index `number`.
    fn owned_stats(&mut self, number: ExprId, first: ExprId, n: u64) -> RowStats {
        let row = self.heads.tiles.owned_row(n);
        self.stats(number, first, row)
    }

    /// Loads the statistics of its n-th streamed query.
    fn streamed_stats(&mut self, number: ExprId, first: ExprId, n: u64) -> RowStats {
        let row = self.heads.tiles.streamed_row(n);
        self.stats(number, first, row)
    }

    fn stats(&mut self, number: ExprId, first: ExprId, row: ExprId) -> RowStats {
        let (open, queries) = (self.open()[0], self.heads.of.queries as u64);
        let tiles = &mut self.heads.tiles;
        let query = tiles.b.alu(Alu::Add, &[first, row]);
        let inside = tiles.below(&[open.then_some((query, queries))]);
        let before = tiles.times(number, queries);
        let at = tiles.b.alu(Alu::Add, &[before, query]);
        let [logarithm, mean] = [self.logsumexp, self.means].map(|mem| {
            let value = tiles.read(mem, at, inside);
            tiles.b.bind("stats", value)
        });
        RowStats { base: self.heads.base(logarithm), mean }
    }

    /// Returns whether the last tile of the queries, and of the keys, is partial.
    fn open(&self) -> [bool; 2] {
        let (t, of) = (self.heads.tiles.t, self.heads.of);
        let (queries, keys) = match self.side {
            OwnedRows::Queries => (t.owned(), t.streamed()),
            OwnedRows::Keys => (t.streamed(), t.owned()),
        };
        [!(of.queries as u64).is_multiple_of(queries), !(of.keys as u64).is_multiple_of(keys)]
    }

    /// Returns the gradients of a work-item's scores, owned row by owned row, and their attention weights.
    fn weights(&mut self, head: &Head, at: [ExprId; 2], stats: impl Fn([u64; 2]) -> RowStats) -> [Vec<ExprId>; 2] {
        let products = self.heads.tiles.outer_products(self.owned[0], self.streamed[0]);
        let grad_weights = self.heads.tiles.outer_products(self.owned[1], self.streamed[1]);
        let ([open_query, open_key], masked) = (self.open(), head.mask.is_some());
        let columns = self.heads.tiles.columns();
        let (mut grad_scores, mut weights) = (Vec::new(), Vec::new());
        for (n, (product, grad_weight)) in (0..).zip(products.into_iter().zip(grad_weights)) {
            let [row, column] = [n / columns, n % columns];
            let tiles = &mut self.heads.tiles;
            let own = tiles.owned_row(row);
            let own = tiles.b.alu(Alu::Add, &[at[0], own]);
            let other = tiles.streamed_row(column);
            let other = tiles.b.alu(Alu::Add, &[at[1], other]);
            // An owned row out of range reads no mask; its sums are discarded.
            let (query, key) = match self.side {
                OwnedRows::Queries => ((own, open_query && masked), (other, open_key)),
                OwnedRows::Keys => ((other, open_query), (own, open_key && masked)),
            };
            let score = self.heads.score(product, head, query, key);
            let RowStats { base, mean } = stats([row, column]);
            let weight = self.heads.power(score, base);
            let b = &mut self.heads.tiles.b;
            let less = b.alu(Alu::Sub, &[grad_weight, mean]);
            let grad_score = b.alu(Alu::Mul, &[weight, less]);
            grad_scores.push(b.bind("grad_score", grad_score));
            weights.push(weight);
        }
        [grad_scores, weights]
    }

    /// Stores the gradient of factors of scaled products.
    fn store_scaled(&mut self, to: MatrixRef, first: ExprId, sums: &[LocalId]) {
        let scale = self.heads.tiles.number(self.heads.of.scale.to_f64());
        self.heads.tiles.store(to, first, sums, |tiles, _, sum| tiles.b.alu(Alu::Mul, &[sum, scale]));
    }
}
