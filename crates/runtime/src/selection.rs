//! Device discovery and selection.
//!
//! [`registry`] queries the drivers, [`report`] lists their devices, [`select`] chooses one and records the reasons, [`scope`] holds
//! the program's current device, and [`smoke_test`] checks that a device computes correctly.

mod device_string;
pub mod registry;
pub mod report;
pub mod scope;
pub mod select;
mod smoke_test;
mod turns;
