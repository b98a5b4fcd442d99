//! The binary interface (ABI) of MPICH 3 to 5, Intel MPI, Cray MPICH and MVAPICH: handles are integers with fixed values.

use std::ffi::c_int;

use super::functions::Constants;
use crate::library::Words;

/// File names and messages of the library. Debian renames it.
pub const WORDS: Words = Words {
    kind: "mpi",
    files: if cfg!(target_vendor = "apple") { &["libmpi.12.dylib"] } else { &["libmpi.so.12", "libmpich.so.12"] },
    prefix: "",
    install: "install MPICH (Debian: mpich)",
    lacking: "so it does not have the interface of MPICH",
};

/// Constants of mpi.h. `MPI_STATUS_IGNORE` is the address 1.
pub const CONSTANTS: Constants<c_int> = Constants {
    world: 0x4400_0000,
    float: 0x4c00_040a,
    byte: 0x4c00_010d,
    errors_return: 0x5400_0001,
    status_ignore: 1,
    thread_serialized: 2,
};
