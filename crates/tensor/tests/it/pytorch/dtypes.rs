//! The cases in types that `ops.safetensors` does not have: f64, f16 and bf16 with gradients, integers and bools. Also integer arithmetic
//! at the limits, and casts between all types. `fixtures/dtypes.py` documents the origin of the expected values.

use panoply_tensor::{DType, Device, Tensor};

use super::cases::{CASES, weighted};
use super::{Fixture, devices, values};

/// Maximum number of elements of an array that the fixture keeps.
const KEPT: usize = 16;

/// Tolerances of results and of gradients, relative to the largest number of an array or to 1. For f16 and bf16 they are two and four times
/// the pure rounding error (2^-11 and 2^-8): operations accumulate in f32, and composite operations round after each step, or once.
/// PyTorch's own half-precision results deviate by up to 1.5 rounding errors here, its gradients by four.
const FLOATS: [(DType, [f64; 2]); 3] =
    [(DType::F64, [1e-14, 1e-13]), (DType::F16, [1e-3, 2e-3]), (DType::BF16, [8e-3, 16e-3])];

/// Case with a larger tolerance in f64: an error in `erf`'s last place near 1 is amplified two million times in the inverse.
const LOOSER: (&str, [f64; 2]) = ("erfinv at ends", [1e-10; 2]);

const INTEGERS: [DType; 8] =
    [DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64];

