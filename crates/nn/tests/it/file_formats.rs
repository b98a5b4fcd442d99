//! Files written by other programs: arrays written by NumPy are read back, and invalid files are errors and never panics.

mod formats;
mod fuzz;
mod meaning;

use std::path::{Path, PathBuf};
use std::process::Command;

use panoply_nn::checkpoint;
#[cfg(feature = "parquet")]
use panoply_nn::data::Targets;
#[cfg(feature = "parquet")]
use panoply_nn::data::reader::Label;
use panoply_nn::data::reader::{self, DataFormat, MissingValues, ReadOptions, Task};
use panoply_nn::data::{csv, idx, npy, npz};
use panoply_tensor::{DType, Device, Result, Tensor};

/// Writes these bytes to a file in a folder of this process.
fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("panoply-readers-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Returns the path of a file made by `fixtures/make.py`.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Checks that every truncation of a file is an error.
fn cuts<T>(name: &str, bytes: &[u8], read: impl Fn(&Path) -> Result<T>) {
    for length in 0..bytes.len() {
        let error = read(&file(name, &bytes[..length])).err().unwrap_or_else(|| panic!("cut to {length} bytes"));
        assert!(error.is_corrupt(), "{error}");
    }
}

#[test]
fn npy_files() {
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
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "the file equals NumPy's");
        cuts("cut.npy", &bytes, npy::load);
        let vector = Tensor::from_slice(&[7i32, -8], [2]);
        npy::save(&vector, &path).unwrap();
        let back = npy::load(&path).unwrap();
        assert_eq!((back.dtype(), back.to_vec::<i32>().unwrap()), (DType::I32, vec![7, -8]));
        // An empty array with an axis that is too long.
        let empty = format!("(0, {}, 2), }}", usize::MAX);
        let mut long = String::from_utf8_lossy(&header[10..]).replace("(2, 3), }", &empty).into_bytes();
        long.splice(..0, [&header[..8], &u16::try_from(long.len()).unwrap().to_le_bytes()].concat());
        let error = npy::load(&file("long.npy", &long)).unwrap_err();
        assert!(error.is_corrupt() && error.message().contains("long.npy: 0 bytes do not match"), "{error}");
        let json = format!(r#"{{"a":{{"dtype":"F32","shape":[0,{}],"data_offsets":[0,0]}}}}"#, usize::MAX);
        let long = [&json.len().to_le_bytes(), json.as_bytes()].concat();
        let error = checkpoint::Arrays::read(&file("long.safetensors", &long)).err().unwrap();
        assert!(error.is_corrupt() && error.message().contains("long.safetensors: a: f32[0, "), "{error}");
        let turned = String::from_utf8_lossy(header).replace("False", "True ");
        assert!(npy::load(&file("f.npy", turned.as_bytes())).is_err());
    });
}

#[test]
fn npz_files() {
    Device::get("cpu").unwrap().scope(|| {
        for name in ["arrays.npz", "packed.npz"] {
            let arrays = npz::load(&fixture(name)).unwrap();
            assert_eq!(arrays.len(), 12);
            let x = &arrays["x"];
            assert_eq!((x.dims().unwrap(), x.dtype()), ([2, 3], DType::F32));
            assert_eq!(x.to_vec::<f32>().unwrap(), [1.5, -2.0, 3.0, 4.0, 5.0, 0.25]);
            assert_eq!(arrays["y"].to_vec::<i64>().unwrap(), [7, -8]);
            assert_eq!(arrays["flag"].to_bytes().unwrap(), [1, 0, 1]);
            assert_eq!((arrays["one"].item::<f64>().unwrap(), arrays["one"].shape().unwrap().ndim()), (2.5, 0));
            // Numbers of any type are converted to f32 without a device.
            for one in ["y", "flag", "half", "wide", "large"] {
                let path = file("one.npy", b"");
                npy::save(&arrays[one], &path).unwrap();
                let have = npy::Array::read(&path).unwrap().to_f32_vec();
                assert_eq!(have, arrays[&format!("{one}_f32")].to_vec::<f32>().unwrap(), "{one}");
            }
        }
        let bytes = std::fs::read(fixture("packed.npz")).unwrap();
        cuts("cut.npz", &bytes, npz::load);
        // A flipped bit is an error or in an unused field, such as the time.
        let want = npz::load(&fixture("packed.npz")).unwrap()["x"].to_vec::<f32>().unwrap();
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            if let Some(x) = npz::load(&file("flipped.npz", &bytes)).ok().and_then(|arrays| arrays.get("x").cloned()) {
                assert_eq!(x.to_vec::<f32>().unwrap(), want, "byte {at}");
            }
        }
    });
}

