//! Effects of plan options: the math mode changes bits, the choice of kernels does not.

use panoply_compile::plan::{Options, Plan, PlanStep, plan, plan_with};
use panoply_ir::alu::{Alu, Math};
use panoply_ir::graph::Graph;
use panoply_ir::graph_interpret::Data;
use panoply_ir::{DType, MathMode, Scalar, Target};

use crate::plan::build::Build;
use crate::plan::execute::{inputs, run};

fn nothing(_: &panoply_ir::routine::Routine) -> bool {
    false
}

fn outputs(graph: &Graph, plan: &Plan) -> Vec<Vec<Scalar>> {
    let (leaves, slots) = inputs(graph, 11);
    run(plan, &leaves, &slots).unwrap()
}

/// Returns the number of variants, after checking that each gives the same bits.
pub fn variants(graph: &Graph, target: &Target, math_mode: MathMode) -> usize {
    let options = Options { math_mode, variants: true, ..Options::default() };
    let planned = plan_with(&options, graph, target, &nothing).unwrap();
    let want = outputs(graph, &planned);
    assert_eq!(
        want,
        outputs(graph, &plan_with(&Options { math_mode, ..Options::default() }, graph, target, &nothing).unwrap())
    );
    let mut tried = 0;
    for (at, variants) in &planned.variants {
        for variant in variants {
            let mut other = planned.clone();
            let PlanStep::Kernel { kernel, grid, .. } = &mut other.steps[*at] else { panic!("step {at} of {planned}") };
            (*kernel, *grid) = (variant.kernel.clone(), variant.grid);
            assert!(outputs(graph, &other) == want, "{math_mode}, step {at} as\n{}", **variant.kernel);
            tried += 1;
        }
    }
    tried
}

/// Returns a product with a fused epilogue and dimensions that are not multiples of a tile, an element-wise graph with
/// rows too short for a block, and sums that lanes would share only in longer rows.
fn graphs() -> [Graph; 3] {
    let mut b = Build::default();
    let (x, w, bias) = (b.f32(&[34, 17]), b.f32(&[17, 70]), b.f32(&[1, 70]));
    let y = b.matmul(x, w);
    let y = b.with(Alu::Add, y, bias);
    let y = b.alu(Alu::Math(Math::Tanh), &[y]);
    let product = b.done(&[y]);
    let mut b = Build::default();
    let (x, scale) = (b.f32(&[9, 20, 30]), b.f32(&[9, 1, 30]));
    let transposed = b.permute(x, &[1, 0, 2]);
    let transposed = b.alu(Alu::Mul, &[transposed, transposed]);
    let scale = b.permute(scale, &[1, 0, 2]);
    let y = b.with(Alu::Sub, transposed, scale);
    let y = b.alu(Alu::Sqrt, &[y]);
    let short = b.done(&[y]);
    let mut b = Build::default();
    let (x, w) = (thirds(&mut b, &[2, 60, 1]), thirds(&mut b, &[1, 60, 33]));
    let [x, w] = [x, w].map(|operand| b.expand(operand, &[2, 60, 33]));
    let difference = b.alu(Alu::Sub, &[x, w]);
    let square = b.alu(Alu::Mul, &[difference, difference]);
    let sum = b.sum(square, &[1]);
    let sums = b.done(&[sum]);
    [product, short, sums]
}

#[test]
fn all_variants_give_the_same_bits() {
    let [product, short, sums] = graphs();
    for math_mode in MathMode::ALL {
        let gpu = variants(&product, &Target::cuda_minimum(80), math_mode);
        assert!(gpu >= 3, "{gpu} other tiles");
        variants(&product, &Target::webgpu_minimum(), math_mode);
        let cpu = variants(&short, &Target::cpu(), math_mode);
        assert!(cpu >= 1, "{cpu} other lengths");
        variants(&product, &Target::cpu(), math_mode);
        variants(&sums, &Target::cpu(), math_mode);
        variants(&short, &Target::opencl_minimum(), math_mode);
    }
}

/// Returns the leaves as f32.
fn leaves(graph: &Graph) -> Vec<Vec<f32>> {
    let (leaves, _) = inputs(graph, 11);
    let floats = |data: &Data| match data {
        Data::Floats(values) => values.iter().map(|value| *value as f32).collect(),
        Data::Ints(_) => panic!("the graph has only float leaves"),
    };
    leaves.iter().map(|leaf| floats(&leaf.data)).collect()
}

fn f32s(bits: &[Scalar]) -> Vec<f32> {
    bits.iter().map(|value| f32::from_bits(value.bits as u32)).collect()
}

/// Adds a leaf divided by 3, so that sums and products are rounded.
fn thirds(b: &mut Build, shape: &[usize]) -> panoply_ir::graph::NodeId {
    let x = b.f32(shape);
    let three = b.like(x, 3.0);
    b.alu(Alu::Div, &[x, three])
}

