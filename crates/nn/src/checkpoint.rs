//! Parameters in safetensors files: written atomically, loaded all or nothing.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::path::Path;

use panoply_tensor::{DType, Error, Result, Tensor};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

use crate::module::{Module, Param, VisitorMut};

/// Writes every parameter under its dotted name, with `metadata` beside. The file appears whole or not at all.
pub fn save(model: &dyn Module, path: &Path, metadata: HashMap<String, String>) -> Result<()> {
    let params = model.named_params().into_iter().map(|(name, param)| (name, param.tensor().clone()));
    write_arrays(path, &params.collect::<Vec<(String, Tensor)>>(), metadata)
}

/// Writes named arrays, with `metadata` beside. The file appears whole or not at all.
pub fn write_arrays(path: &Path, arrays: &[(String, Tensor)], metadata: HashMap<String, String>) -> Result<()> {
    let mut parts: Vec<(&str, Vec<usize>, Dtype, Vec<u8>)> = Vec::new();
    for (name, tensor) in arrays {
        let bytes = tensor.to_bytes()?;
        parts.push((name, tensor.shape()?.dims().to_vec(), file_dtype(tensor.dtype()), bytes));
    }
    let mut views = Vec::new();
    for (name, dims, dtype, bytes) in &parts {
        let view = TensorView::new(*dtype, dims.clone(), bytes);
        views.push((*name, view.map_err(|error| Error::corrupt(format!("{name}: {error}")).caused_by(error))?));
    }
    let whole = safetensors::serialize(views, Some(metadata))
        .map_err(|error| Error::corrupt(format!("{}: {error}", path.display())).caused_by(error))?;
    write_whole(path, &whole)
}

/// What a file holds.
pub struct Arrays {
    /// By name, in the order of the names.
    pub arrays: BTreeMap<String, Tensor>,
    /// What stands beside them.
    pub metadata: HashMap<String, String>,
}

impl Arrays {
    /// Reads a file of named arrays onto the current device.
    pub fn read(path: &Path) -> Result<Arrays> {
        let bytes = read(path)?;
        let file = SafeTensors::deserialize(&bytes).map_err(|error| corrupt(path, error))?;
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| corrupt(path, error))?;
        let mut arrays = BTreeMap::new();
        for (name, view) in file.iter() {
            let Some(dtype) = tensor_dtype(view.dtype()) else {
                return Err(Error::corrupt(format!("{}: {name} is {:?}", path.display(), view.dtype()))
                    .note("there is no such element type here"));
            };
            let tensor = Tensor::from_bytes(view.data(), view.shape().to_vec(), dtype);
            let wrong = |error: Error| Error::corrupt(format!("{}: {name}: {}", path.display(), error.message()));
            tensor.check().map_err(wrong)?;
            arrays.insert(name.to_string(), tensor);
        }
        Ok(Arrays { arrays, metadata: header.metadata().clone().unwrap_or_default() })
    }
}

/// Writes a file beside its place and moves it there, so that whoever reads sees the old one or the new one.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |error| Error::io(format!("cannot write {}", path.display()), error).note("the file is as it was");
    let beside = path.with_extension(format!("part{}", std::process::id()));
    let written = std::fs::File::create(&beside).and_then(|mut file| {
        std::io::Write::write_all(&mut file, bytes)?;
        file.sync_all()
    });
    let moved = written.and_then(|()| std::fs::rename(&beside, path));
    if moved.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    moved.map_err(failed)
}

/// What a file says beside its parameters.
pub fn metadata(path: &Path) -> Result<HashMap<String, String>> {
    let bytes = read(path)?;
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| corrupt(path, error))?;
    Ok(header.metadata().clone().unwrap_or_default())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::io(format!("cannot read {}", path.display()), error))
}

fn corrupt(path: &Path, error: safetensors::SafeTensorError) -> Error {
    let message = format!("{}: it is no safetensors file, or not all of one ({error})", path.display());
    Error::corrupt(message).note("it was cut short or changed; take another copy of it").caused_by(error)
}

/// Loads every parameter of the model by its dotted name. Any name missing, extra or of another shape: nothing is loaded.
pub fn load(model: &mut dyn Module, path: &Path) -> Result<()> {
    put(model, &Arrays::read(path)?.arrays, path)
}

/// Makes every parameter of the model what these arrays say, all or nothing; `path` is where they were read.
pub fn put(model: &mut dyn Module, arrays: &BTreeMap<String, Tensor>, path: &Path) -> Result<()> {
    let mut complaints = Complaints::default();
    for (name, param) in model.named_params() {
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
    complaints.or_nothing(path)?;
    let mut put = |name: &str, param: &mut Param| match arrays.get(name) {
        Some(tensor) => param.set(tensor),
        None => Ok(()),
    };
    model.visit_mut(&mut VisitorMut::new(&mut put))
}

/// What does not fit between a file and a model.
#[derive(Default)]
struct Complaints {
    known: Vec<String>,
    missing: Vec<String>,
    extra: Vec<String>,
    mismatched: Vec<String>,
}

impl Complaints {
    fn or_nothing(&self, path: &Path) -> Result<()> {
        let lists = [("missing", &self.missing), ("extra", &self.extra), ("mismatched", &self.mismatched)];
        let parts: Vec<String> = lists
            .iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("{} {what} ({})", names.len(), names.join(", ")))
            .collect();
        if parts.is_empty() {
            return Ok(());
        }
        Err(Error::corrupt(format!("{}: {}; nothing was loaded", path.display(), parts.join(", "))))
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
