//! Convolution (cross-correlation, as everywhere in this field) and its transpose, over any number of axes.
//!
//! Three operations that are one another's derivatives: the convolution, what flows to its input (a transposed
//! convolution), and what flows to its filters. A device may have a routine for each. On the others each is one matrix
//! product of the filters with the windows of the input as columns; where no routine takes that either, the windows are
//! index arithmetic inside the kernel and are never stored.

use std::panic::Location;

use panoply_ir::routine::{self, ConvAxis, Routine};
use panoply_ir::{DType, Error, Scalar, Shape};

use super::window::Window;
use crate::call::CompositeOp;
use crate::call_attrs::CallAttrs;
use crate::tensor::{Tensor, fits};

/// How filters move over N axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvOptions<const N: usize> {
    /// Distance between neighboring positions of a filter.
    pub stride: [usize; N],
    /// Zeros on both sides of each axis.
    pub padding: [usize; N],
    /// Distance between neighboring elements under a filter.
    pub dilation: [usize; N],
    /// Parts of the channels that do not see each other.
    pub groups: usize,
}

impl<const N: usize> Default for ConvOptions<N> {
    fn default() -> ConvOptions<N> {
        ConvOptions { stride: [1; N], padding: [0; N], dilation: [1; N], groups: 1 }
    }
}

impl<const N: usize> ConvOptions<N> {
    /// What a filter of these sizes sees at once.
    fn window(&self, sizes: &[usize]) -> Window<N> {
        Window { kernel_size: std::array::from_fn(|along| sizes[along]), stride: self.stride, dilation: self.dilation }
    }

    /// Positions of a filter along each axis; none if it does not fit.
    fn positions(&self, lengths: &[usize], sizes: &[usize]) -> Option<Vec<usize>> {
        let window = self.window(sizes);
        let padded = |along: usize| self.padding[along].checked_mul(2)?.checked_add(lengths[along]);
        (0..N).map(|along| window.count(along, padded(along)?)).collect()
    }
}

impl<const N: usize> ConvOptions<N> {
    /// Whether nothing on the way has more bytes than there are addresses: no axis is longer than all strides, paddings and filters
    /// along it together, and no element is there more often than filters have elements.
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

