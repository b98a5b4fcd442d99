//! Graph verification: checks that every node has the shape and type that its operation implies.
//!
//! `tensor` detects a user's mistakes when a node is built and can name the caller's line. This check runs between compiler stages, for
//! code that creates or rewrites graphs. The rules are in the match of `result` below, one arm per operation.
//!
//! It also checks that inputs precede their users, that outputs exist, that equal leaves (and equal scalar inputs) have one shape and
//! type, and that donated leaves are listed once.

use std::collections::HashMap;

use crate::DType;
use crate::dtype::Type;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, NodeId, Op, Slice};
use crate::kernel::Access;
use crate::routine::Routine;
use crate::shape::Shape;

/// Verifies a graph.
///
/// # Errors
/// The first node that violates a rule.
pub fn verify(graph: &Graph) -> Result<()> {
    let mut given: HashMap<&Op, (&Shape, DType)> = HashMap::new();
    for (position, node) in graph.nodes.iter().enumerate() {
        let wrong = |why: String| Error::mistake(format!("graph node {position} ({:?}): {why}", node.op));
        if let Some(input) = node.inputs.iter().find(|input| input.index() >= position) {
            return Err(wrong(format!("its input {} does not come before it", input.0)));
        }
        let inputs: Vec<&Node> = node.inputs.iter().map(|input| graph.node(*input)).collect();
        let (shape, dtype) = result(node, &inputs).map_err(wrong)?;
        if (&shape, dtype) != (&node.shape, node.dtype) {
            return Err(wrong(format!("it is {}{} but gives {dtype}{shape}", node.dtype, node.shape)));
        }
        if matches!(node.op, Op::Input(_) | Op::ScalarInput(_)) {
            let (shape, dtype) = *given.entry(&node.op).or_insert((&node.shape, node.dtype));
            if (shape, dtype) != (&node.shape, node.dtype) {
                return Err(wrong(format!("it is {}{} here and {dtype}{shape} elsewhere", node.dtype, node.shape)));
            }
        }
    }
    if !graph.donated.is_sorted_by(|one, next| one < next) {
        return Err(Error::mistake(format!(
            "the graph's donated leaves {:?} are not in ascending order",
            graph.donated
        )));
    }
    match graph.outputs.iter().find(|output| output.index() >= graph.nodes.len()) {
        Some(NodeId(output)) => Err(Error::mistake(format!("graph output {output} does not exist"))),
        None => Ok(()),
    }
}

