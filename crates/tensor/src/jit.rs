//! JIT functions: traced once as Rust, then replayed as compiled work.
//!
//! An expression in a loop is built, hashed and looked up in every iteration. A [`jit`] function is traced once for
//! each combination of argument shapes. The trace runs on placeholders; it keeps the plan from [`plan_cache`] and
//! which leaves and slots of the plan are which arguments. A later call only binds buffers and numbers, and replays
//! the recorded command buffer.
//!
//! State buffers without other handles are donated by a call, so a loop updates its state in place (see
//! [`crate::eval_donated`]).
//!
//! Arguments change from call to call: tensors, numbers ([`Tensor::scalar`]), and a [`State`] that the function can
//! change. Everything else keeps the value of the first call.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use panoply_ir::graph::Graph;
use panoply_ir::{DType, Error, MathMode, Result, Scalar, Shape};
use panoply_runtime::{Device, Storage};

use crate::dynamic_dim::{self, Dim, DynamicDim, DynamicDims, LengthPattern, ValidLengths};
use crate::eval::{Leaf, Number, TraceBindings, TracedFunction, eval, topological_order, upload_table};
use crate::plan_cache::{self, CompiledPlan};
use crate::random::Rng;
use crate::tensor::{Node, NodeKind, Tensor};

/// Maximum number of traces kept for a function; the least recently used one is dropped.
const TRACES: usize = 16;

/// Tensors and generators that a [`jit`] function reads and updates.
///
/// The other fields are constants of the trace: the function sees their values from the first call with these shapes,
/// and they are never changed.
#[doc(alias = "pytree")]
pub trait State: Clone {
    /// Calls `visitor` with each tensor and generator, always in the same order.
    fn visit_leaves(&mut self, visitor: &mut dyn FnMut(StateLeaf<'_>));
}

/// A tensor or generator of a state.
#[derive(Debug)]
pub enum StateLeaf<'a> {
    /// A tensor.
    Tensor(&'a mut Tensor),
    /// A generator of random numbers.
    Rng(&'a mut Rng),
}

/// A compiled function of N tensors with M results, traced once for each combination of argument shapes.
pub struct JitFunction<'f, const N: usize, const M: usize, S = ()> {
    function: Box<Run<'f, N, M, S>>,
    /// The traces, the most recently used one last.
    traces: Mutex<Vec<Arc<Trace>>>,
}

/// Panic message of a [`State`] whose number of leaves changed.
const SAME: &str = "a state visits the same leaves every time";

type Run<'f, const N: usize, const M: usize, S> = dyn Fn(&mut S, [&Tensor; N]) -> [Tensor; M] + Send + Sync + 'f;

/// Compiles a function of tensors: its first call with new shapes traces it on placeholders, later calls replay the
/// recorded work.
///
/// ```
/// # use panoply_tensor::{Tensor, jit};
/// let area = jit(|[width, height]: [&Tensor; 2]| [(width * height).sum(..)]);
/// for (width, expected) in [(1.0, 7.0), (2.0, 14.0)] {
///     let [sum] = area.call([&Tensor::scalar(width as f32), &Tensor::from_slice(&[3.0f32, 4.0], [2])])?;
///     assert_eq!(sum.item::<f64>()?, expected);
/// }
/// # Ok::<(), panoply_tensor::Error>(())
/// ```
#[doc(alias = "compile")]
pub fn jit<'f, const N: usize, const M: usize>(
    function: impl Fn([&Tensor; N]) -> [Tensor; M] + Send + Sync + 'f,
) -> JitFunction<'f, N, M> {
    jit_with_state(move |(): &mut (), inputs: [&Tensor; N]| function(inputs))
}

