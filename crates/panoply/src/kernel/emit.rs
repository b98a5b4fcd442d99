//! What `#[kernel]` writes against: an emitter that the generated code calls line by line.
//!
//! It stands over the IR's builder and adds what only Rust source has: methods of numbers (`methods`), the functions of
//! the language (`intrinsics`), the types that rustc inferred (`probe`), and functions that are inlined. Everything
//! takes `&self`, so that calls nest the way the author's expressions do. Not part of the public interface.

mod built_in;
mod intrinsics;
mod methods;
mod probe;

use std::cell::{Cell, RefCell};

use panoply_ir::builder::Builder;
use panoply_ir::dtype::{Element, Scalar, Type};
use panoply_ir::interpret::scalar;
use panoply_ir::kernel::{Access, Builtin, Expr, ExprId, Guard, Kernel, LocalId, MemId, Space};
use panoply_ir::{Alu, DType, Result};

pub use built_in::{BuiltIn, method};
pub use probe::{Memory, Probe, Typed};

use super::number::{KernelConstant, KernelValue, KernelValues};

/// Functions inlined into each other, at most; more is taken for recursion.
const DEEPEST: usize = 64;

/// A kernel under construction, as generated code sees it.
pub struct Emitter {
    builder: RefCell<Builder>,
    guard: Cell<Guard>,
    line: Cell<u32>,
    /// The file of the function being inlined, innermost last, and the line of the call before it.
    files: RefCell<Vec<(&'static str, u32)>>,
}

impl Emitter {
    /// An empty kernel whose source is in `file`.
    pub fn new(name: &str, file: &'static str) -> Emitter {
        Emitter {
            builder: RefCell::new(Builder::new(name)),
            guard: Cell::new(Guard::Checked),
            line: Cell::new(0),
            files: RefCell::new(vec![(file, 0)]),
        }
    }

    /// Fixes the group size.
    pub fn group(&self, group: [usize; 3]) {
        let [x, y, z] = group.map(|size| u32::try_from(size).unwrap_or(0));
        if [x, y, z].contains(&0) {
            self.mistake(format!("a group of {group:?} work-items; each axis needs at least 1"));
        }
        self.builder.borrow_mut().group([x, y, z]);
    }

    /// No read or write is compared with the length.
    pub fn unchecked(&self) {
        self.builder.borrow_mut().unchecked();
        self.guard.set(Guard::Unchecked);
    }

    /// Statements from here on were written on this line.
    pub fn line(&self, line: u32) {
        self.line.set(line);
        let file = self.files.borrow().last().map_or("", |(file, _)| *file);
        self.builder.borrow_mut().loc(file, line);
    }

    /// The kernel, or the first mistake.
    pub fn finish(self) -> Result<Kernel> {
        self.builder.into_inner().finish()
    }

    fn mistake(&self, message: impl Into<String>) {
        self.builder.borrow_mut().mistake(message);
    }

    // Parameters.

    /// A scalar parameter.
    pub fn scalar<T: KernelValue>(&self, name: &str) -> ExprId {
        self.builder.borrow_mut().scalar(name, T::TYPE)
    }

    /// A buffer parameter.
    pub fn buffer<T: Element>(&self, name: &str, mutable: bool) -> MemId {
        let access = if mutable { Access::InOut } else { Access::In };
        self.builder.borrow_mut().buffer(name, T::DTYPE, access)
    }

    // Values.

    /// A value that Rust computed while the kernel is built.
    pub fn host<T: KernelValue>(&self, value: T) -> ExprId {
        match value.to_constant() {
            KernelConstant::Element(scalar) => self.builder.borrow_mut().constant(scalar),
            KernelConstant::Index(index) => self.builder.borrow_mut().index(index),
        }
    }

    /// The value of a local now.
    pub fn get(&self, local: LocalId) -> ExprId {
        self.builder.borrow_mut().get(local)
    }

    /// A named value.
    pub fn bind(&self, name: &str, value: ExprId) -> ExprId {
        self.builder.borrow_mut().bind(name, value)
    }

    /// A named value that may change.
    pub fn declare(&self, name: &str, value: ExprId) -> LocalId {
        self.builder.borrow_mut().declare(name, value, true)
    }

    /// Keeps a value as it is now, whatever later statements change.
    pub fn hold(&self, value: ExprId) -> ExprId {
        match self.expr(value) {
            Expr::Const(_) | Expr::Index(_) | Expr::Param(_) | Expr::Builtin(_) | Expr::Len(_) => value,
            Expr::Local(_) | Expr::Load { .. } | Expr::Alu(..) => self.bind("held", value),
            Expr::Cast(..) | Expr::Bitcast(..) | Expr::Splat(..) | Expr::Extract(..) => self.bind("held", value),
        }
    }

