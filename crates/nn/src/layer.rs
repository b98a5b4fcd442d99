//! Forward passes: the trait [`Layer`] and the context of a pass.

use std::panic::Location;

use panoply_tensor::{DType, Error, Result, Rng, Shape, Tensor};

use crate::module::{Module, Param, ParamVisitor, ParamVisitorMut};
use crate::shard::Shard;

/// A function from a tensor to a tensor, with parameters.
pub trait Layer {
    /// Returns the output for an input; `pass` holds the mode (training or evaluation) and the state of the pass.
    ///
    /// A mistake in the output of a layer of this crate has the source location of the call, and [`crate::Optimizer::step`] names the layer
    /// by its path in the model.
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor;
}

/// Returns the mask `[batch, time]` of the valid time steps of sequences `[batch, time, …]` with these lengths.
pub(crate) fn counted(times: &Tensor, sequence: &Tensor) -> Tensor {
    sequence.arange_like(1).lt(&times.cast(DType::I32).unsqueeze(1))
}

/// Fails unless the input is a sequence `[batch, time, features]`.
pub(crate) fn is_sequence(input: &Tensor) -> Result<()> {
    match input.ndim()? {
        3 => Ok(()),
        rank => Err(Error::mistake(format!("{input:?} has {rank} axes; expected the 3 of [batch, time, features]"))),
    }
}

/// State of a forward pass: mode, random generator, compute precision, valid lengths, and the buffer updates that it collects.
#[derive(Debug)]
pub struct ForwardContext<'a> {
    rng: Option<&'a mut Rng>,
    is_training: bool,
    updates: Vec<StateUpdate>,
    precision: Option<DType>,
    seen: Option<Vec<(String, Tensor)>>,
    eager: bool,
    times: Option<Tensor>,
    shard: Option<Shard>,
    misfit: Option<Misfit>,
}

/// A layer whose input does not fit it.
#[derive(Debug)]
struct Misfit {
    /// A parameter of the layer, which identifies it, and the parameter's name within the layer.
    param: (Tensor, &'static str),
    message: String,
    note: String,
    /// Place of the call of the layer.
    place: &'static Location<'static>,
}

impl Misfit {
    fn error(&self, path: &str) -> Error {
        let before = if path.is_empty() { String::new() } else { format!("{path}: ") };
        Error::mistake(format!("{before}{}", self.message)).note(&self.note).with_location(self.place)
    }

    /// Returns true if the place is in this crate, where calls through trait objects and closures hide the caller.
    fn is_in_this_crate(&self) -> bool {
        file!().strip_suffix("layer.rs").is_some_and(|own| self.place.file().starts_with(own))
    }
}

/// An updated buffer: its value before the pass, which identifies the cell, and its next value.
#[derive(Clone, Debug)]
pub(crate) struct StateUpdate {
    cell: Tensor,
    pub next: Tensor,
}

impl<'a> ForwardContext<'a> {
    /// Creates the context of a training pass: dropout is active and running statistics are updated.
    pub fn train(rng: &'a mut Rng) -> ForwardContext<'a> {
        ForwardContext { rng: Some(rng), is_training: true, ..ForwardContext::eval() }
    }

    /// Creates the context of an evaluation pass, which is deterministic and updates no buffers.
    pub fn eval() -> ForwardContext<'static> {
        ForwardContext {
            rng: None,
            is_training: false,
            updates: Vec::new(),
            precision: None,
            seen: None,
            eager: false,
            times: None,
            shard: None,
            misfit: None,
        }
    }

    /// Returns a mistake if an axis of a layer's input has another length than the layer expects. `layer` describes the layer; a parameter,
    /// with its name within the layer, identifies it. An axis that the input lacks, or whose length is not known, is left to the operations.
    #[track_caller]
    pub(crate) fn misfit(
        &mut self,
        input: &Tensor,
        (axis, expected): (isize, usize),
        (param, name): (&Param, &'static str),
        layer: &dyn Fn() -> String,
    ) -> Option<Tensor> {
        let length = input.size(axis).ok().filter(|length| *length != expected)?;
        let shape = input.shape().map_or_else(|_| format!("{input:?}"), Shape::to_string);
        let misfit = Misfit {
            param: (param.tensor().clone(), name),
            message: format!("{} got {shape}", layer()),
            note: format!("axis {axis} of its input must have the length {expected}, not {length}"),
            place: Location::caller(),
        };
        let mistake = Tensor::from_mistake(misfit.error(""));
        self.misfit.get_or_insert(misfit);
        Some(mistake)
    }

    /// Runs a layer through a trait object or a closure: a misfit that is found there has the place of this call.
    #[track_caller]
    pub(crate) fn at_caller(&mut self, run: impl FnOnce(&mut Self) -> Tensor) -> Tensor {
        let is_known = self.misfit.is_some();
        let output = run(self);
        match self.misfit.as_mut().filter(|misfit| !is_known && misfit.is_in_this_crate()) {
            Some(misfit) if output.check().is_err_and(|error| error.message() == misfit.message) => {
                misfit.place = Location::caller();
                Tensor::from_mistake(misfit.error(""))
            }
            _ => output,
        }
    }

    /// Names the layer that an error of this pass is about by its path in the model.
    pub(crate) fn with_path(&self, model: &dyn Module, error: Error) -> Error {
        let Some(misfit) = self.misfit.as_ref().filter(|misfit| misfit.message == error.message()) else {
            return error;
        };
        let mut path = None;
        model.visit(&mut ParamVisitor::new(&mut |name, param| {
            if let (true, Some(layer)) = (param.tensor().ptr_eq(&misfit.param.0), name.strip_suffix(misfit.param.1)) {
                path.get_or_insert_with(|| layer.trim_end_matches('.').to_string());
            }
        }));
        misfit.error(&path.unwrap_or_default())
    }

    /// Sets the element type in which linear, convolution, attention and recurrent layers compute; f16 or bf16 is mixed precision. The
    /// parameters keep their type. Norms and the loss compute in f32. [Micikevicius et al. 2018]
    #[must_use]
    pub fn autocast(mut self, precision: DType) -> ForwardContext<'a> {
        self.precision = Some(precision);
        self
    }

