//! Writing of Protocol Buffers messages.

use super::onnx_proto::tensor;

/// A message under construction.
#[derive(Clone, Debug, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Appends an integer.
    pub fn number(mut self, field: u64, value: i64) -> Message {
        self.varint(field << 3);
        self.varint(value as u64);
        self
    }

    /// Appends an f32.
    pub fn float(mut self, field: u64, value: f32) -> Message {
        self.varint(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Appends the tag and length of a field with this number of bytes.
    pub fn head(mut self, field: u64, bytes: u64) -> Message {
        self.varint(field << 3 | 2);
        self.varint(bytes);
        self
    }

    /// Appends bytes.
    pub fn bytes(mut self, field: u64, bytes: &[u8]) -> Message {
        self = self.head(field, bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    /// Appends a string.
    pub fn text(self, field: u64, text: &str) -> Message {
        self.bytes(field, text.as_bytes())
    }

    /// Appends a message.
    pub fn message(self, field: u64, message: &Message) -> Message {
        self.bytes(field, &message.0)
    }

    /// Appends the bytes of whole fields, tags included.
    pub fn fields(mut self, bytes: &[u8]) -> Message {
        self.0.extend(bytes);
        self
    }
}

/// Returns a constant without its values: shape, number of the element type, and name.
pub fn described_constant(name: &str, dims: &[usize], kind: i64) -> Message {
    let described = dims.iter().fold(Message::default(), |described, dim| described.number(tensor::DIMS, *dim as i64));
    described.number(tensor::DATA_TYPE, kind).text(tensor::NAME, name)
}