    /// Changes a local.
    pub fn assign(&self, local: LocalId, value: ExprId) {
        self.builder.borrow_mut().assign(local, value);
    }

    /// One element.
    pub fn load(&self, mem: MemId, index: ExprId) -> ExprId {
        self.builder.borrow_mut().load(mem, index, self.guard.get())
    }

    /// One element on a side that may not be wanted, where no promise holds.
    pub fn load_unwanted(&self, mem: MemId, index: ExprId) -> ExprId {
        self.builder.borrow_mut().load(mem, index, Guard::Checked)
    }

    /// Writes one element.
    pub fn store(&self, mem: MemId, index: ExprId, value: ExprId) {
        self.builder.borrow_mut().store(mem, index, value, self.guard.get());
    }

    /// The length of a memory.
    pub fn len(&self, mem: MemId) -> ExprId {
        let mut builder = self.builder.borrow_mut();
        match builder.mem_space(mem) {
            Space::Buffer(_) => builder.len(mem),
            Space::Shared(len) | Space::Private(len) => builder.index(len.into()),
        }
    }

    /// Whether a memory has no elements.
    pub fn is_empty(&self, mem: MemId) -> ExprId {
        let (len, zero) = (self.len(mem), self.host(0usize));
        self.eq(len, zero)
    }

    /// As Rust's `as`. A constant becomes another constant, so that a type the device lacks does not appear for it.
    pub fn cast<T: KernelValue>(&self, value: ExprId) -> ExprId {
        self.cast_to(T::TYPE, value)
    }

    fn cast_to(&self, ty: Type, value: ExprId) -> ExprId {
        let from = self.expr(value);
        let mut builder = self.builder.borrow_mut();
        match (from, ty) {
            (Expr::Const(value), Type::Scalar(dtype)) => builder.constant(scalar::cast(dtype, value)),
            (Expr::Index(index), Type::Scalar(dtype)) if index < 1 << 31 => {
                builder.constant(scalar::cast(dtype, Scalar::from(index)))
            }
            (Expr::Const(value), Type::Index) if value.dtype.is_int() && value.to_i128() >= 0 => {
                builder.index(value.bits)
            }
            _ => builder.cast(ty, value),
        }
    }

    fn expr(&self, value: ExprId) -> Expr {
        self.builder.borrow().expr(value)
    }

    fn ty(&self, value: ExprId) -> Type {
        self.builder.borrow().ty(value)
    }

    fn alu(&self, op: Alu, operands: &[ExprId]) -> ExprId {
        self.builder.borrow_mut().alu(op, operands)
    }

    fn builtin(&self, builtin: Builtin) -> ExprId {
        self.builder.borrow_mut().builtin(builtin)
    }

    // Control.

    /// Opens the block of a true condition.
    pub fn begin_if(&self, condition: ExprId) {
        self.builder.borrow_mut().begin_if(condition);
    }

    /// Opens the block of a false condition.
    pub fn begin_else(&self) {
        self.builder.borrow_mut().begin_else();
    }

    /// Opens a counting loop and gives its counter.
    pub fn begin_for(&self, name: &str, start: ExprId, end: ExprId, step: ExprId) -> ExprId {
        self.builder.borrow_mut().begin_for(name, start, end, step)
    }

    /// Opens a loop over `(start..end).step_by(step)` and gives the author's counter. Rust panics at a step of 0, this takes it for 1.
    pub fn begin_steps(&self, name: &str, start: ExprId, end: ExprId, step: ExprId) -> ExprId {
        let ty = self.ty(start);
        let signed = ty.dtype().filter(|dtype| dtype.is_signed() && dtype.is_int());
        let fits = |dtype: DType| matches!(self.expr(step), Expr::Index(step) if step < 1 << (dtype.bits() - 1));
        let Some(dtype) = signed.filter(|dtype| !fits(*dtype)) else {
            return self.begin_for(name, start, end, self.step(ty, step));
        };
        // A step may be longer than the greatest number of the type, not than the distance from the least to it.
        let bits = Type::from(dtype.unsigned());
        let (start, end) = (self.hold(start), self.hold(end));
        let first = self.bitcast(bits, start);
        let distance = self.sub(self.bitcast(bits, end), first);
        let distance = self.select(self.lt(start, end), distance, self.zero(bits));
        let count = self.begin_for(name, self.zero(bits), distance, self.step(bits, step));
        self.bitcast(ty, self.add(first, count))
    }

