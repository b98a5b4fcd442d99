//! The tensor graph: what a program asks for, before anybody decides how.
//!
//! Nodes stand in one vector, inputs before users, so that a walk is a loop and never recursion. Every tensor operation a
//! user knows is an expression over the few primitives of [`Op`]; their meaning is written here once, the naive
//! interpreter in [`crate::graph_interpret`] is the oracle, `compile` makes them fast and `tensor` differentiates them.
//!
//! Leaves are numbered by first visit and carry no addresses, so equal programs have equal graphs: the graph is the key
//! of the plan cache. A [`Op::Const`] is part of the program; a [`Op::ScalarInput`] is a number passed at launch and is not.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use crate::alu::Alu;
use crate::custom_kernel::CustomKernel;
use crate::dtype::{DType, Scalar};
use crate::kernel::ReduceOp;
use crate::routine::Routine;
use crate::shape::Shape;

/// A node of a graph: its position in [`Graph::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The position.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A program over tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Graph {
    /// Inputs before users.
    pub nodes: Vec<Node>,
    /// What is asked for, in order.
    pub outputs: Vec<NodeId>,
    /// Numbers of leaves that nobody needs afterwards, ascending: an output may take such a leaf's memory.
    pub donated: Vec<u32>,
}

/// One primitive step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// What it does.
    pub op: Op,
    /// To what.
    pub inputs: Vec<NodeId>,
    /// The result's lengths.
    pub shape: Shape,
    /// The result's elements.
    pub dtype: DType,
}

/// A primitive. Inputs are called x, y, z; all broadcasting is explicit ([`Op::Expand`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The n-th input buffer, row-major.
    Input(u32),
    /// One element, part of the program. Shape `[]`.
    Const(Scalar),
    /// One element passed at launch: the n-th slot. Shape `[]`.
    ScalarInput(u32),
    /// i32 0, 1, 2, … along the only axis.
    Iota,
    /// The scalar operation on elements at equal positions; all inputs have the result's shape.
    Alu(Alu),
    /// Conversion as Rust's `as`.
    Cast,
    /// The same bits as another type of the same width.
    Bitcast,
    /// Combination over these axes (ascending), which stay with length 1. f16 and bf16 accumulate in f32.
    Reduce(ReduceOp, Vec<usize>),
    /// Running combination along an axis, inclusive. f16 and bf16 accumulate in f32.
    Scan(ReduceOp, usize),
    /// The elements of x in row-major order under another shape of as many elements.
    Reshape,
    /// Axis i of the result is axis `perm[i]` of x.
    Permute(Vec<usize>),
    /// Axes of length 1 repeat to the result's lengths; ranks are equal.
    Expand,
    /// Zeros (false) before and after along each axis.
    Pad(Vec<(usize, usize)>),
    /// Along each axis every `step`-th element from `start` on; a negative step walks backwards.
    Slice(Vec<Slice>),
    /// Batched matrix product x[…, m, k] × y[…, k, n]; batch axes are equal. f16 and bf16 accumulate in f32.
    MatMul,
    /// `out[.., i.., ..] = x[.., y[i..], ..]`: positions y (i32 or i64) along an axis of x; the axis is replaced by y's
    /// axes. A position out of range reads zero.
    Gather(usize),
    /// x plus the rows of z added at positions y along an axis: the adjoint of [`Op::Gather`]. z has gather's result
    /// shape. A position out of range is dropped. Deterministic.
    ScatterAdd(usize),
    /// x with y in place of what stands from position z on along an axis, z a single i32 or i64. y's other axes are x's. What
    /// would lie beyond x is dropped. More pairs of a y of the same shape and its z may follow, each after those before.
    SliceScatter(usize),
    /// x. What reads it is computed after y, of any shape and type: an order, no value. Two of the same x with other y are
    /// computed apart, which is how a value is computed anew instead of being kept.
    ControlDependency,
    /// The n-th output of a body whose leaf i is the i-th input: one step here, many inside.
    Call(Arc<Call>, u32),
    /// The n-th buffer that a kernel of its author's writes, given what it reads. [`crate::custom_kernel`] says what it takes.
    CustomCall(Arc<CustomKernel>, u32),
}

