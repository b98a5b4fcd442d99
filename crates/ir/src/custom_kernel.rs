//! A custom (user-written) kernel as a node of a graph.
//!
//! It is opaque to fusion: a separate launch that reads and writes whole tensors. The inputs and outputs of its node follow from its
//! parameters, in order:
//!
//! | parameter | input | output |
//! |---|---|---|
//! | a scalar | one element, known at launch | |
//! | a read-only buffer | its elements | |
//! | a write-only buffer | | its elements; elements that the kernel does not write are undefined |
//! | a read-write buffer | its elements before | its elements after |

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::dtype::{DType, Scalar, Type};
use crate::error::{Error, Result};
use crate::interpret::{Arg, run};
use crate::kernel::{Access, Expr, Kernel, MemId, Op, Param, Space};
use crate::shape::Shape;
use crate::verify::Verified;

/// A kernel with its grid and the shapes of its outputs.
#[derive(Debug)]
pub struct CustomKernel {
    /// The kernel.
    pub kernel: Arc<Verified<Kernel>>,
    /// The grid of work-items.
    pub grid: [u64; 3],
    /// Shape and type of each written buffer.
    pub outputs: Vec<(Shape, DType)>,
    /// Role of each parameter.
    pub roles: Vec<Role>,
    /// Equivalent kernels (same parameters, bitwise equal results), each with its grid. A device can measure which is the fastest.
    pub variants: Vec<(Arc<Verified<Kernel>>, [u64; 3])>,
    hash: u128,
}

/// Role of a parameter in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// An input of one element.
    Scalar(DType),
    /// An input.
    Read(DType),
    /// An output.
    Write(DType),
    /// An input and an output of the same shape.
    ReadWrite(DType),
}

impl CustomKernel {
    /// Creates a node's kernel with its grid and the shapes of the buffers that it writes, in order.
    ///
    /// # Errors
    /// A parameter is not a scalar or buffer, the shapes do not match the written buffers or are empty, the grid is empty, or the kernel is
    /// unchecked.
    pub fn new(kernel: Arc<Verified<Kernel>>, grid: [u64; 3], shapes: Vec<Shape>) -> Result<CustomKernel> {
        let fail = |message: String| Err(Error::mistake(format!("kernel {}: {message}", kernel.name)));
        let mut roles = Vec::with_capacity(kernel.params.len());
        for param in &kernel.params {
            roles.push(match param {
                Param::Scalar { ty: Type::Scalar(dtype), .. } => Role::Scalar(*dtype),
                Param::Scalar { name, ty } => {
                    return fail(format!("{name} is {ty}; in a graph a kernel takes only scalars and buffers"));
                }
                Param::Buffer(mem) => {
                    let dtype = kernel.mem(*mem).dtype;
                    match kernel.mem(*mem).space {
                        Space::Buffer(Access::In) => Role::Read(dtype),
                        _ if reads(&kernel, *mem) => Role::ReadWrite(dtype),
                        _ => Role::Write(dtype),
                    }
                }
            });
        }
        let written: Vec<DType> = roles.iter().filter_map(|role| role.written()).collect();
        if written.len() != shapes.len() {
            return fail(format!("it writes {} buffers, but {} shapes were given", written.len(), shapes.len()));
        }
        if let Some(empty) = shapes.iter().find(|shape| shape.numel() == 0) {
            return fail(format!("a buffer of shape {empty} has no elements to write"));
        }
        if grid.contains(&0) || kernel.unchecked {
            let what =
                if kernel.unchecked { "it is unchecked, which graphs do not support" } else { "its grid is empty" };
            return fail(what.to_string());
        }
        let outputs: Vec<(Shape, DType)> = shapes.into_iter().zip(written).collect();
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        (crate::text::hash(&kernel), grid, &outputs).hash(&mut hasher);
        Ok(CustomKernel { hash: hasher.digest128(), kernel, grid, outputs, roles, variants: Vec::new() })
    }

    /// Adds equivalent kernels that can run instead.
    pub fn with_variants(self, others: Vec<(Arc<Verified<Kernel>>, [u64; 3])>) -> CustomKernel {
        CustomKernel { variants: others, ..self }
    }

