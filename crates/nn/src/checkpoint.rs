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
    let mut parts: Vec<(String, Vec<usize>, Dtype, Vec<u8>)> = Vec::new();
    for (name, param) in model.named_params() {
        let tensor = param.tensor();
        let bytes = tensor.to_bytes()?;
        parts.push((name, tensor.shape()?.dims().to_vec(), file_dtype(tensor.dtype()), bytes));
    }
    let mut views = Vec::new();
    for (name, dims, dtype, bytes) in &parts {
        let view = TensorView::new(*dtype, dims.clone(), bytes);
        views.push((name.as_str(), view.map_err(|error| Error::corrupt(format!("{name}: {error}")).caused_by(error))?));
    }
    let whole = safetensors::serialize(views, Some(metadata))
        .map_err(|error| Error::corrupt(format!("{}: {error}", path.display())).caused_by(error))?;
    write_whole(path, &whole)
}

/// Writes a file beside its place and moves it there, so that whoever reads sees the old one or the new one.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |error| Error::io(format!("cannot write {}", path.display()), error);
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
    Error::corrupt(format!("{}: {error}", path.display())).caused_by(error)
}

/// Loads every parameter of the model by its dotted name. Any name missing, extra or of another shape: nothing is loaded.
pub fn load(model: &mut dyn Module, path: &Path) -> Result<()> {
    let bytes = read(path)?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| corrupt(path, error))?;
    let mut found: BTreeMap<String, Tensor> = BTreeMap::new();
    let mut complaints = Complaints::default();
    for (name, param) in model.named_params() {
        let want = param.tensor();
        match file.tensor(&name) {
            Err(_) => complaints.missing.push(name),
            Ok(view) if view.shape() != want.shape()?.dims() || view.dtype() != file_dtype(want.dtype()) => {
                complaints.mismatched.push(format!(
                    "{name} is {:?}{:?}, not {}{}",
                    view.dtype(),
                    view.shape(),
                    want.dtype(),
                    want.shape()?
                ));
                complaints.known.push(name);
            }
            Ok(view) => {
                let tensor = Tensor::from_bytes(view.data(), view.shape().to_vec(), want.dtype());
                tensor.check()?;
                found.insert(name.clone(), tensor);
                complaints.known.push(name);
            }
        }
    }
    let extra = file.names().into_iter().filter(|name| !complaints.known.iter().any(|known| known == name));
    complaints.extra = extra.map(String::from).collect();
    complaints.or_nothing(path)?;
    let mut put = |name: &str, param: &mut Param| match found.get(name) {
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
