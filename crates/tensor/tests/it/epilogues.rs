//! A fused epilogue of a product gives the same bits as a separate kernel.

use panoply_compile::plan::{PlanStep, plan};
use panoply_tensor::conformance::oracle;
use panoply_tensor::eval::TracedGraph;
use panoply_tensor::{DType, Device, Tensor, eval};

/// Operation on a product. Further operands are a row, a column and a matrix of its shape, and a scalar.
type Follow = fn(&Tensor, &[Tensor; 3], &Tensor) -> Vec<Tensor>;

const FOLLOW: &[(&str, Follow)] = &[
    ("bias", |p, [row, ..], _| vec![p + row]),
    ("bias and activation", |p, [row, ..], _| vec![(p + row).gelu()]),
    ("a scalar and a column", |p, [_, column, _], by| vec![p * by + column]),
    ("residual", |p, [row, _, residual], _| vec![(p + row).relu() + residual]),
    ("cast", |p, _, _| vec![p.cast(if p.dtype() == DType::F32 { DType::BF16 } else { DType::F32 })]),
    ("two results", |p, [row, ..], by| vec![(p + row).tanh(), p * by]),
    ("which are positive", |p, [row, ..], _| vec![(p + row).gt(&Tensor::scalar(0.0).cast(p.dtype()))]),
    ("an axis more", |p, [row, ..], _| {
        let last = *p.dims::<2>().unwrap().last().unwrap();
        let first = p.dims::<2>().unwrap()[0];
        vec![(p + row).reshape([first as isize, 1, last as isize]).exp()]
    }),
];

/// Rows, columns and inner dimensions: small ones, and one that exceeds the caches, whose rows the epilogue processes as they are computed.
const SHAPES: &[[usize; 3]] = &[[130, 420, 33], [40, 50, 60], [3, 5, 7]];
const LARGE: [usize; 3] = [2100, 4100, 3];

fn data(shape: &[usize], seed: usize, dtype: DType) -> Tensor {
    let len: usize = shape.iter().product();
    let values: Vec<f32> = (0..len).map(|i| ((i * 31 + seed * 17) % 127) as f32 / 64.0 - 1.0).collect();
    let tensor = Tensor::from_slice(&values, shape).cast(dtype);
    tensor.eval().unwrap();
    tensor
}

fn bytes(tensors: &[Tensor]) -> Vec<Vec<u8>> {
    eval(&tensors.iter().collect::<Vec<&Tensor>>()).unwrap();
    tensors.iter().map(|tensor| tensor.to_bytes().unwrap()).collect()
}

fn check(dtype: DType, [m, n, k]: [usize; 3], name: &str, follow: Follow) {
    let (a, b) = (data(&[m, k], 1, dtype), data(&[k, n], 2, dtype));
    let sides = [data(&[n], 3, dtype), data(&[m, 1], 4, dtype), data(&[m, n], 5, dtype)];
    // With a scalar operand, the plan runs with several values: planned, recorded and replayed.
    for turn in 0..if name.contains("scalar") { 3 } else { 1 } {
        let by = Tensor::scalar(0.5 + f64::from(turn)).cast(dtype);
        let alone = a.matmul(&b);
        alone.eval().unwrap();
        let want = bytes(&follow(&alone, &sides, &by));
        let fused = follow(&a.matmul(&b), &sides, &by);
        assert!(bytes(&fused) == want, "{name} of {dtype} {m}×{n}×{k}, turn {turn}");
        let product = a.matmul(&b);
        let mut both = follow(&product, &sides, &by);
        both.push(product);
        let both = bytes(&both);
        assert!(both[..want.len()] == want[..], "{name} of {dtype} {m}×{n}×{k}, the product kept, turn {turn}");
        assert!(
            both.last() == Some(&alone.to_bytes().unwrap()),
            "the product kept beside {name} of {dtype} {m}×{n}×{k}"
        );
    }
}

/// Returns the number of steps of an expression, and of those that are routines with an epilogue.
fn steps(roots: &[Tensor]) -> (usize, usize) {
    let device = Device::current().unwrap();
    let graph = TracedGraph::new(&device, &roots.iter().collect::<Vec<&Tensor>>()).unwrap().graph;
    let plan = plan(&graph, device.target(), &|routine| device.supports_routine(routine)).unwrap();
    let ended = |step: &&PlanStep| matches!(step, PlanStep::Routine { epilogue: Some(_), .. });
    (plan.steps.len(), plan.steps.iter().filter(ended).count())
}

#[test]
fn epilogues_give_the_same_bits_as_kernels() {
    Device::get("cpu").unwrap().scope(|| {
        for (name, follow) in &FOLLOW[1..4] {
            check(DType::F32, LARGE, name, *follow);
        }
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            for (shape, (name, follow)) in SHAPES.iter().flat_map(|shape| FOLLOW.iter().map(move |of| (shape, of))) {
                check(dtype, *shape, name, *follow);
            }
        }
    });
}

#[test]
fn epilogues_are_fused_and_agree_with_the_interpreter() {
    let follow = |device: &str, expected: fn((usize, usize)) -> bool| {
        Device::get(device).unwrap().scope(|| {
            for (name, follow) in FOLLOW {
                let [m, n, k] = [40, 50, 60];
                let (a, b) = (data(&[m, k], 1, DType::F32), data(&[k, n], 2, DType::F32));
                let sides = [&[n][..], &[m, 1], &[m, n]].map(|shape| data(shape, 3, DType::F32));
                let made = follow(&a.matmul(&b), &sides, &Tensor::scalar(0.5f32));
                assert!(expected(steps(&made)), "{name} on {device}: {:?}", steps(&made));
                let made: Vec<Tensor> = made.iter().map(|made| made.cast(DType::F32)).collect();
                let (have, want) = oracle::both(&made.iter().collect::<Vec<&Tensor>>()).unwrap();
                for (have, want) in have.iter().flatten().zip(want.iter().flatten()) {
                    assert!(
                        (have - want).abs() <= 1e-2 * (1.0 + want.abs()),
                        "{name} on {device}: {have}, expected {want}"
                    );
                }
            }
        });
    };
    follow("cpu", |counts| counts == (1, 1));
    // The checked device offers no product routine.
    follow("cpu:checked", |(_, ended)| ended == 0);
}
