//! Views: other shapes and parts of the same elements, without copies; concatenation.

use std::fmt;
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use panoply_ir::graph::{Op, Slice};
use panoply_ir::{Error, Result, Shape};

use super::axes::{Axes, ReshapeDims};
use crate::tensor::Tensor;

/// Index of [`Tensor::slice`]. Negative positions count from the end: -1 is the last element. Rust's ranges and integers
/// convert to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorIndex {
    /// Positions `start` (or the beginning) up to but not including `end` (or the end), every `step`-th.
    Slice {
        /// First position, inclusive.
        start: Option<isize>,
        /// Last position, exclusive.
        end: Option<isize>,
        /// Step, at least 1.
        step: usize,
    },
    /// A single position; the axis is removed.
    Index(isize),
    /// A new axis of length 1.
    NewAxis,
    /// All axes that the other indices leave, in full; at most one.
    Ellipsis,
}

impl TensorIndex {
    /// The full range of an axis.
    pub const FULL: TensorIndex = TensorIndex::Slice { start: None, end: None, step: 1 };

    /// Returns every `step`-th position of this range; other indices stay.
    #[must_use]
    pub fn step_by(self, step: usize) -> TensorIndex {
        match self {
            TensorIndex::Slice { start, end, .. } => TensorIndex::Slice { start, end, step },
            TensorIndex::Index(_) | TensorIndex::NewAxis | TensorIndex::Ellipsis => self,
        }
    }
}

/// Writes the index as Rust does: `5`, `-2..`, `..`.
impl fmt::Display for TensorIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TensorIndex::Slice { start, end, step } => {
                let bound = |at: &Option<isize>| at.map_or_else(String::new, |at| at.to_string());
                let range = format!("{}..{}", bound(start), bound(end));
                if *step == 1 { f.write_str(&range) } else { write!(f, "({range}).step_by({step})") }
            }
            TensorIndex::Index(position) => write!(f, "{position}"),
            TensorIndex::NewAxis => f.write_str("NewAxis"),
            TensorIndex::Ellipsis => f.write_str("Ellipsis"),
        }
    }
}

/// Indices of the leading axes: one, or several as a tuple such as `(.., -3.., 5)`.
pub trait IntoTensorIndices {
    /// Returns the indices in order.
    fn into_indices(self) -> Vec<TensorIndex>;
}

impl IntoTensorIndices for Vec<TensorIndex> {
    fn into_indices(self) -> Vec<TensorIndex> {
        self
    }
}

impl IntoTensorIndices for TensorIndex {
    fn into_indices(self) -> Vec<TensorIndex> {
        vec![self]
    }
}

macro_rules! single {
    ($($index:ty, |$value:ident| $made:expr;)*) => {$(
        impl From<$index> for TensorIndex {
            fn from($value: $index) -> TensorIndex {
                $made
            }
        }

        impl IntoTensorIndices for $index {
            fn into_indices(self) -> Vec<TensorIndex> {
                vec![self.into()]
            }
        }
    )*};
}

macro_rules! index_types {
    ($($number:ty: $convert:expr;)*) => {$(
        single! {
            $number, |position| TensorIndex::Index($convert(position));
            Range<$number>, |range| range_of(Some($convert(range.start)), Some($convert(range.end)));
            RangeFrom<$number>, |range| range_of(Some($convert(range.start)), None);
            RangeTo<$number>, |range| range_of(None, Some($convert(range.end)));
            RangeInclusive<$number>, |range| range_of(Some($convert(*range.start())), after($convert(*range.end())));
            RangeToInclusive<$number>, |range| range_of(None, after($convert(range.end)));
        }
    )*};
}

single! {
    RangeFull, |_full| TensorIndex::FULL;
}

index_types! {
    isize: isize::from;
    i32: from_i32;
    usize: from_usize;
}

fn from_i32(position: i32) -> isize {
    position as isize
}

fn from_usize(position: usize) -> isize {
    // No tensor is longer than the largest isize.
    isize::try_from(position).unwrap_or(isize::MAX)
}

fn range_of(start: Option<isize>, end: Option<isize>) -> TensorIndex {
    TensorIndex::Slice { start, end, step: 1 }
}

/// Returns the end of a range with this last position.
fn after(last: isize) -> Option<isize> {
    if last == -1 { None } else { last.checked_add(1) }
}

