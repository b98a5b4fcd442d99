//! Memory of a thread's frames.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::vm::program::Program;

/// A buffer that grows to the largest frame the thread has needed.
pub struct Scratch {
    start: NonNull<u8>,
    bytes: usize,
}

const ALIGN: usize = 4096;

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch::new()
    }
}

impl Scratch {
    /// Creates an empty buffer.
    pub const fn new() -> Scratch {
        Scratch { start: NonNull::dangling(), bytes: 0 }
    }

    /// Returns memory for a program's frame, aligned for every lane type. Its contents are zero or left over from earlier frames.
    pub fn frame(&mut self, program: &Program) -> *mut u8 {
        if program.frame_bytes > self.bytes {
            self.grow(program.frame_bytes);
        }
        self.start.as_ptr()
    }

    fn grow(&mut self, bytes: usize) {
        self.release();
        let layout = layout(bytes.next_multiple_of(ALIGN));
        // SAFETY: the layout is not empty, because a frame has slots.
        let start = unsafe { alloc_zeroed(layout) };
        self.start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        self.bytes = layout.size();
    }

    fn release(&mut self) {
        if self.bytes > 0 {
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(self.start.as_ptr(), layout(self.bytes)) };
            self.bytes = 0;
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.release();
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGN).expect("frames are far smaller than the address space")
}
