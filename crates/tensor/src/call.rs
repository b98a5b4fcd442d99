//! Operations composed of others, traced once and used as one node.
//!
//! `gelu` is ten primitives and a block of random numbers eight hundred. Building those anew at every step of a training
//! loop costs the host more than the device needs for the work, so [`Tensor::call`] runs the Rust expression once for each
//! combination of shapes, types and settings, keeps the graph, and gives one node that stands for it. When the plan is made
//! bodies take the place of their calls, and everything fuses as if it had been written out.
//!
//! A body is a function that captures nothing: all it knows are its inputs and settings, and those are the key under which it
//! is kept. Its numbers are part of it; what changes from step to step (a learning rate, a seed) is an input, made with
//! [`Tensor::scalar`]. Its gradient is a body too, derived when first asked for and kept beside it.
//!
//! What a device may do whole is an [`CompositeOp`] that names its routine; the body is what happens everywhere else.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use panoply_ir::graph::{Call, Op};
use panoply_ir::kernel::ReduceOp;
use panoply_ir::routine::Routine;
use panoply_ir::{DType, Error, Result, Shape};

use crate::call_attrs::CallAttrs;
use crate::dynamic_dim::{Dim, LengthPattern, ValidLengths, check_lengths, lengths, measured, pattern};
use crate::eval::describe;
use crate::gradient::{Vjp, jvp, vjp};
use crate::hasher::WordMap;
use crate::tensor::{NodeKind, Tensor};
use crate::vmap::VmapBatch;

/// Bodies kept in this process; at more, all are forgotten and traced again when they are needed.
const CAPACITY: usize = 4096;

static BODIES: LazyLock<Mutex<WordMap<Key, Arc<TracedBody>>>> = LazyLock::new(Mutex::default);

/// What distinguishes two bodies.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    name: &'static str,
    /// The addresses of the body and of its author's gradient, if there is one. The compiler may give equal functions one
    /// address: equal bodies with other gradients must stay apart.
    functions: (usize, Option<usize>),
    settings: Vec<u64>,
    inputs: Vec<(Shape, DType)>,
    ends: LengthPattern,
}

/// An operation after it ran on stand-ins for its inputs.
pub(crate) struct TracedBody {
    /// What stands in for the inputs, and for the lengths they have that no plan knows.
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    /// How many of them what it does depends on: all, or not the lengths.
    pub used_inputs: usize,
    /// Which of its inputs are lengths, and of what.
    pub length_inputs: Vec<(usize, Dim)>,
    /// What it does, as a graph.
    pub call: Arc<Call>,
    /// What flows back from outputs together, once somebody asked; none if nothing does.
    flows: Mutex<HashMap<Vec<u32>, Option<Arc<VjpPlan>>>>,
    /// How an output moves when these inputs do, from the inputs and how those move; none if it does not.
    moves: Mutex<JvpCache>,
    /// What flows back if its author says so.
    rule: Option<CustomVjp>,
    /// The same on inputs with one more axis in front, where that is as many operations.
    again: Option<BatchedBody>,
}

/// By output and which inputs move.
type JvpCache = HashMap<(u32, Vec<bool>), Option<Arc<TracedBody>>>;

/// An author's gradient: from the inputs, the output, the derivative by the output and the settings to the derivatives by
/// the inputs, none where there is none.
pub type VjpFn<S, const N: usize> = fn([&Tensor; N], &Tensor, &Tensor, &S) -> [Option<Tensor>; N];

/// What [`Tensor::call`] says with arguments, for an operation that a device may do whole.
pub(crate) struct CompositeOp<S, const N: usize, const M: usize> {
    /// What it is called.
    pub name: &'static str,
    /// What it does.
    pub body: fn([&Tensor; N], &S) -> [Tensor; M],
    /// The derivatives by its inputs when something flows into the first output, where the body does not say them best.
    pub gradient: Option<VjpFn<S, N>>,
    /// The routine that does the same with such inputs, if there is one.
    pub routine: fn([&Tensor; N], &S) -> Option<Routine>,
}

