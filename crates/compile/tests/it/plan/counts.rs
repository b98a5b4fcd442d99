//! Number of kernels per graph: tests of the fusion rule.

use std::sync::Arc;

use panoply_compile::plan::{PlanStep, plan};
use panoply_ir::alu::{Alu, Math};
use panoply_ir::graph::{Call, Graph, NodeId, Op, Slice};
use panoply_ir::reduce::ReduceOp;
use panoply_ir::routine::{Layout, Routine};
use panoply_ir::{DType, Target};

use crate::plan::build::Build;
use crate::plan::execute::check;

#[track_caller]
fn expect(name: &str, graph: Graph, kernels: usize, routines: usize) {
    check(name, &graph);
    count(name, &graph, kernels, routines);
}

/// Checks only the counts, for shapes too large for the interpreter.
#[track_caller]
fn count(name: &str, graph: &Graph, kernels: usize, routines: usize) {
    for target in [Target::cpu(), Target::opencl_minimum()] {
        let plan = plan(graph, &target, &|_| true).unwrap();
        let ours = plan.steps.iter().filter(|step| step.kernel().is_some()).count();
        let theirs = plan.steps.iter().filter(|step| matches!(step, PlanStep::Routine { .. })).count();
        assert_eq!((ours, theirs), (kernels, routines), "{name} for {:?}:\n{plan}", target.style);
    }
}

#[test]
fn chain_of_five_operations_is_one_kernel() {
    let mut b = Build::default();
    let (x, a) = (b.f32(&[5, 40]), b.f32(&[1, 40]));
    let y = b.with(Alu::Mul, x, a);
    let y = b.alu(Alu::Math(Math::Exp), &[y]);
    let y = b.alu(Alu::Math(Math::Tanh), &[y]);
    let y = b.alu(Alu::Add, &[y, x]);
    let y = b.alu(Alu::Sqrt, &[y]);
    expect("chain", b.done(&[y]), 1, 0);
}

/// One kernel fills the array, one writes each part, and nothing is copied.
#[test]
fn many_writes_update_one_array() {
    let mut b = Build::default();
    let whole = b.leaf(&[90, 100], DType::F32);
    let mut joined = b.like(whole, 0.0);
    for part in 0..9 {
        let (rows, at) = (b.f32(&[10, 100]), b.number(part * 10));
        let rows = b.alu(Alu::Math(Math::Tanh), &[rows]);
        joined = b.write(joined, rows, at, 0);
    }
    let graph = b.done(&[joined]);
    count("many writes", &graph, 10, 0);
    let plan = plan(&graph, &Target::cpu(), &|_| true).unwrap();
    assert_eq!(plan.peak_bytes, 90 * 100 * 4, "{plan}");
}

#[test]
fn concatenation_of_few_parts_is_one_kernel() {
    // In any order, along any axis. Duplicate or missing parts are selected instead.
    for (axis, places) in [(1, [48, 0, 32, 16]), (0, [0, 16, 32, 48]), (0, [0, 16, 16, 48])] {
        let mut b = Build::default();
        let dims = |length: usize| if axis == 0 { [length, 30] } else { [30, length] };
        let whole = b.leaf(&dims(64), DType::F32);
        let mut joined = b.like(whole, 0.5);
        let shared = b.f32(&dims(16));
        let mut values = vec![shared];
        for (place, math) in places.into_iter().zip([Math::Tanh, Math::Exp, Math::Sin, Math::Cos]) {
            let (own, at) = (b.f32(&dims(16)), b.number(place));
            let part = b.alu(Alu::Math(math), &[own]);
            values.push(b.alu(Alu::Add, &[part, shared]));
            joined = b.write(joined, *values.last().unwrap(), at, axis);
        }
        let w = b.f32(&[dims(64)[1], 20]);
        let product = b.matmul(joined, w);
        // One of the parts is also an output: it is stored where it is computed, or the parts are computed twice.
        let graph = b.done(&[product, values[4]]);
        expect("concatenated parts", graph, if places == [0, 16, 16, 48] { 2 } else { 1 }, 1);
    }
}

