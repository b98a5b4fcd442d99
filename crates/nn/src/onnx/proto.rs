//! Serialization of ONNX graphs that are written operator by operator.
//!
//! Float constants are copied to host memory one at a time while the file is written, so a large network is not held twice.

use panoply_tensor::{Result, Tensor};

use crate::onnx_import::onnx_proto::{
    attribute, attribute_type, data_type, dimension, entry, graph, model, node, opset, shape, tensor, tensor_type,
    value_info, value_type,
};
use crate::onnx_import::wire::{Message, described_constant};

/// The value of an attribute.
#[derive(Clone, Debug)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A string.
    Text(&'static str),
    /// Integers.
    Ints(Vec<i64>),
    /// Strings.
    Texts(Vec<&'static str>),
}

/// A graph under construction.
#[derive(Debug)]
pub struct Graph {
    nodes: Message,
    /// Float constants, which can be large. They are copied to host memory only when the file is written.
    floats: Vec<Floats>,
    input: Vec<usize>,
    /// Fields of the model behind the graph.
    metadata: Message,
    /// Names of the constants that are not trained although operators use them like weights.
    buffers: Vec<String>,
}

/// A float constant.
#[derive(Debug)]
struct Floats {
    name: String,
    dims: Vec<usize>,
    values: Tensor,
}

impl Floats {
    fn bytes(&self) -> u64 {
        self.dims.iter().fold(4, |bytes, dim| bytes.saturating_mul(*dim as u64))
    }
}

/// Location of large constants.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// In the file itself.
    Inside,
    /// In a second file with this name in the same folder.
    Beside(&'a str),
}

/// Version of the file format.
const IR_VERSION: i64 = 8;
/// Location of a constant in another file (`TensorProto.DataLocation`).
const EXTERNAL: i64 = 1;

/// Constants with fewer bytes are always stored in the file itself.
const SMALL_BYTES: u64 = 1024;

/// Alignment of arrays in a second file: a page, so that they can be memory-mapped.
const PAGE_BYTES: u64 = 4096;

impl Graph {
    /// Creates a graph with an input of this shape, without the batch.
    pub fn new(input: &[usize]) -> Graph {
        Graph {
            nodes: Message::default(),
            floats: Vec::new(),
            input: input.to_vec(),
            metadata: Message::default(),
            buffers: Vec::new(),
        }
    }

    /// Adds an operator.
    pub fn node(&mut self, operator: &str, inputs: &[&str], output: &str, attributes: &[(&str, Value)]) {
        let mut written = Message::default();
        for input in inputs {
            written = written.text(node::INPUT, input);
        }
        written = written.text(node::OUTPUT, output).text(node::NAME, output).text(node::OP_TYPE, operator);
        for (name, value) in attributes {
            let named = Message::default().text(attribute::NAME, name);
            let (filled, kind) = match value {
                Value::Float(value) => (named.float(attribute::F, *value as f32), attribute_type::FLOAT),
                Value::Int(value) => (named.number(attribute::I, *value), attribute_type::INT),
                Value::Text(value) => (named.text(attribute::S, value), attribute_type::STRING),
                Value::Ints(values) => {
                    let add = |named: Message, value: &i64| named.number(attribute::INTS, *value);
                    (values.iter().fold(named, add), attribute_type::INTS)
                }
                Value::Texts(values) => {
                    let add = |named: Message, value: &&str| named.text(attribute::STRINGS, value);
                    (values.iter().fold(named, add), attribute_type::STRINGS)
                }
            };
            written = written.message(node::ATTRIBUTE, &filled.number(attribute::TYPE, kind));
        }
        self.add(graph::NODE, &written);
    }

    /// Adds an entry of the model's metadata (`metadata_props`).
    pub fn metadata(&mut self, key: &str, value: &str) {
        let written = Message::default().text(entry::KEY, key).text(entry::VALUE, value);
        self.metadata = std::mem::take(&mut self.metadata).message(model::METADATA_PROPS, &written);
    }

    /// Marks a constant as one that is not trained.
    pub fn buffer(&mut self, name: &str) {
        self.buffers.push(name.to_string());
    }

    /// Returns the names of the constants that are not trained.
    pub fn buffers(&self) -> &[String] {
        &self.buffers
    }

    /// Adds a float constant from an f32 tensor.
    ///
    /// # Errors
    /// If the tensor is a mistake.
    pub fn floats(&mut self, name: &str, values: &Tensor) -> Result<()> {
        let dims = values.shape()?.dims().to_vec();
        self.floats.push(Floats { name: name.to_string(), dims, values: values.clone() });
        Ok(())
    }

    /// Adds a scalar f32 constant.
    pub fn float(&mut self, name: &str, value: f32) {
        self.constant(name, &[], data_type::FLOAT, &value.to_le_bytes());
    }

    /// Adds a bool constant with this shape.
    pub fn bools(&mut self, name: &str, dims: &[usize], values: &[bool]) {
        let bytes: Vec<u8> = values.iter().map(|value| u8::from(*value)).collect();
        self.constant(name, dims, data_type::BOOL, &bytes);
    }

    /// Adds an i64 constant, a vector or, if `scalar`, a scalar.
    pub fn integers(&mut self, name: &str, values: &[i64], scalar: bool) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let dims = if scalar { vec![] } else { vec![values.len()] };
        self.constant(name, &dims, data_type::INT64, &bytes);
    }

    fn constant(&mut self, name: &str, dims: &[usize], kind: i64, bytes: &[u8]) {
        self.add(graph::INITIALIZER, &described_constant(name, dims, kind).bytes(tensor::RAW_DATA, bytes));
    }

    fn add(&mut self, field: u64, message: &Message) {
        self.nodes = std::mem::take(&mut self.nodes).message(field, message);
    }

    /// Returns an upper bound of the file's size with all constants in it.
    pub fn bytes(&self) -> u64 {
        let described = |floats: &Floats| 16 * floats.dims.len() + floats.name.len() + 64;
        let floats = self.floats.iter().map(|floats| floats.bytes().saturating_add(described(floats) as u64));
        floats.fold((self.nodes.0.len() + self.metadata.0.len()) as u64 + 4096, u64::saturating_add)
    }

    /// Writes the file with `write`, and the arrays of a second file with `beside`, both in order. `value` is the output, with this shape
    /// without the batch.
    ///
    /// # Errors
    /// If a constant cannot be read back, or those of `write` and `beside`.
    pub fn finish(
        mut self,
        (value, lengths): (&str, &[usize]),
        data: Data<'_>,
        write: &mut dyn FnMut(&[u8]) -> Result<()>,
        beside: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.node("Identity", &[value], "output", &[]);
        let (mut end, mut constants) = (0u64, Vec::new());
        for floats in &self.floats {
            let described = described_constant(&floats.name, &floats.dims, data_type::FLOAT);
            constants.push(match data {
                Data::Beside(location) if floats.bytes() >= SMALL_BYTES => {
                    let offset = end.next_multiple_of(PAGE_BYTES);
                    beside(&vec![0; (offset - end) as usize])?;
                    beside(&floats.values.to_bytes()?)?;
                    end = offset + floats.bytes();
                    (stored_beside(described, location, offset, floats.bytes()), 0)
                }
                Data::Inside | Data::Beside(_) => (described, delimited(floats.bytes())),
            });
        }
        let last = Message::default()
            .text(graph::NAME, "panoply")
            .message(graph::INPUT, &described("input", &self.input))
            .message(graph::OUTPUT, &described("output", lengths));
        let sizes: Vec<u64> = constants.iter().map(|(described, raw)| described.0.len() as u64 + raw).collect();
        let all: u64 = sizes.iter().map(|size| delimited(*size)).sum();
        let written = Message::default()
            .number(model::IR_VERSION, IR_VERSION)
            .text(model::PRODUCER_NAME, "panoply")
            .text(model::PRODUCER_VERSION, env!("CARGO_PKG_VERSION"));
        write(&written.head(model::GRAPH, (self.nodes.0.len() + last.0.len()) as u64 + all).0)?;
        write(&self.nodes.0)?;
        for ((floats, (described, raw)), size) in self.floats.iter().zip(constants).zip(sizes) {
            write(&Message::default().head(graph::INITIALIZER, size).0)?;
            write(&described.0)?;
            if raw > 0 {
                write(&Message::default().head(tensor::RAW_DATA, floats.bytes()).0)?;
                write(&floats.values.to_bytes()?)?;
            }
        }
        write(&last.0)?;
        let own = Message::default().text(opset::DOMAIN, "").number(opset::VERSION, super::OPSET);
        write(&Message::default().message(model::OPSET_IMPORT, &own).0)?;
        write(&self.metadata.0)
    }
}

