//! Eigenvalues and eigenvectors of a diagonal matrix plus z·zᵀ. The eigenvalues are the roots of 1 + Σ zᵢ² / (dᵢ - λ),
//! one between each two adjacent dᵢ and one after the last. Every root is stored as its distance from the nearest dᵢ,
//! so that differences lose no digits. The eigenvectors are computed from the z for which the roots are exact, and are
//! therefore orthonormal however close the roots are.
//!
//! Source: Gu and Eisenstat, A Stable and Efficient Algorithm for the Rank-One Modification of the Symmetric
//! Eigenproblem, 1994; Li, Solving Secular Equations Stably and Efficiently, LAPACK Working Note 89, 1993.

use std::ops::Range;

use panoply_host::isa::Simd;
use panoply_host::simd::{Real, Task};

use super::Rows;

/// Number of independent accumulators.
const WIDE: usize = 8;
/// Maximum number of iterations per root; three to six are common, and each at least reduces the interval by a constant factor.
const MAX_STEPS: usize = 100;

/// The diagonal, strictly ascending, and the squares of z.
#[derive(Clone, Copy)]
pub struct Secular<'a> {
    pub poles: &'a [f64],
    pub weights: &'a [f64],
}

/// A root, as an origin and the distance from it.
#[derive(Clone, Copy)]
struct Root {
    origin: f64,
    distance: f64,
}

/// Roots.
#[derive(Clone, Copy)]
pub struct Roots<'a> {
    /// Origin of each root.
    pub origins: &'a [f64],
    /// Distance of each root from its origin.
    pub distances: &'a [f64],
}

/// Finds some roots.
pub struct Find<'a> {
    pub of: Secular<'a>,
    pub first: usize,
    /// As in [`Roots`].
    pub origins: &'a mut [f64],
    pub distances: &'a mut [f64],
}

impl Task for Find<'_> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Find { of, first, origins, distances } = self;
        for (at, (origin, distance)) in origins.iter_mut().zip(distances).enumerate() {
            let root = of.root(first + at);
            (*origin, *distance) = (root.origin, root.distance);
        }
    }
}

/// Value and derivative of the sums over the poles up to a point, and over the poles after it.
#[derive(Clone, Copy)]
struct Sides {
    before: [f64; 2],
    behind: [f64; 2],
}

impl Sides {
    fn value(self) -> f64 {
        1.0 + self.before[0] + self.behind[0]
    }
}

impl Secular<'_> {
    /// Returns the sums at a distance from an origin.
    #[inline(always)]
    fn sides(self, root: Root, middle: usize) -> Sides {
        let (before, behind) = self.poles.split_at(middle);
        let (light, heavy) = self.weights.split_at(middle);
        Sides { before: sums(before, light, root), behind: sums(behind, heavy, root) }
    }

    /// Returns the root after a pole.
    #[inline(always)]
    fn root(self, at: usize) -> Root {
        let (left, next) = (self.poles[at], self.poles.get(at + 1));
        // The last root is at most |z|² after the last pole.
        let gap = next.map_or_else(|| self.weights.iter().sum(), |next| next - left);
        let half = gap / 2.0;
        let middle = self.sides(Root { origin: left, distance: half }, at + 1).value();
        let (origin, mut low, mut high) = match next {
            None if middle < 0.0 => (left, half, gap * (1.0 + 1e-14)),
            Some(next) if middle < 0.0 => (*next, -half, 0.0),
            _ => (left, 0.0, half),
        };
        let ends = next.map(|next| [left - origin, next - origin]);
        let mut distance = match ends {
            Some(ends) => start(ends, [self.weights[at], self.weights[at + 1]], middle),
            None => (low + high) / 2.0,
        };
        if !(low < distance && distance < high) {
            distance = (low + high) / 2.0;
        }
        for _ in 0..MAX_STEPS {
            let sides = self.sides(Root { origin, distance }, at + 1);
            let value = sides.value();
            if value < 0.0 {
                low = distance
            } else {
                high = distance
            }
            // Only the rounding error of the sum is left.
            if value.abs() <= f64::EPSILON * (1.0 - sides.before[0] + sides.behind[0]) {
                break;
            }
            let step = match ends {
                Some(ends) => between(sides, ends.map(|end| end - distance)),
                None => behind(sides, -distance),
            };
            let slope = sides.before[1] + sides.behind[1];
            let step = if value * step < 0.0 { step } else { -value / slope };
            let next = distance + step;
            let next = if low < next && next < high { next } else { inside(low, high) };
            let done = (next - distance).abs() <= f64::EPSILON * next.abs();
            distance = next;
            if done {
                break;
            }
        }
        Root { origin, distance }
    }
}

/// Returns a point of an interval: the geometric mean if the ends differ in magnitude, the arithmetic mean otherwise.
#[inline(always)]
fn inside(low: f64, high: f64) -> f64 {
    let (near, far) = if low.abs() < high.abs() { (low, high) } else { (high, low) };
    if near == 0.0 {
        far / 16.0
    } else if near * far > 0.0 && far.abs() > 4.0 * near.abs() {
        (near.abs().sqrt() * far.abs().sqrt()).copysign(far)
    } else {
        (low + high) / 2.0
    }
}

