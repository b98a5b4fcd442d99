//! Which sizes of memory are kept apart.
//!
//! Small requests are rounded up to one of four sizes per doubling, so that freed memory fits the next request of about the
//! size; at most a quarter is lost. Large ones are rounded to the alignment alone, so that a cap is met to the byte (64
//! buffers of 1 MB fit under 64 MB), and freed memory serves requests down to 7/8 of its size.

/// Requests from here on are large.
pub const LARGE: u64 = 64 << 10;

/// How many small classes there are.
pub const CLASSES: usize = 33;

const LEAST: u64 = 256;
const ALIGNMENT: u64 = 64;

/// The class of a small request; its size is [`class_bytes`] of it.
pub fn small_class(bytes: u64) -> usize {
    debug_assert!(bytes <= LARGE);
    if bytes <= LEAST {
        return 0;
    }
    // Four steps per doubling: the two bits after the leading one of bytes - 1.
    let below = bytes - 1;
    let doubling = below.ilog2() - LEAST.ilog2();
    let step = (below >> (below.ilog2() - 2)) & 3;
    (doubling * 4 + step as u32 + 1) as usize
}

/// Bytes of a small class.
pub fn class_bytes(class: usize) -> u64 {
    if class == 0 {
        return LEAST;
    }
    let (doubling, step) = ((class - 1) / 4, (class - 1) % 4);
    (LEAST << doubling) / 4 * (5 + step as u64)
}

/// Bytes taken from the driver for a request that nothing kept can serve; none if that exceeds 64 bits.
pub fn rounded(bytes: u64) -> Option<u64> {
    if bytes <= LARGE { Some(class_bytes(small_class(bytes))) } else { bytes.checked_next_multiple_of(ALIGNMENT) }
}

/// The most kept memory may exceed a large request that it serves.
pub fn largest_fit(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_cover_every_small_size_tightly() {
        for bytes in 0..=LARGE {
            let class = small_class(bytes);
            let size = class_bytes(class);
            assert!(size >= bytes, "{bytes} in {size}");
            assert!(class == 0 || class_bytes(class - 1) < bytes, "{bytes} would fit the class below {size}");
        }
        assert_eq!(small_class(LARGE), CLASSES - 1);
        assert_eq!(class_bytes(CLASSES - 1), LARGE);
        for class in 1..CLASSES {
            assert!(class_bytes(class) <= class_bytes(class - 1) * 5 / 4);
            assert_eq!(class_bytes(class) % ALIGNMENT, 0);
        }
    }

    #[test]
    fn large_sizes_are_kept_to_the_byte() {
        assert_eq!(rounded(1_000_000), Some(1_000_000));
        assert_eq!(rounded(1_000_001), Some(1_000_064));
        assert_eq!(rounded(u64::MAX), None);
        assert_eq!(largest_fit(u64::MAX), u64::MAX);
    }
}
