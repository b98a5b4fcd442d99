//! Quantization of GGUF files: weights are encoded in fewer bits, metadata stays.
//!
//! The encoding of each tensor and its bytes are those that llama.cpp chooses without an importance matrix.
//!
//! Source: llama-quant.cpp of llama.cpp, `llama_tensor_get_type_impl` and `tensor_allows_quantization`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use panoply_ir::{Encoding, f16};
use panoply_tensor::{Error, Result};

use crate::config::{Config, FeedForward};
use crate::gguf::{Gguf, TensorInfo, Value};

/// Number of elements that a thread encodes at once.
const CHUNK: usize = 1 << 18;

/// Mixture of encodings, as a quantization type of llama.cpp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantizedType {
    /// All weights in Q8_0.
    Q8_0,
    /// Weights in Q4_0, the output in Q6_K.
    Q4_0,
    /// Weights in Q4_K; the output, and in half of the blocks the values and the last matrix, in Q6_K.
    Q4KM,
}

impl QuantizedType {
    /// All mixtures.
    pub const ALL: [QuantizedType; 3] = [QuantizedType::Q8_0, QuantizedType::Q4_0, QuantizedType::Q4KM];

    /// Returns llama.cpp's name in lower case, such as `q4_k_m`.
    pub fn name(self) -> &'static str {
        match self {
            QuantizedType::Q8_0 => "q8_0",
            QuantizedType::Q4_0 => "q4_0",
            QuantizedType::Q4KM => "q4_k_m",
        }
    }

    fn encoding(self) -> Encoding {
        match self {
            QuantizedType::Q8_0 => Encoding::Q8_0,
            QuantizedType::Q4_0 => Encoding::Q4_0,
            QuantizedType::Q4KM => Encoding::Q4K,
        }
    }

    /// Returns the value of `general.file_type`.
    fn file_type(self) -> u32 {
        match self {
            QuantizedType::Q8_0 => 7,
            QuantizedType::Q4_0 => 2,
            QuantizedType::Q4KM => 15,
        }
    }
}

/// Sizes of a file before and after quantization, in bytes of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantizedSize {
    /// Bytes of the tensors that were read.
    pub before: u64,
    /// Bytes of the tensors that were written.
    pub after: u64,
}

/// Quantizes a GGUF file of F32, F16 or BF16 to another. `progress` receives the bytes of tensors that are done, and of all.
///
/// The output is written beside its path and renamed when it is complete. Symbolic links are followed.
///
/// # Errors
///
/// If the input is not a GGUF file of a supported architecture, is quantized already or contains numbers that are not finite, if a file
/// cannot be read or written, or if the output is the input, a folder, a pipe or a device.
pub fn quantize(
    input: &Path,
    output: &Path,
    kind: QuantizedType,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<QuantizedSize> {
    if input.is_dir() {
        let message = format!("{} is a folder; only GGUF files can be quantized", input.display());
        return Err(Error::mistake(message).note("convert it with `convert_hf_to_gguf.py` of llama.cpp"));
    }
    let file = Gguf::open(input)?;
    let rules = Rules::new(&file, kind)?;
    let mut tensors: Vec<(&str, &TensorInfo)> = file.tensors.iter().map(|(name, tensor)| (&**name, tensor)).collect();
    tensors.sort_by_key(|(_, tensor)| tensor.place());
    let planned = tensors.iter().map(|(name, tensor)| {
        let encoding = rules.encoding(name, tensor);
        if encoding != tensor.encoding && tensor.encoding.float_dtype().is_none() {
            let have = tensor.encoding.name();
            let message = format!("{}: tensor {name} is quantized already, in {have}", input.display());
            return Err(Error::mistake(message).note("quantize the model in F32, F16 or BF16 instead"));
        }
        Ok((*name, *tensor, encoding))
    });
    let planned = planned.collect::<Result<Vec<_>>>()?;
    let output = &target(output, &file)?;
    let partial = partial_path(output);
    let io = |error| Error::io(format!("cannot write {}", output.display()), error);
    let mut writer = BufWriter::with_capacity(1 << 20, File::create(&partial).map_err(io)?);
    let done = write_file(&file, &rules, &planned, &mut writer, progress)
        .map_err(|error| match error {
            WriteError::Io(error) => io(error),
            WriteError::Value(name) => {
                let message =
                    format!("{}: tensor {name} contains numbers that are not finite or too large", input.display());
                Error::mistake(message)
                    .note("weights must be finite; those of rows without whole blocks become F16, at most 65504")
            }
        })
        .and_then(|size| {
            let file = writer.into_inner().map_err(|error| io(error.into_error()))?;
            file.sync_all().map_err(io).map(|()| size)
        })
        .and_then(|size| std::fs::rename(&partial, output).map_err(io).map(|()| size));
    if done.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&partial);
    }
    done
}

