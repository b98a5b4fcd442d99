//! Conversions of f16 and bf16 through the bits of f32, without branches so that loops over them are vectorized, and
//! f16 conversions by machine instructions where available. The instructions change some bits of NaNs, so NaNs are
//! converted by the portable code: results are the same on every machine.

use crate::vm::isa::Machine;

/// Converts an f16 to f32; exact.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    let sign = (bits as u32 & 0x8000) << 16;
    let magnitude = (bits as u32 & 0x7fff) << 13;
    // The exponent is off by the difference of the biases, 112; one exact product corrects it, including for subnormals.
    let value = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
    let special = magnitude | 0xff << 23;
    f32::from_bits(if magnitude >= 31 << 23 { special } else { value } | sign)
}

/// Rounds to the nearest f16, ties to even.
#[inline(always)]
pub fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    // After adding 0.5 the low bits are the bits of the subnormal, rounded by the addition.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + ((magnitude >> 13) & 1)) >> 13;
    let finite = if magnitude < 113 << 23 { subnormal } else { normal };
    // Values that round to 2^16 or more become infinite; 65520 is the smallest such value.
    let finite = if magnitude >= 65520f32.to_bits() { 0x7c00 } else { finite };
    // A widened NaN gets its original bits back; if its payload would become zero, the quiet bit is set instead.
    let payload = (magnitude >> 13) & 0x3ff;
    let nan = 0x7c00 | if payload == 0 { 0x200 } else { payload };
    sign | (if magnitude > 0xff << 23 { nan } else { finite }) as u16
}

/// Converts a bf16 to f32; exact.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// Rounds to the nearest bf16, ties to even.
#[inline(always)]
pub fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let nan = (bits >> 16) | if bits & 0x7f_0000 == 0 { 0x40 } else { 0 };
    (if bits & 0x7fff_ffff > 0xff << 23 { nan } else { rounded }) as u16
}

macro_rules! in_vectors {
    ($($(#[$doc:meta])* $name:ident: $from:ty => $to:ty, $one:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name<M: Machine>(from: &[$from], to: &mut [$to]) {
            let one: fn($from) -> $to = $one;
            #[cfg(target_arch = "x86_64")]
            // SAFETY: both sides have as many lanes as the machine converts at once, and the machine has the instruction.
            let done = x86::in_vectors::<M, _, _>(from, to, |from, to| unsafe { x86::$name::<M>(from, to) }, one);
            #[cfg(not(target_arch = "x86_64"))]
            let done = 0;
            to[done..].iter_mut().zip(&from[done..]).for_each(|(to, from)| *to = one(*from));
        }
    )*};
}

in_vectors! {
    /// Converts all lanes like [`f16_to_f32`].
    widen_f16: u16 => f32, f16_to_f32;
    /// Converts all lanes like [`f32_to_f16`].
    narrow_f16: f32 => u16, f32_to_f16;
    /// Rounds all lanes to the nearest f16, as f32.
    round_f16: f32 => f32, |value| f16_to_f32(f32_to_f16(value));
}

/// Conversions of one vector of lanes by machine instructions. They return false, with unspecified results, if a lane is NaN.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use crate::vm::isa::Machine;

    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;

    /// Converts whole vectors, using `one` for those with a NaN. Returns the number of lanes converted.
    #[inline(always)]
    pub fn in_vectors<M: Machine, A: Copy, R>(
        from: &[A],
        to: &mut [R],
        all: impl Fn(*const A, *mut R) -> bool,
        one: fn(A) -> R,
    ) -> usize {
        if M::HALVES == 0 {
            return 0;
        }
        let whole = from.len() / M::HALVES * M::HALVES;
        for (from, to) in from.chunks_exact(M::HALVES).zip(to.chunks_exact_mut(M::HALVES)) {
            if !all(from.as_ptr(), to.as_mut_ptr()) {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = one(*from));
            }
        }
        whole
    }

    /// # Safety
    /// The machine has the instructions, and both sides have `M::HALVES` lanes.
    #[inline(always)]
    pub unsafe fn widen_f16<M: Machine>(from: *const u16, to: *mut f32) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if M::HALVES == 16 {
                let wide = _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()));
                _mm512_storeu_ps(to, wide);
                return _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(wide, wide) == 0;
            }
            let wide = _mm256_cvtph_ps(_mm_loadu_si128(from.cast()));
            _mm256_storeu_ps(to, wide);
            _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_UNORD_Q>(wide, wide)) == 0
        }
    }

    /// # Safety
    /// As [`widen_f16`].
    #[inline(always)]
    pub unsafe fn narrow_f16<M: Machine>(from: *const f32, to: *mut u16) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if M::HALVES == 16 {
                let wide = _mm512_loadu_ps(from);
                _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<NEAREST>(wide));
                return _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(wide, wide) == 0;
            }
            let wide = _mm256_loadu_ps(from);
            _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<NEAREST>(wide));
            _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_UNORD_Q>(wide, wide)) == 0
        }
    }

    /// # Safety
    /// As [`widen_f16`].
    #[inline(always)]
    pub unsafe fn round_f16<M: Machine>(from: *const f32, to: *mut f32) -> bool {
        let mut narrow = [0; 16];
        // SAFETY: the caller's promise, and there are at most 16 lanes.
        unsafe { narrow_f16::<M>(from, narrow.as_mut_ptr()) && widen_f16::<M>(narrow.as_ptr(), to) }
    }
}

