//! Activation functions, composed of primitives.

use panoply_ir::Alu;
use panoply_ir::kernel::ReduceOp;

use crate::tensor::Tensor;

impl Tensor {
    /// Returns max(x, 0). The gradient at 0 is 0; NaN is propagated.
    #[track_caller]
    pub fn relu(&self) -> Tensor {
        let zero = self.literal(0.0);
        zero.where_self(&Tensor::alu(Alu::Le, &[self, &zero]), self)
    }

    /// Returns x where positive, `negative_slope`·x elsewhere.
    #[track_caller]
    pub fn leaky_relu(&self, negative_slope: f64) -> Tensor {
        let below = Tensor::alu(Alu::Le, &[self, &self.literal(0.0)]);
        (self * negative_slope).where_self(&below, self)
    }

    /// Returns x where positive, exp(x) - 1 elsewhere.
    #[track_caller]
    pub fn elu(&self) -> Tensor {
        Tensor::call("elu", [self], (), |[x], ()| {
            x.in_f32(|x| {
                let (below, falling) = x.falling();
                falling.where_self(&below, x)
            })
        })
    }

    /// Returns the mask x < 0, and exp(x) - 1 where the mask is true. Elsewhere the exponent is 0: an infinite
    /// derivative would give a NaN gradient even with a cotangent of 0.
    #[track_caller]
    fn falling(&self) -> (Tensor, Tensor) {
        let zero = self.literal(0.0);
        let below = Tensor::alu(Alu::Lt, &[self, &zero]);
        let falling = self.where_self(&below, &zero).expm1();
        (below, falling)
    }

    /// Returns 1 / (1 + exp(-x)).
    #[track_caller]
    pub fn sigmoid(&self) -> Tensor {
        let body = |[x]: [&Tensor; 1], (): &()| {
            x.in_f32(|x| {
                let one = x.literal(1.0);
                &one / ((-x).exp() + &one)
            })
        };
        Tensor::call_with_vjp("sigmoid", [self], (), body, |[_], y, g, ()| [Some(g * (y * (y.literal(1.0) - y)))])
    }

    /// Returns x · sigmoid(x), also called swish.
    #[doc(alias = "swish")]
    #[track_caller]
    pub fn silu(&self) -> Tensor {
        Tensor::call("silu", [self], (), |[x], ()| x.in_f32(|x| x * x.sigmoid()))
    }

    /// Returns x · Φ(x) with the exact normal distribution function Φ.
    #[track_caller]
    pub fn gelu(&self) -> Tensor {
        Tensor::call("gelu", [self], (), |[x], ()| {
            x.in_f32(|x| {
                let one = x.literal(1.0);
                x * x.literal(0.5) * ((x * x.literal(std::f64::consts::FRAC_1_SQRT_2)).erf() + one)
            })
        })
    }

    /// Returns ln(1 + exp(x)), without overflow.
    #[track_caller]
    pub fn softplus(&self) -> Tensor {
        let body = |[x]: [&Tensor; 1], (): &()| x.relu() + (-x.abs()).exp().log1p();
        self.call_in_f32("softplus", body, |[x], _, g, ()| [Some(g * x.sigmoid())])
    }

    /// Returns exp(x) / Σ exp(x) along an axis: probabilities that sum to 1.
    #[track_caller]
    pub fn softmax(&self, axis: isize) -> Tensor {
        if let Err(mistake) = self.axis("softmax", axis) {
            return mistake;
        }
        Tensor::call("softmax", [self], axis, |[x], axis| {
            x.in_f32(|x| {
                let top = x.reduce_keepdim(ReduceOp::Max, *axis).detach();
                let powers = (x - top).exp();
                let sum = powers.reduce_keepdim(ReduceOp::Sum, *axis);
                powers / sum
            })
        })
    }

    /// Returns ln(softmax(x)) along an axis, without overflow.
    #[track_caller]
    pub fn log_softmax(&self, axis: isize) -> Tensor {
        if let Err(mistake) = self.axis("log_softmax", axis) {
            return mistake;
        }
        Tensor::call("log softmax", [self], axis, |[x], axis| {
            x.in_f32(|x| {
                let top = x.reduce_keepdim(ReduceOp::Max, *axis).detach();
                let centered = x - top;
                let sum = centered.exp().reduce_keepdim(ReduceOp::Sum, *axis);
                centered - sum.log()
            })
        })
    }

