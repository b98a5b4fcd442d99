//! Functions that run once as Rust, and from then on as the work they asked for.
//!
//! An expression that is written out in a loop is built, hashed and looked up in every turn. A captured function is built once for
//! each shape of what it is given: on stand-ins, which leaves the plan that [`plan_cache`] keeps for equal graphs, and which of its
//! leaves and slots are which inputs. A later call says only which memory and which numbers, and the plan's recording is replayed.
//!
//! What nobody but the state holds is spent by a call, so a loop changes it where it is (see [`crate::exchange()`]).
//!
//! What changes from call to call is given: tensors, numbers ([`Tensor::scalar`]), and a [`State`] that the function may change. All
//! else is what it was in the first call.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use panoply_ir::graph::Graph;
use panoply_ir::{Accuracy, DType, Error, Result, Scalar, Shape};
use panoply_runtime::{Device, Storage};

use crate::dim::{self, Dim, Live, Part, Parts, Pattern};
use crate::plan_cache::{self, Ready};
use crate::random::Rng;
use crate::realize::{Function, Given, Leaf, Number, eval, inputs_first, tabulated};
use crate::tensor::{Node, Source, Tensor};

/// Shapes that a function is kept for; at more, the one not used for longest goes.
const TRACES: usize = 16;

/// Tensors and generators that a captured function changes.
///
/// All else in it is, for the function, what it was in the first call with such shapes, and is never changed.
pub trait State: Clone {
    /// Shows each of them, always in the same order.
    fn visit(&mut self, visitor: &mut dyn FnMut(Piece<'_>));
}

/// A part of a state.
#[derive(Debug)]
pub enum Piece<'a> {
    /// A tensor.
    Tensor(&'a mut Tensor),
    /// A generator of random numbers.
    Rng(&'a mut Rng),
}

/// A function of N tensors that gives M, traced once for each shape of what it is given.
pub struct Captured<'f, const N: usize, const M: usize, S = ()> {
    function: Box<Run<'f, N, M, S>>,
    /// The one used last stands last.
    traces: Mutex<Vec<Arc<Trace>>>,
}

/// Why a state has as many pieces as before.
const SAME: &str = "a state shows what it showed before";

type Run<'f, const N: usize, const M: usize, S> = dyn Fn(&mut S, [&Tensor; N]) -> [Tensor; M] + Send + Sync + 'f;

/// Captures a function of tensors: its first call with such shapes runs it on stand-ins, later calls replay what it asked for.
///
/// ```
/// # use panoply_tensor::{Tensor, capture};
/// let area = capture(|[width, height]: [&Tensor; 2]| [(width * height).sum(..)]);
/// for (width, expected) in [(1.0, 7.0), (2.0, 14.0)] {
///     let [sum] = area.run([&Tensor::scalar(width as f32), &Tensor::from_slice(&[3.0f32, 4.0], [2])])?;
///     assert_eq!(sum.item()?, expected);
/// }
/// # Ok::<(), panoply_tensor::Error>(())
/// ```
pub fn capture<'f, const N: usize, const M: usize>(
    function: impl Fn([&Tensor; N]) -> [Tensor; M] + Send + Sync + 'f,
) -> Captured<'f, N, M> {
    capture_with_state(move |(): &mut (), inputs: [&Tensor; N]| function(inputs))
}

/// [`capture`] of a function that changes a state besides: parameters, a cache, a generator of random numbers.
///
/// ```
/// # use panoply_tensor::{Rng, Tensor, capture_with_state};
/// let walk = capture_with_state(|(place, rng): &mut (Tensor, Rng), []| {
///     *place = &*place + rng.normal([2]);
///     [place.square().sum(..)]
/// });
/// let mut state = (Tensor::from_slice(&[0.0f32; 2], [2]), Rng::seed(0));
/// let far: Vec<f64> = (0..3).map(|_| walk.run_with(&mut state, [])?[0].item()).collect::<Result<_, _>>()?;
/// assert!(far[0] != far[1] && far[1] != far[2]);
/// # Ok::<(), panoply_tensor::Error>(())
/// ```
pub fn capture_with_state<'f, S: State, const N: usize, const M: usize>(
    function: impl Fn(&mut S, [&Tensor; N]) -> [Tensor; M] + Send + Sync + 'f,
) -> Captured<'f, N, M, S> {
    Captured { function: Box::new(function), traces: Mutex::default() }
}

