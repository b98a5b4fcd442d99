//! An optimizer step that updates parameters and optimizer state in place.
//!
//! During the step the model does not hold its trained parameters, so their buffers can be donated to the new values. A buffer that a clone
//! or a graph still holds is kept, and the new value gets its own memory. The device itself decides whether the step is applied
//! (`step_ok`): if not, donated buffers are rewritten with their old values.

use panoply_tensor::{Result, Tensor, eval_donated};

use super::{Optimizer, StepPlan};
use crate::layer::StateUpdate;
use crate::module::{Module, check_same, put};

/// New value and optimizer state of a parameter.
pub(super) struct UpdatedParam {
    pub value: Tensor,
    pub state: Vec<Tensor>,
    /// True if the state replaces an existing one; it then keeps the old values if the step is skipped.
    pub replaces_state: bool,
}

/// The results of an evaluated step.
pub(super) struct AppliedStep {
    pub report: Tensor,
    /// As in [`StepPlan`].
    pub grad_finite: Vec<Tensor>,
    /// State of parameters that had none, by name; kept only if the step is applied.
    pub new_state: Vec<(String, Vec<Tensor>)>,
}

impl UpdatedParam {
    /// Returns the value and state that a rule computed, or the old ones if `step_ok` is false.
    pub fn gated(
        (value, state): (Tensor, Vec<Tensor>),
        before: (&Tensor, &[Tensor]),
        step_ok: &Tensor,
    ) -> Result<UpdatedParam> {
        check_same(before.0, &value)?;
        let alike = |(old, new): (&Tensor, &Tensor)| check_same(old, new).is_ok();
        let follows = before.1.len() == state.len() && before.1.iter().zip(&state).all(alike);
        let (mut new, mut old) = (vec![&value], vec![before.0]);
        if follows {
            new.extend(&state);
            old.extend(before.1);
        }
        let inputs: Vec<&Tensor> = new.into_iter().chain(old).chain([step_ok]).collect();
        let gated = Tensor::call_dyn("gate", &inputs, (), |inputs, ()| {
            let [values @ .., step_ok] = inputs else { unreachable!("the last input is the condition") };
            let (new, old) = values.split_at(values.len() / 2);
            new.iter().zip(old).map(|(new, old)| new.where_self(step_ok, old)).collect()
        });
        let mut gated = gated?.into_iter();
        let value = gated.next().expect("the first output is the value");
        Ok(UpdatedParam { value, state: if follows { gated.collect() } else { state }, replaces_state: follows })
    }
}

impl<R> Optimizer<R> {
    /// Evaluates a step for the parameters with these names and values and the buffer updates, and stores the new parameters and replaced
    /// states. On error the model and the state are unchanged.
    pub(super) fn evaluate_step(
        &mut self,
        model: &mut dyn Module,
        (names, values): (&[String], Vec<Tensor>),
        planned: StepPlan,
        updates: &mut [StateUpdate],
    ) -> Result<AppliedStep> {
        let StepPlan { next, grad_finite, report } = planned;
        let (count, checks, nothing) = (names.len(), grad_finite.len(), Tensor::scalar(0f32));
        let (mut kinds, mut states) = (Vec::with_capacity(count), Vec::new());
        let mut new = vec![report];
        new.extend(grad_finite);
        for UpdatedParam { value, state, replaces_state: follows } in next {
            kinds.push((state.len(), follows));
            new.push(value);
            states.extend(state);
        }
        new.append(&mut states);
        new.extend(updates.iter_mut().map(|update| std::mem::replace(&mut update.next, nothing.clone())));
        let mut old = values;
        for (name, _) in names.iter().zip(&kinds).filter(|(_, (_, follows))| *follows) {
            old.extend(self.state.remove(name).unwrap_or_default());
        }
        let emptied = put(model, names, &mut std::iter::repeat_n(nothing, count));
        let made = match emptied.and_then(|()| eval_donated(&mut old, new)) {
            Ok(made) => made,
            Err(error) => {
                let states = old.split_off(count.min(old.len()));
                let mut states = states.into_iter();
                for (name, (len, _)) in names.iter().zip(kinds).filter(|(_, (_, follows))| *follows) {
                    self.state.insert(name.clone(), states.by_ref().take(len).collect());
                }
                put(model, names, &mut old.into_iter())?;
                return Err(error);
            }
        };
        let mut made = made.into_iter();
        let report = made.next().expect("the first output is the report");
        let grad_finite = made.by_ref().take(checks).collect();
        put(model, names, &mut made.by_ref().take(count))?;
        let mut new_state = Vec::new();
        for (name, (len, follows)) in names.iter().zip(kinds) {
            let state: Vec<Tensor> = made.by_ref().take(len).collect();
            match follows {
                true => drop(self.state.insert(name.clone(), state)),
                false => new_state.push((name.clone(), state)),
            }
        }
        updates.iter_mut().zip(made).for_each(|(update, next)| update.next = next);
        Ok(AppliedStep { report, grad_finite, new_state })
    }
}