impl<S: CallAttrs + Clone + Send + Sync + 'static, const N: usize, const M: usize> CompositeOp<S, N, M> {
    /// Its outputs on these inputs.
    #[track_caller]
    pub fn apply(&self, inputs: [&Tensor; N], settings: S) -> [Tensor; M] {
        self.traced(inputs, settings, false)
    }

    /// Its outputs on these inputs, which may all have one more axis in front: as many operations at once.
    #[track_caller]
    pub fn apply_batched(&self, inputs: [&Tensor; N], settings: S) -> [Tensor; M] {
        self.traced(inputs, settings, true)
    }

    #[track_caller]
    fn traced(&self, inputs: [&Tensor; N], settings: S, in_batches: bool) -> [Tensor; M] {
        let CompositeOp { name, body, gradient, routine } = *self;
        let functions = (body as usize, gradient.map(|gradient| gradient as usize));
        let again = || {
            let known = settings.clone();
            let operation = CompositeOp { name, body, gradient, routine };
            let again = move |inputs: &[Tensor]| {
                operation.apply_batched(std::array::from_fn(|n| &inputs[n]), known.clone()).into()
            };
            Box::new(again) as BatchedBody
        };
        let run = |stand_ins: &[Tensor]| {
            let stand_ins = std::array::from_fn(|n| &stand_ins[n]);
            let (outputs, routine) = (body(stand_ins, &settings).into(), routine(stand_ins, &settings));
            TraceResult { outputs, routine, batched_body: in_batches.then(again) }
        };
        let rule = gradient.map(|gradient| rule(gradient, &settings));
        match TracedBody::of(name, functions, &settings, &inputs, run, rule) {
            Ok(body) => std::array::from_fn(|output| body.apply(&inputs, output as u32)),
            Err(mistake) => std::array::from_fn(|_| mistake.clone()),
        }
    }
}

/// The outputs on inputs that all have one more axis in front.
type BatchedBody = Box<dyn Fn(&[Tensor]) -> Vec<Tensor> + Send + Sync>;

/// What running a body on stand-ins gave.
pub(crate) struct TraceResult {
    /// Its outputs.
    pub outputs: Vec<Tensor>,
    /// The routine that does the same.
    pub routine: Option<Routine>,
    /// The same on inputs with one more axis in front, where that is as many operations.
    pub batched_body: Option<BatchedBody>,
}

impl From<Vec<Tensor>> for TraceResult {
    fn from(outputs: Vec<Tensor>) -> TraceResult {
        TraceResult { outputs, routine: None, batched_body: None }
    }
}

fn rule<S: CallAttrs + Clone + Send + Sync + 'static, const N: usize>(
    gradient: VjpFn<S, N>,
    settings: &S,
) -> CustomVjp {
    let known = settings.clone();
    Box::new(move |inputs, output, g| gradient(std::array::from_fn(|n| &inputs[n]), output, g, &known).into())
}

/// The same with its settings filled in.
type CustomVjp = Box<dyn Fn(&[Tensor], &Tensor, &Tensor) -> Vec<Option<Tensor>> + Send + Sync>;

/// An output of a call, and what flows into it.
pub(crate) struct OutputCotangent {
    /// Which of the outputs.
    pub output: u32,
    pub tensor: Tensor,
    pub cotangent: Tensor,
}

/// Where the derivatives by some outputs go.
struct VjpPlan {
    /// From the inputs and the derivatives by the outputs to the derivatives by some inputs.
    body: Arc<TracedBody>,
    /// For each input, which output of that; none where nothing flows.
    to: Vec<Option<u32>>,
}