/// A function as it was traced with such tensors.
struct Trace {
    device: Device,
    /// What its plan may do to float arithmetic, and whether to products in TF32.
    accuracy: (Accuracy, bool),
    /// What is given: the inputs, then the tensors of the state, then the lengths of both that no plan knows.
    given: Vec<Kind>,
    /// Which of them has which length.
    ends: Pattern,
    /// Which of them the function takes for lengths, and of what.
    measures: Vec<(usize, Dim)>,
    /// How many of them are inputs, and stay as they are.
    inputs: usize,
    graph: Graph,
    /// The plan of the graph by what was spent of it in the last call.
    ready: Mutex<Option<(Vec<u32>, Arc<Ready>)>>,
    leaves: Vec<Leaf>,
    slots: Vec<Number>,
    /// What it gives, then the tensors of the state after it.
    results: Vec<Outcome>,
    /// Blocks that it draws from each generator of the state.
    drawn: Vec<u64>,
}

/// What two tensors have in common where the same work computes both.
struct Kind {
    shape: Shape,
    dtype: DType,
    /// Whether it is a number passed at launch.
    number: bool,
}

/// A result.
struct Outcome {
    place: Place,
    shape: Shape,
    dtype: DType,
    /// What is there of it.
    parts: Parts<Place>,
}

/// Where a result is.
#[derive(Clone, Copy)]
enum Place {
    /// An output of the plan.
    Made(usize),
    /// What was given.
    Given(usize),
}

impl<const N: usize, const M: usize, S> Captured<'_, N, M, S> {
    fn traces(&self) -> MutexGuard<'_, Vec<Arc<Trace>>> {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<const N: usize, const M: usize, S> fmt::Debug for Captured<'_, N, M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captured").field("traces", &self.traces().len()).finish_non_exhaustive()
    }
}

impl<const N: usize, const M: usize> Captured<'_, N, M> {
    /// What the function gives for these, computed.
    #[track_caller]
    pub fn run(&self, inputs: [&Tensor; N]) -> Result<[Tensor; M]> {
        self.run_with(&mut (), inputs)
    }
}

