//! Fusion: scalar operations that depend on one varying element become one [`Step::Univariate`], and quotients and matrix products of two
//! varying operands are expressed by products.

use std::sync::Arc;

use panoply_ir::Alu;
use panoply_ir::reduce::ReduceOp;
use panoply_tensor::{Program, Result};

use crate::interval::Interval;
use crate::steps::{self, Entry, Sizes, Step, StepId, Steps};
use crate::univariate::{Node, Operation, Univariate};
use crate::values::Arithmetic;

/// Maximum number of operations of a function.
const MAX_NODES: usize = 64;
/// Maximum number of products of a matrix product of two varying operands.
const MAX_PRODUCTS: usize = 1 << 16;

/// Compiles a program with one input and one result, and fuses its scalar operations.
///
/// # Errors
/// As for [`steps::compile`].
pub fn compile(program: &Program, arithmetic: Arithmetic) -> Result<Steps> {
    steps::compile(program, arithmetic).map(fuse)
}

/// Fuses steps, and drops those that the output does not depend on.
fn fuse(steps: Steps) -> Steps {
    let roots = roots(&steps.steps);
    let count = steps.steps.len();
    let mut functions: Vec<Option<(StepId, Univariate)>> = (0..count).map(|_| None).collect();
    let mut is_needed = vec![false; count];
    (is_needed[steps.output], is_needed[steps.input]) = (true, true);
    for id in (0..count).rev() {
        if !is_needed[id] {
            continue;
        }
        functions[id] = roots[id].and_then(|root| function(&steps.steps, id, root));
        match &functions[id] {
            Some((root, _)) => is_needed[*root] = true,
            None => operands(&steps.steps[id].step).into_iter().for_each(|operand| is_needed[operand] = true),
        }
    }
    let mut fused = Fused { steps: Vec::new(), ids: vec![0; count] };
    let (input, output) = (steps.input, steps.output);
    for (id, entry) in steps.steps.into_iter().enumerate() {
        if is_needed[id] {
            fused.ids[id] = match functions[id].take() {
                Some((root, function)) => {
                    let step = Step::Univariate(fused.ids[root], function);
                    fused.push(Entry { step, units: 0, ..entry })
                }
                None => fused.add(entry),
            };
        }
    }
    let is_unknown = fused.steps.iter().any(|entry| matches!(entry.step, Step::Unknown));
    let unknown = steps.unknown.filter(|_| is_unknown);
    Steps { input: fused.ids[input], output: fused.ids[output], steps: fused.steps, unknown, ..steps }
}

/// Returns the operands of a step.
pub fn operands(step: &Step) -> Vec<StepId> {
    match step {
        Step::Input | Step::Constant(_) | Step::Unknown => Vec::new(),
        Step::Move(x, _) | Step::Relu(x) | Step::Reduce(_, x, _) | Step::Linear(x, _) | Step::Cast(x) => vec![*x],
        Step::Univariate(x, _) => vec![*x],
        Step::Alu(_, x) => x.clone(),
        Step::MatMul(x, y, _) => vec![*x, *y],
    }
}

/// Returns for each scalar operation the step of whose elements alone it is a function, if there is one.
fn roots(steps: &[Entry]) -> Vec<Option<StepId>> {
    let mut roots: Vec<Option<StepId>> = Vec::with_capacity(steps.len());
    for entry in steps {
        let is_scalar = matches!(entry.step, Step::Alu(..) | Step::Relu(_) | Step::Cast(_));
        let varying: Vec<StepId> = match is_scalar {
            true => operands(&entry.step).into_iter().filter(|id| !is_constant(&steps[*id].step)).collect(),
            false => Vec::new(),
        };
        let same = |of: &dyn Fn(StepId) -> StepId| {
            let first = of(*varying.first()?);
            let is_same = varying.iter().all(|id| of(*id) == first && steps[*id].numel == entry.numel);
            (is_same && steps[first].dtype.is_float()).then_some(first)
        };
        roots.push(same(&|id| roots[id].unwrap_or(id)).or_else(|| same(&|id| id)));
    }
    roots
}

