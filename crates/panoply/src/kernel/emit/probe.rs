//! Passes types inferred by rustc to the code that builds a kernel.
//!
//! A probe wraps an expression in a copy of the author's program that rustc checks but that never runs. The probe's
//! type parameter is thereby inferred as the expression's type, and the building code, which shares the probe, can
//! query it.

use std::marker::PhantomData;

use panoply_ir::dtype::{DType, Element, Scalar, Type};
use panoply_ir::kernel::{ExprId, LocalId, MemId};

use super::super::number::{KernelValue, KernelValues};
use super::Emitter;

/// A type that rustc infers.
pub struct Probe<T>(PhantomData<fn() -> T>);

impl<T> Default for Probe<T> {
    fn default() -> Self {
        Probe::new()
    }
}

impl<T> Probe<T> {
    /// Creates a probe whose type is inferred from its uses.
    pub const fn new() -> Self {
        Probe(PhantomData)
    }

    /// Wraps a value in the author's program: `*probe.of(&value)`. rustc describes a mismatch behind a dereference in
    /// the author's terms, and one in an argument in terms of this function.
    pub fn of<'a>(&self, value: &'a T) -> &'a T {
        value
    }

    /// Wraps a slice in the author's program.
    pub fn slice<'a>(&self, slice: &'a [T]) -> &'a [T] {
        slice
    }

    /// Wraps a mutable slice in the author's program.
    pub fn slice_mut<'a>(&self, slice: &'a mut [T]) -> &'a mut [T] {
        slice
    }

    /// Wraps a shared array in the author's program.
    pub fn boxed(&self, array: Box<[T]>) -> Box<[T]> {
        array
    }

    /// Gives a value in the building code the probe's type.
    pub fn typed(&self, value: ExprId) -> Typed<T> {
        Typed::new(vec![value])
    }

    /// Gives a memory in the building code the probe's element type.
    pub fn memory(&self, id: MemId) -> Memory<T> {
        Memory(id, PhantomData)
    }

    /// Requires a result in the building code to have the type of the author's result.
    pub fn same(&self, result: Typed<T>) -> Typed<T> {
        result
    }
}

impl<T: KernelValue> Probe<T> {
    /// Emits an integer literal. rustc rejects the author's program if it does not fit the type.
    pub fn whole(&self, emitter: &Emitter, value: i128) -> ExprId {
        match T::TYPE {
            Type::Index => emitter.host(value as usize),
            Type::Scalar(dtype) | Type::Vector(dtype, _) => emitter.constant(Scalar::from_i128(dtype, value)),
        }
    }

    /// Emits a float literal, which rustc parsed as both types it can have.
    pub fn fraction(&self, emitter: &Emitter, single: f32, double: f64) -> ExprId {
        match T::TYPE {
            Type::Scalar(DType::F32) => emitter.host(single),
            _ => emitter.host(double),
        }
    }

    /// Converts a value to the probe's type.
    pub fn cast(&self, emitter: &Emitter, value: ExprId) -> ExprId {
        emitter.cast::<T>(value)
    }
}

impl<T: KernelValues> Probe<T> {
    /// Declares locals for values of the type.
    pub fn results(&self, emitter: &Emitter) -> Vec<LocalId> {
        emitter.results_of::<T>()
    }
}

impl<T: Element> Probe<T> {
    /// Declares a shared array.
    pub fn shared(&self, emitter: &Emitter, name: &str, len: usize) -> MemId {
        let len = emitter.array_len(name, len);
        emitter.builder.borrow_mut().shared(name, T::DTYPE, len)
    }

    /// Declares a private array whose elements are all `value`.
    pub fn filled(&self, emitter: &Emitter, name: &str, value: ExprId, len: usize) -> MemId {
        const UNROLLED: usize = 16;
        let value = emitter.hold(value);
        let mem = self.private(emitter, name, len);
        if len <= UNROLLED {
            (0..len).for_each(|i| emitter.store(mem, emitter.host(i), value));
        } else {
            let (zero, end, one) = (emitter.host(0usize), emitter.host(len), emitter.host(1usize));
            let i = emitter.begin_for("i", zero, end, one);
            emitter.store(mem, i, value);
            emitter.end();
        }
        mem
    }

    /// Declares a private array with the listed values.
    pub fn listed(&self, emitter: &Emitter, name: &str, values: &[ExprId]) -> MemId {
        let mem = self.private(emitter, name, values.len());
        for (i, value) in values.iter().enumerate() {
            emitter.store(mem, emitter.host(i), *value);
        }
        mem
    }

    fn private(&self, emitter: &Emitter, name: &str, len: usize) -> MemId {
        let len = emitter.array_len(name, len);
        emitter.builder.borrow_mut().private(name, T::DTYPE, len)
    }
}

impl Emitter {
    fn array_len(&self, name: &str, len: usize) -> u32 {
        match u32::try_from(len) {
            Ok(len) if len > 0 => len,
            _ => {
                self.mistake(format!("{name} is an array of {len} elements; it needs 1 to {}", u32::MAX));
                1
            }
        }
    }
}

/// Values of a Rust type in the building code: one for a number, several for a tuple, none for `()`.
pub struct Typed<T>(Vec<ExprId>, PhantomData<fn() -> T>);

impl<T> Typed<T> {
    /// Wraps values that are known to have the type.
    pub fn new(values: Vec<ExprId>) -> Self {
        Typed(values, PhantomData)
    }

    /// Returns the values.
    pub fn into_values(self) -> Vec<ExprId> {
        self.0
    }
}

/// A slice of a Rust type in the building code.
pub struct Memory<T>(MemId, PhantomData<fn() -> T>);

impl<T> Memory<T> {
    /// Returns the memory.
    pub fn id(&self) -> MemId {
        self.0
    }
}
