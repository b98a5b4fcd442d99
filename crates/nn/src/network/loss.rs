//! Training losses, and predictions of networks that were trained with them.

use std::fmt;

use panoply_tensor::{BceOptions, CrossEntropyOptions, DType, Error, Reduction, Result, Tensor};
use serde::{Deserialize, Serialize};

use crate::data::Targets;

/// A training loss with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Loss {
    /// Loss function.
    pub kind: LossKind,
    /// Label smoothing: weight of the uniform distribution in the target, in [0, 1). [Szegedy et al. 2016]
    pub label_smoothing: f64,
    /// Divisor of regression errors. With the standard deviation of the targets, loss and gradients do not depend on the targets' unit.
    /// `None` does not scale; `panoply train` then sets the deviation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_scale: Option<TargetScale>,
    /// Class weights; `None` weights all classes equally. The loss is the weighted mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_weights: Option<ClassWeights>,
}

/// Loss function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// Cross-entropy of logits and class labels.
    #[doc(alias = "CrossEntropyLoss")]
    #[default]
    CrossEntropy,
    /// Binary cross-entropy of logits: one logit for two classes, one logit for each of several classes, or targets in 0 ..= 1.
    #[doc(alias = "BCEWithLogitsLoss")]
    BceWithLogits,
    /// Kullback-Leibler divergence of logits and target probabilities.
    #[doc(alias = "KLDivLoss")]
    KlDiv,
    /// Mean squared error.
    #[doc(alias = "MSELoss")]
    Mse,
    /// Mean absolute error.
    #[doc(alias = "L1Loss")]
    L1,
    /// Huber loss: quadratic for errors up to 1 (in units of [`Loss::target_scale`] if set), then linear. [Huber 1964]
    #[doc(alias = "HuberLoss")]
    Huber,
}

/// Divisor of regression errors, above 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "target_scale must be a number, or a list with a number for each target")]
pub enum TargetScale {
    /// The same divisor for all targets.
    Uniform(f64),
    /// A divisor for each target.
    PerTarget(Vec<f64>),
}

impl TargetScale {
    /// Returns the divisors.
    fn numbers(&self) -> &[f64] {
        match self {
            TargetScale::Uniform(scale) => std::slice::from_ref(scale),
            TargetScale::PerTarget(scales) => scales,
        }
    }
}

/// Weights of classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ClassWeightsRepr", into = "ClassWeightsRepr")]
pub enum ClassWeights {
    /// Weights inversely proportional to the class counts. [`Loss::for_targets`] computes them.
    Balanced,
    /// Weights in the order of the classes.
    PerClass(Vec<f64>),
}

/// Representation of [`ClassWeights`] in files.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "class_weights must be \"balanced\" or a list with a number for each class")]
enum ClassWeightsRepr {
    Word(String),
    Each(Vec<f64>),
}

impl TryFrom<ClassWeightsRepr> for ClassWeights {
    type Error = String;

    fn try_from(repr: ClassWeightsRepr) -> Result<ClassWeights, String> {
        match repr {
            ClassWeightsRepr::Word(word) if word == "balanced" => Ok(ClassWeights::Balanced),
            ClassWeightsRepr::Word(word) => Err(format!("`{word}` is neither balanced nor a list of class weights")),
            ClassWeightsRepr::Each(weights) => Ok(ClassWeights::PerClass(weights)),
        }
    }
}

impl From<ClassWeights> for ClassWeightsRepr {
    fn from(weights: ClassWeights) -> ClassWeightsRepr {
        match weights {
            ClassWeights::Balanced => ClassWeightsRepr::Word("balanced".to_string()),
            ClassWeights::PerClass(weights) => ClassWeightsRepr::Each(weights),
        }
    }
}

/// Tolerance of the sum of target probabilities.
const SUM: f64 = 1e-3;

impl LossKind {
    /// Returns true for losses of a difference, which depend on the targets' unit.
    pub fn is_regression(self) -> bool {
        matches!(self, LossKind::Mse | LossKind::L1 | LossKind::Huber)
    }

    /// Returns true if class labels are supported as targets.
    fn takes_classes(self) -> bool {
        matches!(self, LossKind::CrossEntropy | LossKind::BceWithLogits)
    }

    /// Returns the name in files.
    pub fn name(self) -> &'static str {
        match self {
            LossKind::CrossEntropy => "cross_entropy",
            LossKind::BceWithLogits => "bce_with_logits",
            LossKind::KlDiv => "kl_div",
            LossKind::Mse => "mse",
            LossKind::L1 => "l1",
            LossKind::Huber => "huber",
        }
    }
}

