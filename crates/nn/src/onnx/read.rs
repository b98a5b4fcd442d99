//! Import of ONNX files: operators become tensor expressions.
//!
//! The file is untrusted: [`message`] checks lengths, the bytes of a constant must match its shape, and all memory is counted before it is
//! allocated. All unsupported operators are named in one error before any constant is read. [`operators`] has the table of operators.

mod message;
mod operators;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use panoply_tensor::{DType, Error, ReadBudget, Result, Shape, Tensor};

use operators::{Operands, Rule};

/// Supported opset versions.
const OPSETS: std::ops::RangeInclusive<i64> = 7..=26;
/// Maximum rank of a constant or an input.
const MAX_AXES: usize = 16;

/// A network that was read from an ONNX file.
#[derive(Clone, Debug)]
pub struct Imported {
    /// Inputs that are not constants, in order.
    pub inputs: Vec<Input>,
    /// Names of the outputs, in order.
    pub outputs: Vec<String>,
    nodes: Vec<Node>,
    constants: BTreeMap<String, Value>,
}

/// An input of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Name of the input.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Shape; `None` for a dynamic length, such as the batch.
    pub dims: Vec<Option<usize>>,
}

/// The memory that parsing a file may take.
struct Memory<'a> {
    budget: &'a ReadBudget,
    path: &'a Path,
}

impl Memory<'_> {
    /// Counts bytes that are about to be allocated. The text of the error is not shown: the caller reports [`ReadBudget::exceeded`].
    fn take(&self, bytes: usize) -> Result<(), String> {
        self.budget.take(bytes as u64, self.path).map_err(|error| error.message().to_string())
    }
}

/// An operator applied to named values.
#[derive(Clone, Debug)]
struct Node {
    operator: String,
    rule: Rule,
    inputs: Vec<String>,
    outputs: Vec<String>,
    attributes: Arc<BTreeMap<String, Attribute>>,
    opset: i64,
}

/// An attribute of a node.
#[derive(Clone, Debug)]
struct Attribute {
    float: f32,
    int: i64,
    ints: Vec<i64>,
    floats: Vec<f32>,
    tensor: Option<Value>,
}

/// A value of the graph.
#[derive(Clone, Debug)]
struct Value {
    tensor: Tensor,
    /// Elements of an i64 constant, such as a shape.
    ints: Option<Arc<[i64]>>,
}

impl Imported {
    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read, is not an ONNX model, or has operators, element types or external data that are not supported.
    pub fn open(path: &Path) -> Result<Imported> {
        let budget = ReadBudget::for_file(path)?;
        let bytes = budget.read_file(path)?;
        Imported::parse_within(path, &bytes, &budget)
    }

    /// Parses the bytes of a file; `path` is only named in errors.
    ///
    /// # Errors
    /// As for [`Imported::open`].
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Imported> {
        Imported::parse_within(path, bytes, &ReadBudget::for_size(bytes.len() as u64)?)
    }

