//! GGUF files, versions 2 and 3, in one file or in shards: metadata and packed tensors.
//!
//! The file is untrusted. Every length is checked against the number of remaining bytes before anything is allocated, and the memory of
//! arrays is reserved in the [`ReadBudget`] of the file. This module does not depend on architectures or tokenizers.
//!
//! Source: the GGUF specification (ggml/docs/gguf.md).

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use panoply_ir::Encoding;
use panoply_tensor::{Error, HostBytes, ReadBudget, Result, map_file};

use crate::weight_reader::{TensorFile, check_overlaps};

const MAGIC: &[u8] = b"GGUF";
const DEFAULT_ALIGNMENT: u64 = 32;
/// Maximum number of axes of a tensor.
const MAX_AXES: u32 = 4;

/// Metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Non-negative integer of any type.
    Unsigned(u64),
    /// Negative integer.
    Signed(i64),
    /// Floating-point number.
    Float(f64),
    /// Boolean.
    Bool(bool),
    /// UTF-8 text.
    String(String),
    /// Values of one type.
    Array(Vec<Value>),
}

/// Tensor of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// Encoding of the rows.
    pub encoding: Encoding,
    /// Number of rows: the product of all axes but the contiguous one.
    pub rows: usize,
    /// Number of elements of a row.
    pub k: usize,
    /// File of [`Gguf`] that holds its bytes.
    file: usize,
    /// Position of its bytes in that file.
    bytes: Range<usize>,
    /// Lengths of its axes, the contiguous one first.
    axes: Vec<u64>,
}

/// Open GGUF model.
pub struct Gguf {
    path: PathBuf,
    /// Metadata of the first file by key.
    pub metadata: BTreeMap<String, Value>,
    /// Tensors by name.
    pub tensors: BTreeMap<String, TensorInfo>,
    files: Vec<Arc<HostBytes>>,
    /// Positions of the metadata entries in the first file, by key in the order of the file.
    entries: Vec<(String, Range<usize>)>,
}

impl Gguf {
    /// Opens a file, and the other shards if it is one of several, named `NAME-00001-of-00003.gguf`. The files are mapped.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, is not GGUF, is truncated, contradicts itself, or holds a tensor type that is not supported, and if a shard
    /// is missing, belongs to another model, or holds a tensor of another.
    pub fn open(path: &Path) -> Result<Gguf> {
        let file = Gguf::parse_bytes(path, map_file(path)?)?;
        let count = file.shard_count()?;
        if count <= 1 { Ok(file) } else { Gguf::open_shards(path, count) }
    }

