//! Files that others write: what NumPy wrote is read back, what is broken is an error and never a panic.

use std::path::PathBuf;

use panoply_nn::data::{csv, idx, npy};
use panoply_tensor::{DType, Device, Result, Tensor};

/// A file of these bytes in a folder of its own.
fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("panoply-readers-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Every cut of a file is an error.
fn cuts<T>(name: &str, bytes: &[u8], read: impl Fn(&std::path::Path) -> Result<T>) {
    for length in 0..bytes.len() {
        let error = read(&file(name, &bytes[..length])).err().unwrap_or_else(|| panic!("cut to {length} bytes"));
        assert!(error.is_corrupt(), "{error}");
    }
}

#[test]
fn numpys_arrays() {
    Device::get("cpu").unwrap().scope(|| {
        // numpy.save of numpy.array([[1, 2, 3], [4, 5, -6]], dtype="float32"), NumPy 2.4.
        let header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        let mut bytes = header.to_vec();
        bytes.resize(127, b' ');
        bytes.push(b'\n');
        bytes.extend([1f32, 2.0, 3.0, 4.0, 5.0, -6.0].iter().flat_map(|x| x.to_le_bytes()));
        let path = file("a.npy", &bytes);
        let tensor = npy::load(&path).unwrap();
        assert_eq!(tensor.dims().unwrap(), [2, 3]);
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, -6.0]);
        npy::save(&tensor, &path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "written as NumPy writes it");
        cuts("cut.npy", &bytes, npy::load);
        let vector = Tensor::from_slice(&[7i32, -8], [2]);
        npy::save(&vector, &path).unwrap();
        let back = npy::load(&path).unwrap();
        assert_eq!((back.dtype(), back.to_vec::<i32>().unwrap()), (DType::I32, vec![7, -8]));
        let turned = String::from_utf8_lossy(header).replace("False", "True ");
        assert!(npy::load(&file("f.npy", turned.as_bytes())).is_err());
    });
}

#[test]
fn idx_files() {
    let images = [&[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3][..], &[0, 51, 255, 1, 2, 3]].concat();
    let labels = [0, 0, 8, 1, 0, 0, 0, 2, 4, 1];
    let (first, second) = (file("images.idx", &images), file("labels.idx", &labels));
    let data = idx::classified(&first, &second, 5).unwrap();
    assert_eq!((data.len(), data.width, data.labels()), (2, 3, &[4, 1][..]));
    assert_eq!(data.features[..3], [0.0, 0.2, 1.0]);
    cuts("cut.idx", &images, idx::load);
    let message = idx::classified(&first, &second, 3).unwrap_err().to_string();
    assert!(message.contains("example 0 has class 4"), "{message}");
    // A length that overflows is no allocation.
    let wide = [&[0, 0, 8, 3][..], &[255; 12], &[1]].concat();
    assert!(idx::load(&file("wide.idx", &wide)).unwrap_err().message().contains("do not fill"));
}

#[test]
fn tables() {
    let table = csv::load(&file("a.csv", b"\"x\",y,class\n1,2.5,0\n\n-3, 4e2,1\n")).unwrap();
    assert_eq!(table.names.as_deref().unwrap(), ["x", "y", "class"]);
    assert_eq!((table.rows(), &table.values[..]), (2, &[1.0, 2.5, 0.0, -3.0, 400.0, 1.0][..]));
    let data = table.classified(2, 2).unwrap();
    assert_eq!((&data.features[..], data.labels()), (&[1.0, 2.5, -3.0, 400.0][..], &[0, 1][..]));
    assert!(table.classified(1, 2).unwrap_err().message().contains("row 0 has class 2.5"));
    let message = |bytes: &[u8]| csv::load(&file("b.csv", bytes)).unwrap_err().message().to_string();
    assert!(message(b"1;2\n3;x\n").ends_with("b.csv:2: `x` is no number"));
    assert!(message(b"1\t2\n3\n").ends_with("b.csv:2: 1 cells, not 2 as above"));
    assert_eq!(csv::load(&file("empty.csv", b"")).unwrap().rows(), 0);
}
