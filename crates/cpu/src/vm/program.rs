//! What a kernel is compiled to: a list of instructions over a frame of memory.
//!
//! A **block** of up to [`Program::lanes`] work-items runs the list together. The frame holds, in this order, one 8-byte
//! **slot** for each value that all lanes share, the **registers** with one lane per work-item, the bytes of the masks, and
//! the private and shared arrays. An operand is a slot, a register, or a **cell**: a slot that holds the address of lanes
//! which lie elsewhere, usually in a buffer, so that arithmetic reads and writes buffers without copies.
//!
//! Lanes have coordinates within the block's shape. An index that is a linear function of them is an [`Affine`]: a base
//! and three strides in slots, never lanes in a register unless something needs them.
//!
//! Instructions work on the lanes of the **current mask**, a range that may have holes. `compile` writes programs, `exec`
//! runs them; this module knows neither.

mod condition;
mod operands;

use panoply_ir::Alu;
use panoply_ir::kernel::{AtomicOp, CollectiveOp, Guard};

use super::isa::{Isa, VecFn};
use super::lane::{Lane, Round};
use super::ops::Ops;
use super::ops::mask::Combine;
use super::ops::memory::Move;
use super::ops::pair::Pair;

pub use self::condition::{Compare, Condition, Range};

/// A value that all lanes share, by its position in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub u32);

/// Slots the launch fills, before the compiler's own.
pub mod known {
    use super::Slot;

    /// The first work-item's global ids.
    pub const GLOBAL: u32 = 0;
    /// The group's ids.
    pub const GROUP: u32 = 3;
    /// Work-items asked for.
    pub const SIZE: u32 = 6;
    /// Groups.
    pub const GROUPS: u32 = 9;
    /// A constant 0.
    pub const ZERO: Slot = Slot(12);
    /// How many there are.
    pub const COUNT: u32 = 13;
}

/// Lanes that are active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mask(pub u32);

impl Mask {
    /// The lanes of the block that have not returned.
    pub const ROOT: Mask = Mask(0);
}

/// An instruction's position; before the layout, a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target(pub u32);

/// Where lanes or a value lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Src {
    /// The slot's number; the register's number before the layout and its offset in the frame after.
    pub at: u32,
    /// Bytes from one lane to the next; 0 if all lanes share one value.
    pub step: u8,
    /// How to read `at`.
    pub kind: Kind,
}

/// What an operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A value in a slot.
    Slot,
    /// Lanes in the frame.
    Reg,
    /// Lanes whose address is in a slot.
    Cell,
}

impl Src {
    /// An operand that is not used.
    pub const NONE: Src = Src::slot(known::ZERO);

    /// A value that all lanes share.
    pub const fn slot(slot: Slot) -> Src {
        Src { kind: Kind::Slot, step: 0, at: slot.0 }
    }

    /// Whether it has a value for each lane.
    pub const fn is_lanes(self) -> bool {
        self.step != 0
    }
}

/// The index `base + Σ strides[d] · coordinate[d]`, wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Affine {
    /// At coordinates 0.
    pub base: Slot,
    /// Along the axes of the block.
    pub strides: [Slot; 3],
}

/// Which element each lane means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// A linear function of the coordinates.
    Affine(Affine),
    /// u64 lanes.
    Lanes(Src),
}

/// A memory of the kernel, by its position in [`panoply_ir::kernel::Kernel::mems`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mem(pub u32);

/// An access to memory, apart from the place of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Which memory.
    pub mem: Mem,
    /// Bytes of an element.
    pub bytes: u8,
    /// Elements to add to the index, which must not wrap: the position in a vector.
    pub offset: u8,
    /// What happens beyond the length.
    pub guard: Guard,
}

/// What a loop computes, for the dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the tables in `ops`")]
pub enum LoopOp {
    Alu(Alu, Lane),
    Pair(Pair, Lane),
    Cast(Lane, Lane),
    Odd(Lane),
    Round(Round),
    Widen(Round),
    Narrow(Round),
    Copy,
    Splat,
}

