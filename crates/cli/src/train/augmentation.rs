//! Random changes of the examples in training, as layers of the network.

use panoply::nn::{LayerSpec, Network};
use panoply::{Error, Result};

/// Inserts augmentation layers before the trainable layers, but after a layer that standardizes columns.
pub fn changed_at_random(network: &mut Network, changes: Vec<LayerSpec>, sequences: bool) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    if let Some(LayerSpec::Embedding { .. }) = network.layers.first() {
        return Err(Error::mistake("--augment cannot be used with text; remove the option"));
    }
    let at = usize::from(matches!(network.layers.first(), Some(LayerSpec::Standardize {})));
    network.layers.splice(at..at, changes);
    let ends = |_| if sequences { network.check_variable_lengths() } else { Ok(()) };
    network.layer_shapes().and_then(ends).map_err(|error| error.note("the layers of `--augment` come first"))
}
