//! Description of a convolution.

use std::fmt;

use super::{Operand, product};
use crate::dtype::DType;

/// Convolution (cross-correlation) over up to three axes. Input `[batch, groups · inputs, lengths]` and filters `[groups · outputs,
/// inputs, sizes]` give `[batch, groups · outputs, positions]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    /// Element type of all buffers. f16 and bf16 accumulate in f32 and are rounded once.
    pub dtype: DType,
    /// Batch size.
    pub batch: usize,
    /// Number of channel groups, as in PyTorch's `groups`.
    pub groups: usize,
    /// Input channels per group.
    pub inputs: usize,
    /// Output channels per group.
    pub outputs: usize,
    /// The axes, outermost first. If there are fewer than three, the first ones are [`ConvAxis::NONE`].
    pub axes: [ConvAxis; 3],
}

/// An axis of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvAxis {
    /// Length of the input.
    pub length: usize,
    /// Length of a filter.
    pub size: usize,
    /// Length of the output.
    pub positions: usize,
    /// Stride of the filter.
    pub stride: usize,
    /// Dilation of the filter.
    pub dilation: usize,
    /// Zero padding on both sides of the input.
    pub padding: usize,
}

impl ConvAxis {
    /// Unused axis.
    pub const NONE: ConvAxis = ConvAxis { length: 1, size: 1, positions: 1, stride: 1, dilation: 1, padding: 0 };
}

/// Operand of a convolution with respect to which the gradient is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ConvGradient {
    /// The input.
    Input,
    /// The filters.
    Filters,
}

impl Conv {
    /// Returns the input's lengths.
    pub fn lengths(&self) -> [usize; 3] {
        self.axes.map(|axis| axis.length)
    }

    /// Returns the filters' lengths.
    pub fn sizes(&self) -> [usize; 3] {
        self.axes.map(|axis| axis.size)
    }

    /// Returns the output's lengths.
    pub fn positions(&self) -> [usize; 3] {
        self.axes.map(|axis| axis.positions)
    }

    pub(super) fn operand(&self, at: usize, gradient: Option<ConvGradient>) -> Option<Operand> {
        let Conv { dtype, batch, groups, inputs, outputs, .. } = *self;
        let elems = |[a, b, c]: [usize; 3], [d, e, f]: [usize; 3]| product(&[a, b, c, d, e, f]);
        let input = || elems([batch, groups, inputs], self.lengths());
        let filters = || elems([groups, outputs, inputs], self.sizes());
        let output = || elems([batch, groups, outputs], self.positions());
        match (gradient, at) {
            (None, 0) => Some(Operand::read("input", dtype, input())),
            (None, 1) => Some(Operand::read("filters", dtype, filters())),
            (None, 2) => Some(Operand::written("output", dtype, output())),
            (Some(_), 0) => Some(Operand::read("output gradient", dtype, output())),
            (Some(ConvGradient::Input), 1) => Some(Operand::read("filters", dtype, filters())),
            (Some(ConvGradient::Input), 2) => Some(Operand::written("input", dtype, input())),
            (Some(ConvGradient::Filters), 1) => Some(Operand::read("input", dtype, input())),
            (Some(ConvGradient::Filters), 2) => Some(Operand::written("filters", dtype, filters())),
            _ => None,
        }
    }
}

impl fmt::Display for Conv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Conv { dtype, batch, groups, inputs, outputs, axes } = self;
        let real = axes.iter().position(|axis| *axis != ConvAxis::NONE).unwrap_or(2);
        let list = |each: fn(&ConvAxis) -> usize| {
            let each: Vec<String> = axes[real..].iter().map(|axis| each(axis).to_string()).collect();
            each.join("×")
        };
        let (lengths, sizes) = (list(|axis| axis.length), list(|axis| axis.size));
        // Descriptions that were not checked are written too.
        let all = |each: usize| *groups as u128 * each as u128;
        write!(f, "{dtype} {batch}×{}→{}, {lengths} by {sizes}", all(*inputs), all(*outputs))?;
        for (name, each, usual) in [
            ("stride", (|axis| axis.stride) as fn(&ConvAxis) -> usize, 1),
            ("dilation", |axis| axis.dilation, 1),
            ("padding", |axis| axis.padding, 0),
        ] {
            if axes[real..].iter().any(|axis| each(axis) != usual) {
                write!(f, ", {name} {}", list(each))?;
            }
        }
        if *groups > 1 { write!(f, ", {groups} groups") } else { Ok(()) }
    }
}
