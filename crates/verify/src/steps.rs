//! A program as steps over flat arrays: calls are inlined, data movements are index maps, and values that do not depend on the input are
//! constants.
//!
//! Each step has the semantics of its primitive in [`panoply_ir::graph::Op`]. A primitive without a rule becomes [`Step::Unknown`], whose
//! value is unbounded.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use panoply_ir::graph::{Graph, Node, NodeId, Op, Slice};
use panoply_ir::reduce::ReduceOp;
use panoply_ir::routine::Routine;
use panoply_ir::{Alu, DType, Scalar};
use panoply_tensor::{Device, Error, MathMode, Program, ProgramLeaf, Result, Shape, Tensor};

use crate::functions::rounding_units;
use crate::interval::Interval;
use crate::lanes::Panels;
use crate::rounding::Rounding;
use crate::univariate::Univariate;
use crate::values::{self, Arithmetic, INTEGER_UNITS};

/// Index of a step.
pub type StepId = usize;

/// Marks elements in the index map of [`Step::Move`] that are 0 (padding).
pub const ZERO: u32 = u32::MAX;

/// Maximum number of elements of a program, which limits memory.
const MAX_ELEMENTS: usize = 1 << 24;

/// A program with one input and one output.
#[derive(Debug)]
pub struct Steps {
    /// Steps in topological order.
    pub steps: Vec<Entry>,
    /// The input step.
    pub input: StepId,
    /// The output step.
    pub output: StepId,
    /// Why nothing can be proven, if an operation has no bounds: a clause that names the first one.
    pub unknown: Option<String>,
    /// Arithmetic that the bounds cover.
    pub arithmetic: Arithmetic,
}

/// A step with the size and type of its result.
#[derive(Debug)]
pub struct Entry {
    /// The operation.
    pub step: Step,
    /// Number of elements.
    pub numel: usize,
    /// Element type, which determines the rounding.
    pub dtype: DType,
    /// Number of rounding errors u·|result| of a scalar operation, where u is half an ULP.
    pub units: usize,
}

/// An operation.
#[derive(Debug)]
pub enum Step {
    /// The input of the program.
    Input,
    /// Elements that do not depend on the input.
    Constant(Arc<[Interval]>),
    /// Element i is element `from[i]` of x, or 0 for [`ZERO`].
    Move(StepId, Vec<u32>),
    /// max(x, 0).
    Relu(StepId),
    /// A scalar operation on elements at equal indices.
    Alu(Alu, Vec<StepId>),
    /// A function of one varying element, fused from scalar operations.
    Univariate(StepId, Univariate),
    /// Combines element i of x into element `to[i]`.
    Reduce(ReduceOp, StepId, Vec<u32>),
    /// x[batch, m, k] × w[batch, k, n] with constant w.
    Linear(StepId, Matrix),
    /// x[batch, m, k] × y[batch, k, n].
    MatMul(StepId, StepId, Sizes),
    /// A conversion to a float.
    Cast(StepId),
    /// An operation without bounds.
    Unknown,
}

/// Sizes of a batched matrix product.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Number of products.
    pub batch: usize,
    /// Rows of the left matrix.
    pub m: usize,
    /// Number of terms of each sum.
    pub k: usize,
    /// Columns of the right matrix.
    pub n: usize,
}

/// The constant right-hand side of a matrix product.
#[derive(Debug)]
pub struct Matrix {
    /// Sizes of the product.
    pub sizes: Sizes,
    /// Magnitude of elements that are replaced by 0 in both copies because a device can do so; 0 if there are none.
    pub flushed: f64,
    /// Sums `[batch, n]` of the magnitudes of the elements of each column, times the magnitude below which a device can replace an operand by 0;
    /// empty in real arithmetic.
    pub reads: Vec<f64>,
    /// Elements `[batch, k, n]`, exact.
    pub forward: Panels,
    /// The transposed elements `[batch, n, k]`.
    pub backward: Panels,
}

