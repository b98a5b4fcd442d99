//! Import of ONNX files: operators become tensor expressions.
//!
//! The file is untrusted: [`message`] checks lengths, the bytes of a constant must match its shape, and all memory is counted before it is
//! allocated. All unsupported operators are named in one error before any constant is read. [`operators`] has the table of operators.

mod convert;
mod external;
mod fold;
mod graph;
mod message;
mod operators;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use panoply_tensor::{DType, Error, ReadBudget, Result, Shape, Tensor};

use convert::{Converter, all_nodes, all_tensors, called};
use graph::{Graph, Value};
pub use operators::{SupportedOperator, supported_operators};

/// Supported opset versions.
const OPSETS: std::ops::RangeInclusive<i64> = 6..=26;
/// Maximum rank of a constant or an input.
const MAX_AXES: usize = 16;
/// Maximum depth of graphs within attributes, such as the body of a loop within a branch.
const MAX_NESTED_GRAPHS: usize = 8;

/// A network that was read from an ONNX file.
#[derive(Clone, Debug)]
pub struct Imported {
    /// Inputs that are not constants, in order.
    pub inputs: Vec<Input>,
    /// Names of the outputs, in order.
    pub outputs: Vec<String>,
    graph: Graph,
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

/// The limits of parsing a file.
struct Memory<'a> {
    budget: &'a ReadBudget,
    path: &'a Path,
    /// True if the model is the file at the path, so that its folder can have external data.
    is_file: bool,
    depth: Cell<usize>,
}

impl<'a> Memory<'a> {
    fn new(budget: &'a ReadBudget, path: &'a Path, is_file: bool) -> Memory<'a> {
        Memory { budget, path, is_file, depth: Cell::new(0) }
    }

    /// Counts bytes that are about to be allocated. The text of the error is not shown: the caller reports [`ReadBudget::exceeded`].
    fn take(&self, bytes: usize) -> Result<(), String> {
        self.budget.take(bytes as u64, self.path).map_err(|error| error.message().to_string())
    }

    /// Calls `parse` for a graph within an attribute.
    fn nested<T>(&self, parse: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        if self.depth.get() >= MAX_NESTED_GRAPHS {
            return Err(format!("graphs are nested more than {MAX_NESTED_GRAPHS} deep"));
        }
        self.depth.set(self.depth.get() + 1);
        let parsed = parse();
        self.depth.set(self.depth.get() - 1);
        parsed
    }
}

impl Imported {
    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read, is not an ONNX model, has operators or element types that are not supported, or has external data outside
    /// of its folder.
    pub fn open(path: &Path) -> Result<Imported> {
        let budget = ReadBudget::for_file(path)?;
        let bytes = budget.read_file(path)?;
        Imported::parse_within(&bytes, &Memory::new(&budget, path, true))
    }

    /// Parses the bytes of a file; `path` is only named in errors. External data is not supported.
    ///
    /// # Errors
    /// As for [`Imported::open`].
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Imported> {
        let budget = ReadBudget::for_size(bytes.len() as u64)?;
        Imported::parse_within(bytes, &Memory::new(&budget, path, false))
    }

    fn parse_within(bytes: &[u8], memory: &Memory<'_>) -> Result<Imported> {
        let path = memory.path;
        let corrupt = |why: String| read_error(memory, &why);
        let unsupported = |why: String| Error::unsupported(format!("{}: {why}", path.display()));
        let model = message::model(bytes, memory).map_err(corrupt)?;
        let graph = model.graph.ok_or_else(|| corrupt("it has no graph".to_string()))?;
        let opset = model.opsets.iter().find(|(domain, _)| is_onnx(domain)).map_or(0, |(_, version)| *version);
        if !OPSETS.contains(&opset) {
            let known = format!("{} to {}", OPSETS.start(), OPSETS.end());
            return Err(unsupported(format!(
                "operator set {opset} is not supported; export the model with one of {known}"
            )));
        }
        check_operators(&graph, &model.functions).map_err(unsupported)?;
        let initialized: BTreeSet<&str> = graph.initializers.iter().map(|tensor| &tensor.name[..]).collect();
        let inputs = graph.inputs.iter().filter(|info| !initialized.contains(&info.name[..]));
        let inputs: Vec<Input> = inputs.map(input).collect::<Result<_, String>>().map_err(corrupt)?;
        // Constants in other files allow as much memory as those in the model's own.
        let tensors = all_tensors(&graph, &model.functions);
        let beside = external::file_bytes(&tensors, memory);
        let wider = ReadBudget::for_size(beside.saturating_add(bytes.len() as u64))?;
        let memory = &Memory::new(if beside > 0 { &wider } else { memory.budget }, path, memory.is_file);
        let corrupt = |why: String| read_error(memory, &why);
        let mut graph = Converter::new(&model.functions, opset, memory).graph(&graph).map_err(corrupt)?;
        graph.inputs = inputs.iter().map(|input| input.name.clone()).collect();
        if graph.outputs.is_empty() {
            return Err(corrupt("its graph has no outputs".to_string()));
        }
        Ok(Imported { inputs, outputs: graph.outputs.clone(), graph })
    }

