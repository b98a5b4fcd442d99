//! Blocks of packed integers as words of several rows, and how they unpack to unsigned bytes with scales.
//!
//! A block is a run of 32-bit words, of which four at a time are transposed, and possibly one f16 beside them. Unpacked, 32 elements of
//! each row are eight words of bytes `q` with `weight = scale · (q - OFFSET) + min`: exactly the integers of the encoding.
//!
//! Source of the layouts: `panoply_ir::quant`, whose decoders are the oracle.

use super::lanes::{Lanes, STRIDE};

/// An encoding with integer weights.
pub trait Format: Copy + Send + Sync + 'static {
    /// A format with the same kind of offset, minimum and scales, whose unpacked parts are multiplied alike.
    type Sums: Format;
    /// Elements of a block: 32 or 256.
    const ELEMS: usize;
    /// Bytes of a block.
    const BYTES: usize;
    /// Byte at which its words begin.
    const BASE: usize = 0;
    /// Words of a block, at least four.
    const WORDS: usize;
    /// Byte of an f16 that is not one of the words.
    const HALF: Option<usize> = None;
    /// Added to weights to make them unsigned.
    const OFFSET: i32 = 0;
    /// True if weights have a minimum.
    const MIN: bool = false;
    /// Elements that share a scale: 16 or 32.
    const SUB: usize = 32;
    /// True if unsigned weights may be above 127.
    const WIDE: bool = false;

    /// Word of the interleaved form that holds word `n` of the block; four that follow each other stay together.
    #[inline(always)]
    fn place(n: usize) -> usize {
        n
    }

    /// Scales of the whole block, from its words, [`STRIDE`] apart, and its f16.
    ///
    /// # Safety
    /// The machine has the instructions; the words and f16 of a block of all rows are valid for reads.
    unsafe fn head<L: Lanes>(words: *const u32, halves: *const u16) -> Head<L>;

    /// Elements `32 j ..` of the block.
    ///
    /// # Safety
    /// As [`Format::head`]; `j` is a part of the block.
    unsafe fn part<L: Lanes>(head: &Head<L>, words: *const u32, j: usize) -> Part<L>;
}

/// Scales of a whole block.
#[derive(Clone, Copy)]
pub struct Head<L: Lanes> {
    scale: L::Float,
    /// Scale of the minimums, negated where they are subtracted.
    min: L::Float,
    /// Words with the scales of parts.
    words: [L; 4],
}

/// 32 unpacked elements of each row.
#[derive(Clone, Copy)]
pub struct Part<L: Lanes> {
    /// Unsigned bytes, four elements in a word.
    pub q: [L; 8],
    /// Scale of the first and of the last 16 elements; the first is that of all if [`Format::SUB`] is 32.
    pub scale: [L::Float; 2],
    /// Added to the weights of these halves.
    pub min: [L::Float; 2],
}

impl<L: Lanes> Part<L> {
    #[inline(always)]
    unsafe fn whole(q: [L; 8], scale: L::Float) -> Part<L> {
        Part { q, scale: [scale; 2], min: [scale; 2] }
    }
}

/// Word `n` of all rows.
#[inline(always)]
unsafe fn word<L: Lanes>(words: *const u32, n: usize) -> L {
    // SAFETY: the caller's promise.
    unsafe { L::load(words.add(n * STRIDE)) }
}

/// Two f16 of one word, the second times -1 if minimums are subtracted.
#[inline(always)]
unsafe fn two_halves<L: Lanes>(word: L, sign: f32) -> [L::Float; 2] {
    // SAFETY: the caller's promise.
    unsafe { [word.low_half(), L::mul_float(word.shr(16).low_half(), L::splat_float(sign))] }
}

#[inline(always)]
unsafe fn head<L: Lanes>([scale, min]: [L::Float; 2]) -> Head<L> {
    // SAFETY: the caller's promise.
    Head { scale, min, words: [unsafe { L::splat(0) }; 4] }
}

/// Nibbles of four words: the low ones of all, then the high ones.
#[inline(always)]
unsafe fn nibbles<L: Lanes>(words: *const u32, first: usize) -> [L; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut q = [L::splat(0); 8];
        for i in 0..4 {
            let word = word::<L>(words, first + i);
            q[i] = word.and(0x0f0f_0f0f);
            q[4 + i] = word.shr(4).and(0x0f0f_0f0f);
        }
        q
    }
}

