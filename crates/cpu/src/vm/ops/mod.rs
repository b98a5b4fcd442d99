//! The loops of the vector machine, each written once and compiled for every instruction set.
//!
//! Modules in reading order: [`number`] defines operations on one lane, [`panoply_host::half`] 16-bit floats, and [`loops`] the loops
//! over all lanes by operand mode. [`quotient`], [`alu`], [`pair`], [`convert`], [`memory`], [`mask`] and [`reduce`]
//! are the tables of loops.

pub mod alu;
pub mod convert;
pub mod loops;
pub mod mask;
pub mod memory;
pub mod number;
pub mod pair;
pub mod quotient;
pub mod reduce;

use panoply_host::isa::{Isa, Portable, Simd, VecFn};
use panoply_ir::Alu;
use panoply_ir::kernel::ReduceOp;

use self::alu::Mode;
use self::mask::Combine;
use self::memory::Move;
use self::pair::Pair;
use super::lane::{Lane, Round};

/// All loops of one instruction set.
#[derive(Debug)]
pub struct Ops {
    /// The instruction set.
    pub isa: Isa,
    /// Loops for operations.
    pub alu: fn(Alu, Lane, Mode) -> Option<VecFn>,
    /// Loops for fused pairs of operations.
    pub pair: fn(Pair, Lane, Mode) -> Option<VecFn>,
    /// Loops for conversions.
    pub cast: fn(Lane, Lane) -> Option<VecFn>,
    /// Loops that round lanes to f32 so that a later rounding to a narrower type equals a single one.
    pub odd: fn(Lane) -> Option<VecFn>,
    /// Loops that round f32 lanes to a narrower type.
    pub round: fn(Round) -> Option<VecFn>,
    /// Loops that read 16-bit floats.
    pub widen: fn(Round) -> Option<VecFn>,
    /// Loops that write 16-bit floats.
    pub narrow: fn(Round) -> Option<VecFn>,
    /// Loops that move lanes of a given number of bytes.
    pub memory: fn(Move, usize) -> VecFn,
    /// The loop that writes an arithmetic sequence.
    pub iota: fn() -> VecFn,
    /// Loops that combine masks.
    pub mask: fn(Combine) -> VecFn,
    /// The loop that finds the range of active lanes of a mask.
    pub extent: fn() -> VecFn,
    /// Loops that reduce lanes to one, rounding each intermediate result.
    pub reduce: fn(ReduceOp, Lane, Round) -> VecFn,
}

impl Ops {
    const fn new<M: Simd>(isa: Isa) -> Ops {
        Ops {
            isa,
            alu: alu::find::<M>,
            pair: pair::find::<M>,
            cast: convert::cast::<M>,
            odd: convert::odd::<M>,
            round: convert::round::<M>,
            widen: convert::widen::<M>,
            narrow: convert::narrow::<M>,
            memory: memory::find::<M>,
            iota: memory::iota::<M>,
            mask: mask::find::<M>,
            extent: mask::extent::<M>,
            reduce: reduce::find::<M>,
        }
    }

    /// Returns the loops of an instruction set, or the portable ones if this machine lacks the set.
    pub fn of(isa: Isa) -> &'static Ops {
        static PORTABLE: Ops = Ops::new::<Portable>(Isa::Portable);
        #[cfg(target_arch = "x86_64")]
        static AVX2: Ops = Ops::new::<panoply_host::isa::Avx2>(Isa::Avx2);
        #[cfg(target_arch = "x86_64")]
        static AVX512: Ops = Ops::new::<panoply_host::isa::Avx512>(Isa::Avx512);
        #[cfg(target_arch = "aarch64")]
        static NEON: Ops = Ops::new::<panoply_host::isa::Neon>(Isa::Neon);
        if !isa.is_available() {
            return &PORTABLE;
        }
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => &AVX2,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => &AVX512,
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => &NEON,
            _ => &PORTABLE,
        }
    }
}
