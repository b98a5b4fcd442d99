//! Library kernels for attention and its gradient, against the bodies of the calls.

use std::sync::Arc;

use panoply_compile::plan::{Options, Plan, PlanStep, plan, plan_with};
use panoply_ir::alu::{Alu, Math};
use panoply_ir::graph::{Call, Graph, NodeId, Op};
use panoply_ir::reduce::ReduceOp;
use panoply_ir::routine::{Attention, Mask, Routine};
use panoply_ir::{DType, MathMode, Scalar, Target, graph_interpret};

use crate::plan::build::Build;
use crate::plan::execute::{difference, inputs, run};
use crate::plan::variants::variants;

/// Dimensions that are not multiples of a tile.
const PLAIN: Attention = Attention {
    dtype: DType::F32,
    batch: 2,
    heads: 1,
    key_heads: 1,
    queries: 37,
    keys: 21,
    width: 12,
    depth: 7,
    past: None,
    scale: Scalar { dtype: DType::F32, bits: 0x3E80_0000 },
    mask: None,
};

fn of_type(dtype: DType, of: Attention) -> Attention {
    Attention { dtype, scale: Scalar::from_f64(dtype, 0.25), ..of }
}

fn masked(dtype: DType, [batch, head, query, key]: [usize; 4], of: Attention) -> Attention {
    Attention { mask: Some(Mask { dtype, batch, head, query, key }), ..of }
}

fn cases() -> Vec<(&'static str, Attention)> {
    let narrow = Attention { queries: 16, keys: 5, width: 3, depth: 1, batch: 1, heads: 1, key_heads: 1, ..PLAIN };
    vec![
        ("ragged", PLAIN),
        ("complete tiles", Attention { queries: 32, keys: 64, width: 16, depth: 16, batch: 1, ..PLAIN }),
        ("few keys", narrow),
        ("causal", Attention { past: Some(0), queries: 40, keys: 40, batch: 1, ..PLAIN }),
        ("causal with past keys", Attention { past: Some(9), queries: 20, keys: 45, batch: 1, ..PLAIN }),
        ("causal with more queries than keys", Attention { past: Some(3), queries: 50, keys: 9, batch: 1, ..PLAIN }),
        ("all keys before the queries", Attention { past: Some(1 << 40), ..narrow }),
        ("shared keys", Attention { heads: 4, key_heads: 2, past: Some(2), queries: 18, ..PLAIN }),
        ("bools", masked(DType::Bool, [0, 0, 21, 1], Attention { batch: 1, heads: 1, key_heads: 1, ..PLAIN })),
        ("bools per key", masked(DType::Bool, [0, 0, 0, 1], Attention { past: Some(1), batch: 1, ..PLAIN })),
        (
            "additive, per head",
            masked(
                DType::F32,
                [2 * 19 * 21, 19 * 21, 21, 1],
                Attention { queries: 19, heads: 2, key_heads: 2, ..PLAIN },
            ),
        ),
        (
            "additive, per query",
            masked(DType::F32, [0, 37, 1, 0], Attention { batch: 1, heads: 2, key_heads: 2, ..PLAIN }),
        ),
        ("f16", of_type(DType::F16, Attention { batch: 1, past: Some(0), ..PLAIN })),
        ("bf16", of_type(DType::BF16, masked(DType::BF16, [0, 0, 21, 1], Attention { batch: 1, ..PLAIN }))),
        ("maximum width", Attention { width: 128, depth: 100, queries: 17, heads: 1, key_heads: 1, batch: 1, ..PLAIN }),
    ]
}

/// The call's operands as nodes.
struct Operands {
    q: NodeId,
    k: NodeId,
    v: NodeId,
    mask: Option<NodeId>,
}

fn operands(b: &mut Build, of: &Attention) -> Operands {
    let q = b.leaf(&[of.batch, of.heads, of.queries, of.width], of.dtype);
    let k = b.leaf(&[of.batch, of.key_heads, of.keys, of.width], of.dtype);
    let v = b.leaf(&[of.batch, of.key_heads, of.keys, of.depth], of.dtype);
    let mask = of.mask.map(|mask| {
        let long = |distance: usize, length: usize| if distance == 0 { 1 } else { length };
        let dims = [(mask.batch, of.batch), (mask.head, of.heads), (mask.query, of.queries), (mask.key, of.keys)];
        b.leaf(&dims.map(|(distance, length)| long(distance, length)), mask.dtype)
    });
    Operands { q, k, v, mask }
}