/// With bit `n` of a word as the fifth bit of element `n`.
#[inline(always)]
unsafe fn with_fifth<L: Lanes>(mut q: [L; 8], bits: L) -> [L; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        for (i, q) in q.iter_mut().enumerate() {
            // The product puts bit c of four at 8 c, and others where the mask is zero.
            let spread = bits.shr(4 * i as u32).and(15).mul(0x0020_4081).and(0x0101_0101);
            *q = q.or(spread.shl(4));
        }
        q
    }
}

/// Eight words from `first` on, of which bits are taken from `shift` on.
#[inline(always)]
unsafe fn masked<L: Lanes>(words: *const u32, first: usize, shift: u32, mask: u32) -> [L; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut q = [L::splat(0); 8];
        for (i, q) in q.iter_mut().enumerate() {
            *q = word::<L>(words, first + i).shr(shift).and(mask);
        }
        q
    }
}

/// Bits of both, the second shifted up.
#[inline(always)]
unsafe fn joined<L: Lanes>(mut low: [L; 8], high: [L; 8], shift: u32) -> [L; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        for (low, high) in low.iter_mut().zip(&high) {
            *low = low.or(high.shl(shift));
        }
        low
    }
}

macro_rules! legacy {
    ($(#[$doc:meta])* $name:ident, sums: $sums:ident, bytes: $bytes:literal, words: $words:literal, {$($item:item)*},
     |$w:ident, $h:ident| $head:expr, |$v:ident| $q:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name;

        impl Format for $name {
            type Sums = $sums;
            const ELEMS: usize = 32;
            const BYTES: usize = $bytes;
            const WORDS: usize = $words;
            $($item)*

            #[inline(always)]
            unsafe fn head<L: Lanes>($w: *const u32, $h: *const u16) -> Head<L> {
                // SAFETY: the caller's promise.
                unsafe { head($head) }
            }

            #[inline(always)]
            unsafe fn part<L: Lanes>(head: &Head<L>, $v: *const u32, _: usize) -> Part<L> {
                // SAFETY: the caller's promise.
                unsafe { Part { q: $q, scale: [head.scale; 2], min: [head.min; 2] } }
            }
        }
    };
}

legacy!(
    /// Nibbles less 8.
    Q4_0, sums: Q4_0, bytes: 18, words: 4,
    { const BASE: usize = 2; const HALF: Option<usize> = Some(0); const OFFSET: i32 = 8; },
    |_w, h| [L::halves(h); 2], |w| nibbles(w, 0)
);
legacy!(
    /// Nibbles and a minimum.
    Q4_1, sums: Q4_1, bytes: 20, words: 5, { const MIN: bool = true; },
    |w, _h| two_halves(word::<L>(w, 0), 1.0), |w| nibbles(w, 1)
);
legacy!(
    /// Five bits less 16.
    Q5_0, sums: Q4_0, bytes: 22, words: 5,
    { const BASE: usize = 2; const HALF: Option<usize> = Some(0); const OFFSET: i32 = 16; },
    |_w, h| [L::halves(h); 2], |w| with_fifth(nibbles(w, 1), word::<L>(w, 0))
);
legacy!(
    /// Five bits and a minimum.
    Q5_1, sums: Q4_1, bytes: 24, words: 6, { const MIN: bool = true; },
    |w, _h| two_halves(word::<L>(w, 0), 1.0), |w| with_fifth(nibbles(w, 2), word::<L>(w, 1))
);

/// Bytes with a sign.
#[derive(Clone, Copy)]
pub struct Q8_0;

impl Format for Q8_0 {
    type Sums = Q8_0;
    const ELEMS: usize = 32;
    const BYTES: usize = 34;
    const BASE: usize = 2;
    const WORDS: usize = 8;
    const HALF: Option<usize> = Some(0);
    const OFFSET: i32 = 128;
    const WIDE: bool = true;

    #[inline(always)]
    unsafe fn head<L: Lanes>(_: *const u32, halves: *const u16) -> Head<L> {
        // SAFETY: the caller's promise.
        unsafe { head([L::halves(halves); 2]) }
    }

    #[inline(always)]
    unsafe fn part<L: Lanes>(head: &Head<L>, words: *const u32, _: usize) -> Part<L> {
        // SAFETY: the caller's promise.
        unsafe {
            let mut q = [L::splat(0); 8];
            for (i, q) in q.iter_mut().enumerate() {
                *q = word::<L>(words, i).xor(0x8080_8080);
            }
            Part::whole(q, head.scale)
        }
    }
}

/// Two bits; a scale and a minimum of four bits for 16 elements.
#[derive(Clone, Copy)]
pub struct Q2K;

impl Format for Q2K {
    type Sums = Q2K;
    const ELEMS: usize = 256;
    const BYTES: usize = 84;
    const WORDS: usize = 21;
    const MIN: bool = true;
    const SUB: usize = 16;

    #[inline(always)]
    unsafe fn head<L: Lanes>(words: *const u32, _: *const u16) -> Head<L> {
        // SAFETY: the caller's promise.
        unsafe { head(two_halves(word::<L>(words, 20), -1.0)) }
    }

    #[inline(always)]
    unsafe fn part<L: Lanes>(head: &Head<L>, words: *const u32, j: usize) -> Part<L> {
        // SAFETY: the caller's promise.
        unsafe {
            let q = masked(words, 4 + j / 4 * 8, 2 * (j % 4) as u32, 0x0303_0303);
            let scales = word::<L>(words, j / 2).shr(16 * (j % 2) as u32);
            let [mut scale, mut min] = [[head.scale; 2], [head.min; 2]];
            for h in 0..2 {
                let byte = scales.shr(8 * h as u32);
                scale[h] = L::mul_float(head.scale, byte.and(15).to_float());
                min[h] = L::mul_float(head.min, byte.shr(4).and(15).to_float());
            }
            Part { q, scale, min }
        }
    }
}

/// Three bits less 4; a scale of six bits less 32 for 16 elements.
#[derive(Clone, Copy)]
pub struct Q3K;

impl Format for Q3K {
    type Sums = Q3K;
    const ELEMS: usize = 256;
    const BYTES: usize = 110;
    const WORDS: usize = 27;
    const HALF: Option<usize> = Some(108);
    const OFFSET: i32 = 4;
    const SUB: usize = 16;

    #[inline(always)]
    unsafe fn head<L: Lanes>(_: *const u32, halves: *const u16) -> Head<L> {
        // SAFETY: the caller's promise.
        unsafe { head([L::halves(halves); 2]) }
    }

    #[inline(always)]
    unsafe fn part<L: Lanes>(head: &Head<L>, words: *const u32, j: usize) -> Part<L> {
        // SAFETY: the caller's promise.
        unsafe {
            let low = masked(words, 8 + j / 4 * 8, 2 * (j % 4) as u32, 0x0303_0303);
            let q = joined(low, masked(words, 0, j as u32, 0x0101_0101), 2);
            let mut scale = [head.scale; 2];
            for (h, scale) in scale.iter_mut().enumerate() {
                let group = 2 * j + h;
                let byte = 8 * (group % 4) as u32;
                let low = word::<L>(words, 24 + group % 8 / 4).shr(byte + 4 * (group / 8) as u32).and(15);
                let high = word::<L>(words, 26).shr(byte + 2 * (group / 4) as u32).and(3);
                let signed = low.or(high.shl(4)).add(32u32.wrapping_neg());
                *scale = L::mul_float(head.scale, signed.to_float());
            }
            Part { q, scale, min: scale }
        }
    }
}

/// Scale and minimum, of six bits each, of part `j` of eight.
#[inline(always)]
unsafe fn six_bits<L: Lanes>(head: &Head<L>, j: usize) -> [L::Float; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let [a, b, c, _] = head.words;
        let byte = 8 * (j % 4) as u32;
        let [scale, min] = if j < 4 {
            [a.shr(byte).and(63), b.shr(byte).and(63)]
        } else {
            let (low, a, b) = (c.shr(byte), a.shr(byte + 6).and(3).shl(4), b.shr(byte + 6).and(3).shl(4));
            [low.and(15).or(a), low.shr(4).and(15).or(b)]
        };
        [L::mul_float(head.scale, scale.to_float()), L::mul_float(head.min, min.to_float())]
    }
}

