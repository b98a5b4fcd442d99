//! Normalisation, composed.

use crate::tensor::Tensor;

impl Tensor {
    /// Zero mean and unit variance along the last axis, `epsilon` added to the variance. [Ba et al. 2016]
    #[track_caller]
    pub fn layer_norm(&self, epsilon: f64) -> Tensor {
        let centred = self - self.mean_keep(-1);
        let variance = centred.square().mean_keep(-1);
        &centred * (&variance + variance.literal(epsilon)).rsqrt()
    }

    /// Unit mean square along the last axis, `epsilon` added to it. [Zhang and Sennrich 2019]
    #[track_caller]
    pub fn rms_norm(&self, epsilon: f64) -> Tensor {
        let power = self.square().mean_keep(-1);
        self * (&power + power.literal(epsilon)).rsqrt()
    }
}