/// Merges the query heads that share a key head into rows of one matrix.
fn joined(b: &mut Build, of: &Attention, x: NodeId) -> NodeId {
    let width = *b.shape(x).last().unwrap();
    b.reshape(x, &[of.batch, of.key_heads, of.heads / of.key_heads * of.queries, width])
}

fn with_shared(b: &mut Build, of: &Attention, x: NodeId, shared: NodeId) -> NodeId {
    let left = joined(b, of, x);
    let product = b.matmul(left, shared);
    let width = *b.shape(product).last().unwrap();
    b.reshape(product, &[of.batch, of.heads, of.queries, width])
}

fn transposed(b: &mut Build, x: NodeId) -> NodeId {
    b.permute(x, &[0, 1, 3, 2])
}

/// Returns the attention weights, and the log-sum-exp.
fn weights(b: &mut Build, of: &Attention, operands: &Operands) -> [NodeId; 2] {
    let keys = transposed(b, operands.k);
    let scores = with_shared(b, of, operands.q, keys);
    let scale = b.like(scores, of.scale.to_f64());
    let mut scores = b.alu(Alu::Mul, &[scores, scale]);
    let never = b.like(scores, f64::NEG_INFINITY);
    let shape = b.shape(scores);
    if let Some(mask) = operands.mask {
        let mask = b.expand(mask, &shape);
        scores = match b.dtype(mask) {
            DType::Bool => b.alu(Alu::Select, &[mask, scores, never]),
            _ => b.alu(Alu::Add, &[scores, mask]),
        };
    }
    if let Some(past) = of.past {
        let last = b.iota(of.queries);
        let past = b.like(last, past.min(1000) as f64);
        let last = b.alu(Alu::Add, &[last, past]);
        let (last, key) = (b.reshape(last, &[1, 1, of.queries, 1]), b.iota(of.keys));
        let key = b.reshape(key, &[1, 1, 1, of.keys]);
        let [key, last] = [key, last].map(|x| b.expand(x, &shape));
        let seen = b.alu(Alu::Le, &[key, last]);
        scores = b.alu(Alu::Select, &[seen, scores, never]);
    }
    let top = b.reduce(ReduceOp::Max, scores, &[3]);
    let (never, zero, one) = (b.like(top, f64::NEG_INFINITY), b.like(top, 0.0), b.like(top, 1.0));
    let blind = b.alu(Alu::Eq, &[top, never]);
    let base = b.alu(Alu::Select, &[blind, zero, top]);
    let less = b.with(Alu::Sub, scores, base);
    let powers = b.alu(Alu::Math(Math::Exp), &[less]);
    let sum = b.sum(powers, &[3]);
    let logarithm = b.alu(Alu::Math(Math::Log), &[sum]);
    let logarithm = b.alu(Alu::Add, &[base, logarithm]);
    let divisor = b.alu(Alu::Select, &[blind, one, sum]);
    let logsumexp = b.reshape(logarithm, &shape[..3]);
    [b.with(Alu::Div, powers, divisor), logsumexp]
}

fn forward(of: &Attention) -> Arc<Call> {
    let mut b = Build::default();
    let operands = operands(&mut b, of);
    let [weights, logsumexp] = weights(&mut b, of, &operands);
    let output = with_shared(&mut b, of, weights, operands.v);
    Arc::new(Call::with_routine("attention", b.done(&[output, logsumexp]), Some(Routine::Attention(*of))))
}

fn backward(of: &Attention) -> Arc<Call> {
    let mut b = Build::default();
    let operands = operands(&mut b, of);
    let result = [of.batch, of.heads, of.queries, of.depth];
    let (_, _, grad_output) = (b.leaf(&result, of.dtype), b.leaf(&result[..3], of.dtype), b.leaf(&result, of.dtype));
    let [weights, _] = weights(&mut b, of, &operands);
    let values = transposed(&mut b, operands.v);
    let grad_weights = with_shared(&mut b, of, grad_output, values);
    let weighted = b.alu(Alu::Mul, &[grad_weights, weights]);
    let mean = b.sum(weighted, &[3]);
    let less = b.with(Alu::Sub, grad_weights, mean);
    let grad_scores = b.alu(Alu::Mul, &[weights, less]);
    let scale = b.like(grad_scores, of.scale.to_f64());
    let grad_products = b.alu(Alu::Mul, &[grad_scores, scale]);
    let grad_queries = with_shared(&mut b, of, grad_products, operands.k);
    let mut down = |weights: NodeId, rows: NodeId| {
        let (weights, rows) = (joined(&mut b, of, weights), joined(&mut b, of, rows));
        let weights = transposed(&mut b, weights);
        b.matmul(weights, rows)
    };
    let (grad_keys, grad_values) = (down(grad_products, operands.q), down(weights, grad_output));
    let graph = b.done(&[grad_queries, grad_keys, grad_values]);
    Arc::new(Call::with_routine("attention_gradient", graph, Some(Routine::AttentionBackward(*of))))
}