type OfTwo = (&'static str, fn(&Tensor, &Tensor) -> Tensor);
type OfOne = (&'static str, fn(&Tensor) -> Tensor);

const PAIRS: &[OfTwo] = &[
    ("add", |x, y| x + y),
    ("sub", |x, y| x - y),
    ("mul", |x, y| x * y),
    ("div", |x, y| x / y),
    ("rem", |x, y| x % y),
    ("minimum", |x, y| x.minimum(y)),
    ("maximum", |x, y| x.maximum(y)),
    ("and", |x, y| x.bitwise_and(y)),
    ("or", |x, y| x.bitwise_or(y)),
    ("xor", |x, y| x.bitwise_xor(y)),
    ("shl", |x, y| x.bitwise_left_shift(y)),
    ("shr", |x, y| x.bitwise_right_shift(y)),
    ("lt", |x, y| x.lt(y)),
    ("le", |x, y| x.le(y)),
    ("eq", |x, y| x.eq(y)),
    ("ne", |x, y| x.ne(y)),
];

const ALONE: &[OfOne] = &[("neg", |x| -x), ("not", Tensor::bitwise_not), ("abs", Tensor::abs), ("sign", Tensor::sign)];

/// Returns every `step`-th element, on the CPU.
fn every(step: usize, tensor: &Tensor) -> Tensor {
    let (bytes, dtype) = (tensor.to_bytes().unwrap(), tensor.dtype());
    let bytes: Vec<u8> = bytes.chunks(dtype.bytes()).step_by(step).flatten().copied().collect();
    let shape = [bytes.len() / dtype.bytes()];
    Device::get("cpu").unwrap().scope(|| Tensor::from_bytes(&bytes, shape, dtype))
}

/// Returns the elements that the fixture keeps.
fn kept(tensor: &Tensor) -> Tensor {
    every(tensor.shape().unwrap().numel().div_ceil(KEPT).max(1), tensor)
}

/// Requires equal bits, except that any NaN equals any other.
fn equal(what: &str, have: &Tensor, want: &Tensor, wrong: &mut Vec<String>) {
    let (have, want) = (every(1, have), every(1, want));
    let bytes = |x: &Tensor| x.where_self(&x.eq(x), &x.ones_like()).to_bytes().unwrap();
    let nans = |x: &Tensor| x.is_nan().to_bytes().unwrap();
    if have.dtype() != want.dtype() || bytes(&have) != bytes(&want) || nans(&have) != nans(&want) {
        wrong.push(format!("{what}: {} {have}, expected {} {want}", have.dtype(), want.dtype()));
    }
}

/// Compares results and gradients with the fixture, which holds them concatenated.
fn close(what: &str, have: &[Tensor], want: &[f64], tolerance: [f64; 2], wrong: &mut Vec<String>) {
    let have: Vec<Vec<f64>> = have.iter().map(|part| values(&kept(part))).collect();
    let all: usize = have.iter().map(Vec::len).sum();
    if all != want.len() {
        return wrong.push(format!("{what}: {all} elements, expected {}", want.len()));
    }
    let mut at = 0;
    for (part, have) in have.iter().enumerate() {
        let want = &want[at..at + have.len()];
        at += have.len();
        let scale = want.iter().filter(|x| x.is_finite()).fold(1.0f64, |top, x| top.max(x.abs()));
        let limit = tolerance[part.min(1)] * scale;
        let same =
            |have: f64, want: f64| (have.is_nan() && want.is_nan()) || have == want || (have - want).abs() <= limit;
        if let Some(i) = (0..have.len()).find(|i| !same(have[*i], want[*i])) {
            let (have, want) = (have[i], want[i]);
            let off = (have - want).abs() / scale;
            wrong.push(format!("{what}, part {part}: element {i} is {have}, expected {want}: error {off:.1e}"));
        }
    }
}

/// Returns the inputs of a case in another type, and the positions of those that are differentiated.
fn inputs(ops: &Fixture, name: &str, dtype: impl Fn(usize, &Tensor) -> Tensor) -> (Vec<Tensor>, Vec<usize>) {
    let given = (0..).map_while(|i| ops.tensor(&format!("{name}/in/{i}"))).enumerate();
    let given: Vec<Tensor> = given.map(|(i, x)| if x.dtype().is_float() { dtype(i, &x) } else { x }).collect();
    let wanted = (0..given.len()).filter(|i| ops.tensor(&format!("{name}/grad/{i}")).is_some()).collect();
    (given, wanted)
}

fn fixtures() -> [Fixture<'static>; 2] {
    [
        Fixture::new(include_bytes!("../../fixtures/ops.safetensors")),
        Fixture::new(include_bytes!("../../fixtures/dtypes.safetensors")),
    ]
}

fn verdict(wrong: Vec<String>, compared: usize, least: usize) {
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared >= least, "{compared} were compared");
}

#[test]
fn floats_of_every_width_agree_with_pytorch() {
    let ([ops, dtypes], mut wrong, mut compared) = (fixtures(), Vec::new(), 0);
    for device in devices(false) {
        device.scope(|| {
            for (name, op) in CASES {
                for (dtype, tolerance) in FLOATS {
                    let what = format!("{name} of {dtype} on {device}");
                    let (given, places) = inputs(&ops, name, |_, x| x.cast(dtype));
                    let out = op(&given);
                    if out.check().is_err() {
                        // Transforms and factorizations exist in f32 and f64; `docs/ops.md` lists the types of all operations.
                        if dtype == DType::F64 {
                            wrong.push(format!("{what}: {out}"));
                        }
                        continue;
                    }
                    if let Some(want) = dtypes.tensor(&format!("{dtype}/{name}/at")) {
                        equal(&what, &kept(&out.cast(DType::I32)), &want, &mut wrong);
                        compared += 1;
                        continue;
                    }
                    let Some(want) = dtypes.tensor(&format!("{dtype}/{name}")) else { continue };
                    let wanted: Vec<&Tensor> = places.iter().map(|i| &given[*i]).collect();
                    let grads = if wanted.is_empty() { Vec::new() } else { weighted(&out).gradients(&wanted).unwrap() };
                    let made: Vec<Tensor> = std::iter::once(out).chain(grads).collect();
                    made.iter().for_each(|made| assert_eq!(made.dtype(), dtype, "{what}"));
                    let looser = dtype == DType::F64 && *name == LOOSER.0;
                    close(&what, &made, &values(&want), if looser { LOOSER.1 } else { tolerance }, &mut wrong);
                    compared += 1;
                }
            }
        });
    }
    verdict(wrong, compared, 680);
}

/// Returns values from a type's pool for the i-th input of this shape.
fn taken(pool: &Tensor, i: usize, like: &Tensor) -> Tensor {
    let (bytes, dtype, shape) = (pool.to_bytes().unwrap(), pool.dtype(), like.shape().unwrap());
    let size = dtype.bytes();
    let begin = 61 * i * size;
    let bytes: Vec<u8> = bytes.iter().cycle().skip(begin).take(shape.numel() * size).copied().collect();
    Tensor::from_bytes(&bytes, shape.clone(), dtype)
}

#[test]
fn integers_and_bools_agree_with_pytorch() {
    let ([ops, dtypes], mut wrong, mut compared) = (fixtures(), Vec::new(), 0);
    for device in devices(false) {
        device.scope(|| {
            for dtype in INTEGERS.into_iter().chain([DType::Bool]) {
                let pool = dtypes.get(&format!("{dtype}/pool"));
                for (name, op) in CASES {
                    let (at, plain) = (format!("{dtype}/{name}/at"), format!("{dtype}/{name}"));
                    let (want, is_position) = match dtypes.tensor(&at) {
                        Some(want) => (want, true),
                        None => match dtypes.tensor(&plain) {
                            Some(want) => (want, false),
                            None => continue,
                        },
                    };
                    let out = op(&inputs(&ops, name, |i, x| taken(&pool, i, x)).0);
                    let what = format!("{name} of {dtype} on {device}");
                    if out.check().is_err() {
                        wrong.push(format!("{what}: {out}"));
                        continue;
                    }
                    let out = if is_position { out.cast(DType::I32) } else { out };
                    equal(&what, &kept(&out), &want, &mut wrong);
                    compared += 1;
                }
            }
        });
    }
    verdict(wrong, compared, 800);
}

#[test]
fn integer_arithmetic_wraps() {
    let ([_, dtypes], mut wrong) = (fixtures(), Vec::new());
    for device in devices(false) {
        device.scope(|| {
            for dtype in INTEGERS {
                let x = dtypes.get(&format!("{dtype}/ends"));
                let [count] = x.dims().unwrap();
                let square = [count, count];
                let (left, right) = (x.unsqueeze(1).broadcast_to(square), x.unsqueeze(0).broadcast_to(square));
                let pairs = PAIRS.iter().map(|(name, op)| (name, op(&left, &right)));
                for (name, have) in pairs.chain(ALONE.iter().map(|(name, op)| (name, op(&x)))) {
                    let want = dtypes.get(&format!("{dtype}/alu/{name}"));
                    equal(&format!("{name} of {dtype} on {device}"), &have, &want, &mut wrong);
                }
            }
        });
    }
    verdict(wrong, 1, 1);
}

#[test]
fn casts_saturate_and_wrap() {
    let ([_, dtypes], mut wrong) = (fixtures(), Vec::new());
    for device in devices(false) {
        device.scope(|| {
            for from in DType::ALL {
                let x = dtypes.get(&format!("{from}/cast"));
                for to in DType::ALL.into_iter().filter(|to| *to != from) {
                    // PyTorch converts f64 to f16 or bf16 via f32, which rounds twice.
                    let twice = from == DType::F64 && matches!(to, DType::F16 | DType::BF16);
                    let have = if twice { x.cast(DType::F32).cast(to) } else { x.cast(to) };
                    let want = dtypes.get(&format!("{from}/cast/{to}"));
                    equal(&format!("{from} as {to} on {device}"), &have, &want, &mut wrong);
                }
            }
        });
    }
    verdict(wrong, 1, 1);
}