/// [`jit`] of a function that also updates a state: parameters, a cache, a random number generator.
///
/// ```
/// # use panoply_tensor::{Rng, Tensor, jit_with_state};
/// let walk = jit_with_state(|(place, rng): &mut (Tensor, Rng), []| {
///     *place = &*place + rng.normal([2]);
///     [place.square().sum(..)]
/// });
/// let mut state = (Tensor::from_slice(&[0.0f32; 2], [2]), Rng::seed_from_u64(0));
/// let far: Vec<f64> = (0..3).map(|_| walk.call_with_state(&mut state, [])?[0].item::<f64>()).collect::<Result<_, _>>()?;
/// assert!(far[0] != far[1] && far[1] != far[2]);
/// # Ok::<(), panoply_tensor::Error>(())
/// ```
#[doc(alias = "compile")]
pub fn jit_with_state<'f, S: State, const N: usize, const M: usize>(
    function: impl Fn(&mut S, [&Tensor; N]) -> [Tensor; M] + Send + Sync + 'f,
) -> JitFunction<'f, N, M, S> {
    JitFunction { function: Box::new(function), traces: Mutex::default() }
}

/// A trace of the function for arguments of certain shapes.
struct Trace {
    device: Device,
    /// Math mode of the plan, and true if matrix products may use TF32.
    math_mode: (MathMode, bool),
    /// Signatures of the arguments: the inputs, then the tensors of the state, then the dynamic lengths of both.
    given: Vec<TensorSignature>,
    /// Pattern of dynamic lengths of the arguments.
    ends: LengthPattern,
    /// Arguments that the function uses as lengths, with their [`Dim`].
    length_inputs: Vec<(usize, Dim)>,
    /// Number of inputs, which are never donated.
    inputs: usize,
    graph: Graph,
    /// The plan for the leaves donated in the last call, with these leaves.
    ready: Mutex<Option<(Vec<u32>, Arc<CompiledPlan>)>>,
    leaves: Vec<Leaf>,
    slots: Vec<Number>,
    /// The results, then the tensors of the state after the call.
    results: Vec<TraceOutput>,
    /// Number of blocks drawn from each generator of the state.
    drawn: Vec<u64>,
}

/// Properties of an argument that a trace depends on.
struct TensorSignature {
    shape: Shape,
    dtype: DType,
    /// True for a scalar argument of the launch.
    number: bool,
}

/// A result of a trace.
struct TraceOutput {
    origin: OutputOrigin,
    shape: Shape,
    dtype: DType,
    /// Valid lengths of the result.
    dynamic_dims: DynamicDims<OutputOrigin>,
}

/// Origin of a result.
#[derive(Clone, Copy)]
enum OutputOrigin {
    /// An output of the plan.
    Computed(usize),
    /// An argument, unchanged.
    Argument(usize),
}

impl<const N: usize, const M: usize, S> JitFunction<'_, N, M, S> {
    fn traces(&self) -> MutexGuard<'_, Vec<Arc<Trace>>> {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<const N: usize, const M: usize, S> fmt::Debug for JitFunction<'_, N, M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JitFunction").field("traces", &self.traces().len()).finish_non_exhaustive()
    }
}

impl<const N: usize, const M: usize> JitFunction<'_, N, M> {
    /// Calls the function and returns its results, evaluated.
    ///
    /// # Errors
    /// A mistake in the function or its arguments, or a failure of the device.
    #[track_caller]
    pub fn call(&self, inputs: [&Tensor; N]) -> Result<[Tensor; M]> {
        self.call_with_state(&mut (), inputs)
    }
}

