//! Splits long reductions and scans into steps, so that the entire device has work.
//!
//! A sum of sixteen million elements to one number would be one row, and one row is one work-group. Therefore the first
//! step keeps part of a reduced axis, and a second step combines the parts. A scan of the same length would be computed
//! by a single work-item. It is divided into scans of parts, each starting from the total of the parts before it, which
//! is a scan of sums. The division depends only on the axis length and the target's style, so the order of summation is
//! the same in every run.

use panoply_ir::alu::Alu;
use panoply_ir::graph::{Graph, Node, NodeId, Op, Slice};
use panoply_ir::reduce::ReduceOp;
use panoply_ir::target::Style;
use panoply_ir::{DType, Scalar};

use super::decompose::{accumulator, rewrite};
use super::rewrite::GraphRewriter;

/// Style used for division when the result must not depend on the device.
pub const ANYWHERE: Style = Style::Gpu;

/// Splits long reductions with few results into two steps, and long scans into parts.
pub fn split_reductions(graph: &Graph, style: Style) -> Graph {
    let users = users(graph);
    rewrite(graph, |rewriter, id, inputs| {
        let node = graph.node(id);
        if let Op::Scan(op, axis) = node.op {
            let wide = rewriter.cast(inputs[0], accumulator(node.dtype));
            let running = scan(rewriter, op, axis, wide, style)?;
            return Some(rewriter.cast(running, node.dtype));
        }
        let Op::Reduce(op, axes) = &node.op else { return None };
        let division = divide(graph, node, axes, style, spreads(graph, &users, id))?;
        Some(division.apply(rewriter, *op, axes, node, inputs[0]))
    })
}

/// Divides a scan into parts of its axis. Returns `None` if there are enough rows, or the axis is short.
fn scan(rewriter: &mut GraphRewriter, op: ReduceOp, axis: usize, x: NodeId, style: Style) -> Option<NodeId> {
    let Node { shape, dtype, .. } = rewriter.node(x).clone();
    let (dims, length) = (shape.dims(), shape.dims()[axis]);
    // Number of rows that keep the device busy, and elements per part.
    let (busy, part) = scan_sizes(style);
    let apart = adds_apart(op, dtype);
    let enough = shape.numel() / length.max(1) >= busy && !(apart && length >= LONG);
    if enough || length < 4 * part {
        return None;
    }
    let part = (part / 2..=2 * part).rev().find(|part| length.is_multiple_of(*part)).unwrap_or(part);
    let parts = length.div_ceil(part);
    let with = |middle: &[usize]| [&dims[..axis], middle, &dims[axis + 1..]].concat();
    // Padding at the end affects no element that is kept.
    let whole = pad(rewriter, x, axis, (0, parts * part - length));
    let divided = with(&[parts, part]);
    let whole = rewriter.reshape(whole, divided.clone());
    let ended = first(rewriter, whole, axis, parts - 1);
    let ends = rewriter.add(Op::Reduce(op, vec![axis + 1]), &[ended], with(&[parts - 1, 1]), dtype);
    let ends = rewriter.reshape(ends, with(&[parts - 1]));
    let sums = scan(rewriter, op, axis, ends, style)
        .unwrap_or_else(|| rewriter.add(Op::Scan(op, axis), &[ends], with(&[parts - 1]), dtype));
    let before = pad(rewriter, sums, axis, (1, 0));
    let before = rewriter.reshape(before, with(&[parts, 1]));
    let before = rewriter.expand(before, divided.clone());
    let running = if apart {
        let within = rewriter.add(Op::Scan(op, axis + 1), &[whole], divided.clone(), dtype);
        let joined = rewriter.add(Op::Alu(op.alu()), &[before, within], divided.clone(), dtype);
        let joins = start(rewriter, &divided, axis, Alu::Ne);
        rewriter.add(Op::Alu(Alu::Select), &[joins, joined, within], divided, dtype)
    } else {
        let joined = rewriter.add(Op::Alu(op.alu()), &[before, whole], divided.clone(), dtype);
        let places = [(axis, Alu::Ne), (axis + 1, Alu::Eq)].map(|(axis, is)| start(rewriter, &divided, axis, is));
        let joins = rewriter.add(Op::Alu(Alu::And), &places, divided.clone(), DType::Bool);
        let from = rewriter.add(Op::Alu(Alu::Select), &[joins, joined, whole], divided.clone(), dtype);
        rewriter.add(Op::Scan(op, axis + 1), &[from], divided, dtype)
    };
    let running = rewriter.reshape(running, with(&[parts * part]));
    Some(first(rewriter, running, axis, length))
}

