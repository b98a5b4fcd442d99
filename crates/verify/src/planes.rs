//! Planes below and above products, minima and maxima of two varying values (McCormick, *Computability of Global Solutions to Factorable
//! Nonconvex Programs*, 1976).
//!
//! Slopes can be any numbers. Offsets follow from the corners of the rectangle: a product minus a plane is bilinear, and a maximum minus a
//! plane is convex.

use panoply_ir::Alu;

use crate::interval::Interval;

/// A plane `x`·x + `y`·y + `offset`.
#[derive(Clone, Copy, Debug)]
pub struct Plane {
    /// Slope of the first operand.
    pub x: f64,
    /// Slope of the second operand.
    pub y: f64,
    /// The constant.
    pub offset: f64,
}

/// Returns planes below and above an operation on a rectangle; `None` if there are none.
pub fn planes(op: Alu, x: Interval, y: Interval) -> Option<[Plane; 2]> {
    if !x.is_finite() || !y.is_finite() {
        return None;
    }
    let middle = |x: Interval| 0.5 * (x.lo + x.hi);
    let slopes = match op {
        Alu::Mul => [(middle(y), middle(x)); 2],
        Alu::Max => {
            // max(x, y) = y + max(x - y, 0): above is the line through the ends of the difference's interval.
            let (lo, hi) = (x.lo - y.hi, x.hi - y.lo);
            let upper = if hi > lo { (hi / (hi - lo)).clamp(0.0, 1.0) } else { 0.5 };
            let lower = if middle(x) > middle(y) { 1.0 } else { 0.0 };
            [(lower, 1.0 - lower), (upper, 1.0 - upper)]
        }
        Alu::Min => {
            let (lo, hi) = (x.lo - y.hi, x.hi - y.lo);
            let lower = if hi > lo { (-lo / (hi - lo)).clamp(0.0, 1.0) } else { 0.5 };
            let upper = if middle(x) < middle(y) { 1.0 } else { 0.0 };
            [(lower, 1.0 - lower), (upper, 1.0 - upper)]
        }
        _ => return None,
    };
    let [below, above] = slopes.map(|(x_slope, y_slope)| {
        let mut rest: Option<Interval> = None;
        for (x, y) in [(x.lo, y.lo), (x.lo, y.hi), (x.hi, y.lo), (x.hi, y.hi)] {
            let (x, y) = (Interval::point(x), Interval::point(y));
            let value = Interval::alu(op, &[x, y]).unwrap_or(Interval::ENTIRE);
            let value = value - Interval::point(x_slope) * x - Interval::point(y_slope) * y;
            rest = Some(rest.map_or(value, |rest| rest.hull(value)));
        }
        (x_slope, y_slope, rest.unwrap_or(Interval::ENTIRE))
    });
    let plane = |(x, y, _): (f64, f64, Interval), offset: f64| Plane { x, y, offset };
    // With slopes 0 and 1, or at the other side of the convex function, the corners do not bound it: the operands themselves do.
    let (mut low, mut high) = (below.2.lo, above.2.hi);
    match op {
        Alu::Max => low = 0.0,
        Alu::Min => high = 0.0,
        _ => {}
    }
    #[cfg(test)]
    crate::fault::shift(op, &mut low, &mut high);
    let planes = [plane(below, low), plane(above, high)];
    planes.iter().all(|plane| plane.offset.is_finite()).then_some(planes)
}