    /// Opens the shards of a model, given the path of one of them.
    fn open_shards(path: &Path, count: usize) -> Result<Gguf> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let stem = shard_stem(&name, count).ok_or_else(|| {
            let message = format!("{} is one of {count} shards but is not named as one", path.display());
            Error::mistake(message).note(format!("rename it as before, such as model-00001-of-{count:05}.gguf"))
        })?;
        let mut whole: Option<Gguf> = None;
        for number in 1..=count {
            let shard_path = path.with_file_name(shard_name(stem, number, count));
            if !shard_path.exists() {
                let message = format!("shard {number} of {count} is missing: {}", shard_path.display());
                return Err(Error::mistake(message).note(format!("put all {count} files into one folder")));
            }
            let shard = Gguf::parse_bytes(&shard_path, map_file(&shard_path)?)?;
            let own_count = shard.shard_count()?;
            let own_number = shard.optional("split.no", "a number", Value::as_usize)?;
            let own_number = own_number.map_or(0, |number| number.saturating_add(1));
            if (own_number, own_count) != (number, count) {
                let message = format!("{} is shard {own_number} of {own_count}", shard_path.display());
                return Err(Error::corrupt(format!("{message}, but its name says {number} of {count}")));
            }
            match &mut whole {
                None => whole = Some(shard),
                Some(whole) => whole.add(shard)?,
            }
        }
        let whole = whole.expect("there is at least one shard");
        let wanted = whole.optional("split.tensors.count", "a number", Value::as_usize)?;
        match wanted.filter(|wanted| *wanted != whole.tensors.len()) {
            Some(wanted) => Err(Error::corrupt(format!(
                "{}: the {count} shards hold {} tensors instead of {wanted}; download them again",
                whole.path.display(),
                whole.tensors.len()
            ))),
            None => Ok(whole),
        }
    }

    /// Adds the tensors of another shard.
    fn add(&mut self, shard: Gguf) -> Result<()> {
        for (name, tensor) in shard.tensors {
            let tensor = TensorInfo { file: self.files.len(), ..tensor };
            if self.tensors.insert(name.clone(), tensor).is_some() {
                let message = format!("{}: tensor {name:?} is in an earlier shard too", shard.path.display());
                return Err(Error::corrupt(message).note("download the shards again"));
            }
        }
        self.files.extend(shard.files);
        Ok(())
    }

    /// Returns the paths of the file, or of all its shards, with symbolic links resolved.
    pub(crate) fn paths(&self) -> Result<Vec<PathBuf>> {
        let (count, name) = (self.shard_count()?, self.path.file_name().unwrap_or_default().to_string_lossy());
        let paths = match shard_stem(&name, count) {
            Some(stem) if count > 1 => {
                (1..=count).map(|number| self.path.with_file_name(shard_name(stem, number, count))).collect()
            }
            _ => vec![self.path.clone()],
        };
        Ok(paths.into_iter().filter_map(|path| path.canonicalize().ok()).collect())
    }

    /// Returns the number of shards of the model.
    fn shard_count(&self) -> Result<usize> {
        Ok(self.optional("split.count", "a number", Value::as_usize)?.unwrap_or(1))
    }

    /// Parses the bytes of a file, which may be a shard; `path` is only named in errors.
    ///
    /// # Errors
    ///
    /// As for [`Gguf::open`].
    pub fn parse(path: &Path, bytes: Vec<u8>) -> Result<Gguf> {
        Gguf::parse_bytes(path, bytes.into())
    }

    fn parse_bytes(path: &Path, bytes: HostBytes) -> Result<Gguf> {
        let budget = ReadBudget::for_size(bytes.as_slice().len() as u64)?;
        let parsed = Reader { bytes: bytes.as_slice(), at: 0, path, budget: &budget }.file();
        let Contents { metadata, tensors, entries } = parsed.map_err(|why| match budget.is_exceeded() {
            true => budget.exceeded(path),
            false => Error::corrupt(format!("{}: {why}", path.display())).note("download or convert the model again"),
        })?;
        Ok(Gguf { path: path.to_path_buf(), metadata, tensors, files: vec![Arc::new(bytes)], entries })
    }

    /// Returns the path of the file, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the metadata entries as the file encodes them: key, type and value.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let first = self.files[0].as_slice();
        self.entries.iter().map(|(key, range)| (key.as_str(), &first[range.clone()]))
    }

    /// The alignment of the tensors' bytes in the file.
    pub(crate) fn alignment(&self) -> u64 {
        alignment(&self.metadata).expect("it was valid when the file was read")
    }

    /// Returns the bytes of a tensor: `rows` times the bytes of a row.
    pub fn bytes(&self, tensor: &TensorInfo) -> &[u8] {
        &self.files[tensor.file].as_slice()[tensor.bytes.clone()]
    }

    /// Returns a required metadata value.
    ///
    /// # Errors
    ///
    /// If the key is missing or `convert` rejects its value; `kind` describes the expected value.
    pub fn required<'a, T>(&'a self, key: &str, kind: &str, convert: fn(&'a Value) -> Option<T>) -> Result<T> {
        self.optional(key, kind, convert)?
            .ok_or_else(|| Error::corrupt(format!("{}: metadata key {key} is missing", self.path.display())))
    }

    /// Returns an optional metadata value.
    ///
    /// # Errors
    ///
    /// If `convert` rejects its value.
    pub fn optional<'a, T>(&'a self, key: &str, kind: &str, convert: fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.metadata.get(key) else { return Ok(None) };
        let converted = convert(value)
            .ok_or_else(|| Error::corrupt(format!("{}: metadata key {key} is not {kind}", self.path.display())))?;
        Ok(Some(converted))
    }
}

impl TensorInfo {
    /// Lengths of its axes, the contiguous one first.
    pub(crate) fn axes(&self) -> &[u64] {
        &self.axes
    }

    /// Returns the index of the file and the position in it.
    pub(crate) fn place(&self) -> (usize, usize) {
        (self.file, self.bytes.start)
    }
}

impl TensorFile for Gguf {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn names(&self) -> Vec<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }

    fn shape(&self, name: &str) -> Option<(Encoding, [usize; 2])> {
        self.tensors.get(name).map(|tensor| (tensor.encoding, [tensor.rows, tensor.k]))
    }

    fn files(&self) -> &[Arc<HostBytes>] {
        &self.files
    }

    fn location(&self, name: &str) -> Option<(usize, Range<usize>)> {
        self.tensors.get(name).map(|tensor| (tensor.file, tensor.bytes.clone()))
    }
}

fn shard_name(stem: &str, number: usize, count: usize) -> String {
    format!("{stem}-{number:05}-of-{count:05}.gguf")
}

