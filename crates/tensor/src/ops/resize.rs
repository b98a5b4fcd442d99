//! Other lengths by repeating or interpolating elements.

use panoply_ir::{DType, Error, Shape};

use crate::tensor::Tensor;

/// Where the ends of an axis go in [`Tensor::resize_linear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// The outer edges of the first and last elements meet.
    Edges,
    /// The middles of the first and last elements meet (PyTorch's `align_corners`).
    Middles,
}

impl Tensor {
    /// The last N axes at other lengths; each element is the nearest one before it.
    #[track_caller]
    pub fn resize_nearest<const N: usize>(&self, lengths: [usize; N]) -> Tensor {
        self.resized(lengths, |x, axis, length| {
            let old = x.0.shape.dims()[axis];
            if length.is_multiple_of(old) {
                return x.repeat_each(length / old, axis as isize);
            }
            let places = Tensor::places(length, old);
            let number = |value: usize| places.literal(value as f64);
            let from = &places * number(old) / number(length);
            x.index_select(axis as isize, &from)
        })
    }

    /// The last N axes at other lengths; each element is a mean of its two neighbours along each axis, weighted by how
    /// near they are.
    #[track_caller]
    pub fn resize_linear<const N: usize>(&self, lengths: [usize; N], ends: Ends) -> Tensor {
        if !self.is_mistake() && !self.dtype().is_float() {
            return Tensor::mistake(Error::mistake(format!("resize_linear: needs floats, not {self:?}")));
        }
        // Of halves all axes in f32, rounded once.
        let wide = if self.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let resized = self.widened().resized(lengths, |x, axis, length| {
            let old = x.0.shape.dims()[axis];
            let places = Tensor::iota(length).cast(wide);
            let number = |value: f64| places.literal(value);
            let from = match ends {
                Ends::Middles if length == 1 => places.zeros_like(),
                Ends::Middles => &places * number((old - 1) as f64 / (length - 1) as f64),
                Ends::Edges => {
                    let centre = (&places + number(0.5)) * number(old as f64 / length as f64) - number(0.5);
                    centre.maximum(&number(0.0))
                }
            };
            let last = Tensor::constant((old as i32 - 1).into());
            let low = from.floor().cast(DType::I32).minimum(&last);
            let high = (&low + Tensor::constant(1i32.into())).minimum(&last);
            let mut around = vec![1; x.0.shape.rank()];
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
        let rank = self.0.shape.rank();
        if rank < N || lengths.contains(&0) || self.0.shape.dims()[rank - N..].contains(&0) {
            return Tensor::mistake(Error::mistake(format!("resize: {self:?} cannot be made {lengths:?}")));
        }
        if let Err(mistake) = self.is_whole("resize", rank - N..rank) {
            return mistake;
        }
        if self.0.shape.dims()[rank - N..].iter().chain(&lengths).any(|length| *length > i32::MAX as usize) {
            let message =
                format!("resize: from {self:?} to {lengths:?}; an axis has more elements than an i32 can count");
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
