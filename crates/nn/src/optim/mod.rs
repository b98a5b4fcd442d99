//! Optimizers, learning-rate schedules, loss scaling and model averaging.
//!
//! An [`UpdateRule`] updates one parameter. [`Optimizer`] does the rest for all rules: gradients, accumulation, clipping, state by dotted
//! name, one evaluation of loss, parameters and state together, and the commit. A step is applied entirely or not at all. Learning rate and
//! step count are inputs of the compiled plan, so an [`LrSchedule`] does not cause recompilation.

mod adagrad;
mod adam;
mod averaged_model;
mod donated_step;
mod grad_clip;
mod grad_scaler;
mod lion;
mod lr_schedule;
mod rmsprop;
mod sgd;
mod split_step;
mod step_signals;

use std::collections::BTreeMap;

use panoply_tensor::{DType, Device, Error, MemoryPlan, Result, Tensor, eval};

pub use adagrad::AdagradRule;
pub use adam::{AdamParams, AdamRule, AdamWRule};
pub use averaged_model::AveragedModel;
pub use grad_clip::GradClip;
pub use grad_scaler::GradScaler;
pub use lion::LionRule;
pub use lr_schedule::{LrSchedule, LrScheduler, ReduceLrOnPlateau};
pub use rmsprop::RmsPropRule;
pub use sgd::SgdRule;

use donated_step::{AppliedStep, UpdatedParam};
use grad_clip::ClippedGrads;
use step_signals::{Checked, StepSignals};

use crate::layer::{ForwardContext, StateUpdate};
use crate::module::{Module, ParamVisitor};
use crate::readback::{WaitMode, finished};

/// The Adam optimizer.
pub type Adam = Optimizer<AdamRule>;
/// The AdamW optimizer: Adam with decoupled weight decay.
pub type AdamW = Optimizer<AdamWRule>;
/// Stochastic gradient descent with momentum.
pub type Sgd = Optimizer<SgdRule>;
/// The RMSprop optimizer.
pub type RmsProp = Optimizer<RmsPropRule>;
/// The Adagrad optimizer.
pub type Adagrad = Optimizer<AdagradRule>;
/// The Lion optimizer.
pub type Lion = Optimizer<LionRule>;

/// The update of one parameter.
pub trait UpdateRule {
    /// Checks the settings of the rule before every step.
    ///
    /// # Errors
    /// If a setting is out of range or needs another one.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the parameter and its optimizer state after a step, from its value and gradient of the same shape. `state` is empty before
    /// the first step.
    fn update(
        &self,
        value: &Tensor,
        gradient: &Tensor,
        state: &[Tensor],
        step: &UpdateContext,
    ) -> (Tensor, Vec<Tensor>);
}

impl UpdateRule for Box<dyn UpdateRule> {
    fn check(&self) -> Result<()> {
        (**self).check()
    }

    fn update(
        &self,
        value: &Tensor,
        gradient: &Tensor,
        state: &[Tensor],
        step: &UpdateContext,
    ) -> (Tensor, Vec<Tensor>) {
        (**self).update(value, gradient, state, step)
    }
}

/// Settings of a step that a rule receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateContext {
    /// Learning rate.
    pub lr: f64,
    /// Number of the step, counted from 1.
    pub step: u64,
    /// True if weight decay applies to this parameter.
    pub apply_weight_decay: bool,
}

impl UpdateContext {
    /// Returns the weight decay, or 0 if it does not apply to this parameter.
    pub fn weight_decay(&self, weight_decay: f64) -> f64 {
        if self.apply_weight_decay { weight_decay } else { 0.0 }
    }
}

/// Parameters with separate settings, selected by dotted name and value.
#[derive(Clone, Copy, Debug)]
pub struct ParamGroup {
    /// Returns true for a parameter of the group. A parameter belongs to the first group that accepts it.
    pub filter: fn(&str, &Tensor) -> bool,
    /// Factor of the learning rate.
    pub lr_scale: f64,
    /// True if weight decay applies.
    pub apply_weight_decay: bool,
}

