//! Checkpoints of parameters in safetensors files: written atomically, loaded all or nothing.

mod foreign;
mod write;

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use panoply_tensor::{DType, Error, ReadBudget, Result, Tensor};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensorError, SafeTensors};

pub use write::{WholeFile, is_temporary, write_atomic};

use crate::module::{Module, Param, ParamVisitorMut};

/// Writes all parameters under their dotted names, with `metadata`. The file is written atomically.
///
/// # Errors
/// If a value cannot be read back, or the file cannot be written.
pub fn save(model: &dyn Module, path: &Path, metadata: HashMap<String, String>) -> Result<()> {
    let params = model.named_parameters().into_iter().map(|(name, param)| (name, param.tensor().clone()));
    save_tensors(path, &params.collect::<Vec<(String, Tensor)>>(), metadata)
}

/// Writes named arrays with `metadata`. The file is written atomically.
///
/// # Errors
/// If a value cannot be read back, or the file cannot be written.
pub fn save_tensors(path: &Path, arrays: &[(String, Tensor)], metadata: HashMap<String, String>) -> Result<()> {
    let mut parts: Vec<(&str, Vec<usize>, Dtype, Vec<u8>)> = Vec::new();
    for (name, tensor) in arrays {
        let bytes = tensor.to_bytes()?;
        parts.push((name, tensor.shape()?.dims().to_vec(), file_dtype(tensor.dtype()), bytes));
    }
    let mut views = Vec::new();
    for (name, dims, dtype, bytes) in &parts {
        let view = TensorView::new(*dtype, dims.clone(), bytes);
        views.push((*name, view.map_err(|error| Error::corrupt(format!("{name}: {error}")).with_source(error))?));
    }
    // Without arrays, the library writes an invalid header for an empty metadata table.
    let metadata = Some(metadata).filter(|metadata| !metadata.is_empty());
    let whole = safetensors::serialize(views, metadata)
        .map_err(|error| Error::corrupt(format!("{}: {error}", path.display())).with_source(error))?;
    write_atomic(path, &whole)
}

/// Bytes that a byte of a header becomes at most: a number of two bytes becomes eight, in a vector of up to four times its values.
const HEADER_BYTES_PER_BYTE: u64 = 16;

/// A safetensors file in host memory. It is read only once, so it can be a pipe.
#[derive(Clone, Debug)]
pub struct TensorFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// One array of a [`TensorFile`].
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Element type; `None` if it is not supported.
    pub dtype: Option<DType>,
    /// Element type as spelled in the file, such as `F8_E4M3`.
    pub file_dtype: String,
    /// Shape.
    pub dims: &'a [usize],
    /// Elements, little-endian and in row-major order.
    pub bytes: &'a [u8],
}