#[cfg(test)]
mod tests {
    use panoply_ir::{bf16, f16};

    use super::*;

    #[test]
    fn widening_equals_the_half_crate() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(bits), f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#x}");
            let (ours, theirs) = (bf16_to_f32(bits), bf16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#x}");
        }
    }

    #[test]
    fn every_bit_pattern_round_trips() {
        for bits in 0..=u16::MAX {
            assert_eq!(f32_to_f16(f16_to_f32(bits)), bits);
            assert_eq!(f32_to_bf16(bf16_to_f32(bits)), bits);
        }
    }

    #[test]
    fn narrowing_equals_the_half_crate() {
        // Every f16 and bf16, the midpoints between neighbors, and one f32 to either side of both.
        for narrow in 0..=u16::MAX {
            for wide in [(f16::from_bits(narrow).to_f32()).to_bits(), (narrow as u32) << 16] {
                for bits in [0, 1 << 12, 1 << 15].map(|half| wide.wrapping_add(half)) {
                    for bits in [bits.wrapping_sub(1), bits, bits.wrapping_add(1)] {
                        let value = f32::from_bits(bits);
                        if value.is_nan() {
                            assert!(f16::from_bits(f32_to_f16(value)).is_nan(), "{bits:#x}");
                            assert!(bf16::from_bits(f32_to_bf16(value)).is_nan(), "{bits:#x}");
                        } else {
                            assert_eq!(f32_to_f16(value), f16::from_f32(value).to_bits(), "{bits:#x}");
                            assert_eq!(f32_to_bf16(value), bf16::from_f32(value).to_bits(), "{bits:#x}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_instruction_set_converts_identically() {
        use crate::vm::isa::Isa;
        use crate::vm::lane::Round;
        use crate::vm::ops::Ops;

        // Numbers near every f16, including all types of NaN, in separate vectors and mixed with numbers.
        let halves: Vec<u16> = (0..=u16::MAX).chain((0..=u16::MAX).map(|i| i.wrapping_mul(40_503))).collect();
        let near = |bits: &u16| f16_to_f32(*bits).to_bits().wrapping_add(u32::from(*bits) % 0x3001);
        let wide: Vec<f32> = halves.iter().map(|bits| f32::from_bits(near(bits))).collect();
        for isa in Isa::available() {
            let ops = Ops::of(isa);
            let [widen, narrow, round] = [ops.widen, ops.narrow, ops.round].map(|f| f(Round::F16).expect("a loop"));
            let (mut widened, mut narrowed) = (vec![0u32; halves.len()], vec![0u16; halves.len()]);
            let mut rounded = vec![0u32; halves.len()];
            let (n, none) = (halves.len(), std::ptr::null());
            // SAFETY: all slices have the same number of lanes.
            unsafe {
                widen(n, widened.as_mut_ptr().cast(), halves.as_ptr().cast(), none, none);
                narrow(n, narrowed.as_mut_ptr().cast(), wide.as_ptr().cast(), none, none);
                round(n, rounded.as_mut_ptr().cast(), wide.as_ptr().cast(), none, none);
            }
            for at in 0..n {
                assert_eq!(widened[at], f16_to_f32(halves[at]).to_bits(), "{isa}: {:#x}", halves[at]);
                let narrow = f32_to_f16(wide[at]);
                assert_eq!(narrowed[at], narrow, "{isa}: {:#x}", wide[at].to_bits());
                assert_eq!(rounded[at], f16_to_f32(narrow).to_bits(), "{isa}: {:#x}", wide[at].to_bits());
            }
        }
    }
}
