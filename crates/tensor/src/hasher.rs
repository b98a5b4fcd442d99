//! The hash function of in-memory maps that are accessed for every node of a graph: nodes by address, plans and
//! bodies by content.
//!
//! Hashes are not stored and do not leave the process. Keys come from the program itself, so collision attacks are
//! not a concern.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use crate::tensor::Node;

/// A map with the word hasher.
pub(crate) type WordMap<K, V> = HashMap<K, V, BuildHasherDefault<WordHasher>>;

/// A map keyed by node.
pub(crate) type NodeMap<V> = WordMap<*const Node, V>;

/// A set of nodes.
pub(crate) type NodeSet = HashSet<*const Node, BuildHasherDefault<WordHasher>>;

/// Hasher with one multiplication for each word (Fibonacci hashing; Knuth, The Art of Computer Programming, volume 3,
/// section 6.4).
#[derive(Default)]
pub(crate) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
