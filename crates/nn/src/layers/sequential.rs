//! Layers one after another.

use std::fmt;

use panoply_tensor::{Result, Tensor};

use crate::layer::{Layer, Pass};
use crate::module::{Module, Visitor, VisitorMut, module};

/// Anything that can stand in a [`Sequential`]: a layer that is a module and can be cloned.
pub trait Stage: Layer + Module + fmt::Debug + Send + Sync {
    /// A clone behind a pointer.
    fn boxed(&self) -> Box<dyn Stage>;
}

impl<S: Layer + Module + fmt::Debug + Clone + Send + Sync + 'static> Stage for S {
    fn boxed(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}

/// Each layer reads what the one before gives.
#[derive(Debug, Default)]
pub struct Sequential {
    /// In order.
    pub layers: Vec<Box<dyn Stage>>,
}

impl Sequential {
    /// No layers: gives its input.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// With another layer at the end.
    #[must_use]
    pub fn then(mut self, layer: impl Stage + 'static) -> Sequential {
        self.layers.push(Box::new(layer));
        self
    }
}

impl Clone for Sequential {
    fn clone(&self) -> Sequential {
        Sequential { layers: self.layers.iter().map(|layer| (**layer).boxed()).collect() }
    }
}

impl Layer for Sequential {
    fn forward(&self, input: &Tensor, pass: &mut Pass<'_>) -> Tensor {
        let layers = self.layers.iter().enumerate();
        layers.fold(input.clone(), |x, (i, layer)| pass.through(|| format!("layer {i}"), &**layer, &x))
    }
}

impl Module for Sequential {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.layers.iter().enumerate().for_each(|(i, layer)| visitor.field(&i.to_string(), &**layer));
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) -> Result<()> {
        self.layers.iter_mut().enumerate().try_for_each(|(i, layer)| visitor.field(&i.to_string(), &mut **layer))
    }
}

/// A function of tensors as a layer: `Map(Tensor::relu)`.
#[derive(Clone, Copy, Debug)]
pub struct Map(pub fn(&Tensor) -> Tensor);

impl Layer for Map {
    fn forward(&self, input: &Tensor, _: &mut Pass<'_>) -> Tensor {
        (self.0)(input)
    }
}

module!(Map {});
