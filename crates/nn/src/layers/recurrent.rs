//! Recurrent layers: plain RNN, LSTM and GRU, stacked and bidirectional. Weights and equations are PyTorch's.
//!
//! The input projections of all time steps are one matrix product, with the rows of a time step contiguous. A time step is one product with
//! the hidden state and one fused kernel. The graph grows with the length of the sequence.

use std::fmt;

use panoply_tensor::{Error, Result, Rng, Tensor};
use serde::{Deserialize, Serialize};

use crate::init;
use crate::layer::{ForwardContext, Layer, counted, is_sequence};
use crate::layers::DropoutExt;
use crate::module::{Module, Param, ParamVisitor, ParamVisitorMut, module};

/// The equations of a recurrent layer.
pub trait RecurrentCell: Copy + fmt::Debug + Send + Sync + 'static {
    /// Name of the layers in messages.
    const NAME: &'static str;

    /// Number of gates, each of the hidden width.
    const GATES: usize;

    /// True if the recurrent bias is added to the recurrent product before anything else, so that it can be added to the input instead.
    const SUMS_BIASES: bool;

    /// Returns the next hidden and cell state, `[batch, width]`, from the products of input and hidden state with their weights, `[batch,
    /// gates · width]`, and the present states.
    fn step(&self, input: &Tensor, recurrent: &Tensor, state: &(Tensor, Tensor), width: usize) -> (Tensor, Tensor);
}

/// Activation of a plain recurrent layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nonlinearity {
    /// Hyperbolic tangent.
    #[default]
    Tanh,
    /// max(x, 0).
    Relu,
}

/// Cell of a plain recurrent layer.
#[derive(Clone, Copy, Debug, Default)]
pub struct RnnCell {
    /// Activation of the sum.
    pub nonlinearity: Nonlinearity,
}

impl RecurrentCell for RnnCell {
    const NAME: &'static str = "Rnn";
    const GATES: usize = 1;
    const SUMS_BIASES: bool = true;

    fn step(&self, input: &Tensor, recurrent: &Tensor, (_, cell): &(Tensor, Tensor), _: usize) -> (Tensor, Tensor) {
        let sum = input + recurrent;
        let hidden = match self.nonlinearity {
            Nonlinearity::Tanh => sum.tanh(),
            Nonlinearity::Relu => sum.relu(),
        };
        (hidden, cell.clone())
    }
}

/// Long short-term memory; the gates are input, forget, cell, output.
#[derive(Clone, Copy, Debug, Default)]
pub struct LstmCell;

impl RecurrentCell for LstmCell {
    const NAME: &'static str = "Lstm";
    const GATES: usize = 4;
    const SUMS_BIASES: bool = true;

    fn step(&self, input: &Tensor, recurrent: &Tensor, (_, cell): &(Tensor, Tensor), width: usize) -> (Tensor, Tensor) {
        let body = |[input, recurrent, cell]: [&Tensor; 3], width: &usize| {
            let sum = input + recurrent;
            let [taken, kept, given] = [0, 1, 3].map(|i| gate(&sum, i, *width).sigmoid());
            let next = kept * cell + taken * gate(&sum, 2, *width).tanh();
            [given * next.tanh(), next]
        };
        Tensor::call_multi("lstm step", [input, recurrent, cell], width, body).into()
    }
}

/// Gated recurrent unit; the gates are reset, update, new.
#[derive(Clone, Copy, Debug, Default)]
pub struct GruCell;

impl RecurrentCell for GruCell {
    const NAME: &'static str = "Gru";
    const GATES: usize = 3;
    // The recurrent term of the new gate is multiplied by the reset gate, with its bias.
    const SUMS_BIASES: bool = false;

    fn step(
        &self,
        input: &Tensor,
        recurrent: &Tensor,
        (hidden, cell): &(Tensor, Tensor),
        width: usize,
    ) -> (Tensor, Tensor) {
        let body = |[input, recurrent, hidden]: [&Tensor; 3], width: &usize| {
            let both = |i| (gate(input, i, *width) + gate(recurrent, i, *width)).sigmoid();
            let (reset, update) = (both(0), both(1));
            let new = (gate(input, 2, *width) + reset * gate(recurrent, 2, *width)).tanh();
            &new + update * (hidden - &new)
        };
        (Tensor::call("gru step", [input, recurrent, hidden], width, body), cell.clone())
    }
}