/// Compiles a program with one input and one result.
///
/// # Errors
/// If it has several inputs or results, or too many elements.
pub fn compile(program: &Program, arithmetic: Arithmetic) -> Result<Steps> {
    let is_exact = Device::current()?.math_mode() == MathMode::Exact;
    let mut compiler = Compiler { steps: Vec::new(), input: None, unknown: None, elements: 0, arithmetic, is_exact };
    let leaf = |compiler: &mut Compiler, n: u32, node: &Node| match &program.leaves[n as usize] {
        ProgramLeaf::Input(0) => Ok(compiler.input(node)),
        ProgramLeaf::Input(_) => Err(Error::unsupported("a function with several inputs is not supported")),
        ProgramLeaf::Constant(tensor) => Ok(compiler.tensor(tensor)?),
    };
    let ids = compiler.graph(&program.graph, &program.slots, &leaf)?;
    let &[result] = &program.results[..] else {
        return Err(Error::unsupported("a function with several results is not supported"));
    };
    let input = compiler.input.ok_or_else(|| Error::mistake("the output does not depend on the input"))?;
    let output = ids[program.graph.outputs[result].index()];
    Ok(Steps { steps: compiler.steps, input, output, unknown: compiler.unknown, arithmetic })
}

struct Compiler {
    steps: Vec<Entry>,
    input: Option<StepId>,
    unknown: Option<String>,
    elements: usize,
    arithmetic: Arithmetic,
    /// True if the device computes sums in the order of the graph.
    is_exact: bool,
}

/// Compiles a leaf.
type LeafRule<'a> = &'a dyn Fn(&mut Compiler, u32, &Node) -> Result<StepId>;

impl Compiler {
    /// Records that nothing can be proven because of an operation; `unless` says under which setting it has bounds.
    fn without_bounds(&mut self, operation: impl Display, unless: &str) {
        self.unknown.get_or_insert_with(|| format!("no bounds are known for the operation `{operation}`{unless}"));
    }

    /// Compiles the nodes of a graph; returns the step of each node.
    fn graph(&mut self, graph: &Graph, slots: &[Scalar], leaf: LeafRule<'_>) -> Result<Vec<StepId>> {
        let mut ids: Vec<StepId> = Vec::with_capacity(graph.nodes.len());
        // Each output of a call is a separate node; the body is compiled once.
        let mut bodies: HashMap<(usize, Vec<NodeId>), Vec<StepId>> = HashMap::new();
        for node in &graph.nodes {
            let inputs: Vec<StepId> = node.inputs.iter().map(|input| ids[input.index()]).collect();
            let id = match &node.op {
                Op::Input(n) => leaf(self, *n, node)?,
                Op::ScalarInput(n) => self.scalar(slots[*n as usize]),
                Op::Call(call, _) if call.routine.is_some_and(|routine| !self.computes_body(&routine)) => {
                    self.without_bounds(&call.name, " unless the math mode is exact (PANOPLY_MATH_MODE=exact)");
                    self.push(Step::Unknown, node)
                }
                Op::Call(call, output) => {
                    let key = (Arc::as_ptr(call) as usize, node.inputs.clone());
                    let outputs = match bodies.get(&key) {
                        Some(outputs) => outputs.clone(),
                        None => {
                            // Bodies nest only as deep as the library's composite operations: a few levels.
                            let inner = self.graph(&call.body, &[], &|_, n, _| Ok(inputs[n as usize]))?;
                            let outputs: Vec<StepId> = call.body.outputs.iter().map(|id| inner[id.index()]).collect();
                            bodies.insert(key, outputs.clone());
                            outputs
                        }
                    };
                    outputs[*output as usize]
                }
                _ => self.primitive(graph, node, &inputs)?,
            };
            ids.push(id);
        }
        Ok(ids)
    }

