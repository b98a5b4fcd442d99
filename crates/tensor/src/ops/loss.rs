//! Loss functions: the mean over the batch, of shape `[]`. f16 and bf16 compute in f32, the mean included, and round
//! once.

use panoply_ir::{Alu, DType, Error, Scalar};

use crate::tensor::Tensor;

/// Options of [`Tensor::cross_entropy_with`].
#[derive(Clone, Copy, Debug, Default)]
pub struct CrossEntropyOptions<'a> {
    /// Fraction of the target that is spread evenly over all classes. [Szegedy et al. 2016]
    pub label_smoothing: f64,
    /// Class whose examples are ignored.
    pub ignore_index: Option<i64>,
    /// Weight of each class, `[classes]`.
    pub weight: Option<&'a Tensor>,
}

impl Tensor {
    /// Returns the mean of -ln softmax(self) at the target class. Logits are `[batch, classes]`, classes `[batch]`
    /// integers; a class out of range gives NaN.
    #[track_caller]
    pub fn cross_entropy(&self, classes: &Tensor) -> Tensor {
        if let Some(mistake) = [self, classes].into_iter().find(|operand| operand.is_mistake()) {
            return mistake.clone();
        }
        let (logits, labels) = (self.0.shape.dims(), classes.0.shape.dims());
        if logits.len() != 2 || labels != &logits[..1] || !classes.dtype().is_int() {
            let message = "cross_entropy: needs logits [batch, classes] and integer classes [batch]";
            return Tensor::mistake(Error::mistake(message).note(format!("left {self:?}, right {classes:?}")));
        }
        Tensor::call("cross entropy", [self, classes], (), |[logits, classes], ()| {
            logits.in_f32(|logits| logits.log_softmax(-1).nll_loss(classes))
        })
    }

    /// Returns the mean cross-entropy of logits `[batch, classes]` for integer classes `[batch]`, or for
    /// probabilities `[batch, classes]`, which are not checked to sum to 1. With `weight`, integer classes give the
    /// weighted mean, as in PyTorch.
    #[doc(alias = "cross_entropy")]
    #[track_caller]
    pub fn cross_entropy_with(&self, target: &Tensor, options: &CrossEntropyOptions<'_>) -> Tensor {
        let operands = [Some(self), Some(target), options.weight];
        if let Some(mistake) = operands.into_iter().flatten().find(|operand| operand.is_mistake()) {
            return mistake.clone();
        }
        let (logits, wanted) = (self.0.shape.dims(), target.0.shape.dims());
        let by_class = target.dtype().is_int() && logits.len() == 2 && wanted == &logits[..1];
        let by_share = target.dtype() == self.dtype() && logits.len() == 2 && wanted == logits;
        let fits = by_class || (by_share && options.ignore_index.is_none());
        if !fits {
            let message = "cross_entropy: needs logits [batch, classes] and integer classes [batch] or probabilities like the logits";
            return Tensor::mistake(Error::mistake(message).note(format!("left {self:?}, right {target:?}")));
        }
        if let Some(weights) = options.weight.filter(|weights| weights.dtype() != self.dtype()) {
            let message = format!("cross_entropy: weights {weights:?} do not have the element type of {self:?}");
            return Tensor::mistake(Error::mistake(message));
        }
        if matches!(self.dtype(), DType::F16 | DType::BF16) {
            // Sums over a batch would overflow before they are divided.
            let single = |x: &Tensor| if x.dtype() == self.dtype() { x.cast(DType::F32) } else { x.clone() };
            let weights = options.weight.map(single);
            let options = CrossEntropyOptions { weight: weights.as_ref(), ..*options };
            return single(self).cross_entropy_with(&single(target), &options).cast(self.dtype());
        }
        let classes = logits[1];
        let hot = if by_class { target.one_hot(classes, self.dtype()) } else { target.clone() };
        let kept = options.ignore_index.map(|class| target.other_than(class));
        let spread = self.scalar_like(options.label_smoothing);
        let smooth = &hot * (self.literal(1.0) - &spread) + &spread / self.count(&[1]);
        let weighted = |shares: Tensor| match options.weight {
            Some(weights) => shares * weights,
            None => shares,
        };
        let (logs, zero) = (self.log_softmax(-1), self.literal(0.0));
        // Not a product with zeros: the log-probability of a logit of -∞ is -∞.
        let logs = if by_class { logs.where_self(&smooth.ne(&zero), &zero) } else { logs };
        let each = -(logs * weighted(smooth)).sum(-1);
        let each = if by_class { each.where_self(&self.knows(target), &self.literal(f64::NAN)) } else { each };
        let (total, count) = match (&kept, by_class) {
            (Some(kept), _) => {
                (each.where_self(kept, &zero).sum(..), weighted(hot).sum(-1).where_self(kept, &zero).sum(..))
            }
            (None, true) if options.weight.is_some() => (each.sum(..), weighted(hot).sum(..)),
            (None, _) => (each.sum(..), self.count(&[0])),
        };
        total / count
    }