/// Returns the path with its symbolic links resolved. The result must not replace a file of the input, whose weights would be lost, nor
/// anything that is not a file.
fn target(output: &Path, input: &Gguf) -> Result<PathBuf> {
    let refused = |what: &str| {
        Err(Error::mistake(format!("{} is {what}", output.display())).note("choose another name for the output"))
    };
    let Ok(target) = output.canonicalize() else { return Ok(output.to_path_buf()) };
    if input.paths()?.contains(&target) {
        return refused("the model itself");
    }
    if target.is_dir() {
        return refused("a folder");
    }
    if target.is_file() { Ok(target) } else { refused("a pipe or a device") }
}

fn partial_path(output: &Path) -> PathBuf {
    let mut name = output.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".partial-{}", std::process::id()));
    output.with_file_name(name)
}

enum WriteError {
    Io(std::io::Error),
    /// A tensor holds a number that is not finite, or too large for its encoding.
    Value(String),
}

impl From<std::io::Error> for WriteError {
    fn from(error: std::io::Error) -> WriteError {
        WriteError::Io(error)
    }
}

/// Writes version 3 of the format.
fn write_file(
    file: &Gguf,
    rules: &Rules,
    tensors: &[(&str, &TensorInfo, Encoding)],
    writer: &mut impl Write,
    progress: &mut dyn FnMut(u64, u64),
) -> std::result::Result<QuantizedSize, WriteError> {
    const REPLACED: [&str; 2] = ["general.file_type", "general.quantization_version"];
    let kept = |key: &str| !REPLACED.contains(&key) && !key.starts_with("split.");
    let entries: Vec<&[u8]> = file.entries().filter(|(key, _)| kept(key)).map(|(_, entry)| entry).collect();
    let mut header = [b"GGUF".as_slice(), &3u32.to_le_bytes(), &(tensors.len() as u64).to_le_bytes()].concat();
    header.extend(((entries.len() + REPLACED.len()) as u64).to_le_bytes());
    entries.into_iter().for_each(|entry| header.extend(entry));
    for (key, value) in REPLACED.into_iter().zip([rules.kind.file_type(), 2]) {
        write_string(&mut header, key);
        header.extend([4u32, value].iter().flat_map(|number| number.to_le_bytes()));
    }
    let (alignment, mut offset) = (file.alignment(), 0);
    for (name, tensor, encoding) in tensors {
        write_string(&mut header, name);
        header.extend((tensor.axes().len() as u32).to_le_bytes());
        tensor.axes().iter().for_each(|length| header.extend(length.to_le_bytes()));
        header.extend(encoding.ggml_type().to_le_bytes());
        header.extend(u64::to_le_bytes(offset));
        offset = (offset + encoded_bytes(tensor, *encoding)).next_multiple_of(alignment);
    }
    pad(&mut header, alignment);
    writer.write_all(&header)?;
    let before = tensors.iter().map(|(_, tensor, _)| file.bytes(tensor).len() as u64).sum();
    let mut size = QuantizedSize { before: 0, after: 0 };
    for (name, tensor, encoding) in tensors {
        let from = file.bytes(tensor);
        let mut done = |part: usize| {
            size.before += part as u64;
            progress(size.before, before);
        };
        if *encoding == tensor.encoding {
            writer.write_all(from)?;
            done(from.len());
        } else if !encode(from, (tensor.encoding, *encoding), writer, &mut done)? {
            return Err(WriteError::Value((*name).to_string()));
        }
        let after = encoded_bytes(tensor, *encoding);
        size.after += after;
        let padding = after.next_multiple_of(alignment) - after;
        writer.write_all(&vec![0; padding as usize])?;
    }
    Ok(size)
}

fn write_string(header: &mut Vec<u8>, text: &str) {
    header.extend((text.len() as u64).to_le_bytes());
    header.extend(text.as_bytes());
}

fn pad(bytes: &mut Vec<u8>, alignment: u64) {
    bytes.resize((bytes.len() as u64).next_multiple_of(alignment) as usize, 0);
}

fn encoded_bytes(tensor: &TensorInfo, encoding: Encoding) -> u64 {
    let row = encoding.row_bytes(tensor.k).expect("the rules choose encodings that the rows fit");
    (row * tensor.rows) as u64
}

