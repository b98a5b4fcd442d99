//! Splits of ReLUs by the sign of their operands, and the slopes and multipliers that linear bounds choose freely.

use crate::interval::Interval;
use crate::steps::{Step, StepId, Steps};
use crate::values::Bounds;

/// A sign of an operand of a ReLU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// The step of the ReLU.
    pub relu: StepId,
    /// Index of the element.
    pub element: usize,
    /// True if the operand is at least 0, false if it is at most 0.
    pub is_positive: bool,
}

impl Split {
    /// Returns the values of an interval with this sign; `None` if there are none.
    pub fn clipped(self, x: Interval) -> Option<Interval> {
        let clipped = match self.is_positive {
            true => Interval { lo: x.lo.max(0.0), hi: x.hi },
            false => Interval { lo: x.lo, hi: x.hi.min(0.0) },
        };
        #[cfg(test)]
        if crate::fault::is(crate::fault::Fault::Split) {
            return Some(Interval { lo: x.lo, hi: x.lo + 0.5 * (x.hi - x.lo) });
        }
        (clipped.lo <= clipped.hi).then_some(clipped)
    }
}

/// Slopes and multipliers of the ReLUs of a network.
#[derive(Clone, Debug, Default)]
pub struct Duals {
    /// Layers, in the order of the steps.
    pub layers: Vec<Layer>,
}

/// Slopes and multipliers of a ReLU.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The step.
    pub relu: StepId,
    /// Signs of the splits: 1, -1, or 0 for elements that are not split.
    pub sign: Vec<i8>,
    /// Slopes of the lower lines `[rows, elements]`.
    pub alpha: Vec<f32>,
    /// Multipliers of the splits `[rows, elements]`.
    pub beta: Vec<f32>,
}

impl Duals {
    /// Returns the default slopes of several rows, without multipliers.
    pub fn new(steps: &Steps, bounds: &[Bounds<'_>], splits: &[Split], rows: usize) -> Duals {
        let relus = steps.steps.iter().enumerate().filter_map(|(id, entry)| match entry.step {
            Step::Relu(x) => Some((id, x)),
            _ => None,
        });
        let layer = |(relu, x): (StepId, StepId)| {
            let slope = |x: &Interval| if x.hi > -x.lo { 1.0 } else { 0.0 };
            let elements = &bounds[x].elements;
            let alpha: Vec<f32> = elements.iter().map(slope).collect();
            let mut layer =
                Layer { relu, sign: Vec::new(), alpha: alpha.repeat(rows), beta: vec![0.0; alpha.len() * rows] };
            layer.set_splits(splits, alpha.len());
            layer
        };
        Duals { layers: relus.map(layer).collect() }
    }

    /// Returns those of some rows, with the signs of these splits.
    pub fn rows(&self, rows: &[usize], splits: &[Split]) -> Duals {
        let layer = |layer: &Layer| {
            let numel = layer.sign.len();
            let of = |all: &[f32]| rows.iter().flat_map(|row| &all[row * numel..][..numel]).copied().collect();
            let mut layer = Layer { alpha: of(&layer.alpha), beta: of(&layer.beta), ..layer.clone() };
            layer.set_splits(splits, numel);
            layer
        };
        Duals { layers: self.layers.iter().map(layer).collect() }
    }

    /// Returns the layer of a step.
    pub fn of(&self, relu: StepId) -> Option<&Layer> {
        self.layers.iter().find(|layer| layer.relu == relu)
    }

    /// Returns the size in memory.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(|layer| layer.sign.len() + 4 * (layer.alpha.len() + layer.beta.len())).sum()
    }
}

impl Layer {
    fn set_splits(&mut self, splits: &[Split], numel: usize) {
        self.sign = vec![0; numel];
        for split in splits.iter().filter(|split| split.relu == self.relu) {
            self.sign[split.element] = if split.is_positive { 1 } else { -1 };
        }
    }
}
