//! The bits of 2 / pi, for the reduction of large angles. The method is explained in `math::turns` of the crate `cpu`.

use super::value::V;

/// Bits per piece of [`PIECES`].
pub(super) const PIECE_BITS: usize = 24;

/// The fraction bits of 2 / pi from the binary point on, 24 per piece: enough for the largest f64.
#[rustfmt::skip]
const PIECES: [u32; 52] = [
    0xa2f983, 0x6e4e44, 0x1529fc, 0x2757d1, 0xf534dd, 0xc0db62, 0x95993c, 0x439041, 0xfe5163, 0xabdebb,
    0xc561b7, 0x246e3a, 0x424dd2, 0xe00649, 0x2eea09, 0xd1921c, 0xfe1deb, 0x1cb129, 0xa73ee8, 0x8235f5,
    0x2ebb44, 0x84e99c, 0x7026b4, 0x5f7e41, 0x3991d6, 0x398353, 0x39f49c, 0x845f8b, 0xbdf928, 0x3b1ff8,
    0x97ffde, 0x05980f, 0xef2f11, 0x8b5a0a, 0x6d1f6d, 0x367ecf, 0x27cb09, 0xb74f46, 0x3f669e, 0x5fea2d,
    0x7527ba, 0xc7ebe5, 0xf17b3d, 0x0739f7, 0x8a5292, 0xea6bfb, 0x5fb11f, 0x8d5d08, 0x560330, 0x46fc7b,
    0x6babf0, 0xcfbc20,
];

/// Numbers from here on that occur in the reduction are multiples of 4: the products have too few bits to be larger
/// otherwise.
pub(super) const WHOLE_TURNS: f64 = 4_503_599_627_370_496.0;

/// Returns 2^-n.
pub(super) fn weight(n: usize) -> f64 {
    f64::from_bits((1023 - n as u64) << 52)
}

/// Returns a fraction bit of 2 / pi, counted from 0.
fn bit(n: usize) -> u32 {
    PIECES.get(n / PIECE_BITS).map_or(0, |piece| piece >> (PIECE_BITS - 1 - n % PIECE_BITS) & 1)
}

/// Returns 32 zeros and then the fraction bits of 2 / pi, as far as an f32 can need them.
pub(super) fn quarter_turn_words() -> Vec<u32> {
    let word = |first: usize| (first..first + 32).fold(0, |word, n| word << 1 | bit(n));
    std::iter::once(0).chain((0..7).map(|n| word(32 * n))).collect()
}

/// Returns the pieces of 24 bits, as an f64 needs them.
pub(super) fn pieces() -> Vec<u32> {
    PIECES.to_vec()
}

/// Returns `count` entries from index `first` on, an integer of the kernel below 64. This implements a table lookup
/// without memory: the table is shifted by 32, 16, 8, 4, 2 and 1 entries where the index has that bit. Beyond its end
/// the table holds zeros.
pub(super) fn window<'m>(first: V<'m>, count: usize, table: &[u32]) -> Vec<V<'m>> {
    let mut entries: Vec<V<'m>> = table.iter().map(|entry| first.integer(i128::from(*entry))).collect();
    // Bits that no index within the table has are skipped.
    let steps = (0..6).rev().map(|bit| 1usize << bit).filter(|step| *step < table.len());
    for step in steps {
        let none = (first & first.integer(step as i128)).equal(first.integer(0));
        let zero = first.integer(0);
        let at = |n: usize| entries.get(n).copied().unwrap_or(zero);
        let left = entries.len().min(count + step - 1);
        entries = (0..left).map(|n| none.then(at(n), at(n + step))).collect();
    }
    entries
}
