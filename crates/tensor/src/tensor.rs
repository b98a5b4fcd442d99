//! The tensor handle, its graph node, and propagation of mistakes.
//!
//! Nodes are immutable except that an evaluated node keeps its value. Traversals and drops are loops, never
//! recursion, so a chain of a million operations does not overflow the stack.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use panoply_ir::graph::Op;
use panoply_ir::{DType, Element, Error, Result, Scalar, Shape};
use panoply_runtime::{Device, Storage};

use crate::call::TracedBody;
use crate::dynamic_dim::{self, ValidLengths};
use crate::eval::topological_order;
use crate::mistake::Mistake;
use crate::ops::fourier::Table;
use crate::random::RngWord;

/// A lazy multi-dimensional array on a device.
///
/// ```
/// use panoply_tensor::{DType, Tensor};
///
/// let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
/// let centered = &x - x.mean(0); // means of the columns, broadcast
/// assert_eq!(centered.to_vec::<f32>()?, [-1.5, -1.5, -1.5, 1.5, 1.5, 1.5]);
/// assert_eq!(x.matmul(&Tensor::ones([3, 1], DType::F32)).to_vec::<f32>()?, [6.0, 15.0]);
/// let loss = x.square().sum(..);
/// assert_eq!(loss.gradients(&[&x])?[0].to_vec::<f32>()?, [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
/// # Ok::<(), panoply_tensor::Error>(())
/// ```
///
/// # Properties
/// A tensor can carry a mistake in place of a value, and a [`crate::Dim`] has a length that is known late. Therefore
/// [`Tensor::shape`], [`Tensor::dims`] (of exactly N axes), [`Tensor::size`] (of one axis), [`Tensor::ndim`] and
/// [`Tensor::numel`] return a `Result`; they compute nothing unless the length of a `Dim` is itself computed.
/// [`Tensor::dtype`] is known for every tensor, and meaningless for a mistake; [`Tensor::check`] tells whether there is
/// one. [`Tensor::device`] is `None` for a constant, which fits every device.
#[derive(Clone)]
#[doc(alias = "ndarray")]
pub struct Tensor(pub(crate) Arc<Node>);

/// Maximum depth of nodes without a value. A node at this depth is evaluated at once, so that a program that never
/// reads a value bounds its memory and plans equal segments once.
const MAX_PENDING_DEPTH: u32 = 1 << 14;

/// Depth of a node that depends on a function's inputs, which have no value during a trace.
const DEPTH_NEEDS_INPUTS: u32 = u32::MAX;

pub(crate) struct Node {
    pub source: NodeKind,
    pub inputs: Vec<Tensor>,
    pub shape: Shape,
    pub dtype: DType,
    /// Valid lengths of the axes with a [`crate::Dim`]; `None` if there are none.
    pub valid_lengths: Option<Box<ValidLengths>>,
    /// Device of the value; `None` for constants, which fit every device.
    pub device: Option<Device>,
    pub location: &'static Location<'static>,
    /// Creation order: larger than the serial of every earlier node.
    pub serial: u64,
    /// Length of the longest path, in nodes, to a leaf or a constant.
    pub depth: u32,
    /// True once [`Tensor::flush_pending`] has counted the node.
    pub flushed: AtomicBool,
    /// The value, once it is computed.
    pub value: OnceLock<Storage>,
}

pub(crate) enum NodeKind {
    /// A primitive over the inputs.
    Op(Op),
    /// Host bytes, dropped once they are on the device.
    Host(Mutex<Option<Arc<[u8]>>>),
    /// A table that the host computes when a plan first reads it.
    Table(Table),
    /// A scalar argument of the launch; the word of a generator if a traced function drew it.
    ScalarArg(Scalar, Option<RngWord>),
    /// A value passed by the caller; `value` is set from the start.
    Materialized,
    /// An output of a composite operation.
    Call(Arc<TracedBody>, u32),
    /// The n-th input of a body or function under trace: a placeholder.
    Input(u32),
    /// The input's value, cut off from the input's history.
    Detach,
    /// The value of the first input. Its history is recomputed for the gradient from the next n inputs; the remaining
    /// inputs are captured tensors that the history also reads.
    Checkpoint(usize),
    /// An error of the caller; shape and dtype have no meaning.
    Mistake(Mistake),
}

