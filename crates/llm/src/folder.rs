//! A folder as Hugging Face's libraries write it: `config.json` and safetensors files, one or several with an index.
//!
//! The safetensors files are mapped. All files are untrusted: lengths are checked against the size of the file, and the memory of parsed
//! JSON is reserved in a [`ReadBudget`] before it is allocated.
//!
//! Source: the safetensors format (huggingface/safetensors, README).

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use panoply_ir::Encoding;
use panoply_tensor::{Error, HostBytes, ReadBudget, Result, map_file};
use serde_json::{Map, Value};

use crate::keys::Keys;
use crate::weight_reader::{TensorFile, check_overlaps};

/// Maximum number of bytes of a header, as the format defines it.
const MAX_HEADER: u64 = 100_000_000;
/// Name of the file with the configuration.
const CONFIG: &str = "config.json";
/// Maximum number of GGUF files that an error names.
const NAMED: usize = 3;
/// Bytes that a byte of JSON becomes at most: an object of seven bytes becomes a node of a map with room for eleven entries.
const JSON_BYTES_PER_BYTE: usize = 96;

/// Tensor of a file of the folder.
struct Stored {
    file: usize,
    encoding: Encoding,
    shape: [usize; 2],
    bytes: Range<usize>,
}

/// Open Hugging Face folder.
pub struct Folder {
    path: PathBuf,
    /// `config.json`.
    config: Map<String, Value>,
    files: Vec<Arc<HostBytes>>,
    tensors: BTreeMap<String, Stored>,
}

impl Folder {
    /// Opens a folder and reads the headers of its files.
    ///
    /// # Errors
    ///
    /// If a file is missing, cannot be read or is not valid.
    pub fn open(path: &Path) -> Result<Folder> {
        if path.is_dir() && !path.join(CONFIG).exists() {
            return Err(without_model(path));
        }
        let config = json_object(&path.join(CONFIG))?;
        let mut folder = Folder { path: path.to_path_buf(), config, files: Vec::new(), tensors: BTreeMap::new() };
        for name in folder.shards()? {
            folder.add(&path.join(name))?;
        }
        Ok(folder)
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `config.json`.
    pub(crate) fn config(&self) -> &Map<String, Value> {
        &self.config
    }

    /// Returns the keys of `config.json`.
    pub(crate) fn keys(&self) -> Keys {
        Keys::of_json(self.path.join(CONFIG).display().to_string(), &self.config)
    }

    /// Returns the names of the files with tensors.
    fn shards(&self) -> Result<Vec<String>> {
        const SINGLE: &str = "model.safetensors";
        let index = self.path.join("model.safetensors.index.json");
        if !index.exists() {
            if !self.path.join(SINGLE).exists() {
                let message = format!("{} has neither {SINGLE} nor {SINGLE}.index.json", self.path.display());
                let note = gguf_note(&self.path).unwrap_or_else(|| "only safetensors files are supported".to_string());
                return Err(Error::mistake(message).note(note));
            }
            return Ok(vec![SINGLE.to_string()]);
        }
        let object = json_object(&index)?;
        let wrong = |what: &str| Error::corrupt(format!("{}: {what}", index.display()));
        let map = object.get("weight_map").and_then(Value::as_object).ok_or_else(|| wrong("weight_map is missing"))?;
        let mut names = std::collections::BTreeSet::new();
        for name in map.values() {
            let name = name.as_str().ok_or_else(|| wrong("weight_map names a file that is not text"))?;
            if name.contains(['/', '\\', ':']) || name.starts_with("..") {
                return Err(wrong(&format!("weight_map names {name:?}, which is not in the folder")));
            }
            if !self.path.join(name).exists() {
                return Err(Error::corrupt(format!("{}: the file {name} is missing", self.path.display())));
            }
            names.insert(name.to_string());
        }
        Ok(names.into_iter().collect())
    }

    /// Reads the header of a file.
    fn add(&mut self, path: &Path) -> Result<()> {
        let wrong = |what: &str| Error::corrupt(format!("{}: {what}", path.display())).note("download the file again");
        let file = map_file(path)?;
        let (size, rest) =
            file.as_slice().split_first_chunk().ok_or_else(|| wrong("the file is truncated: it has no header"))?;
        let (size, length) = (u64::from_le_bytes(*size), file.as_slice().len() as u64);
        let header = usize::try_from(size).ok().filter(|_| size <= MAX_HEADER).and_then(|size| rest.get(..size));
        let header = header.ok_or_else(|| wrong(&format!("the file is truncated: its header has {size} bytes")))?;
        ReadBudget::for_size(length)?.take_values(header.len(), JSON_BYTES_PER_BYTE, path)?;
        // Copied before it is checked, as a mapped file could change in between.
        let header = header.to_vec();
        let header: Map<String, Value> =
            serde_json::from_slice(&header).map_err(|error| wrong(&format!("the header is not valid: {error}")))?;
        for (name, entry) in header.iter().filter(|(name, _)| *name != "__metadata__") {
            let stored = stored(entry, (self.files.len(), 8 + size, length));
            let stored = stored.map_err(|what| wrong(&format!("tensor {name}: {what}")))?;
            if self.tensors.insert(name.clone(), stored).is_some() {
                return Err(wrong(&format!("tensor {name} is in another file too")));
            }
        }
        let own = self.tensors.iter().filter(|(_, stored)| stored.file == self.files.len());
        check_overlaps(own.map(|(name, stored)| (name.as_str(), &stored.bytes))).map_err(|what| wrong(&what))?;
        self.files.push(Arc::new(file));
        Ok(())
    }
}

/// Returns the tensor of a header entry, in a file of `length` bytes whose tensors begin at `start`.
fn stored(entry: &Value, (file, start, length): (usize, u64, u64)) -> std::result::Result<Stored, String> {
    let encoding = match entry.get("dtype").and_then(Value::as_str) {
        Some("F32") => Encoding::F32,
        Some("F16") => Encoding::F16,
        Some("BF16") => Encoding::BF16,
        Some(other) => return Err(format!("element type {other} is not supported; F32, F16 and BF16 are")),
        None => return Err("it has no dtype".to_string()),
    };
    let numbers = |key: &str| -> Option<Vec<u64>> { entry.get(key)?.as_array()?.iter().map(Value::as_u64).collect() };
    let dims = numbers("shape").ok_or("it has no shape")?;
    let (k, outer) = match dims.split_last() {
        Some((k, outer)) => (*k, outer),
        None => (1, &[][..]),
    };
    let too_large = || format!("its shape {dims:?} is too large");
    let rows = outer.iter().try_fold(1u64, |rows, axis| rows.checked_mul(*axis)).ok_or_else(too_large)?;
    let size = |number: u64| usize::try_from(number).map_err(|_| too_large());
    let (rows, k) = (size(rows)?, size(k)?);
    let bytes = encoding.row_bytes(k).and_then(|row| row.checked_mul(rows)).ok_or_else(too_large)?;
    let offsets = numbers("data_offsets").filter(|offsets| offsets.len() == 2).ok_or("it has no data_offsets")?;
    let at = |offset: u64| start.checked_add(offset).filter(|at| *at <= length).map(|at| at as usize);
    let range = at(offsets[0]).zip(at(offsets[1])).map(|(begin, end)| begin..end);
    let Some(range) = range.filter(|range| range.end.checked_sub(range.start) == Some(bytes)) else {
        return Err(format!(
            "the file is truncated or wrong: bytes {} to {} are not its {bytes}",
            offsets[0], offsets[1]
        ));
    };
    Ok(Stored { file, encoding, shape: [rows, k], bytes: range })
}

impl TensorFile for Folder {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn names(&self) -> Vec<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }

