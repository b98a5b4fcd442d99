//! NumPy's `.npy` files, each with one array.
//!
//! Source: NumPy Enhancement Proposal 1, versions 1 to 3.

mod header;

use std::path::Path;

use panoply_tensor::{DType, Error, Result, Scalar, Tensor};

use super::{ReadBudget, read};
use header::{Element, Header};

const MAGIC: &[u8] = b"\x93NUMPY";

/// An array in host memory, which can be larger than a device's buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub dims: Vec<usize>,
    /// Elements, little-endian and in row-major order.
    pub bytes: Vec<u8>,
}

impl Array {
    /// Reads a file of numbers in any byte order, C or Fortran order, gzipped or not.
    ///
    /// # Errors
    /// A file that cannot be read or is damaged, and elements that are not numbers.
    pub fn read(path: &Path) -> Result<Array> {
        Array::read_within(path, &ReadBudget::for_file(path)?)
    }

    /// [`Array::read`] under the budget of a larger read.
    pub(super) fn read_within(path: &Path, budget: &ReadBudget) -> Result<Array> {
        Content::read(path, budget)?.numbers().map_err(|what| Error::corrupt(format!("{}: {what}", path.display())))
    }

    /// Copies the array to the current device.
    ///
    /// # Errors
    /// If the device has not enough memory.
    pub fn to_tensor(&self) -> Result<Tensor> {
        let tensor = Tensor::from_bytes(&self.bytes, self.dims.clone(), self.dtype);
        tensor.check().map(|()| tensor)
    }

    /// Returns the elements in order.
    pub fn scalars(&self) -> impl Iterator<Item = Scalar> + '_ {
        self.bytes.chunks_exact(self.dtype.bytes()).map(|element| self.element(element))
    }

    /// Returns the element at this position in row-major order.
    pub(super) fn scalar(&self, at: usize) -> Scalar {
        self.element(&self.bytes[at * self.dtype.bytes()..][..self.dtype.bytes()])
    }

    fn element(&self, bytes: &[u8]) -> Scalar {
        let mut bits = [0; 8];
        bits[..bytes.len()].copy_from_slice(bytes);
        Scalar { dtype: self.dtype, bits: u64::from_le_bytes(bits) }
    }

    /// Returns the elements rounded to f32.
    pub fn to_f32_vec(&self) -> Vec<f32> {
        let wide = self.dtype.is_float();
        self.scalars().map(|x| if wide { x.to_f64() as f32 } else { x.to_i128() as f32 }).collect()
    }
}

/// Reads an array of numbers onto the current device.
///
/// # Errors
/// Those of [`Array::read`], and a device without enough memory.
pub fn load(path: &Path) -> Result<Tensor> {
    Array::read(path)?.to_tensor()
}

/// Writes a tensor; the file is written atomically.
///
/// # Errors
/// If the element type is bf16, the tensor cannot be read back, or the file cannot be written.
pub fn save(tensor: &Tensor, path: &Path) -> Result<()> {
    crate::checkpoint::write_atomic(path, &to_bytes(tensor)?)
}

/// Returns the bytes of a `.npy` file.
pub(super) fn to_bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    let Some((code, _)) = CODES.iter().find(|(_, dtype)| *dtype == tensor.dtype()) else {
        return Err(Error::mistake(format!("{tensor:?}: NumPy has no such element type; cast it to f32 first")));
    };
    let dims: Vec<String> = tensor.shape()?.dims().iter().map(usize::to_string).collect();
    // A tuple of one element has a trailing comma.
    let dims = dims.join(", ") + if dims.len() == 1 { "," } else { "" };
    let header = format!("{{'descr': '{code}', 'fortran_order': False, 'shape': ({dims}), }}");
    // The data begin at a multiple of 64 bytes, after a line feed.
    let padding = (64 - (MAGIC.len() + 4 + header.len() + 1) % 64) % 64;
    let length = u16::try_from(header.len() + padding + 1)
        .map_err(|error| Error::mistake(format!("{tensor:?} has too many axes for a file")).with_source(error))?;
    let start = [MAGIC, &[1, 0], &length.to_le_bytes(), header.as_bytes()].concat();
    Ok([&start[..], &vec![b' '; padding], b"\n", &tensor.to_bytes()?].concat())
}