impl Tensor {
    /// An operation composed of others: `body` of these inputs, traced once for each combination of shapes, element types
    /// and settings. The numbers in it are part of the program; what changes from step to step is an input.
    ///
    /// ```
    /// # use panoply_tensor::Tensor;
    /// fn silu(x: &Tensor) -> Tensor {
    ///     Tensor::call("silu", [x], (), |[x], ()| x * x.sigmoid())
    /// }
    /// assert_eq!(silu(&Tensor::from_slice(&[0.0f32], [1])).to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn call<S: CallAttrs, const N: usize>(
        name: &'static str,
        inputs: [&Tensor; N],
        settings: S,
        body: fn([&Tensor; N], &S) -> Tensor,
    ) -> Tensor {
        let run = |stand_ins: &[Tensor]| vec![body(std::array::from_fn(|n| &stand_ins[n]), &settings)].into();
        match TracedBody::of(name, (body as usize, None), &settings, &inputs, run, None) {
            Ok(body) => body.apply(&inputs, 0),
            Err(mistake) => mistake,
        }
    }

    /// [`Tensor::call`] with a gradient of its author's: from the inputs, the output and the derivative by the output to the
    /// derivatives by the inputs, in their shapes; none where there is none. This is how a kernel gets a gradient.
    #[track_caller]
    pub fn call_with_vjp<S: CallAttrs + Clone + Send + Sync + 'static, const N: usize>(
        name: &'static str,
        inputs: [&Tensor; N],
        settings: S,
        body: fn([&Tensor; N], &S) -> Tensor,
        gradient: VjpFn<S, N>,
    ) -> Tensor {
        let run = |stand_ins: &[Tensor]| vec![body(std::array::from_fn(|n| &stand_ins[n]), &settings)].into();
        let rule = rule(gradient, &settings);
        match TracedBody::of(name, (body as usize, Some(gradient as usize)), &settings, &inputs, run, Some(rule)) {
            Ok(body) => body.apply(&inputs, 0),
            Err(mistake) => mistake,
        }
    }

    /// [`Tensor::call_with_vjp`] of one tensor; where its elements are halves, both are computed in f32, and rounded once.
    #[track_caller]
    pub(crate) fn call_in_f32(
        &self,
        name: &'static str,
        body: fn([&Tensor; 1], &()) -> Tensor,
        gradient: VjpFn<(), 1>,
    ) -> Tensor {
        Tensor::call_with_vjp(name, [&self.widened()], (), body, gradient).cast(self.dtype())
    }

    /// [`Tensor::call`] with several results.
    #[track_caller]
    pub fn call_multi<S: CallAttrs, const N: usize, const M: usize>(
        name: &'static str,
        inputs: [&Tensor; N],
        settings: S,
        body: fn([&Tensor; N], &S) -> [Tensor; M],
    ) -> [Tensor; M] {
        let run = |stand_ins: &[Tensor]| Vec::from(body(std::array::from_fn(|n| &stand_ins[n]), &settings)).into();
        match TracedBody::of(name, (body as usize, None), &settings, &inputs, run, None) {
            Ok(body) => std::array::from_fn(|output| body.apply(&inputs, output as u32)),
            Err(mistake) => std::array::from_fn(|_| mistake.clone()),
        }
    }

    /// [`Tensor::call_with_vjp`] where only the program that runs knows how many inputs there are.
    #[track_caller]
    pub(crate) fn call_dyn_with_vjp<S: CallAttrs + Clone + Send + Sync + 'static>(
        name: &'static str,
        inputs: &[&Tensor],
        settings: S,
        body: fn(&[Tensor], &S) -> Tensor,
        gradient: fn(&[Tensor], &Tensor, &S) -> Vec<Option<Tensor>>,
    ) -> Tensor {
        let run = |stand_ins: &[Tensor]| vec![body(stand_ins, &settings)].into();
        let (known, own) = (settings.clone(), inputs.len());
        let rule: CustomVjp = Box::new(move |inputs, _, g| gradient(&inputs[..own], g, &known));
        match TracedBody::of(name, (body as usize, Some(gradient as usize)), &settings, inputs, run, Some(rule)) {
            Ok(body) => body.apply(inputs, 0),
            Err(mistake) => mistake,
        }
    }

    /// [`Tensor::call_multi`] where only the program that runs knows how many inputs and results there are.
    #[track_caller]
    pub fn call_dyn<S: CallAttrs>(
        name: &'static str,
        inputs: &[&Tensor],
        settings: S,
        body: fn(&[Tensor], &S) -> Vec<Tensor>,
    ) -> Result<Vec<Tensor>> {
        let run = |stand_ins: &[Tensor]| body(stand_ins, &settings).into();
        match TracedBody::of(name, (body as usize, None), &settings, inputs, run, None) {
            Ok(body) => Ok((0..body.outputs.len()).map(|output| body.apply(inputs, output as u32)).collect()),
            Err(mistake) => mistake.check().map(|()| vec![mistake]),
        }
    }
}

