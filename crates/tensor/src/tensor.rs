//! The handle, its node, and how mistakes travel.
//!
//! Nodes are immutable but for one thing: a node that was asked for keeps its value. Walks over nodes and their dropping
//! are loops, never recursion, so a chain of a million operations is as safe as one of three.

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
#[derive(Clone)]
pub struct Tensor(pub(crate) Arc<Node>);

/// Nodes one after another that wait for somebody to ask. Then the last of them is computed, so that a program that never asks has no more
/// than that to do, and plans equal stretches once.
const MAX_PENDING_DEPTH: u32 = 1 << 14;

/// The depth of what waits for a function's inputs: nothing can be computed before they are there.
const DEPTH_NEEDS_INPUTS: u32 = u32::MAX;

pub(crate) struct Node {
    pub source: NodeKind,
    pub inputs: Vec<Tensor>,
    pub shape: Shape,
    pub dtype: DType,
    /// How much of the shape is there, if a plan is not to know.
    pub valid_lengths: Option<Box<ValidLengths>>,
    /// Where it lives; none for constants, which fit anywhere.
    pub device: Option<Device>,
    pub location: &'static Location<'static>,
    /// Larger than that of every node made before.
    pub serial: u64,
    /// The longest way, in nodes, to what was given or is made of numbers alone.
    pub depth: u32,
    /// Whether it was among what waited too long.
    pub flushed: AtomicBool,
    /// The value, once somebody asked.
    pub value: OnceLock<Storage>,
}

pub(crate) enum NodeKind {
    /// A primitive over the inputs.
    Op(Op),
    /// Bytes of the host, until they are on the device.
    Host(Mutex<Option<Arc<[u8]>>>),
    /// Numbers that the host works out once a plan reads them.
    Table(Table),
    /// A number passed at launch; with which word of a generator it is, if a function under trace drew it.
    ScalarArg(Scalar, Option<RngWord>),
    /// A value that was given; `value` is set from the start.
    Materialized,
    /// An output of an operation that was traced before.
    Call(Arc<TracedBody>, u32),
    /// What an operation or a function under trace is given: its n-th input.
    Input(u32),
    /// The input's values without its history.
    Detach,
    /// The first input, whose history is computed anew from the next so many when something flows back. The others are what
    /// that history begins with beside.
    Checkpoint(usize),
    /// What the caller did wrong; shape and dtype mean nothing.
    Mistake(Mistake),
}

impl Tensor {
    /// A tensor of these elements in row-major order on the current device.
    ///
    /// As many elements as the shape holds are needed.
    #[track_caller]
    pub fn from_slice<T: Element>(data: &[T], shape: impl Into<Shape>) -> Tensor {
        match Device::current() {
            Ok(device) => Tensor::from_slice_on(&device, data, shape),
            Err(error) => Tensor::mistake(error),
        }
    }

    /// A tensor of these elements in row-major order on a device.
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

    /// Positions as a tensor, i32: `x.index_select(0, &Tensor::from_positions(&[0, 2]))`.
    #[track_caller]
    pub fn from_indices(positions: &[usize]) -> Tensor {
        let numbers = positions.iter().map(|position| i32::try_from(*position).map_err(|_| position));
        match numbers.collect::<Result<Vec<i32>, &usize>>() {
            Ok(numbers) => Tensor::from_slice(&numbers, [numbers.len()]),
            Err(position) => {
                let message = format!("from_positions: {position} is more than the {} that an i32 holds", i32::MAX);
                Tensor::mistake(Error::mistake(message).note("give positions as i64, with `Tensor::from_slice`"))
            }
        }
    }

    /// A tensor of elements given as bytes (little-endian, row-major) on the current device.
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

    /// A tensor of bytes that go to the device when they are needed there.
    #[track_caller]
    pub(crate) fn host(
        bytes: Arc<[u8]>,
        shape: Shape,
        dtype: DType,
        device: Option<Device>,
        live: Option<Box<ValidLengths>>,
    ) -> Tensor {
        Tensor::with_valid_lengths(NodeKind::Host(Mutex::new(Some(bytes))), Vec::new(), shape, dtype, device, live)
    }

    /// The bytes that are not on the device yet.
    pub(crate) fn host_bytes(&self) -> Option<Arc<[u8]>> {
        match &self.0.source {
            NodeKind::Host(bytes) => bytes.lock().expect("no thread panics while it holds host bytes").clone(),
            _ => None,
        }
    }

    /// A tensor over a buffer's bytes, row-major; it must hold as many elements as the shape.
    #[track_caller]
    pub fn from_storage(storage: Storage, shape: impl Into<Shape>, dtype: DType) -> Tensor {
        let shape = shape.into();
        if storage.bytes() != shape.numel().saturating_mul(dtype.bytes()) as u64 {
            let message = format!("a buffer of {} bytes does not hold {dtype}{shape}", storage.bytes());
            return Tensor::mistake(Error::mistake(message));
        }
        Tensor::from_storage_unchecked_shape(storage, shape, dtype, None)
    }

    /// A tensor over as many bytes as it needs.
    #[track_caller]
    pub(crate) fn from_storage_unchecked_shape(
        storage: Storage,
        shape: Shape,
        dtype: DType,
        live: Option<Box<ValidLengths>>,
    ) -> Tensor {
        let device = storage.device().clone();
        let tensor = Tensor::with_valid_lengths(NodeKind::Materialized, Vec::new(), shape, dtype, Some(device), live);
        let _ = tensor.0.value.set(storage);
        tensor
    }

    /// A tensor of shape `[]` holding a number of this program; equal programs differ if it differs.
    #[track_caller]
    pub(crate) fn constant(value: Scalar) -> Tensor {
        Tensor::new(NodeKind::Op(Op::Const(value)), Vec::new(), Shape::default(), value.dtype, None)
    }

