//! Declarative networks: an input shape and layers in order, with sizes that are checked before anything is allocated.
//!
//! The same description is used by the builder ([`Network::with_input_size`]), the macro `sequential!`, TOML files ([`Network::read`]), the
//! manifest beside a model file, [`summary`] and the export. Input sizes are inferred: each layer takes the output of the previous one. A
//! built network is a [`Model`], which implements [`Layer`] and [`Module`].

mod build;
mod extent;
pub mod file;
pub mod layer_spec;
mod loss;
mod shape;
pub mod summary;
mod variable_length;

use std::path::Path;

use panoply_tensor::{Error, Result, Rng, Tensor};
use serde::{Deserialize, Serialize};

pub use extent::Extent;
pub use layer_spec::{LayerSpec, Padding};
pub use loss::{ClassWeights, Loss, LossKind, TargetScale};
pub(crate) use shape::through;
pub use summary::{LayerSummary, Summary};

use crate::checkpoint::TensorFile;
use crate::layer::{ForwardContext, Layer};
use crate::layers::Sequential;
use crate::module::{Module, ParamVisitor, ParamVisitorMut};

/// A description of a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Shape of an example, without the batch.
    pub input: Vec<usize>,
    /// Layers, in order.
    pub layers: Vec<LayerSpec>,
    /// Training loss.
    #[serde(default)]
    pub loss: Loss,
}

impl Network {
    /// Creates a network without layers for examples of this shape.
    pub fn with_input(lengths: &[usize]) -> Network {
        Network { input: lengths.to_vec(), layers: Vec::new(), loss: Loss::default() }
    }

    /// Creates a network without layers for rows of `size` numbers.
    pub fn with_input_size(size: usize) -> Network {
        Network::with_input(&[size])
    }

    /// Appends a layer.
    #[must_use]
    pub fn add_layer(mut self, layer: LayerSpec) -> Network {
        self.layers.push(layer);
        self
    }

    /// Sets the loss.
    #[must_use]
    pub fn loss(mut self, loss: Loss) -> Network {
        self.loss = loss;
        self
    }

    /// Returns the input shape of each layer followed by the output shape, all without the batch.
    ///
    /// # Errors
    /// If a layer does not fit; the first such layer is named.
    pub fn layer_shapes(&self) -> Result<Vec<Vec<usize>>> {
        self.checked().map_err(|(layer, what)| Error::mistake(self.complaint(layer, &what)))
    }

    /// Returns the output shape, without the batch.
    ///
    /// # Errors
    /// As for [`Network::layer_shapes`].
    pub fn output_shape(&self) -> Result<Vec<usize>> {
        Ok(self.layer_shapes()?.pop().unwrap_or_default())
    }

    /// Returns true if examples of this shape can be used as input. They must have the same number of elements, and either side must be a
    /// single axis or the shapes must be equal except for axes of length 1.
    pub fn accepts_shape(&self, lengths: &[usize]) -> bool {
        let long = |lengths: &[usize]| lengths.iter().copied().filter(|length| *length != 1).collect::<Vec<usize>>();
        let single = lengths.len() == 1 || self.input.len() == 1;
        size(lengths) == size(&self.input) && (single || long(lengths) == long(&self.input))
    }

    /// Builds the model with initial parameters.
    ///
    /// # Errors
    /// If a layer does not fit, or the network is too large.
    pub fn build(&self, rng: &mut Rng) -> Result<Model> {
        let Extent { arrays, stored, .. } = self.extent()?;
        if arrays > extent::MAX_ARRAYS || stored > extent::MAX_STORED {
            let what = format!("{arrays} arrays, and its norms and scales hold {stored} numbers");
            let most = format!("at most {} and {} are supported", extent::MAX_ARRAYS, extent::MAX_STORED);
            return Err(Error::mistake(format!("the network has {what}; {most}")));
        }
        Ok(Model { network: self.clone(), layers: build::all(&self.layers, &self.input, rng) })
    }

    /// Builds the model with the parameters of a file; see [`Network::load_file`].
    ///
    /// # Errors
    /// As for [`Network::load_file`], or if the file cannot be read.
    pub fn load(&self, path: &Path) -> Result<Model> {
        self.load_file(&TensorFile::read(path)?)
    }

