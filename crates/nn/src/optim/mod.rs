//! From a loss to the next parameters.
//!
//! A [`UpdateRule`] says how one parameter moves; [`Optimizer`] does the rest once for all rules: gradients, accumulation,
//! clipping, state by dotted name, one evaluation of loss, parameters and state together, and the commit. A step changes
//! everything or nothing. Learning rate and step count are slots, so a [`LrSchedule`] never compiles anything again.

mod adagrad;
mod adam;
mod averaged_model;
mod donated_step;
mod grad_scaler;
mod lion;
mod lr_schedule;
mod rmsprop;
mod sgd;

use std::collections::BTreeMap;

use panoply_tensor::{DType, Device, Error, MemoryPlan, Result, Scalar, Tensor, eval};

pub use adagrad::AdagradRule;
pub use adam::{AdamParams, AdamRule, AdamWRule};
pub use averaged_model::AveragedModel;
pub use grad_scaler::GradScaler;
pub use lion::LionRule;
pub use lr_schedule::{LrSchedule, ReduceLrOnPlateau};
pub use rmsprop::RmsPropRule;
pub use sgd::SgdRule;

use donated_step::{AppliedStep, UpdatedParam};

use crate::layer::{ForwardContext, StateUpdate};
use crate::module::{Module, ParamVisitor};
use crate::readback::{WaitMode, finished};

/// Adam.
pub type Adam = Optimizer<AdamRule>;
/// AdamW: Adam with decoupled weight decay.
pub type AdamW = Optimizer<AdamWRule>;
/// Stochastic gradient descent with momentum.
pub type Sgd = Optimizer<SgdRule>;
/// RMSprop.
pub type RmsProp = Optimizer<RmsPropRule>;
/// Adagrad.
pub type Adagrad = Optimizer<AdagradRule>;
/// Lion.
pub type Lion = Optimizer<LionRule>;

/// How one parameter moves.
pub trait UpdateRule {
    /// The parameter and its state after a step along its gradient. `state` is empty before the first step.
    fn update(
        &self,
        value: &Tensor,
        gradient: &Tensor,
        state: &[Tensor],
        step: &UpdateContext,
    ) -> (Tensor, Vec<Tensor>);
}

impl UpdateRule for Box<dyn UpdateRule> {
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

/// What a rule is told of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateContext {
    /// How far it goes.
    pub lr: f64,
    /// Counted from 1.
    pub step: u64,
    /// Whether weight decay applies to this parameter.
    pub apply_weight_decay: bool,
}

impl UpdateContext {
    /// A weight decay, or 0 for a parameter it does not apply to.
    pub fn weight_decay(&self, weight_decay: f64) -> f64 {
        if self.apply_weight_decay { weight_decay } else { 0.0 }
    }
}

/// What is done to gradients before a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GradClip {
    /// Shrinks all gradients together so that as one vector they are not longer than this.
    Norm(f64),
    /// Limits each element to ± this.
    Value(f64),
}

/// Parameters that are treated apart: those of which the function accepts the dotted name and the value.
#[derive(Clone, Copy, Debug)]
pub struct ParamGroup {
    /// Whether a parameter belongs to it. The first group that accepts one has it.
    pub filter: fn(&str, &Tensor) -> bool,
    /// Factor of the learning rate.
    pub lr_scale: f64,
    /// Whether weight decay applies.
    pub decays: bool,
}

/// A rule with what it remembers of a model.
#[derive(Clone, Debug)]
pub struct Optimizer<R> {
    /// The rule and its settings.
    pub rule: R,
    /// How far a step goes; may change at any time.
    pub learning_rate: f64,
    /// How gradients are limited, if they are.
    pub grad_clip: Option<GradClip>,
    /// Parameters treated apart; the others move at the learning rate and decay.
    pub param_groups: Vec<ParamGroup>,
    /// Steps made.
    pub steps: u64,
    /// What the rule remembers of each parameter, by dotted name.
    pub state: BTreeMap<String, Vec<Tensor>>,
    /// Gradients of [`Optimizer::accumulate`] that wait for the next step, by dotted name.
    pub accumulated_grads: BTreeMap<String, Tensor>,
    /// Whether a part of the next step overflowed, so that the step is left out.
    pub overflowed: bool,
    /// What losses are multiplied by before gradients are taken, and gradients divided by after; f16 needs it.
    pub grad_scaler: Option<GradScaler>,
}

