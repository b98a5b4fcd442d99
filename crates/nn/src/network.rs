//! A network as data: what it takes and its layers in order, with sizes that are checked before anything is made.
//!
//! One description serves them all: the builder ([`Network::with_input_size`]), the macro `sequential!`, a file of TOML
//! ([`Network::read`]), the manifest beside a model file, [`summary`] and the export. Inputs of layers are never said twice:
//! each takes what the one before gives. A built network is a [`Model`], which is a layer and a module like any other.

mod build;
pub mod file;
pub mod layer_spec;
mod shape;
pub mod summary;
mod times;

use panoply_tensor::{DType, Error, Result, Rng, Tensor};
use serde::{Deserialize, Serialize};

pub use layer_spec::LayerSpec;
pub(crate) use shape::through;
pub use summary::{LayerSummary, Summary};

use crate::layer::{Layer, Pass};
use crate::layers::Sequential;
use crate::module::{Module, Visitor, VisitorMut};

/// What a network takes and does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Lengths of an example's axes, the batch aside.
    pub input: Vec<usize>,
    /// In order.
    pub layers: Vec<LayerSpec>,
    /// What training makes small.
    #[serde(default)]
    pub loss: Loss,
}

/// What training makes small.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Loss {
    /// How outputs and targets are compared.
    pub kind: LossKind,
    /// Share of the target that is spread evenly over all classes, in 0 .. 1. [Szegedy et al. 2016]
    pub label_smoothing: f64,
    /// What differences of numbers are divided by: with the deviation of the targets a loss and its gradients are of the same size
    /// whatever the targets' unit is. If nothing is said, `panoply train` puts that deviation here; [`Loss::of`] divides by nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
}

impl Default for Loss {
    /// Cross-entropy without settings.
    fn default() -> Loss {
        Loss::new(LossKind::default())
    }
}

/// How outputs and targets are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// Logits with classes.
    #[default]
    CrossEntropy,
    /// Numbers by the square of their difference.
    Mse,
    /// Numbers by the magnitude of their difference.
    L1,
    /// Numbers: the square up to a difference of 1 (of [`Loss::scale`] if there is one), then linear. [Huber 1964]
    Huber,
}

impl LossKind {
    /// Whether the targets are classes.
    pub fn is_of_classes(self) -> bool {
        self == LossKind::CrossEntropy
    }
}

impl Loss {
    /// Without settings.
    pub fn new(kind: LossKind) -> Loss {
        Loss { kind, label_smoothing: 0.0, scale: None }
    }

    /// The mean over the batch, in f32: of logits `[batch, classes]` and classes `[batch]`, or the same at each time
    /// (`[batch, time, classes]` and `[batch, time]`), or of numbers of equal shapes.
    pub fn of(&self, outputs: &Tensor, targets: &Tensor) -> Tensor {
        let outputs = outputs.cast(DType::F32);
        match self.kind {
            LossKind::CrossEntropy => self.cross_entropy(&outputs, targets),
            _ if outputs.shape().ok() != targets.shape().ok() && outputs.check().and(targets.check()).is_ok() => {
                let message = "the outputs of a network and the numbers it is to learn have other shapes";
                Tensor::from_mistake(Error::mistake(message).note(format!("left {outputs:?}, right {targets:?}")))
            }
            LossKind::Mse => self.scaled(&outputs).mse(&self.scaled(targets)),
            LossKind::L1 => self.scaled(&outputs).l1(&self.scaled(targets)),
            LossKind::Huber => self.scaled(&outputs).huber(&self.scaled(targets), 1.0),
        }
    }

    fn scaled(&self, numbers: &Tensor) -> Tensor {
        self.scale.map_or_else(|| numbers.clone(), |scale| numbers * (1.0 / scale))
    }

    fn cross_entropy(&self, logits: &Tensor, classes: &Tensor) -> Tensor {
        let (logits, classes) = match logits.shape().map(|shape| shape.dims()) {
            Ok([_, _, many]) => (logits.reshape([-1, *many as isize]), classes.flatten(0)),
            _ => (logits.clone(), classes.clone()),
        };
        if self.label_smoothing == 0.0 {
            return logits.cross_entropy(&classes);
        }
        let smoothed = panoply_tensor::CrossEntropy { smoothing: self.label_smoothing, ..Default::default() };
        logits.cross_entropy_with(&classes, &smoothed)
    }
}