impl Tensor {
    /// Creates a tensor from elements in row-major order on the current device.
    ///
    /// `data.len()` must equal `shape.numel()`; otherwise the result carries a mistake.
    #[doc(alias = "tensor")]
    #[track_caller]
    pub fn from_slice<T: Element>(data: &[T], shape: impl Into<Shape>) -> Tensor {
        match Device::current() {
            Ok(device) => Tensor::from_slice_on(&device, data, shape),
            Err(error) => Tensor::mistake(error),
        }
    }

    /// Creates a tensor from elements in row-major order on `device`; see [`Tensor::from_slice`].
    #[track_caller]
    pub fn from_slice_on<T: Element>(device: &Device, data: &[T], shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        if shape.numel() != data.len() {
            return Tensor::mistake(Error::mistake(format!(
                "{} elements do not fill a tensor of shape {shape}",
                data.len()
            )));
        }
        Tensor::host(bytemuck::cast_slice(data).into(), shape, T::DTYPE, Some(device.clone()), None)
    }

    /// Creates an i32 tensor of indices: `x.index_select(0, &Tensor::from_indices(&[0, 2]))`.
    #[track_caller]
    pub fn from_indices(indices: &[usize]) -> Tensor {
        let numbers = indices.iter().map(|position| i32::try_from(*position).map_err(|_| position));
        match numbers.collect::<Result<Vec<i32>, &usize>>() {
            Ok(numbers) => Tensor::from_slice(&numbers, [numbers.len()]),
            Err(position) => {
                let message = format!("from_indices: {position} is more than {}, the largest i32", i32::MAX);
                Tensor::mistake(Error::mistake(message).note("pass the indices as i64 with `Tensor::from_slice`"))
            }
        }
    }

    /// Creates a tensor from bytes (little-endian, row-major) on the current device. `bytes` must hold exactly the
    /// elements of `shape`.
    #[doc(alias = "frombuffer")]
    #[track_caller]
    pub fn from_bytes(bytes: &[u8], shape: impl Into<Shape>, dtype: DType) -> Tensor {
        let shape = shape.into();
        if bytes.len() != shape.numel().saturating_mul(dtype.bytes()) {
            return Tensor::mistake(Error::mistake(format!("{} bytes do not fill {dtype}{shape}", bytes.len())));
        }
        match Device::current() {
            Ok(device) => Tensor::host(bytes.into(), shape, dtype, Some(device), None),
            Err(error) => Tensor::mistake(error),
        }
    }

    /// Creates a tensor from host bytes, which are uploaded when a plan first reads them.
    #[track_caller]
    pub(crate) fn host(
        bytes: Arc<[u8]>,
        shape: Shape,
        dtype: DType,
        device: Option<Device>,
        valid_lengths: Option<Box<ValidLengths>>,
    ) -> Tensor {
        Tensor::with_valid_lengths(
            NodeKind::Host(Mutex::new(Some(bytes))),
            Vec::new(),
            shape,
            dtype,
            device,
            valid_lengths,
        )
    }

    /// Returns the host bytes if they are not on the device yet.
    pub(crate) fn host_bytes(&self) -> Option<Arc<[u8]>> {
        match &self.0.source {
            NodeKind::Host(bytes) => bytes.lock().expect("no thread panics while it holds host bytes").clone(),
            _ => None,
        }
    }

