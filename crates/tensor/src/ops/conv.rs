//! Convolution (cross-correlation, as in PyTorch) and its transpose, over any number of axes.
//!
//! Three operations are derivatives of each other: the convolution, its backward pass for the input (a transposed
//! convolution), and its backward pass for the weight. A device can have a library routine for each. Elsewhere each
//! is one matrix product of the filters with the windows of the input as columns (im2col). Where no routine supports
//! that either, the windows are index arithmetic inside the kernel and are never stored.

use std::fmt;
use std::panic::Location;

use panoply_ir::routine::{self, ConvAxis, Routine};
use panoply_ir::{DType, Error, Scalar, Shape};

use super::window::Window;
use crate::call::CompositeOp;
use crate::call_attrs::CallAttrs;
use crate::tensor::{Tensor, fits};

/// Options of a convolution over N axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvOptions<const N: usize> {
    /// Distance between adjacent positions of a filter.
    pub stride: [usize; N],
    /// Zeros added at both ends of each axis.
    pub padding: [usize; N],
    /// Distance between adjacent elements under a filter.
    pub dilation: [usize; N],
    /// Number of groups of channels that are convolved separately.
    pub groups: usize,
}

impl<const N: usize> Default for ConvOptions<N> {
    fn default() -> ConvOptions<N> {
        ConvOptions { stride: [1; N], padding: [0; N], dilation: [1; N], groups: 1 }
    }
}

/// Lists the options.
impl<const N: usize> fmt::Display for ConvOptions<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConvOptions { stride, padding, dilation, groups } = self;
        write!(f, "stride {stride:?}, padding {padding:?}, dilation {dilation:?}, groups {groups}")
    }
}

/// Options of a transposed convolution over N axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvTransposeOptions<const N: usize> {
    /// Distance between adjacent positions of a filter in the output.
    pub stride: [usize; N],
    /// Elements removed at both ends of each axis of the output.
    pub padding: [usize; N],
    /// Elements added at the end of each axis of the output.
    pub output_padding: [usize; N],
    /// Distance between adjacent elements under a filter.
    pub dilation: [usize; N],
    /// Number of groups of channels that are convolved separately.
    pub groups: usize,
}

impl<const N: usize> Default for ConvTransposeOptions<N> {
    fn default() -> ConvTransposeOptions<N> {
        ConvOptions::default().into()
    }
}

/// The transpose of a convolution with these options.
impl<const N: usize> From<ConvOptions<N>> for ConvTransposeOptions<N> {
    fn from(ConvOptions { stride, padding, dilation, groups }: ConvOptions<N>) -> ConvTransposeOptions<N> {
        ConvTransposeOptions { stride, padding, output_padding: [0; N], dilation, groups }
    }
}

impl<const N: usize> ConvOptions<N> {
    /// Returns the window of a filter of these sizes.
    fn window(&self, sizes: &[usize]) -> Window<N> {
        Window {
            kernel_size: std::array::from_fn(|along| sizes[along]),
            stride: self.stride,
            padding: [0; N],
            dilation: self.dilation,
        }
    }

    /// Returns the number of filter positions along each axis; `None` if the filter does not fit.
    fn positions(&self, lengths: &[usize], sizes: &[usize]) -> Option<Vec<usize>> {
        let window = self.window(sizes);
        let padded = |along: usize| self.padding[along].checked_mul(2)?.checked_add(lengths[along]);
        (0..N).map(|along| window.count(along, padded(along)?)).collect()
    }
}

impl<const N: usize> ConvOptions<N> {
    /// Returns true if no intermediate array can exceed the address space. No axis is longer than its strides,
    /// padding and filter together, and no element occurs more often than a filter has elements.
    fn stays_small(&self, x: &[usize], w: &[usize]) -> bool {
        let lengths = (0..N).map(|along| {
            let (outside, apart) =
                (self.padding[along].saturating_mul(2), x[along + 2].saturating_mul(self.stride[along]));
            self.window(&w[2..]).span(along).saturating_add(outside).saturating_add(apart)
        });
        let channels = x[1].max(w[0]).max(w[1].saturating_mul(self.groups));
        let most = [&[x[0], channels], &w[2..]].concat().into_iter().chain(lengths);
        fits(&Shape::new(most.map(|length| length.max(1)).collect::<Vec<usize>>()), DType::F64)
    }

