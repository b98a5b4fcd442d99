//! Recurrent layers: plain, LSTM and GRU; several layers, both directions. Weights and equations are PyTorch's.
//!
//! What a sequence's inputs contribute is one matrix product for all times, of which those of a time stand together; a step is one
//! product with the hidden state and one kernel of what follows. The graph grows with the length of the sequence.
//!
//! Sources: Elman 1990; Hochreiter and Schmidhuber 1997; Cho et al. 2014.

use panoply_tensor::{Error, Rng, Tensor};

use crate::init;
use crate::layer::{ForwardContext, Layer, counted, is_sequence};
use crate::layers::DropoutExt;
use crate::module::{Param, module};

/// What happens in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RnnKind {
    /// tanh of a sum.
    Tanh,
    /// The larger of a sum and 0: PyTorch's `RNN` with `nonlinearity="relu"`.
    Relu,
    /// Long short-term memory: gates input, forget, cell, output.
    Lstm,
    /// Gated recurrent unit: gates reset, update, new.
    Gru,
}

impl RnnKind {
    /// How many hidden widths the weights hold.
    fn gates(self) -> usize {
        match self {
            RnnKind::Tanh | RnnKind::Relu => 1,
            RnnKind::Lstm => 4,
            RnnKind::Gru => 3,
        }
    }
}

/// One layer in one direction.
#[derive(Clone, Debug)]
pub struct RnnWeights {
    /// `[gates · hidden, inputs]`.
    pub weight_ih: Param,
    /// `[gates · hidden, hidden]`.
    pub weight_hh: Param,
    /// `[gates · hidden]`.
    pub bias_ih: Param,
    /// `[gates · hidden]`.
    pub bias_hh: Param,
}

module!(RnnWeights { weight_ih, weight_hh, bias_ih, bias_hh });

/// The layers of one depth: forwards, and backwards if there are two.
#[derive(Clone, Debug)]
pub struct RnnLayer {
    /// One or two.
    pub directions: Vec<RnnWeights>,
}

module!(RnnLayer { directions });

/// A recurrent network over `[batch, time, features]`.
#[derive(Clone, Debug)]
pub struct RnnBase {
    /// What happens in a step.
    pub cell: RnnKind,
    /// Width of the hidden state.
    pub hidden_size: usize,
    /// In order; each reads what the one before gives.
    pub layers: Vec<RnnLayer>,
    /// Probability of dropping what goes from one layer to the next in training.
    pub dropout: f64,
}

/// The state after the last step of each layer and direction: `[layers · directions, batch, hidden]`.
#[derive(Clone, Debug)]
pub struct RnnState {
    /// What a step gives.
    pub hidden: Tensor,
    /// What an LSTM keeps besides; zeros for the others.
    pub cell: Tensor,
}

impl RnnBase {
    /// `layers` of them, in both directions if `bidirectional`. All weights start uniform in ±1/√hidden.
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

    /// The outputs `[batch, time, directions · hidden]` and the last states, from a state or from zeros.
    pub fn forward_with_state(
        &self,
        input: &Tensor,
        start: Option<&RnnState>,
        pass: &mut ForwardContext<'_>,
    ) -> (Tensor, RnnState) {
        self.run_while(input, None, start, pass)
    }

    /// The same over sequences that end before the last time: `lengths` `[batch]` are whole numbers, those above the time count as
    /// the time. Outputs beyond a length are 0, the last state is that at the length, and the way back begins there.
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
                    Err(Error::mistake("a recurrent network needs one whole number for each sequence as its length")
                        .note(format!("sequences {input:?}, lengths {lengths:?}")))
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

    /// Over the times `[batch, time]` at which sequences run, if not all do at all of them.
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
                "a recurrent network needs layers and at least one step, not {input:?}"
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

    /// The outputs of one direction, in the order of time, and the state it ends with, from one or from zeros.
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
        // A GRU's hidden part is weighed before it is added to the inputs'.
        let (bias, hidden_bias) = match self.cell {
            RnnKind::Tanh | RnnKind::Relu | RnnKind::Lstm => (cast(&weights.bias_ih) + hidden_bias, None),
            RnnKind::Gru => (cast(&weights.bias_ih), Some(hidden_bias)),
        };
        let time = match sequence.size(0) {
            Ok(time) => time,
            Err(_) => return (vec![sequence.clone()], (sequence.clone(), sequence.clone())),
        };
        // As rows of one matrix what flows back is joined once; a batch of any length must come first.
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
