//! SIMD vectors for the routines.
//!
//! The loops of the CPU device's vector machine are plain Rust that LLVM vectorizes. Matrix product tiles use explicit vectors instead,
//! because their speed depends on register allocation. A [`Task`] is written once over [`Vector`]s and compiled for
//! each [`Simd`].

use crate::isa::{Isa, Simd};
use crate::math;

/// A numeric type that routines can accumulate.
pub trait Number: Copy + Default + Send + Sync + 'static {
    /// Returns `a + b`; integers wrap.
    fn add(a: Self, b: Self) -> Self;
}

impl Number for i32 {
    #[inline(always)]
    fn add(a: i32, b: i32) -> i32 {
        a.wrapping_add(b)
    }
}

/// A float type that routines compute in.
pub trait Real: Number + PartialOrd {
    /// The vector type of this element type in an instruction set.
    type Vector<M: Simd>: Vector<Elem = Self>;
    /// A value that is not greater than any other: negative infinity.
    const LOWEST: Self;

    /// Converts from f64, rounding to nearest.
    fn of(value: f64) -> Self;

    /// Converts to f64, exactly.
    fn wide(self) -> f64;

    /// Returns `a - b`.
    fn sub(a: Self, b: Self) -> Self;

    /// Returns `a * b`.
    fn mul(a: Self, b: Self) -> Self;

    /// Returns `a / b`.
    fn div(a: Self, b: Self) -> Self;

    /// Returns the absolute value.
    fn abs(self) -> Self;

    /// Returns the square root.
    fn sqrt(self) -> Self;

    /// Returns the exponential.
    fn exp<I: math::MathIsa>(self) -> Self;

    /// Returns the natural logarithm.
    fn ln<I: math::MathIsa>(self) -> Self;
}

macro_rules! real {
    ($ty:ident, $vector:ident, $math:ident) => {
        impl Number for $ty {
            #[inline(always)]
            fn add(a: $ty, b: $ty) -> $ty {
                a + b
            }
        }

        impl Real for $ty {
            type Vector<M: Simd> = M::$vector;
            const LOWEST: $ty = $ty::NEG_INFINITY;

            #[inline(always)]
            fn of(value: f64) -> $ty {
                value as $ty
            }

            #[inline(always)]
            fn wide(self) -> f64 {
                self.into()
            }

            #[inline(always)]
            fn sub(a: $ty, b: $ty) -> $ty {
                a - b
            }

            #[inline(always)]
            fn mul(a: $ty, b: $ty) -> $ty {
                a * b
            }

            #[inline(always)]
            fn div(a: $ty, b: $ty) -> $ty {
                a / b
            }

            #[inline(always)]
            fn abs(self) -> $ty {
                $ty::abs(self)
            }

            #[inline(always)]
            fn sqrt(self) -> $ty {
                $ty::sqrt(self)
            }

            #[inline(always)]
            fn exp<I: math::MathIsa>(self) -> $ty {
                math::$math::exp::<I>(self)
            }

            #[inline(always)]
            fn ln<I: math::MathIsa>(self) -> $ty {
                math::$math::ln::<I>(self)
            }
        }
    };
}

real!(f32, Single, single);
real!(f64, Double, double);

/// A vector register.
///
/// The methods are single instructions or short sequences; they must only run where [`Simd::run`] has enabled them.
pub trait Vector: Copy {
    /// Type of a lane.
    type Elem: Number;
    /// Number of lanes.
    const LANES: usize;
    /// True if the instruction set has 32 vector registers, false if it has 16.
    const HAS_32_REGISTERS: bool;

    /// Broadcasts a value to all lanes.
    ///
    /// # Safety
    /// The machine has the instructions.
    unsafe fn splat(value: Self::Elem) -> Self;

    /// Loads all lanes from memory, aligned or not.
    ///
    /// # Safety
    /// As [`Vector::splat`], and the pointer is valid for reads of all lanes.
    unsafe fn load(from: *const Self::Elem) -> Self;

    /// Stores all lanes, aligned or not.
    ///
    /// # Safety
    /// As [`Vector::splat`], and the pointer is valid for writes of all lanes.
    unsafe fn store(self, to: *mut Self::Elem);

    /// Returns `self · by + to`, rounded once if the machine has fused multiply-add.
    ///
    /// # Safety
    /// As [`Vector::splat`].
    unsafe fn mul_add(self, by: Self, to: Self) -> Self;

    /// Returns the sums of the lanes of two accumulators.
    ///
    /// # Safety
    /// As [`Vector::splat`].
    unsafe fn add(self, other: Self) -> Self;