const CODES: [(&str, DType); 12] = [
    ("|b1", DType::Bool),
    ("|i1", DType::I8),
    ("<i2", DType::I16),
    ("<i4", DType::I32),
    ("<i8", DType::I64),
    ("|u1", DType::U8),
    ("<u2", DType::U16),
    ("<u4", DType::U32),
    ("<u8", DType::U64),
    ("<f2", DType::F16),
    ("<f4", DType::F32),
    ("<f8", DType::F64),
];

/// The elements of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Numbers(Array),
    /// Texts in row-major order, with the lengths of the axes.
    Texts(Vec<String>, Vec<usize>),
}

impl Content {
    /// Reads a file.
    pub fn read(path: &Path, budget: &ReadBudget) -> Result<Content> {
        let bytes = read(path, budget)?;
        // The elements are copied out of the file.
        budget.take(bytes.len() as u64, path)?;
        let parsed = Content::parse(&bytes);
        budget.give_back(bytes.len() as u64);
        parsed.map_err(|what| Error::corrupt(format!("{}: {what}", path.display())))
    }

    /// The array of numbers.
    ///
    /// # Errors
    /// A message if the elements are text.
    pub fn numbers(self) -> Result<Array, String> {
        match self {
            Content::Numbers(array) => Ok(array),
            Content::Texts(..) => Err("its elements are text, not numbers".to_string()),
        }
    }

    /// Parses the bytes of a file.
    ///
    /// # Errors
    /// A message that says what is wrong with the file.
    pub fn parse(bytes: &[u8]) -> Result<Content, String> {
        let rest = bytes.strip_prefix(MAGIC).ok_or("it is not a NumPy array")?;
        let (version, length, rest) = match rest {
            [version @ 1, 0, a, b, rest @ ..] => (*version, u16::from_le_bytes([*a, *b]) as usize, rest),
            [version @ (2 | 3), 0, a, b, c, d, rest @ ..] => {
                (*version, u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest)
            }
            _ => return Err("its version is not 1.0, 2.0 or 3.0".to_string()),
        };
        let (header, data) = rest.split_at_checked(length).ok_or("it ends within its header")?;
        let header = match version {
            3 => String::from_utf8(header.to_vec()).map_err(|error| format!("its header is not UTF-8: {error}"))?,
            // Latin-1: each byte is the character of its number.
            _ => header.iter().map(|byte| char::from(*byte)).collect(),
        };
        let Header { element, big_endian, fortran_order, dims } = header::parse(&header)?;
        let width = element.bytes().ok_or("its elements are too long")?;
        let size = dims.iter().try_fold(width, |size, dim| size.checked_mul(*dim));
        // Lengths beside an empty axis are bounded, too.
        let counted = dims.iter().try_fold(width.max(1), |size, dim| size.checked_mul((*dim).max(1)));
        if size != Some(data.len()) || counted.is_none_or(|bytes| i64::try_from(bytes).is_err()) {
            let named = match element {
                Element::Number(dtype) => dtype.to_string(),
                Element::Bytes(_) | Element::Unicode(_) => "text".to_string(),
            };
            return Err(format!("{} bytes do not match {named}{dims:?}", data.len()));
        }
        let mut bytes = if fortran_order { c_order(data, width, &dims) } else { data.to_vec() };
        let unit = if let Element::Unicode(_) = element { 4 } else { width };
        if big_endian {
            bytes.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
        }
        Ok(match element {
            Element::Number(dtype) => Content::Numbers(Array { dtype, dims, bytes }),
            // Each of them is an empty text, and their number is bounded by nothing in the file.
            Element::Bytes(0) | Element::Unicode(0) => return Err("its elements are empty texts".to_string()),
            Element::Bytes(length) => Content::Texts(texts(&bytes, length, ascii)?, dims),
            Element::Unicode(length) => Content::Texts(texts(&bytes, 4 * length, unicode)?, dims),
        })
    }
}

