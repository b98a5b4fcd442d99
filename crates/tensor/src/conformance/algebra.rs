//! The op table, continued: Fourier transforms, factorizations.

use panoply_ir::DType;

use super::row::{Row, any, flat, smooth};
use crate::{Eig, Eigh, FftNorm, FftOptions, Lu, Qr, Slogdet, Svd, Tensor, Triangle};

/// Every row.
pub const ROWS: &[Row] = &[
    // Fourier transforms.
    smooth("complex", &[any(&[3, 4]), any(&[3, 4])], |x| Tensor::complex(&x[0], &x[1]).exp()),
    smooth("complex_mul", &[any(&[3, 4, 2]), any(&[4, 2])], |x| x[0].complex_mul(&x[1])),
    smooth("complex_abs", &[any(&[5, 2])], |x| x[0].complex_abs() + x[0].real() * x[0].imag()),
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
    smooth("fft_with_options", &[any(&[2, 6, 2])], |x| {
        let (shorter, longer) =
            (FftOptions { n: Some(4), norm: FftNorm::Ortho }, FftOptions { n: Some(9), norm: FftNorm::Forward });
        x[0].fft_with_options(-1, &shorter).fft_with_options(-1, &longer).ifft_with_options(-1, &longer)
    }),
    smooth("rfft_with_options and back", &[any(&[6, 3])], |x| {
        let fft = FftOptions { n: Some(8), norm: FftNorm::Ortho };
        x[0].rfft_with_options(0, &fft).exp().irfft_with_options(0, &fft)
    }),
    // Factorizations, of matrices far from singular.
    smooth("cholesky", &[any(&[2, 5, 5])], |x| positive(&x[0]).cholesky()),
    smooth("cholesky of blocks", &[any(&[40, 40])], |x| positive(&x[0]).cholesky()),
    smooth("solve_triangular", &[any(&[2, 5, 5]), any(&[5, 3])], |x| {
        steady(&x[0]).solve_triangular(&x[1], Triangle::Lower)
    }),
    smooth("solve_triangular, upper", &[any(&[5, 5]), any(&[5])], |x| {
        steady(&x[0]).solve_triangular(&x[1], Triangle::Upper)
    }),
    smooth("solve_triangular of blocks", &[any(&[70, 70]), any(&[70, 2])], |x| {
        steady(&x[0]).solve_triangular(&x[1], Triangle::Upper)
    }),
    smooth("qr", &[any(&[2, 7, 4])], |x| {
        let Qr { q, r } = steady(&x[0]).qr();
        q.matmul(&r.exp())
    }),
    smooth("qr of wide", &[any(&[4, 7])], |x| {
        let Qr { q, r } = steady(&x[0]).qr();
        q.matmul(&r.exp())
    }),
    smooth("qr of blocks", &[any(&[45, 40])], |x| steady(&x[0]).qr().q),
    smooth("lu", &[any(&[2, 5, 5])], |x| {
        let Lu { l, u, .. } = x[0].lu();
        l.matmul(&u.exp())
    }),
    smooth("lu of blocks", &[any(&[70, 70])], |x| steady(&x[0]).flip(0).lu().u),
    flat("order of lu", &[any(&[2, 45, 45])], |x| x[0].lu().perm),
    // Matrix functions that do not depend on the signs of the eigenvectors.
    smooth("eigh", &[any(&[2, 5, 5])], |x| {
        let Eigh { values, vectors } = apart(&x[0]).eigh();
        (&vectors * values.sin().unsqueeze(-2)).matmul(&vectors.t())
    }),
    smooth("eigvalsh", &[any(&[7, 7])], |x| apart(&x[0]).eigvalsh()),
    // Matrix functions of general matrices, which do not depend on the order of the eigenvalues.
    smooth("eig", &[any(&[2, 5, 5])], |x| {
        let Eig { values, vectors } = split(&x[0]).eig();
        let weights = values.complex_mul(&values).real().unsqueeze(-2);
        (vectors.complex_abs().square() * weights).sum(-1)
    }),
    smooth("eig, values", &[any(&[7, 7])], |x| {
        let values = split(&x[0]).eig().values;
        ((values.real() / 4.0).exp() * values.imag().cos()).sum(-1)
    }),
    smooth("svd", &[any(&[2, 6, 4])], |x| {
        let Svd { u, s, vh } = spread(&x[0]).svd();
        (&u * s.sin().unsqueeze(-2)).matmul(&vh)
    }),
    smooth("svd of wide", &[any(&[3, 5])], |x| {
        let Svd { u, s, vh } = spread(&x[0]).svd();
        (&u * s.sin().unsqueeze(-2)).matmul(&vh)
    }),
    smooth("svdvals", &[any(&[2, 5, 5])], |x| spread(&x[0]).svdvals()),
    smooth("pinv", &[any(&[2, 5, 3])], |x| steady(&x[0]).pinv(None)),
    smooth("pinv of wide", &[any(&[3, 5])], |x| steady(&x[0]).pinv(Some(1e-4))),
    smooth("matrix_power", &[any(&[2, 4, 4])], |x| (&x[0] / 2.0).matrix_power(5)),
    smooth("matrix_power below 0", &[any(&[4, 4])], |x| (steady(&x[0]) / 2.0).matrix_power(-2)),
    smooth("solve", &[any(&[2, 5, 5]), any(&[2, 5, 3])], |x| steady(&x[0]).solve(&x[1])),
    smooth("lstsq", &[any(&[7, 4]), any(&[7])], |x| steady(&x[0]).lstsq(&x[1].unsqueeze(1))),
    smooth("inv", &[any(&[2, 4, 4])], |x| steady(&x[0]).inv()),
    smooth("det", &[any(&[3, 4, 4])], |x| (steady(&x[0]) / 4.0).det()),
    smooth("slogdet", &[any(&[3, 4, 4])], |x| {
        let Slogdet { sign, logabsdet } = steady(&x[0]).slogdet();
        sign * logabsdet
    }),
];

