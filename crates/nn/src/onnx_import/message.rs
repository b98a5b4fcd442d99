//! Protocol Buffers messages of an ONNX model, parsed without copying tensor data.
//!
//! The input is untrusted. Every length is checked against the number of remaining bytes, and graphs are nested to a limited depth. Memory
//! is reserved in the read budget before it is allocated, because an empty message of two bytes becomes a struct of several hundred bytes.

use super::Memory;
use super::onnx_proto as proto;

/// A parsed message, or a description of the error.
pub type Parsed<T> = Result<T, String>;

/// A model: a graph and the versions of its opsets.
#[derive(Debug, Default)]
pub struct Model<'a> {
    /// Graph, if there is one.
    pub graph: Option<Graph<'a>>,
    /// Domain and version of each opset; the empty domain is ONNX's own.
    pub opsets: Vec<(String, i64)>,
    /// Functions, which nodes call like operators.
    pub functions: Vec<Function<'a>>,
    /// Version of the file format.
    pub ir_version: i64,
    /// Name and version of the program that wrote the file.
    pub producer: [String; 2],
    /// Keys and values that the author of the file added.
    pub metadata: Vec<(String, String)>,
}

/// A function: nodes with named inputs, outputs and attributes.
#[derive(Debug, Default)]
pub struct Function<'a> {
    /// Name of the function.
    pub name: String,
    /// Domain of the function.
    pub domain: String,
    /// Names of the inputs.
    pub inputs: Vec<String>,
    /// Names of the outputs.
    pub outputs: Vec<String>,
    /// Operators in topological order.
    pub nodes: Vec<Node<'a>>,
    /// Attributes with a default value.
    pub defaults: Vec<Attribute<'a>>,
    /// Domain and version of each opset.
    pub opsets: Vec<(String, i64)>,
}

/// A graph: nodes in topological order, constants, inputs and outputs.
#[derive(Debug, Default)]
pub struct Graph<'a> {
    /// Operators in topological order.
    pub nodes: Vec<Node<'a>>,
    /// Constants.
    pub initializers: Vec<Tensor<'a>>,
    /// Inputs, which may include constants.
    pub inputs: Vec<ValueInfo>,
    /// Outputs.
    pub outputs: Vec<ValueInfo>,
}

/// An operator applied to named values.
#[derive(Debug, Default)]
pub struct Node<'a> {
    /// Names of the operands; empty if omitted.
    pub inputs: Vec<String>,
    /// Names of the results.
    pub outputs: Vec<String>,
    /// Name of the operator.
    pub operator: String,
    /// Domain of the operator; empty for ONNX's own.
    pub domain: String,
    /// Attributes.
    pub attributes: Vec<Attribute<'a>>,
}

/// An attribute of a node; only the fields of its type are set.
#[derive(Debug, Default)]
pub struct Attribute<'a> {
    /// Name of the attribute.
    pub name: String,
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
    pub tensor: Option<Tensor<'a>>,
    /// Name of the function's attribute that has the value; empty if the value is here.
    pub reference: String,
    /// Graph value, such as the body of a loop.
    pub graph: Option<Graph<'a>>,
}

/// A constant.
#[derive(Debug, Default)]
pub struct Tensor<'a> {
    /// Name of the constant.
    pub name: String,
    /// Shape.
    pub dims: Vec<i64>,
    /// Number of the element type.
    pub kind: i64,
    /// Little-endian elements, if stored as bytes.
    pub raw: Option<&'a [u8]>,
    /// Elements, if stored as f32.
    pub floats: Vec<f32>,
    /// Elements, if stored as f64.
    pub doubles: Vec<f64>,
    /// Elements, if stored as integers.
    pub ints: Vec<i64>,
    /// True if the elements are in another file.
    pub external: bool,
    /// Keys and values that say where in which file the elements are.
    pub location: Vec<(String, String)>,
}

/// A named value with its shape.
#[derive(Debug, Default)]
pub struct ValueInfo {
    /// Name of the value.
    pub name: String,
    /// Number of the element type; 0 if unknown.
    pub kind: i64,
    /// Shape; `None` for a dynamic length.
    pub dims: Vec<Option<i64>>,
}

