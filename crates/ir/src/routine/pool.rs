//! Description of pooling.

use std::fmt;

use super::{Operand, product};
use crate::dtype::DType;

/// Pooling windows over the last axes of an array `[planes, lengths]`, one result per window: `[planes, positions]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool {
    /// Element type of all buffers.
    pub dtype: DType,
    /// Number of independent planes.
    pub planes: usize,
    /// The axes, outermost first. If there are fewer than three, the first ones are [`PoolAxis::NONE`].
    pub axes: [PoolAxis; 3],
}

/// An axis of a pooling window. All windows are within the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolAxis {
    /// Length of the array.
    pub length: usize,
    /// Length of a window.
    pub size: usize,
    /// Number of windows.
    pub positions: usize,
    /// Stride of the windows.
    pub stride: usize,
    /// Dilation of a window.
    pub dilation: usize,
}

impl PoolAxis {
    /// Unused axis.
    pub const NONE: PoolAxis = PoolAxis { length: 1, size: 1, positions: 1, stride: 1, dilation: 1 };
}

impl Pool {
    pub(super) fn operand(&self, at: usize) -> Option<Operand> {
        let elems = |of: fn(&PoolAxis) -> usize| {
            let [a, b, c] = self.axes.each_ref().map(of);
            product(&[self.planes, a, b, c])
        };
        let (input, output) = (elems(|axis| axis.length), elems(|axis| axis.positions));
        match at {
            0 => Some(Operand::read("input", self.dtype, input)),
            1 => Some(Operand::read("output", self.dtype, output)),
            2 => Some(Operand::read("output gradient", self.dtype, output)),
            3 => Some(Operand::written("input gradient", self.dtype, input)),
            _ => None,
        }
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let real = self.axes.iter().position(|axis| *axis != PoolAxis::NONE).unwrap_or(2);
        let list = |each: fn(&PoolAxis) -> usize| {
            let each: Vec<String> = self.axes[real..].iter().map(|axis| each(axis).to_string()).collect();
            each.join("×")
        };
        let (lengths, sizes, strides) = (list(|axis| axis.length), list(|axis| axis.size), list(|axis| axis.stride));
        write!(f, "{} {}×{lengths} by {sizes}, stride {strides}", self.dtype, self.planes)
    }
}
