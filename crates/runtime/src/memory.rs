//! Memory of a device: the pool, and what its users hold.
//!
//! In reading order: `size_class` (which sizes are kept apart), `shelf` (what is kept), `pool`, `live` and `tag` (who holds what), [`stats`],
//! [`storage`] (bytes with an owner), `access` (who may touch them at the same time), [`buffer`] (elements).

pub(crate) mod access;
pub mod buffer;
mod free_list;
pub(crate) mod pool;
mod size_class;
pub mod stats;
pub mod storage;
pub(crate) mod tag;
mod tags;