/// Needs a Python with `numpy`: the one named by PANOPLY_TEST_PYTHON, or `python3`.
#[test]
fn numpy_reads_written_files() {
    let python = std::env::var("PANOPLY_TEST_PYTHON").unwrap_or_else(|_| "python3".to_string());
    if !Command::new(&python).args(["-c", "import numpy"]).output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: array files in NumPy: {python} has no numpy; set PANOPLY_TEST_PYTHON to another Python");
        return;
    }
    let path = file("written.npz", b"");
    Device::get("cpu").unwrap().scope(|| {
        let x = Tensor::from_slice(&[1.5f32, -2.0, 3.0, 4.0, 5.0, 0.25], [2, 3]);
        let arrays = [("x".to_string(), x), ("a.weight".to_string(), Tensor::from_slice(&[7u8, 9], [2, 1]))];
        npz::save(&arrays, &path).unwrap();
        let back = npz::load(&path).unwrap();
        assert_eq!(back["a.weight"].to_vec::<u8>().unwrap(), [7, 9]);
        let error = npz::save(&[arrays[0].clone(), arrays[0].clone()], &path).unwrap_err();
        assert!(
            error.message().contains("written.npz: ") && error.to_string().contains("names of arrays must be unique"),
            "{error}"
        );
    });
    let script = "import sys, numpy as n; f = n.load(sys.argv[1]); \
                  print(f.files, f['x'].dtype, f['x'].tolist(), f['a.weight'].dtype, f['a.weight'].tolist())";
    let output = Command::new(&python).args(["-c", script, &path.display().to_string()]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let want = "['x', 'a.weight'] float32 [[1.5, -2.0, 3.0], [4.0, 5.0, 0.25]] uint8 [[7], [9]]\n";
    assert_eq!(text, want);
}

