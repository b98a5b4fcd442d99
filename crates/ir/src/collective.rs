//! What work-items that meet combine.
//!
//! [`Mma`] multiplies matrices: every 32 work-items of consecutive linear local ids give 16 × 8 elements of `C + A B`, where A
//! has 16 × 16 elements of f16 or bf16, B has 16 × 8 of the same type, and C and the result are f32. Each of the 32 holds
//! *fragments* of the matrices in the layout of NVIDIA's `mma.m16n8k16`. With l its number among the 32, g = l / 4 and t = l % 4:
//!
//! | of | it holds | n-th of them |
//! |---|---|---|
//! | A | four words | row g + 8 (n % 2), columns 2 t + 8 (n / 2) and the next |
//! | B | two words | column g, rows 2 t + 8 n and the next |
//! | C and the result | four f32 | row g + 8 (n / 2), column 2 t + n % 2 |
//!
//! A word is a u32 of two elements, the first in its low half. How large a device's subgroups are does not matter.
//!
//! Products are exact in f32 (but for those of bf16 beyond its range). Added to an element of C they are, in the interpreter and
//! wherever the target has no such instruction, one after the other along A's columns, each addition rounded. An instruction adds
//! in an order and rounds in a way of its own: results agree bit for bit only where every sum of them is exact.

use crate::dtype::DType;
use crate::kernel::ExprId;
use crate::reduce::ReduceOp;

/// A combination over work-items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CollectiveOp {
    /// Everybody gets the combination of all, by halves, so that every device adds in the same order: for each width w from
    /// half of the next power of two down to 1, the item with linear id l < w takes in that of l + w where there is one.
    Reduce(ReduceOp),
    /// Each gets the combination of those before it and itself, in order of linear local id.
    InclusiveScan(ReduceOp),
    /// Each gets the combination of those before it; the first gets the identity.
    ExclusiveScan(ReduceOp),
    /// Everybody gets the value of the work-item with this linear id within the scope.
    Broadcast(u32),
    /// Each gets the value of the work-item of its subgroup whose lane it names, a u32; its own where there is no such lane.
    Shuffle(ExprId),
    /// Each gets its fragment of a matrix, four f32, plus the product of two others; see the module.
    Mma(Mma),
}

/// Over whom a collective combines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The group; linear local id is `x + size.x * (y + size.y * z)`.
    Group,
    /// The subgroup: consecutive linear local ids.
    Subgroup,
}

/// What a work-item brings to a product of matrices besides its fragment of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mma {
    /// f16 or bf16: what the words hold two of.
    pub dtype: DType,
    /// Its words of A.
    pub a: [ExprId; 4],
    /// Its words of B.
    pub b: [ExprId; 2],
}

impl Mma {
    /// Work-items that multiply together.
    pub const ITEMS: u32 = 32;
    /// Rows of A, C and the result.
    pub const ROWS: u32 = 16;
    /// Columns of B, C and the result.
    pub const COLUMNS: u32 = 8;
    /// Columns of A and rows of B: the products that make an element.
    pub const INNER: u32 = 16;
    /// Elements of C that a work-item holds.
    pub const ELEMENTS: u8 = 4;
}

impl CollectiveOp {
    /// What it evaluates besides the value that is combined.
    pub fn operands(mut self) -> Vec<ExprId> {
        self.operands_mut().into_iter().map(|operand| *operand).collect()
    }

    /// The same, to be replaced.
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
