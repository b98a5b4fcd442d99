//! Donated leaves: the outputs that reuse their memory, and cases where reuse is not allowed.

use panoply_compile::plan::{Plan, PlanStep, Role, plan};
use panoply_ir::DType;
use panoply_ir::alu::Alu;
use panoply_ir::graph::Graph;
use panoply_ir::kernel::{Access, Space};
use panoply_ir::routine::Routine;
use panoply_ir::target::{Style, Target};

use crate::plan::build::Build;
use crate::plan::execute::check;

/// Plans a graph with these leaves donated, after checking that donation does not affect values.
#[track_caller]
fn with_donation(name: &str, graph: &Graph, donated: &[u32], target: &Target) -> Plan {
    check(name, graph);
    plan(&Graph { donated: donated.to_vec(), ..graph.clone() }, target, &|_| true).unwrap()
}

/// Counts the leaves whose memory is reused.
fn taken(plan: &Plan) -> usize {
    plan.buffers.iter().filter(|buffer| matches!(buffer.role, Role::Donated(_))).count()
}

fn copies(plan: &Plan) -> usize {
    plan.steps.iter().filter(|step| matches!(step, PlanStep::Copy { .. })).count()
}

/// A momentum update: parameter and momentum are updated in place.
fn update() -> Graph {
    let mut b = Build::default();
    let (value, mean, gradient) = (b.f32(&[30, 40]), b.f32(&[30, 40]), b.f32(&[30, 40]));
    let (kept, rate) = (b.like(mean, 0.9), b.like(mean, 0.01));
    let kept = b.alu(Alu::Mul, &[mean, kept]);
    let mean = b.alu(Alu::Add, &[kept, gradient]);
    let motion = b.alu(Alu::Mul, &[mean, rate]);
    let value = b.alu(Alu::Sub, &[value, motion]);
    b.done(&[value, mean])
}

#[test]
fn update_reuses_donated_leaves() {
    let graph = update();
    for target in [Target::cpu(), Target::opencl_minimum(), Target::cuda_minimum(80), Target::webgpu_minimum()] {
        let plan = with_donation("update", &graph, &[0, 1], &target);
        let [PlanStep::Kernel { kernel, .. }] = &plan.steps[..] else { panic!("{plan}") };
        let both = kernel.mems.iter().filter(|mem| mem.space == Space::Buffer(Access::InOut)).count();
        assert_eq!((both, taken(&plan), plan.peak_bytes), (2, 2, 0), "{plan}");
        // Each output reuses its own memory, so that in a loop all arrays stay in place.
        let role = |output: usize| plan.buffers[plan.outputs[output].index()].role;
        assert_eq!([role(0), role(1)], [Role::Donated(0), Role::Donated(1)], "{plan}");
    }
}

#[test]
fn only_donated_leaves_are_reused() {
    let graph = update();
    let plan = with_donation("update", &graph, &[1], &Target::cpu());
    assert_eq!((taken(&plan), plan.peak_bytes), (1, 30 * 40 * 4), "{plan}");
    assert_eq!(taken(&with_donation("update", &graph, &[], &Target::cpu())), 0);
}

#[test]
fn elements_read_by_other_work_items_are_not_overwritten() {
    let mut b = Build::default();
    let (x, y) = (b.f32(&[40, 40]), b.f32(&[40, 40]));
    let transposed = b.permute(x, &[1, 0]);
    let sum = b.alu(Alu::Add, &[x, transposed]);
    // y is also last read in this kernel, but each element only by its own work-item.
    let sum = b.alu(Alu::Mul, &[sum, y]);
    let graph = b.done(&[sum]);
    for target in [Target::cpu(), Target::opencl_minimum()] {
        let plan = with_donation("transposed", &graph, &[0], &target);
        assert_eq!(taken(&plan), 0, "{plan}");
    }
    let mut b = Build::default();
    let (x, row) = (b.f32(&[40, 40]), b.f32(&[1, 40]));
    let sum = b.with(Alu::Add, x, row);
    let graph = b.done(&[sum]);
    assert_eq!(taken(&with_donation("broadcast", &graph, &[1], &Target::cpu())), 0);
    assert_eq!(taken(&with_donation("broadcast", &graph, &[0, 1], &Target::cpu())), 1);
}

