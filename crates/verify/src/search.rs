//! Branch and bound: a box of inputs is proven by its bounds or split in two, until all boxes are proven, a counterexample is found, or the
//! time limit is reached.
//!
//! Threads take boxes from one stack, mostly last in first out, so that its length grows with the depth of the splits and not with their
//! number. Every few boxes they take the oldest one, because counterexamples are as likely in the boxes at the bottom of the stack.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use panoply_tensor::{DType, Device, Error, MathMode, Result, Shape, Tensor, program};

use crate::attack::{self, Function};
use crate::backward::{Known, Lower, Rows, lower, tightened_with};
use crate::dual;
use crate::fuse;
use crate::interval::Interval;
use crate::leaf::{self, Decision, Leaf};
use crate::property::{Constraint, Property};
use crate::region::{Open, Region};
use crate::report::{Counterexample, Progress, Report, Verdict};
use crate::split::Duals;
use crate::steps::{Step, Steps};
use crate::values::{self, Arithmetic, Bounds};
use crate::{device_bounds, device_check};

/// Maximum memory of waiting boxes in bytes.
const MAX_BYTES: usize = 1 << 30;
/// Divisors of the time limit for sampling, and for the comparison of outputs with their bounds.
const ATTACK: u32 = 10;
const CONFIRMING: u32 = 20;
/// Number of splits after which all bounds are recomputed.
const REFRESH_EVERY: usize = 3;
/// Number of boxes per box that is taken from the bottom of the stack, and the length of the stack from which on none is.
const OLDEST_EVERY: u64 = 8;
const MAX_SPREAD: usize = 10_000;
/// Number of boxes per box from whose center a counterexample is searched by gradient steps.
const DESCEND_EVERY: u64 = 32;
/// Maximum number of points that wait to be checked on the device.
const MAX_CANDIDATES: usize = 16;
/// Number of inputs up to which they are split; ReLUs are split if there are more.
const MAX_SPLIT_INPUTS: usize = 20;
/// Number of steps of the optimization of linear bounds, in the first box and in the others.
const FIRST_STEPS: usize = 40;
const STEPS: usize = 15;
/// Interval of progress reports.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// Options of [`verify`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Time limit in seconds.
    pub seconds: f64,
    /// Arithmetic that a proof covers.
    pub arithmetic: Arithmetic,
    /// Number of threads [default: all hardware threads].
    pub threads: Option<usize>,
    /// Seed of the random points.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { seconds: 60.0, arithmetic: Arithmetic::Float, threads: None, seed: 0 }
    }
}