/// Adds all outputs of a call.
fn call(b: &mut Build, call: &Arc<Call>, inputs: &[NodeId]) -> Vec<NodeId> {
    let output = |(at, id): (usize, &NodeId)| {
        let node = call.body.node(*id);
        b.graph.push(Op::Call(call.clone(), at as u32), inputs, node.shape.clone(), node.dtype)
    };
    call.body.outputs.iter().enumerate().map(output).collect()
}

/// Builds attention, and its gradient if `back`.
fn graph(of: &Attention, back: bool) -> Graph {
    let mut b = Build::default();
    let Operands { q, k, v, mask } = operands(&mut b, of);
    let mut given: Vec<NodeId> = [q, k, v].into_iter().chain(mask).collect();
    let results = call(&mut b, &forward(of), &given);
    let mut wanted = results.clone();
    if back {
        let grad_output = b.leaf(&[of.batch, of.heads, of.queries, of.depth], of.dtype);
        given.extend(results.into_iter().chain([grad_output]));
        wanted.extend(call(&mut b, &backward(of), &given));
    }
    b.done(&wanted)
}

fn nothing(_: &Routine) -> bool {
    false
}

/// Returns targets of all vendors, including NVIDIA targets with and without matrix units for 16-bit floats.
fn targets() -> [Target; 5] {
    let [older, newer] = [75, 80].map(Target::cuda_minimum);
    [newer, Target::webgpu_minimum(), Target::opencl_minimum(), older, Target::hip_minimum(64)]
}

fn names(plan: &Plan) -> Vec<String> {
    let name = |step: &PlanStep| match step {
        PlanStep::Kernel { kernel, .. } => kernel.name.clone(),
        PlanStep::Routine { routine, .. } => routine.to_string(),
        PlanStep::Copy { .. } => "copy".to_string(),
    };
    plan.steps.iter().map(name).collect()
}

#[test]
fn library_kernels_match_call_bodies() {
    for (number, (name, of)) in cases().into_iter().enumerate() {
        let graph = graph(&of, true);
        let (leaves, slots) = inputs(&graph, 7);
        let want = graph_interpret::run(&graph, &leaves, &slots).unwrap();
        // The targets differ in tile sizes: two of them run all cases.
        for target in targets().into_iter().take(if number == 0 { 5 } else { 2 }) {
            let plan = plan(&graph, &target, &nothing).unwrap();
            // The smallest target has insufficient shared memory for the gradient of the widest case, and binds too few
            // buffers for masks.
            let least = target.max_bindings == 8 && (name == "maximum width" || of.mask.is_some());
            let count = plan.steps.len();
            assert!(names(&plan).contains(&"attention".to_string()), "{name}, {}: {plan}", target.name);
            // Forward, means, gradients of queries and keys, and a conversion of the log-sum-exp to 16 bits, which is
            // an output here.
            let most = 4 + usize::from(of.dtype != DType::F32);
            assert!(least || count == most, "{name}, {}: {plan}", target.name);
            let have = run(&plan, &leaves, &slots);
            let have = have.unwrap_or_else(|error| panic!("{name}, {}: {error}\n{plan}", target.name));
            for (number, (have, want)) in have.iter().zip(&want).enumerate() {
                let wrong = difference(have, want);
                assert_eq!(wrong, None, "{name}, result {number} for {}: {plan}", target.name);
            }
        }
    }
}

