//! The kernel IR: the program that a device runs.
//!
//! A [`Kernel`] is plain data. **Expressions** are pure and interned in one arena: children come before parents, and equal expressions
//! share one id. They have no position. A statement evaluates the expressions that it names, each shared node once, and reads mutable
//! locals and memory as they are at that moment. **Statements** are structured and carry all effects and their order. A backend can
//! evaluate an expression in any way that observes the effects of the statements before.
//!
//! **Work-items** run the body once each. They are numbered by [`Builtin::GlobalId`] along three axes. A kernel without a work-group
//! size is launched on exactly the requested number of work-items. A kernel with one runs whole work-groups, so that the last ones can
//! exceed the requested number, on every device alike.
//!
//! **Memory** is a table of buffers (parameters), shared arrays (one per work-group) and private arrays (one per work-item). Parameters
//! never alias unless both are read-only. Shared and private arrays are uninitialized. A [`Guard::Checked`] load beyond the length
//! returns zero and such a store is dropped, separately for each lane of a vector.
//!
//! Kernels are built by [`crate::builder::Builder`] and [`crate::text::parse`]. Their consumers take a [`crate::verify::Verified`].

use std::collections::HashMap;
use std::fmt;

use crate::alu::Alu;
pub use crate::collective::{CollectiveOp, Mma, Scope};
use crate::dtype::{DType, Scalar, Type};
pub use crate::reduce::ReduceOp;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $sigil:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// Returns the index in its table.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($sigil, "{}"), self.0)
            }
        }
    };
}

id!(
    /// Id of an expression.
    ExprId, "e"
);
id!(
    /// Id of a local variable.
    LocalId, "%"
);
id!(
    /// Id of a buffer, shared array or private array.
    MemId, "@"
);

/// A program for one work-item, launched over a grid.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Name of the entry point.
    pub name: String,
    /// Work-group size along each axis; required by shared memory, barriers, collectives and local ids.
    pub group_size: Option<[u32; 3]>,
    /// True if the author guarantees uniformity that the verifier cannot prove: all work-items of a work-group reach its barriers and
    /// collectives. Launching such a kernel is unsafe.
    pub unchecked: bool,
    /// Parameters, in order.
    pub params: Vec<Param>,
    /// All memories; buffer parameters come first, in order.
    pub mems: Vec<Memory>,
    /// All local variables.
    pub locals: Vec<Local>,
    /// All expressions.
    pub exprs: Exprs,
    /// The body.
    pub body: Block,
    /// Source files, indexed by [`Loc::file`].
    pub files: Vec<String>,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Param {
    /// A scalar or an index.
    Scalar {
        /// Name.
        name: String,
        /// Type; never a vector.
        ty: Type,
    },
    /// A buffer.
    Buffer(MemId),
}

/// A memory that the kernel can access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Address space and length.
    pub space: Space,
}

/// Address space of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// A buffer passed at launch, with the kernel's access to it. Its length is known at launch.
    Buffer(Access),
    /// An array of this many elements for each group.
    Shared(u32),
    /// An array of this many elements for each work-item.
    Private(u32),
}

/// Access of a kernel to a buffer; the basis of all hazard tracking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Read only.
    In,
    /// Write only. Elements that are not written are undefined afterwards.
    Out,
    /// Read and write.
    InOut,
}

/// A local variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// Name in the source; not unique.
    pub name: String,
    /// Type.
    pub ty: Type,
    /// True if [`Op::Assign`] can change it.
    pub mutable: bool,
}

/// A pure expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    /// Constant element.
    Const(Scalar),
    /// Constant index.
    Index(u64),
    /// Scalar parameter, by index in [`Kernel::params`].
    Param(u32),
    /// Current value of a local.
    Local(LocalId),
    /// Launch parameter, such as an id or a size.
    Builtin(Builtin),
    /// Length of a memory in elements. Index.
    Len(MemId),
    /// `lanes` elements starting at `index`; a vector if `lanes` > 1.
    Load {
        /// The memory.
        mem: MemId,
        /// Index of the first element.
        index: ExprId,
        /// Number of elements.
        lanes: u8,
        /// Behavior beyond the length.
        guard: Guard,
    },
    /// Scalar operation, applied to each lane.
    Alu(Alu, Args),
    /// Conversion as by Rust's `as`: float to integer saturates and NaN becomes 0; to bool is `!= 0`. Conversions from and to f16 and bf16
    /// round once, to nearest.
    Cast(Type, ExprId),
    /// Bits reinterpreted as another type of the same width.
    Bitcast(Type, ExprId),
    /// Scalar broadcast to all lanes.
    Splat(ExprId, u8),
    /// Lane of a vector.
    Extract(ExprId, u8),
}