    /// A step in an unsigned type or the index type: if it does not fit, the greatest, after which the loop ends all the same.
    fn step(&self, ty: Type, step: ExprId) -> ExprId {
        let known = self.expr(step);
        let Some(dtype) = ty.dtype() else {
            let at_least_one = matches!(known, Expr::Index(step) if step > 0);
            return if at_least_one { step } else { self.alu(Alu::Max, &[step, self.one(step)]) };
        };
        let greatest = u64::MAX >> (64 - dtype.bits() + u32::from(dtype.is_signed()));
        if let Expr::Index(step) = known {
            return self.bits(dtype, step.clamp(1, greatest));
        }
        let short = self.cast_to(ty, step);
        let fits = self.eq(self.cast_to(Type::Index, short), step);
        let short = self.select(fits, short, self.bits(dtype, greatest));
        self.alu(Alu::Max, &[short, self.one(short)])
    }

    /// Opens a loop that runs while a condition holds.
    pub fn begin_while(&self, condition: ExprId) {
        self.builder.borrow_mut().begin_while(condition);
    }

    /// Closes what was opened last.
    pub fn end(&self) {
        self.builder.borrow_mut().end();
    }

    /// Leaves the innermost loop.
    pub fn break_loop(&self) {
        self.builder.borrow_mut().break_loop();
    }

    /// Goes to the next turn of the innermost loop.
    pub fn continue_loop(&self) {
        self.builder.borrow_mut().continue_loop();
    }

    /// Ends the work-item.
    pub fn ret(&self) {
        self.builder.borrow_mut().return_();
    }

    /// The step of a loop over `a..b`, in the counter's type.
    pub fn one(&self, like: ExprId) -> ExprId {
        self.number(like, 1.0)
    }

    /// The counter of `(first..bound).rev()` when `count` runs over `first..bound`.
    pub fn mirrored(&self, first: ExprId, bound: ExprId, count: ExprId) -> ExprId {
        let (done, one) = (self.sub(count, first), self.one(first));
        let last = self.sub(bound, one);
        self.sub(last, done)
    }

    // Several values at once: results of `if … else …` and of functions.

    /// The one value of a vector.
    pub fn only(&self, values: Vec<ExprId>) -> ExprId {
        self.next(&mut self.several(values, 1).into_iter())
    }

    /// A vector that must have `count` values.
    pub fn several(&self, values: Vec<ExprId>, count: usize) -> Vec<ExprId> {
        if values.len() != count {
            self.mistake(format!("{} values where {count} are wanted", values.len()));
        }
        values
    }

    /// The next value.
    pub fn next(&self, values: &mut impl Iterator<Item = ExprId>) -> ExprId {
        values.next().unwrap_or_else(|| self.host(false))
    }

    /// Locals for the values of a type; each side of an `if` will give them.
    pub fn results_of<T: KernelValues>(&self) -> Vec<LocalId> {
        let zeros = T::types().into_iter().map(|ty| self.zero(ty));
        zeros.map(|zero| self.declare("result", zero)).collect()
    }

    /// Gives values to such locals.
    pub fn give(&self, results: &[LocalId], values: Vec<ExprId>) {
        // Together: a later value may read a result that an earlier one replaces.
        let values: Vec<ExprId> = match values.len() {
            1 => values,
            _ => values.into_iter().map(|value| self.hold(value)).collect(),
        };
        for (result, value) in results.iter().zip(self.several(values, results.len())) {
            self.assign(*result, value);
        }
    }

    /// The values of such locals.
    pub fn taken(&self, results: &[LocalId]) -> Vec<ExprId> {
        results.iter().map(|result| self.get(*result)).collect()
    }

    // Functions that are inlined.

    /// Begins the body of a function; false if it is part of an endless recursion.
    pub fn enter(&self, name: &str, file: &'static str) -> bool {
        let deep = self.files.borrow().len() > DEEPEST;
        if deep {
            self.mistake(format!("{name} is inlined into itself; a `#[kernel_fn]` cannot be recursive"));
        } else {
            self.files.borrow_mut().push((file, self.line.get()));
        }
        !deep
    }

    /// Ends the body of a function.
    pub fn leave(&self) {
        let call = self.files.borrow_mut().pop();
        if let Some((_, line)) = call {
            self.line(line);
        }
    }

    /// The result of a function that could not be inlined.
    pub fn absent<T: KernelValues>(&self) -> Typed<T> {
        Typed::new(T::types().into_iter().map(|ty| self.zero(ty)).collect())
    }

    // Constants of a type that is known only now.

    fn zero(&self, ty: Type) -> ExprId {
        match ty {
            Type::Index => self.host(0usize),
            Type::Scalar(dtype) | Type::Vector(dtype, _) => self.constant(Scalar::from_i128(dtype, 0)),
        }
    }

    /// A number of the same type as another value.
    fn number(&self, like: ExprId, value: f64) -> ExprId {
        match self.ty(like) {
            Type::Index => self.host(value as usize),
            Type::Scalar(dtype) | Type::Vector(dtype, _) => self.constant(Scalar::from_f64(dtype, value)),
        }
    }

    fn constant(&self, scalar: Scalar) -> ExprId {
        self.builder.borrow_mut().constant(scalar)
    }
}
