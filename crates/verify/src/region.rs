//! Boxes of the search: parts excluded by linear bounds are clipped, the rest is split in two, by an input or by the sign of a ReLU's operand.

use std::sync::Arc;

use crate::backward::Known;
use crate::interval::Interval;
use crate::split::{Duals, Split};
use crate::steps::StepId;

/// Minimum coefficient for choosing a split, as a fraction of the largest one.
const SLOPE_FLOOR: f64 = 0.1;
/// Number of passes over the constraints of a case while clipping.
const SWEEPS: usize = 3;

/// A box with the cases that are not excluded in it.
pub struct Region {
    /// The box.
    pub input: Vec<Interval>,
    /// Indices of the cases.
    pub cases: Vec<usize>,
    /// Fraction of the whole set.
    pub volume: f64,
    /// Width of each input in the whole set.
    pub whole: Arc<[f64]>,
    /// Number of splits that led to this box.
    pub depth: usize,
    /// Bounds from an enclosing box, which hold in this one too.
    pub known: Arc<Known>,
    /// Signs of operands of ReLUs that restrict the box further.
    pub splits: Vec<Split>,
    /// Step of the last split: bounds up to it are those in `known`.
    pub first: StepId,
    /// Slopes and multipliers to start with, for the constraints of all cases in order.
    pub duals: Option<Arc<Duals>>,
}

/// A case that linear bounds do not exclude.
pub struct Open<'r> {
    /// Index of the case.
    pub case: usize,
    /// Part of the box in which it can be satisfied.
    pub input: Vec<Interval>,
    /// Coefficients of the linear bound that is nearest to excluding it.
    pub slopes: &'r [f64],
}

