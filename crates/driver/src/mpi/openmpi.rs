//! The binary interface (ABI) of Open MPI 4 and 5: handles are addresses of objects in the library.

use std::ffi::c_int;

use panoply_device::Result;

use super::functions::Constants;
use crate::library::{Opened, Words};

/// File names and messages of the library.
pub const WORDS: Words = Words {
    kind: "mpi",
    files: if cfg!(target_vendor = "apple") { &["libmpi.40.dylib"] } else { &["libmpi.so.40"] },
    prefix: "",
    install: "install Open MPI 4 or 5 (Debian: openmpi-bin)",
    lacking: "so it does not have the interface of Open MPI 4 or 5",
};

/// Symbol that only libraries with this interface have.
pub const WORLD: &str = "ompi_mpi_comm_world";

/// `MPI_THREAD_SERIALIZED` of mpi.h.
const THREAD_SERIALIZED: c_int = 2;

/// Returns the constants of mpi.h. `MPI_STATUS_IGNORE` is a null pointer.
pub fn constants(library: &Opened) -> Result<Constants<usize>> {
    let address = |name: &'static str| {
        // SAFETY: the address of a symbol fits a usize, and nothing is read from the address here.
        unsafe { library.function::<usize>(WORDS.prefix, &[name]) }.map_err(|name| library.lacks(&WORDS, name))
    };
    Ok(Constants {
        world: address(WORLD)?,
        float: address("ompi_mpi_float")?,
        byte: address("ompi_mpi_byte")?,
        errors_return: address("ompi_mpi_errors_return")?,
        status_ignore: 0,
        thread_serialized: THREAD_SERIALIZED,
    })
}