/// The content of a field.
#[derive(Clone, Copy)]
pub enum Field<'a> {
    /// An integer of variable length.
    Varint(u64),
    /// Eight bytes.
    Fixed64([u8; 8]),
    /// Bytes, a string or a message.
    Bytes(&'a [u8]),
    /// Four bytes.
    Fixed32([u8; 4]),
}

/// The fields of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Parsed<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or("an integer is truncated")?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number has more than 64 bits".to_string())
    }

    fn take(&mut self, bytes: u64) -> Parsed<&'a [u8]> {
        let length = usize::try_from(bytes).ok().filter(|length| *length <= self.0.len());
        let length =
            length.ok_or_else(|| format!("a field of {bytes} bytes does not fit the {} left", self.0.len()))?;
        let (field, rest) = self.0.split_at(length);
        self.0 = rest;
        Ok(field)
    }

    /// Returns the number of the next field and its content.
    fn next(&mut self) -> Parsed<Option<(u64, Field<'a>)>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let head = self.varint()?;
        let field = match head & 7 {
            0 => Field::Varint(self.varint()?),
            1 => Field::Fixed64(self.take(8)?.try_into().expect("8 bytes were taken")),
            2 => {
                let bytes = self.varint()?;
                Field::Bytes(self.take(bytes)?)
            }
            5 => Field::Fixed32(self.take(4)?.try_into().expect("4 bytes were taken")),
            kind => return Err(format!("field {} has the unknown wire type {kind}", head >> 3)),
        };
        Ok(Some((head >> 3, field)))
    }
}

impl<'a> Field<'a> {
    /// Returns the content of a field of bytes.
    pub fn bytes(self) -> Parsed<&'a [u8]> {
        match self {
            Field::Bytes(bytes) => Ok(bytes),
            Field::Varint(_) | Field::Fixed64(_) | Field::Fixed32(_) => {
                Err("expected bytes, found a number".to_string())
            }
        }
    }

    fn text(self, memory: &Memory<'_>) -> Parsed<String> {
        let bytes = self.bytes()?;
        memory.take(bytes.len())?;
        String::from_utf8(bytes.to_vec()).map_err(|_| "a name is not UTF-8".to_string())
    }

    fn int(self) -> Parsed<i64> {
        match self {
            Field::Varint(value) => Ok(value as i64),
            Field::Fixed64(_) | Field::Bytes(_) | Field::Fixed32(_) => {
                Err("expected an integer in this field".to_string())
            }
        }
    }

    fn float(self) -> Parsed<f32> {
        match self {
            Field::Fixed32(bytes) => Ok(f32::from_le_bytes(bytes)),
            Field::Fixed64(_) | Field::Bytes(_) | Field::Varint(_) => Err("expected an f32".to_string()),
        }
    }

    /// Appends an integer, or several packed ones.
    fn ints(self, into: &mut Vec<i64>, memory: &Memory<'_>) -> Parsed<()> {
        let Field::Bytes(bytes) = self else { return push(into, self.int()?, memory) };
        let mut packed = Fields(bytes);
        while !packed.0.is_empty() {
            push(into, packed.varint()? as i64, memory)?;
        }
        Ok(())
    }

    fn floats(self, into: &mut Vec<f32>, memory: &Memory<'_>) -> Parsed<()> {
        let Field::Bytes(bytes) = self else { return push(into, self.float()?, memory) };
        memory.take(2 * bytes.len())?;
        into.extend(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        Ok(())
    }

    fn doubles(self, into: &mut Vec<f64>, memory: &Memory<'_>) -> Parsed<()> {
        match self {
            Field::Bytes(bytes) => {
                memory.take(2 * bytes.len())?;
                into.extend(bytes.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)));
                Ok(())
            }
            Field::Fixed64(bytes) => push(into, f64::from_le_bytes(bytes), memory),
            Field::Varint(_) | Field::Fixed32(_) => Err("expected an f64".to_string()),
        }
    }
}

/// Appends a value to a vector, which takes up to four times the memory of its values.
fn push<T>(into: &mut Vec<T>, value: T, memory: &Memory<'_>) -> Parsed<()> {
    memory.take(4 * size_of::<T>())?;
    into.push(value);
    Ok(())
}

