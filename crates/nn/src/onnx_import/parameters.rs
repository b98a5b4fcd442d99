//! The constants of an ONNX graph that training changes. A file does not mark them, so the operators that use a constant decide.
//!
//! A float constant is a weight if an operator multiplies it with its input, adds it, or scales by it, such as the filters of `Conv`. It is a
//! buffer, which a model keeps but does not train, if all uses are statistics: those of `BatchNormalization`, and the subtrahend and divisor of
//! a standardization. All other constants, such as the sizes of `Resize`, stay part of the graph.

use std::collections::{BTreeMap, BTreeSet};

use super::convert::{all_nodes, called};
use super::message::{Function, Graph, Node};
use super::{dtype, is_onnx};

/// The use of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// State that is not trained.
    Buffer,
    /// A trainable parameter.
    Weight,
    /// Part of the graph.
    Constant,
}

/// Maximum number of operators between a weight and the operator that multiplies by it, such as `Transpose`.
const MAX_BETWEEN: usize = 4;

/// The operators that use each value, with the position of the operand.
type Uses<'g, 'a> = BTreeMap<&'g str, Vec<(&'g Node<'a>, usize)>>;

/// Returns the weights and buffers of a graph by name. `buffers` are names of constants that are never trained.
pub fn roles(graph: &Graph<'_>, functions: &[Function<'_>], buffers: &BTreeSet<String>) -> BTreeMap<String, Role> {
    let mut uses = Uses::new();
    for node in all_nodes(&graph.nodes) {
        for (n, name) in node.inputs.iter().enumerate() {
            uses.entry(name).or_default().push((node, n));
        }
    }
    let outputs: BTreeSet<&str> = graph.outputs.iter().map(|output| &output.name[..]).collect();
    let is_float = |kind| dtype(kind).is_ok_and(|dtype| dtype.is_float());
    let found = graph.initializers.iter().filter(|tensor| !tensor.dims.is_empty() && is_float(tensor.kind));
    let role = |name: &str| match role(name, &uses, functions, MAX_BETWEEN) {
        Role::Weight if buffers.contains(name) => Role::Buffer,
        role => role,
    };
    let named = found.map(|tensor| (tensor.name.clone(), role(&tensor.name)));
    named.filter(|(name, role)| *role != Role::Constant && !outputs.contains(&name[..])).collect()
}

/// Returns the role of a value by its uses. One use as part of the graph decides, then one as a weight.
fn role(name: &str, uses: &Uses<'_, '_>, functions: &[Function<'_>], between: usize) -> Role {
    let each = uses.get(name).into_iter().flatten().map(|(node, n)| {
        if !is_onnx(&node.domain) || called(node, functions).is_some() {
            return Role::Constant;
        }
        match (&node.operator[..], n) {
            (
                "Conv" | "ConvTranspose" | "LayerNormalization" | "InstanceNormalization" | "GroupNormalization",
                1 | 2,
            )
            | ("BatchNormalization" | "LSTM" | "GRU" | "RNN", 1 | 2)
            | ("LSTM" | "GRU" | "RNN", 3)
            | ("LSTM", 7)
            | ("PRelu" | "RMSNormalization", 1)
            | ("Gather", 0)
            | ("Gemm", 0..=2)
            | ("MatMul" | "Add" | "Mul", 0 | 1)
            | ("Einsum", _) => Role::Weight,
            ("BatchNormalization", 3 | 4) | ("Sub" | "Div", 0 | 1) => Role::Buffer,
            ("Transpose" | "Reshape" | "Identity" | "Squeeze" | "Unsqueeze" | "Flatten" | "Expand" | "Cast", 0)
                if between > 0 =>
            {
                node.outputs.first().map_or(Role::Constant, |output| role(output, uses, functions, between - 1))
            }
            _ => Role::Constant,
        }
    });
    each.max().unwrap_or(Role::Constant)
}