/// Returns a mistake as outputs and final states.
fn mistaken(mistake: Tensor) -> (Tensor, RnnState) {
    (mistake.clone(), RnnState { hidden: mistake.clone(), cell: mistake })
}

/// Returns gate number `i` of `[batch, gates · width]`.
fn gate(x: &Tensor, i: usize, width: usize) -> Tensor {
    x.narrow(-1, i * width, width)
}

/// Weights of one layer in one direction.
#[derive(Clone, Debug)]
pub struct RnnWeights {
    /// Input weights, `[gates · hidden, inputs]`.
    pub weight_ih: Param,
    /// Recurrent weights, `[gates · hidden, hidden]`.
    pub weight_hh: Param,
    /// Input bias, `[gates · hidden]`.
    pub bias_ih: Param,
    /// Recurrent bias, `[gates · hidden]`.
    pub bias_hh: Param,
}

module!(RnnWeights { weight_ih, weight_hh, bias_ih, bias_hh });

/// One layer: forward, and backward if it is bidirectional.
#[derive(Clone, Debug)]
pub struct RnnLayer {
    /// Weights of the one or two directions.
    pub directions: Vec<RnnWeights>,
}

module!(RnnLayer { directions });

/// Stacked recurrent layers over `[batch, time, features]`, by their equations: [`Rnn`], [`Lstm`] or [`Gru`].
#[derive(Clone, Debug)]
pub struct RnnBase<C> {
    /// Equations.
    pub cell: C,
    /// Width of the hidden state.
    pub hidden_size: usize,
    /// Layers, in order; each reads the outputs of the previous one.
    pub layers: Vec<RnnLayer>,
    /// Probability of dropping the values between layers in training.
    pub dropout: f64,
}

/// Plain recurrent layers, with tanh or, by [`Rnn::nonlinearity`], with ReLU. [Elman 1990]
#[doc(alias = "RNN")]
pub type Rnn = RnnBase<RnnCell>;
/// Long short-term memory layers. [Hochreiter and Schmidhuber 1997]
#[doc(alias = "LSTM")]
pub type Lstm = RnnBase<LstmCell>;
/// Layers of gated recurrent units. [Cho et al. 2014]
#[doc(alias = "GRU")]
pub type Gru = RnnBase<GruCell>;

/// Options of recurrent layers, with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RnnOptions {
    /// Number of stacked layers.
    pub num_layers: usize,
    /// True for an additional backward direction, whose outputs follow those of the forward direction.
    pub bidirectional: bool,
    /// Probability of dropping the values between layers in training.
    pub dropout: f64,
}

impl Default for RnnOptions {
    /// One layer in the direction of time, without dropout.
    fn default() -> RnnOptions {
        RnnOptions { num_layers: 1, bidirectional: false, dropout: 0.0 }
    }
}

/// Final states of all layers and directions, `[layers · directions, batch, hidden]`.
#[derive(Clone, Debug)]
pub struct RnnState {
    /// Hidden state.
    pub hidden: Tensor,
    /// Cell state of an LSTM; zeros for the other cells.
    pub cell: Tensor,
}

impl<C: RecurrentCell + Default> RnnBase<C> {
    /// Creates one layer in the direction of time. All weights are uniform in ±1/√hidden, as in PyTorch.
    pub fn new(input_size: usize, hidden_size: usize, rng: &mut Rng) -> RnnBase<C> {
        RnnBase::with_options(input_size, hidden_size, RnnOptions::default(), rng)
    }