    fn parse_within(path: &Path, bytes: &[u8], budget: &ReadBudget) -> Result<Imported> {
        let corrupt = |why: String| match budget.is_exceeded() {
            true => budget.exceeded(path),
            false => Error::corrupt(format!("{}: not a readable ONNX model: {why}", path.display())),
        };
        let unsupported = |why: String| Error::unsupported(format!("{}: {why}", path.display()));
        let memory = Memory { budget, path };
        let model = message::model(bytes, &memory).map_err(corrupt)?;
        let graph = model.graph.ok_or_else(|| corrupt("it has no graph".to_string()))?;
        let opset = model.opsets.iter().find(|(domain, _)| is_onnx(domain)).map_or(0, |(_, version)| *version);
        if !OPSETS.contains(&opset) {
            let known = format!("{} to {}", OPSETS.start(), OPSETS.end());
            return Err(unsupported(format!(
                "operator set {opset} is not supported; export the model with one of {known}"
            )));
        }
        let unknown: BTreeSet<String> = graph.nodes.iter().filter(|node| rule(node).is_none()).map(qualified).collect();
        if !unknown.is_empty() {
            let names = unknown.into_iter().collect::<Vec<String>>().join(", ");
            return Err(unsupported(format!("operators that are not supported: {names}")));
        }
        let unsupported_attributes = graph.nodes.iter().flat_map(|node| {
            let supported = operators::find(&node.operator).map_or(&[][..], |(_, attributes)| attributes);
            let others = node.attributes.iter().filter(|attribute| !supported.contains(&attribute.name.as_str()));
            others.map(|attribute| format!("{} of {}", attribute.name, node.operator))
        });
        let names = unsupported_attributes.collect::<BTreeSet<String>>().into_iter().collect::<Vec<String>>();
        if !names.is_empty() {
            return Err(unsupported(format!("attributes that are not supported: {}", names.join(", "))));
        }
        let mut constants = BTreeMap::new();
        for tensor in &graph.initializers {
            constants.insert(tensor.name.clone(), constant(tensor, &memory).map_err(corrupt)?);
        }
        let inputs = graph.inputs.iter().filter(|info| !constants.contains_key(&info.name));
        let inputs = inputs.map(input).collect::<Result<_, String>>().map_err(corrupt)?;
        let nodes = graph.nodes.into_iter().map(|node| owned(node, opset, &memory));
        let nodes = nodes.collect::<Result<_, String>>().map_err(corrupt)?;
        let outputs: Vec<String> = graph.outputs.into_iter().map(|info| info.name).collect();
        if outputs.is_empty() {
            return Err(corrupt("its graph has no outputs".to_string()));
        }
        Ok(Imported { inputs, outputs, nodes, constants })
    }

    /// Runs the network; the results are in the order of [`Imported::outputs`].
    ///
    /// # Errors
    /// If the inputs do not fit the network, or the use of an operator is not supported.
    pub fn forward(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        if inputs.len() != self.inputs.len() {
            let message = format!("the network has {} inputs, but {} were passed", self.inputs.len(), inputs.len());
            return Err(Error::mistake(message));
        }
        let named = self.inputs.iter().map(|input| input.name.clone());
        let given = inputs.iter().map(|tensor| Value { tensor: tensor.clone(), ints: None });
        let mut values: BTreeMap<String, Value> = named.zip(given).collect();
        for node in &self.nodes {
            let value = node.apply(|name| values.get(name).or_else(|| self.constants.get(name)))?;
            values.extend(node.outputs.first().map(|name| (name.clone(), value)));
        }
        let output = |name: &String| {
            let value = values.get(name).or_else(|| self.constants.get(name));
            let missing =
                || Error::corrupt(format!("the output {name} of the ONNX model is not computed by any operator"));
            value.map(|value| value.tensor.clone()).ok_or_else(missing)
        };
        self.outputs.iter().map(output).collect()
    }
}

impl Node {
    fn apply<'a>(&'a self, find: impl Fn(&str) -> Option<&'a Value>) -> Result<Value> {
        let fail = |why: Error| {
            let output = self.outputs.first().map_or("", String::as_str);
            why.note(format!("in the ONNX operator {} that computes `{output}`", self.operator))
        };
        let find = |name: &String| match find(name) {
            None if name.is_empty() => Ok(None),
            None => Err(fail(Error::corrupt(format!("the value `{name}` is not computed before its use")))),
            found => Ok(found),
        };
        let values = self.inputs.iter().map(find).collect::<Result<Vec<_>>>()?;
        let value = (self.rule)(&Operands { values, attributes: &self.attributes, opset: self.opset }).map_err(fail)?;
        value.tensor.check().map_err(fail)?;
        Ok(value)
    }
}

fn is_onnx(domain: &str) -> bool {
    domain.is_empty() || domain == "ai.onnx"
}

fn rule(node: &message::Node<'_>) -> Option<Rule> {
    is_onnx(&node.domain).then(|| operators::find(&node.operator)).flatten().map(|(rule, _)| rule)
}

/// Returns the name of an operator, prefixed with its domain if that is not ONNX's own.
fn qualified(node: &message::Node<'_>) -> String {
    if is_onnx(&node.domain) { node.operator.clone() } else { format!("{}.{}", node.domain, node.operator) }
}

