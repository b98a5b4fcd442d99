//! A convolution as plain data.

use std::fmt;

use super::{Operand, product};
use crate::dtype::DType;

/// Convolution (cross-correlation) over up to three axes: input `[batch, groups · inputs, lengths]` with filters
/// `[groups · outputs, inputs, sizes]` gives `[batch, groups · outputs, positions]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    /// Elements of all buffers. f16 and bf16 accumulate in f32, and are rounded once.
    pub dtype: DType,
    /// Independent inputs.
    pub batch: usize,
    /// Parts of the channels that do not see each other.
    pub groups: usize,
    /// Channels of the input in a group.
    pub inputs: usize,
    /// Channels of the output in a group.
    pub outputs: usize,
    /// The axes, the last one last. Where there are fewer than three, the first ones have length 1 throughout.
    pub axes: [ConvAxis; 3],
}

/// One axis of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvAxis {
    /// Elements of the input.
    pub length: usize,
    /// Elements of a filter.
    pub size: usize,
    /// Elements of the output.
    pub positions: usize,
    /// Distance between neighboring positions of a filter.
    pub stride: usize,
    /// Distance between neighboring elements under a filter.
    pub dilation: usize,
    /// Zeros on both sides of the input.
    pub padding: usize,
}

impl ConvAxis {
    /// An axis that is not there.
    pub const NONE: ConvAxis = ConvAxis { length: 1, size: 1, positions: 1, stride: 1, dilation: 1, padding: 0 };
}

/// Which operand of a convolution something flows to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ConvGradient {
    /// Its input.
    Input,
    /// Its filters.
    Filters,
}

impl Conv {
    /// The lengths along the axes.
    pub fn lengths(&self) -> [usize; 3] {
        self.axes.map(|axis| axis.length)
    }

    /// The filters' sizes along the axes.
    pub fn sizes(&self) -> [usize; 3] {
        self.axes.map(|axis| axis.size)
    }

    /// The output's lengths along the axes.
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
            (Some(_), 0) => Some(Operand::read("flow", dtype, output())),
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
        write!(f, "{dtype} {batch}×{}→{}, {lengths} by {sizes}", groups * inputs, groups * outputs)?;
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
