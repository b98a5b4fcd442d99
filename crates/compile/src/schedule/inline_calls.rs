//! Simplifies a graph and resolves its calls: a call is left to a routine if one matches, replaced by library kernels
//! where these are faster than its body, and inlined otherwise.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use panoply_ir::alu::Alu;
use panoply_ir::custom_kernel::CustomKernel;
use panoply_ir::graph::{Call, Graph, Node, NodeId, Op};
use panoply_ir::reduce::ReduceOp;
use panoply_ir::routine::Routine;
use panoply_ir::{DType, MathMode, Shape, Target};

use super::decompose::{accumulator, rewrite};
use super::rewrite::GraphRewriter;
use crate::library_kernels;

/// Simplifies a graph and inlines the calls that neither a routine (in the same or a wider type) nor library kernels
/// compute. Common subexpressions of inlined bodies are then computed once.
pub fn simplify(graph: &Graph, target: &Target, math_mode: MathMode, offers: &dyn Fn(&Routine) -> bool) -> Graph {
    let mut calls = CallInliner { target, math_mode, offers, written: HashMap::new(), rounded: HashSet::new() };
    rewrite(graph, |rewriter, id, inputs| match &graph.node(id).op {
        Op::Call(call, output) => calls.called(rewriter, call, *output, inputs),
        _ => None,
    })
}

/// Library kernels that together compute a routine.
type Kernels = Vec<Arc<CustomKernel>>;

/// Resolves calls while a simplified graph is built.
struct CallInliner<'a> {
    target: &'a Target,
    math_mode: MathMode,
    offers: &'a dyn Fn(&Routine) -> bool,
    /// Library kernels of a routine with results of these shapes; `None` if there are none.
    written: HashMap<(Routine, Vec<Shape>), Option<Kernels>>,
    /// Casts that round a result computed in a wider type; all other casts belong to the program.
    rounded: HashSet<NodeId>,
}

