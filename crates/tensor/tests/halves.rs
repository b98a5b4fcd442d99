//! What routines do in f16 and bf16, and what flows back, against the same in f64.

use std::sync::Arc;

use panoply_driver::CudaDriver;
use panoply_runtime::Registry;
use panoply_tensor::{Accuracy, Attention, Conv, DType, Device, Rotary, Scalar, Tensor, Window};

struct Row {
    name: &'static str,
    inputs: &'static [&'static [usize]],
    op: fn(&[Tensor]) -> Tensor,
}

const ROWS: &[Row] = &[
    Row {
        name: "conv",
        inputs: &[&[3, 4, 9, 7], &[6, 4, 3, 3]],
        op: |x| x[0].conv(&x[1], &Conv { padding: [1, 1], stride: [2, 1], ..Conv::default() }),
    },
    Row {
        name: "max pool",
        inputs: &[&[2, 3, 8, 9]],
        op: |x| x[0].max_pool(&Window { stride: [2, 2], ..Window::new([3, 3]) }, [1, 1]),
    },
    Row {
        name: "attention",
        inputs: &[&[2, 4, 20, 8], &[2, 2, 20, 8], &[2, 2, 20, 8]],
        op: |x| x[0].attention(&x[1], &x[2], &Attention { causal: true, ..Attention::default() }),
    },
    Row {
        // bf16 has 256 and 258, and nothing between; f32 has all of these angles.
        name: "rotary positions far out",
        inputs: &[&[2, 5, 8]],
        op: |x| x[0].rope(&(Tensor::iota(5) + 256.0), 1.0, Rotary::Halves),
    },
    Row { name: "product", inputs: &[&[2, 33, 40], &[2, 40, 17]], op: |x| x[0].matmul(&x[1]) },
    Row {
        name: "products with one matrix",
        inputs: &[&[7, 12], &[12, 12]],
        op: |x| (0..6).fold(x[0].clone(), |state, _| state.matmul(&x[1]).tanh()),
    },
];

/// Numbers that f16 and bf16 hold.
fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 37 + seed * 11) * 29 % 61) as f64 / 32.0 - 0.9375).collect()
}

#[test]
fn what_flows_through_many_products_with_one_matrix_is_a_slope() {
    Device::get("cpu").expect("the CPU is there").scope(|| {
        let row = ROWS.last().expect("there are rows");
        let of = |seed: usize| row.inputs.iter().map(move |shape| (numbers(shape.iter().product(), seed), *shape));
        let along = |step: f64| {
            let moved = of(0).zip(of(3)).map(|((at, shape), (by, _))| {
                let moved: Vec<f64> = at.iter().zip(&by).map(|(at, by)| at / 4.0 + step * by).collect();
                Tensor::from_slice(&moved, shape)
            });
            let inputs: Vec<Tensor> = moved.collect();
            ((row.op)(&inputs).square().sum(..), inputs)
        };
        let [less, more] = [-1e-5, 1e-5].map(|step| along(step).0.to_vec::<f64>().expect("the CPU computes it")[0]);
        let (value, inputs) = along(0.0);
        let flows = value.gradients(&inputs.iter().collect::<Vec<&Tensor>>()).expect("both have gradients");
        let flows = flows.iter().flat_map(|flow| flow.to_vec::<f64>().expect("the CPU computes it"));
        let slope: f64 = flows.zip(of(3).flat_map(|(by, _)| by)).map(|(flow, by)| flow * by).sum();
        let want = (more - less) / 2e-5;
        assert!((slope - want).abs() <= 1e-6 * want.abs(), "{slope} for {want}");
    });
}

/// The value and what flows to each input, computed in a type.
fn all(row: &Row, dtype: DType) -> Vec<Vec<f64>> {
    let given = row
        .inputs
        .iter()
        .enumerate()
        .map(|(seed, shape)| Tensor::from_slice(&numbers(shape.iter().product(), seed), *shape));
    let inputs: Vec<Tensor> = given.collect();
    let narrow: Vec<Tensor> = inputs.iter().map(|input| input.cast(dtype)).collect();
    let value = (row.op)(&narrow).cast(DType::F64);
    let elems = value.shape().expect("the row makes sense").elems();
    let weights = Tensor::from_slice(&numbers(elems, 7), value.shape().expect("as above").dims());
    let flows =
        (&value * weights).sum(..).gradients(&inputs.iter().collect::<Vec<&Tensor>>()).expect("all have gradients");
    std::iter::once(value).chain(flows).map(|tensor| tensor.to_vec::<f64>().expect("the CPU computes it")).collect()
}