/// A step before it is made.
struct StepPlan {
    /// What each parameter in order becomes.
    next: Vec<UpdatedParam>,
    /// One scalar per gradient, then one per updated state of floats: finite iff the tensor is.
    grad_finite: Vec<Tensor>,
    /// The loss, and a number that is finite iff all gradients and updated states are: `[2]`.
    report: Tensor,
}

/// Names of what a step checks for finite values, in the order of [`StepPlan::grad_finite`].
struct Checked {
    /// The trained parameters, of which the gradients are checked.
    params: Vec<String>,
    /// The states of floats that the pass updates, such as running statistics.
    states: Vec<String>,
}

/// Gradients as they are followed.
struct ClippedGrads {
    gradients: Vec<Tensor>,
    /// What is finite if they were before they were limited, one for each, and more that has to be.
    finite_checks: Vec<Tensor>,
}

/// What is told of a step.
struct StepSignals {
    /// The loss, and a number that is finite if all that has to be is, side by side: one transfer tells both.
    report: Tensor,
    /// Whether both are finite.
    step_ok: Tensor,
    /// Of each thing that has to be finite a number that is, if all of it is.
    grad_finite: Vec<Tensor>,
}

impl<R: UpdateRule> Optimizer<R> {
    /// A rule at the start of training.
    pub fn from_rule(rule: R, learning_rate: f64) -> Optimizer<R> {
        let (state, waiting) = (BTreeMap::new(), BTreeMap::new());
        let (clip, groups, scale) = (None, Vec::new(), None);
        Optimizer {
            rule,
            learning_rate,
            grad_clip: clip,
            param_groups: groups,
            steps: 0,
            state,
            accumulated_grads: waiting,
            overflowed: false,
            grad_scaler: scale,
        }
    }

    /// The same with its rule behind a pointer: one type for a rule that is chosen while the program runs.
    pub fn boxed(self) -> Optimizer<Box<dyn UpdateRule>>
    where
        R: 'static,
    {
        let Optimizer {
            rule,
            learning_rate,
            grad_clip: clip,
            param_groups: groups,
            steps,
            state,
            accumulated_grads: waiting,
            overflowed: spoilt,
            grad_scaler: scale,
        } = self;
        Optimizer {
            rule: Box::new(rule),
            learning_rate,
            grad_clip: clip,
            param_groups: groups,
            steps,
            state,
            accumulated_grads: waiting,
            overflowed: spoilt,
            grad_scaler: scale,
        }
    }

    /// Shrinks gradients that are longer than this, all parameters taken as one vector.
    #[must_use]
    pub fn clip_grad_norm(mut self, longest: f64) -> Optimizer<R> {
        self.grad_clip = Some(GradClip::Norm(longest));
        self
    }

    /// Limits each element of the gradients to ± this.
    #[must_use]
    pub fn clip_grad_value(mut self, largest: f64) -> Optimizer<R> {
        self.grad_clip = Some(GradClip::Value(largest));
        self
    }

    /// Treats the parameters that are accepted apart: another share of the learning rate, and weight decay or none.
    #[must_use]
    pub fn param_group(mut self, holds: fn(&str, &Tensor) -> bool, rate: f64, decays: bool) -> Optimizer<R> {
        self.param_groups.push(ParamGroup { filter: holds, lr_scale: rate, decays });
        self
    }

    /// Without weight decay of biases and norms, which are the parameters of one axis.
    #[must_use]
    pub fn exclude_1d_from_weight_decay(self) -> Optimizer<R> {
        self.param_group(|_, value| value.shape().is_ok_and(|shape| shape.ndim() < 2), 1.0, false)
    }