    /// Runs the network; the results are in the order of [`Imported::outputs`].
    ///
    /// Shapes and other numbers that decide about shapes are computed on the host. If such a number depends on the inputs, their values are
    /// read back, which is not possible in a compiled function.
    ///
    /// # Errors
    /// If the inputs do not fit the network, or the use of an operator is not supported.
    pub fn forward(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        if inputs.len() != self.inputs.len() {
            let message = format!("the network has {} inputs, but {} were passed", self.inputs.len(), inputs.len());
            return Err(Error::mistake(message));
        }
        for (tensor, input) in inputs.iter().zip(&self.inputs) {
            if tensor.dtype() != input.dtype {
                let message =
                    format!("the input {} holds {}, but {} was passed", input.name, input.dtype, tensor.dtype());
                return Err(Error::mistake(message).note("cast it with `.cast(DType::…)`"));
            }
        }
        let given = inputs.iter().map(|tensor| tensor.clone().into()).collect();
        Ok(self.graph.run(given, None, &Cell::new(0))?.into_iter().map(|value| value.tensor).collect())
    }
}

/// Reads a file that holds one ONNX `TensorProto` message, such as the inputs and outputs of ONNX's test cases.
///
/// # Errors
/// If the file cannot be read, is not a tensor, or its element type is not supported.
pub fn read_tensor(path: &Path) -> Result<Tensor> {
    let budget = ReadBudget::for_file(path)?;
    let (bytes, memory) = (budget.read_file(path)?, Memory::new(&budget, path, false));
    let value = message::tensor(&bytes, &memory).and_then(|tensor| constant(&tensor, &memory));
    let value =
        value.map_err(|why| Error::corrupt(format!("{}: not a readable ONNX tensor: {why}", path.display())))?;
    Ok(value.tensor)
}

/// Checks that all operators and attributes are supported; the error names all that are not.
fn check_operators(graph: &message::Graph<'_>, functions: &[message::Function<'_>]) -> Result<(), String> {
    // Functions of the model are known; the operators in them must be known as well.
    let bodies = functions.iter().flat_map(|function| all_nodes(&function.nodes));
    let nodes = all_nodes(&graph.nodes).into_iter().chain(bodies);
    let nodes: Vec<_> = nodes.filter(|node| called(node, functions).is_none()).collect();
    let is_known = |node: &message::Node<'_>| is_onnx(&node.domain) && operators::find(&node.operator).is_some();
    let unknown: BTreeSet<String> = nodes.iter().filter(|node| !is_known(node)).map(|node| qualified(node)).collect();
    if !unknown.is_empty() {
        return Err(format!("operators that are not supported: {}", listed(unknown)));
    }
    let attributes = nodes.iter().flat_map(|node| {
        let supported = operators::find(&node.operator).map_or(&[][..], |(_, attributes)| attributes);
        let others = node.attributes.iter().filter(|attribute| !supported.contains(&attribute.name.as_str()));
        others.map(|attribute| format!("{} of {}", attribute.name, node.operator))
    });
    let unknown: BTreeSet<String> = attributes.collect();
    match unknown.is_empty() {
        true => Ok(()),
        false => Err(format!("attributes that are not supported: {}", listed(unknown))),
    }
}

/// Returns the error of a model that cannot be read for this reason.
fn read_error(memory: &Memory<'_>, why: &str) -> Error {
    match memory.budget.is_exceeded() {
        true => memory.budget.exceeded(memory.path),
        false => Error::corrupt(format!("{}: not a readable ONNX model: {why}", memory.path.display())),
    }
}

fn listed(names: BTreeSet<String>) -> String {
    names.into_iter().collect::<Vec<String>>().join(", ")
}

fn is_onnx(domain: &str) -> bool {
    domain.is_empty() || domain == "ai.onnx"
}

/// Returns the name of an operator, prefixed with its domain if that is not ONNX's own.
fn qualified(node: &message::Node<'_>) -> String {
    if is_onnx(&node.domain) { node.operator.clone() } else { format!("{}.{}", node.domain, node.operator) }
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
    let lengths = tensor.dims.iter().map(|dim| usize::try_from(*dim)).collect::<Result<Vec<usize>, _>>();
    let lengths = lengths.ok().filter(|dims| dims.len() <= MAX_AXES).ok_or_else(|| fail("has an invalid shape"))?;
    let count = lengths.iter().try_fold(1usize, |count, length| count.checked_mul(*length));
    let bytes: Cow<'_, [u8]> = match tensor.raw {
        _ if tensor.external => external::bytes(tensor, memory).map_err(|why| fail(&why))?.into(),
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
    let ints = graph::host_integers(&bytes, kind).map(Arc::from);
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
