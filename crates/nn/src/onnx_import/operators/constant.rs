//! Constants and tensors that are computed from shapes.

use panoply_tensor::{DType, Error, Result, Tensor};

use super::super::graph::Value;
use super::{Operands, Operator, Results, lengths, numel};

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    ("Constant", &["value", "value_float", "value_floats", "value_int", "value_ints"], constant),
    ("ConstantOfShape", &["value"], constant_of_shape),
    ("EyeLike", &["dtype", "k"], eye_like),
    ("Range", &[], range),
    ("Shape", &["end", "start"], shape),
    ("Size", &[], |o| Ok(Value::from_integers(&[o.x(0)?.numel()? as i64], &[], DType::I64).into())),
];

fn constant(o: &Operands<'_>) -> Result<Results> {
    for (name, attribute) in o.attributes {
        let integers = |values: &[i64], dims: &[usize]| Ok(Value::from_integers(values, dims, DType::I64).into());
        match (name.as_str(), &attribute.tensor) {
            ("value", Some(value)) => return Ok(value.clone().into()),
            ("value_float", _) => return Ok(Tensor::from_slice(&[attribute.float], []).into()),
            ("value_floats", _) => {
                return Ok(Tensor::from_slice(&attribute.floats, [attribute.floats.len()]).into());
            }
            ("value_int", _) => return integers(&[attribute.int], &[]),
            ("value_ints", _) => return integers(&attribute.ints, &[attribute.ints.len()]),
            _ => {}
        }
    }
    Err(Error::unsupported("only constants of numbers and tensors are supported"))
}

fn constant_of_shape(o: &Operands<'_>) -> Result<Results> {
    let dims = lengths(&o.numbers(0)?)?;
    let count = numel(&dims)?;
    let Some(value) = o.attributes.get("value").and_then(|attribute| attribute.tensor.as_ref()) else {
        return Ok(Tensor::zeros(dims, DType::F32).into());
    };
    match value.ints.as_deref() {
        Some(&[number]) if count <= super::super::graph::MAX_HOST_INTEGERS => {
            Ok(Value::from_integers(&vec![number; count], &dims, value.tensor.dtype()).into())
        }
        _ => Ok(value.tensor.reshape(()).broadcast_to(dims).into()),
    }
}

/// Returns ones on the diagonal that lies `k` to the right of the main one, in the shape of the operand.
fn eye_like(o: &Operands<'_>) -> Result<Results> {
    let [rows, columns] = o.x(0)?.dims::<2>()?;
    let k = i32::try_from(o.int("k", 0)).map_err(|_| Error::corrupt("the diagonal k is too large"))?;
    let dtype = o.dtype("dtype")?.unwrap_or(o.x(0)?.dtype());
    let diagonal = (Tensor::arange(rows) + k).unsqueeze(1);
    Ok(diagonal.eq(Tensor::arange(columns).unsqueeze(0)).cast(dtype).into())
}

/// Returns start, start + step, … up to but not including the limit.
fn range(o: &Operands<'_>) -> Result<Results> {
    let [start, limit, step] = [o.reals(0)?, o.reals(1)?, o.reals(2)?];
    let ([start], [limit], [step]) = (&start[..], &limit[..], &step[..]) else {
        return Err(Error::corrupt("the limits of a range are not single numbers"));
    };
    let count = ((limit - start) / step).ceil();
    if !count.is_finite() || count > f64::from(i32::MAX) {
        return Err(Error::corrupt(format!(
            "a range from {start} to {limit} in steps of {step} is infinite or too long"
        )));
    }
    let (first, by) = (o.x(0)?.reshape(()), o.x(2)?.reshape(()));
    Ok((Tensor::arange(count.max(0.0) as usize).cast(first.dtype()) * by + first).into())
}

/// Returns the lengths from axis `start` to axis `end`, without the last.
fn shape(o: &Operands<'_>) -> Result<Results> {
    let dims: Vec<i64> = o.dims(0)?.iter().map(|length| *length as i64).collect();
    let rank = dims.len() as i64;
    let place = |at: i64| (if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank) as usize;
    let (start, end) = (place(o.int("start", 0)), place(o.int("end", rank)));
    let part = dims.get(start..end).unwrap_or_default();
    Ok(Value::from_integers(part, &[part.len()], DType::I64).into())
}
