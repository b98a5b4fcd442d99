//! Dynamic dimensions: lengths that are not part of a plan.
//!
//! A short last batch or a partially filled cache uses the same plan as a full one. An axis with a [`Dim`] is stored
//! at its bound, and its valid length is a number passed at launch. Elements beyond the valid length are padding with
//! unspecified values. Operations that combine elements along such an axis replace the padding by the identity
//! ([`propagate`] defines this for each primitive); other operations carry the padding along. The work is that of the
//! bound.
//!
//! To the user the shape has the valid lengths. Inside this crate `Node::shape` has the bounds.

mod binding;
mod propagate;

use std::fmt;
use std::sync::{Arc, OnceLock};

use panoply_ir::graph::{Op, Slice};
use panoply_ir::{Alu, DType, Error, Result, Scalar, Shape};

use crate::eval::on_host;
use crate::tensor::{NodeKind, Tensor, fits};
pub(crate) use binding::{LengthPattern, check_lengths, lengths, measured, pattern};
pub(crate) use propagate::{meet, primitive};

/// Maximum bound: positions are i32.
const MAX_BOUND: usize = i32::MAX as usize;

/// A dynamic length, up to a bound, that can differ from run to run of one plan. Two dims are equal if name and bound
/// are equal. Axes that an operation aligns must have equal dims and equal lengths.
///
/// ```
/// # use panoply_tensor::{Dim, Tensor, plan_cache_stats};
/// let batch = Dim::new("batch", 64);
/// for rows in [3, 64, 17] {
///     let x = Tensor::from_slice(&vec![2.0f32; rows], [rows]).mark_dynamic(0, &batch);
///     let plans = plan_cache_stats().misses;
///     assert_eq!(x.square().mean(..).item::<f64>()?, 4.0);
///     assert!(rows == 3 || plan_cache_stats().misses == plans);
/// }
/// # Ok::<(), panoply_tensor::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dim {
    name: Arc<str>,
    bound: usize,
}

impl Dim {
    /// Creates a dim. A bound of 0 counts as 1.
    pub fn new(name: &str, bound: usize) -> Dim {
        Dim { name: name.into(), bound: bound.max(1) }
    }

    /// Returns the name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the largest length.
    pub fn bound(&self) -> usize {
        self.bound
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of at most {}", self.name, self.bound)
    }
}

/// The valid part of a dynamic axis: its first `multiple · length` elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DynamicDim<L> {
    pub dim: Dim,
    pub multiple: usize,
    pub length: L,
}

/// The valid part of each axis; `None` for a static axis.
pub(crate) type DynamicDims<L = Tensor> = Vec<Option<DynamicDim<L>>>;

/// Valid lengths of a node.
pub(crate) struct ValidLengths {
    pub dynamic_dims: DynamicDims,
    /// Axes of a placeholder along which the input is data-free (see [`Tensor::is_free`]), so that it is valid for
    /// any length.
    pub data_free_axes: Vec<usize>,
    /// Cached shape with the valid lengths.
    known: OnceLock<Shape>,
}

impl Clone for ValidLengths {
    fn clone(&self) -> ValidLengths {
        ValidLengths {
            dynamic_dims: self.dynamic_dims.clone(),
            data_free_axes: self.data_free_axes.clone(),
            known: OnceLock::new(),
        }
    }
}

impl ValidLengths {
    /// Returns `None` if all axes are static.
    pub fn of(dynamic_dims: DynamicDims) -> Option<Box<ValidLengths>> {
        dynamic_dims
            .iter()
            .any(Option::is_some)
            .then(|| Box::new(ValidLengths { dynamic_dims, data_free_axes: Vec::new(), known: OnceLock::new() }))
    }

    /// Returns the shape with the valid lengths.
    pub fn shape(&self, of: &Tensor) -> Result<&Shape> {
        if let Some(shape) = self.known.get() {
            return Ok(shape);
        }
        let mut dims = of.0.shape.dims().to_vec();
        for (axis, part) in self.dynamic_dims.iter().enumerate() {
            let Some(part) = part else { continue };
            let length = match (part.known(), &part.length.0.source) {
                (Some(length), _) => length,
                (None, NodeKind::Input(_)) => {
                    let message = format!("the length of axis {axis} of {of:?} is known only when the function runs");
                    return Err(Error::mistake(message).note("`.dim_size(axis)` is a tensor that holds it"));
                }
                (None, _) => part.length.item::<i32>()?.into(),
            };
            dims[axis] = part.dim.checked(length)? * part.multiple;
        }
        Ok(self.known.get_or_init(|| dims.into()))
    }