/// A loop and its operands.
#[derive(Clone, Copy, Debug)]
pub struct VectorLoop {
    /// The loop.
    pub f: VecFn,
    /// Where the result goes.
    pub dst: Src,
    /// The operands; those a loop does not have are [`Src::NONE`].
    pub args: [Src; 3],
    /// What it computes.
    pub what: LoopOp,
    /// Whether lanes around the active ones may be computed too: only registers are touched, and nobody needs those lanes.
    pub may_overcompute: bool,
}

/// Lanes that loose work is rounded to: no loop has a ragged end then.
pub const ROUND_LANES: usize = 32;

/// Arithmetic on indices that all lanes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "as the operations of `Alu`")]
pub enum IndexOp {
    Move,
    Add,
    Sub,
    /// Never below 0.
    SaturatingSub,
    Mul,
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Lt,
    Le,
    Eq,
    Ne,
}

impl IndexOp {
    /// The result.
    #[inline(always)]
    pub fn eval(self, a: u64, b: u64) -> u64 {
        match self {
            IndexOp::Move => a,
            IndexOp::Add => a.wrapping_add(b),
            IndexOp::Sub => a.wrapping_sub(b),
            IndexOp::SaturatingSub => a.saturating_sub(b),
            IndexOp::Mul => a.wrapping_mul(b),
            IndexOp::Div => a.checked_div(b).unwrap_or(0),
            IndexOp::Rem => a.checked_rem(b).unwrap_or(a),
            IndexOp::Min => a.min(b),
            IndexOp::Max => a.max(b),
            IndexOp::And => a & b,
            IndexOp::Or => a | b,
            IndexOp::Xor => a ^ b,
            IndexOp::Shl => a.wrapping_shl(b as u32),
            IndexOp::Shr => a.wrapping_shr(b as u32),
            IndexOp::Lt => u64::from(a < b),
            IndexOp::Le => u64::from(a <= b),
            IndexOp::Eq => u64::from(a == b),
            IndexOp::Ne => u64::from(a != b),
        }
    }
}

/// An atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// How.
    pub op: AtomicOp,
    /// Of what.
    pub access: Access,
    /// u32, i32 or f32.
    pub lane: Lane,
    /// Which elements: u64 lanes or a slot.
    pub index: Src,
    /// The operand.
    pub value: Src,
    /// What a compare-exchange expects.
    pub expected: Src,
    /// Where the element before goes.
    pub old: Option<Src>,
}

/// A combination over the lanes of a group.
#[derive(Clone, Copy, Debug)]
pub struct Collective {
    /// How.
    pub op: CollectiveOp,
    /// Of what lanes.
    pub lane: Lane,
    /// What every partial result is rounded to.
    pub round: Round,
    /// The value that changes nothing.
    pub identity: u64,
    /// The loop of a reduction.
    pub reduce: Option<VecFn>,
    /// The parts.
    pub value: Src,
    /// A slot for a reduction or broadcast, a register for a scan.
    pub result: Src,
}

