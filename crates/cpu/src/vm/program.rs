//! The compiled form of a kernel: a list of instructions over a frame of memory.
//!
//! A **block** of up to [`Program::lanes`] work-items runs the list together. The frame holds, in this order, one
//! 8-byte **slot** per uniform value (shared by all lanes), the **registers** with one lane per work-item, the bytes of
//! the masks, and the private and shared arrays. An operand is a slot, a register, or a **cell**: a slot that holds the
//! address of lanes stored elsewhere, usually in a buffer, so that arithmetic reads and writes buffers without copies.
//!
//! Lanes have coordinates within the block's shape. An index that is a linear function of them is an [`Affine`]: a base
//! and three strides in slots. It is materialized as lanes in a register only if needed.
//!
//! Instructions work on the lanes of the **current mask**, a range that may have holes. `compile` produces programs and
//! `exec` runs them; this module depends on neither.

mod condition;
mod operands;

use panoply_ir::Alu;
use panoply_ir::kernel::{AtomicOp, CollectiveOp, Guard};

use super::lane::{Lane, Round};
use super::ops::Ops;
use super::ops::mask::Combine;
use super::ops::memory::Move;
use super::ops::pair::Pair;
use panoply_host::isa::{Isa, VecFn};

pub use self::condition::{Compare, Condition, Range};

/// A uniform value (shared by all lanes), by its position in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub u32);

/// Slots that the launch fills, before the compiler's own.
pub mod known {
    use super::Slot;

    /// The global ids of the first work-item.
    pub const GLOBAL: u32 = 0;
    /// The group ids.
    pub const GROUP: u32 = 3;
    /// The grid size in work-items.
    pub const SIZE: u32 = 6;
    /// The grid size in groups.
    pub const GROUPS: u32 = 9;
    /// A constant 0.
    pub const ZERO: Slot = Slot(12);
    /// Number of these slots.
    pub const COUNT: u32 = 13;
}

/// A set of active lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mask(pub u32);

impl Mask {
    /// The lanes of the block that have not returned.
    pub const ROOT: Mask = Mask(0);
}

/// The position of an instruction; before the layout pass, a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target(pub u32);

/// The location of lanes or of a uniform value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Src {
    /// The slot's number; the register's number before the layout pass and its offset in the frame after.
    pub at: u32,
    /// Bytes from one lane to the next; 0 if all lanes share one value.
    pub step: u8,
    /// Interpretation of `at`.
    pub kind: Kind,
}

/// The type of an operand.
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
    /// An unused operand.
    pub const NONE: Src = Src::slot(known::ZERO);

    /// Creates an operand for a uniform value.
    pub const fn slot(slot: Slot) -> Src {
        Src { kind: Kind::Slot, step: 0, at: slot.0 }
    }

    /// Returns true if the operand has a value for each lane.
    pub const fn is_lanes(self) -> bool {
        self.step != 0
    }
}

/// The index `base + Σ strides[d] · coordinate[d]`, wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Affine {
    /// The value at coordinates 0.
    pub base: Slot,
    /// Strides along the axes of the block.
    pub strides: [Slot; 3],
}

/// The element index of each lane.
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

/// A memory access, without its index and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The memory accessed.
    pub mem: Mem,
    /// Bytes of an element.
    pub bytes: u8,
    /// Number of elements to add to the index: the position in a vector. The sum must not wrap.
    pub offset: u8,
    /// Behavior beyond the length.
    pub guard: Guard,
}

/// The operation of a loop, for the dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named like the tables in `ops`")]
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
    /// Destination of the result.
    pub dst: Src,
    /// The operands; unused ones are [`Src::NONE`].
    pub args: [Src; 3],
    /// The operation.
    pub what: LoopOp,
    /// True if lanes around the active ones may be computed too, because only registers are touched and those lanes are not needed.
    pub may_overcompute: bool,
}

/// Multiple to which the lane count of overcomputing loops is rounded up, so that no loop has a remainder.
pub const ROUND_LANES: usize = 32;

