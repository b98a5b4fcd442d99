//! Rows of packed integers interleaved in groups, so that a vector register takes the same word of every row of a group from consecutive
//! memory.
//!
//! A block is divided into 32-bit words and, in some encodings, one f16. The interleaved form of a group `[rows, blocks, block bytes]` is
//! `[blocks, (f16, rows) then (words, rows)]`: as many bytes, in the order in which a product reads them.

use super::Encoding;

/// Rows of a group.
pub const INTERLEAVED_ROWS: usize = 16;

impl Encoding {
    /// Returns the first byte of the f16 of a block, if it is not in one of the words, and the words as runs of bytes, first byte and length,
    /// in their interleaved order; none for encodings that are not interleaved.
    pub fn interleaved_parts(self) -> Option<(Option<usize>, &'static [[usize; 2]])> {
        Some(match self {
            Encoding::Q4_0 => (Some(0), &[[2, 16]]),
            Encoding::Q4_1 => (None, &[[0, 20]]),
            Encoding::Q5_0 => (Some(0), &[[2, 20]]),
            Encoding::Q5_1 => (None, &[[0, 24]]),
            Encoding::Q8_0 => (Some(0), &[[2, 32]]),
            Encoding::Q2K => (None, &[[0, 84]]),
            Encoding::Q3K => (Some(108), &[[0, 108]]),
            Encoding::Q4K => (None, &[[0, 144]]),
            Encoding::Q5K => (None, &[[0, 176]]),
            // Scales; for each half low bits, high bits of all, low bits.
            Encoding::Q6K => (Some(208), &[[192, 16], [0, 32], [128, 32], [32, 32], [64, 32], [160, 32], [96, 32]]),
            _ => return None,
        })
    }

    /// Returns true if a matrix with this number of rows can be interleaved.
    pub fn can_interleave(self, rows: usize) -> bool {
        rows.is_multiple_of(INTERLEAVED_ROWS) && self.interleaved_parts().is_some()
    }

    /// Interleaves the rows of whole groups. `packed` and `out` have the same number of bytes, that of rows of `row_bytes`.
    ///
    /// # Panics
    /// If the encoding is not interleaved, or the lengths are not those of whole groups.
    pub fn interleave(self, packed: &[u8], row_bytes: usize, out: &mut [u8]) {
        self.permute(row_bytes, out.len(), |stored, interleaved, count| {
            out[interleaved..][..count].copy_from_slice(&packed[stored..][..count]);
        });
    }

    /// Undoes [`Encoding::interleave`].
    ///
    /// # Panics
    /// As [`Encoding::interleave`].
    pub fn deinterleave(self, interleaved: &[u8], row_bytes: usize, out: &mut [u8]) {
        self.permute(row_bytes, out.len(), |stored, at, count| {
            out[stored..][..count].copy_from_slice(&interleaved[at..][..count]);
        });
    }

    /// Returns the first byte in a stored block, and the number of bytes, of each piece of an interleaved block, in order.
    fn interleaved_pieces(self) -> Option<Vec<[usize; 2]>> {
        let (half, words) = self.interleaved_parts()?;
        let words = words.iter().flat_map(|[first, length]| (*first..first + length).step_by(4).map(|word| [word, 4]));
        Some(half.map(|half| [half, 2]).into_iter().chain(words).collect())
    }

    /// Calls `f` with the position of each piece in both forms, and its number of bytes.
    #[inline(always)]
    fn permute(self, row_bytes: usize, bytes: usize, mut f: impl FnMut(usize, usize, usize)) {
        let pieces = self.interleaved_pieces().expect("the encoding is interleaved");
        let group = row_bytes * INTERLEAVED_ROWS;
        assert!(group > 0 && row_bytes.is_multiple_of(self.block_bytes()) && bytes.is_multiple_of(group));
        let mut at = 0;
        for first in (0..bytes).step_by(group) {
            for block in (first..first + row_bytes).step_by(self.block_bytes()) {
                for [piece, length] in &pieces {
                    let rows = (0..INTERLEAVED_ROWS).map(|row| block + row * row_bytes + piece);
                    // With a length that the compiler knows, a copy is one instruction.
                    match *length {
                        4 => rows.enumerate().for_each(|(row, stored)| f(stored, at + 4 * row, 4)),
                        _ => rows.enumerate().for_each(|(row, stored)| f(stored, at + 2 * row, 2)),
                    }
                    at += length * INTERLEAVED_ROWS;
                }
            }
        }
    }
}
