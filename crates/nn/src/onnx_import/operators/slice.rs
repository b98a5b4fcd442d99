//! Ranges of `Slice`, as NumPy's.

use panoply_tensor::{Error, Result, Tensor, TensorIndex};

use super::{Operands, axes_of};

/// Equally spaced positions along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisRange {
    start: usize,
    step: isize,
    len: usize,
}

impl AxisRange {
    fn whole(len: usize) -> AxisRange {
        AxisRange { start: 0, step: 1, len }
    }

    /// Clips a range to an axis of this length. Negative positions count from the end.
    fn new(start: i64, end: i64, step: i64, length: usize) -> Option<AxisRange> {
        let length = i64::try_from(length).ok()?;
        let from_front = |at: i64| if at < 0 { at.saturating_add(length) } else { at };
        let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
        let (start, end) = (from_front(start).clamp(low, high), from_front(end).clamp(low, high));
        let distance = if step > 0 { end - start } else { start - end };
        let len = usize::try_from(distance.max(0)).ok()?.div_ceil(usize::try_from(step.unsigned_abs()).ok()?);
        Some(AxisRange { start: usize::try_from(start.max(0)).ok()?, step: isize::try_from(step).ok()?, len })
    }

    /// Returns the positions.
    pub fn positions(self) -> impl Iterator<Item = usize> {
        (0..self.len).map(move |n| self.start.wrapping_add_signed(self.step.wrapping_mul(n as isize)))
    }

    /// Returns the elements of an axis at the positions.
    pub fn of(self, x: &Tensor, axis: usize, length: usize) -> Tensor {
        if self == AxisRange::whole(length) {
            return x.clone();
        }
        if self.len == 0 {
            return x.narrow(axis as isize, 0, 0);
        }
        let (x, start) = match self.step < 0 {
            true => (x.flip(axis), length - 1 - self.start),
            false => (x.clone(), self.start),
        };
        let step = self.step.unsigned_abs();
        let end = start + (self.len - 1).saturating_mul(step) + 1;
        let mut indices = vec![TensorIndex::FULL; axis];
        indices.push(TensorIndex::Slice { start: Some(start as isize), end: Some(end as isize), step });
        x.slice(indices)
    }
}

/// Returns the range of each axis of a `Slice`, whose parameters are operands or, before opset 10, attributes.
pub fn slice_ranges(o: &Operands<'_>) -> Result<Vec<AxisRange>> {
    let dims = o.dims(0)?;
    let missing = || Error::corrupt("the bounds of the slice are missing");
    let (starts, ends) = (o.ints("starts", 1)?.ok_or_else(missing)?, o.ints("ends", 2)?.ok_or_else(missing)?);
    let axes = o.ints("axes", 3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = o.ints("steps", 4)?.unwrap_or_else(|| vec![1; starts.len()]);
    let axes = axes_of(&axes, dims.len())?;
    if [ends.len(), axes.len(), steps.len()].iter().any(|count| *count != starts.len()) {
        return Err(Error::corrupt("the bounds, axes and steps of the slice differ in number"));
    }
    let mut ranges: Vec<AxisRange> = dims.iter().map(|length| AxisRange::whole(*length)).collect();
    for (n, axis) in axes.into_iter().enumerate() {
        let invalid = || Error::corrupt(format!("a slice with step {} is not valid", steps[n]));
        if steps[n] == 0 {
            return Err(invalid());
        }
        ranges[axis] = AxisRange::new(starts[n], ends[n], steps[n], dims[axis]).ok_or_else(invalid)?;
    }
    Ok(ranges)
}
