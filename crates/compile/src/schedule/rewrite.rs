//! Graph construction with simplification: every added node is simplified and deduplicated.
//!
//! Invariants of the result: no two nodes are equal; there are no identity movements; a reshape's input is not a
//! reshape; a reduction has only axes longer than 1; a non-empty node depends on no empty node; multiplications by one
//! and similar identities are removed where this changes no bit. Passes over graphs walk the old graph and add to a new
//! one.

use std::collections::HashMap;

use panoply_ir::alu::Alu;
use panoply_ir::graph::{Graph, Node, NodeId, Op, Slice};
use panoply_ir::interpret::scalar;
use panoply_ir::{DType, Scalar, Shape};

/// A graph under construction.
#[derive(Default)]
pub struct GraphRewriter {
    graph: Graph,
    known: HashMap<Node, NodeId>,
    /// Common value of all elements of each node, where it is known.
    uniform: Vec<Option<Scalar>>,
}

impl GraphRewriter {
    /// Returns the node with an identifier.
    pub fn node(&self, id: NodeId) -> &Node {
        self.graph.node(id)
    }

    /// Adds a node and returns the node that represents it after simplification.
    pub fn add(&mut self, op: Op, inputs: &[NodeId], shape: impl Into<Shape>, dtype: DType) -> NodeId {
        let node = Node { op, inputs: inputs.to_vec(), shape: shape.into(), dtype };
        match self.simplify(&node) {
            Some(id) => id,
            None => self.intern(node),
        }
    }

    /// Adds a tensor filled with a value.
    pub fn fill(&mut self, value: Scalar, shape: &Shape) -> NodeId {
        let one = self.add(Op::Const(value), &[], Shape::default(), value.dtype);
        self.broadcast(one, shape)
    }

    /// Broadcasts a single element to a shape.
    pub fn broadcast(&mut self, element: NodeId, shape: &Shape) -> NodeId {
        let dtype = self.node(element).dtype;
        let flat = self.add(Op::Reshape, &[element], vec![1; shape.ndim()], dtype);
        self.add(Op::Expand, &[flat], shape.clone(), dtype)
    }

    /// Returns true if all elements of a node are known to be zero bits.
    pub fn is_zero(&self, id: NodeId) -> bool {
        self.uniform[id.index()].is_some_and(|value| value.bits == 0)
    }

    /// Adds a conversion to a type.
    pub fn cast(&mut self, value: NodeId, dtype: DType) -> NodeId {
        let shape = self.node(value).shape.clone();
        self.add(Op::Cast, &[value], shape, dtype)
    }

    /// Adds a reshape to a shape with the same number of elements.
    pub fn reshape(&mut self, value: NodeId, dims: impl Into<Shape>) -> NodeId {
        let dtype = self.node(value).dtype;
        self.add(Op::Reshape, &[value], dims, dtype)
    }

    /// Adds an expansion of axes of length 1 to these lengths.
    pub fn expand(&mut self, value: NodeId, dims: impl Into<Shape>) -> NodeId {
        let dtype = self.node(value).dtype;
        self.add(Op::Expand, &[value], dims, dtype)
    }

    /// Returns the graph with these outputs, without dead nodes. An output that is a reshape is replaced by its input:
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

    /// Simplifies a slice of a concatenation or padding that is contained in one part to a slice of that part; returns `None`
    /// if it does not.
    fn slice_of_concat(&mut self, whole: NodeId, slices: &[Slice]) -> Option<NodeId> {
        if slices.iter().any(|slice| slice.len == 0) {
            return None;
        }
        // The requested slice is a permutation of slice `inner` of node `at`.
        let (mut at, mut inner, mut permutation) = (whole, slices.to_vec(), (0..slices.len()).collect::<Vec<usize>>());
        let mut found = false;
        while !is_whole(&inner, &self.node(at).shape) {
            let Node { op, inputs, shape, dtype } = self.node(at);
            match op {
                Op::Permute(perm) => {
                    let outer = inner.clone();
                    perm.iter().zip(outer).for_each(|(axis, slice)| inner[*axis] = slice);
                    permutation.iter_mut().for_each(|axis| *axis = perm[*axis]);
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
            self.add(Op::Permute(permutation), &[part], lengths_of(slices), dtype)
        })
    }

    /// Finds the part of a write that contains an entire slice of its axis. Returns the part and its start,
    /// `Some(None)` if no part overlaps the slice, or `None` if this is unknown or the slice overlaps a part partially.
    fn containing_part(
        &self,
        inputs: &[NodeId],
        axis: usize,
        whole: usize,
        slice: &Slice,
    ) -> Option<Option<(NodeId, usize)>> {
        // If parts overlap, the last one written determines the value.
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

    /// Returns the operand that an operation with a neutral element passes through.
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

    /// Replaces a power by a few products, a quotient or a root, within the error in ulps that powers guarantee.
    fn power(&mut self, alu: Alu, node: &Node) -> Option<NodeId> {
        let &[x, exponent] = &node.inputs[..] else { return None };
        let exponent = if alu == Alu::Pow { self.uniform[exponent.index()]?.to_f64() } else { return None };
        let mut of = |alu: Alu, inputs: &[NodeId]| self.add(Op::Alu(alu), inputs, node.shape.clone(), node.dtype);
        if exponent == 2.0 {
            return Some(of(Alu::Mul, &[x, x]));
        }
        // For 16-bit floats a power is rounded once, but the products would be rounded twice.
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

    /// Returns the value of a non-empty node with an empty input.
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

/// Overlap of a slice with a part of its axis.
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

/// Returns true if slices of all axes are the identity.
fn is_whole(slices: &[Slice], shape: &Shape) -> bool {
    let whole = |(slice, dim): (&Slice, &usize)| slice.len == *dim && (slice.step == 1 || *dim == 1);
    slices.iter().zip(shape.dims()).all(whole)
}

/// Removes dead nodes and renumbers the others.
fn without_dead(graph: &Graph) -> Graph {
    let mut needed = vec![false; graph.nodes.len()];
    graph.outputs.iter().for_each(|output| needed[output.index()] = true);
    for (at, node) in graph.nodes.iter().enumerate().rev() {
        if needed[at] {
            node.inputs.iter().for_each(|input| needed[input.index()] = true);
        }
    }
    let mut kept = Graph::default();
    let mut new_ids = vec![NodeId(0); graph.nodes.len()];
    for (at, node) in graph.nodes.iter().enumerate().filter(|(at, _)| needed[*at]) {
        let inputs: Vec<NodeId> = node.inputs.iter().map(|input| new_ids[input.index()]).collect();
        new_ids[at] = kept.push(node.op.clone(), &inputs, node.shape.clone(), node.dtype);
    }
    kept.outputs = graph.outputs.iter().map(|output| new_ids[output.index()]).collect();
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
    fn slice_of_deeply_nested_pads_is_simplified_without_recursion() {
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
        // A recursive implementation would overflow this stack.
        let thread = std::thread::Builder::new().stack_size(1 << 18).spawn(deep).expect("spawns a thread");
        assert_eq!(thread.join().expect("does not overflow the stack"), (true, true));
    }
}