/// Returns the part of a shard's file name before the numbers.
fn shard_stem(name: &str, count: usize) -> Option<&str> {
    let stem = name.strip_suffix(&format!("-of-{count:05}.gguf"))?;
    let (stem, number) = stem.rsplit_once('-')?;
    (number.len() == 5 && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(stem)
}

impl Value {
    /// Returns the value as a size or an id.
    pub fn as_usize(&self) -> Option<usize> {
        match self {
            Value::Unsigned(number) => usize::try_from(*number).ok(),
            Value::Signed(_) | Value::Float(_) | Value::Bool(_) | Value::String(_) | Value::Array(_) => None,
        }
    }

    /// Returns the value as a number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Unsigned(number) => Some(*number as f64),
            Value::Signed(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            Value::Bool(_) | Value::String(_) | Value::Array(_) => None,
        }
    }

    /// Returns the value as a bool.
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(value) = self { Some(*value) } else { None }
    }

    /// Returns the value as text.
    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(text) = self { Some(text) } else { None }
    }

    /// Returns the value as an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        if let Value::Array(values) = self { Some(values) } else { None }
    }
}

/// Result whose error is the reason why a file is invalid.
type Parsed<T> = std::result::Result<T, String>;

/// Contents of a file.
struct Contents {
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, TensorInfo>,
    entries: Vec<(String, Range<usize>)>,
}

/// Position in the bytes of a file.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    path: &'a Path,
    budget: &'a ReadBudget,
}

impl<'a> Reader<'a> {
    fn file(mut self) -> Parsed<Contents> {
        if self.bytes.get(..4) != Some(MAGIC) {
            return Err("it is not a GGUF file: it does not start with `GGUF`".to_string());
        }
        self.at = 4;
        let version = self.u32()?;
        if !matches!(version, 2 | 3) {
            return Err(format!("GGUF version {version} is not supported; versions 2 and 3 are"));
        }
        let (tensor_count, pair_count) = (self.u64()?, self.u64()?);
        let (mut metadata, mut entries) = (BTreeMap::new(), Vec::new());
        for _ in 0..pair_count {
            let start = self.at;
            // In the map, with room for as much again, and in the list.
            self.charge(1, 2 * size_of::<(String, Value)>() + size_of::<(String, std::ops::Range<usize>)>())?;
            let key = self.string()?;
            let kind = self.u32()?;
            let value = self.value(kind).map_err(|why| format!("metadata key {key:?}: {why}"))?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err(format!("metadata key {key:?} occurs twice"));
            }
            entries.push((key, start..self.at));
        }
        let mut headers = BTreeMap::new();
        for _ in 0..tensor_count {
            self.charge(1, 2 * size_of::<(String, Header)>() + 2 * size_of::<(String, TensorInfo)>())?;
            let name = self.string()?;
            let header = self.tensor().map_err(|why| format!("tensor {name:?}: {why}"))?;
            if headers.insert(name.clone(), header).is_some() {
                return Err(format!("tensor {name:?} occurs twice"));
            }
        }
        let start = (self.at as u64).next_multiple_of(alignment(&metadata)?);
        let mut tensors = BTreeMap::new();
        for (name, header) in headers {
            let tensor = header.located(start, self.bytes.len()).map_err(|why| format!("tensor {name:?}: {why}"))?;
            tensors.insert(name, tensor);
        }
        check_overlaps(tensors.iter().map(|(name, tensor)| (name.as_str(), &tensor.bytes)))?;
        Ok(Contents { metadata, tensors, entries })
    }

    /// Counts `count` values of `bytes` bytes each against the memory limit, before they are allocated.
    fn charge(&self, count: usize, bytes: usize) -> Parsed<()> {
        self.budget.take_values(count, bytes, self.path).map_err(|error| error.message().to_string())
    }

    fn take(&mut self, count: u64) -> Parsed<&'a [u8]> {
        let left = &self.bytes[self.at..];
        let taken = usize::try_from(count).ok().and_then(|count| left.get(..count));
        let taken = taken.ok_or_else(|| {
            format!("the file is truncated: {count} bytes are needed at offset {}, {} are left", self.at, left.len())
        })?;
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Parsed<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64)?);
        Ok(array)
    }

    fn u32(&mut self) -> Parsed<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Parsed<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn string(&mut self) -> Parsed<String> {
        let length = self.u64()?;
        let bytes = self.take(length)?;
        self.charge(1, bytes.len())?;
        // Copied before it is checked, as a mapped file could change in between.
        let bytes = bytes.to_vec();
        String::from_utf8(bytes).map_err(|_| format!("the text before offset {} is not UTF-8", self.at))
    }

    fn value(&mut self, kind: u32) -> Parsed<Value> {
        Ok(match kind {
            0 => Value::Unsigned(self.array::<1>()?[0].into()),
            1 => signed(i8::from_le_bytes(self.array()?).into()),
            2 => Value::Unsigned(u16::from_le_bytes(self.array()?).into()),
            3 => signed(i16::from_le_bytes(self.array()?).into()),
            4 => Value::Unsigned(self.u32()?.into()),
            5 => signed(i32::from_le_bytes(self.array()?).into()),
            6 => Value::Float(f32::from_le_bytes(self.array()?).into()),
            7 => Value::Bool(self.array::<1>()?[0] != 0),
            8 => Value::String(self.string()?),
            9 => Value::Array(self.values()?),
            10 => Value::Unsigned(self.u64()?),
            11 => signed(i64::from_le_bytes(self.array()?)),
            12 => Value::Float(f64::from_le_bytes(self.array()?)),
            other => return Err(format!("value type {other} is not known")),
        })
    }

    /// An array of scalars or strings. Each takes at least a byte of the file, so a count is checked against what is left of it and of the memory
    /// limit before anything is allocated.
    fn values(&mut self) -> Parsed<Vec<Value>> {
        let (kind, count) = (self.u32()?, self.u64()?);
        if kind == 9 {
            return Err("an array of arrays is not supported".to_string());
        }
        let left = (self.bytes.len() - self.at) as u64;
        if count > left {
            return Err(format!(
                "the file is truncated: {count} values are needed at offset {}, {left} bytes are left",
                self.at
            ));
        }
        self.charge(count as usize, size_of::<Value>())?;
        let mut values = Vec::with_capacity(count as usize);
        for _ in 0..count {
            values.push(self.value(kind)?);
        }
        Ok(values)
    }

    fn tensor(&mut self) -> Parsed<Header> {
        let axes = self.u32()?;
        if axes > MAX_AXES {
            return Err(format!("{axes} axes; at most {MAX_AXES} are allowed"));
        }
        let mut lengths = [1; MAX_AXES as usize];
        for length in &mut lengths[..axes as usize] {
            *length = self.u64()?;
        }
        let number = self.u32()?;
        let encoding = Encoding::from_ggml_type(number).ok_or_else(|| {
            let known: Vec<&str> = Encoding::ALL.iter().map(|encoding| encoding.name()).collect();
            format!("tensor type {number} is not supported; supported are {}", known.join(", "))
        })?;
        Ok(Header { axes: axes as usize, lengths, encoding, offset: self.u64()? })
    }
}

