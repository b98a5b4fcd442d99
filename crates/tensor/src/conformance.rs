//! Results that every device must compute: one row for each operation, its gradient, and the accuracy of the math
//! functions.
//!
//! The device contract's suite (`panoply_device::conformance`) checks that a device runs what it is given; this
//! module checks that the results are correct. The tests run it on every available device, and `panoply selftest` on
//! a user's device. The [`oracle`] interprets the graph one element at a time in f64 and shares no code with the
//! compiler.

pub mod algebra;
pub mod composed;
pub mod exhaustive;
pub mod functions;
pub mod oracle;
pub mod row;
pub mod table;

use std::fmt;

use panoply_ir::{Error, ErrorKind, Result};

pub use functions::functions;
pub use row::Row;

/// Returns every row of the op table.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    table::ROWS.iter().chain(composed::ROWS).chain(algebra::ROWS)
}

/// Result of a device for one row or function.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Name of the row or function.
    pub name: String,
    /// Unit of the errors: `ulp`, or the magnitude to which they are relative.
    pub unit: &'static str,
    /// Maximum allowed error.
    pub limit: f64,
    /// Maximum measured error, or the failure of the computation.
    pub worst: Result<Worst>,
}

/// The maximum error and its location.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Worst {
    /// The error; infinite if only one of both values is NaN.
    pub error: f64,
    /// Location, computed and expected value.
    pub place: String,
}

impl Outcome {
    /// Returns true if the error is within its limit.
    pub fn passed(&self) -> bool {
        self.worst.as_ref().is_ok_and(|worst| worst.error <= self.limit)
    }
}

/// `maximum error 1.2e-7 relative to the largest element (tolerance 2.0e-6)`, and the place if the error is larger than the tolerance.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { unit, limit, worst, .. } = self;
        let show = |error: f64| match *unit {
            "ulp" => format!("{error:.2}"),
            _ if error == 0.0 => "0".to_string(),
            _ => format!("{error:.1e}"),
        };
        match worst {
            Ok(worst) => {
                write!(f, "maximum error {} {unit} (tolerance {})", show(worst.error), show(*limit))?;
                if self.passed() { Ok(()) } else { write!(f, ": {}", worst.place) }
            }
            Err(error) => write!(f, "{error}"),
        }
    }
}

impl Worst {
    fn see(&mut self, error: f64, place: impl FnOnce() -> String) {
        if error > self.error || error.is_nan() {
            *self = Worst { error, place: place() };
        }
    }

    /// Returns the maximum error over several arrays, relative to the largest magnitude of each array or 1 if that is
    /// smaller.
    ///
    /// # Errors
    /// An array has a wrong number of elements.
    pub fn relative(have: &[Vec<f64>], want: &[Vec<f64>]) -> Result<Worst> {
        let mut worst = Worst::default();
        for (have, want) in have.iter().zip(want) {
            if have.len() != want.len() {
                return Err(Error::new(
                    ErrorKind::Driver,
                    format!("{} elements came out, not {}", have.len(), want.len()),
                ));
            }
            let scale = want.iter().filter(|x| x.is_finite()).fold(1.0f64, |top, x| top.max(x.abs()));
            for (i, (have, want)) in have.iter().zip(want).enumerate() {
                let error = match (have.is_nan(), want.is_nan()) {
                    (true, true) => 0.0,
                    (false, false) if have == want => 0.0,
                    (false, false) => (have - want).abs() / scale,
                    _ => f64::INFINITY,
                };
                worst.see(error, || format!("element {i} is {have}, not {want}"));
            }
        }
        Ok(worst)
    }

    /// Returns the maximum error of a function at these numbers, in units in the last place of an f32 of the true
    /// value's magnitude. A true value in the subnormal range can be flushed to 0.
    pub fn in_ulps(numbers: &[f32], have: &[f64], want: &[f64]) -> Worst {
        // Infinity counts as the number that follows the largest one.
        let bounded = |x: f64| x.clamp(-2.0 * (1u128 << 127) as f64, 2.0 * (1u128 << 127) as f64);
        let mut worst = Worst::default();
        for ((x, have), want) in numbers.iter().zip(have).zip(want) {
            let exponent = bounded(*want).abs().max(f32::MIN_POSITIVE.into()).log2().floor();
            let flushed = *have == 0.0 && want.abs() < f32::MIN_POSITIVE.into();
            let error = match (have.is_nan(), want.is_nan()) {
                (true, true) => 0.0,
                (false, false) if flushed => 0.0,
                (false, false) => (bounded(*have) - bounded(*want)).abs() / (exponent - 23.0).exp2(),
                _ => f64::INFINITY,
            };
            worst.see(error, || format!("at {x:e} it is {have:e}, not {want:e}"));
        }
        worst
    }
}
