//! Scratch memory of routines, kept from one call to the next.
//!
//! A routine takes a block for one part of its work and returns it at the end of that part. There are therefore at most
//! as many blocks as threads, and one more for data the threads share. Blocks are kept because fresh memory costs a
//! page fault per 4 KiB.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Size in bytes above which a block is not kept.
const KEPT_BYTES: usize = 32 << 20;

/// One cache line, which is also the size of the widest vector register.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "it is only accessed through pointers to numbers")] [u8; 64]);

/// Blocks that are free.
#[derive(Default)]
pub struct Scratch {
    free: Mutex<Vec<Vec<Line>>>,
}

impl Scratch {
    /// Returns memory for `elems` elements, aligned to 64 bytes. The contents are unspecified, but initialized.
    pub fn take<T: crate::simd::Number>(&self, elems: usize) -> Block<'_, T> {
        let lines = (elems * size_of::<T>()).div_ceil(size_of::<Line>());
        let mut free = self.lock();
        // Takes the smallest block that is large enough, otherwise replaces the largest, so that the number of blocks
        // does not grow.
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

    /// Returns the bytes of the free blocks.
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

/// A block of scratch memory in use.
pub struct Block<'a, T> {
    memory: Vec<Line>,
    owner: &'a Scratch,
    elem: PhantomData<T>,
}

impl<T> Block<'_, T> {
    /// Returns the address of the first element.
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
