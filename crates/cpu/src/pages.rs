//! Memory in huge pages, where the system has them for the asking.
//!
//! A walk against the rows of a large matrix meets a new page with every step. With pages of 4 KiB the processor forgets where
//! they are faster than it comes back to them; with pages of 2 MiB it does not. They are also zeroed one by one, not five hundred.

use std::ptr::NonNull;

/// A range of pages, given back when dropped.
#[derive(Debug)]
pub struct Pages {
    /// The first byte, which a huge page starts with.
    pub start: NonNull<u8>,
    #[cfg(target_os = "linux")]
    mapped: (usize, usize),
}

impl Pages {
    /// Zeroed pages for so many bytes; none where huge pages would waste most of it, or cannot be had.
    #[cfg(target_os = "linux")]
    pub fn huge(bytes: usize) -> Option<Pages> {
        /// A huge page of every system on which this runs.
        const PAGE: usize = 2 << 20;
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
        // Advice only: refused, the pages are small. Miri does not know it.
        if !cfg!(miri) {
            // SAFETY: the range lies inside the mapping, which is `PAGE` longer than what is needed.
            unsafe { libc::madvise(start.cast(), length - PAGE, libc::MADV_HUGEPAGE) };
        }
        Some(Pages { start: NonNull::new(start)?, mapped: (whole as usize, length) })
    }

    /// No such pages here.
    #[cfg(not(target_os = "linux"))]
    pub fn huge(_: usize) -> Option<Pages> {
        None
    }
}

#[cfg(target_os = "linux")]
impl Drop for Pages {
    fn drop(&mut self) {
        let (start, length) = self.mapped;
        // SAFETY: exactly this range was mapped, and nobody else unmaps it.
        unsafe { libc::munmap(start as *mut libc::c_void, length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_memory_is_zeroed_and_writable_to_its_end() {
        assert!(Pages::huge(1 << 20).is_none());
        for bytes in [4 << 20, (9 << 20) + 7] {
            let Some(pages) = Pages::huge(bytes) else {
                eprintln!("SKIPPED: memory in huge pages: none here");
                return;
            };
            // SAFETY: it has that many bytes, and this is the only reference.
            let memory = unsafe { std::slice::from_raw_parts_mut(pages.start.as_ptr(), bytes) };
            assert!(memory.iter().all(|byte| *byte == 0));
            memory.fill(7);
            assert_eq!(pages.start.as_ptr().align_offset(2 << 20), 0);
        }
        assert!(Pages::huge(usize::MAX).is_none());
    }
}
