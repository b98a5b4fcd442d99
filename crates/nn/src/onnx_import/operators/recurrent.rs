//! Recurrent networks: `RNN`, `GRU` and `LSTM`, unrolled over the steps of the sequence.

use panoply_tensor::{DType, Error, Result, Tensor};

use super::activation::{Activation, by_name};
use super::{Operands, Operator, Results, scalar, unsupported};

/// Attributes of all recurrent operators.
const ATTRIBUTES: &[&str] = &[
    "activation_alpha",
    "activation_beta",
    "activations",
    "clip",
    "direction",
    "hidden_size",
    "input_forget",
    "layout",
    "linear_before_reset",
];

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    ("GRU", ATTRIBUTES, |o| run(o, &Cell { gates: 3, activations: &["Sigmoid", "Tanh"], step: gru })),
    ("LSTM", ATTRIBUTES, |o| run(o, &Cell { gates: 4, activations: &["Sigmoid", "Tanh", "Tanh"], step: lstm })),
    ("RNN", ATTRIBUTES, |o| run(o, &Cell { gates: 1, activations: &["Tanh"], step: rnn })),
];

/// A kind of recurrent cell.
struct Cell {
    /// Number of gates whose weights are stacked.
    gates: usize,
    /// Default activation functions.
    activations: &'static [&'static str],
    /// Computes the next hidden and cell state from the input's products with the weights, and the bias of the input.
    step: fn(&Direction<'_>, &Tensor, &State) -> State,
}

/// Hidden state and, for `LSTM`, cell state: `[batch, hidden]` each.
#[derive(Clone)]
struct State {
    hidden: Tensor,
    cell: Option<Tensor>,
}

/// Parameters of one direction.
struct Direction<'a> {
    /// Input weights `[features, gates · hidden]`.
    weight: Tensor,
    /// Recurrent weights `[hidden, gates · hidden]`.
    recurrence: Tensor,
    /// Biases of the input and of the recurrence, `[gates · hidden]` each.
    biases: [Tensor; 2],
    /// Weights from the cell state to the gates i, o and f.
    peepholes: Option<[Tensor; 3]>,
    activations: Vec<Activation>,
    hidden: usize,
    o: &'a Operands<'a>,
}

impl Direction<'_> {
    /// Returns the part of stacked gates that belongs to one gate.
    fn gate(&self, stacked: &Tensor, n: usize) -> Tensor {
        stacked.narrow(-1, n * self.hidden, self.hidden)
    }

    /// Clips what goes into an activation function.
    fn activate(&self, n: usize, x: Tensor) -> Tensor {
        let limit = self.o.float("clip", 0.0);
        let bound = |value: f64| scalar(value, x.dtype());
        self.activations[n](&if limit > 0.0 { x.maximum(bound(-limit)).minimum(bound(limit)) } else { x })
    }
}

fn rnn(d: &Direction<'_>, input: &Tensor, state: &State) -> State {
    let sum = input + state.hidden.matmul(&d.recurrence) + &d.biases[1];
    State { hidden: d.activate(0, sum), cell: None }
}

fn gru(d: &Direction<'_>, input: &Tensor, state: &State) -> State {
    let recurrent = state.hidden.matmul(&d.recurrence) + &d.biases[1];
    let update = d.activate(0, d.gate(input, 0) + d.gate(&recurrent, 0));
    let reset = d.activate(0, d.gate(input, 1) + d.gate(&recurrent, 1));
    let from_hidden = match d.o.flag("linear_before_reset", false) {
        true => reset * d.gate(&recurrent, 2),
        false => (reset * &state.hidden).matmul(&d.gate(&d.recurrence, 2)) + d.gate(&d.biases[1], 2),
    };
    let candidate = d.activate(1, d.gate(input, 2) + from_hidden);
    State { hidden: (1.0 - &update) * candidate + update * &state.hidden, cell: None }
}

/// Computes an LSTM step; the gates are stacked as i, o, f, c.
fn lstm(d: &Direction<'_>, input: &Tensor, state: &State) -> State {
    let gates = input + state.hidden.matmul(&d.recurrence) + &d.biases[1];
    let old = state.cell.clone().unwrap_or_else(|| state.hidden.zeros_like());
    let peep = |gate: Tensor, n: usize, cell: &Tensor| match &d.peepholes {
        Some(weights) => gate + &weights[n] * cell,
        None => gate,
    };
    let input = d.activate(0, peep(d.gate(&gates, 0), 0, &old));
    let forget = d.activate(0, peep(d.gate(&gates, 2), 2, &old));
    let cell = forget * &old + input * d.activate(1, d.gate(&gates, 3));
    let output = d.activate(0, peep(d.gate(&gates, 1), 1, &cell));
    State { hidden: output * d.activations[2](&cell), cell: Some(cell) }
}