    /// Creates a tensor over the bytes of a buffer, row-major. The buffer must hold exactly the elements of `shape`.
    #[track_caller]
    pub fn from_storage(storage: Storage, shape: impl Into<Shape>, dtype: DType) -> Tensor {
        let shape = shape.into();
        if storage.bytes() != shape.numel().saturating_mul(dtype.bytes()) as u64 {
            let message = format!("a buffer of {} bytes does not hold {dtype}{shape}", storage.bytes());
            return Tensor::mistake(Error::mistake(message));
        }
        Tensor::from_storage_unchecked_shape(storage, shape, dtype, None)
    }

    /// Creates a tensor over a buffer whose size the caller has checked.
    #[track_caller]
    pub(crate) fn from_storage_unchecked_shape(
        storage: Storage,
        shape: Shape,
        dtype: DType,
        valid_lengths: Option<Box<ValidLengths>>,
    ) -> Tensor {
        let device = storage.device().clone();
        let tensor =
            Tensor::with_valid_lengths(NodeKind::Materialized, Vec::new(), shape, dtype, Some(device), valid_lengths);
        let _ = tensor.0.value.set(storage);
        tensor
    }

    /// Creates a constant of shape `[]`, which is part of the program: graphs with different constants have different
    /// plans.
    #[track_caller]
    pub(crate) fn constant(value: Scalar) -> Tensor {
        Tensor::new(NodeKind::Op(Op::Const(value)), Vec::new(), Shape::default(), value.dtype, None)
    }

    /// Creates a number of shape `[]` that is an argument of the program: its value can change from run to run of one
    /// plan.
    #[doc(alias = "scalar_tensor")]
    #[track_caller]
    pub fn scalar(value: impl Into<Scalar>) -> Tensor {
        Tensor::slot_from(value.into(), None)
    }

    #[track_caller]
    pub(crate) fn slot_from(value: Scalar, word: Option<RngWord>) -> Tensor {
        Tensor::new(NodeKind::ScalarArg(value, word), Vec::new(), Shape::default(), value.dtype, None)
    }

    /// Creates a tensor that carries a mistake until a result is read. Operations built on this crate report errors
    /// with it.
    #[track_caller]
    pub fn from_mistake(error: Error) -> Tensor {
        Tensor::mistake(error)
    }

    #[track_caller]
    pub(crate) fn mistake(error: Error) -> Tensor {
        let place = Location::caller();
        let error = error.with_location(place);
        assert!(!panoply_runtime::env::panic_on_mistake(), "{error}");
        Tensor::new(NodeKind::Mistake(Mistake::new(error)), Vec::new(), Shape::default(), DType::F32, None)
    }

    #[track_caller]
    pub(crate) fn new(
        source: NodeKind,
        inputs: Vec<Tensor>,
        shape: Shape,
        dtype: DType,
        device: Option<Device>,
    ) -> Tensor {
        Tensor::with_valid_lengths(source, inputs, shape, dtype, device, None)
    }

    /// Creates a node with valid lengths.
    #[track_caller]
    pub(crate) fn with_valid_lengths(
        source: NodeKind,
        inputs: Vec<Tensor>,
        shape: Shape,
        dtype: DType,
        device: Option<Device>,
        valid_lengths: Option<Box<ValidLengths>>,
    ) -> Tensor {
        if !fits(&shape, dtype) {
            return Tensor::mistake(Error::mistake(format!("{dtype}{shape} has more bytes than the address space")));
        }
        let depth = match &source {
            NodeKind::Input(_) | NodeKind::ScalarArg(_, Some(_)) => DEPTH_NEEDS_INPUTS,
            _ if device.is_none() => 0,
            _ => inputs.iter().map(|Tensor(input)| input.depth).max().map_or(0, |deepest| deepest.saturating_add(1)),
        };
        let (place, serial, seen) = (Location::caller(), Node::next_serial(), AtomicBool::new(false));
        let value = OnceLock::new();
        let node = Node {
            source,
            inputs,
            shape,
            dtype,
            valid_lengths,
            device,
            location: place,
            serial,
            depth,
            flushed: seen,
            value,
        };
        let tensor = Tensor(Arc::new(node));
        if depth > 0 && depth.is_multiple_of(MAX_PENDING_DEPTH) {
            tensor.flush_pending();
        }
        tensor
    }