    /// Returns the routine parameters for an input and filters of these dims; `None` for more than three axes.
    fn routine(&self, dtype: DType, x: &[usize], w: &[usize]) -> Option<routine::Conv> {
        let positions = self.positions(&x[2..], &w[2..])?;
        let missing = 3usize.checked_sub(N)?;
        let axes = std::array::from_fn(|axis| match axis.checked_sub(missing) {
            None => ConvAxis::NONE,
            Some(along) => ConvAxis {
                length: x[along + 2],
                size: w[along + 2],
                positions: positions[along],
                stride: self.stride[along],
                dilation: self.dilation[along],
                padding: self.padding[along],
            },
        });
        let (groups, inputs, outputs) = (self.groups, w[1], w[0] / self.groups);
        Some(routine::Conv { dtype, batch: x[0], groups, inputs, outputs, axes })
    }
}

/// Returns the lengths after batch and channels.
fn last_lengths<const N: usize>(tensor: &Tensor) -> [usize; N] {
    std::array::from_fn(|along| tensor.0.shape.dims()[along + 2])
}

impl<const N: usize> CallAttrs for ConvOptions<N> {
    fn write_key(&self, words: &mut Vec<u64>) {
        (self.stride, self.padding, self.dilation, self.groups).write_key(words);
    }
}

impl Tensor {
    /// Convolves `[batch, channels, lengths]` with filters `[outputs, channels / groups, sizes]`; the result is
    /// `[batch, outputs, positions]`.
    #[doc(alias = "conv1d")]
    #[doc(alias = "conv2d")]
    #[doc(alias = "conv3d")]
    #[track_caller]
    pub fn conv<const N: usize>(&self, weight: &Tensor, conv: &ConvOptions<N>) -> Tensor {
        let (x, w) = match self.conv_operands("conv", weight, conv, 1) {
            Ok(operands) => operands,
            Err(mistake) => return mistake,
        };
        if conv.positions(&x[2..], &w[2..]).is_none() {
            let message = format!("conv: filters of {:?} do not fit padded lengths of {self:?}", &w[2..]);
            return Tensor::mistake(Error::mistake(message).note(conv.to_string()));
        }
        let [output] = CompositeOp {
            name: "conv",
            body: |[x, filters], conv: &ConvOptions<N>| [x.conv_forward(filters, conv)],
            gradient: Some(|[x, filters], _, g, conv| {
                [
                    Some(g.conv_backward_input(filters, conv, last_lengths(x))),
                    Some(g.conv_backward_weight(x, conv, last_lengths(filters))),
                ]
            }),
            routine: |[x, filters], conv| {
                conv.routine(x.dtype(), x.0.shape.dims(), filters.0.shape.dims()).map(Routine::Conv)
            },
        }
        .apply([self, weight], *conv);
        output
    }

    /// Returns the gradient of a convolution's input, of these lengths, given the cotangent (`self`) of its output.
    #[track_caller]
    fn conv_backward_input<const N: usize>(
        &self,
        filters: &Tensor,
        conv: &ConvOptions<N>,
        lengths: [usize; N],
    ) -> Tensor {
        let [grad] = CompositeOp {
            name: "conv_backward_data",
            body: |[g, filters], (conv, lengths): &(ConvOptions<N>, [usize; N])| {
                [g.conv_backward_input_dilated(filters, conv, lengths)]
            },
            gradient: Some(|[g, filters], _, h, (conv, _)| {
                [Some(h.conv(filters, conv)), Some(g.conv_backward_weight(h, conv, last_lengths(filters)))]
            }),
            routine: |[g, filters], (conv, lengths)| {
                let (batch, w) = (g.0.shape.dims()[0], filters.0.shape.dims());
                let x = [&[batch, conv.groups * w[1]], &lengths[..]].concat();
                conv.routine(g.dtype(), &x, w).map(Routine::ConvBackwardData)
            },
        }
        .apply([self, filters], (*conv, lengths));
        grad
    }