impl Default for Loss {
    /// Returns cross-entropy without settings.
    fn default() -> Loss {
        Loss::new(LossKind::default())
    }
}

impl fmt::Display for Loss {
    /// Formats the loss function and its settings.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind.name())?;
        if self.label_smoothing > 0.0 {
            write!(f, ", label smoothing {}", self.label_smoothing)?;
        }
        if let Some(scale) = &self.target_scale {
            let scales: Vec<String> = scale.numbers().iter().map(f64::to_string).collect();
            write!(f, ", target_scale {}", scales.join(", "))?;
        }
        match &self.class_weights {
            None => Ok(()),
            Some(ClassWeights::Balanced) => write!(f, ", class weights balanced"),
            Some(ClassWeights::PerClass(weights)) => {
                let weights: Vec<String> = weights.iter().map(|weight| format!("{weight:.4}")).collect();
                write!(f, ", class weights {}", weights.join(", "))
            }
        }
    }
}

impl Loss {
    /// Creates a loss without settings.
    pub fn new(kind: LossKind) -> Loss {
        Loss { kind, label_smoothing: 0.0, target_scale: None, class_weights: None }
    }

    /// Sets class weights.
    #[must_use]
    pub fn class_weights(mut self, weights: ClassWeights) -> Loss {
        self.class_weights = Some(weights);
        self
    }

    /// Returns the mean loss over the batch, in f32. Shapes: logits `[batch, classes]` with labels `[batch]`; per time step, logits
    /// `[batch, time, classes]` with labels `[batch, time]`; otherwise outputs and targets of equal shape. With [`LossKind::BceWithLogits`]
    /// two classes can share a single logit, that of the second class.
    pub fn compute(&self, outputs: &Tensor, targets: &Tensor) -> Tensor {
        let outputs = outputs.cast(DType::F32);
        match self.kind {
            LossKind::CrossEntropy => self.cross_entropy(&outputs, targets),
            LossKind::BceWithLogits if targets.dtype().is_int() => self.each_class(&outputs, targets),
            _ if !outputs.is_same_size(targets) && outputs.check().and(targets.check()).is_ok() => {
                let message = "outputs and targets must have the same shape";
                Tensor::from_mistake(
                    Error::mistake(message).note(format!("the outputs are {outputs:?}, the targets {targets:?}")),
                )
            }
            LossKind::BceWithLogits => outputs.binary_cross_entropy_with_logits(targets, &BceOptions::default()),
            LossKind::KlDiv => outputs.log_softmax(-1).kl_div(targets, Reduction::Mean),
            LossKind::Mse => self.scaled(&outputs).mse_loss(&self.scaled(targets), Reduction::Mean),
            LossKind::L1 => self.scaled(&outputs).l1_loss(&self.scaled(targets), Reduction::Mean),
            LossKind::Huber => self.scaled(&outputs).huber_loss(&self.scaled(targets), 1.0, Reduction::Mean),
        }
    }

    /// Converts outputs to predictions: class probabilities `[…, classes]`, label probabilities, or numbers.
    pub fn predictions(&self, outputs: &Tensor, targets: &Targets) -> Tensor {
        let outputs = outputs.cast(DType::F32);
        match self.kind {
            LossKind::CrossEntropy | LossKind::KlDiv => outputs.softmax(-1),
            LossKind::BceWithLogits => {
                let yes = outputs.sigmoid();
                match (targets, outputs.size(-1)) {
                    (_, Err(error)) => Tensor::from_mistake(error),
                    (Targets::Classes { .. }, Ok(1)) => Tensor::concat([-&yes + 1.0, yes], -1),
                    (Targets::Classes { .. } | Targets::Regression { .. } | Targets::MultiLabel { .. }, Ok(_)) => yes,
                }
            }
            LossKind::Mse | LossKind::L1 | LossKind::Huber => outputs,
        }
    }

    /// Returns the number of outputs (for each time step) that a network needs for these targets.
    pub fn num_outputs(&self, targets: &Targets) -> usize {
        match (self.kind, targets) {
            (LossKind::BceWithLogits, Targets::Classes { num_classes: 2, .. }) => 1,
            (_, Targets::Classes { num_classes: classes, .. }) => *classes,
            (_, Targets::Regression { num_outputs: width, .. } | Targets::MultiLabel { num_labels: width, .. }) => {
                *width
            }
        }
    }

