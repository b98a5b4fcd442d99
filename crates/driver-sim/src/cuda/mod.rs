//! NVIDIA's driver API, as far as Panoply's driver calls it.
//!
//! What a test chooses stands in the environment variable `PANOPLY_FAKE_CUDA` as `name=number` pairs with commas between:
//! `devices` (1), `driver` (its version, 12040), `capability` (86), `cublas` (cuBLASLt's version, 12), `memory` (bytes of a device, 256 MiB), `pools` (1), `init` (what
//! `cuInit` answers, 0), `broken` (the device whose context cannot be had), `prohibited` (the device nobody may use).
//!
//! Work given to a stream is done when somebody waits for it, asks after it or needs it, not before: a driver that forgets to wait
//! is found out. One lock serializes everything.

pub(crate) mod api;
pub(crate) mod codes;
mod config;
pub(crate) mod devices;
pub(crate) mod graphs;
pub(crate) mod modules;
pub(crate) mod state;
pub(crate) mod streams;
