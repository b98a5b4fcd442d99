//! Sliding windows along axes, as views: the basis of convolution and pooling.
//!
//! Overlapping windows share elements, which a reshape cannot express. Therefore the axis is repeated, and the
//! repetitions are cut at a period one dilation longer than the axis, so that each starts `dilation` later than the
//! previous one. Nothing is copied: windows and their gradients are index arithmetic.
//!
//! Source of the construction: tinygrad's `_pool`.

use panoply_ir::graph::Slice;
use panoply_ir::{Error, Shape};

use crate::call_attrs::CallAttrs;
use crate::tensor::Tensor;

/// Size, stride, padding and dilation of windows over N axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<const N: usize> {
    /// Number of elements along each axis.
    pub kernel_size: [usize; N],
    /// Distance between adjacent windows.
    pub stride: [usize; N],
    /// Elements added at both ends of each axis: zeros, and -∞ for maxima.
    pub padding: [usize; N],
    /// Distance between adjacent elements of a window.
    pub dilation: [usize; N],
}

impl<const N: usize> Window<N> {
    /// Creates windows with stride 1 and dilation 1, without padding. [`Window::tiled`] has the stride of pooling.
    pub fn new(kernel_size: [usize; N]) -> Window<N> {
        Window { kernel_size, stride: [1; N], padding: [0; N], dilation: [1; N] }
    }

    /// Creates adjacent windows: the stride is the kernel size, which is PyTorch's default for pooling.
    ///
    /// ```
    /// # use panoply_tensor::{Tensor, Window};
    /// let x = Tensor::from_slice(&[1.0f32, 2.0, 4.0, 3.0], [1, 4]);
    /// assert_eq!(x.max_pool(&Window::tiled([2])).to_vec::<f32>()?, [2.0, 4.0]);
    /// assert_eq!(x.max_pool(&Window::new([2])).to_vec::<f32>()?, [2.0, 4.0, 4.0]);
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    pub fn tiled(kernel_size: [usize; N]) -> Window<N> {
        Window { stride: kernel_size, ..Window::new(kernel_size) }
    }

    /// Returns the windows of an input that is padded already.
    pub(super) fn of_padded(&self) -> Window<N> {
        Window { padding: [0; N], ..*self }
    }

    /// Returns the number of elements of a window.
    pub(crate) fn elems(&self) -> usize {
        Shape::from(self.kernel_size).numel()
    }

    /// Returns true if windows are adjacent and disjoint.
    pub(crate) fn is_apart(&self) -> bool {
        self.stride == self.kernel_size && self.dilation == [1; N]
    }

    /// Returns the offsets of a window's elements.
    pub(crate) fn places(&self) -> impl Iterator<Item = [usize; N]> {
        (0..self.elems()).map(|element| {
            let mut rest = element;
            let mut place = self.kernel_size.map(|size| {
                let along = rest % size;
                rest /= size;
                along
            });
            place.iter_mut().zip(self.dilation).for_each(|(along, dilation)| *along *= dilation);
            place
        })
    }

    /// Returns the number of elements from a window's first to its last along an axis.
    pub(super) fn span(&self, along: usize) -> usize {
        (self.kernel_size[along] - 1).saturating_mul(self.dilation[along]).saturating_add(1)
    }

    /// Returns the number of windows along an axis of this length; `None` if it is 0.
    pub(super) fn count(&self, along: usize, length: usize) -> Option<usize> {
        let positive = self.kernel_size[along] > 0 && self.stride[along] > 0 && self.dilation[along] > 0;
        (positive && self.span(along) <= length).then(|| (length - self.span(along)) / self.stride[along] + 1)
    }
}

impl<const N: usize> CallAttrs for Window<N> {
    fn write_key(&self, words: &mut Vec<u64>) {
        [self.kernel_size, self.stride, self.padding, self.dilation].write_key(words);
    }
}

