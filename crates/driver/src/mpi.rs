//! MPI, opened at run time: point-to-point and collective communication between the processes of a program.
//!
//! Implementations of MPI differ in the types and values of their constants, not in their functions. Therefore `functions` is one table
//! for all of them, generic over the type of a handle, and each binary interface ([`Interface`]) has a file of constants: `openmpi`,
//! `mpich` and `standard`. `wire` implements the communication contract on that table.

mod functions;
mod mpich;
mod openmpi;
mod standard;
mod wire;

use std::ffi::{CStr, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use panoply_device::{Error, Result, Wire};

use crate::library::{Opened, Words};
use crate::library_search;

/// `RTLD_LAZY`.
const LOCAL: i32 = 1;
/// `RTLD_LAZY | RTLD_GLOBAL`: Open MPI's own plug-ins find its functions only among the global symbols.
const GLOBAL: i32 = LOCAL | if cfg!(target_vendor = "apple") { 0x8 } else { 0x100 };
/// Buffer size for `MPI_MAX_LIBRARY_VERSION_STRING` of every implementation, which is at most 8192.
const MAX_VERSION: usize = 1 << 14;

/// Names in the version texts of the implementations that have the interface of MPICH.
const MPICH_NAMES: [&str; 4] = ["MPICH", "MVAPICH", "Intel(R) MPI", "Intel MPI"];

/// A binary interface (ABI) of MPI: the types and values of its constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// That of Open MPI 4 and 5.
    OpenMpi,
    /// That of MPICH 3 to 5, Intel MPI, Cray MPICH and MVAPICH.
    Mpich,
    /// That of the MPI 5.0 standard.
    Standard,
}

/// The implementations of MPI whose launchers do not start each other's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Open MPI.
    OpenMpi,
    /// MPICH and the implementations derived from it.
    Mpich,
}

/// The effect of opening a library on other libraries of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// None: enough to ask for the version.
    Local,
    /// The library's symbols become global, which [`MpiLibrary::connect`] needs.
    Global,
}

/// An MPI library that is open, but not initialized.
pub struct MpiLibrary {
    library: Opened,
    /// Its binary interface.
    pub interface: Interface,
    /// Name and version, such as `Open MPI v4.1.4`.
    pub version: String,
}

impl Interface {
    /// Returns the name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Interface::OpenMpi => "Open MPI",
            Interface::Mpich => "MPICH",
            Interface::Standard => "MPI 5.0",
        }
    }

    /// Returns the possible file names of a library with this interface, the usual one first.
    pub fn files(self) -> &'static [&'static str] {
        self.words().files
    }

    fn words(self) -> &'static Words {
        match self {
            Interface::OpenMpi => &openmpi::WORDS,
            Interface::Mpich => &mpich::WORDS,
            Interface::Standard => &standard::WORDS,
        }
    }
}

impl MpiLibrary {
    /// Opens the library of an interface that the system's loader finds. Open MPI 1.10 has the file name of MPICH, so the interface of the
    /// result can be that of Open MPI.
    ///
    /// # Errors
    /// The library is missing, lacks a function, or has none of the interfaces.
    pub fn open(interface: Interface, visibility: Visibility) -> Result<MpiLibrary> {
        let library = Opened::open_with_flags(interface.words(), None, Some(visibility.flags()))?;
        MpiLibrary::new(library, interface)
    }

