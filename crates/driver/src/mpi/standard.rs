//! The binary interface (ABI) of the MPI 5.0 standard, which MPICH 5 and Intel MPI 2021.18 have: handles are pointers with small fixed
//! values.

use super::functions::Constants;
use crate::library::Words;

/// File names and messages of the library.
pub const WORDS: Words = Words {
    kind: "mpi",
    files: if cfg!(target_vendor = "apple") { &["libmpi_abi.1.dylib"] } else { &["libmpi_abi.so.1"] },
    prefix: "",
    install: "install MPICH 5",
    lacking: "so it does not have the interface of MPI 5.0",
};

/// Start of the name of every library with this interface.
pub const STEM: &str = "libmpi_abi.";

/// Constants of mpi_abi.h. `MPI_STATUS_IGNORE` is a null pointer.
pub const CONSTANTS: Constants<usize> = Constants {
    world: 0x101,
    float: 0x210,
    byte: 0x247,
    errors_return: 0x143,
    status_ignore: 0,
    thread_serialized: 2048,
};
