//! Matches nodes with library routines of the device, and determines the routine's operands and their layouts.
//!
//! A call that names its routine reads its inputs row-major. In a matrix product, transposed, sliced and repeated
//! operands become strides: the routine reads the deepest node below an operand whose elements are at `offset + batch +
//! row + column`, and the nodes in between are never computed. A product of i32 operands that were cast from i8 becomes
//! a product of i8.

use std::fmt;

use panoply_ir::DType;
use panoply_ir::graph::{Graph, NodeId, Op};
use panoply_ir::routine::{Gemm, Layout, Routine};

use super::affine::{AffineExpr, AffineTerm, LoopVar};
use super::index_map;

/// A routine and the nodes bound to its buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutineMatch {
    /// The routine.
    pub routine: Routine,
    /// Input nodes, in the routine's operand order.
    pub inputs: Vec<NodeId>,
    /// Output nodes, in the routine's operand order; `None` if not used.
    pub outputs: Vec<Option<NodeId>>,
}

impl RoutineMatch {
    /// Returns the routine that computes a node, with no other output used so far; `None` if there is none.
    pub fn new(graph: &Graph, id: NodeId) -> Option<RoutineMatch> {
        let node = graph.node(id);
        match &node.op {
            Op::MatMul => Some(product(graph, id)),
            Op::Call(call, output) => Some(RoutineMatch {
                routine: call.routine.expect("calls without a routine were inlined"),
                inputs: node.inputs.iter().map(|input| graph.storage_node(*input)).collect(),
                outputs: (0..call.body.outputs.len()).map(|at| (at == *output as usize).then_some(id)).collect(),
            }),
            _ => None,
        }
    }
}

impl fmt::Display for RoutineMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = |id: &Option<NodeId>| id.map_or("_".to_string(), |id| format!("n{}", id.0));
        let outputs: Vec<String> = self.outputs.iter().map(written).collect();
        let inputs: Vec<String> = self.inputs.iter().map(|id| format!("n{}", id.0)).collect();
        write!(f, "{} = {}({}): {}", outputs.join(", "), self.routine.name(), inputs.join(", "), self.routine)
    }
}

/// Returns the routine that computes a [`Op::MatMul`] node.
pub fn product(graph: &Graph, id: NodeId) -> RoutineMatch {
    let node = graph.node(id);
    let (dims, rank) = (node.shape.dims(), node.shape.ndim());
    let (m, n) = (dims[rank - 2], dims[rank - 1]);
    let of =
        |dtype: DType| Some((operand(graph, node.inputs[0], dtype)?, operand(graph, node.inputs[1], dtype)?, dtype));
    let narrow = if node.dtype == DType::I32 { of(DType::I8) } else { None };
    let ((a, a_layout), (b, b_layout), dtype) =
        narrow.or_else(|| of(node.dtype)).expect("unmodified operands are row-major");
    let gemm = Gemm {
        dtype,
        tf32: false,
        bias: false,
        batch: dims[..rank - 2].iter().product(),
        m,
        n,
        k: graph.node(node.inputs[0]).shape.dims()[rank - 1],
        a: a_layout,
        b: b_layout,
        c: Layout { offset: 0, batch: m * n, row: n, column: 1 },
    };
    RoutineMatch { routine: Routine::Gemm(gemm), inputs: vec![a, b], outputs: vec![Some(id)] }
}

/// Returns the deepest node of type `dtype` below an operand that still has a matrix layout, and that layout. If the
/// operand has another type, it is searched through a conversion from `dtype`.
fn operand(graph: &Graph, id: NodeId, dtype: DType) -> Option<(NodeId, Layout)> {
    let (dims, rank) = (graph.node(id).shape.dims(), graph.node(id).shape.ndim());
    let batch: usize = dims[..rank - 2].iter().product();
    let vars = [batch, dims[rank - 2], dims[rank - 1]].map(|extent| extent.max(1) as u64);
    let vars = [0, 1, 2].map(|id| LoopVar { id, extent: vars[id as usize] });
    let mut coords = index_map::unflatten(&AffineExpr::var(vars[0]), &dims[..rank - 2]);
    coords.extend([AffineExpr::var(vars[1]), AffineExpr::var(vars[2])]);
    let mut found = None;
    let mut at = id;
    loop {
        let node = graph.node(at);
        if node.dtype == dtype {
            found = layout(&index_map::linear(&coords, &node.shape), &vars).map(|layout| (at, layout)).or(found);
        }
        if node.op == Op::Cast && node.dtype != dtype && graph.node(node.inputs[0]).dtype == dtype {
            at = node.inputs[0];
            continue;
        }
        if !index_map::is_movement(&node.op) {
            return found;
        }
        let (from, bounds) = index_map::index_map(node, &graph.node(node.inputs[0]).shape, &coords);
        if !bounds.is_empty() {
            return found;
        }
        (at, coords) = (node.inputs[0], from);
    }
}

fn layout(index: &AffineExpr, vars: &[LoopVar; 3]) -> Option<Layout> {
    let plain = index.terms().iter().all(|(term, factor)| matches!(term, AffineTerm::Var(_)) && *factor > 0);
    let stride = |var: LoopVar| index.coefficient(var).map_or(0, |factor| factor as usize);
    (plain && index.offset() >= 0).then(|| Layout {
        offset: index.offset() as usize,
        batch: stride(vars[0]),
        row: stride(vars[1]),
        column: stride(vars[2]),
    })
}
