//! Element-wise operators with broadcasting.

use panoply_tensor::{DType, Error, Result, Tensor};

use super::{Operands, Operator, Results, scalar, unsupported};

/// Attributes of operators with two operands in opset 6.
const BROADCAST: &[&str] = &["axis", "broadcast"];

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    ("Abs", &[], |o| o.map(|x| if is_unsigned(x.dtype()) { x.clone() } else { x.abs() })),
    ("Acos", &[], |o| o.map(Tensor::acos)),
    ("Acosh", &[], |o| o.map(Tensor::acosh)),
    ("Add", BROADCAST, |o| o.zip(|a, b| a + b)),
    ("And", BROADCAST, |o| o.zip(|a, b| a & b)),
    ("Asin", &[], |o| o.map(Tensor::asin)),
    ("Asinh", &[], |o| o.map(Tensor::asinh)),
    ("Atan", &[], |o| o.map(Tensor::atan)),
    ("Atanh", &[], |o| o.map(Tensor::atanh)),
    ("BitShift", &["direction"], bit_shift),
    ("BitwiseAnd", &[], |o| o.zip(|a, b| a & b)),
    ("BitwiseNot", &[], |o| o.map(Tensor::bitwise_not)),
    ("BitwiseOr", &[], |o| o.zip(|a, b| a | b)),
    ("BitwiseXor", &[], |o| o.zip(|a, b| a ^ b)),
    ("Ceil", &[], |o| o.map(Tensor::ceil)),
    ("Clip", &["max", "min"], clip),
    ("Cos", &[], |o| o.map(Tensor::cos)),
    ("Cosh", &[], |o| o.map(Tensor::cosh)),
    ("Div", BROADCAST, |o| o.zip(|a, b| a / b)),
    ("Equal", BROADCAST, |o| o.zip(|a, b| a.eq(b))),
    ("Erf", &[], |o| o.map(Tensor::erf)),
    ("Exp", &[], |o| o.map(Tensor::exp)),
    ("Floor", &[], |o| o.map(Tensor::floor)),
    ("Greater", BROADCAST, |o| o.zip(|a, b| a.gt(b))),
    ("GreaterOrEqual", &[], |o| o.zip(|a, b| a.ge(b))),
    ("IsInf", &["detect_negative", "detect_positive"], is_inf),
    ("IsNaN", &[], |o| o.map(Tensor::is_nan)),
    ("Less", BROADCAST, |o| o.zip(|a, b| a.lt(b))),
    ("LessOrEqual", &[], |o| o.zip(|a, b| a.le(b))),
    ("Log", &[], |o| o.map(Tensor::log)),
    ("Max", &[], |o| combine(o, |a, b| a.maximum(b))),
    ("Mean", &[], |o| {
        let sum = combined(o, |a, b| a + b)?;
        Ok((&sum / scalar(o.values.len() as f64, sum.dtype())).into())
    }),
    ("Min", &[], |o| combine(o, |a, b| a.minimum(b))),
    ("Mod", &["fmod"], |o| {
        let is_c = o.flag("fmod", false);
        o.zip(|a, b| if is_c { a % b } else { a.remainder(b) })
    }),
    ("Mul", BROADCAST, |o| o.zip(|a, b| a * b)),
    ("Neg", &[], |o| o.map(|x| -x)),
    ("Not", &[], |o| o.map(Tensor::bitwise_not)),
    ("Or", BROADCAST, |o| o.zip(|a, b| a | b)),
    ("Pow", BROADCAST, |o| o.zip(pow)),
    ("Reciprocal", &[], |o| o.map(Tensor::reciprocal)),
    ("Round", &[], |o| o.map(Tensor::round)),
    ("Sign", &[], |o| o.map(sign)),
    ("Sin", &[], |o| o.map(Tensor::sin)),
    ("Sinh", &[], |o| o.map(Tensor::sinh)),
    ("Sqrt", &[], |o| o.map(Tensor::sqrt)),
    ("Sub", BROADCAST, |o| o.zip(|a, b| a - b)),
    ("Sum", &[], |o| combine(o, |a, b| a + b)),
    ("Tan", &[], |o| o.map(Tensor::tan)),
    ("Tanh", &[], |o| o.map(Tensor::tanh)),
    ("Where", &[], |o| Ok(o.x(1)?.where_self(o.x(0)?, o.x(2)?).into())),
    ("Xor", BROADCAST, |o| o.zip(|a, b| a ^ b)),
];

