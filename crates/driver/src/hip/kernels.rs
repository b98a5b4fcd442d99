//! Where AMD's libraries of matrix products have their kernels, and for which GPUs: over a GPU that there are none for, such a library ends the process
//! or complains on every call, so they are looked for before it is started, where it looks for them itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use panoply_device::{Error, Result};

use crate::lock::locked;

/// Folders within folders in which kernels are looked for.
const DEPTH: usize = 3;

/// The kernels of a library.
pub struct Kernels {
    /// The folder beside the library, if its place is known.
    folder: Option<PathBuf>,
    /// How the names of files begin that hold products.
    files: &'static str,
    /// Architectures that were looked for: a folder has thousands of files.
    known: Mutex<BTreeMap<String, bool>>,
}

impl Kernels {
    /// Those of the library that has a function at an address, in a folder of this name beside it.
    pub fn beside(function: usize, folder: &str, files: &'static str) -> Kernels {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Kernels { folder: home(&maps, function).map(|home| home.join(folder)), files, known: Mutex::default() }
    }

    /// An error that names the library unless there are some for an architecture.
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

/// The folder of the file that was mapped at an address, by Linux' list of what is mapped.
fn home(maps: &str, address: usize) -> Option<PathBuf> {
    let line = maps.lines().find(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let bound = |text| usize::from_str_radix(text, 16).ok();
        range.and_then(|(from, to)| Some((bound(from)?..bound(to)?).contains(&address))).unwrap_or(false)
    })?;
    Path::new(&line[line.find('/')?..]).parent().map(Path::to_path_buf)
}

/// Whether some file in a folder or those in it, whose name begins so, is named for an architecture.
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

/// Whether a name holds an architecture's whole name.
fn is_for(name: &str, architecture: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|next: char| next.is_ascii_alphanumeric());
    !architecture.is_empty() && name.match_indices(architecture).any(|(at, found)| !goes_on(&name[at + found.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_for_an_architecture_by_its_whole_name() {
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
    fn the_folder_of_a_library_is_where_it_was_mapped_from() {
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
