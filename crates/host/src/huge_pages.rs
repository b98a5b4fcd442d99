//! Memory in transparent huge pages, where the system supports them, and memory between guard pages.
//!
//! A column walk through a large row-major matrix touches a new page at every step. With pages of 4 KiB the TLB evicts
//! entries before they are used again; with pages of 2 MiB it does not. Zeroing also takes one page fault instead of
//! about five hundred, each of which took 2 to 4 µs on a virtual machine. Linux gives them to those who ask; NumPy does for arrays of 4 MiB.

use std::ptr::NonNull;

/// Size of a huge page on every supported system.
#[cfg(target_os = "linux")]
const PAGE: usize = 2 << 20;

/// Minimum size in bytes of memory for which [`prefer_huge_pages`] asks, that of NumPy.
const MIN_BYTES: usize = 4 << 20;

/// Asks the system for huge pages for memory that has not been used yet, if it is large. Its content does not change.
pub fn prefer_huge_pages<T>(memory: &mut [T]) {
    if size_of_val(memory) >= MIN_BYTES {
        advise(memory.as_mut_ptr().cast(), size_of_val(memory));
    }
}

/// Creates an empty vector whose memory is in huge pages if it is large and the system has them.
pub fn large_vec<T>(capacity: usize) -> Vec<T> {
    let mut vec = Vec::with_capacity(capacity);
    prefer_huge_pages(vec.spare_capacity_mut());
    vec
}

/// Asks for huge pages for the part of `bytes` bytes of memory that consists of whole pages. The caller has the memory.
#[cfg(target_os = "linux")]
fn advise(start: *mut u8, bytes: usize) {
    let skipped = start.align_offset(PAGE);
    let length = bytes.saturating_sub(skipped) / PAGE * PAGE;
    // This is only advice: if it is rejected, the pages are small. Miri does not support the call.
    if length > 0 && !cfg!(miri) {
        // SAFETY: whatever the range, the advice changes no content and no access.
        unsafe { libc::madvise(start.wrapping_add(skipped).cast(), length, libc::MADV_HUGEPAGE) };
    }
}

/// Other systems decide without advice.
#[cfg(not(target_os = "linux"))]
fn advise(_: *mut u8, _: usize) {}

/// A mapped range of pages, unmapped when dropped.
#[derive(Debug)]
pub struct Pages {
    /// Address of the first byte; the start of a huge page for [`Pages::huge`].
    pub start: NonNull<u8>,
    #[cfg(target_os = "linux")]
    mapped: (usize, usize),
}

impl Pages {
    /// Maps zeroed huge pages for `bytes` bytes. `None` if huge pages would waste most of the memory or are not available.
    #[cfg(target_os = "linux")]
    pub fn huge(bytes: usize) -> Option<Pages> {
        if bytes < 2 * PAGE {
            return None;
        }
        let length = bytes.checked_next_multiple_of(PAGE)?.checked_add(PAGE)?;
        let (read_write, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping overlaps nothing.
        let whole = unsafe { libc::mmap(std::ptr::null_mut(), length, read_write, private, -1, 0) };
        if whole == libc::MAP_FAILED {
            return None;
        }
        let start = whole.cast::<u8>();
        let start = start.wrapping_add(start.align_offset(PAGE));
        // The mapping is `PAGE` longer than what is needed.
        advise(start, length - PAGE);
        Some(Pages { start: NonNull::new(start)?, mapped: (whole as usize, length) })
    }

    /// Returns `None`: huge pages are not supported on this system.
    #[cfg(not(target_os = "linux"))]
    pub fn huge(_: usize) -> Option<Pages> {
        None
    }

    /// Maps zeroed pages for `bytes` bytes, with one inaccessible page before and one after them.
    #[cfg(target_os = "linux")]
    pub fn guarded(bytes: usize) -> Option<Pages> {
        // SAFETY: the call only queries a system parameter.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
        let inner = bytes.checked_next_multiple_of(page)?;
        let length = inner.checked_add(2 * page)?;
        let (none, private) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping overlaps nothing.
        let whole = unsafe { libc::mmap(std::ptr::null_mut(), length, none, private, -1, 0) };
        if whole == libc::MAP_FAILED {
            return None;
        }
        let start = NonNull::new(whole.cast::<u8>().wrapping_add(page))?;
        let pages = Pages { start, mapped: (whole as usize, length) };
        // SAFETY: the range is inside the mapping, a page away from either end.
        let opened = unsafe { libc::mprotect(start.as_ptr().cast(), inner, libc::PROT_READ | libc::PROT_WRITE) };
        (opened == 0).then_some(pages)
    }

    /// Returns `None`: guard pages are not supported on this system.
    #[cfg(not(target_os = "linux"))]
    pub fn guarded(_: usize) -> Option<Pages> {
        None
    }
}

#[cfg(target_os = "linux")]
impl Drop for Pages {
    fn drop(&mut self) {
        let (start, length) = self.mapped;
        // SAFETY: exactly this range was mapped, and it is unmapped only here.
        unsafe { libc::munmap(start as *mut libc::c_void, length) };
    }
}
