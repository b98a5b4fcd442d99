//! Memory that routines work in, kept from one call to the next.
//!
//! A routine takes what it needs for a part of its work and gives it back at the end of the part, so there are never more
//! blocks than threads (and one more for what threads share). Fresh memory costs a page fault for every 4 KiB; that is why it is kept.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a block beyond which it is not kept.
const KEPT_BYTES: usize = 32 << 20;

/// As much as a vector register and a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "it is only ever seen as numbers")] [u8; 64]);

/// Blocks that nobody uses now.
#[derive(Default)]
pub struct Scratch {
    free: Mutex<Vec<Vec<Line>>>,
}

impl Scratch {
    /// Memory for so many elements, at 64 bytes. It holds numbers, but nobody says which.
    pub fn take<T: crate::simd::Number>(&self, elems: usize) -> Block<'_, T> {
        let lines = (elems * size_of::<T>()).div_ceil(size_of::<Line>());
        let mut free = self.lock();
        // The smallest that is large enough; otherwise the largest goes, so that their number does not grow.
        let found = (0..free.len()).filter(|at| free[*at].len() >= lines).min_by_key(|at| free[*at].len());
        let found = found.or_else(|| (0..free.len()).max_by_key(|at| free[*at].len()));
        let mut memory = found.map(|at| free.swap_remove(at)).unwrap_or_default();
        drop(free);
        if memory.len() < lines {
            memory = Vec::new();
            memory.resize(lines, Line([0; 64]));
        }
        Block { memory, owner: self, elem: PhantomData }
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        self.lock().iter().map(|memory| memory.len() * size_of::<Line>()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<Line>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch").field("bytes", &self.bytes()).finish()
    }
}

/// Memory in use.
pub struct Block<'a, T> {
    memory: Vec<Line>,
    owner: &'a Scratch,
    elem: PhantomData<T>,
}

impl<T> Block<'_, T> {
    /// Its first element.
    pub fn start(&mut self) -> *mut T {
        self.memory.as_mut_ptr().cast()
    }
}

impl<T> Drop for Block<'_, T> {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        if memory.len() * size_of::<Line>() <= KEPT_BYTES {
            self.owner.lock().push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_kept_and_found_again() {
        let scratch = Scratch::default();
        let first = scratch.take::<f32>(1000).start() as usize;
        assert_eq!((first % 64, scratch.bytes()), (0, 4032));
        assert_eq!(scratch.take::<f64>(500).start() as usize, first, "it is large enough");
        scratch.take::<f32>(2000);
        assert_eq!(scratch.bytes(), 8000, "the smaller one made room");
        scratch.take::<f32>(KEPT_BYTES);
        assert_eq!(scratch.bytes(), 0, "what is too large is not kept");
    }
}
