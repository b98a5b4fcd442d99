//! Constants in other files of the model's folder (ONNX external data).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use super::Memory;
use super::message::Tensor;

/// Reads the bytes of a constant from the file that it names.
pub fn bytes(tensor: &Tensor<'_>, memory: &Memory<'_>) -> Result<Vec<u8>, String> {
    let entry = |key: &str| tensor.location.iter().find(|(other, _)| other == key).map(|(_, value)| &value[..]);
    let number = |key: &str| {
        let parse = |text: &str| text.parse::<u64>().map_err(|_| format!("has the invalid {key} `{text}`"));
        entry(key).map(parse).transpose()
    };
    if !memory.is_file {
        return Err("is in another file, which needs a model that is read from a file".to_string());
    }
    let location = entry("location").ok_or("is in another file that is not named")?;
    let path = within_folder(memory.path, location)?;
    let failed = |error: std::io::Error| format!("cannot be read from {}: {error}", path.display());
    let mut file = File::open(&path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let offset = number("offset")?.unwrap_or(0);
    let length = number("length")?.unwrap_or(size.saturating_sub(offset));
    if offset.checked_add(length).is_none_or(|end| end > size) {
        return Err(format!("needs bytes {offset} to {offset} + {length} of {}, which has {size}", path.display()));
    }
    let length = usize::try_from(length).map_err(|_| "is too large".to_string())?;
    memory.take(length)?;
    let mut bytes = vec![0; length];
    file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(&mut bytes)).map_err(failed)?;
    Ok(bytes)
}

/// Returns the size of the files that have constants of these graphs.
pub fn file_bytes(tensors: &[&Tensor<'_>], memory: &Memory<'_>) -> u64 {
    let location =
        |tensor: &&Tensor<'_>| tensor.location.iter().find(|(key, _)| key == "location").map(|(_, name)| name.clone());
    let names: BTreeSet<String> =
        tensors.iter().filter(|tensor| tensor.external && memory.is_file).filter_map(location).collect();
    let size = |name: &String| std::fs::metadata(within_folder(memory.path, name).ok()?).ok();
    names.iter().filter_map(size).fold(0, |sum, file| sum.saturating_add(file.len()))
}

/// Returns the path of a file in the model's folder or below; links that leave the folder are refused.
fn within_folder(model: &Path, location: &str) -> Result<PathBuf, String> {
    let outside = || format!("is in `{location}`, which is not a file in the folder of the model");
    let relative = Path::new(location);
    if relative.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(outside());
    }
    let folder = model.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let missing = |error: std::io::Error| format!("is in `{location}`, which cannot be read: {error}");
    let folder = folder.canonicalize().map_err(missing)?;
    let path = folder.join(relative).canonicalize().map_err(missing)?;
    if path.starts_with(&folder) && path.is_file() { Ok(path) } else { Err(outside()) }
}
