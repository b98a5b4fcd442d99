//! Search for the kernel files of AMD's libraries for matrix products. For a GPU without kernels such a library aborts the process or
//! reports an error on every call. Therefore the files are searched for before the library is initialized, in the folder in which the
//! library itself searches.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use panoply_device::{Error, Result};

use crate::lock::locked;

/// Depth of nested folders that are searched.
const DEPTH: usize = 3;

/// The kernel files of a library.
pub struct Kernels {
    /// The folder beside the library, if the library's location is known.
    folder: Option<PathBuf>,
    /// The prefix of the names of files that hold matrix products.
    files: &'static str,
    /// Results of earlier searches by architecture: a folder has thousands of files.
    known: Mutex<BTreeMap<String, bool>>,
}

impl Kernels {
    /// Returns the kernels in the folder of this name beside the library that contains a function's address.
    pub fn beside(function: usize, folder: &str, files: &'static str) -> Kernels {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Kernels { folder: home(&maps, function).map(|home| home.join(folder)), files, known: Mutex::default() }
    }

    /// Returns an error that names the library unless there are kernels for an architecture.
    pub fn serve(&self, architecture: &str, title: &str) -> Result<()> {
        let look = || self.folder.as_ref().is_some_and(|folder| names(folder, self.files, architecture, DEPTH));
        if *locked(&self.known).entry(architecture.to_string()).or_insert_with(look) {
            return Ok(());
        }
        let place = self.folder.as_ref().map_or(String::new(), |folder| format!(" in {}", folder.display()));
        let library = title.split(' ').next().unwrap_or_default();
        Err(Error::unavailable(format!(
            "rocm: {title} has no kernels for {architecture}{place}; install {library}'s for this GPU"
        )))
    }
}

/// Returns the folder of the file that is mapped at an address, from the text of `/proc/self/maps`.
fn home(maps: &str, address: usize) -> Option<PathBuf> {
    let line = maps.lines().find(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let bound = |text| usize::from_str_radix(text, 16).ok();
        range.and_then(|(from, to)| Some((bound(from)?..bound(to)?).contains(&address))).unwrap_or(false)
    })?;
    Path::new(&line[line.find('/')?..]).parent().map(Path::to_path_buf)
}

/// Returns true if a folder, searched recursively, has a file with this prefix that is named for an architecture.
fn names(folder: &Path, files: &str, architecture: &str, depth: usize) -> bool {
    std::fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let name = entry.file_name();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            return depth > 0 && names(&entry.path(), files, architecture, depth - 1);
        }
        let name = name.to_string_lossy();
        name.starts_with(files) && is_for(&name, architecture)
    })
}

/// Returns true if a file name contains the full name of an architecture.
fn is_for(name: &str, architecture: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|next: char| next.is_ascii_alphanumeric());
    !architecture.is_empty() && name.match_indices(architecture).any(|(at, found)| !goes_on(&name[at + found.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_for_matches_the_full_architecture_name() {
        for (name, architecture, expected) in [
            ("TensileLibrary_lazy_gfx1030.dat", "gfx1030", true),
            ("Kernels.so-000-gfx90a-xnack-.hsaco", "gfx90a", true),
            ("TensileLibrary_lazy_gfx1030.dat", "gfx103", false),
            ("TensileLibrary_gfx90c_gfx90a.co", "gfx90a", true),
            ("TensileLibrary_Type_SS_fallback.dat", "gfx1030", false),
            ("TensileLibrary_lazy_gfx1030.dat", "", false),
        ] {
            assert_eq!(is_for(name, architecture), expected, "{name} for {architecture}");
        }
    }

    #[test]
    fn home_finds_the_folder_of_the_mapped_file() {
        let maps = "\
55d0c8e00000-55d0c8e21000 rw-p 00000000 00:00 0                          [heap]
7f2a10000000-7f2a10021000 r-xp 00001000 08:01 42                         /opt/rocm 6/lib/librocblas.so.4.1.60000
7f2a20000000-7f2a20021000 rw-p 00000000 00:00 0
";
        assert_eq!(home(maps, 0x7f2a_1000_0010), Some(PathBuf::from("/opt/rocm 6/lib")));
        assert_eq!(home(maps, 0x7f2a_1002_1000), None);
        assert_eq!(home(maps, 0x7f2a_2000_0000), None);
        assert_eq!(home("", 1), None);
    }
}