/// Returns the shape and type of a node's result, or the violated rule.
fn result(node: &Node, inputs: &[&Node]) -> Result<(Shape, DType), String> {
    let wanted = match &node.op {
        Op::Input(_) | Op::Const(_) | Op::ScalarInput(_) | Op::Iota => 0,
        Op::Alu(alu) => alu.arity(),
        Op::MatMul | Op::Gather(_) | Op::ControlDependency => 2,
        Op::ScatterAdd(_) => 3,
        Op::SliceScatter(_) => inputs.len().max(3).next_multiple_of(2) - 1,
        Op::Cast | Op::Bitcast | Op::Reduce(..) | Op::Scan(..) | Op::Reshape | Op::Permute(_) | Op::Expand => 1,
        Op::Pad(_) | Op::Slice(_) => 1,
        Op::Call(..) | Op::CustomCall(..) => inputs.len(),
    };
    if inputs.len() != wanted {
        return Err(format!("it takes {wanted} inputs, not {}", inputs.len()));
    }
    let dims = |input: usize| inputs[input].shape.dims();
    let first = || (inputs[0].shape.clone(), inputs[0].dtype);
    match &node.op {
        Op::Input(_) => Ok((node.shape.clone(), node.dtype)),
        Op::Const(value) => Ok((Shape::default(), value.dtype)),
        Op::ScalarInput(_) => Ok((Shape::default(), node.dtype)),
        Op::Iota => {
            rule(node.shape.ndim() == 1, "the result has one axis")?;
            Ok((node.shape.clone(), DType::I32))
        }
        Op::Alu(alu) => {
            let types: Vec<Type> = inputs.iter().map(|input| Type::Scalar(input.dtype)).collect();
            let ty = alu.result_type(&types)?;
            rule(inputs.iter().all(|input| input.shape == node.shape), "all shapes are equal")?;
            Ok((node.shape.clone(), ty.dtype().expect("operations on elements give elements")))
        }
        Op::Cast => Ok((inputs[0].shape.clone(), node.dtype)),
        Op::Bitcast => {
            rule(inputs[0].dtype.bits() == node.dtype.bits(), "both types have the same width")?;
            Ok((inputs[0].shape.clone(), node.dtype))
        }
        Op::Reduce(_, axes) => {
            rule(axes.is_sorted_by(|a, b| a < b), "axes ascend")?;
            rule(axes.iter().all(|axis| *axis < dims(0).len()), "axes exist")?;
            rule(inputs[0].dtype != DType::Bool, "bools cannot be reduced")?;
            let kept = dims(0).iter().enumerate().map(|(axis, dim)| if axes.contains(&axis) { 1 } else { *dim });
            Ok((Shape::new(kept.collect::<Vec<_>>()), inputs[0].dtype))
        }
        Op::Scan(_, axis) => {
            rule(*axis < dims(0).len(), "the axis exists")?;
            rule(inputs[0].dtype != DType::Bool, "bools cannot be scanned")?;
            Ok(first())
        }
        Op::Reshape => {
            rule(inputs[0].shape.numel() == node.shape.numel(), "the number of elements is unchanged")?;
            Ok((node.shape.clone(), inputs[0].dtype))
        }
        Op::Permute(perm) => {
            let mut sorted = perm.clone();
            sorted.sort_unstable();
            rule(sorted.into_iter().eq(0..dims(0).len()), "each axis is named once")?;
            Ok((perm.iter().map(|axis| dims(0)[*axis]).collect::<Vec<_>>().into(), inputs[0].dtype))
        }
        Op::Expand => {
            let (from, to) = (dims(0), node.shape.dims());
            rule(from.len() == to.len(), "ranks are equal")?;
            rule(from.iter().zip(to).all(|(from, to)| from == to || *from == 1), "only lengths of 1 change")?;
            Ok((node.shape.clone(), inputs[0].dtype))
        }
        Op::Pad(widths) => {
            rule(widths.len() == dims(0).len(), "there are widths for each axis")?;
            let padded = dims(0).iter().zip(widths).map(|(dim, (before, after))| before + dim + after);
            Ok((padded.collect::<Vec<_>>().into(), inputs[0].dtype))
        }
        Op::Slice(slices) => {
            rule(slices.len() == dims(0).len(), "there is a slice for each axis")?;
            rule(slices.iter().zip(dims(0)).all(|(slice, dim)| fits(slice, *dim)), "slices stay within the axes")?;
            Ok((slices.iter().map(|slice| slice.len).collect::<Vec<_>>().into(), inputs[0].dtype))
        }
        Op::MatMul => {
            let (a, b) = (dims(0), dims(1));
            rule(a.len() == b.len() && a.len() >= 2, "both have the same number of axes, at least 2")?;
            let rank = a.len();
            rule(a[..rank - 2] == b[..rank - 2], "leading axes are equal")?;
            rule(a[rank - 1] == b[rank - 2], "inner lengths are equal")?;
            rule(
                inputs[0].dtype == inputs[1].dtype && inputs[0].dtype != DType::Bool,
                "both have the same numeric type",
            )?;
            Ok(([&a[..rank - 1], &b[rank - 1..]].concat().into(), inputs[0].dtype))
        }
        Op::Gather(axis) => Ok((gathered(inputs[0], inputs[1], *axis)?, inputs[0].dtype)),
        Op::ScatterAdd(axis) => {
            rule(gathered(inputs[0], inputs[1], *axis)? == inputs[2].shape, "the rows have the shape of a gather")?;
            rule(
                inputs[0].dtype == inputs[2].dtype && inputs[0].dtype != DType::Bool,
                "both have the same numeric type",
            )?;
            Ok(first())
        }
        Op::SliceScatter(axis) => {
            let (whole, part) = (dims(0), dims(1));
            rule(*axis < whole.len(), "the axis exists")?;
            rule(whole.len() == part.len(), "the written part has the same number of axes")?;
            let others = (0..whole.len()).filter(|other| other != axis);
            rule(others.into_iter().all(|other| whole[other] == part[other]), "other axes are equal")?;
            rule(part[*axis] <= whole[*axis], "the written part is no longer than the axis")?;
            for pair in inputs[1..].chunks(2) {
                rule(pair[0].shape == inputs[1].shape, "parts have one shape")?;
                rule(pair[0].dtype == inputs[0].dtype, "both have the same type")?;
                let position = pair[1].shape.ndim() == 0 && matches!(pair[1].dtype, DType::I32 | DType::I64);
                rule(position, "the position is a single i32 or i64")?;
            }
            Ok(first())
        }
        Op::ControlDependency => Ok(first()),
        Op::CustomCall(custom_kernel, output) => {
            let given: Vec<(&Shape, DType)> = inputs.iter().map(|input| (&input.shape, input.dtype)).collect();
            custom_kernel.check(&given)?;
            let output = custom_kernel.outputs.get(*output as usize);
            output.cloned().ok_or_else(|| format!("kernel {} writes fewer buffers", custom_kernel.kernel.name))
        }
        Op::Call(call, output) => {
            if let Some(routine) = &call.routine {
                offered(routine, &call.body, inputs)?;
            }
            called(&call.body, *output, inputs)
        }
    }
}