impl TracedBody {
    /// The body of a function for such inputs, traced if it is new; a tensor that carries the mistake if there is one.
    #[track_caller]
    pub fn of(
        name: &'static str,
        functions: (usize, Option<usize>),
        settings: &impl CallAttrs,
        inputs: &[&Tensor],
        run: impl FnOnce(&[Tensor]) -> TraceResult,
        rule: Option<CustomVjp>,
    ) -> Result<Arc<TracedBody>, Tensor> {
        if let Some(mistake) = Tensor::leftmost(inputs.iter().copied()) {
            return Err(mistake);
        }
        let mut words = Vec::new();
        settings.write_key(&mut words);
        let types = inputs.iter().map(|input| (input.0.shape.clone(), input.dtype())).collect();
        let lengths = lengths(inputs.iter().copied());
        let key =
            Key { name, functions, settings: words, inputs: types, ends: pattern(inputs.iter().copied(), &lengths) };
        if let Some(body) = lock().get(&key) {
            return Ok(body.clone());
        }
        // Traced without the lock: bodies call others.
        let numbered = lengths.iter().zip(inputs.len() as u32..);
        let lengths: Vec<Tensor> = numbered.map(|(length, n)| length.placeholder(n)).collect();
        let mut stand_ins: Vec<Tensor> = Vec::with_capacity(inputs.len() + lengths.len());
        for (n, input) in inputs.iter().enumerate() {
            let live = key.ends.get(n).and_then(|ends| ValidLengths::bind_placeholder(ends, &lengths));
            stand_ins.push(input.placeholder_with_dims(n as u32, live));
        }
        let traced = run(&stand_ins);
        stand_ins.extend(lengths);
        if let Some(error) = traced.outputs.iter().find_map(|output| output.check().err()) {
            return Err(Tensor::mistake(error.relocated(Location::caller())));
        }
        let body = match TracedBody::new(name, stand_ins, inputs.len(), traced, rule) {
            Ok(body) => Arc::new(body),
            Err(error) => return Err(Tensor::mistake(error)),
        };
        let mut bodies = lock();
        if bodies.len() >= CAPACITY {
            bodies.clear();
        }
        Ok(bodies.entry(key).or_insert(body).clone())
    }

    /// What its first so many inputs, and the lengths behind them, are to it. A routine knows no lengths: it does the same where the body
    /// needs none, because what is not there stays apart. Steps and paddings that no routine describes are left to the body.
    fn new(
        name: &str,
        inputs: Vec<Tensor>,
        own: usize,
        traced: TraceResult,
        rule: Option<CustomVjp>,
    ) -> Result<TracedBody> {
        let TraceResult { outputs, routine, batched_body: again } = traced;
        let lengths = lengths(&outputs);
        if let Some(made) = lengths.iter().find(|length| !inputs.iter().any(|input| input.ptr_eq(length))) {
            return Err(Error::mistake(format!("{name}: its body makes a length, {made:?}; pass it as an input")));
        }
        let graph = describe(name, &outputs)?;
        let measures = graph.nodes.iter().any(|node| matches!(node.op, Op::Input(n) if n as usize >= own));
        let reads = if measures { inputs.len() } else { own };
        let call =
            Arc::new(Call::with_routine(name, graph, routine.filter(|routine| !measures && routine.check().is_ok())));
        let measures = measured(&outputs, &inputs[..own]);
        Ok(TracedBody {
            inputs,
            outputs,
            used_inputs: reads,
            length_inputs: measures,
            call,
            flows: Mutex::default(),
            moves: Mutex::default(),
            rule,
            again,
        })
    }

