//! Checksums that verify that a binary is one that the driver returned earlier.
//!
//! Drivers do not validate binaries: each of the three that were tried crashed on some truncated or altered binary that it had produced
//! itself. Therefore every binary is stored with a magic number and a hash of the binary and of the target it was compiled for, and bytes
//! without them never reach a driver. This detects damage and mix-ups, not attacks: an attacker who can write a user's private cache can
//! run programs anyway.

use std::hash::{DefaultHasher, Hasher};

const MARK: &[u8; 8] = b"panoply1";

/// Prepends the magic number and the hash to a binary; `made_for` names device, driver and options.
pub fn seal(bytes: &[u8], made_for: &str) -> Vec<u8> {
    [MARK, &hash(bytes, made_for).to_le_bytes()[..], bytes].concat()
}

/// Returns the binary if magic number and hash are valid for `made_for`.
pub fn open<'a>(sealed: &'a [u8], made_for: &str) -> Option<&'a [u8]> {
    let (expected, bytes) = sealed.strip_prefix(MARK)?.split_first_chunk::<8>()?;
    (hash(bytes, made_for).to_le_bytes() == *expected).then_some(bytes)
}

fn hash(bytes: &[u8], made_for: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(made_for.as_bytes());
    hasher.write(&[0xFF]);
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_rejects_truncated_altered_and_mismatched_binaries() {
        let sealed = seal(b"program", "device");
        assert_eq!(open(&sealed, "device"), Some(&b"program"[..]));
        assert_eq!(open(&sealed, "another"), None);
        for length in 0..sealed.len() {
            assert_eq!(open(&sealed[..length], "device"), None, "truncated to {length}");
        }
        for i in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[i] ^= 0x10;
            assert_eq!(open(&altered, "device"), None, "altered at {i}");
        }
        assert_eq!(open(&[sealed, vec![0]].concat(), "device"), None, "longer");
    }
}
