//! Headers, archives and texts as other programs write them, and files of other formats, which are identified.

use std::path::PathBuf;

use panoply_nn::checkpoint;
use panoply_nn::data::reader::{self, DataFormat, ReadOptions};
use panoply_nn::data::{npy, npz};
use panoply_nn::{LayerSpec, Network};
use panoply_tensor::{DType, Device, Rng, Tensor};

use super::{file, fixture};

/// Writes a `.npy` file with this header and a number of f32 zeros.
fn npy_of(name: &str, header: &str, version: [u8; 2], numbers: usize) -> PathBuf {
    let header = header.to_string() + "\n";
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    let bytes = [b"\x93NUMPY", &version[..], &length, header.as_bytes(), &vec![0; 4 * numbers]].concat();
    file(name, &bytes)
}

/// Headers that NumPy 2.4 accepts or rejects.
#[test]
fn npy_headers_are_read_like_numpy() {
    let read = [
        ("{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (2, 3)}", &[2, 3][..]),
        ("{ 'descr' : '<f4' , 'fortran_order' : False , 'shape' : (2, 3) }", &[2, 3]),
        ("{'descr': '=f4', 'fortran_order': False, 'shape': (2L, 3L)}", &[2, 3]),
        ("{'descr': '|f4', 'fortran_order': False, 'shape': (6,), 'shape': (3,)}", &[3]),
        ("{'descr': 'f4', 'fortran_order': True, 'shape': (6,)}", &[6]),
    ];
    for (header, dims) in read {
        let array = npy::Array::read(&npy_of("read.npy", header, [1, 0], dims.iter().product())).unwrap();
        assert_eq!((array.dtype, &array.dims[..]), (DType::F32, dims), "{header}");
    }
    let usual = "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)}";
    for (header, version, expected) in [
        (usual, [1, 7], "its version is not 1.0, 2.0 or 3.0"),
        (&usual.replace("(6,)", "(6)"), [1, 0], "its shape is not a tuple"),
        (&usual.replace("(6,)", "(6,,,)"), [1, 0], "its header has `` where a value is expected"),
        (&usual.replace("False", "Falsehood"), [1, 0], "its header has `Falsehood` where a value is expected"),
        (&usual.replace('}', ""), [1, 0], "its header ends where '}' is expected"),
        (&usual.replace('}', ", 'more': 1}"), [1, 0], "its header has the key `more`"),
        (&usual.replace("'<f4'", "'|O'"), [1, 0], "its elements are Python objects"),
    ] {
        let error = npy::load(&npy_of("refused.npy", header, version, 6)).unwrap_err();
        assert!(error.is_corrupt() && error.message().contains(expected), "{header}: {error}");
    }
}

/// Writes a ZIP archive of stored members.
fn archive(name: &str, members: &[(&[u8], &[u8])]) -> PathBuf {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in members {
        let mut crc = flate2::Crc::new();
        crc.update(content);
        let size = (content.len() as u32).to_le_bytes();
        // Version 2.0, no UTF-8 flag, stored, no time.
        let head = [&[20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0][..], &crc.sum().to_le_bytes(), &size, &size].concat();
        let lengths = [(name.len() as u16).to_le_bytes(), [0, 0]].concat();
        let at = (bytes.len() as u32).to_le_bytes();
        directory.extend([&b"PK\x01\x02\x14\0"[..], &head, &lengths, &[0; 10], &at, name].concat());
        bytes.extend([&b"PK\x03\x04"[..], &head, &lengths, name, content].concat());
    }
    let (at, count) = ((bytes.len() as u32).to_le_bytes(), (members.len() as u16).to_le_bytes());
    let size = (directory.len() as u32).to_le_bytes();
    bytes.extend([&directory[..], b"PK\x05\x06\0\0\0\0", &count, &count, &size, &at, &[0, 0]].concat());
    file(name, &bytes)
}

/// Member names as in NumPy 2.4: only the ending `.npy` is removed, and names are in code page 437 unless flagged as UTF-8.
#[test]
fn members_of_any_name_are_arrays() {
    let path = npy_of("member.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", [1, 0], 1);
    let array = std::fs::read(path).unwrap();
    Device::get("cpu").unwrap().scope(|| {
        let path = archive(
            "names.npz",
            &[(b"x.npy", &array), (b"x.NPY", &array), (b"y", &array), (b"gr\x94\xe1e.npy", &array), (b"folder/", b"")],
        );
        let names: Vec<String> = npz::load(&path).unwrap().into_keys().collect();
        assert_eq!(names, ["größe", "x", "x.NPY", "y"]);
        let error = npz::load(&archive("text.npz", &[(b"readme.txt", b"hello")])).unwrap_err();
        assert!(error.message().ends_with("text.npz: readme.txt: it is not a NumPy array"), "{error}");
        let error = npz::load(&archive("twice.npz", &[(b"x", &array), (b"x.npy", &array)])).unwrap_err();
        assert!(error.message().ends_with("twice.npz: two of its members are named x"), "{error}");
        let torch = archive("torch.npz", &[(b"model/data.pkl", b"\x80\x02."), (b"model/data/0", b"1234")]);
        let error = npz::load(&torch).unwrap_err();
        assert!(error.message().ends_with("torch.npz: it is a torch.save file, not a NumPy file"), "{error}");
    });
}

