//! Size classes of the pool.
//!
//! Small requests are rounded up to one of four sizes per power of two, so that freed memory fits later requests of similar size; at
//! most a quarter is lost. Large requests are rounded only to the alignment, so that a cap is met exactly (64 buffers of 1 MB fit
//! under 64 MB). A free large block serves requests down to 7/8 of its size.

/// Maximum size of a small request.
pub const LARGE: u64 = 64 << 10;

/// Number of small classes.
pub const CLASSES: usize = 33;

const MIN_BYTES: u64 = 256;
const ALIGNMENT: u64 = 64;

/// Returns the class of a small request; its size is [`class_bytes`].
pub fn small_class(bytes: u64) -> usize {
    debug_assert!(bytes <= LARGE);
    if bytes <= MIN_BYTES {
        return 0;
    }
    // Four classes per power of two, from the two bits after the leading one of bytes - 1.
    let below = bytes - 1;
    let doubling = below.ilog2() - MIN_BYTES.ilog2();
    let step = (below >> (below.ilog2() - 2)) & 3;
    (doubling * 4 + step as u32 + 1) as usize
}

/// Returns the size of a small class in bytes.
pub fn class_bytes(class: usize) -> u64 {
    if class == 0 {
        return MIN_BYTES;
    }
    let (doubling, step) = ((class - 1) / 4, (class - 1) % 4);
    (MIN_BYTES << doubling) / 4 * (5 + step as u64)
}

/// Returns the bytes to request from the driver if no free block fits; `None` if they exceed 64 bits.
pub fn rounded(bytes: u64) -> Option<u64> {
    if bytes <= LARGE { Some(class_bytes(small_class(bytes))) } else { bytes.checked_next_multiple_of(ALIGNMENT) }
}

/// Returns the capacity of the largest free block that serves a large request of this size.
pub fn largest_fit(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_small_size_has_the_smallest_fitting_class() {
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
    fn large_sizes_are_rounded_to_the_alignment() {
        assert_eq!(rounded(1_000_000), Some(1_000_000));
        assert_eq!(rounded(1_000_001), Some(1_000_064));
        assert_eq!(rounded(u64::MAX), None);
        assert_eq!(largest_fit(u64::MAX), u64::MAX);
    }
}
