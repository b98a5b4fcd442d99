//! Integer arithmetic on the host: exporters compute shapes with operators, and shapes must be known when the network is traced.
//!
//! An operator is computed here if all its operands are few integers on the host. Everything else is left to the operator's rule.

use panoply_tensor::{DType, Shape};

use super::graph::{MAX_HOST_INTEGERS, Value};
use super::operators::Operands;

/// An array of integers.
struct Array {
    dims: Vec<usize>,
    values: Vec<i64>,
}

impl Array {
    fn of(value: &Value) -> Option<Array> {
        Some(Array { dims: value.tensor.shape().ok()?.dims().to_vec(), values: value.ints.as_deref()?.to_vec() })
    }

    /// Returns the element of this array at a position of an array to which it is broadcast.
    fn at(&self, mut position: usize, dims: &[usize]) -> i64 {
        let (mut index, mut stride) = (0, 1);
        for (axis, length) in dims.iter().enumerate().rev() {
            let along = position % length;
            position /= length;
            if let Some(own) = (axis + self.dims.len()).checked_sub(dims.len()) {
                index += if self.dims[own] == 1 { 0 } else { along * stride };
                stride *= self.dims[own];
            }
        }
        self.values[index]
    }
}

/// Computes an operator whose operands are integers on the host; `None` if it is left to the operator's rule.
pub fn integers(operator: &str, o: &Operands<'_>) -> Option<Value> {
    let operands: Vec<Array> = o.values.iter().map(|value| Array::of((*value)?)).collect::<Option<_>>()?;
    let dtype = o.values.first().copied().flatten()?.tensor.dtype();
    let (array, dtype) = match (operator, &operands[..]) {
        ("Add", [a, b]) => (combine(a, b, i64::checked_add)?, dtype),
        ("Sub", [a, b]) => (combine(a, b, i64::checked_sub)?, dtype),
        ("Mul", [a, b]) => (combine(a, b, i64::checked_mul)?, dtype),
        ("Div", [a, b]) => (combine(a, b, i64::checked_div)?, dtype),
        ("Mod", [a, b]) => (combine(a, b, modulo(o.int("fmod", 0) != 0))?, dtype),
        ("Max", [a, b]) => (combine(a, b, |a, b| Some(a.max(b)))?, dtype),
        ("Min", [a, b]) => (combine(a, b, |a, b| Some(a.min(b)))?, dtype),
        ("Equal", [a, b]) => (combine(a, b, |a, b| Some((a == b).into()))?, DType::Bool),
        ("Greater", [a, b]) => (combine(a, b, |a, b| Some((a > b).into()))?, DType::Bool),
        ("Less", [a, b]) => (combine(a, b, |a, b| Some((a < b).into()))?, DType::Bool),
        ("And", [a, b]) => (combine(a, b, |a, b| Some(a & b))?, DType::Bool),
        ("Or", [a, b]) => (combine(a, b, |a, b| Some(a | b))?, DType::Bool),
        ("Not", [a]) => (map(a, |a| Some(i64::from(a == 0)))?, DType::Bool),
        ("Neg", [a]) => (map(a, i64::checked_neg)?, dtype),
        ("Abs", [a]) => (map(a, i64::checked_abs)?, dtype),
        ("Cast", [a]) => cast(a, super::dtype(o.int("to", 0)).ok()?)?,
        ("Concat", arrays) if arrays.iter().all(|array| array.dims.len() == 1) => {
            let values: Vec<i64> = arrays.iter().flat_map(|array| &array.values).copied().collect();
            (Array { dims: vec![values.len()], values }, dtype)
        }
        ("Gather", [a, at]) if o.int("axis", 0) == 0 && a.dims.len() == 1 => {
            let length = a.values.len() as i64;
            let pick = |at: i64| a.values.get(usize::try_from(if at < 0 { at + length } else { at }).ok()?).copied();
            (map(at, pick)?, dtype)
        }
        ("Where", [condition, a, b]) => {
            let dims = broadcast(&broadcast(&condition.dims, &a.dims)?, &b.dims)?;
            let pick = |at| if condition.at(at, &dims) != 0 { a.at(at, &dims) } else { b.at(at, &dims) };
            let values = (0..Shape::from(&dims[..]).numel()).map(pick).collect();
            (Array { dims, values }, o.x(1).ok()?.dtype())
        }
        ("Expand", [a, shape]) => {
            let wanted: Vec<usize> =
                shape.values.iter().map(|length| usize::try_from(*length).ok()).collect::<Option<_>>()?;
            let dims = broadcast(&a.dims, &wanted)?;
            let values = (0..Shape::from(&dims[..]).numel()).map(|at| a.at(at, &dims)).collect();
            (Array { dims, values }, dtype)
        }
        ("Range", [start, limit, step]) => range(start, limit, step).map(|array| (array, dtype))?,
        ("ReduceProd" | "ReduceSum" | "ReduceMax" | "ReduceMin", [a, ..])
            if operands.len() == 1 && a.dims.len() == 1 =>
        {
            (reduce(operator, a, o.int("keepdims", 1) != 0)?, dtype)
        }
        // These change the shape only, or select elements; the rule of the operator computes their shape.
        ("Reshape" | "Squeeze" | "Unsqueeze" | "Identity" | "Flatten", [a, ..]) => {
            let shaped = super::operators::find(operator)?.0(o).ok()?.0.into_iter().next()??;
            return Some(Value { ints: Some(a.values.as_slice().into()), ..shaped });
        }
        ("Slice", [a, ..]) if a.dims.len() == 1 => {
            let range = super::operators::slice_ranges(o).ok()?.into_iter().next()?;
            let values: Vec<i64> = range.positions().map(|at| a.values.get(at).copied()).collect::<Option<_>>()?;
            (Array { dims: vec![values.len()], values }, dtype)
        }
        _ => return None,
    };
    let fits = array.values.len() <= MAX_HOST_INTEGERS && matches!(dtype, DType::I64 | DType::I32 | DType::Bool);
    let in_range = dtype != DType::I32 || array.values.iter().all(|value| i32::try_from(*value).is_ok());
    (fits && in_range).then(|| Value::from_integers(&array.values, &array.dims, dtype))
}

