//! The largest radius for which a claim about a ball is proven, and the smallest for which it is violated, by bisection.

use std::time::Instant;

use panoply_tensor::Result;

use crate::{Counterexample, Report, Verdict};

/// Maximum number of times that the first radius is halved.
const MAX_DOUBLINGS: usize = 20;
/// Maximum number of radii that are tried.
const MAX_QUERIES: usize = 60;
/// Relative precision of each radius; the two differ by at most twice as much if no radius between them is undecided.
const PRECISION: f64 = 0.005;
/// Divisor of the time limit for one radius.
const QUERIES: f64 = 8.0;

/// Result of the search for radii.
#[derive(Clone, Debug, PartialEq)]
pub struct Radius {
    /// The largest radius for which the claim is proven.
    pub proven: Option<f64>,
    /// The smallest radius for which there is a counterexample, and the counterexample.
    pub violated: Option<(f64, Counterexample)>,
    /// Number of radii that were tried.
    pub queries: usize,
    /// True if the two radii differ by at most 1 %, or the claim is proven for a ball that contains the whole range of inputs.
    pub is_exact: bool,
}

/// Searches the radii of a claim. `verify` verifies it for a radius with a time limit in seconds, `distance` is the radius at which an input
/// is on the surface of the ball, and balls larger than `whole` have the same inputs in the range `clip`.
///
/// The claim for a radius follows from that for a larger one, so that the search is a bisection. An undecided radius counts as one that is too
/// large to be proven.
///
/// # Errors
/// If a verification fails.
pub fn search(
    verify: &mut dyn FnMut(f64, f64) -> Result<Report>,
    distance: &dyn Fn(&[f32]) -> f64,
    first: f64,
    whole: f64,
    seconds: f64,
) -> Result<Radius> {
    let started = Instant::now();
    let mut found = Radius { proven: None, violated: None, queries: 0, is_exact: false };
    // The smallest radius that is not proven, the largest that is undecided, and the smallest that is violated.
    let (mut failed, mut open, mut violated) = (f64::INFINITY, 0.0f64, f64::INFINITY);
    let mut radius = if first > 0.0 { first } else { 1.0 };
    let least = first.max(1e-6) * 0.5f64.powi(MAX_DOUBLINGS as i32);
    loop {
        let left = seconds - started.elapsed().as_secs_f64();
        if found.queries > 0 && (left <= 0.0 || radius <= least || found.queries >= MAX_QUERIES) {
            break;
        }
        radius = radius.min(whole);
        found.queries += 1;
        match verify(radius, (seconds / QUERIES).min(left.max(0.0)))?.verdict {
            Verdict::Proven => found.proven = Some(found.proven.unwrap_or(0.0).max(radius)),
            Verdict::Counterexample(point) => {
                let reached = distance(&point.input).min(radius);
                if reached < violated {
                    violated = reached;
                    found.violated = Some((reached, point));
                }
                failed = failed.min(reached);
            }
            Verdict::Undecided(_) => {
                failed = failed.min(radius);
                open = open.max(radius);
            }
        }
        let proven = found.proven.unwrap_or(0.0);
        if proven >= whole {
            break;
        }
        radius = match found.proven {
            None => 0.5 * failed,
            Some(proven) if failed.is_infinite() => 2.0 * proven,
            Some(proven) if proven < failed * (1.0 - PRECISION) => 0.5 * (proven + failed),
            // Above the undecided radii, and between those and the violated ones.
            Some(_) if violated.is_infinite() && open > 0.0 && open < whole => 2.0 * open,
            Some(_) if violated.is_finite() && open.min(violated) < violated * (1.0 - PRECISION) && open > 0.0 => {
                0.5 * (open + violated)
            }
            Some(_) => break,
        };
    }
    let proven = found.proven.unwrap_or(0.0);
    let is_close = violated.is_finite() && proven >= violated * (1.0 - 2.0 * PRECISION);
    found.is_exact = found.proven.is_some() && (is_close || proven >= whole);
    Ok(found)
}