impl ParamGroup {
    /// Creates a group of the parameters that `filter` accepts, by dotted name and value, with the optimizer's own settings.
    pub fn new(filter: fn(&str, &Tensor) -> bool) -> ParamGroup {
        ParamGroup { filter, lr_scale: 1.0, apply_weight_decay: true }
    }

    /// Sets the factor of the learning rate.
    #[must_use]
    pub fn lr_scale(mut self, lr_scale: f64) -> ParamGroup {
        self.lr_scale = lr_scale;
        self
    }

    /// Excludes the group from weight decay.
    #[must_use]
    pub fn no_weight_decay(mut self) -> ParamGroup {
        self.apply_weight_decay = false;
        self
    }
}

/// An update rule with its settings and its state for a model.
#[derive(Clone, Debug)]
pub struct Optimizer<R> {
    /// Update rule with its settings.
    pub rule: R,
    /// Learning rate; it can change at any time.
    pub learning_rate: f64,
    /// Gradient clipping; `None` for none.
    pub grad_clip: Option<GradClip>,
    /// Parameter groups; other parameters have the plain learning rate and weight decay.
    pub param_groups: Vec<ParamGroup>,
    /// Number of steps made.
    pub steps: u64,
    /// Optimizer state of each parameter, by dotted name.
    pub state: BTreeMap<String, Vec<Tensor>>,
    /// Gradients from [`Optimizer::accumulate`] for the next step, by dotted name.
    pub accumulated_grads: BTreeMap<String, Tensor>,
    /// True if an accumulated micro-batch overflowed, so that the next step is skipped.
    pub overflowed: bool,
    /// Loss scaling, which f16 needs.
    pub grad_scaler: Option<GradScaler>,
    /// The first contradiction between settings, which every step reports.
    conflict: Option<Error>,
}

/// A step before its evaluation.
struct StepPlan {
    /// Updated parameters, in order.
    next: Vec<UpdatedParam>,
    /// One scalar per gradient, then one per updated float buffer: finite iff the tensor is.
    grad_finite: Vec<Tensor>,
    /// `[2]`: the loss, and a number that is finite iff all gradients and updated buffers are.
    report: Tensor,
}

impl<R: UpdateRule> Optimizer<R> {
    /// Creates an optimizer without state.
    pub fn from_rule(rule: R, learning_rate: f64) -> Optimizer<R> {
        Optimizer {
            rule,
            learning_rate,
            grad_clip: None,
            param_groups: Vec::new(),
            steps: 0,
            state: BTreeMap::new(),
            accumulated_grads: BTreeMap::new(),
            overflowed: false,
            grad_scaler: None,
            conflict: None,
        }
    }

    /// Returns the optimizer with a boxed rule, which is one type for rules chosen at run time.
    pub fn boxed(self) -> Optimizer<Box<dyn UpdateRule>>
    where
        R: 'static,
    {
        let Optimizer {
            rule,
            learning_rate,
            grad_clip,
            param_groups,
            steps,
            state,
            accumulated_grads,
            overflowed,
            grad_scaler,
            conflict,
        } = self;
        Optimizer {
            rule: Box::new(rule),
            learning_rate,
            grad_clip,
            param_groups,
            steps,
            state,
            accumulated_grads,
            overflowed,
            grad_scaler,
            conflict,
        }
    }

    /// Adds a parameter group, such as `ParamGroup::new(|name, _| name.starts_with("head")).lr_scale(0.1)`.
    #[doc(alias = "add_param_group")]
    #[must_use]
    pub fn param_group(mut self, group: ParamGroup) -> Optimizer<R> {
        self.param_groups.push(group);
        self
    }

    /// Excludes biases and norm parameters (those with one axis) from weight decay.
    #[must_use]
    pub fn exclude_1d_from_weight_decay(self) -> Optimizer<R> {
        let is_1d = |_: &str, value: &Tensor| value.shape().is_ok_and(|shape| shape.ndim() < 2);
        self.param_group(ParamGroup::new(is_1d).no_weight_decay())
    }