#[test]
fn exact_sums_are_sequential_on_every_target() {
    let mut b = Build::default();
    let (x, w) = (thirds(&mut b, &[24, 300]), thirds(&mut b, &[300, 33]));
    let long = thirds(&mut b, &[9000]);
    let (product, rows, long) = (b.matmul(x, w), b.sum(x, &[1]), b.sum(long, &[0]));
    let graph = b.done(&[product, rows, long]);
    let given = leaves(&graph);
    let [x, w] = [&given[0], &given[1]].map(|leaf| leaf.iter().map(|x| x / 3.0).collect::<Vec<f32>>());
    let at = |row: usize, column: usize| (0..300).fold(0.0_f32, |sum, k| sum + x[row * 300 + k] * w[k * 33 + column]);
    let product: Vec<f32> = (0..24 * 33).map(|i| at(i / 33, i % 33)).collect();
    let rows: Vec<f32> = (0..24).map(|row| (0..300).fold(0.0_f32, |sum, k| sum + x[row * 300 + k])).collect();
    let (mut differ, mut longs) = (0, Vec::new());
    for target in [
        Target::cpu(),
        Target::opencl_minimum(),
        Target::cuda_minimum(80),
        Target::hip_minimum(64),
        Target::webgpu_minimum(),
    ] {
        let to = |math_mode| Options { math_mode, ..Options::default() };
        let exact = plan_with(&to(MathMode::Exact), &graph, &target, &|_| true).unwrap();
        assert!(exact.steps.iter().all(|step| matches!(step, PlanStep::Kernel { .. })), "{exact}");
        let have = outputs(&graph, &exact);
        assert!(f32s(&have[0]) == product, "{}: the product", target.name);
        assert!(f32s(&have[1]) == rows, "{}: the sums of rows", target.name);
        longs.push(have[2][0]);
        let usual = outputs(&graph, &plan(&graph, &target, &nothing).unwrap());
        differ += usize::from(f32s(&usual[0]) != product) + usize::from(f32s(&usual[1]) != rows);
    }
    assert!(longs.iter().all(|sum| *sum == longs[0]), "sums in parts differ: {longs:?}");
    assert!(differ > 4, "without Exact the order of sums depends on the target: {differ}");
}

#[test]
fn only_fast_mode_fuses_multiply_add() {
    let mut b = Build::default();
    let (x, y, z) = (thirds(&mut b, &[500]), thirds(&mut b, &[500]), thirds(&mut b, &[500]));
    let product = b.alu(Alu::Mul, &[x, y]);
    let sum = b.alu(Alu::Add, &[product, z]);
    let plain = b.alu(Alu::Add, &[x, z]);
    let graph = b.done(&[sum, plain]);
    let given = leaves(&graph);
    let [x, y, z] = [0, 1, 2].map(|at: usize| given[at].iter().map(|x| x / 3.0).collect::<Vec<f32>>());
    let twice: Vec<f32> = (0..500).map(|i| x[i] * y[i] + z[i]).collect();
    let once: Vec<f32> = (0..500).map(|i| x[i].mul_add(y[i], z[i])).collect();
    let plain: Vec<f32> = (0..500).map(|i| x[i] + z[i]).collect();
    assert_ne!(once, twice);
    for target in [Target::cpu(), Target::opencl_minimum(), Target::webgpu_minimum()] {
        for math_mode in MathMode::ALL {
            let planned = plan_with(&Options { math_mode, ..Options::default() }, &graph, &target, &nothing).unwrap();
            let have = outputs(&graph, &planned);
            // WGSL has no fused multiply-add.
            let fused = math_mode == MathMode::Fast && target.name != "webgpu";
            assert!(f32s(&have[0]) == if fused { &once[..] } else { &twice[..] }, "{} {math_mode}", target.name);
            assert!(f32s(&have[1]) == plain, "{} {math_mode}: the sum without a product", target.name);
        }
    }
}

#[test]
fn integer_products_use_routines_in_exact_mode() {
    let mut b = Build::default();
    let [x, w] = [[20, 30], [30, 40]].map(|shape| b.leaf(&shape, DType::I8));
    let [x, w] = [x, w].map(|x| b.cast(x, DType::I32));
    let y = b.matmul(x, w);
    let graph = b.done(&[y]);
    let options = Options { math_mode: MathMode::Exact, ..Options::default() };
    let planned = plan_with(&options, &graph, &Target::cpu(), &|_| true).unwrap();
    let [PlanStep::Routine { routine, .. }] = &planned.steps[..] else { panic!("{planned}") };
    assert_eq!(routine.to_string(), "gemm i8 1×20×40×30");
    let want = panoply_ir::graph_interpret::run(&graph, &inputs(&graph, 11).0, &[]).unwrap();
    assert_eq!(outputs(&graph, &planned)[0], want[0].scalars());
}
