//! Instruction sets, and compiling one loop for each of them.
//!
//! A [`Body`] is a loop written once. It is inlined into one function per [`Isa`] that enables the set's instructions,
//! so that the compiler vectorizes it for each. All these functions have the signature [`VecFn`] and are selected at
//! run time.

use std::fmt;

use crate::math;
use crate::simd::{Lanes, Task, Vector, Words};

/// An instruction set for which the vector machine has loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Baseline of the target architecture.
    Portable,
    /// 128-bit vectors with fused multiply-add, on 64-bit Arm.
    Neon,
    /// 256-bit vectors with fused multiply-add.
    Avx2,
    /// 512-bit vectors with 8-, 16- and 64-bit integer operations.
    Avx512,
}

impl Isa {
    /// All sets, least capable first.
    pub const ALL: [Isa; 4] = [Isa::Portable, Isa::Neon, Isa::Avx2, Isa::Avx512];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Neon => "neon",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// Returns the set with a name.
    pub fn from_name(name: &str) -> Option<Isa> {
        Isa::ALL.into_iter().find(|isa| isa.name() == name)
    }

    /// Returns true if this machine has the set.
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

    /// Returns the sets this machine has, least capable first.
    pub fn available() -> Vec<Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_available()).collect()
    }

    /// Returns the most capable set of this machine.
    pub fn best() -> Isa {
        Isa::ALL.into_iter().rev().find(|isa| isa.is_available()).unwrap_or(Isa::Portable)
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
    /// The set's properties that [`crate::math`] needs.
    type Math: math::Isa;

    /// A vector of f32.
    type Single: Vector<Elem = f32>;

    /// A vector of f64.
    type Double: Vector<Elem = f64>;

    /// A vector of i32 accumulators of products of i16 pairs.
    type Words: Vector<Elem = i32>;

    /// Number of f16 converted by one instruction; 0 if there is none.
    const HALVES: usize;

    /// Returns the loop compiled for this set.
    fn compile<B: Body>() -> VecFn;

    /// Runs a task with this set.
    ///
    /// # Safety
    /// The machine has the set, and the task's requirements hold.
    unsafe fn run<T: Task>(task: T);
}

/// A loop that is written once and compiled for every set.
pub trait Body: 'static {
    /// Runs the loop. Implementations must be `#[inline(always)]`.
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
    use std::arch::x86_64::{__cpuid, __m256, __m256d, __m512, __m512d};
    use std::sync::OnceLock;

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
        /// [`super::Isa::Avx512`] with bf16 dot products, for routines.
        Avx512Pairs,
        math: math::Fused,
        __m512,
        __m512d,
        Words16,
        halves: 16,
        "avx512bf16,avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt"
    );

    machine!(
        /// [`super::Isa::Avx512`] with i16 dot products, for routines.
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

    /// Returns true if this machine supports [`Avx512Pairs`].
    pub fn has_pairs() -> bool {
        has_avx512() && is_x86_feature_detected!("avx512bf16")
    }

    /// Returns true on AMD's processors since Zen 5, whose hardware prefetches too little for loops that compute much with each number from
    /// memory: such loops prefetch in software. Measured on Zen 5 only; later processors are assumed to be alike.
    pub fn prefetches_late() -> bool {
        static LATE: OnceLock<bool> = OnceLock::new();
        *LATE.get_or_init(|| {
            let (maker, version) = (__cpuid(0), __cpuid(1).eax);
            let is_amd = [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD";
            // The extended family counts if the base family has the largest value.
            let (family, extended) = (version >> 8 & 15, version >> 20 & 255);
            is_amd && family == 15 && family + extended >= 0x1a
        })
    }

    /// Returns true if this machine supports [`Avx512Words`].
    pub fn has_words() -> bool {
        has_avx512() && is_x86_feature_detected!("avx512vnni")
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512, Avx512Pairs, Avx512Words, has_pairs, has_words, prefetches_late};
