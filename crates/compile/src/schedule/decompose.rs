//! Decomposes operations without a kernel into operations that have one, before fusion.
//!
//! A matrix product without a routine becomes a sum over products of expanded operands. A scatter-add becomes, for each
//! element, a masked sum over all positions, unless there are enough columns to give each a work-item. All of these
//! accumulate f16 and bf16 in f32, as sums do. A few writes at constant positions become selections, which fuse with
//! the operations before and after them. Many writes, or a write at a position passed at launch, update memory in
//! place.

use std::collections::HashMap;

use panoply_ir::alu::Alu;
use panoply_ir::graph::{Graph, Node, NodeId, Op, Slice};
use panoply_ir::reduce::ReduceOp;
use panoply_ir::routine::Routine;
use panoply_ir::{DType, Scalar, Target};

use super::index_map;
use super::rewrite::GraphRewriter;
use super::routine_match;

/// Rewrites a matrix product that is used only transposed as a product of transposed operands. Routines read operands
/// in any layout, while a consumer of a transposed product would read it with a large stride.
pub fn transpose_matmuls(graph: &Graph) -> Graph {
    let uses = uses(graph);
    rewrite(graph, |rewriter, id, inputs| {
        let node = graph.node(id);
        let Op::Permute(perm) = &node.op else { return None };
        let product = rewriter.node(inputs[0]).clone();
        let rank = perm.len();
        let transposed: Vec<usize> = (0..rank.saturating_sub(2)).chain([rank - 1, rank.max(2) - 2]).collect();
        if product.op != Op::MatMul || *perm != transposed || uses[node.inputs[0].index()] > 1 {
            return None;
        }
        let operands = [product.inputs[1], product.inputs[0]].map(|operand| {
            let Node { mut shape, dtype, .. } = rewriter.node(operand).clone();
            shape = transposed.iter().map(|axis| shape.dims()[*axis]).collect::<Vec<usize>>().into();
            rewriter.add(Op::Permute(transposed.clone()), &[operand], shape, dtype)
        });
        Some(rewriter.add(Op::MatMul, &operands, node.shape.clone(), node.dtype))
    })
}

/// Decomposes the matrix products that no routine takes, scatters with few columns, and writes that are cheaper as
/// selections.
pub fn decompose(graph: &Graph, target: &Target, offers: &dyn Fn(&Routine) -> bool) -> Graph {
    let (chains, joins) = (chains(graph), match_concat(graph, target.max_binding_bytes));
    let mut parts: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
    rewrite(graph, |rewriter, id, inputs| {
        let node = graph.node(id);
        match node.op {
            Op::SliceScatter(axis) if joins.contains_key(&id) => {
                let mut all = parts.remove(&node.inputs[0]).unwrap_or_else(|| inputs[..1].to_vec());
                all.extend(&inputs[1..]);
                if joins[&id] != id {
                    parts.insert(id, all);
                    return Some(inputs[0]);
                }
                Some(rewriter.add(Op::SliceScatter(axis), &all, node.shape.clone(), node.dtype))
            }
            Op::SliceScatter(axis) if inputs.len() > 3 => {
                // A graph can contain such a node already: it becomes a chain of single writes.
                let each = |whole, pair: &[NodeId]| {
                    rewriter.add(Op::SliceScatter(axis), &[whole, pair[0], pair[1]], node.shape.clone(), node.dtype)
                };
                Some(inputs[1..].chunks(2).fold(inputs[0], each))
            }
            Op::SliceScatter(axis) => {
                let Op::Const(at) = graph.node(node.inputs[2]).op else { return None };
                let many = chains[id.index()] > FEW_WRITES && node.shape.numel() > SHORT;
                (!many).then(|| write(rewriter, node, axis, at.to_i128(), inputs))
            }
            Op::MatMul if node.shape.numel() > 0 => {
                let routine = routine_match::product(graph, id).routine;
                // A routine's product of i8 gives i32, which can differ from the requested type.
                let gives = matches!(routine, Routine::Gemm(gemm) if gemm.result() == node.dtype);
                (!gives || !offers(&routine)).then(|| matmul(rewriter, node, inputs))
            }
            Op::ScatterAdd(axis) if node.shape.numel() > 0 => {
                let positions = graph.node(node.inputs[1]).shape.numel();
                Some(if by_column(node, axis, positions) {
                    widened(rewriter, node, axis, inputs)
                } else {
                    scatter_add(rewriter, axis, inputs)
                })
            }
            _ => None,
        }
    })
}

