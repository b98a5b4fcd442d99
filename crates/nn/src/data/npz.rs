//! NumPy's `.npz` files: several arrays by name, a ZIP archive with a `.npy` file for each.
//!
//! As in NumPy, an array's name is its member's without the ending `.npy`, and a member without that ending has its whole name.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Write};
use std::path::Path;

use panoply_tensor::{Error, Result, Tensor};
use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::npy::{self, Array};
use super::{ReadBudget, read};

/// An open file.
pub(super) struct Archive<'a> {
    path: &'a Path,
    budget: &'a ReadBudget,
    zip: ZipArchive<Cursor<Vec<u8>>>,
    /// Names of the arrays, with their members' positions, in the order in which they were written.
    names: Vec<(String, usize)>,
}

impl<'a> Archive<'a> {
    /// Opens a file; its arrays are read one by one.
    pub(super) fn open(path: &'a Path, budget: &'a ReadBudget) -> Result<Archive<'a>> {
        let failed = |error: ZipError| Error::corrupt(format!("{}: {error}", path.display())).with_source(error);
        let mut zip = ZipArchive::new(Cursor::new(read(path, budget)?)).map_err(failed)?;
        // Entries that share their bytes unpack to many times what the file holds, and no writer makes them.
        if zip.has_overlapping_files().map_err(failed)? {
            let message = format!("{}: several of its entries are stored in the same bytes", path.display());
            return Err(Error::corrupt(message).note("write it again with numpy.savez"));
        }
        let (mut names, mut known) = (Vec::new(), BTreeSet::new());
        for at in 0..zip.len() {
            let member = zip.name_for_index(at).transpose().map_err(failed)?.unwrap_or_default().into_owned();
            if member.ends_with('/') {
                continue;
            }
            if member.ends_with("data.pkl") {
                let message = format!("{}: it is a file of torch.save, not of NumPy", path.display());
                return Err(Error::corrupt(message).note("save arrays in Python with `numpy.savez`"));
            }
            let name = member.strip_suffix(".npy").unwrap_or(&member).to_string();
            if !known.insert(name.clone()) {
                let message = format!("{}: two of its members are the array {name}", path.display());
                return Err(Error::corrupt(message).note("each array needs a name of its own"));
            }
            names.push((name, at));
        }
        Ok(Archive { path, budget, zip, names })
    }

    /// Names of the arrays, in the order in which they were written.
    pub(super) fn names(&self) -> Vec<String> {
        self.names.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The array of this name, packed or not.
    pub(super) fn array(&mut self, name: &str) -> Result<Array> {
        let path = self.path;
        let Some((_, at)) = self.names.iter().find(|(known, _)| known == name) else {
            let names = self.names().join(", ");
            let message = format!("{}: there is no array {name}; there are {names}", path.display());
            return Err(Error::corrupt(message));
        };
        let wrong = |what: String| Error::corrupt(format!("{}: {name}: {what}", path.display()));
        // By position: a name that is not UTF-8 is found by its bytes alone.
        let entry = self.zip.by_index(*at);
        let entry = entry.map_err(|error| wrong(error.to_string()).with_source(error))?;
        // What the directory says is counted before anything is unpacked, what is unpacked as it grows.
        self.budget.take(entry.size(), path)?;
        self.budget.give_back(entry.size());
        let failed = |error: std::io::Error| wrong(error.to_string()).with_source(error);
        let bytes = self.budget.read_to_end(entry, path, failed)?;
        // The elements are copied out of it.
        self.budget.take(bytes.len() as u64, path)?;
        let array = Array::parse(&bytes).map_err(wrong);
        self.budget.give_back(bytes.len() as u64);
        array
    }
}

/// Reads all arrays of a file, which `numpy.savez` or `numpy.savez_compressed` wrote, onto the current device.
pub fn load(path: &Path) -> Result<BTreeMap<String, Tensor>> {
    let budget = ReadBudget::for_file(path)?;
    let mut archive = Archive::open(path, &budget)?;
    archive.names().into_iter().map(|name| Ok((name.clone(), archive.array(&name)?.to_tensor()?))).collect()
}

/// Writes arrays under their names as `numpy.savez` does; the file appears whole or not at all.
pub fn save(arrays: &[(String, Tensor)], path: &Path) -> Result<()> {
    let failed = |error: ZipError| {
        Error::mistake(format!("{}: {error}", path.display())).note("each array needs a name of its own")
    };
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
    for (name, tensor) in arrays {
        zip.start_file(format!("{name}.npy"), stored).map_err(failed)?;
        zip.write_all(&npy::to_bytes(tensor)?).map_err(|error| failed(error.into()))?;
    }
    crate::checkpoint::write_atomic(path, zip.finish().map_err(failed)?.get_ref())
}