/// Slices of a concatenation that cover one part, several, or all, forwards and backwards.
#[test]
fn slices_of_concatenations_select_the_right_parts() {
    for (start, step, len) in [(2, 1, 4), (0, 1, 2), (4, 1, 2), (3, 1, 2), (5, -1, 4), (0, 2, 3), (5, -2, 3), (1, 1, 5)]
    {
        let mut b = Build::default();
        let whole = b.leaf(&[6, 40], DType::F32);
        let mut joined = b.like(whole, 0.5);
        for place in [4, 0, 2] {
            let (part, at) = (b.f32(&[2, 40]), b.number(place));
            joined = b.write(joined, part, at, 0);
        }
        let w = b.f32(&[40, 30]);
        let product = b.matmul(joined, w);
        let slices = vec![Slice { start, step, len }, Slice { start: 0, step: 1, len: 40 }];
        let part = b.graph.push(Op::Slice(slices), &[joined], [len, 40], DType::F32);
        let part = b.alu(Alu::Math(Math::Sin), &[part]);
        check("a slice of a concatenation", &b.done(&[product, part]));
    }
}

/// Parts of one write are written in order, wherever they are.
#[test]
fn writes_of_several_parts_are_in_order() {
    for places in [[0, 3], [1, 2], [3, 0], [4, 2], [-1, 5]] {
        let mut b = Build::default();
        let (base, first, second) = (b.f32(&[6, 50]), b.f32(&[3, 50]), b.f32(&[3, 50]));
        let [p, q] = places.map(|place| b.number(place));
        let both = b.graph.push(Op::SliceScatter(0), &[base, first, p, second, q], [6, 50], DType::F32);
        let w = b.f32(&[50, 20]);
        let product = b.matmul(both, w);
        check("a write of two parts", &b.done(&[both, product]));
    }
}

#[test]
fn row_statistics_stay_in_the_kernel() {
    for axis in [0, 1] {
        let mut b = Build::default();
        let x = b.f32(&[20, 70]);
        let y = b.softmax(x, axis);
        expect("softmax", b.done(&[y]), 1, 0);
        let mut b = Build::default();
        let x = b.f32(&[20, 70]);
        let y = b.layer_norm(x, axis);
        expect("layer norm", b.done(&[y]), 1, 0);
    }
    for shape in [[4096, 4096], [64, 10]] {
        let mut b = Build::default();
        let x = b.f32(&shape);
        let y = b.softmax(x, 1);
        count("softmax", &b.done(&[y]), 1, 0);
        let mut b = Build::default();
        let x = b.f32(&shape);
        let y = b.layer_norm(x, 1);
        count("layer norm", &b.done(&[y]), 1, 0);
    }
}

#[test]
fn reductions_are_one_kernel() {
    for axes in [&[0][..], &[1], &[0, 1], &[0, 2], &[2], &[0, 1, 2]] {
        let mut b = Build::default();
        let x = b.f32(&[6, 10, 50]);
        let y = b.sum(x, axes);
        expect("sum", b.done(&[y]), 1, 0);
    }
}

#[test]
fn output_statistics_are_stored_by_the_fused_kernel() {
    let mut b = Build::default();
    let x = b.f32(&[20, 70]);
    let mean = b.mean_keep(x, 1);
    let y = b.with(Alu::Sub, x, mean);
    expect("mean and centered", b.done(&[mean, y]), 1, 0);
    let mut b = Build::default();
    let x = b.f32(&[20, 70]);
    let largest = b.reduce(ReduceOp::Max, x, &[1]);
    let square = b.alu(Alu::Mul, &[largest, largest]);
    let y = b.with(Alu::Sub, x, square);
    expect("statistic, its square and a user of both", b.done(&[largest, square, y]), 1, 0);
}

#[test]
fn layer_is_a_product_with_epilogue() {
    let mut b = Build::default();
    let (x, w, bias) = (b.f32(&[6, 30]), b.f32(&[20, 30]), b.f32(&[1, 20]));
    let wt = b.permute(w, &[1, 0]);
    let y = b.matmul(x, wt);
    let y = b.with(Alu::Add, y, bias);
    let zero = b.like(y, 0.0);
    let y = b.alu(Alu::Max, &[y, zero]);
    let y = b.softmax(y, 1);
    expect("layer", b.done(&[y]), 1, 1);
}

