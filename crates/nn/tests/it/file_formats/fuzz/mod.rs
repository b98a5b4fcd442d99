//! Mutated files for every reader, in a child process with a limited address space. Each file must be read or give an error, never a crash,
//! a panic, or memory in proportion to a number in a header.
//!
//! Each reader gets 300 files, or 8,000 with `PANOPLY_TEST_FULL=1`; `PANOPLY_TEST_SEED` sets the first seed. The child writes what it is
//! about to read to a file, so that a crash can be attributed to a reader and a seed.

use std::path::{Path, PathBuf};
use std::process::Command;

use panoply_nn::data::reader::{self, ReadOptions, Task};
use panoply_nn::data::{csv, idx, npy, npz};
use panoply_nn::{LayerSpec, Network, checkpoint, onnx};
use panoply_tensor::{DType, Device, Result, Rng, Shape, Tensor};

/// Environment variable of the child process with the folder that it works in.
const CHILD: &str = "PANOPLY_TEST_READERS_IN";

/// Address space of the child: far above what it needs, and below what a crafted header requests.
const ADDRESS_SPACE_KIB: u64 = 3 << 20;

/// Runs a test of this program in a child process with limited memory: `limit` for a read, [`ADDRESS_SPACE_KIB`] for the process. Panics
/// with the child's output if it fails. Returns the child's folder if this is the child.
pub fn in_child(test: &str, limit: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(CHILD) {
        return Some(PathBuf::from(folder));
    }
    let folder = std::env::temp_dir().join(format!("panoply-{}-{}", test.replace("::", "-"), std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let limited = if cfg!(target_os = "linux") { format!("ulimit -v {ADDRESS_SPACE_KIB}; ") } else { String::new() };
    let output = Command::new("sh")
        .args(["-c", &format!("{limited}exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, &folder)
        .env("PANOPLY_READ_LIMIT", limit)
        .env("PANOPLY_THREADS", "2")
        .output()
        .unwrap();
    let at = std::fs::read_to_string(folder.join("at")).unwrap_or_default();
    let _ = std::fs::remove_dir_all(&folder);
    let said = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = said.lines().rev().take(20).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && ran, "{test}: {} at {at}\n{}", output.status, last.join("\n"));
    None
}

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

/// A random number generator. Source: G. Steele, D. Lea, C. Flood, Fast Splittable Pseudorandom Number Generators, 2014 (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Makes one to six changes: bits, bytes, numbers at the limits of their ranges, truncation, repeated and removed parts.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    const ENDS: [&[u8]; 8] = [
        &[0xff; 4],
        &[0; 4],
        &[0xff, 0xff, 0xff, 0x7f],
        &[0x7f, 0xff, 0xff, 0xff],
        &[0xff; 8],
        b"99999999999999999999",
        b"-1",
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
    ];
    for _ in 0..1 + random.below(6) {
        let at = random.below(bytes.len());
        match random.below(8) {
            _ if bytes.is_empty() => return,
            0 | 1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = random.next() as u8,
            3 => bytes.truncate(at),
            4 => {
                let part = bytes[at..(at + random.below(64)).min(bytes.len())].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, part);
            }
            5 => {
                let end = ENDS[random.below(ENDS.len())];
                let stop = (at + end.len()).min(bytes.len());
                bytes.splice(at..stop, end.iter().copied());
            }
            6 => drop(bytes.drain(at..(at + random.below(16)).min(bytes.len()))),
            _ => bytes.insert(at, b"\0\n\",;\t\xff9-{}[]"[random.below(13)]),
        }
    }
}

#[test]
fn mutated_files_are_read_or_refused() {
    let Some(folder) = in_child("file_formats::fuzz::mutated_files_are_read_or_refused", "64MiB") else { return };
    let variable = |name: &str| std::env::var(name).ok();
    let count = if variable("PANOPLY_TEST_FULL").is_some_and(|value| value == "1") { 8000 } else { 300 };
    let first: u64 = variable("PANOPLY_TEST_SEED").map_or(1, |seed| seed.parse().unwrap());
    Device::get("cpu").unwrap().scope(|| {
        for Reader { name, bytes, read } in readers(&folder) {
            let path = folder.join(name);
            std::fs::write(&path, &bytes).unwrap();
            read(&path).unwrap_or_else(|error| panic!("{name} without changes: {error}"));
            for seed in first..first + count {
                let mut mutated = bytes.clone();
                mutate(&mut mutated, &mut Random(seed));
                std::fs::write(&path, &mutated).unwrap();
                std::fs::write(folder.join("at"), format!("{name}, PANOPLY_TEST_SEED={seed}")).unwrap();
                if let Err(error) = read(&path) {
                    assert!(!error.message().is_empty(), "{name}, seed {seed}");
                }
            }
            std::fs::write(&path, &bytes).unwrap();
        }
    });
}
