//! Which devices are here, and which one is taken.
//!
//! [`registry`] asks the drivers, [`report`] says what they answered, [`select`] chooses and keeps the reasons, [`scope`] holds
//! the choices a program made, [`smoke_test`] whether a device computes at all.

mod device_string;
pub mod registry;
pub mod report;
pub mod scope;
pub mod select;
mod smoke_test;
