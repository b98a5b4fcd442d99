//! Files that an output option may not name: a command never writes over what it reads, what a run needs, or a file of another kind.

use std::path::{Path, PathBuf};

use panoply::{Error, Result};

/// Endings of the files that `panoply export` writes.
const EXPORTED: [&str; 2] = [".onnx", ".onnx.data"];

/// Whether two paths lead to the same file, whatever they are called.
pub fn same_file(one: &Path, other: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let id = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino()));
        matches!((id(one), id(other)), (Ok(one), Ok(other)) if one == other)
    }
    #[cfg(not(unix))]
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Whether a path leads to a pipe or a device, into which an export goes as it is.
pub fn is_stream(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| !file.is_file() && !file.is_dir())
}

/// An error if an export to `out` would write over the model, another file of a run, the data at `data`, or any file that is not an export.
pub fn check_export(out: &Path, model: &Path, data: &Path) -> Result<()> {
    let refused =
        |what: String, note: &str| Err(Error::mistake(format!("--output {} is {what}", out.display())).note(note));
    let another = "name another file, such as model.onnx";
    if is_stream(out) {
        return Ok(());
    }
    if out == model || same_file(out, model) {
        return refused("the model itself".to_string(), another);
    }
    if same_file(out, data) {
        return refused("what the model was trained on".to_string(), another);
    }
    let target = target(out);
    let exported = target.as_deref().and_then(Path::file_name).is_some_and(is_export);
    for folder in
        [target.as_deref().and_then(Path::parent), model.canonicalize().ok().as_deref().and_then(Path::parent)]
    {
        let Some(folder) = folder.filter(|folder| folder.join("manifest.json").exists()) else { continue };
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if !is_export(&entry.file_name()) && same_file(out, &entry.path()) {
                return refused(format!("{}, a file of a run", entry.path().display()), another);
            }
        }
        if !exported && target.as_deref().and_then(Path::parent) == Some(folder) {
            return refused("in the folder of a run".to_string(), "an export there is called NAME.onnx");
        }
    }
    if !exported && std::fs::metadata(out).is_ok_and(|file| file.is_file() && file.len() > 0) {
        return refused(
            "there already, and it is not called NAME.onnx".to_string(),
            "remove it first, or name another file",
        );
    }
    Ok(())
}

fn is_export(name: &std::ffi::OsStr) -> bool {
    let name = name.to_string_lossy().to_lowercase();
    EXPORTED.iter().any(|ending| name.ends_with(ending))
}

/// The file that a path leads to, in a folder without links; it may not be there yet.
fn target(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    path.canonicalize().ok().or_else(|| Some(folder.canonicalize().ok()?.join(path.file_name()?)))
}
