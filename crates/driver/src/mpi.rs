//! MPI, opened at run time: the processes of one program exchange bytes.
//!
//! Implementations of MPI differ in the types and values of their constants, not in their functions: [`functions`] is one
//! table for all of them, generic over the type of a handle, and each binary interface is one file of constants, of which
//! [`openmpi`] is the first. [`wire`] implements the contract on that table.

mod functions;
mod openmpi;
mod wire;

use std::sync::Arc;

use panoply_device::{Error, Result, Wire};

use crate::library::Opened;

/// `RTLD_LAZY | RTLD_GLOBAL`: Open MPI's own plug-ins find its functions only among the global symbols.
const FLAGS: i32 = 1 | if cfg!(target_vendor = "apple") { 0x8 } else { 0x100 };

/// Opens Open MPI and connects to the other ranks. `ranks` is the number that the launcher told this process.
///
/// # Errors
/// The library is missing, lacks a function, or reports another number of ranks.
pub fn open_openmpi(ranks: usize) -> Result<Arc<dyn Wire>> {
    let library = Opened::open_with_flags(&openmpi::WORDS, None, Some(FLAGS))
        .map_err(|error| error.note(format!("the launcher of Open MPI started this process as one of {ranks}")))?;
    let constants = openmpi::constants(&library)?;
    let wire = wire::MpiWire::connect(functions::Functions::find(&library, &openmpi::WORDS)?, constants)?;
    if wire.ranks() != ranks {
        let message =
            format!("mpi: the launcher started {ranks} processes, but {} sees {} of them", library.file, wire.ranks());
        return Err(Error::unavailable(message).note(
            "launcher and library belong to different installations: start it with the `mpirun` that came with this library",
        ));
    }
    Ok(Arc::new(wire))
}
