//! Composite operations, traced once and used as one node.
//!
//! `gelu` is ten primitives and a block of random numbers eight hundred. Building those nodes in every training step costs the host more than the
//! computation costs the device. Therefore [`Tensor::call`] runs the Rust expression once for each combination of shapes, element types and
//! settings, caches the graph, and returns one node that represents it. Planning inlines bodies in place of their calls, so fusion works across calls.
//!
//! A body is a function without captures: it depends only on its inputs and settings, which are the cache key. Its numbers are constants of the
//! graph. A number that changes from step to step (a learning rate, a seed) is an input, made with [`Tensor::scalar`]. Its VJP is a body as well,
//! derived on first use and cached beside it.
//!
//! A [`CompositeOp`] names the library routine that computes the same; on devices without that routine the body runs.

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

/// Maximum number of cached bodies in this process; when it is reached all are dropped and traced again on demand.
const CAPACITY: usize = 4096;

static BODIES: LazyLock<Mutex<WordMap<Key, Arc<TracedBody>>>> = LazyLock::new(Mutex::default);

/// Cache key of a body.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    name: &'static str,
    /// Addresses of the body and of its custom VJP, if any. The compiler may give equal functions the same address, so equal bodies with
    /// different VJPs must be distinguished.
    functions: (usize, Option<usize>),
    settings: Vec<u64>,
    inputs: Vec<(Shape, DType)>,
    ends: LengthPattern,
}

/// A composite operation, traced on placeholders for its inputs.
pub(crate) struct TracedBody {
    /// Placeholders for the inputs, then for the dynamic lengths of the inputs.
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    /// Number of inputs that the outputs depend on: all of them, or only those before the lengths.
    pub used_inputs: usize,
    /// Inputs that are lengths of dynamic dimensions, with their [`Dim`].
    pub length_inputs: Vec<(usize, Dim)>,
    /// The graph of the body.
    pub call: Arc<Call>,
    /// Cached VJPs by the outputs that have a cotangent; `None` if not differentiable.
    vjps: Mutex<HashMap<Vec<u32>, Option<Arc<VjpPlan>>>>,
    /// Cached JVPs: maps (inputs, input tangents) to the output tangent; `None` if not differentiable.
    jvps: Mutex<JvpCache>,
    /// Custom VJP of the first output.
    rule: Option<CustomVjp>,
    /// The operation on inputs with a leading batch axis, if it is defined for them.
    batched_body: Option<BatchedBody>,
}

/// Key: the output, and for each input whether it has a tangent.
type JvpCache = HashMap<(u32, Vec<bool>), Option<Arc<TracedBody>>>;

/// A custom VJP: maps the inputs, the output, the cotangent of the output and the settings to the gradients of the inputs. `None` for an
/// input without a gradient.
#[doc(alias = "backward")]
pub type VjpFn<S, const N: usize> = fn([&Tensor; N], &Tensor, &Tensor, &S) -> [Option<Tensor>; N];

/// The arguments of [`Tensor::call`] for an operation that a device can compute with a library routine.
pub(crate) struct CompositeOp<S, const N: usize, const M: usize> {
    /// Name in messages and profiles.
    pub name: &'static str,
    /// The operation as an expression.
    pub body: fn([&Tensor; N], &S) -> [Tensor; M],
    /// Custom VJP of the first output, where the derived one is not the best.
    pub gradient: Option<VjpFn<S, N>>,
    /// Returns the equivalent routine for these inputs, if there is one.
    pub routine: fn([&Tensor; N], &S) -> Option<Routine>,
}

