//! Conversion of parsed messages to graphs that can be run. A function of the model becomes a graph for each of its calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::graph::{Attribute, Graph, Node};
use super::message::{self, Function};
use super::{Memory, constant, is_onnx, operators};

/// Converts the nodes of a graph or of a function.
pub struct Converter<'a> {
    /// Functions of the model.
    functions: &'a [Function<'a>],
    /// Opset version.
    opset: i64,
    memory: &'a Memory<'a>,
    /// Attributes of the call of the function, to which its nodes refer.
    arguments: BTreeMap<String, Attribute>,
    /// Inputs of the function that the call omits.
    omitted: BTreeSet<String>,
}

/// Returns the nodes of a graph and of the graphs within their attributes.
pub fn all_nodes<'g, 'a>(nodes: &'g [message::Node<'a>]) -> Vec<&'g message::Node<'a>> {
    let nested = |node: &'g message::Node<'a>| {
        let graphs = node.attributes.iter().filter_map(|attribute| attribute.graph.as_ref());
        std::iter::once(node).chain(graphs.flat_map(|graph| all_nodes(&graph.nodes)))
    };
    nodes.iter().flat_map(nested).collect()
}

/// Returns the constants of a graph and of functions, including those of attributes.
pub fn all_tensors<'g, 'a>(
    graph: &'g message::Graph<'a>,
    functions: &'g [Function<'a>],
) -> Vec<&'g message::Tensor<'a>> {
    let bodies = functions.iter().flat_map(|function| all_nodes(&function.nodes));
    let attributes = all_nodes(&graph.nodes).into_iter().chain(bodies).flat_map(|node| &node.attributes);
    let of_attribute = |attribute: &'g message::Attribute<'a>| {
        let nested = attribute.graph.iter().flat_map(|graph| &graph.initializers);
        attribute.tensor.iter().chain(nested)
    };
    graph.initializers.iter().chain(attributes.flat_map(of_attribute)).collect()
}

/// Returns the function of the model that a node calls.
pub fn called<'f, 'a>(node: &message::Node<'_>, functions: &'f [Function<'a>]) -> Option<&'f Function<'a>> {
    functions.iter().find(|function| function.name == node.operator && function.domain == node.domain)
}

impl<'a> Converter<'a> {
    /// Creates a converter of the model's graph.
    pub fn new(functions: &'a [Function<'a>], opset: i64, memory: &'a Memory<'a>) -> Converter<'a> {
        Converter { functions, opset, memory, arguments: BTreeMap::new(), omitted: BTreeSet::new() }
    }

    /// Converts a graph; its inputs include those with a default value.
    pub fn graph(&self, graph: &message::Graph<'_>) -> Result<Graph, String> {
        let mut constants = BTreeMap::new();
        for tensor in &graph.initializers {
            constants.insert(tensor.name.clone(), constant(tensor, self.memory)?);
        }
        let names = |infos: &[message::ValueInfo]| infos.iter().map(|info| info.name.clone()).collect();
        let nodes = self.nodes(&graph.nodes)?;
        Ok(Graph { inputs: names(&graph.inputs), outputs: names(&graph.outputs), nodes, constants })
    }

    fn nodes(&self, nodes: &[message::Node<'_>]) -> Result<Vec<Node>, String> {
        nodes.iter().map(|node| self.node(node)).collect()
    }

    fn node(&self, node: &message::Node<'_>) -> Result<Node, String> {
        let names = node.inputs.iter().chain(&node.outputs);
        self.memory.take(size_of::<Node>() + names.map(|name| size_of::<String>() + name.len()).sum::<usize>())?;
        let mut attributes = BTreeMap::new();
        for attribute in &node.attributes {
            // An argument that the call omits has the operator's default.
            let value = match attribute.reference.is_empty() {
                true => Some(self.attribute(attribute)?),
                false => self.arguments.get(&attribute.reference).cloned(),
            };
            attributes.extend(value.map(|value| (attribute.name.clone(), value)));
        }
        let is_omitted = |name: &String| self.omitted.contains(name);
        let input = |name: &String| if is_omitted(name) { String::new() } else { name.clone() };
        let mut inputs: Vec<String> = node.inputs.iter().map(input).collect();
        let rule = match called(node, self.functions) {
            Some(function) => {
                let body = self.memory.nested(|| self.call(function, &inputs, attributes))?;
                inputs.retain(|name| !name.is_empty());
                attributes = BTreeMap::from([(
                    "body".to_string(),
                    Attribute { graph: Some(Arc::new(body)), ..Attribute::default() },
                )]);
                operators::call
            }
            None => {
                is_onnx(&node.domain)
                    .then(|| operators::find(&node.operator))
                    .flatten()
                    .ok_or("an operator has no rule")?
                    .0
            }
        };
        // The name of a function never equals that of an operator.
        let operator = match called(node, self.functions) {
            Some(_) => format!("{}.{}", node.domain, node.operator),
            None => node.operator.clone(),
        };
        let outputs = node.outputs.clone();
        Ok(Node { operator, rule, inputs, outputs, attributes: attributes.into(), opset: self.opset })
    }

    fn attribute(&self, attribute: &message::Attribute<'_>) -> Result<Attribute, String> {
        let message::Attribute { float, int, ints, floats, text, texts, tensor, graph, .. } = attribute;
        let elements = ints.len() + floats.len() + texts.iter().map(String::len).sum::<usize>() + text.len();
        self.memory.take(size_of::<Attribute>() + elements * size_of::<i64>())?;
        let tensor = tensor.as_ref().map(|tensor| constant(tensor, self.memory)).transpose()?;
        let graph = graph.as_ref().map(|graph| self.graph(graph)).transpose()?.map(Arc::new);
        let (ints, floats, text, texts) = (ints.clone(), floats.clone(), text.clone(), texts.clone());
        Ok(Attribute { float: *float, int: *int, ints, floats, text, texts, tensor, graph })
    }

    /// Returns the graph of a call. Inputs that the call omits are omitted in the graph.
    fn call(
        &self,
        function: &Function<'_>,
        inputs: &[String],
        given: BTreeMap<String, Attribute>,
    ) -> Result<Graph, String> {
        let mut arguments = given;
        for default in &function.defaults {
            if !arguments.contains_key(&default.name) {
                arguments.insert(default.name.clone(), self.attribute(default)?);
            }
        }
        if inputs.len() > function.inputs.len() {
            return Err(format!(
                "the function {} has {} inputs, not {}",
                function.name,
                function.inputs.len(),
                inputs.len()
            ));
        }
        let is_given = |n: usize| inputs.get(n).is_some_and(|name| !name.is_empty());
        let (bound, omitted): (Vec<_>, Vec<_>) = function.inputs.iter().enumerate().partition(|(n, _)| is_given(*n));
        let names =
            |inputs: Vec<(usize, &String)>| inputs.into_iter().map(|(_, name)| name.clone()).collect::<Vec<String>>();
        let opset =
            function.opsets.iter().find(|(domain, _)| is_onnx(domain)).map_or(self.opset, |(_, version)| *version);
        let omitted = names(omitted).into_iter().collect();
        let inside = Converter { functions: self.functions, opset, memory: self.memory, arguments, omitted };
        let nodes = inside.nodes(&function.nodes)?;
        Ok(Graph { inputs: names(bound), outputs: function.outputs.clone(), nodes, constants: BTreeMap::new() })
    }
}