impl Tensor {
    /// Returns the windows over the last N axes: `[…, lengths]` becomes `[…, positions, sizes]`. Without padding it is a
    /// view.
    #[doc(alias = "sliding_window_view")]
    #[track_caller]
    pub fn unfold<const N: usize>(&self, window: &Window<N>) -> Tensor {
        let view = self.padded_with(&window.padding, 0.0).interleaved_windows(&window.of_padded());
        if view.is_mistake() {
            return view;
        }
        let lead = self.0.shape.ndim() - N;
        let positions = (0..N).map(|along| lead + 2 * along + 1);
        let elements = (0..N).map(|along| lead + 2 * along);
        view.permuted((0..lead).chain(positions).chain(elements).collect())
    }

    /// Returns the windows with two axes for each of the last N: size, then position.
    #[track_caller]
    pub(crate) fn interleaved_windows<const N: usize>(&self, window: &Window<N>) -> Tensor {
        let counts = match self.window_counts(window) {
            Ok(counts) => counts,
            Err(mistake) => return mistake,
        };
        let lead = self.0.shape.ndim() - N;
        let mut view = self.clone();
        for along in (0..N).rev() {
            if view.is_mistake() {
                return view;
            }
            view = view.windows_along(lead + along, counts[along], window, along);
        }
        view
    }

    /// Returns the number of windows along each of the last N axes.
    #[track_caller]
    pub(crate) fn window_counts<const N: usize>(&self, window: &Window<N>) -> Result<Vec<usize>, Tensor> {
        if self.is_mistake() {
            return Err(self.clone());
        }
        let rank = self.0.shape.ndim();
        let counts = (0..N).map(|i| window.count(i, self.0.shape.dims().get((rank + i).checked_sub(N)?).copied()?));
        let Some(counts) = counts.collect::<Option<Vec<usize>>>() else {
            let message = format!("windows of size {:?} do not fit the last {N} axes of {self:?}", window.kernel_size);
            let note = format!("stride {:?}, dilation {:?}", window.stride, window.dilation);
            return Err(Tensor::mistake(Error::mistake(message).note(note)));
        };
        self.check_static("unfold", rank - N..rank)?;
        Ok(counts)
    }

    /// Splits one axis into two: the element within a window, then the window.
    #[track_caller]
    fn windows_along<const N: usize>(&self, axis: usize, count: usize, window: &Window<N>, along: usize) -> Tensor {
        let (size, stride, step) = (window.kernel_size[along], window.stride[along], window.dilation[along]);
        let used = (count - 1) * stride + window.span(along);
        let cut = |tensor: &Tensor, axis: usize, step: usize, len: usize| {
            let mut slices = tensor.whole();
            slices[axis] = Slice { start: 0, step: step as isize, len };
            tensor.sliced(slices)
        };
        let split = |tensor: &Tensor, parts: [usize; 2]| {
            let dims = tensor.0.shape.dims();
            tensor.reshaped(Shape::new([&dims[..axis], &parts, &dims[axis + 1..]].concat()))
        };
        if size == 1 {
            return split(&cut(self, axis, stride, count), [1, count]);
        }
        if count == 1 {
            return split(&cut(self, axis, step, size), [size, 1]);
        }
        let used_part = cut(self, axis, 1, used);
        if stride >= window.span(along) {
            // Windows do not overlap.
            let mut widths = vec![(0, 0); self.0.shape.ndim()];
            widths[axis].1 = count * stride - used;
            let rows = split(&used_part.pad(&widths), [count, stride]);
            return cut(&rows, axis + 1, step, size).transpose(axis as isize, axis as isize + 1);
        }
        let (dims, period) = (used_part.0.shape.dims(), used + step);
        let repeats = size.saturating_mul(period).div_ceil(used);
        let along = |parts: &[usize]| Shape::new([&dims[..axis], parts, &dims[axis + 1..]].concat());
        let repeated = split(&used_part, [1, used]).expanded(&along(&[repeats, used]));
        if repeated.is_mistake() {
            return repeated;
        }
        let line = repeated.reshaped(along(&[repeats * used]));
        cut(&split(&cut(&line, axis, 1, size * period), [size, period]), axis + 1, stride, count)
    }
}
