//! Convolution (cross-correlation, as everywhere in this field) and its transpose, over any number of axes.
//!
//! One matrix product: the windows of the input as columns, the filters as rows. A device with a routine for matrix
//! products uses it; on the others the windows are index arithmetic inside the kernel and are never stored.

use panoply_ir::{Error, Shape};

use super::window::Window;
use crate::settings::Settings;
use crate::tensor::Tensor;

/// How filters move over N axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv<const N: usize> {
    /// Distance between neighbouring positions of a filter.
    pub stride: [usize; N],
    /// Zeros on both sides of each axis.
    pub padding: [usize; N],
    /// Distance between neighbouring elements under a filter.
    pub dilation: [usize; N],
    /// Parts of the channels that do not see each other.
    pub groups: usize,
}

impl<const N: usize> Default for Conv<N> {
    fn default() -> Conv<N> {
        Conv { stride: [1; N], padding: [0; N], dilation: [1; N], groups: 1 }
    }
}

impl<const N: usize> Conv<N> {
    /// What a filter of these sizes sees at once.
    fn window(&self, sizes: &[usize]) -> Window<N> {
        Window { size: std::array::from_fn(|along| sizes[along]), stride: self.stride, dilation: self.dilation }
    }

    /// Positions of a filter along each axis; none if it does not fit.
    fn positions(&self, lengths: &[usize], sizes: &[usize]) -> Option<Vec<usize>> {
        let window = self.window(sizes);
        (0..N).map(|along| window.count(along, lengths[along] + 2 * self.padding[along])).collect()
    }
}

impl<const N: usize> Settings for Conv<N> {
    fn words(&self, words: &mut Vec<u64>) {
        (self.stride, self.padding, self.dilation, self.groups).words(words);
    }
}

impl Tensor {
    /// Convolution of `[batch, channels, lengths]` with filters `[outputs, channels / groups, sizes]`.
    #[track_caller]
    pub fn conv<const N: usize>(&self, filters: &Tensor, conv: &Conv<N>) -> Tensor {
        let (x, w) = match self.conv_operands("conv", filters, conv, 1) {
            Ok(operands) => operands,
            Err(mistake) => return mistake,
        };
        if conv.positions(&x[2..], &w[2..]).is_none() {
            let message = format!("conv: filters of {:?} do not fit padded lengths of {self:?}", &w[2..]);
            return Tensor::mistake(Error::mistake(message).note(format!("{conv:?}")));
        }
        Tensor::call_with_gradient(
            "conv",
            [self, filters],
            *conv,
            |[x, filters], conv| x.convolved(filters, conv),
            |[x, filters], _, g, conv| [Some(g.unconvolved(x, filters, conv)), Some(g.correlated(x, filters, conv))],
        )
    }

    /// What flows to the input of a convolution: its transpose. The gradient of the windows themselves would look for every
    /// window an element is part of.
    fn unconvolved<const N: usize>(&self, x: &Tensor, filters: &Tensor, conv: &Conv<N>) -> Tensor {
        let (lengths, sizes) = (&x.0.shape.dims()[2..], &filters.0.shape.dims()[2..]);
        let window = conv.window(sizes);
        let extra = std::array::from_fn(|along| {
            (lengths[along] + 2 * conv.padding[along] - window.span(along)) % conv.stride[along]
        });
        self.conv_transposed(filters, conv, extra)
    }

    /// What flows to the filters of a convolution: the products of what flows to the output with the windows.
    fn correlated<const N: usize>(&self, x: &Tensor, filters: &Tensor, conv: &Conv<N>) -> Tensor {
        let (dims, sizes) = (self.0.shape.dims(), &filters.0.shape.dims()[2..]);
        let split = [&[dims[0], conv.groups, dims[1] / conv.groups], &dims[2..]].concat();
        let order = [1, 2, 0].into_iter().chain(3..3 + N).collect();
        let rows = self.reshaped(Shape::new(split)).permuted(order).flatten(2);
        let columns = x.columns(sizes, conv);
        rows.matmul(&columns.t()).reshaped(filters.0.shape.clone())
    }

