//! The CPU as a Panoply device.
