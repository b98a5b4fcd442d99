//! Supported ONNX operators: each is one expression of tensor methods.

use std::collections::BTreeMap;

use panoply_tensor::{Error, Result, Shape, Tensor};

use super::{Attribute, Value};

/// A function that computes the first result of an operator.
pub type Rule = fn(&Operands<'_>) -> Result<Value>;

/// Operands and attributes of a node.
pub struct Operands<'a> {
    /// Operands; `None` if omitted.
    pub values: Vec<Option<&'a Value>>,
    /// Attributes.
    pub attributes: &'a BTreeMap<String, Attribute>,
    /// Opset version.
    pub opset: i64,
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Value {
        Value { tensor, ints: None }
    }
}

impl<'a> Operands<'a> {
    fn value(&self, n: usize) -> Result<&'a Value> {
        self.values.get(n).copied().flatten().ok_or_else(|| Error::corrupt(format!("operand {n} is missing")))
    }

    /// Returns the n-th operand.
    fn x(&self, n: usize) -> Result<&'a Tensor> {
        Ok(&self.value(n)?.tensor)
    }

    fn optional(&self, n: usize) -> Option<&'a Tensor> {
        Some(&self.values.get(n).copied().flatten()?.tensor)
    }

    /// Returns all operands.
    fn all(&self) -> Result<Vec<&'a Tensor>> {
        (0..self.values.len()).map(|n| self.x(n)).collect()
    }

    fn int(&self, name: &str, default: i64) -> i64 {
        self.attributes.get(name).map_or(default, |attribute| attribute.int)
    }

    fn float(&self, name: &str, default: f64) -> f64 {
        self.attributes.get(name).map_or(default, |attribute| f64::from(attribute.float))
    }

    /// Returns the integers of an attribute or, in later opsets, of the n-th operand; `None` if both are absent.
    fn ints(&self, name: &str, n: usize) -> Result<Option<&'a [i64]>> {
        if let Some(attribute) = self.attributes.get(name) {
            return Ok(Some(&attribute.ints));
        }
        let computed = || {
            Error::unsupported(format!("operand {n} ({name}) is computed by the model; only constants are supported"))
        };
        let value = self.values.get(n).copied().flatten();
        value.map(|value| value.ints.as_deref().ok_or_else(computed)).transpose()
    }

    fn axis(&self, default: i64) -> isize {
        self.int("axis", default) as isize
    }

    /// Returns the axis of a softmax, which before opset 13 includes all later axes.
    fn softmax_axis(&self) -> Result<isize> {
        let (rank, axis) = (self.x(0)?.shape()?.ndim() as isize, self.axis(if self.opset < 13 { 1 } else { -1 }));
        if self.opset < 13 && axis != -1 && axis != rank - 1 {
            return Err(Error::unsupported("a softmax over several axes is not supported"));
        }
        Ok(axis)
    }
}

/// Returns the rule of an operator, and the names of the attributes that it supports.
pub fn find(name: &str) -> Option<(Rule, &'static [&'static str])> {
    RULES.iter().find(|(known, ..)| *known == name).map(|(_, attributes, rule)| (*rule, *attributes))
}

/// Default attributes of `Selu`.
const SELU_ALPHA: f64 = 1.673_263_192_176_818_8;
const SELU_GAMMA: f64 = 1.050_701_022_148_132_3;

