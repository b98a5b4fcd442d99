//! From a verified kernel to a program of the device.
//!
//! `cache` (is it here already?) → `limits` (can this device run it at all?) → [`prepared`] (which programs does it need?) →
//! `translate` (optimise, render) → [`compiler`] (did an earlier process compile it, or must the device?) with `disk`. Those of a plan go
//! this way `together`.
//!
//! Programs of a user's own come as a [`package`], and join at [`prepared`]; a `refusal` is shown with the line of the source.

pub(crate) mod cache;
pub mod compiler;
mod conformance;
mod disk;
mod limits;
pub mod package;
pub mod prepared;
mod refusal;
pub(crate) mod together;
mod translate;