/// Examples in one file with the names that Keras uses for MNIST.
#[test]
fn a_dataset_in_one_npz_file() {
    let read = reader::open(&fixture("examples.npz"), &ReadOptions::default()).unwrap();
    assert_eq!((read.dataset.len(), &read.dataset.example_shape[..]), (12, &[1, 2, 3][..]), "the training examples");
    assert_eq!(read.dataset.labels(), [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
    assert_eq!(read.dataset.features[6..12], [251.0 / 255.0; 6]);
    let (offsets, target_offsets) = (Vec::new(), Vec::new());
    let source =
        DataFormat::Npy { shape: vec![1, 2, 3], num_outputs: 0, task: Task::Classification, offsets, target_offsets };
    assert_eq!(read.format, source);
    let again = read.format.read(&fixture("examples.npz"), &read.class_names, &ReadOptions::default()).unwrap();
    // Also the number of classes, which no label of a validation file may determine.
    assert_eq!(again.labeled().unwrap(), (read.dataset.clone(), 0));
    Device::get("cpu").unwrap().scope(|| {
        let save = |arrays: &[(&str, Tensor)]| {
            let arrays: Vec<(String, Tensor)> = arrays.iter().map(|(name, x)| (name.to_string(), x.clone())).collect();
            let path = file("wrong.npz", b"");
            npz::save(&arrays, &path).unwrap();
            let error = reader::open(&path, &ReadOptions::default()).unwrap_err();
            error.message().split_once("wrong.npz").unwrap().1.to_string()
        };
        let (x, y) = (Tensor::from_slice(&[1f32, 2.0, f32::NAN, 4.0], [2, 2]), Tensor::from_slice(&[0i32, 1], [2]));
        assert_eq!(save(&[("a", x.clone()), ("b", y.clone())]), ": none of its arrays (a, b) is named x");
        assert_eq!(save(&[("x", x.clone())]), ": x: no labels found beside it; looked for y");
        let message = save(&[("x", x.clone()), ("y", y.clone())]);
        assert_eq!(message, ": x: example 1 holds NaN, which is not a finite number");
        let three = Tensor::from_slice(&[0i32, 1, 2], [3]);
        assert_eq!(
            save(&[("x", Tensor::from_slice(&[1f32; 4], [2, 2])), ("y", three)]),
            ": y: 3 labels for 2 examples"
        );
        assert_eq!(save(&[("x", y.clone()), ("y", y)]), ": x: shape [2] has no axis besides the examples");
    });
}

/// All files that are read completely can be compressed with gzip.
#[test]
fn gzip_compressed_files() {
    let pack = |name: &str, bytes: &[u8]| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut packed, bytes).unwrap();
        file(name, &packed.finish().unwrap())
    };
    let table = "a,b,kind\n1,2,x\n3,4,y\n5,6,x\n";
    let open = |path: &Path| reader::open(path, &ReadOptions::default());
    let (plain, packed) = (file("plain.csv", table.as_bytes()), pack("packed.csv.gz", table.as_bytes()));
    assert_eq!(open(&packed).unwrap(), open(&plain).unwrap());
    let wrong = pack("wrong.csv.gz", table.replace("3,", "drei,").as_bytes());
    assert!(open(&wrong).unwrap_err().message().ends_with("wrong.csv.gz:3: a: `drei` is not a finite number"));
    let parquet = open(&pack("snappy.parquet.gz", b"PAR1")).unwrap_err();
    assert!(
        parquet.message().ends_with("snappy.parquet.gz: decompress it first; Parquet compresses its own columns"),
        "{parquet}"
    );
    Device::get("cpu").unwrap().scope(|| {
        let (x, y) = (file("x.npy", b""), file("y.npy", b""));
        npy::save(&Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0], [2, 2]), &x).unwrap();
        npy::save(&Tensor::from_slice(&[1i32, 0], [2]), &y).unwrap();
        let want = open(&x).unwrap();
        // The examples are compressed, and their classes are not.
        let packed = pack("x.npy.gz", &std::fs::read(&x).unwrap());
        assert_eq!(open(&packed).unwrap(), want);
    });
    let cut = std::fs::read(&packed).unwrap();
    cuts("cut.csv.gz", &cut[2..], |path| {
        reader::open(path, &ReadOptions::default()).map_err(|error| match error.is_mistake() {
            true => panic!("{error}"),
            false => error,
        })
    });
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_tables() {
    let label = |label: &str| ReadOptions { label_columns: vec![label.to_string()], ..ReadOptions::default() };
    for codec in ["snappy", "gzip", "lz4", "none", "zstd", "zstd2"] {
        let path = fixture(&format!("{codec}.parquet"));
        let read = reader::open(&path, &label("city")).unwrap();
        assert_eq!(read.class_names, ["Bergen", "Århus"]);
        assert_eq!(read.dataset.labels(), [0, 1, 0, 1, 0]);
        let want = [
            [70.5, 3.0, 1.0, 0.1, 1901.0],
            [55.0, 2.0, 0.0, 1e-20, 1950.0],
            [120.25, 5.0, 1.0, 2.0, 1999.0],
            [80.0, 4.0, 1.0, -3.5, 2020.0],
            [33.0, 1.0, 0.0, 1e30, 1970.0],
        ];
        assert_eq!(read.dataset.features, want.as_flattened(), "{codec}");
        let again = read.format.read(&path, &read.class_names, &ReadOptions::default()).unwrap();
        assert_eq!((again.dataset.features, again.names[4].as_str()), (read.dataset.features, "line 5"));
        let rents = reader::open(&path, &label("rent")).unwrap();
        assert_eq!(rents.dataset.features[..6], [70.5, 3.0, 1.0, 1.0, 0.0, 1901.0], "the city is one-hot encoded");
        let several = reader::open(&path, &label("size, rent")).unwrap();
        let want = [70.5, 0.1, 55.0, 1e-20, 120.25, 2.0, 80.0, -3.5, 33.0, 1e30];
        assert_eq!(several.dataset.targets, Targets::Regression { values: want.to_vec(), num_outputs: 2 });
        let again = several.format.read(&path, &[], &ReadOptions::default()).unwrap();
        assert_eq!(again.labels[3], Some(Label::Values(vec![80.0, -3.5])));
        let error = reader::open(&path, &ReadOptions { task: Some(Task::Regression), ..label("city") }).unwrap_err();
        let expected = format!("{codec}.parquet:1: city: `Bergen` is not a finite number");
        assert!(error.is_corrupt() && error.message().ends_with(&expected), "{error}");
    }
    let message = |name: &str| reader::open(&fixture(name), &ReadOptions::default()).unwrap_err().message().to_string();
    let filled = reader::open(&fixture("null.parquet"), &ReadOptions::default()).unwrap();
    assert_eq!(
        filled.dataset.features,
        [1.0, 0.0, 2.0, 0.0, 2.0, 1.0, 4.0, 0.0],
        "the median of 1, 2 and 4, and a mark"
    );
    assert!(message("nested.parquet").ends_with("nested.parquet: tags has nested values, which are not supported"));
    let read = |path: &Path| reader::open(path, &label("city"));
    let damaged = ["snappy.parquet", "zstd2.parquet"].map(|name| std::fs::read(fixture(name)).unwrap());
    for (bytes, length) in damaged.iter().flat_map(|bytes| (0..bytes.len()).step_by(17).map(move |at| (bytes, at))) {
        assert!(read(&file("cut.parquet", &bytes[..length])).unwrap_err().is_corrupt(), "{length}");
    }
    for (bytes, at) in damaged.iter().flat_map(|bytes| (0..bytes.len()).step_by(9).map(move |at| (bytes, at))) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x40;
        // Without checksums a number can change; nothing worse happens.
        match read(&file("flipped.parquet", &bytes)) {
            Ok(read) => assert!(read.dataset.num_classes() >= 2),
            Err(error) => assert!(error.message().contains("flipped.parquet") || error.is_mistake(), "{error}"),
        }
    }
}

