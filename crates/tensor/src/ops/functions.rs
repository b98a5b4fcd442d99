//! Math functions composed of primitives.

use std::f64::consts::{FRAC_PI_2, LN_2, LOG10_2, PI};

use panoply_ir::DType;

use super::axes::Axes;
use crate::call::VjpFn;
use crate::tensor::Tensor;

impl Tensor {
    /// Returns the hyperbolic sine.
    #[track_caller]
    pub fn sinh(&self) -> Tensor {
        let body = |[x]: [&Tensor; 1], (): &()| {
            // From exp(|x|/2), whose square overflows exactly where the result does.
            let (half, magnitude) = (x.literal(0.5), x.abs());
            let grown = magnitude.expm1();
            let near = (&grown + &grown / (&grown + x.literal(1.0))) * &half;
            let root = (&magnitude * &half).exp();
            let far = &root * &half * root;
            near.where_self(&magnitude.lt(&x.literal(20.0)), &far) * x.sign()
        };
        self.call_in_f32("sinh", body, |[x], _, g, ()| [Some(g * x.cosh())])
    }

    /// Returns the hyperbolic cosine.
    #[track_caller]
    pub fn cosh(&self) -> Tensor {
        let body = |[x]: [&Tensor; 1], (): &()| {
            let half = x.literal(0.5);
            let root = (x.abs() * &half).exp();
            &root * &half * &root + &half / root.square()
        };
        self.call_in_f32("cosh", body, |[x], _, g, ()| [Some(g * x.sinh())])
    }

    /// Returns the arc sine in -π/2 ..= π/2; NaN outside -1 ..= 1.
    #[doc(alias = "arcsin")]
    #[track_caller]
    pub fn asin(&self) -> Tensor {
        let body = |[x]: [&Tensor; 1], (): &()| (x / (x.literal(1.0) + x.other_leg())).atan() * x.literal(2.0);
        self.call_in_f32("asin", body, |[x], _, g, ()| [Some(g / x.other_leg())])
    }

    /// Returns √(1 - x²).
    #[track_caller]
    fn other_leg(&self) -> Tensor {
        let one = self.literal(1.0);
        ((&one - self) * (&one + self)).sqrt()
    }

    /// Returns the arc cosine in 0 ..= π; NaN outside -1 ..= 1.
    #[doc(alias = "arccos")]
    #[track_caller]
    pub fn acos(&self) -> Tensor {
        let body = |[x]: [&Tensor; 1], (): &()| {
            let one = x.literal(1.0);
            let steep = ((&one - x) / (one + x)).sqrt();
            steep.atan() * x.literal(2.0)
        };
        self.call_in_f32("acos", body, |[x], _, g, ()| [Some(-(g / x.other_leg()))])
    }

    /// Returns the inverse hyperbolic sine.
    #[doc(alias = "arcsinh")]
    #[track_caller]
    pub fn asinh(&self) -> Tensor {
        let body = |[x]: [&Tensor; 1], (): &()| {
            let inverse = x.abs().inverse_hyperbolic(|x| {
                let (one, square) = (x.literal(1.0), x.square());
                (x + &square / ((&square + &one).sqrt() + one)).log1p()
            });
            inverse * x.sign()
        };
        self.call_in_f32("asinh", body, |[x], _, g, ()| [Some(g / x.hypot(&x.literal(1.0)))])
    }

    /// Returns the inverse hyperbolic cosine; NaN below 1.
    #[doc(alias = "arccosh")]
    #[track_caller]
    pub fn acosh(&self) -> Tensor {
        Tensor::call("acosh", [self], (), |[x], ()| {
            x.in_f32(|x| {
                x.inverse_hyperbolic(|x| {
                    let above = x - x.literal(1.0);
                    (&above + above.sqrt() * (&above + x.literal(2.0)).sqrt()).log1p()
                })
            })
        })
    }

    /// Returns ln(2x) where that is accurate, and elsewhere `near`, whose argument is limited so that squares do not
    /// overflow.
    #[track_caller]
    fn inverse_hyperbolic(&self, near: fn(&Tensor) -> Tensor) -> Tensor {
        let bound = self.literal(1e9);
        let far = self.maximum(&self.literal(1.0)).log() + self.literal(LN_2);
        far.where_self(&self.gt(&bound), &near(&self.minimum(&bound)))
    }

