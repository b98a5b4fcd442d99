//! Checks of output files: a command never overwrites its input, files of a run, or a file of another format.

use std::path::{Path, PathBuf};

use panoply::{Error, Result};

/// Extensions of the files that `panoply export` writes.
const EXPORTED: [&str; 2] = [".onnx", ".onnx.data"];

/// Returns true if two paths refer to the same file.
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

/// Returns true if a path refers to a pipe or a device, to which an export is written directly.
pub fn is_stream(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| !file.is_file() && !file.is_dir())
}

/// Returns an error if an export to `out` would overwrite the model, another file of a run, the data at `data`, or any file that is not
/// an export.
pub fn check_export(out: &Path, model: &Path, data: &Path) -> Result<()> {
    let refused =
        |what: String, note: &str| Err(Error::mistake(format!("--output {} is {what}", out.display())).note(note));
    let another = "choose another file, such as model.onnx";
    if is_stream(out) {
        return Ok(());
    }
    if out == model || same_file(out, model) {
        return refused("the model itself".to_string(), another);
    }
    if same_file(out, data) {
        return refused("the training data of the model".to_string(), another);
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
            return refused("in the folder of a run".to_string(), "exports in this folder must be named NAME.onnx");
        }
    }
    if !exported && std::fs::metadata(out).is_ok_and(|file| file.is_file() && file.len() > 0) {
        return refused(
            "an existing file that is not named NAME.onnx".to_string(),
            "remove it first, or choose another file",
        );
    }
    Ok(())
}

/// Files of a run with the extensions of predictions.
const RUN_TABLES: [&str; 4] = ["manifest.json", "history.csv", "predictions.csv", "timeline.json"];

/// Returns an error if predictions written to `out` would overwrite the model, one of the `data` or another file of a run, or if `out` is a
/// pipe or a device.
pub fn check_predictions(out: &Path, model: &Path, data: &[&Path]) -> Result<()> {
    let refused = |what: &str| {
        let message = format!("--output {} is {what}", out.display());
        Err(Error::mistake(message).note("choose another file, such as predictions.csv"))
    };
    if is_stream(out) {
        return refused("a pipe or a device");
    }
    if out == model || same_file(out, model) {
        return refused("the model itself");
    }
    if data.iter().any(|data| out == *data || same_file(out, data)) {
        return refused("the data itself");
    }
    let folder = target(out).and_then(|target| target.parent().map(Path::to_path_buf));
    let is_of_run = out.file_name().is_some_and(|name| RUN_TABLES.iter().any(|table| name.eq_ignore_ascii_case(table)));
    if is_of_run && folder.as_ref().is_some_and(|folder| folder.join("manifest.json").exists()) {
        return refused("a file of a run");
    }
    // A folder of data, such as one of images.
    if out.exists() && data.iter().any(|data| folder.is_some() && data.is_dir() && target(data) == folder) {
        return refused("a file of the data");
    }
    Ok(())
}

fn is_export(name: &std::ffi::OsStr) -> bool {
    let name = name.to_string_lossy().to_lowercase();
    EXPORTED.iter().any(|ending| name.ends_with(ending))
}

/// Returns the path with all symbolic links resolved; the file itself need not exist.
fn target(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    path.canonicalize().ok().or_else(|| Some(folder.canonicalize().ok()?.join(path.file_name()?)))
}