    /// Returns this loss for training targets, with balanced class weights computed from them.
    ///
    /// # Errors
    /// If the settings are invalid, or the loss does not fit the targets.
    pub fn for_targets(&self, targets: &Targets) -> Result<Loss> {
        self.check().map_err(Error::mistake)?;
        match targets {
            Targets::Classes { .. } if !self.kind.takes_classes() => {
                let message = format!("the loss {} does not fit class targets", self.kind.name());
                Err(Error::mistake(message).note("use cross_entropy or bce_with_logits for classes"))
            }
            Targets::Classes { labels, num_classes: classes, .. } => self.weighing(labels, *classes),
            Targets::Regression { .. } | Targets::MultiLabel { .. } if self.class_weights.is_some() => {
                let message =
                    format!("class weights need class targets; the targets for {} are not classes", self.kind.name());
                Err(Error::mistake(message).note("remove class_weights"))
            }
            Targets::MultiLabel { .. } if self.kind != LossKind::BceWithLogits => {
                let message = format!("the loss {} does not fit multi-label targets", self.kind.name());
                Err(Error::mistake(message)
                    .note("use bce_with_logits for labels, or `--task regression` to predict them as numbers"))
            }
            Targets::MultiLabel { .. } => Ok(self.clone()),
            Targets::Regression { values, num_outputs: width } => {
                self.of_numbers(values, *width).map(|()| self.clone())
            }
        }
    }

    fn of_numbers(&self, values: &[f32], width: usize) -> Result<()> {
        if let Some(TargetScale::PerTarget(scales)) =
            self.target_scale.as_ref().filter(|scale| scale.numbers().len() != width)
        {
            let message = format!("target_scale has {} numbers, but there are {width} targets", scales.len());
            return Err(Error::mistake(message));
        }
        let wrong = |example: usize, what: String| {
            let message = format!("the loss {} does not fit: example {example} {what}", self.kind.name());
            Err(Error::mistake(message)
                .note("bce_with_logits needs targets in 0 ..= 1, kl_div probabilities that sum to 1, mse any numbers"))
        };
        match self.kind {
            LossKind::CrossEntropy => {
                let message = "the loss cross_entropy does not fit regression targets";
                Err(Error::mistake(message)
                    .note("use mse, l1, huber, bce_with_logits for targets in 0 ..= 1, or kl_div for probabilities"))
            }
            LossKind::BceWithLogits => match values.iter().position(|value| !(0.0..=1.0).contains(value)) {
                Some(at) => wrong(at / width, format!("has {}, which is not in 0 ..= 1", values[at])),
                None => Ok(()),
            },
            LossKind::KlDiv => {
                let sum = |row: &[f32]| row.iter().map(|share| f64::from(*share)).sum::<f64>();
                let bad = |row: &[f32]| (sum(row) - 1.0).abs() > SUM || row.iter().any(|share| *share < 0.0);
                match values.chunks_exact(width).position(bad) {
                    Some(at) => {
                        let row = &values[at * width..][..width];
                        wrong(at, format!("has {row:?}, which are not probabilities that sum to 1"))
                    }
                    None => Ok(()),
                }
            }
            LossKind::Mse | LossKind::L1 | LossKind::Huber => Ok(()),
        }
    }

    /// Returns the loss with a weight for each class. Balanced weights are those of scikit-learn: number of examples / (examples of the
    /// class · number of classes that occur).
    fn weighing(&self, labels: &[i32], classes: usize) -> Result<Loss> {
        let mut loss = self.clone();
        let known = 0..classes as i64;
        if let (Some(_), Some(label)) =
            (&self.class_weights, labels.iter().find(|label| !known.contains(&i64::from(**label))))
        {
            return Err(Error::mistake(format!("class weights: label {label} is not in 0 .. {classes}")));
        }
        match &mut loss.class_weights {
            None => {}
            Some(ClassWeights::PerClass(weights)) if weights.len() != classes => {
                let message = format!("class_weights has {} numbers, but there are {classes} classes", weights.len());
                return Err(Error::mistake(message));
            }
            Some(ClassWeights::PerClass(_)) => {}
            Some(weights @ ClassWeights::Balanced) => {
                let mut counts = vec![0u64; classes];
                labels.iter().for_each(|label| counts[*label as usize] += 1);
                let present = counts.iter().filter(|count| **count > 0).count();
                let of = |count: u64| labels.len() as f64 / (present as f64 * count as f64);
                let each = counts.into_iter().map(|count| if count > 0 { of(count) } else { 1.0 });
                *weights = ClassWeights::PerClass(each.collect());
            }
        }
        Ok(loss)
    }