/// Returns the activation functions of a direction.
fn activations(o: &Operands<'_>, cell: &Cell, direction: usize) -> Result<Vec<Activation>> {
    let count = cell.activations.len();
    let named = o.attributes.get("activations").map(|attribute| &attribute.texts[..]).unwrap_or_default();
    let number = |name: &str, at: usize| o.attributes.get(name)?.floats.get(at).map(|value| f64::from(*value));
    let function = |n: usize| {
        let at = direction * count + n;
        let name = named.get(at).map_or(cell.activations[n], String::as_str);
        by_name(name, number("activation_alpha", at), number("activation_beta", at))
    };
    (0..count).map(function).collect()
}

/// Reads the parameters of a direction from the operands W, R, B and P.
fn direction<'a>(o: &'a Operands<'a>, cell: &Cell, n: usize) -> Result<Direction<'a>> {
    let pick = |tensor: &Tensor| tensor.narrow(0, n, 1).squeeze(0isize);
    let [_, hidden] = pick(o.x(2)?).dims::<2>()?;
    let width = hidden.saturating_mul(cell.gates);
    let bias = o.optional(3).map_or_else(|| Tensor::zeros([2 * width], o.x(0).map_or(DType::F32, Tensor::dtype)), pick);
    let peepholes =
        o.optional(7).filter(|_| cell.gates == 4).map(|all| [0, 1, 2].map(|n| pick(all).narrow(0, n * hidden, hidden)));
    Ok(Direction {
        weight: pick(o.x(1)?).t(),
        recurrence: pick(o.x(2)?).t(),
        biases: [bias.narrow(0, 0, width), bias.narrow(0, width, width)],
        peepholes,
        activations: activations(o, cell, n)?,
        hidden,
        o,
    })
}

/// Runs over the sequence in each direction. Operands: X, W, R, B, sequence lengths, initial hidden and cell state, peepholes.
fn run(o: &Operands<'_>, cell: &Cell) -> Result<Results> {
    if o.flag("input_forget", false) {
        return Err(unsupported("an LSTM with coupled gates (input_forget)"));
    }
    // With layout 1 the batch is the first axis of X, Y and of the states.
    let is_batch_first = o.flag("layout", false);
    let turned = |x: &Tensor| if is_batch_first { x.transpose(0, 1) } else { x.clone() };
    let x = turned(o.x(0)?);
    let [steps, batch, _] = x.dims::<3>()?;
    if steps == 0 {
        return Err(unsupported("a sequence without steps"));
    }
    let reversed = match o.text("direction", "forward") {
        "forward" => vec![false],
        "reverse" => vec![true],
        "bidirectional" => vec![false, true],
        other => return Err(Error::corrupt(format!("the direction `{other}` is unknown"))),
    };
    let valid = o.optional(4).map(|lengths| lengths.cast(DType::I64).reshape([-1, 1]));
    let (mut outputs, mut lasts) = (Vec::new(), Vec::new());
    for (n, is_reversed) in reversed.iter().enumerate() {
        let d = direction(o, cell, n)?;
        let initial = |at: usize| match o.optional(at) {
            Some(state) => turned(state).narrow(0, n, 1).squeeze(0isize),
            None => Tensor::zeros([batch, d.hidden], x.dtype()),
        };
        // One product for all steps.
        let inputs = x.matmul(&d.weight) + &d.biases[0];
        let mut state = State { hidden: initial(5), cell: (cell.gates == 4).then(|| initial(6)) };
        let mut hidden = vec![x.clone(); steps];
        for step in 0..steps {
            let at = if *is_reversed { steps - 1 - step } else { step };
            let next = (cell.step)(&d, &inputs.narrow(0, at, 1).squeeze(0isize), &state);
            next.hidden.check()?;
            // Beyond the end of a sequence the state stays, and the output is zero.
            let inside = valid.as_ref().map(|valid| valid.gt(at));
            let kept = |new: &Tensor, old: &Tensor| {
                inside.as_ref().map_or_else(|| new.clone(), |inside| new.where_self(inside, old))
            };
            hidden[at] = kept(&next.hidden, &next.hidden.zeros_like());
            let old_cell = state.cell.clone();
            state = State {
                hidden: kept(&next.hidden, &state.hidden),
                cell: next.cell.zip(old_cell).map(|(new, old)| kept(&new, &old)),
            };
        }
        outputs.push(Tensor::stack(&hidden, 0));
        lasts.push(state);
    }
    let y = Tensor::stack(&outputs, 1);
    let y = if is_batch_first { y.permute([2, 0, 1, 3]) } else { y };
    let stacked = |states: Vec<Tensor>| turned(&Tensor::stack(states, 0));
    let mut results = vec![y, stacked(lasts.iter().map(|state| state.hidden.clone()).collect())];
    if cell.gates == 4 {
        results.push(stacked(lasts.into_iter().filter_map(|state| state.cell).collect()));
    }
    Ok(results.into())
}