    /// Enables loss scaling, starting from this state.
    #[must_use]
    pub fn grad_scaler(mut self, scaler: GradScaler) -> Optimizer<R> {
        self.grad_scaler = Some(scaler);
        self
    }

    /// Fails if the settings contradict each other, or one is out of range.
    fn check_settings(&self) -> Result<()> {
        if let Some(conflict) = &self.conflict {
            return Err(conflict.clone());
        }
        if !(self.learning_rate.is_finite() && self.learning_rate >= 0.0) {
            let message =
                format!("the learning rate is {}; it must be a finite number of at least 0", self.learning_rate);
            return Err(Error::mistake(message));
        }
        if let Some(GradClip::Norm(limit) | GradClip::Value(limit)) = self.grad_clip
            && (limit.is_nan() || limit <= 0.0)
        {
            return Err(Error::mistake(format!("the limit of gradient clipping is {limit}; it must be above 0")));
        }
        self.rule.check()
    }

    /// Adds the gradients of a micro-batch to those of the next step (gradient accumulation) and returns the loss. Parameters are
    /// unchanged; buffers, such as running statistics, are updated. Divide the loss by the number of micro-batches for a step along
    /// the mean gradient. With loss scaling, an overflow in one micro-batch skips the whole step.
    ///
    /// # Errors
    /// If the pass does not fit the model, or the loss or, without loss scaling, a gradient is not finite. Nothing has changed then.
    pub fn accumulate(&mut self, model: &mut dyn Module, loss: &Tensor, pass: ForwardContext<'_>) -> Result<f64> {
        self.check_settings()?;
        let trained = trainable_params(model, &pass)?;
        loss.check().map_err(|error| pass.with_path(model, error))?;
        ensure_evaluated(&trained, loss)?;
        if self.overflowed {
            return self.check_loss(loss.cast(DType::F32).sum(..).item()?);
        }
        let gradients = &self.gradients(&trained, loss)?;
        let states = pass.float_states(model);
        let finite_checks: Vec<Tensor> = gradients.iter().chain(states.iter().map(|(_, next)| next)).cloned().collect();
        let StepSignals { report, grad_finite, .. } = StepSignals::of(loss, &finite_checks)?;
        let mut roots = vec![&report];
        roots.extend(gradients.iter().chain(&grad_finite).chain(pass.roots()));
        eval(&roots)?;
        let checked = Checked::of(&trained, &states);
        let StepOutcome { loss: value, applied } =
            finished(self.check_finite(WaitMode::Blocking, &report, &checked, &grad_finite))?;
        if !applied {
            self.accumulated_grads.clear();
            self.overflowed = true;
            return Ok(value);
        }
        StateUpdate::commit(&pass.into_updates(), model)?;
        let detached = trained.into_iter().zip(gradients).map(|((name, _), gradient)| (name, gradient.detach()));
        self.accumulated_grads.extend(detached);
        Ok(value)
    }

    /// Makes one optimizer step and returns the loss. With loss scaling, a step whose gradients overflow is skipped with all its
    /// micro-batches and counted ([`GradScaler::skipped_steps`]), and the scale is reduced.
    ///
    /// A skipped step replaces the parameters by equal tensors, so a loss that was built before must be built again. If a device fails
    /// during a step, the buffers that it was writing are lost.
    ///
    /// The loss is consumed, so that parameters and optimizer state are updated in place: keep no other handle of it, or of a tensor that
    /// it depends on. Parameters that such a handle or a clone of the model holds are in memory twice during the step.
    ///
    /// # Errors
    /// If the pass does not fit the model, the settings contradict each other, or the loss or, without loss scaling, a gradient is not
    /// finite. Nothing has changed then.
    pub fn step(&mut self, model: &mut dyn Module, loss: Tensor, pass: ForwardContext<'_>) -> Result<f64> {
        finished(self.step_by(WaitMode::Blocking, model, loss, pass))
    }

