//! Device memory: the pool, storage and buffers.
//!
//! In reading order: `size_class` (rounding of sizes), `free_list` (freed blocks), `pool`, `tags` and `tag` (allocations by tag),
//! [`stats`], [`storage`] (reference-counted bytes), `access` (locks for concurrent access), [`buffer`] (typed elements).

pub(crate) mod access;
pub mod buffer;
mod free_list;
pub(crate) mod pool;
mod size_class;
pub mod stats;
pub mod storage;
pub(crate) mod tag;
mod tags;
