//! Connection to the other processes (ranks) of a program that a launcher started, through the MPI library of that launcher.
//!
//! Without a launcher no MPI library is loaded. Launcher and library are matched before the library is initialized: under MPICH's launcher,
//! Open MPI takes every process for the only one, and under Open MPI's, MPICH ends the process.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use panoply_device::Wire;
use panoply_ir::{Error, Result};

use crate::env::{self, Launcher, LauncherKind};

/// An MPI library of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MpiLibrary {
    /// Path of its file.
    pub path: PathBuf,
    /// Its binary interface: `Open MPI`, `MPICH` or `MPI 5.0`.
    pub interface: &'static str,
    /// Name and version, such as `Open MPI v4.1.4`.
    pub version: String,
}

/// Returns the connection between the ranks of this program, or `None` if no launcher started more than one process. The first call
/// loads the MPI library.
///
/// # Errors
/// The launcher's variable is malformed, or its library does not load, belongs to another launcher, or reports another number of ranks.
pub fn wire() -> Result<Option<Arc<dyn Wire>>> {
    static WIRE: OnceLock<Result<Option<Arc<dyn Wire>>>> = OnceLock::new();
    WIRE.get_or_init(|| match env::launcher()? {
        Some(launcher) if launcher.ranks != Some(1) => connect(&launcher),
        Some(_) | None => Ok(None),
    })
    .clone()
}

#[cfg(all(feature = "mpi", unix))]
use mpi::connect;
#[cfg(all(feature = "mpi", unix))]
pub use mpi::{check_support, library, library_in};

#[cfg(not(all(feature = "mpi", unix)))]
fn connect(launcher: &Launcher) -> Result<Option<Arc<dyn Wire>>> {
    let Launcher { kind, variable, .. } = launcher;
    Err(without_mpi(&format!(
        "{} started this process ({variable}), but this program was built without MPI",
        kind.name()
    )))
}

/// Returns an error if this program was built without MPI.
///
/// # Errors
/// The feature `mpi` is disabled, or the system is not Unix.
#[cfg(not(all(feature = "mpi", unix)))]
pub fn check_support() -> Result<()> {
    Err(without_mpi("this program was built without MPI"))
}

/// Returns the library that the ranks of this kind of launcher open: this file, else the first that the system finds. It is loaded, but
/// not initialized.
///
/// # Errors
/// There is none.
#[cfg(not(all(feature = "mpi", unix)))]
pub fn library(_: LauncherKind, _: Option<&Path>) -> Result<MpiLibrary> {
    Err(without_mpi("this program was built without MPI"))
}

/// Returns the path of a library in a folder that the ranks of this kind of launcher can open.
#[cfg(not(all(feature = "mpi", unix)))]
pub fn library_in(_: &Path, _: LauncherKind) -> Option<PathBuf> {
    None
}

#[cfg(not(all(feature = "mpi", unix)))]
fn without_mpi(message: &str) -> Error {
    Error::unavailable(message).note("build it on Unix with the feature `mpi` (enabled by default)")
}

#[cfg(all(feature = "mpi", unix))]
mod mpi {
    use panoply_driver::mpi::{Family, Interface, MpiLibrary as Library, Visibility, installed};

    use super::*;

    /// Returns an error if this program was built without MPI.
    ///
    /// # Errors
    /// The feature `mpi` is disabled, or the system is not Unix.
    pub fn check_support() -> Result<()> {
        Ok(())
    }

    /// Opens the launcher's library and connects. A launcher that does not tell the number of ranks can have started only one.
    pub fn connect(launcher: &Launcher) -> Result<Option<Arc<dyn Wire>>> {
        let Launcher { kind, ranks, variable, .. } = launcher;
        let started = || format!("{} started this process ({variable})", kind.name());
        let library = open(*kind, Visibility::Global).map_err(|error| {
            let error = error.note(started());
            // A chosen file does not depend on the libraries that are installed.
            let is_chosen = env::settings().is_ok_and(|settings| settings.mpi_library.is_some());
            let other = if is_chosen { None } else { other_library(*kind) };
            other.into_iter().fold(error, Error::note)
        })?;
        check_family(*kind, &library, &started())?;
        let (file, version) = (library.file(), &library.version);
        let wire = library.connect()?;
        match ranks {
            Some(ranks) if wire.ranks() != *ranks => {
                let (name, seen) = (kind.name(), wire.ranks());
                let message = format!(
                    "mpi: {name} started {ranks} processes ({variable}), but {file} ({version}) sees {seen} of them"
                );
                Err(Error::unavailable(message).note(advice(*kind)))
            }
            None if launcher.rank.is_some_and(|rank| rank >= wire.ranks()) => {
                let message = format!("mpi: {}, but {file} ({version}) sees {} processes", started(), wire.ranks());
                Err(Error::unavailable(message).note(advice(*kind)))
            }
            None if wire.ranks() == 1 => wire.close().map(|()| None),
            Some(_) | None => Ok(Some(wire)),
        }
    }

