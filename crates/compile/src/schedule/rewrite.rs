//! A graph under reconstruction: every node that is added is simplified and shared.
//!
//! What holds afterwards: no two nodes are equal; no movement moves nothing; a reshape's input is no reshape; a reduction
//! has only axes longer than 1; a node that has elements depends on no node without; multiplying by one and the like is
//! gone where it changes no bit. Passes over graphs walk the old graph and add to a new one.

use std::collections::HashMap;

use panoply_ir::alu::Alu;
use panoply_ir::graph::{Graph, Node, NodeId, Op, Slice};
use panoply_ir::interpret::scalar;
use panoply_ir::{DType, Scalar, Shape};

/// A graph that grows.
#[derive(Default)]
pub struct GraphRewriter {
    graph: Graph,
    known: HashMap<Node, NodeId>,
    /// The one value all elements of a node have, where that is known.
    uniform: Vec<Option<Scalar>>,
}

impl GraphRewriter {
    /// The node behind an id.
    pub fn node(&self, id: NodeId) -> &Node {
        self.graph.node(id)
    }

    /// Adds a node and gives the one that takes its place.
    pub fn add(&mut self, op: Op, inputs: &[NodeId], shape: impl Into<Shape>, dtype: DType) -> NodeId {
        let node = Node { op, inputs: inputs.to_vec(), shape: shape.into(), dtype };
        match self.simplify(&node) {
            Some(id) => id,
            None => self.intern(node),
        }
    }

    /// A tensor of equal elements.
    pub fn fill(&mut self, value: Scalar, shape: &Shape) -> NodeId {
        let one = self.add(Op::Const(value), &[], Shape::default(), value.dtype);
        self.broadcast(one, shape)
    }

    /// A single element in every position of a shape.
    pub fn broadcast(&mut self, element: NodeId, shape: &Shape) -> NodeId {
        let dtype = self.node(element).dtype;
        let flat = self.add(Op::Reshape, &[element], vec![1; shape.ndim()], dtype);
        self.add(Op::Expand, &[flat], shape.clone(), dtype)
    }

    /// Whether all elements of a node are known to be zero bits.
    pub fn is_zero(&self, id: NodeId) -> bool {
        self.uniform[id.index()].is_some_and(|value| value.bits == 0)
    }

    /// Conversion to a type.
    pub fn cast(&mut self, value: NodeId, dtype: DType) -> NodeId {
        let shape = self.node(value).shape.clone();
        self.add(Op::Cast, &[value], shape, dtype)
    }

    /// Another shape of as many elements.
    pub fn reshape(&mut self, value: NodeId, dims: impl Into<Shape>) -> NodeId {
        let dtype = self.node(value).dtype;
        self.add(Op::Reshape, &[value], dims, dtype)
    }

    /// Axes of length 1 repeated to these lengths.
    pub fn expand(&mut self, value: NodeId, dims: impl Into<Shape>) -> NodeId {
        let dtype = self.node(value).dtype;
        self.add(Op::Expand, &[value], dims, dtype)
    }

    /// The graph with these outputs and nothing they do not need. An output that is a reshape becomes what it reshapes:
    /// outputs are buffers and have no shape.
    pub fn finish(mut self, outputs: &[NodeId]) -> Graph {
        let bare = |id: NodeId| match self.node(id).op {
            Op::Reshape => self.node(id).inputs[0],
            _ => id,
        };
        self.graph.outputs = outputs.iter().map(|output| bare(*output)).collect();
        without_dead(&self.graph)
    }

    fn intern(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.known.get(&node) {
            return *id;
        }
        self.uniform.push(self.uniform_value(&node));
        self.graph.nodes.push(node.clone());
        let id = NodeId(self.graph.nodes.len() as u32 - 1);
        self.known.insert(node, id);
        id
    }

    fn uniform_value(&self, node: &Node) -> Option<Scalar> {
        let input = || self.uniform[node.inputs[0].index()];
        match &node.op {
            Op::Const(value) => Some(*value),
            Op::Reshape | Op::Permute(_) | Op::Expand | Op::Slice(_) | Op::ControlDependency => input(),
            Op::Pad(_) => input().filter(|value| value.bits == 0),
            Op::Alu(alu @ (Alu::Add | Alu::Sub | Alu::Mul | Alu::Neg)) => {
                let operands: Option<Vec<Scalar>> = node.inputs.iter().map(|id| self.uniform[id.index()]).collect();
                operands.map(|operands| scalar::alu(*alu, &operands))
            }
            Op::Input(_) | Op::ScalarInput(_) | Op::Iota | Op::Alu(_) | Op::Cast | Op::Bitcast | Op::Reduce(..) => None,
            Op::Scan(..) | Op::MatMul | Op::Gather(_) | Op::ScatterAdd(_) | Op::SliceScatter(_) => None,
            Op::Call(..) | Op::CustomCall(..) => None,
        }
    }

