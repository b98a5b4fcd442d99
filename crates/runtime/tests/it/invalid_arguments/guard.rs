//! An allocator that detects accesses outside of a block: behind the end of each lies a page without access, and memory that was freed
//! stays inaccessible. It serves what is aligned as the buffers and the scratch memory of the CPU, once it is enabled.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What buffers and scratch memory are aligned to, and nothing else.
const ALIGN: usize = 64;
/// Bytes of a page of every system on which this runs.
pub const PAGE: usize = 4096;
/// Addresses that are used once each.
const ARENA_BYTES: usize = 1 << 40;

static START: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);

pub struct Guarded;

/// From now on aligned blocks end at inaccessible pages.
pub fn enable() {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping overlaps nothing.
    let arena = unsafe { libc::mmap(ptr::null_mut(), ARENA_BYTES, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(arena, libc::MAP_FAILED, "addresses can be reserved");
    NEXT.store(arena as usize + PAGE, Ordering::SeqCst);
    START.store(arena as usize, Ordering::SeqCst);
}

fn pages(layout: Layout) -> usize {
    layout.size().next_multiple_of(PAGE)
}

// SAFETY: blocks are apart, aligned as asked and as long; each is given back to the allocator that made it.
unsafe impl GlobalAlloc for Guarded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let start = START.load(Ordering::SeqCst);
        if start == 0 || layout.align() != ALIGN || layout.size() > ARENA_BYTES / 2 {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc(layout) };
        }
        let at = NEXT.fetch_add(pages(layout) + PAGE, Ordering::SeqCst);
        let end = at + pages(layout);
        if end > start + ARENA_BYTES {
            return ptr::null_mut();
        }
        // SAFETY: the pages are within the arena, and no other block has them.
        let refused =
            unsafe { libc::mprotect(at as *mut libc::c_void, pages(layout), libc::PROT_READ | libc::PROT_WRITE) };
        if refused != 0 { ptr::null_mut() } else { ((end - layout.size()) & !(ALIGN - 1)) as *mut u8 }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if START.load(Ordering::SeqCst) == 0 || layout.align() != ALIGN {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: the caller's promise; pages that nobody had before hold zeros.
        unsafe { self.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let (start, address) = (START.load(Ordering::SeqCst), block as usize);
        if start == 0 || !(start..start + ARENA_BYTES).contains(&address) {
            // SAFETY: the caller's promise.
            return unsafe { System.dealloc(block, layout) };
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let first = (address & !(PAGE - 1)) as *mut libc::c_void;
        // SAFETY: exactly this block's pages are replaced by pages without access.
        unsafe { libc::mmap(first, pages(layout), libc::PROT_NONE, flags, -1, 0) };
    }
}