/// Returns the broadcast shape, if it is small.
fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let shape = Shape::from(a).broadcast(&Shape::from(b)).ok()?;
    (shape.numel() <= MAX_HOST_INTEGERS).then(|| shape.dims().to_vec())
}

fn combine(a: &Array, b: &Array, f: impl Fn(i64, i64) -> Option<i64>) -> Option<Array> {
    let dims = broadcast(&a.dims, &b.dims)?;
    let count = Shape::from(&dims[..]).numel();
    let values = (0..count).map(|at| f(a.at(at, &dims), b.at(at, &dims))).collect::<Option<_>>()?;
    Some(Array { dims, values })
}

fn map(a: &Array, f: impl Fn(i64) -> Option<i64>) -> Option<Array> {
    Some(Array { dims: a.dims.clone(), values: a.values.iter().map(|value| f(*value)).collect::<Option<_>>()? })
}

/// Returns the remainder: with the sign of the dividend for `fmod`, else with that of the divisor.
fn modulo(fmod: bool) -> impl Fn(i64, i64) -> Option<i64> {
    move |a, b| {
        let rest = a.checked_rem(b)?;
        Some(if !fmod && rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
    }
}

fn cast(a: &Array, to: DType) -> Option<(Array, DType)> {
    let array = match to {
        DType::Bool => map(a, |value| Some((value != 0).into()))?,
        DType::I32 => map(a, |value| i32::try_from(value).ok().map(i64::from))?,
        DType::I64 => map(a, Some)?,
        _ => return None,
    };
    Some((array, to))
}

fn range(start: &Array, limit: &Array, step: &Array) -> Option<Array> {
    let [&[start], &[limit], &[step]] = [start, limit, step].map(|array| &array.values[..]) else { return None };
    let (distance, stride) = (limit.checked_sub(start)?.checked_mul(step.signum())?, step.checked_abs()?);
    let count = distance.checked_sub(1)?.checked_div_euclid(stride)?.checked_add(1)?;
    let count = usize::try_from(count.max(0)).ok().filter(|count| *count <= MAX_HOST_INTEGERS)?;
    let values: Vec<i64> = (0..count as i64).map(|n| start.checked_add(n.checked_mul(step)?)).collect::<Option<_>>()?;
    Some(Array { dims: vec![values.len()], values })
}

fn reduce(operator: &str, a: &Array, keepdims: bool) -> Option<Array> {
    let mut values = a.values.iter().copied();
    let result = match operator {
        "ReduceProd" => values.try_fold(1i64, i64::checked_mul)?,
        "ReduceSum" => values.try_fold(0i64, i64::checked_add)?,
        "ReduceMax" => values.max()?,
        _ => values.min()?,
    };
    Some(Array { dims: if keepdims { vec![1] } else { Vec::new() }, values: vec![result] })
}
