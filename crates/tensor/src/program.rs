//! Functions as data: the graph of a function, for analyses that read it instead of running it.

use panoply_ir::graph::Graph;
use panoply_ir::{Error, Result, Scalar};
use panoply_runtime::Device;

use crate::eval::{Leaf, Number, TraceBindings, TracedFunction, eval};
use crate::tensor::{Node, NodeKind, Tensor};

/// The graph of a function of tensors, with the values of everything that is not an input.
#[derive(Clone, Debug)]
pub struct Program {
    /// The primitive graph.
    pub graph: Graph,
    /// Binding of each leaf of the graph.
    pub leaves: Vec<ProgramLeaf>,
    /// Value of each slot of the graph.
    pub slots: Vec<Scalar>,
    /// For each result of the function its index among the outputs of the graph: equal results share an output.
    pub results: Vec<usize>,
}

/// Binding of a leaf of a [`Program`].
#[derive(Clone, Debug)]
pub enum ProgramLeaf {
    /// The n-th input of the function.
    Input(usize),
    /// A tensor that the function captured, such as a parameter.
    Constant(Tensor),
}

/// Traces a function on placeholders with the shapes and element types of `inputs`, whose values do not matter.
///
/// ```
/// # use panoply_tensor::{Tensor, program};
/// let program = program(|x| Ok(vec![x[0].relu()]), &[&Tensor::from_slice(&[1.0f32, 2.0], [2])])?;
/// assert_eq!(program.graph.outputs.len(), 1);
/// # Ok::<(), panoply_tensor::Error>(())
/// ```
///
/// # Errors
/// If the function fails, reads the value of a placeholder, or draws random numbers.
#[doc(alias = "make_fx")]
#[doc(alias = "export")]
pub fn program(function: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>, inputs: &[&Tensor]) -> Result<Program> {
    inputs.iter().try_for_each(|input| input.check())?;
    eval(inputs)?;
    let device = inputs.iter().find_map(|input| input.device().cloned()).map_or_else(Device::current, Ok)?;
    let tensors: Vec<Tensor> = inputs.iter().map(|input| (*input).clone()).collect();
    let trace = Node::next_serial();
    let placeholder = |(n, input): (usize, &Tensor)| {
        let node = &input.0;
        let source = NodeKind::Input(n as u32);
        Tensor::with_valid_lengths(source, Vec::new(), node.shape.clone(), node.dtype, Some(device.clone()), None)
    };
    let placeholders: Vec<Tensor> = tensors.iter().enumerate().map(placeholder).collect();
    let results = function(&placeholders)?;
    results.iter().try_for_each(Tensor::check)?;
    let roots: Vec<&Tensor> = results.iter().collect();
    let bindings = TraceBindings { device: &device, trace, tensors: &tensors, placeholders: &placeholders };
    let (TracedFunction { graph, leaves, slots }, results) = TracedFunction::new(&bindings, &roots)?;
    let constant = |n: usize, storage| {
        let at = graph.nodes.iter().find(|node| node.op == panoply_ir::graph::Op::Input(n as u32));
        let node = at.expect("every leaf is a node");
        ProgramLeaf::Constant(Tensor::from_storage_unchecked_shape(storage, node.shape.clone(), node.dtype, None))
    };
    let leaves = leaves.into_iter().enumerate().map(|(n, leaf)| match leaf {
        Leaf::Captured(storage) => constant(n, storage),
        Leaf::Table(table, _) => ProgramLeaf::Constant(table),
        Leaf::Argument(input) => ProgramLeaf::Input(input),
    });
    let leaves = leaves.collect();
    let slot = |number: Number| match number {
        Number::Captured(value) => Ok(value),
        Number::Argument(_) | Number::Word(_) => {
            Err(Error::mistake("program: the function draws random numbers, or an input is a number passed at launch"))
        }
    };
    let slots = slots.into_iter().map(slot).collect::<Result<_>>()?;
    Ok(Program { graph, leaves, slots, results })
}
