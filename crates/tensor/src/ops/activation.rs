//! Activations, composed.

use panoply_ir::Alu;

use crate::tensor::Tensor;

impl Tensor {
    /// max(x, 0), with slope 0 at 0; NaN stays.
    #[track_caller]
    pub fn relu(&self) -> Tensor {
        let zero = self.literal(0.0);
        zero.where_(&Tensor::alu(Alu::Le, &[self, &zero]), self)
    }

    /// x where positive, `slope`·x elsewhere.
    #[track_caller]
    pub fn leaky_relu(&self, slope: f64) -> Tensor {
        let below = Tensor::alu(Alu::Le, &[self, &self.literal(0.0)]);
        (self * slope).where_(&below, self)
    }

    /// x where positive, exp(x) - 1 elsewhere.
    #[track_caller]
    pub fn elu(&self) -> Tensor {
        let below = Tensor::alu(Alu::Lt, &[self, &self.literal(0.0)]);
        self.expm1().where_(&below, self)
    }

    /// 1 / (1 + exp(-x)).
    #[track_caller]
    pub fn sigmoid(&self) -> Tensor {
        let one = self.literal(1.0);
        &one / ((-self).exp() + &one)
    }

    /// x · sigmoid(x), also called swish.
    #[track_caller]
    pub fn silu(&self) -> Tensor {
        self * self.sigmoid()
    }

    /// x · Φ(x) with the exact normal distribution function.
    #[track_caller]
    pub fn gelu(&self) -> Tensor {
        let one = self.literal(1.0);
        self * self.literal(0.5) * ((self * self.literal(std::f64::consts::FRAC_1_SQRT_2)).erf() + one)
    }

    /// ln(1 + exp(x)), without overflow.
    #[track_caller]
    pub fn softplus(&self) -> Tensor {
        self.relu() + (-self.abs()).exp().log1p()
    }

    /// Shares that sum to 1 along an axis: exp(x) over their sum.
    #[track_caller]
    pub fn softmax(&self, axis: isize) -> Tensor {
        let top = self.reduce_keep(panoply_ir::kernel::ReduceOp::Max, axis).detach();
        let powers = (self - top).exp();
        let sum = powers.reduce_keep(panoply_ir::kernel::ReduceOp::Sum, axis);
        powers / sum
    }

    /// ln of the softmax, without overflow.
    #[track_caller]
    pub fn log_softmax(&self, axis: isize) -> Tensor {
        let top = self.reduce_keep(panoply_ir::kernel::ReduceOp::Max, axis).detach();
        let centred = self - top;
        let sum = centred.exp().reduce_keep(panoply_ir::kernel::ReduceOp::Sum, axis);
        centred - sum.ln()
    }

    /// Shares that sum to 1 along an axis, larger for smaller elements.
    #[track_caller]
    pub fn softmin(&self, axis: isize) -> Tensor {
        (-self).softmax(axis)
    }

    /// ln(sigmoid(x)), without overflow.
    #[track_caller]
    pub fn log_sigmoid(&self) -> Tensor {
        -(-self).softplus()
    }

    /// x · Φ(x) with the hyperbolic tangent in place of the error function. [Hendrycks and Gimpel 2016]
    #[track_caller]
    pub fn gelu_tanh(&self) -> Tensor {
        let inner = self * (self.square() * self.literal(0.044715) + self.literal(1.0));
        let root = self.literal((2.0 / std::f64::consts::PI).sqrt());
        self * self.literal(0.5) * ((inner * root).tanh() + self.literal(1.0))
    }

    /// x · tanh(softplus(x)). [Misra 2019]
    #[track_caller]
    pub fn mish(&self) -> Tensor {
        self * self.softplus().tanh()
    }

    /// [`Tensor::elu`] scaled so that activations keep mean 0 and variance 1. [Klambauer et al. 2017]
    #[track_caller]
    pub fn selu(&self) -> Tensor {
        let (alpha, scale) = (1.673_263_242_354_377_2, 1.050_700_987_355_480_5);
        let below = Tensor::alu(Alu::Lt, &[self, &self.literal(0.0)]);
        (self.expm1() * self.literal(alpha)).where_(&below, self) * self.literal(scale)
    }

    /// x limited to 0 ..= 6.
    #[track_caller]
    pub fn relu6(&self) -> Tensor {
        let (low, top) = (self.relu(), self.literal(6.0));
        top.where_(&top.le(&low), &low)
    }

    /// (x + 3) / 6 limited to 0 ..= 1.
    #[track_caller]
    pub fn hard_sigmoid(&self) -> Tensor {
        (self + self.literal(3.0)).relu6() / self.literal(6.0)
    }

    /// x · hard_sigmoid(x). [Howard et al. 2019]
    #[track_caller]
    pub fn hard_swish(&self) -> Tensor {
        self * self.hard_sigmoid()
    }

    /// x / (1 + |x|).
    #[track_caller]
    pub fn softsign(&self) -> Tensor {
        self / (self.abs() + self.literal(1.0))
    }

    /// The first half of an axis times the sigmoid of the second. [Dauphin et al. 2017]
    #[track_caller]
    pub fn glu(&self, axis: isize) -> Tensor {
        let half = match self.axis("glu", axis) {
            Ok(place) => self.0.shape.dims()[place] / 2,
            Err(mistake) => return mistake,
        };
        match &self.split(&[half, half], axis)[..] {
            [left, right] => left * right.sigmoid(),
            _ => unreachable!("a split into two parts gives two"),
        }
    }
}