/// Fails unless a device computes a row in every type as exactly as that type's elements are, against f64 on the CPU.
#[track_caller]
fn check(row: &Row, device: &Device) {
    let want = Device::get("cpu").expect("the CPU is there").scope(|| all(row, DType::F64));
    for (dtype, unit) in [(DType::F32, 2f64.powi(-20)), (DType::F16, 2f64.powi(-9)), (DType::BF16, 2f64.powi(-6))] {
        for (number, (have, want)) in device.scope(|| all(row, dtype)).iter().zip(&want).enumerate() {
            let most = want.iter().fold(0.0f64, |most, value| most.max(value.abs()));
            for (have, want) in have.iter().zip(want) {
                let near = (have - want).abs() <= unit * most;
                assert!(near, "{} in {dtype} on {device}, result {number}: {have} for {want}", row.name);
            }
        }
    }
}

#[test]
fn routines_in_halves_are_as_exact_as_their_elements() {
    let device = Device::get("cpu").expect("the CPU is there");
    ROWS.iter().for_each(|row| check(row, &device));
}

/// Multiples of 1/64 below 1 in magnitude: sums of up to 4096 products of two of them are exact in f32 in any order.
fn sixty_fourths(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729 + i * i % 31) % 127) as f64 / 64.0 - 63.0 / 64.0).collect()
}

/// A convolution over N axes or its transpose, and its gradients by both operands, in a type.
fn exact_convs<const N: usize>(
    dtype: DType,
    conv: &Conv<N>,
    extra: Option<[usize; N]>,
    channels: [usize; 2],
) -> Vec<Vec<f64>> {
    let [inputs, outputs] = channels;
    let lengths = if N == 3 { 5 } else { 11 };
    let x: Vec<usize> = [2, inputs * conv.groups].into_iter().chain([lengths; N]).collect();
    let w: Vec<usize> = match extra {
        None => [outputs * conv.groups, inputs].into_iter().chain([3; N]).collect(),
        Some(_) => [inputs * conv.groups, outputs].into_iter().chain([3; N]).collect(),
    };
    let of = |shape: &[usize], seed| {
        Tensor::from_slice(&sixty_fourths(shape.iter().product(), seed), shape.to_vec()).cast(dtype)
    };
    let (x, w) = (of(&x, 1), of(&w, 2));
    let y = match extra {
        None => x.conv(&w, conv),
        Some(extra) => x.conv_transposed(&w, conv, extra),
    };
    let g = of(y.shape().expect("it is valid").dims(), 3);
    let gradients = (&y * g).sum(..).gradients(&[&x, &w]).expect("there are gradients");
    std::iter::once(y).chain(gradients).map(|x| x.cast(DType::F64).to_vec().expect("it is computed")).collect()
}

/// Fails unless results in halves are those in f64, which are exact, rounded once.
#[track_caller]
fn rounded_once(what: &str, of: impl Fn(DType) -> Vec<Vec<f64>>) {
    let exact = of(DType::F64);
    for dtype in [DType::F16, DType::BF16] {
        for (number, (have, want)) in of(dtype).iter().zip(&exact).enumerate() {
            let round = |value: &f64| Scalar::from_f64(dtype, *value).to_f64();
            let wrong = have.iter().zip(want).filter(|(have, want)| **have != round(want)).count();
            assert_eq!(
                wrong,
                0,
                "{what} in {dtype}, result {number}: elements of {} that are not rounded once",
                have.len()
            );
        }
    }
}

#[test]
fn convolutions_of_halves_are_exact_sums_rounded_once() {
    for accuracy in [Accuracy::Standard, Accuracy::Exact] {
        let device = Device::get("cpu").expect("the CPU is there");
        device.set_accuracy(accuracy);
        device.scope(|| {
            for (groups, channels) in [(1, [5, 7]), (2, [3, 4]), (1, [40, 19])] {
                let (one, two) = (
                    Conv::<1> { padding: [1], groups, ..Conv::default() },
                    Conv::<2> { stride: [2, 1], groups, ..Conv::default() },
                );
                rounded_once("conv1d", |dtype| exact_convs(dtype, &one, None, channels));
                rounded_once("conv2d", |dtype| exact_convs(dtype, &two, None, channels));
                rounded_once("transposed conv1d", |dtype| exact_convs(dtype, &one, Some([0]), channels));
                rounded_once("transposed conv2d", |dtype| exact_convs(dtype, &two, Some([1, 0]), channels));
                rounded_once("conv3d", |dtype| {
                    exact_convs(dtype, &Conv::<3> { groups, ..Conv::default() }, None, channels)
                });
                rounded_once("transposed conv3d", |dtype| {
                    exact_convs(dtype, &Conv::<3> { groups, ..Conv::default() }, Some([0; 3]), channels)
                });
            }
        });
    }
    Device::get("cpu").expect("the CPU is there").set_accuracy(Accuracy::default());
}