impl CallInliner<'_> {
    /// Returns the replacement of a call, or `None` if a routine takes it unchanged.
    fn called(
        &mut self,
        rewriter: &mut GraphRewriter,
        call: &Arc<Call>,
        output: u32,
        inputs: &[NodeId],
    ) -> Option<NodeId> {
        if let Some(routine) = call.routine.filter(|routine| routine_matches(routine, self.offers)) {
            let reads = routine.input_count();
            return (reads < inputs.len()).then(|| {
                // Inputs that only the body needs are not computed.
                let node = call.body.node(call.body.outputs[output as usize]);
                let op = Op::Call(call.clone(), output);
                rewriter.add(op, &inputs[..reads], node.shape.clone(), node.dtype)
            });
        }
        if let Some(own) = self.by_library_kernel(rewriter, call, output, inputs) {
            return Some(own);
        }
        let wide = call.routine.and_then(|routine| routine.in_f32());
        Some(match wide.filter(|wide| !wide.is_empty() && (self.offers)(wide)) {
            Some(wide) => self.by_widened_routine(rewriter, call, wide, output, inputs),
            None => self.inline(rewriter, call, output, inputs),
        })
    }

    /// Replaces a call by library kernels, if there are any for it.
    fn by_library_kernel(
        &mut self,
        rewriter: &mut GraphRewriter,
        call: &Call,
        output: u32,
        inputs: &[NodeId],
    ) -> Option<NodeId> {
        let routine = call.routine.filter(|routine| !routine.is_empty())?;
        let results = || call.body.outputs.iter().map(|output| call.body.node(*output));
        let key = (routine, results().map(|node| node.shape.clone()).collect());
        let write = |(routine, shapes): &(_, Vec<Shape>)| {
            library_kernels::kernels(routine, shapes, self.target, self.math_mode)
        };
        let written = self.written.entry(key).or_insert_with_key(write).clone()?;
        let mut at = output as usize;
        let of = written.iter().find(|kernel| {
            let own = at < kernel.outputs.len();
            at -= if own { 0 } else { kernel.outputs.len() };
            own
        })?;
        let inputs = if let Routine::AttentionBackward(of) = routine {
            self.attention_backward_inputs(rewriter, of.dtype, inputs)
        } else {
            inputs.to_vec()
        };
        let (shape, wide) = of.outputs[at].clone();
        let result = rewriter.add(Op::CustomCall(of.clone(), at as u32), &inputs, shape, wide);
        let rounded = rewriter.cast(result, results().nth(output as usize)?.dtype);
        self.rounded.extend((rounded != result).then_some(rounded));
        Some(rounded)
    }

    /// Returns the inputs of the library kernels for attention's gradient: the output is replaced by the row sums of
    /// its product with the output gradient.
    fn attention_backward_inputs(&self, rewriter: &mut GraphRewriter, dtype: DType, inputs: &[NodeId]) -> Vec<NodeId> {
        let (read, [output, logsumexp, grad_output]) =
            inputs.split_last_chunk().expect("an attention gradient has at least three inputs");
        let wide = accumulator(dtype);
        let shape = rewriter.node(*output).shape.clone();
        let (rows, last) = (rewriter.node(*logsumexp).shape.clone(), shape.ndim() - 1);
        let factors = [output, grad_output].map(|value| rewriter.cast(*value, wide));
        let products = rewriter.add(Op::Alu(Alu::Mul), &factors, shape.clone(), wide);
        let single = [&shape.dims()[..last], &[1]].concat();
        let mean = rewriter.add(Op::Reduce(ReduceOp::Sum, vec![last]), &[products], single, wide);
        let mean = rewriter.reshape(mean, rows);
        [read, &[self.wide_value(rewriter, *logsumexp, wide), mean, *grad_output]].concat()
    }

    /// Replaces a call by a routine on wider elements. The result is rounded once, while the body would round every
    /// step.
    fn by_widened_routine(
        &mut self,
        rewriter: &mut GraphRewriter,
        call: &Call,
        wide: Routine,
        output: u32,
        inputs: &[NodeId],
    ) -> NodeId {
        let operands: Vec<DType> = wide.operands().map(|operand| operand.dtype).collect();
        let (read, written) = operands.split_at(inputs.len());
        let mut body = rewrite(&call.body, |rewriter, id, _| {
            let node = call.body.node(id);
            let Op::Input(n) = node.op else { return None };
            let leaf = rewriter.add(Op::Input(n), &[], node.shape.clone(), read[n as usize]);
            Some(rewriter.cast(leaf, node.dtype))
        });
        for (at, dtype) in written.iter().enumerate() {
            let output = body.outputs[at];
            let shape = body.node(output).shape.clone();
            body.nodes.push(Node { op: Op::Cast, inputs: vec![output], shape, dtype: *dtype });
            body.outputs[at] = NodeId(body.nodes.len() as u32 - 1);
        }
        let node = call.body.node(call.body.outputs[output as usize]);
        let inputs: Vec<NodeId> =
            inputs.iter().zip(read).map(|(input, dtype)| self.wide_value(rewriter, *input, *dtype)).collect();
        let wide = Op::Call(Arc::new(Call::with_routine(call.name.clone(), body, Some(wide))), output);
        let result = rewriter.add(wide, &inputs, node.shape.clone(), written[output as usize]);
        let rounded = rewriter.cast(result, node.dtype);
        self.rounded.insert(rounded);
        rounded
    }

    /// Returns a value in a wider type. If the value was rounded from a routine's result of that type, returns that
    /// result.
    fn wide_value(&self, rewriter: &mut GraphRewriter, value: NodeId, wide: DType) -> NodeId {
        match rewriter.node(value).inputs.first().copied() {
            Some(given) if self.rounded.contains(&value) && rewriter.node(given).dtype == wide => given,
            _ => rewriter.cast(value, wide),
        }
    }

    fn inline(&mut self, rewriter: &mut GraphRewriter, call: &Call, output: u32, inputs: &[NodeId]) -> NodeId {
        let mut new_ids: Vec<NodeId> = Vec::with_capacity(call.body.nodes.len());
        for node in &call.body.nodes {
            let operands: Vec<NodeId> = node.inputs.iter().map(|input| new_ids[input.index()]).collect();
            new_ids.push(match &node.op {
                Op::Input(n) => inputs[*n as usize],
                op => {
                    let inner = match op {
                        Op::Call(inner, output) => self.called(rewriter, inner, *output, &operands),
                        _ => None,
                    };
                    inner.unwrap_or_else(|| rewriter.add(op.clone(), &operands, node.shape.clone(), node.dtype))
                }
            });
        }
        new_ids[call.body.outputs[output as usize].index()]
    }
}

/// Returns true if a routine takes an entire call. A routine with an empty operand is left to the body.
fn routine_matches(routine: &Routine, offers: &dyn Fn(&Routine) -> bool) -> bool {
    !routine.is_empty() && offers(routine)
}