    /// Returns the mean of -self at the target class: `[batch, classes]` log-probabilities, classes `[batch]`
    /// integers; a class out of range gives NaN.
    #[track_caller]
    pub fn nll_loss(&self, classes: &Tensor) -> Tensor {
        if let Some(mistake) = [self, classes].into_iter().find(|operand| operand.is_mistake()) {
            return mistake.clone();
        }
        let (logs, labels) = (self.0.shape.dims(), classes.0.shape.dims());
        if logs.len() != 2 || labels != &logs[..1] || !classes.dtype().is_int() {
            let message = "nll_loss: needs log-probabilities [batch, classes] and integer classes [batch]";
            return Tensor::mistake(Error::mistake(message).note(format!("left {self:?}, right {classes:?}")));
        }
        if let Err(mistake) = self.has_fractions("nll_loss") {
            return mistake;
        }
        let hot = classes.one_hot(logs[1], DType::Bool);
        self.in_f32(|x| {
            // Not a product with zeros: the logarithm of a probability of 0 is -∞.
            let beside = x.literal(0.0).where_self(&x.knows(classes), &x.literal(f64::NAN)).unsqueeze(1);
            -(x.where_self(&hot, &beside).sum(..) / x.count(&[0]))
        })
    }

    /// Returns true where these integers differ from a class: everywhere if their type cannot represent it.
    #[track_caller]
    fn other_than(&self, class: i64) -> Tensor {
        let number = Scalar::from_i128(self.dtype(), class.into());
        if number.to_i128() == i128::from(class) {
            return self.ne(&Tensor::constant(number));
        }
        self.eq(self)
    }

    /// Returns true where these integers are classes of `[batch, classes]`.
    #[track_caller]
    fn knows(&self, classes: &Tensor) -> Tensor {
        // In a type that can represent the number of classes.
        let wide = if classes.dtype().bytes() == 8 { DType::I64 } else { DType::I32 };
        let (classes, count) = (classes.cast(wide), self.count_in(&[1], wide));
        classes.ge(&classes.literal(0.0)).bitwise_and(&classes.lt(&count))
    }

    /// Returns the mean squared difference.
    #[track_caller]
    pub fn mse_loss(&self, target: &Tensor) -> Tensor {
        self.in_single_with(target, |x, target| (x - target).square().mean(..))
    }

    /// Returns the mean absolute difference.
    #[track_caller]
    pub fn l1_loss(&self, target: &Tensor) -> Tensor {
        self.in_single_with(target, |x, target| (x - target).abs().mean(..))
    }

    /// Returns the mean Huber loss: squared within `delta` of the target and linear beyond. [Huber 1964]
    #[track_caller]
    pub fn huber_loss(&self, target: &Tensor, delta: f64) -> Tensor {
        let operands = [self, target];
        if !operands.into_iter().any(Tensor::is_mistake) && (delta.is_nan() || delta <= 0.0) {
            return Tensor::mistake(Error::mistake(format!("huber_loss: delta is {delta}, but must be above 0")));
        }
        self.in_single_with(target, |x, target| {
            let apart = x - target;
            let distance = apart.abs();
            let delta = distance.scalar_like(delta);
            let near = apart.square() * distance.literal(0.5);
            let far = &delta * (&distance - &delta * distance.literal(0.5));
            near.where_self(&Tensor::alu(Alu::Lt, &[&distance, &delta]), &far).mean(..)
        })
    }