macro_rules! tuples {
    ($($name:ident)+) => {
        impl<$($name: Into<TensorIndex>),+> IntoTensorIndices for ($($name,)+) {
            #[allow(non_snake_case)]
            fn into_indices(self) -> Vec<TensorIndex> {
                let ($($name,)+) = self;
                vec![$($name.into()),+]
            }
        }
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);

impl Tensor {
    /// Returns the number of elements.
    ///
    /// # Errors
    /// As [`Tensor::shape`].
    pub fn numel(&self) -> Result<usize> {
        self.shape().map(Shape::numel)
    }

    /// Broadcasts axes of length 1 and missing leading axes to this shape.
    #[doc(alias = "expand")]
    #[track_caller]
    pub fn broadcast_to(&self, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        if self.is_mistake() || self.0.valid_lengths.is_none() {
            return self.expanded(&shape);
        }
        match self.to_bound_shape_of(&shape) {
            Ok(shape) => self.expanded(&shape),
            Err(error) => Tensor::mistake(error),
        }
    }

    /// Broadcasts to a shape with the bounds of dynamic axes.
    #[track_caller]
    pub(crate) fn expanded(&self, shape: &Shape) -> Tensor {
        if self.is_mistake() || self.0.shape == *shape {
            return self.clone();
        }
        if self.0.shape.broadcast(shape).ok().as_ref() != Some(shape) {
            return Tensor::mistake(Error::mistake(format!("{self:?} cannot be expanded to {shape}")));
        }
        let mut dims = vec![1; shape.ndim() - self.0.shape.ndim()];
        dims.extend(self.0.shape.dims());
        let aligned = self.reshaped(Shape::new(dims));
        Tensor::primitive(Op::Expand, &[&aligned], shape.clone(), self.dtype())
    }

    /// Returns the elements in row-major order under another shape; one length may be -1 and is inferred. `()` asks
    /// for the shape `[]` of a single number.
    #[doc(alias = "view")]
    #[track_caller]
    pub fn reshape(&self, dims: impl Into<ReshapeDims>) -> Tensor {
        let ReshapeDims(asked) = dims.into();
        if self.is_mistake() {
            return self.clone();
        }
        let elems = self.0.shape.numel();
        let stored = self.to_bound_shape(asked.clone());
        let dims = stored.as_ref().unwrap_or(&asked);
        let known = dims.iter().filter(|dim| **dim >= 0).map(|dim| *dim as usize);
        let known = Shape::new(known.collect::<Vec<usize>>()).numel();
        let open = dims.iter().filter(|dim| **dim == -1).count();
        let fits = if open == 1 { known > 0 && elems.is_multiple_of(known) } else { open == 0 && known == elems };
        if stored.is_none() || !fits || dims.iter().any(|dim| *dim < -1) {
            let message = format!("reshape: {self:?} with {elems} elements does not fit {asked:?}");
            return Tensor::mistake(Error::mistake(message));
        }
        let found = dims.iter().map(|dim| if *dim == -1 { elems / known } else { *dim as usize });
        self.reshaped(Shape::new(found.collect::<Vec<usize>>()))
    }

    /// Reshapes to a shape of the same number of elements.
    #[track_caller]
    pub(crate) fn reshaped(&self, shape: Shape) -> Tensor {
        if self.is_mistake() || self.0.shape == shape {
            return self.clone();
        }
        Tensor::primitive(Op::Reshape, &[self], shape, self.dtype())
    }

    /// Merges the axes from `start_dim` to `end_dim`, both included, into one.
    #[track_caller]
    pub fn flatten(&self, start_dim: isize, end_dim: isize) -> Tensor {
        let (first, last) = match (self.axis("flatten", start_dim), self.axis("flatten", end_dim)) {
            (Ok(first), Ok(last)) => (first, last),
            (Err(mistake), _) | (_, Err(mistake)) => return mistake,
        };
        if first > last {
            let message = format!("flatten: axis {start_dim} of {self:?} comes after axis {end_dim}");
            return Tensor::mistake(Error::mistake(message));
        }
        let dims = self.0.shape.dims();
        let merged = Shape::from(&dims[first..=last]).numel();
        self.reshaped(Shape::new([&dims[..first], &[merged], &dims[last + 1..]].concat()))
    }

    /// Splits an axis into several whose lengths multiply to its length.
    #[track_caller]
    pub fn unflatten(&self, axis: isize, sizes: impl Into<Shape>) -> Tensor {
        let sizes = sizes.into();
        let axis = match self.axis("unflatten", axis) {
            Ok(axis) => axis,
            Err(mistake) => return mistake,
        };
        let dims = self.0.shape.dims();
        if sizes.numel() != dims[axis] {
            let message = format!("unflatten: axis {axis} of {self:?} is not the product of {sizes}");
            return Tensor::mistake(Error::mistake(message));
        }
        let split = [&dims[..axis], sizes.dims(), &dims[axis + 1..]].concat();
        self.reshaped(Shape::new(split))
    }

    /// Permutes the axes: axis i of the result is axis `axes[i]`.
    #[track_caller]
    pub fn permute(&self, axes: impl Into<Axes>) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        let Some(axes) = axes.into().axes else { return self.clone() };
        let found: Result<Vec<usize>> = axes.iter().map(|axis| self.0.shape.axis(*axis)).collect();
        let complete = |perm: &Vec<usize>| (0..self.0.shape.ndim()).all(|axis| perm.contains(&axis));
        match found {
            Ok(perm) if perm.len() == self.0.shape.ndim() && complete(&perm) => self.permuted(perm),
            _ => Tensor::mistake(Error::mistake(format!("permute: {axes:?} does not name each axis of {self:?} once"))),
        }
    }

    #[track_caller]
    pub(crate) fn permuted(&self, perm: Vec<usize>) -> Tensor {
        if self.is_mistake() || perm.iter().copied().eq(0..perm.len()) {
            return self.clone();
        }
        let dims: Vec<usize> = perm.iter().map(|axis| self.0.shape.dims()[*axis]).collect();
        Tensor::primitive(Op::Permute(perm), &[self], dims, self.dtype())
    }

    /// Swaps two axes.
    #[doc(alias = "swapaxes")]
    #[track_caller]
    pub fn transpose(&self, a: isize, b: isize) -> Tensor {
        match (self.axis("transpose", a), self.axis("transpose", b)) {
            (Ok(a), Ok(b)) => {
                let mut perm: Vec<usize> = (0..self.0.shape.ndim()).collect();
                perm.swap(a, b);
                self.permuted(perm)
            }
            (Err(mistake), _) | (_, Err(mistake)) => mistake,
        }
    }

    /// Swaps the last two axes.
    #[doc(alias = "mT")]
    #[track_caller]
    pub fn t(&self) -> Tensor {
        self.transpose(-2, -1)
    }

    /// Inserts an axis of length 1 at this position.
    #[doc(alias = "expand_dims")]
    #[track_caller]
    pub fn unsqueeze(&self, axis: isize) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        let rank = self.0.shape.ndim() as isize + 1;
        let position = if axis < 0 { axis + rank } else { axis };
        if !(0..rank).contains(&position) {
            return Tensor::mistake(Error::mistake(format!("unsqueeze: axis {axis} is out of range for {self:?}")));
        }
        let mut dims = self.0.shape.dims().to_vec();
        dims.insert(position as usize, 1);
        self.reshaped(Shape::new(dims))
    }

    /// Removes axes of length 1: one, several, or with `..` every axis of length 1.
    #[track_caller]
    pub fn squeeze(&self, axes: impl Into<Axes>) -> Tensor {
        let axes = axes.into();
        let every = axes.axes.is_none();
        let axes = match self.plain_axes("squeeze", axes) {
            Ok(axes) => axes,
            Err(mistake) => return mistake,
        };
        let dims = self.0.shape.dims();
        if let Some(axis) = axes.iter().find(|axis| !every && dims[**axis] != 1) {
            return Tensor::mistake(Error::mistake(format!("squeeze: axis {axis} of {self:?} does not have length 1")));
        }
        let kept = dims.iter().enumerate().filter(|(axis, dim)| !axes.contains(axis) || **dim != 1);
        self.reshaped(Shape::new(kept.map(|(_, dim)| *dim).collect::<Vec<usize>>()))
    }

    /// Pads each axis with zeros (before, after).
    #[track_caller]
    pub fn pad(&self, widths: &[(usize, usize)]) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        if widths.len() != self.0.shape.ndim() {
            return Tensor::mistake(Error::mistake(format!("pad: {} widths for {self:?}", widths.len())));
        }
        if widths.iter().all(|width| *width == (0, 0)) {
            return self.clone();
        }
        let longer =
            |(dim, (before, after)): (&usize, &(usize, usize))| dim.saturating_add(*before).saturating_add(*after);
        let padded = self.0.shape.dims().iter().zip(widths).map(longer);
        Tensor::primitive(Op::Pad(widths.to_vec()), &[self], padded.collect::<Vec<usize>>(), self.dtype())
    }

    /// Slices the tensor, as `x[…]` does in NumPy and PyTorch. Axes without an index are kept; bounds beyond an axis are a
    /// mistake. [`Tensor::index`] takes positions from tensors.
    ///
    /// ```
    /// # use panoply_tensor::{Tensor, TensorIndex::{Ellipsis, NewAxis}};
    /// let x = Tensor::arange(24).reshape([2, 3, 4]);
    /// assert_eq!(x.slice(0).dims()?, [3, 4]); // x[0]
    /// assert_eq!(x.slice((.., -2.., 1)).dims()?, [2, 2]); // x[:, -2:, 1]
    /// assert_eq!(x.slice((Ellipsis, 0..=1)).dims()?, [2, 3, 2]); // x[..., 0:2]
    /// assert_eq!(x.slice((1, NewAxis)).dims()?, [1, 3, 4]); // x[1, None]
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    #[doc(alias = "getitem")]
    #[doc(alias = "select")]
    #[track_caller]
    pub fn slice(&self, indices: impl IntoTensorIndices) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        let (mut indices, dims) = (indices.into_indices(), self.0.shape.dims());
        let named =
            indices.iter().filter(|index| !matches!(index, TensorIndex::NewAxis | TensorIndex::Ellipsis)).count();
        let open = indices.iter().filter(|index| **index == TensorIndex::Ellipsis).count();
        if named > dims.len() || open > 1 {
            let what = if open > 1 { format!("{open} ellipses") } else { format!("{named} indices") };
            return Tensor::mistake(Error::mistake(format!("slice: {what} for {self:?}")));
        }
        let at = indices.iter().position(|index| *index == TensorIndex::Ellipsis).unwrap_or(indices.len());
        drop(indices.splice(at..(at + open), vec![TensorIndex::FULL; dims.len() - named]));
        let (mut slices, mut kept) = (Vec::new(), Vec::new());
        for index in indices {
            let axis = slices.len();
            let slice = match index {
                TensorIndex::NewAxis | TensorIndex::Ellipsis => {
                    kept.push(1);
                    continue;
                }
                TensorIndex::Index(position) => from_start(position, dims[axis])
                    .filter(|position| *position < dims[axis])
                    .map(|start| Slice { start, step: 1, len: 1 }),
                TensorIndex::Slice { start, end, step } => range_within(start, end, step, dims[axis]),
            };
            let Some(slice) = slice else {
                let what = match index {
                    TensorIndex::Index(_) => "is out of range for",
                    TensorIndex::Slice { .. } | TensorIndex::NewAxis | TensorIndex::Ellipsis => "does not fit",
                };
                let message = format!("slice: {index} {what} axis {axis} of {self:?}");
                return Tensor::mistake(Error::mistake(message));
            };
            if !matches!(index, TensorIndex::Index(_)) {
                kept.push(slice.len);
            }
            slices.push(slice);
        }
        self.sliced(slices).reshaped(Shape::new(kept))
    }

    #[track_caller]
    pub(crate) fn sliced(&self, slices: Vec<Slice>) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        let dims = self.0.shape.dims();
        if slices.iter().zip(dims).all(|(slice, dim)| *slice == Slice { start: 0, step: 1, len: *dim }) {
            return self.clone();
        }
        let lens: Vec<usize> = slices.iter().map(|slice| slice.len).collect();
        Tensor::primitive(Op::Slice(slices), &[self], lens, self.dtype())
    }

    /// Returns `len` elements of an axis from `start`.
    #[track_caller]
    pub fn narrow(&self, axis: isize, start: usize, len: usize) -> Tensor {
        let axis = match self.axis("narrow", axis) {
            Ok(axis) => axis,
            Err(mistake) => return mistake,
        };
        let end = start.saturating_add(len);
        if end > self.0.shape.dims()[axis] {
            let message = format!("narrow: {start} .. {end} does not fit axis {axis} of {self:?}");
            return Tensor::mistake(Error::mistake(message));
        }
        let mut slices = self.whole();
        slices[axis] = Slice { start, step: 1, len };
        self.sliced(slices)
    }

    /// Reverses axes: one, several, or `..` for all.
    #[track_caller]
    pub fn flip(&self, axes: impl Into<Axes>) -> Tensor {
        let axes = match self.plain_axes("flip", axes) {
            Ok(axes) => axes,
            Err(mistake) => return mistake,
        };
        let mut slices = self.whole();
        for (axis, slice) in slices.iter_mut().enumerate() {
            if axes.contains(&axis) && slice.len > 1 {
                (slice.start, slice.step) = (slice.len - 1, -1);
            }
        }
        self.sliced(slices)
    }

    /// Returns slices that keep every element.
    pub(crate) fn whole(&self) -> Vec<Slice> {
        self.0.shape.dims().iter().map(|len| Slice { start: 0, step: 1, len: *len }).collect()
    }

    /// Concatenates tensors along an axis; the other lengths must be equal.
    ///
    /// ```
    /// # use panoply_tensor::Tensor;
    /// let (x, y) = (Tensor::from_slice(&[1.0f32], [1]), Tensor::from_slice(&[2.0f32, 3.0], [2]));
    /// assert_eq!(Tensor::concat([&x, &y], 0).to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    /// assert_eq!(Tensor::stack((0..3).map(|n| &y * f64::from(n)), 1).to_vec::<f32>()?, [0.0, 2.0, 4.0, 0.0, 3.0, 6.0]);
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    #[doc(alias = "cat")]
    #[track_caller]
    pub fn concat(tensors: impl IntoIterator<Item = impl Into<Tensor>>, axis: isize) -> Tensor {
        Tensor::concatenated(&tensors.into_iter().map(Into::into).collect::<Vec<Tensor>>(), axis)
    }

    #[track_caller]
    fn concatenated(tensors: &[Tensor], axis: isize) -> Tensor {
        let Some(first) = tensors.first() else {
            return Tensor::mistake(Error::mistake("concat: no tensors were given"));
        };
        let axis = match first.axis("concat", axis) {
            Ok(axis) => axis,
            Err(mistake) => return mistake,
        };
        for other in &tensors[1..] {
            if other.is_mistake() {
                return other.clone();
            }
            let (a, b) = (first.0.shape.dims(), other.0.shape.dims());
            let fits = a.len() == b.len() && (0..a.len()).all(|i| i == axis || a[i] == b[i]);
            if !fits || first.dtype() != other.dtype() {
                let message = format!("concat: {first:?} and {other:?} differ beside axis {axis}");
                return Tensor::mistake(Error::mistake(message));
            }
        }
        if let [only] = tensors {
            return only.clone();
        }
        if tensors.len() <= FEW_PARTS {
            return joined(tensors, &axis);
        }
        let parts: Vec<&Tensor> = tensors.iter().collect();
        Tensor::call_dyn_with_vjp("concat", &parts, axis, joined, |parts, g, axis| {
            let length = |part: &Tensor| part.0.shape.dims()[*axis];
            let starts = parts.iter().scan(0, |end, part| Some(std::mem::replace(end, *end + length(part))));
            starts.zip(parts).map(|(start, part)| Some(g.narrow(*axis as isize, start, length(part)))).collect()
        })
    }

    /// Stacks tensors of one shape along a new axis.
    #[track_caller]
    pub fn stack(tensors: impl IntoIterator<Item = impl Into<Tensor>>, axis: isize) -> Tensor {
        let mut longer = Vec::new();
        for tensor in tensors {
            longer.push(tensor.into().unsqueeze(axis));
        }
        Tensor::concatenated(&longer, axis)
    }

    /// Returns the index of an axis, or a tensor with the mistake.
    #[track_caller]
    pub(crate) fn axis(&self, op: &str, axis: isize) -> Result<usize, Tensor> {
        if self.is_mistake() {
            return Err(self.clone());
        }
        match self.0.shape.axis(axis) {
            Ok(position) => Ok(position),
            Err(error) => {
                let message = format!("{op}: {}", error.message());
                Err(Tensor::mistake(Error::mistake(message).note(format!("operand {self:?}"))))
            }
        }
    }
}