/// Arithmetic on uniform indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named like the operations of `Alu`")]
pub enum IndexOp {
    Move,
    Add,
    Sub,
    /// Saturates at 0.
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
    /// Computes the result.
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
    /// The operation.
    pub op: AtomicOp,
    /// The memory accessed.
    pub access: Access,
    /// u32, i32 or f32.
    pub lane: Lane,
    /// The element indices: u64 lanes or a slot.
    pub index: Src,
    /// The operand.
    pub value: Src,
    /// Expected value of a compare-exchange.
    pub expected: Src,
    /// Destination of the previous value.
    pub old: Option<Src>,
}

/// A combination over the lanes of a group.
#[derive(Clone, Copy, Debug)]
pub struct Collective {
    /// The operation.
    pub op: CollectiveOp,
    /// Lane type.
    pub lane: Lane,
    /// The type every partial result is rounded to.
    pub round: Round,
    /// The identity element of the operation.
    pub identity: u64,
    /// The loop of a reduction.
    pub reduce: Option<VecFn>,
    /// The operand.
    pub value: Src,
    /// A slot for a reduction or broadcast, a register for a scan.
    pub result: Src,
}

/// An instruction of a program.
#[derive(Clone, Debug)]
pub enum Instr {
    /// A loop over the active lanes.
    Vector(VectorLoop),
    /// A loop whose result replaces only the active lanes of a register.
    Merge {
        /// The loop, with the register as destination.
        work: VectorLoop,
        /// The loop used when the active lanes are contiguous, if it can write the register directly.
        direct: Option<VecFn>,
        /// Temporary for the result otherwise.
        temp: Src,
    },
    /// A loop whose destination can be its own operand.
    Update {
        /// The loop used when it is not.
        work: VectorLoop,
        /// The loop used when it is.
        direct: VecFn,
        /// Index of that operand.
        operand: u8,
    },
    /// A loop on slots, for one lane.
    Scalar(VectorLoop),
    /// Index arithmetic on slots.
    Index {
        /// The operation.
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
    /// Writes the result of a comparison to bool lanes.
    Compare {
        /// The register.
        dst: Src,
        /// The comparison.
        range: Range,
    },
    /// Points a cell at elements in memory, or gathers them into a register and points the cell there.
    Stream {
        /// The cell.
        cell: Slot,
        /// The memory read.
        access: Access,
        /// The element indices.
        at: Affine,
        /// Register for gathered elements, if they are not contiguous and within the length.
        temp: Src,
    },
    /// Gathers elements of memory into a register.
    Gather {
        /// The register.
        dst: Src,
        /// The memory read.
        access: Access,
        /// The element indices, as u64 lanes.
        index: Src,
    },
    /// Reads one element into a slot.
    Load {
        /// The slot.
        dst: Slot,
        /// The memory read.
        access: Access,
        /// The element index.
        index: Slot,
    },
    /// Points a cell at memory that a result can be written to directly, or at a register.
    PrepareStore {
        /// The cell.
        cell: Slot,
        /// The memory written.
        access: Access,
        /// The element indices.
        at: Affine,
        /// The register.
        temp: Src,
    },
    /// Stores the register, if [`Instr::PrepareStore`] chose one; runs after the loop that wrote to its cell.
    CommitStore {
        /// The cell.
        cell: Slot,
        /// The memory written.
        access: Access,
        /// The element indices.
        at: Affine,
        /// The register.
        temp: Src,
    },
    /// Writes lanes to memory.
    Store {
        /// The memory written.
        access: Access,
        /// The element indices.
        at: At,
        /// The lanes.
        value: Src,
    },
    /// Updates elements atomically.
    Atomic(Box<Atomic>),
    /// Combines the lanes of a group.
    Collective(Box<Collective>),
    /// Jumps.
    Jump(Target),
    /// Jumps if the bool in a slot is false.
    Branch {
        /// The bool.
        condition: Slot,
        /// Target of the jump.
        otherwise: Target,
    },
    /// Jumps unless a counter is below its end.
    LoopTest {
        /// The counter.
        counter: Slot,
        /// Its end.
        end: Slot,
        /// Their type.
        lane: Lane,
        /// Target of the jump.
        exit: Target,
    },
    /// Advances a counter and jumps back if it is still below its end.
    Next {
        /// The counter.
        counter: Slot,
        /// Its end.
        end: Slot,
        /// The increment.
        step: Slot,
        /// Their type.
        lane: Lane,
        /// Target of the jump.
        back: Target,
    },
    /// Keeps the lanes of a mask that satisfy a condition.
    Narrow {
        /// The mask.
        from: Mask,
        /// The remaining lanes; may be `from`.
        to: Mask,
        /// The condition.
        when: Condition,
    },
    /// `to` = `from` without `take`.
    MaskAndNot {
        /// The mask.
        from: Mask,
        /// The lanes to remove.
        take: Mask,
        /// The remaining lanes.
        to: Mask,
    },
    /// `to` = `from`.
    CopyMask {
        /// The mask.
        from: Mask,
        /// Its copy.
        to: Mask,
    },
    /// Makes a mask the current one; jumps if it is empty.
    Enter {
        /// The mask.
        mask: Mask,
        /// Target of the jump.
        if_empty: Target,
    },
    /// Removes the lanes of the current mask from other masks and from the current one.
    Leave(Box<[Mask]>),
    /// Ends the block.
    Done,
    /// Marks a jump target; only before the layout pass.
    Label(Target),
    /// Marks the start of a loop; only before the layout pass.
    LoopBegin,
    /// Marks the end of a loop; only before the layout pass.
    LoopEnd,
}

/// The shape of the work-items that a block covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TileShape {
    /// Consecutive work-items along axis 0; the other ids are uniform.
    Row,
    /// Whole rows of a plane; the ids along axis 2 are uniform.
    Tile2d,
    /// Whole planes.
    Tile3d,
    /// A work-group.
    Group([u32; 3]),
}

