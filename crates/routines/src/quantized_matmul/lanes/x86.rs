//! [`Lanes`] of AVX2 and of AVX-512 with its products of bytes (VNNI).

use std::arch::x86_64::*;

use super::super::activations::{BLOCK, scales};
use super::{Lanes, STRIDE};

/// Four registers, of four words of one row in each 128 bits, as the four words of all rows.
macro_rules! transposed {
    ($a:ident $b:ident $c:ident $d:ident, $low32:ident $high32:ident $low64:ident $high64:ident) => {{
        let (ab_low, ab_high) = ($low32($a, $b), $high32($a, $b));
        let (cd_low, cd_high) = ($low32($c, $d), $high32($c, $d));
        [$low64(ab_low, cd_low), $high64(ab_low, cd_low), $low64(ab_high, cd_high), $high64(ab_high, cd_high)]
    }};
}

macro_rules! lanes {
    ($vector:ident, $float:ident, $machine:ident, $count:literal, columns: $columns:literal, tile: $tile:expr,
     $($name:ident($($arg:ident: $ty:ty),*) -> $result:ty = $body:expr;)*) => {
        impl Lanes for $vector {
            const COUNT: usize = $count;
            const COLUMNS: usize = $columns;
            const FLOAT_TILE: [usize; 2] = $tile;
            type Float = $float;
            type Simd = panoply_host::isa::$machine;

            $(#[inline(always)]
            unsafe fn $name($($arg: $ty),*) -> $result {
                // SAFETY: the caller's promise.
                unsafe { $body }
            })*

            #[inline(always)]
            unsafe fn dot(self, x: *const i8, sum: Self, wide: bool) -> Self {
                // SAFETY: the caller's promise.
                unsafe { Dot::dot(self, x.cast::<i32>().read_unaligned(), sum, wide) }
            }
        }
    };
}

trait Dot: Sized {
    unsafe fn dot(self, x: i32, sum: Self, wide: bool) -> Self;
}

impl Dot for __m512i {
    #[inline(always)]
    unsafe fn dot(self, x: i32, sum: Self, _: bool) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm512_dpbusd_epi32(sum, self, _mm512_set1_epi32(x)) }
    }
}

impl Dot for __m256i {
    #[inline(always)]
    unsafe fn dot(self, x: i32, sum: Self, wide: bool) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let x = _mm256_set1_epi32(x);
            if !wide {
                // Two products of bytes below 128 fit 16 bits.
                let pairs = _mm256_maddubs_epi16(self, x);
                return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
            }
            let even = _mm256_and_si256(self, _mm256_set1_epi16(255));
            let odd = _mm256_srli_epi16::<8>(self);
            let (x_even, x_odd) = (_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(x)), _mm256_srai_epi16::<8>(x));
            let sum = _mm256_add_epi32(sum, _mm256_madd_epi16(even, x_even));
            _mm256_add_epi32(sum, _mm256_madd_epi16(odd, x_odd))
        }
    }
}