/// Length from which an f32 sum in order loses digits: a sum of ones is exact only up to 2²⁴, and each addition of a
/// small number to a large sum rounds in the same direction.
const LONG: usize = 1 << 16;

/// Returns true if each part is scanned from zero and then combined with the prefix by one addition, which takes an
/// additional pass. If sums are exact or have digits to spare, a part instead starts from the prefix.
fn adds_apart(op: ReduceOp, dtype: DType) -> bool {
    matches!(op, ReduceOp::Sum | ReduceOp::Prod) && dtype == DType::F32
}

/// Returns for a scan the number of rows that keep the device busy, and the number of elements per part.
pub(super) fn scan_sizes(style: Style) -> (usize, usize) {
    match style {
        Style::Cpu { .. } => (16, 4 << 10),
        Style::Gpu => (2048, 256),
    }
}

/// Returns for a reduction of columns or rows the number of results that keep the device busy, and the minimum elements
/// per part.
pub(super) fn reduce_sizes(style: Style, columns: bool, spreads: bool) -> (usize, usize) {
    match (style, columns) {
        (Style::Cpu { .. }, false) => (if spreads { 16 } else { 64 }, 16 << 10),
        (Style::Cpu { block }, true) => (64 * block as usize, 64),
        (Style::Gpu, false) => (if spreads { 16 } else { 1024 }, 2 << 10),
        (Style::Gpu, true) => (1 << 18, 32),
    }
}

/// Pads with zeros before and after along an axis.
fn pad(rewriter: &mut GraphRewriter, x: NodeId, axis: usize, (before, after): (usize, usize)) -> NodeId {
    let Node { shape, dtype, .. } = rewriter.node(x).clone();
    let (mut dims, mut widths) = (shape.dims().to_vec(), vec![(0, 0); shape.ndim()]);
    dims[axis] += before + after;
    widths[axis] = (before, after);
    rewriter.add(Op::Pad(widths), &[x], dims, dtype)
}

/// Returns the first `len` elements of an axis.
fn first(rewriter: &mut GraphRewriter, x: NodeId, axis: usize, len: usize) -> NodeId {
    let Node { shape, dtype, .. } = rewriter.node(x).clone();
    let mut dims = shape.dims().to_vec();
    dims[axis] = len;
    let slices = dims.iter().map(|len| Slice { start: 0, step: 1, len: *len }).collect();
    rewriter.add(Op::Slice(slices), &[x], dims, dtype)
}

/// Returns a mask that is true where the index on an axis is 0, or where it is not, depending on `is`.
fn start(rewriter: &mut GraphRewriter, dims: &[usize], axis: usize, is: Alu) -> NodeId {
    let mut around = vec![1; dims.len()];
    around[axis] = dims[axis];
    let places = rewriter.add(Op::Iota, &[], [dims[axis]], DType::I32);
    let zero = rewriter.fill(Scalar { dtype: DType::I32, bits: 0 }, &[dims[axis]].into());
    let start = rewriter.add(Op::Alu(is), &[places, zero], [dims[axis]], DType::Bool);
    let start = rewriter.reshape(start, around);
    rewriter.expand(start, dims)
}

/// Division of a reduced axis.
struct ReductionSplit {
    axis: usize,
    /// Parts that are combined in the second step.
    parts: usize,
    /// True if neighbors along the axis belong to different parts. Lanes can then be assigned to the parts and to the
    /// kept axes after them.
    interleaved: bool,
}

fn divide(graph: &Graph, node: &Node, axes: &[usize], style: Style, spreads: bool) -> Option<ReductionSplit> {
    let dims = graph.node(node.inputs[0]).shape.dims();
    let kept = node.shape.numel();
    let length: usize = axes.iter().map(|axis| dims[*axis]).product();
    let last = (0..dims.len()).rev().find(|axis| dims[*axis] > 1)?;
    let columns = !axes.contains(&last);
    let (busy, least) = reduce_sizes(style, columns, spreads);
    let enough_lanes = match style {
        Style::Cpu { block } => block as usize,
        Style::Gpu => 64,
    };
    let interleaved = columns && kept < enough_lanes;
    let parts = (busy / kept.max(1)).min(length / least);
    // Prefer the outermost axis that is long enough, because its parts are contiguous in memory.
    let long = axes.iter().copied().find(|axis| dims[*axis] >= parts);
    let axis = long.or_else(|| axes.iter().copied().max_by_key(|axis| dims[*axis]))?;
    let parts = parts.min(dims[axis]);
    (kept > 0 && parts >= 2 && length >= 2 * least).then_some(ReductionSplit { axis, parts, interleaved })
}

