//! The little of Protocol Buffers that an ONNX file needs. Field numbers are those of `onnx.proto`, IR version 8.

/// A message under construction.
#[derive(Clone, Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: i64) -> Message {
        self.varint(field << 3);
        self.varint(value as u64);
        self
    }

    fn float(mut self, field: u64, value: f32) -> Message {
        self.varint(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Message {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn text(self, field: u64, text: &str) -> Message {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u64, message: &Message) -> Message {
        self.bytes(field, &message.0)
    }
}

/// An attribute's value.
#[derive(Clone, Debug)]
pub enum Value {
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Text.
    Text(&'static str),
    /// Texts.
    Texts(Vec<&'static str>),
    /// Whole numbers.
    Ints(Vec<i64>),
}

/// A graph under construction.
#[derive(Debug)]
pub struct Graph {
    nodes: Message,
    input: Vec<usize>,
}

const FLOAT: i64 = 1;
/// The number of a type.
pub const INT64: i64 = 7;

impl Graph {
    /// A graph whose input has these lengths behind the batch.
    pub fn new(input: &[usize]) -> Graph {
        Graph { nodes: Message::default(), input: input.to_vec() }
    }

    /// An operator.
    pub fn node(&mut self, operator: &str, inputs: &[&str], output: &str, attributes: &[(&str, Value)]) {
        let mut node = Message::default();
        for input in inputs {
            node = node.text(1, input);
        }
        node = node.text(2, output).text(3, output).text(4, operator);
        for (name, value) in attributes {
            let attribute = Message::default().text(1, name);
            let attribute = match value {
                Value::Float(value) => attribute.float(2, *value as f32).number(20, 1),
                Value::Int(value) => attribute.number(3, *value).number(20, 2),
                Value::Text(value) => attribute.text(4, value).number(20, 3),
                Value::Texts(values) => {
                    values.iter().fold(attribute, |attribute, value| attribute.text(9, value)).number(20, 8)
                }
                Value::Ints(values) => values.iter().fold(attribute, |a, value| a.number(8, *value)).number(20, 7),
            };
            node = node.message(5, &attribute);
        }
        self.add(1, &node);
    }

    /// A constant of floats: little-endian bytes of f32.
    pub fn floats(&mut self, name: &str, dims: &[usize], bytes: &[u8]) {
        self.constant(name, dims, FLOAT, bytes);
    }

    /// A constant of whole numbers, a single one without axes if `scalar`.
    pub fn integers(&mut self, name: &str, values: &[i64], scalar: bool) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let dims = if scalar { vec![] } else { vec![values.len()] };
        self.constant(name, &dims, INT64, &bytes);
    }

    fn constant(&mut self, name: &str, dims: &[usize], kind: i64, bytes: &[u8]) {
        let tensor = dims.iter().fold(Message::default(), |tensor, dim| tensor.number(1, *dim as i64));
        self.add(5, &tensor.number(2, kind).text(8, name).bytes(9, bytes));
    }

    fn add(&mut self, field: u64, message: &Message) {
        self.nodes = std::mem::take(&mut self.nodes).message(field, message);
    }

    /// The whole file, of which `value` with these lengths behind the batch is the output.
    pub fn finish(mut self, value: &str, lengths: &[usize]) -> Vec<u8> {
        self.node("Identity", &[value], "output", &[]);
        let graph = std::mem::take(&mut self.nodes).text(2, "panoply");
        let graph = graph.message(11, &described("input", &self.input)).message(12, &described("output", lengths));
        let opset = Message::default().text(1, "").number(2, 17);
        let model = Message::default().number(1, 8).text(2, "panoply").text(3, env!("CARGO_PKG_VERSION"));
        model.message(7, &graph).message(8, &opset).0
    }
}

/// A value of floats with a free batch.
fn described(name: &str, lengths: &[usize]) -> Message {
    let batch = Message::default().text(2, "batch");
    let shape = lengths.iter().fold(Message::default().message(1, &batch), |shape, length| {
        shape.message(1, &Message::default().number(1, *length as i64))
    });
    let tensor = Message::default().number(1, FLOAT).message(2, &shape);
    Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
}
