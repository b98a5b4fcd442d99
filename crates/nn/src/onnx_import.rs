//! Import of ONNX files: operators become tensor expressions, and the constants that are weights become parameters.
//!
//! The file is untrusted: [`message`] checks lengths, the bytes of a constant must match its shape, and all memory is counted before it is
//! allocated. All unsupported operators are named in one error before any constant is read. [`operators`] has the table of operators,
//! [`parameters`] finds the weights, [`structure`] is the file without their values, and [`layer`] makes the network a layer.

mod convert;
mod external;
mod fold;
mod fold_batch_norm;
mod graph;
mod layer;
mod message;
pub mod onnx_proto;
mod operators;
mod parameters;
mod structure;
pub mod wire;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use panoply_tensor::{DType, Device, Error, ReadBudget, Result, Shape, Tensor};

use crate::module::Param;
use convert::{Converter, all_nodes, all_tensors, called};
use graph::{Graph, Value};
use onnx_proto::data_type;
pub use operators::{SupportedOperator, supported_operators};
use parameters::Role;
pub use structure::BUFFERS;

/// Supported opset versions.
const OPSETS: std::ops::RangeInclusive<i64> = 6..=26;
/// Maximum rank of a constant or an input.
const MAX_AXES: usize = 16;
/// Number of elements above which a constant cannot be without values.
const MAX_ABSENT: usize = 1 << if usize::BITS < 64 { 29 } else { 40 };
/// Maximum depth of graphs within attributes, such as the body of a loop within a branch.
const MAX_NESTED_GRAPHS: usize = 8;

/// A network that was read from an ONNX file.
///
/// It is a [`Module`](crate::Module): float constants that are weights are its parameters under their own names, and statistics are its
/// buffers. With one input and one output it is a [`Layer`](crate::Layer).
#[derive(Clone, Debug)]
pub struct Imported {
    /// Inputs that are not constants, in order.
    pub inputs: Vec<Input>,
    /// Names of the outputs, in order.
    pub outputs: Vec<String>,
    /// Information about the file.
    pub info: Arc<FileInfo>,
    /// Operators; its inputs are those of the network, then the parameters.
    graph: Graph,
    params: Vec<(String, Param)>,
    /// The file without the values of the parameters.
    structure: Arc<[u8]>,
    /// The device that holds the constants.
    device: Device,
}

/// Information about an ONNX file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileInfo {
    /// Version of the operators.
    pub opset: i64,
    /// Version of the file format.
    pub ir_version: i64,
    /// Name of the program that wrote the file.
    pub producer: String,
    /// Version of that program.
    pub producer_version: String,
    /// Number of uses of each operator, by name.
    pub operators: BTreeMap<String, usize>,
    /// Outputs; the element type is `None` if the file does not give it.
    pub outputs: Vec<Output>,
    /// Constants of the graph, weights included.
    pub constants: Vec<Constant>,
    /// Keys and values that the author of the file added (`metadata_props`).
    pub metadata: BTreeMap<String, String>,
}

/// An output of a network, as the file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Name of the output.
    pub name: String,
    /// Element type; `None` if the file does not give it, or it is not supported.
    pub dtype: Option<DType>,
    /// Shape; `None` for a dynamic length.
    pub dims: Vec<Option<usize>>,
}

/// A constant of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Name of the constant.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub dims: Vec<usize>,
    /// True if training changes it.
    pub is_trainable: bool,
}

impl Constant {
    /// Returns the number of elements.
    pub fn numel(&self) -> u128 {
        self.dims.iter().fold(1u128, |numel, length| numel.saturating_mul(*length as u128))
    }
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
    /// Names of the constants without values, if they are allowed: the model is one without the values of its parameters.
    absent: Option<RefCell<BTreeSet<String>>>,
}