impl<S: CallAttrs + Clone + Send + Sync + 'static, const N: usize, const M: usize> CompositeOp<S, N, M> {
    /// Returns the outputs on these inputs.
    #[track_caller]
    pub fn apply(&self, inputs: [&Tensor; N], settings: S) -> [Tensor; M] {
        self.traced(inputs, settings, false)
    }

    /// Returns the outputs. The operation also accepts inputs that all have a leading batch axis, which `vmap` uses.
    #[track_caller]
    pub fn apply_batched(&self, inputs: [&Tensor; N], settings: S) -> [Tensor; M] {
        self.traced(inputs, settings, true)
    }

    #[track_caller]
    fn traced(&self, inputs: [&Tensor; N], settings: S, in_batches: bool) -> [Tensor; M] {
        let CompositeOp { name, body, gradient, routine } = *self;
        let functions = (body as usize, gradient.map(|gradient| gradient as usize));
        let batched_body = || {
            let known = settings.clone();
            let operation = CompositeOp { name, body, gradient, routine };
            let batched = move |inputs: &[Tensor]| {
                operation.apply_batched(std::array::from_fn(|n| &inputs[n]), known.clone()).into()
            };
            Box::new(batched) as BatchedBody
        };
        let run = |placeholders: &[Tensor]| {
            let placeholders = std::array::from_fn(|n| &placeholders[n]);
            let (outputs, routine) = (body(placeholders, &settings).into(), routine(placeholders, &settings));
            TraceResult { outputs, routine, batched_body: in_batches.then(batched_body) }
        };
        let rule = gradient.map(|gradient| rule(gradient, &settings));
        match TracedBody::of(name, functions, &settings, &inputs, &run, rule) {
            Ok(body) => std::array::from_fn(|output| body.apply(&inputs, output as u32)),
            Err(mistake) => std::array::from_fn(|_| mistake.clone()),
        }
    }
}

/// Maps inputs that all have a leading batch axis to the outputs.
type BatchedBody = Box<dyn Fn(&[Tensor]) -> Vec<Tensor> + Send + Sync>;

/// Result of tracing a body on placeholders.
pub(crate) struct TraceResult {
    /// The outputs.
    pub outputs: Vec<Tensor>,
    /// The equivalent routine, if any.
    pub routine: Option<Routine>,
    /// The operation on inputs with a leading batch axis, if it is defined for them.
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

/// A [`VjpFn`] with its settings bound.
type CustomVjp = Box<dyn Fn(&[Tensor], &Tensor, &Tensor) -> Vec<Option<Tensor>> + Send + Sync>;

/// An output of a call, with its cotangent.
pub(crate) struct OutputCotangent {
    /// Index of the output.
    pub output: u32,
    pub tensor: Tensor,
    pub cotangent: Tensor,
}

/// The derived VJP of a set of outputs.
struct VjpPlan {
    /// Maps (inputs, output cotangents) to the gradients of some inputs.
    body: Arc<TracedBody>,
    /// For each input the index of its gradient among the body's outputs; `None` if its gradient is zero.
    to: Vec<Option<u32>>,
}

impl Tensor {
    /// Applies a composite operation: `body` of these inputs, traced once for each combination of shapes, element types and settings.
    /// Numbers in the body are constants of the program; a number that changes from step to step must be an input.
    ///
    /// ```
    /// # use panoply_tensor::Tensor;
    /// fn silu(x: &Tensor) -> Tensor {
    ///     Tensor::call("silu", [x], (), |[x], ()| x * x.sigmoid())
    /// }
    /// assert_eq!(silu(&Tensor::from_slice(&[0.0f32], [1])).to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    #[doc(alias = "custom_op")]
    #[track_caller]
    pub fn call<S: CallAttrs, const N: usize>(
        name: &'static str,
        inputs: [&Tensor; N],
        settings: S,
        body: fn([&Tensor; N], &S) -> Tensor,
    ) -> Tensor {
        let run = |placeholders: &[Tensor]| vec![body(std::array::from_fn(|n| &placeholders[n]), &settings)].into();
        match TracedBody::of(name, (body as usize, None), &settings, &inputs, &run, None) {
            Ok(body) => body.apply(&inputs, 0),
            Err(mistake) => mistake,
        }
    }

    /// [`Tensor::call`] with a custom VJP: `gradient` maps the inputs, the output and the output cotangent to the gradients of the inputs,
    /// in their shapes. It returns `None` for an input without a gradient. A custom kernel gets its gradient this way.
    #[doc(alias = "Function")]
    #[doc(alias = "custom_vjp")]
    #[track_caller]
    pub fn call_with_vjp<S: CallAttrs + Clone + Send + Sync + 'static, const N: usize>(
        name: &'static str,
        inputs: [&Tensor; N],
        settings: S,
        body: fn([&Tensor; N], &S) -> Tensor,
        gradient: VjpFn<S, N>,
    ) -> Tensor {
        let run = |placeholders: &[Tensor]| vec![body(std::array::from_fn(|n| &placeholders[n]), &settings)].into();
        let rule = rule(gradient, &settings);
        match TracedBody::of(name, (body as usize, Some(gradient as usize)), &settings, &inputs, &run, Some(rule)) {
            Ok(body) => body.apply(&inputs, 0),
            Err(mistake) => mistake,
        }
    }