    /// With the loss scaled as f16 needs it: what stands here is where it begins.
    #[must_use]
    pub fn grad_scaler(mut self, scale: GradScaler) -> Optimizer<R> {
        self.grad_scaler = Some(scale);
        self
    }

    /// Adds a part of a batch to the gradients of the next step and gives the loss's value; parameters stay, states move.
    /// Divide the loss by the number of parts if the step is to follow their mean. On error nothing has changed. With a loss scale, a
    /// part whose gradients overflow takes the step of all of them with it.
    pub fn accumulate(&mut self, model: &mut dyn Module, loss: &Tensor, mut pass: ForwardContext<'_>) -> Result<f64> {
        let trained = trainable_params(model, &pass)?;
        ensure_evaluated(&trained, loss)?;
        let (loss, gradients) = &self.of_all_ranks(&trained, loss.clone(), &mut pass)?;
        if self.overflowed {
            return self.check_loss(loss.cast(DType::F32).sum(..).item()?);
        }
        let states = pass.float_states(model);
        let signs: Vec<Tensor> = gradients.iter().chain(states.iter().map(|(_, next)| next)).cloned().collect();
        let StepSignals { report, grad_finite: sounds, .. } = StepSignals::of(loss, &signs)?;
        let mut roots = vec![&report];
        roots.extend(gradients.iter().chain(&sounds).chain(pass.roots()));
        eval(&roots)?;
        let checked = Checked::of(&trained, &states);
        let StepOutcome { loss: value, applied: stands } =
            finished(self.check_finite(WaitMode::Blocking, &report, &checked, &sounds))?;
        if !stands {
            self.accumulated_grads.clear();
            self.overflowed = true;
            return Ok(value);
        }
        StateUpdate::commit(&pass.into_updates(), model)?;
        let kept = trained.into_iter().zip(gradients).map(|((name, _), gradient)| (name, gradient.detach()));
        self.accumulated_grads.extend(kept);
        Ok(value)
    }

    /// Moves the model one step down the loss and gives the loss's value. On error nothing has changed; a loss or a gradient
    /// that is no finite number is one. With a loss scale, a gradient is not: the step is left out with all its parts, counted
    /// ([`GradScaler::skipped_steps`]), and the next is made at a smaller scale.
    ///
    /// A step that is left out puts equal parameters in the place of the old ones, so a loss that was made before has to be made again. A
    /// device that fails while it runs takes with it what it was writing.
    ///
    /// The loss may be given away or, as `&loss`, be kept, and with it its whole history, so that parameters are held twice while the
    /// step is made. Otherwise they change where they are, as what the rule remembers does, but for what somebody else holds: a clone of
    /// the model, for one.
    pub fn step(&mut self, model: &mut dyn Module, loss: impl Into<Tensor>, pass: ForwardContext<'_>) -> Result<f64> {
        finished(self.step_by(WaitMode::Blocking, model, loss.into(), pass))
    }

    /// [`Optimizer::step`] where nothing may wait, as in browsers. If it is dropped before its end the parameters may have moved and the step
    /// is not counted.
    pub async fn step_async(
        &mut self,
        model: &mut dyn Module,
        loss: impl Into<Tensor>,
        pass: ForwardContext<'_>,
    ) -> Result<f64> {
        self.step_by(WaitMode::Async, model, loss.into(), pass).await
    }

