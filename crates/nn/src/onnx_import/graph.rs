//! Graphs of operators, and their evaluation in topological order.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use panoply_tensor::{DType, Error, Result, Tensor};

use super::fold;
use super::operators::{Operands, Rule};

/// Maximum number of integers that are kept on the host.
pub const MAX_HOST_INTEGERS: usize = 1 << 12;
/// Maximum number of operators that one evaluation runs, counted in every round of nested loops: a file could ask for any number.
const MAX_EVALUATED: usize = 1 << 20;

/// Operators in topological order, with constants.
#[derive(Clone, Debug)]
pub struct Graph {
    /// Names of the inputs.
    pub inputs: Vec<String>,
    /// Names of the outputs.
    pub outputs: Vec<String>,
    /// Operators in topological order.
    pub nodes: Vec<Node>,
    /// Constants by name.
    pub constants: BTreeMap<String, Value>,
}

/// An operator applied to named values.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name of the operator.
    pub operator: String,
    /// Computes the results.
    pub rule: Rule,
    /// Names of the operands; empty if omitted.
    pub inputs: Vec<String>,
    /// Names of the results; empty if not used.
    pub outputs: Vec<String>,
    /// Attributes by name.
    pub attributes: Arc<BTreeMap<String, Attribute>>,
    /// Opset version.
    pub opset: i64,
}

/// An attribute of a node.
#[derive(Clone, Debug, Default)]
pub struct Attribute {
    /// Float value.
    pub float: f32,
    /// Integer value.
    pub int: i64,
    /// Integer values.
    pub ints: Vec<i64>,
    /// Float values.
    pub floats: Vec<f32>,
    /// Text value.
    pub text: String,
    /// Text values.
    pub texts: Vec<String>,
    /// Tensor value.
    pub tensor: Option<Value>,
    /// Graph value.
    pub graph: Option<Arc<Graph>>,
}

/// A value of the graph.
#[derive(Clone, Debug)]
pub struct Value {
    /// The elements.
    pub tensor: Tensor,
    /// The elements on the host, if they are few integers that do not depend on the inputs, such as a shape.
    pub ints: Option<Arc<[i64]>>,
}

/// The values of a graph that is evaluated, and of the graphs around it.
pub struct Scope<'a> {
    graph: &'a Graph,
    values: BTreeMap<&'a str, Value>,
    /// Number of operators that were run so far, including those of other graphs.
    pub evaluated: &'a Cell<usize>,
    outer: Option<&'a Scope<'a>>,
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Value {
        Value { tensor, ints: None }
    }
}

impl Value {
    /// Creates a value from integers on the host, which become elements of this type.
    pub fn from_integers(values: &[i64], dims: &[usize], dtype: DType) -> Value {
        // Not by a cast on the device, which need not have 64-bit integers.
        let tensor = match dtype {
            DType::I32 => Tensor::from_slice(&values.iter().map(|value| *value as i32).collect::<Vec<i32>>(), dims),
            DType::Bool => Tensor::from_slice(&values.iter().map(|value| *value != 0).collect::<Vec<bool>>(), dims),
            _ => Tensor::from_slice(values, dims).cast(dtype),
        };
        Value { tensor, ints: Some(values.into()) }
    }
}

/// Returns few integers as i64; `None` for many or for other types.
pub fn host_integers(bytes: &[u8], dtype: DType) -> Option<Vec<i64>> {
    if bytes.len() > MAX_HOST_INTEGERS * dtype.bytes() {
        return None;
    }
    match dtype {
        DType::I64 => Some(bytes.as_chunks::<8>().0.iter().map(|word| i64::from_le_bytes(*word)).collect()),
        DType::I32 => Some(bytes.as_chunks::<4>().0.iter().map(|word| i32::from_le_bytes(*word).into()).collect()),
        DType::Bool => Some(bytes.iter().map(|byte| i64::from(*byte != 0)).collect()),
        _ => None,
    }
}

impl Scope<'_> {
    /// Returns the value with this name, of this graph or of one around it.
    pub fn find(&self, name: &str) -> Option<&Value> {
        let own = self.values.get(name).or_else(|| self.graph.constants.get(name));
        own.or_else(|| self.outer.and_then(|outer| outer.find(name)))
    }
}

impl Graph {
    /// Evaluates the graph; `outer` has the values of the graphs around it, and `evaluated` counts the operators.
    ///
    /// # Errors
    /// If the inputs do not fit, the use of an operator is not supported, or too many operators are run.
    pub fn run(&self, inputs: Vec<Value>, outer: Option<&Scope<'_>>, evaluated: &Cell<usize>) -> Result<Vec<Value>> {
        if inputs.len() != self.inputs.len() {
            let message = format!("a graph with {} inputs was called with {}", self.inputs.len(), inputs.len());
            return Err(Error::corrupt(message));
        }
        let values = self.inputs.iter().map(String::as_str).zip(inputs).collect();
        let mut scope = Scope { graph: self, values, evaluated, outer };
        for node in &self.nodes {
            evaluated.set(evaluated.get() + 1);
            if evaluated.get() > MAX_EVALUATED {
                let message =
                    format!("the ONNX model runs more than {MAX_EVALUATED} operators, which is not supported");
                return Err(Error::unsupported(message));
            }
            let results = node.apply(&scope)?;
            let named = node.outputs.iter().zip(results).filter(|(name, _)| !name.is_empty());
            scope.values.extend(named.filter_map(|(name, value)| Some((name.as_str(), value?))));
        }
        let missing = |name: &String| {
            Error::corrupt(format!("the output {name} of the ONNX model is not computed by any operator"))
        };
        self.outputs.iter().map(|name| scope.find(name).cloned().ok_or_else(|| missing(name))).collect()
    }
}

impl Node {
    fn apply(&self, scope: &Scope<'_>) -> Result<Vec<Option<Value>>> {
        let fail = |why: Error| {
            let output = self.outputs.first().map_or("", String::as_str);
            why.note(format!("in the ONNX operator {} that computes `{output}`", self.operator))
        };
        let find = |name: &String| match scope.find(name) {
            _ if name.is_empty() => Ok(None),
            None => Err(fail(Error::corrupt(format!("the value `{name}` is not computed before its use")))),
            found => Ok(found),
        };
        let values = self.inputs.iter().map(find).collect::<Result<Vec<_>>>()?;
        let is_used = self.outputs.iter().map(|name| !name.is_empty()).collect();
        let operands = Operands { values, attributes: &self.attributes, opset: self.opset, is_used, scope };
        if let Some(value) = fold::integers(&self.operator, &operands) {
            return Ok(vec![Some(value)]);
        }
        let results = (self.rule)(&operands).map_err(fail)?.0;
        for value in results.iter().flatten() {
            value.tensor.check().map_err(fail)?;
        }
        let is_missing = |(n, used): (usize, &bool)| *used && results.get(n).is_none_or(Option::is_none);
        match operands.is_used.iter().enumerate().find(|(n, used)| is_missing((*n, used))) {
            Some((n, _)) => Err(fail(Error::unsupported(format!("result {n} of {} is not supported", self.operator)))),
            None => Ok(results),
        }
    }
}
