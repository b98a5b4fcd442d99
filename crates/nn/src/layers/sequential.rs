//! Sequences of layers.

use std::fmt;

use panoply_tensor::{Result, Tensor};

use crate::layer::{ForwardContext, Layer};
use crate::module::{Module, ParamVisitor, ParamVisitorMut, module};

/// An element of a [`Sequential`]: a layer that is a module and can be cloned.
pub trait SequentialLayer: Layer + Module + fmt::Debug + Send + Sync {
    /// Returns a boxed clone.
    fn clone_box(&self) -> Box<dyn SequentialLayer>;
}

impl<S: Layer + Module + fmt::Debug + Clone + Send + Sync + 'static> SequentialLayer for S {
    fn clone_box(&self) -> Box<dyn SequentialLayer> {
        Box::new(self.clone())
    }
}

/// Layers in sequence: each reads the output of the previous one.
#[derive(Debug, Default)]
pub struct Sequential {
    /// Layers, in order.
    pub layers: Vec<Box<dyn SequentialLayer>>,
}

impl Sequential {
    /// Creates an empty sequence, which is the identity.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// Appends a layer.
    #[must_use]
    #[doc(alias = "append")]
    #[allow(clippy::should_implement_trait, reason = "Keras's name for appending a layer")]
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
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let mut x = input.clone();
        // A closure would have its own location instead of the caller's.
        for (i, layer) in self.layers.iter().enumerate() {
            x = pass.call_layer(|| format!("layer {i}"), &**layer, &x);
        }
        x
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

/// A tensor function as a layer: `Lambda(Tensor::relu)`.
#[derive(Clone, Copy, Debug)]
pub struct Lambda(pub fn(&Tensor) -> Tensor);

impl Layer for Lambda {
    #[track_caller]
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        (self.0)(input)
    }
}

module!(Lambda {});