    /// Returns the library that the ranks of this kind of launcher open: this file, else the first that the system finds. It is loaded, but
    /// not initialized.
    ///
    /// # Errors
    /// There is none.
    pub fn library(kind: LauncherKind, file: Option<&Path>) -> Result<MpiLibrary> {
        let library = match file {
            Some(file) => Library::open_file(file, Visibility::Local)?,
            None => open(kind, Visibility::Local)?,
        };
        check_family(kind, &library, &format!("the launcher is {}", kind.name()))?;
        Ok(MpiLibrary { path: library.path(), interface: library.interface.name(), version: library.version })
    }

    /// Returns the path of a library in a folder that the ranks of this kind of launcher can open.
    pub fn library_in(folder: &Path, kind: LauncherKind) -> Option<PathBuf> {
        let files = interfaces(kind).iter().flat_map(|interface| interface.files());
        files.map(|file| folder.join(file)).find(|path| path.is_file())
    }

    fn open(kind: LauncherKind, visibility: Visibility) -> Result<Library> {
        if let Some(path) = &env::settings()?.mpi_library {
            return Library::open_file(path, visibility);
        }
        let mut first_error = None;
        for interface in interfaces(kind) {
            match Library::open(*interface, visibility) {
                Ok(library) => return Ok(library),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.expect("every launcher has an interface"))
    }

    /// Returns the interfaces whose libraries are tried, in order.
    fn interfaces(kind: LauncherKind) -> &'static [Interface] {
        match kind {
            LauncherKind::OpenMpi => &[Interface::OpenMpi, Interface::Standard],
            LauncherKind::Mpich => &[Interface::Mpich, Interface::Standard],
            LauncherKind::SlurmPmi => &[Interface::Mpich, Interface::Standard, Interface::OpenMpi],
            LauncherKind::SlurmPmix | LauncherKind::Pmix => {
                &[Interface::OpenMpi, Interface::Standard, Interface::Mpich]
            }
        }
    }

    /// Returns an error if the library belongs to another implementation than the launcher.
    fn check_family(kind: LauncherKind, library: &Library, launcher: &str) -> Result<()> {
        if family(kind).is_none_or(|family| family == library.family()) {
            return Ok(());
        }
        let message = format!("mpi: {launcher}, but {} is {}", library.file(), library.version);
        Err(Error::unavailable(message).note(advice(kind)))
    }

    /// Returns the implementation that the launcher starts, if it is only one.
    fn family(kind: LauncherKind) -> Option<Family> {
        match kind {
            LauncherKind::OpenMpi => Some(Family::OpenMpi),
            LauncherKind::Mpich => Some(Family::Mpich),
            LauncherKind::SlurmPmi | LauncherKind::SlurmPmix | LauncherKind::Pmix => None,
        }
    }

    fn advice(kind: LauncherKind) -> &'static str {
        match kind {
            LauncherKind::OpenMpi | LauncherKind::Mpich => {
                "launcher and library belong to different installations: start the program with the `mpiexec` that came with this \
                 library, or set PANOPLY_MPI_LIBRARY to the path of the launcher's library"
            }
            LauncherKind::SlurmPmi | LauncherKind::SlurmPmix | LauncherKind::Pmix => {
                "the library and the launcher need the same protocol: try `srun --mpi=pmi2` for MPICH and `srun --mpi=pmix` for Open MPI \
                 (`srun --mpi=list` lists those of the cluster), or set PANOPLY_MPI_LIBRARY to the path of another library"
            }
        }
    }

    /// Returns a note if only the library of another launcher is installed.
    fn other_library(kind: LauncherKind) -> Option<String> {
        let has = |interface: Interface| interface.files().iter().any(|file| installed(file).is_some());
        match kind {
            LauncherKind::OpenMpi if has(Interface::Mpich) => {
                Some("MPICH is installed: start the program with its `mpiexec` (Debian: mpiexec.mpich)".to_string())
            }
            LauncherKind::Mpich if has(Interface::OpenMpi) => {
                Some("Open MPI is installed: start the program with its `mpirun` (Debian: mpirun.openmpi)".to_string())
            }
            _ => None,
        }
    }
}
