//! Running a model.

use panoply_tensor::{DType, Error, Result, Rng, Shape, Tensor};

use crate::module::{Module, Param, ParamVisitor, ParamVisitorMut};
use crate::process_group::Shard;

/// Something that maps a tensor to a tensor.
pub trait Layer {
    /// The output for an input; `pass` says whether this is training.
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor;
}

/// Which times of sequences `[batch, time, …]` of these lengths count: `[batch, time]`.
pub(crate) fn counted(times: &Tensor, sequence: &Tensor) -> Tensor {
    sequence.arange_like(1).lt(&times.cast(DType::I32).unsqueeze(1))
}

/// The mistake of what is no sequence `[batch, time, features]`.
pub(crate) fn is_sequence(input: &Tensor) -> Result<()> {
    match input.ndim()? {
        3 => Ok(()),
        rank => Err(Error::mistake(format!("{input:?} has {rank} axes, not 3"))),
    }
}

/// What a forward pass needs besides its input, and what it leaves behind.
#[derive(Debug)]
pub struct ForwardContext<'a> {
    rng: Option<&'a mut Rng>,
    updates: Vec<StateUpdate>,
    precision: Option<DType>,
    seen: Option<Vec<(String, Tensor)>>,
    eager: bool,
    times: Option<Tensor>,
    shard: Option<Shard>,
}

/// A state's value before the pass, by which its cell is found again, and after it.
#[derive(Debug)]
pub(crate) struct StateUpdate {
    cell: Tensor,
    pub next: Tensor,
}

impl<'a> ForwardContext<'a> {
    /// A pass of training: dropout drops, running statistics are collected.
    pub fn train(rng: &'a mut Rng) -> ForwardContext<'a> {
        ForwardContext { rng: Some(rng), ..ForwardContext::eval() }
    }

    /// A pass of use: the same output for the same input.
    pub fn eval() -> ForwardContext<'static> {
        ForwardContext {
            rng: None,
            updates: Vec::new(),
            precision: None,
            seen: None,
            eager: false,
            times: None,
            shard: None,
        }
    }

