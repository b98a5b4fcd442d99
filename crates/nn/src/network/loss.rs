//! What training makes small, and what outputs say that were trained by it.

use std::fmt;

use panoply_tensor::{CrossEntropyOptions, DType, Error, Result, Tensor};
use serde::{Deserialize, Serialize};

use crate::data::Targets;

/// What training makes small.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Loss {
    /// How outputs and targets are compared.
    pub kind: LossKind,
    /// Share of the target that is spread evenly over all classes, in 0 .. 1. [Szegedy et al. 2016]
    pub label_smoothing: f64,
    /// What differences of numbers are divided by: with the deviation of the targets a loss and its gradients are of the same size
    /// whatever the targets' unit is. If nothing is said, `panoply train` puts that deviation here; [`Loss::compute`] divides by nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_scale: Option<TargetScale>,
    /// How much each class counts; all the same if nothing is said. The loss is the mean so weighted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_weights: Option<ClassWeights>,
}

/// How outputs and targets are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// Logits with classes.
    #[default]
    CrossEntropy,
    /// Logits, each of which is a yes or a no of its own: one of two classes, one for each of more, or numbers in 0 ..= 1.
    BceWithLogits,
    /// Logits with shares that sum to 1, by Kullback's and Leibler's divergence.
    KlDiv,
    /// Numbers by the square of their difference.
    Mse,
    /// Numbers by the magnitude of their difference.
    L1,
    /// Numbers: the square up to a difference of 1 (of [`Loss::target_scale`] if there is one), then linear. [Huber 1964]
    Huber,
}

/// What differences of numbers are divided by, above 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "target_scale is a number or a list of numbers, one for each that is learned")]
pub enum TargetScale {
    /// All by this.
    Uniform(f64),
    /// Each number of an example by its own.
    PerTarget(Vec<f64>),
}

impl TargetScale {
    /// The numbers that are said.
    fn numbers(&self) -> &[f64] {
        match self {
            TargetScale::Uniform(scale) => std::slice::from_ref(scale),
            TargetScale::PerTarget(scales) => scales,
        }
    }
}

/// How much each class counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ClassWeightsRepr", into = "ClassWeightsRepr")]
pub enum ClassWeights {
    /// As much as any other class, however few its examples are: [`Loss::for_targets`] makes numbers of it.
    Balanced,
    /// So much, in the order of the classes.
    PerClass(Vec<f64>),
}

/// [`ClassWeights`] as they stand in a file.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "class_weights is \"balanced\" or a list of numbers, one for each class")]
enum ClassWeightsRepr {
    Word(String),
    Each(Vec<f64>),
}

impl TryFrom<ClassWeightsRepr> for ClassWeights {
    type Error = String;

