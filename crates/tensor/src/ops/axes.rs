//! Axes and lengths as arguments: single numbers, arrays, slices and vectors of any index type.

use panoply_ir::{Error, Shape};

use crate::tensor::Tensor;

/// The axes of an operation: one, several, or `..` for all. Negative axes count from the end. [`KeepDim`] keeps reduced
/// axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes {
    /// The axes as the caller wrote them; `None` for all.
    pub axes: Option<Vec<isize>>,
    /// True if a reduction keeps the axes with length 1.
    pub keepdim: bool,
}

/// Axes that a reduction keeps with length 1, PyTorch's `keepdim=True`.
///
/// ```
/// # use panoply_tensor::{KeepDim, Tensor};
/// let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2]);
/// let probabilities = &x / x.sum(KeepDim(1));
/// assert_eq!(probabilities.sum(1).to_vec::<f32>()?, [1.0, 1.0]);
/// assert_eq!(x.max(KeepDim(..)).dims()?, [1, 1]);
/// # Ok::<(), panoply_tensor::Error>(())
/// ```
#[doc(alias = "keepdims")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepDim<A>(pub A);

/// The lengths that [`Tensor::reshape`] asks for. One can be -1, which is inferred; `()` asks for a single number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReshapeDims(pub Vec<isize>);

/// Axes of a tensor: ascending indices.
pub(crate) struct ReduceAxes {
    pub axes: Vec<usize>,
    pub keepdim: bool,
}

macro_rules! index_types {
    ($($number:ty: $convert:expr;)*) => {$(
        impl From<$number> for Axes {
            fn from(axis: $number) -> Axes {
                [axis].into()
            }
        }

        impl From<&[$number]> for Axes {
            fn from(axes: &[$number]) -> Axes {
                Axes { axes: Some(axes.iter().copied().map($convert).collect()), keepdim: false }
            }
        }

        impl From<&[$number]> for ReshapeDims {
            fn from(dims: &[$number]) -> ReshapeDims {
                ReshapeDims(dims.iter().copied().map($convert).collect())
            }
        }

        index_types!(@lists Axes, $number);
        index_types!(@lists ReshapeDims, $number);
    )*};
    (@lists $list:ident, $number:ty) => {
        impl<const N: usize> From<[$number; N]> for $list {
            fn from(numbers: [$number; N]) -> $list {
                numbers.as_slice().into()
            }
        }

        impl<const N: usize> From<&[$number; N]> for $list {
            fn from(numbers: &[$number; N]) -> $list {
                numbers.as_slice().into()
            }
        }

        impl From<Vec<$number>> for $list {
            fn from(numbers: Vec<$number>) -> $list {
                numbers.as_slice().into()
            }
        }

        impl From<&Vec<$number>> for $list {
            fn from(numbers: &Vec<$number>) -> $list {
                numbers.as_slice().into()
            }
        }
    };
}

index_types! {
    isize: |number| number;
    i32: |number| number as isize;
    // No axis or length exceeds the largest isize.
    usize: |number| isize::try_from(number).unwrap_or(isize::MAX);
}

impl From<std::ops::RangeFull> for Axes {
    fn from(_: std::ops::RangeFull) -> Axes {
        Axes { axes: None, keepdim: false }
    }
}

impl<A: Into<Axes>> From<KeepDim<A>> for Axes {
    fn from(KeepDim(axes): KeepDim<A>) -> Axes {
        Axes { keepdim: true, ..axes.into() }
    }
}

impl From<()> for ReshapeDims {
    fn from((): ()) -> ReshapeDims {
        ReshapeDims(Vec::new())
    }
}

impl From<&Shape> for ReshapeDims {
    fn from(shape: &Shape) -> ReshapeDims {
        shape.dims().into()
    }
}

impl From<Shape> for ReshapeDims {
    fn from(shape: Shape) -> ReshapeDims {
        shape.dims().into()
    }
}

impl Tensor {
    /// Returns the axes of a reduction in ascending order, or a tensor with the mistake.
    #[track_caller]
    pub(crate) fn reduce_axes(&self, op: &str, axes: impl Into<Axes>) -> Result<ReduceAxes, Tensor> {
        let Axes { axes, keepdim } = axes.into();
        let named = axes.unwrap_or_else(|| (0..self.0.shape.ndim() as isize).collect());
        let mut axes = Vec::with_capacity(named.len());
        for axis in named {
            axes.push(self.axis(op, axis)?);
        }
        axes.sort_unstable();
        if let Some(twice) = axes.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!("{op}: axis {} of {self:?} is named twice", twice[0]);
            return Err(Tensor::mistake(Error::mistake(message)));
        }
        if self.is_mistake() { Err(self.clone()) } else { Ok(ReduceAxes { axes, keepdim }) }
    }

    /// Returns the axes of an operation that is not a reduction in ascending order, or a tensor with the mistake.
    #[track_caller]
    pub(crate) fn plain_axes(&self, op: &str, axes: impl Into<Axes>) -> Result<Vec<usize>, Tensor> {
        let ReduceAxes { axes, keepdim } = self.reduce_axes(op, axes)?;
        if keepdim {
            return Err(Tensor::mistake(Error::mistake(format!(
                "{op}: `KeepDim` is for reductions; pass the axes alone"
            ))));
        }
        Ok(axes)
    }

    /// Removes these axes of length 1, unless the reduction keeps them.
    #[track_caller]
    pub(crate) fn without(&self, ReduceAxes { axes, keepdim }: &ReduceAxes) -> Tensor {
        if *keepdim || self.is_mistake() {
            return self.clone();
        }
        let dims = self.0.shape.dims().iter().enumerate();
        let kept = dims.filter(|(axis, _)| !axes.contains(axis)).map(|(_, dim)| *dim);
        self.reshaped(Shape::new(kept.collect::<Vec<usize>>()))
    }

    /// Merges these axes, whose lengths the operation must know, into a last axis. [`Tensor::with_merged`] is the
    /// inverse for a result in which that axis is reduced.
    #[track_caller]
    pub(crate) fn merged_last(&self, op: &str, axes: &ReduceAxes) -> Result<Tensor, Tensor> {
        self.check_static(op, axes.axes.iter().copied())?;
        let dims = self.0.shape.dims();
        let kept: Vec<usize> = (0..dims.len()).filter(|axis| !axes.axes.contains(axis)).collect();
        let merged = axes.axes.iter().fold(1usize, |product, axis| product.saturating_mul(dims[*axis]));
        let shape: Vec<usize> = kept.iter().map(|axis| dims[*axis]).chain([merged]).collect();
        Ok(self.permuted([kept, axes.axes.clone()].concat()).reshaped(shape.into()))
    }

    /// Returns this result of a reduction, from which the axes of `source` are removed, with the axes restored if the
    /// reduction keeps them.
    #[track_caller]
    pub(crate) fn with_merged(&self, source: &Tensor, axes: &ReduceAxes) -> Tensor {
        if !axes.keepdim || self.is_mistake() {
            return self.clone();
        }
        let mut dims = source.0.shape.dims().to_vec();
        axes.axes.iter().for_each(|axis| dims[*axis] = 1);
        self.reshaped(dims.into())
    }
}