    /// Interleaves the lanes of two vectors: returns the interleaved first halves and the interleaved second halves.
    ///
    /// # Safety
    /// As [`Vector::splat`].
    unsafe fn zip(self, with: Self) -> [Self; 2];
}

/// Interleaves two arrays: returns the interleaved first halves and the interleaved second halves.
#[inline(always)]
fn zipped<T: Copy, const N: usize>(a: [T; N], b: [T; N]) -> [[T; N]; 2] {
    let lane = |i: usize| if i.is_multiple_of(2) { a[i / 2] } else { b[i / 2] };
    [0, N].map(|first| std::array::from_fn(|i| lane(first + i)))
}

/// A vector as an array of lanes, for machines without explicit intrinsics here; LLVM selects the instructions.
#[derive(Clone, Copy)]
pub struct Lanes<T, const N: usize, const FUSED: bool>([T; N]);

macro_rules! lanes {
    ($ty:ident, $lanes:literal) => {
        impl<const FUSED: bool> Vector for Lanes<$ty, $lanes, FUSED> {
            type Elem = $ty;
            const LANES: usize = $lanes;
            const HAS_32_REGISTERS: bool = FUSED;

            #[inline(always)]
            unsafe fn splat(value: $ty) -> Self {
                Lanes([value; $lanes])
            }

            #[inline(always)]
            unsafe fn load(from: *const $ty) -> Self {
                // SAFETY: the caller's promise; arrays are read unaligned.
                Lanes(unsafe { from.cast::<[$ty; $lanes]>().read_unaligned() })
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $ty) {
                // SAFETY: the caller's promise.
                unsafe { to.cast::<[$ty; $lanes]>().write_unaligned(self.0) }
            }

            #[inline(always)]
            unsafe fn mul_add(self, by: Self, to: Self) -> Self {
                let lane = |i: usize| {
                    if FUSED { self.0[i].mul_add(by.0[i], to.0[i]) } else { self.0[i] * by.0[i] + to.0[i] }
                };
                Lanes(std::array::from_fn(lane))
            }

            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                Lanes(std::array::from_fn(|i| self.0[i] + other.0[i]))
            }

            #[inline(always)]
            unsafe fn zip(self, with: Self) -> [Self; 2] {
                zipped(self.0, with.0).map(Lanes)
            }
        }
    };
}

lanes!(f32, 4);
lanes!(f64, 2);

/// Four i32 accumulators of products of i16 pairs: an operand's lane is a pair of i16.
#[derive(Clone, Copy)]
pub struct I16Dot([i32; 4]);

impl Vector for I16Dot {
    type Elem = i32;
    const LANES: usize = 4;
    const HAS_32_REGISTERS: bool = false;

    #[inline(always)]
    unsafe fn splat(value: i32) -> Self {
        I16Dot([value; 4])
    }

    #[inline(always)]
    unsafe fn load(from: *const i32) -> Self {
        // SAFETY: the caller's promise; arrays are read unaligned.
        I16Dot(unsafe { from.cast::<[i32; 4]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut i32) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[i32; 4]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn mul_add(self, by: Self, to: Self) -> Self {
        let product = |a: i32, b: i32| i32::from(a as i16) * i32::from(b as i16);
        let lane = |i: usize| {
            let (a, b) = (self.0[i], by.0[i]);
            to.0[i].wrapping_add(product(a, b)).wrapping_add(product(a >> 16, b >> 16))
        };
        I16Dot(std::array::from_fn(lane))
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        I16Dot(std::array::from_fn(|i| self.0[i].wrapping_add(other.0[i])))
    }

    #[inline(always)]
    unsafe fn zip(self, with: Self) -> [Self; 2] {
        zipped(self.0, with.0).map(I16Dot)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Vector;

    macro_rules! vector {
        ($vector:ident, $elem:ident, $lanes:literal, $many:literal, $splat:ident $load:ident $store:ident $mul_add:ident $add:ident $zip:ident) => {
            impl Vector for $vector {
                type Elem = $elem;
                const LANES: usize = $lanes;
                const HAS_32_REGISTERS: bool = $many;

                #[inline(always)]
                unsafe fn splat(value: $elem) -> Self {
                    // SAFETY: the caller's promise.
                    unsafe { $splat(value) }
                }

                #[inline(always)]
                unsafe fn load(from: *const $elem) -> Self {
                    // SAFETY: the caller's promise.
                    unsafe { $load(from) }
                }

                #[inline(always)]
                unsafe fn store(self, to: *mut $elem) {
                    // SAFETY: the caller's promise.
                    unsafe { $store(to, self) }
                }

                #[inline(always)]
                unsafe fn mul_add(self, by: Self, to: Self) -> Self {
                    // SAFETY: the caller's promise.
                    unsafe { $mul_add(self, by, to) }
                }

                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    // SAFETY: the caller's promise.
                    unsafe { $add(self, other) }
                }

                #[inline(always)]
                unsafe fn zip(self, with: Self) -> [Self; 2] {
                    // SAFETY: the caller's promise.
                    unsafe { $zip(self, with) }
                }
            }
        };
    }

    #[inline(always)]
    unsafe fn zip_256(a: __m256, b: __m256) -> [__m256; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let (even, odd) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            [_mm256_permute2f128_ps::<0x20>(even, odd), _mm256_permute2f128_ps::<0x31>(even, odd)]
        }
    }

    #[inline(always)]
    unsafe fn zip_256d(a: __m256d, b: __m256d) -> [__m256d; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let (even, odd) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
            [_mm256_permute2f128_pd::<0x20>(even, odd), _mm256_permute2f128_pd::<0x31>(even, odd)]
        }
    }

