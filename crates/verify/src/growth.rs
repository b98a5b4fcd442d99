//! Derivatives of functions of an exponential, such as sigmoid and softplus.
//!
//! The derivative of 1/(1 + e) with e = exp(-x) is e/(1 + e)². Interval arithmetic, which bounds e once above and once below the line, loses as
//! much as e varies in a cell. With y = 1 + e it is a quadratic function of the value f = 1/y alone, f·(1 - f), whose range is known exactly.

use crate::interval::Interval;

/// A value y whose derivative is `rate`·(y - `shift`), such as `shift` + c·exp(g) with the derivative `rate` of g.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    rate: Interval,
    shift: Interval,
}

impl Growth {
    /// Of exp(g), where g has this derivative.
    pub fn exponential(slope: Interval) -> Growth {
        Growth { rate: slope, shift: Interval::point(0.0) }
    }

    /// Of -y.
    pub fn negated(self) -> Growth {
        Growth { shift: -self.shift, ..self }
    }

    /// Of y + c with a constant c.
    pub fn plus(self, constant: Interval) -> Growth {
        Growth { shift: self.shift + constant, ..self }
    }

    /// Of y·c with a constant c.
    pub fn times(self, constant: Interval) -> Growth {
        Growth { shift: self.shift * constant, ..self }
    }

    /// Returns the derivatives of f = c/y with a constant c, where `values` contains f: -`rate`·(f - `shift`/c·f²).
    pub fn of_quotient(self, constant: Interval, values: Interval) -> Interval {
        let number = Interval::point;
        let curvature = self.shift * constant.recip();
        let at = |f: f64| number(f) - curvature * number(f) * number(f);
        let ends = at(values.lo).hull(at(values.hi));
        // The vertex of the parabola, and its value there.
        let vertex = (number(2.0) * curvature).recip();
        let is_outside = vertex.is_finite() && (vertex.hi < values.lo || vertex.lo > values.hi);
        let range = match () {
            () if is_outside || self.shift == number(0.0) => ends,
            () if vertex.is_finite() => ends.hull((number(4.0) * curvature).recip()),
            () => Interval::ENTIRE,
        };
        -(self.rate * range)
    }

    /// Returns the derivatives of ln(y + c), where `values` contains y: `rate`·(1 - (`shift` + c)/(y + c)).
    pub fn of_log(self, constant: f64, values: Interval) -> Interval {
        let (one, constant) = (Interval::point(1.0), Interval::point(constant));
        self.rate * (one - (self.shift + constant) * (values + constant).recip())
    }
}

/// Returns the numbers that two enclosures of the same number have in common.
pub fn common(a: Interval, b: Interval) -> Interval {
    // A comparison with NaN is false.
    let lo = if b.lo > a.lo { b.lo } else { a.lo };
    let hi = if b.hi < a.hi { b.hi } else { a.hi };
    if lo <= hi { Interval { lo, hi } } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The derivatives of c/(s + k·exp(r·x)) and of ln(s + k·exp(r·x) + c) at points of a cell are in the bounds, which are close to their range.
    #[test]
    fn derivatives_are_enclosed() {
        let mut state = 1u64;
        let mut draw = |lo: f64, hi: f64| {
            // Constants of Knuth's MMIX generator.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            lo + (hi - lo) * (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut excess = 0.0f64;
        for _ in 0..20_000 {
            let (s, k, r, c) = (draw(-2.0, 2.0), draw(0.1, 2.0), draw(-2.0, 2.0), draw(-3.0, 3.0));
            let (lo, width) = (draw(-3.0, 3.0), draw(1e-3, 0.5));
            let exp = |x: f64| k * (r * x).exp();
            let y = Interval::new(exp(lo), exp(lo + width)).widened(1e-12) + Interval::point(s);
            if y.lo < 0.1 && y.hi > -0.1 {
                continue;
            }
            let growth = Growth::exponential(Interval::point(r)).times(Interval::point(k)).plus(Interval::point(s));
            let values = (Interval::point(c) * y.recip()).widened(1e-12);
            let of_quotient = growth.of_quotient(Interval::point(c), values);
            let of_log = (y.lo + 2.5 > 0.1).then(|| growth.of_log(2.5, y));
            let mut found = Interval { lo: f64::INFINITY, hi: f64::NEG_INFINITY };
            for at in 0..=16 {
                let x = lo + width * f64::from(at) / 16.0;
                let slope = -c * r * exp(x) / (s + exp(x)).powi(2);
                let near = 1e-9 * (1.0 + slope.abs());
                assert!(of_quotient.widened(near).contains(slope), "{slope} is not in {of_quotient:?}");
                found = Interval { lo: found.lo.min(slope), hi: found.hi.max(slope) };
                if let Some(of_log) = of_log {
                    let slope = r * exp(x) / (s + exp(x) + 2.5);
                    assert!(of_log.widened(1e-9).contains(slope), "{slope} is not in {of_log:?}");
                }
            }
            // Between the points there are a little more.
            excess = excess.max((of_quotient.hi - of_quotient.lo) - 1.1 * (found.hi - found.lo) - 1e-6);
        }
        assert!(excess < 1e-3, "{excess}");
    }

    #[test]
    fn bounds_without_a_vertex_are_unknown() {
        // The constant can be 0, so that the quotient of the two is anything.
        let growth = Growth::exponential(Interval::point(1.0)).plus(Interval::point(1.0));
        let slope = growth.of_quotient(Interval { lo: -1.0, hi: 1.0 }, Interval { lo: 0.1, hi: 0.2 });
        assert!(!slope.is_finite(), "{slope:?}");
        assert_eq!(common(Interval::ENTIRE, Interval { lo: 1.0, hi: 2.0 }), Interval { lo: 1.0, hi: 2.0 });
        assert_eq!(common(Interval { lo: 1.0, hi: 3.0 }, Interval { lo: 2.0, hi: 9.0 }), Interval { lo: 2.0, hi: 3.0 });
    }
}