impl<const N: usize, const M: usize, S: State> JitFunction<'_, N, M, S> {
    /// Calls the function, updates `state`, and returns the results, evaluated.
    ///
    /// # Errors
    /// A mistake in the function or its arguments, or a failure of the device; the state is unchanged then.
    #[track_caller]
    pub fn call_with_state(&self, state: &mut S, inputs: [&Tensor; N]) -> Result<[Tensor; M]> {
        let (mut given, mut generators) = (inputs.map(Tensor::clone).to_vec(), Vec::new());
        state.visit_leaves(&mut |piece| match piece {
            StateLeaf::Tensor(tensor) => given.push(tensor.clone()),
            StateLeaf::Rng(rng) => generators.push(rng.clone()),
        });
        let lengths = dynamic_dim::lengths(&given);
        let ends = dynamic_dim::pattern(given.iter(), &lengths);
        given.extend(lengths);
        let found = given.iter().try_for_each(Tensor::check).and_then(|()| {
            let device = given.iter().find_map(|tensor| tensor.device().cloned()).map_or_else(Device::current, Ok)?;
            device.scope(|| evaluate(&given))?;
            let known = self.known(&device, &given, &ends, &generators);
            let trace = known.map_or_else(|| self.trace(&device, state, &given, ends), Ok)?;
            dynamic_dim::check_lengths(&trace.length_inputs, |at| &given[at]).map(|()| trace)
        });
        let place = Location::caller();
        let placed = |error: Error| if error.is_mistake() { error.with_location(place) } else { error };
        let trace = found.map_err(placed)?;
        // The state gives up its handles while the plan runs, so that tensors without other handles are updated in
        // place.
        let away = Tensor::scalar(0f32);
        let mut held = given[N..].iter_mut();
        tensors(state, &mut |tensor| *held.next().expect(SAME) = std::mem::replace(tensor, away.clone()));
        let replayed = trace.replay(&given, &generators);
        let (results, mut after) = match replayed {
            Ok(mut results) => {
                let after = results.split_off(M);
                (Ok(results), after.into_iter())
            }
            Err(error) => (Err(placed(error)), given.split_off(N).into_iter()),
        };
        tensors(state, &mut |tensor| *tensor = after.next().expect(SAME));
        let results = results?;
        let mut drawn = trace.drawn.iter();
        state.visit_leaves(&mut |piece| match piece {
            StateLeaf::Tensor(_) => {}
            StateLeaf::Rng(rng) => rng.counter = rng.counter.wrapping_add(*drawn.next().expect(SAME)),
        });
        Ok(results.try_into().expect("a trace has M results"))
    }

    /// Returns the trace that fits these arguments, and marks it as most recently used.
    fn known(&self, device: &Device, given: &[Tensor], ends: &LengthPattern, generators: &[Rng]) -> Option<Arc<Trace>> {
        let mut traces = self.traces();
        let at = traces.iter().rposition(|trace| trace.ends == *ends && trace.fits(device, given, generators))?;
        traces[at..].rotate_left(1);
        traces.last().cloned()
    }

    /// Traces the function on placeholders and keeps the trace.
    fn trace(&self, device: &Device, state: &S, given: &[Tensor], ends: LengthPattern) -> Result<Arc<Trace>> {
        let trace = Node::next_serial();
        let (placeholders, own) = placeholders(given, &ends);
        let mut traced_state = state.clone();
        let (mut waiting, mut generators) = (placeholders[N..own].iter(), 0);
        traced_state.visit_leaves(&mut |piece| match piece {
            StateLeaf::Tensor(tensor) => tensor.clone_from(waiting.next().expect(SAME)),
            StateLeaf::Rng(rng) => {
                rng.set_placeholder((trace, generators));
                generators += 1;
            }
        });
        let mut results = Vec::from((self.function)(&mut traced_state, std::array::from_fn(|n| &placeholders[n])));
        let after = StateAfterTrace::of(&mut traced_state, trace)?;
        results.extend(after.tensors);
        if (results.len(), after.drawn.len()) != (M + own - N, generators) {
            let (had, has) = (own - N + generators, results.len() - M + after.drawn.len());
            return Err(Error::mistake(format!(
                "jit: the state had {had} tensors and generators before the function and has {has} after it; the number must not change"
            )));
        }
        results.iter().try_for_each(Tensor::check)?;
        // Valid lengths of results are results as well.
        let (all, lengths) = (results.len(), dynamic_dim::lengths(&results));
        results.extend(lengths);
        device.scope(|| eval_captured(&results, trace))?;
        let roots: Vec<&Tensor> = results.iter().collect();
        let known = TraceBindings { device, trace, tensors: given, placeholders: &placeholders };
        let (TracedFunction { graph, leaves, slots }, which) = TracedFunction::new(&known, &roots)?;
        let origin = |result: &Tensor| {
            let output = || which[results.iter().position(|other| other.ptr_eq(result)).expect("it is a result")];
            let same = placeholders.iter().position(|input| input.ptr_eq(result));
            same.map_or_else(|| OutputOrigin::Computed(output()), OutputOrigin::Argument)
        };
        let outcomes = results[..all].iter().map(|result| TraceOutput::of(result, origin)).collect();
        let traced = Arc::new(Trace {
            device: device.clone(),
            math_mode: (device.math_mode(), device.is_tf32_allowed()),
            given: given.iter().map(TensorSignature::of).collect(),
            ends,
            length_inputs: dynamic_dim::measured(&results[..all], &placeholders[..own]),
            inputs: N,
            graph,
            ready: Mutex::default(),
            leaves,
            slots,
            results: outcomes,
            drawn: after.drawn,
        });
        let mut traces = self.traces();
        let oldest = (traces.len() >= TRACES).then(|| traces.remove(0));
        traces.push(traced.clone());
        drop(traces);
        // Its resources are freed without holding the lock.
        drop(oldest);
        Ok(traced)
    }
}