    #[inline(always)]
    unsafe fn zip_512(a: __m512, b: __m512) -> [__m512; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
            [_mm512_permutex2var_ps(a, first, b), _mm512_permutex2var_ps(a, second, b)]
        }
    }

    #[inline(always)]
    unsafe fn zip_512d(a: __m512d, b: __m512d) -> [__m512d; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
            let second = _mm512_add_epi64(first, _mm512_set1_epi64(4));
            [_mm512_permutex2var_pd(a, first, b), _mm512_permutex2var_pd(a, second, b)]
        }
    }

    /// Sixteen f32 accumulators of products of bf16 pairs: an operand's lane is the bits of a pair.
    ///
    /// Subnormal numbers are treated as zero. Needs the bf16 instructions in addition.
    #[derive(Clone, Copy)]
    pub struct Bf16Dot(__m512);

    impl Vector for Bf16Dot {
        type Elem = f32;
        const LANES: usize = 16;
        const HAS_32_REGISTERS: bool = true;

        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            // SAFETY: the caller's promise.
            Bf16Dot(unsafe { _mm512_set1_ps(value) })
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the caller's promise.
            Bf16Dot(unsafe { _mm512_loadu_ps(from) })
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the caller's promise.
            unsafe { _mm512_storeu_ps(to, self.0) }
        }

        #[inline(always)]
        unsafe fn mul_add(self, by: Self, to: Self) -> Self {
            // SAFETY: the caller's promise; the types have the same size, and all bit patterns are valid.
            unsafe {
                let [a, b] = [self.0, by.0].map(|pairs| std::mem::transmute::<__m512, __m512bh>(pairs));
                Bf16Dot(_mm512_dpbf16_ps(to.0, a, b))
            }
        }

        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            // SAFETY: the caller's promise.
            Bf16Dot(unsafe { _mm512_add_ps(self.0, other.0) })
        }

        #[inline(always)]
        unsafe fn zip(self, with: Self) -> [Self; 2] {
            // SAFETY: the caller's promise.
            unsafe { zip_512(self.0, with.0) }.map(Bf16Dot)
        }
    }

    /// Implements [`Vector`] of i32 accumulators of products of i16 pairs, like [`super::I16Dot`].
    macro_rules! i16_dot {
        ($(#[$doc:meta])* $name:ident, $vector:ident, $lanes:literal, $many:literal, $splat:ident $load:ident $store:ident $add:ident,
         |$a:ident, $b:ident, $to:ident| $mul_add:expr, |$c:ident, $d:ident| $zip:expr) => {
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub struct $name($vector);

            impl Vector for $name {
                type Elem = i32;
                const LANES: usize = $lanes;
                const HAS_32_REGISTERS: bool = $many;

                #[inline(always)]
                unsafe fn splat(value: i32) -> Self {
                    // SAFETY: the caller's promise.
                    $name(unsafe { $splat(value) })
                }

                #[inline(always)]
                unsafe fn load(from: *const i32) -> Self {
                    // SAFETY: the caller's promise.
                    $name(unsafe { $load(from.cast()) })
                }

                #[inline(always)]
                unsafe fn store(self, to: *mut i32) {
                    // SAFETY: the caller's promise.
                    unsafe { $store(to.cast(), self.0) }
                }

                #[inline(always)]
                unsafe fn mul_add(self, by: Self, to: Self) -> Self {
                    let ($a, $b, $to) = (self.0, by.0, to.0);
                    // SAFETY: the caller's promise.
                    $name(unsafe { $mul_add })
                }

                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    // SAFETY: the caller's promise.
                    $name(unsafe { $add(self.0, other.0) })
                }

                #[inline(always)]
                unsafe fn zip(self, with: Self) -> [Self; 2] {
                    let ($c, $d) = (self.0, with.0);
                    // SAFETY: the caller's promise.
                    unsafe { $zip }.map($name)
                }
            }
        };
    }

    #[inline(always)]
    unsafe fn zip_256i(a: __m256i, b: __m256i) -> [__m256i; 2] {
        // SAFETY: the caller's promise.
        unsafe { zip_256(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)).map(|half| _mm256_castps_si256(half)) }
    }

    #[inline(always)]
    unsafe fn zip_512i(a: __m512i, b: __m512i) -> [__m512i; 2] {
        // SAFETY: the caller's promise.
        unsafe { zip_512(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)).map(|half| _mm512_castps_si512(half)) }
    }

    i16_dot!(
        /// Eight accumulators.
        I16DotAvx2, __m256i, 8, false, _mm256_set1_epi32 _mm256_loadu_si256 _mm256_storeu_si256 _mm256_add_epi32,
        |a, b, to| _mm256_add_epi32(to, _mm256_madd_epi16(a, b)), |a, b| zip_256i(a, b)
    );
    i16_dot!(
        /// Sixteen accumulators.
        I16DotAvx512, __m512i, 16, true, _mm512_set1_epi32 _mm512_loadu_si512 _mm512_storeu_si512 _mm512_add_epi32,
        |a, b, to| _mm512_add_epi32(to, _mm512_madd_epi16(a, b)), |a, b| zip_512i(a, b)
    );
    i16_dot!(
        /// Sixteen accumulators, with one instruction for both products and the addition.
        I16DotVnni, __m512i, 16, true, _mm512_set1_epi32 _mm512_loadu_si512 _mm512_storeu_si512 _mm512_add_epi32,
        |a, b, to| _mm512_dpwssd_epi32(to, a, b), |a, b| zip_512i(a, b)
    );

    vector!(__m256, f32, 8, false, _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_fmadd_ps _mm256_add_ps zip_256);
    vector!(__m256d, f64, 4, false, _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_fmadd_pd _mm256_add_pd zip_256d);
    vector!(__m512, f32, 16, true, _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_fmadd_ps _mm512_add_ps zip_512);
    vector!(__m512d, f64, 8, true, _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_fmadd_pd _mm512_add_pd zip_512d);
}