    /// Evaluates this tensor if enough nodes without a value lead to it. An error is dropped here; reading the value
    /// reports it again.
    ///
    /// Each node is counted once: after the evaluation only the last node has a value, and the graph of a gradient
    /// reaches the other nodes again.
    #[cold]
    fn flush_pending(&self) {
        let has_value = |tensor: &Tensor| tensor.0.value.get().is_some();
        let mut waiting = topological_order(&[self], has_value);
        waiting.retain(|tensor| !has_value(tensor) && !tensor.0.flushed.swap(true, Ordering::Relaxed));
        if waiting.len() >= MAX_PENDING_DEPTH as usize {
            drop(self.eval());
        }
    }

    /// Creates a primitive over inputs whose shapes and types the caller has checked. Returns the leftmost mistake
    /// among the inputs, if any.
    #[track_caller]
    pub(crate) fn primitive(op: Op, inputs: &[&Tensor], shape: impl Into<Shape>, dtype: DType) -> Tensor {
        Tensor::primitive_of(op, inputs.iter().map(|input| (*input).clone()).collect(), shape.into(), dtype)
    }

    /// Like [`Tensor::primitive`], of owned inputs.
    #[track_caller]
    pub(crate) fn primitive_of(op: Op, inputs: Vec<Tensor>, shape: Shape, dtype: DType) -> Tensor {
        let adds = matches!(op, Op::Reduce(..) | Op::Scan(..) | Op::MatMul | Op::ScatterAdd(_));
        if adds && dtype == DType::Bool && !inputs.iter().any(Tensor::is_mistake) {
            let notes = inputs.iter().map(|input| format!("operand {input:?}"));
            let error = Error::mistake(format!("{op}: is not defined for bool; cast it, for example to i32"));
            return Tensor::mistake(notes.fold(error, Error::note));
        }
        if inputs.iter().any(|input| input.0.valid_lengths.is_some()) {
            return dynamic_dim::primitive(op, &inputs.iter().collect::<Vec<&Tensor>>(), shape, dtype);
        }
        Tensor::over(NodeKind::Op(op), inputs, shape, dtype, None)
    }

    /// Creates a node computed from its inputs, on their device.
    #[track_caller]
    pub(crate) fn step(
        source: NodeKind,
        inputs: &[&Tensor],
        shape: Shape,
        dtype: DType,
        valid_lengths: Option<Box<ValidLengths>>,
    ) -> Tensor {
        Tensor::over(source, inputs.iter().map(|input| (*input).clone()).collect(), shape, dtype, valid_lengths)
    }

    /// Like [`Tensor::step`], of owned inputs.
    #[track_caller]
    pub(crate) fn over(
        source: NodeKind,
        inputs: Vec<Tensor>,
        shape: Shape,
        dtype: DType,
        valid_lengths: Option<Box<ValidLengths>>,
    ) -> Tensor {
        if let Some(mistake) = Tensor::leftmost(&inputs) {
            return mistake;
        }
        let mut device: Option<&Tensor> = None;
        for input in &inputs {
            match (device, &input.0.device) {
                (None, Some(_)) => device = Some(input),
                (Some(first), Some(other)) if first.0.device.as_ref() != Some(other) => {
                    let message = format!("operands are on different devices: {:?} and {input:?}", first);
                    return Tensor::mistake(Error::mistake(message).note("move one with `.to(&device)`"));
                }
                _ => {}
            }
        }
        let device = device.and_then(|tensor| tensor.0.device.clone());
        Tensor::with_valid_lengths(source, inputs, shape, dtype, device, valid_lengths)
    }

