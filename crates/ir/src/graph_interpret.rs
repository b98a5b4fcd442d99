//! Reference interpreter of graphs: the oracle that every compiled plan is compared with.
//!
//! It is deliberately slow and simple: one element and one operation at a time, and no code shared with `compile`.
//!
//! **Floats** of every width are computed and kept in f64, unrounded, so that the result is nearly exact and an error measured against
//! it is the error of the executor under test. Values are rounded only where the graph changes their type. Leaves, constants and scalar
//! inputs are elements of their type already. A cast or bitcast rounds its operand to the operand's type first, then the value to the
//! result's type. **Integers and bools** are exact and wrap as [`crate::alu`] defines.

use crate::alu::{Alu, Math};
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Op, Slice};
use crate::graph_verify;
use crate::reduce::ReduceOp;
use crate::shape::Shape;

/// A value of a graph: elements in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Lengths of the axes.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
    /// The elements.
    pub data: Data,
}

/// Elements, by their representation in the interpreter.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Floats of any width, unrounded.
    Floats(Vec<f64>),
    /// Integers of any width, and bools as 0 and 1.
    Ints(Vec<i128>),
}

/// An element during evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Float(f64),
    Int(i128),
}

impl Array {
    /// Creates an array of these elements, which must all have the type.
    pub fn new(shape: impl Into<Shape>, dtype: DType, elements: &[Scalar]) -> Array {
        Array::collect(shape.into(), dtype, elements.iter().map(|element| number(*element)))
    }

    /// Returns the elements rounded to their type.
    pub fn scalars(&self) -> Vec<Scalar> {
        match &self.data {
            Data::Floats(data) => data.iter().map(|value| Scalar::from_f64(self.dtype, *value)).collect(),
            Data::Ints(data) => data.iter().map(|value| Scalar::from_i128(self.dtype, *value)).collect(),
        }
    }

    fn get(&self, at: usize) -> Number {
        match &self.data {
            Data::Floats(data) => Number::Float(data[at]),
            Data::Ints(data) => Number::Int(data[at]),
        }
    }

    fn set(&mut self, at: usize, value: Number) {
        match (&mut self.data, value) {
            (Data::Floats(data), Number::Float(value)) => data[at] = value,
            (Data::Ints(data), Number::Int(value)) => data[at] = value,
            _ => unreachable!("the graph was verified"),
        }
    }

    fn collect(shape: Shape, dtype: DType, elements: impl Iterator<Item = Number>) -> Array {
        let data = if dtype.is_float() {
            Data::Floats(elements.map(Number::float).collect())
        } else {
            Data::Ints(elements.map(Number::int).collect())
        };
        Array { shape, dtype, data }
    }

    fn filled(shape: Shape, dtype: DType, value: Number) -> Array {
        let elems = shape.numel();
        Array::collect(shape, dtype, std::iter::repeat_n(value, elems))
    }
}

impl Number {
    fn float(self) -> f64 {
        match self {
            Number::Float(value) => value,
            Number::Int(_) => unreachable!("the graph was verified"),
        }
    }

    fn int(self) -> i128 {
        match self {
            Number::Int(value) => value,
            Number::Float(_) => unreachable!("the graph was verified"),
        }
    }
}

/// Returns the values of a graph's outputs. Leaf n is `leaves[n]`, scalar input n is `slots[n]`.
///
/// # Errors
/// The graph is invalid, or a leaf or scalar input is missing or has another shape or type.
pub fn run(graph: &Graph, leaves: &[Array], slots: &[Scalar]) -> Result<Vec<Array>> {
    graph_verify::verify(graph)?;
    run_verified(graph, leaves, slots)
}

fn run_verified(graph: &Graph, leaves: &[Array], slots: &[Scalar]) -> Result<Vec<Array>> {
    let mut values: Vec<Array> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let inputs: Vec<&Array> = node.inputs.iter().map(|input| &values[input.index()]).collect();
        let value = match &node.op {
            Op::Input(n) => given(node, leaves.get(*n as usize), *n)?.clone(),
            Op::ScalarInput(n) => {
                let slot = slots.get(*n as usize).map(|slot| Array::new(Shape::default(), slot.dtype, &[*slot]));
                given(node, slot.as_ref(), *n)?.clone()
            }
            _ => evaluate(node, &inputs),
        };
        values.push(value);
    }
    Ok(graph.outputs.iter().map(|output| values[output.index()].clone()).collect())
}