#[test]
fn leaves_read_later_are_not_reused() {
    let mut b = Build::default();
    let (x, w) = (b.f32(&[20, 20]), b.f32(&[20, 20]));
    let two = b.like(x, 2.0);
    let twice = b.alu(Alu::Mul, &[x, two]);
    let product = b.matmul(twice, w);
    let again = b.matmul(product, x);
    let graph = b.done(&[twice, again]);
    let plan = with_donation("read later", &graph, &[0], &Target::cpu());
    assert_eq!(taken(&plan), 0, "{plan}");
    // The second product is computed after the last read of w.
    let plan = with_donation("read before", &graph, &[1], &Target::cpu());
    assert_eq!(taken(&plan), 1, "{plan}");
}

#[test]
fn output_leaves_are_not_reused() {
    let mut b = Build::default();
    let x = b.f32(&[50]);
    let two = b.like(x, 2.0);
    let twice = b.alu(Alu::Mul, &[x, two]);
    let graph = b.done(&[twice, x]);
    assert_eq!(taken(&with_donation("leaf as output", &graph, &[0], &Target::cpu())), 0);
}

#[test]
fn write_to_donated_leaf_copies_nothing() {
    for of_the_run in [false, true] {
        let mut b = Build::default();
        let (cache, row) = (b.leaf(&[90, 100], DType::F32), b.f32(&[1, 100]));
        let at = if of_the_run { b.slot(0, DType::I64) } else { b.number(7) };
        let written = b.write(cache, row, at, 0);
        let graph = b.done(&[written]);
        let plan = with_donation("a write", &graph, &[0], &Target::cpu());
        assert_eq!((taken(&plan), copies(&plan), plan.peak_bytes), (1, 0, 0), "{plan}");
        assert_eq!(copies(&with_donation("a write", &graph, &[], &Target::cpu())), usize::from(of_the_run));
    }
}

/// Returns the plan of a doubled array of a million elements, which is donated, and the grid of its only kernel.
fn doubled_million(target: &Target) -> (Plan, u64) {
    let mut b = Build::default();
    let x = b.f32(&[1024, 1024]);
    let two = b.like(x, 2.0);
    let twice = b.alu(Alu::Mul, &[x, two]);
    let graph = Graph { donated: vec![0], ..b.done(&[twice]) };
    let plan = plan(&graph, target, &|_| true).unwrap();
    let [PlanStep::Kernel { grid, .. }] = plan.steps[..] else { panic!("{plan}") };
    (plan, grid.iter().product())
}

/// On a GPU a work-item computes four distant elements of a large array, also if the output takes the memory of a leaf.
#[test]
fn large_donated_leaves_are_reused_on_a_gpu() {
    let (plan, items) = doubled_million(&Target::cuda_minimum(80));
    assert_eq!((taken(&plan), plan.peak_bytes, items), (1, 0, 1 << 18), "{plan}");
}

/// A launch is divided where an array is larger than a binding, for which neighboring work-items must access neighboring elements.
#[test]
fn arrays_larger_than_a_binding_have_a_work_item_for_each_element() {
    for (bytes, items) in [((4 << 20) - 1, 1 << 20), (4 << 20, 1 << 18)] {
        let (plan, found) = doubled_million(&Target { max_binding_bytes: bytes, ..Target::cuda_minimum(80) });
        assert_eq!((taken(&plan), found), (1, items), "{plan}");
    }
}