    /// Returns the gradient of a convolution's filters, of these sizes, given its input `x` and the cotangent
    /// (`self`) of its output.
    #[track_caller]
    fn conv_backward_weight<const N: usize>(&self, x: &Tensor, conv: &ConvOptions<N>, sizes: [usize; N]) -> Tensor {
        // It sums over the batch: padding of the batch is zeroed, and a routine can do the rest.
        let [g, x] = [self, x].map(|x| x.mask_padding(&[0], Scalar::from_i128(x.dtype(), 0)));
        let [grad] =
            CompositeOp {
                name: "conv_backward_filter",
                body: |[g, x], (conv, sizes): &(ConvOptions<N>, [usize; N])| {
                    [g.conv_backward_weight_matmul(x, conv, sizes)]
                },
                gradient: Some(|[g, x], _, h, (conv, _)| {
                    [Some(x.conv(h, conv)), Some(g.conv_backward_input(h, conv, last_lengths(x)))]
                }),
                routine: |[g, x], (conv, sizes)| {
                    let x = x.0.shape.dims();
                    let w = [&[g.0.shape.dims()[1], x[1] / conv.groups], &sizes[..]].concat();
                    conv.routine(g.dtype(), x, &w).map(Routine::ConvBackwardFilter)
                },
            }
            .apply([&g, &x], (*conv, sizes));
        grad
    }

    /// Computes [`Tensor::conv_backward_input`] as a convolution of the cotangent, dilated by the stride, with the
    /// flipped filters. The gradient of the windows would search all windows that an element is part of.
    #[track_caller]
    fn conv_backward_input_dilated<const N: usize>(
        &self,
        filters: &Tensor,
        conv: &ConvOptions<N>,
        lengths: &[usize; N],
    ) -> Tensor {
        let w = filters.0.shape.dims();
        let (groups, depth, outputs) = (conv.groups, w[0] / conv.groups, w[1]);
        let mut spread = self.clone();
        for along in 0..N {
            spread = spread.spread_along(along + 2, conv.stride[along]);
            let reach = (w[along + 2] - 1) * conv.dilation[along];
            let before = reach as isize - conv.padding[along] as isize;
            let whole = (lengths[along] + reach) as isize;
            spread =
                spread.padded_or_cut(along + 2, before, whole - before - spread.0.shape.dims()[along + 2] as isize);
        }
        let mut turned = filters.clone();
        (0..N).for_each(|along| turned = turned.flip(along as isize + 2));
        let split = [&[groups, depth, outputs], &w[2..]].concat();
        let order = [0, 2, 1].into_iter().chain(3..3 + N).collect();
        let joined = Shape::new([&[groups * outputs, depth], &w[2..]].concat());
        let turned = turned.reshaped(Shape::new(split)).permuted(order).reshaped(joined);
        spread.conv(&turned, &ConvOptions { stride: [1; N], padding: [0; N], ..*conv })
    }

    /// Computes [`Tensor::conv_backward_weight`] as a matrix product of the cotangent with the windows.
    fn conv_backward_weight_matmul<const N: usize>(
        &self,
        x: &Tensor,
        conv: &ConvOptions<N>,
        sizes: &[usize; N],
    ) -> Tensor {
        let dims = self.0.shape.dims();
        let split = [&[dims[0], conv.groups, dims[1] / conv.groups], &dims[2..]].concat();
        let order = [1, 2, 0].into_iter().chain(3..3 + N).collect();
        let rows = self.reshaped(Shape::new(split)).permuted(order).flatten(2, -1);
        let columns = x.columns(sizes, conv);
        let shape = [&[dims[1], x.0.shape.dims()[1] / conv.groups], &sizes[..]].concat();
        rows.matmul(&columns.t()).reshaped(shape.into())
    }