    /// Makes an optimizer step as [`Optimizer::step`] does and keeps the graph of the loss, so that it can be differentiated again, as
    /// PyTorch's `retain_graph` does. The graph holds the old parameters: they are in memory twice until the loss is dropped.
    ///
    /// # Errors
    /// As for [`Optimizer::step`].
    #[doc(alias = "retain_graph")]
    pub fn step_keeping_graph(
        &mut self,
        model: &mut dyn Module,
        loss: &Tensor,
        pass: ForwardContext<'_>,
    ) -> Result<f64> {
        self.step(model, loss.clone(), pass)
    }

    /// [`Optimizer::step`] without blocking, as browsers require. If the future is dropped early, the parameters can be updated without the
    /// step being counted.
    ///
    /// # Errors
    /// As for [`Optimizer::step`].
    pub async fn step_async(&mut self, model: &mut dyn Module, loss: Tensor, pass: ForwardContext<'_>) -> Result<f64> {
        self.step_by(WaitMode::Async, model, loss, pass).await
    }

    async fn step_by(
        &mut self,
        wait_mode: WaitMode,
        model: &mut dyn Module,
        loss: Tensor,
        pass: ForwardContext<'_>,
    ) -> Result<f64> {
        self.check_settings()?;
        let trained = trainable_params(model, &pass)?;
        loss.check().map_err(|error| pass.with_path(model, error))?;
        let is_evaluated_here = ensure_evaluated(&trained, &loss)?;
        let gradients = if self.overflowed { Vec::new() } else { self.gradients(&trained, &loss)? };
        if is_evaluated_here && self.steps == 0 {
            // The memory that the evaluation of the initial parameters used is not needed again.
            loss.device().cloned().map_or_else(Device::current, Ok)?.trim_memory();
        }
        self.apply(wait_mode, model, trained, (loss, gradients), pass).await
    }

    /// Makes a step with these gradients, or skips it if an accumulated micro-batch overflowed.
    async fn apply(
        &mut self,
        wait_mode: WaitMode,
        model: &mut dyn Module,
        trained: Vec<(String, Tensor)>,
        (loss, gradients): (Tensor, Vec<Tensor>),
        pass: ForwardContext<'_>,
    ) -> Result<f64> {
        if self.overflowed {
            let value = self.check_loss(wait_mode.number(&loss.cast(DType::F32).sum(..)).await?)?;
            self.overflowed = false;
            return Ok(value);
        }
        let states = pass.float_states(model);
        let checked = Checked::of(&trained, &states);
        let planned = self.plan(&trained, (&loss, gradients), states.into_iter().map(|(_, next)| next))?;
        // Another reference would prevent the donation of the parameters' buffers.
        drop(loss);
        let values: Vec<Tensor> = trained.into_iter().map(|(_, value)| value).collect();
        let mut updates = pass.into_updates();
        let AppliedStep { report, grad_finite, new_state } =
            self.evaluate_step(model, (&checked.params, values), planned, &mut updates)?;
        let StepOutcome { loss, applied } = self.check_finite(wait_mode, &report, &checked, &grad_finite).await?;
        if applied {
            StateUpdate::commit(&updates, model)?;
            self.state.extend(new_state);
            self.steps += 1;
        }
        self.accumulated_grads.clear();
        Ok(loss)
    }

