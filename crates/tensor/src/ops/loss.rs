//! Loss functions. f16 and bf16 compute in f32, the reduction included, and round once.

use panoply_ir::{Alu, DType, Error, Scalar};

use crate::call_attrs::CallAttrs;
use crate::tensor::Tensor;

/// Reduction of the losses of elements or examples to the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// Each loss separately.
    None,
    /// Their mean.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

impl CallAttrs for Reduction {
    fn write_key(&self, words: &mut Vec<u64>) {
        words.push(*self as u64);
    }
}

/// Options of [`Tensor::cross_entropy_with_options`].
#[derive(Clone, Copy, Debug, Default)]
pub struct CrossEntropyOptions<'a> {
    /// Fraction of the target that is spread evenly over all classes. [Szegedy et al. 2016]
    pub label_smoothing: f64,
    /// Class whose examples are ignored.
    pub ignore_index: Option<i64>,
    /// Weight of each class, `[classes]`.
    pub weight: Option<&'a Tensor>,
    /// Reduction over the examples.
    pub reduction: Reduction,
}

/// Options of [`Tensor::binary_cross_entropy_with_logits`].
#[derive(Clone, Copy, Debug, Default)]
pub struct BceOptions<'a> {
    /// Factor of each loss; broadcasts to the logits.
    pub weight: Option<&'a Tensor>,
    /// Factor of the loss of positive targets; broadcasts to the logits, for example `[classes]`.
    pub pos_weight: Option<&'a Tensor>,
    /// Reduction over the elements.
    pub reduction: Reduction,
}

impl Tensor {
    /// Reduces losses.
    #[track_caller]
    fn reduce_losses(&self, reduction: Reduction) -> Tensor {
        match reduction {
            Reduction::None => self.clone(),
            Reduction::Mean => self.mean(..),
            Reduction::Sum => self.sum(..),
        }
    }

    /// Returns the mean of -ln softmax(self) at the target classes; see [`Tensor::cross_entropy_with_options`].
    #[track_caller]
    pub fn cross_entropy(&self, target: &Tensor) -> Tensor {
        self.cross_entropy_with_options(target, &CrossEntropyOptions::default())
    }

    /// Returns the cross-entropy of logits `[batch, classes, …]` for integer classes `[batch, …]`, or for probabilities
    /// `[batch, classes, …]`, which are not checked to sum to 1. A class out of range gives NaN. Without reduction the
    /// result is `[batch, …]`, 0 for ignored examples. With `weight`, the mean for integer classes is the weighted one,
    /// as in PyTorch.
    #[track_caller]
    pub fn cross_entropy_with_options(&self, target: &Tensor, options: &CrossEntropyOptions<'_>) -> Tensor {
        let operands = [Some(self), Some(target), options.weight];
        if let Some(mistake) = operands.into_iter().flatten().find(|operand| operand.is_mistake()) {
            return mistake.clone();
        }
        let by_class = target.dtype().is_int() && self.takes_classes(target);
        let by_probabilities =
            target.dtype() == self.dtype() && self.0.shape.ndim() > 1 && target.0.shape == self.0.shape;
        let fits = by_class || (by_probabilities && options.ignore_index.is_none());
        if !fits {
            let message = "cross_entropy: needs logits [batch, classes, …] and integer classes [batch, …] or probabilities like the logits";
            return Tensor::mistake(Error::mistake(message).note(format!("left {self:?}, right {target:?}")));
        }
        if self.0.shape.ndim() > 2 {
            let rows = if by_class { target.reshape([-1]) } else { target.class_rows() };
            let losses = self.class_rows().cross_entropy_with_options(&rows, options);
            return losses.beside_classes_of(self, options.reduction);
        }
        let plain = options.label_smoothing == 0.0 && options.ignore_index.is_none() && options.weight.is_none();
        if by_class && plain {
            return Tensor::call("cross entropy", [self, target], options.reduction, |[logits, classes], reduction| {
                logits.in_f32(|logits| logits.log_softmax(-1).nll_loss(classes, *reduction))
            });
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
            return single(self).cross_entropy_with_options(&single(target), &options).cast(self.dtype());
        }
        let classes = self.0.shape.dims()[1];
        let hot = if by_class { target.one_hot(classes, self.dtype()) } else { target.clone() };
        let kept = options.ignore_index.map(|class| target.other_than(class));
        let spread = self.scalar_like(options.label_smoothing);
        let smooth = &hot * (self.literal(1.0) - &spread) + &spread / self.count(&[1]);
        let weighted = |probabilities: Tensor| match options.weight {
            Some(weights) => probabilities * weights,
            None => probabilities,
        };
        let (logs, zero) = (self.log_softmax(-1), self.literal(0.0));
        // Not a product with zeros: the log-probability of a logit of -∞ is -∞.
        let logs = if by_class { logs.where_self(&smooth.ne(&zero), &zero) } else { logs };
        let each = -(logs * weighted(smooth)).sum(-1);
        let each = if by_class { each.where_self(&self.knows(target), &self.literal(f64::NAN)) } else { each };
        let each = match &kept {
            Some(kept) => each.where_self(kept, &zero),
            None => each,
        };
        if options.reduction != Reduction::Mean {
            return each.reduce_losses(options.reduction);
        }
        let count = match (&kept, by_class) {
            (Some(kept), _) => weighted(hot).sum(-1).where_self(kept, &zero).sum(..),
            (None, true) if options.weight.is_some() => weighted(hot).sum(..),
            (None, _) => self.count(&[0]),
        };
        each.sum(..) / count
    }

