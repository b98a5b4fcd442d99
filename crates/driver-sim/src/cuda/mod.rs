//! NVIDIA's driver API, as far as Panoply's driver calls it.
//!
//! A test configures it in the environment variable `PANOPLY_FAKE_CUDA` as comma-separated `name=value` pairs (defaults in parentheses):
//! `devices` (1), `driver` (its version, 12040), `capability` (86), `cublas` (cuBLASLt's version, 12), `memory` (bytes of a device, 256
//! MiB), `pools` (1), `init` (the result of `cuInit`, 0), `broken` (the device whose context cannot be retained), `prohibited` (the device
//! in compute mode Prohibited), `wrong` (the name of an entry point whose last block along the first axis is not executed).
//!
//! Work of a stream is executed only when it is waited for, queried or needed, so that a driver that forgets to wait is detected. One lock
//! serializes everything.

pub(crate) mod api;
pub(crate) mod codes;
mod config;
pub(crate) mod devices;
pub(crate) mod graphs;
pub(crate) mod modules;
pub(crate) mod state;
pub(crate) mod streams;