/// Two f16 and three words of scales.
#[inline(always)]
unsafe fn head_of_six_bits<L: Lanes>(words: *const u32) -> Head<L> {
    // SAFETY: the caller's promise.
    unsafe {
        let [scale, min] = two_halves(word::<L>(words, 0), -1.0);
        Head { scale, min, words: [word(words, 1), word(words, 2), word(words, 3), L::splat(0)] }
    }
}

/// Nibbles; a scale and a minimum of six bits for 32 elements.
#[derive(Clone, Copy)]
pub struct Q4K;

impl Format for Q4K {
    type Sums = Q4_1;
    const ELEMS: usize = 256;
    const BYTES: usize = 144;
    const WORDS: usize = 36;
    const MIN: bool = true;

    #[inline(always)]
    unsafe fn head<L: Lanes>(words: *const u32, _: *const u16) -> Head<L> {
        // SAFETY: the caller's promise.
        unsafe { head_of_six_bits(words) }
    }

    #[inline(always)]
    unsafe fn part<L: Lanes>(head: &Head<L>, words: *const u32, j: usize) -> Part<L> {
        // SAFETY: the caller's promise.
        unsafe {
            let q = masked(words, 4 + j / 2 * 8, 4 * (j % 2) as u32, 0x0f0f_0f0f);
            let [scale, min] = six_bits(head, j);
            Part { q, scale: [scale; 2], min: [min; 2] }
        }
    }
}

