//! NaN, infinities, signed zeros, denormals, huge and tiny numbers in every float type; empty tensors and tensors with one element. Edge
//! cases of integers are in `dtypes.rs`.

use panoply_tensor::{ConvOptions, DType, InterpolateMode, ScatterReduce, SortOrder, Tensor, Window};

use super::{Fixture, close, devices};

type Unary = (&'static str, fn(&Tensor) -> Tensor);
type Binary = (&'static str, fn(&Tensor, &Tensor) -> Tensor);

const UNARY: &[Unary] = &[
    ("exp", Tensor::exp),
    ("exp2", Tensor::exp2),
    ("expm1", Tensor::expm1),
    ("log", Tensor::log),
    ("log2", Tensor::log2),
    ("log10", Tensor::log10),
    ("log1p", Tensor::log1p),
    ("sqrt", Tensor::sqrt),
    ("rsqrt", Tensor::rsqrt),
    ("reciprocal", Tensor::reciprocal),
    ("square", Tensor::square),
    ("abs", Tensor::abs),
    ("neg", |x| -x),
    ("sign", Tensor::sign),
    ("sinh", Tensor::sinh),
    ("cosh", Tensor::cosh),
    ("tanh", Tensor::tanh),
    ("asin", Tensor::asin),
    ("acos", Tensor::acos),
    ("atan", Tensor::atan),
    ("asinh", Tensor::asinh),
    ("acosh", Tensor::acosh),
    ("atanh", Tensor::atanh),
    ("erf", Tensor::erf),
    ("erfinv", Tensor::erfinv),
    ("lgamma", Tensor::lgamma),
    ("floor", Tensor::floor),
    ("ceil", Tensor::ceil),
    ("round", Tensor::round),
    ("trunc", Tensor::trunc),
    ("sigmoid", Tensor::sigmoid),
    ("logsigmoid", Tensor::logsigmoid),
    ("softplus", Tensor::softplus),
    ("softsign", Tensor::softsign),
    ("relu", Tensor::relu),
    ("relu6", Tensor::relu6),
    ("elu", Tensor::elu),
    ("selu", Tensor::selu),
    ("silu", Tensor::silu),
    ("mish", Tensor::mish),
    ("gelu", Tensor::gelu),
    ("gelu_tanh", Tensor::gelu_tanh),
    ("hardsigmoid", Tensor::hardsigmoid),
    ("hardswish", Tensor::hardswish),
];

const MODERATE: &[Unary] = &[("sin", Tensor::sin), ("cos", Tensor::cos), ("tan", Tensor::tan)];

const ROWS: &[Unary] = &[
    ("softmax", |x| x.softmax(-1)),
    ("log_softmax", |x| x.log_softmax(-1)),
    ("logsumexp", |x| x.logsumexp(1)),
    ("amax", |x| x.max(1)),
    ("amin", |x| x.min(1)),
    ("sum", |x| x.sum(1)),
    ("mean", |x| x.mean(1)),
    ("prod", |x| x.prod(1)),
    ("cummax", |x| x.cummax(1)),
    ("cumsum", |x| x.cumsum(1)),
    ("argmax", |x| x.argmax(1)),
    ("argsort", |x| x.argsort(1, SortOrder::Ascending)),
    ("sort", |x| x.sort(1, SortOrder::Ascending)),
];

const BINARY: &[Binary] = &[
    ("add", |x, y| x + y),
    ("sub", |x, y| x - y),
    ("mul", |x, y| x * y),
    ("div", |x, y| x / y),
    ("maximum", |x, y| x.maximum(y)),
    ("minimum", |x, y| x.minimum(y)),
    ("pow", |x, y| x.pow(y)),
    ("fmod", |x, y| x % y),
    ("atan2", Tensor::atan2),
    ("hypot", Tensor::hypot),
    ("logaddexp", Tensor::logaddexp),
];

/// Functions that add to or subtract from 1 internally, whose error is therefore that of numbers near 1.
const AROUND_ONE: &[&str] = &[
    "lgamma",
    "gradient of lgamma",
    "gelu",
    "gradient of gelu",
    "gelu_tanh",
    "gradient of gelu_tanh",
    "gradient of tanh",
    "gradient of sigmoid",
    "gradient of silu",
    "gradient of mish",
    "gradient of atanh",
];

/// Functions that divide 1 by a power, which overflows slightly before the function itself underflows.
const UNDERFLOWING: &[&str] = &[
    "sigmoid",
    "silu",
    "mish",
    "gradient of sigmoid",
    "gradient of silu",
    "gradient of mish",
    "gradient of softplus",
    "gradient of logsigmoid",
    "gradient of softsign",
];

/// Tolerance of a result: a relative error of some ulp, and a few of the smallest denormals.
struct Near {
    dtype: DType,
    relative: f64,
    absolute: f64,
    underflow: f64,
}

const TYPES: [Near; 4] = [
    Near { dtype: DType::F64, relative: 1e-15, absolute: 1e-323, underflow: 1e-305 },
    Near { dtype: DType::F32, relative: 5e-7, absolute: 3e-45, underflow: 1e-36 },
    Near { dtype: DType::F16, relative: 1.0 / 1024.0, absolute: 6e-8, underflow: 0.0 },
    Near { dtype: DType::BF16, relative: 1.0 / 128.0, absolute: 1e-40, underflow: 1e-36 },
];

impl Near {
    /// Reports results that differ from PyTorch's. Infinities and NaN must be at the same positions; gradients that are NaN in PyTorch are
    /// ignored.
    #[track_caller]
    fn compare(&self, name: &str, operands: &[&Tensor], have: &Tensor, want: &Tensor, wrong: &mut Vec<String>) {
        assert_eq!(have.shape().unwrap(), want.shape().unwrap(), "{name}: shapes");
        let is_grad = name.starts_with("gradient of");
        let relative = if is_grad { 2.0 } else { 1.0 } * self.relative;
        let mut absolute = self.absolute;
        if AROUND_ONE.contains(&name) {
            absolute += 2.0 * relative;
        }
        if UNDERFLOWING.contains(&name) {
            absolute += self.underflow;
        }
        let (have, want) = (super::values(have), super::values(want));
        let operands: Vec<Vec<f64>> = operands.iter().map(|operand| super::values(operand)).collect();
        for (i, (have, want)) in have.iter().zip(&want).enumerate() {
            let close = if want.is_nan() { is_grad || have.is_nan() } else { have == want }
                || (have - want).abs() <= relative * want.abs() + absolute;
            if !close {
                let of: Vec<f64> = operands.iter().filter_map(|operand| operand.get(i).copied()).collect();
                wrong.push(format!("{name} of {} {of:?} is {have:e}, expected {want:e}", self.dtype));
            }
        }
    }

    fn edges(&self, wrong: &mut Vec<String>) {
        let (fixture, dtype) = (Fixture::new(include_bytes!("../../fixtures/edges.safetensors")), self.dtype);
        let get = |name: &str| fixture.get(&format!("{dtype}/{name}"));
        for (ops, input) in [(UNARY, "x"), (MODERATE, "moderate"), (ROWS, "rows")] {
            let x = get(input);
            for (name, op) in ops {
                let y = op(&x);
                self.compare(name, &[&x], &y, &get(name), wrong);
                if let Some(want) = fixture.tensor(&format!("{dtype}/{name}/grad")) {
                    let grad = y.sum(..).gradients(&[&x]).unwrap().remove(0);
                    self.compare(&format!("gradient of {name}"), &[&x], &grad, &want, wrong);
                }
            }
        }
        let some = get("few");
        let count = some.shape().unwrap().numel();
        let square = [count, count];
        let (left, right) = (some.unsqueeze(1).broadcast_to(square), some.unsqueeze(0).broadcast_to(square));
        for (name, op) in BINARY {
            self.compare(name, &[&left, &right], &op(&left, &right), &get(name), wrong);
        }
    }
}

#[test]
fn edge_values_agree_with_pytorch() {
    for device in devices(true) {
        let mut wrong = Vec::new();
        // OpenCL compilers are slow.
        let all = device.to_string() == "cpu" || super::is_full();
        let types = TYPES.iter().filter(|near| all || near.dtype == DType::F32);
        device.scope(|| types.for_each(|near| near.edges(&mut wrong)));
        assert!(wrong.is_empty(), "{} differ on {device}:\n{}", wrong.len(), wrong.join("\n"));
    }
}

#[test]
fn empty_tensors_and_tensors_with_one_element() {
    for device in devices(true) {
        device.scope(|| {
            let nothing = Tensor::zeros([0, 3], DType::F32);
            for op in [Tensor::exp, Tensor::relu, |x: &Tensor| x.softmax(-1), |x: &Tensor| x.layer_norm(1e-5)] {
                assert_eq!(op(&nothing).to_vec::<f32>().unwrap(), [0f32; 0]);
            }
            assert_eq!(nothing.sum(..).item::<f64>().unwrap(), 0.0);
            assert_eq!(nothing.sum(0).to_vec::<f32>().unwrap(), [0.0; 3]);
            assert_eq!(nothing.prod(0).to_vec::<f32>().unwrap(), [1.0; 3]);
            assert!(nothing.mean(..).item::<f64>().unwrap().is_nan());
            assert_eq!(nothing.sort(0, SortOrder::Ascending).to_vec::<f32>().unwrap(), [0f32; 0]);
            assert_eq!(nothing.matmul(&Tensor::ones([3, 2], DType::F32)).to_vec::<f32>().unwrap(), [0f32; 0]);
            let one = Tensor::from_slice(&[2.5f32], [1, 1, 1]);
            for (name, value, want) in [
                ("softmax", one.softmax(-1), 1.0),
                ("cumsum", one.cumsum(0), 2.5),
                ("sort", one.sort(-1, SortOrder::Descending), 2.5),
                ("layer_norm", one.layer_norm(1e-5), 0.0),
                ("conv", one.conv(&one, &ConvOptions::<1>::default()), 6.25),
                ("max_pool", one.max_pool(&Window::new([1])), 2.5),
                ("resize", one.interpolate([1], InterpolateMode::Nearest), 2.5),
                ("median", one.median(0), 2.5),
            ] {
                assert_eq!(value.item::<f64>().unwrap(), want, "{name} of one element on {device}");
            }
            assert!(one.var(.., 1).item::<f64>().unwrap().is_nan(), "the variance of one element is undefined");
            // Values that are stored nowhere, or into an empty tensor, have a zero gradient.
            let (square, row) = (Tensor::ones([2, 3], DType::F32), Tensor::from_slice(&[1f32, 2.0, 3.0], [3]));
            let nowhere = Tensor::zeros([0], DType::I32);
            for (x, at) in [(&square, &nowhere), (&square.narrow(0, 0, 0), &Tensor::arange(2))] {
                for put in [ScatterReduce::Add, ScatterReduce::Assign] {
                    let grads = x.index_put(&[at], &row, put).sum(..).gradients(&[x, &row]).unwrap();
                    assert_eq!(grads[0].to_vec::<f32>().unwrap(), vec![1.0; x.shape().unwrap().numel()]);
                    assert_eq!(grads[1].to_vec::<f32>().unwrap(), [0.0; 3]);
                }
            }
            close("tile to nothing", &one.tile([0]).sum(..), &Tensor::from_slice(&[0f32], []), 0.0);
        });
    }
}