fn given<'a>(node: &Node, value: Option<&'a Array>, n: u32) -> Result<&'a Array> {
    match value {
        Some(value) if value.shape == node.shape && value.dtype == node.dtype => Ok(value),
        Some(value) => {
            let (have, want) = (format!("{}{}", value.dtype, value.shape), format!("{}{}", node.dtype, node.shape));
            Err(Error::mistake(format!("{:?} is {have}, but the graph expects {want}", node.op)))
        }
        None => Err(Error::mistake(format!("no value for {:?} (number {n})", node.op))),
    }
}

fn evaluate(node: &Node, inputs: &[&Array]) -> Array {
    let shape = &node.shape;
    let collect = |element: &dyn Fn(&[usize]) -> Number| {
        Array::collect(shape.clone(), node.dtype, coordinates(shape).map(|at| element(&at)))
    };
    match &node.op {
        Op::Input(_) | Op::ScalarInput(_) => unreachable!("given from outside"),
        Op::Const(value) => Array::filled(Shape::default(), value.dtype, number(*value)),
        Op::Iota => collect(&|at| Number::Int(at[0] as i128)),
        Op::Alu(op) => {
            let dtype = inputs[inputs.len() - 1].dtype;
            let element = |at| {
                let operands: Vec<Number> = inputs.iter().map(|input| input.get(at)).collect();
                alu(*op, dtype, &operands)
            };
            Array::collect(shape.clone(), node.dtype, (0..shape.numel()).map(element))
        }
        Op::Cast => collect(&|at| cast(inputs[0], offset(shape, at), node.dtype)),
        Op::Bitcast => {
            let elements = inputs[0].scalars().into_iter();
            let read = elements.map(|element| number(Scalar { dtype: node.dtype, bits: element.bits }));
            Array::collect(shape.clone(), node.dtype, read)
        }
        Op::Reduce(op, axes) => reduce(*op, axes, inputs[0], shape),
        Op::Scan(op, axis) => scan(*op, *axis, inputs[0]),
        Op::Reshape => Array { shape: shape.clone(), ..inputs[0].clone() },
        Op::Permute(perm) => collect(&|at| {
            let mut from = vec![0; perm.len()];
            perm.iter().zip(at).for_each(|(axis, position)| from[*axis] = *position);
            inputs[0].get(offset(&inputs[0].shape, &from))
        }),
        Op::Expand => collect(&|at| {
            let dims = inputs[0].shape.dims();
            let from: Vec<usize> = at.iter().zip(dims).map(|(at, dim)| if *dim == 1 { 0 } else { *at }).collect();
            inputs[0].get(offset(&inputs[0].shape, &from))
        }),
        Op::Pad(widths) => collect(&|at| {
            let from: Option<Vec<usize>> = (0..at.len())
                .map(|axis| at[axis].checked_sub(widths[axis].0).filter(|from| *from < inputs[0].shape.dims()[axis]))
                .collect();
            from.map_or(zero(node.dtype), |from| inputs[0].get(offset(&inputs[0].shape, &from)))
        }),
        Op::Slice(slices) => collect(&|at| {
            let along = |(slice, at): (&Slice, &usize)| (slice.start as isize + slice.step * *at as isize) as usize;
            let from: Vec<usize> = slices.iter().zip(at).map(along).collect();
            inputs[0].get(offset(&inputs[0].shape, &from))
        }),
        Op::MatMul => matmul(inputs[0], inputs[1], shape),
        Op::Gather(axis) => collect(&|at| {
            let from = indexed(at, *axis, inputs[1], &inputs[0].shape);
            from.map_or(zero(node.dtype), |from| inputs[0].get(offset(&inputs[0].shape, &from)))
        }),
        Op::ScatterAdd(axis) => {
            let mut result = inputs[0].clone();
            for at in coordinates(&inputs[2].shape) {
                if let Some(to) = indexed(&at, *axis, inputs[1], shape) {
                    let to = offset(shape, &to);
                    let added = inputs[2].get(offset(&inputs[2].shape, &at));
                    result.set(to, alu(Alu::Add, node.dtype, &[result.get(to), added]));
                }
            }
            result
        }
        Op::SliceScatter(axis) => {
            let mut result = inputs[0].clone();
            for pair in inputs[1..].chunks(2) {
                let start = pair[1].get(0).int();
                for (from, mut at) in coordinates(&pair[0].shape).enumerate() {
                    let position = usize::try_from(start + at[*axis] as i128).ok();
                    if let Some(position) = position.filter(|position| *position < shape.dims()[*axis]) {
                        at[*axis] = position;
                        result.set(offset(shape, &at), pair[0].get(from));
                    }
                }
            }
            result
        }
        Op::ControlDependency => inputs[0].clone(),
        Op::CustomCall(custom_kernel, output) => {
            let given: Vec<Vec<Scalar>> = inputs.iter().map(|input| input.scalars()).collect();
            let results = custom_kernel.interpret(&given).expect("its inputs were checked");
            Array::new(shape.clone(), node.dtype, &results[*output as usize])
        }
        Op::Call(call, output) => {
            let given: Vec<Array> = inputs.iter().map(|input| (*input).clone()).collect();
            let results = run_verified(&call.body, &given, &[]).expect("the graph was verified with its bodies");
            results[*output as usize].clone()
        }
    }
}

