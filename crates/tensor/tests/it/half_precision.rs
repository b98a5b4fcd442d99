//! Library routines in f16 and bf16, and their gradients, compared with f64.

use std::sync::Arc;

use panoply_driver::CudaDriver;
use panoply_runtime::Registry;
use panoply_tensor::{
    AlignCorners, AttentionOptions, BceOptions, ConvOptions, ConvTransposeOptions, DType, Device, InterpolateMode,
    MathMode, Reduction, RopeOptions, Scalar, Tensor, Window, f16,
};

struct Row {
    name: &'static str,
    inputs: &'static [&'static [usize]],
    op: fn(&[Tensor]) -> Tensor,
}

const ROWS: &[Row] = &[
    Row {
        name: "conv",
        inputs: &[&[3, 4, 9, 7], &[6, 4, 3, 3]],
        op: |x| x[0].conv(&x[1], &ConvOptions { padding: [1, 1], stride: [2, 1], ..ConvOptions::default() }),
    },
    Row {
        name: "max pool",
        inputs: &[&[2, 3, 8, 9]],
        op: |x| x[0].max_pool(&Window { stride: [2, 2], padding: [1, 1], ..Window::new([3, 3]) }),
    },
    Row {
        name: "attention",
        inputs: &[&[2, 4, 20, 8], &[2, 2, 20, 8], &[2, 2, 20, 8]],
        op: |x| {
            x[0].scaled_dot_product_attention(
                &x[1],
                &x[2],
                &AttentionOptions { is_causal: true, ..AttentionOptions::default() },
            )
        },
    },
    Row {
        // bf16 represents 256 and 258 and nothing in between; f32 represents all of these angles.
        name: "rotary positions far out",
        inputs: &[&[2, 5, 8]],
        op: |x| x[0].rope(&(Tensor::arange(5) + 256), &RopeOptions { base: 1.0, ..RopeOptions::default() }),
    },
    Row { name: "product", inputs: &[&[2, 33, 40], &[2, 40, 17]], op: |x| x[0].matmul(&x[1]) },
    Row {
        name: "products with one matrix",
        inputs: &[&[7, 12], &[12, 12]],
        op: |x| (0..6).fold(x[0].clone(), |state, _| state.matmul(&x[1]).tanh()),
    },
];

/// Returns numbers that f16 and bf16 represent exactly.
fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 37 + seed * 11) * 29 % 61) as f64 / 32.0 - 0.9375).collect()
}

#[test]
fn gradients_through_repeated_products_with_one_matrix_agree_with_differences() {
    Device::get("cpu").expect("the CPU is always present").scope(|| {
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
        let grads = value.gradients(&inputs.iter().collect::<Vec<&Tensor>>()).expect("both have gradients");
        let grads = grads.iter().flat_map(|grad| grad.to_vec::<f64>().expect("the CPU computes it"));
        let grad: f64 = grads.zip(of(3).flat_map(|(by, _)| by)).map(|(grad, by)| grad * by).sum();
        let want = (more - less) / 2e-5;
        assert!((grad - want).abs() <= 1e-6 * want.abs(), "{grad}, expected {want}");
    });
}

/// Returns the value and the gradient with respect to each input, computed in a type.
fn all(row: &Row, dtype: DType) -> Vec<Vec<f64>> {
    let given = row
        .inputs
        .iter()
        .enumerate()
        .map(|(seed, shape)| Tensor::from_slice(&numbers(shape.iter().product(), seed), *shape));
    let inputs: Vec<Tensor> = given.collect();
    let narrow: Vec<Tensor> = inputs.iter().map(|input| input.cast(dtype)).collect();
    let value = (row.op)(&narrow).cast(DType::F64);
    let elems = value.shape().expect("the row is valid").numel();
    let weights = Tensor::from_slice(&numbers(elems, 7), value.shape().expect("as above").dims());
    let grads =
        (&value * weights).sum(..).gradients(&inputs.iter().collect::<Vec<&Tensor>>()).expect("all have gradients");
    std::iter::once(value).chain(grads).map(|tensor| tensor.to_vec::<f64>().expect("the CPU computes it")).collect()
}

