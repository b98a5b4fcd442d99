//! From a verified kernel to a program of the device.
//!
//! [`limits`] (can this device run it at all?) → [`translate`] (optimise, render) → [`disk`] (did an earlier process compile
//! it?) → the device's compiler → [`prepared`], which [`cache`] remembers.

pub mod cache;
mod disk;
mod limits;
pub mod prepared;
mod translate;
