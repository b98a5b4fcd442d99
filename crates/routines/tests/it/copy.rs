//! Copies and fills of every length, also those that threads share.

use panoply_host::pool::Pool;
use panoply_routines::{copy, fill};

/// Bytes from which threads share a copy.
const PARALLEL: usize = 1 << 20;

#[test]
fn long_copies_and_fills_reach_every_byte() {
    let pool = Pool::new(3);
    for bytes in [0, 1, 7, 4096, PARALLEL - 1, PARALLEL + 8 * 1001] {
        let from: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 256) as u8).collect();
        let mut to = vec![0; bytes];
        // SAFETY: both are vectors of this length.
        unsafe { copy(&pool, from.as_ptr(), to.as_mut_ptr(), bytes) };
        assert!(from == to, "{bytes}");
        for pattern in [&[9][..], &[1, 2], &[1, 2, 3, 4], &[1, 2, 3, 4, 5, 6, 7, 8]] {
            let whole = bytes / pattern.len() * pattern.len();
            // SAFETY: the vector is at least as long.
            unsafe { fill(&pool, to.as_mut_ptr(), whole, pattern) };
            assert!((0..whole).all(|i| to[i] == pattern[i % pattern.len()]), "{bytes} of {pattern:?}");
        }
    }
}