    /// Returns true if the valid elements are contiguous at the start of the buffer.
    pub fn is_prefix(&self, of: &Tensor) -> Result<bool> {
        let outermost = of.0.shape.dims().iter().position(|length| *length != 1);
        self.shape(of)?;
        Ok(self
            .dynamic_dims
            .iter()
            .enumerate()
            .all(|(axis, part)| part.is_none() || outermost.is_none_or(|first| axis <= first)))
    }

    /// Copies the bytes of the valid elements.
    pub fn gather(&self, of: &Tensor, whole: &[u8], bytes: &mut [u8]) -> Result<()> {
        let (stored, there) = (of.0.shape.strides(), self.shape(of)?.dims());
        let last = self.dynamic_dims.iter().rposition(Option::is_some).expect("an axis is dynamic");
        let mut starts = vec![0];
        for axis in 0..last {
            let step = stored[axis];
            starts = starts.iter().flat_map(|start| (0..there[axis]).map(move |at| start + at * step)).collect();
        }
        let run = there[last] * stored[last] * of.dtype().bytes();
        for (start, to) in starts.iter().zip(bytes.chunks_mut(run.max(1))) {
            to.copy_from_slice(&whole[start * of.dtype().bytes()..][..run]);
        }
        Ok(())
    }

    /// Formats a shape for messages: `[batch 37/64, 8]`.
    pub fn display_shape(&self, shape: &Shape) -> String {
        let axis = |(length, part): (&usize, &Option<DynamicDim<Tensor>>)| match part {
            None => length.to_string(),
            Some(part) => {
                let known = part.known().map_or("?".to_string(), |known| (known * part.multiple as i128).to_string());
                let times = if part.multiple == 1 { String::new() } else { format!("{}·", part.multiple) };
                format!("{times}{} {known}/{length}", part.dim.name)
            }
        };
        format!("[{}]", shape.dims().iter().zip(&self.dynamic_dims).map(axis).collect::<Vec<String>>().join(", "))
    }
}

impl DynamicDim<Tensor> {
    /// Returns the length if it is a number passed at launch.
    fn known(&self) -> Option<i128> {
        self.length.number().map(Scalar::to_i128)
    }

    /// Returns the length; a computed length or a placeholder is clamped to 0 ..= bound.
    fn clamped_length(&self) -> Tensor {
        match self.known() {
            Some(_) => self.length.clone(),
            None => {
                let end = |length: usize| Tensor::constant((length as i32).into());
                let above = Tensor::alu(Alu::Max, &[&self.length, &end(0)]);
                Tensor::alu(Alu::Min, &[&above, &end(self.dim.bound)])
            }
        }
    }

    /// Returns the number of valid elements in this integer type, of shape `[]`.
    fn count(&self, dtype: DType) -> Tensor {
        let length = self.clamped_length().cast(dtype);
        if self.multiple == 1 { length } else { &length * length.literal(self.multiple as f64) }
    }
}

/// Returns the number of elements; `usize::MAX` on overflow.
fn product(dims: &[usize]) -> usize {
    Shape::from(dims).numel()
}

impl Dim {
    fn checked(&self, length: i128) -> Result<usize> {
        let fits = usize::try_from(length).ok().filter(|length| *length <= self.bound);
        fits.ok_or_else(|| Error::mistake(format!("{length} is not a valid length of {self}")))
    }
}