fn is_constant(step: &Step) -> bool {
    matches!(step, Step::Constant(_))
}

/// Returns true if linear bounds pass a scalar operation without a function for it.
fn is_simple(steps: &[Entry], step: &Step) -> bool {
    match step {
        Step::Relu(_) | Step::Alu(Alu::Neg | Alu::Add | Alu::Sub, _) => true,
        Step::Cast(x) => steps[*x].dtype.is_float(),
        Step::Alu(Alu::Mul, x) => x.iter().any(|x| is_constant(&steps[*x].step)),
        Step::Alu(Alu::Div, x) => is_constant(&steps[x[1]].step),
        _ => false,
    }
}

/// Returns the function that a step computes of another, `root` or a step after it, with that step; `None` if its operations are simple or
/// too many.
fn function(steps: &[Entry], id: StepId, root: StepId) -> Option<(StepId, Univariate)> {
    let mut root = root;
    let mut members = members(steps, id, root)?;
    // Affine operations in front stay steps of their own, through which linear bounds pass without loss. As part of the function they move
    // its kinks between floats.
    while let Some(next) = affine_user(steps, &members, root) {
        root = next;
        members = self::members(steps, id, root)?;
    }
    let is_inner = |member: &&StepId| **member != root && !is_constant(&steps[**member].step);
    if members.iter().filter(is_inner).all(|member| is_simple(steps, &steps[*member].step)) {
        return None;
    }
    let node = |member: &StepId| {
        let entry = &steps[*member];
        let operation = match &entry.step {
            _ if *member == root => Operation::Root,
            Step::Constant(values) => Operation::Constant(values.clone()),
            Step::Relu(_) => Operation::Relu,
            Step::Cast(_) => Operation::Cast,
            Step::Alu(op, _) => Operation::Alu(*op),
            _ => return None,
        };
        let is_leaf = matches!(operation, Operation::Root | Operation::Constant(_));
        let operands = if is_leaf { Vec::new() } else { operands(&entry.step) };
        let operands = operands.iter().map(|id| members.binary_search(id).ok()).collect::<Option<Vec<usize>>>()?;
        Some(Node { operation, operands, dtype: entry.dtype, units: entry.units })
    };
    let nodes = members.iter().map(node).collect::<Option<Vec<Node>>>()?;
    Some((root, Univariate { nodes }))
}

/// Returns the steps from `root` to `id` with their constants, in order; `None` if they are too many.
fn members(steps: &[Entry], id: StepId, root: StepId) -> Option<Vec<StepId>> {
    let mut members = vec![id];
    let mut next = 0;
    while let Some(member) = members.get(next).copied() {
        next += 1;
        if member == root || is_constant(&steps[member].step) {
            continue;
        }
        for operand in operands(&steps[member].step) {
            if !members.contains(&operand) {
                members.push(operand);
            }
        }
        if members.len() > MAX_NODES {
            return None;
        }
    }
    members.sort_unstable();
    Some(members)
}

/// Returns the only step that uses `root`, if its operation is affine: a negation, or a sum, difference or product with a constant.
///
/// All uses of its result have the same rounding error then, which holds for operations that devices round correctly and never contract.
/// Quotients have other errors on some devices.
fn affine_user(steps: &[Entry], members: &[StepId], root: StepId) -> Option<StepId> {
    let mut users = members.iter().copied().filter(|id| *id != root && operands(&steps[*id].step).contains(&root));
    let user = users.next().filter(|_| users.next().is_none())?;
    let Step::Alu(op, x) = &steps[user].step else { return None };
    let varying = x.iter().filter(|x| !is_constant(&steps[**x].step)).count();
    let is_affine = match op {
        Alu::Neg | Alu::Add | Alu::Sub | Alu::Mul => varying == 1,
        _ => false,
    };
    (is_affine && steps[user].dtype.is_float() && steps[user].numel == steps[root].numel).then_some(user)
}

struct Fused {
    steps: Vec<Entry>,
    /// Index of the new step of each old one.
    ids: Vec<StepId>,
}