    /// Returns the device memory that [`Optimizer::step`] would need if nothing else held the parameters.
    /// Evaluates the parameters if they are not yet evaluated; nothing else runs.
    ///
    /// # Errors
    /// If the pass does not fit the model, or planning fails.
    pub fn memory_plan(&self, model: &dyn Module, loss: &Tensor, pass: &ForwardContext<'_>) -> Result<MemoryPlan> {
        let trained = trainable_params(model, pass)?;
        loss.check().map_err(|error| pass.with_path(model, error))?;
        ensure_evaluated(&trained, loss)?;
        let states = pass.float_states(model).into_iter().map(|(_, next)| next);
        let StepPlan { next, grad_finite, report } =
            self.plan(&trained, (loss, self.gradients(&trained, loss)?), states)?;
        let mut old: Vec<&Tensor> = trained.iter().map(|(_, value)| value).collect();
        let replaced = trained.iter().zip(&next).filter(|(_, next)| next.replaces_state);
        old.extend(replaced.filter_map(|((name, _), _)| self.state.get(name)).flatten());
        let mut roots = vec![&report];
        roots.extend(&grad_finite);
        roots.extend(next.iter().map(|next| &next.value));
        roots.extend(next.iter().flat_map(|next| &next.state));
        roots.extend(pass.roots());
        MemoryPlan::for_eval_donated(&old, &roots)
    }

    /// Builds the graph of a step: clipped gradients, updated parameters and state, and the checks for finite values. Nothing is evaluated.
    fn plan(
        &self,
        trained: &[(String, Tensor)],
        (loss, gradients): (&Tensor, Vec<Tensor>),
        states: impl Iterator<Item = Tensor>,
    ) -> Result<StepPlan> {
        let ClippedGrads { gradients, mut finite_checks } = self.clipped(gradients);
        let clip_checks = trained.len()..finite_checks.len();
        finite_checks.extend(states);
        let StepSignals { report, step_ok, mut grad_finite } = StepSignals::of(loss, &finite_checks)?;
        grad_finite.drain(clip_checks);
        let mut next = Vec::with_capacity(trained.len());
        for ((name, value), gradient) in trained.iter().zip(&gradients) {
            let state = self.state.get(name).map_or(&[][..], Vec::as_slice);
            let group = self.param_groups.iter().find(|group| (group.filter)(name, value));
            let lr = self.learning_rate * group.map_or(1.0, |group| group.lr_scale);
            let apply_weight_decay = group.is_none_or(|group| group.apply_weight_decay);
            let step = UpdateContext { lr, step: self.steps + 1, apply_weight_decay };
            next.push(UpdatedParam::gated(
                updated(&self.rule, value, gradient, state, &step),
                (value, state),
                &step_ok,
            )?);
        }
        Ok(StepPlan { next, grad_finite, report })
    }

    /// Returns the gradients of the loss plus the accumulated gradients.
    fn gradients(&self, trained: &[(String, Tensor)], loss: &Tensor) -> Result<Vec<Tensor>> {
        Ok(self.add_accumulated(trained, self.gradients_of_loss(trained, loss)?))
    }

    /// Returns the gradients of the loss, without accumulated ones.
    fn gradients_of_loss(&self, trained: &[(String, Tensor)], loss: &Tensor) -> Result<Vec<Tensor>> {
        let wanted: Vec<&Tensor> = trained.iter().map(|(_, value)| value).collect();
        match &self.grad_scaler {
            None => loss.gradients(&wanted),
            Some(scaler) => {
                let gradients = (loss * scaler.scale).gradients(&wanted)?;
                Ok(gradients.into_iter().map(|gradient| gradient * (1.0 / scaler.scale)).collect())
            }
        }
    }

    /// Returns the gradients plus the accumulated gradients.
    fn add_accumulated(&self, trained: &[(String, Tensor)], gradients: Vec<Tensor>) -> Vec<Tensor> {
        let summed =
            trained.iter().zip(gradients).map(|((name, _), gradient)| match self.accumulated_grads.get(name) {
                Some(accumulated) => gradient + accumulated,
                None => gradient,
            });
        summed.collect()
    }

    /// Fails if the loss is not finite.
    fn check_loss(&self, loss: f64) -> Result<f64> {
        if loss.is_finite() {
            return Ok(loss);
        }
        let step = self.steps + 1;
        let message = format!("the loss became {loss} in step {step}; the parameters from before the step are kept");
        Err(Error::diverged(message).note("use a smaller learning rate or gradient clipping"))
    }

