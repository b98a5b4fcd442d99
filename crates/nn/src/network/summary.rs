//! Summary of a network's layers, as text or JSON.

use std::fmt;

use panoply_tensor::{DType, Result};
use serde::Serialize;

use super::Model;
use crate::module::Module;

/// Layers, parameters and memory of a network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Shape of an example.
    pub input: Vec<usize>,
    /// Layers, in order.
    pub layers: Vec<LayerSummary>,
    /// Number of elements of the parameters that training changes.
    pub trainable_parameters: usize,
    /// Number of elements of the frozen parameters.
    pub frozen_parameters: usize,
    /// Number of elements of the buffers.
    pub non_trainable: usize,
    /// Size of parameters and buffers in bytes.
    pub bytes: usize,
    /// Size of all layer outputs for one example in f32, in bytes.
    pub activation_bytes: usize,
}

/// One layer of a [`Summary`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerSummary {
    /// Name of the layer in files.
    pub kind: &'static str,
    /// Output shape, without the batch.
    pub output_shape: Vec<usize>,
    /// Number of elements of the parameters, frozen ones included.
    pub num_parameters: usize,
    /// Number of elements of the buffers.
    pub non_trainable: usize,
    /// Size of parameters and buffers in bytes.
    pub bytes: usize,
}

impl Model {
    /// Summarizes layers, output shapes, parameters and memory.
    ///
    /// # Errors
    /// If a layer does not fit.
    pub fn summary(&self) -> Result<Summary> {
        let shapes = self.network.layer_shapes()?;
        let mut layers: Vec<LayerSummary> = Vec::new();
        let mut frozen = 0;
        for (at, layer) in self.network.layers.iter().enumerate() {
            let (mut parameters, mut states, mut bytes) = (0, 0, 0);
            for (_, param) in self.layers.layers[at].named_parameters() {
                let elems = param.tensor().shape()?.numel();
                *(if param.state { &mut states } else { &mut parameters }) += elems;
                frozen += if param.frozen && !param.state { elems } else { 0 };
                bytes += elems * param.tensor().dtype().bytes();
            }
            layers.push(LayerSummary {
                kind: layer.kind(),
                output_shape: shapes[at + 1].clone(),
                num_parameters: parameters,
                non_trainable: states,
                bytes,
            });
        }
        let all: usize = layers.iter().map(|layer| layer.num_parameters).sum();
        let given: usize = layers.iter().map(|layer| layer.output_shape.iter().product::<usize>()).sum();
        Ok(Summary {
            input: self.network.input.clone(),
            trainable_parameters: all - frozen,
            frozen_parameters: frozen,
            non_trainable: layers.iter().map(|layer| layer.non_trainable).sum(),
            bytes: layers.iter().map(|layer| layer.bytes).sum(),
            activation_bytes: given * DType::F32.bytes(),
            layers,
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.layers.iter().map(|layer| layer.kind.len()).max().unwrap_or(0).max("layer".len());
        writeln!(f, "     {:width$}  {:<16}  {:>10}  {:>10}", "layer", "output", "parameters", "bytes")?;
        writeln!(f, "     {:width$}  {:<16}", "input", axes(&self.input))?;
        for (at, layer) in self.layers.iter().enumerate() {
            let LayerSummary { kind, output_shape: output, num_parameters: parameters, bytes, .. } = layer;
            writeln!(f, "{:>3}  {kind:width$}  {:<16}  {parameters:>10}  {bytes:>10}", at, axes(output))?;
        }
        let Summary {
            trainable_parameters: trained,
            frozen_parameters: frozen,
            non_trainable: states,
            bytes,
            activation_bytes,
            ..
        } = self;
        let frozen = if *frozen > 0 { format!(", {frozen} frozen") } else { String::new() };
        let kept = if *states > 0 { format!(", {states} in buffers") } else { String::new() };
        writeln!(
            f,
            "{trained} trainable parameters{frozen}{kept}, {bytes} bytes; {activation_bytes} bytes of activations per example"
        )
    }
}

fn axes(lengths: &[usize]) -> String {
    let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
    format!("[{}]", lengths.join(", "))
}