    async fn step_by(
        &mut self,
        arrival: WaitMode,
        model: &mut dyn Module,
        loss: Tensor,
        mut pass: ForwardContext<'_>,
    ) -> Result<f64> {
        let trained = trainable_params(model, &pass)?;
        let made = ensure_evaluated(&trained, &loss)?;
        let (loss, gradients) = self.of_all_ranks(&trained, loss, &mut pass)?;
        if self.overflowed {
            let value = self.check_loss(arrival.number(&loss.cast(DType::F32).sum(..)).await?)?;
            self.overflowed = false;
            return Ok(value);
        }
        if made && self.steps == 0 {
            // What making them took is not wanted again.
            loss.device().cloned().map_or_else(Device::current, Ok)?.trim_memory();
        }
        let states = pass.float_states(model);
        let checked = Checked::of(&trained, &states);
        let planned = self.plan(&trained, (&loss, gradients), states.into_iter().map(|(_, next)| next))?;
        // What is held here besides would have to stay as it is.
        drop(loss);
        let values: Vec<Tensor> = trained.into_iter().map(|(_, value)| value).collect();
        let mut updates = pass.into_updates();
        let AppliedStep { report, grad_finite: sounds, new_state: fresh } =
            self.make(model, (&checked.params, values), planned, &mut updates)?;
        let StepOutcome { loss, applied: stands } = self.check_finite(arrival, &report, &checked, &sounds).await?;
        if stands {
            StateUpdate::commit(&updates, model)?;
            self.state.extend(fresh);
            self.steps += 1;
        }
        self.accumulated_grads.clear();
        Ok(loss)
    }

    /// What [`Optimizer::step`] would take of the device's memory if the loss were given away and nobody held the parameters besides.
    /// Parameters are made if they were not; nothing else runs.
    pub fn memory_plan(&self, model: &dyn Module, loss: &Tensor, pass: &ForwardContext<'_>) -> Result<MemoryPlan> {
        let trained = trainable_params(model, pass)?;
        ensure_evaluated(&trained, loss)?;
        let states = pass.float_states(model).into_iter().map(|(_, next)| next);
        let StepPlan { next, grad_finite: sounds, report } =
            self.plan(&trained, (loss, self.gradients(&trained, loss)?), states)?;
        let mut old: Vec<&Tensor> = trained.iter().map(|(_, value)| value).collect();
        let followed = trained.iter().zip(&next).filter(|(_, next)| next.replaces_state);
        old.extend(followed.filter_map(|((name, _), _)| self.state.get(name)).flatten());
        let mut roots = vec![&report];
        roots.extend(&sounds);
        roots.extend(next.iter().map(|next| &next.value));
        roots.extend(next.iter().flat_map(|next| &next.state));
        roots.extend(pass.roots());
        MemoryPlan::for_eval_donated(&old, &roots)
    }

    fn plan(
        &self,
        trained: &[(String, Tensor)],
        (loss, gradients): (&Tensor, Vec<Tensor>),
        states: impl Iterator<Item = Tensor>,
    ) -> Result<StepPlan> {
        let ClippedGrads { gradients, finite_checks: mut signs } = self.clipped(gradients);
        let limits = trained.len()..signs.len();
        signs.extend(states);
        let StepSignals { report, step_ok: stands, grad_finite: mut sounds } = StepSignals::of(loss, &signs)?;
        sounds.drain(limits);
        let mut next = Vec::with_capacity(trained.len());
        for ((name, value), gradient) in trained.iter().zip(&gradients) {
            let state = self.state.get(name).map_or(&[][..], Vec::as_slice);
            let group = self.param_groups.iter().find(|group| (group.filter)(name, value));
            let rate = self.learning_rate * group.map_or(1.0, |group| group.lr_scale);
            let decays = group.is_none_or(|group| group.decays);
            let step = UpdateContext { lr: rate, step: self.steps + 1, apply_weight_decay: decays };
            next.push(UpdatedParam::gated(
                updated(&self.rule, value, gradient, state, &step),
                (value, state),
                &stands,
            )?);
        }
        Ok(StepPlan { next, grad_finite: sounds, report })
    }