/// Operands of an expression, at most three.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Args {
    len: u8,
    ids: [ExprId; 3],
}

impl Args {
    /// Creates a list of up to three operands.
    pub fn new(operands: &[ExprId]) -> Args {
        let mut ids = [ExprId(0); 3];
        ids[..operands.len()].copy_from_slice(operands);
        Args { len: operands.len() as u8, ids }
    }
}

impl std::ops::Deref for Args {
    type Target = [ExprId];

    fn deref(&self) -> &[ExprId] {
        &self.ids[..self.len as usize]
    }
}

impl fmt::Debug for Args {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A launch parameter. All are indices; axes are 0, 1, 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// Id of the work-item in the grid, along an axis.
    GlobalId(u8),
    /// Id of the work-item in its work-group, along an axis.
    LocalId(u8),
    /// Id of the work-group, along an axis.
    GroupId(u8),
    /// Requested number of work-items, along an axis; whole work-groups can exceed it.
    GlobalSize(u8),
    /// Size of a work-group, along an axis.
    GroupSize(u8),
    /// Number of work-groups, along an axis.
    GroupCount(u8),
    /// Lane of the work-item in its subgroup.
    SubgroupLane,
    /// Size of a full subgroup (the last of a work-group can be smaller); 1 if there are none, see
    /// [`Target::subgroup_of`](crate::target::Target::subgroup_of).
    SubgroupSize,
}

/// Largest length, size, id or count of a launch: an axis of the grid, the work-items of all work-groups, the bytes of a buffer.
///
/// The optimizer relies on it to prove bounds, and `runtime` rejects launches and allocations beyond it.
pub const MAX_LAUNCH_SIZE: u64 = (1 << 48) - 1;

/// Behavior of an access beyond the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    /// A load returns zero and a store is dropped; the backend emits a comparison.
    Checked,
    /// The index was proven to be below the length, so no comparison is needed. Only the optimizer marks accesses so;
    /// [`verify`](crate::verify::verify) rejects the mark in other kernels.
    Proven,
    /// The author guarantees that the index is in bounds; otherwise the behavior is undefined.
    Unchecked,
}

/// A sequence of statements.
pub type Block = Vec<Stmt>;

/// A statement with its source location.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// The operation.
    pub op: Op,
    /// Source location.
    pub at: Loc,
}

/// A line of a source file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Loc {
    /// Index in [`Kernel::files`].
    pub file: u16,
    /// Line number from 1; 0 if unknown.
    pub line: u32,
}

/// Operation of a statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Declares a local, which is in scope in the rest of this block and in nested blocks.
    Let {
        /// The local.
        local: LocalId,
        /// Its value.
        value: ExprId,
    },
    /// Assigns to a mutable local.
    Assign {
        /// The local.
        local: LocalId,
        /// The new value.
        value: ExprId,
    },
    /// Stores a scalar or the lanes of a vector, starting at `index`.
    Store {
        /// The memory.
        mem: MemId,
        /// Index of the first element.
        index: ExprId,
        /// The value.
        value: ExprId,
        /// Behavior beyond the length.
        guard: Guard,
    },
    /// Updates one element atomically among all work-items, with relaxed ordering. Beyond the length nothing happens and `old` is 0.
    Atomic {
        /// The update.
        op: AtomicOp,
        /// A buffer or shared array of u32 or i32, or f32 for `Add` and `Exchange`.
        mem: MemId,
        /// Index of the element.
        index: ExprId,
        /// The operand.
        value: ExprId,
        /// Expected value of `CompareExchange`; `None` for the others.
        expected: Option<ExprId>,
        /// New local for the previous value.
        old: Option<LocalId>,
        /// Behavior beyond the length.
        guard: Guard,
    },
    /// Combines a value over all work-items of a scope, all of which must reach it.
    Collective {
        /// The combination.
        op: CollectiveOp,
        /// The scope.
        scope: Scope,
        /// Value of this work-item.
        value: ExprId,
        /// New local for the result.
        result: LocalId,
    },
    /// Waits for all work-items of the work-group. Their earlier writes to buffers and shared memory are visible afterwards.
    Barrier,
    /// Runs one of two blocks.
    If {
        /// Condition, a bool.
        condition: ExprId,
        /// Block for true.
        then: Block,
        /// Block for false.
        otherwise: Block,
    },
    /// Counting loop: `counter` takes the values start, start + step, … below end. All three are evaluated once.
    For {
        /// Immutable local of integer or index type.
        counter: LocalId,
        /// First value.
        start: ExprId,
        /// Exclusive upper bound.
        end: ExprId,
        /// Increment, at least 1.
        step: ExprId,
        /// Loop body.
        body: Block,
    },
    /// Loop that runs while a condition, evaluated before each iteration, is true.
    While {
        /// Condition, a bool.
        condition: ExprId,
        /// Loop body.
        body: Block,
    },
    /// Breaks out of the innermost loop.
    Break,
    /// Continues with the next iteration of the innermost loop.
    Continue,
    /// Returns from the kernel, for this work-item.
    Return,
}