    /// Builds the model with the parameters of a file. If the description has many more parameters than the file, nothing is built or
    /// allocated in proportion to its sizes. A few missing parameters are listed.
    ///
    /// # Errors
    /// If a layer does not fit, or parameters are missing, extra or of another shape.
    pub fn load_file(&self, file: &TensorFile) -> Result<Model> {
        const FEW_ARRAYS: u128 = 1 << 10;
        const FEW_NUMBERS: u128 = 1 << 20;
        let (mut arrays, mut numel) = (0u128, 0u128);
        file.each(|_, entry| {
            (arrays, numel) = (arrays + 1, numel + entry.dims.iter().map(|dim| *dim as u128).product::<u128>());
            Ok(())
        })?;
        let needed = self.extent()?;
        if needed.arrays > arrays + FEW_ARRAYS || needed.numel > numel + FEW_NUMBERS {
            let described = format!("{} arrays with {} numbers", needed.arrays, needed.numel);
            let path = file.path().display();
            let message =
                format!("{path}: its network description needs {described}, the file has {arrays} arrays with {numel}");
            return Err(Error::corrupt(message).note("the file is truncated or modified; use another copy"));
        }
        let mut model = self.build(&mut Rng::seed_from_u64(0))?;
        file.load(&mut model)?;
        Ok(model)
    }

    /// [`Network::layer_shapes`], or the position of the layer that does not fit and a description.
    fn checked(&self) -> Result<Vec<Vec<usize>>, (Option<usize>, String)> {
        if self.input.is_empty() || self.input.contains(&0) {
            return Err((None, format!("the input {:?} must have axes of at least 1", self.input)));
        }
        if size(&self.input).is_none() {
            return Err((None, format!("the input {:?} has too many elements", self.input)));
        }
        self.loss.check().map_err(|what| (None, what))?;
        shape::through(&self.layers, &self.input).map_err(|(at, what)| (Some(at), what))
    }

    /// Returns an error message about a layer with its position, its kind and the layer before it.
    fn complaint(&self, at: Option<usize>, what: &str) -> String {
        at.map_or_else(|| what.to_string(), |at| shape::complaint(&self.layers, at, what))
    }
}

/// Returns the product of lengths, or `None` if it exceeds any possible size.
fn size(lengths: &[usize]) -> Option<usize> {
    // Beyond the memory of any machine.
    const MAX_ELEMS: usize = 1 << if usize::BITS < 64 { 29 } else { 40 };
    let product = lengths.iter().try_fold(1usize, |product, length| product.checked_mul(*length));
    product.filter(|product| *product <= MAX_ELEMS)
}

/// A network with its parameters.
#[derive(Clone, Debug)]
pub struct Model {
    /// Description of the network.
    pub network: Network,
    /// One layer for each layer of the description.
    pub layers: Sequential,
}

impl Layer for Model {
    /// Runs on a batch `[batch, …]` in the network's input shape, or in another one that [`Network::accepts_shape`].
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        if let Some(Err(mistake)) = pass.seq_lengths().map(|_| self.network.check_variable_lengths()) {
            return Tensor::from_mistake(mistake);
        }
        let axes = &self.network.input;
        let lengths = |rank: usize| (1..rank as isize).map(|axis| input.size(axis)).collect::<Result<Vec<usize>>>();
        let given = input.ndim().and_then(lengths);
        let mut x = match given.as_deref() {
            Ok(given) if !given.is_empty() && *given != axes[..] && size(given) == size(axes) => {
                if !self.network.accepts_shape(given) {
                    let message = format!("examples of shape {given:?} do not match the network's input {axes:?}");
                    let note = "permute their axes to that order, or flatten them";
                    return Tensor::from_mistake(Error::mistake(message).note(note));
                }
                input.flatten(1, -1).unflatten(1, axes)
            }
            Ok(_) => input.clone(),
            Err(error) if !self.has_axes_of(input) => return Tensor::from_mistake(error.clone()),
            Err(_) => input.clone(),
        };
        // A closure would have its own location instead of the caller's.
        for (at, (layer, spec)) in self.layers.layers.iter().zip(&self.network.layers).enumerate() {
            x = pass.call_layer(|| format!("layer {at} ({})", spec.kind()), &**layer, &x);
        }
        x
    }
}

impl Model {
    /// Returns true if all statically known axes of the examples match the network's input.
    fn has_axes_of(&self, input: &Tensor) -> bool {
        let fits = |(at, wanted): (usize, &usize)| input.size(at as isize + 1).map_or(true, |length| length == *wanted);
        input.ndim().is_ok_and(|rank| rank == self.network.input.len() + 1)
            && self.network.input.iter().enumerate().all(fits)
    }
}

impl Module for Model {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) {
        self.layers.visit(visitor);
    }

    fn visit_mut(&mut self, visitor: &mut ParamVisitorMut<'_>) -> Result<()> {
        self.layers.visit_mut(visitor)
    }
}