lanes!(__m512i, __m512, Avx512Vnni, 16, columns: 8, tile: [8, 3],
    load(from: *const u32) -> Self = _mm512_loadu_si512(from.cast());
    store(self: Self, to: *mut u32) -> () = _mm512_storeu_si512(to.cast(), self);
    splat(word: u32) -> Self = _mm512_set1_epi32(word as i32);
    and(self: Self, mask: u32) -> Self = _mm512_and_si512(self, _mm512_set1_epi32(mask as i32));
    or(self: Self, with: Self) -> Self = _mm512_or_si512(self, with);
    xor(self: Self, mask: u32) -> Self = _mm512_xor_si512(self, _mm512_set1_epi32(mask as i32));
    add(self: Self, word: u32) -> Self = _mm512_add_epi32(self, _mm512_set1_epi32(word as i32));
    mul(self: Self, by: u32) -> Self = _mm512_mullo_epi32(self, _mm512_set1_epi32(by as i32));
    shr(self: Self, bits: u32) -> Self = _mm512_srlv_epi32(self, _mm512_set1_epi32(bits as i32));
    shl(self: Self, bits: u32) -> Self = _mm512_sllv_epi32(self, _mm512_set1_epi32(bits as i32));
    sar(self: Self, bits: u32) -> Self = _mm512_srav_epi32(self, _mm512_set1_epi32(bits as i32));
    to_float(self: Self) -> __m512 = _mm512_cvtepi32_ps(self);
    low_half(self: Self) -> __m512 = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(self));
    store_low_halves(self: Self, to: *mut u16) -> () = _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(self));
    as_float(self: Self) -> __m512 = _mm512_castsi512_ps(self);
    halves(from: *const u16) -> __m512 = _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()));
    widened(from: *const u16) -> Self = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
    load_float(from: *const f32) -> __m512 = _mm512_loadu_ps(from);
    store_float(value: __m512, to: *mut f32) -> () = _mm512_storeu_ps(to, value);
    splat_float(value: f32) -> __m512 = _mm512_set1_ps(value);
    mul_float(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
    mul_add(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
    prefetch(from: *const u8) -> () = _mm_prefetch::<_MM_HINT_T1>(from.cast());
    sum(value: __m512) -> f32 = {
        let high = _mm512_castpd_ps(_mm512_shuffle_f64x2::<0b01_00_11_10>(_mm512_castps_pd(value), _mm512_castps_pd(value)));
        sum_256(_mm512_castps512_ps256(_mm512_add_ps(value, high)))
    };
    round(values: &[f32; BLOCK], bytes: &mut [i8; BLOCK]) -> (f32, [i32; 2]) = {
        let [low, high] = [_mm512_loadu_ps(values.as_ptr()), _mm512_loadu_ps(values.as_ptr().add(16))];
        let bits = _mm512_max_epu32(_mm512_castps_si512(_mm512_abs_ps(low)), _mm512_castps_si512(_mm512_abs_ps(high)));
        let (scale, inverse) = scales(_mm512_reduce_max_epu32(bits));
        let inverse = _mm512_set1_ps(inverse);
        let (low, high) = (_mm512_cvtps_epi32(_mm512_mul_ps(low, inverse)), _mm512_cvtps_epi32(_mm512_mul_ps(high, inverse)));
        _mm_storeu_si128(bytes.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(low));
        _mm_storeu_si128(bytes.as_mut_ptr().add(16).cast(), _mm512_cvtepi32_epi8(high));
        (scale, [_mm512_reduce_add_epi32(low), _mm512_reduce_add_epi32(high)])
    };
    gather(rows: *const u8, stride: usize) -> Self = {
        let rows_before = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        _mm512_i32gather_epi32::<1>(_mm512_mullo_epi32(rows_before, _mm512_set1_epi32(stride as i32)), rows.cast())
    };
    transpose(rows: *const u8, stride: usize, to: *mut u32) -> () = {
        let (a, b) = (quarters(rows, stride), quarters(rows.add(stride), stride));
        let (c, d) = (quarters(rows.add(2 * stride), stride), quarters(rows.add(3 * stride), stride));
        let words = transposed!(a b c d, _mm512_unpacklo_epi32 _mm512_unpackhi_epi32 _mm512_unpacklo_epi64 _mm512_unpackhi_epi64);
        for (n, word) in words.iter().enumerate() {
            _mm512_storeu_si512(to.add(n * STRIDE).cast(), *word);
        }
    };
);

lanes!(__m256i, __m256, Avx2, 8, columns: 4, tile: [4, 3],
    load(from: *const u32) -> Self = _mm256_loadu_si256(from.cast());
    store(self: Self, to: *mut u32) -> () = _mm256_storeu_si256(to.cast(), self);
    splat(word: u32) -> Self = _mm256_set1_epi32(word as i32);
    and(self: Self, mask: u32) -> Self = _mm256_and_si256(self, _mm256_set1_epi32(mask as i32));
    or(self: Self, with: Self) -> Self = _mm256_or_si256(self, with);
    xor(self: Self, mask: u32) -> Self = _mm256_xor_si256(self, _mm256_set1_epi32(mask as i32));
    add(self: Self, word: u32) -> Self = _mm256_add_epi32(self, _mm256_set1_epi32(word as i32));
    mul(self: Self, by: u32) -> Self = _mm256_mullo_epi32(self, _mm256_set1_epi32(by as i32));
    shr(self: Self, bits: u32) -> Self = _mm256_srlv_epi32(self, _mm256_set1_epi32(bits as i32));
    shl(self: Self, bits: u32) -> Self = _mm256_sllv_epi32(self, _mm256_set1_epi32(bits as i32));
    sar(self: Self, bits: u32) -> Self = _mm256_srav_epi32(self, _mm256_set1_epi32(bits as i32));
    to_float(self: Self) -> __m256 = _mm256_cvtepi32_ps(self);
    low_half(self: Self) -> __m256 = _mm256_cvtph_ps(low_halves(self));
    store_low_halves(self: Self, to: *mut u16) -> () = _mm_storeu_si128(to.cast(), low_halves(self));
    as_float(self: Self) -> __m256 = _mm256_castsi256_ps(self);
    halves(from: *const u16) -> __m256 = _mm256_cvtph_ps(_mm_loadu_si128(from.cast()));
    widened(from: *const u16) -> Self = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
    load_float(from: *const f32) -> __m256 = _mm256_loadu_ps(from);
    store_float(value: __m256, to: *mut f32) -> () = _mm256_storeu_ps(to, value);
    splat_float(value: f32) -> __m256 = _mm256_set1_ps(value);
    mul_float(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
    mul_add(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
    prefetch(from: *const u8) -> () = _mm_prefetch::<_MM_HINT_T1>(from.cast());
    sum(value: __m256) -> f32 = sum_256(value);
    gather(rows: *const u8, stride: usize) -> Self = {
        let rows_before = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_i32gather_epi32::<1>(rows.cast(), _mm256_mullo_epi32(rows_before, _mm256_set1_epi32(stride as i32)))
    };
    transpose(rows: *const u8, stride: usize, to: *mut u32) -> () = {
        let (a, b) = (halves(rows, stride), halves(rows.add(stride), stride));
        let (c, d) = (halves(rows.add(2 * stride), stride), halves(rows.add(3 * stride), stride));
        let words = transposed!(a b c d, _mm256_unpacklo_epi32 _mm256_unpackhi_epi32 _mm256_unpacklo_epi64 _mm256_unpackhi_epi64);
        for (n, word) in words.iter().enumerate() {
            _mm256_storeu_si256(to.add(n * STRIDE).cast(), *word);
        }
    };
);

/// The lower halves of eight words.
#[inline(always)]
unsafe fn low_halves(words: __m256i) -> __m128i {
    // SAFETY: the caller's promise.
    unsafe {
        let low = _mm256_and_si256(words, _mm256_set1_epi32(0xffff));
        _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b10_00>(_mm256_packus_epi32(low, low)))
    }
}

/// The sum of eight lanes.
#[inline(always)]
unsafe fn sum_256(value: __m256) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let four = _mm_add_ps(_mm256_castps256_ps128(value), _mm256_extractf128_ps::<1>(value));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
    }
}

/// 16 bytes of every fourth of 16 rows.
#[inline(always)]
unsafe fn quarters(row: *const u8, stride: usize) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let first = _mm512_castsi128_si512(_mm_loadu_si128(row.cast()));
        let first = _mm512_inserti32x4::<1>(first, _mm_loadu_si128(row.add(4 * stride).cast()));
        let first = _mm512_inserti32x4::<2>(first, _mm_loadu_si128(row.add(8 * stride).cast()));
        _mm512_inserti32x4::<3>(first, _mm_loadu_si128(row.add(12 * stride).cast()))
    }
}

/// 16 bytes of every fourth of 8 rows.
#[inline(always)]
unsafe fn halves(row: *const u8, stride: usize) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let first = _mm256_castsi128_si256(_mm_loadu_si128(row.cast()));
        _mm256_inserti128_si256::<1>(first, _mm_loadu_si128(row.add(4 * stride).cast()))
    }
}
