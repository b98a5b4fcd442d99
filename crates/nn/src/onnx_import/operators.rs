//! Supported ONNX operators: each is one expression of tensor methods. The modules below group them by kind.

mod activation;
mod attention;
mod constant;
mod control;
mod convolution;
mod element_wise;
mod index;
mod linear;
mod loss;
mod normalization;
mod pool;
mod quantize;
mod recurrent;
mod reduce;
mod resize;
mod sample;
mod select;
mod shape;
mod signal;
mod slice;

use std::collections::BTreeMap;

use panoply_tensor::{DType, Error, Result, Scalar, Shape, Tensor};

use super::graph::{Attribute, Scope, Value};
pub use slice::slice_ranges;

/// Computes the results of an operator.
pub type Rule = fn(&Operands<'_>) -> Result<Results>;

/// Name, supported attributes and rule of an operator.
type Operator = (&'static str, &'static [&'static str], Rule);

/// The tables of operators, each with the name of its kind.
const TABLES: &[(&str, &[Operator])] = &[
    ("Activations", activation::OPERATORS),
    ("Attention", attention::OPERATORS),
    ("Constants", constant::OPERATORS),
    ("Control flow", control::OPERATORS),
    ("Convolution", convolution::OPERATORS),
    ("Element-wise", element_wise::OPERATORS),
    ("Indexing", index::OPERATORS),
    ("Linear algebra", linear::OPERATORS),
    ("Losses", loss::OPERATORS),
    ("Normalization", normalization::OPERATORS),
    ("Pooling", pool::OPERATORS),
    ("Quantization", quantize::OPERATORS),
    ("Recurrent networks", recurrent::OPERATORS),
    ("Reductions", reduce::OPERATORS),
    ("Resizing", resize::OPERATORS),
    ("Sampling", sample::OPERATORS),
    ("Selection", select::OPERATORS),
    ("Shapes", shape::OPERATORS),
    ("Signals", signal::OPERATORS),
];

/// Returns the rule of an operator, and the names of the attributes that it supports.
pub fn find(name: &str) -> Option<(Rule, &'static [&'static str])> {
    let mut operators = TABLES.iter().flat_map(|(_, operators)| *operators);
    operators.find(|(known, ..)| *known == name).map(|(_, attributes, rule)| (*rule, *attributes))
}

/// An ONNX operator that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupportedOperator {
    /// Group of similar operators, such as "Pooling".
    pub kind: &'static str,
    /// Name of the operator.
    pub name: &'static str,
    /// Attributes that are supported.
    pub attributes: &'static [&'static str],
}

/// Returns the ONNX operators that can be imported, by kind and name.
pub fn supported_operators() -> Vec<SupportedOperator> {
    let described = |kind| move |(name, attributes, _): &Operator| SupportedOperator { kind, name, attributes };
    TABLES.iter().flat_map(|(kind, operators)| operators.iter().map(described(*kind))).collect()
}

/// Calls a function of the model.
pub fn call(o: &Operands<'_>) -> Result<Results> {
    let body = o.attributes.get("body").and_then(|attribute| attribute.graph.as_ref());
    let body = body.ok_or_else(|| Error::corrupt("the body of a function is missing"))?;
    let inputs = (0..o.values.len()).map(|n| o.value(n).cloned()).collect::<Result<Vec<Value>>>()?;
    // A function does not see the values around its call.
    Ok(Results(body.run(inputs, None, o.scope.evaluated)?.into_iter().map(Some).collect()))
}

/// Results of an operator in order; `None` for one that is not computed.
pub struct Results(pub Vec<Option<Value>>);

impl From<Value> for Results {
    fn from(value: Value) -> Results {
        Results(vec![Some(value)])
    }
}

impl From<Tensor> for Results {
    fn from(tensor: Tensor) -> Results {
        Value::from(tensor).into()
    }
}

impl From<Vec<Tensor>> for Results {
    fn from(tensors: Vec<Tensor>) -> Results {
        Results(tensors.into_iter().map(|tensor| Some(tensor.into())).collect())
    }
}

impl<const N: usize> From<[Tensor; N]> for Results {
    fn from(tensors: [Tensor; N]) -> Results {
        Vec::from(tensors).into()
    }
}

/// Operands and attributes of a node.
pub struct Operands<'a> {
    /// Operands; `None` if omitted.
    pub values: Vec<Option<&'a Value>>,
    /// Attributes.
    pub attributes: &'a BTreeMap<String, Attribute>,
    /// Opset version.
    pub opset: i64,
    /// True for each result that is used.
    pub is_used: Vec<bool>,
    /// Values that the graphs of attributes can use.
    pub scope: &'a Scope<'a>,
}