    /// Returns the inverse hyperbolic tangent; NaN outside -1 ..= 1.
    #[doc(alias = "arctanh")]
    #[track_caller]
    pub fn atanh(&self) -> Tensor {
        Tensor::call("atanh", [self], (), |[x], ()| x.in_f32(|x| (x.log1p() - (-x).log1p()) * x.literal(0.5)))
    }

    /// Returns the logarithm to base 10.
    #[track_caller]
    pub fn log10(&self) -> Tensor {
        Tensor::call("log10", [self], (), |[x], ()| x.in_f32(|x| x.log2() * x.literal(LOG10_2)))
    }

    /// Returns the angle of the point (x, self) in -π ..= π. Value and gradients are 0 at the origin. A zero x counts
    /// as positive, regardless of its sign.
    #[doc(alias = "arctan2")]
    #[track_caller]
    pub fn atan2(&self, x: &Tensor) -> Tensor {
        self.of_two("atan2", x, angle, |[y, x], _, g, ()| {
            let (zero, one) = (g.literal(0.0), g.literal(1.0));
            let length = y.hypot(x);
            let some = length.gt(&zero);
            let length = length.where_self(&some, &one);
            let [up, along] = [y, x].map(|part| (part / &length * g / &length).where_self(&some, &zero));
            [Some(along), Some(-up)]
        })
    }

    /// Applies a function of two tensors after broadcasting. f16 and bf16 compute value and gradients in f32 and
    /// round once.
    #[track_caller]
    fn of_two(
        &self,
        name: &'static str,
        other: &Tensor,
        body: fn([&Tensor; 2], &()) -> Tensor,
        gradient: VjpFn<(), 2>,
    ) -> Tensor {
        match self.broadcast_with(other) {
            Ok(both) => {
                let [x, y] = both.map(|tensor| tensor.widened());
                Tensor::call_with_vjp(name, [&x, &y], (), body, gradient).cast(self.dtype())
            }
            Err(mistake) => mistake,
        }
    }

    /// Returns ln(e^x + e^y), without overflow.
    #[track_caller]
    pub fn logaddexp(&self, other: &Tensor) -> Tensor {
        // The difference of equal infinities is 0 here.
        fn ahead(x: &Tensor, y: &Tensor) -> Tensor {
            x.literal(0.0).where_self(&x.eq(y), &(x - y))
        }
        let body = |[x, y]: [&Tensor; 2], (): &()| x.maximum(y) + (-ahead(x, y).abs()).exp().log1p();
        self.of_two("logaddexp", other, body, |[x, y], _, g, ()| {
            [Some(g * ahead(x, y).sigmoid()), Some(g * ahead(y, x).sigmoid())]
        })
    }

    /// Returns `self + weight · (end - self)`. f16 and bf16 compute in f32 and round once.
    #[track_caller]
    pub fn lerp(&self, end: &Tensor, weight: f64) -> Tensor {
        self.in_single_with(end, |x, end| x + (end - x) * weight)
    }

    /// Returns √(x² + y²) without overflow of the squares. The gradients are 0 where both are 0. The result is
    /// infinite if one is infinite, even if the other is NaN.
    #[track_caller]
    pub fn hypot(&self, other: &Tensor) -> Tensor {
        self.of_two("hypot", other, length, |[x, y], _, g, ()| {
            let (zero, one, infinite) = (g.literal(0.0), g.literal(1.0), g.literal(f64::INFINITY));
            let long = x.abs().maximum(&y.abs());
            let nothing = long.eq(&zero);
            let scale = one.where_self(&nothing.bitwise_or(&long.eq(&infinite)), &long);
            let [x, y] = [x, y].map(|part| part / &scale);
            let length = one.where_self(&nothing, &(x.square() + y.square())).sqrt();
            [x, y].map(|part| Some(g * (part / &length)))
        })
    }

