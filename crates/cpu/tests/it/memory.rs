//! Allocations of impossible sizes, and the table of objects.

use panoply_cpu::map_file;
use panoply_cpu::memory::{Allocation, Table};

#[test]
fn an_impossible_size_is_out_of_memory() {
    for bytes in [1 << 50, u64::MAX] {
        let error = Allocation::new(bytes).expect_err("no machine has that much memory");
        assert!(error.is_out_of_memory(), "{error}");
    }
}

#[test]
fn ids_are_not_reused() {
    let table = Table::new();
    let a = table.insert('a');
    let b = table.insert('b');
    assert_eq!(table.remove(a).as_deref(), Some(&'a'));
    assert!(table.get(a).is_none());
    let c = table.insert('c');
    assert!(c != a && c != b);
    assert_eq!(table.get(b).as_deref(), Some(&'b'));
}

#[test]
fn released_pages_of_a_mapped_file_have_the_same_bytes() {
    let path = std::env::temp_dir().join(format!("panoply-release-{}", std::process::id()));
    let bytes: Vec<u8> = (0..1_000_003u32).map(|n| (n * 7 + n / 251) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    let map = map_file(&path).unwrap();
    assert!(map.as_slice() == bytes);
    for range in [0..bytes.len(), 5..bytes.len() - 5, 70_000..70_001, 900_000..2_000_000, 10..10] {
        map.release(range.clone());
        assert!(map.as_slice() == bytes, "{range:?}");
    }
    std::fs::remove_file(path).unwrap();
}
