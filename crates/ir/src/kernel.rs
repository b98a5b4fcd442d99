//! The kernel IR: what a device runs.
//!
//! A [`Kernel`] is plain data. **Expressions** are pure, interned in one arena (children before parents, equal
//! expressions share one id) and have no position: a statement evaluates the expressions it names, reading mutable locals
//! and memory as they are at that moment, each shared node once. **Statements** are structured and carry all effects and
//! their order. A back end may evaluate an expression however it pleases as long as it observes the effects of the
//! statements before.
//!
//! **Work-items** run the body once each. They are numbered by [`Builtin::GlobalId`] along three axes. A kernel without a
//! group size is launched on exactly the asked number of work-items; one with a group size runs whole groups, the last
//! ones reaching beyond the asked number, on every device alike.
//!
//! **Memory** is a table of buffers (parameters), shared arrays (one per group) and private arrays (one per work-item).
//! Parameters never alias unless both are read-only. Contents of shared and private arrays are undefined at the start.
//! A [`Guard::Checked`] read beyond the length gives zero and such a write is dropped, each lane of a vector by itself.
//!
//! Who may build one: [`crate::builder::Builder`] and [`crate::text::parse`]. Who may consume one: whoever holds a
//! [`crate::verify::Verified`] of it.

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
            /// The position in its table.
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
    /// An expression of a kernel.
    ExprId, "e"
);
id!(
    /// A named value of a work-item.
    LocalId, "%"
);
id!(
    /// A buffer, shared array or private array.
    MemId, "@"
);

/// A program for one work-item, launched over a grid of them.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The entry point's name.
    pub name: String,
    /// Work-items of a group along each axis; needed by shared memory, barriers, collectives and local ids.
    pub group_size: Option<[u32; 3]>,
    /// Whether the author answers for what the verifier cannot see: that all work-items of a group meet at its barriers and
    /// collectives. Launching such a kernel is unsafe.
    pub unchecked: bool,
    /// What the caller passes, in order.
    pub params: Vec<Param>,
    /// Every memory, parameters first in their order.
    pub mems: Vec<Memory>,
    /// Every local.
    pub locals: Vec<Local>,
    /// Every expression.
    pub exprs: Exprs,
    /// What a work-item does.
    pub body: Block,
    /// Source files that [`Loc::file`] counts.
    pub files: Vec<String>,
}

/// One argument of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Param {
    /// A value: a scalar or an index.
    Scalar {
        /// Its name.
        name: String,
        /// Its type; never a vector.
        ty: Type,
    },
    /// A buffer.
    Buffer(MemId),
}

/// A memory the kernel may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Its name.
    pub name: String,
    /// Its elements.
    pub dtype: DType,
    /// Where it lives and how long it is.
    pub space: Space,
}

/// Where a memory lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// A buffer passed at launch, with what the kernel does to it; its length is known at launch.
    Buffer(Access),
    /// An array of this many elements for each group.
    Shared(u32),
    /// An array of this many elements for each work-item.
    Private(u32),
}

/// What a kernel does to a buffer; the source of all hazard tracking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Only reads.
    In,
    /// Only writes, every element of the region or none that anyone may rely on.
    Out,
    /// Reads and writes.
    InOut,
}

/// A named value of a work-item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// Its name in the source; not unique.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// Whether [`Op::Assign`] may change it.
    pub mutable: bool,
}

/// A pure expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    /// A constant element.
    Const(Scalar),
    /// A constant index.
    Index(u64),
    /// A scalar parameter, by its position in [`Kernel::params`].
    Param(u32),
    /// The value of a local now.
    Local(LocalId),
    /// A number the launch gives.
    Builtin(Builtin),
    /// The length of a memory in elements. Index.
    Len(MemId),
    /// `lanes` elements from `index` on; a vector if `lanes` > 1.
    Load {
        /// Where from.
        mem: MemId,
        /// First element.
        index: ExprId,
        /// How many.
        lanes: u8,
        /// What happens beyond the length.
        guard: Guard,
    },
    /// An operation on scalars, lane by lane.
    Alu(Alu, Args),
    /// Conversion of the value as Rust's `as`: float to integer saturates and NaN gives 0; to bool is `!= 0`. f16 and bf16 on
    /// either side: rounded once, to nearest.
    Cast(Type, ExprId),
    /// The same bits as another type of the same width.
    Bitcast(Type, ExprId),
    /// One scalar in every lane.
    Splat(ExprId, u8),
    /// One lane of a vector.
    Extract(ExprId, u8),
}