    /// Returns the inverse of [`Tensor::erf`]; infinite at ±1, NaN beyond. [Giles, Approximating the erfinv Function,
    /// 2011; for f64 followed by two Newton steps]
    #[track_caller]
    pub fn erfinv(&self) -> Tensor {
        const NEAR: [f64; 9] = [
            2.81022636e-08,
            3.43273939e-07,
            -3.5233877e-06,
            -4.39150654e-06,
            0.00021858087,
            -0.00125372503,
            -0.00417768164,
            0.246640727,
            1.50140941,
        ];
        const FAR: [f64; 9] = [
            -0.000200214257,
            0.000100950558,
            0.00134934322,
            -0.00367342844,
            0.00573950773,
            -0.0076224613,
            0.00943887047,
            1.00167406,
            2.83297682,
        ];
        fn steep(y: &Tensor) -> Tensor {
            y.square().exp() * y.literal(PI.sqrt() / 2.0)
        }
        let body = |[x]: [&Tensor; 1], (): &()| {
            let number = |value: f64| x.literal(value);
            let polynomial = |w: &Tensor, factors: [f64; 9]| {
                factors.into_iter().map(number).reduce(|sum, factor| sum * w + factor).expect("there are factors")
            };
            let w = -((number(1.0) - x) * (number(1.0) + x)).log();
            let far = polynomial(&(w.sqrt() - number(3.0)), FAR);
            let mut y = x * polynomial(&(&w - number(2.5)), NEAR).where_self(&w.lt(&number(5.0)), &far);
            if x.dtype() == DType::F64 {
                (0..2).for_each(|_| y = &y - (y.erf() - x) * steep(&y));
            }
            (x * number(f64::INFINITY)).where_self(&x.abs().eq(&number(1.0)), &y)
        };
        self.call_in_f32("erfinv", body, |[_], y, g, ()| [Some(g * steep(y))])
    }

    /// Returns ln|Γ(x)|; infinite at 0, -1, -2 …, where the gradient is NaN, as at infinity. [Taylor series around 1
    /// and 2, where it is 0; elsewhere Lanczos 1964, with g = 7 and nine terms]
    #[track_caller]
    pub fn lgamma(&self) -> Tensor {
        Tensor::call("lgamma", [self], (), |[x], ()| x.in_f32(log_gamma))
    }

    /// Returns true where an element is NaN.
    #[doc(alias = "isnan")]
    #[track_caller]
    pub fn is_nan(&self) -> Tensor {
        self.ne(self)
    }

    /// Returns true where an element is infinite. Integers and bools never are.
    #[doc(alias = "isinf")]
    #[track_caller]
    pub fn is_inf(&self) -> Tensor {
        if self.dtype().is_float() { self.abs().eq(&self.literal(f64::INFINITY)) } else { self.ne(self) }
    }

    /// Returns true where an element is neither infinite nor NaN. Integers and bools are always finite.
    #[doc(alias = "isfinite")]
    #[track_caller]
    pub fn is_finite(&self) -> Tensor {
        if self.dtype().is_float() { self.abs().lt(&self.literal(f64::INFINITY)) } else { self.eq(self) }
    }

    /// Returns the number of elements over axes that are true or nonzero, as i32. The number of elements must fit in an
    /// i32.
    #[track_caller]
    pub fn count_nonzero(&self, axes: impl Into<Axes>) -> Tensor {
        if let Err(mistake) = self.counted("count_nonzero") {
            return mistake;
        }
        self.held().sum(axes)
    }
}

/// Returns the length of vectors (x, y).
fn length([x, y]: [&Tensor; 2], (): &()) -> Tensor {
    let (x, y) = (x.abs(), y.abs());
    let (long, short) = (x.maximum(&y), x.minimum(&y));
    let (zero, one, infinite) = (x.literal(0.0), x.literal(1.0), x.literal(f64::INFINITY));
    let some = long.gt(&zero);
    let ratio = short / long.where_self(&some, &one);
    let length = (&long * (ratio.square() + one).sqrt()).where_self(&some, &long);
    infinite.where_self(&x.eq(&infinite).bitwise_or(&y.eq(&infinite)), &length)
}

/// Returns the angle of points (x, y).
fn angle([y, x]: [&Tensor; 2], (): &()) -> Tensor {
    let (zero, one) = (y.literal(0.0), y.literal(1.0));
    // The sign of a zero is that of its reciprocal.
    let up = y.gt(&zero).bitwise_or(&y.eq(&zero).bitwise_and(&(&one / y).gt(&zero)));
    let left = x.lt(&zero);
    let quarter = |sign: f64| y.literal(sign * FRAC_PI_2);
    let turn = y.literal(PI).where_self(&up, &y.literal(-PI));
    // If both are infinite only the signs matter.
    let endless = |part: &Tensor| part.abs().eq(&y.literal(f64::INFINITY));
    let both = endless(y).bitwise_and(&endless(x));
    let [y, x] = [y, x].map(|part| part.sign().where_self(&both, part));
    let steep = x.abs().lt(&y.abs());
    // The quotient stays within -1 ..= 1.
    let (wide, tall) = ((&y / &x).atan(), (&x / &y).atan());
    let upright = quarter(1.0).where_self(&up, &quarter(-1.0)) - tall;
    let lying = (&wide + turn).where_self(&left, &wide);
    let origin = y.eq(&zero).bitwise_and(&x.eq(&zero));
    zero.where_self(&origin, &upright.where_self(&steep, &lying))
}

