//! Every operation on operands of every form – stored, lazy, constant, expanded, reversed, sliced, transposed –, at sizes on both sides of
//! the thresholds of scheduling and lowering, compared with the f64 graph interpreter.
//!
//! `PANOPLY_TEST_FULL=1` draws more forms of each operation and tests every threshold.

use std::collections::BTreeSet;

use panoply_compile::{lower, schedule};
use panoply_ir::{DType, Shape};
use panoply_tensor::conformance::oracle::both;
use panoply_tensor::conformance::row::weighted;
use panoply_tensor::conformance::{Outcome, Row, Worst, rows};
use panoply_tensor::{ConvOptions, Device, Result, ScatterReduce, SortOrder, Tensor};

use super::{numbers, set};

/// Form of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Stored,
    Lazy,
    Reversed,
    Sliced,
    Transposed,
    /// A constant of the program.
    Constant,
    /// A scalar argument of the launch.
    Scalar,
    /// The first element of an axis, or of the tensor, broadcast.
    Expanded,
}

const FORMS: [Form; 8] = [
    Form::Stored,
    Form::Lazy,
    Form::Reversed,
    Form::Sliced,
    Form::Transposed,
    Form::Constant,
    Form::Scalar,
    Form::Expanded,
];

impl Form {
    /// Returns true if the form keeps the values of the row's operand.
    fn keeps_values(self) -> bool {
        match self {
            Form::Stored | Form::Lazy | Form::Reversed | Form::Sliced | Form::Transposed => true,
            Form::Constant | Form::Scalar | Form::Expanded => false,
        }
    }

    /// Returns these values in this form. For the last three forms, the first element of an axis, or of the tensor, is repeated.
    fn of(self, stored: &Tensor, axis: usize) -> Tensor {
        let (shape, dims) = (stored.shape().unwrap().clone(), stored.shape().unwrap().dims().to_vec());
        let (along, length) = (axis as isize, dims.get(axis).copied().unwrap_or(1));
        // Evaluated tensors are memory from then on.
        let memory = |tensor: Tensor| {
            tensor.eval().unwrap();
            tensor.detach()
        };
        match self {
            Form::Stored => memory(stored.clone()),
            Form::Lazy => -(-memory(stored.clone())),
            _ if dims.is_empty() || shape.numel() == 0 => memory(stored.clone()),
            Form::Reversed => memory(stored.flip(along)).flip(along),
            Form::Sliced => {
                let mut widths = vec![(0, 0); dims.len()];
                widths[axis] = (1, 2);
                memory(stored.pad(&widths)).narrow(along, 1, length)
            }
            Form::Transposed => memory(stored.movedim(along, 0)).movedim(0, along),
            Form::Constant => match stored.dtype() {
                DType::I32 => Tensor::full(shape, stored.to_vec::<i32>().unwrap()[0]),
                // A half-integer, which becomes part of the program. It is positive where only positive numbers are valid.
                _ => Tensor::full(shape, (stored.to_vec::<f32>().unwrap()[0] * 2.0).ceil() / 2.0),
            },
            Form::Scalar => stored.scalar_like(first(stored)).broadcast_to(&shape),
            Form::Expanded => memory(stored.narrow(along, 0, 1)).broadcast_to(&shape),
        }
    }
}

fn first(tensor: &Tensor) -> f64 {
    tensor.reshape([-1]).narrow(0, 0, 1).item::<f64>().unwrap()
}

/// Compares an operation on these operands, and its gradient, on the current device with the oracle.
fn outcome(
    name: String,
    limit: f64,
    differentiable: bool,
    inputs: &[Tensor],
    op: &dyn Fn(&[Tensor]) -> Tensor,
) -> Outcome {
    let measure = || -> Result<Worst> {
        let (have, want) = both(&[&op(inputs)])?;
        let value = Worst::relative(&have, &want)?;
        if !differentiable || value.error > limit {
            return Ok(value);
        }
        let wanted: Vec<&Tensor> = inputs.iter().filter(|input| input.dtype().is_float()).collect();
        let gradients = weighted(&op(inputs))?.gradients(&wanted)?;
        let (have, want) = both(&gradients.iter().collect::<Vec<&Tensor>>())?;
        let gradient = Worst::relative(&have, &want)?;
        Ok(Worst { error: gradient.error / 4.0, place: format!("of the gradient: {}", gradient.place) })
    };
    Outcome { name, unit: "relative to the largest element", limit, worst: measure() }
}