#[cfg(not(feature = "parquet"))]
#[test]
fn a_build_without_parquet_reports_it() {
    let error = reader::open(&fixture("snappy.parquet"), &ReadOptions::default()).unwrap_err();
    assert!(error.message().ends_with("snappy.parquet: this build does not support Parquet"), "{error}");
    assert!(error.to_string().contains("build with `--features parquet`"), "{error}");
}

#[test]
fn idx_files() {
    let images = [&[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3][..], &[0, 51, 255, 1, 2, 3]].concat();
    let labels = [0, 0, 8, 1, 0, 0, 0, 2, 4, 1];
    let (first, second) = (file("images.idx", &images), file("labels.idx", &labels));
    let data = idx::load_classification(&first, &second, 5).unwrap();
    assert_eq!((data.len(), data.num_features, data.labels()), (2, 3, &[4, 1][..]));
    assert_eq!(data.features[..3], [0.0, 0.2, 1.0]);
    cuts("cut.idx", &images, idx::load);
    let message = idx::load_classification(&first, &second, 3).unwrap_err().to_string();
    assert!(message.contains("example 0 has class 4"), "{message}");
    // A length that overflows is rejected without an allocation.
    let wide = [&[0, 0, 8, 3][..], &[255; 12], &[1]].concat();
    assert!(idx::load(&file("wide.idx", &wide)).unwrap_err().message().contains("do not match"));
}

