//! Builds kernels statement by statement.
//!
//! Builder methods never fail: the first mistake is kept and returned by [`Builder::finish`]. This keeps code that generates kernels
//! (the `#[kernel]` macro, the lowering) free of error handling. Types are checked when expressions are built; `verify` checks
//! everything else.

use crate::alu::Alu;
use crate::dtype::{DType, Scalar, Type};
use crate::error::{Error, Result};
use crate::kernel::*;

/// A kernel under construction.
pub struct Builder {
    kernel: Kernel,
    /// Open blocks, outermost first, each with the statement that will contain it.
    open: Vec<(Frame, Block)>,
    at: Loc,
    mistake: Option<Error>,
}

/// The statement that an open block becomes part of when it is closed.
enum Frame {
    Body,
    Then { condition: ExprId, at: Loc },
    Otherwise { condition: ExprId, then: Block, at: Loc },
    For { counter: LocalId, start: ExprId, end: ExprId, step: ExprId, at: Loc },
    While { condition: ExprId, at: Loc },
}

impl Builder {
    /// Creates an empty kernel.
    pub fn new(name: impl Into<String>) -> Builder {
        let kernel = Kernel {
            name: name.into(),
            group_size: None,
            unchecked: false,
            params: Vec::new(),
            mems: Vec::new(),
            locals: Vec::new(),
            exprs: Exprs::default(),
            body: Block::new(),
            files: Vec::new(),
        };
        Builder { kernel, open: vec![(Frame::Body, Block::new())], at: Loc::default(), mistake: None }
    }

    /// Fixes the work-group size.
    pub fn group_size(&mut self, group_size: [u32; 3]) {
        self.kernel.group_size = Some(group_size);
    }

    /// Marks the kernel as unchecked: the author guarantees uniformity; see [`Kernel::unchecked`].
    pub fn unchecked(&mut self) {
        self.kernel.unchecked = true;
    }

    /// Sets the source location of the following statements.
    pub fn loc(&mut self, file: &str, line: u32) {
        let known = self.kernel.files.iter().position(|name| name == file);
        let position = known.unwrap_or_else(|| {
            self.kernel.files.push(file.to_string());
            self.kernel.files.len() - 1
        });
        self.at = Loc { file: position as u16, line };
    }

    /// Records a mistake; only the first is kept, for [`Builder::finish`].
    pub fn mistake(&mut self, message: impl Into<String>) {
        if self.mistake.is_none() {
            let error = Error::mistake(format!("kernel {}: {}", self.kernel.name, message.into()));
            let place = self.kernel.place(self.at);
            self.mistake = Some(if let Some(place) = place { error.note(place) } else { error });
        }
    }

    /// Returns the kernel.
    ///
    /// # Errors
    /// The first mistake made while building it.
    pub fn finish(mut self) -> Result<Kernel> {
        if self.open.len() != 1 {
            self.mistake("a block was left open");
        }
        match self.mistake {
            Some(mistake) => Err(mistake),
            None => {
                self.kernel.body = self.open.swap_remove(0).1;
                Ok(self.kernel)
            }
        }
    }

    // Parameters and memories.

    /// Adds a scalar or index parameter and returns its value.
    pub fn scalar(&mut self, name: &str, ty: impl Into<Type>) -> ExprId {
        let ty = ty.into();
        self.kernel.params.push(Param::Scalar { name: name.to_string(), ty });
        let position = self.kernel.params.len() as u32 - 1;
        self.kernel.exprs.intern(Expr::Param(position), ty)
    }

    /// Adds a buffer parameter.
    pub fn buffer(&mut self, name: &str, dtype: DType, access: Access) -> MemId {
        let mem = self.memory(name, dtype, Space::Buffer(access));
        self.kernel.params.push(Param::Buffer(mem));
        mem
    }

    /// Adds a shared array of `len` elements per work-group.
    pub fn shared(&mut self, name: &str, dtype: DType, len: u32) -> MemId {
        self.memory(name, dtype, Space::Shared(len))
    }

    /// Adds a private array of `len` elements per work-item.
    pub fn private(&mut self, name: &str, dtype: DType, len: u32) -> MemId {
        self.memory(name, dtype, Space::Private(len))
    }

    fn memory(&mut self, name: &str, dtype: DType, space: Space) -> MemId {
        self.kernel.mems.push(Memory { name: name.to_string(), dtype, space });
        MemId(self.kernel.mems.len() as u32 - 1)
    }

    // Expressions.

    /// Returns the type of an expression.
    pub fn ty(&self, expr: ExprId) -> Type {
        self.kernel.exprs.ty(expr)
    }

    /// Returns the expression of an id.
    pub fn expr(&self, expr: ExprId) -> Expr {
        self.kernel.exprs.get(expr)
    }

    /// Returns the element type of a memory.
    pub fn mem_dtype(&self, mem: MemId) -> DType {
        self.kernel.mem(mem).dtype
    }

    /// Returns the address space of a memory, with the length of an array.
    pub fn mem_space(&self, mem: MemId) -> Space {
        self.kernel.mem(mem).space
    }

