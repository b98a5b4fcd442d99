//! Folding of batch norms into the convolutions before them, for inference. [Jacob et al. 2018]

use std::collections::{BTreeMap, BTreeSet};

use panoply_tensor::{DType, Result, Tensor};

use super::Imported;
use super::graph::{Graph, Node};
use crate::compiled::{affine_of_batch_norm, scale_outputs};
use crate::module::Param;

/// A batch norm that can be folded.
struct Fold {
    /// Positions of the convolution and of the batch norm among the nodes.
    nodes: [usize; 2],
    /// Names of the filters and of the bias of the convolution.
    conv: [String; 2],
    /// Names of the batch norm's parameters: scale, bias, mean and variance.
    norm: [String; 4],
    epsilon: f64,
}

impl Imported {
    /// Returns the network with each batch norm folded into the convolution before it, if nothing else uses the output of the convolution or
    /// its parameters, all parameters hold the same type, f32 or f64, and those of the norm have one element for each filter.
    ///
    /// The result can only be run on this device: [`Imported::structure`] still describes the file.
    ///
    /// # Errors
    /// If a device error occurs.
    pub(crate) fn fold_batch_norms(&self) -> Result<Imported> {
        let params: BTreeMap<&str, &Tensor> =
            self.params.iter().map(|(name, param)| (name.as_str(), param.tensor())).collect();
        let mut names = names(&self.graph);
        let mut network = self.clone();
        let mut replaced = BTreeSet::new();
        for Fold { nodes: [conv, norm], conv: [filters, bias], norm: statistics, epsilon } in self.folds(&params)? {
            let [factor, term] = affine_of_batch_norm(statistics.each_ref().map(|name| params[&name[..]]), epsilon);
            let own_bias = params.get(&bias[..]).copied();
            let folded = scale_outputs(params[&filters[..]], own_bias, &factor, &term)?;
            folded.iter().try_for_each(Tensor::check)?;
            let result = network.graph.nodes[norm].outputs.split_off(0).swap_remove(0);
            let new = ["filters", "bias"].map(|part| new_name(&mut names, format!("{result}/{part}")));
            let conv = &mut network.graph.nodes[conv];
            conv.inputs.truncate(1);
            conv.inputs.extend(new.clone());
            conv.outputs = vec![result];
            for (name, tensor) in new.into_iter().zip(folded) {
                network.graph.inputs.push(name.clone());
                network.params.push((name, Param::state(tensor)));
            }
            replaced.extend([filters, bias]);
        }
        network.params.retain(|(name, _)| !replaced.contains(name));
        network.graph.inputs.retain(|name| !replaced.contains(name));
        // Nodes that were folded have no outputs.
        network.graph.nodes.retain(|node| !node.outputs.is_empty());
        Ok(network)
    }

    /// Returns the number of operators, without those of graphs within attributes.
    pub(crate) fn operators(&self) -> usize {
        self.graph.nodes.len()
    }

    /// Returns the batch norms that can be folded.
    fn folds(&self, params: &BTreeMap<&str, &Tensor>) -> Result<Vec<Fold>> {
        let nodes = &self.graph.nodes;
        let uses = uses(&self.graph);
        let is_used_once = |name: &str| uses.get(name) == Some(&1);
        let produced: BTreeMap<&str, usize> =
            nodes.iter().enumerate().filter_map(|(at, node)| Some((node.outputs.first()?.as_str(), at))).collect();
        let mut folds = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            let Some(epsilon) = epsilon(node) else { continue };
            let ([x, norm @ ..], [_]) = (&node.inputs[..], &node.outputs[..]) else { continue };
            let (Ok(norm), Some(&before)) = (<[String; 4]>::try_from(norm.to_vec()), produced.get(x.as_str())) else {
                continue;
            };
            let conv = &nodes[before];
            let (filters, bias) = match &conv.inputs[..] {
                [_, filters] => (filters, None),
                [_, filters, bias] => (filters, Some(bias).filter(|bias| !bias.is_empty())),
                _ => continue,
            };
            let is_own = [x, filters].into_iter().chain(bias).all(|name| is_used_once(name));
            if conv.operator == "Conv" && conv.outputs.len() == 1 && is_own {
                let vectors: Option<Vec<&Tensor>> =
                    bias.into_iter().chain(&norm).map(|name| params.get(&name[..]).copied()).collect();
                if let (Some(stored), Some(vectors)) = (params.get(&filters[..]), vectors)
                    && is_uniform(stored, &vectors)?
                {
                    let bias = bias.cloned().unwrap_or_default();
                    folds.push(Fold { nodes: [before, at], conv: [filters.clone(), bias], norm, epsilon });
                }
            }
        }
        Ok(folds)
    }
}

/// Returns true if filters and vectors hold the same type, f32 or f64, and each vector has one element for each filter.
fn is_uniform(filters: &Tensor, vectors: &[&Tensor]) -> Result<bool> {
    let (dtype, shape) = (filters.dtype(), filters.shape()?);
    let mut fits = matches!(dtype, DType::F32 | DType::F64) && shape.ndim() > 0;
    for vector in vectors {
        fits = fits && vector.dtype() == dtype && vector.shape()?.dims() == &shape.dims()[..1];
    }
    Ok(fits)
}

/// Returns a name that begins like this and that nothing in the network has, and adds it to the names.
fn new_name(known: &mut BTreeSet<String>, mut name: String) -> String {
    while known.contains(&name) {
        name.push('_');
    }
    known.insert(name.clone());
    name
}

/// Calls `f` with a graph and the graphs within the attributes of its nodes.
fn each_graph<'a>(graph: &'a Graph, f: &mut impl FnMut(&'a Graph)) {
    f(graph);
    let attributes = graph.nodes.iter().flat_map(|node| node.attributes.values());
    attributes.filter_map(|attribute| attribute.graph.as_ref()).for_each(|inner| each_graph(inner, f));
}

/// Returns the names of all values, those of the graphs within attributes included.
fn names(graph: &Graph) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    each_graph(graph, &mut |graph| {
        let of_nodes = graph.nodes.iter().flat_map(|node: &Node| node.inputs.iter().chain(&node.outputs));
        names.extend(of_nodes.chain(&graph.inputs).chain(graph.constants.keys()).cloned());
    });
    names
}

/// Counts how often each value is used by the nodes of a graph, by those of the graphs within their attributes, and as an output.
fn uses(graph: &Graph) -> BTreeMap<&str, usize> {
    let mut uses = BTreeMap::new();
    each_graph(graph, &mut |graph| {
        let operands = graph.nodes.iter().flat_map(|node: &Node| &node.inputs);
        operands.chain(&graph.outputs).for_each(|name| *uses.entry(name.as_str()).or_default() += 1);
    });
    uses
}

/// Returns the number that a batch norm in evaluation mode adds to the variance; `None` for other nodes.
fn epsilon(node: &Node) -> Option<f64> {
    let int = |name: &str, default: i64| node.attributes.get(name).map_or(default, |attribute| attribute.int);
    let is_folded = node.operator == "BatchNormalization"
        && node.opset >= 7
        && int("training_mode", 0) == 0
        && int("spatial", 1) == 1;
    is_folded.then(|| node.attributes.get("epsilon").map_or(f64::from(1e-5f32), |attribute| f64::from(attribute.float)))
}