fn owned(node: message::Node<'_>, opset: i64, memory: &Memory<'_>) -> Result<Node, String> {
    let rule = rule(&node).ok_or("an operator has no rule")?;
    let mut attributes = BTreeMap::new();
    for message::Attribute { name, float, int, ints, floats, tensor } in node.attributes {
        let tensor = tensor.as_ref().map(|tensor| constant(tensor, memory)).transpose()?;
        attributes.insert(name, Attribute { float, int, ints, floats, tensor });
    }
    let message::Node { inputs, outputs, operator, .. } = node;
    Ok(Node { operator, rule, inputs, outputs, attributes: attributes.into(), opset })
}

fn input(info: &message::ValueInfo) -> Result<Input, String> {
    let length = |dim: Option<i64>| usize::try_from(dim.unwrap_or(0)).ok().filter(|length| *length > 0);
    let dims: Vec<Option<usize>> = info.dims.iter().map(|dim| length(*dim)).collect();
    if dims.len() > MAX_AXES {
        return Err(format!("the input {} has {} axes", info.name, dims.len()));
    }
    Ok(Input { name: info.name.clone(), dtype: dtype(info.kind)?, dims })
}

/// Returns the element type with this number in `TensorProto.DataType`.
fn dtype(kind: i64) -> Result<DType, String> {
    Ok(match kind {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        4 => DType::U16,
        5 => DType::I16,
        6 => DType::I32,
        7 => DType::I64,
        9 => DType::Bool,
        10 => DType::F16,
        11 => DType::F64,
        12 => DType::U32,
        13 => DType::U64,
        16 => DType::BF16,
        _ => return Err(format!("the element type {kind} is not supported")),
    })
}

/// Converts a constant, whose number of bytes must match its shape.
fn constant(tensor: &message::Tensor<'_>, memory: &Memory<'_>) -> Result<Value, String> {
    let fail = |why: &str| format!("the constant `{}` {why}", tensor.name);
    let kind = dtype(tensor.kind).map_err(|why| fail(&format!("is not readable: {why}")))?;
    if tensor.external {
        return Err(fail("is in another file, which is not supported; store the model as one file"));
    }
    let lengths = tensor.dims.iter().map(|dim| usize::try_from(*dim)).collect::<Result<Vec<usize>, _>>();
    let lengths = lengths.ok().filter(|dims| dims.len() <= MAX_AXES).ok_or_else(|| fail("has an invalid shape"))?;
    let count = lengths.iter().try_fold(1usize, |count, length| count.checked_mul(*length));
    let bytes: Cow<'_, [u8]> = match tensor.raw {
        Some(raw) => raw.into(),
        None => {
            memory.take((tensor.floats.len() + tensor.doubles.len() + tensor.ints.len()) * size_of::<u64>())?;
            stored(tensor, kind).into()
        }
    };
    if count.and_then(|count| count.checked_mul(kind.bytes())) != Some(bytes.len()) {
        return Err(fail(&format!("of shape {lengths:?} in {kind} has {} bytes", bytes.len())));
    }
    memory.take(2 * bytes.len())?;
    let ints = (kind == DType::I64).then(|| {
        let (words, _) = bytes.as_chunks::<8>();
        words.iter().map(|word| i64::from_le_bytes(*word)).collect()
    });
    Ok(Value { tensor: Tensor::from_bytes(&bytes, Shape::new(lengths), kind), ints })
}

/// Returns the bytes of elements in typed fields; integers of all widths share one field.
fn stored(tensor: &message::Tensor<'_>, kind: DType) -> Vec<u8> {
    match kind {
        DType::F32 => tensor.floats.iter().flat_map(|value| value.to_le_bytes()).collect(),
        DType::F64 => tensor.doubles.iter().flat_map(|value| value.to_le_bytes()).collect(),
        _ => tensor.ints.iter().flat_map(|value| value.to_le_bytes()[..kind.bytes()].to_vec()).collect(),
    }
}