/// Returns ln Γ(2 + z) for |z| ≤ 1/2: z times 1 - γ plus the sum of (-1)^k (ζ(k) - 1) z^k / k from k = 2.
fn log_gamma_from_two(z: &Tensor) -> Tensor {
    const TERMS: [f64; 27] = [
        0.42278433509846713,
        0.3224670334241132,
        -0.0673523010531981,
        0.020580808427784546,
        -0.007385551028673986,
        0.0028905103307415234,
        -0.001192753911703261,
        0.0005096695247430425,
        -0.00022315475845357939,
        9.945751278180853e-05,
        -4.492623673813314e-05,
        2.050721277567069e-05,
        -9.439488275268397e-06,
        4.374866789907488e-06,
        -2.039215753801366e-06,
        9.55141213040742e-07,
        -4.492469198764566e-07,
        2.1207184805554665e-07,
        -1.0043224823968099e-07,
        4.7698101693639804e-08,
        -2.2711094608943164e-08,
        1.0838659214896955e-08,
        -5.183475041970047e-09,
        2.4836745438024785e-09,
        -1.1921401405860912e-09,
        5.731367241678862e-10,
        -2.7595228851242334e-10,
    ];
    // Each term is at most a quarter of the previous one.
    let terms = if z.dtype() == DType::F64 { &TERMS[..] } else { &TERMS[..14] };
    let sum = terms.iter().rev().map(|term| z.literal(*term)).reduce(|sum, term| sum * z + term);
    z * sum.expect("there are terms")
}

/// Computes [`Tensor::lgamma`] in a precision above f16 and bf16.
fn log_gamma(x: &Tensor) -> Tensor {
    const TERMS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let number = |value: f64| x.literal(value);
    let (half, one, infinite) = (number(0.5), number(1.0), number(f64::INFINITY));
    // Below 1/2 by reflection: Γ(x) Γ(1 - x) = π / sin(πx).
    let mirrored = x.lt(&half);
    let z = (&one - x).where_self(&mirrored, x) - &one;
    let series = (1..9).map(|n| number(TERMS[n]) / (&z + number(n as f64)));
    let series = series.fold(number(TERMS[0]), |sum, term| sum + term);
    let t = &z + number(7.5);
    // (z + 1/2) ln t - t with t = z + 1/2 + 7, arranged such that it overflows no sooner than the result.
    let right = (&z + &half) * (t.log() - &one) + series.log() + number(0.5 * (2.0 * PI).ln() - 7.0);
    let endless = z.eq(&infinite);
    let right = infinite.where_self(&endless, &right);
    // Between 1/2 and 5/2 the Lanczos terms cancel. For a reflected number z is -x, which is exact.
    let z = (-x).where_self(&mirrored, &(x - &one));
    let (near, near_two) = (z.lt(&number(1.5)), z.ge(&half));
    let apart = (&z - &one).where_self(&near_two, &z).where_self(&near, &number(0.0));
    let series = log_gamma_from_two(&apart);
    let right = (&series - number(0.0).where_self(&near_two, &apart.log1p())).where_self(&near, &right);
    // The sine of the remainder after whole turns; where nothing is reflected, of a number with a finite derivative.
    let left = (x - x.round()).where_self(&mirrored, &half);
    // Poles stay infinite where the reflected value is infinite too.
    let most = number(if x.dtype() == DType::F64 { f64::MAX } else { f64::from(f32::MAX) });
    // The sine of a tiny number is π times it, which subnormals cannot represent accurately.
    let tiny = left.abs().lt(&number(1e-9));
    let sine = left.where_self(&tiny, &(&left * number(PI)).sin()).abs();
    let left = number(0.0).where_self(&tiny, &number(PI.ln())) - sine.log() - right.minimum(&most);
    infinite.where_self(&endless, &left.where_self(&mirrored, &right))
}
