//! Reductions and cumulative operators.

use panoply_tensor::{DType, KeepDim, Result, Tensor};

use super::{Operands, Operator, Results, axes_of, axis_of, in_f32, scalar, shaped};

/// Attributes of all reductions.
const REDUCE: &[&str] = &["axes", "keepdims", "noop_with_empty_axes"];
/// Attributes of `ArgMax` and `ArgMin`.
const ARG: &[&str] = &["axis", "keepdims", "select_last_index"];
/// Attributes of cumulative operators.
const SCAN: &[&str] = &["exclusive", "reverse"];

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    ("ArgMax", ARG, |o| arg(o, |x, axis| x.argmax(axis))),
    ("ArgMin", ARG, |o| arg(o, |x, axis| x.argmin(axis))),
    ("CumProd", SCAN, |o| scan(o, Tensor::cumprod, 1.0)),
    ("CumSum", SCAN, |o| scan(o, Tensor::cumsum, 0.0)),
    ("ReduceL1", REDUCE, |o| reduce(o, |x, axes| x.abs().sum(KeepDim(axes)))),
    ("ReduceL2", REDUCE, |o| reduce(o, |x, axes| in_f32(x, |x| x.square().sum(KeepDim(axes)).sqrt()))),
    ("ReduceLogSum", REDUCE, |o| reduce(o, |x, axes| in_f32(x, |x| x.sum(KeepDim(axes)).log()))),
    ("ReduceLogSumExp", REDUCE, |o| reduce(o, log_sum_exp)),
    ("ReduceMax", REDUCE, |o| reduce(o, |x, axes| extreme(x, axes, true))),
    ("ReduceMean", REDUCE, |o| reduce(o, |x, axes| x.mean(KeepDim(axes)))),
    ("ReduceMin", REDUCE, |o| reduce(o, |x, axes| extreme(x, axes, false))),
    ("ReduceProd", REDUCE, |o| reduce(o, |x, axes| x.prod(KeepDim(axes)))),
    ("ReduceSum", REDUCE, |o| reduce(o, |x, axes| x.sum(KeepDim(axes)))),
    ("ReduceSumSquare", REDUCE, |o| reduce(o, |x, axes| x.square().sum(KeepDim(axes)))),
];

/// Reduces over axes that are an attribute or, in later opsets, an operand; over all axes if there are none.
fn reduce(o: &Operands<'_>, f: impl Fn(&Tensor, &[isize]) -> Tensor) -> Result<Results> {
    let (x, mut dims) = (o.x(0)?, o.dims(0)?);
    let given = o.ints("axes", 1)?.unwrap_or_default();
    let axes = match given.is_empty() {
        true if o.flag("noop_with_empty_axes", false) => Vec::new(),
        true => (0..dims.len()).collect(),
        false => axes_of(&given, dims.len())?,
    };
    let reduced = f(x, &axes.iter().map(|axis| *axis as isize).collect::<Vec<isize>>());
    if o.flag("keepdims", true) {
        return Ok(reduced.into());
    }
    let mut axis = 0;
    dims.retain(|_| {
        axis += 1;
        !axes.contains(&(axis - 1))
    });
    Ok(shaped(&reduced, &dims).into())
}

/// Returns true if one of these axes has no elements.
fn is_empty_over(x: &Tensor, axes: &[isize]) -> bool {
    x.shape().is_ok_and(|shape| axes.iter().any(|axis| shape.dims()[*axis as usize] == 0))
}

/// Returns a tensor of this value whose shape is that of a reduction.
fn reduced_to(x: &Tensor, axes: &[isize], value: f64) -> Tensor {
    let Ok(shape) = x.shape() else { return x.clone() };
    let mut dims = shape.dims().to_vec();
    axes.iter().for_each(|axis| dims[*axis as usize] = 1);
    scalar(value, x.dtype()).broadcast_to(dims)
}

/// Returns extremes; those of no elements are the bounds of the element type.
fn extreme(x: &Tensor, axes: &[isize], is_max: bool) -> Tensor {
    if is_empty_over(x, axes) {
        return reduced_to(x, axes, if is_max { lowest(x.dtype()) } else { highest(x.dtype()) });
    }
    if is_max { x.max(KeepDim(axes)) } else { x.min(KeepDim(axes)) }
}

fn log_sum_exp(x: &Tensor, axes: &[isize]) -> Tensor {
    if axes.is_empty() {
        return x.clone();
    }
    if is_empty_over(x, axes) { reduced_to(x, axes, f64::NEG_INFINITY) } else { x.logsumexp(KeepDim(axes)) }
}

/// Returns the smallest value of an element type.
pub fn lowest(dtype: DType) -> f64 {
    match dtype {
        DType::I8 => i8::MIN.into(),
        DType::I16 => i16::MIN.into(),
        DType::I32 => i32::MIN.into(),
        DType::I64 => i64::MIN as f64,
        DType::Bool | DType::U8 | DType::U16 | DType::U32 | DType::U64 => 0.0,
        _ => f64::NEG_INFINITY,
    }
}

/// Returns the largest value of an element type.
pub fn highest(dtype: DType) -> f64 {
    match dtype {
        DType::Bool => 1.0,
        DType::I8 => i8::MAX.into(),
        DType::I16 => i16::MAX.into(),
        DType::I32 => i32::MAX.into(),
        DType::I64 => i64::MAX as f64,
        DType::U8 => u8::MAX.into(),
        DType::U16 => u16::MAX.into(),
        DType::U32 => u32::MAX.into(),
        DType::U64 => u64::MAX as f64,
        _ => f64::INFINITY,
    }
}

/// Returns the positions of extremes along an axis as i64.
fn arg(o: &Operands<'_>, f: impl Fn(&Tensor, KeepDim<isize>) -> Tensor) -> Result<Results> {
    let (x, axis) = (o.x(0)?, o.axis(0)?);
    let at = axis as isize;
    let found = match o.flag("select_last_index", false) {
        false => f(x, KeepDim(at)).cast(DType::I64),
        true => {
            let last = o.dims(0)?[axis].saturating_sub(1);
            f(&x.flip(at), KeepDim(at)).cast(DType::I64).rsub(last)
        }
    };
    Ok(if o.flag("keepdims", true) { found } else { found.squeeze(at) }.into())
}

/// Accumulates along the axis that operand 1 names; `identity` is the first result of an exclusive scan.
fn scan(o: &Operands<'_>, f: impl Fn(&Tensor, isize) -> Tensor, identity: f64) -> Result<Results> {
    let (x, dims) = (o.x(0)?, o.dims(0)?);
    let axis = axis_of(o.number(1)?.unwrap_or(0), dims.len())?;
    let (at, is_reverse) = (axis as isize, o.flag("reverse", false));
    let x = if is_reverse { x.flip(at) } else { x.clone() };
    let mut sums = f(&x, at);
    if o.flag("exclusive", false) && dims[axis] > 0 {
        let mut first = dims.clone();
        first[axis] = 1;
        let first = scalar(identity, x.dtype()).broadcast_to(first);
        sums = Tensor::concat([first, sums.narrow(at, 0, dims[axis] - 1)], at);
    }
    Ok(if is_reverse { sums.flip(at) } else { sums }.into())
}
