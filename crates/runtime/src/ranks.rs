//! The connection to the other processes of a program that a launcher started several times.
//!
//! Without a launcher nothing is opened: a program that runs alone never loads MPI.

use std::sync::{Arc, OnceLock};

use panoply_device::Wire;
use panoply_ir::{Error, Result};

use crate::env::{self, Launcher, LauncherKind};

/// The wire between the ranks of this program, if a launcher started more than one. The library is opened at the first
/// call.
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
                format!("the launcher of MPICH started this process ({variable}={ranks}); only Open MPI is supported");
            Err(Error::unavailable(message).note("start it with the `mpirun` of Open MPI 4 or 5 (Debian: openmpi-bin)"))
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
    Err(Error::unavailable(message).note("build it for Unix with the feature `mpi`, which is on by default"))
}