    /// Creates layers with these options.
    pub fn with_options(input_size: usize, hidden_size: usize, options: RnnOptions, rng: &mut Rng) -> RnnBase<C> {
        let RnnOptions { num_layers, bidirectional, dropout } = options;
        let bound = 1.0 / (hidden_size.max(1) as f64).sqrt();
        let (rows, directions) = (C::GATES * hidden_size, if bidirectional { 2 } else { 1 });
        let mut direction = |inputs: usize| RnnWeights {
            weight_ih: Param::new(init::uniform(&[rows, inputs], bound, rng)),
            weight_hh: Param::new(init::uniform(&[rows, hidden_size], bound, rng)),
            bias_ih: Param::new(init::uniform(&[rows], bound, rng)),
            bias_hh: Param::new(init::uniform(&[rows], bound, rng)),
        };
        let mut layer = |inputs: usize| RnnLayer { directions: (0..directions).map(|_| direction(inputs)).collect() };
        let inputs = |depth: usize| if depth == 0 { input_size } else { directions * hidden_size };
        let layers = (0..num_layers).map(|depth| layer(inputs(depth))).collect();
        RnnBase { cell: C::default(), hidden_size, layers, dropout }
    }
}

impl Rnn {
    /// Sets the activation.
    #[must_use]
    pub fn nonlinearity(mut self, nonlinearity: Nonlinearity) -> Rnn {
        self.cell.nonlinearity = nonlinearity;
        self
    }
}

impl<C: RecurrentCell> RnnBase<C> {
    /// Returns the outputs `[batch, time, directions · hidden]` and the final states. Starts from `start`, or from zeros.
    #[track_caller]
    pub fn forward_with_state(
        &self,
        input: &Tensor,
        start: Option<&RnnState>,
        pass: &mut ForwardContext<'_>,
    ) -> (Tensor, RnnState) {
        self.run_while(input, None, start, pass)
    }

    /// Runs over padded sequences with valid lengths `[batch]` (integers; larger values count as the full time axis). Outputs beyond a
    /// length are 0, the final state is the state at the length, and the backward direction starts there.
    #[doc(alias = "pack_padded_sequence")]
    #[track_caller]
    pub fn forward_packed(
        &self,
        input: &Tensor,
        lengths: &Tensor,
        start: Option<&RnnState>,
        pass: &mut ForwardContext<'_>,
    ) -> (Tensor, RnnState) {
        let fits = is_sequence(input).and_then(|()| lengths.check()).and_then(|()| {
            match lengths.is_same_size(&input.arange_like(0)) && lengths.dtype().is_int() {
                true => Ok(()),
                false => {
                    Err(Error::mistake("recurrent layer: `lengths` must have an integer type and be of shape [batch]")
                        .note(format!("the sequences are {input:?}, the lengths {lengths:?}")))
                }
            }
        });
        match fits {
            Ok(()) => self.run_while(input, Some(&counted(lengths, input)), start, pass),
            Err(error) => mistaken(Tensor::from_mistake(error)),
        }
    }

    /// Runs all layers; `runs` is the mask `[batch, time]` of the valid time steps, `None` if all are valid.
    #[track_caller]
    fn run_while(
        &self,
        input: &Tensor,
        runs: Option<&Tensor>,
        start: Option<&RnnState>,
        pass: &mut ForwardContext<'_>,
    ) -> (Tensor, RnnState) {
        let time = match is_sequence(input).and_then(|()| input.size(1)) {
            Ok(time) => time,
            Err(error) => return mistaken(Tensor::from_mistake(error)),
        };
        if time == 0 || self.layers.is_empty() {
            let message = format!("recurrent layer: needs at least one layer and one time step, got {input:?}");
            return mistaken(Tensor::from_mistake(Error::mistake(message)));
        }
        let first = self.layers[0].directions.first().map(|direction| &direction.weight_ih);
        if let Some((weight, [_, inputs])) = first.and_then(|weight| Some((weight, weight.tensor().dims::<2>().ok()?)))
        {
            let layer = || format!("{}({inputs} → {})", C::NAME, self.hidden_size);
            let weight = (weight, "layers.0.directions.0.weight_ih");
            if let Some(mistake) = pass.misfit(input, (2, inputs), weight, &layer) {
                return mistaken(mistake);
            }
        }
        // `[time, batch, features]`.
        let (mut sequence, mut last) = (pass.cast(input).transpose(0, 1), Vec::new());
        for (depth, layer) in self.layers.iter().enumerate() {
            if depth > 0 {
                sequence = sequence.dropout(self.dropout, pass);
            }
            let mut sides = Vec::new();
            for (side, direction) in layer.directions.iter().enumerate() {
                let index = last.len();
                let state = |memory: &Tensor| memory.narrow(0, index, 1).squeeze(0);
                let state = start.map(|memory| (state(&memory.hidden), state(&memory.cell)));
                let (outputs, state) = self.along(direction, &sequence, runs, state, side == 1, pass);
                sides.push(Tensor::stack(&outputs, 0));
                last.push(state);
            }
            sequence = Tensor::concat(&sides, 2);
        }
        let sequence = sequence.transpose(0, 1);
        let (hidden, cell): (Vec<Tensor>, Vec<Tensor>) = last.into_iter().unzip();
        (sequence, RnnState { hidden: Tensor::stack(&hidden, 0), cell: Tensor::stack(&cell, 0) })
    }

