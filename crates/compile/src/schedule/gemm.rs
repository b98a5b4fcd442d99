//! A matrix product as a routine: what it reads, and how that lies in memory.
//!
//! Transposed, sliced and repeated operands are strides. A routine reads the deepest node below an operand whose
//! elements still lie at `offset + batch + row + column`; what stands between is never computed.

use panoply_ir::graph::{Graph, NodeId};
use panoply_ir::routine::{Gemm, Layout, Routine};

use super::affine::{Atom, Form, Var};
use super::pull;

/// A matrix product and the nodes it reads from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The routine.
    pub routine: Routine,
    /// The left operand.
    pub a: NodeId,
    /// The right operand.
    pub b: NodeId,
}

/// The routine that does a [`panoply_ir::graph::Op::MatMul`] node.
pub fn claim(graph: &Graph, id: NodeId) -> Claim {
    let node = graph.node(id);
    let (dims, rank) = (node.shape.dims(), node.shape.rank());
    let (m, n) = (dims[rank - 2], dims[rank - 1]);
    let (a, a_layout) = operand(graph, node.inputs[0]);
    let (b, b_layout) = operand(graph, node.inputs[1]);
    let gemm = Gemm {
        dtype: node.dtype,
        batch: dims[..rank - 2].iter().product(),
        m,
        n,
        k: graph.node(node.inputs[0]).shape.dims()[rank - 1],
        a: a_layout,
        b: b_layout,
        c: Layout { offset: 0, batch: m * n, row: n, column: 1 },
    };
    Claim { routine: Routine::Gemm(gemm), a, b }
}

fn operand(graph: &Graph, id: NodeId) -> (NodeId, Layout) {
    let (dims, rank) = (graph.node(id).shape.dims(), graph.node(id).shape.rank());
    let batch: usize = dims[..rank - 2].iter().product();
    let vars = [batch, dims[rank - 2], dims[rank - 1]].map(|extent| extent.max(1) as u64);
    let vars = [0, 1, 2].map(|id| Var { id, extent: vars[id as usize] });
    let mut coords = pull::unflatten(&Form::var(vars[0]), &dims[..rank - 2]);
    coords.extend([Form::var(vars[1]), Form::var(vars[2])]);
    let mut found = None;
    let mut at = id;
    loop {
        let node = graph.node(at);
        found = layout(&pull::linear(&coords, &node.shape), &vars).map(|layout| (at, layout)).or(found);
        if !pull::is_movement(&node.op) {
            return found.expect("the operand itself is row-major");
        }
        let (from, bounds) = pull::pull(node, &graph.node(node.inputs[0]).shape, &coords);
        if !bounds.is_empty() {
            return found.expect("the operand itself is row-major");
        }
        (at, coords) = (node.inputs[0], from);
    }
}

fn layout(form: &Form, vars: &[Var; 3]) -> Option<Layout> {
    let plain = form.terms().iter().all(|(atom, factor)| matches!(atom, Atom::Var(_)) && *factor > 0);
    let stride = |var: Var| form.coefficient(var).map_or(0, |factor| factor as usize);
    (plain && form.offset() >= 0).then(|| Layout {
        offset: form.offset() as usize,
        batch: stride(vars[0]),
        row: stride(vars[1]),
        column: stride(vars[2]),
    })
}