/// A header is distinguished from data by the values below it.
#[test]
fn headers_are_detected() {
    for (text, named) in [
        ("a,b,kind\n1,2,x\n3,4,y\n", true),
        ("name,sex,age\nAda,f,\nBob,m,30\nCid,m,40\n", true),
        ("sex,town\nf,Rome\nm,Oslo\nf,Oslo\nm,Rome\n", true),
        ("f,Rome\nm,Oslo\nf,Oslo\nm,Rome\n", false),
        ("1,2,x\n3,4,y\n", false),
        ("1,2\n3,4\n", false),
        (",size\n0,1.5\n1,2.5\n", true),
        ("name,color,good\nAda,red,y\nBob,blue,n\nCid,red,n\n", true),
        ("1990,1991,country\n3,4,no\n5,4,se\n6,7,no\n", true),
        ("outlook,wind,play\nsunny,weak,no\nrain,weak,yes\nrain,strong,no\nsun,strong,no\nfog,calm,yes\n", true),
        ("0,1,2\n0.5,1.5,0\n1.5,2.5,1\n2.5,3.5,0\n", true),
        (",0,1\n0,0.5,1.5\n1,1.5,2.5\n2,2.5,3.5\n", true),
        ("1990,1995\n0.5,1.5\n1.5,2.5\n2.5,3.5\n", true),
        ("10,11,12\n11,22,33\n50,60,70\n", false),
        ("1,2,0\n0.5,1.5,0\n1.5,2.5,1\n", false),
        (",1.5,a\n0,0.00,a\n1,2.50,b\n", false),
        ("NA,1.5,a\n0,0.00,a\n1,2.50,b\n", false),
    ] {
        let table = panoply_nn::data::csv::CsvTable::read(&file("names.csv", text.as_bytes())).unwrap();
        assert_eq!(table.has_header, named, "{text}");
        assert_eq!(table.line(0), if named { 2 } else { 1 }, "{text}");
    }
}

/// A trained network knows the column names, which one or two rows of strings do not reveal.
#[test]
fn few_rows_of_strings_are_read_with_known_names() {
    let all = "color,shape,kind\nred,round,fruit\nblue,flat,plate\nred,flat,plate\nblue,round,fruit\n";
    let trained = reader::open(&file("things.csv", all.as_bytes()), &ReadOptions::default()).unwrap();
    assert_eq!(trained.class_names, ["fruit", "plate"]);
    for text in ["color,shape\nred,round\n", "shape,color\nround,red\n"] {
        let read = trained
            .format
            .read(&file("few.csv", text.as_bytes()), &trained.class_names, &ReadOptions::default())
            .unwrap();
        assert_eq!(read.names, ["line 2"], "{text}");
        assert_eq!(read.dataset.features, trained.dataset.features[..4], "{text}");
    }
    // A row of known categories without a header.
    let read =
        trained.format.read(&file("few.csv", b"red,round\n"), &trained.class_names, &ReadOptions::default()).unwrap();
    assert_eq!(
        (&read.names[..], &read.dataset.features[..]),
        (&["line 1".to_string()][..], &trained.dataset.features[..4])
    );
    let error = trained
        .format
        .read(&file("few.csv", b"hue,form\nred,round\n"), &trained.class_names, &ReadOptions::default())
        .unwrap_err();
    assert!(error.message().ends_with("few.csv: 2 columns are missing (color, shape)"), "{error}");
}

/// Given or known column names decide where the data are ambiguous.
#[test]
fn known_column_names() {
    let reading = ReadOptions { label_columns: vec!["Good".into()], ..ReadOptions::default() };
    let unclear = file("unclear.csv", b"color,good\nred,y\nblue,n\nred,good\n");
    let open = reader::open(&unclear, &reading).unwrap();
    assert_eq!((open.dataset.len(), &open.class_names[..]), (3, &["good", "n", "y"].map(String::from)[..]));
    let few = open.format.read(&file("few.csv", b"color\nred\n"), &open.class_names, &ReadOptions::default()).unwrap();
    assert_eq!((&few.names[..], &few.dataset.features[..]), (&["line 2".to_string()][..], &[0.0, 1.0][..]));
    // Data without a header in training are read without one when they have few rows.
    let bare = reader::open(&file("bare.csv", b"red,y\nblue,n\nred,y\n"), &ReadOptions::default()).unwrap();
    let few = bare
        .format
        .read(&file("few.csv", b"blue,y\nred,n\nred,n\n"), &bare.class_names, &ReadOptions::default())
        .unwrap();
    assert_eq!(few.dataset.features, [1.0, 0.0, 0.0, 1.0, 0.0, 1.0]);
}

/// A missing category is reported by name, not the other categories.
#[test]
fn missing_categories() {
    let strict = ReadOptions { missing: Some(MissingValues::Error), ..ReadOptions::default() };
    for cell in ["", "NaN"] {
        let text = format!("color,size,kind\nred,1,a\nblue,2,b\n{cell},3,a\nred,4,b\ninf,5,a\n");
        let error = reader::open(&file("missing.csv", text.as_bytes()), &strict).unwrap_err();
        assert!(error.message().ends_with("missing.csv:4: color: the value is missing"), "{error}");
    }
    let odd = file("odd.csv", b"color,size,kind\n1,1,a\nblue,2,b\n3,3,a\n");
    let error = reader::open(&odd, &ReadOptions::default()).unwrap_err();
    assert!(error.message().ends_with("odd.csv:3: color: `blue` is not a finite number"), "{error}");
}