    /// Creates a node with the shape, element type, device and valid lengths of this one.
    #[track_caller]
    pub(crate) fn with_source(&self, source: NodeKind, inputs: Vec<Tensor>) -> Tensor {
        let node = &self.0;
        Tensor::with_valid_lengths(
            source,
            inputs,
            node.shape.clone(),
            node.dtype,
            node.device.clone(),
            node.valid_lengths.clone(),
        )
    }

    pub(crate) fn is_mistake(&self) -> bool {
        matches!(self.0.source, NodeKind::Mistake(_))
    }

    /// Returns the mistake that this tensor carries, if any. Computes nothing. A mistake that is dropped without
    /// being reported is logged.
    ///
    /// # Errors
    /// The mistake, if the tensor carries one.
    pub fn check(&self) -> Result<()> {
        match &self.0.source {
            NodeKind::Mistake(mistake) => Err(mistake.report()),
            _ => Ok(()),
        }
    }

    /// Returns the lengths of the axes.
    ///
    /// # Errors
    /// The tensor carries a mistake, or a length of a [`crate::Dim`] is not known while a function is traced.
    #[doc(alias = "size")]
    pub fn shape(&self) -> Result<&Shape> {
        self.check()?;
        match &self.0.valid_lengths {
            Some(valid_lengths) => valid_lengths.shape(self),
            None => Ok(&self.0.shape),
        }
    }

    /// Returns the lengths of exactly N axes.
    ///
    /// # Errors
    /// The tensor does not have N axes, or [`Tensor::shape`] fails.
    #[track_caller]
    pub fn dims<const N: usize>(&self) -> Result<[usize; N]> {
        let (shape, place) = (self.shape()?, Location::caller());
        let wrong = |_| Error::mistake(format!("{self:?} has {} axes, not {N}", shape.ndim())).with_location(place);
        shape.dims().try_into().map_err(wrong)
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Returns the device; `None` for a constant, which fits every device.
    pub fn device(&self) -> Option<&Device> {
        self.0.device.as_ref()
    }

    /// Returns the same values without their history; gradients stop here.
    #[track_caller]
    pub fn detach(&self) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        if let Some(storage) = self.0.value.get() {
            return Tensor::from_storage_unchecked_shape(
                storage.clone(),
                self.0.shape.clone(),
                self.0.dtype,
                self.0.valid_lengths.clone(),
            );
        }
        self.with_source(NodeKind::Detach, vec![self.clone()])
    }

    /// Returns true if both handles refer to the same node.
    pub fn ptr_eq(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Returns true if the bytes of the shape can be counted in an i64, with empty axes counted as length 1: the other
/// lengths are multiplied as well.
pub(crate) fn fits(shape: &Shape, dtype: DType) -> bool {
    let lengths = shape.dims().iter().map(|length| (*length).max(1) as u64);
    let bytes = lengths.into_iter().try_fold(dtype.bytes() as u64, |bytes, length| bytes.checked_mul(length));
    bytes.is_some_and(|bytes| bytes <= i64::MAX as u64)
}

/// Clones the handle, for functions that take a tensor by value.
impl From<&Tensor> for Tensor {
    fn from(tensor: &Tensor) -> Tensor {
        tensor.clone()
    }
}

impl Node {
    /// Returns a number larger than all earlier ones.
    pub fn next_serial() -> u64 {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        SERIAL.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the inputs that the node's value is computed from.
    pub fn operands(&self) -> &[Tensor] {
        match &self.source {
            NodeKind::Checkpoint(_) => &self.inputs[..1],
            NodeKind::Call(body, _) => &self.inputs[..body.used_inputs],
            _ => &self.inputs,
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut orphans = std::mem::take(&mut self.inputs);
        while let Some(Tensor(node)) = orphans.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                orphans.append(&mut node.inputs);
            }
        }
    }
}
