//! NumPy's `.npy` files, each with one array.
//!
//! Source: NumPy Enhancement Proposal 1, versions 1 to 3.

mod header;

use std::path::Path;

use panoply_tensor::{DType, Error, Result, Scalar, Tensor};

use super::{ReadBudget, read};
use header::Header;

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
    /// Reads a file, which must be little-endian and in C order and can be compressed with gzip.
    ///
    /// # Errors
    /// If the file cannot be read, or has another layout or an unsupported element type.
    pub fn read(path: &Path) -> Result<Array> {
        Array::read_within(path, &ReadBudget::for_file(path)?)
    }

    /// [`Array::read`] as part of a larger read.
    pub(super) fn read_within(path: &Path, budget: &ReadBudget) -> Result<Array> {
        let bytes = read(path, budget)?;
        // The elements are copied from the file's bytes.
        budget.take(bytes.len() as u64, path)?;
        let parsed = Array::parse(&bytes);
        budget.give_back(bytes.len() as u64);
        parsed.map_err(|what| Error::corrupt(format!("{}: {what}", path.display())))
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

/// Reads an array onto the current device; see [`Array::read`].
///
/// # Errors
/// As for [`Array::read`] and [`Array::to_tensor`].
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

impl Array {
    /// Parses a file, or returns a description of the error.
    pub(super) fn parse(bytes: &[u8]) -> Result<Array, String> {
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
            // Latin-1: each byte is a code point.
            _ => header.iter().map(|byte| char::from(*byte)).collect(),
        };
        let Header { dtype, dims } = header::parse(&header)?;
        let size = dims.iter().try_fold(dtype.bytes(), |size, dim| size.checked_mul(*dim));
        // An empty axis must not hide overflowing lengths of the others.
        let counted = dims.iter().try_fold(dtype.bytes(), |size, dim| size.checked_mul((*dim).max(1)));
        if size != Some(data.len()) || counted.is_none_or(|bytes| i64::try_from(bytes).is_err()) {
            return Err(format!("{} bytes do not match {dtype}{dims:?}", data.len()));
        }
        Ok(Array { dtype, dims, bytes: data.to_vec() })
    }
}