    /// The loss and its gradients with what waits added. Where several processes share the batch, they are summed over these.
    fn of_all_ranks(
        &self,
        trained: &[(String, Tensor)],
        loss: Tensor,
        pass: &mut ForwardContext<'_>,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let Some(shard) = pass.shard().cloned() else {
            let gradients = self.gradients(trained, &loss)?;
            return Ok((loss, gradients));
        };
        let (loss, gradients) = shard.all_reduce(&loss, self.own_gradients(trained, &loss)?, pass)?;
        Ok((loss, self.with_waiting(trained, gradients)))
    }

    /// The loss's gradients with what waits added.
    fn gradients(&self, trained: &[(String, Tensor)], loss: &Tensor) -> Result<Vec<Tensor>> {
        Ok(self.with_waiting(trained, self.own_gradients(trained, loss)?))
    }

    /// The loss's gradients.
    fn own_gradients(&self, trained: &[(String, Tensor)], loss: &Tensor) -> Result<Vec<Tensor>> {
        let wanted: Vec<&Tensor> = trained.iter().map(|(_, value)| value).collect();
        match &self.grad_scaler {
            None => loss.gradients(&wanted),
            Some(scale) => {
                let flows = (loss * scale.scale).gradients(&wanted)?;
                Ok(flows.into_iter().map(|flow| flow * (1.0 / scale.scale)).collect())
            }
        }
    }

    /// Gradients with what waits added.
    fn with_waiting(&self, trained: &[(String, Tensor)], gradients: Vec<Tensor>) -> Vec<Tensor> {
        let summed =
            trained.iter().zip(gradients).map(|((name, _), gradient)| match self.accumulated_grads.get(name) {
                Some(waiting) => gradient + waiting,
                None => gradient,
            });
        summed.collect()
    }

    /// Gradients as they are followed.
    fn clipped(&self, gradients: Vec<Tensor>) -> ClippedGrads {
        match self.grad_clip {
            None => ClippedGrads { finite_checks: gradients.clone(), gradients },
            Some(GradClip::Value(largest)) => {
                let limited = gradients.iter().map(|gradient| gradient.clamp(-largest, largest)).collect();
                ClippedGrads { gradients: limited, finite_checks: gradients }
            }
            Some(GradClip::Norm(longest)) => {
                let mut signs = gradients.clone();
                let is_wide = gradients.iter().any(|gradient| gradient.dtype() == DType::F64);
                let wide = if is_wide { DType::F64 } else { DType::F32 };
                let squares = gradients.iter().map(|gradient| gradient.cast(wide).square().sum(..));
                let Some(total) = squares.reduce(|sum, square| sum + square) else {
                    return ClippedGrads { gradients, finite_checks: signs };
                };
                let length = total.sqrt();
                // As PyTorch's clip_grad_norm_: limit / (norm + 1e-6), never above 1.
                let factor =
                    ((&length + 1e-6).reciprocal() * longest).minimum(&Tensor::scalar(Scalar::from_f64(wide, 1.0)));
                let shrunk = |gradient: &Tensor| (gradient.cast(wide) * &factor).cast(gradient.dtype());
                let gradients = gradients.iter().map(shrunk).collect();
                signs.push(length);
                ClippedGrads { gradients, finite_checks: signs }
            }
        }
    }

    /// The loss, if it is a number.
    fn check_loss(&self, loss: f64) -> Result<f64> {
        if loss.is_finite() {
            return Ok(loss);
        }
        let step = self.steps + 1;
        let message = format!("the loss became {loss} in step {step}; the model is as the step before left it");
        Err(Error::diverged(message).note("a smaller learning rate or `clip_norm` helps"))
    }

    /// What a step's report says: the loss, and whether the step stands.
    async fn check_finite(
        &mut self,
        arrival: WaitMode,
        report: &Tensor,
        checked: &Checked,
        sounds: &[Tensor],
    ) -> Result<StepOutcome> {
        let [loss, sound] = arrival.numbers(report).await?[..] else {
            unreachable!("a report is two numbers");
        };
        let (loss, step) = (self.check_loss(f64::from(loss))?, self.steps + 1);
        match &mut self.grad_scaler {
            None if sound.is_finite() => Ok(StepOutcome { loss, applied: true }),
            None => {
                let message = format!(
                    "the loss of step {step} is {loss}, but {}; the model is as the step before left it",
                    checked.not_finite(arrival, sounds).await?
                );
                Err(Error::diverged(message).note("a smaller learning rate or another form of the loss helps"))
            }
            Some(scale) => {
                let stands = scale.update(sound.is_finite());
                if !stands && scale.scale < GradScaler::SMALLEST {
                    let message = format!(
                        "step {step} cannot be made at any scale of the loss: {}",
                        checked.not_finite(arrival, sounds).await?
                    );
                    return Err(Error::diverged(message).note("bf16 or f32 have the range for it"));
                }
                Ok(StepOutcome { loss, applied: stands })
            }
        }
    }
}

