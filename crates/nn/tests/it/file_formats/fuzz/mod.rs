//! Mutated files for every reader, in a child process with a limited address space. Each file must be read or give an error, never a crash,
//! a panic, or memory in proportion to a number in a header.
//!
//! Each reader gets 300 files, or with `PANOPLY_TEST_FULL=1` 8,000, that of ONNX 300,000; `PANOPLY_TEST_SEED` sets the first seed. The child writes what it is
//! about to read to a file, so that a crash can be attributed to a reader and a seed.

pub mod limited;

use std::path::Path;

use panoply_nn::data::reader::{self, ReadOptions, Task};
use panoply_nn::data::{csv, idx, npy, npz};
use panoply_nn::{LayerSpec, Network, checkpoint, onnx};
use panoply_tensor::{DType, Device, Result, Rng, Shape, Tensor};

use limited::{FULL, Random, each_seed, in_child, mutate};

/// A reader with a valid file.
struct Reader {
    name: &'static str,
    bytes: Vec<u8>,
    /// Reads the file at this path.
    read: fn(&Path) -> Result<()>,
}

fn open(path: &Path) -> Result<()> {
    let read = reader::open(path, &ReadOptions::default())?;
    read.format.read(path, &read.class_names, &ReadOptions::default()).map(|_| ())
}

fn text(path: &Path) -> Result<()> {
    reader::open(path, &ReadOptions { task: Some(Task::Text), context_length: Some(4), ..ReadOptions::default() })
        .map(|_| ())
}

fn arrays(path: &Path) -> Result<()> {
    npz::load(path).map(|_| ())
}

fn parameters(path: &Path) -> Result<()> {
    checkpoint::Arrays::read(path)?;
    checkpoint::metadata(path)?;
    network().load(path).map(|_| ())
}

/// Reads a model and runs its operators on a lazy input.
fn operators(path: &Path) -> Result<()> {
    let network = onnx::Imported::open(path)?;
    let zeros = |input: &onnx::Input| {
        let dims: Vec<usize> = input.dims.iter().map(|dim| dim.unwrap_or(1)).collect();
        Tensor::zeros(Shape::new(dims), if input.dtype.is_float() { input.dtype } else { DType::F32 })
    };
    network.forward(&network.inputs.iter().map(zeros).collect::<Vec<Tensor>>()).map(|_| ())
}

fn description(path: &Path) -> Result<()> {
    let network = Network::read(path)?;
    network.extent()?;
    network.build(&mut Rng::seed_from_u64(0)).map(|_| ())
}

/// Reads an image among others of its class.
fn image(path: &Path) -> Result<()> {
    reader::open(path.parent().unwrap().parent().unwrap(), &ReadOptions::default()).map(|_| ())
}

fn network() -> Network {
    Network::parse("input = [4]\n[[layer]]\nkind = \"linear\"\nout_features = 3\n").unwrap()
}

/// A network in which some layers are several operators.
fn mlp() -> Network {
    Network::with_input(&[2, 4])
        .add_layer(LayerSpec::Flatten {})
        .add_layer(LayerSpec::linear(5))
        .add_layer(LayerSpec::batch_norm())
        .add_layer(LayerSpec::Relu {})
        .add_layer(LayerSpec::Reshape { shape: vec![5, 1] })
        .add_layer(LayerSpec::Softmax {})
}

const TABLE: &str = "size,\"kind, of\",y\n1.5,a,0\n-2e3,\"b \"\"c\"\"\",1\n3,a,0\n0.25,a,1\n";

const LAYERS: &str = "input = [4, 8]\n[loss]\nkind = \"mse\"\n[[layer]]\nkind = \"lstm\"\nhidden_size = 6\nnum_layers = 2\nbidirectional = true\n\
    [[layer]]\nkind = \"residual\"\nlayers = [{ kind = \"linear\", out_features = 12 }]\n[[layer]]\nkind = \"transformer_decoder\"\nnum_heads = 2\n\
    dim_feedforward = 8\nnum_layers = 2\nmemory = [{ kind = \"layer_norm\" }]\n[[layer]]\nkind = \"last_time_step\"\n[training]\nepochs = 3\n";

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut packed, bytes).unwrap();
    packed.finish().unwrap()
}