/// Up to three operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Args {
    len: u8,
    ids: [ExprId; 3],
}

impl Args {
    /// One, two or three operands.
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

/// A number the launch gives; all are indices. Axes are 0, 1, 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// This work-item among all, along an axis.
    GlobalId(u8),
    /// This work-item within its group, along an axis.
    LocalId(u8),
    /// This group among all, along an axis.
    GroupId(u8),
    /// Work-items asked for at launch, along an axis; whole groups may reach beyond it.
    GlobalSize(u8),
    /// Work-items of a group, along an axis.
    GroupSize(u8),
    /// Groups, along an axis.
    GroupCount(u8),
    /// This work-item within its subgroup.
    SubgroupLane,
    /// Work-items of a whole subgroup (the last of a group may have fewer): 1 where there are none, see
    /// [`Target::subgroup_of`](crate::target::Target::subgroup_of).
    SubgroupSize,
}

/// The largest length, size, id or count of a launch: an axis of the grid, the work-items of all its groups, the bytes of a buffer.
///
/// The optimizer proves bounds with it, and `runtime` refuses every launch and allocation beyond it.
pub const MAX_LAUNCH_SIZE: u64 = (1 << 48) - 1;

/// What a read or write beyond the length does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    /// A read gives zero, a write is dropped; the back end compares.
    Checked,
    /// The index was proven to be below the length; no comparison is needed. Only the optimizer marks an access so:
    /// [`verify`](crate::verify::verify) refuses it in kernels from outside.
    Proven,
    /// The author promises; beyond the length anything may happen.
    Unchecked,
}

/// Statements in order.
pub type Block = Vec<Stmt>;

/// An effect, and where in the source it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// What happens.
    pub op: Op,
    /// Where it was written.
    pub at: Loc,
}

/// A line of a source file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Loc {
    /// Position in [`Kernel::files`].
    pub file: u16,
    /// Counted from 1; 0 is unknown.
    pub line: u32,
}

/// What a statement does.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Gives a local its first value; it can be read in the rest of this block and in blocks inside.
    Let {
        /// The new local.
        local: LocalId,
        /// Its value.
        value: ExprId,
    },
    /// Changes a mutable local.
    Assign {
        /// Which.
        local: LocalId,
        /// Its next value.
        value: ExprId,
    },
    /// Writes the value's lanes from `index` on.
    Store {
        /// Where to.
        mem: MemId,
        /// First element.
        index: ExprId,
        /// What.
        value: ExprId,
        /// What happens beyond the length.
        guard: Guard,
    },
    /// Changes one element indivisibly among all work-items. Relaxed order. Beyond the length nothing happens and `old` is 0.
    Atomic {
        /// How.
        op: AtomicOp,
        /// A buffer or shared array of u32 or i32, or f32 for `Add` and `Exchange`.
        mem: MemId,
        /// Which element.
        index: ExprId,
        /// The operand.
        value: ExprId,
        /// What `CompareExchange` expects; none for the others.
        expected: Option<ExprId>,
        /// The element before, as a new local.
        old: Option<LocalId>,
        /// What happens beyond the length.
        guard: Guard,
    },
    /// Combines a value over all work-items of a scope; all of them must come here.
    Collective {
        /// How.
        op: CollectiveOp,
        /// Over whom.
        scope: Scope,
        /// This work-item's part.
        value: ExprId,
        /// The result, as a new local.
        result: LocalId,
    },
    /// Waits for all work-items of the group; their writes to buffers and shared memory before it are seen after it.
    Barrier,
    /// One of two blocks.
    If {
        /// A bool.
        condition: ExprId,
        /// When true.
        then: Block,
        /// When false.
        otherwise: Block,
    },
    /// Counts upward: `counter` runs over start, start + step, … below end. All three are evaluated once.
    For {
        /// An immutable local of integer or index type.
        counter: LocalId,
        /// First value.
        start: ExprId,
        /// Bound, exclusive.
        end: ExprId,
        /// At least 1.
        step: ExprId,
        /// What is repeated.
        body: Block,
    },
    /// Repeats while a bool, evaluated before each turn, holds.
    While {
        /// A bool.
        condition: ExprId,
        /// What is repeated.
        body: Block,
    },
    /// Leaves the innermost loop.
    Break,
    /// Goes to the next turn of the innermost loop.
    Continue,
    /// Ends this work-item.
    Return,
}