/// Returns how often each node is used as an input or output.
fn uses(graph: &Graph) -> Vec<usize> {
    let mut uses = vec![0; graph.nodes.len()];
    let used = graph.nodes.iter().flat_map(|node| &node.inputs).chain(&graph.outputs);
    used.for_each(|id| uses[id.index()] += 1);
    uses
}

/// Length of a chain of writes up to which selections are cheaper than separate kernels.
pub(super) const FEW_WRITES: usize = 4;
/// Elements up to which selecting among all parts costs less than a kernel launch for each part.
pub(super) const SHORT: usize = 1 << 13;
/// Columns from which a scatter uses one work-item per column rather than per element.
pub(super) const COLUMNS: usize = 32;
/// Product of elements and positions above which a scatter with fewer columns does so too.
pub(super) const SCATTER_WORK: usize = 1 << 26;

/// Returns for each write the length of its chain of successive writes to the same array.
fn chains(graph: &Graph) -> Vec<usize> {
    let mut chains = vec![0; graph.nodes.len()];
    let writes = || graph.nodes.iter().enumerate().filter(|(_, node)| matches!(node.op, Op::SliceScatter(_)));
    for (at, node) in writes() {
        chains[at] = chains[node.inputs[0].index()] + 1;
    }
    for (at, node) in writes().collect::<Vec<_>>().into_iter().rev() {
        let before = node.inputs[0].index();
        if chains[before] > 0 {
            chains[before] = chains[at].max(chains[before]);
        }
    }
    chains
}

/// Finds concatenations of a few parts of one shape whose result must be in memory, such as the operand of a product.
/// One kernel then writes all parts in place. Returns each write of such a chain with the last write of the chain.
///
/// A result larger than the binding limit is processed in parts, and each part would write all over it; such
/// concatenations are left out.
fn match_concat(graph: &Graph, most_bytes: u64) -> HashMap<NodeId, NodeId> {
    let uses = uses(graph);
    let mut stored = vec![false; graph.nodes.len()];
    graph.outputs.iter().for_each(|output| stored[output.index()] = true);
    let mut joins = HashMap::new();
    for (at, node) in graph.nodes.iter().enumerate().rev() {
        let binds = match &node.op {
            Op::MatMul | Op::Call(..) | Op::CustomCall(..) => true,
            op => index_map::is_movement(op) && stored[at],
        };
        node.inputs.iter().for_each(|input| stored[input.index()] |= binds);
        let mut chain = vec![NodeId(at as u32)];
        let bytes = (node.shape.numel() * node.dtype.bytes()) as u64;
        if !matches!(node.op, Op::SliceScatter(_))
            || node.inputs.len() > 3
            || !stored[at]
            || joins.contains_key(&chain[0])
            || bytes > most_bytes
        {
            continue;
        }
        let shape = |write: &Node| graph.node(write.inputs[1]).shape.clone();
        while chain.len() < FEW_WRITES {
            let before = graph.node(*chain.last().expect("the chain is not empty")).inputs[0];
            let other = graph.node(before);
            if other.op != node.op || other.inputs.len() > 3 || uses[before.index()] > 1 || shape(other) != shape(node)
            {
                break;
            }
            chain.push(before);
        }
        let pairs = chain.iter().rev().flat_map(|write| &graph.node(*write).inputs[1..3]);
        if chain.len() > 1 && is_partition(graph, node, &pairs.copied().collect::<Vec<NodeId>>()) {
            joins.extend(chain.iter().map(|write| (*write, chain[0])));
        }
    }
    joins
}