/// Name, attributes and rule of each operator.
const RULES: &[(&str, &[&str], Rule)] = &[
    ("Abs", &[], |o| Ok(o.x(0)?.abs().into())),
    ("Add", &[], |o| Ok((o.x(0)? + o.x(1)?).into())),
    ("BatchNormalization", &["epsilon", "momentum", "spatial", "training_mode"], |o| {
        if o.int("spatial", 1) != 1 {
            return Err(Error::unsupported("statistics of each element (spatial = 0) are not supported"));
        }
        if o.int("training_mode", 0) != 0 {
            return Err(Error::unsupported("the training mode is not supported; export the model in evaluation mode"));
        }
        let (x, epsilon) = (o.x(0)?, o.float("epsilon", f64::from(1e-5f32)));
        let normal = x.batch_norm(o.x(3)?, o.x(4)?, epsilon);
        Ok((normal * o.x(1)?.unsqueeze_like_channels(x) + o.x(2)?.unsqueeze_like_channels(x)).into())
    }),
    ("Cast", &["saturate", "to"], |o| {
        Ok(o.x(0)?.cast(super::dtype(o.int("to", 0)).map_err(Error::unsupported)?).into())
    }),
    ("Clip", &["max", "min"], |o| Ok(clip(o)?.into())),
    ("Concat", &["axis"], |o| Ok(Tensor::concat(o.all()?, o.axis(0)).into())),
    ("Constant", &["value", "value_float", "value_floats", "value_int", "value_ints"], constant),
    ("Div", &[], |o| Ok((o.x(0)? / o.x(1)?).into())),
    ("Dropout", &["ratio", "seed"], |o| {
        if let Some(is_training) = o.optional(2)
            && is_training.to_vec::<bool>()? != [false]
        {
            return Err(Error::unsupported("the training mode is not supported; export the model in evaluation mode"));
        }
        o.value(0).cloned()
    }),
    ("Elu", &["alpha"], |o| Ok(elu(o.x(0)?, o.float("alpha", 1.0)).into())),
    ("Erf", &[], |o| Ok(o.x(0)?.erf().into())),
    ("Exp", &[], |o| Ok(o.x(0)?.exp().into())),
    ("Flatten", &["axis"], |o| Ok(flatten(o.x(0)?, o.int("axis", 1))?.into())),
    ("Gemm", &["alpha", "beta", "transA", "transB"], |o| Ok(gemm(o)?.into())),
    ("Identity", &[], |o| o.value(0).cloned()),
    ("LeakyRelu", &["alpha"], |o| Ok(o.x(0)?.leaky_relu(o.float("alpha", f64::from(0.01f32))).into())),
    ("Log", &[], |o| Ok(o.x(0)?.log().into())),
    ("LogSoftmax", &["axis"], |o| Ok(o.x(0)?.log_softmax(o.softmax_axis()?).into())),
    ("MatMul", &[], |o| Ok(o.x(0)?.matmul(o.x(1)?).into())),
    ("Max", &[], |o| Ok(combined(o, |a, b| a.maximum(b))?.into())),
    ("Min", &[], |o| Ok(combined(o, |a, b| a.minimum(b))?.into())),
    ("Mul", &[], |o| Ok((o.x(0)? * o.x(1)?).into())),
    ("Neg", &[], |o| Ok((-o.x(0)?).into())),
    ("Relu", &[], |o| Ok(o.x(0)?.relu().into())),
    ("Reshape", &["allowzero"], |o| Ok(reshape(o)?.into())),
    ("Selu", &["alpha", "gamma"], |o| {
        let (x, is_standard) = (o.x(0)?, o.attributes.is_empty());
        let [alpha, gamma] = [o.float("alpha", SELU_ALPHA), o.float("gamma", SELU_GAMMA)];
        Ok(if is_standard { x.selu() } else { elu(x, alpha) * gamma }.into())
    }),
    ("Sigmoid", &[], |o| Ok(o.x(0)?.sigmoid().into())),
    ("Softmax", &["axis"], |o| Ok(o.x(0)?.softmax(o.softmax_axis()?).into())),
    ("Softplus", &[], |o| Ok(o.x(0)?.softplus().into())),
    ("Softsign", &[], |o| Ok(o.x(0)?.softsign().into())),
    ("Sqrt", &[], |o| Ok(o.x(0)?.sqrt().into())),
    ("Squeeze", &["axes"], |o| {
        let x = o.x(0)?;
        let dims = x.shape()?.dims().to_vec();
        let ones = || (0..dims.len() as i64).filter(|axis| dims[*axis as usize] == 1).collect();
        let axes = o.ints("axes", 1)?.map_or_else(ones, <[i64]>::to_vec);
        Ok(descending(&axes, dims.len())?.iter().fold(x.clone(), |x, axis| x.squeeze(*axis)).into())
    }),
    ("Sub", &[], |o| Ok((o.x(0)? - o.x(1)?).into())),
    ("Tanh", &[], |o| Ok(o.x(0)?.tanh().into())),
    ("Transpose", &["perm"], |o| Ok(transpose(o)?.into())),
    ("Unsqueeze", &["axes"], |o| {
        let x = o.x(0)?;
        let axes = o.ints("axes", 1)?.unwrap_or_default();
        let axes = descending(axes, x.shape()?.ndim() + axes.len())?;
        Ok(axes.iter().rev().fold(x.clone(), |x, axis| x.unsqueeze(*axis)).into())
    }),
];

/// Returns x where it is positive, and alpha · (exp(x) − 1) elsewhere.
fn elu(x: &Tensor, alpha: f64) -> Tensor {
    let below = x.elu();
    if alpha == 1.0 { below } else { x.where_self(&x.gt(&x.zeros_like()), &(below * alpha)) }
}

/// Returns non-negative axes in descending order.
fn descending(axes: &[i64], rank: usize) -> Result<Vec<isize>> {
    let from_front = |axis: &i64| if *axis < 0 { *axis + rank as i64 } else { *axis };
    let mut axes: Vec<isize> = axes.iter().map(|axis| from_front(axis) as isize).collect();
    axes.sort_unstable_by(|a, b| b.cmp(a));
    match axes.iter().all(|axis| (0..rank as isize).contains(axis)) && axes.is_sorted_by(|a, b| a > b) {
        true => Ok(axes),
        false => Err(Error::corrupt(format!("axes {axes:?} are not distinct axes of a tensor with {rank}"))),
    }
}

fn constant(o: &Operands<'_>) -> Result<Value> {
    let scalar = |value: Tensor| Ok(value.into());
    for (name, attribute) in o.attributes {
        match (name.as_str(), &attribute.tensor) {
            ("value", Some(value)) => return Ok(value.clone()),
            ("value_float", _) => return scalar(Tensor::from_slice(&[attribute.float], [])),
            ("value_floats", _) => return scalar(Tensor::from_slice(&attribute.floats, [attribute.floats.len()])),
            ("value_int", _) => return Ok(integers(&[attribute.int], &[])),
            ("value_ints", _) => return Ok(integers(&attribute.ints, &[attribute.ints.len()])),
            _ => {}
        }
    }
    Err(Error::unsupported("only constants of numbers and tensors are supported"))
}