    fn shape(&self, name: &str) -> Option<(Encoding, [usize; 2])> {
        self.tensors.get(name).map(|stored| (stored.encoding, stored.shape))
    }

    fn files(&self) -> &[Arc<HostBytes>] {
        &self.files
    }

    fn location(&self, name: &str) -> Option<(usize, Range<usize>)> {
        self.tensors.get(name).map(|stored| (stored.file, stored.bytes.clone()))
    }
}

/// Reads the text of a file, within the memory limit of the JSON that it becomes.
pub(crate) fn text(path: &Path) -> Result<String> {
    let budget = ReadBudget::for_file(path)?;
    let bytes = budget.read_file(path)?;
    budget.take_values(bytes.len(), JSON_BYTES_PER_BYTE, path)?;
    String::from_utf8(bytes).map_err(|_| Error::corrupt(format!("{}: it is not UTF-8", path.display())))
}

/// Returns the error of a folder without `config.json`.
fn without_model(path: &Path) -> Error {
    match gguf_note(path) {
        Some(note) => Error::mistake(format!("{} has no {CONFIG}", path.display())).note(note),
        None => Error::mistake(format!(
            "{} holds no model: neither a .gguf file nor {CONFIG} with .safetensors files",
            path.display()
        )),
    }
}

/// Returns a note that suggests the GGUF files of a folder; `None` if it has none.
fn gguf_note(path: &Path) -> Option<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let is_gguf = |path: &PathBuf| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_gguf).collect();
    files.sort();
    let named: Vec<String> = files.iter().take(NAMED).map(|file| file.display().to_string()).collect();
    match (files.len(), named.join(", ")) {
        (0, _) => None,
        (1, file) => Some(format!("pass its GGUF file {file}")),
        (count, files) if count > NAMED => Some(format!("pass one of its {count} GGUF files, such as {files}")),
        (_, files) => Some(format!("pass one of its GGUF files: {files}")),
    }
}

/// Reads the object of a JSON file.
pub(crate) fn json_object(path: &Path) -> Result<Map<String, Value>> {
    serde_json::from_str(&text(path)?)
        .map_err(|error| Error::corrupt(format!("{}: it is not a JSON object: {error}", path.display())))
}
