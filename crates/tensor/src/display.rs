//! Printing of tensors: `Debug` never evaluates, `Display` evaluates and prints as NumPy does, with four decimals of floats unless the
//! format has a precision.

use std::fmt;

use panoply_ir::{DType, Scalar};

use crate::tensor::{NodeKind, Tensor};

/// Maximum number of elements printed in full, as in NumPy and PyTorch.
const PRINT_THRESHOLD: usize = 1000;
/// Elements printed at each end of an axis of a larger tensor.
const EDGE: usize = 3;
/// Decimals of floats without a precision, as in PyTorch.
const DECIMALS: usize = 4;

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = &self.0;
        if let NodeKind::Mistake(mistake) = &node.source {
            return write!(f, "mistake ({})", mistake.message());
        }
        match &node.valid_lengths {
            Some(valid_lengths) => write!(f, "{}{}", node.dtype, valid_lengths.display_shape(&node.shape))?,
            None => write!(f, "{}{}", node.dtype, node.shape)?,
        }
        if matches!(node.source, NodeKind::Input(_)) {
            return Ok(());
        }
        if let Some(device) = &node.device {
            write!(f, " on {device}")?;
        }
        if node.value.get().is_none() {
            f.write_str(", pending")?;
        }
        write!(f, ", {}:{}", node.location.file(), node.location.line())
    }
}

/// Evaluates the tensor and prints its elements. The precision of the format, as in `{:.2}`, is the number of decimals of floats.
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_bytes().and_then(|bytes| Ok((bytes, self.shape()?))) {
            Err(error) => write!(f, "{error}"),
            Ok((bytes, shape)) => {
                let edge = if shape.numel() > PRINT_THRESHOLD { EDGE } else { usize::MAX };
                let decimals = f.precision().unwrap_or(DECIMALS);
                axis(f, &Shown { bytes: &bytes, dtype: self.dtype(), edge, decimals }, shape.dims(), [0, 0])
            }
        }
    }
}

/// A tensor's elements, prepared for printing.
struct Shown<'a> {
    bytes: &'a [u8],
    dtype: DType,
    /// Number of elements printed at each end of an axis.
    edge: usize,
    /// Decimals of floats.
    decimals: usize,
}

impl Shown<'_> {
    /// Formats the element at index `at`.
    fn text(&self, at: usize) -> String {
        let width = self.dtype.bytes();
        let mut word = [0; 8];
        word[..width].copy_from_slice(&self.bytes[at * width..][..width]);
        text(Scalar { dtype: self.dtype, bits: u64::from_le_bytes(word) }, self.decimals)
    }
}

fn text(number: Scalar, decimals: usize) -> String {
    let value = number.to_f64();
    match number.dtype {
        DType::Bool => (value != 0.0).to_string(),
        dtype if dtype.is_int() => number.to_i128().to_string(),
        _ if value != 0.0 && !(1e-4..1e8).contains(&value.abs()) && value.is_finite() => format!("{value:.decimals$e}"),
        _ => format!("{value:.decimals$}"),
    }
}

/// Prints the elements from index `first` with these dims, nested `depth` brackets deep.
fn axis(f: &mut fmt::Formatter<'_>, shown: &Shown<'_>, dims: &[usize], [first, depth]: [usize; 2]) -> fmt::Result {
    let Some((len, inner)) = dims.split_first() else { return f.write_str(&shown.text(first)) };
    let stride: usize = inner.iter().product();
    let left_out = if *len > shown.edge.saturating_mul(2) { shown.edge..len - shown.edge } else { 0..0 };
    f.write_str("[")?;
    for i in (0..*len).filter(|i| !left_out.contains(i) || *i == left_out.start) {
        if left_out.contains(&i) {
            f.write_str(if inner.is_empty() { ", …" } else { ",\n…" })?;
            continue;
        }
        match (i, inner.is_empty()) {
            (0, _) => {}
            (_, true) => f.write_str(", ")?,
            (_, false) => write!(f, ",\n{}", " ".repeat(depth + 1))?,
        }
        axis(f, shown, inner, [first + i * stride, depth + 1])?;
    }
    f.write_str("]")
}