impl Tensor {
    /// Makes the length of an axis dynamic: values of other lengths up to the bound of `dim` run the same plan.
    ///
    /// Operations, gradients and reads see the valid length; memory and work are those of the bound. An operation
    /// that needs the length (slicing or flipping the axis, merging two such axes) is a mistake; apply
    /// [`Tensor::to_static_shape`] first. Host data and evaluated tensors are padded here; the plan that computes any
    /// other tensor depends on the length.
    #[track_caller]
    pub fn mark_dynamic(&self, axis: isize, dim: &Dim) -> Tensor {
        let axis = match self.axis("mark_dynamic", axis) {
            Ok(axis) => axis,
            Err(mistake) => return mistake,
        };
        let length = self.0.shape.dims()[axis];
        let wrong = match self.valid_length(axis) {
            Some(_) => format!("axis {axis} of {self:?} has a Dim already"),
            None if length > dim.bound => format!("the length of axis {axis} of {self:?} exceeds the bound of {dim}"),
            None if dim.bound > MAX_BOUND => format!("the bound of {dim} is more than an i32 can count"),
            None => String::new(),
        };
        if !wrong.is_empty() {
            return Tensor::mistake(Error::mistake(format!("mark_dynamic: {wrong}")));
        }
        let mut dynamic_dims = self.dynamic_dims();
        dynamic_dims[axis] = Some(DynamicDim { dim: dim.clone(), multiple: 1, length: Tensor::scalar(length as i32) });
        self.padded(axis, dim.bound, dynamic_dims).unwrap_or_else(Tensor::mistake)
    }

    /// Sets the valid length of an axis that is as long as the bound of `dim`: for example a cache and its fill
    /// level.
    ///
    /// `length` is a single i32 in 0 ..= bound; a [`Tensor::scalar`] can change from run to run of one plan. Axes
    /// that an operation aligns are known to be equally long if their lengths are the same tensor or equal numbers. A
    /// number out of range is a mistake. A computed length is not checked until the shape is read: until then it is
    /// clamped to 0 ..= bound.
    #[track_caller]
    pub fn set_dim_size(&self, axis: isize, dim: &Dim, length: &Tensor) -> Tensor {
        let axis = match self.axis("set_dim_size", axis) {
            Ok(axis) => axis,
            Err(mistake) => return mistake,
        };
        if length.is_mistake() {
            return length.clone();
        }
        if (length.0.shape.ndim(), length.dtype()) != (0, DType::I32) {
            let message = format!("set_dim_size: the length is {length:?}, not a single i32");
            return Tensor::mistake(Error::mistake(message));
        }
        if self.valid_length(axis).is_some() || self.0.shape.dims()[axis] != dim.bound {
            let message = format!("set_dim_size: axis {axis} of {self:?} is not as long as the bound of {dim}");
            return Tensor::mistake(Error::mistake(message));
        }
        if let Some(Err(error)) = length.number().map(|number| dim.checked(number.to_i128())) {
            return Tensor::mistake(Error::mistake(format!("set_dim_size: {}", error.message())));
        }
        self.with_length(axis, dim, length.clone())
    }

    /// Returns the same elements with the current lengths as a static shape, without a [`Dim`]. Each length has its
    /// own plan.
    #[track_caller]
    pub fn to_static_shape(&self) -> Tensor {
        if self.is_mistake() || self.0.valid_lengths.is_none() {
            return self.clone();
        }
        let shape = match self.shape() {
            Ok(shape) => shape.clone(),
            Err(error) => return Tensor::mistake(error),
        };
        let slices = shape.dims().iter().map(|len| Slice { start: 0, step: 1, len: *len }).collect();
        Tensor::step(NodeKind::Op(Op::Slice(slices)), &[self], shape, self.dtype(), None)
    }

    /// Returns the number of axes.
    ///
    /// # Errors
    /// The tensor carries a mistake.
    #[doc(alias = "dim")]
    pub fn ndim(&self) -> Result<usize> {
        self.check().map(|()| self.0.shape.ndim())
    }

    /// Returns the length of one axis. While a function is traced it is known unless the axis has a [`Dim`].
    ///
    /// # Errors
    /// The axis is out of range, or its length is not known during a trace.
    #[track_caller]
    pub fn size(&self, axis: isize) -> Result<usize> {
        let place = match self.axis("size", axis) {
            Ok(place) => place,
            Err(mistake) => return mistake.check().map(|()| 0),
        };
        match self.valid_length(place) {
            Some(_) => self.shape().map(|shape| shape.dims()[place]),
            None => Ok(self.0.shape.dims()[place]),
        }
    }

    /// Returns true if both shapes are known to be equal, also while a function is traced.
    pub fn is_same_size(&self, other: &Tensor) -> bool {
        self.same_shape("is_same_size", other).is_ok_and(|same| same)
    }

    /// Returns true if both shapes are equal; an error if the bounds are equal but the lengths are not known to be.
    pub(crate) fn same_shape(&self, op: &str, other: &Tensor) -> Result<bool> {
        self.check()?;
        other.check()?;
        if self.0.shape != other.0.shape {
            return Ok(false);
        }
        (0..self.0.shape.ndim()).try_for_each(|axis| meet(op, &[(self, axis), (other, axis)]).map(drop))?;
        Ok(true)
    }