/// Files of other formats are reported by name, with the way to a safetensors file.
#[test]
fn other_formats_are_identified() {
    let torch = archive("archive.pt", &[(b"model/data.pkl", b"\x80\x02."), (b"model/version", b"3\n")]);
    let torch = std::fs::read(torch).unwrap();
    let npz = std::fs::read(fixture("arrays.npz")).unwrap();
    let mut tar = vec![b'a'; 257];
    tar.extend(b"ustar\x0000");
    let cases: [(&str, &[u8], &str, &str); 21] = [
        ("m.pt", &torch, "a torch.save file", "torch.load(path"),
        ("legacy.pt", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "a torch.save file", "torch.load(path"),
        ("pickle.pth", b"\x80\x04\x95\x10\0\0\0\0\0\0\0}.", "a torch.save file", "torch.load(path"),
        ("m.npz", &npz, "a NumPy file", "numpy.load"),
        ("m.npy", b"\x93NUMPY\x01\0v\0{'descr'", "a NumPy file", "numpy.load"),
        ("m.zip", &archive_bytes(), "a ZIP archive", "extract"),
        ("m.h5", b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0", "an HDF5 file", "h5py"),
        ("m.gguf", b"GGUF\x03\0\0\0\x10\0\0\0\0\0\0\0", "a GGUF file", "safetensors files that it was made from"),
        ("lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n", "Git LFS", "git lfs pull"),
        ("m.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0", "compressed with gzip", "gunzip"),
        ("m.zst", b"\x28\xb5\x2f\xfd\x04\x58\0\0\0", "a compressed file", "decompress"),
        ("m.xz", b"\xfd7zXZ\0\0\x04\xe6\xd6", "a compressed file", "decompress"),
        ("m.tar", &tar, "a tar archive", "extract"),
        ("m.onnx", b"\x08\x08\x12\x07panoply\x1a\x050.1.0:\x04", "an ONNX file", "cannot be loaded as a model"),
        (
            "model.safetensors.index.json",
            b"{\"metadata\": {}, \"weight_map\": {\"a\": \"model-1.safetensors\"}}",
            "the index of a sharded model",
            "weight_map",
        ),
        ("m.json", b"{\n  \"a\": 1\n}\n", "a JSON document", "use the safetensors file"),
        ("m.html", b"<!DOCTYPE html><html>", "a web page", "download"),
        ("m.csv", b"a,b\n1,2\n3,4\n", "a text file", "use a safetensors file"),
        ("m.txt", "\u{feff}grüße".as_bytes(), "a text file", "use a safetensors file"),
        ("empty", b"", "empty", "another copy"),
        (
            "noise",
            b"\x01\x02\0\xff\xfe\xfd\xfc\0\0\0",
            "it is not a complete safetensors file",
            "truncated or modified",
        ),
    ];
    for (name, bytes, format, way) in cases {
        let path = file(name, bytes);
        for error in [checkpoint::Arrays::read(&path).err().unwrap(), checkpoint::metadata(&path).unwrap_err()] {
            let message = error.to_string();
            assert!(
                error.is_corrupt() && message.contains(name) && message.contains(format) && message.contains(way),
                "{message}"
            );
            assert_eq!(name == "noise", message.contains("truncated"), "{message}");
        }
    }
    let whole = file("whole.safetensors", b"");
    Device::get("cpu").unwrap().scope(|| {
        let array = Tensor::from_slice(&[1f32, 2.0], [2]);
        checkpoint::save_tensors(&whole, &[("a".to_string(), array)], Default::default()).unwrap();
        let bytes = std::fs::read(&whole).unwrap();
        for length in 1..bytes.len() {
            let error = checkpoint::metadata(&file("cut.safetensors", &bytes[..length])).unwrap_err();
            assert!(error.to_string().contains("truncated"), "{length}: {error}");
        }
    });
}

/// Returns a ZIP archive without arrays.
fn archive_bytes() -> Vec<u8> {
    std::fs::read(archive("plain.zip", &[(b"readme.txt", b"hello")])).unwrap()
}

/// Without parameters and metadata the header is `{}`, which every reader accepts (safetensors issue 466).
#[test]
fn a_file_without_arrays_is_read() {
    Device::get("cpu").unwrap().scope(|| {
        let path = file("bare.safetensors", b"");
        checkpoint::save_tensors(&path, &[], Default::default()).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes[8..]).trim_end(), "{}");
        let read = checkpoint::Arrays::read(&path).unwrap();
        assert!(read.tensors.is_empty() && read.metadata.is_empty());
        let network = Network::with_input(&[4, 9]).add_layer(LayerSpec::Elu {});
        let mut model = network.build(&mut Rng::seed_from_u64(0)).unwrap();
        checkpoint::save(&model, &path, Default::default()).unwrap();
        checkpoint::load(&mut model, &path).unwrap();
        let one = [("a".to_string(), Tensor::from_slice(&[1f32], [1]))];
        checkpoint::save_tensors(&path, &one, Default::default()).unwrap();
        assert!(!String::from_utf8_lossy(&std::fs::read(&path).unwrap()).contains("__metadata__"));
        let metadata = std::collections::HashMap::from([("k".to_string(), "v".to_string())]);
        checkpoint::save_tensors(&path, &[], metadata.clone()).unwrap();
        assert_eq!(checkpoint::metadata(&path).unwrap(), metadata);
    });
}

