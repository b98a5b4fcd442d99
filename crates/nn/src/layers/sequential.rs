//! Layers one after another.

use std::fmt;

use panoply_tensor::{Result, Tensor};

use crate::layer::{ForwardContext, Layer};
use crate::module::{Module, ParamVisitor, ParamVisitorMut, module};

/// Anything that can stand in a [`Sequential`]: a layer that is a module and can be cloned.
pub trait SequentialLayer: Layer + Module + fmt::Debug + Send + Sync {
    /// A clone behind a pointer.
    fn clone_box(&self) -> Box<dyn SequentialLayer>;
}

impl<S: Layer + Module + fmt::Debug + Clone + Send + Sync + 'static> SequentialLayer for S {
    fn clone_box(&self) -> Box<dyn SequentialLayer> {
        Box::new(self.clone())
    }
}

/// Each layer reads what the one before gives.
#[derive(Debug, Default)]
pub struct Sequential {
    /// In order.
    pub layers: Vec<Box<dyn SequentialLayer>>,
}

impl Sequential {
    /// No layers: gives its input.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// With another layer at the end.
    #[must_use]
    #[allow(clippy::should_implement_trait, reason = "it adds a layer, as Keras names it")]
    pub fn add(mut self, layer: impl SequentialLayer + 'static) -> Sequential {
        self.layers.push(Box::new(layer));
        self
    }
}

impl Clone for Sequential {
    fn clone(&self) -> Sequential {
        Sequential { layers: self.layers.iter().map(|layer| (**layer).clone_box()).collect() }
    }
}

impl Layer for Sequential {
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let layers = self.layers.iter().enumerate();
        layers.fold(input.clone(), |x, (i, layer)| pass.call_layer(|| format!("layer {i}"), &**layer, &x))
    }
}

impl Module for Sequential {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) {
        self.layers.iter().enumerate().for_each(|(i, layer)| visitor.field(&i.to_string(), &**layer));
    }

    fn visit_mut(&mut self, visitor: &mut ParamVisitorMut<'_>) -> Result<()> {
        self.layers.iter_mut().enumerate().try_for_each(|(i, layer)| visitor.field(&i.to_string(), &mut **layer))
    }
}

/// A function of tensors as a layer: `Lambda(Tensor::relu)`.
#[derive(Clone, Copy, Debug)]
pub struct Lambda(pub fn(&Tensor) -> Tensor);

impl Layer for Lambda {
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        (self.0)(input)
    }
}

module!(Lambda {});