    /// Returns -self at the target classes: `[batch, classes, …]` log-probabilities, classes `[batch, …]` integers; a
    /// class out of range gives NaN.
    #[track_caller]
    pub fn nll_loss(&self, target: &Tensor, reduction: Reduction) -> Tensor {
        if let Some(mistake) = [self, target].into_iter().find(|operand| operand.is_mistake()) {
            return mistake.clone();
        }
        if !target.dtype().is_int() || !self.takes_classes(target) {
            let message = "nll_loss: needs log-probabilities [batch, classes, …] and integer classes [batch, …]";
            return Tensor::mistake(Error::mistake(message).note(format!("left {self:?}, right {target:?}")));
        }
        if let Err(mistake) = self.check_float("nll_loss") {
            return mistake;
        }
        if self.0.shape.ndim() > 2 {
            let losses = self.class_rows().nll_loss(&target.reshape([-1]), reduction);
            return losses.beside_classes_of(self, reduction);
        }
        let hot = target.one_hot(self.0.shape.dims()[1], DType::Bool);
        self.in_f32(|x| {
            // Not a product with zeros: the logarithm of a probability of 0 is -∞.
            let beside = x.literal(0.0).where_self(&x.knows(target), &x.literal(f64::NAN)).unsqueeze(1);
            let chosen = x.where_self(&hot, &beside);
            match reduction {
                Reduction::None => -chosen.sum(-1),
                Reduction::Mean => -(chosen.sum(..) / x.count(&[0])),
                Reduction::Sum => -chosen.sum(..),
            }
        })
    }

    /// Returns true if the shape of classes is that of `[batch, classes, …]` without its second axis.
    fn takes_classes(&self, classes: &Tensor) -> bool {
        match (self.0.shape.dims(), classes.0.shape.dims()) {
            ([batch, _, rest @ ..], [rows, others @ ..]) => batch == rows && rest == others,
            _ => false,
        }
    }

    /// Returns `[batch, classes, …]` as `[examples, classes]`.
    #[track_caller]
    fn class_rows(&self) -> Tensor {
        self.movedim(1, -1).flatten(0, -2)
    }

