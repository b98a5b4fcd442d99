//! Types that rustc inferred, brought to where the kernel is built.
//!
//! A probe stands around an expression in the author's program, which rustc checks and nobody runs. The probe's type
//! parameter thereby becomes the expression's type, and the building code, which shares the probe, can ask for it.

use std::marker::PhantomData;

use panoply_ir::dtype::{DType, Element, Scalar, Type};
use panoply_ir::kernel::{ExprId, LocalId, MemId};

use super::super::number::{KernelValue, KernelValues};
use super::Emitter;

/// A type that rustc finds out.
pub struct Probe<T>(PhantomData<fn() -> T>);

impl<T> Default for Probe<T> {
    fn default() -> Self {
        Probe::new()
    }
}

impl<T> Probe<T> {
    /// A probe for whatever type it will be used with.
    pub const fn new() -> Self {
        Probe(PhantomData)
    }

    /// Stands around a value in the author's program: `*probe.of(&value)`, because rustc describes a mismatch behind a
    /// dereference in the author's words, and one in an argument in terms of this function.
    pub fn of<'a>(&self, value: &'a T) -> &'a T {
        value
    }

    /// Stands around a slice in the author's program.
    pub fn slice<'a>(&self, slice: &'a [T]) -> &'a [T] {
        slice
    }

    /// Stands around a slice in the author's program.
    pub fn slice_mut<'a>(&self, slice: &'a mut [T]) -> &'a mut [T] {
        slice
    }

    /// Stands around a shared array in the author's program.
    pub fn boxed(&self, array: Box<[T]>) -> Box<[T]> {
        array
    }

    /// A value in the building code.
    pub fn typed(&self, value: ExprId) -> Typed<T> {
        Typed::new(vec![value])
    }

    /// A memory in the building code.
    pub fn memory(&self, id: MemId) -> Memory<T> {
        Memory(id, PhantomData)
    }

    /// A result in the building code, which has the type of the author's.
    pub fn same(&self, result: Typed<T>) -> Typed<T> {
        result
    }
}

impl<T: KernelValue> Probe<T> {
    /// A whole number in the building code. If it does not fit, rustc refuses the author's program.
    pub fn whole(&self, emitter: &Emitter, value: i128) -> ExprId {
        match T::TYPE {
            Type::Index => emitter.host(value as usize),
            Type::Scalar(dtype) | Type::Vector(dtype, _) => emitter.constant(Scalar::from_i128(dtype, value)),
        }
    }

    /// A number with a fraction in the building code, read by rustc as both types it can have.
    pub fn fraction(&self, emitter: &Emitter, single: f32, double: f64) -> ExprId {
        match T::TYPE {
            Type::Scalar(DType::F32) => emitter.host(single),
            _ => emitter.host(double),
        }
    }

    /// A conversion to the type.
    pub fn cast(&self, emitter: &Emitter, value: ExprId) -> ExprId {
        emitter.cast::<T>(value)
    }
}

impl<T: KernelValues> Probe<T> {
    /// Locals for values of the type.
    pub fn results(&self, emitter: &Emitter) -> Vec<LocalId> {
        emitter.results_of::<T>()
    }
}

impl<T: Element> Probe<T> {
    /// A shared array.
    pub fn shared(&self, emitter: &Emitter, name: &str, len: usize) -> MemId {
        let len = emitter.array_len(name, len);
        emitter.builder.borrow_mut().shared(name, T::DTYPE, len)
    }

    /// A private array with one value everywhere.
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

    /// A private array of listed values.
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
    /// Values that are known to be of the type.
    pub fn new(values: Vec<ExprId>) -> Self {
        Typed(values, PhantomData)
    }

    /// The values.
    pub fn into_values(self) -> Vec<ExprId> {
        self.0
    }
}

/// A slice of a Rust type in the building code.
pub struct Memory<T>(MemId, PhantomData<fn() -> T>);

impl<T> Memory<T> {
    /// The memory.
    pub fn id(&self) -> MemId {
        self.0
    }
}