impl<'a> Memory<'a> {
    fn new(budget: &'a ReadBudget, path: &'a Path, is_file: bool) -> Memory<'a> {
        Memory { budget, path, is_file, depth: Cell::new(0), absent: None }
    }

    /// Creates the limits for a model without the values of its parameters.
    fn without_values(budget: &'a ReadBudget, path: &'a Path) -> Memory<'a> {
        Memory { absent: Some(RefCell::default()), ..Memory::new(budget, path, false) }
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

    /// Creates the network from the file without the values of its parameters, which are zeros.
    ///
    /// # Errors
    /// As for [`Imported::parse`].
    pub(crate) fn from_structure(structure: &[u8]) -> Result<Imported> {
        let budget = ReadBudget::for_size(structure.len() as u64)?;
        Imported::parse_within(structure, &Memory::without_values(&budget, Path::new("the ONNX network")))
    }

    /// Returns the file without the values of its parameters.
    pub(crate) fn structure(&self) -> &Arc<[u8]> {
        &self.structure
    }

    /// Returns the bytes of a file with the values of the parameters, and with these entries of `metadata_props`.
    ///
    /// # Errors
    /// If a value cannot be read back.
    pub fn to_bytes(&self, metadata: &BTreeMap<String, String>) -> Result<Vec<u8>> {
        let value = |(name, param): &(String, Param)| Ok((name.clone(), param.tensor().to_bytes()?));
        let values = self.params.iter().map(value).collect::<Result<BTreeMap<String, Vec<u8>>>>()?;
        let budget = ReadBudget::new(u64::MAX);
        let memory = Memory::new(&budget, Path::new("the ONNX network"), false);
        let metadata = metadata.iter().filter(|(key, _)| *key != BUFFERS);
        let metadata = metadata.map(|(key, value)| (key.clone(), value.clone())).collect();
        structure::with_values(&self.structure, &values, &metadata, &memory).map_err(Error::corrupt)
    }

    fn parse_within(bytes: &[u8], memory: &Memory<'_>) -> Result<Imported> {
        let path = memory.path;
        let corrupt = |why: String| read_error(memory, &why);
        let unsupported = |why: String| Error::unsupported(format!("{}: {why}", path.display()));
        let model = message::model(bytes, memory).map_err(corrupt)?;
        let graph = model.graph.as_ref().ok_or_else(|| corrupt("it has no graph".to_string()))?;
        let opset = model.opsets.iter().find(|(domain, _)| is_onnx(domain)).map_or(0, |(_, version)| *version);
        if !OPSETS.contains(&opset) {
            let known = format!("{} to {}", OPSETS.start(), OPSETS.end());
            return Err(unsupported(format!(
                "operator set {opset} is not supported; export the model with one of {known}"
            )));
        }
        check_operators(graph, &model.functions).map_err(unsupported)?;
        let initialized: BTreeSet<&str> = graph.initializers.iter().map(|tensor| &tensor.name[..]).collect();
        let inputs = graph.inputs.iter().filter(|info| !initialized.contains(&info.name[..]));
        let inputs: Vec<Input> = inputs.map(input).collect::<Result<_, String>>().map_err(corrupt)?;
        let roles = parameters::roles(graph, &model.functions, &untrained(&model));
        // Constants in other files allow as much memory as those in the model's own.
        let tensors = all_tensors(graph, &model.functions);
        let beside = external::file_bytes(&tensors, memory);
        let wider = ReadBudget::for_size(beside.saturating_add(bytes.len() as u64))?;
        let memory = &Memory {
            absent: memory.absent.as_ref().map(|_| RefCell::default()),
            ..Memory::new(if beside > 0 { &wider } else { memory.budget }, path, memory.is_file)
        };
        let corrupt = |why: String| read_error(memory, &why);
        let mut converted = Converter::new(&model.functions, opset, memory).graph(graph).map_err(corrupt)?;
        if converted.outputs.is_empty() {
            return Err(corrupt("its graph has no outputs".to_string()));
        }
        let mut params = Vec::new();
        for (name, role) in &roles {
            let Some(value) = converted.constants.remove(name) else { continue };
            let param = if *role == Role::Weight { Param::new } else { Param::state };
            params.push((name.clone(), param(value.tensor)));
        }
        let absent = memory.absent.as_ref().map(RefCell::borrow);
        if let Some(name) = absent.iter().flat_map(|names| names.iter()).find(|name| !roles.contains_key(*name)) {
            return Err(corrupt(format!("the constant `{name}` has no values")));
        }
        let names = inputs.iter().map(|input| &input.name).chain(params.iter().map(|(name, _)| name));
        converted.inputs = names.cloned().collect();
        let info = file_info(&model, graph, &roles, opset).map_err(corrupt)?;
        let structure = match memory.absent {
            Some(_) => bytes.to_vec(),
            None => structure::without_values(bytes, |name| roles.contains_key(name), memory).map_err(corrupt)?,
        };
        Ok(Imported {
            inputs,
            outputs: converted.outputs.clone(),
            info: info.into(),
            graph: converted,
            params,
            structure: structure.into(),
            device: Device::current()?,
        })
    }

    /// Returns the input of a network with one input and one output.
    ///
    /// # Errors
    /// If there are several, or the input has no axes.
    fn single_input(&self) -> Result<&Input> {
        match (&self.inputs[..], &self.outputs[..]) {
            ([input], [_]) if input.dims.is_empty() => {
                Err(Error::unsupported(format!("the shape of the input `{}` is unknown", input.name)))
            }
            ([input], [_]) => Ok(input),
            (inputs, outputs) => Err(Error::unsupported(format!(
                "the ONNX network has {} inputs and {} outputs; one of each is supported",
                inputs.len(),
                outputs.len()
            ))),
        }
    }

    /// Returns the shape of an example: the lengths of the input's axes after the batch, with those of `example` for dynamic ones.
    ///
    /// # Errors
    /// If there are several inputs or outputs, or a length is dynamic and `example` does not give it.
    pub fn example_shape(&self, example: Option<&[usize]>) -> Result<Vec<usize>> {
        let input = self.single_input()?;
        let own = &input.dims[1..];
        let given = example.filter(|example| example.len() == own.len());
        let length = |(at, length): (usize, &Option<usize>)| length.or_else(|| given.map(|example| example[at]));
        let lengths = own.iter().enumerate().map(length).collect::<Option<Vec<usize>>>();
        match lengths {
            Some(lengths) if lengths.is_empty() => Err(Error::unsupported(format!(
                "the input `{}` has one axis; an input [batch, …] is supported",
                input.name
            ))),
            Some(lengths) => Ok(lengths),
            None => Err(Error::unsupported(format!("the lengths of the input `{}` are dynamic", input.name))),
        }
    }

    /// Returns the shape of the output for examples of this shape, both without the batch.
    ///
    /// # Errors
    /// If the examples do not fit, or the first axis of the output is not the batch.
    pub(crate) fn output_shape(&self, example: &[usize]) -> Result<Vec<usize>> {
        // More than 1, so that an axis of the batch is told from one of length 1.
        const ROWS: usize = 2;
        let input = Tensor::zeros([&[ROWS], example].concat(), DType::F32);
        let output = crate::layer::Layer::forward(self, &input, &mut crate::layer::ForwardContext::eval());
        match output.shape()?.dims() {
            [ROWS, rest @ ..] => Ok(rest.to_vec()),
            other => Err(Error::unsupported(format!(
                "the output `{}` for a batch of {ROWS} has the shape {other:?}; its first axis must be the batch",
                self.outputs[0]
            ))),
        }
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
        let params = self.params.iter().map(|(_, param)| param.tensor());
        let given = inputs.iter().chain(params).map(|tensor| tensor.clone().into()).collect();
        Ok(self.graph.run(given, None, &Cell::new(0))?.into_iter().map(|value| value.tensor).collect())
    }
}