/// Creates the placeholders of the arguments. Also returns the number of arguments that are the caller's tensors, not
/// lengths of these.
fn placeholders(given: &[Tensor], ends: &LengthPattern) -> (Vec<Tensor>, usize) {
    let own = if ends.is_empty() { given.len() } else { ends.len() };
    let placeholder = |n: usize, valid_lengths: Option<Box<ValidLengths>>| {
        let node = &given[n].0;
        let source = NodeKind::Input(n as u32);
        Tensor::with_valid_lengths(
            source,
            Vec::new(),
            node.shape.clone(),
            node.dtype,
            node.device.clone(),
            valid_lengths,
        )
    };
    let lengths: Vec<Tensor> = (own..given.len()).map(|n| placeholder(n, None)).collect();
    let own_placeholder =
        |n: usize| placeholder(n, ends.get(n).and_then(|ends| ValidLengths::bind_placeholder(ends, &lengths)));
    let all = (0..own).map(own_placeholder).chain(lengths.iter().cloned()).collect();
    (all, own)
}

/// Visits the tensors of a state.
fn tensors(state: &mut impl State, see: &mut dyn FnMut(&mut Tensor)) {
    state.visit_leaves(&mut |piece| match piece {
        StateLeaf::Tensor(tensor) => see(tensor),
        StateLeaf::Rng(_) => {}
    });
}

/// The state as a function under trace left it.
#[derive(Default)]
struct StateAfterTrace {
    tensors: Vec<Tensor>,
    drawn: Vec<u64>,
}

impl StateAfterTrace {
    fn of(state: &mut impl State, trace: u64) -> Result<StateAfterTrace> {
        let (mut after, mut wrong) = (StateAfterTrace::default(), None);
        state.visit_leaves(&mut |piece| match piece {
            StateLeaf::Tensor(tensor) => after.tensors.push(tensor.detached()),
            StateLeaf::Rng(rng) => match rng.drawn_as((trace, after.drawn.len())) {
                Ok(drawn) => after.drawn.push(drawn),
                Err(what) => wrong = Some(what),
            },
        });
        match wrong {
            Some(what) => Err(Error::mistake(format!("jit: the function receives a generator and {what}"))),
            None => Ok(after),
        }
    }
}

impl Tensor {
    /// Returns a placeholder as it is, and any other tensor detached.
    fn detached(&self) -> Tensor {
        match self.0.source {
            NodeKind::Input(_) | NodeKind::Mistake(_) => self.clone(),
            _ => self.detach(),
        }
    }

    /// Returns the number of a scalar argument, if this is one.
    pub(crate) fn number(&self) -> Option<Scalar> {
        match self.0.source {
            NodeKind::ScalarArg(value, None) => Some(value),
            _ => None,
        }
    }
}