    /// Returns true if the bounds of a call's body are those of the routine that a device can run in its place, up to the order of sums.
    fn computes_body(&self, routine: &Routine) -> bool {
        match routine {
            Routine::Gemm(_) | Routine::Conv(_) | Routine::ConvBackwardData(_) | Routine::ConvBackwardFilter(_) => true,
            Routine::Sort(_) | Routine::Scatter(_) => true,
            // Others have algorithms of their own, such as attention, which rescales partial sums.
            other => self.arithmetic == Arithmetic::Real || (self.is_exact && other.accumulates_floats()),
        }
    }

    fn primitive(&mut self, graph: &Graph, node: &Node, x: &[StepId]) -> Result<StepId> {
        self.count(node.shape.numel())?;
        let shape = |n: usize| &graph.node(node.inputs[n]).shape;
        let float = node.dtype.is_float();
        let step = match &node.op {
            Op::Const(value) => return Ok(self.scalar(*value)),
            Op::Reshape | Op::ControlDependency => return Ok(x[0]),
            Op::Iota if !float || node.shape.numel() as f64 <= self.rounding(node.dtype).largest_integer() => {
                let count = node.shape.numel();
                Step::Constant((0..count).map(|at| Interval::point(at as f64)).collect())
            }
            Op::Alu(op) if self.is_relu(*op, x) => Step::Relu(*x.last().unwrap_or(&0)),
            Op::Alu(op) if (float || op.is_comparison() || *op == Alu::Select) && has_rule(*op) => {
                Step::Alu(*op, x.to_vec())
            }
            Op::Cast if float => Step::Cast(x[0]),
            Op::Permute(perm) => Step::Move(x[0], permuted(shape(0), perm, &node.shape)),
            Op::Expand => Step::Move(x[0], expanded(shape(0), &node.shape)),
            Op::Pad(widths) => Step::Move(x[0], padded(shape(0), widths, &node.shape)),
            Op::Slice(slices) => Step::Move(x[0], sliced(shape(0), slices, &node.shape)),
            Op::Reduce(op, axes) if float && *op != ReduceOp::Prod => Step::Reduce(*op, x[0], reduced(shape(0), axes)),
            Op::MatMul if float => self.matmul(shape(0), shape(1), x),
            Op::SliceScatter(axis) if float && x[1..].chunks(2).all(|pair| self.position(pair).is_some()) => {
                return self.written(graph, node, *axis, x);
            }
            other => {
                self.without_bounds(other, "");
                Step::Unknown
            }
        };
        Ok(self.push(step, node))
    }

    /// Returns the constant position of a part and its position.
    fn position(&self, pair: &[StepId]) -> Option<usize> {
        let Step::Constant(values) = &self.steps[*pair.get(1)?].step else { return None };
        values.first().filter(|at| at.is_point() && at.lo >= 0.0).map(|at| at.lo as usize)
    }

    /// Appends the steps that write parts into slices of a tensor: the sum of both, each with zeros where the other one is, which is exact.
    fn written(&mut self, graph: &Graph, node: &Node, axis: usize, x: &[StepId]) -> Result<StepId> {
        let (numel, dtype) = (node.shape.numel(), node.dtype);
        let mut whole = x[0];
        for (n, pair) in x[1..].chunks(2).enumerate() {
            let start = self.position(pair).unwrap_or(0);
            let part = &graph.node(node.inputs[1 + 2 * n]).shape;
            let strides = part.strides();
            let inside = |at: &[usize]| {
                let along = at[axis].checked_sub(start).filter(|along| *along < part.dims()[axis])?;
                let other = (0..at.len()).filter(|other| *other != axis).map(|other| at[other] * strides[other]);
                Some(along * strides[axis] + other.sum::<usize>())
            };
            let from = indices(&node.shape, inside);
            let rest = (0..numel as u32).zip(&from).map(|(at, from)| if *from == ZERO { at } else { ZERO }).collect();
            self.count(3 * numel)?;
            let entry = |step| Entry { step, numel, dtype, units: 0 };
            let part = self.append(entry(Step::Move(pair[0], from)));
            let kept = self.append(entry(Step::Move(whole, rest)));
            let is_zero = match &self.steps[kept].step {
                Step::Constant(values) => values.iter().all(|value| *value == Interval::point(0.0)),
                _ => false,
            };
            whole = if is_zero { part } else { self.append(entry(Step::Alu(Alu::Add, vec![kept, part]))) };
        }
        Ok(whole)
    }