/// Rows without visible keys give zeros, also in the gradient.
#[test]
fn fully_masked_queries_give_zeros() {
    let of = masked(DType::Bool, [0, 0, 1, 0], Attention { batch: 1, heads: 1, key_heads: 1, ..PLAIN });
    let graph = graph(&of, true);
    let (leaves, _) = inputs(&graph, 3);
    let seen = leaves[3].scalars();
    assert!(seen.iter().any(|seen| seen.bits == 0) && seen.iter().any(|seen| seen.bits == 1));
    for target in targets() {
        let have = run(&plan(&graph, &target, &nothing).unwrap(), &leaves, &[]).unwrap();
        let of_query = |result: usize, query: usize, width: usize| {
            have[result][query * width..][..width].iter().map(|value| value.to_f64()).collect::<Vec<f64>>()
        };
        for (query, seen) in seen.iter().enumerate() {
            let (output, grad_output) = (of_query(0, query, of.depth), of_query(2, query, of.width));
            let logarithm = of_query(1, query, 1)[0];
            assert_eq!(logarithm == f64::NEG_INFINITY, seen.bits == 0, "{}, query {query}", target.name);
            assert_eq!(output.iter().all(|x| *x == 0.0), seen.bits == 0, "{}, query {query}", target.name);
            assert!(
                grad_output.iter().all(|x| x.is_finite()) && (seen.bits == 1 || grad_output.iter().all(|x| *x == 0.0))
            );
        }
    }
}

#[test]
fn all_tilings_give_the_same_bits() {
    let of = Attention { queries: 66, keys: 35, heads: 1, key_heads: 1, batch: 1, past: Some(3), ..PLAIN };
    assert_eq!(variants(&graph(&of, false), &Target::cuda_minimum(75), MathMode::Standard), 1, "tiles of 64 and of 32");
    assert!(variants(&graph(&of, true), &Target::cuda_minimum(75), MathMode::Standard) >= 3);
}

/// 16 heads of 1024 tokens: each intermediate between the products would take 64 MiB.
#[test]
fn score_matrices_are_not_stored() {
    let of = Attention { batch: 1, heads: 16, key_heads: 16, queries: 1024, keys: 1024, width: 64, depth: 64, ..PLAIN };
    let (output, logsumexp) = (16 * 1024 * 64 * 4, 16 * 1024 * 4);
    for target in targets() {
        let graphs = [graph(&of, false), graph(&of, true)].map(|graph| plan(&graph, &target, &nothing).unwrap());
        assert_eq!(names(&graphs[0]), ["attention"], "{}", target.name);
        assert_eq!(graphs[0].peak_bytes, output + logsumexp, "{}", target.name);
        assert_eq!(graphs[1].peak_bytes, 4 * output + 2 * logsumexp, "{}: {}", target.name, graphs[1]);
        let exact = Options { math_mode: MathMode::Exact, ..Options::default() };
        let exact = plan_with(&exact, &graph(&of, false), &target, &nothing).unwrap();
        assert!(exact.steps.len() >= 3 && exact.peak_bytes > 64 << 20, "{}: {exact}", target.name);
    }
}

#[test]
fn bodies_and_routines_are_used_where_they_are_faster() {
    let plain = graph(&PLAIN, false);
    let ours = |graph: &Graph, target: &Target| names(&plan(graph, target, &nothing).unwrap())[0] == "attention";
    assert!(ours(&plain, &Target::opencl_minimum()));
    assert!(!ours(&plain, &Target::cpu()), "the CPU has a routine");
    let offered = plan(&plain, &Target::opencl_minimum(), &|_| true).unwrap();
    assert!(matches!(offered.steps[..], [PlanStep::Routine { .. }]), "{offered}");
    let few = Target { max_bindings: 4, ..Target::opencl_minimum() };
    let small = Target { shared_bytes: 1 << 10, ..Target::opencl_minimum() };
    for (what, of, target) in [
        ("one query", Attention { queries: 1, keys: 300, ..PLAIN }, &Target::opencl_minimum()),
        ("a wide head", Attention { width: 129, ..PLAIN }, &Target::opencl_minimum()),
        ("unsupported f64", of_type(DType::F64, PLAIN), &Target::opencl_minimum()),
        ("few bindings", PLAIN, &few),
        ("little shared memory", PLAIN, &small),
    ] {
        assert!(!ours(&graph(&of, false), target), "{what}");
    }
    assert!(ours(&graph(&of_type(DType::F64, PLAIN), false), &Target::cuda_minimum(80)), "f64");
}
