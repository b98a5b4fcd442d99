//! Activations, composed.

use panoply_ir::Alu;

use crate::tensor::Tensor;

impl Tensor {
    /// max(x, 0); NaN stays.
    #[track_caller]
    pub fn relu(&self) -> Tensor {
        let zero = self.literal(0.0);
        zero.where_(&Tensor::alu(Alu::Lt, &[self, &zero]), self)
    }

    /// x where positive, `slope`·x elsewhere.
    #[track_caller]
    pub fn leaky_relu(&self, slope: f64) -> Tensor {
        let below = Tensor::alu(Alu::Lt, &[self, &self.literal(0.0)]);
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
}
