//! Custom kernels among fused kernels.

use std::sync::Arc;

use panoply_compile::plan::{PlanStep, plan};
use panoply_ir::alu::Alu;
use panoply_ir::custom_kernel::CustomKernel;
use panoply_ir::graph::{NodeId, Op};
use panoply_ir::verify::verify;
use panoply_ir::{DType, Shape, Target, text};

use crate::plan::build::Build;
use crate::plan::execute::check;

/// Computes a·x, adds x to `total`, and flags positive elements.
const SURVEY: &str = "
kernel survey(a: f32, x: &[f32], scaled: &mut [f32], total: &mut [f32], positive: &mut [i32]) {
    let i: index = global_id.x
    if lt(i, len(x)) {
        let v: f32 = x[i]
        scaled[i] = mul(a, v)
        if lt(i, len(total)) {
            total[i] = add(total[i], v)
        }
        positive[i] = cast<i32>(lt(0.0f32, v))
    }
}
";

fn survey(n: usize, total: usize) -> Arc<CustomKernel> {
    let kernel = verify(text::parse(SURVEY).unwrap()).unwrap();
    let shapes = [n, total, n].map(|n| Shape::new([n]));
    Arc::new(CustomKernel::new(Arc::new(kernel), [n as u64, 1, 1], shapes.into()).unwrap())
}

fn apply(b: &mut Build, custom_kernel: &Arc<CustomKernel>, inputs: &[NodeId]) -> [NodeId; 3] {
    std::array::from_fn(|output| {
        let (shape, dtype) = custom_kernel.outputs[output].clone();
        b.graph.push(Op::CustomCall(custom_kernel.clone(), output as u32), inputs, shape, dtype)
    })
}

#[test]
fn custom_kernel_between_fused_kernels() {
    let mut b = Build::default();
    let (x, total) = (b.f32(&[40]), b.f32(&[7]));
    let a = b.slot(0, DType::F32);
    let x2 = b.alu(Alu::Mul, &[x, x]);
    let [scaled, total, positive] = apply(&mut b, &survey(40, 7), &[a, x2, total]);
    let scaled = b.alu(Alu::Neg, &[scaled]);
    let count = b.sum(positive, &[0]);
    let graph = b.done(&[scaled, total, count]);
    check("survey", &graph);
    let plan = plan(&graph, &Target::cpu(), &|_| true).unwrap();
    let custom_kernel = |step: &&PlanStep| matches!(step, PlanStep::Kernel { kernel, .. } if kernel.name == "survey");
    assert_eq!(plan.steps.iter().filter(custom_kernel).count(), 1, "one launch for all outputs: {plan}");
    assert_eq!(plan.steps.len(), 5, "square, copy, survey, two more: {plan}");
}

#[test]
fn unused_outputs_and_reshaped_inputs() {
    let mut b = Build::default();
    let (x, total) = (b.f32(&[5, 8]), b.f32(&[40]));
    let a = b.slot(0, DType::F32);
    let flat = b.reshape(x, &[40]);
    let [_, after, _] = apply(&mut b, &survey(40, 40), &[a, flat, total]);
    let graph = b.done(&[after, total]);
    check("one output", &graph);
    let plan = plan(&graph, &Target::cpu(), &|_| true).unwrap();
    assert_eq!(plan.steps.len(), 2, "a copy of the updated array, and the kernel: {plan}");
}

#[test]
fn calls_with_different_inputs_are_separate_launches() {
    let mut b = Build::default();
    let (x, y, total) = (b.f32(&[9]), b.f32(&[9]), b.f32(&[9]));
    let a = b.slot(0, DType::F32);
    let kernel = survey(9, 9);
    let [first, carried, _] = apply(&mut b, &kernel, &[a, x, total]);
    let [_, carried, _] = apply(&mut b, &kernel, &[a, y, carried]);
    let sum = b.alu(Alu::Add, &[first, carried]);
    check("a chain of two", &b.done(&[sum]));
}

#[test]
fn invalid_calls_are_rejected() {
    let text = |source: &str| Arc::new(verify(text::parse(source).unwrap()).unwrap());
    let kernel = text(SURVEY);
    let error = CustomKernel::new(kernel.clone(), [1; 3], vec![Shape::new([3])]).unwrap_err();
    assert_eq!(error.message(), "kernel survey: it writes 3 buffers, but 1 shapes were given");
    let shapes = vec![Shape::new([3]), Shape::new([0]), Shape::new([3])];
    let error = CustomKernel::new(kernel.clone(), [1; 3], shapes).unwrap_err();
    assert_eq!(error.message(), "kernel survey: a buffer of shape [0] has no elements to write");
    let error = CustomKernel::new(kernel, [0, 1, 1], vec![Shape::new([3]); 3]).unwrap_err();
    assert_eq!(error.message(), "kernel survey: its grid is empty");
    let survey = survey(4, 4);
    let (four, one, none) = (Shape::new([4]), Shape::new([1]), Shape::default());
    let wrong = |inputs: &[(&Shape, DType)]| survey.check(inputs).unwrap_err();
    assert_eq!(wrong(&[(&none, DType::F32)]), "it takes 3 inputs, not 1");
    assert_eq!(wrong(&[(&none, DType::F64), (&four, DType::F32), (&four, DType::F32)]), "a holds f32, not f64");
    let tensor = wrong(&[(&one, DType::F32), (&four, DType::F32), (&four, DType::F32)]);
    assert_eq!(tensor, "a is a scalar, not a tensor of shape [1]");
    let changed = wrong(&[(&none, DType::F32), (&four, DType::F32), (&one, DType::F32)]);
    assert_eq!(changed, "total has shape [1] before and [4] after");

    let mut b = Build::default();
    let (a, x) = (b.f32(&[]), b.f32(&[4]));
    let [scaled, ..] = apply(&mut b, &survey, &[a, x, x]);
    let error = plan(&b.done(&[scaled]), &Target::cpu(), &|_| true).unwrap_err();
    assert_eq!(error.message(), "kernel survey: a scalar argument is computed on the device");
}
