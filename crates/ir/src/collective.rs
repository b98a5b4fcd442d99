//! Collective operations of work-items.
//!
//! [`Mma`] multiplies matrices: 32 work-items with consecutive linear local ids compute 16 × 8 elements of `C + A B`. A has 16 × 16
//! elements of f16 or bf16, B has 16 × 8 of the same type, and C and the result are f32. Each of the 32 holds *fragments* of the matrices
//! in the layout of NVIDIA's `mma.m16n8k16`. With l its index among the 32, g = l / 4 and t = l % 4:
//!
//! | matrix | fragment | position of its n-th element |
//! |---|---|---|
//! | A | four words | row g + 8 (n % 2), columns 2 t + 8 (n / 2) and the next |
//! | B | two words | column g, rows 2 t + 8 n and the next |
//! | C and the result | four f32 | row g + 8 (n / 2), column 2 t + n % 2 |
//!
//! A word is a u32 of two elements, the first in its low half. The device's subgroup size does not matter.
//!
//! Products are exact in f32 (except for those of bf16 beyond its range). In the interpreter, and where the target has no such
//! instruction, they are added to an element of C one after the other along A's columns, and each addition is rounded. An instruction
//! adds and rounds in its own way, so results are bitwise equal only if every partial sum is exact.

use crate::dtype::DType;
use crate::kernel::ExprId;
use crate::reduce::ReduceOp;

/// A combination of values over work-items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CollectiveOp {
    /// Reduction; every work-item gets the result. The order is a fixed tree, equal on every device: for each width w, from half of the
    /// next power of two down to 1, the item with linear id l < w combines its value with that of l + w, if that exists.
    Reduce(ReduceOp),
    /// Inclusive scan in order of linear local id.
    InclusiveScan(ReduceOp),
    /// Exclusive scan in order of linear local id; the first work-item gets the identity.
    ExclusiveScan(ReduceOp),
    /// Broadcast of the value of the work-item with this linear id in the scope.
    Broadcast(u32),
    /// Shuffle: the value of the lane of the subgroup given by a u32; the work-item's own value if there is no such lane.
    Shuffle(ExprId),
    /// Matrix multiply-accumulate: the work-item's fragment of C, four f32, plus its fragment of the product; see the module.
    Mma(Mma),
}

/// The work-items that a collective combines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The work-group; the linear local id is `x + size.x * (y + size.y * z)`.
    Group,
    /// The subgroup: consecutive linear local ids.
    Subgroup,
}

/// Operands of a matrix multiply-accumulate, besides the fragment of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mma {
    /// Element type of the words: f16 or bf16.
    pub dtype: DType,
    /// The fragment of A.
    pub a: [ExprId; 4],
    /// The fragment of B.
    pub b: [ExprId; 2],
}

impl Mma {
    /// Number of cooperating work-items.
    pub const LANES: u32 = 32;
    /// Rows of A, C and the result.
    pub const ROWS: u32 = 16;
    /// Columns of B, C and the result.
    pub const COLUMNS: u32 = 8;
    /// Columns of A and rows of B: the number of products per element.
    pub const K: u32 = 16;
    /// Elements of C per work-item.
    pub const ELEMENTS: u8 = 4;
}

impl CollectiveOp {
    /// Returns the operands besides the combined value.
    pub fn operands(mut self) -> Vec<ExprId> {
        self.operands_mut().into_iter().map(|operand| *operand).collect()
    }

    /// Mutable version of [`CollectiveOp::operands`].
    pub fn operands_mut(&mut self) -> Vec<&mut ExprId> {
        match self {
            CollectiveOp::Shuffle(lane) => vec![lane],
            CollectiveOp::Mma(Mma { a, b, .. }) => a.iter_mut().chain(b).collect(),
            CollectiveOp::Reduce(_)
            | CollectiveOp::InclusiveScan(_)
            | CollectiveOp::ExclusiveScan(_)
            | CollectiveOp::Broadcast(_) => vec![],
        }
    }
}