    /// Returns the losses of [`Tensor::class_rows`] of `logits`, in the shape `[batch, …]` if they are not reduced.
    #[track_caller]
    fn beside_classes_of(&self, logits: &Tensor, reduction: Reduction) -> Tensor {
        if reduction != Reduction::None || self.is_mistake() {
            return self.clone();
        }
        let mut dims = logits.0.shape.dims().to_vec();
        dims.remove(1);
        self.reshaped(dims.into())
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

    /// Returns the squared differences.
    #[track_caller]
    pub fn mse_loss(&self, target: &Tensor, reduction: Reduction) -> Tensor {
        self.in_single_with(target, |x, target| (x - target).square().reduce_losses(reduction))
    }

    /// Returns the absolute differences.
    #[track_caller]
    pub fn l1_loss(&self, target: &Tensor, reduction: Reduction) -> Tensor {
        self.in_single_with(target, |x, target| (x - target).abs().reduce_losses(reduction))
    }

    /// Returns the Huber losses: squared within `delta` of the target and linear beyond. [Huber 1964]
    #[doc(alias = "smooth_l1_loss")]
    #[doc(alias = "HuberLoss")]
    #[doc(alias = "SmoothL1Loss")]
    #[track_caller]
    pub fn huber_loss(&self, target: &Tensor, delta: f64, reduction: Reduction) -> Tensor {
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
            near.where_self(&Tensor::alu(Alu::Lt, &[&distance, &delta]), &far).reduce_losses(reduction)
        })
    }

    /// Returns the binary cross-entropy of sigmoid(self) for targets in 0 ..= 1, without overflow and exact in both
    /// tails. [Evaluation order of TensorFlow's sigmoid_cross_entropy_with_logits]
    #[doc(alias = "bce_with_logits")]
    #[track_caller]
    pub fn binary_cross_entropy_with_logits(&self, target: &Tensor, options: &BceOptions<'_>) -> Tensor {
        let weights = [options.weight, options.pos_weight];
        if let Some(weight) = weights.into_iter().flatten().find(|weight| weight.dtype() != self.dtype()) {
            if let Some(mistake) = Tensor::leftmost([self, target, weight]) {
                return mistake;
            }
            let message =
                format!("binary_cross_entropy_with_logits: weights {weight:?} do not have the type of {self:?}");
            return Tensor::mistake(Error::mistake(message));
        }
        self.in_single_with(target, |x, target| {
            let [x, target] = match x.broadcast_with(target) {
                Ok(both) => both,
                Err(mistake) => return mistake,
            };
            let losses = match options.pos_weight {
                // The loss of each side, weighted by its share of the target.
                Some(positive) => {
                    (-&x).softplus() * &target * positive.widened() + x.softplus() * (target.literal(1.0) - &target)
                }
                None => Tensor::call_with_vjp(
                    "binary_cross_entropy_with_logits",
                    [&x, &target],
                    (),
                    |[x, target], ()| x.relu() - x * target + (-x.abs()).exp().log1p(),
                    // Not sigmoid(x) - target, which cancels where both are near 1.
                    |[x, target], _, g, ()| {
                        let gradient = (target.literal(1.0) - target) * x.sigmoid() - target * (-x).sigmoid();
                        [Some(g * gradient), Some(-(g * x))]
                    },
                ),
            };
            let losses = match options.weight {
                Some(weight) => losses * weight.widened(),
                None => losses,
            };
            losses.reduce_losses(options.reduction)
        })
    }

    /// Returns the binary cross-entropy of probabilities in 0 ..= 1 for targets in 0 ..= 1. Logarithms are clamped at
    /// -100, as in PyTorch.
    #[doc(alias = "BCELoss")]
    #[doc(alias = "BCEWithLogitsLoss")]
    #[track_caller]
    pub fn binary_cross_entropy(&self, target: &Tensor, reduction: Reduction) -> Tensor {
        let [probabilities, target] = match self.broadcast_with(target) {
            Ok(both) => both.map(|x| x.widened()),
            Err(mistake) => return mistake,
        };
        fn logarithms(x: &Tensor) -> [Tensor; 2] {
            let floor = x.literal(-100.0);
            [x.log().maximum(&floor), (-x).log1p().maximum(&floor)]
        }
        Tensor::call_with_vjp(
            "binary_cross_entropy",
            [&probabilities, &target],
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
        .reduce_losses(reduction)
        .cast(self.dtype())
    }

    /// Returns the Kullback-Leibler divergence of the distribution `target` from the one whose log-probabilities are
    /// `self`: the sum of target · (ln target - self) over the last axis, reduced over the others. The mean of
    /// `[batch, classes]` is PyTorch's `batchmean`. [Kullback and Leibler 1951]
    #[track_caller]
    pub fn kl_div(&self, target: &Tensor, reduction: Reduction) -> Tensor {
        self.in_single_with(target, |x, target| {
            let zero = target.literal(0.0);
            let each = target * (target.log() - x);
            zero.where_self(&target.eq(&zero), &each).sum(-1).reduce_losses(reduction)
        })
    }

    /// Returns the cosine of the angle between vectors along an axis, which is removed. Norms are clamped to at least
    /// `epsilon`, 1e-8 in PyTorch.
    #[track_caller]
    pub fn cosine_similarity(&self, other: &Tensor, axis: isize, epsilon: f64) -> Tensor {
        self.in_single_with(other, |x, y| {
            let (left, right) = (x.norm(axis), y.norm(axis));
            let floor = left.literal(epsilon);
            (x * y).sum(axis) / (left.maximum(&floor) * right.maximum(&floor))
        })
    }

    /// Returns 1 - cosine where `target` is 1, and max(0, cosine - `margin`) where it is -1. Vectors are `[batch, width]`,
    /// `target` is `[batch]`. Norms are clamped to at least 1e-8.
    #[track_caller]
    pub fn cosine_embedding_loss(&self, other: &Tensor, target: &Tensor, margin: f64, reduction: Reduction) -> Tensor {
        self.in_single_with(other, |x, other| {
            let cosine = x.cosine_similarity(other, -1, 1e-8);
            if cosine.is_mistake() || target.is_mistake() || cosine.0.shape != target.0.shape {
                let message =
                    format!("cosine_embedding_loss: {target:?} must contain 1 or -1 for each row of {self:?}");
                let mistake = cosine.check().and(target.check()).err();
                return Tensor::mistake(mistake.unwrap_or_else(|| Error::mistake(message)));
            }
            let (near, far) = (cosine.literal(1.0) - &cosine, (&cosine - cosine.scalar_like(margin)).relu());
            near.where_self(&target.gt(&target.literal(0.0)), &far).reduce_losses(reduction)
        })
    }

    /// Returns max(0, 1 - target · self), for targets -1 or 1.
    #[track_caller]
    pub fn hinge_loss(&self, target: &Tensor, reduction: Reduction) -> Tensor {
        self.in_single_with(target, |x, target| {
            let margin = x * target;
            (margin.literal(1.0) - margin).relu().reduce_losses(reduction)
        })
    }
}
