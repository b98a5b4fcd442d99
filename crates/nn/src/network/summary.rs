//! What a network consists of, for people and for programs.

use std::fmt;

use panoply_tensor::{DType, Result};
use serde::Serialize;

use super::Model;
use crate::module::Module;

/// A network layer by layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Lengths of an example's axes.
    pub input: Vec<usize>,
    /// In order.
    pub layers: Vec<LayerSummary>,
    /// Numbers that gradients move where they are not frozen.
    pub trainable_parameters: usize,
    /// How many of these are frozen.
    pub frozen_parameters: usize,
    /// Numbers kept beside them.
    pub non_trainable: usize,
    /// Bytes of both.
    pub bytes: usize,
    /// Bytes of what the layers give for one example, all of them together, in f32.
    pub activation_bytes: usize,
}

/// One layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerSummary {
    /// As it is spelled in files.
    pub kind: &'static str,
    /// Lengths of what comes out, the batch aside.
    pub output_shape: Vec<usize>,
    /// Numbers that gradients move where they are not frozen.
    pub num_parameters: usize,
    /// Numbers kept beside them.
    pub non_trainable: usize,
    /// Bytes of both.
    pub bytes: usize,
}

impl Model {
    /// Layers, what they give, parameters and memory.
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
        let given: usize = layers.iter().map(|layer| layer.output_shape.iter().product::<usize>()).sum();
        Ok(Summary {
            input: self.network.input.clone(),
            trainable_parameters: layers.iter().map(|layer| layer.num_parameters).sum(),
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
        writeln!(f, "     {:width$}  {:<16}  {:>10}  {:>10}", "layer", "gives", "parameters", "bytes")?;
        writeln!(f, "     {:width$}  {:<16}", "input", axes(&self.input))?;
        for (at, layer) in self.layers.iter().enumerate() {
            let LayerSummary { kind, output_shape: output, num_parameters: parameters, bytes, .. } = layer;
            writeln!(f, "{:>3}  {kind:width$}  {:<16}  {parameters:>10}  {bytes:>10}", at + 1, axes(output))?;
        }
        let Summary {
            trainable_parameters: parameters,
            frozen_parameters: frozen,
            non_trainable: states,
            bytes,
            activation_bytes,
            ..
        } = self;
        let trained = parameters - frozen;
        let frozen = if *frozen > 0 { format!(", {frozen} frozen") } else { String::new() };
        let kept = if *states > 0 { format!(" and {states} kept beside them") } else { String::new() };
        writeln!(
            f,
            "{trained} parameters to train{frozen}{kept}, {bytes} bytes; {activation_bytes} bytes of activations an example"
        )
    }
}

fn axes(lengths: &[usize]) -> String {
    let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
    format!("[{}]", lengths.join(", "))
}
