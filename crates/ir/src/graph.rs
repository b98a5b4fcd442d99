//! The tensor graph: the program of a user, before any choice of implementation.
//!
//! Nodes are in topological order in one vector, so a traversal is a loop without recursion. Every tensor operation is an expression
//! over the few primitives of [`Op`], whose semantics are defined here. The naive interpreter in [`crate::graph_interpret`] is the
//! reference, `compile` optimizes graphs, and `tensor` differentiates them.
//!
//! Leaves are numbered by first visit and contain no addresses, so equal programs have equal graphs. The graph is the key of the plan
//! cache. An [`Op::Const`] is part of the program; an [`Op::ScalarInput`] is passed at launch and is not.

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

/// Id of a node: its index in [`Graph::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Returns the index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A program over tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Graph {
    /// Nodes in topological order.
    pub nodes: Vec<Node>,
    /// Outputs, in order.
    pub outputs: Vec<NodeId>,
    /// Indices of donated leaves, ascending. An output can reuse the memory of a donated leaf.
    pub donated: Vec<u32>,
}

/// A primitive operation with its inputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The operation.
    pub op: Op,
    /// The inputs.
    pub inputs: Vec<NodeId>,
    /// Shape of the result.
    pub shape: Shape,
    /// Element type of the result.
    pub dtype: DType,
}

/// A primitive operation. Its inputs are called x, y, z. All broadcasting is explicit ([`Op::Expand`]).
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
    /// The scalar operation applied elementwise; all inputs have the result's shape.
    Alu(Alu),
    /// Conversion as Rust's `as`.
    Cast,
    /// The bits reinterpreted as another type of the same width.
    Bitcast,
    /// Reduction over these axes (ascending), which are kept with length 1. f16 and bf16 accumulate in f32.
    Reduce(ReduceOp, Vec<usize>),
    /// Inclusive scan along an axis. f16 and bf16 accumulate in f32.
    Scan(ReduceOp, usize),
    /// The elements of x in row-major order in another shape with the same number of elements.
    Reshape,
    /// Axis i of the result is axis `perm[i]` of x.
    Permute(Vec<usize>),
    /// Axes of length 1 are broadcast to the result's lengths; ranks are equal.
    Expand,
    /// Padding with zeros (false) before and after along each axis.
    Pad(Vec<(usize, usize)>),
    /// Every `step`-th element from `start` on along each axis; a negative step walks backwards.
    Slice(Vec<Slice>),
    /// Batched matrix product x[…, m, k] × y[…, k, n]; batch axes are equal. f16 and bf16 accumulate in f32.
    MatMul,
    /// `out[.., i.., ..] = x[.., y[i..], ..]`: indices y (i32 or i64) along an axis of x, which is replaced by y's axes. An index out of
    /// range reads zero.
    Gather(usize),
    /// x plus the rows of z, added at indices y along an axis: the adjoint of [`Op::Gather`]. z has the shape of gather's result. An index
    /// out of range is dropped. Deterministic.
    ScatterAdd(usize),
    /// x with the slice from index z on along an axis replaced by y; z is a single i32 or i64. y's other axes are those of x. Elements
    /// beyond the end of x are dropped. More pairs of a y of the same shape and its z can follow and are applied in order.
    SliceScatter(usize),
    /// x. Its users are computed after y, which has any shape and type: a dependency without a value. Two of the same x with different y
    /// are computed separately, which is how a value is recomputed instead of kept.
    ControlDependency,
    /// The n-th output of a body whose leaf i is the i-th input: one node here, many inside.
    Call(Arc<Call>, u32),
    /// The n-th buffer that a custom kernel writes, given its inputs; see [`crate::custom_kernel`].
    CustomCall(Arc<CustomKernel>, u32),
}

/// A named subgraph that is used as one node.
///
/// Its value is that of the body with the inputs in place of the leaves. The body has no scalar inputs. The cost of comparing and
/// hashing does not depend on the length of the body.
#[derive(Debug)]
pub struct Call {
    /// Name of the operation.
    pub name: String,
    /// The subgraph.
    pub body: Graph,
    /// Device routine that is equivalent to the body, if any. Its buffers are the first inputs, then all outputs of the body, row-major.
    /// Further inputs, such as tables, are used only by the body.
    pub routine: Option<Routine>,
    hash: u128,
}

impl Call {
    /// Creates a call of a body.
    pub fn new(name: impl Into<String>, body: Graph) -> Call {
        Call::with_routine(name, body, None)
    }

    /// Creates a call of a body with an equivalent routine.
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

/// Range of [`Op::Slice`] along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// Index of the first element.
    pub start: usize,
    /// Distance between elements; not 0.
    pub step: isize,
    /// Number of elements.
    pub len: usize,
}

impl Graph {
    /// Appends a node and returns its id.
    pub fn push(&mut self, op: Op, inputs: &[NodeId], shape: impl Into<Shape>, dtype: DType) -> NodeId {
        self.nodes.push(Node { op, inputs: inputs.to_vec(), shape: shape.into(), dtype });
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Returns the node of an id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Returns the node whose memory holds the value; reshapes share the memory of their input.
    pub fn storage_node(&self, id: NodeId) -> NodeId {
        let mut at = id;
        while self.node(at).op == Op::Reshape {
            at = self.node(at).inputs[0];
        }
        at
    }
}

impl fmt::Display for Graph {
    /// Prints one line per node, such as `%2 = add(%0, %1)  f32[4, 8]`.
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
            Op::CustomCall(custom_kernel, output) => write!(f, "kernel {}.{output}", custom_kernel.kernel.name),
            Op::Call(call, 0) => f.write_str(&call.name),
            Op::Call(call, output) => write!(f, "{}.{output}", call.name),
        }
    }
}