/// Returns Σ w / (d - λ) and its derivative.
#[inline(always)]
fn sums(poles: &[f64], weights: &[f64], root: Root) -> [f64; 2] {
    let (mut values, mut slopes) = ([0.0; WIDE], [0.0; WIDE]);
    let mut add = |poles: &[f64], weights: &[f64]| {
        for (at, (pole, weight)) in poles.iter().zip(weights).enumerate() {
            let inverse = 1.0 / ((pole - root.origin) - root.distance);
            let share = weight * inverse;
            values[at] += share;
            slopes[at] += share * inverse;
        }
    };
    let ((poles, last), (weights, light)) = (poles.as_chunks::<WIDE>(), weights.as_chunks::<WIDE>());
    poles.iter().zip(weights).for_each(|(poles, weights)| add(poles, weights));
    add(last, light);
    [values.iter().sum(), slopes.iter().sum()]
}

/// Returns the initial guess: the root for the two adjacent poles, with the other terms fixed at their value in the middle.
#[inline(always)]
fn start([left, right]: [f64; 2], [light, heavy]: [f64; 2], middle: f64) -> f64 {
    let half = (right - left) / 2.0;
    let rest = middle + light / half - heavy / half;
    // rest·(left - x)·(right - x) + light·(right - x) + heavy·(left - x), where left or right is 0.
    let slope = rest * (left + right) + light + heavy;
    falling(rest, slope, rest * left * right + light * right + heavy * left)
}

/// Returns the step to the root of the function that has the values and derivatives of both sides and one pole on each
/// side, at these distances.
#[inline(always)]
fn between(sides: Sides, [left, right]: [f64; 2]) -> f64 {
    let value = sides.value();
    let rest = value - left * sides.before[1] - right * sides.behind[1];
    let slope = (left + right) * value - left * right * (sides.before[1] + sides.behind[1]);
    falling(rest, slope, left * right * value)
}

/// Returns the same step after the last pole.
#[inline(always)]
fn behind(sides: Sides, left: f64) -> f64 {
    let rest = sides.value() - left * sides.before[1];
    left + sides.before[1] * left * left / rest
}

/// Returns the point where a·x² - b·x + c falls through 0, which exists between two poles.
#[inline(always)]
fn falling(a: f64, b: f64, c: f64) -> f64 {
    let root = (b * b - 4.0 * a * c).abs().sqrt();
    if b <= 0.0 { (b - root) / (2.0 * a) } else { 2.0 * c / (b + root) }
}

/// Computes some elements of the z for which the roots are exact.
pub struct Exact<'a> {
    pub poles: &'a [f64],
    pub roots: Roots<'a>,
    pub first: usize,
    /// The original z; overwritten, keeping the signs.
    pub z: &'a mut [f64],
}

impl Task for Exact<'_> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Exact { poles, roots: Roots { origins, distances }, first, z } = self;
        for (at, z) in z.iter_mut().enumerate() {
            let (at, own) = (first + at, poles[first + at]);
            let mut products = [1.0; WIDE];
            let mut times = |range: Range<usize>| {
                let (poles, origins, distances) = (&poles[range.clone()], &origins[range.clone()], &distances[range]);
                let ((poles, a), (origins, b), (distances, c)) =
                    (poles.as_chunks::<WIDE>(), origins.as_chunks::<WIDE>(), distances.as_chunks::<WIDE>());
                let mut each = |poles: &[f64], origins: &[f64], distances: &[f64]| {
                    for (lane, ((pole, origin), distance)) in poles.iter().zip(origins).zip(distances).enumerate() {
                        products[lane] *= ((own - origin) - distance) / (own - pole);
                    }
                };
                poles
                    .iter()
                    .zip(origins)
                    .zip(distances)
                    .for_each(|((poles, origins), distances)| each(poles, origins, distances));
                each(a, b, c);
            };
            times(0..at);
            times(at + 1..poles.len());
            let square: f64 = products.iter().product::<f64>() * ((own - origins[at]) - distances[at]);
            *z = square.abs().sqrt().copysign(*z);
        }
    }
}

/// Computes some eigenvectors, as rows of length 1.
pub struct Vectors<'a, T> {
    /// The diagonal and z, in the order of a row's elements.
    pub poles: &'a [f64],
    pub z: &'a [f64],
    pub roots: Roots<'a>,
    pub range: Range<usize>,
    pub to: Rows<T>,
}

impl<T: Real> Task for Vectors<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Vectors { poles, z, roots, range, to } = self;
        let mut vector = vec![0.0; poles.len()];
        for at in range {
            let (origin, distance) = (roots.origins[at], roots.distances[at]);
            for ((element, pole), z) in vector.iter_mut().zip(poles).zip(z) {
                *element = z / ((pole - origin) - distance);
            }
            let mut squares = [0.0; WIDE];
            for chunk in vector.chunks(WIDE) {
                squares.iter_mut().zip(chunk).for_each(|(square, element)| *square += element * element);
            }
            let length = squares.iter().sum::<f64>().sqrt();
            // SAFETY: the caller's promise.
            let to = unsafe { std::slice::from_raw_parts_mut(to.at(at, 0), poles.len()) };
            to.iter_mut().zip(&vector).for_each(|(to, element)| *to = T::of(element / length));
        }
    }
}
