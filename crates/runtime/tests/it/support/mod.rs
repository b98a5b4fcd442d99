//! Devices for tests.

pub mod all_devices;
pub mod test_device;
