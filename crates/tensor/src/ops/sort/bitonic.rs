//! Bitonic sorting network for long rows: n · log² n comparisons, independent of the data. Each step is a kernel over
//! all elements; the steps within a tile of adjacent elements are one kernel.
//!
//! The network compares unsigned integers. Numbers are mapped to integers of the same order, which handles NaN and
//! signed zeros. Ties are broken by position, which makes the sort stable.
//!
//! Source: Batcher, Sorting Networks and Their Applications, 1968.

use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, Builtin, ExprId, Guard, Kernel, MemId};
use panoply_ir::{Alu, DType, Result, Scalar, Shape, Type};

use super::{SortOrder, rows_of};
use crate::tensor::Tensor;

/// Logarithm of the number of elements of a tile, one work-group, which every device supports.
const TILE: u32 = 8;

/// Returns the first `count` elements of the last axis in sorted order and their positions, for types of at most 32
/// bits.
pub fn in_order(x: &Tensor, order: SortOrder, count: usize) -> [Tensor; 2] {
    let (rows, length) = rows_of(x);
    let whole = length.next_power_of_two().max(1 << TILE);
    let (words, flat) = (words(x, order), Shape::from([rows * whole]));
    // Padding is the largest integer, at positions after all elements.
    let fill = Tensor::full([rows, whole - length], Scalar::from(u32::MAX));
    let mut words = Tensor::concat([words.reshaped([rows, length].into()), fill], 1).reshaped(flat.clone());
    let mut places = Tensor::arange(whole).cast(DType::U32).expanded(&[rows, whole].into()).reshaped(flat.clone());
    let mut run = |kernel: fn() -> Result<Kernel>, numbers: [u32; 2]| {
        let [mask, first, second] =
            [whole as u32 - 1, numbers[0], numbers[1]].map(|number| Tensor::constant(Scalar::from(number)));
        let shapes = [flat.clone(), flat.clone()];
        let [after, moved] =
            Tensor::custom_kernel(kernel, &[&words, &places, &mask, &first, &second], shapes, rows * whole);
        (words, places) = (after, moved);
    };
    run(tile, [1, TILE + 1]);
    for level in TILE + 1..=whole.ilog2() {
        (TILE..level).rev().for_each(|distance| run(step, [level, distance]));
        run(tile, [level, level + 1]);
    }
    let places = places.reshaped([rows, whole].into()).narrow(1, 0, count).cast(DType::I32);
    let lead = x.0.shape.dims().split_last().map_or(&[][..], |(_, lead)| lead);
    let places = places.reshaped([lead, &[count]].concat().into());
    [x.take_along_dim(&places, -1), places]
}

/// Returns true if the rows are not empty, the elements fit in 32 bits, and their positions do as well.
pub fn takes(x: &Tensor) -> bool {
    let (rows, length) = rows_of(x);
    let elems = length.checked_next_power_of_two().and_then(|whole| rows.checked_mul(whole));
    x.dtype().bytes() <= 4 && rows > 0 && elems.is_some_and(|elems| elems <= u32::MAX as usize)
}

/// Maps numbers to unsigned integers of the same order, NaN last; inverted for descending order.
fn words(x: &Tensor, order: SortOrder) -> Tensor {
    let word = |value: u32| Tensor::constant(Scalar::from(value));
    let top = word(1 << 31);
    let words = if x.dtype().is_float() {
        // Adding zero gives both zeros the same sign.
        let single = x.cast(DType::F32) + Tensor::constant(Scalar::from(0f32));
        let bits = single.bitcast(DType::U32);
        let negative = bits.bitwise_and(&top).ne(&word(0));
        let turned = bits.bitwise_xor(&word(u32::MAX).where_self(&negative, &top));
        turned.where_self(&single.eq(&single), &word(u32::MAX))
    } else if x.dtype() == DType::U32 {
        x.clone()
    } else {
        x.cast(DType::I32).bitcast(DType::U32).bitwise_xor(&top)
    };
    if order == SortOrder::Descending { words.bitwise_xor(&word(u32::MAX)) } else { words }
}

/// An integer key and its original position.
type Item = [ExprId; 2];

struct Network {
    b: Builder,
}

