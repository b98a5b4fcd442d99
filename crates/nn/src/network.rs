//! A network as data: what it takes and its layers in order, with sizes that are checked before anything is made.
//!
//! One description serves them all: the builder ([`Network::with_input_size`]), the macro `sequential!`, a file of TOML
//! ([`Network::read`]), the manifest beside a model file, [`summary`] and the export. Inputs of layers are never said twice:
//! each takes what the one before gives. A built network is a [`Model`], which is a layer and a module like any other.

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
pub use layer_spec::LayerSpec;
pub use loss::{ClassWeights, Loss, LossKind, TargetScale};
pub(crate) use shape::through;
pub use summary::{LayerSummary, Summary};

use crate::checkpoint::TensorFile;
use crate::layer::{ForwardContext, Layer};
use crate::layers::Sequential;
use crate::module::{Module, ParamVisitor, ParamVisitorMut};

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
    pub fn layer_shapes(&self) -> Result<Vec<Vec<usize>>> {
        self.checked().map_err(|(layer, what)| Error::mistake(self.complaint(layer, &what)))
    }

    /// What comes out, the batch aside.
    pub fn output_shape(&self) -> Result<Vec<usize>> {
        Ok(self.layer_shapes()?.pop().unwrap_or_default())
    }

    /// Whether examples whose axes have these lengths can be taken: those of the input, or as many numbers in the same order, which
    /// they are where one side is a single axis, or where both agree but for axes of length 1.
    pub fn accepts_shape(&self, lengths: &[usize]) -> bool {
        let long = |lengths: &[usize]| lengths.iter().copied().filter(|length| *length != 1).collect::<Vec<usize>>();
        let single = lengths.len() == 1 || self.input.len() == 1;
        size(lengths) == size(&self.input) && (single || long(lengths) == long(&self.input))
    }

    /// The model at the start of training, or the first layer that does not fit.
    pub fn build(&self, rng: &mut Rng) -> Result<Model> {
        let Extent { arrays, stored, .. } = self.extent()?;
        if arrays > extent::MOST_ARRAYS || stored > extent::MOST_STORED {
            let what = format!("{arrays} arrays, and its norms and scales hold {stored} numbers");
            let most = format!("{} and {} are the most", extent::MOST_ARRAYS, extent::MOST_STORED);
            return Err(Error::mistake(format!("the network has {what}; {most}")));
        }
        Ok(Model { network: self.clone(), layers: build::all(&self.layers, &self.input, rng) })
    }

    /// The model with the parameters of a file; see [`Network::load_file`].
    pub fn load(&self, path: &Path) -> Result<Model> {
        self.load_file(&TensorFile::read(path)?)
    }

    /// The model with the parameters of a file. Nothing is built, and nothing in proportion to a number of the description is allocated,
    /// if its parameters and states are many more than the file holds. A few that are missing are listed.
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
                format!("{path}: the network it describes has {described}, the file holds {arrays} with {numel}");
            return Err(Error::corrupt(message).note("it was cut short or changed; take another copy of it"));
        }
        let mut model = self.build(&mut Rng::seed_from_u64(0))?;
        file.load(&mut model)?;
        Ok(model)
    }

    /// [`Network::layer_shapes`], or what is wrong and the position of the layer it is wrong with.
    fn checked(&self) -> Result<Vec<Vec<usize>>, (Option<usize>, String)> {
        if self.input.is_empty() || self.input.contains(&0) || size(&self.input).is_none() {
            return Err((None, format!("the input {:?} needs axes of at least 1", self.input)));
        }
        self.loss.check().map_err(|what| (None, what))?;
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
    /// `[batch, …]` in the shape of the network's input, or in another that it takes ([`Network::accepts_shape`]).
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        if let Some(Err(mistake)) = pass.seq_lengths().map(|_| self.network.check_variable_lengths()) {
            return Tensor::from_mistake(mistake);
        }
        let axes = &self.network.input;
        let lengths = |rank: usize| (1..rank as isize).map(|axis| input.size(axis)).collect::<Result<Vec<usize>>>();
        let given = input.ndim().and_then(lengths);
        let shaped = match given.as_deref() {
            Ok(given) if !given.is_empty() && *given != axes[..] && size(given) == size(axes) => {
                if !self.network.accepts_shape(given) {
                    let message = format!("examples of {given:?} are not the input {axes:?} of the network");
                    let note = "put their axes in its order first, or flatten them";
                    return Tensor::from_mistake(Error::mistake(message).note(note));
                }
                input.flatten(1).unflatten(1, axes)
            }
            Ok(_) => input.clone(),
            Err(error) if !self.has_axes_of(input) => return Tensor::from_mistake(error.clone()),
            Err(_) => input.clone(),
        };
        let layers = self.layers.layers.iter().zip(&self.network.layers).enumerate();
        layers.fold(shaped, |x, (at, (layer, spec))| {
            pass.call_layer(|| format!("layer {} ({})", at + 1, spec.kind()), &**layer, &x)
        })
    }
}

impl Model {
    /// Whether all axes of examples that are known are those of the network's input.
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