/// Returns the names of the constants that the file marks as not trained.
fn untrained(model: &message::Model<'_>) -> BTreeSet<String> {
    let listed = model.metadata.iter().find(|(key, _)| key == BUFFERS).map(|(_, names)| serde_json::from_str(names));
    listed.and_then(std::result::Result::ok).unwrap_or_default()
}

/// Returns the size of a network without the values of its parameters: the number of parameters and of their elements.
///
/// # Errors
/// If it cannot be parsed.
pub fn size(structure: &[u8]) -> Result<[u128; 2]> {
    let budget = ReadBudget::for_size(structure.len() as u64)?;
    let memory = &Memory::without_values(&budget, Path::new("the ONNX network"));
    let corrupt = |why: String| read_error(memory, &why);
    let model = message::model(structure, memory).map_err(corrupt)?;
    let graph = model.graph.as_ref().ok_or_else(|| corrupt("it has no graph".to_string()))?;
    let roles = parameters::roles(graph, &model.functions, &untrained(&model));
    let params = graph.initializers.iter().filter(|tensor| roles.contains_key(&tensor.name));
    let numel = |dims: &[i64]| dims.iter().fold(1u128, |numel, dim| numel.saturating_mul((*dim).max(0) as u128));
    Ok(params.fold([0, 0], |[count, sum], tensor| [count + 1, sum.saturating_add(numel(&tensor.dims))]))
}

