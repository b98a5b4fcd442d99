//! An allocator that detects out-of-bounds accesses: an inaccessible page follows each block, and freed memory stays inaccessible. Once
//! enabled, it serves blocks with the alignment of the CPU's buffers and scratch memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Alignment that only buffers and scratch memory have.
const ALIGN: usize = 64;
/// Page size of every system on which this runs.
pub const PAGE: usize = 4096;
/// Size of the address range; each address is used once.
const ARENA_BYTES: usize = 1 << 40;

static START: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);

pub struct Guarded;

/// Makes later aligned blocks end at inaccessible pages.
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

// SAFETY: blocks are disjoint and have the requested alignment and size; each is returned to the allocator that created it.
unsafe impl GlobalAlloc for Guarded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let start = START.load(Ordering::SeqCst);
        if start == 0 || layout.align() != ALIGN || layout.size() > ARENA_BYTES / 2 {
            // SAFETY: guaranteed by the caller.
            return unsafe { System.alloc(layout) };
        }
        let at = NEXT.fetch_add(pages(layout) + PAGE, Ordering::SeqCst);
        let end = at + pages(layout);
        if end > start + ARENA_BYTES {
            return ptr::null_mut();
        }
        // SAFETY: the pages are within the arena and belong to no other block.
        let refused =
            unsafe { libc::mprotect(at as *mut libc::c_void, pages(layout), libc::PROT_READ | libc::PROT_WRITE) };
        if refused != 0 { ptr::null_mut() } else { ((end - layout.size()) & !(ALIGN - 1)) as *mut u8 }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if START.load(Ordering::SeqCst) == 0 || layout.align() != ALIGN {
            // SAFETY: guaranteed by the caller.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: guaranteed by the caller; unused pages contain zeros.
        unsafe { self.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let (start, address) = (START.load(Ordering::SeqCst), block as usize);
        if start == 0 || !(start..start + ARENA_BYTES).contains(&address) {
            // SAFETY: guaranteed by the caller.
            return unsafe { System.dealloc(block, layout) };
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let first = (address & !(PAGE - 1)) as *mut libc::c_void;
        // SAFETY: exactly this block's pages are replaced by inaccessible pages.
        unsafe { libc::mmap(first, pages(layout), libc::PROT_NONE, flags, -1, 0) };
    }
}
