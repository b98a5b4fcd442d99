//! IDX files, the format of MNIST: an array of bytes, optionally compressed with gzip.
//!
//! Source: Y. LeCun, C. Cortes, C. Burges, The MNIST Database, "File formats".

use std::path::Path;

use panoply_tensor::{Error, Result};

use super::{Dataset, ReadBudget, read};

/// An array of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// Shape.
    pub dims: Vec<usize>,
    /// Elements in row-major order.
    pub data: Vec<u8>,
}

/// Reads a file of unsigned bytes.
///
/// # Errors
/// If the file cannot be read, or is not an IDX file of unsigned bytes.
pub fn load(path: &Path) -> Result<Bytes> {
    load_within(path, &ReadBudget::for_file(path)?)
}

/// [`load`] as part of a larger read.
pub(super) fn load_within(path: &Path, budget: &ReadBudget) -> Result<Bytes> {
    let mut bytes = read(path, budget)?;
    let parsed = parse(&bytes).map_err(|what| Error::corrupt(format!("{}: {what}", path.display())));
    let (dims, start) = parsed?;
    bytes.drain(..start);
    Ok(Bytes { dims, data: bytes })
}

/// Returns the shape, and the position of the data.
fn parse(bytes: &[u8]) -> Result<(Vec<usize>, usize), String> {
    let (rank, rest) = match bytes {
        [0, 0, 8, rank, rest @ ..] => (usize::from(*rank), rest),
        [0, 0, kind, ..] => return Err(format!("element type 0x{kind:02x} is not unsigned bytes (0x08)")),
        _ => return Err("it is not an IDX file".to_string()),
    };
    let (lengths, data) = rest.split_at_checked(4 * rank).ok_or("it is truncated within its header")?;
    let dims: Vec<usize> =
        lengths.chunks_exact(4).map(|four| u32::from_be_bytes([four[0], four[1], four[2], four[3]]) as usize).collect();
    let size = dims.iter().try_fold(1usize, |size, dim| size.checked_mul(*dim));
    if size != Some(data.len()) {
        return Err(format!("{} bytes do not match the shape {dims:?}", data.len()));
    }
    Ok((dims, bytes.len() - data.len()))
}

/// Reads images, scaled to 0 ..= 1, and their labels from two files such as MNIST's.
///
/// # Errors
/// If a file cannot be read, or the files do not fit together.
pub fn load_classification(images: &Path, labels: &Path, num_classes: usize) -> Result<Dataset> {
    let budget = ReadBudget::for_file(images)?;
    let path = images;
    let (images, labels) = (load_within(images, &budget)?, load(labels)?);
    budget.take_values(images.data.len(), size_of::<f32>(), path)?;
    let width = images.dims.iter().skip(1).product();
    let features = images.data.iter().map(|byte| f32::from(*byte) / 255.0);
    let labels = labels.data.iter().map(|label| i32::from(*label)).collect();
    Dataset::classification(features.collect(), labels).example_shape(&[width]).num_classes(num_classes).build()
}