impl<'a> Operands<'a> {
    fn value(&self, n: usize) -> Result<&'a Value> {
        self.values.get(n).copied().flatten().ok_or_else(|| Error::corrupt(format!("operand {n} is missing")))
    }

    /// Returns the n-th operand.
    pub fn x(&self, n: usize) -> Result<&'a Tensor> {
        Ok(&self.value(n)?.tensor)
    }

    /// Returns the n-th operand; `None` if it is omitted.
    fn optional(&self, n: usize) -> Option<&'a Tensor> {
        Some(&self.values.get(n).copied().flatten()?.tensor)
    }

    /// Returns all operands.
    fn all(&self) -> Result<Vec<&'a Tensor>> {
        (0..self.values.len()).map(|n| self.x(n)).collect()
    }

    /// Returns the shape of the n-th operand.
    fn dims(&self, n: usize) -> Result<Vec<usize>> {
        Ok(self.x(n)?.shape()?.dims().to_vec())
    }

    /// Returns true if the n-th result is used.
    fn uses(&self, n: usize) -> bool {
        self.is_used.get(n).copied().unwrap_or(false)
    }

    /// Applies a function to the first operand.
    fn map(&self, f: impl FnOnce(&Tensor) -> Tensor) -> Result<Results> {
        Ok(f(self.x(0)?).into())
    }

    /// Applies a function to the first two operands, which broadcast.
    fn zip(&self, f: impl FnOnce(&Tensor, &Tensor) -> Tensor) -> Result<Results> {
        Ok(f(self.x(0)?, &self.second()?).into())
    }

    /// Returns the second operand. In opset 6 the attribute `axis` says to which axis of the first operand its first axis belongs.
    fn second(&self) -> Result<Tensor> {
        let x = self.x(1)?;
        let Some(axis) = self.attributes.get("axis").filter(|_| self.flag("broadcast", false)) else {
            return Ok(x.clone());
        };
        if self.opset >= 7 {
            return Err(unsupported("the attribute broadcast after opset 6"));
        }
        let (rank, own) = (self.dims(0)?.len(), self.dims(1)?);
        let after = rank.checked_sub(axis_of(axis.int, rank)? + own.len());
        let after = after.ok_or_else(|| Error::corrupt("the second operand has more axes than the first"))?;
        Ok(shaped(x, &[own, vec![1; after]].concat()))
    }

    /// Returns an integer attribute.
    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.attributes.get(name).map_or(default, |attribute| attribute.int)
    }

    /// Returns true if an integer attribute is not 0.
    fn flag(&self, name: &str, default: bool) -> bool {
        self.int(name, default.into()) != 0
    }

    fn float(&self, name: &str, default: f64) -> f64 {
        self.attributes.get(name).map_or(default, |attribute| f64::from(attribute.float))
    }

    fn text(&self, name: &str, default: &'a str) -> &'a str {
        self.attributes.get(name).map_or(default, |attribute| &attribute.text)
    }

    /// Returns the integers of an attribute.
    fn list(&self, name: &str) -> Option<&'a [i64]> {
        self.attributes.get(name).map(|attribute| &attribute.ints[..])
    }

    /// Returns the element type that an attribute names.
    fn dtype(&self, name: &str) -> Result<Option<DType>> {
        let dtype = |attribute: &Attribute| super::dtype(attribute.int).map_err(Error::unsupported);
        self.attributes.get(name).map(dtype).transpose()
    }

    /// Returns the integers of the n-th operand.
    fn numbers(&self, n: usize) -> Result<Vec<i64>> {
        let value = self.value(n)?;
        match &value.ints {
            Some(ints) => Ok(ints.to_vec()),
            None => host_integers(&value.tensor).map_err(|error| computed(n, &error)),
        }
    }

    /// Returns the n-th operand as f64.
    fn reals(&self, n: usize) -> Result<Vec<f64>> {
        host_reals(self.x(n)?).map_err(|error| computed(n, &error))
    }

    /// Returns the only integer of the n-th operand; `None` if it is omitted.
    fn number(&self, n: usize) -> Result<Option<i64>> {
        if self.optional(n).is_none() {
            return Ok(None);
        }
        match self.numbers(n)?[..] {
            [number] => Ok(Some(number)),
            ref others => Err(Error::corrupt(format!("operand {n} has {} elements, not one", others.len()))),
        }
    }

    /// Returns the integers of an attribute or, in later opsets, of the n-th operand; `None` if both are absent.
    fn ints(&self, name: &str, n: usize) -> Result<Option<Vec<i64>>> {
        match self.list(name) {
            Some(list) => Ok(Some(list.to_vec())),
            None => self.optional(n).map(|_| self.numbers(n)).transpose(),
        }
    }

    /// Returns an axis of the first operand, counted from the front.
    fn axis(&self, default: i64) -> Result<usize> {
        axis_of(self.int("axis", default), self.x(0)?.shape()?.ndim())
    }
}

