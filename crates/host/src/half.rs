//! Conversions of f16 and bf16 through the bits of f32, without branches so that loops over them are vectorized, and
//! f16 conversions by machine instructions where available. The instructions change some bits of NaNs, so NaNs are
//! converted by the portable code: results are the same on every machine.

use crate::isa::Simd;

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
        pub fn $name<M: Simd>(from: &[$from], to: &mut [$to]) {
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

    use crate::isa::Simd;

    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;

    /// Converts whole vectors, using `one` for those with a NaN. Returns the number of lanes converted.
    #[inline(always)]
    pub fn in_vectors<M: Simd, A: Copy, R>(
        from: &[A],
        to: &mut [R],
        all: impl Fn(*const A, *mut R) -> bool,
        one: fn(A) -> R,
    ) -> usize {
        if M::F16_LANES == 0 {
            return 0;
        }
        let whole = from.len() / M::F16_LANES * M::F16_LANES;
        for (from, to) in from.chunks_exact(M::F16_LANES).zip(to.chunks_exact_mut(M::F16_LANES)) {
            if !all(from.as_ptr(), to.as_mut_ptr()) {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = one(*from));
            }
        }
        whole
    }

    /// # Safety
    /// The machine has the instructions, and both sides have `M::F16_LANES` lanes.
    #[inline(always)]
    pub unsafe fn widen_f16<M: Simd>(from: *const u16, to: *mut f32) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if M::F16_LANES == 16 {
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
    pub unsafe fn narrow_f16<M: Simd>(from: *const f32, to: *mut u16) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if M::F16_LANES == 16 {
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
    pub unsafe fn round_f16<M: Simd>(from: *const f32, to: *mut f32) -> bool {
        let mut narrow = [0; 16];
        // SAFETY: the caller's promise, and there are at most 16 lanes.
        unsafe { narrow_f16::<M>(from, narrow.as_mut_ptr()) && widen_f16::<M>(narrow.as_ptr(), to) }
    }
}