fn integers(values: &[i64], dims: &[usize]) -> Value {
    Value { tensor: Tensor::from_slice(values, dims), ints: Some(values.into()) }
}

/// Clips a tensor to bounds that are operands or, before opset 11, attributes.
fn clip(o: &Operands<'_>) -> Result<Tensor> {
    let bound = |name: &str, n: usize| match o.attributes.get(name) {
        Some(attribute) => Some(Tensor::from_slice(&[attribute.float], [])),
        None => o.optional(n).cloned(),
    };
    let low = bound("min", 1).map_or_else(|| o.x(0).cloned(), |low| Ok(o.x(0)?.maximum(&low)))?;
    Ok(bound("max", 2).map_or_else(|| low.clone(), |high| low.minimum(&high)))
}

fn combined(o: &Operands<'_>, combine: fn(&Tensor, &Tensor) -> Tensor) -> Result<Tensor> {
    let operands = o.all()?;
    let (first, rest) = operands.split_first().ok_or_else(|| Error::corrupt("it has no operands"))?;
    Ok(rest.iter().fold((*first).clone(), |result, operand| combine(&result, operand)))
}

/// Flattens to two axes: those before `axis` and those from it on.
fn flatten(x: &Tensor, axis: i64) -> Result<Tensor> {
    let dims = x.shape()?.dims().to_vec();
    let at = if axis < 0 { axis + dims.len() as i64 } else { axis };
    let at = usize::try_from(at).ok().filter(|at| *at <= dims.len());
    let at = at.ok_or_else(|| Error::corrupt(format!("axis {axis} is not one of {} axes", dims.len())))?;
    Ok(shaped(x, &[Shape::from(&dims[..at]).numel(), Shape::from(&dims[at..]).numel()]))
}

/// Reshapes to any rank.
fn shaped(x: &Tensor, dims: &[usize]) -> Tensor {
    x.reshape([-1]).unflatten(0, dims)
}

fn gemm(o: &Operands<'_>) -> Result<Tensor> {
    let turned = |n: usize, name: &str| Ok::<_, Error>(if o.int(name, 0) == 0 { o.x(n)?.clone() } else { o.x(n)?.t() });
    let scaled = |x: Tensor, by: f64| if by == 1.0 { x } else { x * by };
    let product = scaled(turned(0, "transA")?.matmul(&turned(1, "transB")?), o.float("alpha", 1.0));
    Ok(match o.optional(2) {
        Some(bias) => product + scaled(bias.clone(), o.float("beta", 1.0)),
        None => product,
    })
}

/// Reshapes: a length of 0 copies the input's, −1 is inferred.
fn reshape(o: &Operands<'_>) -> Result<Tensor> {
    let x = o.x(0)?;
    let asked = o.ints("shape", 1)?.ok_or_else(|| Error::corrupt("the shape is missing"))?;
    let dims = x.shape()?.dims().to_vec();
    let fail = || Error::corrupt(format!("{dims:?} cannot be reshaped to {asked:?}"));
    let kept = |(n, length): (usize, &i64)| match *length {
        0 if o.int("allowzero", 0) == 0 => dims.get(n).copied().map(Some).ok_or_else(fail),
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| fail()),
    };
    let lengths = asked.iter().enumerate().map(kept).collect::<Result<Vec<Option<usize>>>>()?;
    let known = lengths.iter().flatten().try_fold(1usize, |all, length| all.checked_mul(*length)).ok_or_else(fail)?;
    let open = lengths.iter().filter(|length| length.is_none()).count();
    let numel = Shape::from(&dims[..]).numel();
    let fits = if open == 0 { known == numel } else { open == 1 && known > 0 && numel.is_multiple_of(known) };
    if !fits {
        return Err(fail());
    }
    let lengths: Vec<usize> = lengths.into_iter().map(|length| length.unwrap_or_else(|| numel / known)).collect();
    Ok(if lengths == dims { x.clone() } else { shaped(x, &lengths) })
}

/// Permutes the axes; reverses them by default.
fn transpose(o: &Operands<'_>) -> Result<Tensor> {
    let mut x = o.x(0)?.clone();
    let rank = x.shape()?.ndim();
    let reversed: Vec<i64> = (0..rank as i64).rev().collect();
    let order = o.attributes.get("perm").map_or(&reversed[..], |attribute| &attribute.ints);
    descending(order, rank)?;
    if order.len() != rank {
        return Err(Error::corrupt(format!("the order {order:?} does not name each of {rank} axes")));
    }
    let mut axes: Vec<i64> = (0..rank as i64).collect();
    for (at, axis) in order.iter().enumerate() {
        let from = axes.iter().position(|other| other == axis).ok_or_else(|| Error::corrupt("an axis is negative"))?;
        axes.swap(at, from);
        if at != from {
            x = x.transpose(at as isize, from as isize);
        }
    }
    Ok(x)
}