/// Encodes a tensor on all processors, a part at a time; returns false if a number is not finite or the encoding does not hold it.
fn encode(
    from: &[u8],
    (old, new): (Encoding, Encoding),
    writer: &mut impl Write,
    done: &mut dyn FnMut(usize),
) -> std::io::Result<bool> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let is_finite = AtomicBool::new(true);
    let encode = |bytes: &[u8]| {
        let mut values = vec![0.0; bytes.len() / old.block_bytes()];
        old.decode(bytes, &mut values);
        let largest = if new == Encoding::F16 { f16::MAX.to_f32() } else { f32::MAX };
        // False for NaN, too.
        if !values.iter().all(|value| value.abs() <= largest) {
            is_finite.store(false, Ordering::Relaxed);
            return Vec::new();
        }
        let mut encoded = vec![0; values.len() / new.block_elems() * new.block_bytes()];
        new.encode(&values, &mut encoded);
        encoded
    };
    for part in from.chunks(threads * CHUNK * old.block_bytes()) {
        let pieces = part.chunks(CHUNK * old.block_bytes());
        let encoded: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let encode = &encode;
            let workers: Vec<_> = pieces.map(|piece| scope.spawn(move || encode(piece))).collect();
            workers.into_iter().map(|worker| worker.join().expect("encoders do not panic")).collect()
        });
        if !is_finite.load(Ordering::Relaxed) {
            return Ok(false);
        }
        encoded.iter().try_for_each(|bytes| writer.write_all(bytes))?;
        done(part.len());
    }
    Ok(true)
}

/// Rules that choose the encoding of each tensor.
struct Rules {
    kind: QuantizedType,
    blocks: usize,
    experts: usize,
    is_tied: bool,
    /// Number of tensors that project to values.
    value_tensors: usize,
    /// True for models with 80 blocks and grouped queries, whose value projections are small.
    has_small_values: bool,
}

impl Rules {
    fn new(file: &Gguf, kind: QuantizedType) -> Result<Rules> {
        let config = Config::from_gguf(file)?;
        let experts = config.blocks.iter().map(|block| match block.feed_forward {
            FeedForward::Dense(_) => 0,
            FeedForward::Experts(experts) => experts.count,
        });
        let architecture = file.required("general.architecture", "a string", Value::as_str)?;
        let has_80_blocks = config.blocks.len() == 80 && ["llama", "qwen2"].contains(&architecture);
        Ok(Rules {
            kind,
            blocks: config.blocks.len(),
            experts: experts.max().unwrap_or(0),
            is_tied: !file.tensors.contains_key("output.weight"),
            value_tensors: file.tensors.keys().filter(|name| is_value(name)).count(),
            has_small_values: has_80_blocks && (architecture == "qwen2" || config.heads != config.kv_heads),
        })
    }

    /// Returns the encoding of a tensor in the output.
    fn encoding(&self, name: &str, tensor: &TensorInfo) -> Encoding {
        if !is_quantized(name, tensor) {
            return tensor.encoding;
        }
        let fits = |encoding: &Encoding| tensor.k.is_multiple_of(encoding.block_elems());
        let wanted = self.wanted(name, tensor.k);
        let smaller = match wanted {
            Encoding::Q4K => Encoding::Q5_0,
            Encoding::Q5K => Encoding::Q5_1,
            Encoding::Q6K => Encoding::Q8_0,
            other => other,
        };
        [wanted, smaller].into_iter().find(fits).unwrap_or(Encoding::F16)
    }

    /// Returns the encoding of a tensor whose rows have whole blocks of it.
    fn wanted(&self, name: &str, k: usize) -> Encoding {
        let base = self.kind.encoding();
        let is_mixed = self.kind == QuantizedType::Q4KM;
        let has_more_bits = |count: usize| {
            let block = block_number(name);
            let eighth = count / 8;
            block < eighth || block >= 7 * count / 8 || (block - eighth) % 3 == 2
        };
        if name == "output.weight" || (self.is_tied && name == "token_embd.weight") {
            let is_whole = k.is_multiple_of(base.block_elems());
            return if is_whole && base != Encoding::Q8_0 { Encoding::Q6K } else { Encoding::Q8_0 };
        }
        if is_value(name) {
            return match base {
                _ if self.experts == 8 => Encoding::Q8_0,
                _ if is_mixed && has_more_bits(self.value_tensors) => Encoding::Q6K,
                Encoding::Q4K if self.has_small_values => Encoding::Q5K,
                base => base,
            };
        }
        if name.contains("attn_k.weight") && self.experts == 8 {
            return Encoding::Q8_0;
        }
        if name.contains("attn_output.weight") && self.experts == 8 && is_mixed {
            return Encoding::Q5K;
        }
        if name.contains("ffn_down") && is_mixed && has_more_bits(self.blocks) {
            return Encoding::Q6K;
        }
        base
    }
}

/// Returns true for the value projection, alone or merged with others.
fn is_value(name: &str) -> bool {
    name.contains("attn_qkv.weight") || name.contains("attn_v.weight")
}

/// Returns true for matrices that are quantized.
fn is_quantized(name: &str, tensor: &TensorInfo) -> bool {
    let is_matrix = tensor.axes().iter().skip(1).any(|length| *length != 1);
    let is_kept = ["_norm.weight", "ffn_gate_inp"].iter().any(|part| name.contains(part))
        || ["position_embd.weight", "token_types.weight"].contains(&name);
    is_matrix && name.ends_with("weight") && !is_kept
}

/// Returns the number of a tensor's block; 0 outside of blocks.
fn block_number(name: &str) -> usize {
    let number = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