fn encoded(format: image::ImageFormat) -> Vec<u8> {
    let points = image::GrayImage::from_fn(7, 5, |x, y| image::Luma([(x * 30 + y) as u8]));
    let mut bytes = std::io::Cursor::new(Vec::new());
    points.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// Returns every reader, and writes the files beside the mutated one.
fn readers(folder: &Path) -> Vec<Reader> {
    let fixture = |name: &str| std::fs::read(super::fixture(name)).unwrap();
    let idx = [&[0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2][..], &[0, 51, 255, 1, 2, 3]].concat();
    std::fs::write(folder.join("t-labels-idx1-ubyte"), [0, 0, 8, 1, 0, 0, 0, 3, 0, 1, 0]).unwrap();
    let saved = |name: &str, save: &dyn Fn(&Path) -> Result<()>| {
        let path = folder.join(name);
        save(&path).unwrap();
        std::fs::read(path).unwrap()
    };
    let x = Tensor::from_slice(&[1f32, -2.0, 3.0, 4.0, 0.5, 6.0], [3, 2]);
    let npy = saved("x.npy", &|path| npy::save(&x, path));
    saved("y.npy", &|path| npy::save(&Tensor::from_slice(&[0i32, 1, 0], [3]), path));
    let model = network().build(&mut Rng::seed_from_u64(0)).unwrap();
    let parameters_of = saved("seed.safetensors", &|path| checkpoint::save(&model, path, Default::default()));
    for (class, name) in [("a", "0.png"), ("b", "1.png")] {
        for folder in ["png", "jpeg"].map(|kind| folder.join(kind).join(class)) {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(name), encoded(image::ImageFormat::Png)).unwrap();
        }
    }
    let reader = |name, bytes, read: fn(&Path) -> Result<()>| Reader { name, bytes, read };
    let mut readers = vec![
        reader("t.csv", TABLE.into(), open),
        reader("n.csv", b"a,b\n1,2\n3,4\n".to_vec(), |path| csv::load(path).map(|_| ())),
        reader("t.tsv", TABLE.replace(',', "\t").into(), open),
        reader("t.csv.gz", packed(TABLE.as_bytes()), open),
        reader("t.txt", b"It was the best of times,\nit was the worst of times.\n".to_vec(), text),
        reader("x.npy", npy, open),
        reader("t-images-idx3-ubyte", idx.clone(), open),
        reader("i.idx.gz", packed(&idx), |path| idx::load(path).map(|_| ())),
        reader("arrays.npz", fixture("arrays.npz"), arrays),
        reader("packed.npz", fixture("packed.npz"), arrays),
        reader("examples.npz", fixture("examples.npz"), open),
        reader("m.safetensors", parameters_of, parameters),
        reader("net.toml", LAYERS.into(), description),
        reader("net.onnx", onnx::to_bytes(&mlp().build(&mut Rng::seed_from_u64(1)).unwrap()).unwrap(), operators),
        reader("png/a/m.png", encoded(image::ImageFormat::Png), image),
        reader("jpeg/b/m.jpg", encoded(image::ImageFormat::Jpeg), image),
    ];
    if cfg!(feature = "parquet") {
        for name in ["snappy.parquet", "gzip.parquet", "lz4.parquet", "none.parquet"] {
            readers.push(reader(name, fixture(name), open));
        }
    }
    readers
}

#[test]
fn mutated_files_are_read_or_refused() {
    let Some(folder) = in_child("file_formats::fuzz::mutated_files_are_read_or_refused", "64MiB") else { return };
    Device::get("cpu").unwrap().scope(|| {
        for Reader { name, bytes, read } in readers(&folder) {
            let path = folder.join(name);
            std::fs::write(&path, &bytes).unwrap();
            read(&path).unwrap_or_else(|error| panic!("{name} without changes: {error}"));
            // With those of properties and claims, the readers of `panoply verify` get a million files.
            let full = if name == "net.onnx" { 300_000 } else { FULL };
            each_seed(&folder, name, full, |seed| {
                let mut mutated = bytes.clone();
                mutate(&mut mutated, &mut Random(seed));
                std::fs::write(&path, &mutated).unwrap();
                if let Err(error) = read(&path) {
                    assert!(!error.message().is_empty(), "{name}, seed {seed}");
                }
            });
            std::fs::write(&path, &bytes).unwrap();
        }
    });
}