/// The alignment of the tensors' bytes in the file.
fn alignment(metadata: &BTreeMap<String, Value>) -> Parsed<u64> {
    match metadata.get("general.alignment") {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(Value::Unsigned(alignment)) if alignment.is_power_of_two() && *alignment <= 1 << 20 => Ok(*alignment),
        Some(other) => Err(format!("general.alignment {other:?} is not a power of two up to 1048576")),
    }
}

fn signed(number: i64) -> Value {
    u64::try_from(number).map_or(Value::Signed(number), Value::Unsigned)
}

/// Tensor as the header describes it.
struct Header {
    axes: usize,
    /// The contiguous axis first.
    lengths: [u64; MAX_AXES as usize],
    encoding: Encoding,
    /// From where the tensors start.
    offset: u64,
}

impl Header {
    /// The tensor, if its bytes are within the file.
    fn located(&self, start: u64, file: usize) -> Parsed<TensorInfo> {
        let too_large = || format!("its shape {:?} is too large", self.lengths);
        let rows = self.lengths[1..].iter().try_fold(1u64, |rows, length| rows.checked_mul(*length));
        let rows = rows.and_then(|rows| usize::try_from(rows).ok()).ok_or_else(too_large)?;
        let k = usize::try_from(self.lengths[0]).map_err(|_| too_large())?;
        let (encoding, block) = (self.encoding, self.encoding.block_elems());
        if !k.is_multiple_of(block) {
            return Err(format!("rows of {k} elements are not whole blocks of {block} of {}", encoding.name()));
        }
        let size = encoding.row_bytes(k).and_then(|row| row.checked_mul(rows)).ok_or_else(too_large)?;
        let begin = start.checked_add(self.offset).and_then(|begin| usize::try_from(begin).ok());
        let end = begin.and_then(|begin| begin.checked_add(size)).filter(|end| *end <= file);
        let (Some(begin), Some(end)) = (begin, end) else {
            return Err(format!("the file is truncated: {size} bytes at offset {} are not in it", self.offset));
        };
        Ok(TensorInfo { encoding, rows, k, file: 0, bytes: begin..end, axes: self.lengths[..self.axes].to_vec() })
    }
}