    /// Returns the mean binary cross-entropy of sigmoid(self) for targets in 0 ..= 1, without overflow and exact in
    /// both tails. [Evaluation order of TensorFlow's sigmoid_cross_entropy_with_logits]
    #[track_caller]
    pub fn binary_cross_entropy_with_logits(&self, target: &Tensor) -> Tensor {
        self.in_single_with(target, |x, target| {
            let [x, target] = match x.broadcast_with(target) {
                Ok(both) => both,
                Err(mistake) => return mistake,
            };
            Tensor::call_with_vjp(
                "binary_cross_entropy_with_logits",
                [&x, &target],
                (),
                |[x, target], ()| x.relu() - x * target + (-x.abs()).exp().log1p(),
                // Not sigmoid(x) - target, which cancels where both are near 1.
                |[x, target], _, g, ()| {
                    let gradient = (target.literal(1.0) - target) * x.sigmoid() - target * (-x).sigmoid();
                    [Some(g * gradient), Some(-(g * x))]
                },
            )
            .mean(..)
        })
    }

    /// Returns the mean binary cross-entropy of probabilities in 0 ..= 1 for targets in 0 ..= 1. Logarithms are
    /// clamped at -100, as in PyTorch.
    #[track_caller]
    pub fn binary_cross_entropy(&self, target: &Tensor) -> Tensor {
        let [shares, target] = match self.broadcast_with(target) {
            Ok(both) => both.map(|x| x.widened()),
            Err(mistake) => return mistake,
        };
        fn logarithms(x: &Tensor) -> [Tensor; 2] {
            let floor = x.literal(-100.0);
            [x.log().maximum(&floor), (-x).log1p().maximum(&floor)]
        }
        Tensor::call_with_vjp(
            "binary_cross_entropy",
            [&shares, &target],
            (),
            |[x, target], ()| {
                let [yes, no] = logarithms(x);
                -(target * yes + (target.literal(1.0) - target) * no)
            },
            |[x, target], _, g, ()| {
                let [yes, no] = logarithms(x);
                let steep = ((x.literal(1.0) - x) * x).maximum(&x.literal(1e-12));
                [Some(g * (x - target) / steep), Some(g * (no - yes))]
            },
        )
        .mean(..)
        .cast(self.dtype())
    }

    /// Returns the Kullback-Leibler divergence of the distribution `target` from the one whose log-probabilities are
    /// `self`: the sum of target · (ln target - self) over the last axis, and its mean over the others. [Kullback and
    /// Leibler 1951]
    #[track_caller]
    pub fn kl_div(&self, target: &Tensor) -> Tensor {
        self.in_single_with(target, |x, target| {
            let zero = target.literal(0.0);
            let each = target * (target.log() - x);
            zero.where_self(&target.eq(&zero), &each).sum(-1).mean(..)
        })
    }

    /// Returns the cosine of the angle between vectors along the last axis, which is removed. Norms are clamped to at
    /// least `epsilon`.
    #[track_caller]
    pub fn cosine_similarity(&self, other: &Tensor, epsilon: f64) -> Tensor {
        self.in_single_with(other, |x, y| {
            let (left, right) = (x.norm(-1), y.norm(-1));
            let floor = left.literal(epsilon);
            (x * y).sum(-1) / (left.maximum(&floor) * right.maximum(&floor))
        })
    }

    /// Returns the mean of 1 - cosine where `alike` is 1, and of max(0, cosine - `margin`) where it is -1. Vectors
    /// are `[batch, width]`, `alike` is `[batch]`.
    #[track_caller]
    pub fn cosine_embedding_loss(&self, other: &Tensor, alike: &Tensor, margin: f64) -> Tensor {
        self.in_single_with(other, |x, other| {
            let cosine = x.cosine_similarity(other, 1e-8);
            if cosine.is_mistake() || alike.is_mistake() || cosine.0.shape != alike.0.shape {
                let message = format!("cosine_embedding_loss: {alike:?} must contain 1 or -1 for each row of {self:?}");
                let mistake = cosine.check().and(alike.check()).err();
                return Tensor::mistake(mistake.unwrap_or_else(|| Error::mistake(message)));
            }
            let (near, far) = (cosine.literal(1.0) - &cosine, (&cosine - cosine.scalar_like(margin)).relu());
            near.where_self(&alike.gt(&alike.literal(0.0)), &far).mean(..)
        })
    }

    /// Returns the mean of max(0, 1 - target · self), for targets -1 or 1.
    #[track_caller]
    pub fn hinge_loss(&self, target: &Tensor) -> Tensor {
        self.in_single_with(target, |x, target| {
            let margin = x * target;
            (margin.literal(1.0) - margin).relu().mean(..)
        })
    }
}