    /// Returns a constant element.
    pub fn constant(&mut self, value: impl Into<Scalar>) -> ExprId {
        let value = value.into();
        self.kernel.exprs.intern(Expr::Const(value), Type::Scalar(value.dtype))
    }

    /// Returns a constant index.
    pub fn index(&mut self, value: u64) -> ExprId {
        self.kernel.exprs.intern(Expr::Index(value), Type::Index)
    }

    /// Returns a launch parameter, such as an id or a size.
    pub fn builtin(&mut self, builtin: Builtin) -> ExprId {
        self.kernel.exprs.intern(Expr::Builtin(builtin), Type::Index)
    }

    /// Returns the value of a local at the point where the expression is evaluated.
    pub fn get(&mut self, local: LocalId) -> ExprId {
        let ty = self.kernel.local(local).ty;
        self.kernel.exprs.intern(Expr::Local(local), ty)
    }

    /// Returns the length of a memory in elements.
    pub fn len(&mut self, mem: MemId) -> ExprId {
        self.kernel.exprs.intern(Expr::Len(mem), Type::Index)
    }

    /// Loads one element.
    pub fn load(&mut self, mem: MemId, index: ExprId, guard: Guard) -> ExprId {
        self.load_vector(mem, index, 1, guard)
    }

    /// Loads `lanes` consecutive elements starting at `index`.
    pub fn load_vector(&mut self, mem: MemId, index: ExprId, lanes: u8, guard: Guard) -> ExprId {
        let dtype = self.kernel.mem(mem).dtype;
        let ty = if lanes > 1 { Type::Vector(dtype, lanes) } else { Type::Scalar(dtype) };
        if self.ty(index) != Type::Index {
            let message = format!("{} is indexed with {}, not an index", self.kernel.mem(mem).name, self.ty(index));
            self.mistake(message);
        }
        self.kernel.exprs.intern(Expr::Load { mem, index, lanes, guard }, ty)
    }

    /// Applies an operation. Operands of different types are a mistake.
    pub fn alu(&mut self, op: Alu, operands: &[ExprId]) -> ExprId {
        let types: Vec<Type> = operands.iter().map(|operand| self.ty(*operand)).collect();
        match op.result_type(&types) {
            Ok(ty) => self.kernel.exprs.intern(Expr::Alu(op, Args::new(operands)), ty),
            Err(message) => {
                self.mistake(message);
                self.constant(false)
            }
        }
    }

    /// Converts a value as Rust's `as` does; returns it unchanged if it has the type already.
    pub fn cast(&mut self, ty: impl Into<Type>, value: ExprId) -> ExprId {
        let (ty, from) = (ty.into(), self.ty(value));
        if ty == from {
            return value;
        }
        if ty.lanes() != from.lanes() {
            self.mistake(format!("a {from} cannot be cast to {ty}: the lanes differ"));
        }
        self.kernel.exprs.intern(Expr::Cast(ty, value), ty)
    }

    /// Reinterprets the bits as another type of the same width.
    pub fn bitcast(&mut self, ty: impl Into<Type>, value: ExprId) -> ExprId {
        let (ty, from) = (ty.into(), self.ty(value));
        let bits = |ty: Type| ty.dtype().map(|dtype| (dtype.bits(), ty.lanes()));
        if bits(ty).is_none() || bits(ty) != bits(from) {
            self.mistake(format!("the bits of a {from} cannot be read as {ty}: the widths differ"));
        }
        self.kernel.exprs.intern(Expr::Bitcast(ty, value), ty)
    }

    /// Broadcasts a scalar to all lanes of a vector.
    pub fn splat(&mut self, value: ExprId, lanes: u8) -> ExprId {
        match self.ty(value) {
            Type::Scalar(dtype) => self.kernel.exprs.intern(Expr::Splat(value, lanes), Type::Vector(dtype, lanes)),
            ty => {
                self.mistake(format!("{ty} cannot be broadcast to {lanes} lanes"));
                value
            }
        }
    }

    /// Extracts a lane of a vector.
    pub fn extract(&mut self, value: ExprId, lane: u8) -> ExprId {
        match self.ty(value) {
            Type::Vector(dtype, lanes) if lane < lanes => {
                self.kernel.exprs.intern(Expr::Extract(value, lane), Type::Scalar(dtype))
            }
            ty => {
                self.mistake(format!("{ty} has no lane {lane}"));
                value
            }
        }
    }

    // Statements.

    /// Declares a local with an initial value.
    pub fn declare(&mut self, name: &str, value: ExprId, mutable: bool) -> LocalId {
        let local = self.local(name, self.ty(value), mutable);
        self.push(Op::Let { local, value });
        local
    }

    /// Declares an immutable local and returns its value.
    pub fn bind(&mut self, name: &str, value: ExprId) -> ExprId {
        let local = self.declare(name, value, false);
        self.get(local)
    }