    /// Sets the valid length of each sequence: integers `[batch]`, each at least 1; the time steps after it are padding. Without lengths
    /// all time steps are valid. Recurrent layers, attention, [`crate::LastTimeStep`] and [`crate::TimeMean`] use them.
    #[must_use]
    pub fn with_seq_lengths(mut self, seq_lengths: Option<&Tensor>) -> ForwardContext<'a> {
        self.times = seq_lengths.cloned();
        self
    }

    /// Returns the valid length of each sequence, or `None` if all time steps are valid.
    pub fn seq_lengths(&self) -> Option<&Tensor> {
        self.times.as_ref()
    }

    /// Removes and returns the valid lengths, for a layer whose output has no time axis.
    pub fn take_seq_lengths(&mut self) -> Option<Tensor> {
        self.times.take()
    }

    /// Returns the mask `[batch, time]` (bool) of the valid time steps of a sequence `[batch, time, …]`, or `None` if all are valid.
    pub fn valid_mask(&self, sequence: &Tensor) -> Option<Tensor> {
        let times = self.times.as_ref()?;
        match sequence.ndim() {
            Ok(rank) => (rank > 1).then(|| counted(times, sequence)),
            Err(error) => Some(Tensor::from_mistake(error)),
        }
    }

    /// Casts a float tensor to the precision of [`ForwardContext::autocast`], if set. Layers that multiply cast their input and parameters
    /// with it.
    pub fn cast(&self, tensor: &Tensor) -> Tensor {
        match self.precision {
            Some(precision) if tensor.dtype().is_float() => tensor.cast(precision),
            _ => tensor.clone(),
        }
    }