    /// A body whose inputs are all given.
    fn whole(name: &str, inputs: Vec<Tensor>, outputs: Vec<Tensor>, rule: Option<CustomVjp>) -> Result<TracedBody> {
        let own = inputs.len();
        TracedBody::new(name, inputs, own, outputs.into(), rule)
    }

    /// An output of the operation on these inputs.
    #[track_caller]
    pub fn apply(self: &Arc<TracedBody>, inputs: &[&Tensor], output: u32) -> Tensor {
        let stand_in = &self.outputs[output as usize];
        let source = NodeKind::Call(self.clone(), output);
        if let Err(error) = check_lengths(&self.length_inputs, |at| inputs[at]) {
            return Tensor::mistake(error);
        }
        if inputs.len() == self.inputs.len() && stand_in.0.valid_lengths.is_none() {
            return Tensor::step(source, inputs, stand_in.0.shape.clone(), stand_in.dtype(), None);
        }
        let lengths = if inputs.len() < self.inputs.len() { lengths(inputs.iter().copied()) } else { Vec::new() };
        let given: Vec<&Tensor> = inputs.iter().copied().chain(&lengths).collect();
        let length = |own: &Tensor| {
            let at = self.inputs.iter().position(|input| input.ptr_eq(own));
            given[at.expect("every length of an output is an input")].clone()
        };
        let live = stand_in.0.valid_lengths.as_ref().and_then(|live| live.map_lengths(length));
        Tensor::step(source, &given, stand_in.0.shape.clone(), stand_in.dtype(), live)
    }

    /// What flows to each input when something flows into outputs on these inputs; none at all if there is no derivative.
    /// What flows into several outputs goes back together, or all that they share would be computed for each.
    pub fn vjp(&self, inputs: &[Tensor], given: &[OutputCotangent]) -> Result<Option<Vec<Option<Tensor>>>> {
        let by_rule = |of: &&OutputCotangent| of.output == 0 && self.rule.is_some();
        let ruled = given.iter().find(by_rule).map(|of| self.apply_custom_vjp(inputs, of)).transpose()?;
        let rest: Vec<&OutputCotangent> = given.iter().filter(|of| !by_rule(of)).collect();
        let derived = if rest.is_empty() { None } else { self.derived_vjp(inputs, &rest)? };
        Ok(match (ruled, derived) {
            (Some(ruled), Some(derived)) => {
                let both =
                    |(one, other): (Option<Tensor>, Option<Tensor>)| one.into_iter().chain(other).reduce(|a, b| a + b);
                Some(ruled.into_iter().zip(derived).map(both).collect())
            }
            (ruled, derived) => ruled.or(derived),
        })
    }

    /// What its author says flows back from the first output.
    fn apply_custom_vjp(
        &self,
        inputs: &[Tensor],
        OutputCotangent { tensor, cotangent: flow, .. }: &OutputCotangent,
    ) -> Result<Vec<Option<Tensor>>> {
        let rule = self.rule.as_ref().expect("it is asked of bodies with a rule");
        let flows = rule(inputs, tensor, flow);
        for (flow, input) in flows.iter().zip(inputs) {
            let Some(flow) = flow else { continue };
            flow.check()?;
            if (&flow.0.shape, flow.dtype()) != (&input.0.shape, input.dtype()) {
                let name = &self.call.name;
                return Err(Error::mistake(format!("gradient of {name}: {flow:?} does not fit its input {input:?}")));
            }
        }
        Ok(flows)
    }

    fn derived_vjp(&self, inputs: &[Tensor], given: &[&OutputCotangent]) -> Result<Option<Vec<Option<Tensor>>>> {
        let outputs: Vec<u32> = given.iter().map(|of| of.output).collect();
        let known = || self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().get(&outputs).cloned();
        // Derived without the lock: bodies call others.
        let flows = match found {
            Some(flows) => flows,
            None => {
                let derived = self.derive(&outputs)?.map(Arc::new);
                known().entry(outputs).or_insert(derived).clone()
            }
        };
        let Some(flows) = flows else { return Ok(None) };
        let given: Vec<&Tensor> = inputs.iter().chain(given.iter().map(|of| &of.cotangent)).collect();
        Ok(Some(flows.to.iter().map(|to| to.map(|output| flows.body.apply(&given, output))).collect()))
    }

