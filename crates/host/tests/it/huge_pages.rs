//! Memory between inaccessible pages, and memory in huge pages.

use panoply_host::huge_pages::{Pages, large_vec, prefer_huge_pages};

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

/// Advice about memory changes no content, whatever the alignment of its start.
#[test]
fn advice_changes_no_content() {
    let mut bytes: Vec<u8> = (0..(7usize << 20) + 5).map(|at| at as u8).collect();
    let before = bytes.clone();
    (0..9).for_each(|start| prefer_huge_pages(&mut bytes[start..]));
    prefer_huge_pages::<u8>(&mut []);
    prefer_huge_pages(&mut [(); 5 << 20]);
    assert!(bytes == before);
    for capacity in [0, 10, 3 << 20] {
        let mut words = large_vec::<u32>(capacity);
        assert!(words.is_empty() && words.capacity() >= capacity);
        words.extend(0..capacity as u32);
        assert!(words.iter().copied().eq(0..capacity as u32));
    }
}
