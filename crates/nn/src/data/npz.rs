//! NumPy's `.npz` files: several arrays by name, a ZIP archive with a `.npy` file for each.

use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write};
use std::path::Path;

use panoply_tensor::{Error, Result, Tensor};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::npy::{self, Array};
use super::{MOST_BYTES, read};

/// An open file.
pub(super) struct Archive<'a> {
    path: &'a Path,
    zip: ZipArchive<Cursor<Vec<u8>>>,
}

impl Archive<'_> {
    /// Opens a file; its arrays are read one by one.
    pub(super) fn open(path: &Path) -> Result<Archive<'_>> {
        let zip = ZipArchive::new(Cursor::new(read(path)?));
        let zip = zip.map_err(|error| Error::corrupt(format!("{}: {error}", path.display())).caused_by(error))?;
        Ok(Archive { path, zip })
    }

    /// Names of the arrays, in the order in which they were written.
    pub(super) fn names(&self) -> Vec<String> {
        let entries = self.zip.file_names_raw().map(|name| String::from_utf8_lossy(name).into_owned());
        entries.filter_map(|name| name.strip_suffix(".npy").map(str::to_string)).collect()
    }

    /// The array of this name, packed or not.
    pub(super) fn array(&mut self, name: &str) -> Result<Array> {
        let (path, names) = (self.path, self.names());
        if !names.iter().any(|known| known == name) {
            let message = format!("{}: there is no array {name}; there are {}", path.display(), names.join(", "));
            return Err(Error::corrupt(message));
        }
        let wrong = |what: String| Error::corrupt(format!("{}: {name}: {what}", path.display()));
        let mut bytes = Vec::new();
        let entry = self.zip.by_name(&format!("{name}.npy"));
        let entry = entry.map_err(|error| wrong(error.to_string()).caused_by(error))?;
        let unpacked = entry.take(MOST_BYTES + 1).read_to_end(&mut bytes);
        unpacked.map_err(|error| wrong(error.to_string()).caused_by(error))?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(wrong(format!("it unpacks to more than {} GiB", MOST_BYTES >> 30)));
        }
        Array::parse(&bytes).map_err(wrong)
    }
}

/// Reads all arrays of a file, which `numpy.savez` or `numpy.savez_compressed` wrote, onto the current device.
pub fn load(path: &Path) -> Result<BTreeMap<String, Tensor>> {
    let mut archive = Archive::open(path)?;
    archive.names().into_iter().map(|name| Ok((name.clone(), archive.array(&name)?.tensor()?))).collect()
}

/// Writes arrays under their names as `numpy.savez` does; the file appears whole or not at all.
pub fn save(arrays: &[(String, Tensor)], path: &Path) -> Result<()> {
    let failed = |error: zip::result::ZipError| {
        Error::mistake(format!("{}: {error}", path.display())).note("each array needs a name of its own")
    };
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
    for (name, tensor) in arrays {
        zip.start_file(format!("{name}.npy"), stored).map_err(failed)?;
        zip.write_all(&npy::to_bytes(tensor)?).map_err(|error| failed(error.into()))?;
    }
    crate::checkpoint::write_whole(path, zip.finish().map_err(failed)?.get_ref())
}