fn is_unsigned(dtype: DType) -> bool {
    matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::Bool)
}

fn sign(x: &Tensor) -> Tensor {
    let zero = x.zeros_like();
    let positive = x.gt(&zero).cast(x.dtype());
    if is_unsigned(x.dtype()) { positive } else { positive - x.lt(&zero).cast(x.dtype()) }
}

/// Shifts unsigned integers; a shift by all bits or more gives 0.
fn bit_shift(o: &Operands<'_>) -> Result<Results> {
    let (x, by) = (o.x(0)?, o.x(1)?);
    let shifted = match o.text("direction", "") {
        "LEFT" => x << by,
        "RIGHT" => x >> by,
        other => return Err(Error::corrupt(format!("the direction `{other}` is neither LEFT nor RIGHT"))),
    };
    let inside = by.lt(&scalar(x.dtype().bits() as f64, by.dtype()));
    Ok(shifted.where_self(&inside, shifted.zeros_like()).into())
}

/// Clips a tensor to bounds that are operands or, before opset 11, attributes.
fn clip(o: &Operands<'_>) -> Result<Results> {
    let x = o.x(0)?;
    let bound = |name: &str, n: usize| match o.attributes.get(name) {
        Some(attribute) => Some(scalar(attribute.float.into(), x.dtype())),
        None => o.optional(n).cloned(),
    };
    let low = bound("min", 1).map_or_else(|| x.clone(), |low| x.maximum(&low));
    Ok(bound("max", 2).map_or_else(|| low.clone(), |high| low.minimum(&high)).into())
}

fn is_inf(o: &Operands<'_>) -> Result<Results> {
    let (x, infinity) = (o.x(0)?, f64::INFINITY);
    let equals = |value: f64| x.eq(scalar(value, x.dtype()));
    Ok(match (o.flag("detect_positive", true), o.flag("detect_negative", true)) {
        (true, true) => x.is_inf(),
        (true, false) => equals(infinity),
        (false, true) => equals(-infinity),
        (false, false) => x.ne(x) & false,
    }
    .into())
}

fn combined(o: &Operands<'_>, combine: fn(&Tensor, &Tensor) -> Tensor) -> Result<Tensor> {
    let operands = o.all()?;
    let (first, rest) = operands.split_first().ok_or_else(|| Error::corrupt("it has no operands"))?;
    Ok(rest.iter().fold((*first).clone(), |result, operand| combine(&result, operand)))
}

fn combine(o: &Operands<'_>, f: fn(&Tensor, &Tensor) -> Tensor) -> Result<Results> {
    Ok(combined(o, f)?.into())
}

/// Returns powers in the element type of the base. Integers are computed in f64, which is exact up to 2⁵³.
fn pow(base: &Tensor, exponent: &Tensor) -> Tensor {
    match base.dtype() {
        dtype if dtype == exponent.dtype() && dtype.is_float() => base.pow(exponent),
        dtype if dtype.is_float() && exponent.dtype().is_int() => base.pow(exponent.cast(dtype)),
        dtype if dtype.is_float() => base.cast(DType::F64).pow(exponent.cast(DType::F64)).cast(dtype),
        dtype if dtype.is_int() => {
            let power = base.cast(DType::F64).pow(exponent.cast(DType::F64));
            // Powers of integers are integers; those of fractional exponents are truncated.
            if exponent.dtype().is_int() { power.round().cast(dtype) } else { power.cast(dtype) }
        }
        _ => Tensor::from_mistake(unsupported("a power of bools")),
    }
}
