//! Losses, composed; each is the mean over the batch, of shape `[]`. Of halves each is computed in f32, before the mean as well, and
//! rounded once.

use panoply_ir::{Alu, DType, Error, Scalar};

use crate::tensor::Tensor;

/// What [`Tensor::cross_entropy_with`] may do besides.
#[derive(Clone, Copy, Debug, Default)]
pub struct CrossEntropyOptions<'a> {
    /// Share of the target that is spread evenly over all classes. [Szegedy et al. 2016]
    pub label_smoothing: f64,
    /// Examples of this class do not count.
    pub ignore_index: Option<i64>,
    /// How much each class counts, `[classes]`.
    pub weight: Option<&'a Tensor>,
}

impl Tensor {
    /// Mean of -ln softmax(self) at the right class. Logits `[batch, classes]`, classes `[batch]` as integers; one that there is not is NaN.
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

    /// Mean cross-entropy of logits `[batch, classes]` against integer classes `[batch]`, or against shares
    /// `[batch, classes]`, which are not checked to sum to 1. With `weight`, integer classes give the weighted mean, as
    /// in PyTorch.
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
            let message =
                "cross_entropy: needs logits [batch, classes] and integer classes [batch] or shares like the logits";
            return Tensor::mistake(Error::mistake(message).note(format!("left {self:?}, right {target:?}")));
        }
        if let Some(weights) = options.weight.filter(|weights| weights.dtype() != self.dtype()) {
            let message = format!("cross_entropy: weights {weights:?} have not the element type of {self:?}");
            return Tensor::mistake(Error::mistake(message));
        }
        if matches!(self.dtype(), DType::F16 | DType::BF16) {
            // Sums over a batch overflow before they are divided.
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
        // Not a product with zeros: a logit of minus infinity has a share of 0.
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

    /// Mean of the negative log-shares at the right class: `[batch, classes]` logarithms, classes `[batch]` as integers; one that there is
    /// not is NaN.
    #[track_caller]
    pub fn nll_loss(&self, classes: &Tensor) -> Tensor {
        if let Some(mistake) = [self, classes].into_iter().find(|operand| operand.is_mistake()) {
            return mistake.clone();
        }
        let (logs, labels) = (self.0.shape.dims(), classes.0.shape.dims());
        if logs.len() != 2 || labels != &logs[..1] || !classes.dtype().is_int() {
            let message = "nll: needs logarithms [batch, classes] and integer classes [batch]";
            return Tensor::mistake(Error::mistake(message).note(format!("left {self:?}, right {classes:?}")));
        }
        if let Err(mistake) = self.has_fractions("nll") {
            return mistake;
        }
        let hot = classes.one_hot(logs[1], DType::Bool);
        self.in_f32(|x| {
            // Not a product with zeros: the logarithm of a share of 0 is minus infinity.
            let beside = x.literal(0.0).where_self(&x.knows(classes), &x.literal(f64::NAN)).unsqueeze(1);
            -(x.where_self(&hot, &beside).sum(..) / x.count(&[0]))
        })
    }

    /// Which of these integers differ from a class: all do if their type does not hold it.
    #[track_caller]
    fn other_than(&self, class: i64) -> Tensor {
        let number = Scalar::from_i128(self.dtype(), class.into());
        if number.to_i128() == i128::from(class) {
            return self.ne(&Tensor::constant(number));
        }
        self.eq(self)
    }

    /// Which of these integers are classes of `[batch, classes]`.
    #[track_caller]
    fn knows(&self, classes: &Tensor) -> Tensor {
        // In a type that holds how many there are.
        let wide = if classes.dtype().bytes() == 8 { DType::I64 } else { DType::I32 };
        let (classes, count) = (classes.cast(wide), self.count_in(&[1], wide));
        classes.ge(&classes.literal(0.0)).bitwise_and(&classes.lt(&count))
    }

    /// Mean squared difference.
    #[track_caller]
    pub fn mse_loss(&self, target: &Tensor) -> Tensor {
        self.in_single_with(target, |x, target| (x - target).square().mean(..))
    }

    /// Mean absolute difference.
    #[track_caller]
    pub fn l1_loss(&self, target: &Tensor) -> Tensor {
        self.in_single_with(target, |x, target| (x - target).abs().mean(..))
    }

    /// Squared within `delta` of the target and linear beyond, smoothly joined. [Huber 1964]
    #[track_caller]
    pub fn huber_loss(&self, target: &Tensor, delta: f64) -> Tensor {
        let operands = [self, target];
        if !operands.into_iter().any(Tensor::is_mistake) && (delta.is_nan() || delta <= 0.0) {
            return Tensor::mistake(Error::mistake(format!("huber: delta is {delta}, not above 0")));
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

    /// Mean binary cross-entropy of sigmoid(self) against targets in 0 ..= 1, without overflow and exact in both tails. [The order of
    /// TensorFlow's sigmoid_cross_entropy_with_logits]
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
                // Not sigmoid(x) - target, which cancels where both are 1.
                |[x, target], _, g, ()| {
                    let gradient = (target.literal(1.0) - target) * x.sigmoid() - target * (-x).sigmoid();
                    [Some(g * gradient), Some(-(g * x))]
                },
            )
            .mean(..)
        })
    }

    /// Mean binary cross-entropy of shares in 0 ..= 1 against targets in 0 ..= 1; logarithms stop at -100, as in PyTorch.
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

    /// Divergence of the distribution `target` from the one whose logarithms these are: the sum of
    /// target · (ln target - self) over the last axis, its mean over the others. [Kullback and Leibler 1951]
    #[track_caller]
    pub fn kl_div(&self, target: &Tensor) -> Tensor {
        self.in_single_with(target, |x, target| {
            let zero = target.literal(0.0);
            let each = target * (target.log() - x);
            zero.where_self(&target.eq(&zero), &each).sum(-1).mean(..)
        })
    }

    /// Cosine of the angle between vectors along the last axis, which goes away; lengths are at least `epsilon`.
    #[track_caller]
    pub fn cosine_similarity(&self, other: &Tensor, epsilon: f64) -> Tensor {
        self.in_single_with(other, |x, y| {
            let (left, right) = (x.norm(-1), y.norm(-1));
            let floor = left.literal(epsilon);
            (x * y).sum(-1) / (left.maximum(&floor) * right.maximum(&floor))
        })
    }

    /// Mean of 1 - cosine where `alike` is 1, and of what the cosine exceeds `margin` by where it is -1. Vectors
    /// `[batch, width]`, `alike` `[batch]`.
    #[track_caller]
    pub fn cosine_embedding_loss(&self, other: &Tensor, alike: &Tensor, margin: f64) -> Tensor {
        self.in_single_with(other, |x, other| {
            let cosine = x.cosine_similarity(other, 1e-8);
            if cosine.is_mistake() || alike.is_mistake() || cosine.0.shape != alike.0.shape {
                let message = format!("cosine_embedding_loss: {alike:?} is not 1 or -1 for each of {self:?}");
                let mistake = cosine.check().and(alike.check()).err();
                return Tensor::mistake(mistake.unwrap_or_else(|| Error::mistake(message)));
            }
            let (near, far) = (cosine.literal(1.0) - &cosine, (&cosine - cosine.scalar_like(margin)).relu());
            near.where_self(&alike.gt(&alike.literal(0.0)), &far).mean(..)
        })
    }

    /// Mean of max(0, 1 - target · self), targets -1 or 1.
    #[track_caller]
    pub fn hinge_loss(&self, target: &Tensor) -> Tensor {
        self.in_single_with(target, |x, target| {
            let margin = x * target;
            (margin.literal(1.0) - margin).relu().mean(..)
        })
    }
}