#[test]
fn einsum_of_three_operands_rounds_halves_once() {
    Device::get("cpu").expect("the CPU is there").scope(|| {
        for formula in ["ij,jk,kl->il", "bi,ij,bj->b", "i,i,i->"] {
            rounded_once(formula, |dtype| {
                let inputs = formula.split_once("->").expect("it has a result").0.split(',');
                let operands: Vec<Tensor> = inputs
                    .enumerate()
                    .map(|(seed, labels)| {
                        // Of few digits, so that products of three are exact in f32 too.
                        let values = sixty_fourths(6usize.pow(labels.len() as u32), seed);
                        let values: Vec<f64> = values.iter().map(|value| (value * 16.0).round() / 16.0).collect();
                        Tensor::from_slice(&values, vec![6; labels.len()]).cast(dtype)
                    })
                    .collect();
                let product = Tensor::einsum(formula, &operands.iter().collect::<Vec<&Tensor>>());
                vec![product.cast(DType::F64).to_vec().expect("it is computed")]
            });
        }
    });
}

/// A softmax of one score is 1 whatever the score: nothing comes back to queries and keys.
#[test]
fn attention_to_a_single_key_has_no_gradient_by_queries() {
    Device::get("cpu").expect("the CPU is there").scope(|| {
        let of = |seed| Tensor::from_slice(&numbers(2 * 3 * 5 * 33, seed), [2, 3, 5, 33]).cast(DType::F32) * 1.37;
        let (q, k, v, g) = (of(1), of(2), of(3), of(4));
        let causal = Attention { causal: true, ..Attention::default() };
        let y = q.attention(&k, &v, &causal);
        let by_queries = (y * g).sum(..).gradients(&[&q]).expect("there are gradients").remove(0);
        // The first query sees the first key alone.
        let first = by_queries.narrow(2, 0, 1).to_vec::<f32>().expect("the CPU computes it");
        assert!(first.iter().all(|value| *value == 0.0), "{first:?}");
        assert!(by_queries.to_vec::<f32>().expect("it is there").iter().any(|value| *value != 0.0));
    });
}

/// By kernels of ours; on what stands for a card by fragments of matrices.
#[test]
fn attention_in_halves_is_as_exact_on_other_devices() {
    let registry = Registry::global().expect("the environment makes sense");
    registry.register(Arc::new(CudaDriver { library: Some(panoply_fake::library()), ..CudaDriver::default() }));
    let row = ROWS.iter().find(|row| row.name == "attention").expect("there is such a row");
    for name in ["cuda:0", "opencl:0", "vulkan:0"] {
        match Device::get(name) {
            Ok(device) if device.target().f64 => {
                assert!(name != "cuda:0" || device.target().mma);
                check(row, &device);
            }
            Ok(device) => eprintln!("SKIPPED: attention in halves on {device}: it has no f64"),
            Err(error) => eprintln!("SKIPPED: attention in halves on {name}: {}", error.message()),
        }
    }
}

#[test]
fn a_cast_that_the_program_asks_for_rounds() {
    Device::get("cpu").expect("the CPU is there").scope(|| {
        let of = |value: f32, dtype| Tensor::from_slice(&[value], [1, 1, 1, 1]).cast(dtype);
        let most = of(600.0, DType::F32).conv(&of(600.0, DType::F32), &Conv::<2>::default());
        let less = most.cast(DType::F16).conv(&of(0.001, DType::F16), &Conv::<2>::default());
        // 360000 is beyond f16.
        assert_eq!(less.item().expect("the CPU computes it"), f64::INFINITY);
    });
}