/// Five bits; a scale and a minimum of six bits for 32 elements.
#[derive(Clone, Copy)]
pub struct Q5K;

impl Format for Q5K {
    type Sums = Q4_1;
    const ELEMS: usize = 256;
    const BYTES: usize = 176;
    const WORDS: usize = 44;
    const MIN: bool = true;

    #[inline(always)]
    unsafe fn head<L: Lanes>(words: *const u32, _: *const u16) -> Head<L> {
        // SAFETY: the caller's promise.
        unsafe { head_of_six_bits(words) }
    }

    #[inline(always)]
    unsafe fn part<L: Lanes>(head: &Head<L>, words: *const u32, j: usize) -> Part<L> {
        // SAFETY: the caller's promise.
        unsafe {
            let high = masked(words, 4, j as u32, 0x0101_0101);
            let low = masked(words, 12 + j / 2 * 8, 4 * (j % 2) as u32, 0x0f0f_0f0f);
            let q = joined(low, high, 4);
            let [scale, min] = six_bits(head, j);
            Part { q, scale: [scale; 2], min: [min; 2] }
        }
    }
}

/// Six bits less 32; a scale of eight bits for 16 elements.
#[derive(Clone, Copy)]
pub struct Q6K;

impl Format for Q6K {
    type Sums = Q3K;
    const ELEMS: usize = 256;
    const BYTES: usize = 210;
    const WORDS: usize = 52;
    const HALF: Option<usize> = Some(208);
    const OFFSET: i32 = 32;
    const SUB: usize = 16;

    /// Scales; for each half low bits, high bits of all, low bits.
    #[inline(always)]
    fn place(n: usize) -> usize {
        const FOURS: [usize; 13] = [1, 2, 5, 6, 7, 8, 11, 12, 3, 4, 9, 10, 0];
        4 * FOURS[n / 4] + n % 4
    }

    #[inline(always)]
    unsafe fn head<L: Lanes>(_: *const u32, halves: *const u16) -> Head<L> {
        // SAFETY: the caller's promise.
        unsafe { head([L::halves(halves); 2]) }
    }

    #[inline(always)]
    unsafe fn part<L: Lanes>(head: &Head<L>, words: *const u32, j: usize) -> Part<L> {
        // SAFETY: the caller's promise.
        unsafe {
            let (of_128, quarter) = (j / 4, j % 4);
            let first = Q6K::place(of_128 * 16 + quarter % 2 * 8);
            let low = masked(words, first, 4 * (quarter / 2) as u32, 0x0f0f_0f0f);
            let high = masked(words, Q6K::place(32 + of_128 * 8), 2 * quarter as u32, 0x0303_0303);
            let scales = word::<L>(words, Q6K::place(48) + j / 2);
            let mut scale = [head.scale; 2];
            for (h, scale) in scale.iter_mut().enumerate() {
                let byte = (2 * (j % 2) + h) as u32;
                *scale = L::mul_float(head.scale, scales.shl(24 - 8 * byte).sar(24).to_float());
            }
            Part { q: joined(low, high, 4), scale, min: scale }
        }
    }
}