    /// A tensor of shape `[]` holding a number that may differ from run to run of the same program.
    #[track_caller]
    pub fn scalar(value: impl Into<Scalar>) -> Tensor {
        Tensor::slot_from(value.into(), None)
    }

    #[track_caller]
    pub(crate) fn slot_from(value: Scalar, word: Option<RngWord>) -> Tensor {
        Tensor::new(NodeKind::ScalarArg(value, word), Vec::new(), Shape::default(), value.dtype, None)
    }

    /// A value that carries a mistake to whoever asks for a result: how operations built on this crate report theirs.
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

    /// A node of which not all may be there.
    #[track_caller]
    pub(crate) fn with_valid_lengths(
        source: NodeKind,
        inputs: Vec<Tensor>,
        shape: Shape,
        dtype: DType,
        device: Option<Device>,
        live: Option<Box<ValidLengths>>,
    ) -> Tensor {
        if !fits(&shape, dtype) {
            return Tensor::mistake(Error::mistake(format!(
                "{dtype}{shape} has more elements than there are addresses"
            )));
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
            valid_lengths: live,
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

    /// Computes this if so much waits for it; a failure is met again by whoever asks for the value.
    ///
    /// What waits is counted once: only the last of it has a value then, and a gradient comes by all the others again.
    #[cold]
    fn flush_pending(&self) {
        let has_value = |tensor: &Tensor| tensor.0.value.get().is_some();
        let mut waiting = topological_order(&[self], has_value);
        waiting.retain(|tensor| !has_value(tensor) && !tensor.0.flushed.swap(true, Ordering::Relaxed));
        if waiting.len() >= MAX_PENDING_DEPTH as usize {
            drop(self.eval());
        }
    }

    /// A primitive over inputs whose shapes and types the caller has checked. The leftmost mistake among them wins.
    #[track_caller]
    pub(crate) fn primitive(op: Op, inputs: &[&Tensor], shape: impl Into<Shape>, dtype: DType) -> Tensor {
        Tensor::primitive_of(op, inputs.iter().map(|input| (*input).clone()).collect(), shape.into(), dtype)
    }

    /// The same over inputs that were made for it.
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

    /// A node that computes something of its inputs, on their device.
    #[track_caller]
    pub(crate) fn step(
        source: NodeKind,
        inputs: &[&Tensor],
        shape: Shape,
        dtype: DType,
        live: Option<Box<ValidLengths>>,
    ) -> Tensor {
        Tensor::over(source, inputs.iter().map(|input| (*input).clone()).collect(), shape, dtype, live)
    }

    /// The same over inputs that were made for it.
    #[track_caller]
    pub(crate) fn over(
        source: NodeKind,
        inputs: Vec<Tensor>,
        shape: Shape,
        dtype: DType,
        live: Option<Box<ValidLengths>>,
    ) -> Tensor {
        if let Some(mistake) = Tensor::leftmost(&inputs) {
            return mistake;
        }
        let mut device: Option<&Tensor> = None;
        for input in &inputs {
            match (device, &input.0.device) {
                (None, Some(_)) => device = Some(input),
                (Some(first), Some(other)) if first.0.device.as_ref() != Some(other) => {
                    let message = format!("operands live on different devices: {:?} and {input:?}", first);
                    return Tensor::mistake(Error::mistake(message).note("move one with `.to(&device)`"));
                }
                _ => {}
            }
        }
        let device = device.and_then(|tensor| tensor.0.device.clone());
        Tensor::with_valid_lengths(source, inputs, shape, dtype, device, live)
    }

    /// A node of this one's shape, type and device.
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

    /// The mistake this value carries, if any; free. One that is dropped and that nobody was told of is logged.
    pub fn check(&self) -> Result<()> {
        match &self.0.source {
            NodeKind::Mistake(mistake) => Err(mistake.report()),
            _ => Ok(()),
        }
    }

    /// Lengths of the axes. In a function under trace that of a [`crate::Dim`] is not known.
    pub fn shape(&self) -> Result<&Shape> {
        self.check()?;
        match &self.0.valid_lengths {
            Some(live) => live.shape(self),
            None => Ok(&self.0.shape),
        }
    }

    /// Lengths of exactly N axes.
    #[track_caller]
    pub fn dims<const N: usize>(&self) -> Result<[usize; N]> {
        let (shape, place) = (self.shape()?, Location::caller());
        let wrong = |_| Error::mistake(format!("{self:?} has {} axes, not {N}", shape.ndim())).with_location(place);
        shape.dims().try_into().map_err(wrong)
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Where it lives; none for a constant, which fits anywhere.
    pub fn device(&self) -> Option<&Device> {
        self.0.device.as_ref()
    }

    /// The same values without their history: gradients stop here.
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

    /// Whether both are the same node.
    pub fn ptr_eq(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Whether as many elements can be counted in bytes, and as many if empty axes had one: lengths beside those are multiplied, too.
pub(crate) fn fits(shape: &Shape, dtype: DType) -> bool {
    let lengths = shape.dims().iter().map(|length| (*length).max(1) as u64);
    let bytes = lengths.into_iter().try_fold(dtype.bytes() as u64, |bytes, length| bytes.checked_mul(length));
    bytes.is_some_and(|bytes| bytes <= i64::MAX as u64)
}

/// Another handle to the same: for what takes a tensor, or keeps it for its owner.
impl From<&Tensor> for Tensor {
    fn from(tensor: &Tensor) -> Tensor {
        tensor.clone()
    }
}

impl Node {
    /// A number larger than every one before.
    pub fn next_serial() -> u64 {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        SERIAL.fetch_add(1, Ordering::Relaxed)
    }

    /// The inputs that its value is made of.
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