    /// Checks the shapes and types of the inputs.
    ///
    /// # Errors
    /// The mismatch, if they do not fit.
    pub fn check(&self, inputs: &[(&Shape, DType)]) -> Result<(), String> {
        let wanted = self.roles.iter().filter(|role| !matches!(role, Role::Write(_)));
        if wanted.clone().count() != inputs.len() {
            return Err(format!("it takes {} inputs, not {}", wanted.count(), inputs.len()));
        }
        let mut given = inputs.iter();
        let mut outputs = self.outputs.iter();
        for (role, param) in self.roles.iter().zip(&self.kernel.params) {
            let output = role.written().and_then(|_| outputs.next());
            let (Role::Scalar(wanted) | Role::Read(wanted) | Role::ReadWrite(wanted)) = *role else { continue };
            let Some((shape, dtype)) = given.next() else { continue };
            let name = match param {
                Param::Scalar { name, .. } => name,
                Param::Buffer(mem) => &self.kernel.mem(*mem).name,
            };
            if *dtype != wanted {
                return Err(format!("{name} holds {wanted}, not {dtype}"));
            }
            if shape.numel() == 0 {
                return Err(format!("{name} has no elements"));
            }
            if matches!(role, Role::Scalar(_)) && shape.ndim() > 0 {
                return Err(format!("{name} is a scalar, not a tensor of shape {shape}"));
            }
            if let (Role::ReadWrite(_), Some((after, _))) = (role, output)
                && after != *shape
            {
                return Err(format!("{name} has shape {shape} before and {after} after"));
            }
        }
        Ok(())
    }

    /// Runs the kernel in the interpreter; returns the elements of each output.
    ///
    /// # Errors
    /// The interpreter rejects the launch.
    pub fn interpret(&self, inputs: &[Vec<Scalar>]) -> Result<Vec<Vec<Scalar>>> {
        let (mut given, mut outputs) = (inputs.iter(), self.outputs.iter());
        let mut next = || given.next().expect("the inputs were checked");
        // The bytes of each buffer; empty for a scalar.
        let mut memory: Vec<Vec<u8>> = Vec::new();
        let mut numbers = Vec::new();
        for role in &self.roles {
            let output = role.written().and_then(|_| outputs.next());
            let (mut bytes, mut number) = (Vec::new(), None);
            match role {
                Role::Scalar(_) => number = Some(next()[0]),
                Role::Read(_) | Role::ReadWrite(_) => bytes = to_bytes(next()),
                Role::Write(dtype) => bytes = vec![0; output.map_or(0, |(shape, _)| shape.numel()) * dtype.bytes()],
            }
            memory.push(bytes);
            numbers.push(number);
        }
        let arg = |(bytes, number): (_, &Option<Scalar>)| number.map_or(Arg::Write(bytes), Arg::Scalar);
        let mut args: Vec<Arg> = memory.iter_mut().map(Vec::as_mut_slice).zip(&numbers).map(arg).collect();
        run(&self.kernel, self.grid, self.kernel.group_size.unwrap_or([1; 3]), &mut args, &mut ())?;
        let written = self.roles.iter().zip(&memory);
        Ok(written.filter_map(|(role, bytes)| Some(from_bytes(bytes, role.written()?))).collect())
    }
}

impl Role {
    /// Returns the element type of the output, if the parameter is one.
    pub fn written(self) -> Option<DType> {
        match self {
            Role::Write(dtype) | Role::ReadWrite(dtype) => Some(dtype),
            Role::Scalar(_) | Role::Read(_) => None,
        }
    }
}

/// Returns true if the kernel's result depends on the previous contents of a buffer.
fn reads(kernel: &Kernel, buffer: MemId) -> bool {
    let loaded = kernel.exprs.iter().any(|(_, expr, _)| matches!(expr, Expr::Load { mem, .. } if mem == buffer));
    let mut changed = false;
    kernel.walk(&mut |stmt| changed |= matches!(&stmt.op, Op::Atomic { mem, .. } if *mem == buffer));
    loaded || changed
}

fn to_bytes(elements: &[Scalar]) -> Vec<u8> {
    elements.iter().flat_map(|element| element.bits.to_le_bytes().into_iter().take(element.dtype.bytes())).collect()
}

fn from_bytes(bytes: &[u8], dtype: DType) -> Vec<Scalar> {
    let element = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        Scalar { dtype, bits: u64::from_le_bytes(word) }
    };
    bytes.chunks(dtype.bytes()).map(element).collect()
}

impl PartialEq for CustomKernel {
    fn eq(&self, other: &CustomKernel) -> bool {
        self.hash == other.hash
    }
}

impl Eq for CustomKernel {}

impl Hash for CustomKernel {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash as u64);
    }
}