/// Returns the shape and type of a body's output for these inputs.
fn called(body: &Graph, output: u32, inputs: &[&Node]) -> Result<(Shape, DType), String> {
    verify(body).map_err(|error| format!("its body is wrong: {}", error.message()))?;
    for node in &body.nodes {
        rule(!matches!(node.op, Op::ScalarInput(_)), "a body has no slots")?;
        if let Op::Input(n) = node.op {
            let fits =
                inputs.get(n as usize).is_some_and(|input| (&input.shape, input.dtype) == (&node.shape, node.dtype));
            rule(fits, "each leaf of a body is an input of the same shape and type")?;
        }
    }
    let Some(output) = body.outputs.get(output as usize) else {
        return Err(format!("its body has no output {output}"));
    };
    let node = body.node(*output);
    Ok((node.shape.clone(), node.dtype))
}

/// Checks that a routine's buffers are the first inputs and all outputs of a body.
fn offered(routine: &Routine, body: &Graph, inputs: &[&Node]) -> Result<(), String> {
    routine.check().map_err(|error| error.message().to_string())?;
    let outputs = body.outputs.iter().map(|output| body.node(*output));
    let read = inputs.iter().copied().take(routine.input_count()).map(|node| (Access::In, node));
    let given: Vec<(Access, &Node)> = read.chain(outputs.map(|node| (Access::Out, node))).collect();
    rule(routine.operands().count() == given.len(), "a routine's buffers are the call's first inputs and its outputs")?;
    for (operand, (access, node)) in routine.operands().zip(given) {
        let elems = node.shape.numel() as u64;
        let fits = operand.access == access
            && operand.dtype == node.dtype
            && match access {
                Access::In => operand.elems.is_some_and(|reached| reached <= elems),
                Access::Out | Access::InOut => operand.elems == Some(elems),
            };
        rule(fits, &format!("operand {} of the routine matches the call", operand.name))?;
    }
    Ok(())
}

fn rule(holds: bool, rule: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("violated rule: {rule}")) }
}

fn fits(slice: &Slice, dim: usize) -> bool {
    if slice.step == 0 || slice.len == 0 {
        return slice.step != 0;
    }
    let last = slice.start as i128 + slice.step as i128 * (slice.len as i128 - 1);
    slice.start < dim && (0..dim as i128).contains(&last)
}

