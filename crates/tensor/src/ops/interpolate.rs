//! Resizing of axes by repeating or interpolating elements.

use panoply_ir::{DType, Error, Shape};

use crate::tensor::Tensor;

/// Algorithm of [`Tensor::interpolate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterpolateMode {
    /// Copies the nearest element: output `i` of `n` is input `floor(i * old / n)`, as PyTorch's `nearest`.
    Nearest,
    /// Weights the two nearest elements along each axis by their distance: linear, bilinear or trilinear.
    Linear(AlignCorners),
}

/// Alignment of the grids of input and output in [`InterpolateMode::Linear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlignCorners {
    /// The outer edges of the first and last elements coincide (PyTorch's `align_corners=False`).
    No,
    /// The centers of the first and last elements coincide (PyTorch's `align_corners=True`).
    Yes,
}

impl Tensor {
    /// Resizes the last N axes to these sizes, as PyTorch's `F.interpolate`.
    ///
    /// Linear modes take floats.
    #[doc(alias = "Upsample")]
    #[track_caller]
    pub fn interpolate<const N: usize>(&self, size: [usize; N], mode: InterpolateMode) -> Tensor {
        match mode {
            InterpolateMode::Nearest => self.interpolate_nearest(size),
            InterpolateMode::Linear(align_corners) => self.interpolate_linear(size, align_corners),
        }
    }

    #[track_caller]
    fn interpolate_nearest<const N: usize>(&self, size: [usize; N]) -> Tensor {
        self.resized(size, |x, axis, length| {
            let old = x.0.shape.dims()[axis];
            if length.is_multiple_of(old) {
                return x.repeat_interleave(length / old, axis as isize);
            }
            let places = Tensor::places(length, old);
            let number = |value: usize| places.literal(value as f64);
            let from = &places * number(old) / number(length);
            x.index_select(axis as isize, &from)
        })
    }

    #[track_caller]
    fn interpolate_linear<const N: usize>(&self, size: [usize; N], align_corners: AlignCorners) -> Tensor {
        if !self.is_mistake() && !self.dtype().is_float() {
            return Tensor::mistake(Error::mistake(format!("interpolate: linear modes need floats, not {self:?}")));
        }
        // f16 and bf16 compute all axes in f32 and round once.
        let wide = if self.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let resized = self.widened().resized(size, |x, axis, length| {
            let old = x.0.shape.dims()[axis];
            let places = Tensor::arange(length).cast(wide);
            let number = |value: f64| places.literal(value);
            let from = match align_corners {
                AlignCorners::Yes if length == 1 => places.zeros_like(),
                AlignCorners::Yes => &places * number((old - 1) as f64 / (length - 1) as f64),
                AlignCorners::No => {
                    let center = (&places + number(0.5)) * number(old as f64 / length as f64) - number(0.5);
                    center.maximum(&number(0.0))
                }
            };
            let last = Tensor::constant((old as i32 - 1).into());
            let low = from.floor().cast(DType::I32).minimum(&last);
            let high = (&low + Tensor::constant(1i32.into())).minimum(&last);
            let mut around = vec![1; x.0.shape.ndim()];
            around[axis] = length;
            let weight = (from - low.cast(wide)).reshaped(Shape::new(around));
            let axis = axis as isize;
            let [below, above] = [&low, &high].map(|places| x.index_select(axis, places).cast(wide));
            &below + (above - &below) * weight
        });
        resized.cast(self.dtype())
    }

    #[track_caller]
    fn resized<const N: usize>(&self, lengths: [usize; N], along: impl Fn(&Tensor, usize, usize) -> Tensor) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        let rank = self.0.shape.ndim();
        if rank < N || lengths.contains(&0) || self.0.shape.dims()[rank - N..].contains(&0) {
            return Tensor::mistake(Error::mistake(format!("interpolate: {self:?} cannot be resized to {lengths:?}")));
        }
        if let Err(mistake) = self.check_static("interpolate", rank - N..rank) {
            return mistake;
        }
        if self.0.shape.dims()[rank - N..].iter().chain(&lengths).any(|length| *length > i32::MAX as usize) {
            let message =
                format!("interpolate: from {self:?} to {lengths:?}; an axis has more elements than an i32 can count");
            return Tensor::mistake(Error::mistake(message));
        }
        let mut result = self.clone();
        for (i, length) in lengths.into_iter().enumerate() {
            if result.0.shape.dims()[rank - N + i] != length {
                result = along(&result, rank - N + i, length);
            }
        }
        result
    }
}