type Function = (&'static str, fn(&Tensor) -> Tensor);

/// Functions of one number.
const FUNCTIONS: &[Function] = &[
    ("sqrt", Tensor::sqrt),
    ("rsqrt", Tensor::rsqrt),
    ("recip", Tensor::recip),
    ("exp", Tensor::exp),
    ("expm1", Tensor::expm1),
    ("ln", Tensor::ln),
    ("log1p", Tensor::log1p),
    ("log10", Tensor::log10),
    ("tanh", Tensor::tanh),
    ("sinh", Tensor::sinh),
    ("cosh", Tensor::cosh),
    ("atan", Tensor::atan),
    ("asin", Tensor::asin),
    ("acos", Tensor::acos),
    ("asinh", Tensor::asinh),
    ("acosh", Tensor::acosh),
    ("atanh", Tensor::atanh),
    ("erf", Tensor::erf),
    ("erfinv", Tensor::erfinv),
    ("lgamma", Tensor::lgamma),
    ("sigmoid", Tensor::sigmoid),
    ("log sigmoid", Tensor::log_sigmoid),
    ("silu", Tensor::silu),
    ("softplus", Tensor::softplus),
    ("gelu", Tensor::gelu),
    ("gelu tanh", Tensor::gelu_tanh),
    ("mish", Tensor::mish),
    ("elu", Tensor::elu),
    ("selu", Tensor::selu),
    ("hard sigmoid", Tensor::hard_sigmoid),
    ("hard swish", Tensor::hard_swish),
    ("softsign", Tensor::softsign),
    ("hypot with 3", |x| x.hypot(&(x.zeros_like() + 3.0))),
    ("logaddexp with 1", |x| x.logaddexp(&x.ones_like())),
    ("atan2 over 2", |x| x.atan2(&(x.zeros_like() + 2.0))),
];

/// The bits of halves.
fn bits(tensor: &Tensor) -> Vec<u16> {
    let bytes = tensor.to_bytes().expect("the CPU computes it");
    bytes.chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
}

/// How many halves lie between two numbers, of which neither is NaN.
fn apart(x: u16, y: u16) -> i32 {
    let place = |bits: u16| if bits < 1 << 15 { i32::from(bits) } else { -i32::from(bits & 0x7FFF) };
    (place(x) - place(y)).abs()
}

/// Functions whose slope is made of their result, which was rounded, as PyTorch's is.
const SLOPES_OF_RESULTS: [&str; 4] = ["rsqrt", "expm1", "tanh", "sigmoid"];

/// Each function of every half is what it is in f64, but for the last place, and so is its slope; from 1 on but for what f32 has left
/// of a difference from 1.
#[test]
fn functions_of_every_half_are_rounded_once() {
    let every: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let mut wrong = Vec::new();
    Device::get("cpu").expect("the CPU is there").scope(|| {
        for dtype in [DType::F16, DType::BF16] {
            let x = Tensor::from_bytes(&every, [1 << 16], dtype);
            let wide = x.cast(DType::F64);
            let numbers = wide.to_vec::<f64>().expect("the CPU computes it");
            for (name, op) in FUNCTIONS {
                let slope = |x: &Tensor| op(x).sum(..).gradients(&[x]).expect("it has a slope").remove(0);
                let (steps, near) = match SLOPES_OF_RESULTS.contains(name) {
                    true => (4, if dtype == DType::F16 { 1.0 / 1024.0 } else { 1.0 / 128.0 }),
                    false => (2, 4e-6),
                };
                for (what, have, want, steps, near) in
                    [("", op(&x), op(&wide), 1, 2e-6), ("'", slope(&x), slope(&wide), steps, near)]
                {
                    let (have, rounded) = (bits(&have), bits(&want.cast(dtype)));
                    let far = |have: &Tensor| have.cast(DType::F64).to_vec::<f64>().expect("the CPU computes it");
                    let (found, want) = (far(&Tensor::from_bytes(&bytes(&have), [1 << 16], dtype)), far(&want));
                    let bad = (0..want.len()).filter(|at| {
                        let near = if near > 1e-3 || numbers[*at].abs() >= 1.0 { near } else { 0.0 };
                        let close = apart(have[*at], rounded[*at]) <= steps || (found[*at] - want[*at]).abs() <= near;
                        !want[*at].is_nan() && (found[*at].is_nan() || !close)
                    });
                    let bad: Vec<usize> = bad.collect();
                    if let Some(at) = bad.first() {
                        let (x, found, want) = (numbers[*at], found[*at], want[*at]);
                        wrong.push(format!(
                            "{name}{what} of {dtype} at {} places: {found} at {x}, not {want}",
                            bad.len()
                        ));
                    }
                }
            }
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn bytes(halves: &[u16]) -> Vec<u8> {
    halves.iter().flat_map(|half| half.to_le_bytes()).collect()
}