impl Fused {
    fn push(&mut self, entry: Entry) -> StepId {
        self.steps.push(entry);
        self.steps.len() - 1
    }

    fn is_varying(&self, id: StepId) -> bool {
        !is_constant(&self.steps[id].step)
    }

    /// Adds a step that is not fused.
    fn add(&mut self, entry: Entry) -> StepId {
        let id = |id: StepId| self.ids[id];
        let step = match entry.step {
            Step::Input | Step::Constant(_) | Step::Unknown => entry.step,
            Step::Move(x, from) => Step::Move(id(x), from),
            Step::Relu(x) => Step::Relu(id(x)),
            Step::Reduce(op, x, to) => Step::Reduce(op, id(x), to),
            Step::Linear(x, matrix) => Step::Linear(id(x), matrix),
            Step::Cast(x) => Step::Cast(id(x)),
            Step::Univariate(x, function) => Step::Univariate(id(x), function),
            Step::Alu(op, x) => Step::Alu(op, x.into_iter().map(id).collect()),
            Step::MatMul(x, y, sizes) => Step::MatMul(id(x), id(y), sizes),
        };
        let entry = Entry { step, ..entry };
        match &entry.step {
            Step::Alu(Alu::Div, x) if self.is_varying(x[0]) && self.is_varying(x[1]) => {
                let (x, y) = (x[0], x[1]);
                self.quotient(x, y, entry)
            }
            Step::MatMul(x, y, sizes) if sizes.batch * sizes.m * sizes.n * sizes.k <= MAX_PRODUCTS => {
                let (x, y, sizes) = (*x, *y, *sizes);
                self.products(x, y, sizes, entry)
            }
            _ => self.push(entry),
        }
    }

    /// Adds x / y as x · (1 / y), where the reciprocal is exact, so that the product has the error of the quotient.
    fn quotient(&mut self, x: StepId, y: StepId, entry: Entry) -> StepId {
        let dtype = entry.dtype;
        let node = |operation, operands| Node { operation, operands, dtype, units: 0 };
        let one = Operation::Constant(Arc::new([Interval::point(1.0)]));
        let nodes =
            vec![node(Operation::Root, Vec::new()), node(one, Vec::new()), node(Operation::Alu(Alu::Div), vec![1, 0])];
        let step = Step::Univariate(y, Univariate { nodes });
        let inverse = self.push(Entry { step, numel: entry.numel, dtype, units: 0 });
        self.push(Entry { step: Step::Alu(Alu::Mul, vec![x, inverse]), ..entry })
    }

    /// Adds a matrix product as a sum of exact products, so that the sum has the error of the matrix product.
    fn products(&mut self, x: StepId, y: StepId, sizes: Sizes, entry: Entry) -> StepId {
        let Sizes { batch, m, k, n } = sizes;
        let (numel, dtype) = (batch * m * n * k, entry.dtype);
        // Indices of the product [batch, m, n, k].
        let indices = |of: &dyn Fn(usize, usize, usize) -> usize| {
            let index = |at: usize| of(at / (n * k), at / k % n, at % k) as u32;
            (0..numel).map(index).collect::<Vec<u32>>()
        };
        let left = indices(&|row, _, i| row * k + i);
        let right = indices(&|row, column, i| (row / m * k + i) * n + column);
        let to = indices(&|row, column, _| row * n + column);
        let mut moved = |id: StepId, from: Vec<u32>| {
            let step = match &self.steps[id].step {
                Step::Constant(values) => Step::Constant(from.iter().map(|at| values[*at as usize]).collect()),
                _ => Step::Move(id, from),
            };
            self.push(Entry { step, numel, dtype, units: 0 })
        };
        let (left, right) = (moved(x, left), moved(y, right));
        let product = self.push(Entry { step: Step::Alu(Alu::Mul, vec![left, right]), numel, dtype, units: 0 });
        self.push(Entry { step: Step::Reduce(ReduceOp::Sum, product, to), ..entry })
    }
}
