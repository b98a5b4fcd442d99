//! Custom kernels in a schedule: their inputs and used outputs.

use std::fmt;
use std::sync::Arc;

use panoply_ir::custom_kernel::{CustomKernel, Role};
use panoply_ir::graph::{Graph, NodeId, Op};

/// A custom kernel with the nodes bound to its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomKernelCall {
    /// The kernel.
    pub custom_kernel: Arc<CustomKernel>,
    /// Input of each parameter that has one, in their order. Reshapes are resolved to the node that they view.
    pub inputs: Vec<NodeId>,
    /// Node of each output, or `None` if it is not used.
    pub outputs: Vec<Option<NodeId>>,
}

impl CustomKernelCall {
    /// Creates the call of a node, with no other output used so far.
    pub fn new(graph: &Graph, id: NodeId, custom_kernel: &Arc<CustomKernel>) -> CustomKernelCall {
        let inputs = graph.node(id).inputs.iter().map(|input| graph.storage_node(*input)).collect();
        let output =
            |at: usize| matches!(graph.node(id).op, Op::CustomCall(_, output) if output as usize == at).then_some(id);
        let outputs = (0..custom_kernel.outputs.len()).map(output).collect();
        CustomKernelCall { custom_kernel: custom_kernel.clone(), inputs, outputs }
    }

    /// Returns the inputs that are read from memory; the others are scalars.
    pub fn stored(&self) -> impl Iterator<Item = NodeId> + '_ {
        let taking = self.custom_kernel.roles.iter().filter(|role| !matches!(role, Role::Write(_)));
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
        write!(f, "{} = {}({})", list(outputs), self.custom_kernel.kernel.name, list(inputs))
    }
}