    /// With dense layers, filters, attention and recurrent layers computing in this element type, from parameters that stay
    /// what they are: f16 or bf16 is mixed precision. Norms and the loss compute in f32. [Micikevicius et al. 2018]
    #[must_use]
    pub fn autocast(mut self, precision: DType) -> ForwardContext<'a> {
        self.precision = Some(precision);
        self
    }

    /// Over sequences that may end before the last time: how many times of each count, whole numbers `[batch]` of at least 1; all
    /// do if nothing is said. Recurrent layers, attention, [`crate::LastTimeStep`] and [`crate::TimeMean`] heed it.
    #[must_use]
    pub fn with_seq_lengths(mut self, times: Option<&Tensor>) -> ForwardContext<'a> {
        self.times = times.cloned();
        self
    }

    /// How many times of each sequence count, if not all do.
    pub fn seq_lengths(&self) -> Option<&Tensor> {
        self.times.as_ref()
    }

    /// The same for a layer that gives no times any more: the layers behind it know of none.
    pub fn take_seq_lengths(&mut self) -> Option<Tensor> {
        self.times.take()
    }

    /// Which times of a sequence `[batch, time, …]` count, `[batch, time]` of bool, if not all do.
    pub fn valid_mask(&self, sequence: &Tensor) -> Option<Tensor> {
        let times = self.times.as_ref()?;
        match sequence.ndim() {
            Ok(rank) => (rank > 1).then(|| counted(times, sequence)),
            Err(error) => Some(Tensor::from_mistake(error)),
        }
    }

    /// A tensor of floats in the precision of this pass, if it has one: what a layer that multiplies does with its input
    /// and parameters.
    pub fn cast(&self, tensor: &Tensor) -> Tensor {
        match self.precision {
            Some(precision) if tensor.dtype().is_float() => tensor.cast(precision),
            _ => tensor.clone(),
        }
    }

    /// That keeps what layers give, for [`ForwardContext::seen`].
    #[must_use]
    pub fn record_outputs(mut self) -> ForwardContext<'a> {
        self.seen = Some(Vec::new());
        self
    }

    /// With each layer of a sequence computed before the next begins, so that nothing is fused across layers.
    #[must_use]
    pub fn eager(mut self) -> ForwardContext<'a> {
        self.eager = true;
        self
    }

    /// What a layer of this name gives, which is kept if somebody watches, behind what its own layers gave.
    pub fn call_layer(&mut self, name: impl FnOnce() -> String, layer: &dyn Layer, input: &Tensor) -> Tensor {
        let before = self.recorded_outputs().len();
        let output = layer.forward(input, self);
        if self.eager {
            // A failure comes again when somebody asks for the value.
            let _ = panoply_tensor::eval(&[&output]);
        }
        if let Some(seen) = &mut self.seen {
            let name = name();
            seen[before..].iter_mut().for_each(|(inner, _)| *inner = format!("{name}: {inner}"));
            seen.push((name, output.clone()));
        }
        output
    }

    /// What layers gave in a watched pass, by name and in order.
    pub fn recorded_outputs(&self) -> &[(String, Tensor)] {
        self.seen.as_deref().unwrap_or_default()
    }

    /// Whether this is training.
    pub fn is_training(&self) -> bool {
        self.rng.is_some()
    }

    /// The random numbers of a training pass.
    pub fn rng(&mut self) -> Option<&mut Rng> {
        self.rng.as_deref_mut()
    }

    /// Runs on one process's rows of a batch.
    pub(crate) fn sharded(mut self, shard: Option<Shard>) -> ForwardContext<'a> {
        self.shard = shard;
        self
    }

    /// The rows that this process computes, if several share a batch.
    pub(crate) fn shard(&self) -> Option<&Shard> {
        self.shard.as_ref()
    }

    /// Random numbers of the shape of a tensor whose first axis is the batch, in a pass of training. Each process of several
    /// draws those of the whole batch and takes its rows, so that results do not depend on the number of processes.
    pub(crate) fn draw(&mut self, like: &Tensor, draw: impl FnOnce(&mut Rng, &Tensor) -> Tensor) -> Option<Tensor> {
        let rng = self.rng.as_deref_mut()?;
        let shard = self.shard.as_ref().and_then(|shard| match like.shape().map(Shape::dims) {
            Ok([rows, rest @ ..]) if *rows == shard.rows.len() => Some((shard, [&[shard.batch], rest].concat())),
            _ => None,
        });
        Some(match shard {
            Some((shard, whole)) => shard.of(&draw(rng, &Tensor::zeros(whole, like.dtype()))),
            None => draw(rng, like),
        })
    }

    /// The next values of the updated states of floats.
    pub(crate) fn next_float_states(&mut self) -> impl Iterator<Item = &mut Tensor> {
        self.updates.iter_mut().map(|update| &mut update.next).filter(|next| next.dtype().is_float())
    }

    /// A state's value at this point of the pass.
    pub fn state(&self, state: &Param) -> Tensor {
        let found = self.updates.iter().find(|update| update.cell.ptr_eq(state.tensor()));
        found.map_or_else(|| state.tensor().clone(), |update| update.next.clone())
    }

    /// What a [`Param::state`] becomes when the step is committed. A pass of use ignores it.
    pub fn update(&mut self, state: &Param, next: Tensor) {
        if !self.is_training() {
            return;
        }
        let next = next.detach();
        match self.updates.iter_mut().find(|update| update.cell.ptr_eq(state.tensor())) {
            Some(update) => update.next = next,
            None => self.updates.push(StateUpdate { cell: state.tensor().clone(), next }),
        }
    }

    /// What is to be computed before [`ForwardContext::update`].
    pub(crate) fn roots(&self) -> impl Iterator<Item = &Tensor> {
        self.updates.iter().map(|update| &update.next)
    }

    /// The updated states of floats by their names in this model, each with its next value.
    pub(crate) fn float_states(&self, model: &dyn Module) -> Vec<(String, Tensor)> {
        let mut states = Vec::new();
        model.visit(&mut ParamVisitor::new(&mut |name, param| {
            let found = self.updates.iter().find(|update| update.cell.ptr_eq(param.tensor()));
            if let Some(update) = found.filter(|update| update.next.dtype().is_float()) {
                states.push((name.to_string(), update.next.clone()));
            }
        }));
        states
    }

    /// Whether every state that was updated is a part of this model and keeps its shape.
    pub(crate) fn fits(&self, model: &dyn Module) -> Result<()> {
        let mut found = 0;
        let mut wrong = None;
        model.visit(&mut ParamVisitor::new(&mut |name, param| {
            for update in self.updates.iter().filter(|update| update.cell.ptr_eq(param.tensor())) {
                found += 1;
                if update.next.shape().ok() != param.tensor().shape().ok()
                    || update.next.dtype() != param.tensor().dtype()
                {
                    let message = format!("state {name} {:?} cannot become {:?}", param.tensor(), update.next);
                    wrong.get_or_insert(Error::mistake(message));
                }
            }
        }));
        self.updates.iter().try_for_each(|update| update.next.check())?;
        match wrong {
            Some(wrong) => Err(wrong),
            None if found != self.updates.len() => {
                let message = format!("{} states were updated, {found} of them in this model", self.updates.len());
                Err(Error::mistake(message).note("was the forward pass made with another copy of the model?"))
            }
            None => Ok(()),
        }
    }

    /// What is left of it: the updates, which [`ForwardContext::fits`] has checked.
    pub(crate) fn into_updates(self) -> Vec<StateUpdate> {
        self.updates
    }
}

impl StateUpdate {
    /// Puts updates into a model's states.
    pub fn commit(updates: &[StateUpdate], model: &mut dyn Module) -> Result<()> {
        let mut put =
            |_: &str, param: &mut Param| match updates.iter().find(|update| update.cell.ptr_eq(param.tensor())) {
                Some(update) => param.set(&update.next),
                None => Ok(()),
            };
        model.visit_mut(&mut ParamVisitorMut::new(&mut put))
    }
}