/// A name that two columns share is rejected, in training and afterwards.
#[test]
fn duplicate_column_names() {
    let twice = file("twice.csv", b"x,z,x,kind\n1,2,3,a\n4,5,6,b\n7,8,9,a\n");
    let error = reader::open(&twice, &ReadOptions::default()).unwrap_err();
    assert!(error.message().ends_with("twice.csv: columns 1 and 3 are both named `x`"), "{error}");
    assert!(error.to_string().contains("`--drop-columns 1 --drop-columns 3`"), "{error}");
    let left = |without: &[&str]| {
        reader::open(
            &twice,
            &ReadOptions { drop_columns: without.iter().map(|at| at.to_string()).collect(), ..ReadOptions::default() },
        )
    };
    assert_eq!(left(&["1", "3"]).unwrap().dataset.features, [2.0, 5.0, 8.0]);
    assert!(left(&["3"]).is_err(), "a file for prediction has both");
    let once = reader::open(&file("once.csv", b"x,z,kind\n1,2,a\n4,5,b\n7,8,a\n"), &ReadOptions::default()).unwrap();
    let error = once.format.read(&twice, &once.class_names, &ReadOptions::default()).unwrap_err();
    assert!(error.message().ends_with("twice.csv: columns 1 and 3 are both named `x`"), "{error}");
}

/// Rows without a sequence id are rejected, and examples that do not fit into memory are an error instead of an abort.
#[test]
fn invalid_sequences() {
    let reading = ReadOptions { sequence_column: Some("id".into()), ..ReadOptions::default() };
    let open = |text: &str| reader::open(&file("ids.csv", text.as_bytes()), &reading);
    let error = open("id,x,kind\n1,2,a\n,3,a\n2,4,b\n,5,b\n").unwrap_err();
    assert!(error.message().ends_with("ids.csv:3: id: it is empty"), "{error}");
    let good = open("id,x,kind\n1,2,a\n1,3,a\n2,4,b\n").unwrap();
    let DataFormat::Csv { feature_columns: columns, label_columns: labels, task, categories: words, offsets, .. } =
        good.format
    else {
        panic!("not a table")
    };
    for time in [usize::MAX / 2, usize::MAX / 64] {
        let sequences = Some(reader::SequenceColumn { column: "id".into(), max_len: time });
        let (columns, labels, words, offsets) = (columns.clone(), labels.clone(), words.clone(), offsets.clone());
        let source = DataFormat::Csv {
            feature_columns: columns,
            label_columns: labels,
            task,
            sequence: sequences,
            categories: words,
            offsets,
            scales: Default::default(),
            imputation: Default::default(),
            date_orders: Default::default(),
            decimal_comma: false,
        };
        let error = source
            .read(&file("ids.csv", b"id,x\n1,2\n7,3\n7,4\n"), &good.class_names, &ReadOptions::default())
            .unwrap_err();
        assert!(error.message().ends_with(&format!("2 examples of {time} rows of 1 numbers do not fit into memory")));
        assert!(error.to_string().contains("the longest sequence, of 2 rows, is id `7`"), "{error}");
    }
}

#[test]
fn csv_tables() {
    let table = csv::load(&file("a.csv", b"\"x\",y,class\n1,2.5,0\n\n-3, 4e2,1\n")).unwrap();
    assert_eq!(table.names.as_deref().unwrap(), ["x", "y", "class"]);
    assert_eq!((table.rows(), &table.values[..]), (2, &[1.0, 2.5, 0.0, -3.0, 400.0, 1.0][..]));
    let data = table.to_classification(2, 2).unwrap();
    assert_eq!((&data.features[..], data.labels()), (&[1.0, 2.5, -3.0, 400.0][..], &[0, 1][..]));
    assert!(table.to_classification(1, 2).unwrap_err().message().contains("row 0 has class 2.5"));
    let message = |bytes: &[u8]| csv::load(&file("b.csv", bytes)).unwrap_err().message().to_string();
    assert!(message(b"1;2\n3;x\n").ends_with("b.csv:2: `x` is not a number"));
    assert!(message(b"1\t2\n3\n").ends_with("b.csv:2: 1 cells, expected 2 as in the first row"));
    assert_eq!(csv::load(&file("empty.csv", b"")).unwrap().rows(), 0);
}

