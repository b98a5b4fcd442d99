//! The bits of 2 / pi, for reducing large angles.
//!
//! An angle of `x` radians is `x * 2 / pi` quarter turns. The functions need the fraction `s` of that, within
//! -1/2..=1/2, and the whole quarters modulo 4. Payne and Hanek observed that in the product of `x` with the bits of `2
//! / pi`, the leading bits contribute only whole turns. Here the constant is cut into pieces so narrow that the product
//! of a piece with a significand (or half of one) is exact in an `f64`, and its whole quarters can be subtracted
//! exactly. From the leading piece down,
//!
//! ```text
//! v = s + x * piece;   k = round(v);   s = v - k;   quarters += k, unless k is a multiple of 4 and huge
//! ```
//!
//! Where a product may still exceed 1/2, both it and `s` are multiples of 2^-53, so that `v` is exact. In the first
//! step that is not exact, `|v| < 0.7`; either `s = v` and small, with an error relative to `v`, or `s` is not small.
//! In both cases the error stays relative to `s`, however close the angle is to a multiple of a quarter turn.

/// Number of bits of a piece of [`PIECES`].
pub(super) const PIECE_BITS: usize = 24;

/// The fraction bits of 2 / pi, from the binary point down, 24 at a time: enough for the largest `f64`. The length is a
/// power of two so that a masked index needs no bounds check.
#[rustfmt::skip]
pub(super) const PIECES: [u32; 64] = [
    0xa2f983, 0x6e4e44, 0x1529fc, 0x2757d1, 0xf534dd, 0xc0db62, 0x95993c, 0x439041, 0xfe5163, 0xabdebb,
    0xc561b7, 0x246e3a, 0x424dd2, 0xe00649, 0x2eea09, 0xd1921c, 0xfe1deb, 0x1cb129, 0xa73ee8, 0x8235f5,
    0x2ebb44, 0x84e99c, 0x7026b4, 0x5f7e41, 0x3991d6, 0x398353, 0x39f49c, 0x845f8b, 0xbdf928, 0x3b1ff8,
    0x97ffde, 0x05980f, 0xef2f11, 0x8b5a0a, 0x6d1f6d, 0x367ecf, 0x27cb09, 0xb74f46, 0x3f669e, 0x5fea2d,
    0x7527ba, 0xc7ebe5, 0xf17b3d, 0x0739f7, 0x8a5292, 0xea6bfb, 0x5fb11f, 0x8d5d08, 0x560330, 0x46fc7b,
    0x6babf0, 0xcfbc20, 0x9af436, 0x1da9e3, 0x91615e, 0xe61b08, 0x659985, 0x5f14a0, 0x68408d, 0xffd880,
    0x4d7327, 0x310606, 0x1556ca, 0x73a8c9,
];

/// The steps above treat values from here on as multiples of 4: the products have too few bits to be that large otherwise.
pub(super) const WHOLE_TURNS: f64 = 4_503_599_627_370_496.0;

/// 2^-n.
pub(super) const fn weight(n: usize) -> f64 {
    f64::from_bits((1023 - n as u64) << 52)
}

/// Returns the value of `count` (at most 53) fraction bits of 2 / pi after the first `start`.
pub(super) const fn bits(start: usize, count: usize) -> f64 {
    let mut value = 0u64;
    let mut n = start;
    while n < start + count {
        let piece = PIECES[n / PIECE_BITS];
        value = value << 1 | (piece >> (PIECE_BITS - 1 - n % PIECE_BITS)) as u64 & 1;
        n += 1;
    }
    value as f64 * weight(start + count)
}
