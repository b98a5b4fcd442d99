//! From a verified kernel to a program of the device.
//!
//! `cache` (is it here already?) → `limits` (can this device run it at all?) → [`prepared`] (which programs does it need?) →
//! `translate` (optimise, render) → [`compiler`] (did an earlier process compile it, or must the device?) with `disk`.

pub(crate) mod cache;
pub mod compiler;
mod conformance;
mod disk;
mod limits;
pub mod prepared;
mod translate;
