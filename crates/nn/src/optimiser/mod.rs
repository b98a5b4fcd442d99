//! From a loss to the next parameters.
//!
//! A [`Rule`] says how one parameter moves; [`Optimiser`] does the rest once for all rules: gradients, clipping, state by
//! dotted name, one evaluation of loss, parameters and state together, and the commit. A step changes everything or
//! nothing. Learning rate and step count are slots, so a schedule never compiles anything again.

mod adamw;
mod sgd;

use std::collections::BTreeMap;

use panoply_tensor::{Error, Result, Tensor, eval};

pub use adamw::AdamWRule;
pub use sgd::SgdRule;

use crate::layer::Pass;
use crate::module::{Module, VisitorMut};

/// AdamW: Adam with decoupled weight decay.
pub type AdamW = Optimiser<AdamWRule>;
/// Stochastic gradient descent with momentum.
pub type Sgd = Optimiser<SgdRule>;

/// How one parameter moves.
pub trait Rule {
    /// The parameter and its state after a step along its gradient. `state` is empty before the first step; `step` counts
    /// from 1.
    fn update(
        &self,
        value: &Tensor,
        gradient: &Tensor,
        state: &[Tensor],
        rate: f64,
        step: u64,
    ) -> (Tensor, Vec<Tensor>);
}

/// A rule with what it remembers of a model.
#[derive(Clone, Debug)]
pub struct Optimiser<R> {
    /// The rule and its settings.
    pub rule: R,
    /// How far a step goes; may change at any time.
    pub learning_rate: f64,
    /// Longest gradient over all parameters together, if it is limited.
    pub max_norm: Option<f64>,
    /// Steps made.
    pub steps: u64,
    /// What the rule remembers of each parameter, by dotted name.
    pub state: BTreeMap<String, Vec<Tensor>>,
}

impl<R: Rule> Optimiser<R> {
    /// A rule at the start of training.
    pub fn with_rule(rule: R, learning_rate: f64) -> Optimiser<R> {
        Optimiser { rule, learning_rate, max_norm: None, steps: 0, state: BTreeMap::new() }
    }

    /// Shrinks gradients that are longer than this, all parameters taken as one vector.
    #[must_use]
    pub fn clip_norm(mut self, max_norm: f64) -> Optimiser<R> {
        self.max_norm = Some(max_norm);
        self
    }

    /// Moves the model one step down the loss and gives the loss's value. On error nothing has changed.
    pub fn step(&mut self, model: &mut dyn Module, loss: &Tensor, pass: Pass<'_>) -> Result<f64> {
        if !pass.is_training() {
            return Err(Error::mistake(
                "a step needs a training pass: use `Pass::train(&mut rng)` for the forward pass",
            ));
        }
        let trained: Vec<(String, Tensor)> = model
            .named_params()
            .into_iter()
            .filter(|(_, param)| !param.frozen)
            .map(|(name, param)| (name, param.tensor().clone()))
            .collect();
        let wanted: Vec<&Tensor> = trained.iter().map(|(_, value)| value).collect();
        let gradients = self.clipped(loss.gradients(&wanted)?);
        let step = self.steps + 1;
        let mut next: BTreeMap<&str, (Tensor, Vec<Tensor>)> = BTreeMap::new();
        for ((name, value), gradient) in trained.iter().zip(&gradients) {
            let state = self.state.get(name).map_or(&[][..], Vec::as_slice);
            next.insert(name, self.rule.update(value, gradient, state, self.learning_rate, step));
        }
        let mut roots = vec![loss];
        roots.extend(next.values().flat_map(|(value, state)| [value].into_iter().chain(state)));
        eval(&roots)?;
        let value = loss.item()?;
        let mut commit = |name: &str, param: &mut crate::module::Param| match next.get(name) {
            Some((value, _)) => param.set(value),
            None => Ok(()),
        };
        model.visit_mut(&mut VisitorMut::new(&mut commit))?;
        let kept = next
            .into_iter()
            .map(|(name, (_, state))| (name.to_string(), state.iter().map(Tensor::detach).collect::<Vec<Tensor>>()));
        self.state.extend(kept);
        self.steps = step;
        Ok(value)
    }

    fn clipped(&self, gradients: Vec<Tensor>) -> Vec<Tensor> {
        let Some(limit) = self.max_norm else { return gradients };
        let squares = gradients.iter().map(|gradient| gradient.square().sum(..));
        let Some(total) = squares.reduce(|sum, square| sum + square) else { return gradients };
        // As PyTorch's clip_grad_norm_: limit / (norm + 1e-6), never above 1.
        let factor = ((total.sqrt() + 1e-6).recip() * limit).minimum(&Tensor::scalar(1f32));
        gradients.iter().map(|gradient| gradient * &factor).collect()
    }
}