    /// Returns true for max(x, 0), which [`Tensor::relu`] writes as a selection; x is the last operand.
    fn is_relu(&self, op: Alu, x: &[StepId]) -> bool {
        let zero = |id: StepId| match &self.steps[id].step {
            Step::Constant(values) => values.iter().all(|value| *value == Interval::point(0.0)),
            _ => false,
        };
        match (op, x) {
            (Alu::Select, [condition, zeros, x]) => match &self.steps[*condition].step {
                Step::Alu(Alu::Le, compared) => compared[0] == *x && zero(compared[1]) && zero(*zeros),
                _ => false,
            },
            // A device can compare subnormal numbers as zeros and return x.
            (Alu::Max, [zeros, _]) => zero(*zeros) && self.arithmetic == Arithmetic::Real,
            _ => false,
        }
    }

    fn rounding(&self, dtype: DType) -> Rounding {
        Rounding { arithmetic: self.arithmetic, dtype }
    }

    fn matmul(&self, left: &Shape, right: &Shape, x: &[StepId]) -> Step {
        let (a, b) = (left.dims(), right.dims());
        let rank = a.len();
        let batch = a[..rank - 2].iter().product();
        let sizes = Sizes { batch, m: a[rank - 2], k: a[rank - 1], n: b[rank - 1] };
        let Step::Constant(values) = &self.steps[x[1]].step else { return Step::MatMul(x[0], x[1], sizes) };
        let least = self.rounding(self.steps[x[1]].dtype).least();
        let is_flushed = |value: &Interval| !value.is_point() && value.magnitude() < least;
        if !values.iter().all(|value| value.is_point() || is_flushed(value)) {
            return Step::MatMul(x[0], x[1], sizes);
        }
        let Sizes { k, n, .. } = sizes;
        let element = |product: usize, row: usize, column: usize| {
            let value = values[(product * k + row) * n + column];
            if value.is_point() { value.lo } else { 0.0 }
        };
        let reads = match least > 0.0 {
            true => (0..batch * n)
                .map(|at| 2.0 * least * (0..k).map(|row| element(at / n, row, at % n).abs()).sum::<f64>())
                .collect(),
            false => Vec::new(),
        };
        let flushed = if values.iter().any(is_flushed) { least } else { 0.0 };
        let forward = Panels::pack(batch, k, n, element);
        let backward = Panels::pack(batch, n, k, |product, row, column| element(product, column, row));
        Step::Linear(x[0], Matrix { sizes, flushed, reads, forward, backward })
    }

    fn input(&mut self, node: &Node) -> StepId {
        let entry = Entry { step: Step::Input, numel: node.shape.numel(), dtype: node.dtype, units: 0 };
        let id = *self.input.get_or_insert(self.steps.len());
        if id == self.steps.len() {
            self.steps.push(entry);
        }
        id
    }

    fn scalar(&mut self, value: Scalar) -> StepId {
        let number = self.rounding(value.dtype).flushed(number(value));
        self.constant(value.dtype, Arc::new([number]))
    }

    fn constant(&mut self, dtype: DType, values: Arc<[Interval]>) -> StepId {
        self.steps.push(Entry { numel: values.len(), dtype, step: Step::Constant(values), units: 0 });
        self.steps.len() - 1
    }