/// Panics unless a device computes a row in every type to that type's precision, compared with f64 on the CPU.
#[track_caller]
fn check(row: &Row, device: &Device) {
    let want = Device::get("cpu").expect("the CPU is always present").scope(|| all(row, DType::F64));
    for (dtype, unit) in [(DType::F32, 2f64.powi(-20)), (DType::F16, 2f64.powi(-9)), (DType::BF16, 2f64.powi(-6))] {
        for (number, (have, want)) in device.scope(|| all(row, dtype)).iter().zip(&want).enumerate() {
            let most = want.iter().fold(0.0f64, |most, value| most.max(value.abs()));
            for (have, want) in have.iter().zip(want) {
                let near = (have - want).abs() <= unit * most;
                assert!(near, "{} in {dtype} on {device}, result {number}: {have}, expected {want}", row.name);
            }
        }
    }
}

#[test]
fn half_precision_routines_are_as_precise_as_their_type() {
    let device = Device::get("cpu").expect("the CPU is always present");
    ROWS.iter().for_each(|row| check(row, &device));
}

/// Multiples of 1/64 below 1 in magnitude: sums of up to 4096 products of two of them are exact in f32 in any order.
fn sixty_fourths(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729 + i * i % 31) % 127) as f64 / 64.0 - 63.0 / 64.0).collect()
}

/// Computes a convolution over N axes or its transpose, and its gradients with respect to both operands, in a type.
fn exact_convs<const N: usize>(
    dtype: DType,
    conv: &ConvOptions<N>,
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
        Some(extra) => x.conv_transpose(&w, &ConvTransposeOptions { output_padding: extra, ..(*conv).into() }),
    };
    let g = of(y.shape().expect("it is valid").dims(), 3);
    let gradients = (&y * g).sum(..).gradients(&[&x, &w]).expect("the convolution is differentiable");
    std::iter::once(y).chain(gradients).map(|x| x.cast(DType::F64).to_vec().expect("it is computed")).collect()
}

/// Panics unless half-precision results equal those in f64, which are exact, rounded once.
#[track_caller]
fn rounded_once(what: &str, of: impl Fn(DType) -> Vec<Vec<f64>>) {
    let exact = of(DType::F64);
    for dtype in [DType::F16, DType::BF16] {
        for (number, (have, want)) in of(dtype).iter().zip(&exact).enumerate() {
            let round = |value: &f64| Scalar::from_f64(dtype, *value).to_f64();
            let wrong = have.iter().zip(want).filter(|(have, want)| **have != round(want)).count();
            assert_eq!(wrong, 0, "{what} in {dtype}, result {number}: wrongly rounded elements of {}", have.len());
        }
    }
}

#[test]
fn half_precision_convolutions_are_exact_sums_rounded_once() {
    for math_mode in [MathMode::Standard, MathMode::Exact] {
        let device = Device::get("cpu").expect("the CPU is always present");
        device.set_math_mode(math_mode);
        device.scope(|| {
            for (groups, channels) in [(1, [5, 7]), (2, [3, 4]), (1, [40, 19])] {
                let (one, two) = (
                    ConvOptions::<1> { padding: [1], groups, ..ConvOptions::default() },
                    ConvOptions::<2> { stride: [2, 1], groups, ..ConvOptions::default() },
                );
                rounded_once("conv1d", |dtype| exact_convs(dtype, &one, None, channels));
                rounded_once("conv2d", |dtype| exact_convs(dtype, &two, None, channels));
                rounded_once("transposed conv1d", |dtype| exact_convs(dtype, &one, Some([0]), channels));
                rounded_once("transposed conv2d", |dtype| exact_convs(dtype, &two, Some([1, 0]), channels));
                rounded_once("conv3d", |dtype| {
                    exact_convs(dtype, &ConvOptions::<3> { groups, ..ConvOptions::default() }, None, channels)
                });
                rounded_once("transposed conv3d", |dtype| {
                    exact_convs(dtype, &ConvOptions::<3> { groups, ..ConvOptions::default() }, Some([0; 3]), channels)
                });
            }
        });
    }
    Device::get("cpu").expect("the CPU is always present").set_math_mode(MathMode::default());
}

