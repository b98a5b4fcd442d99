//! NumPy's `.npz` files: several arrays by name, as a ZIP archive of `.npy` files.
//!
//! As in NumPy, the name of an array is that of its member without the extension `.npy`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Write};
use std::path::Path;

use panoply_tensor::{Error, Result, Tensor};
use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::npy::{self, Array, Content};
use super::{ReadBudget, read};

/// An open archive.
pub(super) struct Archive<'a> {
    path: &'a Path,
    budget: &'a ReadBudget,
    zip: ZipArchive<Cursor<Vec<u8>>>,
    /// Names of the arrays with their members' positions, in the order of the archive.
    names: Vec<(String, usize)>,
}

impl<'a> Archive<'a> {
    /// Opens an archive; its arrays are read separately.
    pub(super) fn open(path: &'a Path, budget: &'a ReadBudget) -> Result<Archive<'a>> {
        let failed = |error: ZipError| Error::corrupt(format!("{}: {error}", path.display())).with_source(error);
        let mut zip = ZipArchive::new(Cursor::new(read(path, budget)?)).map_err(failed)?;
        // Overlapping entries decompress to many times the file's size, and no regular writer creates them.
        if zip.has_overlapping_files().map_err(failed)? {
            let message = format!("{}: its entries overlap", path.display());
            return Err(Error::corrupt(message).note("write it again with numpy.savez"));
        }
        let (mut names, mut known) = (Vec::new(), BTreeSet::new());
        for at in 0..zip.len() {
            let member = zip.name_for_index(at).transpose().map_err(failed)?.unwrap_or_default().into_owned();
            if member.ends_with('/') {
                continue;
            }
            if member.ends_with("data.pkl") {
                let message = format!("{}: it is a torch.save file, not a NumPy file", path.display());
                return Err(Error::corrupt(message).note("save arrays in Python with `numpy.savez`"));
            }
            let name = member.strip_suffix(".npy").unwrap_or(&member).to_string();
            if !known.insert(name.clone()) {
                let message = format!("{}: two of its members are named {name}", path.display());
                return Err(Error::corrupt(message).note("the names of arrays must be unique"));
            }
            names.push((name, at));
        }
        Ok(Archive { path, budget, zip, names })
    }

    /// Returns the names of the arrays, in the order of the archive.
    pub(super) fn names(&self) -> Vec<String> {
        self.names.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Reads the array of numbers with this name, compressed or not.
    pub(super) fn array(&mut self, name: &str) -> Result<Array> {
        let wrong = |what: String| Error::corrupt(format!("{}: {name}: {what}", self.path.display()));
        self.content(name)?.numbers().map_err(wrong)
    }

    /// Reads the array with this name, compressed or not.
    pub(super) fn content(&mut self, name: &str) -> Result<Content> {
        let path = self.path;
        let Some((_, at)) = self.names.iter().find(|(known, _)| known == name) else {
            let names = self.names().join(", ");
            let message = format!("{}: there is no array {name}; the arrays are {names}", path.display());
            return Err(Error::corrupt(message));
        };
        let wrong = |what: String| Error::corrupt(format!("{}: {name}: {what}", path.display()));
        // By position: a name that is not UTF-8 can only be found by its bytes.
        let entry = self.zip.by_index(*at);
        let entry = entry.map_err(|error| wrong(error.to_string()).with_source(error))?;
        // The size in the directory is reserved before decompression, the actual size while it grows.
        self.budget.take(entry.size(), path)?;
        self.budget.give_back(entry.size());
        let failed = |error: std::io::Error| wrong(error.to_string()).with_source(error);
        let bytes = self.budget.read_to_end(entry, path, failed)?;
        // The elements are copied from these bytes.
        self.budget.take(bytes.len() as u64, path)?;
        let array = Content::parse(&bytes).map_err(wrong);
        self.budget.give_back(bytes.len() as u64);
        array
    }
}

/// Reads all arrays of a file by `numpy.savez` or `numpy.savez_compressed` onto the current device.
///
/// # Errors
/// If the file cannot be read, or an array is not supported.
pub fn load(path: &Path) -> Result<BTreeMap<String, Tensor>> {
    let budget = ReadBudget::for_file(path)?;
    let mut archive = Archive::open(path, &budget)?;
    archive.names().into_iter().map(|name| Ok((name.clone(), archive.array(&name)?.to_tensor()?))).collect()
}

/// Writes arrays by name, as `numpy.savez` does. The file is written atomically.
///
/// # Errors
/// If two names are equal, an element type is not supported, or the file cannot be written.
pub fn save(arrays: &[(String, Tensor)], path: &Path) -> Result<()> {
    let failed = |error: ZipError| {
        Error::mistake(format!("{}: {error}", path.display())).note("the names of arrays must be unique")
    };
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
    for (name, tensor) in arrays {
        zip.start_file(format!("{name}.npy"), stored).map_err(failed)?;
        zip.write_all(&npy::to_bytes(tensor)?).map_err(|error| failed(error.into()))?;
    }
    crate::checkpoint::write_atomic(path, zip.finish().map_err(failed)?.get_ref())
}