/// Elements in Fortran order, copied to C order.
fn c_order(data: &[u8], width: usize, dims: &[usize]) -> Vec<u8> {
    let mut strides = vec![width; dims.len()];
    for axis in 1..dims.len() {
        strides[axis] = strides[axis - 1] * dims[axis - 1];
    }
    let (mut bytes, mut index, mut at) = (Vec::with_capacity(data.len()), vec![0; dims.len()], 0);
    while bytes.len() < data.len() {
        bytes.extend_from_slice(&data[at..at + width]);
        // The next index in C order: the last axis that is not at its end counts up, those behind it begin again.
        for axis in (0..dims.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < dims[axis] {
                break;
            }
            at -= strides[axis] * dims[axis];
            index[axis] = 0;
        }
    }
    bytes
}

/// Decodes elements of text.
fn texts(bytes: &[u8], width: usize, decode: fn(&[u8]) -> Result<String, String>) -> Result<Vec<String>, String> {
    bytes.chunks_exact(width).map(decode).collect()
}

/// Decodes text of one byte a character, without the zeros behind it.
fn ascii(bytes: &[u8]) -> Result<String, String> {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    String::from_utf8(bytes[..end].to_vec()).map_err(|_| "one of its texts is not UTF-8".to_string())
}

/// Decodes text of four bytes a character, without the zeros behind it.
fn unicode(bytes: &[u8]) -> Result<String, String> {
    let codes = bytes.chunks_exact(4).map(|code| u32::from_le_bytes([code[0], code[1], code[2], code[3]]));
    let text: Option<String> = codes.map(char::from_u32).collect();
    text.map(|text| text.trim_end_matches('\0').to_string())
        .ok_or_else(|| "one of its texts is not Unicode".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let length = (header.len() as u16).to_le_bytes();
        [MAGIC, &[1, 0], &length, header.as_bytes(), data].concat()
    }

    /// Against `numpy.asfortranarray(numpy.arange(24).reshape(2, 3, 4))`, whose bytes are those of the reversed axes.
    #[test]
    fn fortran_order_and_big_endian_numbers() {
        let value = |i: u16, j: u16, k: u16| 12 * i + 4 * j + k;
        let mut data = Vec::new();
        for (k, j, i) in (0..4).flat_map(|k| (0..3).flat_map(move |j| (0..2).map(move |i| (k, j, i)))) {
            data.extend(value(i, j, k).to_be_bytes());
        }
        let header = "{'descr': '>u2', 'fortran_order': True, 'shape': (2, 3, 4)}";
        let array = Content::parse(&file(header, &data)).unwrap().numbers().unwrap();
        let wanted: Vec<u8> = (0..24u16).flat_map(u16::to_le_bytes).collect();
        assert_eq!(array, Array { dtype: DType::U16, dims: vec![2, 3, 4], bytes: wanted });
    }

    /// Against `numpy.array(["né", "b"])` in both byte orders and `numpy.array([b"ab", b"c"])`.
    #[test]
    fn texts_lose_their_padding() {
        let codes = ['n', 'é', 'b', '\0'].map(|char| char as u32);
        let parse = |descr: &str, data: &[u8]| {
            let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (2,)}}");
            Content::parse(&file(&header, data))
        };
        let texts = |texts: &[&str]| Ok(Content::Texts(texts.iter().map(|text| text.to_string()).collect(), vec![2]));
        assert_eq!(parse("<U2", &codes.map(u32::to_le_bytes).concat()), texts(&["né", "b"]));
        assert_eq!(parse(">U2", &codes.map(u32::to_be_bytes).concat()), texts(&["né", "b"]));
        assert_eq!(parse("|S2", b"abc\0"), texts(&["ab", "c"]));
        assert!(parse("|S2", b"\xff\xffc\0").is_err() && parse("<U1", &[0xff; 8]).is_err());
        assert!(parse("|S0", b"").is_err() && parse("|S18446744073709551615", b"abcd").is_err());
    }
}
