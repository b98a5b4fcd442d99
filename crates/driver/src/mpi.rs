//! MPI, opened at run time: point-to-point and collective communication between the processes of a program.
//!
//! Implementations of MPI differ in the types and values of their constants, not in their functions. Therefore [`functions`] is one
//! table for all of them, generic over the type of a handle, and each binary interface has a file of constants; the only one so far is
//! [`openmpi`]. [`wire`] implements the communication contract on that table.

mod functions;
mod openmpi;
mod wire;

use std::sync::Arc;

use panoply_device::{Error, Result, Wire};

use crate::library::Opened;

/// `RTLD_LAZY | RTLD_GLOBAL`: Open MPI's own plug-ins find its functions only among the global symbols.
const FLAGS: i32 = 1 | if cfg!(target_vendor = "apple") { 0x8 } else { 0x100 };

/// Opens Open MPI and connects to the other ranks. `ranks` is the number of ranks that the launcher reported to this process.
///
/// # Errors
/// The library is missing, lacks a function, or reports another number of ranks.
pub fn open_openmpi(ranks: usize) -> Result<Arc<dyn Wire>> {
    let library = Opened::open_with_flags(&openmpi::WORDS, None, Some(FLAGS))
        .map_err(|error| error.note(format!("Open MPI's launcher started this process as one of {ranks}")))?;
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