/// Describes a constant whose values are in a second file.
fn stored_beside(described: Message, location: &str, offset: u64, length: u64) -> Message {
    let place = [("location", location.to_string()), ("offset", offset.to_string()), ("length", length.to_string())];
    let entries = place.iter().map(|(key, value)| Message::default().text(entry::KEY, key).text(entry::VALUE, value));
    let located = entries.fold(described, |described, entry| described.message(tensor::EXTERNAL_DATA, &entry));
    located.number(tensor::DATA_LOCATION, EXTERNAL)
}

/// Returns the size of a field with its tag and length; all field numbers are below 16.
fn delimited(bytes: u64) -> u64 {
    Message::default().head(1, bytes).0.len() as u64 + bytes
}

/// Describes a float value with a dynamic batch.
fn described(name: &str, lengths: &[usize]) -> Message {
    let batch = Message::default().text(dimension::DIM_PARAM, "batch");
    let dims = lengths.iter().fold(Message::default().message(shape::DIM, &batch), |dims, length| {
        dims.message(shape::DIM, &Message::default().number(dimension::DIM_VALUE, *length as i64))
    });
    let tensor = Message::default().number(tensor_type::ELEM_TYPE, data_type::FLOAT).message(tensor_type::SHAPE, &dims);
    let of_tensor = Message::default().message(value_type::TENSOR_TYPE, &tensor);
    Message::default().text(value_info::NAME, name).message(value_info::TYPE, &of_tensor)
}
