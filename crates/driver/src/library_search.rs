//! Searches the folders in which the system's loader looks for libraries, and explains why the loader skips a file: for a file of another
//! architecture it only reports that there is none. Nothing is loaded here.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Folders in which the loader looks, besides those of `LD_LIBRARY_PATH`.
const FOLDERS: [&str; 9] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib/x86_64-linux-gnu",
    "usr/lib64",
    "usr/local/lib",
    "usr/lib",
    "usr/lib/wsl/lib",
    "opt/rocm/lib",
    "usr/local/nvidia/lib64",
];

/// A library file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Library {
    /// Canonical path, with links resolved.
    pub path: PathBuf,
    /// The reason why the file cannot be loaded, if there is one.
    pub flaw: Option<Flaw>,
}

/// The reason why a file cannot be loaded as a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flaw {
    /// The file cannot be read or is too short.
    Unreadable,
    /// The file is not an ELF file.
    NoLibrary,
    /// The file is for another processor architecture.
    Architecture,
    /// The file is a stub that only declares the functions of the real library.
    Stub,
}

impl Flaw {
    /// Returns the remedy.
    fn remedy(self) -> String {
        match self {
            Flaw::Unreadable => "check its permissions".to_string(),
            Flaw::NoLibrary => "reinstall its package".to_string(),
            Flaw::Architecture => format!("install the one for {}", std::env::consts::ARCH),
            Flaw::Stub => "install the driver itself".to_string(),
        }
    }
}

impl fmt::Display for Flaw {
    /// Formats the predicate for a message about the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flaw::Unreadable => "cannot be read",
            Flaw::NoLibrary => "is not a library",
            Flaw::Architecture => "is for another architecture",
            Flaw::Stub => "is a stub for linking, not a driver",
        })
    }
}

/// Returns the search folders below a root folder, in search order. The folders of `library_path` (the value of `LD_LIBRARY_PATH`) come
/// first.
pub fn folders(root: &Path, library_path: &OsStr) -> Vec<PathBuf> {
    let asked = std::env::split_paths(library_path).filter(|folder| !folder.as_os_str().is_empty());
    asked.chain(FOLDERS.map(|folder| root.join(folder))).collect()
}

/// Finds a library by name in these folders: the first file that can be loaded, otherwise the first one.
pub fn find(folders: &[PathBuf], name: &str) -> Option<Library> {
    let files = folders.iter().map(|folder| folder.join(name)).filter(|path| path.exists());
    let found = files.map(|path| std::fs::canonicalize(&path).unwrap_or(path));
    let found: Vec<Library> = found.map(|path| Library { flaw: flaw(&path), path }).collect();
    found.iter().find(|library| library.flaw.is_none()).or(found.first()).cloned()
}

/// Returns a message for each of the named libraries that exists but cannot be loaded.
pub fn passed_over(names: &[&str]) -> Vec<String> {
    if cfg!(not(target_os = "linux")) {
        return Vec::new();
    }
    // This is not a setting of Panoply: the loader itself searches there.
    let folders = folders(Path::new("/"), &std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default());
    // Several names can lead to the same file.
    let here: BTreeSet<Library> = names.iter().filter_map(|name| find(&folders, name)).collect();
    let description = |Library { path, flaw }| {
        let flaw = flaw?;
        Some(format!("{} {}, so it is skipped; {}", path.display(), flaw, flaw.remedy()))
    };
    here.into_iter().filter_map(description).collect()
}

/// Returns the reason why a file cannot be loaded as a library, if there is one.
fn flaw(path: &Path) -> Option<Flaw> {
    let mut head = [0; 20];
    let Ok(()) = File::open(path).and_then(|mut file| file.read_exact(&mut head)) else {
        return Some(Flaw::Unreadable);
    };
    if &head[..4] != b"\x7fELF" {
        return Some(Flaw::NoLibrary);
    }
    let machine = u16::from_le_bytes([head[18], head[19]]);
    let ours = match std::env::consts::ARCH {
        "x86_64" => Some(62),
        "aarch64" => Some(183),
        _ => None,
    };
    if ours.is_some_and(|ours| ours != machine) || head[4] != 2 {
        return Some(Flaw::Architecture);
    }
    path.components().any(|part| part.as_os_str() == "stubs").then_some(Flaw::Stub)
}
