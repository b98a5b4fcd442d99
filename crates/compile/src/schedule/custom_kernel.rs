//! A kernel of its author's in a schedule: what it reads, and which of its outputs are wanted.

use std::fmt;
use std::sync::Arc;

use panoply_ir::custom_kernel::{CustomKernel, Role};
use panoply_ir::graph::{Graph, NodeId, Op};

/// A kernel with the nodes of its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomKernelCall {
    /// What runs.
    pub authored: Arc<CustomKernel>,
    /// The input of each parameter that has one, in their order. No reshapes: they are other views of the same memory.
    pub inputs: Vec<NodeId>,
    /// The node of each output, where it is wanted.
    pub outputs: Vec<Option<NodeId>>,
}

impl CustomKernelCall {
    /// The kernel of a node, of which no other output is wanted so far.
    pub fn new(graph: &Graph, id: NodeId, authored: &Arc<CustomKernel>) -> CustomKernelCall {
        let inputs = graph.node(id).inputs.iter().map(|input| graph.storage_node(*input)).collect();
        let output =
            |at: usize| matches!(graph.node(id).op, Op::CustomCall(_, output) if output as usize == at).then_some(id);
        let outputs = (0..authored.outputs.len()).map(output).collect();
        CustomKernelCall { authored: authored.clone(), inputs, outputs }
    }

    /// The inputs that are read from memory; the others are numbers.
    pub fn stored(&self) -> impl Iterator<Item = NodeId> + '_ {
        let taking = self.authored.roles.iter().filter(|role| !matches!(role, Role::Write(_)));
        taking.zip(&self.inputs).filter(|(role, _)| !matches!(role, Role::Scalar(_))).map(|(_, input)| *input)
    }
}

impl fmt::Display for CustomKernelCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ids: &mut dyn Iterator<Item = Option<NodeId>>| {
            let ids: Vec<String> = ids.map(|id| id.map_or("_".to_string(), |id| format!("n{}", id.0))).collect();
            ids.join(", ")
        };
        let (inputs, outputs) = (&mut self.inputs.iter().map(|id| Some(*id)), &mut self.outputs.iter().copied());
        write!(f, "{} = {}({})", list(outputs), self.authored.kernel.name, list(inputs))
    }
}
