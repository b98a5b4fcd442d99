//! Where the system's loader looks for libraries, and why it passes over what it finds there: of a file for another architecture it says only
//! that there is none. Nothing is loaded here.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Folders in which the loader looks, beside those of `LD_LIBRARY_PATH`.
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

/// A library's file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Library {
    /// Where it really is, links followed.
    pub path: PathBuf,
    /// What is wrong with the file, if anything is.
    pub flaw: Option<Flaw>,
}

/// What keeps a file from being loaded as a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flaw {
    /// Nobody here may read it, or it is too short.
    Unreadable,
    /// It is another kind of file.
    NoLibrary,
    /// Another processor's.
    Architecture,
    /// It only names the functions of the real one.
    Stub,
}

impl Flaw {
    /// What mends it.
    fn remedy(self) -> String {
        match self {
            Flaw::Unreadable => "look at who may read it".to_string(),
            Flaw::NoLibrary => "install the package it belongs to again".to_string(),
            Flaw::Architecture => format!("install the one for {}", std::env::consts::ARCH),
            Flaw::Stub => "install the driver itself".to_string(),
        }
    }
}

impl fmt::Display for Flaw {
    /// What is said of the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flaw::Unreadable => "cannot be read",
            Flaw::NoLibrary => "is no library",
            Flaw::Architecture => "is for another architecture",
            Flaw::Stub => "is a stub for linking, not a driver",
        })
    }
}

/// The folders of a machine whose root folder this is, in the order in which they are looked through. What was asked for in
/// `LD_LIBRARY_PATH` comes first.
pub fn folders(root: &Path, library_path: &OsStr) -> Vec<PathBuf> {
    let asked = std::env::split_paths(library_path).filter(|folder| !folder.as_os_str().is_empty());
    asked.chain(FOLDERS.map(|folder| root.join(folder))).collect()
}

/// The library of a name in these folders: the first that can be loaded, else the first.
pub fn find(folders: &[PathBuf], name: &str) -> Option<Library> {
    let files = folders.iter().map(|folder| folder.join(name)).filter(|path| path.exists());
    let found = files.map(|path| std::fs::canonicalize(&path).unwrap_or(path));
    let found: Vec<Library> = found.map(|path| Library { flaw: flaw(&path), path }).collect();
    found.iter().find(|library| library.flaw.is_none()).or(found.first()).cloned()
}

/// Of libraries that did not load, those whose files are here all the same, and what is wrong with them.
pub fn passed_over(names: &[&str]) -> Vec<String> {
    if cfg!(not(target_os = "linux")) {
        return Vec::new();
    }
    // Not a setting of Panoply: it is where the loader itself looks.
    let folders = folders(Path::new("/"), &std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default());
    // Another name may lead to the same file.
    let here: BTreeSet<Library> = names.iter().filter_map(|name| find(&folders, name)).collect();
    let said = |Library { path, flaw }| {
        let flaw = flaw?;
        Some(format!("{} {}, so it is passed over; {}", path.display(), flaw, flaw.remedy()))
    };
    here.into_iter().filter_map(said).collect()
}

/// What keeps a file from being loaded as a library.
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
