//! Tiles of matrix products on tensor cores: the 32 work-items of a warp together multiply fragments of f16 and bf16 (PTX's
//! `mma.m16n8k16`).
//!
//! Shared memory holds words of two elements that are adjacent along the inner dimension, as required by
//! [`panoply_ir::collective`]: A by rows and B by columns. Every warp accumulates a block of fragments, and loads the words
//! of a step once for all their products.

use panoply_ir::alu::Alu;
use panoply_ir::kernel::{Builtin, CollectiveOp, ExprId, Guard, LocalId, Mma, Scope};
use panoply_ir::{DType, Scalar};

use super::{MatmulTiling, Operand, SMEM_PADDING, Shape, Tiles};
use crate::schedule::loop_nest::{LoopNest, Value, ValueId};

/// Warps of a group along columns and rows, and the fragments of each warp along them. The largest tiles
/// come first, from 128 × 128 to 32 × 32. The choice has not been tuned by measurement on a GPU; sums use at most 64
/// registers of a work-item.
pub(super) const TILES: [Shape; 4] =
    [([4, 2], [4, 4], Some(128)), ([2, 2], [4, 4], None), ([2, 2], [4, 2], Some(64)), ([2, 2], [2, 1], Some(0))];

/// Steps along the inner dimension held in shared memory at a time: two fragment products.
const K_TILE: u64 = 32;

/// Position of a work-item's fragments in the tile.
#[derive(Clone, Copy)]
pub(super) struct FragmentOwnership {
    /// First row and first column of its warp's block.
    first: [ExprId; 2],
    /// Its row in a fragment of A, and its column in a fragment of B: PTX's `groupID`.
    g: ExprId,
    /// Its word along the inner dimension, and its pair of columns in a result fragment: PTX's `threadID_in_group`.
    t: ExprId,
}

impl MatmulTiling {
    /// Returns the tiling with fragments if both factors are 16-bit floats cast to a wider type; otherwise unchanged.
    pub(super) fn of_fragments(self, nest: &LoopNest) -> MatmulTiling {
        let half = |id: ValueId| match nest.values[id].0 {
            Value::Cast(of) => {
                Some((of, nest.values[of].1)).filter(|(_, dtype)| [DType::F16, DType::BF16].contains(dtype))
            }
            _ => None,
        };
        match (half(self.a), half(self.b)) {
            (Some((a, dtype)), Some((b, other))) if dtype == other => {
                MatmulTiling { a, b, k_tile: K_TILE, fragments: Some(dtype), ..self }
            }
            _ => self,
        }
    }
}

impl<'a> Tiles<'a> {
    /// Computes the position of the work-item's fragments.
    pub(super) fn own(&mut self) -> FragmentOwnership {
        let t = self.t;
        let item = self.e.b.builtin(Builtin::LocalId(0));
        let (warp, lane) = self.split(item, Mma::LANES.into());
        let (down, across) = self.split(warp, t.items[0]);
        let (row, column) = (
            self.times(down, t.block[1] * u64::from(Mma::ROWS)),
            self.times(across, t.block[0] * u64::from(Mma::COLUMNS)),
        );
        let (g, word) = self.split(lane, 4);
        let [row, column, g, word] = [row, column, g, word].map(|value| self.e.b.bind("own", value));
        FragmentOwnership { first: [row, column], g, t: word }
    }

    /// Returns quotient and remainder.
    fn split(&mut self, number: ExprId, size: u64) -> (ExprId, ExprId) {
        let size = self.e.b.index(size);
        (self.e.b.alu(Alu::Div, &[number, size]), self.e.b.alu(Alu::Rem, &[number, size]))
    }

    /// Returns a word of two elements of an operand that are adjacent along the inner dimension.
    pub(super) fn word(&mut self, operand: Operand<'a>, inner: ExprId, outer: ExprId) -> ExprId {
        let second = self.plus(inner, 1);
        let [low, high] = [inner, second].map(|inner| {
            let bits = self.checked(operand, inner, outer);
            self.e.b.cast(DType::U32, bits)
        });
        let by = self.e.b.constant(Scalar::from(16u32));
        let high = self.e.b.alu(Alu::Shl, &[high, by]);
        self.e.b.alu(Alu::Or, &[low, high])
    }

    /// Adds the products of the tiles in shared memory to a work-item's fragments.
    pub(super) fn multiply_fragments(
        &mut self,
        dtype: DType,
        own: FragmentOwnership,
        a: Operand<'a>,
        b: Operand<'a>,
        sums: &[LocalId],
    ) {
        let t = self.t;
        let words = u64::from(Mma::K) / 2;
        let (start, end, step) = (self.e.b.index(0), self.e.b.index(t.k_tile / 2), self.e.b.index(words));
        let step = self.e.b.begin_for("step", start, end, step);
        let left: Vec<[ExprId; 4]> = (0..t.block[1])
            .map(|y| [0, 1, 2, 3].map(|n| self.load_word(own, a, step, [16 * y + 8 * (n % 2), 4 * (n / 2)], 0)))
            .collect();
        let right: Vec<[ExprId; 2]> =
            (0..t.block[0]).map(|x| [0, 1].map(|n| self.load_word(own, b, step, [8 * x, 4 * n], 1))).collect();
        let pairs = left.iter().flat_map(|a| right.iter().map(move |b| (*a, *b)));
        for ((a, b), sum) in pairs.zip(sums) {
            let before = self.e.b.get(*sum);
            let after = self.e.b.collective(CollectiveOp::Mma(Mma { dtype, a, b }), Scope::Group, before);
            self.e.b.assign(*sum, after);
        }
        self.e.b.end();
    }

    /// Loads a word of a tile in shared memory, `down` rows or columns and `along` words after the work-item's own.
    fn load_word(
        &mut self,
        own: FragmentOwnership,
        operand: Operand<'a>,
        step: ExprId,
        [down, along]: [u64; 2],
        axis: usize,
    ) -> ExprId {
        let line = self.e.b.alu(Alu::Add, &[own.first[axis], own.g]);
        let start = self.times(line, self.t.k_tile / 2 + SMEM_PADDING);
        let word = self.e.b.alu(Alu::Add, &[own.t, step]);
        let at = self.e.b.alu(Alu::Add, &[start, word]);
        let at = self.plus(at, down * (self.t.k_tile / 2 + SMEM_PADDING) + along);
        let value = self.e.b.load(operand.shared_tile, at, Guard::Proven);
        self.e.b.bind("r", value)
    }

    /// Returns the row and column in the tile of element `number` (0 to 3) of the work-item's part of result fragment `[x, y]`,
    /// and the element.
    pub(super) fn element(
        &mut self,
        own: FragmentOwnership,
        [x, y]: [u64; 2],
        number: u8,
        sum: ExprId,
    ) -> (ExprId, ExprId, ExprId) {
        let n = u64::from(number);
        let row = self.e.b.alu(Alu::Add, &[own.first[0], own.g]);
        let row = self.plus(row, 16 * y + 8 * (n / 2));
        let pair = self.times(own.t, 2);
        let column = self.e.b.alu(Alu::Add, &[own.first[1], pair]);
        (row, self.plus(column, 8 * x + n % 2), self.e.b.extract(sum, number))
    }
}