    /// What a device may do whole with an input and filters of these lengths; none beyond three axes.
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

/// The lengths behind batch and channels.
fn last_lengths<const N: usize>(tensor: &Tensor) -> [usize; N] {
    std::array::from_fn(|along| tensor.0.shape.dims()[along + 2])
}

impl<const N: usize> CallAttrs for ConvOptions<N> {
    fn write_key(&self, words: &mut Vec<u64>) {
        (self.stride, self.padding, self.dilation, self.groups).write_key(words);
    }
}

impl Tensor {
    /// Convolution of `[batch, channels, lengths]` with filters `[outputs, channels / groups, sizes]`.
    #[track_caller]
    pub fn conv<const N: usize>(&self, weight: &Tensor, conv: &ConvOptions<N>) -> Tensor {
        let (x, w) = match self.conv_operands("conv", weight, conv, 1) {
            Ok(operands) => operands,
            Err(mistake) => return mistake,
        };
        if conv.positions(&x[2..], &w[2..]).is_none() {
            let message = format!("conv: filters of {:?} do not fit padded lengths of {self:?}", &w[2..]);
            return Tensor::mistake(Error::mistake(message).note(format!("{conv:?}")));
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

    /// What flows to the input, of these lengths, of a convolution when this flows to its output.
    #[track_caller]
    fn conv_backward_input<const N: usize>(
        &self,
        filters: &Tensor,
        conv: &ConvOptions<N>,
        lengths: [usize; N],
    ) -> Tensor {
        let [flow] = CompositeOp {
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
        flow
    }

    /// What flows to the filters, of these sizes, of a convolution of `x` when this flows to its output.
    #[track_caller]
    fn conv_backward_weight<const N: usize>(&self, x: &Tensor, conv: &ConvOptions<N>, sizes: [usize; N]) -> Tensor {
        // Sums over the batch: what is not there of it is zeros, and a device may do the rest whole.
        let [g, x] = [self, x].map(|x| x.mask_padding(&[0], Scalar::from_i128(x.dtype(), 0)));
        let [flow] =
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
        flow
    }

    /// [`Tensor::conv_backward_input`] as a convolution of the elements set apart by its stride, with the filters turned round. The
    /// gradient of the windows themselves would look for every window an element is part of.
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

    /// [`Tensor::conv_backward_weight`] as the products of what flows to the output with the windows.
    fn conv_backward_weight_matmul<const N: usize>(
        &self,
        x: &Tensor,
        conv: &ConvOptions<N>,
        sizes: &[usize; N],
    ) -> Tensor {
        let dims = self.0.shape.dims();
        let split = [&[dims[0], conv.groups, dims[1] / conv.groups], &dims[2..]].concat();
        let order = [1, 2, 0].into_iter().chain(3..3 + N).collect();
        let rows = self.reshaped(Shape::new(split)).permuted(order).flatten(2);
        let columns = x.columns(sizes, conv);
        let shape = [&[dims[1], x.0.shape.dims()[1] / conv.groups], &sizes[..]].concat();
        rows.matmul(&columns.t()).reshaped(shape.into())
    }

    /// The windows of the input as columns: `[groups, depth · sizes, batch · positions]`.
    fn columns<const N: usize>(&self, filter: &[usize], conv: &ConvOptions<N>) -> Tensor {
        let mut widths = vec![(0, 0); 2];
        widths.extend(conv.padding.map(|width| (width, width)));
        let windows = self.pad(&widths).interleaved_windows(&conv.window(filter));
        let (batch, groups, depth) = (self.0.shape.dims()[0], conv.groups, self.0.shape.dims()[1] / conv.groups);
        let sides = &windows.0.shape.dims()[2..];
        // [batch, groups, depth, size and position for each axis] as [groups, depth · sizes, batch · positions]. Positions
        // come last, so that neighboring elements of a column are read from neighboring places.
        let split = [&[batch, groups, depth], sides].concat();
        let (sizes, places) = ((0..N).map(|along| 3 + 2 * along), (0..N).map(|along| 4 + 2 * along));
        let order = [1, 2].into_iter().chain(sizes).chain([0]).chain(places);
        let deep = depth * filter.iter().product::<usize>();
        let columns = [groups, deep, batch * sides.iter().skip(1).step_by(2).product::<usize>()];
        windows.reshaped(Shape::new(split)).permuted(order.collect()).reshaped(columns.into())
    }

    /// [`Tensor::conv`] of what fits.
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

    /// The transpose of [`Tensor::conv`], which makes axes longer: `[batch, channels, lengths]` with filters
    /// `[channels, outputs / groups, sizes]`. `extra` elements are added at the end of each axis, as PyTorch's
    /// `output_padding`.
    #[track_caller]
    pub fn conv_transpose<const N: usize>(
        &self,
        weight: &Tensor,
        conv: &ConvOptions<N>,
        output_padding: [usize; N],
    ) -> Tensor {
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
            let message =
                format!("conv_transpose: {output_padding:?} more elements along the axes of {self:?} are too many");
            return Tensor::mistake(Error::mistake(message));
        }
        if lengths.contains(&0) {
            let message = format!("conv_transpose: padding {:?} leaves nothing of {self:?}", conv.padding);
            return Tensor::mistake(Error::mistake(message));
        }
        // A convolution of these lengths has more positions than there are elements here if whole strides are added.
        if output_padding.iter().zip(conv.stride).any(|(extra, stride)| *extra >= stride) {
            return self.conv_backward_input_dilated(weight, conv, &lengths);
        }
        self.conv_backward_input(weight, conv, lengths)
    }

    /// The lengths of both operands, or what is wrong with them; `axis` of the filters counts what a group sees.
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
            return wrong("stride, dilation, groups and filter sizes are at least 1".to_string());
        }
        if let Some(axis) = (2..x.len()).find(|axis| x[*axis] == 0) {
            return wrong(format!("there are no elements along axis {axis}"));
        }
        if !conv.stays_small(x, w) {
            return wrong(format!("{conv:?} makes more elements than there are addresses"));
        }
        let seen = if axis == 1 { w[1].saturating_mul(conv.groups) } else { w[0] };
        if x[1] != seen || !w[0].is_multiple_of(conv.groups) {
            return wrong(format!("{} channels and {} groups do not fit these filters", x[1], conv.groups));
        }
        Ok((x.to_vec(), w.to_vec()))
    }

    /// `step - 1` zeros between neighboring elements of an axis.
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

    /// Zeros before and after an axis; a negative count takes elements away.
    fn padded_or_cut(&self, axis: usize, before: isize, after: isize) -> Tensor {
        let mut widths = vec![(0, 0); self.0.shape.ndim()];
        widths[axis] = (before.max(0) as usize, after.max(0) as usize);
        let padded = self.pad(&widths);
        let (start, less) = ((-before).max(0) as usize, (-before).max(0) as usize + (-after).max(0) as usize);
        match padded.0.shape.dims()[axis].checked_sub(less) {
            Some(length) if length > 0 => padded.narrow(axis as isize, start, length),
            _ => Tensor::mistake(Error::mistake("nothing is left of an axis")),
        }
    }
}
