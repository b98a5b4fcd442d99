//! Calls on their way into a simplified graph: left to a routine where one takes them, done by kernels of our own where those
//! are better than their bodies, and inlined everywhere else.

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

/// The same values, simplified, with bodies in place of the calls that nobody does whole, in their own type or a wider one:
/// what two bodies have in common is then computed once.
pub fn simplify(graph: &Graph, target: &Target, accuracy: MathMode, offers: &dyn Fn(&Routine) -> bool) -> Graph {
    let mut calls = CallInliner { target, accuracy, offers, written: HashMap::new(), rounded: HashSet::new() };
    rewrite(graph, |rewriter, id, inputs| match &graph.node(id).op {
        Op::Call(call, output) => calls.called(rewriter, call, *output, inputs),
        _ => None,
    })
}

/// Kernels that do a routine between them.
type Kernels = Vec<Arc<CustomKernel>>;

/// Calls on their way into a simplified graph.
struct CallInliner<'a> {
    target: &'a Target,
    accuracy: MathMode,
    offers: &'a dyn Fn(&Routine) -> bool,
    /// Our own kernels for a routine with results of some shapes, where there are any.
    written: HashMap<(Routine, Vec<Shape>), Option<Kernels>>,
    /// Casts that round what was computed in a wider type; all others are the program's own.
    rounded: HashSet<NodeId>,
}

impl CallInliner<'_> {
    /// What does a call; none if a routine takes it as it is.
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
                // What only the body needs is not made.
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

    /// A call by kernels of our own, if there are any for it.
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
        let write =
            |(routine, shapes): &(_, Vec<Shape>)| library_kernels::kernels(routine, shapes, self.target, self.accuracy);
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

    /// What our kernels of attention's gradient read: in place of the output its product with what flows to it, row by row.
    fn attention_backward_inputs(&self, rewriter: &mut GraphRewriter, dtype: DType, inputs: &[NodeId]) -> Vec<NodeId> {
        let (read, [output, logarithms, flow]) = inputs.split_last_chunk().expect("a gradient has these three");
        let wide = accumulator(dtype);
        let shape = rewriter.node(*output).shape.clone();
        let (rows, last) = (rewriter.node(*logarithms).shape.clone(), shape.ndim() - 1);
        let factors = [output, flow].map(|value| rewriter.cast(*value, wide));
        let products = rewriter.add(Op::Alu(Alu::Mul), &factors, shape.clone(), wide);
        let single = [&shape.dims()[..last], &[1]].concat();
        let mean = rewriter.add(Op::Reduce(ReduceOp::Sum, vec![last]), &[products], single, wide);
        let mean = rewriter.reshape(mean, rows);
        [read, &[self.wide_value(rewriter, *logarithms, wide), mean, *flow]].concat()
    }

    /// A call by a routine on wider elements: rounded once, where its body would round every step.
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

    /// A value in a wider type: where it is what another routine gave before it was rounded for it, that.
    fn wide_value(&self, rewriter: &mut GraphRewriter, value: NodeId, wide: DType) -> NodeId {
        match rewriter.node(value).inputs.first().copied() {
            Some(given) if self.rounded.contains(&value) && rewriter.node(given).dtype == wide => given,
            _ => rewriter.cast(value, wide),
        }
    }

    fn inline(&mut self, rewriter: &mut GraphRewriter, call: &Call, output: u32, inputs: &[NodeId]) -> NodeId {
        let mut moved: Vec<NodeId> = Vec::with_capacity(call.body.nodes.len());
        for node in &call.body.nodes {
            let operands: Vec<NodeId> = node.inputs.iter().map(|input| moved[input.index()]).collect();
            moved.push(match &node.op {
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
        moved[call.body.outputs[output as usize].index()]
    }
}

/// Whether a routine takes a call whole. One that touches nothing of some buffer is left to the body.
fn routine_matches(routine: &Routine, offers: &dyn Fn(&Routine) -> bool) -> bool {
    !routine.is_empty() && offers(routine)
}