/// Calls `each` for every field of a message.
fn fields<'a>(bytes: &'a [u8], mut each: impl FnMut(u64, Field<'a>) -> Parsed<()>) -> Parsed<()> {
    let mut fields = Fields(bytes);
    while let Some((number, field)) = fields.next()? {
        each(number, field)?;
    }
    Ok(())
}

/// Calls `each` for every field of a message, with the field's bytes, tag included.
pub fn raw_fields<'a>(bytes: &'a [u8], mut each: impl FnMut(u64, Field<'a>, &'a [u8]) -> Parsed<()>) -> Parsed<()> {
    let mut fields = Fields(bytes);
    loop {
        let before = fields.0;
        let Some((number, field)) = fields.next()? else { return Ok(()) };
        each(number, field, &before[..before.len() - fields.0.len()])?;
    }
}

/// Parses a model.
pub fn model<'a>(bytes: &'a [u8], memory: &Memory<'_>) -> Parsed<Model<'a>> {
    let mut model = Model::default();
    fields(bytes, |number, field| {
        match number {
            proto::model::IR_VERSION => model.ir_version = field.int()?,
            proto::model::PRODUCER_NAME => model.producer[0] = field.text(memory)?,
            proto::model::PRODUCER_VERSION => model.producer[1] = field.text(memory)?,
            proto::model::GRAPH => model.graph = Some(graph(field.bytes()?, memory)?),
            proto::model::METADATA_PROPS => push(&mut model.metadata, entry(field.bytes()?, memory)?, memory)?,
            proto::model::OPSET_IMPORT => push(&mut model.opsets, opset(field.bytes()?, memory)?, memory)?,
            proto::model::FUNCTIONS => push(&mut model.functions, function(field.bytes()?, memory)?, memory)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(model)
}

fn function<'a>(bytes: &'a [u8], memory: &Memory<'_>) -> Parsed<Function<'a>> {
    let mut function = Function::default();
    fields(bytes, |number, field| {
        match number {
            proto::function::NAME => function.name = field.text(memory)?,
            proto::function::INPUT => push(&mut function.inputs, field.text(memory)?, memory)?,
            proto::function::OUTPUT => push(&mut function.outputs, field.text(memory)?, memory)?,
            proto::function::NODE => push(&mut function.nodes, node(field.bytes()?, memory)?, memory)?,
            proto::function::OPSET_IMPORT => push(&mut function.opsets, opset(field.bytes()?, memory)?, memory)?,
            proto::function::DOMAIN => function.domain = field.text(memory)?,
            proto::function::ATTRIBUTE_PROTO => {
                push(&mut function.defaults, attribute(field.bytes()?, memory)?, memory)?
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(function)
}

fn opset(bytes: &[u8], memory: &Memory<'_>) -> Parsed<(String, i64)> {
    let mut opset = (String::new(), 0);
    fields(bytes, |number, field| {
        match number {
            proto::opset::DOMAIN => opset.0 = field.text(memory)?,
            proto::opset::VERSION => opset.1 = field.int()?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(opset)
}

fn graph<'a>(bytes: &'a [u8], memory: &Memory<'_>) -> Parsed<Graph<'a>> {
    let mut graph = Graph::default();
    fields(bytes, |number, field| {
        match number {
            proto::graph::NODE => push(&mut graph.nodes, node(field.bytes()?, memory)?, memory)?,
            proto::graph::INITIALIZER => push(&mut graph.initializers, tensor(field.bytes()?, memory)?, memory)?,
            proto::graph::INPUT => push(&mut graph.inputs, value_info(field.bytes()?, memory)?, memory)?,
            proto::graph::OUTPUT => push(&mut graph.outputs, value_info(field.bytes()?, memory)?, memory)?,
            proto::graph::SPARSE_INITIALIZER => return Err("sparse constants are not supported".to_string()),
            _ => {}
        }
        Ok(())
    })?;
    Ok(graph)
}

fn node<'a>(bytes: &'a [u8], memory: &Memory<'_>) -> Parsed<Node<'a>> {
    let mut node = Node::default();
    fields(bytes, |number, field| {
        match number {
            proto::node::INPUT => push(&mut node.inputs, field.text(memory)?, memory)?,
            proto::node::OUTPUT => push(&mut node.outputs, field.text(memory)?, memory)?,
            proto::node::OP_TYPE => node.operator = field.text(memory)?,
            proto::node::ATTRIBUTE => push(&mut node.attributes, attribute(field.bytes()?, memory)?, memory)?,
            proto::node::DOMAIN => node.domain = field.text(memory)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(node)
}

fn attribute<'a>(bytes: &'a [u8], memory: &Memory<'_>) -> Parsed<Attribute<'a>> {
    let mut attribute = Attribute::default();
    fields(bytes, |number, field| {
        match number {
            proto::attribute::NAME => attribute.name = field.text(memory)?,
            proto::attribute::F => attribute.float = field.float()?,
            proto::attribute::I => attribute.int = field.int()?,
            proto::attribute::S => attribute.text = field.text(memory)?,
            proto::attribute::G => attribute.graph = Some(memory.nested(|| graph(field.bytes()?, memory))?),
            proto::attribute::T => attribute.tensor = Some(tensor(field.bytes()?, memory)?),
            proto::attribute::FLOATS => field.floats(&mut attribute.floats, memory)?,
            proto::attribute::INTS => field.ints(&mut attribute.ints, memory)?,
            proto::attribute::REF_ATTR_NAME => attribute.reference = field.text(memory)?,
            proto::attribute::STRINGS => push(&mut attribute.texts, field.text(memory)?, memory)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(attribute)
}

/// Parses a key and its value.
pub fn entry(bytes: &[u8], memory: &Memory<'_>) -> Parsed<(String, String)> {
    let mut entry = (String::new(), String::new());
    fields(bytes, |number, field| {
        match number {
            proto::entry::KEY => entry.0 = field.text(memory)?,
            proto::entry::VALUE => entry.1 = field.text(memory)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(entry)
}

/// Parses a constant.
pub fn tensor<'a>(bytes: &'a [u8], memory: &Memory<'_>) -> Parsed<Tensor<'a>> {
    let mut tensor = Tensor::default();
    fields(bytes, |number, field| {
        match number {
            proto::tensor::DIMS => field.ints(&mut tensor.dims, memory)?,
            proto::tensor::DATA_TYPE => tensor.kind = field.int()?,
            proto::tensor::FLOAT_DATA => field.floats(&mut tensor.floats, memory)?,
            proto::tensor::INT32_DATA | proto::tensor::INT64_DATA | proto::tensor::UINT64_DATA => {
                field.ints(&mut tensor.ints, memory)?
            }
            proto::tensor::NAME => tensor.name = field.text(memory)?,
            proto::tensor::RAW_DATA => tensor.raw = Some(field.bytes()?),
            proto::tensor::DOUBLE_DATA => field.doubles(&mut tensor.doubles, memory)?,
            proto::tensor::EXTERNAL_DATA => push(&mut tensor.location, entry(field.bytes()?, memory)?, memory)?,
            proto::tensor::DATA_LOCATION => tensor.external = field.int()? != 0,
            _ => {}
        }
        Ok(())
    })?;
    Ok(tensor)
}

fn value_info(bytes: &[u8], memory: &Memory<'_>) -> Parsed<ValueInfo> {
    let mut info = ValueInfo::default();
    let mut tensor_type: &[u8] = &[];
    let mut shape: &[u8] = &[];
    fields(bytes, |number, field| {
        match number {
            proto::value_info::NAME => info.name = field.text(memory)?,
            proto::value_info::TYPE => fields(field.bytes()?, |number, field| {
                if number == proto::value_type::TENSOR_TYPE {
                    tensor_type = field.bytes()?;
                }
                Ok(())
            })?,
            _ => {}
        }
        Ok(())
    })?;
    fields(tensor_type, |number, field| {
        match number {
            proto::tensor_type::ELEM_TYPE => info.kind = field.int()?,
            proto::tensor_type::SHAPE => shape = field.bytes()?,
            _ => {}
        }
        Ok(())
    })?;
    fields(shape, |number, field| {
        let mut length = None;
        if number == proto::shape::DIM {
            fields(field.bytes()?, |number, field| {
                if number == proto::dimension::DIM_VALUE {
                    length = Some(field.int()?);
                }
                Ok(())
            })?;
            push(&mut info.dims, length, memory)?;
        }
        Ok(())
    })?;
    Ok(info)
}
