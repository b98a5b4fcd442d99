//! Devices and runners that tests share.

pub mod faulty_device;
pub mod onnx_cases;