/// On a CPU, bias and activation are an epilogue of the product, but a kernel that reads other elements than its own is
/// not. On a GPU, where the routine is a separate launch, there are no epilogues.
#[test]
fn elementwise_users_of_a_product_are_its_epilogue() {
    let layer = |follow: &dyn Fn(&mut Build, NodeId) -> NodeId| {
        let mut b = Build::default();
        let (x, w, bias) = (b.f32(&[6, 9]), b.f32(&[9, 12]), b.f32(&[1, 12]));
        let product = b.matmul(x, w);
        let y = b.with(Alu::Add, product, bias);
        let y = follow(&mut b, y);
        (b.done(&[y]), product)
    };
    let ended = |graph: &Graph, target: Target| {
        check("epilogue", graph);
        let plan = plan(graph, &target, &|_| true).unwrap();
        let end = |step: &PlanStep| match step {
            PlanStep::Routine { epilogue, .. } => epilogue.as_ref().map(|epilogue| epilogue.keep_output),
            PlanStep::Kernel { .. } | PlanStep::Copy { .. } => None,
        };
        (plan.steps.len(), plan.steps.iter().find_map(end))
    };
    let (plain, product) = layer(&|b, y| b.alu(Alu::Math(Math::Tanh), &[y]));
    assert_eq!(ended(&plain, Target::cpu()), (1, Some(false)));
    assert_eq!(ended(&plain, Target::opencl_minimum()), (2, None));
    let mut kept = plain;
    kept.outputs.push(product);
    assert_eq!(ended(&kept, Target::cpu()), (1, Some(true)));
    // A bias alone is fused into a vendor's product, unless the product is also an output.
    let (mut alone, product) = layer(&|_, y| y);
    assert_eq!(ended(&alone, Target::opencl_minimum()), (1, None));
    alone.outputs.push(product);
    assert_eq!(ended(&alone, Target::opencl_minimum()), (2, None));
    let reshaped = layer(&|b, y| b.reshape(y, &[2, 3, 12])).0;
    assert_eq!(ended(&reshaped, Target::cpu()), (1, Some(false)));
    let transposed = layer(&|b, y| {
        let transposed = b.permute(y, &[1, 0]);
        b.alu(Alu::Math(Math::Tanh), &[transposed])
    });
    let backwards = layer(&|b, y| b.slice(y, &[(5, -1, 6), (0, 1, 12)]));
    for (graph, _) in [backwards, transposed, layer(&|b, y| b.softmax(y, 1))] {
        assert_eq!(ended(&graph, Target::cpu()), (2, None));
    }
}

#[test]
fn movement_operations_never_copy() {
    let mut b = Build::default();
    let x = b.f32(&[4, 6, 10]);
    let y = b.permute(x, &[2, 0, 1]);
    let y = b.reshape(y, &[10, 24]);
    let y = b.slice(y, &[(9, -2, 5), (3, 2, 10)]);
    let y = b.pad(y, &[(1, 2), (0, 3)]);
    let y = b.alu(Alu::Math(Math::Exp), &[y]);
    expect("moved", b.done(&[y]), 1, 0);
}

#[test]
fn unchanged_outputs_are_aliases() {
    let mut b = Build::default();
    let x = b.f32(&[4, 6]);
    let same = b.reshape(x, &[24]);
    let y = b.alu(Alu::Math(Math::Exp), &[x]);
    let flat = b.reshape(y, &[2, 12]);
    expect("aliases", b.done(&[x, same, y, flat]), 1, 0);
}

#[test]
fn an_optimizer_step_is_one_kernel() {
    let mut b = Build::default();
    let [p, g, m, v] = [0; 4].map(|_| b.f32(&[30, 17]));
    let rate = b.slot(0, DType::F32);
    let rate = b.spread(rate, &[30, 17]);
    let mix = |b: &mut Build, old, new, keep: f64| {
        let (keep, rest) = (b.like(old, keep), b.like(old, 1.0 - keep));
        let (old, new) = (b.alu(Alu::Mul, &[old, keep]), b.alu(Alu::Mul, &[new, rest]));
        b.alu(Alu::Add, &[old, new])
    };
    let m = mix(&mut b, m, g, 0.9);
    let square = b.alu(Alu::Mul, &[g, g]);
    let v = mix(&mut b, v, square, 0.999);
    let magnitude = b.alu(Alu::Abs, &[v]);
    let root = b.alu(Alu::Sqrt, &[magnitude]);
    let epsilon = b.like(root, 1e-3);
    let root = b.alu(Alu::Add, &[root, epsilon]);
    let step = b.alu(Alu::Div, &[m, root]);
    let step = b.alu(Alu::Mul, &[step, rate]);
    let p = b.alu(Alu::Sub, &[p, step]);
    expect("adam", b.done(&[p, m, v]), 1, 0);
}

