//! The op table, continued: Fourier transforms.

use super::row::{Row, any, smooth};
use crate::Tensor;

/// Every row.
pub const ROWS: &[Row] = &[
    // Fourier transforms.
    smooth("complex", &[any(&[3, 4]), any(&[3, 4])], |x| Tensor::complex(&x[0], &x[1]).exp()),
    smooth("complex_mul", &[any(&[3, 4, 2]), any(&[4, 2])], |x| x[0].complex_mul(&x[1])),
    smooth("complex_abs", &[any(&[5, 2])], |x| x[0].complex_abs() + x[0].real() * x[0].imaginary()),
    smooth("fft", &[any(&[3, 15, 2])], |x| x[0].fft(-1)),
    smooth("fft of one", &[any(&[3, 1, 2])], |x| x[0].fft(-1).exp()),
    smooth("fft of columns", &[any(&[6, 4, 2])], |x| x[0].fft(0)),
    smooth("fft of two factors", &[any(&[2, 200, 2])], |x| x[0].fft(-1)),
    smooth("fft of a prime", &[any(&[2, 131, 2])], |x| x[0].fft(-1)),
    smooth("ifft", &[any(&[2, 144, 2])], |x| x[0].ifft(-1)),
    smooth("rfft", &[any(&[2, 150])], |x| x[0].rfft(-1)),
    smooth("rfft of columns", &[any(&[9, 4])], |x| x[0].rfft(0)),
    smooth("irfft", &[any(&[2, 76, 2])], |x| x[0].irfft(150, -1)),
    smooth("irfft of odd length", &[any(&[5, 3, 2])], |x| x[0].irfft(9, 0)),
    smooth("fft2", &[any(&[2, 5, 6, 2])], |x| x[0].fft2()),
    smooth("ifft2", &[any(&[5, 6, 2])], |x| x[0].ifft2()),
    smooth("rfft2 and back", &[any(&[4, 7])], |x| x[0].rfft2().exp().irfft2(7)),
];
