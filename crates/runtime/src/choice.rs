//! Which devices are here, and which one is taken.
//!
//! [`registry`] asks the drivers, [`report`] says what they answered, [`select`] chooses and keeps the reasons, [`scope`] holds
//! the choices a program made, [`trial`] whether a device computes at all.

pub mod registry;
pub mod report;
pub mod scope;
pub mod select;
mod spelling;
mod trial;
