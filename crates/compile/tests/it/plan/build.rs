//! Graph builder for tests: shapes and types are inferred from the inputs.

use panoply_ir::alu::{Alu, Math};
use panoply_ir::graph::{Graph, NodeId, Op, Slice};
use panoply_ir::reduce::ReduceOp;
use panoply_ir::{DType, Scalar, Shape};

/// A graph under construction.
#[derive(Clone, Default)]
pub struct Build {
    pub graph: Graph,
    leaves: u32,
}

impl Build {
    pub fn shape(&self, x: NodeId) -> Vec<usize> {
        self.graph.node(x).shape.dims().to_vec()
    }

    pub fn dtype(&self, x: NodeId) -> DType {
        self.graph.node(x).dtype
    }

    pub fn leaf(&mut self, shape: &[usize], dtype: DType) -> NodeId {
        self.leaves += 1;
        self.graph.push(Op::Input(self.leaves - 1), &[], shape, dtype)
    }

    pub fn f32(&mut self, shape: &[usize]) -> NodeId {
        self.leaf(shape, DType::F32)
    }

    pub fn slot(&mut self, number: u32, dtype: DType) -> NodeId {
        self.graph.push(Op::ScalarInput(number), &[], Shape::default(), dtype)
    }

    pub fn iota(&mut self, len: usize) -> NodeId {
        self.graph.push(Op::Iota, &[], [len], DType::I32)
    }

    /// Adds a constant broadcast to the shape of `x`.
    pub fn like(&mut self, x: NodeId, value: f64) -> NodeId {
        let value = Scalar::from_f64(self.dtype(x), value);
        let one = self.graph.push(Op::Const(value), &[], Shape::default(), value.dtype);
        let shape = self.shape(x);
        self.spread(one, &shape)
    }

    pub fn spread(&mut self, one: NodeId, shape: &[usize]) -> NodeId {
        let flat = self.reshape(one, &vec![1; shape.len()]);
        self.expand(flat, shape)
    }

    pub fn alu(&mut self, op: Alu, inputs: &[NodeId]) -> NodeId {
        let last = inputs[inputs.len() - 1];
        let dtype = if op.is_comparison() { DType::Bool } else { self.dtype(last) };
        let shape = self.shape(last);
        self.graph.push(Op::Alu(op), inputs, shape, dtype)
    }

    /// Adds a binary operation with `y` expanded to the shape of `x`.
    pub fn with(&mut self, op: Alu, x: NodeId, y: NodeId) -> NodeId {
        let shape = self.shape(x);
        let y = self.expand(y, &shape);
        self.alu(op, &[x, y])
    }

    pub fn cast(&mut self, x: NodeId, dtype: DType) -> NodeId {
        let shape = self.shape(x);
        self.graph.push(Op::Cast, &[x], shape, dtype)
    }

    pub fn reduce(&mut self, op: ReduceOp, x: NodeId, axes: &[usize]) -> NodeId {
        let mut shape = self.shape(x);
        axes.iter().for_each(|axis| shape[*axis] = 1);
        self.graph.push(Op::Reduce(op, axes.to_vec()), &[x], shape, self.dtype(x))
    }

    pub fn sum(&mut self, x: NodeId, axes: &[usize]) -> NodeId {
        self.reduce(ReduceOp::Sum, x, axes)
    }

    pub fn scan(&mut self, op: ReduceOp, x: NodeId, axis: usize) -> NodeId {
        let shape = self.shape(x);
        self.graph.push(Op::Scan(op, axis), &[x], shape, self.dtype(x))
    }

    pub fn reshape(&mut self, x: NodeId, shape: &[usize]) -> NodeId {
        self.graph.push(Op::Reshape, &[x], shape, self.dtype(x))
    }

    pub fn permute(&mut self, x: NodeId, perm: &[usize]) -> NodeId {
        let from = self.shape(x);
        let shape: Vec<usize> = perm.iter().map(|axis| from[*axis]).collect();
        self.graph.push(Op::Permute(perm.to_vec()), &[x], shape, self.dtype(x))
    }