/// Returns the coordinates in the source array of the element at `at` of a gather's result; `None` if the index is out of range.
fn indexed(at: &[usize], axis: usize, positions: &Array, from: &Shape) -> Option<Vec<usize>> {
    let (before, rest) = at.split_at(axis);
    let (place, after) = rest.split_at(positions.shape.ndim());
    let position = positions.get(offset(&positions.shape, place)).int();
    let found = usize::try_from(position).ok().filter(|position| *position < from.dims()[axis]);
    found.map(|position| [before, &[position], after].concat())
}

fn reduce(op: ReduceOp, axes: &[usize], input: &Array, shape: &Shape) -> Array {
    let mut result = Array::filled(shape.clone(), input.dtype, number(op.identity(input.dtype)));
    for (from, mut at) in coordinates(&input.shape).enumerate() {
        axes.iter().for_each(|axis| at[*axis] = 0);
        let to = offset(shape, &at);
        result.set(to, alu(op.alu(), input.dtype, &[result.get(to), input.get(from)]));
    }
    result
}

fn scan(op: ReduceOp, axis: usize, input: &Array) -> Array {
    let mut result = input.clone();
    let stride = input.shape.strides()[axis];
    for (to, at) in coordinates(&input.shape).enumerate() {
        if at[axis] > 0 {
            result.set(to, alu(op.alu(), input.dtype, &[result.get(to - stride), input.get(to)]));
        }
    }
    result
}

fn matmul(a: &Array, b: &Array, shape: &Shape) -> Array {
    let rank = shape.ndim();
    let inner = a.shape.dims()[rank - 1];
    let element = |at: Vec<usize>| {
        let (mut left, mut right) = (at.clone(), at);
        (0..inner).fold(zero(a.dtype), |sum, k| {
            (left[rank - 1], right[rank - 2]) = (k, k);
            let product = alu(Alu::Mul, a.dtype, &[a.get(offset(&a.shape, &left)), b.get(offset(&b.shape, &right))]);
            alu(Alu::Add, a.dtype, &[sum, product])
        })
    };
    Array::collect(shape.clone(), a.dtype, coordinates(shape).map(element))
}

/// Returns all coordinates of a shape in row-major order.
fn coordinates(shape: &Shape) -> impl Iterator<Item = Vec<usize>> + '_ {
    let (dims, strides) = (shape.dims(), shape.strides());
    (0..shape.numel()).map(move |at| (0..dims.len()).map(|axis| at / strides[axis] % dims[axis]).collect())
}

