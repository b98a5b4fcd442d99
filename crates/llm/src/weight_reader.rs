//! Reads the tensors of a decoder by their names in a file format, and records which were read.
//!
//! Fused tensors are split, the matrices of experts are concatenated, and transposed matrices are transposed back, so that the layout does
//! not depend on the file format. A device that can use host memory in place uses the bytes of the mapped file, unless they are rearranged
//! or not aligned to elements; other devices receive a copy. The rows of matrices that are multiplied are interleaved for a device that
//! multiplies them faster then, if the model fits its memory. This module does not depend on the purpose of the tensors.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use panoply_ir::{Encoding, INTERLEAVED_ROWS};
use panoply_tensor::{Device, Error, HostBytes, Result, Storage, Tensor};

use crate::architectures::Names;
use crate::packed::{Packed, prefers_interleaved};

/// Minimum number of bytes of a memory page.
const PAGE: usize = 4096;
/// Number of bytes that are read between two progress reports.
const PRELOADED: usize = 16 << 20;
/// Number of bytes that a thread interleaves at once: they stay in a second-level cache.
const INTERLEAVED: usize = 256 << 10;
/// Number of bytes of interleaved matrices that are allocated at once: they share huge pages.
const ARENA: u64 = 128 << 20;

/// File or folder of tensors.
pub trait TensorFile {
    /// Returns the path, for messages.
    fn place(&self) -> String;

    /// Returns the names of all tensors.
    fn names(&self) -> Vec<&str>;

    /// Returns the encoding and the shape of a tensor, its contiguous axis last; axes before the last two may be merged.
    fn shape(&self, name: &str) -> Option<(Encoding, [usize; 2])>;

    /// Returns the bytes of the files that hold the tensors.
    fn files(&self) -> &[Arc<HostBytes>];

    /// Returns the index of the file with the bytes of a tensor, and their position in it.
    fn location(&self, name: &str) -> Option<(usize, Range<usize>)>;
}

/// Returns the bytes of all tensors.
pub(crate) fn stored_bytes(file: &dyn TensorFile) -> u64 {
    let ranges = file.names().into_iter().filter_map(|name| file.location(name));
    ranges.map(|(_, range)| range.len() as u64).sum()
}

/// Linear layer: the product with a matrix, plus a bias.
#[derive(Debug)]
pub(crate) struct Linear {
    pub weight: Packed,
    pub bias: Option<Tensor>,
}

impl Linear {
    /// Maps f32 `[…, inputs]` to `[…, outputs]`.
    pub fn apply(&self, x: &Tensor) -> Tensor {
        let product = self.weight.matmul(x);
        match &self.bias {
            Some(bias) => product + bias,
            None => product,
        }
    }
}

/// Rejects tensors that share bytes of a file: each would be allocated separately, so a small file could take any amount of memory.
pub(crate) fn check_overlaps<'n>(
    tensors: impl Iterator<Item = (&'n str, &'n Range<usize>)>,
) -> std::result::Result<(), String> {
    let mut tensors: Vec<(&str, &Range<usize>)> = tensors.filter(|(_, bytes)| !bytes.is_empty()).collect();
    tensors.sort_unstable_by_key(|(_, bytes)| bytes.start);
    match tensors.windows(2).find(|pair| pair[1].1.start < pair[0].1.end) {
        Some(pair) => Err(format!("tensors {} and {} overlap", pair[0].0, pair[1].0)),
        None => Ok(()),
    }
}

/// Rows of a matrix in its encoding.
struct Rows {
    bytes: Bytes,
    encoding: Encoding,
    rows: usize,
    k: usize,
}

/// Bytes of rows.
#[derive(Clone)]
enum Bytes {
    /// Bytes of a file.
    Stored(usize, Range<usize>),
    /// Rearranged bytes.
    Own(Vec<u8>),
}

/// Reads tensors of one file.
pub(crate) struct WeightReader<'a> {
    file: &'a dyn TensorFile,
    names: &'a Names,
    read: RefCell<BTreeSet<String>>,
    device: Device,
    /// Files as memory of the device, if it can use them in place.
    in_place: Vec<Option<Storage>>,
    /// True if the pages of mapped files are read in advance, since all fit into memory.
    is_preloaded: bool,
    /// True if rows that are multiplied are interleaved.
    interleaves: bool,
    /// Memory of interleaved matrices that is not used yet.
    arena: RefCell<Option<Storage>>,
    progress: RefCell<Progress<'a>>,
}