    /// Applies [`Tensor::call_with_vjp`] to one tensor. For f16 and bf16 both functions compute in f32, and the result is rounded once.
    #[track_caller]
    pub(crate) fn call_in_f32(
        &self,
        name: &'static str,
        body: fn([&Tensor; 1], &()) -> Tensor,
        gradient: VjpFn<(), 1>,
    ) -> Tensor {
        Tensor::call_with_vjp(name, [&self.widened()], (), body, gradient).cast(self.dtype())
    }

    /// [`Tensor::call`] with M results.
    #[track_caller]
    pub fn call_multi<S: CallAttrs, const N: usize, const M: usize>(
        name: &'static str,
        inputs: [&Tensor; N],
        settings: S,
        body: fn([&Tensor; N], &S) -> [Tensor; M],
    ) -> [Tensor; M] {
        let run = |args: &[Tensor]| Vec::from(body(std::array::from_fn(|n| &args[n]), &settings)).into();
        match TracedBody::of(name, (body as usize, None), &settings, &inputs, &run, None) {
            Ok(body) => std::array::from_fn(|output| body.apply(&inputs, output as u32)),
            Err(mistake) => std::array::from_fn(|_| mistake.clone()),
        }
    }

    /// [`Tensor::call_with_vjp`] with a number of inputs known only at run time.
    #[track_caller]
    pub(crate) fn call_dyn_with_vjp<S: CallAttrs + Clone + Send + Sync + 'static>(
        name: &'static str,
        inputs: &[&Tensor],
        settings: S,
        body: fn(&[Tensor], &S) -> Tensor,
        gradient: fn(&[Tensor], &Tensor, &S) -> Vec<Option<Tensor>>,
    ) -> Tensor {
        let run = |placeholders: &[Tensor]| vec![body(placeholders, &settings)].into();
        let (known, own) = (settings.clone(), inputs.len());
        let rule: CustomVjp = Box::new(move |inputs, _, g| gradient(&inputs[..own], g, &known));
        match TracedBody::of(name, (body as usize, Some(gradient as usize)), &settings, inputs, &run, Some(rule)) {
            Ok(body) => body.apply(inputs, 0),
            Err(mistake) => mistake,
        }
    }

    /// [`Tensor::call_multi`] with numbers of inputs and results known only at run time.
    ///
    /// # Errors
    /// The mistake of an input or of the body.
    #[track_caller]
    pub fn call_dyn<S: CallAttrs>(
        name: &'static str,
        inputs: &[&Tensor],
        settings: S,
        body: fn(&[Tensor], &S) -> Vec<Tensor>,
    ) -> Result<Vec<Tensor>> {
        let run = |placeholders: &[Tensor]| body(placeholders, &settings).into();
        match TracedBody::of(name, (body as usize, None), &settings, inputs, &run, None) {
            Ok(body) => Ok((0..body.outputs.len()).map(|output| body.apply(inputs, output as u32)).collect()),
            Err(mistake) => mistake.check().map(|()| vec![mistake]),
        }
    }
}