impl TensorFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read or is not a safetensors file. Other known formats are named.
    pub fn read(path: &Path) -> Result<TensorFile> {
        let budget = ReadBudget::for_file(path)?;
        let bytes = budget.read_file(path)?;
        let header = bytes.first_chunk().map_or(0, |size| u64::from_le_bytes(*size)).min(bytes.len() as u64);
        budget.take(header.saturating_mul(HEADER_BYTES_PER_BYTE), path)?;
        let file = TensorFile { path: path.to_path_buf(), bytes };
        file.tensors().map(|_| ()).map(|()| file)
    }

    /// Returns the path that the file was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the metadata.
    ///
    /// # Errors
    /// If the file is corrupt.
    pub fn metadata(&self) -> Result<HashMap<String, String>> {
        let header = SafeTensors::read_metadata(&self.bytes);
        let (_, header) = header.map_err(|error| corrupt(&self.path, &self.bytes, error))?;
        Ok(header.metadata().clone().unwrap_or_default())
    }

    /// Calls `see` with every array in the order of the names, including unsupported element types.
    ///
    /// # Errors
    /// If the file is corrupt, or those of `see`.
    pub fn each(&self, mut see: impl FnMut(&str, Entry<'_>) -> Result<()>) -> Result<()> {
        let tensors = self.tensors()?;
        let sorted: BTreeMap<&str, TensorView<'_>> = tensors.iter().collect();
        sorted.into_iter().try_for_each(|(name, view)| {
            let (dtype, file_dtype) = (tensor_dtype(view.dtype()), view.dtype().to_string());
            see(name, Entry { dtype, file_dtype, dims: view.shape(), bytes: view.data() })
        })
    }

    /// Returns all arrays on the current device, with the metadata.
    ///
    /// # Errors
    /// If an element type is not supported, or the file is corrupt.
    pub fn arrays(&self) -> Result<Arrays> {
        let mut arrays = BTreeMap::new();
        self.each(|name, entry| {
            let dtype = self.known_dtype(name, &entry)?;
            arrays.insert(name.to_string(), self.tensor(name, entry.bytes, entry.dims, dtype)?);
            Ok(())
        })?;
        Ok(Arrays { tensors: arrays, metadata: self.metadata()? })
    }

    /// Returns the element type of an array; fails if it is not supported.
    pub(crate) fn known_dtype(&self, name: &str, entry: &Entry<'_>) -> Result<DType> {
        entry.dtype.ok_or_else(|| {
            let message = format!("{}: {name} is {}", self.path.display(), entry.file_dtype);
            Error::corrupt(message).note("this element type is not supported")
        })
    }

    /// Creates a tensor on the current device; an error names file and array.
    pub(crate) fn tensor(&self, name: &str, bytes: &[u8], dims: &[usize], dtype: DType) -> Result<Tensor> {
        let tensor = Tensor::from_bytes(bytes, dims.to_vec(), dtype);
        let wrong = |error: Error| Error::corrupt(format!("{}: {name}: {}", self.path.display(), error.message()));
        tensor.check().map_err(wrong)?;
        Ok(tensor)
    }

    /// Loads every parameter of the model by its dotted name, all or nothing.
    ///
    /// # Errors
    /// If a parameter is missing, extra or of another shape or type; all are listed. Such an error is a mistake of the caller, who has
    /// another model; only a file that cannot be read is corrupt.
    pub fn load(&self, model: &mut dyn Module) -> Result<()> {
        assign_parameters(model, &self.arrays()?.tensors, &self.path)
    }

    fn tensors(&self) -> Result<SafeTensors<'_>> {
        SafeTensors::deserialize(&self.bytes).map_err(|error| corrupt(&self.path, &self.bytes, error))
    }
}

/// The contents of a file.
pub struct Arrays {
    /// Arrays by name.
    pub tensors: BTreeMap<String, Tensor>,
    /// Metadata.
    pub metadata: HashMap<String, String>,
}

impl Arrays {
    /// Reads a file of named arrays onto the current device.
    ///
    /// # Errors
    /// As for [`TensorFile::read`] and [`TensorFile::arrays`].
    pub fn read(path: &Path) -> Result<Arrays> {
        TensorFile::read(path)?.arrays()
    }
}

/// Reads the metadata of a file.
///
/// # Errors
/// As for [`TensorFile::read`].
pub fn metadata(path: &Path) -> Result<HashMap<String, String>> {
    TensorFile::read(path)?.metadata()
}

fn corrupt(path: &Path, bytes: &[u8], error: SafeTensorError) -> Error {
    if let Some(foreign) = foreign::foreign(bytes) {
        let message = format!("{}: it is {}, not a safetensors file", path.display(), foreign.name);
        return Error::corrupt(message).note(foreign.way).with_source(error);
    }
    let message = format!("{}: it is not a complete safetensors file ({error})", path.display());
    Error::corrupt(message).note("the file is truncated or modified; use another copy").with_source(error)
}

/// Loads every parameter of the model by its dotted name, all or nothing.
///
/// # Errors
/// As for [`TensorFile::read`] and [`TensorFile::load`].
#[doc(alias = "load_state_dict")]
pub fn load(model: &mut dyn Module, path: &Path) -> Result<()> {
    TensorFile::read(path)?.load(model)
}