fn offset(shape: &Shape, at: &[usize]) -> usize {
    shape.strides().iter().zip(at).map(|(stride, at)| stride * at).sum()
}

fn number(element: Scalar) -> Number {
    if element.dtype.is_float() { Number::Float(element.to_f64()) } else { Number::Int(element.to_i128()) }
}

fn zero(dtype: DType) -> Number {
    if dtype.is_float() { Number::Float(0.0) } else { Number::Int(0) }
}

fn cast(from: &Array, at: usize, to: DType) -> Number {
    let rounded = match from.get(at) {
        Number::Float(value) => Scalar::from_f64(from.dtype, value),
        Number::Int(value) => Scalar::from_i128(from.dtype, value),
    };
    match (from.dtype.is_float(), to) {
        (_, DType::Bool) => Number::Int(i128::from(rounded.to_f64() != 0.0)),
        (true, _) => number(Scalar::from_f64(to, rounded.to_f64())),
        // Rounded once, not through f64.
        (false, DType::F32) => Number::Float((rounded.to_i128() as f32) as f64),
        (false, _) => number(Scalar::from_i128(to, rounded.to_i128())),
    }
}

/// Applies an operation to elements of a type; for `Select`, the type of the two alternatives.
fn alu(op: Alu, dtype: DType, operands: &[Number]) -> Number {
    if op == Alu::Select {
        return if operands[0] == Number::Int(0) { operands[2] } else { operands[1] };
    }
    match operands[0] {
        Number::Float(_) => {
            let x: Vec<f64> = operands.iter().map(|operand| operand.float()).collect();
            float(op, &x)
        }
        Number::Int(_) => {
            let x: Vec<i128> = operands.iter().map(|operand| operand.int()).collect();
            let kept = if op.is_comparison() { DType::Bool } else { dtype };
            number(Scalar::from_i128(kept, int(op, dtype, &x)))
        }
    }
}

fn float(op: Alu, x: &[f64]) -> Number {
    let truth = |holds: bool| Number::Int(i128::from(holds));
    let value = match op {
        Alu::Neg => -x[0],
        Alu::Abs => x[0].abs(),
        Alu::Math(Math::Exp) => x[0].exp(),
        Alu::Math(Math::Exp2) => x[0].exp2(),
        Alu::Math(Math::Log) => x[0].ln(),
        Alu::Math(Math::Log2) => x[0].log2(),
        Alu::Math(Math::Log1p) => x[0].ln_1p(),
        Alu::Math(Math::Expm1) => x[0].exp_m1(),
        Alu::Math(Math::Sin) => x[0].sin(),
        Alu::Math(Math::Cos) => x[0].cos(),
        Alu::Math(Math::Tan) => x[0].tan(),
        Alu::Math(Math::Atan) => x[0].atan(),
        Alu::Math(Math::Tanh) => x[0].tanh(),
        Alu::Math(Math::Erf) => erf(x[0]),
        Alu::Sqrt => x[0].sqrt(),
        Alu::Floor => x[0].floor(),
        Alu::Ceil => x[0].ceil(),
        Alu::Round => x[0].round_ties_even(),
        Alu::Trunc => x[0].trunc(),
        Alu::Add => x[0] + x[1],
        Alu::Sub => x[0] - x[1],
        Alu::Mul => x[0] * x[1],
        Alu::Div => x[0] / x[1],
        Alu::Rem => x[0] % x[1],
        Alu::Min if x[0].is_nan() || x[1].is_nan() => f64::NAN,
        Alu::Max if x[0].is_nan() || x[1].is_nan() => f64::NAN,
        Alu::Min => x[0].min(x[1]),
        Alu::Max => x[0].max(x[1]),
        Alu::Pow => x[0].powf(x[1]),
        Alu::Fma => x[0].mul_add(x[1], x[2]),
        Alu::Lt => return truth(x[0] < x[1]),
        Alu::Le => return truth(x[0] <= x[1]),
        Alu::Eq => return truth(x[0] == x[1]),
        Alu::Ne => return truth(x[0] != x[1]),
        Alu::PopCount | Alu::Not | Alu::And | Alu::Or | Alu::Xor | Alu::Shl | Alu::Shr | Alu::Select => {
            unreachable!("the graph was verified")
        }
    };
    Number::Float(value)
}

