//! Memory in huge pages, where the system has them for the asking, and memory between guard pages.
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

    /// Zeroed pages for so many bytes, with a page before and one after them that may neither be read nor written.
    #[cfg(target_os = "linux")]
    pub fn guarded(bytes: usize) -> Option<Pages> {
        // SAFETY: it only asks the system.
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
        // SAFETY: the range lies inside the mapping, a page away from either end.
        let opened = unsafe { libc::mprotect(start.as_ptr().cast(), inner, libc::PROT_READ | libc::PROT_WRITE) };
        (opened == 0).then_some(pages)
    }

    /// No such pages here.
    #[cfg(not(target_os = "linux"))]
    pub fn guarded(_: usize) -> Option<Pages> {
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

    /// The system's own list of mappings says that the pages beside the bytes may not be touched.
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn guarded_memory_lies_between_pages_without_access() {
        for bytes in [1, 4096, 70_000] {
            let pages = Pages::guarded(bytes).expect("there is memory");
            let start = pages.start.as_ptr() as usize;
            let end = start + bytes.next_multiple_of(4096);
            // SAFETY: it has that many bytes, and this is the only reference.
            unsafe { std::slice::from_raw_parts_mut(pages.start.as_ptr(), bytes) }.fill(7);
            let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux says what is mapped");
            let rights = |address: usize| {
                maps.lines().find_map(|line| {
                    let (range, rest) = line.split_once(' ')?;
                    let (first, last) = range.split_once('-')?;
                    let number = |text| usize::from_str_radix(text, 16).ok();
                    (number(first)?..number(last)?).contains(&address).then(|| rest[..3].to_string())
                })
            };
            assert_eq!([start - 1, end].map(rights), [Some("---".into()), Some("---".into())], "{bytes}");
            assert_eq!([start, end - 1].map(rights), [Some("rw-".into()), Some("rw-".into())], "{bytes}");
        }
    }

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