    /// Returns the windows of the input as columns: `[groups, depth · sizes, batch · positions]`.
    fn columns<const N: usize>(&self, filter: &[usize], conv: &ConvOptions<N>) -> Tensor {
        let mut widths = vec![(0, 0); 2];
        widths.extend(conv.padding.map(|width| (width, width)));
        let windows = self.pad(&widths).interleaved_windows(&conv.window(filter));
        let (batch, groups, depth) = (self.0.shape.dims()[0], conv.groups, self.0.shape.dims()[1] / conv.groups);
        let sides = &windows.0.shape.dims()[2..];
        // [batch, groups, depth, size and position for each axis] becomes [groups, depth · sizes, batch · positions].
        // Positions come last, so that adjacent elements of a row are adjacent in memory.
        let split = [&[batch, groups, depth], sides].concat();
        let (sizes, places) = ((0..N).map(|along| 3 + 2 * along), (0..N).map(|along| 4 + 2 * along));
        let order = [1, 2].into_iter().chain(sizes).chain([0]).chain(places);
        let deep = depth * filter.iter().product::<usize>();
        let columns = [groups, deep, batch * sides.iter().skip(1).step_by(2).product::<usize>()];
        windows.reshaped(Shape::new(split)).permuted(order.collect()).reshaped(columns.into())
    }

    /// Computes [`Tensor::conv`] of valid operands as a matrix product.
    fn conv_forward<const N: usize>(&self, filters: &Tensor, conv: &ConvOptions<N>) -> Tensor {
        let (x, w) = (self.0.shape.dims(), filters.0.shape.dims());
        let columns = self.columns(&w[2..], conv);
        let positions = conv.positions(&x[2..], &w[2..]).expect("the filters fit");
        let (batch, groups, outputs) = (x[0], conv.groups, w[0]);
        let rows = filters.reshaped([groups, outputs / groups, columns.0.shape.dims()[1]].into());
        let result = [&[groups, outputs / groups, batch], &positions[..]].concat();
        let order = [2, 0, 1].into_iter().chain(3..3 + N).collect();
        let joined = Shape::new([&[batch, outputs], &positions[..]].concat());
        rows.matmul(&columns).reshaped(Shape::new(result)).permuted(order).reshaped(joined)
    }

    /// Transposed convolution: the backward pass of [`Tensor::conv`] for its input. `[batch, channels, lengths]` with
    /// filters `[channels, outputs / groups, sizes]`.
    #[doc(alias = "conv_transpose1d")]
    #[doc(alias = "conv_transpose2d")]
    #[doc(alias = "conv_transpose3d")]
    #[track_caller]
    pub fn conv_transpose<const N: usize>(&self, weight: &Tensor, options: &ConvTransposeOptions<N>) -> Tensor {
        let ConvTransposeOptions { stride, padding, output_padding, dilation, groups } = *options;
        let conv = &ConvOptions { stride, padding, dilation, groups };
        let (x, w) = match self.conv_operands("conv_transpose", weight, conv, 0) {
            Ok(operands) => operands,
            Err(mistake) => return mistake,
        };
        let mut lengths = [0; N];
        for along in 0..N {
            let apart = x[along + 2].checked_sub(1).map_or(0, |gaps| gaps * conv.stride[along] + 1);
            let whole = apart + (w[along + 2] - 1) * conv.dilation[along];
            lengths[along] = whole.saturating_add(output_padding[along]).saturating_sub(2 * conv.padding[along]);
        }
        let whole = [&[x[0], w[1] * conv.groups], &w[2..], &lengths].concat();
        if !fits(&Shape::new(whole), DType::F64) {
            let message = format!("conv_transpose: an output padding of {output_padding:?} is too large for {self:?}");
            return Tensor::mistake(Error::mistake(message));
        }
        if lengths.contains(&0) {
            let message = format!("conv_transpose: padding {:?} leaves nothing of {self:?}", conv.padding);
            return Tensor::mistake(Error::mistake(message));
        }
        // With an output padding of whole strides, a convolution of these lengths has more positions than `self` has
        // elements.
        if output_padding.iter().zip(conv.stride).any(|(extra, stride)| *extra >= stride) {
            return self.conv_backward_input_dilated(weight, conv, &lengths);
        }
        self.conv_backward_input(weight, conv, lengths)
    }