impl TracedBody {
    /// Returns the body for inputs of these shapes and types, traced if it is not cached; on error a tensor that carries the mistake.
    #[track_caller]
    pub fn of(
        name: &'static str,
        functions: (usize, Option<usize>),
        settings: &dyn CallAttrs,
        inputs: &[&Tensor],
        run: &dyn Fn(&[Tensor]) -> TraceResult,
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
        let mut placeholders: Vec<Tensor> = Vec::with_capacity(inputs.len() + lengths.len());
        for (n, input) in inputs.iter().enumerate() {
            let valid_lengths = key.ends.get(n).and_then(|ends| ValidLengths::bind_placeholder(ends, &lengths));
            placeholders.push(input.placeholder_with_dims(n as u32, valid_lengths));
        }
        let traced = run(&placeholders);
        placeholders.extend(lengths);
        if let Some(error) = traced.outputs.iter().find_map(|output| output.check().err()) {
            return Err(Tensor::mistake(error.relocated(Location::caller())));
        }
        let body = match TracedBody::new(name, placeholders, inputs.len(), traced, rule) {
            Ok(body) => Arc::new(body),
            Err(error) => return Err(Tensor::mistake(error)),
        };
        let mut bodies = lock();
        if bodies.len() >= CAPACITY {
            bodies.clear();
        }
        Ok(bodies.entry(key).or_insert(body).clone())
    }

    /// Creates a body from its trace. The first `own` placeholders are inputs, the rest are lengths of dynamic dimensions.
    ///
    /// A routine does not read lengths. It computes the same where the body reads none, because padding never mixes with valid elements.
    /// Strides and paddings that no routine supports are left to the body.
    fn new(
        name: &str,
        inputs: Vec<Tensor>,
        own: usize,
        traced: TraceResult,
        rule: Option<CustomVjp>,
    ) -> Result<TracedBody> {
        let TraceResult { outputs, routine, batched_body } = traced;
        let lengths = lengths(&outputs);
        if let Some(made) = lengths.iter().find(|length| !inputs.iter().any(|input| input.ptr_eq(length))) {
            return Err(Error::mistake(format!(
                "{name}: its body computes a dynamic length, {made:?}; pass it as an input"
            )));
        }
        let graph = describe(name, &outputs)?;
        let has_lengths = graph.nodes.iter().any(|node| matches!(node.op, Op::Input(n) if n as usize >= own));
        let used_inputs = if has_lengths { inputs.len() } else { own };
        let call = Arc::new(Call::with_routine(
            name,
            graph,
            routine.filter(|routine| !has_lengths && routine.check().is_ok()),
        ));
        let length_inputs = measured(&outputs, &inputs[..own]);
        Ok(TracedBody {
            inputs,
            outputs,
            used_inputs,
            length_inputs,
            call,
            vjps: Mutex::default(),
            jvps: Mutex::default(),
            rule,
            batched_body,
        })
    }

    /// Creates a body whose placeholders are all inputs.
    fn whole(name: &str, inputs: Vec<Tensor>, outputs: Vec<Tensor>, rule: Option<CustomVjp>) -> Result<TracedBody> {
        let own = inputs.len();
        TracedBody::new(name, inputs, own, outputs.into(), rule)
    }

    /// Returns an output of the operation on these inputs.
    #[track_caller]
    pub fn apply(self: &Arc<TracedBody>, inputs: &[&Tensor], output: u32) -> Tensor {
        let placeholder = &self.outputs[output as usize];
        let source = NodeKind::Call(self.clone(), output);
        if let Err(error) = check_lengths(&self.length_inputs, |at| inputs[at]) {
            return Tensor::mistake(error);
        }
        if inputs.len() == self.inputs.len() && placeholder.0.valid_lengths.is_none() {
            return Tensor::step(source, inputs, placeholder.0.shape.clone(), placeholder.dtype(), None);
        }
        let lengths = if inputs.len() < self.inputs.len() { lengths(inputs.iter().copied()) } else { Vec::new() };
        let given: Vec<&Tensor> = inputs.iter().copied().chain(&lengths).collect();
        let length = |own: &Tensor| {
            let at = self.inputs.iter().position(|input| input.ptr_eq(own));
            given[at.expect("every length of an output is an input")].clone()
        };
        let valid_lengths =
            placeholder.0.valid_lengths.as_ref().and_then(|valid_lengths| valid_lengths.map_lengths(length));
        Tensor::step(source, &given, placeholder.0.shape.clone(), placeholder.dtype(), valid_lengths)
    }

    /// Returns the gradient of each input given the cotangents of some outputs; `None` if not differentiable. Cotangents of several outputs
    /// are propagated together, so that shared nodes are computed once.
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