    /// Records the output of each layer for [`ForwardContext::recorded_outputs`].
    #[must_use]
    pub fn record_outputs(mut self) -> ForwardContext<'a> {
        self.seen = Some(Vec::new());
        self
    }

    /// Evaluates each layer of a sequence before the next one, so that nothing is fused across layers.
    #[must_use]
    pub fn eager(mut self) -> ForwardContext<'a> {
        self.eager = true;
        self
    }

    /// Runs a layer and, if outputs are recorded, records its output under `name`, after those of its sublayers.
    #[track_caller]
    pub fn call_layer(&mut self, name: impl FnOnce() -> String, layer: &dyn Layer, input: &Tensor) -> Tensor {
        let before = self.recorded_outputs().len();
        let output = self.at_caller(|pass| layer.forward(input, pass));
        if self.eager {
            // The error is also in the output, where the caller sees it.
            let _ = panoply_tensor::eval(&[&output]);
        }
        if let Some(seen) = &mut self.seen {
            let name = name();
            seen[before..].iter_mut().for_each(|(inner, _)| *inner = format!("{name}: {inner}"));
            seen.push((name, output.clone()));
        }
        output
    }

    /// Returns the recorded layer outputs with names, in order of execution.
    pub fn recorded_outputs(&self) -> &[(String, Tensor)] {
        self.seen.as_deref().unwrap_or_default()
    }

    /// Returns true in a training pass.
    pub fn is_training(&self) -> bool {
        self.is_training
    }

    /// Returns the random generator of a training pass, or `None` in evaluation and after [`ForwardContext::without_rng`]: a layer that draws
    /// numbers in training asks [`ForwardContext::is_training`] first.
    pub fn rng(&mut self) -> Option<&mut Rng> {
        self.rng.as_deref_mut()
    }

    /// Returns the pass without its generator, from which the program can draw again before the optimizer's step. A layer of
    /// this crate that draws numbers afterwards, such as dropout, gives an error.
    ///
    /// ```
    /// # use panoply_nn::{ForwardContext, Layer, Linear, Sgd};
    /// # use panoply_tensor::{Rng, Tensor};
    /// let mut rng = Rng::seed_from_u64(0);
    /// let mut model = Linear::new(2, 1, &mut rng);
    /// let mut pass = ForwardContext::train(&mut rng);
    /// let output = model.forward(&Tensor::from_slice(&[1.0f32, 2.0], [1, 2]), &mut pass);
    /// let pass = pass.without_rng();
    /// let noise = rng.normal([1, 1]);
    /// Sgd::new(0.1).step(&mut model, (output - noise).square().mean(..), pass)?;
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    pub fn without_rng(self) -> ForwardContext<'static> {
        let ForwardContext { rng: _, is_training, updates, precision, seen, eager, times, shard, misfit } = self;
        ForwardContext { rng: None, is_training, updates, precision, seen, eager, times, shard, misfit }
    }

    /// Restricts the pass to some rows of a batch.
    pub(crate) fn sharded(mut self, shard: Option<Shard>) -> ForwardContext<'a> {
        self.shard = shard;
        self
    }

    /// Starts from the buffer updates of another pass.
    pub(crate) fn with_updates(mut self, updates: Vec<StateUpdate>) -> ForwardContext<'a> {
        self.updates = updates;
        self
    }

    /// Draws random numbers in the shape of `like`, whose first axis is the batch; `None` in evaluation. A pass over some rows of a
    /// batch draws for the whole batch and takes its rows, so results do not depend on the number of processes.
    pub(crate) fn draw(&mut self, like: &Tensor, draw: impl FnOnce(&mut Rng, &Tensor) -> Tensor) -> Option<Tensor> {
        let rng = match self.rng.as_deref_mut() {
            Some(rng) => rng,
            None if self.is_training => {
                let message = "a layer draws random numbers after `ForwardContext::without_rng`";
                return Some(Tensor::from_mistake(Error::mistake(message)));
            }
            None => return None,
        };
        let shard = self.shard.as_ref().and_then(|shard| match like.shape().map(Shape::dims) {
            Ok([rows, rest @ ..]) if *rows == shard.rows.len() => Some((shard, [&[shard.batch], rest].concat())),
            _ => None,
        });
        Some(match shard {
            Some((shard, whole)) => shard.of(&draw(rng, &Tensor::zeros(whole, like.dtype()))),
            None => draw(rng, like),
        })
    }

    /// Returns the value of a buffer at this point of the pass, updates included.
    pub fn state(&self, state: &Param) -> Tensor {
        let found = self.updates.iter().find(|update| update.cell.ptr_eq(state.tensor()));
        found.map_or_else(|| state.tensor().clone(), |update| update.next.clone())
    }

    /// Sets the value that a buffer ([`Param::state`]) takes when the step is committed. Ignored in evaluation.
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

    /// Returns the tensors to evaluate before the updates are committed.
    pub(crate) fn roots(&self) -> impl Iterator<Item = &Tensor> {
        self.updates.iter().map(|update| &update.next)
    }

    /// Returns the updated float buffers with their names in this model and their next values.
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

    /// Fails unless every updated buffer belongs to this model and keeps its shape and element type.
    pub(crate) fn fits(&self, model: &dyn Module) -> Result<()> {
        let mut found = 0;
        let mut wrong = None;
        model.visit(&mut ParamVisitor::new(&mut |name, param| {
            for update in self.updates.iter().filter(|update| update.cell.ptr_eq(param.tensor())) {
                found += 1;
                if update.next.shape().ok() != param.tensor().shape().ok()
                    || update.next.dtype() != param.tensor().dtype()
                {
                    let message = format!(
                        "buffer {name}: cannot replace {:?} by {:?}; shape and dtype must be equal",
                        param.tensor(),
                        update.next
                    );
                    wrong.get_or_insert(Error::mistake(message));
                }
            }
        }));
        self.updates.iter().try_for_each(|update| update.next.check())?;
        match wrong {
            Some(wrong) => Err(wrong),
            None if found != self.updates.len() => {
                let message =
                    format!("{} buffers were updated, {found} of them belong to this model", self.updates.len());
                Err(Error::mistake(message)
                    .note("run the forward pass on the model that is passed to the optimizer, not on a clone"))
            }
            None => Ok(()),
        }
    }

    /// Returns the updates, which [`ForwardContext::fits`] has checked.
    pub(crate) fn into_updates(self) -> Vec<StateUpdate> {
        self.updates
    }
}

impl StateUpdate {
    /// Writes the updates to the model's buffers.
    pub fn commit(updates: &[StateUpdate], model: &mut dyn Module) -> Result<()> {
        let mut put =
            |_: &str, param: &mut Param| match updates.iter().find(|update| update.cell.ptr_eq(param.tensor())) {
                Some(update) => param.set(&update.next),
                None => Ok(()),
            };
        model.visit_mut(&mut ParamVisitorMut::new(&mut put))
    }
}