    /// The windows of the input as columns: `[groups, depth · sizes, batch · positions]`.
    fn columns<const N: usize>(&self, filter: &[usize], conv: &Conv<N>) -> Tensor {
        let mut widths = vec![(0, 0); 2];
        widths.extend(conv.padding.map(|width| (width, width)));
        let windows = self.pad(&widths).interleaved_windows(&conv.window(filter));
        let (batch, groups, depth) = (self.0.shape.dims()[0], conv.groups, self.0.shape.dims()[1] / conv.groups);
        let sides = &windows.0.shape.dims()[2..];
        // [batch, groups, depth, size and position for each axis] as [groups, depth · sizes, batch · positions]. Positions
        // come last, so that neighbouring elements of a column are read from neighbouring places.
        let split = [&[batch, groups, depth], sides].concat();
        let (sizes, places) = ((0..N).map(|along| 3 + 2 * along), (0..N).map(|along| 4 + 2 * along));
        let order = [1, 2].into_iter().chain(sizes).chain([0]).chain(places);
        let deep = depth * filter.iter().product::<usize>();
        let columns = [groups, deep, batch * sides.iter().skip(1).step_by(2).product::<usize>()];
        windows.reshaped(Shape::new(split)).permuted(order.collect()).reshaped(columns.into())
    }

    /// [`Tensor::conv`] of what fits.
    fn convolved<const N: usize>(&self, filters: &Tensor, conv: &Conv<N>) -> Tensor {
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
    pub fn conv_transposed<const N: usize>(&self, filters: &Tensor, conv: &Conv<N>, extra: [usize; N]) -> Tensor {
        let (x, w) = match self.conv_operands("conv_transposed", filters, conv, 0) {
            Ok(operands) => operands,
            Err(mistake) => return mistake,
        };
        let (groups, depth, outputs) = (conv.groups, w[0] / conv.groups, w[1]);
        let mut spread = self.clone();
        for along in 0..N {
            spread = spread.spread_along(along + 2, conv.stride[along]);
            let reach = (w[along + 2] - 1) * conv.dilation[along];
            let side = reach as isize - conv.padding[along] as isize;
            spread = spread.padded_or_cut(along + 2, side, side + extra[along] as isize);
            if spread.is_mistake() {
                let message = format!("conv_transposed: padding {:?} leaves nothing of {self:?}", conv.padding);
                return Tensor::mistake(Error::mistake(message));
            }
        }
        debug_assert_eq!(x.len(), N + 2);
        let mut turned = filters.clone();
        (0..N).for_each(|along| turned = turned.flip(along as isize + 2));
        let split = [&[groups, depth, outputs], &w[2..]].concat();
        let order = [0, 2, 1].into_iter().chain(3..3 + N).collect();
        let joined = Shape::new([&[groups * outputs, depth], &w[2..]].concat());
        let turned = turned.reshaped(Shape::new(split)).permuted(order).reshaped(joined);
        spread.conv(&turned, &Conv { stride: [1; N], padding: [0; N], ..*conv })
    }

    /// The lengths of both operands, or what is wrong with them; `axis` of the filters counts what a group sees.
    #[track_caller]
    fn conv_operands<const N: usize>(
        &self,
        op: &str,
        filters: &Tensor,
        conv: &Conv<N>,
        axis: usize,
    ) -> Result<(Vec<usize>, Vec<usize>), Tensor> {
        if let Some(mistake) = [self, filters].into_iter().find(|operand| operand.is_mistake()) {
            return Err(mistake.clone());
        }
        let (x, w) = (self.0.shape.dims(), filters.0.shape.dims());
        let wrong = |what: String| {
            let note = format!("left {self:?}, right {filters:?}");
            Err(Tensor::mistake(Error::mistake(format!("{op}: {what}")).note(note)))
        };
        if x.len() != N + 2 || w.len() != N + 2 {
            return wrong(format!("needs [batch, channels] and {N} more axes on both sides"));
        }
        let numbers = conv.stride.iter().chain(&conv.dilation).chain(&w[2..]).chain([&conv.groups]);
        if numbers.into_iter().any(|number| *number == 0) {
            return wrong("stride, dilation, groups and filter sizes are at least 1".to_string());
        }
        let seen = if axis == 1 { w[1] * conv.groups } else { w[0] };
        if x[1] != seen || !w[0].is_multiple_of(conv.groups) {
            return wrong(format!("{} channels and {} groups do not fit these filters", x[1], conv.groups));
        }
        Ok((x.to_vec(), w.to_vec()))
    }

    /// `step - 1` zeros between neighbouring elements of an axis.
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
        let mut widths = vec![(0, 0); self.0.shape.rank()];
        widths[axis] = (before.max(0) as usize, after.max(0) as usize);
        let padded = self.pad(&widths);
        let (start, less) = ((-before).max(0) as usize, (-before).max(0) as usize + (-after).max(0) as usize);
        match padded.0.shape.dims()[axis].checked_sub(less) {
            Some(length) if length > 0 => padded.narrow(axis as isize, start, length),
            _ => Tensor::mistake(Error::mistake("nothing is left of an axis")),
        }
    }
}