    /// Checks both operands and returns their dims; `axis` is the axis of the filters that counts the channels of a
    /// group.
    #[track_caller]
    fn conv_operands<const N: usize>(
        &self,
        op: &str,
        filters: &Tensor,
        conv: &ConvOptions<N>,
        axis: usize,
    ) -> Result<(Vec<usize>, Vec<usize>), Tensor> {
        if let Some(mistake) = [self, filters].into_iter().find(|operand| operand.is_mistake()) {
            return Err(mistake.clone());
        }
        let (x, w) = (self.0.shape.dims(), filters.0.shape.dims());
        let place = Location::caller();
        let wrong = |what: String| {
            let note = format!("left {self:?}, right {filters:?}");
            Err(Tensor::mistake(Error::mistake(format!("{op}: {what}")).note(note).with_location(place)))
        };
        self.check_static(op, 1..x.len())?;
        filters.check_static(op, 0..w.len())?;
        if self.dtype() != filters.dtype() {
            return wrong(format!("element types {} and {} differ", self.dtype(), filters.dtype()));
        }
        if x.len() != N + 2 || w.len() != N + 2 {
            return wrong(format!("needs [batch, channels] and {N} more axes on both sides"));
        }
        let numbers = conv.stride.iter().chain(&conv.dilation).chain(&w[2..]).chain([&conv.groups]);
        if numbers.into_iter().any(|number| *number == 0) {
            return wrong("stride, dilation, groups and filter sizes must be at least 1".to_string());
        }
        if let Some(axis) = (2..x.len()).find(|axis| x[*axis] == 0) {
            return wrong(format!("there are no elements along axis {axis}"));
        }
        if !conv.stays_small(x, w) {
            return wrong(format!("a convolution with {conv} needs more bytes than the address space"));
        }
        let seen = if axis == 1 { w[1].saturating_mul(conv.groups) } else { w[0] };
        if x[1] != seen || !w[0].is_multiple_of(conv.groups) {
            return wrong(format!("{} channels and {} groups do not fit these filters", x[1], conv.groups));
        }
        Ok((x.to_vec(), w.to_vec()))
    }

    /// Inserts `step - 1` zeros between adjacent elements of an axis.
    pub(crate) fn spread_along(&self, axis: usize, step: usize) -> Tensor {
        let dims = self.0.shape.dims();
        if step == 1 || dims[axis] == 0 {
            return self.clone();
        }
        let mut widths = vec![(0, 0); dims.len() + 1];
        widths[axis + 1].1 = step - 1;
        let length = (dims[axis] - 1) * step + 1;
        let joined = Shape::new([&dims[..axis], &[dims[axis] * step], &dims[axis + 1..]].concat());
        self.unsqueeze(axis as isize + 1).pad(&widths).reshaped(joined).narrow(axis as isize, 0, length)
    }

    /// Pads an axis with zeros before and after; a negative count removes elements.
    fn padded_or_cut(&self, axis: usize, before: isize, after: isize) -> Tensor {
        let mut widths = vec![(0, 0); self.0.shape.ndim()];
        widths[axis] = (before.max(0) as usize, after.max(0) as usize);
        let padded = self.pad(&widths);
        let (start, less) = ((-before).max(0) as usize, (-before).max(0) as usize + (-after).max(0) as usize);
        match padded.0.shape.dims()[axis].checked_sub(less) {
            Some(length) if length > 0 => padded.narrow(axis as isize, start, length),
            _ => Tensor::mistake(Error::mistake("conv: no elements remain along an axis")),
        }
    }
}