    /// Opens the file that `PANOPLY_MPI_LIBRARY` names, or that was installed with the launcher. Its name, its symbols and its version
    /// determine its interface.
    ///
    /// # Errors
    /// The file is not a library of one of the interfaces.
    pub fn open_file(path: &Path, visibility: Visibility) -> Result<MpiLibrary> {
        let is_standard = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(standard::STEM));
        let expected = if is_standard { Interface::Standard } else { Interface::Mpich };
        let words = Words { install: "check PANOPLY_MPI_LIBRARY", ..*expected.words() };
        let library = Opened::open_with_flags(&words, Some(path), Some(visibility.flags()))?;
        MpiLibrary::new(library, expected)
    }

    /// Determines the interface of a library, which is `expected` by its file name. Constants of another interface are undefined behavior.
    fn new(library: Opened, expected: Interface) -> Result<MpiLibrary> {
        type GetVersion = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
        // SAFETY: the address of a symbol fits a usize, and nothing is read from the address.
        let has_world = unsafe { library.function::<usize>("", &[openmpi::WORLD]) }.is_ok();
        let interface = match expected {
            // The standard reserves the file name, and the symbol can be that of a library below.
            Interface::Standard => Interface::Standard,
            Interface::OpenMpi | Interface::Mpich if has_world => Interface::OpenMpi,
            Interface::OpenMpi | Interface::Mpich => expected,
        };
        let words = interface.words();
        // SAFETY: the type is that of the MPI standard.
        let get: GetVersion =
            unsafe { library.function("", &["MPI_Get_library_version"]) }.map_err(|name| library.lacks(words, name))?;
        let (mut text, mut len) = (vec![0 as c_char; MAX_VERSION], 0);
        // SAFETY: the text has room for the longest version of any implementation; the function can be called before initialization.
        unsafe { get(text.as_mut_ptr(), &mut len) };
        text[MAX_VERSION - 1] = 0;
        // SAFETY: the last byte is 0.
        let version = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy();
        if interface == Interface::Mpich && !is_mpich(&version) {
            let (file, version) = (&library.file, short_version(&version));
            let message = format!("{}: {file} has the version `{version}`, {}", words.kind, words.lacking);
            return Err(Error::unavailable(message));
        }
        Ok(MpiLibrary { library, interface, version: short_version(&version) })
    }

    /// Returns the file name or path that was opened.
    pub fn file(&self) -> &str {
        &self.library.file
    }

    /// Returns the path of the file; that which was opened if the search folders do not contain it.
    pub fn path(&self) -> PathBuf {
        installed(&self.library.file).unwrap_or_else(|| PathBuf::from(&self.library.file))
    }

    /// Returns the implementation.
    pub fn family(&self) -> Family {
        if self.version.starts_with("Open MPI") { Family::OpenMpi } else { Family::Mpich }
    }

    /// Initializes the library and connects to the other ranks; must be called once per process.
    ///
    /// # Errors
    /// The library lacks a function, or does not initialize.
    pub fn connect(&self) -> Result<Arc<dyn Wire>> {
        let (library, words) = (&self.library, self.interface.words());
        Ok(match self.interface {
            Interface::OpenMpi => {
                let constants = openmpi::constants(library)?;
                Arc::new(wire::MpiWire::connect(functions::Functions::find(library, words)?, constants)?)
            }
            Interface::Mpich => {
                Arc::new(wire::MpiWire::connect(functions::Functions::find(library, words)?, mpich::CONSTANTS)?)
            }
            Interface::Standard => {
                Arc::new(wire::MpiWire::connect(functions::Functions::find(library, words)?, standard::CONSTANTS)?)
            }
        })
    }
}

impl Visibility {
    fn flags(self) -> i32 {
        match self {
            Visibility::Local => LOCAL,
            Visibility::Global => GLOBAL,
        }
    }
}

/// Returns the path of an installed library, without opening it. `None` on systems other than Linux.
pub fn installed(file: &str) -> Option<PathBuf> {
    // This is not a setting of Panoply: the loader itself searches there.
    let library_path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = library_search::folders(Path::new("/"), &library_path);
    library_search::find(&folders, file).filter(|library| library.flaw.is_none()).map(|library| library.path)
}

/// Returns true for the version text of an implementation that has the interface of MPICH.
fn is_mpich(version: &str) -> bool {
    let version = version.to_uppercase();
    MPICH_NAMES.iter().any(|name| version.contains(&name.to_uppercase()))
}

/// Returns the name and the number of the version text, whose form differs.
fn short_version(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let line = line.split_once(',').map_or(line, |(short, _)| short);
    line.split_whitespace().filter(|word| *word != "Version:").collect::<Vec<&str>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_name_and_number() {
        for (text, short) in [
            ("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4", "Open MPI v4.1.4"),
            ("MPICH Version:      4.0.2\nMPICH Release date: Thu Apr 7", "MPICH 4.0.2"),
            ("Intel(R) MPI Library 2021.10 for Linux* OS\n", "Intel(R) MPI Library 2021.10 for Linux* OS"),
        ] {
            assert_eq!(short_version(text), short);
        }
    }

    #[test]
    fn implementations_with_the_interface_of_mpich_are_recognized_by_their_version() {
        for version in [
            "MPICH Version:      4.0.2\nMPICH Release date: Thu Apr 7",
            "MVAPICH2 Version      :\t2.3.7",
            "Intel(R) MPI Library 2021.10 for Linux* OS\n",
            "MPI VERSION    : CRAY MPICH version 8.1.25.17 (ANL base 3.4a2)",
        ] {
            assert!(is_mpich(version), "{version}");
        }
        for version in ["Open MPI v1.10.7, package: Open MPI root@host Distribution", "Other MPI 1.0", ""] {
            assert!(!is_mpich(version), "{version}");
        }
    }

    #[test]
    fn libraries_of_an_interface_open_and_others_are_rejected() {
        let mut opened = 0;
        for interface in [Interface::OpenMpi, Interface::Mpich] {
            let Some(path) = interface.files().iter().find_map(|file| installed(file)) else { continue };
            let library = MpiLibrary::open_file(&path, Visibility::Local).unwrap();
            assert_eq!(library.interface, interface);
            assert_eq!(library.version.starts_with("Open MPI"), interface == Interface::OpenMpi, "{}", library.version);
            opened += 1;
        }
        if opened < 2 {
            println!("SKIPPED: MPI libraries by their symbols: {opened} of 2 are installed; run `cargo xtask install`");
        }
        let Err(error) = MpiLibrary::open_file(Path::new("/none/libmpi_abi.so.1"), Visibility::Local) else {
            panic!("a missing file opens")
        };
        assert_eq!(error.message(), "mpi: /none/libmpi_abi.so.1 cannot be loaded; check PANOPLY_MPI_LIBRARY");
    }
}