/// Returns the result before it wraps to the type.
fn int(op: Alu, dtype: DType, x: &[i128]) -> i128 {
    let shift = |by: i128| by.rem_euclid(dtype.bits() as i128) as u32;
    match op {
        Alu::Neg => -x[0],
        Alu::Not if dtype == DType::Bool => 1 - x[0],
        Alu::Not => !x[0],
        Alu::Abs => x[0].abs(),
        Alu::PopCount => (x[0] & ((1 << dtype.bits()) - 1)).count_ones().into(),
        Alu::Add => x[0] + x[1],
        Alu::Sub => x[0] - x[1],
        Alu::Mul => x[0].wrapping_mul(x[1]),
        Alu::Div => x[0].checked_div(x[1]).unwrap_or(0),
        Alu::Rem => x[0].checked_rem(x[1]).unwrap_or(x[0]),
        Alu::Min => x[0].min(x[1]),
        Alu::Max => x[0].max(x[1]),
        Alu::And => x[0] & x[1],
        Alu::Or => x[0] | x[1],
        Alu::Xor => x[0] ^ x[1],
        Alu::Shl => x[0] << shift(x[1]),
        Alu::Shr => x[0] >> shift(x[1]),
        Alu::Lt => i128::from(x[0] < x[1]),
        Alu::Le => i128::from(x[0] <= x[1]),
        Alu::Eq => i128::from(x[0] == x[1]),
        Alu::Ne => i128::from(x[0] != x[1]),
        Alu::Math(_) | Alu::Sqrt | Alu::Floor | Alu::Ceil | Alu::Round | Alu::Trunc => {
            unreachable!("the graph was verified")
        }
        Alu::Pow | Alu::Fma | Alu::Select => unreachable!("the graph was verified"),
    }
}