/// Describes a file.
fn file_info(
    model: &message::Model<'_>,
    graph: &message::Graph<'_>,
    roles: &BTreeMap<String, Role>,
    opset: i64,
) -> Result<FileInfo, String> {
    let mut operators = BTreeMap::new();
    for node in all_nodes(&graph.nodes) {
        *operators.entry(qualified(node)).or_default() += 1;
    }
    let constant = |tensor: &message::Tensor<'_>| {
        let dims = tensor.dims.iter().map(|dim| usize::try_from(*dim).map_err(|_| "a shape is negative".to_string()));
        Ok(Constant {
            name: tensor.name.clone(),
            dtype: dtype(tensor.kind)?,
            dims: dims.collect::<Result<_, String>>()?,
            is_trainable: roles.get(&tensor.name) == Some(&Role::Weight),
        })
    };
    let length = |dim: &Option<i64>| usize::try_from(dim.unwrap_or(0)).ok().filter(|length| *length > 0);
    let output = |info: &message::ValueInfo| Output {
        name: info.name.clone(),
        dtype: dtype(info.kind).ok(),
        dims: info.dims.iter().map(length).collect(),
    };
    let [producer, producer_version] = model.producer.clone();
    Ok(FileInfo {
        opset,
        ir_version: model.ir_version,
        producer,
        producer_version,
        operators,
        outputs: graph.outputs.iter().map(output).collect(),
        constants: graph.initializers.iter().map(constant).collect::<Result<_, String>>()?,
        metadata: model.metadata.iter().cloned().collect(),
    })
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
        data_type::FLOAT => DType::F32,
        data_type::UINT8 => DType::U8,
        data_type::INT8 => DType::I8,
        data_type::UINT16 => DType::U16,
        data_type::INT16 => DType::I16,
        data_type::INT32 => DType::I32,
        data_type::INT64 => DType::I64,
        data_type::BOOL => DType::Bool,
        data_type::FLOAT16 => DType::F16,
        data_type::DOUBLE => DType::F64,
        data_type::UINT32 => DType::U32,
        data_type::UINT64 => DType::U64,
        data_type::BFLOAT16 => DType::BF16,
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
    let is_stored = tensor.raw.is_some() || tensor.floats.len() + tensor.doubles.len() + tensor.ints.len() > 0;
    if let (Some(absent), false, Some(1..MAX_ABSENT)) = (&memory.absent, is_stored || tensor.external, count) {
        absent.borrow_mut().insert(tensor.name.clone());
        return Ok(Tensor::zeros(lengths, kind).into());
    }
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