    /// How `y`, an output on these inputs, moves when they do, none where one does not; none if there is no derivative.
    pub fn jvp(&self, output: u32, inputs: &[Tensor], y: &Tensor, moves: &[Option<Tensor>]) -> Result<Option<Tensor>> {
        if output == 0 && self.rule.is_some() {
            return self.linear_transpose(inputs, y, moves);
        }
        let which = (output, moves.iter().map(Option::is_some).collect::<Vec<bool>>());
        let known = || self.moves.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().get(&which).cloned();
        let body = match found {
            Some(body) => body,
            None => {
                let derived = self.derive_jvp(output, &which.1)?.map(Arc::new);
                known().entry(which).or_insert(derived).clone()
            }
        };
        let given: Vec<&Tensor> = inputs.iter().chain(moves.iter().flatten()).collect();
        Ok(body.map(|body| body.apply(&given, 0)))
    }

    fn derive_jvp(&self, output: u32, which: &[bool]) -> Result<Option<TracedBody>> {
        let moving: Vec<&Tensor> = self.inputs.iter().zip(which).filter(|(_, moves)| **moves).map(|(x, _)| x).collect();
        let numbered = moving.iter().zip(self.inputs.len() as u32..);
        let directions: Vec<Tensor> = numbered.map(|(input, n)| input.placeholder(n)).collect();
        let result = &self.outputs[output as usize];
        let Some(moved) = jvp(result, &moving, &directions.iter().collect::<Vec<&Tensor>>())?.tangent else {
            return Ok(None);
        };
        let inputs = self.inputs.iter().cloned().chain(directions).collect();
        let name = format!("derivative of {}", self.call.name);
        TracedBody::whole(&name, inputs, vec![moved], None).map(Some)
    }

    /// What its author says flows back is linear in what flows in, whatever that is: how the output moves is the transpose.
    fn linear_transpose(&self, inputs: &[Tensor], y: &Tensor, moves: &[Option<Tensor>]) -> Result<Option<Tensor>> {
        let g = y.zeros_like();
        let flows =
            self.apply_custom_vjp(inputs, &OutputCotangent { output: 0, tensor: y.clone(), cotangent: g.clone() })?;
        let mut sum: Option<Tensor> = None;
        for (flow, moved) in flows.iter().zip(moves) {
            let (Some(flow), Some(moved)) = (flow, moved) else { continue };
            let Vjp { cotangents: mut flows, non_differentiable: cut } = vjp(&[(flow, moved.clone())], &[&g])?;
            // What flows back whatever flows in is zero, and so is how the output moves.
            let term = flows.remove(0).or_else(|| cut.is_none().then(|| y.zeros_like()));
            sum = sum.into_iter().chain(term).reduce(|sum, term| sum + term);
        }
        Ok(sum)
    }

    /// An output of as many operations as the inputs have elements along one more axis in front, where it is made for that.
    pub fn batched_output(&self, output: u32, inputs: impl FnOnce() -> Vec<Tensor>) -> Option<Tensor> {
        self.again.as_ref().map(|again| again(&inputs()).swap_remove(output as usize))
    }

    /// The operation on many examples: `each` says which inputs have an axis for them in front.
    #[track_caller]
    pub fn batch(self: &Arc<TracedBody>, batch: VmapBatch, each: &[bool]) -> Result<Arc<TracedBody>> {
        let whole = |(n, input): (usize, &Tensor)| match each[n] {
            true => {
                let shape = batch.shape(&input.0.shape);
                Tensor::new(NodeKind::Input(n as u32), Vec::new(), shape, input.dtype(), None)
            }
            false => input.clone(),
        };
        let inputs: Vec<Tensor> = self.inputs.iter().enumerate().map(whole).collect();
        let outputs = batch.apply(zip_batched(&self.inputs, &inputs, each), &self.outputs);
        outputs.iter().try_for_each(|output| output.check())?;
        let rule = self.rule.is_some().then(|| {
            let (one, each) = (self.clone(), each.to_vec());
            Box::new(move |inputs: &[Tensor], y: &Tensor, g: &Tensor| one.batched_vjp(batch, &each, inputs, y, g))
                as CustomVjp
        });
        TracedBody::whole(&self.call.name, inputs, outputs, rule).map(Arc::new)
    }