/// Maximum number of parts that are concatenated inline, without a composite node.
const FEW_PARTS: usize = 4;

/// Concatenates the parts along an axis.
#[track_caller]
fn joined(parts: &[Tensor], axis: &usize) -> Tensor {
    let length = |part: &Tensor| part.0.shape.dims()[*axis];
    let mut dims = parts[0].0.shape.dims().to_vec();
    dims[*axis] = parts.iter().map(length).fold(0, usize::saturating_add);
    let (mut whole, mut before) = (Tensor::zeros(dims, parts[0].dtype()), 0);
    if whole.is_mistake() {
        return whole;
    }
    for part in parts {
        whole = whole.written(*axis, before, part);
        before += length(part);
    }
    whole
}

/// Returns a position counted from the start; `None` if it is beyond the axis. The end of the axis is a position.
fn from_start(position: isize, length: usize) -> Option<usize> {
    let counted = if position < 0 { position + length as isize } else { position };
    usize::try_from(counted).ok().filter(|counted| *counted <= length)
}

/// Returns the slice of an axis; `None` if a bound is beyond the axis or the step is 0.
fn range_within(start: Option<isize>, end: Option<isize>, step: usize, length: usize) -> Option<Slice> {
    let start = start.map_or(Some(0), |start| from_start(start, length))?;
    let end = end.map_or(Some(length), |end| from_start(end, length))?;
    (step > 0).then(|| Slice { start, step: step as isize, len: end.saturating_sub(start).div_ceil(step) })
}