/// One step of a program.
#[derive(Clone, Debug)]
pub enum Instr {
    /// A loop over the active lanes.
    Vector(VectorLoop),
    /// A loop whose result replaces a register's active lanes only.
    Merge {
        /// The loop, with the register as destination.
        work: VectorLoop,
        /// The loop for when no lane between the active ones is inactive, if it may write the register directly.
        direct: Option<VecFn>,
        /// Where the result waits otherwise.
        temp: Src,
    },
    /// A loop whose destination may be its own operand.
    Update {
        /// The loop for when it is not.
        work: VectorLoop,
        /// The loop for when it is.
        direct: VecFn,
        /// Which operand it may be.
        operand: u8,
    },
    /// A loop on slots, for one lane.
    Scalar(VectorLoop),
    /// Index arithmetic on slots.
    Index {
        /// How.
        op: IndexOp,
        /// The result.
        dst: Slot,
        /// Left operand.
        a: Slot,
        /// Right operand.
        b: Slot,
    },
    /// Writes an affine index to u64 lanes.
    Iota {
        /// The register.
        dst: Src,
        /// The index.
        at: Affine,
    },
    /// Writes the outcome of a comparison to bool lanes.
    Compare {
        /// The register.
        dst: Src,
        /// The comparison.
        range: Range,
    },
    /// Points a cell at elements in memory, or collects them in a register and points the cell there.
    Stream {
        /// The cell.
        cell: Slot,
        /// What is read.
        access: Access,
        /// Which elements.
        at: Affine,
        /// Where they are collected if they are not side by side and within the length.
        temp: Src,
    },
    /// Collects elements of memory in a register.
    Gather {
        /// The register.
        dst: Src,
        /// What is read.
        access: Access,
        /// Which elements, as u64 lanes.
        index: Src,
    },
    /// Reads one element into a slot.
    Load {
        /// The slot.
        dst: Slot,
        /// What is read.
        access: Access,
        /// Which element.
        index: Slot,
    },
    /// Points a cell at the memory that a result may be written to directly, or at a register.
    PrepareStore {
        /// The cell.
        cell: Slot,
        /// What is written.
        access: Access,
        /// Which elements.
        at: Affine,
        /// The register.
        temp: Src,
    },
    /// After [`Instr::PrepareStore`] and the loop that wrote to its cell: stores the register, if it was one.
    CommitStore {
        /// The cell.
        cell: Slot,
        /// What is written.
        access: Access,
        /// Which elements.
        at: Affine,
        /// The register.
        temp: Src,
    },
    /// Writes lanes to memory.
    Store {
        /// What is written.
        access: Access,
        /// Which elements.
        at: At,
        /// The lanes.
        value: Src,
    },
    /// Changes elements indivisibly.
    Atomic(Box<Atomic>),
    /// Combines lanes of a group.
    Collective(Box<Collective>),
    /// Goes elsewhere.
    Jump(Target),
    /// Goes elsewhere if the bool in a slot is false.
    Branch {
        /// The bool.
        condition: Slot,
        /// Where to.
        otherwise: Target,
    },
    /// Goes elsewhere unless a counter is below its end.
    LoopTest {
        /// The counter.
        counter: Slot,
        /// Its end.
        end: Slot,
        /// Their type.
        lane: Lane,
        /// Where to.
        exit: Target,
    },
    /// Advances a counter, and goes back if it is still below its end.
    Next {
        /// The counter.
        counter: Slot,
        /// Its end.
        end: Slot,
        /// By how much.
        step: Slot,
        /// Their type.
        lane: Lane,
        /// Where to.
        back: Target,
    },
    /// Keeps the lanes of a mask that fulfill a condition.
    Narrow {
        /// The mask.
        from: Mask,
        /// What is left; may be `from`.
        to: Mask,
        /// The condition.
        when: Condition,
    },
    /// `to` = `from` without `take`.
    MaskAndNot {
        /// The mask.
        from: Mask,
        /// What leaves it.
        take: Mask,
        /// What is left.
        to: Mask,
    },
    /// `to` = `from`.
    CopyMask {
        /// The mask.
        from: Mask,
        /// Its copy.
        to: Mask,
    },
    /// Makes a mask the current one; goes elsewhere if it is empty.
    Enter {
        /// The mask.
        mask: Mask,
        /// Where to.
        if_empty: Target,
    },
    /// The lanes of the current mask leave other masks, and the current one itself.
    Leave(Box<[Mask]>),
    /// Ends the block.
    Done,
    /// Marks a place; only before the layout.
    Label(Target),
    /// Marks the first and last place of a loop; only before the layout.
    LoopBegin,
    /// See [`Instr::LoopBegin`].
    LoopEnd,
}

