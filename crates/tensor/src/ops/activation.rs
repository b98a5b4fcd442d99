//! Activations, composed.

use panoply_ir::Alu;
use panoply_ir::kernel::ReduceOp;

use crate::tensor::Tensor;

impl Tensor {
    /// max(x, 0), with slope 0 at 0; NaN stays.
    #[track_caller]
    pub fn relu(&self) -> Tensor {
        let zero = self.literal(0.0);
        zero.where_self(&Tensor::alu(Alu::Le, &[self, &zero]), self)
    }

    /// x where positive, `slope`·x elsewhere.
    #[track_caller]
    pub fn leaky_relu(&self, negative_slope: f64) -> Tensor {
        let below = Tensor::alu(Alu::Le, &[self, &self.literal(0.0)]);
        (self * negative_slope).where_self(&below, self)
    }

    /// x where positive, exp(x) - 1 elsewhere.
    #[track_caller]
    pub fn elu(&self) -> Tensor {
        Tensor::call("elu", [self], (), |[x], ()| {
            x.in_f32(|x| {
                let (below, falling) = x.falling();
                falling.where_self(&below, x)
            })
        })
    }

    /// Where this is below 0, and exp(x) - 1 there: elsewhere of 0, as a slope of infinity is none even where nothing flows into it.
    #[track_caller]
    fn falling(&self) -> (Tensor, Tensor) {
        let zero = self.literal(0.0);
        let below = Tensor::alu(Alu::Lt, &[self, &zero]);
        let falling = self.where_self(&below, &zero).expm1();
        (below, falling)
    }

    /// 1 / (1 + exp(-x)).
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

    /// x · sigmoid(x), also called swish.
    #[track_caller]
    pub fn silu(&self) -> Tensor {
        Tensor::call("silu", [self], (), |[x], ()| x.in_f32(|x| x * x.sigmoid()))
    }

    /// x · Φ(x) with the exact normal distribution function.
    #[track_caller]
    pub fn gelu(&self) -> Tensor {
        Tensor::call("gelu", [self], (), |[x], ()| {
            x.in_f32(|x| {
                let one = x.literal(1.0);
                x * x.literal(0.5) * ((x * x.literal(std::f64::consts::FRAC_1_SQRT_2)).erf() + one)
            })
        })
    }

    /// ln(1 + exp(x)), without overflow.
    #[track_caller]
    pub fn softplus(&self) -> Tensor {
        let body = |[x]: [&Tensor; 1], (): &()| x.relu() + (-x.abs()).exp().log1p();
        self.call_in_f32("softplus", body, |[x], _, g, ()| [Some(g * x.sigmoid())])
    }

    /// Shares that sum to 1 along an axis: exp(x) over their sum.
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

    /// ln of the softmax, without overflow.
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

    /// Shares that sum to 1 along an axis, larger for smaller elements.
    #[track_caller]
    pub fn softmin(&self, axis: isize) -> Tensor {
        (-self).softmax(axis)
    }

    /// ln(sigmoid(x)), without overflow.
    #[track_caller]
    pub fn logsigmoid(&self) -> Tensor {
        Tensor::call("log sigmoid", [self], (), |[x], ()| -(-x).softplus())
    }

    /// x · Φ(x) with the hyperbolic tangent in place of the error function. [Hendrycks and Gimpel 2016]
    #[track_caller]
    pub fn gelu_tanh(&self) -> Tensor {
        Tensor::call("gelu tanh", [self], (), |[x], ()| {
            x.in_f32(|x| {
                // (1 + tanh(u)) / 2 is sigmoid(2u), which keeps its bits below 0. At the ends it is 0 and 1 in f64 too; beyond them its
                // slope would be 0 times what overflows.
                let near = x.clamp(-32.0, 32.0);
                let inner = &near * (near.square() * x.literal(0.044715) + x.literal(1.0));
                x * (inner * x.literal((8.0 / std::f64::consts::PI).sqrt())).sigmoid()
            })
        })
    }

    /// x · tanh(softplus(x)). [Misra 2019]
    #[track_caller]
    pub fn mish(&self) -> Tensor {
        Tensor::call("mish", [self], (), |[x], ()| x.in_f32(|x| x * x.softplus().tanh()))
    }

    /// [`Tensor::elu`] scaled so that activations keep mean 0 and variance 1. [Klambauer et al. 2017]
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

    /// x limited to 0 ..= 6.
    #[track_caller]
    pub fn relu6(&self) -> Tensor {
        Tensor::call("relu6", [self], (), |[x], ()| {
            let (low, top) = (x.relu(), x.literal(6.0));
            top.where_self(&top.le(&low), &low)
        })
    }

    /// (x + 3) / 6 limited to 0 ..= 1.
    #[track_caller]
    pub fn hardsigmoid(&self) -> Tensor {
        Tensor::call("hard sigmoid", [self], (), |[x], ()| x.in_f32(|x| (x + x.literal(3.0)).relu6() / x.literal(6.0)))
    }

    /// x · hardsigmoid(x). [Howard et al. 2019]
    #[track_caller]
    pub fn hardswish(&self) -> Tensor {
        Tensor::call("hard swish", [self], (), |[x], ()| x.in_f32(|x| x * x.hardsigmoid()))
    }

    /// x / (1 + |x|).
    #[track_caller]
    pub fn softsign(&self) -> Tensor {
        let body = |[x]: [&Tensor; 1], (): &()| x / (x.abs() + x.literal(1.0));
        self.call_in_f32("softsign", body, |[x], _, g, ()| {
            let length = x.abs() + x.literal(1.0);
            [Some(g / &length / length)]
        })
    }

    /// The first half of an axis times the sigmoid of the second. [Dauphin et al. 2017]
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