    fn tensor(&mut self, tensor: &Tensor) -> Result<StepId> {
        let (dtype, bytes) = (tensor.dtype(), tensor.to_bytes()?);
        let rounding = self.rounding(dtype);
        let element = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            rounding.flushed(number(Scalar { dtype, bits: u64::from_le_bytes(word) }))
        };
        self.count(bytes.len() / dtype.bytes())?;
        Ok(self.constant(dtype, bytes.chunks_exact(dtype.bytes()).map(element).collect()))
    }

    fn count(&mut self, elements: usize) -> Result<()> {
        self.elements = self.elements.saturating_add(elements);
        match self.elements <= MAX_ELEMENTS {
            true => Ok(()),
            false => Err(Error::unsupported(format!("the program has more than {MAX_ELEMENTS} elements"))),
        }
    }

    /// Appends the step of a node.
    fn push(&mut self, step: Step, node: &Node) -> StepId {
        let units = match &step {
            Step::Alu(op, _) => rounding_units(*op, node.dtype),
            Step::Cast(x) => match self.steps[*x].dtype {
                DType::Bool => 0,
                dtype if dtype.is_float() => 1,
                _ => INTEGER_UNITS,
            },
            _ => 0,
        };
        self.append(Entry { step, numel: node.shape.numel(), dtype: node.dtype, units })
    }

    /// Appends a step, folded to a constant if all its operands are constants.
    fn append(&mut self, entry: Entry) -> StepId {
        if let Some(values) = values::folded(&self.steps, &entry, self.arithmetic) {
            return self.constant(entry.dtype, values.into());
        }
        self.steps.push(entry);
        self.steps.len() - 1
    }
}

/// Returns true if interval arithmetic has a rule for a scalar operation.
fn has_rule(op: Alu) -> bool {
    Interval::alu(op, &vec![Interval::point(1.0); op.arity()]).is_some()
}

/// Returns the exact value of a scalar.
fn number(value: Scalar) -> Interval {
    let float = value.to_f64();
    let exact = value.dtype.is_float() || float.abs() < 9e15;
    if exact { Interval::point(float) } else { Interval::ENTIRE }
}

/// Returns `from` of each index of a shape, in row-major order.
fn indices(shape: &Shape, mut from: impl FnMut(&[usize]) -> Option<usize>) -> Vec<u32> {
    let dims = shape.dims();
    let mut at = vec![0; dims.len()];
    let mut indices = Vec::with_capacity(shape.numel());
    for _ in 0..shape.numel() {
        indices.push(from(&at).map_or(ZERO, |index| index as u32));
        for axis in (0..dims.len()).rev() {
            at[axis] += 1;
            if at[axis] < dims[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
    indices
}

fn permuted(x: &Shape, perm: &[usize], shape: &Shape) -> Vec<u32> {
    let strides = x.strides();
    indices(shape, |at| Some(perm.iter().zip(at).map(|(axis, at)| strides[*axis] * at).sum()))
}

fn expanded(x: &Shape, shape: &Shape) -> Vec<u32> {
    let (strides, dims) = (x.strides(), x.dims());
    indices(shape, |at| Some((0..at.len()).filter(|axis| dims[*axis] != 1).map(|axis| at[axis] * strides[axis]).sum()))
}

fn padded(x: &Shape, widths: &[(usize, usize)], shape: &Shape) -> Vec<u32> {
    let (strides, dims) = (x.strides(), x.dims());
    let along = |axis: usize, at: usize| at.checked_sub(widths[axis].0).filter(|from| *from < dims[axis]);
    indices(shape, |at| (0..at.len()).map(|axis| Some(along(axis, at[axis])? * strides[axis])).sum())
}

fn sliced(x: &Shape, slices: &[Slice], shape: &Shape) -> Vec<u32> {
    let strides = x.strides();
    let along = |slice: &Slice, at: usize| (slice.start as isize + slice.step * at as isize) as usize;
    indices(shape, |at| Some((0..at.len()).map(|axis| along(&slices[axis], at[axis]) * strides[axis]).sum()))
}

/// Returns for each element of x the index of the result element that it is combined into.
fn reduced(x: &Shape, axes: &[usize]) -> Vec<u32> {
    let mut kept = x.dims().to_vec();
    axes.iter().for_each(|axis| kept[*axis] = 1);
    expanded(&Shape::new(kept), x)
}