/// A library adds the bias of a product of a million elements.
#[test]
fn bias_of_a_large_product_is_fused() {
    let mut b = Build::default();
    let (x, w, bias) = (b.f32(&[1024, 8]), b.f32(&[8, 1024]), b.f32(&[1, 1024]));
    let product = b.matmul(x, w);
    let sum = b.with(Alu::Add, product, bias);
    let graph = b.done(&[sum]);
    let plan = plan(&graph, &Target::cuda_minimum(80), &|_| true).unwrap();
    let [PlanStep::Routine { routine: Routine::Gemm(gemm), .. }] = plan.steps[..] else { panic!("{plan}") };
    assert!(gemm.bias, "{plan}");
}

/// Rows of several sequences go into one key-value cache, one after the other.
#[test]
fn successive_writes_to_a_donated_leaf_copy_nothing() {
    for is_read_between in [false, true] {
        let mut b = Build::default();
        let cache = b.leaf(&[90, 100], DType::F32);
        let (mut written, mut first) = (cache, None);
        for n in 0..3 {
            let (row, at) = (b.f32(&[1, 100]), b.slot(n, DType::I64));
            written = b.write(written, row, at, 0);
            first = first.or(Some(written));
        }
        let mut outputs = vec![written];
        if is_read_between {
            let first = first.unwrap();
            let two = b.like(first, 2.0);
            outputs.push(b.alu(Alu::Mul, &[first, two]));
        }
        let graph = b.done(&outputs);
        let plan = with_donation("writes", &graph, &[0], &Target::cpu());
        if is_read_between {
            assert!(copies(&plan) > 0, "{plan}");
        } else {
            assert_eq!((taken(&plan), copies(&plan), plan.peak_bytes), (1, 0, 0), "{plan}");
        }
    }
}

#[test]
fn gpu_leaves_stay_intact_until_the_last_routine() {
    let mut b = Build::default();
    let (x, w, v) = (b.f32(&[20, 20]), b.f32(&[20, 20]), b.f32(&[20, 20]));
    let two = b.like(x, 2.0);
    let twice = b.alu(Alu::Mul, &[x, two]);
    let product = b.matmul(w, v);
    let graph = b.done(&[twice, product]);
    let target = Target::opencl_minimum();
    assert_eq!(target.style, Style::Gpu);
    let plan = with_donation("before a routine", &graph, &[0], &target);
    let routine = plan.steps.iter().position(|step| matches!(step, PlanStep::Routine { .. }));
    assert_eq!((taken(&plan), routine), (0, Some(1)), "{plan}");
    assert_eq!(taken(&with_donation("before a routine", &graph, &[0], &Target::cpu())), 1);
}

/// A product with fused bias runs at the position of the addition. All leaves must still be intact then, because a
/// failed routine requires a restart from the leaves.
#[test]
fn bias_is_not_fused_past_an_overwritten_leaf() {
    for late in [false, true] {
        for swapped in [false, true] {
            let mut b = Build::default();
            let (x, w) = (b.f32(&[8, 8]), b.f32(&[8, 8]));
            let (bias, donated) = (b.f32(&[1, 8]), b.f32(&[1000]));
            let before = (!late).then(|| b.alu(Alu::Mul, &[donated, donated]));
            let product = b.matmul(x, w);
            let square = before.unwrap_or_else(|| b.alu(Alu::Mul, &[donated, donated]));
            let sum = b.with(Alu::Add, product, bias);
            let graph = b.done(&if swapped { [sum, square] } else { [square, sum] });
            let plan = with_donation("a bias", &graph, &[3], &Target::cuda_minimum(80));
            let last = plan.steps.iter().rposition(|step| matches!(step, PlanStep::Routine { .. })).expect("a product");
            let changes = |step: &PlanStep| {
                step.touches().any(|(id, access)| {
                    access != Access::In && matches!(plan.buffers[id.index()].role, Role::Donated(_))
                })
            };
            assert!(!plan.steps[..last].iter().any(changes), "{plan}");
        }
    }
}