#[test]
fn einsum_of_three_operands_rounds_halves_once() {
    Device::get("cpu").expect("the CPU is always present").scope(|| {
        for formula in ["ij,jk,kl->il", "bi,ij,bj->b", "i,i,i->"] {
            rounded_once(formula, |dtype| {
                let inputs = formula.split_once("->").expect("the formula has a result").0.split(',');
                let operands: Vec<Tensor> = inputs
                    .enumerate()
                    .map(|(seed, labels)| {
                        // Values with few digits, so that products of three are exact in f32 too.
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

/// The softmax of a single score is 1 for any score, so the gradients of queries and keys are zero.
#[test]
fn attention_to_a_single_key_has_no_query_gradient() {
    Device::get("cpu").expect("the CPU is always present").scope(|| {
        let of = |seed| Tensor::from_slice(&numbers(2 * 3 * 5 * 33, seed), [2, 3, 5, 33]).cast(DType::F32) * 1.37;
        let (q, k, v, g) = (of(1), of(2), of(3), of(4));
        let causal = AttentionOptions { is_causal: true, ..AttentionOptions::default() };
        let y = q.scaled_dot_product_attention(&k, &v, &causal);
        let by_queries = (y * g).sum(..).gradients(&[&q]).expect("attention is differentiable").remove(0);
        // The first query attends to the first key only.
        let first = by_queries.narrow(2, 0, 1).to_vec::<f32>().expect("the CPU computes it");
        assert!(first.iter().all(|value| *value == 0.0), "{first:?}");
        assert!(by_queries.to_vec::<f32>().expect("the CPU computes it").iter().any(|value| *value != 0.0));
    });
}

/// Computed by our kernels; on the simulated CUDA device with MMA fragments.
#[test]
fn half_precision_attention_is_as_precise_on_other_devices() {
    let registry = Registry::global().expect("the environment variables are valid");
    registry.register(Arc::new(CudaDriver { library: Some(panoply_driver_sim::library()), ..CudaDriver::default() }));
    let row = ROWS.iter().find(|row| row.name == "attention").expect("there is such a row");
    for name in ["cuda:0", "opencl:0", "vulkan:0"] {
        match Device::get(name) {
            Ok(device) if device.target().f64 => {
                assert!(name != "cuda:0" || device.target().mma);
                check(row, &device);
            }
            Ok(device) => eprintln!("SKIPPED: half-precision attention on {device}: it has no f64"),
            Err(error) => eprintln!("SKIPPED: half-precision attention on {name}: {}", error.message()),
        }
    }
}

#[test]
fn an_explicit_cast_rounds() {
    Device::get("cpu").expect("the CPU is always present").scope(|| {
        let of = |value: f32, dtype| Tensor::from_slice(&[value], [1, 1, 1, 1]).cast(dtype);
        let most = of(600.0, DType::F32).conv(&of(600.0, DType::F32), &ConvOptions::<2>::default());
        let less = most.cast(DType::F16).conv(&of(0.001, DType::F16), &ConvOptions::<2>::default());
        // 360000 exceeds the range of f16.
        assert_eq!(less.item::<f64>().expect("the CPU computes it"), f64::INFINITY);
    });
}

type Function = (&'static str, fn(&Tensor) -> Tensor);

/// Elementwise functions.
const FUNCTIONS: &[Function] = &[
    ("sqrt", Tensor::sqrt),
    ("rsqrt", Tensor::rsqrt),
    ("reciprocal", Tensor::reciprocal),
    ("exp", Tensor::exp),
    ("expm1", Tensor::expm1),
    ("log", Tensor::log),
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
    ("log sigmoid", Tensor::logsigmoid),
    ("silu", Tensor::silu),
    ("softplus", Tensor::softplus),
    ("gelu", Tensor::gelu),
    ("gelu tanh", Tensor::gelu_tanh),
    ("mish", Tensor::mish),
    ("elu", Tensor::elu),
    ("selu", Tensor::selu),
    ("hard sigmoid", Tensor::hardsigmoid),
    ("hard swish", Tensor::hardswish),
    ("softsign", Tensor::softsign),
    ("hypot with 3", |x| x.hypot(&(x.zeros_like() + 3.0))),
    ("logaddexp with 1", |x| x.logaddexp(&x.ones_like())),
    ("atan2 over 2", |x| x.atan2(&(x.zeros_like() + 2.0))),
];

/// Returns the bits of f16 or bf16 elements.
fn bits(tensor: &Tensor) -> Vec<u16> {
    let bytes = tensor.to_bytes().expect("the CPU computes it");
    bytes.chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
}

/// Returns the distance of two 16-bit floats in units of the last place; neither is NaN.
fn apart(x: u16, y: u16) -> i32 {
    let place = |bits: u16| if bits < 1 << 15 { i32::from(bits) } else { -i32::from(bits & 0x7FFF) };
    (place(x) - place(y)).abs()
}

/// Functions whose gradient is computed from the rounded result, as in PyTorch.
const DERIVATIVES_OF_RESULTS: [&str; 4] = ["rsqrt", "expm1", "tanh", "sigmoid"];

/// Each function of every 16-bit float agrees with f64 except for the last place, and so does its gradient. From 1 on, the error of a
/// difference from 1 in f32 is allowed as well.
#[test]
fn functions_of_every_16_bit_float_are_rounded_once() {
    let every: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let mut wrong = Vec::new();
    Device::get("cpu").expect("the CPU is always present").scope(|| {
        for dtype in [DType::F16, DType::BF16] {
            let x = Tensor::from_bytes(&every, [1 << 16], dtype);
            let wide = x.cast(DType::F64);
            let numbers = wide.to_vec::<f64>().expect("the CPU computes it");
            for (name, op) in FUNCTIONS {
                let grad =
                    |x: &Tensor| op(x).sum(..).gradients(&[x]).expect("the function is differentiable").remove(0);
                let (steps, near) = match DERIVATIVES_OF_RESULTS.contains(name) {
                    true => (4, if dtype == DType::F16 { 1.0 / 1024.0 } else { 1.0 / 128.0 }),
                    false => (2, 4e-6),
                };
                for (what, have, want, steps, near) in
                    [("", op(&x), op(&wide), 1, 2e-6), ("'", grad(&x), grad(&wide), steps, near)]
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
                            "{name}{what} of {dtype} at {} inputs: {found} at {x}, expected {want}",
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

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").expect("the CPU is always present").scope(work);
}

fn half(values: &[f32], dtype: DType) -> Tensor {
    Tensor::from_slice(values, [values.len()]).cast(dtype)
}

#[test]
fn more_equal_extremes_than_f16_can_count() {
    on_cpu(|| {
        for dtype in [DType::F16, DType::BF16] {
            let x = Tensor::ones([1, 70_000], dtype);
            for extreme in [x.max(..), x.min(..), x.max(1).sum(..), x.adaptive_max_pool([1]).sum(..)] {
                let gradient = (extreme * 1024.0).gradients(&[&x]).unwrap().remove(0).cast(DType::F32);
                let sum = gradient.sum(..).item::<f64>().unwrap();
                assert!((sum - 1024.0).abs() < 1024.0 / 256.0, "{dtype}: {sum}");
            }
            let moved = x.max(..).jvp(&[&x], &[&x.ones_like()]).unwrap().item::<f64>().unwrap();
            assert_eq!(moved, 1.0, "{dtype}");
        }
        // Adding ones in f32 stops at 2²⁴.
        let x = Tensor::ones([1 << 25], DType::F32);
        let gradient = x.max(..).gradients(&[&x]).unwrap().remove(0);
        assert_eq!(gradient.slice((0,)).item::<f64>().unwrap(), 2f64.powi(-25));
        assert_eq!(x.nanmean(..).item::<f64>().unwrap(), 1.0);
    });
}

#[test]
fn sums_of_products_are_rounded_once() {
    on_cpu(|| {
        let (a, b) = (half(&[300.0, 300.0], DType::F16), half(&[300.0, -300.0], DType::F16));
        let rows = |x: &Tensor| x.reshape([1, 2]);
        for zero in [
            a.dot(&b),
            Tensor::einsum("i,i->", &[&a, &b]),
            Tensor::einsum("bi,bi->b", &[&rows(&a), &rows(&b)]),
            Tensor::einsum("ij,ij->", &[&rows(&a), &rows(&b)]),
            Tensor::einsum("i,i,j->j", &[&a, &b, &half(&[1.0], DType::F16)]),
        ] {
            assert_eq!(zero.sum(..).item::<f64>().unwrap(), 0.0, "{zero:?}");
        }
        // A sum over one operand does not overflow before the product: 70000 · 2⁻¹⁰.
        let many = Tensor::ones([70_000], DType::F16);
        let small = Tensor::einsum("i,j->j", &[&many, &half(&[1.0 / 1024.0], DType::F16)]).item::<f64>().unwrap();
        assert_eq!(small, f64::from(f16::from_f32(70_000.0 / 1024.0)));
        // (300, 300, 0) × (300, 300, 0), and (300 + 300i) (300 + 300i).
        let x = half(&[300.0, 300.0, 0.0], DType::F16);
        assert_eq!(x.cross(&x, 0).cast(DType::F32).to_vec::<f32>().unwrap(), [0.0; 3]);
        assert_eq!(a.complex_mul(&a).slice((0,)).item::<f64>().unwrap(), 0.0);
        // From -60000 to 60000, halfway.
        let (low, high) = (half(&[-60_000.0], DType::F16), half(&[60_000.0], DType::F16));
        assert_eq!(low.lerp(&high, 0.5).item::<f64>().unwrap(), 0.0);
        let line = Tensor::concat([low, high], 0).interpolate([3], InterpolateMode::Linear(AlignCorners::Yes));
        assert_eq!(line.slice((1,)).item::<f64>().unwrap(), 0.0);
        // 4096 products in bf16, compared with their sum in f64.
        let numbers = |seed: usize| -> Vec<f32> { numbers(4096, seed).iter().map(|x| *x as f32).collect() };
        let (x, y) = (half(&numbers(1), DType::BF16), half(&numbers(2), DType::BF16));
        let exact = x.cast(DType::F64).dot(&y.cast(DType::F64)).item::<f64>().unwrap();
        for found in [x.dot(&y), Tensor::einsum("i,i->", &[&x, &y])] {
            let found = found.item::<f64>().unwrap();
            assert!((found - exact).abs() <= exact.abs() / 256.0, "{found}, expected {exact}");
        }
        assert!(x.dot(&y.cast(DType::F16)).check().unwrap_err().message().contains("bf16 and f16 differ"));
    });
}

#[test]
fn half_precision_losses_do_not_overflow_before_their_mean() {
    on_cpu(|| {
        let zeros = |rows: usize| Tensor::zeros([rows], DType::I32);
        let of = |rows: usize, value: f32| Tensor::full([rows, 1], value).cast(DType::F16);
        assert_eq!(of(8192, -10.0).nll_loss(&zeros(8192), Reduction::Mean).item::<f64>().unwrap(), 10.0);
        assert_eq!(of(70_000, -0.5).nll_loss(&zeros(70_000), Reduction::Mean).item::<f64>().unwrap(), 0.5);
        // 700²/2 for one of 8; |60000 - (-60000)|; 1 + 300 · 300 where the other seven have 1.
        let some = |first: f32| half(&[first, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], DType::F16);
        let zero = some(0.0);
        assert_eq!(
            some(700.0).huber_loss(&zero, 1000.0, Reduction::Mean).item::<f64>().unwrap(),
            f64::from(f16::from_f32(245_000.0 / 8.0))
        );
        let apart = some(60_000.0).l1_loss(&some(-60_000.0), Reduction::Mean).item::<f64>().unwrap();
        assert_eq!(apart, 15_000.0);
        assert_eq!(
            some(300.0).hinge_loss(&some(-300.0), Reduction::Mean).item::<f64>().unwrap(),
            f64::from(f16::from_f32(90_008.0 / 8.0))
        );
        assert_eq!(some(600.0).mse_loss(&some(200.0), Reduction::Mean).item::<f64>().unwrap(), 20_000.0);
        // f16 represents no odd numbers beyond 2048: class 2049 of 2050 is valid, and of 2049 it is not.
        let logs = Tensor::full([1, 2050], -1f32).cast(DType::F16);
        assert_eq!(logs.nll_loss(&Tensor::from_slice(&[2049i32], [1]), Reduction::Mean).item::<f64>().unwrap(), 1.0);
        let logs = Tensor::full([1, 2049], -1f32).cast(DType::F16);
        assert!(logs.nll_loss(&Tensor::from_slice(&[2049i32], [1]), Reduction::Mean).item::<f64>().unwrap().is_nan());
    });
}

/// Every loss in half precision equals the loss of the same numbers in f64, rounded once.
#[test]
fn half_precision_losses_equal_f64_rounded_once() {
    type Of = fn(&Tensor, &Tensor) -> Tensor;
    let losses: [(&str, Of); 9] = [
        ("mse_loss", |x, y| x.mse_loss(y, Reduction::Mean)),
        ("l1_loss", |x, y| x.l1_loss(y, Reduction::Mean)),
        ("huber_loss", |x, y| x.huber_loss(y, 0.3, Reduction::Mean)),
        ("binary_cross_entropy_with_logits", |x, y| x.binary_cross_entropy_with_logits(y, &BceOptions::default())),
        ("binary_cross_entropy", |x, y| x.binary_cross_entropy(y, Reduction::Mean)),
        ("kl_div", |x, y| x.kl_div(y, Reduction::Mean)),
        ("hinge_loss", |x, y| x.hinge_loss(y, Reduction::Mean)),
        ("cosine_embedding_loss", |x, y| {
            x.cosine_embedding_loss(y, &Tensor::ones([40], DType::F32).cast(x.dtype()), 0.1, Reduction::Mean)
        }),
        ("dot", |x, y| x.flatten(0, -1).dot(&y.flatten(0, -1))),
    ];
    on_cpu(|| {
        let values =
            |seed: usize| numbers(400, seed).into_iter().map(|x| (x.abs() * 0.99) as f32).collect::<Vec<f32>>();
        for (dtype, unit) in [(DType::F16, 2f64.powi(-11)), (DType::BF16, 2f64.powi(-8))] {
            let [x, y] = [1, 2].map(|seed| Tensor::from_slice(&values(seed), [40, 10]).cast(dtype));
            let [wide_x, wide_y] = [&x, &y].map(|x| x.cast(DType::F64));
            for (name, loss) in losses {
                let expected = loss(&wide_x, &wide_y).item::<f64>().unwrap();
                let found = loss(&x, &y).item::<f64>().unwrap();
                let limit = unit * expected.abs() + 2e-6 * expected.abs().max(1.0);
                let apart = (found - expected).abs();
                assert!(apart <= limit, "{name} of {dtype}: {found}, expected {expected}");
            }
        }
    });
}

#[test]
fn conversions_to_half_precision_round_once() {
    on_cpu(|| {
        // Close to the midpoint of two 16-bit floats, where f32 would round to the midpoint itself.
        let near = [65519.999, 1.0 + 2f64.powi(-11) + 2f64.powi(-30), -1.0 - 2f64.powi(-11) - 2f64.powi(-40), 1e-60];
        let x = Tensor::from_slice(&near, [4]);
        let expected = [65504.0, 1.0 + 2f64.powi(-10), -1.0 - 2f64.powi(-10), 0.0];
        assert_eq!(x.cast(DType::F16).cast(DType::F64).to_vec::<f64>().unwrap(), expected);
        assert_eq!((&x * Tensor::scalar(1f64)).cast(DType::F16).cast(DType::F64).to_vec::<f64>().unwrap(), expected);
        let x = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
        let found = Tensor::from_slice(&[x, -x, f64::NAN, f64::INFINITY], [4]).cast(DType::BF16).cast(DType::F64);
        let found = found.to_vec::<f64>().unwrap();
        assert_eq!((found[0], found[1], found[2].is_nan(), found[3]), (1.0078125, -1.0078125, true, f64::INFINITY));
        for dtype in [DType::I32, DType::U32, DType::I64, DType::U64] {
            let x = Tensor::from_slice(&[0x101_0001i32, 0x101_0000, 0x17f_8001], [3]).cast(dtype);
            let found = x.cast(DType::BF16).cast(DType::F64).to_vec::<f64>().unwrap();
            assert_eq!(found, [16_908_288.0, 16_777_216.0, 25_165_824.0], "{dtype}");
        }
        let far = Tensor::from_slice(&[i64::MAX, i64::MIN, -0x101_0001, (1 << 62) + (1 << 54) + 1], [4]);
        let found = far.cast(DType::BF16).cast(DType::F64).to_vec::<f64>().unwrap();
        let two = |power: i32| 2f64.powi(power);
        assert_eq!(found, [two(63), -two(63), -16_908_288.0, two(62) + two(55)]);
        // The same for constants of the program.
        assert_eq!(Tensor::full([1], Scalar::from_f64(DType::F16, 65519.999)).item::<f64>().unwrap(), 65504.0);
        assert_eq!(Tensor::full([1], Scalar::from_i128(DType::BF16, 0x101_0001)).item::<f64>().unwrap(), 16_908_288.0);
    });
}