impl ReductionSplit {
    fn apply(&self, rewriter: &mut GraphRewriter, op: ReduceOp, axes: &[usize], node: &Node, input: NodeId) -> NodeId {
        let wide = accumulator(node.dtype);
        let input = rewriter.cast(input, wide);
        let dims = rewriter.node(input).shape.dims().to_vec();
        let parts = self.even_parts(dims[self.axis]);
        let even = dims[self.axis] / parts * parts;
        let mut total = {
            let main = self.piece(rewriter, input, &dims, 0, even);
            self.in_parts(rewriter, op, axes, main, parts)
        };
        if even < dims[self.axis] {
            let rest = self.piece(rewriter, input, &dims, even, dims[self.axis] - even);
            let rest = rewriter.add(Op::Reduce(op, axes.to_vec()), &[rest], node.shape.clone(), wide);
            total = rewriter.add(Op::Alu(op.alu()), &[total, rest], node.shape.clone(), wide);
        }
        rewriter.cast(total, node.dtype)
    }

    /// Returns a number of parts near the desired one, if possible a divisor of the length.
    fn even_parts(&self, length: usize) -> usize {
        let near = (self.parts.div_ceil(2)..=self.parts).rev();
        near.into_iter().find(|parts| length.is_multiple_of(*parts)).unwrap_or(self.parts)
    }

    fn piece(&self, rewriter: &mut GraphRewriter, input: NodeId, dims: &[usize], start: usize, len: usize) -> NodeId {
        let mut slices: Vec<Slice> = dims.iter().map(|dim| Slice { start: 0, step: 1, len: *dim }).collect();
        slices[self.axis] = Slice { start, step: 1, len };
        let lens: Vec<usize> = slices.iter().map(|slice| slice.len).collect();
        let dtype = rewriter.node(input).dtype;
        rewriter.add(Op::Slice(slices), &[input], lens, dtype)
    }

    fn in_parts(&self, rewriter: &mut GraphRewriter, op: ReduceOp, axes: &[usize], x: NodeId, parts: usize) -> NodeId {
        let (dims, dtype) = (rewriter.node(x).shape.dims().to_vec(), rewriter.node(x).dtype);
        let each = dims[self.axis] / parts;
        let (slow, fast) = if self.interleaved { (each, parts) } else { (parts, each) };
        let divided = [&dims[..self.axis], &[slow, fast], &dims[self.axis + 1..]].concat();
        let x = rewriter.reshape(x, divided.clone());
        let part = self.axis + usize::from(self.interleaved);
        let moved = |axis: usize| if axis > self.axis { axis + 1 } else { axis };
        let mut first: Vec<usize> = axes.iter().map(|axis| moved(*axis)).collect();
        first.iter_mut().filter(|axis| **axis == part).for_each(|axis| *axis += 1);
        let mut kept = divided;
        first.iter().for_each(|axis| kept[*axis] = 1);
        let partial = rewriter.add(Op::Reduce(op, first), &[x], kept.clone(), dtype);
        kept[part] = 1;
        let total = rewriter.add(Op::Reduce(op, vec![part]), &[partial], kept, dtype);
        let mut shape = dims;
        axes.iter().for_each(|axis| shape[*axis] = 1);
        rewriter.reshape(total, shape)
    }
}

fn users(graph: &Graph) -> Vec<Vec<NodeId>> {
    let mut users = vec![Vec::new(); graph.nodes.len()];
    for (at, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|input| users[input.index()].push(NodeId(at as u32)));
    }
    users
}

/// Returns true if the results of a reduction, or values computed from them, are broadcast over the rows again:
/// reduction and user can then be one kernel.
fn spreads(graph: &Graph, users: &[Vec<NodeId>], id: NodeId) -> bool {
    let elems = graph.node(id).shape.numel();
    let (mut open, mut seen) = (vec![id], 0);
    while let Some(next) = open.pop() {
        for user in &users[next.index()] {
            let node = graph.node(*user);
            if matches!(node.op, Op::Expand) && node.shape.numel() > elems {
                return true;
            }
            if node.shape.numel() == elems && seen < 64 {
                seen += 1;
                open.push(*user);
            }
        }
    }
    false
}
