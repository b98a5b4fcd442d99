//! Instruction sets, and compiling one loop for each of them.
//!
//! A [`LoopBody`] is a loop written once. It is inlined into one function per [`Isa`] that enables the set's instructions
//! (`#[target_feature]`), so that the compiler vectorizes it for each: function multiversioning. All these functions have
//! the signature [`VecFn`] and are selected at run time.

use std::fmt;

use crate::math;
use crate::simd::{I16Dot, Lanes, Task, Vector};

/// An instruction set for which vector loops are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Baseline of the target architecture.
    Portable,
    /// 128-bit vectors with fused multiply-add, on 64-bit Arm.
    Neon,
    /// 256-bit vectors with fused multiply-add.
    Avx2,
    /// 512-bit vectors with 8-, 16- and 64-bit integer operations: the F, BW, DQ and VL extensions.
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

/// An instruction set as a type parameter, so that loops and tasks are compiled once for each [`Isa`].
pub trait Simd: Sized + 'static {
    /// Selects the variant of the functions of [`crate::math`]: with or without fused multiply-add.
    type Math: math::MathIsa;

    /// A vector of f32.
    type Single: Vector<Elem = f32>;

    /// A vector of f64.
    type Double: Vector<Elem = f64>;

    /// A vector of i32 accumulators, to which dot products of two i16 are added.
    type I16Dot: Vector<Elem = i32>;

    /// Number of f16 that one instruction converts to f32; 0 if the set has no such instruction.
    const F16_LANES: usize;

    /// Returns the loop compiled for this set. It may be called only on a machine that has the set.
    fn compile<B: LoopBody>() -> VecFn;

    /// Runs a task with this set.
    ///
    /// # Safety
    /// The machine has the set, and the task's requirements hold.
    unsafe fn run<T: Task>(task: T);
}

/// A loop that is written once and compiled for every set.
pub trait LoopBody: 'static {
    /// Runs the loop. Implementations must be `#[inline(always)]`.
    ///
    /// # Safety
    /// As [`VecFn`].
    unsafe fn run<M: Simd>(n: usize, dst: *mut u8, a: *const u8, b: *const u8, c: *const u8);
}

macro_rules! machine {
    ($(#[$doc:meta])* $name:ident, math: $math:ty, $single:ty, $double:ty, $i16_dot:ty, f16_lanes: $f16_lanes:literal $(, $features:literal)?) => {
        $(#[$doc])*
        pub struct $name;

        impl Simd for $name {
            type Math = $math;
            type Single = $single;
            type Double = $double;
            type I16Dot = $i16_dot;
            const F16_LANES: usize = $f16_lanes;

            fn compile<B: LoopBody>() -> VecFn {
                $(#[target_feature(enable = $features)])?
                unsafe fn run<B: LoopBody>(n: usize, dst: *mut u8, a: *const u8, b: *const u8, c: *const u8) {
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
    I16Dot,
    f16_lanes: 0
);

#[cfg(target_arch = "aarch64")]
machine!(
    /// [`Isa::Neon`].
    Neon,
    math: math::Fused,
    Lanes<f32, 4, true>,
    Lanes<f64, 2, true>,
    I16Dot,
    f16_lanes: 0
);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__cpuid, __m256, __m256d, __m512, __m512d};
    use std::sync::OnceLock;

    use super::{LoopBody, Simd, Task, VecFn};
    use crate::math;
    use crate::simd::{I16DotAvx2, I16DotAvx512, I16DotVnni};

    machine!(
        /// [`super::Isa::Avx2`].
        Avx2,
        math: math::Fused,
        __m256,
        __m256d,
        I16DotAvx2,
        f16_lanes: 8,
        "f16c,avx2,fma,bmi1,bmi2,lzcnt,popcnt"
    );

    machine!(
        /// [`super::Isa::Avx512`].
        Avx512,
        math: math::Fused,
        __m512,
        __m512d,
        I16DotAvx512,
        f16_lanes: 16,
        "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt"
    );

    machine!(
        /// [`super::Isa::Avx512`] with bf16 dot products, for routines.
        Avx512Bf16,
        math: math::Fused,
        __m512,
        __m512d,
        I16DotAvx512,
        f16_lanes: 16,
        "avx512bf16,avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt"
    );

    machine!(
        /// [`super::Isa::Avx512`] with i16 dot products, for routines.
        Avx512Vnni,
        math: math::Fused,
        __m512,
        __m512d,
        I16DotVnni,
        f16_lanes: 16,
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

    /// Returns true if this machine supports [`Avx512Bf16`].
    pub fn has_avx512_bf16() -> bool {
        has_avx512() && is_x86_feature_detected!("avx512bf16")
    }

    /// Returns true if loops that compute much with each number from memory should prefetch in software, because the hardware prefetches
    /// too late for them: on AMD's processors since Zen 5. Measured on Zen 5 only; later processors are assumed to be alike.
    pub fn needs_software_prefetch() -> bool {
        static NEEDED: OnceLock<bool> = OnceLock::new();
        *NEEDED.get_or_init(|| {
            let (vendor, version) = (__cpuid(0), __cpuid(1).eax);
            let is_amd = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD";
            // The extended family is added if the base family is 15, the largest value of its field.
            let (family, extended) = (version >> 8 & 15, version >> 20 & 255);
            is_amd && family == 15 && family + extended >= 0x1a
        })
    }

    /// Returns true if this machine supports [`Avx512Vnni`].
    pub fn has_avx512_vnni() -> bool {
        has_avx512() && is_x86_feature_detected!("avx512vnni")
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512, Avx512Bf16, Avx512Vnni, has_avx512_bf16, has_avx512_vnni, needs_software_prefetch};