/// Error limits of rows that round more when all elements of an operand are equal, relative to the largest result.
const UNIFORM_LIMITS: [(&str, f64); 2] = [
    // Partial sums of equal numbers round in the same direction: 1033 sums of up to half an ulp each.
    ("cumsum of many columns", 1033.0 / (1 << 24) as f64),
    // The result is zero. The rounding error of the mean, up to 2 ulp of 1, is divided by the square root of epsilon, 1e-5.
    ("group_norm", 2.0 / (1 << 23) as f64 * 317.0),
];

/// Returns the error limit of a row whose operands have these forms.
fn limit_of(row: &Row, forms: &[Form]) -> f64 {
    let uniform = UNIFORM_LIMITS.iter().find(|(name, _)| *name == row.name);
    match uniform {
        Some((_, limit)) if forms.iter().any(|form| !form.keeps_values()) => *limit,
        _ => row.tolerance,
    }
}

/// Row whose result is not unique when elements of its operand are equal: rounding errors decide on the pivots of a singular matrix.
const NOT_UNIQUE: &str = "order of lu";

/// Draws a form for each operand; only forms that keep its values unless `uniform`.
fn forms_of(row: &Row, number: &mut impl FnMut(usize) -> usize, uniform: bool) -> Vec<Form> {
    let one = |_| loop {
        let form = FORMS[number(FORMS.len())];
        if form.keeps_values() || (uniform && row.name != NOT_UNIQUE) {
            return form;
        }
    };
    row.inputs.iter().map(one).collect()
}