    pub fn expand(&mut self, x: NodeId, shape: &[usize]) -> NodeId {
        self.graph.push(Op::Expand, &[x], shape, self.dtype(x))
    }

    pub fn pad(&mut self, x: NodeId, widths: &[(usize, usize)]) -> NodeId {
        let from = self.shape(x);
        let shape: Vec<usize> = from.iter().zip(widths).map(|(dim, (before, after))| before + dim + after).collect();
        self.graph.push(Op::Pad(widths.to_vec()), &[x], shape, self.dtype(x))
    }

    /// Adds a slice, with `(start, step, len)` along each axis.
    pub fn slice(&mut self, x: NodeId, slices: &[(usize, isize, usize)]) -> NodeId {
        let shape: Vec<usize> = slices.iter().map(|slice| slice.2).collect();
        let slices = slices.iter().map(|(start, step, len)| Slice { start: *start, step: *step, len: *len }).collect();
        self.graph.push(Op::Slice(slices), &[x], shape, self.dtype(x))
    }

    pub fn matmul(&mut self, x: NodeId, y: NodeId) -> NodeId {
        let (mut shape, right) = (self.shape(x), self.shape(y));
        let rank = shape.len();
        shape[rank - 1] = right[rank - 1];
        self.graph.push(Op::MatMul, &[x, y], shape, self.dtype(x))
    }

    pub fn gather(&mut self, x: NodeId, positions: NodeId, axis: usize) -> NodeId {
        let from = self.shape(x);
        let shape = [&from[..axis], &self.shape(positions), &from[axis + 1..]].concat();
        self.graph.push(Op::Gather(axis), &[x, positions], shape, self.dtype(x))
    }

    pub fn scatter_add(&mut self, x: NodeId, positions: NodeId, rows: NodeId, axis: usize) -> NodeId {
        let shape = self.shape(x);
        self.graph.push(Op::ScatterAdd(axis), &[x, positions, rows], shape, self.dtype(x))
    }

    pub fn write(&mut self, x: NodeId, part: NodeId, at: NodeId, axis: usize) -> NodeId {
        let shape = self.shape(x);
        self.graph.push(Op::SliceScatter(axis), &[x, part, at], shape, self.dtype(x))
    }

    pub fn after(&mut self, x: NodeId, before: NodeId) -> NodeId {
        let shape = self.shape(x);
        self.graph.push(Op::ControlDependency, &[x, before], shape, self.dtype(x))
    }

    /// Adds an integer constant.
    pub fn number(&mut self, value: i64) -> NodeId {
        let value = Scalar::from_i128(DType::I64, value.into());
        self.graph.push(Op::Const(value), &[], Shape::default(), DType::I64)
    }

    pub fn done(mut self, outputs: &[NodeId]) -> Graph {
        self.graph.outputs = outputs.to_vec();
        self.graph
    }

    // Compositions typical of user code.

    pub fn mean_keep(&mut self, x: NodeId, axis: usize) -> NodeId {
        let sum = self.sum(x, &[axis]);
        let count = self.shape(x)[axis] as f64;
        let count = self.like(sum, count);
        self.alu(Alu::Div, &[sum, count])
    }

    pub fn softmax(&mut self, x: NodeId, axis: usize) -> NodeId {
        let top = self.reduce(ReduceOp::Max, x, &[axis]);
        let centered = self.with(Alu::Sub, x, top);
        let powers = self.alu(Alu::Math(Math::Exp), &[centered]);
        let sum = self.sum(powers, &[axis]);
        self.with(Alu::Div, powers, sum)
    }

    pub fn layer_norm(&mut self, x: NodeId, axis: usize) -> NodeId {
        let mean = self.mean_keep(x, axis);
        let centered = self.with(Alu::Sub, x, mean);
        let square = self.alu(Alu::Mul, &[centered, centered]);
        let variance = self.mean_keep(square, axis);
        let epsilon = self.like(variance, 1e-5);
        let variance = self.alu(Alu::Add, &[variance, epsilon]);
        let root = self.alu(Alu::Sqrt, &[variance]);
        let one = self.like(root, 1.0);
        let scale = self.alu(Alu::Div, &[one, root]);
        self.with(Alu::Mul, centered, scale)
    }
}