impl<'r> Open<'r> {
    /// Clips a box by the linear bounds of a case's constraints, each given by its minimum over the box and its coefficients. Returns
    /// `None` if the case is excluded in the whole box.
    ///
    /// A constraint is at least `least` + Σ slope·(x - corner), where the corner minimizes it. The case requires it to be at most 0, so no
    /// input is farther from the corner than -`least` / |slope|.
    pub fn of(case: usize, rows: Vec<(f64, &'r [f64])>, region: &[Interval]) -> Option<Open<'r>> {
        let mut input = region.to_vec();
        let nearest = rows.iter().max_by(|(a, _), (b, _)| a.total_cmp(b))?;
        for _ in 0..SWEEPS {
            for (least, row) in &rows {
                let least = raised(*least, row, region, &input);
                if least > 0.0 {
                    return None;
                }
                if !clip(&mut input, least, row) {
                    return None;
                }
            }
        }
        Some(Open { case, input, slopes: nearest.1 })
    }
}

/// Returns the minimum of a linear bound over a part of the box, where `least` is its minimum over the box.
fn raised(least: f64, slopes: &[f64], region: &[Interval], part: &[Interval]) -> f64 {
    let corner = |x: &Interval, slope: f64| if slope > 0.0 { x.lo } else { x.hi };
    let rise = |((slope, old), new): ((&f64, &Interval), &Interval)| {
        let moved = (corner(new, *slope) - corner(old, *slope)).abs().next_down().max(0.0);
        (moved * slope.abs()).next_down().max(0.0)
    };
    slopes.iter().zip(region).zip(part).map(rise).fold(least, |least, rise| (least + rise).next_down())
}

/// Clips a box by one linear bound; returns false if it becomes empty.
fn clip(input: &mut [Interval], least: f64, slopes: &[f64]) -> bool {
    for (x, slope) in input.iter_mut().zip(slopes) {
        let reach = (-least / slope.abs()).next_up();
        #[cfg(test)]
        let reach = if crate::fault::is(crate::fault::Fault::Clip) { 0.8 * reach } else { reach };
        if *slope > 0.0 {
            let hi = (x.lo + reach).next_up();
            x.hi = if hi < x.hi { hi } else { x.hi };
        } else if *slope < 0.0 {
            let lo = (x.hi - reach).next_down();
            x.lo = if lo > x.lo { lo } else { x.lo };
        }
        if x.lo > x.hi {
            return false;
        }
    }
    true
}

impl Region {
    /// Returns the approximate size in memory.
    pub fn bytes(&self) -> usize {
        let known: usize = self.known.iter().map(Vec::len).sum();
        let duals = self.duals.as_ref().map_or(0, |duals| duals.bytes()) + self.splits.len() * size_of::<Split>();
        256 + (known + self.input.len()) * size_of::<Interval>() + self.cases.len() * size_of::<usize>() + duals
    }

    /// Splits the remaining box in two, along the input with the largest effect on the linear bounds. Returns `None` if no input has a
    /// float between its ends.
    pub fn split(&self, left: &[Open<'_>], known: Known) -> Option<Box<[Region; 2]>> {
        let (input, volume) = self.rest(left)?;
        let width = |x: &Interval| x.hi - x.lo;
        // The coefficient measures the effect of a split on the bound. Inputs with small coefficients can still change the sign of ReLUs.
        let slope = |n: usize| left.iter().map(|open| open.slopes[n].abs()).sum::<f64>() * self.whole[n];
        let least = SLOPE_FLOOR * (0..input.len()).map(slope).fold(0.0, f64::max);
        let score = |n: usize| slope(n).max(least).max(f64::MIN_POSITIVE) * (width(&input[n]) / self.whole[n]);
        let middle = |n: usize| input[n].lo + 0.5 * width(&input[n]);
        let inner = |n: &usize| input[*n].lo < middle(*n) && middle(*n) < input[*n].hi;
        let at = (0..input.len()).filter(inner).max_by(|a, b| score(*a).total_cmp(&score(*b)))?;
        let known = Arc::new(known);
        let half = |lo: f64, hi: f64| {
            let mut half = self.child(left, input.clone(), volume, &known);
            half.input[at] = Interval { lo, hi };
            half
        };
        Some(Box::new([half(input[at].lo, middle(at)), half(middle(at), input[at].hi)]))
    }

    /// Splits the remaining box by the sign of the operand of a ReLU. `duals` are those of the constraints of the cases that are left.
    pub fn split_relu(
        &self,
        left: &[Open<'_>],
        known: Known,
        (relu, element): (StepId, usize),
        duals: &Duals,
        rows: &[usize],
    ) -> Option<Box<[Region; 2]>> {
        let (input, volume) = self.rest(left)?;
        let known = Arc::new(known);
        let half = |is_positive: bool| {
            let mut half = self.child(left, input.clone(), volume, &known);
            half.splits.push(Split { relu, element, is_positive });
            half.duals = Some(Arc::new(duals.rows(rows, &half.splits)));
            half.first = relu;
            half
        };
        Some(Box::new([half(true), half(false)]))
    }

    /// Returns the box in which a case is left, and its volume.
    fn rest(&self, left: &[Open<'_>]) -> Option<(Vec<Interval>, f64)> {
        let mut input = left.first()?.input.clone();
        for open in &left[1..] {
            input.iter_mut().zip(&open.input).for_each(|(x, other)| *x = x.hull(*other));
        }
        let width = |x: &Interval| x.hi - x.lo;
        let shrunk = |(new, old): (&Interval, &Interval)| if width(old) > 0.0 { width(new) / width(old) } else { 1.0 };
        let volume = self.volume * input.iter().zip(&self.input).map(shrunk).product::<f64>();
        Some((input, volume))
    }

    /// Returns half of the remaining box.
    fn child(&self, left: &[Open<'_>], input: Vec<Interval>, volume: f64, known: &Arc<Known>) -> Region {
        let cases = left.iter().map(|open| open.case).collect();
        let (whole, known, splits) = (self.whole.clone(), known.clone(), self.splits.clone());
        Region {
            input,
            cases,
            volume: volume / 2.0,
            whole,
            depth: self.depth + 1,
            known,
            splits,
            first: 0,
            duals: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use panoply_tensor::Rng;

    use crate::attack::uniform;

    /// Test with random points: a point that satisfies all constraints stays in the box.
    #[test]
    fn clipping_keeps_every_point_that_satisfies_the_constraints() {
        let mut rng = Rng::seed_from_u64(3);
        let mut number = |scale: f64| (uniform(&mut rng) * 2.0 - 1.0) * scale;
        let (mut clipped, mut excluded, mut kept) = (0, 0, 0);
        for _ in 0..300 {
            let region = [(); 3].map(|()| {
                let (a, b) = (number(2.0), number(2.0));
                Interval { lo: a.min(b), hi: a.max(b) }
            });
            let lines = [(); 2].map(|()| ([(); 3].map(|()| number(1.0)), number(2.0)));
            let value = |(slopes, constant): &([f64; 3], f64), x: &[f64]| {
                constant + slopes.iter().zip(x).map(|(slope, x)| slope * x).sum::<f64>()
            };
            let rows = lines.iter().map(|line| {
                let corner = region.iter().zip(line.0).map(|(x, slope)| if slope > 0.0 { x.lo } else { x.hi });
                // Larger than the rounding error of the sum.
                (value(line, &corner.collect::<Vec<f64>>()) - 1e-12, &line.0[..])
            });
            let open = Open::of(0, rows.collect(), &region);
            clipped += usize::from(open.as_ref().is_some_and(|open| open.input != region));
            excluded += usize::from(open.is_none());
            for _ in 0..200 {
                let x: Vec<f64> = region.iter().map(|x| x.lo + (number(0.5) + 0.5) * (x.hi - x.lo)).collect();
                if lines.iter().all(|line| value(line, &x) <= 0.0) {
                    let open = open.as_ref().expect("a box with such a point is not excluded");
                    assert!(open.input.iter().zip(&x).all(|(range, x)| range.lo <= *x && *x <= range.hi), "{x:?}");
                    kept += 1;
                }
            }
        }
        assert!(clipped > 50 && excluded > 20 && kept > 1000, "{clipped} clipped, {excluded} excluded, {kept} points");
    }
}