    /// Returns softmax(-x) along an axis.
    #[track_caller]
    pub fn softmin(&self, axis: isize) -> Tensor {
        (-self).softmax(axis)
    }

    /// Returns ln(sigmoid(x)), without overflow.
    #[track_caller]
    pub fn logsigmoid(&self) -> Tensor {
        Tensor::call("log sigmoid", [self], (), |[x], ()| -(-x).softplus())
    }

    /// Returns the tanh approximation of [`Tensor::gelu`]. [Hendrycks and Gimpel 2016]
    #[doc(alias = "gelu")]
    #[track_caller]
    pub fn gelu_tanh(&self) -> Tensor {
        Tensor::call("gelu tanh", [self], (), |[x], ()| {
            x.in_f32(|x| {
                // (1 + tanh(u)) / 2 is sigmoid(2u), which keeps its precision below 0. At the bounds it is 0 and 1 in
                // f64 too; beyond them the gradient would be 0 times an overflow.
                let near = x.clamp(-32.0, 32.0);
                let inner = &near * (near.square() * x.literal(0.044715) + x.literal(1.0));
                x * (inner * x.literal((8.0 / std::f64::consts::PI).sqrt())).sigmoid()
            })
        })
    }

    /// Returns x · tanh(softplus(x)). [Misra 2019]
    #[track_caller]
    pub fn mish(&self) -> Tensor {
        Tensor::call("mish", [self], (), |[x], ()| x.in_f32(|x| x * x.softplus().tanh()))
    }

    /// Returns [`Tensor::elu`] scaled such that activations keep mean 0 and variance 1. [Klambauer et al. 2017]
    #[track_caller]
    pub fn selu(&self) -> Tensor {
        Tensor::call("selu", [self], (), |[x], ()| {
            let (alpha, scale) = (1.673_263_242_354_377_2, 1.050_700_987_355_480_5);
            x.in_f32(|x| {
                let (below, falling) = x.falling();
                (falling * x.literal(alpha)).where_self(&below, x) * x.literal(scale)
            })
        })
    }

    /// Returns x clamped to 0 ..= 6.
    #[track_caller]
    pub fn relu6(&self) -> Tensor {
        Tensor::call("relu6", [self], (), |[x], ()| {
            let (low, top) = (x.relu(), x.literal(6.0));
            top.where_self(&top.le(&low), &low)
        })
    }

    /// Returns (x + 3) / 6 clamped to 0 ..= 1.
    #[track_caller]
    pub fn hardsigmoid(&self) -> Tensor {
        Tensor::call("hard sigmoid", [self], (), |[x], ()| x.in_f32(|x| (x + x.literal(3.0)).relu6() / x.literal(6.0)))
    }

    /// Returns x · hardsigmoid(x). [Howard et al. 2019]
    #[track_caller]
    pub fn hardswish(&self) -> Tensor {
        Tensor::call("hard swish", [self], (), |[x], ()| x.in_f32(|x| x * x.hardsigmoid()))
    }

    /// Returns x / (1 + |x|).
    #[track_caller]
    pub fn softsign(&self) -> Tensor {
        let body = |[x]: [&Tensor; 1], (): &()| x / (x.abs() + x.literal(1.0));
        self.call_in_f32("softsign", body, |[x], _, g, ()| {
            let length = x.abs() + x.literal(1.0);
            [Some(g / &length / length)]
        })
    }

    /// Returns the first half of an axis times the sigmoid of the second half. [Dauphin et al. 2017]
    #[track_caller]
    pub fn glu(&self, axis: isize) -> Tensor {
        let half = match self.static_axis("glu", axis) {
            Ok(place) => self.0.shape.dims()[place] / 2,
            Err(mistake) => return mistake,
        };
        match &self.split(&[half, half], axis)[..] {
            [left, right] => left * right.sigmoid(),
            _ => unreachable!("a split into two parts gives two"),
        }
    }
}