/// Evaluates the arguments that have no value. Scalar arguments need none.
fn evaluate(given: &[Tensor]) -> Result<()> {
    let pending = |tensor: &&Tensor| tensor.0.value.get().is_none() && tensor.number().is_none();
    let pending: Vec<&Tensor> = given.iter().filter(pending).collect();
    if pending.is_empty() { Ok(()) } else { eval(&pending) }
}

/// Evaluates captured tensors, so that calls do not recompute them.
fn eval_captured(results: &[Tensor], trace: u64) -> Result<()> {
    let roots: Vec<&Tensor> = results.iter().collect();
    let held = |tensor: &Tensor| tensor.0.serial < trace || tensor.0.value.get().is_some();
    let reached = topological_order(&roots, held);
    let pending = |tensor: &&Tensor| match tensor.0.source {
        NodeKind::Op(_) | NodeKind::Call(..) | NodeKind::Detach | NodeKind::Checkpoint(_) => {
            held(tensor) && tensor.0.value.get().is_none() && !tensor.0.inputs.is_empty()
        }
        NodeKind::Host(_)
        | NodeKind::Table(_)
        | NodeKind::ScalarArg(..)
        | NodeKind::Materialized
        | NodeKind::Input(_)
        | NodeKind::Mistake(_) => false,
    };
    eval(&reached.into_iter().filter(pending).collect::<Vec<&Tensor>>())
}

impl TensorSignature {
    fn of(tensor: &Tensor) -> TensorSignature {
        TensorSignature { shape: tensor.0.shape.clone(), dtype: tensor.dtype(), number: tensor.number().is_some() }
    }
}

impl TraceOutput {
    fn of(tensor: &Tensor, origin: impl Fn(&Tensor) -> OutputOrigin) -> TraceOutput {
        let part = |part: DynamicDim<Tensor>| DynamicDim {
            dim: part.dim,
            multiple: part.multiple,
            length: origin(&part.length),
        };
        let dynamic_dims = tensor.dynamic_dims().into_iter().map(|own| own.map(part)).collect();
        TraceOutput { origin: origin(tensor), shape: tensor.0.shape.clone(), dtype: tensor.dtype(), dynamic_dims }
    }

    /// Returns the result of a run.
    fn tensor(&self, given: &[Tensor], values: &[Storage]) -> Tensor {
        let output = match self.origin {
            OutputOrigin::Argument(n) => return given[n].clone(),
            OutputOrigin::Computed(output) => output,
        };
        let length = |origin: OutputOrigin| match origin {
            OutputOrigin::Argument(n) => given[n].clone(),
            OutputOrigin::Computed(output) => {
                Tensor::from_storage_unchecked_shape(values[output].clone(), Shape::default(), DType::I32, None)
            }
        };
        let part = |own: &DynamicDim<OutputOrigin>| DynamicDim {
            dim: own.dim.clone(),
            multiple: own.multiple,
            length: length(own.length),
        };
        let valid_lengths = ValidLengths::of(self.dynamic_dims.iter().map(|own| own.as_ref().map(part)).collect());
        Tensor::from_storage_unchecked_shape(values[output].clone(), self.shape.clone(), self.dtype, valid_lengths)
    }
}

impl Trace {
    fn fits(&self, device: &Device, given: &[Tensor], generators: &[Rng]) -> bool {
        let same = |(kind, tensor): (&TensorSignature, &Tensor)| {
            let elsewhere = tensor.device().is_some_and(|other| other != device);
            !elsewhere
                && (&kind.shape, kind.dtype) == (&tensor.0.shape, tensor.dtype())
                && kind.number == tensor.number().is_some()
        };
        (&self.device, self.math_mode) == (device, (device.math_mode(), device.is_tf32_allowed()))
            && (self.given.len(), self.drawn.len()) == (given.len(), generators.len())
            && self.given.iter().zip(given).all(same)
    }