/// Returns true if a write overwrites every element of its base.
pub fn overwrites_all(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    is_partition(graph, node, &node.inputs[1..])
}

/// Returns true if these parts at these positions cover the result of a write exactly once.
fn is_partition(graph: &Graph, node: &Node, pairs: &[NodeId]) -> bool {
    let Op::SliceScatter(axis) = node.op else { return false };
    let length = graph.node(pairs[0]).shape.dims()[axis] as i128;
    let start = |pair: &[NodeId]| match graph.node(pair[1]).op {
        Op::Const(at) => Some(at.to_i128()),
        _ => None,
    };
    let Some(mut starts) = pairs.chunks(2).map(start).collect::<Option<Vec<i128>>>() else { return false };
    starts.sort_unstable();
    let next = (0..).map(|part| part * length);
    length * starts.len() as i128 == node.shape.dims()[axis] as i128
        && starts.into_iter().eq(next.take(pairs.len() / 2))
}

/// Replaces a write at a constant position by a selection between the padded part and the base.
fn write(rewriter: &mut GraphRewriter, node: &Node, axis: usize, start: i128, inputs: &[NodeId]) -> NodeId {
    let part = rewriter.node(inputs[1]).clone();
    let (whole, length) = (node.shape.dims()[axis] as i128, part.shape.dims()[axis] as i128);
    let (first, end) = ((-start).clamp(0, length), (whole - start).clamp(0, length));
    if first >= end {
        return inputs[0];
    }
    let mut slices: Vec<Slice> = part.shape.dims().iter().map(|len| Slice { start: 0, step: 1, len: *len }).collect();
    slices[axis] = Slice { start: first as usize, step: 1, len: (end - first) as usize };
    let dims: Vec<usize> = slices.iter().map(|slice| slice.len).collect();
    let mut widths = vec![(0, 0); dims.len()];
    widths[axis] = ((start + first) as usize, (whole - start - end) as usize);
    let kept = rewriter.add(Op::Slice(slices), &inputs[1..2], dims.clone(), node.dtype);
    let ones = rewriter.fill(Scalar { dtype: DType::Bool, bits: 1 }, &dims.into());
    let [part, inside] = [(kept, node.dtype), (ones, DType::Bool)]
        .map(|(value, dtype)| rewriter.add(Op::Pad(widths.clone()), &[value], node.shape.clone(), dtype));
    if rewriter.is_zero(inputs[0]) {
        return part;
    }
    rewriter.add(Op::Alu(Alu::Select), &[inside, part, inputs[0]], node.shape.clone(), node.dtype)
}

/// Rebuilds a graph node by node. `f` receives each node's new inputs and can return a replacement for the node.
pub fn rewrite(graph: &Graph, mut f: impl FnMut(&mut GraphRewriter, NodeId, &[NodeId]) -> Option<NodeId>) -> Graph {
    let mut rewriter = GraphRewriter::default();
    let mut new_ids: Vec<NodeId> = Vec::with_capacity(graph.nodes.len());
    for (at, node) in graph.nodes.iter().enumerate() {
        let inputs: Vec<NodeId> = node.inputs.iter().map(|input| new_ids[input.index()]).collect();
        let next = match f(&mut rewriter, NodeId(at as u32), &inputs) {
            Some(next) => next,
            None => rewriter.add(node.op.clone(), &inputs, node.shape.clone(), node.dtype),
        };
        new_ids.push(next);
    }
    let outputs: Vec<NodeId> = graph.outputs.iter().map(|output| new_ids[output.index()]).collect();
    rewriter.finish(&outputs)
}

/// Returns the type in which a sum of this type accumulates.
pub fn accumulator(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        DType::Bool | DType::I8 | DType::I16 | DType::I32 | DType::I64 => dtype,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::F32 | DType::F64 => dtype,
    }
}

