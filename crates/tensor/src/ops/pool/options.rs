//! Options of pooling, as in PyTorch's `avg_pool2d` and `max_pool2d`: ceil mode and divisors.

use panoply_ir::{Error, Shape};

use crate::ops::window::Window;
use crate::tensor::Tensor;

/// Options of [`Tensor::max_pool_with_options`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MaxPoolOptions {
    /// True if a last window that begins within the input or the padding before it can extend beyond the padding
    /// after it.
    pub ceil_mode: bool,
}

/// Options of [`Tensor::avg_pool_with_options`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AvgPoolOptions {
    /// True if a last window that begins within the input or the padding before it can extend beyond the padding
    /// after it.
    pub ceil_mode: bool,
    /// True if padding counts as elements of a window. Elements beyond the padding never count.
    pub count_include_pad: bool,
    /// Divisor in place of the number of elements.
    pub divisor_override: Option<usize>,
}

impl Default for AvgPoolOptions {
    fn default() -> AvgPoolOptions {
        AvgPoolOptions { ceil_mode: false, count_include_pad: true, divisor_override: None }
    }
}

impl Tensor {
    /// [`Tensor::avg_pool`] with the options of PyTorch's `avg_pool1d` to `avg_pool3d`. The mean of a window without
    /// counted elements is 0.
    #[track_caller]
    pub fn avg_pool_with_options<const N: usize>(&self, window: &Window<N>, options: &AvgPoolOptions) -> Tensor {
        if let Err(mistake) = self.check_float("avg_pool") {
            return mistake;
        }
        if options.divisor_override == Some(0) && !self.is_mistake() {
            return Tensor::mistake(Error::mistake("avg_pool: the divisor must be at least 1"));
        }
        let widths = match self.pool_widths("avg_pool", window, options.ceil_mode) {
            Ok(widths) => widths,
            Err(mistake) => return mistake,
        };
        let (padding, window) = (window.padding, &window.of_padded());
        self.in_f32(|x| {
            let sums = x.padded_around(&widths, 0.0).window_sums(window);
            if sums.is_mistake() {
                return sums;
            }
            let divisor = match options.divisor_override {
                Some(divisor) => x.literal(divisor as f64),
                None => x.elements_of_windows(window, padding, &widths, options.count_include_pad),
            };
            sums / divisor
        })
    }

    /// Returns the number of counted elements of each window, at least 1, without the leading axes.
    fn elements_of_windows<const N: usize>(
        &self,
        window: &Window<N>,
        padding: [usize; N],
        widths: &[(usize, usize)],
        count_include_pad: bool,
    ) -> Tensor {
        let dims = self.0.shape.dims();
        let lengths = &dims[dims.len() - N..];
        let (counted, around): (Vec<usize>, Vec<(usize, usize)>) = match count_include_pad {
            true => {
                let padded = lengths.iter().zip(padding).map(|(length, width)| length + 2 * width);
                padded.zip(widths.iter().zip(padding).map(|((_, after), width)| (0, after - width))).unzip()
            }
            false => (lengths.to_vec(), widths.to_vec()),
        };
        let ones = Tensor::ones(Shape::new(counted), self.dtype()).padded_around(&around, 0.0);
        ones.window_sums(window).maximum(&self.literal(1.0))
    }

    /// Returns the padding before and after each of the last N axes, including the overhang of a last window.
    #[track_caller]
    pub(super) fn pool_widths<const N: usize>(
        &self,
        op: &str,
        window: &Window<N>,
        ceil_mode: bool,
    ) -> Result<Vec<(usize, usize)>, Tensor> {
        let padding = window.padding;
        if self.is_mistake() {
            return Err(self.clone());
        }
        if (0..N).any(|along| padding[along] > window.kernel_size[along] / 2) {
            let message = format!("{op}: padding {padding:?} is more than half a window of {:?}", window.kernel_size);
            return Err(Tensor::mistake(Error::mistake(message)));
        }
        let dims = self.0.shape.dims();
        let beyond = |along: usize| match (dims.len() + along).checked_sub(N).map(|axis| dims[axis]) {
            Some(length) if ceil_mode => window.beyond(along, length, padding[along]),
            _ => 0,
        };
        Ok((0..N).map(|along| (padding[along], padding[along].saturating_add(beyond(along)))).collect())
    }
}

impl<const N: usize> Window<N> {
    /// Returns the overhang of the last window along an axis in ceil mode; 0 if no window fits.
    fn beyond(&self, along: usize, length: usize, padding: usize) -> usize {
        let padded = length.saturating_add(padding.saturating_mul(2));
        if self.count(along, padded).is_none() {
            return 0;
        }
        let (span, stride) = (self.span(along), self.stride[along]);
        // The last window that begins before the padding after the input.
        let last = (length.saturating_add(padding)).saturating_sub(1) / stride;
        let more = (padded - span).div_ceil(stride).min(last);
        more.saturating_mul(stride).saturating_add(span).saturating_sub(padded)
    }
}
