//! Comparison of the outputs that the device computes at one input with their bounds.

use panoply_ir::target::Language;
use panoply_tensor::{Device, Error, ErrorKind, MathMode, Result};

use crate::interval::Interval;
use crate::report::shown;
use crate::steps::Steps;
use crate::values;

/// Returns the bounds of the outputs at a point.
pub fn bounds_at(float: &Steps, point: &[f32]) -> Vec<Interval> {
    let inputs: Vec<Interval> = point.iter().map(|x| Interval::point(f64::from(*x))).collect();
    let mut bounds = values::forward(float, &inputs);
    std::mem::take(&mut bounds[float.output].elements).into_owned()
}

/// Returns true if f32 matrix products on a device can be computed in TF32, for which no bounds are known.
pub fn allows_tf32(device: &Device) -> bool {
    let has_tf32 = matches!(device.target().language, Language::Ptx { .. } | Language::CudaC);
    has_tf32 && device.is_tf32_allowed() && device.math_mode() != MathMode::Exact
}

/// Compares the outputs at a point with their bounds.
///
/// # Errors
/// If an output is outside of its bounds.
pub fn compare(bounds: &[Interval], point: &[f32], outputs: &[f32]) -> Result<()> {
    let is_outside = |(bounds, y): (&Interval, &f32)| bounds.is_finite() && !bounds.contains(f64::from(*y));
    let Some(at) = bounds.iter().zip(outputs).position(is_outside) else { return Ok(()) };
    let device = Device::current()?;
    let (Interval { lo, hi }, y) = (bounds[at], outputs[at]);
    let message = format!(
        "{device} computes {y:e} as output {at}, but the error bounds of its operations limit it to {lo:e}..{hi:e}; nothing is proven"
    );
    Err(Error::new(ErrorKind::Driver, message)
        .note(format!("the input is {}", shown(point)))
        .note(format!("run `panoply selftest --device {device} --exhaustive` to find the operation")))
}
