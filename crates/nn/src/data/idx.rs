//! IDX files, as MNIST and its relatives are kept: bytes with a count for each axis; plain or compressed with gzip.
//!
//! Source: Y. LeCun, C. Cortes, C. Burges, The MNIST Database, "File formats".

use std::path::Path;

use panoply_tensor::{Error, Result};

use super::{Dataset, ReadBudget, read};

/// Bytes with lengths for each axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// Lengths of the axes.
    pub dims: Vec<usize>,
    /// The elements in row-major order.
    pub data: Vec<u8>,
}

/// Reads a file of unsigned bytes.
pub fn load(path: &Path) -> Result<Bytes> {
    load_within(path, &ReadBudget::for_file(path)?)
}

/// [`load`], as a part of a read that takes more.
pub(super) fn load_within(path: &Path, budget: &ReadBudget) -> Result<Bytes> {
    let mut bytes = read(path, budget)?;
    let parsed = parse(&bytes).map_err(|what| Error::corrupt(format!("{}: {what}", path.display())));
    let (dims, start) = parsed?;
    bytes.drain(..start);
    Ok(Bytes { dims, data: bytes })
}

/// Lengths of the axes, and where the data begin.
fn parse(bytes: &[u8]) -> Result<(Vec<usize>, usize), String> {
    let (rank, rest) = match bytes {
        [0, 0, 8, rank, rest @ ..] => (usize::from(*rank), rest),
        [0, 0, kind, ..] => return Err(format!("element type 0x{kind:02x} is not unsigned bytes (0x08)")),
        _ => return Err("it does not begin as an IDX file".to_string()),
    };
    let (lengths, data) =
        rest.split_at_checked(4 * rank).ok_or("it ends within the lengths of its axes; it was cut short")?;
    let dims: Vec<usize> =
        lengths.chunks_exact(4).map(|four| u32::from_be_bytes([four[0], four[1], four[2], four[3]]) as usize).collect();
    let size = dims.iter().try_fold(1usize, |size, dim| size.checked_mul(*dim));
    if size != Some(data.len()) {
        return Err(format!("{} bytes do not fill {dims:?}", data.len()));
    }
    Ok((dims, bytes.len() - data.len()))
}

/// Images, scaled to 0 ..= 1, with a class each, from two files such as MNIST's.
pub fn load_classification(images: &Path, labels: &Path, classes: usize) -> Result<Dataset> {
    let budget = ReadBudget::for_file(images)?;
    let path = images;
    let (images, labels) = (load_within(images, &budget)?, load(labels)?);
    budget.take_values(images.data.len(), size_of::<f32>(), path)?;
    let width = images.dims.iter().skip(1).product();
    let features = images.data.iter().map(|byte| f32::from(*byte) / 255.0);
    Dataset::classification(
        features.collect(),
        width,
        labels.data.iter().map(|label| i32::from(*label)).collect(),
        classes,
    )
}
