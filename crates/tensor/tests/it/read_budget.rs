//! The limit on the memory of a read.

use std::path::Path;

use panoply_tensor::{Error, ReadBudget};

#[test]
fn bytes_are_counted_and_given_back() {
    let (budget, path) = (ReadBudget::new(10), Path::new("a.csv"));
    budget.take(6, path).unwrap();
    let error = budget.take(5, path).unwrap_err();
    assert_eq!(error.message(), "a.csv: reading it takes more than 10 bytes of memory");
    assert!(error.is_corrupt() && error.notes()[0].contains("PANOPLY_READ_LIMIT="), "{error}");
    budget.give_back(6);
    budget.take(10, path).unwrap();
    assert!(budget.take(u64::MAX, path).is_err() && budget.take_values(usize::MAX, 8, path).is_err());
    for (limit, shown) in [(3 << 30, "3 GiB"), (3 << 19, "1.5 MiB"), (1023, "1023 bytes")] {
        let error = ReadBudget::new(limit).exceeded(path);
        assert_eq!(error.message(), format!("a.csv: reading it takes more than {shown} of memory"));
    }
}

#[test]
fn a_file_that_fits_exactly_is_read_and_one_byte_more_is_not() {
    let failed = |error| Error::io("cannot read", error);
    let read = |limit| ReadBudget::new(limit).read_to_end(&[7u8; 100_000][..], Path::new("x"), failed);
    assert_eq!(read(100_000).unwrap().len(), 100_000);
    assert!(read(99_999).unwrap_err().is_corrupt());
    let endless = ReadBudget::new(1 << 20).read_to_end(std::io::repeat(0), Path::new("zero"), failed);
    assert!(endless.unwrap_err().message().contains("1 MiB"));
    let path = std::env::temp_dir().join(format!("panoply-budget-{}", std::process::id()));
    std::fs::write(&path, [7u8; 1000]).unwrap();
    let whole = ReadBudget::new(1000);
    assert_eq!((whole.read_file(&path).unwrap().len(), whole.left(), whole.is_exceeded()), (1000, 0, false));
    let less = ReadBudget::new(999);
    assert!(less.read_file(&path).unwrap_err().is_corrupt() && less.is_exceeded());
    // Several threads read a large file.
    let large: Vec<u8> = (0..(17 << 20) + 5).map(|at: u32| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    std::fs::write(&path, &large).unwrap();
    let size = large.len() as u64;
    for room in [0, 1, 1 << 20] {
        let budget = ReadBudget::new(size + room);
        assert!(budget.read_file(&path).unwrap() == large && budget.left() == room);
    }
    assert!(ReadBudget::new(size - 1).read_file(&path).unwrap_err().is_corrupt());
    std::fs::remove_file(path).unwrap();
}

#[test]
fn large_files_may_take_more() {
    // Without the variable the default is a multiple of the size on disk.
    if panoply_runtime::env::read_limit().unwrap().is_none() {
        assert_eq!(ReadBudget::for_size(1 << 30).unwrap().left(), 32 << 30);
        assert_eq!(ReadBudget::for_size(321).unwrap().left(), 4 << 30);
    }
}