    fn simplify(&mut self, node: &Node) -> Option<NodeId> {
        if let Some(id) = self.without_empty_inputs(node) {
            return Some(id);
        }
        let first = node.inputs.first().copied();
        let input = first.map(|id| self.node(id).clone());
        match (&node.op, input) {
            (Op::Reshape | Op::Expand, Some(input)) if input.shape == node.shape => first,
            (Op::Reshape, Some(input)) if input.op == Op::Reshape => {
                Some(self.add(Op::Reshape, &input.inputs, node.shape.clone(), node.dtype))
            }
            (Op::Expand, Some(input)) if input.op == Op::Expand => {
                Some(self.add(Op::Expand, &input.inputs, node.shape.clone(), node.dtype))
            }
            (Op::Permute(perm), Some(_)) if perm.iter().copied().eq(0..perm.len()) => first,
            (Op::Permute(perm), Some(Node { op: Op::Permute(inner), inputs, .. })) => {
                let composed = perm.iter().map(|axis| inner[*axis]).collect();
                Some(self.add(Op::Permute(composed), &inputs, node.shape.clone(), node.dtype))
            }
            (Op::Pad(widths), Some(_)) if widths.iter().all(|width| *width == (0, 0)) => first,
            (Op::Slice(slices), Some(input)) => {
                if is_whole(slices, &input.shape) {
                    return first;
                }
                self.slice_of_concat(first?, slices)
            }
            (Op::Cast | Op::Bitcast, Some(input)) if input.dtype == node.dtype => first,
            (Op::Reduce(op, axes), Some(input)) => {
                let long: Vec<usize> = axes.iter().copied().filter(|axis| input.shape.dims()[*axis] != 1).collect();
                if long.is_empty() {
                    return first;
                }
                let shorter = Op::Reduce(*op, long.clone());
                (long.len() < axes.len()).then(|| self.add(shorter, &node.inputs, node.shape.clone(), node.dtype))
            }
            (Op::Scan(_, axis), Some(input)) if input.shape.dims()[*axis] == 1 => first,
            (Op::Alu(alu), Some(_)) => self.identity(*alu, node).or_else(|| self.power(*alu, node)),
            _ => None,
        }
    }

    /// A slice of what was put together, where it is one of a part of that; none if it is not.
    fn slice_of_concat(&mut self, whole: NodeId, slices: &[Slice]) -> Option<NodeId> {
        if slices.iter().any(|slice| slice.len == 0) {
            return None;
        }
        // It is the permutation of a slice of this node.
        let (mut at, mut inner, mut turn) = (whole, slices.to_vec(), (0..slices.len()).collect::<Vec<usize>>());
        let mut found = false;
        while !is_whole(&inner, &self.node(at).shape) {
            let Node { op, inputs, shape, dtype } = self.node(at);
            match op {
                Op::Permute(perm) => {
                    let outer = inner.clone();
                    perm.iter().zip(outer).for_each(|(axis, slice)| inner[*axis] = slice);
                    turn.iter_mut().for_each(|axis| *axis = perm[*axis]);
                    at = inputs[0];
                    continue;
                }
                Op::Pad(widths) => {
                    let starts = || widths.iter().map(|(before, _)| *before);
                    let lengths = self.node(inputs[0]).shape.dims();
                    let within = inner.iter().zip(starts()).zip(lengths);
                    match within.map(|((slice, start), length)| Overlap::of(slice, start, *length)).max() {
                        Some(Overlap::Disjoint) => {
                            let zero = Scalar { dtype: *dtype, bits: 0 };
                            return Some(self.fill(zero, &lengths_of(slices).into()));
                        }
                        Some(Overlap::Contains) => {
                            inner.iter_mut().zip(starts()).for_each(|(slice, start)| slice.start -= start)
                        }
                        _ => break,
                    }
                    at = inputs[0];
                }
                Op::SliceScatter(axis) => match self.containing_part(inputs, *axis, shape.dims()[*axis], &inner[*axis])
                {
                    Some(None) => at = inputs[0],
                    Some(Some((part, start))) => {
                        inner[*axis].start -= start;
                        at = part;
                    }
                    None => break,
                },
                _ => break,
            }
            found = true;
        }
        let (dtype, lengths) = (self.node(at).dtype, lengths_of(&inner));
        found.then(|| {
            let part = self.add(Op::Slice(inner), &[at], lengths, dtype);
            self.add(Op::Permute(turn), &[part], lengths_of(slices), dtype)
        })
    }