/// Several steps under one name, written once and used wherever they occur.
///
/// It means what its body means with the inputs in place of the leaves. The body has no slots. Comparing and hashing cost
/// the same however long the body is.
#[derive(Debug)]
pub struct Call {
    /// What it is called by those who wrote it.
    pub name: String,
    /// What it does.
    pub body: Graph,
    /// What a device may offer that does the same: its buffers are the first inputs, then all outputs of the body, row-major.
    /// Inputs behind those are what the body alone needs, such as tables.
    pub routine: Option<Routine>,
    hash: u128,
}

impl Call {
    /// A body under a name.
    pub fn new(name: impl Into<String>, body: Graph) -> Call {
        Call::with_routine(name, body, None)
    }

    /// A body under a name, and the routine that does the same.
    pub fn with_routine(name: impl Into<String>, body: Graph, routine: Option<Routine>) -> Call {
        let mut hasher = Xxh3::new();
        (&body, &routine).hash(&mut hasher);
        Call { name: name.into(), body, routine, hash: hasher.digest128() }
    }
}

impl PartialEq for Call {
    fn eq(&self, other: &Call) -> bool {
        std::ptr::eq(self, other)
            || (self.hash == other.hash && self.routine == other.routine && self.body == other.body)
    }
}

impl Eq for Call {}

impl Hash for Call {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash as u64);
    }
}

/// What [`Op::Slice`] takes along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// First element taken.
    pub start: usize,
    /// Distance to the next; not 0.
    pub step: isize,
    /// How many.
    pub len: usize,
}

impl Graph {
    /// Appends a node.
    pub fn push(&mut self, op: Op, inputs: &[NodeId], shape: impl Into<Shape>, dtype: DType) -> NodeId {
        self.nodes.push(Node { op, inputs: inputs.to_vec(), shape: shape.into(), dtype });
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// The node behind an id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The node whose memory holds a value: reshapes are other views of it.
    pub fn storage_node(&self, id: NodeId) -> NodeId {
        let mut at = id;
        while self.node(at).op == Op::Reshape {
            at = self.node(at).inputs[0];
        }
        at
    }
}

impl fmt::Display for Graph {
    /// One line for each node, as `%2 = add(%0, %1)  f32[4, 8]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ids: &[NodeId]| ids.iter().map(|id| format!("%{}", id.0)).collect::<Vec<String>>().join(", ");
        for (id, node) in self.nodes.iter().enumerate() {
            writeln!(f, "%{id} = {}({})  {}{}", node.op, list(&node.inputs), node.dtype, node.shape)?;
        }
        write!(f, "give {}", list(&self.outputs))
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Input(n) => write!(f, "leaf {n}"),
            Op::Const(value) => write!(f, "const {value}"),
            Op::ScalarInput(n) => write!(f, "slot {n}"),
            Op::Iota => f.write_str("iota"),
            Op::Alu(op) => f.write_str(op.name()),
            Op::Cast => f.write_str("cast"),
            Op::Bitcast => f.write_str("bitcast"),
            Op::Reduce(op, axes) => write!(f, "{} over {axes:?}", op.name()),
            Op::Scan(op, axis) => write!(f, "running {} along {axis}", op.name()),
            Op::Reshape => f.write_str("reshape"),
            Op::Permute(perm) => write!(f, "permute {perm:?}"),
            Op::Expand => f.write_str("expand"),
            Op::Pad(widths) => write!(f, "pad {widths:?}"),
            Op::Slice(slices) => {
                let parts = slices.iter().map(|Slice { start, step, len }| format!("{start} + {step}·{len}"));
                write!(f, "slice [{}]", parts.collect::<Vec<String>>().join(", "))
            }
            Op::MatMul => f.write_str("matmul"),
            Op::Gather(axis) => write!(f, "gather along {axis}"),
            Op::ScatterAdd(axis) => write!(f, "index_add along {axis}"),
            Op::SliceScatter(axis) => write!(f, "write along {axis}"),
            Op::ControlDependency => f.write_str("after"),
            Op::CustomCall(authored, output) => write!(f, "kernel {}.{output}", authored.kernel.name),
            Op::Call(call, 0) => f.write_str(&call.name),
            Op::Call(call, output) => write!(f, "{}.{output}", call.name),
        }
    }
}
