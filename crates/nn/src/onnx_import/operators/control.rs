//! Control flow. The number of rounds of a loop and the branch of a condition are decided on the host.

use std::sync::Arc;

use panoply_tensor::{DType, Error, Result, Tensor};

use super::super::graph::{Graph, Value};
use super::{Operands, Operator, Results, axis_of};

/// Maximum number of rounds of a loop.
const MAX_ROUNDS: i64 = 1 << 16;

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    ("If", &["else_branch", "then_branch"], |o| {
        let branch = if o.number(0)?.unwrap_or(0) != 0 { "then_branch" } else { "else_branch" };
        Ok(results(graph(o, branch)?.run(Vec::new(), Some(o.scope), o.scope.evaluated)?))
    }),
    ("Loop", &["body"], run_loop),
    (
        "Scan",
        &[
            "body",
            "num_scan_inputs",
            "scan_input_axes",
            "scan_input_directions",
            "scan_output_axes",
            "scan_output_directions",
        ],
        scan,
    ),
];

fn results(values: Vec<Value>) -> Results {
    Results(values.into_iter().map(Some).collect())
}

fn graph<'a>(o: &Operands<'a>, name: &str) -> Result<&'a Arc<Graph>> {
    let graph = o.attributes.get(name).and_then(|attribute| attribute.graph.as_ref());
    graph.ok_or_else(|| Error::corrupt(format!("the graph {name} is missing")))
}

/// Appends the results of a round to those of earlier rounds.
fn collect(collected: &mut [Vec<Tensor>], values: Vec<Value>) {
    collected.iter_mut().zip(values).for_each(|(all, value)| all.push(value.tensor));
}

/// Runs a body until its condition is false or a number of rounds is reached. The body's inputs are the number of the round, the
/// condition and the carried values; its outputs are the condition, the carried values and values that are stacked over the rounds.
fn run_loop(o: &Operands<'_>) -> Result<Results> {
    let body = graph(o, "body")?;
    let most = o.number(0)?.unwrap_or(i64::MAX);
    let mut goes_on = o.number(1)?.is_none_or(|condition| condition != 0);
    let mut carried = (2..o.values.len()).map(|n| o.value(n).cloned()).collect::<Result<Vec<Value>>>()?;
    let stacked = body.outputs.len().checked_sub(1 + carried.len());
    let stacked = stacked.ok_or_else(|| Error::corrupt("the body of a loop has too few outputs"))?;
    let mut collected = vec![Vec::new(); stacked];
    let mut round = 0;
    while goes_on && round < most {
        if round >= MAX_ROUNDS {
            return Err(Error::unsupported(format!("a loop of more than {MAX_ROUNDS} rounds is not supported")));
        }
        let mut inputs =
            vec![Value::from_integers(&[round], &[], DType::I64), Value::from_integers(&[1], &[], DType::Bool)];
        inputs.append(&mut carried);
        let mut outputs = body.run(inputs, Some(o.scope), o.scope.evaluated)?.into_iter();
        let condition = outputs.next().ok_or_else(|| Error::corrupt("the body of a loop has no condition"))?;
        goes_on = match &condition.ints {
            Some(ints) => ints.first() != Some(&0),
            None => condition.tensor.reshape(()).item::<bool>()?,
        };
        carried = outputs.by_ref().take(o.values.len().saturating_sub(2)).collect();
        collect(&mut collected, outputs.collect());
        round += 1;
    }
    let mut all = results(carried).0;
    for (at, rows) in collected.iter().enumerate() {
        // Without a round, the shape of the rows is unknown.
        if rows.is_empty() && o.uses(all.len()) {
            return Err(Error::unsupported(format!(
                "the stacked result {at} of a loop without rounds is not supported"
            )));
        }
        all.push((!rows.is_empty()).then(|| Tensor::stack(rows, 0).into()));
    }
    Ok(Results(all))
}

/// Runs a body for each element along an axis of the scanned inputs. Operands: initial states, then scanned inputs.
fn scan(o: &Operands<'_>) -> Result<Results> {
    if o.opset < 9 {
        return Err(Error::unsupported("Scan of opset 8 is not supported; export the model with opset 9 or later"));
    }
    let (body, scanned) = (graph(o, "body")?, usize::try_from(o.int("num_scan_inputs", 0)).unwrap_or(0));
    let states = o.values.len().checked_sub(scanned).filter(|states| *states <= body.outputs.len() && scanned > 0);
    let states = states.ok_or_else(|| Error::corrupt("the number of scanned inputs does not fit"))?;
    let option = |name: &str, n: usize| o.list(name).and_then(|list| list.get(n)).copied().unwrap_or(0);
    let inputs = (0..scanned).map(|n| {
        let x = o.x(states + n)?;
        let axis = axis_of(option("scan_input_axes", n), x.shape()?.ndim())? as isize;
        Ok(if option("scan_input_directions", n) == 0 { x.clone() } else { x.flip(axis) }.movedim(axis, 0))
    });
    let inputs = inputs.collect::<Result<Vec<Tensor>>>()?;
    let rounds = inputs[0].shape()?.dims().first().copied().unwrap_or(0);
    let mut state = (0..states).map(|n| o.value(n).cloned()).collect::<Result<Vec<Value>>>()?;
    let mut collected = vec![Vec::new(); body.outputs.len() - states];
    for round in 0..rounds {
        state.extend(inputs.iter().map(|x| x.narrow(0, round, 1).squeeze(0isize).into()));
        let mut outputs = body.run(state, Some(o.scope), o.scope.evaluated)?.into_iter();
        state = outputs.by_ref().take(states).collect();
        collect(&mut collected, outputs.collect());
    }
    let mut all = results(state).0;
    for (n, mut rows) in collected.into_iter().enumerate() {
        if rows.is_empty() {
            return Err(Error::unsupported("a scan over no elements is not supported"));
        }
        if option("scan_output_directions", n) != 0 {
            rows.reverse();
        }
        let rank = rows[0].shape()?.ndim() + 1;
        all.push(Some(Tensor::stack(rows, axis_of(option("scan_output_axes", n), rank)? as isize).into()));
    }
    Ok(Results(all))
}
