//! Fills of regions whose offset is not a multiple of the pattern's length.
//!
//! Driver APIs require offset and length to be multiples of the pattern's length. Any other region is split into single bytes up to the
//! next multiple, a middle with the rotated pattern, and the bytes after the last multiple.

/// One fill command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillCommand {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes; a multiple of the pattern's length.
    pub bytes: u64,
    /// The pattern that is repeated.
    pub pattern: Vec<u8>,
}

/// Returns the commands that fill `bytes` bytes from `offset` on with a pattern of 1, 2, 4 or 8 bytes.
pub fn parts(offset: u64, bytes: u64, pattern: &[u8]) -> Vec<FillCommand> {
    let period = pattern.len() as u64;
    let single =
        |at: u64| FillCommand { offset: offset + at, bytes: 1, pattern: vec![pattern[(at % period) as usize]] };
    let head = ((period - offset % period) % period).min(bytes);
    let middle = (bytes - head) / period * period;
    let mut parts: Vec<FillCommand> = (0..head).map(single).collect();
    if middle > 0 {
        let mut rotated = pattern.to_vec();
        rotated.rotate_left(head as usize);
        parts.push(FillCommand { offset: offset + head, bytes: middle, pattern: rotated });
    }
    parts.extend((head + middle..bytes).map(single));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_region_exactly_and_are_aligned() {
        for pattern in [&[7][..], &[1, 2], &[1, 2, 3, 4], &[1, 2, 3, 4, 5, 6, 7, 8]] {
            for offset in 0..17u64 {
                for bytes in 0..40u64 {
                    let mut memory = vec![0xEE; 64];
                    for part in parts(offset, bytes, pattern) {
                        let period = part.pattern.len() as u64;
                        assert!(part.offset % period == 0 && part.bytes % period == 0 && part.bytes > 0, "{part:?}");
                        for i in 0..part.bytes {
                            memory[(part.offset + i) as usize] = part.pattern[(i % period) as usize];
                        }
                    }
                    let inside = |i: u64| (offset..offset + bytes).contains(&i);
                    let expected: Vec<u8> = (0..64)
                        .map(|i| if inside(i) { pattern[((i - offset) % pattern.len() as u64) as usize] } else { 0xEE })
                        .collect();
                    assert_eq!(memory, expected, "{bytes} bytes at {offset} of {pattern:?}");
                }
            }
        }
    }
}
