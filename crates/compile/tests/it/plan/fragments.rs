//! Products of 16-bit floats on a device with matrix units.

use panoply_compile::plan::{Options, Plan, PlanStep, plan_with};
use panoply_ir::alu::{Alu, Math};
use panoply_ir::graph::{Graph, NodeId};
use panoply_ir::{DType, MathMode, Target};

use crate::plan::build::Build;
use crate::plan::execute::{difference, inputs, run};
use crate::plan::variants::variants;

/// Counts the kernels that multiply fragments.
fn multiplying(plan: &Plan) -> usize {
    let multiplies = |step: &&PlanStep| match step {
        PlanStep::Kernel { kernel, .. } => kernel.to_string().contains("group_mma<"),
        PlanStep::Copy { .. } | PlanStep::Routine { .. } => false,
    };
    plan.steps.iter().filter(multiplies).count()
}

fn planned(graph: &Graph, target: &Target, math_mode: MathMode) -> Plan {
    plan_with(&Options { math_mode, ..Options::default() }, graph, target, &|_| false).unwrap()
}

/// A product of leaves of these shapes, with the operations around it.
struct Case {
    name: &'static str,
    left: &'static [usize],
    right: &'static [usize],
    write: fn(&mut Build, NodeId, NodeId) -> NodeId,
}

const CASES: [Case; 9] = [
    Case { name: "tiles", left: &[64, 64], right: &[64, 64], write: |b, x, y| b.matmul(x, y) },
    Case { name: "ragged", left: &[37, 51], right: &[51, 43], write: |b, x, y| b.matmul(x, y) },
    Case { name: "short inner dimension", left: &[70, 17], right: &[17, 16], write: |b, x, y| b.matmul(x, y) },
    Case { name: "large", left: &[130, 40], right: &[40, 600], write: |b, x, y| b.matmul(x, y) },
    Case {
        name: "padded, like a convolution's windows",
        left: &[30, 20],
        right: &[24, 70],
        write: |b, x, y| {
            let x = b.pad(x, &[(1, 2), (3, 1)]);
            b.matmul(x, y)
        },
    },
    Case { name: "batch", left: &[3, 20, 33], right: &[3, 33, 18], write: |b, x, y| b.matmul(x, y) },
    Case {
        name: "transposed",
        left: &[40, 35],
        right: &[50, 40],
        write: |b, x, y| {
            let (x, y) = (b.permute(x, &[1, 0]), b.permute(y, &[1, 0]));
            b.matmul(x, y)
        },
    },
    Case {
        name: "wide sums, bias and activation",
        left: &[34, 48],
        right: &[48, 130],
        write: |b, x, y| {
            let bias = b.f32(&[1, 130]);
            let shape = [34, 48, 130];
            let (x, y) = (b.reshape(x, &[34, 48, 1]), b.reshape(y, &[1, 48, 130]));
            let [x, y] = [x, y].map(|operand| {
                let wide = b.cast(operand, DType::F32);
                b.expand(wide, &shape)
            });
            let products = b.alu(Alu::Mul, &[x, y]);
            let sums = b.sum(products, &[1]);
            let sums = b.reshape(sums, &[34, 130]);
            let sums = b.with(Alu::Add, sums, bias);
            b.alu(Alu::Math(Math::Tanh), &[sums])
        },
    },
    Case {
        name: "an operand that is computed",
        left: &[24, 40],
        right: &[40, 24],
        write: |b, x, y| {
            let x = b.alu(Alu::Neg, &[x]);
            b.matmul(x, y)
        },
    },
];

#[test]
fn products_of_16_bit_floats_use_fragments() {
    for Case { name, left, right, write } in CASES {
        for dtype in [DType::F16, DType::BF16] {
            let mut b = Build::default();
            let (x, y) = (b.leaf(left, dtype), b.leaf(right, dtype));
            let product = write(&mut b, x, y);
            let graph = b.done(&[product]);
            let plan = planned(&graph, &Target::cuda_minimum(80), MathMode::Standard);
            assert_eq!((multiplying(&plan), plan.steps.len()), (1, 1), "{name} of {dtype}: {plan}");
            let (leaves, slots) = inputs(&graph, 7);
            let want = panoply_ir::graph_interpret::run(&graph, &leaves, &slots).unwrap();
            let have = run(&plan, &leaves, &slots).unwrap_or_else(|error| panic!("{name} of {dtype}: {error}\n{plan}"));
            let wrong = difference(&have[0], &want[0]);
            assert_eq!(wrong, None, "{name} of {dtype}: {plan}");
        }
    }
}

#[test]
fn all_tiles_give_the_same_bits() {
    let mut b = Build::default();
    let (x, y) = (b.leaf(&[70, 40], DType::BF16), b.leaf(&[40, 140], DType::BF16));
    let product = b.matmul(x, y);
    let graph = b.done(&[product]);
    let others = variants(&graph, &Target::cuda_minimum(80), MathMode::Standard);
    assert_eq!(others, 3, "other tiles");
}

#[test]
fn other_products_do_not_use_fragments() {
    let product = |left: DType, right: DType| {
        let mut b = Build::default();
        let (x, y) = (b.leaf(&[32, 32], left), b.leaf(&[32, 32], right));
        let [x, y] = [x, y].map(|operand| {
            let wide = if b.dtype(operand) == DType::F32 { operand } else { b.cast(operand, DType::F32) };
            b.alu(Alu::Abs, &[wide])
        });
        let product = b.matmul(x, y);
        b.done(&[product])
    };
    let halves = || {
        let mut b = Build::default();
        let (x, y) = (b.leaf(&[32, 32], DType::F16), b.leaf(&[32, 32], DType::F16));
        let product = b.matmul(x, y);
        b.done(&[product])
    };
    let card = Target::cuda_minimum(80);
    for (what, graph, target, math_mode) in [
        ("f32", product(DType::F32, DType::F32), &card, MathMode::Standard),
        ("f32 cast from 16-bit floats", product(DType::F16, DType::BF16), &card, MathMode::Standard),
        ("exact sums", halves(), &card, MathMode::Exact),
        ("an older GPU", halves(), &Target::cuda_minimum(75), MathMode::Standard),
        ("another device", halves(), &Target::hip_minimum(64), MathMode::Standard),
    ] {
        let plan = planned(&graph, target, math_mode);
        assert_eq!(multiplying(&plan), 0, "{what}: {plan}");
    }
}
