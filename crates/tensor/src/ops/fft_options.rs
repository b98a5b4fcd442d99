//! Fourier transforms of other lengths and scales than what they are given.

use panoply_ir::Error;

use crate::tensor::Tensor;

/// Which of a transform and its inverse is divided by the length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FftNorm {
    /// The inverse one.
    #[default]
    Backward,
    /// The forward one.
    Forward,
    /// Both by its root, so that both keep lengths.
    Ortho,
}

/// How a Fourier transform is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FftOptions {
    /// So many elements are transformed: the first ones, or zeros after all. None is as many as there are; for `irfft`, an even number.
    pub n: Option<usize>,
    /// What it is divided by.
    pub norm: FftNorm,
}

impl FftNorm {
    /// What a forward transform of so many elements is multiplied by, and what an inverse one, besides its own division.
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
    /// [`Tensor::fft`] of another length or scale.
    #[track_caller]
    pub fn fft_with(&self, axis: isize, fft: &FftOptions) -> Tensor {
        self.of_length("fft", axis, true, fft, |x, axis| x.fft(axis), 0)
    }

    /// [`Tensor::ifft`] of another length or scale.
    #[track_caller]
    pub fn ifft_with(&self, axis: isize, fft: &FftOptions) -> Tensor {
        self.of_length("ifft", axis, true, fft, |x, axis| x.ifft(axis), 1)
    }

    /// [`Tensor::rfft`] of another length or scale.
    #[track_caller]
    pub fn rfft_with(&self, axis: isize, fft: &FftOptions) -> Tensor {
        self.of_length("rfft", axis, false, fft, |x, axis| x.rfft(axis), 0)
    }

    /// [`Tensor::irfft`] of another length or scale: the length is that of the result.
    #[track_caller]
    pub fn irfft_with(&self, axis: isize, fft: &FftOptions) -> Tensor {
        let count = match self.complex_axis("irfft", axis) {
            Ok(place) => self.0.shape.dims()[place],
            Err(mistake) => return mistake,
        };
        let length = fft.n.unwrap_or(2 * count.saturating_sub(1));
        let frequencies = FftOptions { n: Some(length / 2 + 1), norm: FftNorm::Backward };
        let scale = fft.norm.scales(length)[1];
        let x = self.of_length("irfft", axis, true, &frequencies, |x, _| x.clone(), 1);
        x.irfft(length, axis) * self.literal(scale)
    }

    /// What a transform makes of the elements along an axis, cut or filled up to the length that it shall have.
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
            return Tensor::mistake(Error::mistake(format!("{op}: no transform has length 0; {self:?} was given")));
        }
        let mut widths = vec![(0, 0); self.0.shape.ndim()];
        widths[place].1 = length.saturating_sub(have);
        let fitted = self.narrow(place as isize, 0, have.min(length)).pad(&widths);
        transform(&fitted, axis) * self.literal(fft.norm.scales(length)[direction])
    }
}