    /// Checks the settings independently of any targets.
    pub(super) fn check(&self) -> Result<(), String> {
        if !(0.0..1.0).contains(&self.label_smoothing) {
            return Err(format!("label_smoothing {} is not in [0, 1)", self.label_smoothing));
        }
        if self.label_smoothing > 0.0 && self.kind != LossKind::CrossEntropy {
            return Err(format!("label_smoothing applies to cross_entropy, not to {}", self.kind.name()));
        }
        let scales = self.target_scale.iter().flat_map(TargetScale::numbers);
        if let Some(scale) = scales.into_iter().find(|scale| !scale.is_finite() || **scale <= 0.0) {
            return Err(format!("target_scale {scale} is not a positive number"));
        }
        if self.target_scale.is_some() && !self.kind.is_regression() {
            let name = self.kind.name();
            return Err(format!("target_scale applies to mse, l1 and huber, not to {name}"));
        }
        if self.class_weights.is_some() && !self.kind.takes_classes() {
            let name = self.kind.name();
            return Err(format!("class_weights apply to cross_entropy and bce_with_logits, not to {name}"));
        }
        if let Some(ClassWeights::PerClass(weights)) = &self.class_weights
            && let Some(wrong) = weights.iter().find(|weight| !((**weight as f32).is_finite() && **weight as f32 > 0.0))
        {
            return Err(format!("class_weights holds {wrong}, which is not a number above 0 in f32"));
        }
        Ok(())
    }

    /// Returns the total weight of these examples, for a mean over several batches.
    pub(crate) fn mass(&self, targets: &Targets, examples: impl Iterator<Item = usize>) -> f64 {
        match (&self.class_weights, targets) {
            (Some(ClassWeights::PerClass(weights)), Targets::Classes { labels, labels_per_example: places, .. }) => {
                let labels = examples.flat_map(|example| &labels[example * places..][..*places]);
                labels.map(|label| weights.get(*label as usize).unwrap_or(&0.0)).sum::<f64>()
            }
            _ => examples.count() as f64,
        }
    }

    fn scaled(&self, numbers: &Tensor) -> Tensor {
        match &self.target_scale {
            None => numbers.clone(),
            Some(TargetScale::Uniform(scale)) => numbers * (1.0 / scale),
            Some(TargetScale::PerTarget(scales)) => {
                let factors: Vec<f32> = scales.iter().map(|scale| (1.0 / scale) as f32).collect();
                numbers * Tensor::from_slice(&factors, [factors.len()])
            }
        }
    }

    /// Returns the class weights as a tensor, if there are any.
    fn weights(&self) -> Option<Tensor> {
        match self.class_weights.as_ref()? {
            ClassWeights::PerClass(weights) => {
                let weights: Vec<f32> = weights.iter().map(|weight| *weight as f32).collect();
                Some(Tensor::from_slice(&weights, [weights.len()]))
            }
            ClassWeights::Balanced => {
                let message = "balanced class weights must be computed from the training targets";
                Some(Tensor::from_mistake(Error::mistake(message).note("call `Loss::for_targets(&data.targets)`")))
            }
        }
    }

    fn cross_entropy(&self, logits: &Tensor, classes: &Tensor) -> Tensor {
        let (logits, classes) = match (logits.ndim(), logits.size(-1)) {
            (Ok(3), Ok(many)) => (logits.reshape([-1, many as isize]), classes.flatten(0, -1)),
            (Ok(3), Err(error)) => return Tensor::from_mistake(error),
            _ => (logits.clone(), classes.clone()),
        };
        let weights = self.weights();
        if self.label_smoothing == 0.0 && weights.is_none() {
            return logits.cross_entropy(&classes);
        }
        let options = CrossEntropyOptions {
            label_smoothing: self.label_smoothing,
            weight: weights.as_ref(),
            ..Default::default()
        };
        logits.cross_entropy_with_options(&classes, &options)
    }

    /// Binary cross-entropy of one-hot classes: the mean over the classes of an example, then the weighted mean over the examples.
    fn each_class(&self, logits: &Tensor, classes: &Tensor) -> Tensor {
        let wanted = match logits.size(-1) {
            Ok(1) => classes.cast(DType::F32).unsqueeze(-1),
            Ok(many) => classes.one_hot(many, DType::F32),
            Err(error) => return Tensor::from_mistake(error),
        };
        if logits.check().and(classes.check()).is_ok() && !logits.is_same_size(&wanted) {
            let message = "bce_with_logits: needs logits [batch, classes], or [batch, 1] of two classes, and integer classes [batch]";
            return Tensor::from_mistake(
                Error::mistake(message).note(format!("the logits are {logits:?}, the classes {classes:?}")),
            );
        }
        let Some(weights) = self.weights() else {
            return logits.binary_cross_entropy_with_logits(&wanted, &BceOptions::default());
        };
        let each = (logits.softplus() - logits * &wanted).mean(-1);
        let counts = weights.index_select(0, classes);
        (each * &counts).sum(..) / counts.sum(..)
    }
}