    fn replay(&self, given: &[Tensor], generators: &[Rng]) -> Result<Vec<Tensor>> {
        let number = |number: &Number| match number {
            Number::Captured(value) => *value,
            Number::Argument(n) => given[*n].number().expect("the argument is a scalar in every call"),
            Number::Word(word) => word.from(&generators[word.generator.1]),
        };
        let ready = self.compiled_plan(self.donated(given))?;
        let leaf = |(at, leaf): (usize, &Leaf)| match leaf {
            Leaf::Captured(storage) => Ok(storage.clone()),
            Leaf::Table(table, _) if ready.reads(at) => upload_table(&self.device, table),
            Leaf::Table(_, nothing) => Ok(nothing.clone()),
            Leaf::Argument(n) => Ok(given[*n].0.value.get().expect("arguments have values").clone()),
        };
        let leaves: Vec<Storage> = self.leaves.iter().enumerate().map(leaf).collect::<Result<_>>()?;
        let slots: Vec<Scalar> = self.slots.iter().map(number).collect();
        let values = ready.run(&self.device, leaves, &slots)?;
        Ok(self.results.iter().map(|result| result.tensor(given, &values)).collect())
    }
}

impl Trace {
    /// Returns the leaves to donate: state tensors without other handles that are not returned unchanged.
    fn donated(&self, given: &[Tensor]) -> Vec<u32> {
        let stays = |n: usize| {
            let same = |result: &TraceOutput| matches!(result.origin, OutputOrigin::Argument(other) if other == n);
            n < self.inputs || self.results.iter().any(same)
        };
        let alone = |n: usize| {
            let Tensor(node) = &given[n];
            let own = Arc::strong_count(node) == 1;
            // Synchronizes with the drop of a node whose memory was taken: the new handle is visible.
            fence(Ordering::Acquire);
            own && node.value.get().is_some_and(|storage| storage.handle_count() == 1 && !storage.is_read_only())
        };
        let donated = |(at, leaf): (usize, &Leaf)| match leaf {
            Leaf::Argument(n) if alone(*n) && !stays(*n) => Some(at as u32),
            Leaf::Argument(_) | Leaf::Captured(_) | Leaf::Table(..) => None,
        };
        let donated = self.leaves.iter().enumerate().filter_map(donated).collect();
        // Synchronizes with earlier holders, whose last use happened before.
        fence(Ordering::Acquire);
        donated
    }

    /// Returns the plan for these donated leaves. The last plan is kept.
    fn compiled_plan(&self, donated: Vec<u32>) -> Result<Arc<CompiledPlan>> {
        let kept = || self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, ready)) = &*kept()
            && *known == donated
        {
            return Ok(ready.clone());
        }
        let graph = Graph { donated: donated.clone(), ..self.graph.clone() };
        let ready = plan_cache::lookup_or_compile(&self.device, graph)?;
        *kept() = Some((donated, ready.clone()));
        Ok(ready)
    }
}

impl State for () {
    fn visit_leaves(&mut self, _: &mut dyn FnMut(StateLeaf<'_>)) {}
}

impl State for Tensor {
    fn visit_leaves(&mut self, visitor: &mut dyn FnMut(StateLeaf<'_>)) {
        visitor(StateLeaf::Tensor(self));
    }
}

impl State for Rng {
    fn visit_leaves(&mut self, visitor: &mut dyn FnMut(StateLeaf<'_>)) {
        visitor(StateLeaf::Rng(self));
    }
}

impl<S: State> State for Vec<S> {
    fn visit_leaves(&mut self, visitor: &mut dyn FnMut(StateLeaf<'_>)) {
        self.iter_mut().for_each(|state| state.visit_leaves(visitor));
    }
}

impl<S: State, const N: usize> State for [S; N] {
    fn visit_leaves(&mut self, visitor: &mut dyn FnMut(StateLeaf<'_>)) {
        self.iter_mut().for_each(|state| state.visit_leaves(visitor));
    }
}

macro_rules! tuple {
    ($($name:ident)+) => {
        impl<$($name: State),+> State for ($($name,)+) {
            #[allow(non_snake_case)]
            fn visit_leaves(&mut self, visitor: &mut dyn FnMut(StateLeaf<'_>)) {
                let ($($name,)+) = self;
                $($name.visit_leaves(visitor);)+
            }
        }
    };
}

tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