    /// Returns the length of an axis as an i32 of shape `[]`. The length of a [`Dim`] is not part of the program.
    #[track_caller]
    pub fn dim_size(&self, axis: isize) -> Tensor {
        match self.axis("dim_size", axis) {
            Ok(axis) => match self.valid_length(axis) {
                Some(part) => part.count(DType::I32),
                None => match self.has_positions("dim_size", axis) {
                    Ok(()) => Tensor::constant((self.0.shape.dims()[axis] as i32).into()),
                    Err(mistake) => mistake,
                },
            },
            Err(mistake) => mistake,
        }
    }

    /// Returns 0, 1, … along an axis as i32 `[length]`, with the dim of the axis.
    #[track_caller]
    pub fn arange_like(&self, axis: isize) -> Tensor {
        match self.axis("arange_like", axis) {
            Ok(axis) => Tensor::arange(self.0.shape.dims()[axis]).with_lengths(&vec![self.valid_length(axis).cloned()]),
            Err(mistake) => mistake,
        }
    }

    /// Returns true if an axis has a dynamic length.
    pub fn has_dynamic_dim(&self) -> bool {
        self.0
            .valid_lengths
            .as_ref()
            .is_some_and(|valid_lengths| valid_lengths.dynamic_dims.iter().any(Option::is_some))
    }

    /// Returns true if an axis is known to be empty.
    pub(crate) fn is_empty_along(&self, axis: usize) -> bool {
        self.0.shape.dims()[axis] == 0 || self.valid_length(axis).is_some_and(|part| part.known() == Some(0))
    }

    /// Returns the valid part of an axis; `None` if it is static.
    pub(crate) fn valid_length(&self, axis: usize) -> Option<&DynamicDim<Tensor>> {
        self.0.valid_lengths.as_ref()?.dynamic_dims[axis].as_ref()
    }

    pub(crate) fn dynamic_dims(&self) -> DynamicDims {
        self.0
            .valid_lengths
            .as_ref()
            .map_or_else(|| vec![None; self.0.shape.ndim()], |valid_lengths| valid_lengths.dynamic_dims.clone())
    }

    /// Returns the number of valid elements along these axes, of this tensor's element type and shape `[]`.
    pub(crate) fn count(&self, axes: &[usize]) -> Tensor {
        self.count_in(axes, self.dtype())
    }

