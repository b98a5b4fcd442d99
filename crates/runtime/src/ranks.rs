//! Connection to the other processes (ranks) of a program that an MPI launcher started.
//!
//! Without a launcher the MPI library is never loaded.

use std::sync::{Arc, OnceLock};

use panoply_device::Wire;
use panoply_ir::{Error, Result};

use crate::env::{self, Launcher, LauncherKind};

/// Returns the connection between the ranks of this program, or `None` if no launcher started more than one process. The first call
/// loads the MPI library.
///
/// # Errors
/// The launcher's variable is malformed, the launcher is not Open MPI's, or the library does not load.
pub fn wire() -> Result<Option<Arc<dyn Wire>>> {
    static WIRE: OnceLock<Result<Option<Arc<dyn Wire>>>> = OnceLock::new();
    WIRE.get_or_init(|| match env::launcher()? {
        Some(launcher) if launcher.ranks > 1 => connect(&launcher).map(Some),
        Some(_) | None => Ok(None),
    })
    .clone()
}

fn connect(launcher: &Launcher) -> Result<Arc<dyn Wire>> {
    let Launcher { kind, ranks, variable } = launcher;
    match kind {
        LauncherKind::OpenMpi => open(*ranks),
        LauncherKind::Mpich => {
            let message =
                format!("MPICH's launcher started this process ({variable}={ranks}); only Open MPI is supported");
            Err(Error::unavailable(message)
                .note("start the program with `mpirun` of Open MPI 4 or 5 (Debian: openmpi-bin)"))
        }
    }
}

#[cfg(all(feature = "mpi", unix))]
fn open(ranks: usize) -> Result<Arc<dyn Wire>> {
    panoply_driver::mpi::open_openmpi(ranks)
}

#[cfg(not(all(feature = "mpi", unix)))]
fn open(ranks: usize) -> Result<Arc<dyn Wire>> {
    let message = format!("a launcher started {ranks} processes, but this program was built without MPI");
    Err(Error::unavailable(message).note("build it on Unix with the feature `mpi` (enabled by default)"))
}
