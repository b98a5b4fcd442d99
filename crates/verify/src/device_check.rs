//! Test that the device computes outputs within their bounds, at inputs of all boxes of a property.
//!
//! A proof for the device's arithmetic assumes that each operation is within its error bounds. At a single input the bounds of the outputs
//! are as narrow as the rounding errors, so a kernel that computes something else is noticed at almost every input that it affects. The
//! comparison is a test, not a proof: `panoply selftest --exhaustive` tests the operations themselves at every input.

use std::time::{Duration, Instant};

use panoply_tensor::{Result, Rng};

use crate::attack::{self, Function};
use crate::device_bounds::{bounds_at, compare};
use crate::interval::Interval;
use crate::property::Property;
use crate::steps::Steps;

/// Number of inputs that are compared, over all boxes of a property.
const POINTS: usize = 128;
/// Number of inputs after which the comparison ends if it took the time that is meant for it.
const MIN_INPUTS: usize = 16;

/// Compares the outputs of the device at inputs of a property whose bounds exclude all counterexamples. After `usual` it ends with
/// [`MIN_INPUTS`] inputs, and after `longest` with one.
///
/// # Errors
/// If the function fails, or the device computes an output outside of its bounds.
pub fn confirm(
    function: &Function<'_>,
    float: &Steps,
    property: &Property,
    seed: u64,
    usual: Duration,
    longest: Duration,
) -> Result<()> {
    let started = Instant::now();
    let mut compared = Vec::new();
    for point in points(property, seed) {
        let bounds = bounds_at(float, &point);
        compare(&bounds, &point, &function.output(&point)?)?;
        compared.push((point, bounds));
        let elapsed = started.elapsed();
        if elapsed >= longest || (compared.len() >= MIN_INPUTS && elapsed >= usual) {
            break;
        }
    }
    // The kernels for a batch can be others.
    if function.compiled.is_some() && !compared.is_empty() && started.elapsed() < longest {
        let (points, bounds): (Vec<Vec<f32>>, Vec<Vec<Interval>>) = compared.into_iter().unzip();
        let outputs = function.outputs(&points, property.outputs)?;
        bounds.iter().zip(&points).zip(&outputs).try_for_each(|((bounds, point), y)| compare(bounds, point, y))?;
    }
    Ok(())
}

/// Returns points of all boxes of a property; a point near the first box if no box has an f32 number.
fn points(property: &Property, seed: u64) -> Vec<Vec<f32>> {
    let mut rng = Rng::seed_from_u64(seed);
    let mut boxes: Vec<(usize, Vec<Interval>)> = Vec::new();
    for (n, case) in property.cases.iter().enumerate() {
        let ranges: Vec<Interval> = case.ranges.iter().map(|range| range.outer()).collect();
        if boxes.len() < POINTS && !boxes.iter().any(|(_, other)| *other == ranges) {
            boxes.push((n, ranges));
        }
    }
    let count = POINTS / boxes.len().max(1);
    let of = |(n, ranges): &(usize, Vec<Interval>)| {
        let mut points = attack::sample_points(&property.cases[*n], ranges, None, 1.0, count, &mut rng);
        points.truncate(count);
        points
    };
    let points: Vec<Vec<f32>> = boxes.iter().flat_map(of).collect();
    match boxes.first().filter(|_| points.is_empty()) {
        // No f32 lies in the boxes. The bounds of any other input hold, too.
        Some((_, ranges)) => vec![ranges.iter().map(|range| f64::midpoint(range.lo, range.hi) as f32).collect()],
        None => points,
    }
}