    /// Assigns to a mutable local.
    pub fn assign(&mut self, local: LocalId, value: ExprId) {
        let (want, have) = (self.kernel.local(local).ty, self.ty(value));
        if want != have {
            let message = format!("{} is {want} and cannot be assigned {have}", self.kernel.local(local).name);
            self.mistake(message);
        }
        self.push(Op::Assign { local, value });
    }

    /// Stores a scalar or the lanes of a vector, starting at `index`.
    pub fn store(&mut self, mem: MemId, index: ExprId, value: ExprId, guard: Guard) {
        let (want, have) = (self.kernel.mem(mem).dtype, self.ty(value));
        if have.dtype() != Some(want) {
            let message = format!("{} holds {want} and cannot store {have}", self.kernel.mem(mem).name);
            self.mistake(message);
        }
        self.push(Op::Store { mem, index, value, guard });
    }

    /// Updates one element atomically and returns the previous value.
    pub fn atomic(
        &mut self,
        op: AtomicOp,
        mem: MemId,
        index: ExprId,
        value: ExprId,
        expected: Option<ExprId>,
        guard: Guard,
    ) -> ExprId {
        let old = self.local("old", Type::Scalar(self.kernel.mem(mem).dtype), false);
        self.push(Op::Atomic { op, mem, index, value, expected, old: Some(old), guard });
        self.get(old)
    }

    /// Combines a value over all work-items of a scope.
    pub fn collective(&mut self, op: CollectiveOp, scope: Scope, value: ExprId) -> ExprId {
        let result = self.local("combined", self.ty(value), false);
        self.push(Op::Collective { op, scope, value, result });
        self.get(result)
    }

    /// Adds a work-group barrier.
    pub fn barrier(&mut self) {
        self.push(Op::Barrier);
    }

    /// Breaks out of the innermost loop.
    pub fn break_loop(&mut self) {
        self.push(Op::Break);
    }

    /// Continues with the next iteration of the innermost loop.
    pub fn continue_loop(&mut self) {
        self.push(Op::Continue);
    }

    /// Returns from the kernel, for this work-item.
    pub fn return_(&mut self) {
        self.push(Op::Return);
    }

    /// Opens the block that runs if the condition is true.
    pub fn begin_if(&mut self, condition: ExprId) {
        self.want_bool(condition, "an `if` condition");
        self.open.push((Frame::Then { condition, at: self.at }, Block::new()));
    }

    /// Closes the block of [`Builder::begin_if`] and opens the one that runs if the condition is false.
    pub fn begin_else(&mut self) {
        match self.open.pop() {
            Some((Frame::Then { condition, at }, then)) => {
                self.open.push((Frame::Otherwise { condition, then, at }, Block::new()));
            }
            other => {
                self.open.extend(other);
                self.mistake("`else` without `if`");
            }
        }
    }

    /// Opens a counting loop and returns its counter.
    pub fn begin_for(&mut self, name: &str, start: ExprId, end: ExprId, step: ExprId) -> ExprId {
        let ty = self.ty(start);
        if !ty.is_int() || ty.lanes() > 1 || self.ty(end) != ty || self.ty(step) != ty {
            let message = format!(
                "a loop from {ty} to {} by {}: all three must have one integer type",
                self.ty(end),
                self.ty(step)
            );
            self.mistake(message);
        }
        let counter = self.local(name, ty, false);
        self.open.push((Frame::For { counter, start, end, step, at: self.at }, Block::new()));
        self.get(counter)
    }

    /// Opens a loop that runs while a condition, evaluated before each iteration, is true.
    pub fn begin_while(&mut self, condition: ExprId) {
        self.want_bool(condition, "a `while` condition");
        self.open.push((Frame::While { condition, at: self.at }, Block::new()));
    }

    /// Closes the innermost open block.
    pub fn end(&mut self) {
        let Some((frame, block)) = self.open.pop() else { return };
        let (op, at) = match frame {
            Frame::Body => {
                self.open.push((Frame::Body, block));
                return self.mistake("a block was closed that was never opened");
            }
            Frame::Then { condition, at } => (Op::If { condition, then: block, otherwise: Block::new() }, at),
            Frame::Otherwise { condition, then, at } => (Op::If { condition, then, otherwise: block }, at),
            Frame::For { counter, start, end, step, at } => (Op::For { counter, start, end, step, body: block }, at),
            Frame::While { condition, at } => (Op::While { condition, body: block }, at),
        };
        self.push_at(op, at);
    }

    fn want_bool(&mut self, condition: ExprId, what: &str) {
        let ty = self.ty(condition);
        if ty != Type::BOOL {
            self.mistake(format!("{what} is {ty}, not bool"));
        }
    }

    fn local(&mut self, name: &str, ty: Type, mutable: bool) -> LocalId {
        self.kernel.locals.push(Local { name: name.to_string(), ty, mutable });
        LocalId(self.kernel.locals.len() as u32 - 1)
    }

    fn push(&mut self, op: Op) {
        self.push_at(op, self.at);
    }

    fn push_at(&mut self, op: Op, at: Loc) {
        let (_, block) = self.open.last_mut().expect("the body is always open");
        block.push(Stmt { op, at });
    }
}
