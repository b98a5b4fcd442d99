//! Losses, composed; each is the mean over the batch, of shape `[]`.

use panoply_ir::{Alu, Error};

use crate::tensor::Tensor;

impl Tensor {
    /// Mean of -ln softmax(self) at the right class. Logits `[batch, classes]`, classes `[batch]` as integers.
    #[track_caller]
    pub fn cross_entropy(&self, classes: &Tensor) -> Tensor {
        if self.is_mistake() || classes.is_mistake() {
            return if self.is_mistake() { self.clone() } else { classes.clone() };
        }
        let (logits, labels) = (self.0.shape.dims(), classes.0.shape.dims());
        if logits.len() != 2 || labels != &logits[..1] || !classes.dtype().is_int() {
            let message = "cross_entropy: needs logits [batch, classes] and integer classes [batch]";
            return Tensor::mistake(Error::mistake(message).note(format!("left {self:?}, right {classes:?}")));
        }
        let right = classes.one_hot(logits[1], self.dtype());
        let batch = self.literal(logits[0] as f64);
        -((self.log_softmax(-1) * right).sum(..) / batch)
    }

    /// Mean squared difference.
    #[track_caller]
    pub fn mse(&self, target: &Tensor) -> Tensor {
        (self - target).square().mean(..)
    }

    /// Mean absolute difference.
    #[track_caller]
    pub fn l1(&self, target: &Tensor) -> Tensor {
        (self - target).abs().mean(..)
    }

    /// Squared within `delta` of the target and linear beyond, smoothly joined. [Huber 1964]
    #[track_caller]
    pub fn huber(&self, target: &Tensor, delta: f64) -> Tensor {
        let distance = (self - target).abs();
        let delta = distance.slot(delta);
        let near = distance.square() * distance.literal(0.5);
        let far = &delta * (&distance - &delta * distance.literal(0.5));
        near.where_(&Tensor::alu(Alu::Le, &[&distance, &delta]), &far).mean(..)
    }

    /// Mean binary cross-entropy of sigmoid(self) against targets in 0 ..= 1, without overflow.
    #[track_caller]
    pub fn bce_with_logits(&self, target: &Tensor) -> Tensor {
        (self.softplus() - self * target).mean(..)
    }
}