/// Small files that expand to much more memory than a read can use, one for each format.
#[test]
fn a_read_takes_no_more_memory_than_its_limit() {
    let Some(folder) = fuzz::limited::in_child("file_formats::a_read_takes_no_more_memory_than_its_limit", "64MiB")
    else {
        return;
    };
    let refused = |path: &Path| {
        let error = reader::open(path, &ReadOptions::default()).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("reading it takes more than 64 MiB of memory"), "{error}");
        assert!(error.to_string().contains("set PANOPLY_READ_LIMIT to more"), "{error}");
    };
    let pack = |name: &str, start: &[u8], part: &[u8], times: usize| {
        let path = folder.join(name);
        let file = std::fs::File::create(&path).unwrap();
        let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, start).unwrap();
        (0..times).for_each(|_| std::io::Write::write_all(&mut packed, part).unwrap());
        packed.finish().unwrap();
        path
    };
    // 100 MiB of text; then 10 MiB in which each cell has two bytes.
    let line = "1,".repeat(31) + "1\n";
    refused(&pack("long.csv.gz", b"", line.repeat(16_384).as_bytes(), 100));
    refused(&pack("cells.csv.gz", b"", line.repeat(16_384).as_bytes(), 10));
    refused(&pack("commas.csv.gz", b"", &[b','; 1 << 20], 20));
    // 100,000 images of 32 × 32 zeros with their labels.
    let count = 100_000u32.to_be_bytes();
    let dims = |kind: u8, rest: &[u8]| [&[0, 0, 8, kind], &count[..], rest].concat();
    pack("x-labels-idx1-ubyte.gz", &dims(1, &[]), &[0, 1], 50_000);
    refused(&pack("x-images-idx3-ubyte.gz", &dims(3, &[0, 0, 0, 32, 0, 0, 0, 32]), &[0; 1024], 100_000));
    // 40 images of 2,000 × 2,000.
    let mut bytes = std::io::Cursor::new(Vec::new());
    image::GrayImage::new(2000, 2000).write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    for at in 0..40 {
        let class = folder.join("images").join((at % 2).to_string());
        std::fs::create_dir_all(&class).unwrap();
        std::fs::write(class.join(format!("{at}.png")), bytes.get_ref()).unwrap();
    }
    refused(&folder.join("images"));
    // At a small size they can be read, because decoded images are freed.
    let reading = ReadOptions { image_size: Some((8, 8)), ..ReadOptions::default() };
    assert_eq!(reader::open(&folder.join("images"), &reading).unwrap().dataset.len(), 40);
    // A sequence of 20,000 rows and 20,000 of one row: each takes the memory of the longest.
    let row = |at: usize| match at {
        0..20_000 => format!("0,{at},0\n"),
        _ => format!("{at},{at},{}\n", at % 2),
    };
    let rows: String = (0..40_000).map(row).collect();
    std::fs::write(folder.join("ids.csv"), format!("id,x,kind\n{rows}")).unwrap();
    let reading = ReadOptions { sequence_column: Some("id".into()), ..ReadOptions::default() };
    let error = reader::open(&folder.join("ids.csv"), &reading).unwrap_err().to_string();
    assert!(error.contains("20001 examples of 20000 rows of 1 numbers do not fit into memory"), "{error}");
    assert!(error.contains("set PANOPLY_READ_LIMIT to more"), "{error}");
    let endless =
        reader::open(Path::new("/dev/zero"), &ReadOptions { task: Some(reader::Task::Text), ..ReadOptions::default() });
    assert!(endless.unwrap_err().message().contains("more than 64 MiB"));
    // An ONNX graph of a million nodes of two bytes, a packed list of numbers of one byte, and models without an end.
    let field = |number: u8, bytes: &[u8]| {
        let mut length = bytes.len();
        let mut message = vec![number << 3 | 2];
        while length >= 0x80 {
            message.push(length as u8 | 0x80);
            length >>= 7;
        }
        message.push(length as u8);
        message.extend(bytes);
        message
    };
    let numbers = field(5, &field(7, &vec![1; 4_000_000]));
    for graph in [[10, 0].repeat(1_000_000), numbers] {
        let path = folder.join("many.onnx");
        std::fs::write(&path, field(7, &graph)).unwrap();
        let error = panoply_nn::onnx::Imported::open(&path).unwrap_err();
        assert!(error.message().ends_with("many.onnx: reading it takes more than 64 MiB of memory"), "{error}");
    }
    for error in [
        panoply_nn::onnx::Imported::open(Path::new("/dev/zero")).map(|_| ()).unwrap_err(),
        panoply_nn::checkpoint::metadata(Path::new("/dev/zero")).map(|_| ()).unwrap_err(),
    ] {
        assert!(error.message().contains("more than 64 MiB"), "{error}");
    }
}

