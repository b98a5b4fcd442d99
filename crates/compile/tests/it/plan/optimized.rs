//! Kernels of plans, in which all accesses are marked as proven: optimized kernels give the same bytes, access nothing
//! else, and none of their indices wraps.

use std::sync::Arc;

use panoply_compile::opt::{Options, optimize};
use panoply_compile::plan::{Plan, PlanStep, plan};
use panoply_ir::graph::Graph;
use panoply_ir::reduce::ReduceOp;
use panoply_ir::{Alu, DType};

use crate::plan::build::Build;
use crate::plan::execute::{inputs, run, targets};

fn check(name: &str, graph: &Graph) {
    let (leaves, slots) = inputs(graph, 7);
    for target in targets() {
        let before = plan(graph, &target, &|_| false).expect("the graph is planned");
        let mut after: Plan = before.clone();
        for step in &mut after.steps {
            if let PlanStep::Kernel { kernel, .. } = step {
                *kernel = Arc::new(optimize((**kernel).clone(), &target, &Options::default()));
            }
        }
        let want = run(&before, &leaves, &slots).expect("the plan runs");
        let have = run(&after, &leaves, &slots).unwrap_or_else(|error| panic!("{name}: {error}\n{before}\n{after}"));
        assert!(want == have, "{name}, {:?}: outputs differ\n{before}\n{after}", target.style);
    }
}

#[test]
fn optimization_preserves_results_of_planned_kernels() {
    let mut b = Build::default();
    let x = b.f32(&[7, 33]);
    let y = b.softmax(x, 1);
    check("softmax", &b.clone().done(&[y]));

    let mut b = Build::default();
    let x = b.f32(&[5, 17]);
    let (normal, column) = (b.layer_norm(x, 1), b.sum(x, &[0]));
    check("layer norm and a column sum", &b.clone().done(&[normal, column]));

    let mut b = Build::default();
    let (x, w) = (b.f32(&[9, 13]), b.f32(&[13, 11]));
    let product = b.matmul(x, w);
    let zero = b.like(product, 0.0);
    let relu = b.with(Alu::Max, product, zero);
    check("matmul and relu", &b.clone().done(&[relu]));

    let mut b = Build::default();
    let x = b.leaf(&[4, 6, 5], DType::F16);
    let moved = b.permute(x, &[2, 0, 1]);
    let flat = b.reshape(moved, &[10, 12]);
    let padded = b.pad(flat, &[(1, 2), (0, 3)]);
    let part = b.slice(padded, &[(12, -2, 6), (1, 3, 5)]);
    check("movements", &b.clone().done(&[part]));

    let mut b = Build::default();
    let (x, at) = (b.f32(&[6, 8]), b.leaf(&[3, 2], DType::I32));
    let rows = b.gather(x, at, 0);
    let back = b.scatter_add(x, at, rows, 0);
    let scan = b.scan(ReduceOp::Sum, back, 1);
    let most = b.reduce(ReduceOp::Max, scan, &[0, 1]);
    check("gather, scatter, scan, reduce", &b.clone().done(&[rows, scan, most]));
}