impl Network {
    /// No layers yet, over examples whose axes have these lengths.
    pub fn with_input(lengths: &[usize]) -> Network {
        Network { input: lengths.to_vec(), layers: Vec::new(), loss: Loss::default() }
    }

    /// No layers yet, over rows of so many numbers.
    pub fn with_input_size(size: usize) -> Network {
        Network::with_input(&[size])
    }

    /// With another layer at the end.
    #[must_use]
    pub fn add_layer(mut self, layer: LayerSpec) -> Network {
        self.layers.push(layer);
        self
    }

    /// With this loss.
    #[must_use]
    pub fn loss(mut self, loss: Loss) -> Network {
        self.loss = loss;
        self
    }

    /// What goes into each layer and, last, what comes out, the batch aside; or the first layer that does not fit.
    pub fn shapes(&self) -> Result<Vec<Vec<usize>>> {
        self.checked().map_err(|(layer, what)| Error::mistake(self.complaint(layer, &what)))
    }

    /// What comes out, the batch aside.
    pub fn output(&self) -> Result<Vec<usize>> {
        Ok(self.shapes()?.pop().unwrap_or_default())
    }

    /// The model at the start of training, or the first layer that does not fit.
    pub fn build(&self, rng: &mut Rng) -> Result<Model> {
        self.shapes()?;
        Ok(Model { network: self.clone(), layers: build::all(&self.layers, &self.input, rng) })
    }

    /// [`Network::shapes`], or what is wrong and the position of the layer it is wrong with.
    fn checked(&self) -> Result<Vec<Vec<usize>>, (Option<usize>, String)> {
        if self.input.is_empty() || self.input.contains(&0) || size(&self.input).is_none() {
            return Err((None, format!("the input {:?} needs axes of at least 1", self.input)));
        }
        if !(0.0..1.0).contains(&self.loss.label_smoothing) {
            return Err((None, format!("label_smoothing {} is not in 0 .. 1", self.loss.label_smoothing)));
        }
        if self.loss.label_smoothing > 0.0 && !self.loss.kind.is_of_classes() {
            return Err((None, "label_smoothing is for cross_entropy; this loss compares numbers".to_string()));
        }
        let scale = self.loss.scale.unwrap_or(1.0);
        if !scale.is_finite() || scale <= 0.0 {
            return Err((None, format!("scale {scale} is not a positive number")));
        }
        if scale != 1.0 && self.loss.kind.is_of_classes() {
            return Err((None, "scale is for losses of numbers; cross_entropy compares classes".to_string()));
        }
        shape::through(&self.layers, &self.input).map_err(|(at, what)| (Some(at), what))
    }

    /// A sentence about a layer: its place, kind and what comes before it.
    fn complaint(&self, at: Option<usize>, what: &str) -> String {
        at.map_or_else(|| what.to_string(), |at| shape::complaint(&self.layers, at, what))
    }
}

/// The product of lengths, if it can be a size at all.
fn size(lengths: &[usize]) -> Option<usize> {
    // Where memory ends, or before.
    const MOST: usize = 1 << if usize::BITS < 64 { 29 } else { 40 };
    let product = lengths.iter().try_fold(1usize, |product, length| product.checked_mul(*length));
    product.filter(|product| *product <= MOST)
}

/// A network with its parameters.
#[derive(Clone, Debug)]
pub struct Model {
    /// What it takes and does.
    pub network: Network,
    /// One stage for each layer of the network.
    pub layers: Sequential,
}

impl Layer for Model {
    /// `[batch, …]` in the shape of the network's input, or in rows of as many numbers.
    fn forward(&self, input: &Tensor, pass: &mut Pass<'_>) -> Tensor {
        if let Some(Err(mistake)) = pass.times().map(|_| self.network.heeds_ends()) {
            return Tensor::from_mistake(mistake);
        }
        let axes = &self.network.input;
        let shaped = match input.shape().map(|shape| shape.dims()) {
            Ok([_, row]) if axes.len() > 1 && size(axes) == Some(*row) => input.unflatten(1, axes),
            _ => input.clone(),
        };
        let layers = self.layers.layers.iter().zip(&self.network.layers).enumerate();
        layers.fold(shaped, |x, (at, (layer, spec))| {
            pass.through(|| format!("layer {} ({})", at + 1, spec.kind()), &**layer, &x)
        })
    }
}

impl Module for Model {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.layers.visit(visitor);
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) -> Result<()> {
        self.layers.visit_mut(visitor)
    }
}