/// Archive entries that share the same bytes.
#[test]
fn overlapping_entries_are_rejected() {
    let bytes = std::fs::read(fixture("packed.npz")).unwrap();
    // The second directory entry is modified to start where the first one does.
    let directory: Vec<usize> = (0..bytes.len() - 4).filter(|at| bytes[*at..].starts_with(b"PK\x01\x02")).collect();
    let mut shared = bytes.clone();
    let (first, second) = (directory[0], directory[1]);
    let name = |at: usize| usize::from(u16::from_le_bytes([bytes[at + 28], bytes[at + 29]]));
    // Sizes, checksum and offset of the first entry, under the name of the second.
    let fields = bytes[first + 16..first + 28].to_vec();
    shared[second + 16..second + 28].copy_from_slice(&fields);
    let place = bytes[first + 42..first + 46].to_vec();
    shared[second + 42..second + 46].copy_from_slice(&place);
    assert!(name(first) > 0 && name(second) > 0);
    let error = Device::get("cpu").unwrap().scope(|| npz::load(&file("shared.npz", &shared)).unwrap_err());
    assert!(error.message().ends_with("shared.npz: its entries overlap"), "{error}");
}

/// A file of 321 bytes with 200 million rows of nulls, and one whose page counts do not match its rows: neither is decompressed.
#[cfg(feature = "parquet")]
#[test]
fn parquet_counts_are_checked_before_reading() {
    let error = reader::open(&fixture("nulls.parquet"), &ReadOptions::default()).unwrap_err();
    assert!(error.is_corrupt() && error.message().ends_with("reading it takes more than 4 GiB of memory"), "{error}");
    let error = reader::open(&fixture("slow.parquet"), &ReadOptions::default()).unwrap_err();
    assert!(error.is_corrupt() && error.message().contains("slow.parquet: "), "{error}");
}

/// A string of 1 MiB that is referenced 1,000 times through a dictionary: the file holds it once.
#[cfg(feature = "parquet")]
#[test]
fn parquet_dictionary_strings_are_counted_each_time() {
    use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
    use parquet::file::properties::{EnabledStatistics, WriterProperties};
    let Some(folder) =
        fuzz::limited::in_child("file_formats::parquet_dictionary_strings_are_counted_each_time", "64MiB")
    else {
        return;
    };
    let schema = "message m { required binary a (UTF8); required int32 y; }";
    let schema = std::sync::Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
    let properties = WriterProperties::builder()
        .set_dictionary_page_size_limit(16 << 20)
        .set_compression(parquet::basic::Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::None);
    let path = folder.join("dictionary.parquet");
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = parquet::file::writer::SerializedFileWriter::new(file, schema, properties.build().into()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let text = ByteArray::from(vec![b'a'; 1 << 20]);
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&vec![text; 1000], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let classes: Vec<i32> = (0..1000).map(|row| row % 2).collect();
    column.typed::<Int32Type>().write_batch(&classes, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() < 100_000);
    let error = reader::open(&path, &ReadOptions::default()).unwrap_err();
    assert!(error.message().ends_with("dictionary.parquet: reading it takes more than 64 MiB of memory"), "{error}");
}