#[test]
fn every_operation_accepts_operands_of_every_form() {
    let rounds = if set("PANOPLY_TEST_FULL") { 24 } else { 2 };
    let mut number = numbers(21);
    let device = Device::get("cpu").unwrap();
    let mut wrong = Vec::new();
    for row in rows() {
        for round in 0..rounds {
            let forms = forms_of(row, &mut number, round % 2 == 1);
            device.scope(|| {
                let stored = row.tensors(DType::F32);
                let axes: Vec<usize> = stored.iter().map(|x| number(x.shape().unwrap().ndim().max(1))).collect();
                let inputs: Vec<Tensor> = (0..stored.len()).map(|at| forms[at].of(&stored[at], axes[at])).collect();
                let name = format!("{} of {forms:?} along {axes:?}", row.name);
                let outcome = outcome(name, limit_of(row, &forms), row.differentiable, &inputs, &row.op);
                if !outcome.passed() {
                    wrong.push(format!("{} {outcome}", outcome.name));
                }
            });
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

/// An operation with a size parameter, and its operands.
type Sized = (&'static str, fn(usize) -> Vec<(Vec<usize>, bool)>, fn(&[Tensor], usize) -> Tensor);

/// Shape of a float operand.
fn f(shape: &[usize]) -> (Vec<usize>, bool) {
    (shape.to_vec(), false)
}

/// Shape of an index operand.
fn p(shape: &[usize]) -> (Vec<usize>, bool) {
    (shape.to_vec(), true)
}

const SIZED: &[Sized] = &[
    ("sum of rows", |n| vec![f(&[3, n]), f(&[3, n])], |x, _| (&x[0] * &x[1]).sum(1)),
    ("sum of columns", |n| vec![f(&[n, 3])], |x, _| x[0].sum(0)),
    ("sum over many columns", |n| vec![f(&[9, n])], |x, _| x[0].sum(0)),
    ("max of rows", |n| vec![f(&[2, n])], |x, _| x[0].max(1)),
    ("cumsum", |n| vec![f(&[2, n])], |x, _| x[0].cumsum(1) * (1.0 / 64.0)),
    ("cumsum of columns", |n| vec![f(&[n, 2])], |x, _| x[0].cumsum(0) * (1.0 / 64.0)),
    ("softmax", |n| vec![f(&[2, n])], |x, _| x[0].softmax(1)),
    ("transposed", |n| vec![f(&[n, 17]), f(&[17, n])], |x, _| x[0].t() + &x[1]),
    ("matmul of many columns", |n| vec![f(&[2, 3]), f(&[3, n])], |x, _| x[0].matmul(&x[1])),
    ("matmul of long rows", |n| vec![f(&[2, n]), f(&[n, 3])], |x, _| x[0].matmul(&x[1])),
    ("index_select", |n| vec![f(&[5, n]), p(&[2, 3])], |x, _| x[0].index_select(0, &x[1])),
    ("index_select of many", |n| vec![f(&[6, 3]), p(&[n])], |x, _| x[0].index_select(0, &x[1])),
    ("index_add", |n| vec![f(&[5, n]), p(&[2, 3]), f(&[2, 3, n])], |x, _| x[0].index_add(0, &x[1], &x[2])),
    (
        "index_add along the last axis",
        |n| vec![f(&[n, 5]), p(&[7]), f(&[n, 7])],
        |x, _| x[0].index_add(1, &x[1], &x[2]),
    ),
    (
        "index_add of many rows",
        |n| vec![f(&[6, 33]), p(&[n]), f(&[n, 33])],
        |x, _| x[0].index_add(0, &x[1], &x[2]) * (1.0 / 64.0),
    ),
    (
        "index_add of many rows of few columns",
        |n| vec![f(&[6, 2]), p(&[n]), f(&[n, 2])],
        |x, _| x[0].index_add(0, &x[1], &x[2]) * (1.0 / 64.0),
    ),
    (
        "index_put",
        |n| vec![f(&[4, n]), p(&[9]), f(&[9, n])],
        |x, _| x[0].index_put(&[&x[1]], &x[2], ScatterReduce::Assign),
    ),
    (
        "index_put that adds",
        |n| vec![f(&[4, 5, n]), p(&[9]), p(&[9]), f(&[9, n])],
        |x, _| x[0].index_put(&[&x[1], &x[2]], &x[3], ScatterReduce::Add),
    ),
    ("take_along_dim", |n| vec![f(&[n, 6]), p(&[n, 2])], |x, _| x[0].take_along_dim(&x[1], 1)),
    ("scatter", |n| vec![f(&[n, 6]), p(&[n, 3]), f(&[n, 3])], |x, _| x[0].scatter(1, &x[1], &x[2], ScatterReduce::Add)),
    ("bincount", |n| vec![p(&[n])], |x, _| x[0].bincount(5)),
    ("slice_scatter", |n| vec![f(&[6, n]), f(&[2, n])], |x, _| x[0].slice_scatter(&x[1], 0, &Tensor::scalar(3i32))),
    ("concat", |n| vec![f(&[2, n]), f(&[1, n])], |x, _| Tensor::concat([&x[0], &x[1], &x[0]], 0)),
    ("concat of rows", |n| vec![f(&[n, 2]), f(&[3, 2])], |x, _| Tensor::concat([&x[0], &x[1]], 0)),
    ("sort", |n| vec![f(&[2, n])], |x, _| x[0].sort(1, SortOrder::Ascending)),
    (
        "conv of many places",
        |n| vec![f(&[1, 2, n]), f(&[3, 2, 1])],
        |x, _| x[0].conv(&x[1], &ConvOptions::<1>::default()),
    ),
    (
        "conv of many channels",
        |n| vec![f(&[1, n, 5]), f(&[2, n, 3])],
        |x, _| x[0].conv(&x[1], &ConvOptions::<1>::default()),
    ),
    (
        "attention of many keys",
        |n| vec![f(&[1, 3, 4]), f(&[1, n, 4]), f(&[1, n, 2])],
        |x, _| x[0].scaled_dot_product_attention(&x[1], &x[2], &Default::default()),
    ),
    ("layer_norm", |n| vec![f(&[3, n]), f(&[3, n])], |x, _| (&x[0] * 0.5 + x[1].square()).layer_norm(0.5)),
];

/// Returns sizes on both sides of every threshold, up to the largest that the oracle evaluates in acceptable time.
fn sizes(style: panoply_ir::target::Style, most: usize) -> Vec<usize> {
    let all = [schedule::thresholds(style), lower::thresholds(style)].concat();
    let around: BTreeSet<usize> = all.into_iter().flat_map(|(_, size)| [size - 1, size, size + 1]).collect();
    around.into_iter().filter(|size| (1..=most).contains(size)).collect()
}

#[test]
fn operations_are_right_on_both_sides_of_every_threshold() {
    let full = set("PANOPLY_TEST_FULL");
    let device = Device::get("cpu").unwrap();
    let sizes = sizes(device.target().style, if full { 1 << 16 } else { 1 << 14 });
    let mut number = numbers(5);
    let mut wrong = Vec::new();
    for (name, operands, op) in SIZED {
        for _ in 0..if full { 40 } else { 8 } {
            let size = sizes[number(sizes.len())];
            let mut forms = Vec::new();
            device.scope(|| {
                let inputs: Vec<Tensor> = operands(size)
                    .into_iter()
                    .map(|(shape, positions)| {
                        let elems: usize = shape.iter().product();
                        // Multiples of 1/8, whose sums are exact.
                        let stored = match positions {
                            true => Tensor::from_slice(
                                &(0..elems).map(|_| number(7) as i32 - 1).collect::<Vec<i32>>(),
                                Shape::from(&shape[..]),
                            ),
                            false => Tensor::from_slice(
                                &(0..elems).map(|_| number(33) as f32 / 8.0 - 2.0).collect::<Vec<f32>>(),
                                Shape::from(&shape[..]),
                            ),
                        };
                        let (form, axis) = (FORMS[number(FORMS.len())], number(shape.len()));
                        forms.push(form);
                        form.of(&stored, axis)
                    })
                    .collect();
                let floats = inputs.iter().any(|input| input.dtype().is_float());
                let name = format!("{name} of size {size} of {forms:?}");
                let outcome = outcome(name, 2e-5, floats, &inputs, &|x| op(x, size));
                if !outcome.passed() {
                    wrong.push(format!("{} {outcome}", outcome.name));
                }
            });
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

/// n equal indices add n rows to one row, in every type and math mode.
#[test]
fn uniform_rows_at_equal_indices_are_all_added() {
    for name in ["cpu", "cpu:checked"] {
        Device::get(name).unwrap().scope(|| {
            let table = Tensor::from_slice(&[1f32; 128], [2, 64]);
            let stored = Tensor::from_slice(&[0i32], [1]);
            let places = [
                Tensor::zeros([4, 5], DType::I32),
                Tensor::zeros([4, 5], DType::I64),
                Tensor::scalar(0i32).broadcast_to([4, 5]),
                stored.broadcast_to([4, 5]),
            ];
            for ids in &places {
                let gradient = table.index_select(0, ids).sum(..).gradients(&[&table]).unwrap().remove(0);
                let want: Vec<f32> = (0..128).map(|at| if at < 64 { 20.0 } else { 0.0 }).collect();
                assert_eq!(gradient.to_vec::<f32>().unwrap(), want, "{ids:?} on {name}");
            }
            for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64, DType::I32, DType::I64, DType::U8] {
                let (zeros, rows) = (Tensor::zeros([2, 64], dtype), Tensor::ones([7, 64], dtype));
                let sum = zeros.index_add(0, &Tensor::full([7], 1i32), &rows).cast(DType::F32);
                assert_eq!(sum.to_vec::<f32>().unwrap(), [[0.0f32; 64], [7.0; 64]].concat(), "{dtype} on {name}");
                let turned = Tensor::zeros([64, 2], dtype);
                let rows = Tensor::ones([64, 7], dtype);
                let sum = turned.index_add(1, &Tensor::full([7], 1i32), &rows).cast(DType::F32);
                assert_eq!(sum.to_vec::<f32>().unwrap(), [0.0f32, 7.0].repeat(64), "{dtype} on {name}");
                let put = zeros.index_put(&[&Tensor::full([7], 0i32)], &Tensor::ones([64], dtype), ScatterReduce::Add);
                let put = put.cast(DType::F32).to_vec::<f32>().unwrap();
                assert_eq!(put, [[7.0f32; 64], [0.0; 64]].concat(), "{dtype} on {name}");
            }
        });
    }
}