    /// The part of a write that holds all of a slice of its axis, and where it begins, or that none holds any of it; none if that is not known, or
    /// is neither.
    fn containing_part(
        &self,
        inputs: &[NodeId],
        axis: usize,
        whole: usize,
        slice: &Slice,
    ) -> Option<Option<(NodeId, usize)>> {
        // The last that is written at a place stands there.
        for pair in inputs[1..].chunks(2).rev() {
            let Op::Const(at) = self.node(pair[1]).op else { return None };
            let (at, length) = (usize::try_from(at.to_i128()).ok()?, self.node(pair[0]).shape.dims()[axis]);
            match Overlap::of(slice, at, length) {
                _ if at + length > whole => return None,
                Overlap::Contains => return Some(Some((pair[0], at))),
                Overlap::Partial => return None,
                Overlap::Disjoint => {}
            }
        }
        Some(None)
    }

    /// What an operation gives when an operand is the number that changes nothing.
    fn identity(&self, alu: Alu, node: &Node) -> Option<NodeId> {
        let is = |operand: usize, number: f64| {
            let id = node.inputs[operand];
            self.uniform[id.index()] == Some(Scalar::from_f64(self.node(id).dtype, number))
        };
        let int = node.dtype.is_int();
        match alu {
            Alu::Mul if is(1, 1.0) => Some(node.inputs[0]),
            Alu::Mul if is(0, 1.0) => Some(node.inputs[1]),
            Alu::Div if is(1, 1.0) => Some(node.inputs[0]),
            // x + 0 is not x for -0; x - 0 and x + -0 are.
            Alu::Sub if is(1, 0.0) => Some(node.inputs[0]),
            Alu::Add if is(1, -0.0) || (int && is(1, 0.0)) => Some(node.inputs[0]),
            Alu::Add if is(0, -0.0) || (int && is(0, 0.0)) => Some(node.inputs[1]),
            Alu::Select if node.inputs[1] == node.inputs[2] => Some(node.inputs[1]),
            Alu::Select => {
                let condition = self.uniform[node.inputs[0].index()]?;
                Some(node.inputs[if condition.is_true() { 1 } else { 2 }])
            }
            _ => None,
        }
    }

    /// A power that a few products, a quotient or a root come to, within the few last places that powers are promised to.
    fn power(&mut self, alu: Alu, node: &Node) -> Option<NodeId> {
        let &[x, exponent] = &node.inputs[..] else { return None };
        let exponent = if alu == Alu::Pow { self.uniform[exponent.index()]?.to_f64() } else { return None };
        let mut of = |alu: Alu, inputs: &[NodeId]| self.add(Op::Alu(alu), inputs, node.shape.clone(), node.dtype);
        if exponent == 2.0 {
            return Some(of(Alu::Mul, &[x, x]));
        }
        // Of halves, a power is rounded once, these would be twice.
        let whole = matches!(node.dtype, DType::F32 | DType::F64);
        if whole && exponent == 3.0 {
            let square = of(Alu::Mul, &[x, x]);
            return Some(of(Alu::Mul, &[square, x]));
        }
        if exponent == -1.0 {
            let one = self.fill(Scalar::from_f64(node.dtype, 1.0), &node.shape);
            return Some(self.add(Op::Alu(Alu::Div), &[one, x], node.shape.clone(), node.dtype));
        }
        if exponent != 0.5 {
            return None;
        }
        // Unlike the root, the power of -0 is 0 and that of -inf is inf.
        let number = |value: f64| Scalar::from_f64(node.dtype, value);
        let [zero, least, most] =
            [0.0, f64::NEG_INFINITY, f64::INFINITY].map(|value| self.fill(number(value), &node.shape));
        let mut of = |alu: Alu, inputs: &[NodeId], dtype| self.add(Op::Alu(alu), inputs, node.shape.clone(), dtype);
        let positive = of(Alu::Add, &[x, zero], node.dtype);
        let root = of(Alu::Sqrt, &[positive], node.dtype);
        let is_least = of(Alu::Eq, &[x, least], DType::Bool);
        Some(of(Alu::Select, &[is_least, most, root], node.dtype))
    }

    /// What a node with elements is when one of its inputs has none.
    fn without_empty_inputs(&mut self, node: &Node) -> Option<NodeId> {
        let empty = |id: &NodeId| self.node(*id).shape.numel() == 0;
        if node.shape.numel() == 0 || !node.inputs.iter().any(empty) {
            return None;
        }
        let value = match &node.op {
            Op::Reduce(op, _) => op.identity(node.dtype),
            Op::ScatterAdd(_) | Op::SliceScatter(_) | Op::ControlDependency => return Some(node.inputs[0]),
            _ => Scalar { dtype: node.dtype, bits: 0 },
        };
        Some(self.fill(value, &node.shape))
    }
}

