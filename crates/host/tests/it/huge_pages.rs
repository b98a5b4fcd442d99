//! Memory between inaccessible pages, and memory in huge pages.

use panoply_host::huge_pages::Pages;

/// The system's list of mappings shows that the pages next to the memory are inaccessible.
#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn guarded_memory_is_between_inaccessible_pages() {
    for bytes in [1, 4096, 70_000] {
        let pages = Pages::guarded(bytes).expect("memory is available");
        let start = pages.start.as_ptr() as usize;
        let end = start + bytes.next_multiple_of(4096);
        // SAFETY: it has that many bytes, and this is the only reference.
        unsafe { std::slice::from_raw_parts_mut(pages.start.as_ptr(), bytes) }.fill(7);
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux lists the mappings");
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
            eprintln!("SKIPPED: huge pages are not available");
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