impl TileShape {
    /// Returns true if the global and local ids along an axis differ between lanes.
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
    /// True if every lane has its own copy; element e of lane l then has index `e · lanes + l`.
    pub private: bool,
}

/// A compiled kernel.
#[derive(Debug)]
pub struct Program {
    /// The kernel's name.
    pub name: String,
    /// The instruction set of its loops.
    pub isa: Isa,
    /// The shape of the work-items that a block covers.
    pub cover: TileShape,
    /// Maximum number of lanes of a block.
    pub lanes: usize,
    /// Instructions that run once before the blocks.
    pub launch: Vec<Instr>,
    /// Instructions that run for each block.
    pub body: Vec<Instr>,
    /// Initial contents of the slots.
    pub slots: Vec<u64>,
    /// Slots that never change.
    pub constants: Vec<Slot>,
    /// Slots of the scalar parameters, by parameter; `None` for buffers.
    pub params: Vec<Option<(Slot, Round)>>,
    /// Slots of the buffer lengths, by memory.
    pub lengths: Vec<Option<Slot>>,
    /// Arrays in the frame, by memory; `None` for buffers.
    pub arrays: Vec<Option<Array>>,
    /// Number of masks.
    pub masks: u32,
    /// Offset of the masks' bytes in the frame, `mask_stride` apart.
    pub mask_at: u32,
    /// Bytes from one mask to the next.
    pub mask_stride: u32,
    /// Size of the frame in bytes.
    pub frame_bytes: usize,
    /// Bytes of the registers that ordinary blocks use.
    pub hot_bytes: usize,
    /// Loops that instructions need in addition to their own.
    pub tools: HelperLoops,
}

/// Loops on lanes of 1, 2, 4 and 8 bytes and on masks, for decisions made at run time.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "named like the tables in `ops`")]
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
    /// Returns the loops of an instruction set.
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