#[test]
fn equal_kernels_are_shared() {
    let mut b = Build::default();
    let outputs: Vec<_> = (0..4)
        .map(|_| {
            let x = b.f32(&[8, 60]);
            b.softmax(x, 1)
        })
        .collect();
    let graph = b.done(&outputs);
    let plan = plan(&graph, &Target::cpu(), &|_| true).unwrap();
    let mut kernels: Vec<*const _> = plan
        .steps
        .iter()
        .map(|step| match step {
            PlanStep::Kernel { kernel, .. } => std::sync::Arc::as_ptr(kernel),
            PlanStep::Routine { .. } | PlanStep::Copy { .. } => panic!("this graph has no products or copies"),
        })
        .collect();
    assert_eq!(kernels.len(), 4);
    kernels.dedup();
    assert_eq!(kernels.len(), 1);
}

#[test]
fn equal_graphs_give_equal_plans() {
    let make = || {
        let mut b = Build::default();
        let (x, w) = (b.f32(&[32, 64]), b.f32(&[64, 64]));
        let h = b.matmul(x, w);
        let h = b.layer_norm(h, 1);
        let y = b.matmul(h, w);
        let s = b.softmax(y, 1);
        let total = b.sum(s, &[0, 1]);
        b.done(&[total, h])
    };
    for target in [Target::cpu(), Target::opencl_minimum()] {
        let text = |graph: &Graph| {
            let plan = plan(graph, &target, &|_| false).unwrap();
            let kernels: Vec<String> = plan
                .steps
                .iter()
                .map(|step| match step {
                    PlanStep::Kernel { kernel, .. } => kernel.to_string(),
                    PlanStep::Routine { routine, .. } => format!("{routine:?}"),
                    PlanStep::Copy { from, to } => format!("{from:?} to {to:?}"),
                })
                .collect();
            format!("{plan}{}", kernels.join("\n"))
        };
        assert_eq!(text(&make()), text(&make()));
    }
}

#[test]
fn long_reductions_take_two_kernels() {
    for (shape, axes) in
        [(&[1 << 24][..], &[0][..]), (&[9_999_991], &[0]), (&[100_000, 10], &[0]), (&[8, 300, 300], &[0, 1, 2])]
    {
        let mut b = Build::default();
        let x = b.f32(shape);
        let y = b.sum(x, axes);
        count("long sum", &b.done(&[y]), 2, 0);
    }
}

#[test]
fn products_without_a_routine_are_tiled_and_fused() {
    let mut b = Build::default();
    let (x, w, bias) = (b.f32(&[256, 512]), b.f32(&[512, 512]), b.f32(&[1, 512]));
    let y = b.matmul(x, w);
    let y = b.with(Alu::Add, y, bias);
    let zero = b.like(y, 0.0);
    let y = b.alu(Alu::Max, &[y, zero]);
    let plan = plan(&b.done(&[y]), &Target::opencl_minimum(), &|_| false).unwrap();
    let [PlanStep::Kernel { kernel, .. }] = &plan.steps[..] else { panic!("{plan}") };
    assert!(kernel.shared_bytes() > 0, "{plan}");
}

#[test]
fn axis_of_length_one_has_stride_zero() {
    let mut b = Build::default();
    let (x, w) = (b.f32(&[3, 1, 6]), b.f32(&[1, 6, 5]));
    let w = b.expand(w, &[3, 6, 5]);
    let y = b.matmul(x, w);
    let plan = plan(&b.done(&[y]), &Target::cpu(), &|_| true).unwrap();
    let [PlanStep::Routine { routine: Routine::Gemm(gemm), .. }] = plan.steps[..] else { panic!("{plan}") };
    let layout = |batch, row, column| Layout { offset: 0, batch, row, column };
    assert_eq!([gemm.a, gemm.b, gemm.c], [layout(6, 0, 1), layout(0, 5, 1), layout(5, 5, 1)]);
}

#[test]
fn kernels_with_the_same_inputs_are_fused_horizontally() {
    let mut b = Build::default();
    let (x, y) = (b.f32(&[20, 60]), b.f32(&[20, 60]));
    let product = b.alu(Alu::Mul, &[x, y]);
    let (sums, products) = (b.sum(x, &[0]), b.sum(product, &[0]));
    expect("column sums", b.done(&[sums, products]), 1, 0);
    let mut b = Build::default();
    let x = b.f32(&[20, 60]);
    let (e, s) = (b.alu(Alu::Math(Math::Exp), &[x]), b.alu(Alu::Math(Math::Sin), &[x]));
    expect("two functions", b.done(&[e, s]), 1, 0);
    let mut b = Build::default();
    let (x, at) = (b.f32(&[9, 8]), b.leaf(&[6], DType::I32));
    let (g, e) = (b.gather(x, at, 0), b.alu(Alu::Math(Math::Exp), &[x]));
    let h = b.gather(e, at, 0);
    expect("two gathers", b.done(&[g, h]), 1, 0);
}