/// Which work-items a block covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TileShape {
    /// Consecutive ones along axis 0; the other ids are the same for all.
    Row,
    /// Whole rows of a plane; the ids along axis 2 are the same for all.
    Tile2d,
    /// Whole planes.
    Tile3d,
    /// The group.
    Group([u32; 3]),
}

impl TileShape {
    /// Whether the global and local ids along an axis differ between lanes.
    pub fn varies(self, axis: u8) -> bool {
        match self {
            TileShape::Row => axis == 0,
            TileShape::Tile2d => axis < 2,
            TileShape::Tile3d => true,
            TileShape::Group(group) => group[axis as usize] > 1,
        }
    }
}

/// An array in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array {
    /// Offset in the frame.
    pub at: u32,
    /// Elements.
    pub len: u32,
    /// Whether every lane has its own; element e of lane l is then number `e · lanes + l`.
    pub private: bool,
}

/// A compiled kernel.
#[derive(Debug)]
pub struct Program {
    /// The kernel's name.
    pub name: String,
    /// Whose loops it calls.
    pub isa: Isa,
    /// Which work-items a block covers.
    pub cover: TileShape,
    /// Most lanes of a block.
    pub lanes: usize,
    /// Run once before the blocks.
    pub launch: Vec<Instr>,
    /// Run for each block.
    pub body: Vec<Instr>,
    /// What slots hold at the start.
    pub slots: Vec<u64>,
    /// Slots that never change.
    pub constants: Vec<Slot>,
    /// Where scalar parameters go, by parameter; none for buffers.
    pub params: Vec<Option<(Slot, Round)>>,
    /// Where the lengths of buffers go, by memory.
    pub lengths: Vec<Option<Slot>>,
    /// Arrays in the frame, by memory; none for buffers.
    pub arrays: Vec<Option<Array>>,
    /// Masks.
    pub masks: u32,
    /// Offset of the masks' bytes in the frame, `mask_stride` apart.
    pub mask_at: u32,
    /// Bytes from one mask to the next.
    pub mask_stride: u32,
    /// Bytes of the frame.
    pub frame_bytes: usize,
    /// Bytes of the registers that are in use in the ordinary case.
    pub hot_bytes: usize,
    /// Loops that instructions need besides their own.
    pub tools: HelperLoops,
}

/// Loops on lanes of 1, 2, 4 and 8 bytes, and on masks, for what is decided only at run time.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "as the tables in `ops`")]
pub struct HelperLoops {
    pub copy: [VecFn; 4],
    pub splat: [VecFn; 4],
    pub collect: [VecFn; 4],
    pub spread: [VecFn; 4],
    pub gather: [VecFn; 4],
    pub gather_unchecked: [VecFn; 4],
    pub blend: [VecFn; 4],
    pub masked: [VecFn; 4],
    pub masked_splat: [VecFn; 4],
    pub iota: VecFn,
    pub not: VecFn,
    pub and: VecFn,
    pub and_not: VecFn,
    pub keep: VecFn,
    pub remove: VecFn,
    pub extent: VecFn,
}

impl HelperLoops {
    /// Those of an instruction set.
    pub fn new(ops: &Ops) -> HelperLoops {
        let moves = |how| [1, 2, 4, 8].map(|bytes| (ops.memory)(how, bytes));
        HelperLoops {
            copy: moves(Move::Copy),
            splat: moves(Move::Splat),
            collect: moves(Move::Collect),
            spread: moves(Move::Spread),
            gather: moves(Move::Gather),
            gather_unchecked: moves(Move::GatherUnchecked),
            blend: moves(Move::Blend),
            masked: moves(Move::Masked),
            masked_splat: moves(Move::MaskedSplat),
            iota: (ops.iota)(),
            not: (ops.mask)(Combine::Not),
            and: (ops.mask)(Combine::And),
            and_not: (ops.mask)(Combine::AndNot),
            keep: (ops.mask)(Combine::Keep),
            remove: (ops.mask)(Combine::Remove),
            extent: (ops.extent)(),
        }
    }
}