/// What a rule makes of a parameter and its state. Of halves it computes in f32, and what it remembers stays f32: squares of gradients
/// underflow in f16, and so does the epsilon that keeps quotients finite.
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
    let state: Vec<Tensor> = state.iter().map(|kept| kept.cast(DType::F32)).collect();
    let (next, state) = rule.update(&value.cast(DType::F32), &gradient.cast(DType::F32), &state, step);
    (next.cast(value.dtype()), state)
}

/// A step's loss, and whether it is made.
struct StepOutcome {
    loss: f64,
    applied: bool,
}

impl StepSignals {
    /// Of a loss, and of what has to be finite.
    fn of(loss: &Tensor, signs: &[Tensor]) -> Result<StepSignals> {
        let inputs: Vec<&Tensor> = signs.iter().chain([loss]).collect();
        let told = Tensor::call_dyn("report", &inputs, (), |inputs, ()| {
            let [signs @ .., loss] = inputs else { unreachable!("the loss is given") };
            let loss = loss.cast(DType::F32).sum(..);
            let mut told: Vec<Tensor> = signs.iter().map(|sign| (sign * 0.0).sum(..).cast(DType::F32)).collect();
            let sound = told.iter().cloned().reduce(|a, b| a + b).unwrap_or_else(|| Tensor::scalar(0f32));
            let stands = (&loss * 0.0 + &sound).is_finite();
            told.extend([Tensor::stack([loss, sound], 0), stands]);
            told
        });
        let mut sounds = told?;
        let [stands, report] = [sounds.pop(), sounds.pop()].map(|told| told.expect("both are told"));
        Ok(StepSignals { report, step_ok: stands, grad_finite: sounds })
    }
}

impl Checked {
    /// Of these parameters and states.
    fn of(trained: &[(String, Tensor)], states: &[(String, Tensor)]) -> Checked {
        let names = |named: &[(String, Tensor)]| named.iter().map(|(name, _)| name.clone()).collect();
        Checked { params: names(trained), states: names(states) }
    }

    /// Says which of the checked tensors is the first that is not finite.
    async fn not_finite(&self, arrival: WaitMode, sounds: &[Tensor]) -> Result<String> {
        for (at, sound) in sounds.iter().enumerate() {
            if arrival.number(sound).await?.is_finite() {
                continue;
            }
            return Ok(match at.checked_sub(self.params.len()) {
                Some(state) => format!("the state {} would hold a value that is not finite", self.states[state]),
                None => format!("a gradient is no finite number, first that of {}", self.params[at]),
            });
        }
        Ok("the gradients, as one vector, are too long for the length to be a number".to_string())
    }
}

/// The parameters that move, by name, if the pass was one of training and fits the model.
fn trainable_params(model: &dyn Module, pass: &ForwardContext<'_>) -> Result<Vec<(String, Tensor)>> {
    if !pass.is_training() {
        return Err(Error::mistake("a step needs a training pass: use `Pass::train(&mut rng)` for the forward pass"));
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
            Err(Error::mistake(format!("two parameters are called {}; give each a name of its own", pair[0])))
        }
        None => Ok(trained),
    }
}

/// Makes the parameters that are not there yet, on the loss's device: made within a step, they would be there beside what they become.
/// Whether there were any.
fn ensure_evaluated(trained: &[(String, Tensor)], loss: &Tensor) -> Result<bool> {
    let lacking: Vec<&Tensor> = trained.iter().map(|(_, value)| value).filter(|value| !value.is_evaluated()).collect();
    let make = || eval(&lacking);
    loss.device().map_or_else(make, |device| device.scope(make))?;
    Ok(!lacking.is_empty())
}
