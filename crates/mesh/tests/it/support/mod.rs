//! Support code of several test modules.

pub mod mpi;
