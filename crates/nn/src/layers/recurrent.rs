//! Recurrent layers: plain RNN, LSTM and GRU, stacked and bidirectional. Weights and equations are PyTorch's.
//!
//! The input projections of all time steps are one matrix product, with the rows of a time step contiguous. A time step is one product with
//! the hidden state and one fused kernel. The graph grows with the length of the sequence.
//!
//! Sources: Elman 1990; Hochreiter and Schmidhuber 1997; Cho et al. 2014.

use panoply_tensor::{Error, Rng, Tensor};

use crate::init;
use crate::layer::{ForwardContext, Layer, counted, is_sequence};
use crate::layers::DropoutExt;
use crate::module::{Param, module};

/// Type of recurrent cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RnnKind {
    /// Plain RNN with tanh.
    Tanh,
    /// Plain RNN with ReLU: PyTorch's `RNN` with `nonlinearity="relu"`.
    Relu,
    /// Long short-term memory; the gates are input, forget, cell, output.
    Lstm,
    /// Gated recurrent unit; the gates are reset, update, new.
    Gru,
}

impl RnnKind {
    /// Returns the number of gates, each of the hidden width.
    fn gates(self) -> usize {
        match self {
            RnnKind::Tanh | RnnKind::Relu => 1,
            RnnKind::Lstm => 4,
            RnnKind::Gru => 3,
        }
    }
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

/// A stacked recurrent network over `[batch, time, features]`.
#[doc(alias = "RNN")]
#[doc(alias = "LSTM")]
#[doc(alias = "GRU")]
#[derive(Clone, Debug)]
pub struct RnnBase {
    /// Cell type.
    pub cell: RnnKind,
    /// Width of the hidden state.
    pub hidden_size: usize,
    /// Layers, in order; each reads the outputs of the previous one.
    pub layers: Vec<RnnLayer>,
    /// Probability of dropping the values between layers in training.
    pub dropout: f64,
}

/// Final states of all layers and directions, `[layers · directions, batch, hidden]`.
#[derive(Clone, Debug)]
pub struct RnnState {
    /// Hidden state.
    pub hidden: Tensor,
    /// Cell state of an LSTM; zeros for the other cells.
    pub cell: Tensor,
}

impl RnnBase {
    /// Creates `layers` layers, bidirectional if `both`. All weights are uniform in ±1/√hidden.
    pub fn new(cell: RnnKind, inputs: usize, hidden: usize, layers: usize, both: bool, rng: &mut Rng) -> RnnBase {
        let bound = 1.0 / (hidden.max(1) as f64).sqrt();
        let (rows, directions) = (cell.gates() * hidden, if both { 2 } else { 1 });
        let mut direction = |inputs: usize| RnnWeights {
            weight_ih: Param::new(init::uniform(&[rows, inputs], bound, rng)),
            weight_hh: Param::new(init::uniform(&[rows, hidden], bound, rng)),
            bias_ih: Param::new(init::uniform(&[rows], bound, rng)),
            bias_hh: Param::new(init::uniform(&[rows], bound, rng)),
        };
        let depth = |layer: usize| RnnLayer {
            directions: (0..directions)
                .map(|_| direction(if layer == 0 { inputs } else { directions * hidden }))
                .collect(),
        };
        RnnBase { cell, hidden_size: hidden, layers: (0..layers).map(depth).collect(), dropout: 0.0 }
    }

    /// Returns the outputs `[batch, time, directions · hidden]` and the final states. Starts from `start`, or from zeros.
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
            Err(error) => {
                let mistake = Tensor::from_mistake(error);
                (mistake.clone(), RnnState { hidden: mistake.clone(), cell: mistake })
            }
        }
    }

    /// Runs all layers; `runs` is the mask `[batch, time]` of the valid time steps, `None` if all are valid.
    fn run_while(
        &self,
        input: &Tensor,
        runs: Option<&Tensor>,
        start: Option<&RnnState>,
        pass: &mut ForwardContext<'_>,
    ) -> (Tensor, RnnState) {
        let wrong = |error: Error| {
            let mistake = Tensor::from_mistake(error);
            (mistake.clone(), RnnState { hidden: mistake.clone(), cell: mistake })
        };
        let time = match is_sequence(input).and_then(|()| input.size(1)) {
            Ok(time) => time,
            Err(error) => return wrong(error),
        };
        if time == 0 || self.layers.is_empty() {
            return wrong(Error::mistake(format!(
                "recurrent layer: needs at least one layer and one time step, got {input:?}"
            )));
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
        // A GRU multiplies the recurrent term by the reset gate before adding it, so its bias cannot be folded.
        let (bias, hidden_bias) = match self.cell {
            RnnKind::Tanh | RnnKind::Relu | RnnKind::Lstm => (cast(&weights.bias_ih) + hidden_bias, None),
            RnnKind::Gru => (cast(&weights.bias_ih), Some(hidden_bias)),
        };
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
            let next = self.step(&input_at(at), &back, &state);
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

    fn step(&self, input: &Tensor, back: &Tensor, (hidden, memory): &(Tensor, Tensor)) -> (Tensor, Tensor) {
        fn gate(x: &Tensor, i: usize, width: usize) -> Tensor {
            x.narrow(-1, i * width, width)
        }
        let width = self.hidden_size;
        match self.cell {
            RnnKind::Tanh => ((input + back).tanh(), memory.clone()),
            RnnKind::Relu => ((input + back).relu(), memory.clone()),
            RnnKind::Lstm => {
                let body = |[input, back, memory]: [&Tensor; 3], width: &usize| {
                    let sum = input + back;
                    let [taken, kept, given] = [0, 1, 3].map(|i| gate(&sum, i, *width).sigmoid());
                    let next = kept * memory + taken * gate(&sum, 2, *width).tanh();
                    [given * next.tanh(), next]
                };
                Tensor::call_multi("lstm step", [input, back, memory], width, body).into()
            }
            RnnKind::Gru => {
                let body = |[input, back, hidden]: [&Tensor; 3], width: &usize| {
                    let both = |i| (gate(input, i, *width) + gate(back, i, *width)).sigmoid();
                    let (reset, update) = (both(0), both(1));
                    let new = (gate(input, 2, *width) + reset * gate(back, 2, *width)).tanh();
                    &new + update * (hidden - &new)
                };
                (Tensor::call("gru step", [input, back, hidden], width, body), memory.clone())
            }
        }
    }
}

impl Layer for RnnBase {
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        match pass.seq_lengths().cloned() {
            Some(times) => self.forward_packed(input, &times, None, pass).0,
            None => self.forward_with_state(input, None, pass).0,
        }
    }
}

module!(RnnBase { layers });
