//! Allocations of impossible sizes, and the table of objects.

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