#[cfg(target_arch = "x86_64")]
pub use x86::{Bf16Dot, I16DotAvx2, I16DotAvx512, I16DotVnni};

/// Work that is compiled for every machine.
pub trait Task {
    /// Runs the task. Implementations and the functions they call with vectors must be `#[inline(always)]`.
    ///
    /// # Safety
    /// The machine has the instructions, and the task's own requirements hold.
    unsafe fn run<M: Simd>(self);
}

/// Runs a task with an instruction set of this machine.
///
/// # Safety
/// The task's requirements hold and the set is available.
pub unsafe fn run<T: Task>(isa: Isa, task: T) {
    // SAFETY: the caller's promise.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => crate::isa::Avx512::run(task),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => crate::isa::Avx2::run(task),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => crate::isa::Neon::run(task),
            _ => crate::isa::Portable::run(task),
        }
    }
}

/// Safe code that is compiled for every instruction set.
pub trait Loop {
    /// Type of the result.
    type Output;

    /// Runs the code. `is_fused` is a constant after inlining: true if `mul_add` is one instruction. Implementations and the functions
    /// they call must be `#[inline(always)]`.
    fn run(self, is_fused: bool) -> Self::Output;
}

/// Runs code with the most capable instruction set of this machine.
pub fn vectorized<L: Loop>(work: L) -> L::Output {
    struct Holder<'o, L: Loop> {
        work: L,
        output: &'o mut Option<L::Output>,
    }

    impl<L: Loop> Task for Holder<'_, L> {
        #[inline(always)]
        unsafe fn run<M: Simd>(self) {
            *self.output = Some(self.work.run(<M::Math as math::MathIsa>::FUSED));
        }
    }

    let mut output = None;
    // SAFETY: the set is available, and the code is safe.
    unsafe { run(Isa::best(), Holder { work, output: &mut output }) };
    output.expect("the task stores its output")
}