/// Returns symmetric positive definite matrices.
fn positive(x: &Tensor) -> Tensor {
    steady(&x.matmul(&x.t()))
}

/// Returns matrices with well separated eigenvalues; a mistake is returned unchanged.
fn apart(x: &Tensor) -> Tensor {
    let &[.., size, _] = x.0.shape.dims() else { return x.clone() };
    x / 16.0 + Tensor::arange(size).cast(x.dtype()).diag_embed()
}

/// Returns matrices that are not symmetric, with well separated real and complex eigenvalues; a mistake is returned unchanged.
fn split(x: &Tensor) -> Tensor {
    let &[.., size, _] = x.0.shape.dims() else { return x.clone() };
    // Blocks [[c, -1], [1, c]], with eigenvalues c ± i.
    let (row, column) = (Tensor::arange(size).unsqueeze(1), Tensor::arange(size));
    let (block, step) = (&row / 2, &row - &column);
    let inside = block.eq(&(&column / 2)).cast(DType::I32);
    x / 16.0 + (inside * step).cast(x.dtype()) + (Tensor::arange(size) / 2 * 3).cast(x.dtype()).diag_embed()
}

/// Returns matrices with well separated singular values; a mistake is returned unchanged.
fn spread(x: &Tensor) -> Tensor {
    let &[.., rows, columns] = x.0.shape.dims() else { return x.clone() };
    let places = [rows, columns].map(Tensor::arange);
    let diagonal = places[0].unsqueeze(1).eq(&places[1]).cast(x.dtype());
    x / 8.0 + diagonal * (places[1].cast(x.dtype()) + 1.0)
}

/// Returns diagonally dominant matrices; a mistake is returned unchanged.
fn steady(x: &Tensor) -> Tensor {
    let &[.., rows, columns] = x.0.shape.dims() else { return x.clone() };
    let places = [rows, columns].map(Tensor::arange);
    let scale = rows.max(columns) as f64;
    x / scale.sqrt() + places[0].unsqueeze(1).eq(&places[1]).cast(x.dtype()) * (scale.sqrt() + 1.0)
}