impl<const N: usize, const M: usize, S: State> Captured<'_, N, M, S> {
    /// What the function gives for these, computed, and the state as it leaves it. On error the state has not changed.
    #[track_caller]
    pub fn run_with(&self, state: &mut S, inputs: [&Tensor; N]) -> Result<[Tensor; M]> {
        let (mut given, mut generators) = (inputs.map(Tensor::clone).to_vec(), Vec::new());
        state.visit(&mut |piece| match piece {
            Piece::Tensor(tensor) => given.push(tensor.clone()),
            Piece::Rng(rng) => generators.push(rng.clone()),
        });
        let lengths = dim::lengths(&given);
        let ends = dim::pattern(given.iter(), &lengths);
        given.extend(lengths);
        let found = given.iter().try_for_each(Tensor::check).and_then(|()| {
            let device = given.iter().find_map(|tensor| tensor.device().cloned()).map_or_else(Device::current, Ok)?;
            device.scope(|| evaluate(&given))?;
            let known = self.known(&device, &given, &ends, &generators);
            let trace = known.map_or_else(|| self.trace(&device, state, &given, ends), Ok)?;
            dim::check_lengths(&trace.measures, |at| &given[at]).map(|()| trace)
        });
        let place = Location::caller();
        let placed = |error: Error| if error.is_mistake() { error.at(place) } else { error };
        let trace = found.map_err(placed)?;
        // While it runs the state is nowhere else, so that what nobody else holds may change where it is.
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
        state.visit(&mut |piece| match piece {
            Piece::Tensor(_) => {}
            Piece::Rng(rng) => rng.counter = rng.counter.wrapping_add(*drawn.next().expect(SAME)),
        });
        Ok(results.try_into().expect("it gives as many as it says"))
    }

    /// A trace with such tensors, which was used last from now on.
    fn known(&self, device: &Device, given: &[Tensor], ends: &Pattern, generators: &[Rng]) -> Option<Arc<Trace>> {
        let mut traces = self.traces();
        let at = traces.iter().rposition(|trace| trace.ends == *ends && trace.fits(device, given, generators))?;
        traces[at..].rotate_left(1);
        traces.last().cloned()
    }

    /// Runs the function on stand-ins and keeps what it asked for.
    fn trace(&self, device: &Device, state: &S, given: &[Tensor], ends: Pattern) -> Result<Arc<Trace>> {
        let trace = Node::next_serial();
        let (stand_ins, own) = stand_ins(given, &ends);
        let mut stood = state.clone();
        let (mut waiting, mut generators) = (stand_ins[N..own].iter(), 0);
        stood.visit(&mut |piece| match piece {
            Piece::Tensor(tensor) => tensor.clone_from(waiting.next().expect(SAME)),
            Piece::Rng(rng) => {
                rng.stand_in((trace, generators));
                generators += 1;
            }
        });
        let mut results = Vec::from((self.function)(&mut stood, std::array::from_fn(|n| &stand_ins[n])));
        let after = After::of(&mut stood, trace)?;
        results.extend(after.tensors);
        if (results.len(), after.drawn.len()) != (M + own - N, generators) {
            let (had, has) = (own - N + generators, results.len() - M + after.drawn.len());
            return Err(Error::mistake(format!(
                "capture: the state had {had} tensors and generators before the function and has {has} after it; it keeps each"
            )));
        }
        results.iter().try_for_each(Tensor::check)?;
        // What tells how much is there of a result is one.
        let (all, lengths) = (results.len(), dim::lengths(&results));
        results.extend(lengths);
        device.scope(|| compute_held(&results, trace))?;
        let roots: Vec<&Tensor> = results.iter().collect();
        let known = Given { device, trace, tensors: given, stand_ins: &stand_ins };
        let (Function { graph, leaves, slots }, which) = Function::new(&known, &roots)?;
        let place = |result: &Tensor| {
            let output = || which[results.iter().position(|other| other.is_same(result)).expect("it is a result")];
            let same = stand_ins.iter().position(|input| input.is_same(result));
            same.map_or_else(|| Place::Made(output()), Place::Given)
        };
        let outcomes = results[..all].iter().map(|result| Outcome::of(result, place)).collect();
        let traced = Arc::new(Trace {
            device: device.clone(),
            accuracy: (device.accuracy(), device.allows_tf32()),
            given: given.iter().map(Kind::of).collect(),
            ends,
            measures: dim::measured(&results[..all], &stand_ins[..own]),
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
        // What it holds is given back without the lock.
        drop(oldest);
        Ok(traced)
    }
}

/// What stands for what is given, and how many of that are tensors of the caller's, not lengths of theirs.
fn stand_ins(given: &[Tensor], ends: &Pattern) -> (Vec<Tensor>, usize) {
    let own = if ends.is_empty() { given.len() } else { ends.len() };
    let stand_in = |n: usize, live: Option<Box<Live>>| {
        let node = &given[n].0;
        let source = Source::Input(n as u32);
        Tensor::partly(source, Vec::new(), node.shape.clone(), node.dtype, node.device.clone(), live)
    };
    let lengths: Vec<Tensor> = (own..given.len()).map(|n| stand_in(n, None)).collect();
    let own_stand_in = |n: usize| stand_in(n, ends.get(n).and_then(|ends| Live::standing(ends, &lengths)));
    let all = (0..own).map(own_stand_in).chain(lengths.iter().cloned()).collect();
    (all, own)
}

/// Shows the tensors of a state.
fn tensors(state: &mut impl State, see: &mut dyn FnMut(&mut Tensor)) {
    state.visit(&mut |piece| match piece {
        Piece::Tensor(tensor) => see(tensor),
        Piece::Rng(_) => {}
    });
}

/// A state that a function under trace has left.
#[derive(Default)]
struct After {
    tensors: Vec<Tensor>,
    drawn: Vec<u64>,
}

impl After {
    fn of(state: &mut impl State, trace: u64) -> Result<After> {
        let (mut after, mut wrong) = (After::default(), None);
        state.visit(&mut |piece| match piece {
            Piece::Tensor(tensor) => after.tensors.push(tensor.detached()),
            Piece::Rng(rng) => match rng.drawn_as((trace, after.drawn.len())) {
                Ok(drawn) => after.drawn.push(drawn),
                Err(what) => wrong = Some(what),
            },
        });
        match wrong {
            Some(what) => Err(Error::mistake(format!("capture: the function is given a generator and {what}"))),
            None => Ok(after),
        }
    }
}

impl Tensor {
    /// The tensor itself where it stands for what is given, its values without their history otherwise.
    fn detached(&self) -> Tensor {
        match self.0.source {
            Source::Input(_) | Source::Mistake(_) => self.clone(),
            _ => self.detach(),
        }
    }

    /// The number passed at launch that this is, if it is one.
    pub(crate) fn number(&self) -> Option<Scalar> {
        match self.0.source {
            Source::Slot(value, None) => Some(value),
            _ => None,
        }
    }
}

/// Computes what is given and has no value. Numbers need none.
fn evaluate(given: &[Tensor]) -> Result<()> {
    let pending = |tensor: &&Tensor| tensor.0.value.get().is_none() && tensor.number().is_none();
    let pending: Vec<&Tensor> = given.iter().filter(pending).collect();
    if pending.is_empty() { Ok(()) } else { eval(&pending) }
}

/// Computes what a function holds and did not make, so that no call does it again.
fn compute_held(results: &[Tensor], trace: u64) -> Result<()> {
    let roots: Vec<&Tensor> = results.iter().collect();
    let held = |tensor: &Tensor| tensor.0.serial < trace || tensor.0.value.get().is_some();
    let reached = inputs_first(&roots, held);
    let pending = |tensor: &&Tensor| match tensor.0.source {
        Source::Op(_) | Source::Call(..) | Source::Detach | Source::Checkpoint(_) => {
            held(tensor) && tensor.0.value.get().is_none() && !tensor.0.inputs.is_empty()
        }
        Source::Host(_)
        | Source::Table(_)
        | Source::Slot(..)
        | Source::Value
        | Source::Input(_)
        | Source::Mistake(_) => false,
    };
    eval(&reached.into_iter().filter(pending).collect::<Vec<&Tensor>>())
}

impl Kind {
    fn of(tensor: &Tensor) -> Kind {
        Kind { shape: tensor.0.shape.clone(), dtype: tensor.dtype(), number: tensor.number().is_some() }
    }
}

impl Outcome {
    fn of(tensor: &Tensor, place: impl Fn(&Tensor) -> Place) -> Outcome {
        let part = |part: Part<Tensor>| Part { dim: part.dim, each: part.each, length: place(&part.length) };
        let parts = tensor.parts().into_iter().map(|own| own.map(part)).collect();
        Outcome { place: place(tensor), shape: tensor.0.shape.clone(), dtype: tensor.dtype(), parts }
    }

    /// The result of a run.
    fn tensor(&self, given: &[Tensor], values: &[Storage]) -> Tensor {
        let output = match self.place {
            Place::Given(n) => return given[n].clone(),
            Place::Made(output) => output,
        };
        let length = |place: Place| match place {
            Place::Given(n) => given[n].clone(),
            Place::Made(output) => Tensor::valued(values[output].clone(), Shape::default(), DType::I32, None),
        };
        let part = |own: &Part<Place>| Part { dim: own.dim.clone(), each: own.each, length: length(own.length) };
        let live = Live::of(self.parts.iter().map(|own| own.as_ref().map(part)).collect());
        Tensor::valued(values[output].clone(), self.shape.clone(), self.dtype, live)
    }
}

impl Trace {
    fn fits(&self, device: &Device, given: &[Tensor], generators: &[Rng]) -> bool {
        let same = |(kind, tensor): (&Kind, &Tensor)| {
            let elsewhere = tensor.device().is_some_and(|other| other != device);
            !elsewhere
                && (&kind.shape, kind.dtype) == (&tensor.0.shape, tensor.dtype())
                && kind.number == tensor.number().is_some()
        };
        (&self.device, self.accuracy) == (device, (device.accuracy(), device.allows_tf32()))
            && (self.given.len(), self.drawn.len()) == (given.len(), generators.len())
            && self.given.iter().zip(given).all(same)
    }

    fn replay(&self, given: &[Tensor], generators: &[Rng]) -> Result<Vec<Tensor>> {
        let number = |number: &Number| match number {
            Number::Held(value) => *value,
            Number::Given(n) => given[*n].number().expect("a number stays one"),
            Number::Word(word) => word.from(&generators[word.generator.1]),
        };
        let ready = self.ready(self.spent(given))?;
        let leaf = |(at, leaf): (usize, &Leaf)| match leaf {
            Leaf::Held(storage) => Ok(storage.clone()),
            Leaf::Table(table, _) if ready.reads(at) => tabulated(&self.device, table),
            Leaf::Table(_, nothing) => Ok(nothing.clone()),
            Leaf::Given(n) => Ok(given[*n].0.value.get().expect("what is given has a value").clone()),
        };
        let leaves: Vec<Storage> = self.leaves.iter().enumerate().map(leaf).collect::<Result<_>>()?;
        let slots: Vec<Scalar> = self.slots.iter().map(number).collect();
        let values = ready.run(&self.device, leaves, &slots)?;
        Ok(self.results.iter().map(|result| result.tensor(given, &values)).collect())
    }
}

impl Trace {
    /// The leaves that are tensors of the state, of which nobody holds more than what is given, and which do not stay as they are.
    fn spent(&self, given: &[Tensor]) -> Vec<u32> {
        let stays = |n: usize| {
            let same = |result: &Outcome| matches!(result.place, Place::Given(other) if other == n);
            n < self.inputs || self.results.iter().any(same)
        };
        let alone = |n: usize| {
            let Tensor(node) = &given[n];
            let own = Arc::strong_count(node) == 1;
            // Whoever let go of it and took its memory before is seen to hold that.
            fence(Ordering::Acquire);
            own && node.value.get().is_some_and(|storage| storage.holders() == 1)
        };
        let spent = |(at, leaf): (usize, &Leaf)| match leaf {
            Leaf::Given(n) if alone(*n) && !stays(*n) => Some(at as u32),
            Leaf::Given(_) | Leaf::Held(_) | Leaf::Table(..) => None,
        };
        let spent = self.leaves.iter().enumerate().filter_map(spent).collect();
        // Who held one before has let go of it after the last use.
        fence(Ordering::Acquire);
        spent
    }

    /// The plan for what is spent; one is kept.
    fn ready(&self, spent: Vec<u32>) -> Result<Arc<Ready>> {
        let kept = || self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, ready)) = &*kept()
            && *known == spent
        {
            return Ok(ready.clone());
        }
        let graph = Graph { spent: spent.clone(), ..self.graph.clone() };
        let ready = plan_cache::find(&self.device, graph)?;
        *kept() = Some((spent, ready.clone()));
        Ok(ready)
    }
}

impl State for () {
    fn visit(&mut self, _: &mut dyn FnMut(Piece<'_>)) {}
}

impl State for Tensor {
    fn visit(&mut self, visitor: &mut dyn FnMut(Piece<'_>)) {
        visitor(Piece::Tensor(self));
    }
}

impl State for Rng {
    fn visit(&mut self, visitor: &mut dyn FnMut(Piece<'_>)) {
        visitor(Piece::Rng(self));
    }
}

impl<S: State> State for Vec<S> {
    fn visit(&mut self, visitor: &mut dyn FnMut(Piece<'_>)) {
        self.iter_mut().for_each(|state| state.visit(visitor));
    }
}

impl<S: State, const N: usize> State for [S; N] {
    fn visit(&mut self, visitor: &mut dyn FnMut(Piece<'_>)) {
        self.iter_mut().for_each(|state| state.visit(visitor));
    }
}

macro_rules! tuple {
    ($($name:ident)+) => {
        impl<$($name: State),+> State for ($($name,)+) {
            #[allow(non_snake_case)]
            fn visit(&mut self, visitor: &mut dyn FnMut(Piece<'_>)) {
                let ($($name,)+) = self;
                $($name.visit(visitor);)+
            }
        }
    };
}

tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