/// Builds the kernel for all steps of some levels whose distances are within a tile.
fn tile() -> Result<Kernel> {
    let mut n = Network { b: Builder::new("sort_tile") };
    n.b.group_size([1 << TILE, 1, 1]);
    let [words, places, after, moved] = n.buffers();
    let [mask, from, to] = n.numbers(["mask", "from", "to"]);
    let shared = ["tile_words", "tile_places"].map(|name| n.b.shared(name, DType::U32, 1 << TILE));
    let (at, lane) = (n.b.builtin(Builtin::GlobalId(0)), n.b.builtin(Builtin::LocalId(0)));
    for (memory, tile) in [words, places].into_iter().zip(shared) {
        let value = n.b.load(memory, at, Guard::Checked);
        n.b.store(tile, lane, value, Guard::Checked);
    }
    let [from, to] = [from, to].map(|level| n.b.cast(Type::Index, level));
    let (zero, one) = (n.b.index(0), n.b.index(1));
    let level = n.b.begin_for("level", from, to, one);
    let most = n.b.index(u64::from(TILE));
    let steps = n.b.alu(Alu::Min, &[level, most]);
    let turn = n.b.begin_for("turn", zero, steps, one);
    let distance = n.b.alu(Alu::Sub, &[steps, turn]);
    let distance = n.b.alu(Alu::Sub, &[distance, one]);
    let [level, distance, near, far] = [level, distance, lane, at].map(|value| n.b.cast(DType::U32, value));
    let distance = n.power(distance);
    let partner = n.b.alu(Alu::Xor, &[near, distance]);
    let partner = n.b.cast(Type::Index, partner);
    n.b.barrier();
    let mine = n.item(shared, lane);
    let theirs = n.item(shared, partner);
    n.b.barrier();
    let place = n.b.alu(Alu::And, &[far, mask]);
    let chosen = n.chosen(mine, theirs, [place, level, distance]);
    shared.into_iter().zip(chosen).for_each(|(tile, value)| n.b.store(tile, lane, value, Guard::Checked));
    n.b.end();
    n.b.end();
    for (memory, tile) in [after, moved].into_iter().zip(shared) {
        let value = n.b.load(tile, lane, Guard::Checked);
        n.b.store(memory, at, value, Guard::Checked);
    }
    n.b.finish()
}

/// Builds the kernel for one step of a level at one distance.
fn step() -> Result<Kernel> {
    let mut n = Network { b: Builder::new("sort_step") };
    let [words, places, after, moved] = n.buffers();
    let [mask, level, distance] = n.numbers(["mask", "level", "distance"]);
    let at = n.b.builtin(Builtin::GlobalId(0));
    let far = n.b.cast(DType::U32, at);
    let distance = n.power(distance);
    let partner = n.b.alu(Alu::Xor, &[far, distance]);
    let partner = n.b.cast(Type::Index, partner);
    let mine = n.item([words, places], at);
    let theirs = n.item([words, places], partner);
    let place = n.b.alu(Alu::And, &[far, mask]);
    let chosen = n.chosen(mine, theirs, [place, level, distance]);
    [after, moved].into_iter().zip(chosen).for_each(|(memory, value)| n.b.store(memory, at, value, Guard::Checked));
    n.b.finish()
}

impl Network {
    /// Declares the buffers: keys and positions before and after.
    fn buffers(&mut self) -> [MemId; 4] {
        let names = [("words", Access::In), ("places", Access::In), ("after", Access::Out), ("moved", Access::Out)];
        names.map(|(name, access)| self.b.buffer(name, DType::U32, access))
    }

    fn numbers<const N: usize>(&mut self, names: [&str; N]) -> [ExprId; N] {
        names.map(|name| self.b.scalar(name, DType::U32))
    }

    fn power(&mut self, exponent: ExprId) -> ExprId {
        let one = self.b.constant(1u32);
        let power = self.b.alu(Alu::Shl, &[one, exponent]);
        self.b.bind("distance_elems", power)
    }

    fn item(&mut self, memory: [MemId; 2], at: ExprId) -> Item {
        memory.map(|memory| {
            let value = self.b.load(memory, at, Guard::Checked);
            self.b.bind("word", value)
        })
    }

    /// Returns which of two items is kept at the first one's place, which is `place` of its row.
    fn chosen(&mut self, mine: Item, theirs: Item, [place, level, distance]: [ExprId; 3]) -> Item {
        let zero = self.b.constant(0u32);
        let level = self.power(level);
        let (less, equal) = (self.b.alu(Alu::Lt, &[theirs[0], mine[0]]), self.b.alu(Alu::Eq, &[theirs[0], mine[0]]));
        let earlier = self.b.alu(Alu::Lt, &[theirs[1], mine[1]]);
        let tie = self.b.alu(Alu::And, &[equal, earlier]);
        let theirs_first = self.b.alu(Alu::Or, &[less, tie]);
        // Every second run of a level is descending; in an ascending run the first of a pair is the smaller.
        let bits = [level, distance].map(|bit| self.b.alu(Alu::And, &[place, bit]));
        let [down, second] = bits.map(|bit| self.b.alu(Alu::Ne, &[bit, zero]));
        let wants_last = self.b.alu(Alu::Xor, &[down, second]);
        let takes = self.b.alu(Alu::Xor, &[theirs_first, wants_last]);
        [0, 1].map(|part| self.b.alu(Alu::Select, &[takes, theirs[part], mine[part]]))
    }
}
