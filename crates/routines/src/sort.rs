//! Sorts rows. An element is mapped to an unsigned key with the same order, followed by its position. All such words
//! differ, so an unstable sort of the words is a stable sort of the elements.

use panoply_host::pool::Pool;
use panoply_ir::routine::Sort;
use panoply_ir::{bf16, f16};

use super::{Shared, in_numbers};

/// Row length from which one row is sorted by several threads.
const LONG_ROW: usize = 1 << 14;

/// Number of leading elements up to which they are selected by insertion in one pass over the row.
const FEW: usize = 32;

/// A sortable type.
pub trait Element: Copy {
    /// Type of a key followed by a position.
    type Word: Copy + Ord;

    /// Returns the key followed by the position; the key has the order of the elements, or the reverse order if `descending`.
    fn word(self, place: u32, descending: bool) -> Self::Word;

    /// Returns the position of a word.
    fn place(word: Self::Word) -> u32;
}

macro_rules! element {
    ($($ty:ident $key:ident $word:ident $of:expr;)*) => {$(
        impl Element for $ty {
            type Word = $word;

            fn word(self, place: u32, descending: bool) -> $word {
                let key: fn($ty) -> $key = $of;
                let key = if descending { !key(self) } else { key(self) };
                $word::from(key) << 32 | $word::from(place)
            }

            fn place(word: $word) -> u32 {
                word as u32
            }
        }
    )*};
}

/// Maps the bits of a float to an unsigned integer with the same order. Both zeros are equal, and so are all NaNs.
macro_rules! float_key {
    ($x:expr, $key:ident) => {{
        let x = $x;
        let bits = (x + 0.0).to_bits();
        let sign = 1 << ($key::BITS - 1);
        // Signs are unpredictable, so there is no branch: for negative numbers all bits are inverted, for others only the sign.
        let key = bits ^ ((bits >> ($key::BITS - 1)).wrapping_neg() | sign);
        if x.is_nan() { $key::MAX } else { key }
    }};
}

element! {
    f32 u32 u64 |x| float_key!(x, u32);
    f64 u64 u128 |x| float_key!(x, u64);
    f16 u32 u64 |x| float_key!(f32::from(x), u32);
    bf16 u32 u64 |x| float_key!(f32::from(x), u32);
    i8 u8 u64 |x| x as u8 ^ 1 << 7;
    i16 u16 u64 |x| x as u16 ^ 1 << 15;
    i32 u32 u64 |x| x as u32 ^ 1 << 31;
    i64 u64 u128 |x| x as u64 ^ 1 << 63;
    u8 u8 u64 |x| x;
    u16 u16 u64 |x| x;
    u32 u32 u64 |x| x;
    u64 u64 u128 |x| x;
}

/// Sorts rows, or finds their first elements, with positions.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn rows<T: Element>(pool: &Pool, sort: &Sort, buffers: &[*mut u8]) {
    let [input, values, positions] = [0, 1, 2].map(|at| Shared(buffers[at]));
    let Sort { rows, length, count, descending, .. } = *sort;
    let alone = rows < pool.threads() && length >= LONG_ROW;
    let row = |number: usize| {
        // SAFETY: the caller's promise; rows do not overlap.
        let (input, values, positions) = unsafe {
            (
                std::slice::from_raw_parts(input.at(number * length * size_of::<T>()).cast::<T>(), length),
                std::slice::from_raw_parts_mut(values.at(number * count * size_of::<T>()).cast::<T>(), count),
                std::slice::from_raw_parts_mut(positions.at(number * count * size_of::<i32>()).cast::<i32>(), count),
            )
        };
        let mut words: Vec<T::Word> = (0..).zip(input).map(|(place, x)| x.word(place, descending)).collect();
        if count <= FEW && count < length {
            first(&mut words, count);
        } else {
            if count < length {
                words.select_nth_unstable(count - 1);
                words.truncate(count);
            }
            if alone { in_pieces(pool, &mut words) } else { words.sort_unstable() }
        }
        for ((word, value), position) in words.iter().zip(values).zip(positions) {
            let place = T::place(*word);
            (*value, *position) = (input[place as usize], place as i32);
        }
    };
    if alone {
        return (0..rows).for_each(row);
    }
    in_numbers(pool, rows, rows.saturating_mul(length).saturating_mul(length.max(2).ilog2() as usize), row);
}

/// Sorts the first `count` words and drops the others. Most of the others are greater than the last kept one.
fn first<W: Copy + Ord>(words: &mut Vec<W>, count: usize) {
    let (kept, others) = words.split_at_mut(count);
    kept.sort_unstable();
    for word in others {
        let last = count - 1;
        if *word < kept[last] {
            let place = kept[..last].partition_point(|kept| kept < word);
            kept.copy_within(place..last, place + 1);
            kept[place] = *word;
        }
    }
    words.truncate(count);
}

/// Sorts one row: each thread sorts a piece, then pairs of pieces are merged.
fn in_pieces<W: Copy + Ord>(pool: &Pool, words: &mut Vec<W>) {
    let mut piece = words.len().div_ceil(pool.threads()).max(1);
    let (length, start) = (words.len(), Shared(words.as_mut_ptr().cast()));
    pool.run(length.div_ceil(piece), &|number| {
        let first = number * piece;
        // SAFETY: pieces are disjoint parts of the vector, which outlives this call.
        let part = unsafe {
            std::slice::from_raw_parts_mut(start.at(first * size_of::<W>()).cast::<W>(), piece.min(length - first))
        };
        part.sort_unstable();
    });
    let mut merged = words.clone();
    while piece < length {
        let (from, start) = (&*words, Shared(merged.as_mut_ptr().cast()));
        let (from, length) = (Shared(from.as_ptr().cast_mut().cast()), from.len());
        pool.run(length.div_ceil(2 * piece), &|number| {
            let first = number * 2 * piece;
            let (both, middle) = ((2 * piece).min(length - first), piece.min(length - first));
            // SAFETY: as above, for two vectors.
            let (from, to) = unsafe {
                (
                    std::slice::from_raw_parts(from.at(first * size_of::<W>()).cast::<W>(), both),
                    std::slice::from_raw_parts_mut(start.at(first * size_of::<W>()).cast::<W>(), both),
                )
            };
            merge(from.split_at(middle), to);
        });
        std::mem::swap(words, &mut merged);
        piece *= 2;
    }
}

/// Merges two sorted slices.
fn merge<W: Copy + Ord>((mut left, mut right): (&[W], &[W]), to: &mut [W]) {
    for to in to {
        let from = match (left.first(), right.first()) {
            (Some(l), Some(r)) if r < l => &mut right,
            (None, _) => &mut right,
            _ => &mut left,
        };
        *to = from[0];
        *from = &from[1..];
    }
}