    fn try_from(said: ClassWeightsRepr) -> Result<ClassWeights, String> {
        match said {
            ClassWeightsRepr::Word(word) if word == "balanced" => Ok(ClassWeights::Balanced),
            ClassWeightsRepr::Word(word) => Err(format!("`{word}` is neither balanced nor a number for each class")),
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

/// How far the shares of an example may be from 1 in sum.
const SUM: f64 = 1e-3;

impl LossKind {
    /// Whether targets are compared by their difference, so that their unit matters.
    pub fn is_regression(self) -> bool {
        matches!(self, LossKind::Mse | LossKind::L1 | LossKind::Huber)
    }

    /// Whether the targets may be classes.
    fn takes_classes(self) -> bool {
        matches!(self, LossKind::CrossEntropy | LossKind::BceWithLogits)
    }

    /// Its name in files.
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
    /// Cross-entropy without settings.
    fn default() -> Loss {
        Loss::new(LossKind::default())
    }
}

impl fmt::Display for Loss {
    /// What was said, in a few words.
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
    /// Without settings.
    pub fn new(kind: LossKind) -> Loss {
        Loss { kind, label_smoothing: 0.0, target_scale: None, class_weights: None }
    }

    /// With classes that count so much.
    #[must_use]
    pub fn class_weights(mut self, weights: ClassWeights) -> Loss {
        self.class_weights = Some(weights);
        self
    }

    /// The mean over the batch, in f32: of logits `[batch, classes]` and classes `[batch]`, or the same at each time
    /// (`[batch, time, classes]` and `[batch, time]`), or of numbers of equal shapes. By [`LossKind::BceWithLogits`] two classes may have one
    /// logit, that of the second.
    pub fn compute(&self, outputs: &Tensor, targets: &Tensor) -> Tensor {
        let outputs = outputs.cast(DType::F32);
        match self.kind {
            LossKind::CrossEntropy => self.cross_entropy(&outputs, targets),
            LossKind::BceWithLogits if targets.dtype().is_int() => self.each_class(&outputs, targets),
            _ if !outputs.is_same_size(targets) && outputs.check().and(targets.check()).is_ok() => {
                let message = "the outputs of a network and the numbers it is to learn have other shapes";
                Tensor::from_mistake(Error::mistake(message).note(format!("left {outputs:?}, right {targets:?}")))
            }
            LossKind::BceWithLogits => outputs.binary_cross_entropy_with_logits(targets),
            LossKind::KlDiv => outputs.log_softmax(-1).kl_div(targets),
            LossKind::Mse => self.scaled(&outputs).mse_loss(&self.scaled(targets)),
            LossKind::L1 => self.scaled(&outputs).l1_loss(&self.scaled(targets)),
            LossKind::Huber => self.scaled(&outputs).huber_loss(&self.scaled(targets), 1.0),
        }
    }

    /// What outputs say in use: shares of classes, `[…, classes]`, or numbers.
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

    /// How many numbers a network gives for such targets, at each time.
    pub fn num_outputs(&self, targets: &Targets) -> usize {
        match (self.kind, targets) {
            (LossKind::BceWithLogits, Targets::Classes { num_classes: 2, .. }) => 1,
            (_, Targets::Classes { num_classes: classes, .. }) => *classes,
            (_, Targets::Regression { num_outputs: width, .. } | Targets::MultiLabel { num_labels: width, .. }) => {
                *width
            }
        }
    }

    /// This loss for these targets, balanced weights of classes computed from them; or why it is not for such targets.
    pub fn for_targets(&self, targets: &Targets) -> Result<Loss> {
        self.check().map_err(Error::mistake)?;
        match targets {
            Targets::Classes { .. } if !self.kind.takes_classes() => {
                let message = format!("the loss {} does not fit: classes are to be learned", self.kind.name());
                Err(Error::mistake(message).note("classes take cross_entropy or bce_with_logits"))
            }
            Targets::Classes { labels, num_classes: classes, .. } => self.weighing(labels, *classes),
            Targets::Regression { .. } | Targets::MultiLabel { .. } if self.class_weights.is_some() => {
                let message = format!("class weights do not fit: by {} no classes are to be learned", self.kind.name());
                Err(Error::mistake(message).note("leave them out"))
            }
            Targets::MultiLabel { .. } if self.kind != LossKind::BceWithLogits => {
                let message =
                    format!("the loss {} does not fit: answers of yes or no are to be learned", self.kind.name());
                Err(Error::mistake(message)
                    .note("labels take bce_with_logits; `--task regression` learns them as numbers"))
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
            let message = format!("{} scales of the loss are not one for each of {width} numbers", scales.len());
            return Err(Error::mistake(message));
        }
        let wrong = |example: usize, what: String| {
            let message = format!("the loss {} does not fit: example {example} {what}", self.kind.name());
            Err(Error::mistake(message)
                .note("bce_with_logits takes numbers in 0 ..= 1, kl_div probabilities that sum to 1, mse any"))
        };
        match self.kind {
            LossKind::CrossEntropy => {
                let message = "the loss cross_entropy does not fit: numbers are to be learned";
                Err(Error::mistake(message)
                    .note("numbers take mse, l1, huber, bce_with_logits in 0 ..= 1, or kl_div of probabilities"))
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
                        wrong(at, format!("has {row:?}, which are no shares that sum to 1"))
                    }
                    None => Ok(()),
                }
            }
            LossKind::Mse | LossKind::L1 | LossKind::Huber => Ok(()),
        }
    }

    /// With a weight for each of so many classes. Balanced ones are those of scikit-learn: all examples over those of a class times
    /// the classes that have any.
    fn weighing(&self, labels: &[i32], classes: usize) -> Result<Loss> {
        let mut loss = self.clone();
        let known = 0..classes as i64;
        if let (Some(_), Some(label)) =
            (&self.class_weights, labels.iter().find(|label| !known.contains(&i64::from(**label))))
        {
            return Err(Error::mistake(format!("class weights do not fit: {label} is none of {classes} classes")));
        }
        match &mut loss.class_weights {
            None => {}
            Some(ClassWeights::PerClass(weights)) if weights.len() != classes => {
                let message = format!("{} class weights are not one for each of {classes} classes", weights.len());
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

    /// What is wrong with the settings, whatever they are used for.
    pub(super) fn check(&self) -> Result<(), String> {
        if !(0.0..1.0).contains(&self.label_smoothing) {
            return Err(format!("label_smoothing {} is not in 0 .. 1", self.label_smoothing));
        }
        if self.label_smoothing > 0.0 && self.kind != LossKind::CrossEntropy {
            return Err(format!("label_smoothing is for cross_entropy, not for {}", self.kind.name()));
        }
        let scales = self.target_scale.iter().flat_map(TargetScale::numbers);
        if let Some(scale) = scales.into_iter().find(|scale| !scale.is_finite() || **scale <= 0.0) {
            return Err(format!("target_scale {scale} is not a positive number"));
        }
        if self.target_scale.is_some() && !self.kind.is_regression() {
            let name = self.kind.name();
            return Err(format!("target_scale is for mse, l1 and huber; {name} compares no differences of numbers"));
        }
        if self.class_weights.is_some() && !self.kind.takes_classes() {
            let name = self.kind.name();
            return Err(format!("class_weights are for cross_entropy and bce_with_logits; {name} compares numbers"));
        }
        if let Some(ClassWeights::PerClass(weights)) = &self.class_weights
            && let Some(wrong) = weights.iter().find(|weight| !((**weight as f32).is_finite() && **weight as f32 > 0.0))
        {
            return Err(format!("class_weights holds {wrong}, which is not a number above 0 in f32"));
        }
        Ok(())
    }

    /// How much these examples count in a mean over several parts.
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

    /// The weights of the classes on the device, if some count more than others.
    fn weights(&self) -> Option<Tensor> {
        match self.class_weights.as_ref()? {
            ClassWeights::PerClass(weights) => {
                let weights: Vec<f32> = weights.iter().map(|weight| *weight as f32).collect();
                Some(Tensor::from_slice(&weights, [weights.len()]))
            }
            ClassWeights::Balanced => {
                let message = "balanced class weights are computed from the examples that are learned from";
                Some(Tensor::from_mistake(Error::mistake(message).note("`Loss::fitted(&data.targets)` does")))
            }
        }
    }

    fn cross_entropy(&self, logits: &Tensor, classes: &Tensor) -> Tensor {
        let (logits, classes) = match (logits.ndim(), logits.size(-1)) {
            (Ok(3), Ok(many)) => (logits.reshape([-1, many as isize]), classes.flatten(0)),
            (Ok(3), Err(error)) => return Tensor::from_mistake(error),
            _ => (logits.clone(), classes.clone()),
        };
        let weights = self.weights();
        if self.label_smoothing == 0.0 && weights.is_none() {
            return logits.cross_entropy(&classes);
        }
        let options =
            CrossEntropyOptions { label_smoothing: self.label_smoothing, ignore_index: None, weight: weights.as_ref() };
        logits.cross_entropy_with(&classes, &options)
    }

    /// Each class as a yes or a no, the mean over the classes of an example, then over the examples.
    fn each_class(&self, logits: &Tensor, classes: &Tensor) -> Tensor {
        let wanted = match logits.size(-1) {
            Ok(1) => classes.cast(DType::F32).unsqueeze(-1),
            Ok(many) => classes.one_hot(many, DType::F32),
            Err(error) => return Tensor::from_mistake(error),
        };
        if logits.check().and(classes.check()).is_ok() && !logits.is_same_size(&wanted) {
            let message = "bce_with_logits: needs logits [batch, classes], or [batch, 1] of two classes, and integer classes [batch]";
            return Tensor::from_mistake(Error::mistake(message).note(format!("left {logits:?}, right {classes:?}")));
        }
        let Some(weights) = self.weights() else { return logits.binary_cross_entropy_with_logits(&wanted) };
        let each = (logits.softplus() - logits * &wanted).mean(-1);
        let counts = weights.index_select(0, classes);
        (each * &counts).sum(..) / counts.sum(..)
    }
}