    /// Like [`Tensor::count`], of an element type that can hold the number.
    pub(crate) fn count_in(&self, axes: &[usize], dtype: DType) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        let along = |axis: &usize| self.valid_length(*axis).map_or(self.0.shape.dims()[*axis], |part| part.multiple);
        let whole = axes.iter().map(along).product::<usize>();
        let whole = Tensor::constant(Scalar::from_i128(dtype, whole as i128));
        let lengths =
            axes.iter().filter_map(|axis| self.valid_length(*axis)).map(|part| part.clamped_length().cast(dtype));
        lengths.fold(whole, |count, length| count * length)
    }

    /// Replaces the padding along these axes by `value`, which makes the axes static.
    pub(crate) fn mask_padding(&self, axes: &[usize], value: Scalar) -> Tensor {
        let beyond = axes.iter().filter_map(|axis| Some((*axis, self.valid_length(*axis)?)));
        self.mask_padding_of(&beyond.collect::<Vec<_>>(), value)
    }

    /// Replaces the elements beyond the valid lengths of these axes by `value`, which makes the axes static.
    fn mask_padding_of(&self, beyond: &[(usize, &DynamicDim<Tensor>)], value: Scalar) -> Tensor {
        let inside = beyond.iter().map(|(axis, part)| {
            let length = self.0.shape.dims()[*axis];
            let mut around = vec![1; self.0.shape.ndim()];
            around[*axis] = length;
            Tensor::arange(length).lt(&part.count(DType::I32)).reshaped(around.into())
        });
        let Some(inside) = inside.reduce(|all, one| all.bitwise_and(&one)) else { return self.clone() };
        let mut dynamic_dims = self.dynamic_dims();
        beyond.iter().for_each(|(axis, _)| dynamic_dims[*axis] = None);
        let shape = &self.0.shape;
        let (inside, value) = (inside.expanded(shape), Tensor::constant(value).expanded(shape));
        let source = NodeKind::Op(Op::Alu(Alu::Select));
        Tensor::step(source, &[&inside, self, &value], shape.clone(), self.dtype(), ValidLengths::of(dynamic_dims))
    }

    /// Returns the same elements with the dynamic axes of another tensor of this shape added.
    pub(crate) fn with_lengths_of(self, other: &Tensor) -> Tensor {
        if self.is_mistake() { self } else { self.with_lengths(&other.dynamic_dims()) }
    }

    /// Returns the same elements with these dynamic axes added.
    pub(crate) fn with_lengths(self, dynamic_dims: &DynamicDims) -> Tensor {
        let own = self.dynamic_dims();
        let dynamic_dims: DynamicDims =
            dynamic_dims.iter().zip(&own).map(|(part, own)| part.clone().or(own.clone())).collect();
        let same = own.iter().zip(&dynamic_dims).all(|(own, part)| own.is_some() == part.is_some());
        if same { self } else { self.viewed(ValidLengths::of(dynamic_dims)) }
    }

    /// Returns a cotangent with the dynamic axes of `other`: padding along the other axes is replaced by 0.
    pub(crate) fn summand_of(self, other: &Tensor) -> Tensor {
        let beyond: Vec<usize> = (0..self.0.shape.ndim()).filter(|axis| other.valid_length(*axis).is_none()).collect();
        self.mask_padding(&beyond, Scalar::from_i128(self.dtype(), 0)).with_lengths_of(other)
    }

    /// Returns the tensor whose padding [`Tensor::mask_padding`] replaced, if this is its result.
    pub(crate) fn masked_source(&self) -> Option<&Tensor> {
        match (&self.0.source, &self.0.inputs[..]) {
            (NodeKind::Op(Op::Alu(Alu::Select)), [_, of, _]) if of.has_dynamic_dim() => Some(of),
            _ => None,
        }
    }

    /// Converts the dims requested for a reshape of this tensor: bounds replace valid lengths. `None` if they do not
    /// name the lengths.
    pub(crate) fn to_bound_shape(&self, mut dims: Vec<isize>) -> Option<Vec<isize>> {
        if !self.has_dynamic_dim() {
            return Some(dims);
        }
        let own = |axis: usize| match self.valid_length(axis).map(|part| (part.known(), part.multiple)) {
            Some((Some(length), each)) => length as isize * each as isize,
            Some((None, _)) | None => self.0.shape.dims()[axis] as isize,
        };
        let counted = |dims: &mut dyn Iterator<Item = isize>| {
            dims.filter(|length| *length != -1).try_fold(1isize, |product, length| product.checked_mul(length))
        };
        let elems = counted(&mut (0..self.0.shape.ndim()).map(own))?;
        let open: Vec<usize> = (0..dims.len()).filter(|at| dims[*at] == -1).collect();
        if let ([at], Some(rest)) = (&open[..], counted(&mut dims.iter().copied()))
            && rest > 0
            && elems % rest == 0
        {
            dims[*at] = elems / rest;
        }
        for (axis, part) in self.dynamic_dims().into_iter().enumerate() {
            let Some((length, part)) = part.and_then(|part| Some((part.known()? as isize, part))) else { continue };
            let before = isize::try_from(product(&self.0.shape.dims()[..axis])).ok()?;
            // In place of a length 0, the number that fills the storage.
            let room = || {
                let elems = isize::try_from(self.0.shape.numel()).ok()?;
                let others = dims.iter().filter(|length| **length != 0).try_fold(1isize, |a, b| a.checked_mul(*b))?;
                let room = elems / others;
                (others > 0 && room * others == elems && room % part.dim.bound as isize == 0).then_some(room)
            };
            let stored = |asked: isize| match length {
                0 => (asked == 0).then(room)?,
                _ => (asked > 0 && asked % length == 0).then(|| asked / length)?.checked_mul(part.dim.bound as isize),
            };
            let lead = |at: usize| dims[..at].iter().try_fold(1isize, |product, length| product.checked_mul(*length));
            let found = (0..dims.len()).filter(|at| lead(*at) == Some(before));
            let (at, length) = found.filter_map(|at| Some((at, stored(dims[at])?))).next()?;
            dims[at] = length;
        }
        Some(dims)
    }

    /// Converts the target shape of a broadcast: bounds replace valid lengths.
    pub(crate) fn to_bound_shape_of(&self, shape: &Shape) -> Result<Shape> {
        let (own, stored) = (self.shape()?, self.0.shape.dims());
        let mut dims = shape.dims().to_vec();
        for (axis, length) in own.dims().iter().enumerate().filter(|(axis, _)| self.valid_length(*axis).is_some()) {
            match (axis + dims.len()).checked_sub(stored.len()) {
                Some(at) if dims[at] == *length => dims[at] = stored[axis],
                _ => return Err(Error::mistake(format!("{self:?} cannot be expanded to {shape}"))),
            }
        }
        Ok(dims.into())
    }

    #[track_caller]
    fn with_length(&self, axis: usize, dim: &Dim, length: Tensor) -> Tensor {
        let mut dynamic_dims = self.dynamic_dims();
        dynamic_dims[axis] = Some(DynamicDim { dim: dim.clone(), multiple: 1, length });
        self.viewed(ValidLengths::of(dynamic_dims))
    }

    #[track_caller]
    fn viewed(&self, valid_lengths: Option<Box<ValidLengths>>) -> Tensor {
        Tensor::step(NodeKind::Op(Op::Reshape), &[self], self.0.shape.clone(), self.dtype(), valid_lengths)
    }

    /// Pads an axis with zeros to the bound and marks it dynamic. Host data and evaluated tensors are padded here, so
    /// that no plan depends on the length.
    #[track_caller]
    fn padded(&self, axis: usize, bound: usize, dynamic_dims: DynamicDims) -> Result<Tensor> {
        let (node, mut dims) = (&self.0, self.0.shape.dims().to_vec());
        let (length, row) = (dims[axis], product(&dims[axis + 1..]).saturating_mul(self.dtype().bytes()));
        let outer = product(&dims[..axis]);
        let missing = bound - std::mem::replace(&mut dims[axis], bound);
        if !fits(&dims.clone().into(), node.dtype) {
            return Err(Error::mistake(format!(
                "mark_dynamic: {self:?} at length {bound} has more bytes than the address space"
            )));
        }
        let (valid_lengths, have) = (ValidLengths::of(dynamic_dims), length * row);
        if let Some(bytes) = self.host_bytes() {
            let mut filled = on_host(outer * bound * row)?;
            for (at, from) in bytes.chunks(have.max(1)).enumerate() {
                filled[at * bound * row..][..from.len()].copy_from_slice(from);
            }
            return Ok(Tensor::host(filled.into(), dims.into(), node.dtype, node.device.clone(), valid_lengths));
        }
        if let (Some(storage), Some(device), true, 1) = (node.value.get(), &node.device, node.inputs.is_empty(), outer)
        {
            let filled = device.upload(&on_host::<u8>(bound * row)?)?;
            filled.slice(0..have as u64)?.copy_from(storage)?;
            return Ok(Tensor::from_storage_unchecked_shape(filled, dims.into(), node.dtype, valid_lengths));
        }
        let mut widths = vec![(0, 0); dims.len()];
        widths[axis] = (0, missing);
        Ok(self.pad(&widths).viewed(valid_lengths))
    }

    /// Returns the index of a static axis, or a tensor with the mistake.
    #[track_caller]
    pub(crate) fn static_axis(&self, op: &str, axis: isize) -> Result<usize, Tensor> {
        let place = self.axis(op, axis)?;
        self.check_static(op, [place]).map(|()| place)
    }

    /// Checks that axes are static, for operations whose plan depends on their length; the error is a tensor with the
    /// mistake.
    #[track_caller]
    pub(crate) fn check_static(&self, op: &str, axes: impl IntoIterator<Item = usize>) -> Result<(), Tensor> {
        match axes.into_iter().any(|axis| self.valid_length(axis).is_some()) {
            true => Err(Tensor::mistake(self.needs_length(op))),
            false => Ok(()),
        }
    }

    /// Returns the mistake of an operation that needs a dynamic length.
    #[cold]
    pub(crate) fn needs_length(&self, op: &str) -> Error {
        let message = format!("{op}: {self:?} has a dynamic length, which this operation needs to know");
        Error::mistake(message).note("apply `.to_static_shape()` first to make the length part of the program")
    }
}