/// Number of bytes that have been read.
struct Progress<'a> {
    done: u64,
    all: u64,
    report: &'a mut dyn FnMut(u64, u64),
}

impl<'a> WeightReader<'a> {
    /// Creates a reader for the current device; `report` receives the number of bytes read so far, and in total.
    pub fn new(
        file: &'a dyn TensorFile,
        names: &'a Names,
        report: &'a mut dyn FnMut(u64, u64),
    ) -> Result<WeightReader<'a>> {
        let device = Device::current()?;
        let all = stored_bytes(file);
        let free = device.memory().free.unwrap_or(u64::MAX);
        let is_preloaded = all <= free / 10 * 7;
        let interleaves = is_preloaded && prefers_interleaved(&device);
        let in_place = file.files().iter().map(|bytes| device.adopt(bytes)).collect::<Result<_>>()?;
        Ok(WeightReader {
            file,
            names,
            read: RefCell::default(),
            device,
            in_place,
            is_preloaded,
            interleaves,
            arena: RefCell::default(),
            progress: RefCell::new(Progress { done: 0, all, report }),
        })
    }

    /// Returns the names of tensors in the format of the file.
    pub fn names(&self) -> &'a Names {
        self.names
    }

    /// Returns the name of a tensor in the file: with or without the prefix.
    fn find(&self, name: &str, ending: &str) -> Option<String> {
        let whole = format!("{}{name}{ending}", self.names.prefix);
        let short = format!("{name}{ending}");
        [whole, short].into_iter().find(|name| self.file.shape(name).is_some())
    }

    /// Returns true if the file has the weight of a layer.
    pub fn has(&self, name: &str) -> bool {
        !name.is_empty() && self.find(name, ".weight").is_some()
    }

    fn wrong(&self, what: &str) -> Error {
        Error::corrupt(format!("{}: {what}", self.file.place()))
    }

    /// Returns the rows of a tensor of this shape; an axis of length one may be absent.
    fn rows(&self, name: &str, ending: &str, [rows, k]: [usize; 2]) -> Result<Rows> {
        let missing = || self.wrong(&format!("tensor {}{name}{ending} is missing", self.names.prefix));
        let name = self.find(name, ending).ok_or_else(missing)?;
        let (encoding, shape) = self.file.shape(&name).ok_or_else(missing)?;
        if shape != [rows, k] {
            let [other_rows, other_k] = shape;
            let what = format!("tensor {name} is [{other_rows}, {other_k}]; the configuration asks for [{rows}, {k}]");
            return Err(self.wrong(&what));
        }
        let (file, range) = self.file.location(&name).ok_or_else(missing)?;
        let bytes = Bytes::Stored(file, range);
        self.read.borrow_mut().insert(name);
        Ok(Rows { bytes, encoding, rows, k })
    }

    fn slice<'b>(&'b self, bytes: &'b Bytes) -> &'b [u8] {
        match bytes {
            Bytes::Stored(file, range) => &self.file.files()[*file].as_slice()[range.clone()],
            Bytes::Own(bytes) => bytes,
        }
    }

    /// Returns memory for an interleaved matrix.
    fn allocate(&self, bytes: u64) -> Result<Storage> {
        let mut arena = self.arena.borrow_mut();
        let free = match arena.take().filter(|free| free.bytes() >= bytes) {
            Some(free) => free,
            None => {
                let Progress { done, all, .. } = *self.progress.borrow();
                self.device.allocate(ARENA.min(all.saturating_sub(done)).max(bytes))?
            }
        };
        // The next matrix begins at a line.
        let end = bytes.next_multiple_of(64).min(free.bytes());
        *arena = Some(free.slice(end..free.bytes())?);
        free.slice(0..bytes)
    }

    /// Returns a matrix as an operand of products.
    fn multiplied(&self, rows: &Rows) -> Result<Packed> {
        let (encoding, bytes) = (rows.encoding, self.slice(&rows.bytes));
        if !self.interleaves || bytes.is_empty() || !encoding.can_interleave(rows.rows) {
            return self.packed(rows);
        }
        let row_bytes = bytes.len() / rows.rows;
        let group = row_bytes * INTERLEAVED_ROWS;
        let storage = self.allocate(bytes.len() as u64)?;
        if self.device.is_dry_run() {
            self.count(bytes.len());
            return Packed::from_storage(storage, encoding, [rows.rows, rows.k], true);
        }
        let parts: Vec<(usize, &[u8])> = {
            let size = (INTERLEAVED / group).max(1) * group;
            bytes.chunks(size).enumerate().map(|(n, part)| (n * size, part)).collect()
        };
        let next = AtomicUsize::new(0);
        let interleave = || -> Result<()> {
            let mut interleaved = Vec::new();
            while let Some((start, part)) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                interleaved.resize(part.len(), 0);
                encoding.interleave(part, row_bytes, &mut interleaved);
                storage.slice(*start as u64..(start + part.len()) as u64)?.write_bytes(&interleaved)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let count = (self.device.info().compute_units as usize).clamp(1, parts.len());
            let threads: Vec<_> = (1..count).map(|_| scope.spawn(interleave)).collect();
            let first = interleave();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("interleaving does not panic"))
                .fold(first, Result::and)
        })?;
        if let Bytes::Stored(file, range) = &rows.bytes {
            self.file.files()[*file].release(range.clone());
        }
        self.count(bytes.len());
        Packed::from_storage(storage, encoding, [rows.rows, rows.k], true)
    }

    fn packed(&self, rows: &Rows) -> Result<Packed> {
        let align = rows.encoding.float_dtype().map_or(1, |dtype| dtype.bytes());
        let storage = match &rows.bytes {
            Bytes::Stored(file, Range { start, end }) if start.is_multiple_of(align) => {
                let whole = self.in_place[*file].as_ref();
                whole.map(|whole| whole.slice(*start as u64..*end as u64)).transpose()?
            }
            Bytes::Stored(..) | Bytes::Own(_) => None,
        };
        let bytes = self.slice(&rows.bytes);
        let storage = match storage {
            Some(storage) => {
                self.preload(bytes);
                storage
            }
            None => {
                let storage = self.device.upload(bytes)?;
                self.count(bytes.len());
                storage
            }
        };
        Packed::from_storage(storage, rows.encoding, [rows.rows, rows.k], false)
    }

    fn count(&self, bytes: usize) {
        let Progress { done, all, report } = &mut *self.progress.borrow_mut();
        *done += bytes as u64;
        report(*done, *all);
    }

    /// Reads the pages of a mapped file, so that the first step does not wait for them one after another.
    fn preload(&self, bytes: &[u8]) {
        for part in bytes.chunks(PRELOADED) {
            if self.is_preloaded {
                std::hint::black_box(part.iter().step_by(PAGE).fold(0, |bits, byte| bits ^ byte));
            }
            self.count(part.len());
        }
    }

    /// Returns a matrix without transposing it, as an operand of products.
    pub fn multiplied_matrix(&self, name: &str, shape: [usize; 2]) -> Result<Packed> {
        self.multiplied(&self.rows(name, ".weight", shape)?)
    }

    /// Returns a matrix without transposing it.
    pub fn matrix(&self, name: &str, shape: [usize; 2]) -> Result<Packed> {
        self.packed(&self.rows(name, ".weight", shape)?)
    }

    /// Marks the weight of a layer as read, if it exists.
    pub fn skip(&self, name: &str) {
        self.read.borrow_mut().extend(self.find(name, ".weight"));
    }

    /// Returns the matrix of a block's layer.
    fn layer_rows(&self, name: &str, [rows, k]: [usize; 2]) -> Result<Rows> {
        if !self.names.is_transposed {
            return self.rows(name, ".weight", [rows, k]);
        }
        let stored = self.rows(name, ".weight", [k, rows])?;
        let size = stored.encoding.block_bytes();
        if stored.encoding.block_elems() != 1 {
            return Err(self.wrong(&format!("tensor {name} is packed and transposed")));
        }
        let from = self.slice(&stored.bytes);
        let mut bytes = Vec::with_capacity(from.len());
        for row in 0..rows {
            (0..k).for_each(|n| bytes.extend(&from[(n * rows + row) * size..][..size]));
        }
        Ok(Rows { bytes: Bytes::Own(bytes), encoding: stored.encoding, rows, k })
    }

    /// Returns the elements of a vector, plus `added`.
    fn numbers(&self, name: &str, ending: &str, length: usize, added: f32) -> Result<Vec<f32>> {
        let rows = self.rows(name, ending, [1, length])?;
        let mut values = vec![0.0; length];
        rows.encoding.decode(self.slice(&rows.bytes), &mut values);
        values.iter_mut().for_each(|value| *value += added);
        Ok(values)
    }

    /// Returns a vector f32 `[length]`, plus `added`.
    pub fn vector(&self, name: &str, ending: &str, length: usize, added: f32) -> Result<Tensor> {
        let values = self.numbers(name, ending, length, added)?;
        let vector = Tensor::from_slice(&values, [length]);
        vector.check()?;
        Ok(vector)
    }

    /// Returns a linear layer of `[outputs, inputs]`.
    pub fn linear(&self, name: &str, shape: [usize; 2], has_bias: bool) -> Result<Linear> {
        let weight = self.multiplied(&self.layer_rows(name, shape)?)?;
        let bias = has_bias.then(|| self.vector(name, ".bias", shape[0], 0.0)).transpose()?;
        Ok(Linear { weight, bias })
    }

    /// Returns linear layers with these numbers of outputs, which are concatenated in one tensor.
    pub fn fused(&self, name: &str, outputs: &[usize], inputs: usize, has_bias: bool) -> Result<Vec<Linear>> {
        let all = outputs.iter().sum();
        let rows = self.layer_rows(name, [all, inputs])?;
        let bias = has_bias.then(|| self.numbers(name, ".bias", all, 0.0)).transpose()?;
        let row_bytes = self.slice(&rows.bytes).len() / all.max(1);
        let mut first = 0;
        let mut part = |count: usize| -> Result<Linear> {
            let range: Range<usize> = first..first + count;
            first = range.end;
            let part = range.start * row_bytes..range.end * row_bytes;
            let bytes = match &rows.bytes {
                Bytes::Stored(file, all) => Bytes::Stored(*file, all.start + part.start..all.start + part.end),
                Bytes::Own(bytes) => Bytes::Own(bytes[part].to_vec()),
            };
            let weight = self.multiplied(&Rows { bytes, encoding: rows.encoding, rows: count, k: inputs })?;
            let bias = bias.as_ref().map(|bias| Tensor::from_slice(&bias[range.clone()], [count]));
            bias.iter().try_for_each(Tensor::check)?;
            Ok(Linear { weight, bias })
        };
        outputs.iter().map(|count| part(*count)).collect()
    }

    /// Returns the concatenated matrices of all experts: `[experts · rows, k]`.
    pub fn experts(&self, name: &str, count: usize, [rows, k]: [usize; 2]) -> Result<Packed> {
        let all = count.checked_mul(rows).filter(|all| i32::try_from(*all).is_ok());
        let all = all.ok_or_else(|| self.wrong(&format!("{count} experts of {rows} rows are too many")))?;
        if !name.contains("{e}") {
            return self.matrix(name, [all, k]);
        }
        let one = |expert: usize| self.rows(&name.replace("{e}", &expert.to_string()), ".weight", [rows, k]);
        let first = one(0)?;
        let mut joined = self.slice(&first.bytes).to_vec();
        for expert in 1..count {
            let next = one(expert)?;
            if next.encoding != first.encoding {
                return Err(self.wrong(&format!("experts of {name} differ in their encodings")));
            }
            joined.extend_from_slice(self.slice(&next.bytes));
        }
        self.packed(&Rows { bytes: Bytes::Own(joined), rows: all, ..first })
    }

    /// Checks that every tensor was read.
    pub fn finish(&self) -> Result<()> {
        let read = self.read.borrow();
        let is_ignored = |name: &str| self.names.ignored.iter().any(|ending| name.ends_with(ending));
        match self.file.names().into_iter().find(|name| !read.contains(*name) && !is_ignored(name)) {
            Some(name) => Err(Error::unsupported(format!(
                "{}: tensor {name} is not part of the architecture as the configuration describes it",
                self.file.place()
            ))),
            None => Ok(()),
        }
    }
}
