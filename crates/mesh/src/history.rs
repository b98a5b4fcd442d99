//! The operations on distributed arrays that a rank has begun, by which ranks that run different programs are found.
//!
//! Each message carries the number of operations and the hashes of the last prefixes of the sender's program. All ranks make the same
//! calls, so both ends of a message have begun the same operations.

use std::collections::VecDeque;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Number of prefixes whose hashes a message carries.
const RECENT: usize = 8;

/// Number of bytes of a history in a message.
pub const BYTES: usize = 8 * (1 + RECENT);

/// The operations of one rank.
#[derive(Debug)]
pub struct History {
    /// Number of operations.
    count: u64,
    /// Hashes of the last prefixes, the whole program first.
    hashes: [u64; RECENT],
    /// Names of the last operations, the last one first.
    names: VecDeque<String>,
}

impl Default for History {
    fn default() -> History {
        History { count: 0, hashes: [0; RECENT], names: VecDeque::new() }
    }
}

impl History {
    /// Appends an operation. Its name, for messages, can differ between ranks, for example by the path of the source file.
    pub fn record(&mut self, operation: &str, name: String) {
        let hash = xxh3_64_with_seed(operation.as_bytes(), self.hashes[0]);
        self.hashes.rotate_right(1);
        self.hashes[0] = hash;
        self.count += 1;
        self.names.truncate(RECENT - 1);
        self.names.push_front(name);
    }

    /// Returns the bytes for a message.
    pub fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let words = std::iter::once(&self.count).chain(&self.hashes);
        bytes.chunks_exact_mut(8).zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// Compares this history with that of a message. Returns which operation differs first, if any does.
    pub fn difference(&self, bytes: &[u8]) -> Option<String> {
        let mut words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        let (count, theirs) = (words.next()?, words.collect::<Vec<u64>>());
        if count == self.count && theirs[0] == self.hashes[0] {
            return None;
        }
        if count.abs_diff(self.count) >= RECENT as u64 {
            return Some(format!("this rank has begun {} operations, the other one {count}", self.count));
        }
        // The hash after the first n operations, if it is one of the recent ones.
        let after =
            |hashes: &[u64], count: u64, n: u64| hashes.get(usize::try_from(count.checked_sub(n)?).ok()?).copied();
        let common = (0..=self.count.min(count)).rev().take(RECENT);
        let equal =
            |n: &u64| after(&self.hashes, self.count, *n).is_some_and(|own| after(&theirs, count, *n) == Some(own));
        let Some(last) = common.into_iter().find(equal) else {
            return Some(format!("they differed more than {RECENT} operations ago"));
        };
        let own = usize::try_from(self.count - last).ok().and_then(|back| self.names.get(back.checked_sub(1)?));
        Some(match own {
            Some(name) => format!("the first different operation is number {}, {name} on this rank", last + 1),
            None => format!("this rank has begun {last} operations, the other one {count}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(names: &[&str]) -> History {
        let mut history = History::default();
        names.iter().for_each(|name| history.record(name, (*name).to_string()));
        history
    }

    #[test]
    fn the_first_different_operation_is_named() {
        let own = history(&["a", "b", "c", "d"]);
        assert_eq!(own.difference(&own.to_bytes()), None);
        let between = |names: &[&str]| own.difference(&history(names).to_bytes()).unwrap();
        assert_eq!(between(&["a", "b", "x", "d"]), "the first different operation is number 3, c on this rank");
        assert_eq!(between(&["x", "b", "c", "d"]), "the first different operation is number 1, a on this rank");
        assert_eq!(between(&["a", "b", "c"]), "the first different operation is number 4, d on this rank");
        assert_eq!(between(&["a", "b", "c", "d", "e"]), "this rank has begun 4 operations, the other one 5");
        let short = history(&["a", "b"])
            .difference(&history(&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"]).to_bytes());
        assert_eq!(short.unwrap(), "this rank has begun 2 operations, the other one 11");
        let long = |first: &str| history(&[&[first], &["b"; 20][..]].concat());
        assert_eq!(long("a").difference(&long("a").to_bytes()), None);
        assert!(long("a").difference(&long("x").to_bytes()).unwrap().contains("more than 8 operations ago"));
    }
}