/// How much of a slice lies in a part of its axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Overlap {
    Contains,
    Partial,
    Disjoint,
}

impl Overlap {
    fn of(slice: &Slice, start: usize, length: usize) -> Overlap {
        let first = slice.start as i128;
        let last = first + slice.step as i128 * (slice.len as i128 - 1);
        let (low, high) = (first.min(last), first.max(last));
        let (start, end) = (start as i128, (start + length) as i128);
        match () {
            () if low >= start && high < end => Overlap::Contains,
            () if high < start || low >= end => Overlap::Disjoint,
            () => Overlap::Partial,
        }
    }
}

fn lengths_of(slices: &[Slice]) -> Vec<usize> {
    slices.iter().map(|slice| slice.len).collect()
}

/// Whether slices of all axes leave nothing out.
fn is_whole(slices: &[Slice], shape: &Shape) -> bool {
    let whole = |(slice, dim): (&Slice, &usize)| slice.len == *dim && (slice.step == 1 || *dim == 1);
    slices.iter().zip(shape.dims()).all(whole)
}

/// The nodes an output needs, renumbered.
fn without_dead(graph: &Graph) -> Graph {
    let mut needed = vec![false; graph.nodes.len()];
    graph.outputs.iter().for_each(|output| needed[output.index()] = true);
    for (at, node) in graph.nodes.iter().enumerate().rev() {
        if needed[at] {
            node.inputs.iter().for_each(|input| needed[input.index()] = true);
        }
    }
    let mut kept = Graph::default();
    let mut moved = vec![NodeId(0); graph.nodes.len()];
    for (at, node) in graph.nodes.iter().enumerate().filter(|(at, _)| needed[*at]) {
        let inputs: Vec<NodeId> = node.inputs.iter().map(|input| moved[input.index()]).collect();
        moved[at] = kept.push(node.op.clone(), &inputs, node.shape.clone(), node.dtype);
    }
    kept.outputs = graph.outputs.iter().map(|output| moved[output.index()]).collect();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_by_small_numbers_are_products() {
        let mut rewriter = GraphRewriter::default();
        let x = rewriter.add(Op::Input(0), &[], [3], DType::F32);
        let [four, one] = [4.0, 1.0].map(|value| rewriter.fill(Scalar::from_f64(DType::F32, value), &[3].into()));
        let three = rewriter.add(Op::Alu(Alu::Sub), &[four, one], [3], DType::F32);
        let cube = rewriter.add(Op::Alu(Alu::Pow), &[x, three], [3], DType::F32);
        let square = rewriter.add(Op::Alu(Alu::Mul), &[x, x], [3], DType::F32);
        assert_eq!(cube, rewriter.add(Op::Alu(Alu::Mul), &[square, x], [3], DType::F32));
        let fourth = rewriter.add(Op::Alu(Alu::Pow), &[x, four], [3], DType::F32);
        assert_eq!(rewriter.node(fourth).op, Op::Alu(Alu::Pow));
    }

    #[test]
    fn a_slice_of_what_was_padded_very_often_is_one_of_what_that_was() {
        let deep = || {
            let mut rewriter = GraphRewriter::default();
            let x = rewriter.add(Op::Input(0), &[], [3, 4], DType::F32);
            let mut whole = x;
            for length in 5..30_000 {
                whole = rewriter.add(Op::Pad(vec![(0, 0), (1, 0)]), &[whole], [3, length], DType::F32);
                whole = rewriter.add(Op::Permute(vec![1, 0]), &[whole], [length, 3], DType::F32);
                whole = rewriter.add(Op::Permute(vec![1, 0]), &[whole], [3, length], DType::F32);
            }
            let last = |start: usize, len: usize| {
                vec![Slice { start: 0, step: 1, len: 3 }, Slice { start: start as _, step: 1, len }]
            };
            let length = 30_000 - 1;
            let same = rewriter.add(Op::Slice(last(length - 4, 4)), &[whole], [3, 4], DType::F32);
            let zeros = rewriter.add(Op::Slice(last(2, 1)), &[whole], [3, 1], DType::F32);
            (same == x, rewriter.is_zero(zeros))
        };
        // Less than a call for each would need.
        let thread = std::thread::Builder::new().stack_size(1 << 18).spawn(deep).expect("a thread");
        assert_eq!(thread.join().expect("it does not overflow"), (true, true));
    }
}
