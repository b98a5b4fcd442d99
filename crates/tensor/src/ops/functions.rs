//! Functions of the mathematics library that are no primitives, composed.

use std::f64::consts::{FRAC_PI_2, LN_2, LOG10_2, PI};

use panoply_ir::DType;

use crate::tensor::Tensor;

impl Tensor {
    /// Hyperbolic sine.
    #[track_caller]
    pub fn sinh(&self) -> Tensor {
        // From exp(|x|/2), whose square overflows where the result does.
        let (half, magnitude) = (self.literal(0.5), self.abs());
        let grown = magnitude.expm1();
        let near = (&grown + &grown / (&grown + self.literal(1.0))) * &half;
        let root = (&magnitude * &half).exp();
        let far = &root * &half * root;
        near.where_(&magnitude.lt(&self.literal(20.0)), &far) * self.sign()
    }

    /// Hyperbolic cosine.
    #[track_caller]
    pub fn cosh(&self) -> Tensor {
        let half = self.literal(0.5);
        let root = (self.abs() * &half).exp();
        &root * &half * &root + &half / root.square()
    }

    /// Arc sine, in -π/2 ..= π/2; NaN beyond -1 ..= 1.
    #[track_caller]
    pub fn asin(&self) -> Tensor {
        let one = self.literal(1.0);
        let root = ((&one - self) * (&one + self)).sqrt();
        (self / (one + root)).atan() * self.literal(2.0)
    }

    /// Arc cosine, in 0 ..= π; NaN beyond -1 ..= 1.
    #[track_caller]
    pub fn acos(&self) -> Tensor {
        let one = self.literal(1.0);
        let steep = ((&one - self) / (one + self)).sqrt();
        steep.atan() * self.literal(2.0)
    }

    /// Inverse hyperbolic sine.
    #[track_caller]
    pub fn asinh(&self) -> Tensor {
        let inverse = self.abs().inverse_hyperbolic(|x| {
            let (one, square) = (x.literal(1.0), x.square());
            (x + &square / ((&square + &one).sqrt() + one)).log1p()
        });
        inverse * self.sign()
    }

    /// Inverse hyperbolic cosine; NaN below 1.
    #[track_caller]
    pub fn acosh(&self) -> Tensor {
        self.inverse_hyperbolic(|x| {
            let above = x - x.literal(1.0);
            (&above + above.sqrt() * (&above + x.literal(2.0)).sqrt()).log1p()
        })
    }

    /// The logarithm of the double where that is as good, elsewhere what `near` makes of numbers whose squares do not overflow.
    #[track_caller]
    fn inverse_hyperbolic(&self, near: fn(&Tensor) -> Tensor) -> Tensor {
        let bound = self.literal(if self.dtype() == DType::F16 { 128.0 } else { 1e9 });
        let far = self.maximum(&self.literal(1.0)).ln() + self.literal(LN_2);
        far.where_(&self.gt(&bound), &near(&self.minimum(&bound)))
    }

    /// Inverse hyperbolic tangent; NaN beyond -1 ..= 1.
    #[track_caller]
    pub fn atanh(&self) -> Tensor {
        (self.log1p() - (-self).log1p()) * self.literal(0.5)
    }

    /// Logarithm to base 10.
    #[track_caller]
    pub fn log10(&self) -> Tensor {
        self.log2() * self.literal(LOG10_2)
    }

    /// Angle of the point (x, self), in -π ..= π; 0 at the origin.
    #[track_caller]
    pub fn atan2(&self, x: &Tensor) -> Tensor {
        let zero = self.literal(0.0);
        let (up, left) = (self.ge(&zero), x.lt(&zero));
        let quarter = |sign: f64| self.literal(sign * FRAC_PI_2);
        let turn = self.literal(PI).where_(&up, &self.literal(-PI));
        let steep = x.abs().lt(&self.abs());
        // The quotient stays within -1 ..= 1.
        let (wide, tall) = ((self / x).atan(), (x / self).atan());
        let upright = quarter(1.0).where_(&up, &quarter(-1.0)) - tall;
        let lying = (&wide + turn).where_(&left, &wide);
        let origin = self.eq(&zero).bitand(&x.eq(&zero));
        zero.where_(&origin, &upright.where_(&steep, &lying))
    }

    /// ln(e^x + e^y), without overflow.
    #[track_caller]
    pub fn logaddexp(&self, other: &Tensor) -> Tensor {
        let top = self.maximum(other);
        let apart = -(self - other).abs();
        // Equal infinities differ by NaN and are their own result.
        top.where_(&self.eq(other).bitand(&self.abs().eq(&self.literal(f64::INFINITY))), &(&top + apart.exp().log1p()))
    }

    /// `self` moved towards `end` by that share of the way.
    #[track_caller]
    pub fn lerp(&self, end: &Tensor, share: f64) -> Tensor {
        self + (end - self) * share
    }

    /// Whether an element is not a number.
    #[track_caller]
    pub fn is_nan(&self) -> Tensor {
        self.ne(self)
    }

    /// Whether an element is neither infinite nor NaN.
    #[track_caller]
    pub fn is_finite(&self) -> Tensor {
        self.abs().lt(&self.literal(f64::INFINITY))
    }

    /// How many elements hold or are not zero, i32 of shape `[]`.
    #[track_caller]
    pub fn count_nonzero(&self) -> Tensor {
        let held = if self.dtype() == DType::Bool { self.clone() } else { self.ne(&self.literal(0.0)) };
        held.cast(DType::I32).sum(..)
    }
}