/// Returns the error of an operand whose value must be known, but is not.
fn computed(n: usize, error: &Error) -> Error {
    let message = format!("operand {n} decides about shapes, but depends on the inputs of a compiled function");
    Error::unsupported(message).note(error.message())
}

/// Reads integers back, without 64-bit arithmetic for types that do not need it.
fn host_integers(x: &Tensor) -> Result<Vec<i64>> {
    match x.dtype() {
        DType::Bool | DType::U8 | DType::I8 | DType::U16 | DType::I16 | DType::I32 => {
            Ok(x.cast(DType::I32).to_vec::<i32>()?.into_iter().map(i64::from).collect())
        }
        _ => x.cast(DType::I64).to_vec::<i64>(),
    }
}

/// Reads numbers back as f64, without f64 arithmetic for types that do not need it.
fn host_reals(x: &Tensor) -> Result<Vec<f64>> {
    match x.dtype() {
        DType::F64 | DType::U32 | DType::U64 => x.cast(DType::F64).to_vec::<f64>(),
        dtype if dtype.is_float() => Ok(x.cast(DType::F32).to_vec::<f32>()?.into_iter().map(f64::from).collect()),
        _ => Ok(host_integers(x)?.into_iter().map(|value| value as f64).collect()),
    }
}

/// Returns an axis counted from the front.
fn axis_of(axis: i64, rank: usize) -> Result<usize> {
    let from_front = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    let found = from_front.and_then(|axis| usize::try_from(axis).ok()).filter(|axis| *axis < rank);
    found.ok_or_else(|| Error::corrupt(format!("axis {axis} is not one of {rank} axes")))
}

/// Returns distinct axes counted from the front, in the same order.
fn axes_of(axes: &[i64], rank: usize) -> Result<Vec<usize>> {
    let found = axes.iter().map(|axis| axis_of(*axis, rank)).collect::<Result<Vec<usize>>>()?;
    match (1..found.len()).all(|n| !found[..n].contains(&found[n])) {
        true => Ok(found),
        false => Err(Error::corrupt(format!("axes {axes:?} are not distinct"))),
    }
}

/// Returns lengths, which must not be negative.
fn lengths(values: &[i64]) -> Result<Vec<usize>> {
    let length = |value: &i64| usize::try_from(*value).ok();
    let found = values.iter().map(length).collect::<Option<Vec<usize>>>();
    found.ok_or_else(|| Error::corrupt(format!("{values:?} has a negative length")))
}

/// Returns the number of elements of a shape; an error if it does not fit the address space.
fn numel(dims: &[usize]) -> Result<usize> {
    let count = dims.iter().try_fold(1usize, |count, length| count.checked_mul(*length));
    count.ok_or_else(|| Error::corrupt(format!("the shape {dims:?} is too large")))
}

/// Returns a number of shape `[]` in this element type.
fn scalar(value: f64, dtype: DType) -> Tensor {
    Tensor::full([0usize; 0], Scalar::from_f64(dtype, value))
}

/// Reshapes to any rank.
fn shaped(x: &Tensor, dims: &[usize]) -> Tensor {
    x.reshape([-1]).unflatten(0, dims)
}

/// Reshapes a vector so that its elements lie along an axis of tensors with this rank.
fn along_axis(vector: &Tensor, axis: usize, rank: usize) -> Tensor {
    let mut dims = vec![1isize; rank];
    dims[axis] = -1;
    vector.reshape(dims)
}

/// Computes floats narrower than f32 in f32, and rounds the result once.
fn in_f32(x: &Tensor, f: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
    match x.dtype() {
        DType::F16 | DType::BF16 => f(&x.cast(DType::F32)).cast(x.dtype()),
        _ => f(x),
    }
}

/// Returns the error of a value that the importer does not support.
fn unsupported(what: impl std::fmt::Display) -> Error {
    Error::unsupported(format!("{what} is not supported"))
}

/// Returns the shape with its first axes up to `axis` merged into one, and the others into another.
fn as_matrix(dims: &[usize], axis: usize) -> [usize; 2] {
    [Shape::from(&dims[..axis]).numel(), Shape::from(&dims[axis..]).numel()]
}
