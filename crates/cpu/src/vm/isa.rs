//! Instruction sets, and how one loop is compiled for each of them.
//!
//! A [`Body`] is a loop written once, inlined into a function per [`Isa`] that enables the set's instructions, so that
//! the compiler vectorizes it for each. All those functions share one signature, [`VecFn`], and are found at run time by
//! the set the machine has.

use std::fmt;

use crate::math;
use crate::simd::{Lanes, Task, Vector, Words};

/// An instruction set the vector machine has loops for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// What every machine of the architecture has.
    Portable,
    /// 128-bit vectors with fused multiply-add, on 64-bit Arm.
    Neon,
    /// 256-bit vectors with fused multiply-add.
    Avx2,
    /// 512-bit vectors with byte, word and 64-bit integer forms.
    Avx512,
}

impl Isa {
    /// Every set, the poorest first.
    pub const ALL: [Isa; 4] = [Isa::Portable, Isa::Neon, Isa::Avx2, Isa::Avx512];

    /// The spelling.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Neon => "neon",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// The set with this spelling.
    pub fn from_name(name: &str) -> Option<Isa> {
        Isa::ALL.into_iter().find(|isa| isa.name() == name)
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Portable => true,
            Isa::Neon => cfg!(target_arch = "aarch64"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => x86::has_avx2(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => x86::has_avx512(),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => false,
        }
    }

    /// The sets this machine has, the poorest first.
    pub fn available() -> Vec<Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_available()).collect()
    }

    /// The richest set this machine has.
    pub fn best() -> Isa {
        Isa::available().pop().unwrap_or(Isa::Portable)
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A loop over `n` lanes: destination, then up to three sources, all naturally aligned for their lanes.
///
/// # Safety
/// Each pointer the body uses is valid for the lanes it touches, and the destination overlaps no source.
pub type VecFn = unsafe fn(n: usize, dst: *mut u8, a: *const u8, b: *const u8, c: *const u8);

/// An instruction set as a type.
pub trait Machine: Sized + 'static {
    /// What [`crate::math`] must know of it.
    type Math: math::Isa;

    /// A register of f32.
    type Single: Vector<Elem = f32>;

    /// A register of f64.
    type Double: Vector<Elem = f64>;

    /// A register of i32, to which products of pairs of i16 are added.
    type Words: Vector<Elem = i32>;

    /// How many f16 it converts at once; 0 if it has no instruction for that.
    const HALVES: usize;

    /// The loop, compiled for this set.
    fn compile<B: Body>() -> VecFn;

    /// Does a task with this set.
    ///
    /// # Safety
    /// The machine has the set, and what the task asks for holds.
    unsafe fn run<T: Task>(task: T);
}

/// A loop that is written once and compiled for every set.
pub trait Body: 'static {
    /// Runs it; to be marked `#[inline(always)]`.
    ///
    /// # Safety
    /// As [`VecFn`].
    unsafe fn run<M: Machine>(n: usize, dst: *mut u8, a: *const u8, b: *const u8, c: *const u8);
}

macro_rules! machine {
    ($(#[$doc:meta])* $name:ident, math: $math:ty, $single:ty, $double:ty, $words:ty, halves: $halves:literal $(, $features:literal)?) => {
        $(#[$doc])*
        pub struct $name;

        impl Machine for $name {
            type Math = $math;
            type Single = $single;
            type Double = $double;
            type Words = $words;
            const HALVES: usize = $halves;

            fn compile<B: Body>() -> VecFn {
                $(#[target_feature(enable = $features)])?
                unsafe fn run<B: Body>(n: usize, dst: *mut u8, a: *const u8, b: *const u8, c: *const u8) {
                    // SAFETY: the caller keeps the promises of `VecFn`.
                    unsafe { B::run::<$name>(n, dst, a, b, c) }
                }
                run::<B>
            }

            unsafe fn run<T: Task>(task: T) {
                $(#[target_feature(enable = $features)])?
                unsafe fn run<T: Task>(task: T) {
                    // SAFETY: the caller's promise.
                    unsafe { task.run::<$name>() }
                }
                // SAFETY: the caller's promise.
                unsafe { run(task) }
            }
        }
    };
}

machine!(
    /// [`Isa::Portable`].
    Portable,
    math: math::Portable,
    Lanes<f32, 4, false>,
    Lanes<f64, 2, false>,
    Words,
    halves: 0
);

#[cfg(target_arch = "aarch64")]
machine!(
    /// [`Isa::Neon`].
    Neon,
    math: math::Fused,
    Lanes<f32, 4, true>,
    Lanes<f64, 2, true>,
    Words,
    halves: 0
);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

    use super::{Body, Machine, Task, VecFn};
    use crate::math;
    use crate::simd::{Words8, Words16, Words16AtOnce};

    machine!(
        /// [`super::Isa::Avx2`].
        Avx2,
        math: math::Fused,
        __m256,
        __m256d,
        Words8,
        halves: 8,
        "f16c,avx2,fma,bmi1,bmi2,lzcnt,popcnt"
    );

    machine!(
        /// [`super::Isa::Avx512`].
        Avx512,
        math: math::Fused,
        __m512,
        __m512d,
        Words16,
        halves: 16,
        "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt"
    );

    machine!(
        /// [`super::Isa::Avx512`] with products of bf16, for routines.
        Avx512Pairs,
        math: math::Fused,
        __m512,
        __m512d,
        Words16,
        halves: 16,
        "avx512bf16,avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt"
    );

    machine!(
        /// [`super::Isa::Avx512`] with products of words, for routines.
        Avx512Words,
        math: math::Fused,
        __m512,
        __m512d,
        Words16AtOnce,
        halves: 16,
        "avx512vnni,avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt"
    );

    pub fn has_avx2() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
    }

    pub fn has_avx512() -> bool {
        has_avx2()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
    }

    /// Whether this machine has [`Avx512Pairs`].
    pub fn has_pairs() -> bool {
        has_avx512() && is_x86_feature_detected!("avx512bf16")
    }

    /// Whether this machine has [`Avx512Words`].
    pub fn has_words() -> bool {
        has_avx512() && is_x86_feature_detected!("avx512vnni")
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512, Avx512Pairs, Avx512Words, has_pairs, has_words};