#[test]
fn transposed_product_is_computed_transposed() {
    let mut b = Build::default();
    let (x, w, y) = (b.f32(&[64, 30]), b.f32(&[64, 50]), b.f32(&[50, 30]));
    let x = b.permute(x, &[1, 0]);
    let product = b.matmul(x, w);
    let transposed = b.permute(product, &[1, 0]);
    let sum = b.alu(Alu::Add, &[transposed, y]);
    let graph = b.done(&[sum]);
    expect("transposed product", graph.clone(), 1, 1);
    let plan = plan(&graph, &Target::cpu(), &|_| true).unwrap();
    assert!(plan.to_string().contains("1×50×30×64"), "{plan}");

    // If it is also used untransposed, it is computed once.
    let mut b = Build::default();
    let (x, w) = (b.f32(&[20, 30]), b.f32(&[30, 40]));
    let product = b.matmul(x, w);
    let transposed = b.permute(product, &[1, 0]);
    let transposed = b.alu(Alu::Math(Math::Exp), &[transposed]);
    expect("product both ways", b.done(&[product, transposed]), 1, 1);
}

#[test]
fn inlined_calls_share_common_subexpressions() {
    let mut body = Build::default();
    let x = body.f32(&[8, 16]);
    let softmax = body.softmax(x, 1);
    let call = Arc::new(Call::new("softmax", body.done(&[softmax])));
    let mut b = Build::default();
    let x = b.f32(&[8, 16]);
    let one = b.graph.push(Op::Call(call.clone(), 0), &[x], [8, 16], DType::F32);
    let other = b.softmax(x, 1);
    let sum = b.alu(Alu::Add, &[one, other]);
    expect("a call and its inlined equivalent", b.done(&[sum]), 1, 0);

    let mut outer = Build::default();
    let x = outer.f32(&[8, 16]);
    let inner = outer.graph.push(Op::Call(call, 0), &[x], [8, 16], DType::F32);
    let twice = outer.alu(Alu::Add, &[inner, inner]);
    let outer = Arc::new(Call::new("twice", outer.done(&[twice, inner])));
    let mut b = Build::default();
    let x = b.f32(&[8, 16]);
    let outputs = [0, 1].map(|output| b.graph.push(Op::Call(outer.clone(), output), &[x], [8, 16], DType::F32));
    expect("calls within calls", b.done(&outputs), 1, 0);
}

/// Values after the sum are recomputed in a separate kernel; without the dependency everything is one kernel.
#[test]
fn control_dependency_separates_kernels() {
    let graph = |late: bool| {
        let mut b = Build::default();
        let x = b.f32(&[5, 40]);
        let first = b.alu(Alu::Math(Math::Tanh), &[x]);
        let sum = b.sum(first, &[0, 1]);
        let again = if late { b.after(x, sum) } else { x };
        let again = b.alu(Alu::Math(Math::Tanh), &[again]);
        let y = b.alu(Alu::Math(Math::Exp), &[again]);
        let total = b.sum(y, &[0, 1]);
        b.done(&[sum, total])
    };
    expect("no dependency", graph(false), 1, 0);
    expect("late", graph(true), 2, 0);
    let plan = plan(&graph(true), &Target::cpu(), &|_| true).unwrap();
    let written = |step: usize| plan.steps[step].buffers().collect::<Vec<_>>();
    assert!(written(0).contains(&plan.outputs[0]) && written(1).contains(&plan.outputs[1]), "{plan}");
}

/// Uses the number of buffers that WebGPU binds. If there is no room for a product's factors besides other buffers, the
/// product's result is stored, never the terms of its sum.
#[test]
fn terms_of_a_product_are_never_stored() {
    let mut b = Build::default();
    let (x, w) = (b.f32(&[24, 150]), b.f32(&[150, 40]));
    let mut y = b.matmul(x, w);
    let mut outputs = Vec::new();
    for _ in 0..4 {
        let other = b.f32(&[24, 40]);
        y = b.with(Alu::Mul, y, other);
        outputs.push(y);
    }
    let graph = b.done(&outputs);
    let plan = plan(&graph, &Target::webgpu_minimum(), &|_| false).unwrap();
    let largest = plan.buffers.iter().map(|buffer| buffer.elems).max();
    assert_eq!(largest, Some(150 * 40), "{plan}");
    check("bindings", &graph);
}