fn gathered(values: &Node, positions: &Node, axis: usize) -> Result<Shape, String> {
    let dims = values.shape.dims();
    rule(axis < dims.len(), "the axis exists")?;
    rule(matches!(positions.dtype, DType::I32 | DType::I64), "positions are i32 or i64")?;
    Ok([&dims[..axis], positions.shape.dims(), &dims[axis + 1..]].concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alu::Alu;
    use crate::graph::Call;
    use crate::reduce::ReduceOp;
    use std::sync::Arc;

    fn check(op: Op, inputs: &[(&[usize], DType)], shape: &[usize], dtype: DType, complaint: Option<&str>) {
        let mut graph = Graph::default();
        let leaves: Vec<NodeId> = inputs
            .iter()
            .enumerate()
            .map(|(n, (shape, dtype))| graph.push(Op::Input(n as u32), &[], *shape, *dtype))
            .collect();
        graph.push(op, &leaves, shape, dtype);
        match (verify(&graph), complaint) {
            (Ok(()), None) => {}
            (Err(error), Some(part)) => assert!(error.message().contains(part), "{error}"),
            (result, _) => panic!("{result:?}"),
        }
    }

    #[test]
    fn valid_nodes_pass_and_invalid_ones_are_named() {
        use DType::*;
        let slice = |start, step, len| Op::Slice(vec![Slice { start, step, len }]);
        check(Op::Alu(Alu::Add), &[(&[2], F32), (&[2], F32)], &[2], F32, None);
        check(Op::Alu(Alu::Add), &[(&[2], F32), (&[3], F32)], &[2], F32, Some("shapes are equal"));
        check(Op::Alu(Alu::Add), &[(&[2], F32), (&[2], F16)], &[2], F32, Some("differ"));
        check(Op::Alu(Alu::Lt), &[(&[2], F32), (&[2], F32)], &[2], F32, Some("gives bool"));
        check(Op::Reduce(ReduceOp::Sum, vec![1]), &[(&[2, 3], F32)], &[2, 1], F32, None);
        check(Op::Reduce(ReduceOp::Sum, vec![1]), &[(&[2, 3], F32)], &[2], F32, Some("gives f32[2, 1]"));
        check(Op::Reduce(ReduceOp::Sum, vec![1, 1]), &[(&[2, 3], F32)], &[2, 1], F32, Some("ascend"));
        check(Op::Reshape, &[(&[2, 3], F32)], &[3, 2], F32, None);
        check(Op::Reshape, &[(&[2, 3], F32)], &[4], F32, Some("number of elements"));
        check(Op::Permute(vec![1, 0]), &[(&[2, 3], F32)], &[3, 2], F32, None);
        check(Op::Permute(vec![0, 0]), &[(&[2, 3], F32)], &[3, 2], F32, Some("named once"));
        check(Op::Expand, &[(&[1, 3], F32)], &[2, 3], F32, None);
        check(Op::Expand, &[(&[2, 3], F32)], &[4, 3], F32, Some("lengths of 1"));
        check(Op::Pad(vec![(1, 2)]), &[(&[3], F32)], &[6], F32, None);
        check(slice(4, -2, 3), &[(&[5], F32)], &[3], F32, None);
        check(slice(4, -2, 4), &[(&[5], F32)], &[4], F32, Some("within"));
        check(Op::MatMul, &[(&[5, 2, 3], F32), (&[5, 3, 4], F32)], &[5, 2, 4], F32, None);
        check(Op::MatMul, &[(&[2, 3], F32), (&[4, 3], F32)], &[2, 3], F32, Some("inner lengths"));
        check(Op::Gather(1), &[(&[2, 3, 4], F32), (&[5, 6], I32)], &[2, 5, 6, 4], F32, None);
        check(Op::Gather(0), &[(&[2], F32), (&[5], F32)], &[5], F32, Some("i32 or i64"));
        check(Op::ScatterAdd(0), &[(&[9, 4], F32), (&[5], I64), (&[5, 4], F32)], &[9, 4], F32, None);
        check(Op::ScatterAdd(0), &[(&[9, 4], F32), (&[5], I64), (&[4, 5], F32)], &[9, 4], F32, Some("gather"));
        check(Op::SliceScatter(1), &[(&[2, 5], F32), (&[2, 3], F32), (&[], I32)], &[2, 5], F32, None);
        check(Op::SliceScatter(1), &[(&[2, 5], F32), (&[2, 6], F32), (&[], I32)], &[2, 5], F32, Some("no longer"));
        check(Op::SliceScatter(0), &[(&[2, 5], F32), (&[2, 3], F32), (&[], I32)], &[2, 5], F32, Some("other axes"));
        check(Op::SliceScatter(0), &[(&[5], F32), (&[3], F32), (&[1], I32)], &[5], F32, Some("single"));
        let parts = |other: &'static [usize]| [(&[5][..], F32), (&[2], F32), (&[], I32), (other, F32), (&[], I32)];
        check(Op::SliceScatter(0), &parts(&[2]), &[5], F32, None);
        check(Op::SliceScatter(0), &parts(&[3]), &[5], F32, Some("one shape"));
        check(Op::SliceScatter(0), &parts(&[2])[..4], &[5], F32, Some("takes 3 inputs"));
        check(Op::Iota, &[], &[3], F32, Some("gives i32"));
        check(Op::Cast, &[], &[3], F32, Some("takes 1 inputs"));
    }

    #[test]
    fn bodies_are_checked_against_their_inputs() {
        use DType::*;
        let mut body = Graph::default();
        let x = body.push(Op::Input(1), &[], [2], F32);
        let y = body.push(Op::Alu(Alu::Neg), &[x], [2], F32);
        body.outputs.push(y);
        let call = Arc::new(Call::new("negated", body.clone()));
        check(Op::Call(call.clone(), 0), &[(&[7], I32), (&[2], F32)], &[2], F32, None);
        check(Op::Call(call.clone(), 0), &[(&[7], I32), (&[3], F32)], &[2], F32, Some("leaf of a body"));
        check(Op::Call(call.clone(), 0), &[(&[2], F32)], &[2], F32, Some("leaf of a body"));
        check(Op::Call(call, 1), &[(&[7], I32), (&[2], F32)], &[2], F32, Some("no output 1"));
        body.push(Op::ScalarInput(0), &[], [], F32);
        let call = Arc::new(Call::new("slotted", body));
        check(Op::Call(call, 0), &[(&[7], I32), (&[2], F32)], &[2], F32, Some("no slots"));
    }

    #[test]
    fn topological_order_is_checked() {
        let mut graph = Graph::default();
        graph.push(Op::Cast, &[NodeId(0)], [2], DType::F32);
        assert!(verify(&graph).unwrap_err().message().contains("come before"));
        let graph = Graph { outputs: vec![NodeId(0)], ..Graph::default() };
        assert!(verify(&graph).unwrap_err().message().contains("does not exist"));
    }
}