    /// Evaluates a step's report: returns the loss and whether the step is applied, and updates the loss scale.
    async fn check_finite(
        &mut self,
        wait_mode: WaitMode,
        report: &Tensor,
        checked: &Checked,
        grad_finite: &[Tensor],
    ) -> Result<StepOutcome> {
        let [loss, finite] = wait_mode.numbers(report).await?[..] else {
            unreachable!("a report is two numbers");
        };
        let (loss, step) = (self.check_loss(f64::from(loss))?, self.steps + 1);
        match &mut self.grad_scaler {
            None if finite.is_finite() => Ok(StepOutcome { loss, applied: true }),
            None => {
                let message = format!(
                    "the loss of step {step} is {loss}, but {}; the parameters from before the step are kept",
                    checked.not_finite(wait_mode, grad_finite).await?
                );
                Err(Error::diverged(message)
                    .note("use a smaller learning rate, or a form of the loss that is differentiable there"))
            }
            Some(scaler) => {
                let applied = scaler.update(finite.is_finite());
                if !applied && scaler.scale < GradScaler::MIN_SCALE {
                    let message = format!(
                        "step {step} overflows even at the smallest loss scale: {}",
                        checked.not_finite(wait_mode, grad_finite).await?
                    );
                    return Err(Error::diverged(message).note("use bf16 or f32, which have a larger range"));
                }
                Ok(StepOutcome { loss, applied })
            }
        }
    }
}

/// Fails unless a decay or momentum is at least 0 and below 1.
fn check_fraction(name: &str, value: f64) -> Result<()> {
    match (0.0..1.0).contains(&value) {
        true => Ok(()),
        false => Err(Error::mistake(format!("the optimizer's {name} is {value}, which is not in 0 .. 1"))),
    }
}

/// Applies a rule to a parameter. For f16 and bf16 parameters it computes in f32 and keeps the state in f32: squared gradients and epsilon
/// underflow in f16.
fn updated(
    rule: &impl UpdateRule,
    value: &Tensor,
    gradient: &Tensor,
    state: &[Tensor],
    step: &UpdateContext,
) -> (Tensor, Vec<Tensor>) {
    if !matches!(value.dtype(), DType::F16 | DType::BF16) {
        return rule.update(value, gradient, state, step);
    }
    let state: Vec<Tensor> = state.iter().map(|state| state.cast(DType::F32)).collect();
    let (next, state) = rule.update(&value.cast(DType::F32), &gradient.cast(DType::F32), &state, step);
    (next.cast(value.dtype()), state)
}

/// Loss of a step, and whether the step is applied.
struct StepOutcome {
    loss: f64,
    applied: bool,
}

/// Returns the trainable parameters by name. Fails unless the pass is a training pass that fits the model.
fn trainable_params(model: &dyn Module, pass: &ForwardContext<'_>) -> Result<Vec<(String, Tensor)>> {
    if !pass.is_training() {
        return Err(Error::mistake(
            "a step needs a training pass: use `ForwardContext::train(&mut rng)` for the forward pass",
        ));
    }
    pass.fits(model)?;
    let mut trained = Vec::new();
    model.visit(&mut ParamVisitor::new(&mut |name, param| {
        if param.requires_grad() {
            trained.push((name.to_string(), param.tensor().clone()));
        }
    }));
    let mut names: Vec<&str> = trained.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => {
            Err(Error::mistake(format!("two parameters are named {}; the names of parameters must be unique", pair[0])))
        }
        None => Ok(trained),
    }
}

/// Evaluates parameters that are not yet evaluated, on the loss's device: evaluated within a step, they would occupy memory beside their
/// new values. Returns true if there were any.
fn ensure_evaluated(trained: &[(String, Tensor)], loss: &Tensor) -> Result<bool> {
    let unevaluated: Vec<&Tensor> =
        trained.iter().map(|(_, value)| value).filter(|value| !value.is_evaluated()).collect();
    let evaluate = || eval(&unevaluated);
    loss.device().map_or_else(evaluate, |device| device.scope(evaluate))?;
    Ok(!unevaluated.is_empty())
}