/// Atomic update of one element; the comment gives the new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    /// old + value.
    Add,
    /// min(old, value).
    Min,
    /// max(old, value).
    Max,
    /// value.
    Exchange,
    /// value if old equals `expected`, else old.
    CompareExchange,
}

/// Arena of interned expressions: equal ones share an id, and children come before parents.
#[derive(Clone, Debug, Default)]
pub struct Exprs {
    nodes: Vec<(Expr, Type)>,
    ids: HashMap<Expr, ExprId>,
}

impl Exprs {
    /// Returns the id of an expression, adding it if it is new. The caller must pass the right type; `verify` checks it.
    pub fn intern(&mut self, expr: Expr, ty: Type) -> ExprId {
        let nodes = &mut self.nodes;
        *self.ids.entry(expr).or_insert_with(|| {
            nodes.push((expr, ty));
            ExprId(nodes.len() as u32 - 1)
        })
    }

    /// Returns the expression of an id.
    pub fn get(&self, id: ExprId) -> Expr {
        self.nodes[id.index()].0
    }

    /// Returns the type of an expression.
    pub fn ty(&self, id: ExprId) -> Type {
        self.nodes[id.index()].1
    }

    /// Returns the number of expressions; ids are below it.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns true if there are no expressions.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Iterates over all expressions with id and type, children before parents.
    pub fn iter(&self) -> impl Iterator<Item = (ExprId, Expr, Type)> + '_ {
        self.nodes.iter().enumerate().map(|(i, (expr, ty))| (ExprId(i as u32), *expr, *ty))
    }
}

impl Expr {
    /// Returns the operands.
    pub fn operands(&self) -> Args {
        match self {
            Expr::Const(_) | Expr::Index(_) | Expr::Param(_) | Expr::Local(_) | Expr::Builtin(_) | Expr::Len(_) => {
                Args::new(&[])
            }
            Expr::Load { index, .. } => Args::new(&[*index]),
            Expr::Alu(_, args) => *args,
            Expr::Cast(_, x) | Expr::Bitcast(_, x) | Expr::Splat(x, _) | Expr::Extract(x, _) => Args::new(&[*x]),
        }
    }

    /// Returns the expression with each operand replaced by `f`.
    pub fn map_operands(self, mut f: impl FnMut(ExprId) -> ExprId) -> Expr {
        match self {
            Expr::Const(_) | Expr::Index(_) | Expr::Param(_) | Expr::Local(_) | Expr::Builtin(_) | Expr::Len(_) => self,
            Expr::Load { mem, index, lanes, guard } => Expr::Load { mem, index: f(index), lanes, guard },
            Expr::Alu(op, args) => {
                let mut next = args;
                next.ids[..args.len as usize].iter_mut().for_each(|id| *id = f(*id));
                Expr::Alu(op, next)
            }
            Expr::Cast(ty, x) => Expr::Cast(ty, f(x)),
            Expr::Bitcast(ty, x) => Expr::Bitcast(ty, f(x)),
            Expr::Splat(x, lanes) => Expr::Splat(f(x), lanes),
            Expr::Extract(x, lane) => Expr::Extract(f(x), lane),
        }
    }
}