/// Assigns these arrays to all parameters of the model, all or nothing; `path` is only named in errors.
///
/// # Errors
/// If a parameter is missing, extra or of another shape or type; all are listed.
pub fn assign_parameters(model: &mut dyn Module, arrays: &BTreeMap<String, Tensor>, path: &Path) -> Result<()> {
    assign(model, arrays, path, "pass a `key_map` to `nn::state_dict::load`")
}

/// [`assign_parameters`]; an error about other names ends with `remedy`.
pub(crate) fn assign(
    model: &mut dyn Module,
    arrays: &BTreeMap<String, Tensor>,
    path: &Path,
    remedy: &str,
) -> Result<()> {
    let mut complaints = Complaints::default();
    for (name, param) in model.named_parameters() {
        let want = param.tensor();
        match arrays.get(&name) {
            None => complaints.missing.push(name),
            Some(have) => {
                if have.shape()? != want.shape()? || have.dtype() != want.dtype() {
                    let (have_dtype, want_dtype) = (have.dtype(), want.dtype());
                    complaints.mismatched.push(format!(
                        "{name} is {have_dtype}{}, not {want_dtype}{}",
                        have.shape()?,
                        want.shape()?
                    ));
                }
                complaints.known.push(name);
            }
        }
    }
    let extra = arrays.keys().filter(|name| !complaints.known.contains(name));
    complaints.extra = extra.cloned().collect();
    complaints.or_nothing(path, remedy)?;
    let mut assign = |name: &str, param: &mut Param| match arrays.get(name) {
        Some(tensor) => param.set(tensor),
        None => Ok(()),
    };
    model.visit_mut(&mut ParamVisitorMut::new(&mut assign))
}

/// Differences between the arrays of a file and the parameters of a model.
#[derive(Default)]
struct Complaints {
    known: Vec<String>,
    missing: Vec<String>,
    extra: Vec<String>,
    mismatched: Vec<String>,
}

impl Complaints {
    /// Fails if there are differences; the note says which names the file holds instead.
    fn or_nothing(&self, path: &Path, remedy: &str) -> Result<()> {
        let lists = [("missing", &self.missing), ("extra", &self.extra), ("mismatched", &self.mismatched)];
        let parts: Vec<String> = lists
            .iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("{} {what} ({})", names.len(), names.join(", ")))
            .collect();
        if parts.is_empty() {
            return Ok(());
        }
        let error = Error::mistake(format!("{}: {}; nothing was loaded", path.display(), parts.join(", ")));
        if self.extra.is_empty() {
            return Err(error);
        }
        let names = match self.wrapper() {
            Some(prefix) => format!("the file's names begin with `{prefix}`"),
            None => "the file holds other names".to_string(),
        };
        Err(error.note(format!("{names}; {remedy}")))
    }

    /// Returns the prefix of all extra names that a wrapper around the model added: one of PyTorch's, or one without which a name of the
    /// file is that of a missing parameter.
    fn wrapper(&self) -> Option<&str> {
        let first = self.extra.first()?;
        let prefixes = first.match_indices('.').map(|(at, _)| &first[..=at]);
        let mut shared = prefixes.filter(|prefix| self.extra.iter().all(|name| name.starts_with(prefix)));
        let is_missing =
            |prefix: &str| self.extra.iter().any(|name| self.missing.iter().any(|m| *m == name[prefix.len()..]));
        let is_known = |prefix: &str| ["module.", "_orig_mod."].contains(&prefix);
        shared.clone().find(|prefix| is_missing(prefix)).or_else(|| shared.find(|prefix| is_known(prefix)))
    }
}

fn file_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::Bool => Dtype::BOOL,
        DType::I8 => Dtype::I8,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::U8 => Dtype::U8,
        DType::U16 => Dtype::U16,
        DType::U32 => Dtype::U32,
        DType::U64 => Dtype::U64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
    }
}

fn tensor_dtype(dtype: Dtype) -> Option<DType> {
    use DType::*;
    let known = [Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64];
    known.into_iter().find(|known| file_dtype(*known) == dtype)
}
