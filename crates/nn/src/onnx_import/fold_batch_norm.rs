//! Folding of batch norms into the convolutions before them, for inference. [Jacob et al. 2018]

use std::collections::{BTreeMap, BTreeSet};

use panoply_tensor::{DType, Error, Result, Tensor};

use super::Imported;
use super::graph::{Graph, Node};
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
    /// its parameters, and all parameters hold the same type, f32 or f64.
    ///
    /// The result can only be run on this device: [`Imported::structure`] still describes the file.
    ///
    /// # Errors
    /// If shapes of parameters do not fit.
    pub(crate) fn fold_batch_norms(&self) -> Result<Imported> {
        let mut network = self.clone();
        for fold in self.folds() {
            network.fold(&fold)?;
        }
        // Nodes that were folded have no outputs.
        network.graph.nodes.retain(|node| !node.outputs.is_empty());
        Ok(network)
    }

    /// Returns the number of operators, without those of graphs within attributes.
    pub(crate) fn operators(&self) -> usize {
        self.graph.nodes.len()
    }

    fn folds(&self) -> Vec<Fold> {
        let nodes = &self.graph.nodes;
        let mut uses = BTreeMap::new();
        count_uses(&self.graph, &mut uses);
        let is_used_once = |name: &str| uses.get(name) == Some(&1);
        let produced: BTreeMap<&str, usize> =
            nodes.iter().enumerate().filter_map(|(at, node)| Some((node.outputs.first()?.as_str(), at))).collect();
        let dtype =
            |name: &str| self.params.iter().find(|(own, _)| own == name).map(|(_, param)| param.tensor().dtype());
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
            let own: Vec<&String> = [x, filters].into_iter().chain(bias).collect();
            if conv.operator != "Conv" || conv.outputs.len() != 1 || !own.iter().all(|name| is_used_once(name)) {
                continue;
            }
            let kinds: Option<Vec<DType>> = own[1..].iter().copied().chain(&norm).map(|name| dtype(name)).collect();
            let is_uniform = |kinds: &Vec<DType>| {
                matches!(kinds[0], DType::F32 | DType::F64) && kinds.iter().all(|kind| *kind == kinds[0])
            };
            if kinds.is_some_and(|kinds| is_uniform(&kinds)) {
                let bias = bias.cloned().unwrap_or_default();
                folds.push(Fold { nodes: [before, at], conv: [filters.clone(), bias], norm, epsilon });
            }
        }
        folds
    }

    /// Returns a name that begins like this and that nothing in the network has.
    fn new_name(&self, mut name: String) -> String {
        let mut known = BTreeSet::new();
        each_name(&self.graph, &mut |name| {
            known.insert(name);
        });
        while known.contains(&name[..]) {
            name.push('_');
        }
        name
    }

    fn fold(&mut self, fold: &Fold) -> Result<()> {
        let value = |name: &str| {
            let found = self.params.iter().find(|(own, _)| own == name).map(|(_, param)| param.tensor().clone());
            found.ok_or_else(|| Error::corrupt(format!("the parameter `{name}` of the ONNX model is missing")))
        };
        let [scale, shift, mean, variance] = fold.norm.each_ref().map(|name| value(name));
        let factor = scale? / (variance? + fold.epsilon).sqrt();
        let filters = value(&fold.conv[0])?;
        let mut shape = vec![1; filters.shape()?.ndim()];
        shape[0] = filters.shape()?.dims()[0];
        let bias = match &fold.conv[1][..] {
            "" => -mean?,
            name => value(name)? - mean?,
        };
        let folded = [filters * factor.reshape(shape), bias * &factor + shift?];
        folded.iter().try_for_each(Tensor::check)?;
        let [filters, bias] = folded.map(Param::state);
        let node = self.graph.nodes[fold.nodes[1]].outputs.split_off(0).swap_remove(0);
        let [filters_name, bias_name] = ["filters", "bias"].map(|part| self.new_name(format!("{node}/{part}")));
        let conv = &mut self.graph.nodes[fold.nodes[0]];
        conv.inputs = vec![conv.inputs[0].clone(), filters_name.clone(), bias_name.clone()];
        conv.outputs = vec![node];
        self.params.retain(|(name, _)| !fold.conv.contains(name));
        self.graph.inputs.retain(|name| !fold.conv.contains(name));
        for (name, param) in [(filters_name, filters), (bias_name, bias)] {
            self.graph.inputs.push(name.clone());
            self.params.push((name, param));
        }
        Ok(())
    }
}

/// Calls `f` with the name of each operand and result of the nodes of a graph, and of the graphs within their attributes.
fn each_name<'a>(graph: &'a Graph, f: &mut impl FnMut(&'a str)) {
    let of_nodes = graph.nodes.iter().flat_map(|node: &Node| node.inputs.iter().chain(&node.outputs));
    of_nodes.chain(&graph.inputs).chain(graph.constants.keys()).for_each(|name| f(name));
    let attributes = graph.nodes.iter().flat_map(|node| node.attributes.values());
    attributes.filter_map(|attribute| attribute.graph.as_ref()).for_each(|inner| each_name(inner, f));
}

/// Counts how often each value is used by the nodes of a graph, by those of the graphs within their attributes, and as an output.
fn count_uses<'a>(graph: &'a Graph, uses: &mut BTreeMap<&'a str, usize>) {
    let operands = graph.nodes.iter().flat_map(|node: &Node| &node.inputs);
    operands.chain(&graph.outputs).for_each(|name| *uses.entry(name).or_default() += 1);
    let attributes = graph.nodes.iter().flat_map(|node| node.attributes.values());
    attributes.filter_map(|attribute| attribute.graph.as_ref()).for_each(|inner| count_uses(inner, uses));
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