/// An indivisible change of one element.
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

/// The arena of expressions: equal ones share an id, children come before parents.
#[derive(Clone, Debug, Default)]
pub struct Exprs {
    nodes: Vec<(Expr, Type)>,
    ids: HashMap<Expr, ExprId>,
}

impl Exprs {
    /// The id of an expression, which is added if it is new. The type is the caller's duty; `verify` checks it.
    pub fn intern(&mut self, expr: Expr, ty: Type) -> ExprId {
        let nodes = &mut self.nodes;
        *self.ids.entry(expr).or_insert_with(|| {
            nodes.push((expr, ty));
            ExprId(nodes.len() as u32 - 1)
        })
    }

    /// The expression.
    pub fn get(&self, id: ExprId) -> Expr {
        self.nodes[id.index()].0
    }

    /// Its type.
    pub fn ty(&self, id: ExprId) -> Type {
        self.nodes[id.index()].1
    }

    /// How many there are; ids run below it.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// All with their ids, children before parents.
    pub fn iter(&self) -> impl Iterator<Item = (ExprId, Expr, Type)> + '_ {
        self.nodes.iter().enumerate().map(|(i, (expr, ty))| (ExprId(i as u32), *expr, *ty))
    }
}

impl Expr {
    /// The expressions it is made of.
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

    /// The same expression over other operands, each replaced by `f`.
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
    /// The expressions the statement itself evaluates, in order; those of blocks inside are not among them.
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

    /// The local the statement introduces for what follows it (or, for a loop, for its body).
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

    /// The blocks inside, in order.
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

    /// The blocks inside a statement, in order.
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
    /// The memory behind an id.
    pub fn mem(&self, id: MemId) -> &Memory {
        &self.mems[id.index()]
    }

    /// The local behind an id.
    pub fn local(&self, id: LocalId) -> &Local {
        &self.locals[id.index()]
    }

    /// Bytes of shared memory a group needs.
    pub fn shared_bytes(&self) -> u64 {
        let bytes = |mem: &Memory| match mem.space {
            Space::Shared(len) => len as u64 * mem.dtype.bytes() as u64,
            Space::Buffer(_) | Space::Private(_) => 0,
        };
        self.mems.iter().map(bytes).sum()
    }

    /// Bytes that the private arrays of a work-item need.
    pub fn private_bytes(&self) -> u64 {
        let bytes = |mem: &Memory| match mem.space {
            Space::Private(len) => len as u64 * mem.dtype.bytes() as u64,
            Space::Buffer(_) | Space::Shared(_) => 0,
        };
        self.mems.iter().map(bytes).sum()
    }

    /// `src/lib.rs:12`, or nothing if the line is unknown.
    pub fn place(&self, at: Loc) -> Option<String> {
        let file = self.files.get(at.file as usize)?;
        (at.line > 0).then(|| format!("{file}:{}", at.line))
    }

    /// Calls `f` for every statement, outer ones before inner ones.
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
