//! Devices that tests share.

pub mod faulty_device;
