//! NaN, infinities, signed zeros, denormals, huge and tiny numbers; nothing and one element.

use panoply_tensor::{Conv, DType, Order, Tensor, Window};

use super::{Fixture, close, devices};

type Unary = (&'static str, fn(&Tensor) -> Tensor);
type Binary = (&'static str, fn(&Tensor, &Tensor) -> Tensor);

const UNARY: &[Unary] = &[
    ("unary/exp", Tensor::exp),
    ("unary/exp2", Tensor::exp2),
    ("unary/expm1", Tensor::expm1),
    ("unary/log", Tensor::ln),
    ("unary/log2", Tensor::log2),
    ("unary/log1p", Tensor::log1p),
    ("unary/sqrt", Tensor::sqrt),
    ("unary/rsqrt", Tensor::rsqrt),
    ("unary/reciprocal", Tensor::recip),
    ("unary/tanh", Tensor::tanh),
    ("unary/erf", Tensor::erf),
    ("unary/atan", Tensor::atan),
    ("unary/abs", Tensor::abs),
    ("unary/neg", |x| -x),
    ("unary/floor", Tensor::floor),
    ("unary/ceil", Tensor::ceil),
    ("unary/round", Tensor::round),
    ("unary/trunc", Tensor::trunc),
    ("unary/sign", Tensor::sign),
    ("unary/square", Tensor::square),
    ("unary/sinh", Tensor::sinh),
    ("unary/cosh", Tensor::cosh),
    ("unary/asin", Tensor::asin),
    ("unary/acos", Tensor::acos),
    ("unary/asinh", Tensor::asinh),
    ("unary/acosh", Tensor::acosh),
    ("unary/atanh", Tensor::atanh),
    ("unary/log10", Tensor::log10),
    ("unary/relu", Tensor::relu),
    ("unary/silu", Tensor::silu),
    ("moderate/gelu", Tensor::gelu),
    ("unary/softplus", Tensor::softplus),
    ("unary/logsigmoid", Tensor::log_sigmoid),
    ("unary/elu", Tensor::elu),
    ("moderate/sin", Tensor::sin),
    ("moderate/cos", Tensor::cos),
    ("moderate/tan", Tensor::tan),
    ("rows/softmax", |x| x.softmax(-1)),
    ("rows/log_softmax", |x| x.log_softmax(-1)),
    ("rows/amax", |x| x.max(1)),
    ("rows/amin", |x| x.min(1)),
    ("rows/sum", |x| x.sum(1)),
    ("rows/prod", |x| x.prod(1)),
    ("rows/cummax", |x| x.cummax(1)),
    ("rows/cumsum", |x| x.cumsum(1)),
    ("rows/argmax", |x| x.argmax(1)),
    ("rows/argsort", |x| x.argsort(1, Order::Ascending)),
    ("rows/sort", |x| x.sort(1, Order::Ascending)),
];

const BINARY: &[Binary] = &[
    ("binary/add", |x, y| x + y),
    ("binary/sub", |x, y| x - y),
    ("binary/mul", |x, y| x * y),
    ("binary/div", |x, y| x / y),
    ("binary/maximum", Tensor::maximum),
    ("binary/minimum", Tensor::minimum),
    ("binary/fmod", |x, y| x % y),
];

/// Equal up to a relative error of 4 ulp, or of a few of the smallest denormals; infinities and NaN at the same places.
#[track_caller]
fn same(what: &str, operands: &[&Tensor], have: &Tensor, want: &Tensor, wrong: &mut Vec<String>) {
    assert_eq!(have.shape().unwrap(), want.shape().unwrap(), "{what}: shapes");
    let (have, want) = (super::values(have), super::values(want));
    let operands: Vec<Vec<f64>> = operands.iter().map(|operand| super::values(operand)).collect();
    for (i, (have, want)) in have.iter().zip(&want).enumerate() {
        let close =
            (have.is_nan() && want.is_nan()) || have == want || (have - want).abs() <= 5e-7 * want.abs() + 3e-45;
        if !close {
            let of: Vec<f64> = operands.iter().filter_map(|operand| operand.get(i).copied()).collect();
            wrong.push(format!("{what} of {of:?} is {have}, not {want}"));
        }
    }
}

#[test]
fn edges_are_pytorchs() {
    let fixture = Fixture::new(include_bytes!("../fixtures/edges.safetensors"));
    let mut wrong = Vec::new();
    for device in devices(true) {
        device.scope(|| {
            for (name, op) in UNARY {
                let input = fixture.get(match name.split('/').next() {
                    Some("unary") => "x",
                    Some("moderate") => "moderate",
                    _ => "rows",
                });
                same(&format!("{name} on {device}"), &[&input], &op(&input), &fixture.get(name), &mut wrong);
            }
            let x = fixture.get("x");
            let count = x.dims::<1>().unwrap()[0];
            let square = [count, count].into();
            let (left, right) = (x.unsqueeze(1).expand_to(&square), x.unsqueeze(0).expand_to(&square));
            for (name, op) in BINARY {
                let operands = [&left, &right];
                same(&format!("{name} on {device}"), &operands, &op(&left, &right), &fixture.get(name), &mut wrong);
            }
            let sums = fixture.get("rows").narrow(0, 1, 9).logsumexp(1);
            same(&format!("logsumexp on {device}"), &[], &sums, &fixture.get("rows/logsumexp"), &mut wrong);
        });
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn nothing_and_one_element() {
    for device in devices(true) {
        device.scope(|| {
            let nothing = Tensor::zeros([0, 3], DType::F32);
            for op in [Tensor::exp, Tensor::relu, |x: &Tensor| x.softmax(-1), |x: &Tensor| x.layer_norm(1e-5)] {
                assert_eq!(op(&nothing).to_vec::<f32>().unwrap(), [0f32; 0]);
            }
            assert_eq!(nothing.sum(..).item().unwrap(), 0.0);
            assert_eq!(nothing.sum(0).to_vec::<f32>().unwrap(), [0.0; 3]);
            assert_eq!(nothing.prod(0).to_vec::<f32>().unwrap(), [1.0; 3]);
            assert!(nothing.mean(..).item().unwrap().is_nan());
            assert_eq!(nothing.sort(0, Order::Ascending).to_vec::<f32>().unwrap(), [0f32; 0]);
            assert_eq!(nothing.matmul(&Tensor::ones([3, 2], DType::F32)).to_vec::<f32>().unwrap(), [0f32; 0]);
            let one = Tensor::from_slice(&[2.5f32], [1, 1, 1]);
            for (name, value, want) in [
                ("softmax", one.softmax(-1), 1.0),
                ("cumsum", one.cumsum(0), 2.5),
                ("sort", one.sort(-1, Order::Descending), 2.5),
                ("layer_norm", one.layer_norm(1e-5), 0.0),
                ("conv", one.conv(&one, &Conv::<1>::default()), 6.25),
                ("max_pool", one.max_pool(&Window::new([1]), [0]), 2.5),
                ("resize", one.resize_nearest([1]), 2.5),
                ("median", one.median(0), 2.5),
            ] {
                assert_eq!(value.item().unwrap(), want, "{name} of one element on {device}");
            }
            assert!(one.var(.., 1).item().unwrap().is_nan(), "no estimate from one element");
            close("tile to nothing", &one.tile(0, 1).sum(..), &Tensor::from_slice(&[0f32], []), 0.0);
        });
    }
}