    /// Applies the custom VJP of the first output.
    fn apply_custom_vjp(
        &self,
        inputs: &[Tensor],
        OutputCotangent { tensor, cotangent, .. }: &OutputCotangent,
    ) -> Result<Vec<Option<Tensor>>> {
        let rule = self.rule.as_ref().expect("the body has a custom VJP");
        let grads = rule(inputs, tensor, cotangent);
        for (grad, input) in grads.iter().zip(inputs) {
            let Some(grad) = grad else { continue };
            grad.check()?;
            if (&grad.0.shape, grad.dtype()) != (&input.0.shape, input.dtype()) {
                let name = &self.call.name;
                return Err(Error::mistake(format!("gradient of {name}: {grad:?} does not match its input {input:?}")));
            }
        }
        Ok(grads)
    }

    fn derived_vjp(&self, inputs: &[Tensor], given: &[&OutputCotangent]) -> Result<Option<Vec<Option<Tensor>>>> {
        let outputs: Vec<u32> = given.iter().map(|of| of.output).collect();
        let known = || self.vjps.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().get(&outputs).cloned();
        // Derived without the lock: bodies call others.
        let plan = match found {
            Some(plan) => plan,
            None => {
                let derived = self.derive(&outputs)?.map(Arc::new);
                known().entry(outputs).or_insert(derived).clone()
            }
        };
        let Some(plan) = plan else { return Ok(None) };
        let given: Vec<&Tensor> = inputs.iter().chain(given.iter().map(|of| &of.cotangent)).collect();
        Ok(Some(plan.to.iter().map(|to| to.map(|output| plan.body.apply(&given, output))).collect()))
    }

    /// Returns the tangent of `y`, the `nth` output on these inputs; `None` if not differentiable. An input without a tangent is `None`.
    pub fn jvp(&self, nth: u32, inputs: &[Tensor], y: &Tensor, tangents: &[Option<Tensor>]) -> Result<Option<Tensor>> {
        if nth == 0 && self.rule.is_some() {
            return self.linear_transpose(inputs, y, tangents);
        }
        let which = (nth, tangents.iter().map(Option::is_some).collect::<Vec<bool>>());
        let known = || self.jvps.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().get(&which).cloned();
        let body = match found {
            Some(body) => body,
            None => {
                let derived = self.derive_jvp(nth, &which.1)?.map(Arc::new);
                known().entry(which).or_insert(derived).clone()
            }
        };
        let given: Vec<&Tensor> = inputs.iter().chain(tangents.iter().flatten()).collect();
        Ok(body.map(|body| body.apply(&given, 0)))
    }

    fn derive_jvp(&self, output: u32, which: &[bool]) -> Result<Option<TracedBody>> {
        let with_tangent: Vec<&Tensor> =
            self.inputs.iter().zip(which).filter(|(_, has_tangent)| **has_tangent).map(|(x, _)| x).collect();
        let numbered = with_tangent.iter().zip(self.inputs.len() as u32..);
        let tangents: Vec<Tensor> = numbered.map(|(input, n)| input.placeholder(n)).collect();
        let result = &self.outputs[output as usize];
        let Some(tangent) = jvp(result, &with_tangent, &tangents.iter().collect::<Vec<&Tensor>>())?.tangent else {
            return Ok(None);
        };
        let inputs = self.inputs.iter().cloned().chain(tangents).collect();
        let name = format!("derivative of {}", self.call.name);
        TracedBody::whole(&name, inputs, vec![tangent], None).map(Some)
    }

    /// Returns the JVP from the custom VJP. The VJP is linear in the cotangent, so the JVP is its transpose.
    fn linear_transpose(&self, inputs: &[Tensor], y: &Tensor, tangents: &[Option<Tensor>]) -> Result<Option<Tensor>> {
        let g = y.zeros_like();
        let grads =
            self.apply_custom_vjp(inputs, &OutputCotangent { output: 0, tensor: y.clone(), cotangent: g.clone() })?;
        let mut sum: Option<Tensor> = None;
        for (grad, tangent) in grads.iter().zip(tangents) {
            let (Some(grad), Some(tangent)) = (grad, tangent) else { continue };
            let Vjp { mut cotangents, non_differentiable: cut } = vjp(&[(grad, tangent.clone())], &[&g])?;
            // The VJP is identically zero, hence so is the JVP.
            let term = cotangents.remove(0).or_else(|| cut.is_none().then(|| y.zeros_like()));
            sum = sum.into_iter().chain(term).reduce(|sum, term| sum + term);
        }
        Ok(sum)
    }