fn matmul(rewriter: &mut GraphRewriter, node: &Node, inputs: &[NodeId]) -> NodeId {
    let (dims, rank) = (node.shape.dims(), node.shape.ndim());
    let (batch, m, n) = (&dims[..rank - 2], dims[rank - 2], dims[rank - 1]);
    let k = rewriter.node(inputs[0]).shape.dims()[rank - 1];
    let wide = accumulator(node.dtype);
    let all = [batch, &[m, n, k]].concat();
    let left = rewriter.reshape(inputs[0], [batch, &[m, 1, k]].concat());
    let columns: Vec<usize> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
    let transposed = rewriter.add(Op::Permute(columns), &inputs[1..], [batch, &[n, k]].concat(), node.dtype);
    let right = rewriter.reshape(transposed, [batch, &[1, n, k]].concat());
    let operands = [left, right].map(|operand| {
        let operand = rewriter.cast(operand, wide);
        rewriter.expand(operand, all.clone())
    });
    let products = rewriter.add(Op::Alu(Alu::Mul), &operands, all, wide);
    let sums = rewriter.add(Op::Reduce(ReduceOp::Sum, vec![rank]), &[products], [batch, &[m, n, 1]].concat(), wide);
    let sums = rewriter.reshape(sums, dims);
    rewriter.cast(sums, node.dtype)
}

/// Returns true if one work-item per column, looping over all positions, is cheaper than one per element doing the
/// same.
fn by_column(node: &Node, axis: usize, positions: usize) -> bool {
    let length = node.shape.dims()[axis];
    let columns = node.shape.numel() / length;
    length > 1 && (columns >= COLUMNS || node.shape.numel().saturating_mul(positions) > SCATTER_WORK)
}

/// Adds a scatter in the accumulation type.
fn widened(rewriter: &mut GraphRewriter, node: &Node, axis: usize, inputs: &[NodeId]) -> NodeId {
    let wide = accumulator(node.dtype);
    let operands = [rewriter.cast(inputs[0], wide), inputs[1], rewriter.cast(inputs[2], wide)];
    let sums = rewriter.add(Op::ScatterAdd(axis), &operands, node.shape.clone(), wide);
    rewriter.cast(sums, node.dtype)
}

fn scatter_add(rewriter: &mut GraphRewriter, axis: usize, inputs: &[NodeId]) -> NodeId {
    let (x, positions) = (rewriter.node(inputs[0]).clone(), rewriter.node(inputs[1]).clone());
    let (before, rest) = x.shape.dims().split_at(axis);
    let (length, after) = (rest[0], &rest[1..]);
    let count = positions.shape.numel();
    let wide = accumulator(x.dtype);
    let all = [before, &[length, count], after].concat();
    let along = |before_len: usize, places: usize| {
        let ones = |n: usize| vec![1; n];
        [ones(before.len()), vec![before_len, places], ones(after.len())].concat()
    };
    let targets = rewriter.reshape(inputs[1], along(1, count));
    let targets = rewriter.expand(targets, all.clone());
    let iota = rewriter.add(Op::Iota, &[], [length], DType::I32);
    let iota = rewriter.cast(iota, positions.dtype);
    let iota = rewriter.reshape(iota, along(length, 1));
    let iota = rewriter.expand(iota, all.clone());
    let here = rewriter.add(Op::Alu(Alu::Eq), &[targets, iota], all.clone(), DType::Bool);
    let rows = rewriter.cast(inputs[2], wide);
    let rows = rewriter.reshape(rows, [before, &[1, count], after].concat());
    let rows = rewriter.expand(rows, all.clone());
    let none = rewriter.fill(Scalar { dtype: wide, bits: 0 }, &all.clone().into());
    let meant = rewriter.add(Op::Alu(Alu::Select), &[here, rows, none], all, wide);
    let single = [before, &[length, 1], after].concat();
    let sums = rewriter.add(Op::Reduce(ReduceOp::Sum, vec![axis + 1]), &[meant], single, wide);
    let sums = rewriter.reshape(sums, x.shape.clone());
    let base = rewriter.cast(inputs[0], wide);
    let total = rewriter.add(Op::Alu(Alu::Add), &[base, sums], x.shape.clone(), wide);
    rewriter.cast(total, x.dtype)
}