    /// What its author says flows back for each of many examples; their sum to an input that is the same for all.
    #[track_caller]
    fn batched_vjp(
        &self,
        batch: VmapBatch,
        each: &[bool],
        inputs: &[Tensor],
        y: &Tensor,
        g: &Tensor,
    ) -> Vec<Option<Tensor>> {
        let rule = self.rule.as_ref().expect("it is asked of bodies with a rule");
        let one = |(input, each): (&Tensor, &bool)| if *each { input.single() } else { input.clone() };
        let (singles, single_y, single_g) =
            (inputs.iter().zip(each).map(one).collect::<Vec<_>>(), y.single(), g.single());
        let flows = rule(&singles, &single_y, &single_g);
        let given = zip_batched(&singles, inputs, each).chain([(&single_y, y.clone()), (&single_g, g.clone())]);
        let mut whole = batch.apply(given, &flows.iter().flatten().cloned().collect::<Vec<Tensor>>()).into_iter();
        let flow = |(flow, each): (&Option<Tensor>, &bool)| {
            let whole = flow.as_ref().and_then(|_| whole.next())?;
            Some(if *each { whole } else { whole.reduced(ReduceOp::Sum, vec![0]).squeeze(0) })
        };
        flows.iter().zip(each).map(flow).collect()
    }

    fn derive(&self, outputs: &[u32]) -> Result<Option<VjpPlan>> {
        let results = || outputs.iter().map(|output| &self.outputs[*output as usize]);
        let given: Vec<Tensor> =
            results().zip(self.inputs.len() as u32..).map(|(result, n)| result.placeholder(n)).collect();
        let wanted: Vec<&Tensor> = self.inputs.iter().collect();
        let into: Vec<(&Tensor, Tensor)> = results().zip(given.iter().cloned()).collect();
        let flows = vjp(&into, &wanted)?.cotangents;
        let mut outputs: Vec<Tensor> = Vec::new();
        let to = flows.into_iter().map(|flow| {
            let flow = flow?;
            let known = outputs.iter().position(|known| Arc::ptr_eq(&known.0, &flow.0));
            Some(known.unwrap_or_else(|| {
                outputs.push(flow);
                outputs.len() - 1
            }) as u32)
        });
        let to: Vec<Option<u32>> = to.collect();
        if outputs.is_empty() {
            return Ok(None);
        }
        let inputs = self.inputs.iter().cloned().chain(given).collect();
        let body = TracedBody::whole(&format!("gradient of {}", self.call.name), inputs, outputs, None)?;
        Ok(Some(VjpPlan { body: Arc::new(body), to }))
    }
}

impl Tensor {
    /// What a body is given in this tensor's place.
    #[track_caller]
    fn placeholder(&self, n: u32) -> Tensor {
        self.placeholder_with_dims(n, self.0.valid_lengths.clone())
    }

    /// The same, of which this much is there.
    #[track_caller]
    fn placeholder_with_dims(&self, n: u32, live: Option<Box<ValidLengths>>) -> Tensor {
        Tensor::with_valid_lengths(NodeKind::Input(n), Vec::new(), self.0.shape.clone(), self.dtype(), None, live)
    }
}

/// What stands for one example, with what stands for all, of the inputs that differ.
fn zip_batched<'a>(
    one: &'a [Tensor],
    whole: &'a [Tensor],
    each: &'a [bool],
) -> impl Iterator<Item = (&'a Tensor, Tensor)> {
    let pairs = one.iter().zip(whole).zip(each);
    pairs.filter(|(_, each)| **each).map(|((one, whole), _)| (one, whole.clone()))
}

fn lock() -> std::sync::MutexGuard<'static, WordMap<Key, Arc<TracedBody>>> {
    BODIES.lock().unwrap_or_else(PoisonError::into_inner)
}
