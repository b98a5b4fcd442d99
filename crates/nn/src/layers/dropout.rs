//! Dropout. [Srivastava et al. 2014]

use panoply_tensor::{Error, Rng, Tensor};

use crate::layer::{ForwardContext, Layer};
use crate::module::module;

/// Dropout as a tensor method.
pub trait DropoutExt {
    /// In training, sets each element to 0 with this probability and scales the others by 1 / (1 − probability); otherwise the identity.
    #[track_caller]
    fn dropout(&self, probability: f64, pass: &mut ForwardContext<'_>) -> Tensor;
}

impl DropoutExt for Tensor {
    fn dropout(&self, probability: f64, pass: &mut ForwardContext<'_>) -> Tensor {
        if self.check().is_err() {
            return self.clone();
        }
        if !(0.0..1.0).contains(&probability) {
            return Tensor::from_mistake(Error::mistake(format!("dropout: p = {probability} is not in [0, 1)")));
        }
        if probability == 0.0 {
            return self.clone();
        }
        match pass.draw(self, Rng::uniform_like) {
            Some(drawn) => {
                let kept = drawn.ge(&Tensor::scalar(probability as f32));
                (self * (1.0 / (1.0 - probability))).where_self(&kept, &self.zeros_like())
            }
            None => self.clone(),
        }
    }
}

/// Dropout as a layer.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    /// Probability that an element is set to 0 in training.
    pub p: f64,
}

impl Layer for Dropout {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        input.dropout(self.p, pass)
    }
}

module!(Dropout {});