/// Proves a property of a function of one f32 tensor of this shape, or finds a counterexample.
///
/// A counterexample satisfies a case of the property in the f32 arithmetic of the current device and in real arithmetic. With
/// [`Arithmetic::Float`] a proof assumes that each operation of the device is within its error bounds; outputs at some inputs are compared
/// with the bounds that follow.
///
/// # Errors
/// If the function fails, its shapes differ from those of the property, or the device computes an output outside of its bounds.
pub fn verify(
    run: &dyn Fn(&Tensor) -> Result<Tensor>,
    shape: impl Into<Shape>,
    property: &Property,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report> {
    verify_function(&Function { run, shape: shape.into(), compiled: None }, property, options, progress)
}

/// Proves a property of a function, as [`verify`] does.
///
/// # Errors
/// As for [`verify`].
pub fn verify_function(
    function: &Function<'_>,
    property: &Property,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report> {
    let started = Instant::now();
    // A limit that is NaN, negative or too large for a `Duration` means no limit.
    let limit = Duration::try_from_secs_f64(options.seconds).unwrap_or(Duration::MAX);
    let remaining = || limit.saturating_sub(started.elapsed());
    let is_over = || remaining().is_zero();
    if function.shape.numel() != property.inputs {
        let message =
            format!("the property has {} inputs, but the network has {}", property.inputs, function.shape.numel());
        return Err(Error::mistake(message));
    }
    if property.requires_finite && options.arithmetic == Arithmetic::Real {
        let message = "whether outputs are finite depends on the arithmetic of f32, not on that of real numbers";
        return Err(Error::mistake(message).note("prove the claim with `Arithmetic::Float` (`--arithmetic both`)"));
    }
    let zeros = Tensor::from_slice(&vec![0f32; property.inputs], function.shape.clone());
    let traced = program(|x| Ok(vec![(function.run)(&x[0])?]), &[&zeros])?;
    let real = fuse::compile(&traced, Arithmetic::Real)?;
    let output = &real.steps[real.output];
    if output.numel != property.outputs || output.dtype != DType::F32 {
        let message = format!(
            "the property has {} f32 outputs, but the network has {} of {}",
            property.outputs, output.numel, output.dtype
        );
        return Err(Error::mistake(message));
    }
    let float = match options.arithmetic {
        Arithmetic::Real => None,
        Arithmetic::Float => Some(fuse::compile(&traced, Arithmetic::Float)?),
    };
    let report = |verdict, proven, boxes| {
        Ok(Report { verdict, progress: Progress { proven, boxes, seconds: started.elapsed().as_secs_f64() } })
    };
    // Searches for a part of the time limit.
    let attack = |is_done: &dyn Fn() -> bool| -> Result<Option<Counterexample>> {
        let is_over = || started.elapsed() >= limit / ATTACK || is_done();
        let found = attack::search(function, &real, float.as_ref(), property, options.seed, &is_over)?;
        Ok(found.map(|(input, output)| Counterexample { input, output }))
    };
    if let Some(reason) = unprovable(&real, float.as_ref())? {
        return report(attack(&|| false)?.map_or(Verdict::Undecided(reason), Verdict::Counterexample), 0.0, 0);
    }
    let search = Search::new(float.as_ref().unwrap_or(&real), &real, property);
    let threads = options.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let found = std::thread::scope(|scope| {
        (0..threads.max(1)).for_each(|_| drop(scope.spawn(|| search.work())));
        // Beside the first boxes, which often suffice for a proof.
        let found = attack(&|| search.state().is_done()).and_then(|found| match found {
            Some(counterexample) => Ok(Some(counterexample)),
            None => search.supervise(function, &remaining, &mut |proven, boxes| {
                progress(Progress { proven, boxes, seconds: started.elapsed().as_secs_f64() });
            }),
        });
        search.stop();
        found
    })?;
    let (state, boxes) = (search.state(), search.boxes.load(Ordering::Relaxed));
    let verdict = match found {
        Some(counterexample) => Verdict::Counterexample(counterexample),
        None if state.waiting.is_empty() && state.busy == 0 && !state.failed && state.unresolved == 0 => match &float {
            Some(float) => {
                device_check::confirm(function, float, property, options.seed, limit / CONFIRMING, remaining())?;
                Verdict::Proven
            }
            None => Verdict::Proven,
        },
        None if state.is_full => {
            Verdict::Undecided(format!("the boxes that wait to be proven take more than {MAX_BYTES} bytes"))
        }
        None if is_over() => Verdict::Undecided(format!("the time limit of {} s is reached", options.seconds)),
        None => Verdict::Undecided(format!("{} boxes cannot be split any further", state.unresolved)),
    };
    report(verdict, state.proven.min(1.0), boxes)
}

/// Returns why nothing can be proven of a function, if so: an operation without bounds. `float` has the bounds of the device's arithmetic.
fn unprovable(real: &Steps, float: Option<&Steps>) -> Result<Option<String>> {
    if let Some(reason) = real.unknown.as_ref().or(float.and_then(|float| float.unknown.as_ref())) {
        return Ok(Some(reason.clone()));
    }
    let device = Device::current()?;
    let reason = match device.math_mode() {
        _ if float.is_none() => return Ok(None),
        MathMode::Fast => "in the math mode `fast` each use of a product can be rounded differently".to_string(),
        _ if device_bounds::allows_tf32(&device) => {
            format!("{device} can compute matrix products in TF32, for which no bounds are known")
        }
        _ => return Ok(None),
    };
    Ok(Some(reason))
}

/// Returns the counterexample at an input, if the input violates the property in the f32 arithmetic of the current device and in real
/// arithmetic.
///
/// # Errors
/// If the function fails or its shapes differ from those of the property.
pub fn check(
    run: &dyn Fn(&Tensor) -> Result<Tensor>,
    shape: impl Into<Shape>,
    property: &Property,
    input: &[f32],
) -> Result<Option<Counterexample>> {
    let function = Function { run, shape: shape.into(), compiled: None };
    if input.len() != property.inputs || function.shape.numel() != property.inputs {
        return Err(Error::mistake(format!(
            "the counterexample has {} inputs, the property {} and the network {}",
            input.len(),
            property.inputs,
            function.shape.numel()
        )));
    }
    let zeros = Tensor::from_slice(&vec![0f32; property.inputs], function.shape.clone());
    let real = fuse::compile(&program(|x| Ok(vec![run(&x[0])?]), &[&zeros])?, Arithmetic::Real)?;
    let output = function.output(input)?;
    if output.len() != property.outputs {
        let message = format!("the property has {} outputs, but the network has {}", property.outputs, output.len());
        return Err(Error::mistake(message));
    }
    let is_finite = output.iter().all(|y| y.is_finite());
    let is_violated = property.cases.iter().any(|case| {
        attack::satisfies_in_f32(property, case, input, &output)
            && ((property.requires_finite && !is_finite) || attack::satisfies_in_reals(&real, case, input))
    });
    Ok(is_violated.then(|| Counterexample { input: input.to_vec(), output }))
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Region>,
    /// Number of boxes that threads are working on.
    busy: usize,
    candidates: Vec<(usize, Vec<f32>)>,
    proven: f64,
    unresolved: u64,
    is_full: bool,
    /// True if a thread panicked before its box was done.
    failed: bool,
}

impl State {
    /// Returns true if no box is left, or the search has failed.
    fn is_done(&self) -> bool {
        (self.waiting.is_empty() && self.busy == 0) || self.failed || self.is_full
    }

    /// Replaces a box by its halves; the clipped part is proven.
    fn split(&mut self, volume: f64, halves: [Region; 2]) {
        self.proven += (volume - halves.iter().map(|half| half.volume).sum::<f64>()).max(0.0);
        self.waiting.extend(halves);
    }
}

struct Search<'a> {
    has_relu: bool,
    /// True if the sets have too many inputs to split them.
    splits_relus: bool,
    steps: &'a Steps,
    real: &'a Steps,
    property: &'a Property,
    state: Mutex<State>,
    changed: Condvar,
    stopped: AtomicBool,
    boxes: AtomicU64,
}

impl<'a> Search<'a> {
    fn new(steps: &'a Steps, real: &'a Steps, property: &'a Property) -> Search<'a> {
        let mut waiting: Vec<Region> = Vec::new();
        for (n, case) in property.cases.iter().enumerate() {
            let input: Vec<Interval> = case.ranges.iter().map(|range| range.outer()).collect();
            match waiting.iter_mut().find(|region| region.input == input) {
                Some(region) => region.cases.push(n),
                None => {
                    let whole = input.iter().map(|x| x.hi - x.lo).collect();
                    let (cases, known) = (vec![n], Arc::default());
                    let (splits, duals) = (Vec::new(), None);
                    waiting.push(Region { input, cases, volume: 1.0, whole, depth: 0, known, splits, first: 0, duals });
                }
            }
        }
        let count = waiting.len() as f64;
        waiting.iter_mut().for_each(|region| region.volume /= count);
        let wide = |region: &Region| region.input.iter().filter(|x| x.lo < x.hi).count() > MAX_SPLIT_INPUTS;
        let has_relu = steps.steps.iter().any(|entry| matches!(entry.step, Step::Relu(_)));
        let splits_relus = has_relu && waiting.iter().any(wide);
        Search {
            has_relu,
            splits_relus,
            steps,
            real,
            property,
            state: Mutex::new(State { waiting: waiting.into(), ..State::default() }),
            changed: Condvar::new(),
            stopped: AtomicBool::new(false),
            boxes: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Checks candidates on the device and reports progress until the search ends.
    fn supervise(
        &self,
        function: &Function<'_>,
        remaining: &dyn Fn() -> Duration,
        report: &mut dyn FnMut(f64, u64),
    ) -> Result<Option<Counterexample>> {
        loop {
            let (candidates, done) = {
                let state = self.state();
                let idle = |state: &mut State| state.candidates.is_empty() && !state.is_done();
                let waited = self.changed.wait_timeout_while(state, REPORT_EVERY.min(remaining()), idle);
                let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
                report(state.proven, self.boxes.load(Ordering::Relaxed));
                (std::mem::take(&mut state.candidates), state.is_done())
            };
            for (case, input) in candidates {
                let output = function.output(&input)?;
                if attack::satisfies_in_f32(self.property, &self.property.cases[case], &input, &output) {
                    return Ok(Some(Counterexample { input, output }));
                }
            }
            if done || remaining().is_zero() {
                return Ok(None);
            }
        }
    }

    /// Processes boxes until there are none or the search is stopped.
    fn work(&self) {
        values::use_one_thread();
        let guard = Failed(self);
        while let Some(region) = self.take() {
            let outcome = self.examine(&region);
            self.boxes.fetch_add(1, Ordering::Relaxed);
            let mut state = self.state();
            state.busy -= 1;
            match outcome {
                Outcome::Proven => state.proven += region.volume,
                Outcome::Split(halves) => state.split(region.volume, *halves),
                Outcome::Unresolved => state.unresolved += 1,
                Outcome::Candidate(case, point, halves) => {
                    if state.candidates.len() < MAX_CANDIDATES {
                        state.candidates.push((case, point));
                    }
                    match halves {
                        Some(halves) => state.split(region.volume, *halves),
                        None => state.unresolved += 1,
                    }
                }
            }
            state.is_full |= state.waiting.len() > MAX_BYTES / region.bytes();
            drop(state);
            self.changed.notify_all();
        }
        std::mem::forget(guard);
    }

    fn take(&self) -> Option<Region> {
        let mut state = self.state();
        loop {
            if self.stopped.load(Ordering::Relaxed) || state.failed || state.is_full {
                return None;
            }
            let count = self.boxes.load(Ordering::Relaxed);
            let is_oldest = count.is_multiple_of(OLDEST_EVERY) && state.waiting.len() < MAX_SPREAD;
            let next = if is_oldest { state.waiting.pop_front() } else { state.waiting.pop_back() };
            if let Some(region) = next {
                state.busy += 1;
                return Some(region);
            }
            if state.busy == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn examine(&self, region: &Region) -> Outcome {
        // Inherited bounds save work on ReLUs of known sign, but become loose, which makes the error terms large.
        let is_refreshed = !self.splits_relus && region.depth.is_multiple_of(REFRESH_EVERY);
        let inherited = if is_refreshed { &[] } else { &region.known[..] };
        let tightened = tightened_with(self.steps, &region.input, inherited, &region.splits, region.first);
        // No input satisfies the splits.
        let Some((bounds, known)) = tightened else { return Outcome::Proven };
        let rows = self.rows(&region.cases);
        let found = lower(self.steps, &bounds, self.steps.output, rows);
        let outputs = &bounds[self.steps.output].elements[..];
        let left = self.left(region, &region.cases, &found, outputs);
        if left.is_empty() {
            return Outcome::Proven;
        }
        if self.splits_relus {
            return self.examine_relus(region, &bounds, known, left);
        }
        let is_leaf = self.has_relu && leaf::undecided(self.steps, &bounds) <= leaf::MAX_UNDECIDED;
        let (left, point) = if is_leaf { self.decide(region, &bounds, left) } else { (left, None) };
        if left.is_empty() {
            return Outcome::Proven;
        }
        let halves = region.split(&left, known);
        self.outcome(&left, point, halves)
    }

    /// Optimizes the bounds of the cases that are left, and splits a ReLU, or an input if no ReLU is left.
    fn examine_relus(&self, region: &Region, bounds: &[Bounds<'_>], known: Known, left: Vec<Open<'_>>) -> Outcome {
        let outputs = &bounds[self.steps.output].elements[..];
        let cases: Vec<usize> = left.iter().map(|open| open.case).collect();
        let rows = self.rows(&cases);
        let duals = match &region.duals {
            Some(duals) => duals.rows(&self.row_indices(&region.cases, &cases), &region.splits),
            None => Duals::new(self.steps, bounds, &region.splits, rows.count),
        };
        let is_done = |found: &[f64]| {
            let mut found = found.iter();
            self.stopped.load(Ordering::Relaxed)
                || cases.iter().all(|case| {
                    // All bounds of a case are taken, so that those of the next one follow.
                    let bounds = self.property.cases[*case].constraints.iter().zip(found.by_ref());
                    let least = bounds.map(|(constraint, bound)| constraint.at_least(*bound, &region.input, outputs));
                    least.fold(f64::NEG_INFINITY, f64::max) > 0.0
                })
        };
        let steps = if region.depth == 0 { FIRST_STEPS } else { STEPS };
        let optimized = dual::optimize(self.steps, bounds, &rows, duals, steps, &is_done);
        let left = self.left(region, &cases, &optimized.lower, outputs);
        if left.is_empty() {
            return Outcome::Proven;
        }
        let rows_of = |left: &[Open<'_>]| {
            let cases_left: Vec<usize> = left.iter().map(|open| open.case).collect();
            self.row_indices(&cases, &cases_left)
        };
        let choice = dual::choose(self.steps, bounds, &optimized, &rows_of(&left));
        let is_leaf = choice.is_none() || leaf::undecided(self.steps, bounds) <= leaf::MAX_UNDECIDED;
        let (left, point) = if is_leaf { self.decide(region, bounds, left) } else { (left, None) };
        if left.is_empty() {
            return Outcome::Proven;
        }
        let halves = match choice {
            Some(at) => region.split_relu(&left, known, at, &optimized.duals, &rows_of(&left)),
            None => region.split(&left, known),
        };
        self.outcome(&left, point, halves)
    }

    /// Decides cases by linear programs. Returns those that are left, and a point that violates the property in real arithmetic.
    fn decide<'r>(
        &self,
        region: &Region,
        bounds: &[Bounds<'_>],
        left: Vec<Open<'r>>,
    ) -> (Vec<Open<'r>>, Option<(usize, Vec<f32>)>) {
        let leaf = Leaf { steps: self.steps, bounds, input: &region.input, splits: &region.splits };
        let (mut open, mut point) = (Vec::new(), None);
        for one in left {
            let case = &self.property.cases[one.case];
            // A program can take a part of a second, so that none is begun after the time limit.
            let is_stopped = self.stopped.load(Ordering::Relaxed);
            match if is_stopped { Decision::Unsolved } else { leaf.decide(case) } {
                Decision::Excluded => continue,
                Decision::Point(found) if point.is_none() => {
                    let found = attack::point_of(case, found.into_iter());
                    let found = found.filter(|found| attack::satisfies_in_reals(self.real, case, found));
                    point = found.map(|found| (one.case, found));
                }
                Decision::Point(_) | Decision::Unsolved => {}
            }
            open.push(one);
        }
        (open, point)
    }

    /// Returns the outcome of a box with cases that are left, and a point of one of them.
    fn outcome(
        &self,
        left: &[Open<'_>],
        point: Option<(usize, Vec<f32>)>,
        halves: Option<Box<[Region; 2]>>,
    ) -> Outcome {
        match point.or_else(|| self.candidate(left)) {
            Some((case, point)) => Outcome::Candidate(case, point, halves),
            None => halves.map_or(Outcome::Unresolved, Outcome::Split),
        }
    }

    /// Returns the rows of all constraints of some cases.
    fn rows(&self, cases: &[usize]) -> Rows {
        let constraints: Vec<&Constraint> =
            cases.iter().flat_map(|case| &self.property.cases[*case].constraints).collect();
        Rows::of(&constraints)
    }

    /// Returns the indices of the rows of some cases among those of all `cases`.
    fn row_indices(&self, cases: &[usize], some: &[usize]) -> Vec<usize> {
        let mut first = 0;
        let mut indices = Vec::new();
        for case in cases {
            let count = self.property.cases[*case].constraints.len();
            if some.contains(case) {
                indices.extend(first..first + count);
            }
            first += count;
        }
        indices
    }

    /// Returns the cases that bounds of their rows do not exclude.
    fn left<'r>(&self, region: &Region, cases: &[usize], found: &'r Lower, outputs: &[Interval]) -> Vec<Open<'r>> {
        let inputs = region.input.len();
        let (mut left, mut row) = (Vec::new(), 0);
        for case in cases {
            let constraints = &self.property.cases[*case].constraints;
            let linear = constraints.iter().enumerate().map(|(n, constraint)| {
                let least = constraint.at_least(found.bounds[row + n], &region.input, outputs);
                (least, &found.slopes[(row + n) * inputs..][..inputs])
            });
            let linear = linear.collect();
            row += constraints.len();
            if !constraints.iter().any(|constraint| constraint.excludes(constraint.value(&region.input, outputs))) {
                left.extend(Open::of(*case, linear, &region.input));
            }
        }
        left
    }

    /// Returns a point that violates the property in real arithmetic: the center of a case's box, or the corner that minimizes its
    /// bound, or for some boxes the end of gradient steps from the center.
    fn candidate(&self, left: &[Open<'_>]) -> Option<(usize, Vec<f32>)> {
        let count = self.boxes.load(Ordering::Relaxed);
        let (is_descending, is_local) = (count.is_multiple_of(DESCEND_EVERY), count.is_multiple_of(2 * DESCEND_EVERY));
        left.iter().find_map(|open| {
            let case = &self.property.cases[open.case];
            let center = open.input.iter().map(|x| 0.5 * (x.lo + x.hi));
            let corner = open.input.iter().zip(open.slopes).map(|(x, slope)| if *slope > 0.0 { x.lo } else { x.hi });
            let points = [attack::point_of(case, center), attack::point_of(case, corner)];
            let points: Vec<Vec<f32>> = points.into_iter().flatten().collect();
            let start = points.first().filter(|_| is_descending).cloned();
            let real = points.into_iter().find(|point| attack::satisfies_in_reals(self.real, case, point));
            let found = real.or_else(|| {
                let whole: Vec<Interval> = case.ranges.iter().map(|range| range.outer()).collect();
                attack::descend(self.real, case, if is_local { &open.input } else { &whole }, &start?, true)
            });
            found.map(|point| (open.case, point))
        })
    }
}

/// Marks the search as failed if a thread panics, so that its box never counts as done.
struct Failed<'s, 'a>(&'s Search<'a>);

impl Drop for Failed<'_, '_> {
    fn drop(&mut self) {
        self.0.state().failed = true;
        self.0.changed.notify_all();
    }
}

/// Result of processing a box.
enum Outcome {
    Proven,
    Split(Box<[Region; 2]>),
    /// No input has a float between its ends.
    Unresolved,
    /// A candidate point for this case, and the halves of the box.
    Candidate(usize, Vec<f32>, Option<Box<[Region; 2]>>),
}