    /// Returns the outputs of one direction in the order of time, and its final state.
    fn along(
        &self,
        weights: &RnnWeights,
        sequence: &Tensor,
        runs: Option<&Tensor>,
        state: Option<(Tensor, Tensor)>,
        backwards: bool,
        pass: &ForwardContext<'_>,
    ) -> (Vec<Tensor>, (Tensor, Tensor)) {
        let cast = |weight: &Param| pass.cast(weight.tensor());
        let (recurrent, hidden_bias) = (cast(&weights.weight_hh).t(), cast(&weights.bias_hh));
        let bias = cast(&weights.bias_ih);
        let (bias, hidden_bias) = if C::SUMS_BIASES { (bias + hidden_bias, None) } else { (bias, Some(hidden_bias)) };
        let time = match sequence.size(0) {
            Ok(time) => time,
            Err(_) => return (vec![sequence.clone()], (sequence.clone(), sequence.clone())),
        };
        // Rows of one matrix: the gradients of the time steps are concatenated once. A dynamic batch must be the first axis.
        let whole = if sequence.has_dynamic_dim() { None } else { sequence.dims::<3>().ok() };
        let rows = match whole {
            Some([_, batch, features]) => sequence.reshape([time * batch, features].map(|length| length as isize)),
            None => sequence.transpose(0, 1),
        };
        let inputs = rows.matmul(&cast(&weights.weight_ih).t()) + bias;
        let input_at = |at: usize| match whole {
            Some([_, batch, _]) => inputs.narrow(0, at * batch, batch),
            None => inputs.narrow(1, at, 1).squeeze(1),
        };
        let zeros = || input_at(0).narrow(-1, 0, self.hidden_size).zeros_like();
        let mut state = state.unwrap_or_else(|| (zeros(), zeros()));
        let mut outputs = Vec::with_capacity(time);
        for step in 0..time {
            let at = if backwards { time - 1 - step } else { step };
            let back = state.0.matmul(&recurrent);
            let back = hidden_bias.iter().fold(back, |back, bias| back + bias);
            let next = self.cell.step(&input_at(at), &back, &state, self.hidden_size);
            let Some(runs) = runs else {
                outputs.push(next.0.clone());
                state = next;
                continue;
            };
            let runs = runs.narrow(1, at, 1);
            outputs.push(next.0.where_self(&runs, &next.0.zeros_like()));
            state = (next.0.where_self(&runs, &state.0), next.1.where_self(&runs, &state.1));
        }
        if backwards {
            outputs.reverse();
        }
        (outputs, state)
    }
}

impl<C: RecurrentCell> Layer for RnnBase<C> {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        match pass.seq_lengths().cloned() {
            Some(times) => self.forward_packed(input, &times, None, pass).0,
            None => self.forward_with_state(input, None, pass).0,
        }
    }
}

impl<C> Module for RnnBase<C> {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) {
        visitor.field("layers", &self.layers);
    }

    fn visit_mut(&mut self, visitor: &mut ParamVisitorMut<'_>) -> Result<()> {
        visitor.field("layers", &mut self.layers)
    }
}