impl Op {
    /// Returns the expressions that the statement itself evaluates, in order, without those of nested blocks.
    pub fn operands(&self) -> Vec<ExprId> {
        match self {
            Op::Let { value, .. } | Op::Assign { value, .. } => vec![*value],
            Op::Collective { op, value, .. } => std::iter::once(*value).chain(op.operands()).collect(),
            Op::Store { index, value, .. } => vec![*index, *value],
            Op::Atomic { index, value, expected, .. } => [*index, *value].into_iter().chain(*expected).collect(),
            Op::If { condition, .. } | Op::While { condition, .. } => vec![*condition],
            Op::For { start, end, step, .. } => vec![*start, *end, *step],
            Op::Barrier | Op::Break | Op::Continue | Op::Return => vec![],
        }
    }

    /// Returns the local that the statement declares for the statements after it (for a loop, in its body).
    pub fn introduces(&self) -> Option<LocalId> {
        match self {
            Op::Let { local, .. } => Some(*local),
            Op::Atomic { old, .. } => *old,
            Op::Collective { result, .. } => Some(*result),
            Op::For { counter, .. } => Some(*counter),
            Op::Assign { .. }
            | Op::Store { .. }
            | Op::Barrier
            | Op::If { .. }
            | Op::While { .. }
            | Op::Break
            | Op::Continue
            | Op::Return => None,
        }
    }

    /// Returns the nested blocks, in order.
    pub fn blocks(&self) -> Vec<&Block> {
        match self {
            Op::If { then, otherwise, .. } => vec![then, otherwise],
            Op::For { body, .. } | Op::While { body, .. } => vec![body],
            Op::Let { .. }
            | Op::Assign { .. }
            | Op::Store { .. }
            | Op::Atomic { .. }
            | Op::Collective { .. }
            | Op::Barrier
            | Op::Break
            | Op::Continue
            | Op::Return => vec![],
        }
    }

    /// Mutable version of [`Op::blocks`].
    pub fn blocks_mut(&mut self) -> Vec<&mut Block> {
        match self {
            Op::If { then, otherwise, .. } => vec![then, otherwise],
            Op::For { body, .. } | Op::While { body, .. } => vec![body],
            Op::Let { .. }
            | Op::Assign { .. }
            | Op::Store { .. }
            | Op::Atomic { .. }
            | Op::Collective { .. }
            | Op::Barrier
            | Op::Break
            | Op::Continue
            | Op::Return => vec![],
        }
    }
}

impl Kernel {
    /// Returns the memory of an id.
    pub fn mem(&self, id: MemId) -> &Memory {
        &self.mems[id.index()]
    }

    /// Returns the local of an id.
    pub fn local(&self, id: LocalId) -> &Local {
        &self.locals[id.index()]
    }

    /// Returns the bytes of shared memory per work-group.
    pub fn shared_bytes(&self) -> u64 {
        let bytes = |mem: &Memory| match mem.space {
            Space::Shared(len) => len as u64 * mem.dtype.bytes() as u64,
            Space::Buffer(_) | Space::Private(_) => 0,
        };
        self.mems.iter().map(bytes).sum()
    }

    /// Returns the bytes of private arrays per work-item.
    pub fn private_bytes(&self) -> u64 {
        let bytes = |mem: &Memory| match mem.space {
            Space::Private(len) => len as u64 * mem.dtype.bytes() as u64,
            Space::Buffer(_) | Space::Shared(_) => 0,
        };
        self.mems.iter().map(bytes).sum()
    }

    /// Returns a source location such as `src/lib.rs:12`; `None` if the line is unknown.
    pub fn place(&self, at: Loc) -> Option<String> {
        let file = self.files.get(at.file as usize)?;
        (at.line > 0).then(|| format!("{file}:{}", at.line))
    }

    /// Calls `f` for every statement, outer ones before nested ones.
    pub fn walk<'a>(&'a self, f: &mut impl FnMut(&'a Stmt)) {
        fn block<'a>(stmts: &'a Block, f: &mut impl FnMut(&'a Stmt)) {
            for stmt in stmts {
                f(stmt);
                stmt.op.blocks().into_iter().for_each(|inner| block(inner, f));
            }
        }
        block(&self.body, f);
    }
}