/// Error function, by the series exp(-x²) · Σ 2ⁿ x²ⁿ⁺¹ / (2n+1)!!, whose terms are all positive [Abramowitz and Stegun 7.1.6].
fn erf(x: f64) -> f64 {
    if x.is_nan() || x.abs() > 6.0 {
        return if x.is_nan() { x } else { x.signum() };
    }
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > sum.abs() * 1e-18 {
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    (-x * x).exp() * sum * std::f64::consts::FRAC_2_SQRT_PI
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::NodeId;

    fn floats(shape: impl Into<Shape>, data: &[f64]) -> Array {
        Array { shape: shape.into(), dtype: DType::F32, data: Data::Floats(data.to_vec()) }
    }

    fn ints(shape: impl Into<Shape>, dtype: DType, data: &[i128]) -> Array {
        Array { shape: shape.into(), dtype, data: Data::Ints(data.to_vec()) }
    }

    #[track_caller]
    fn check(op: Op, inputs: &[Array], want: Array) {
        let mut graph = Graph::default();
        let leaves: Vec<NodeId> = inputs
            .iter()
            .enumerate()
            .map(|(n, leaf)| graph.push(Op::Input(n as u32), &[], leaf.shape.clone(), leaf.dtype))
            .collect();
        let output = graph.push(op, &leaves, want.shape.clone(), want.dtype);
        graph.outputs.push(output);
        assert_eq!(run(&graph, inputs, &[]).unwrap(), [want]);
    }

    #[test]
    fn graph_operations_match_hand_computed_values() {
        let x = floats([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        check(Op::Reduce(ReduceOp::Sum, vec![0]), std::slice::from_ref(&x), floats([1, 3], &[5.0, 7.0, 9.0]));
        check(Op::Reduce(ReduceOp::Max, vec![0, 1]), std::slice::from_ref(&x), floats([1, 1], &[6.0]));
        check(
            Op::Scan(ReduceOp::Prod, 1),
            std::slice::from_ref(&x),
            floats([2, 3], &[1.0, 2.0, 6.0, 4.0, 20.0, 120.0]),
        );
        check(Op::Permute(vec![1, 0]), std::slice::from_ref(&x), floats([3, 2], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
        check(Op::Reshape, std::slice::from_ref(&x), floats([3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        check(Op::Expand, &[floats([2, 1], &[1.0, 2.0])], floats([2, 2], &[1.0, 1.0, 2.0, 2.0]));
        check(
            Op::Pad(vec![(1, 0), (0, 1)]),
            &[floats([1, 2], &[1.0, 2.0])],
            floats([2, 3], &[0.0, 0.0, 0.0, 1.0, 2.0, 0.0]),
        );
        let slices = vec![Slice { start: 1, step: 1, len: 1 }, Slice { start: 2, step: -2, len: 2 }];
        check(Op::Slice(slices), std::slice::from_ref(&x), floats([1, 2], &[6.0, 4.0]));
        let y = floats([3, 1], &[1.0, 0.0, -1.0]);
        check(Op::MatMul, &[x.clone(), y], floats([2, 1], &[-2.0, -2.0]));
        let at = ints([2], DType::I32, &[2, -1]);
        check(Op::Gather(1), &[x.clone(), at.clone()], floats([2, 2], &[3.0, 0.0, 6.0, 0.0]));
        let rows = floats([2, 2], &[10.0, 20.0, 30.0, 40.0]);
        check(Op::ScatterAdd(1), &[x.clone(), at, rows], floats([2, 3], &[1.0, 2.0, 13.0, 4.0, 5.0, 36.0]));
        let y = floats([2, 2], &[10.0, 20.0, 30.0, 40.0]);
        for (at, want) in [(1, [1.0, 10.0, 20.0, 4.0, 30.0, 40.0]), (-1, [20.0, 2.0, 3.0, 40.0, 5.0, 6.0])] {
            let at = ints([], DType::I64, &[at]);
            check(Op::SliceScatter(1), &[x.clone(), y.clone(), at], floats([2, 3], &want));
        }
        check(Op::Iota, &[], ints([3], DType::I32, &[0, 1, 2]));
        check(Op::Bitcast, &[ints([1], DType::I32, &[0x3f80_0000])], floats([1], &[1.0]));
        check(Op::Cast, &[floats([4], &[-1.5, 300.0, f64::NAN, 7.9])], ints([4], DType::U8, &[0, 255, 0, 7]));
        check(Op::Cast, &[floats([1], &[0.5])], ints([1], DType::Bool, &[1]));
    }

    #[test]
    fn integers_wrap_and_division_is_total() {
        let byte = |x| ints([1], DType::I8, &[x]);
        check(Op::Alu(Alu::Add), &[byte(127), byte(1)], byte(-128));
        check(Op::Alu(Alu::Div), &[byte(-128), byte(-1)], byte(-128));
        check(Op::Alu(Alu::Div), &[byte(5), byte(0)], byte(0));
        check(Op::Alu(Alu::Rem), &[byte(-5), byte(0)], byte(-5));
        check(Op::Alu(Alu::Shl), &[byte(1), byte(9)], byte(2));
        check(Op::Alu(Alu::Not), &[ints([1], DType::Bool, &[0])], ints([1], DType::Bool, &[1]));
        check(Op::Alu(Alu::PopCount), &[ints([3], DType::I8, &[0, 5, -2])], ints([3], DType::I8, &[0, 2, 7]));
        check(Op::Alu(Alu::Lt), &[byte(-1), byte(1)], ints([1], DType::Bool, &[1]));
    }

    /// Values of Abramowitz and Stegun, table 7.1.
    #[test]
    fn error_function_matches_tabulated_values() {
        for (x, want) in [(0.0, 0.0), (0.5, 0.5204998778), (1.0, 0.8427007929), (2.0, 0.9953222650), (-7.0, -1.0)] {
            assert!((erf(x) - want).abs() < 1e-10, "erf({x}) = {}", erf(x));
        }
    }
}
