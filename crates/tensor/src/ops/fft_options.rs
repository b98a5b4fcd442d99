//! Options of Fourier transforms: length and normalization.

use panoply_ir::Error;

use crate::tensor::Tensor;

/// Normalization of a Fourier transform of length n, as PyTorch's `norm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FftNorm {
    /// The inverse transform is divided by n.
    #[default]
    Backward,
    /// The forward transform is divided by n.
    Forward,
    /// Both are divided by √n, so that both are unitary.
    Ortho,
}

/// Options of a Fourier transform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FftOptions {
    /// Transform length: elements beyond it are cut off, missing ones are zeros. `None` is the length of the axis;
    /// for `irfft` the even length.
    pub n: Option<usize>,
    /// Normalization.
    pub norm: FftNorm,
}

impl FftNorm {
    /// Returns the factors of the forward and the inverse transform, beyond the inverse's own division.
    fn scales(self, length: usize) -> [f64; 2] {
        let length = length as f64;
        match self {
            FftNorm::Backward => [1.0, 1.0],
            FftNorm::Forward => [1.0 / length, length],
            FftNorm::Ortho => [1.0 / length.sqrt(), length.sqrt()],
        }
    }
}

impl Tensor {
    /// [`Tensor::fft`] with options.
    #[track_caller]
    pub fn fft_with_options(&self, axis: isize, options: &FftOptions) -> Tensor {
        self.of_length("fft", axis, true, options, |x, axis| x.fft(axis), 0)
    }

    /// [`Tensor::ifft`] with options.
    #[track_caller]
    pub fn ifft_with_options(&self, axis: isize, options: &FftOptions) -> Tensor {
        self.of_length("ifft", axis, true, options, |x, axis| x.ifft(axis), 1)
    }

    /// [`Tensor::rfft`] with options.
    #[track_caller]
    pub fn rfft_with_options(&self, axis: isize, options: &FftOptions) -> Tensor {
        self.of_length("rfft", axis, false, options, |x, axis| x.rfft(axis), 0)
    }

    /// [`Tensor::irfft`] with options; the length is that of the result.
    #[track_caller]
    pub fn irfft_with_options(&self, axis: isize, options: &FftOptions) -> Tensor {
        let count = match self.complex_axis("irfft", axis) {
            Ok(place) => self.0.shape.dims()[place],
            Err(mistake) => return mistake,
        };
        let length = options.n.unwrap_or(2 * count.saturating_sub(1));
        let frequencies = FftOptions { n: Some(length / 2 + 1), norm: FftNorm::Backward };
        let scale = options.norm.scales(length)[1];
        let x = self.of_length("irfft", axis, true, &frequencies, |x, _| x.clone(), 1);
        x.irfft(length, axis) * self.literal(scale)
    }

    /// Cuts or pads an axis to the transform length, transforms, and scales.
    #[track_caller]
    fn of_length(
        &self,
        op: &str,
        axis: isize,
        complex: bool,
        fft: &FftOptions,
        transform: fn(&Tensor, isize) -> Tensor,
        direction: usize,
    ) -> Tensor {
        let place = match if complex { self.complex_axis(op, axis) } else { self.static_axis(op, axis) } {
            Ok(place) => place,
            Err(mistake) => return mistake,
        };
        let have = self.0.shape.dims()[place];
        let length = fft.n.unwrap_or(have);
        if length == 0 {
            return Tensor::mistake(Error::mistake(format!(
                "{op}: a transform cannot have length 0; the operand is {self:?}"
            )));
        }
        let mut widths = vec![(0, 0); self.0.shape.ndim()];
        widths[place].1 = length.saturating_sub(have);
        let fitted = self.narrow(place as isize, 0, have.min(length)).pad(&widths);
        transform(&fitted, axis) * self.literal(fft.norm.scales(length)[direction])
    }
}
