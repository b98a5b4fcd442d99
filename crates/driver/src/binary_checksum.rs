//! Binaries that can be trusted to be what the driver once gave.
//!
//! Drivers do not check what they are handed: of three tried, all crashed on some truncated or altered binary of their own.
//! So the bytes that leave carry a mark and a hash over them and over what they were made for, and bytes without them never
//! reach a driver. This finds damage and mix-ups; an attacker who can write a user's private cache could run programs anyway.

use std::hash::{DefaultHasher, Hasher};

const MARK: &[u8; 8] = b"panoply1";

/// The bytes with mark and hash; `made_for` names device, driver and options.
pub fn seal(bytes: &[u8], made_for: &str) -> Vec<u8> {
    [MARK, &hash(bytes, made_for).to_le_bytes()[..], bytes].concat()
}

/// The bytes within, if they are whole and made for this.
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
    fn only_what_was_sealed_opens() {
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