/// Arrays of unsupported element types are listed, and loading them is an error that names the array.
#[test]
fn arrays_of_unsupported_types_are_listed() {
    let header = r#"{"a":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    let bytes = [&header.len().to_le_bytes()[..], header.as_bytes(), &[1, 2, 3, 4], &1f32.to_le_bytes()].concat();
    let path = file("f8.safetensors", &bytes);
    let read = checkpoint::TensorFile::read(&path).unwrap();
    let mut seen = Vec::new();
    read.each(|name, entry| {
        seen.push((name.to_string(), entry.dtype, entry.file_dtype, entry.dims.to_vec(), entry.bytes.to_vec()));
        Ok(())
    })
    .unwrap();
    let one = 1f32.to_le_bytes().to_vec();
    let wanted = [
        ("a".to_string(), None, "F8_E4M3".to_string(), vec![2, 2], vec![1, 2, 3, 4]),
        ("b".to_string(), Some(DType::F32), "F32".to_string(), vec![1], one),
    ];
    assert_eq!(seen, wanted);
    let error = Device::get("cpu").unwrap().scope(|| read.arrays().err().unwrap());
    assert!(error.message().ends_with("f8.safetensors: a is F8_E4M3"), "{error}");
}

/// A byte order mark at the beginning is not part of a text; UTF-16 is reported.
#[test]
fn byte_order_marks_are_not_text() {
    let text = "one line\nand another\n".repeat(20);
    let marked = [b"\xef\xbb\xbf", text.as_bytes()].concat();
    let plain = reader::open(&file("plain.txt", text.as_bytes()), &ReadOptions::default()).unwrap();
    let DataFormat::Text { vocabulary, .. } = &plain.format else { panic!("{:?}", plain.format) };
    assert!(!vocabulary.contains('\u{feff}'));
    for path in [file("marked.txt", &marked), file("marked.md", &marked), packed("marked.txt.gz", &marked)] {
        let read = reader::open(&path, &ReadOptions::default()).unwrap();
        assert_eq!((&read.format, &read.dataset), (&plain.format, &plain.dataset), "{}", path.display());
    }
    let table =
        reader::open(&file("marked-table.txt", b"\xef\xbb\xbfx,y\n1,a\n2,b\n3,a\n4,b\n"), &ReadOptions::default())
            .unwrap();
    let DataFormat::Csv { feature_columns: columns, .. } = &table.format else { panic!("{:?}", table.format) };
    assert_eq!(columns, &["x"]);
    for order in [u16::to_le_bytes, u16::to_be_bytes] {
        let wide: Vec<u8> = "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(order).collect();
        let read = reader::open(&file("wide.txt", &wide), &ReadOptions::default()).unwrap();
        assert_eq!((&read.format, &read.dataset), (&plain.format, &plain.dataset));
    }
    let network = b"\xef\xbb\xbfinput = [4]\n[[layer]]\nkind = \"relu\"\n";
    assert_eq!(Network::read(&file("marked.toml", network)).unwrap().input, [4]);
}

/// Writes a gzip-compressed file.
fn packed(name: &str, bytes: &[u8]) -> PathBuf {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    file(name, &encoder.finish().unwrap())
}