    /// Returns an output for a whole batch if the operation accepts inputs with a leading batch axis.
    pub fn batched_output(&self, output: u32, inputs: impl FnOnce() -> Vec<Tensor>) -> Option<Tensor> {
        self.batched_body.as_ref().map(|batched_body| batched_body(&inputs()).swap_remove(output as usize))
    }

    /// Returns the operation for a batch; `each` marks the inputs that have a leading batch axis.
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

    /// Applies the custom VJP to each example of a batch; the gradient of an input that is shared by all examples is summed.
    #[track_caller]
    fn batched_vjp(
        &self,
        batch: VmapBatch,
        each: &[bool],
        inputs: &[Tensor],
        y: &Tensor,
        g: &Tensor,
    ) -> Vec<Option<Tensor>> {
        let rule = self.rule.as_ref().expect("the body has a custom VJP");
        let one = |(input, each): (&Tensor, &bool)| if *each { input.single() } else { input.clone() };
        let (singles, single_y, single_g) =
            (inputs.iter().zip(each).map(one).collect::<Vec<_>>(), y.single(), g.single());
        let grads = rule(&singles, &single_y, &single_g);
        let given = zip_batched(&singles, inputs, each).chain([(&single_y, y.clone()), (&single_g, g.clone())]);
        let mut whole = batch.apply(given, &grads.iter().flatten().cloned().collect::<Vec<Tensor>>()).into_iter();
        let sum_shared = |(grad, each): (&Option<Tensor>, &bool)| {
            let whole = grad.as_ref().and_then(|_| whole.next())?;
            Some(if *each { whole } else { whole.reduced(ReduceOp::Sum, vec![0]).squeeze(0) })
        };
        grads.iter().zip(each).map(sum_shared).collect()
    }

    fn derive(&self, outputs: &[u32]) -> Result<Option<VjpPlan>> {
        let results = || outputs.iter().map(|output| &self.outputs[*output as usize]);
        let given: Vec<Tensor> =
            results().zip(self.inputs.len() as u32..).map(|(result, n)| result.placeholder(n)).collect();
        let wanted: Vec<&Tensor> = self.inputs.iter().collect();
        let into: Vec<(&Tensor, Tensor)> = results().zip(given.iter().cloned()).collect();
        let cotangents = vjp(&into, &wanted)?.cotangents;
        let mut outputs: Vec<Tensor> = Vec::new();
        let to = cotangents.into_iter().map(|cotangent| {
            let cotangent = cotangent?;
            let known = outputs.iter().position(|known| Arc::ptr_eq(&known.0, &cotangent.0));
            Some(known.unwrap_or_else(|| {
                outputs.push(cotangent);
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
    /// Creates the placeholder of this tensor with input index `n`.
    #[track_caller]
    fn placeholder(&self, n: u32) -> Tensor {
        self.placeholder_with_dims(n, self.0.valid_lengths.clone())
    }

    /// Like [`Tensor::placeholder`], with these valid lengths.
    #[track_caller]
    fn placeholder_with_dims(&self, n: u32, lengths: Option<Box<ValidLengths>>) -> Tensor {
        Tensor::with_valid_lengths(NodeKind::Input(n), Vec::new(), self.0.shape.clone(), self.dtype(), None, lengths)
    }
}

/// Pairs placeholders for one example with tensors for the batch, of the inputs with a batch axis.
fn zip_batched<'a>(
    one: &'a [Tensor],
    whole: &'a [Tensor],
    each: &'a [bool],
) -> impl Iterator<Item = (&'a Tensor, Tensor)> {
    one.iter().zip(whole).zip(each).filter(|(_, each)| **each).map(|((one, whole), _)| (one, whole.clone()))
}

fn lock() -> std::sync::MutexGuard<'static, WordMap<Key, Arc<TracedBody>>> {
    BODIES.lock().unwrap_or_else(PoisonError::into_inner)
}
