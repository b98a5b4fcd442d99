//! Random kernels with random arguments, for differential testing of executors.
//!
//! [`case`] generates a verified kernel, a launch and data from a seed. An executor must return, byte for byte, the result of
//! [`Case::interpret`]. [`Case::compare`] allows two exceptions: all NaNs are equal, and the buffer of transcendental results, if
//! [`Options::transcendentals`] is set, can differ by some units in the last place. The generator therefore avoids everything that is
//! not bitwise defined:
//!
//! - No races. An element of a buffer is written by one work-item only, which alone reads it. Work-items interact only through shared
//!   arrays between barriers, collectives and atomics. The order of atomics is not observable: one commutative operation per buffer, and
//!   the previous value is not used.
//! - No float sums over work-items, except of small integers, as in matrices. The sign of zero in a minimum or maximum is hidden by
//!   adding 0.
//! - The bits of a float are used only if it is not NaN. Transcendental results are only stored to their buffer.
//! - Indices stay below 2^31, so that their width is not observable.
//! - Every loop ends after few iterations. Private and shared arrays are written before they are read.

mod data;
mod exprs;
mod shape;
mod shrink;
mod stmts;

use crate::dtype::{DType, Scalar, Type};
use crate::error::Result;
use crate::interpret::{self, Arg};
use crate::kernel::{Access, Kernel, Param, Space};
use crate::verify::Verified;

pub use data::Random;

/// Features that random kernels can use.
#[derive(Clone, Debug)]
pub struct Options {
    /// Element types; a kernel uses at most three of them, besides `bool` and `u32`.
    pub dtypes: Vec<DType>,
    /// True to have a buffer for results of transcendental functions.
    pub transcendentals: bool,
    /// True to use vectors.
    pub vectors: bool,
    /// True to use work-group sizes, shared arrays, barriers and collectives.
    pub groups: bool,
    /// True to use subgroup collectives.
    pub subgroups: bool,
    /// True to use work-groups of 32 work-items with matrix products.
    pub matrices: bool,
    /// True to use atomics.
    pub atomics: bool,
    /// True to use guarded accesses out of bounds.
    pub out_of_bounds: bool,
    /// Approximate number of statements.
    pub statements: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            dtypes: DType::ALL.to_vec(),
            transcendentals: false,
            vectors: true,
            groups: true,
            subgroups: true,
            matrices: false,
            atomics: true,
            out_of_bounds: true,
            statements: 24,
        }
    }
}

/// A kernel with a launch and arguments.
#[derive(Clone, Debug)]
pub struct Case {
    /// The seed.
    pub seed: u64,
    /// The kernel.
    pub kernel: Verified<Kernel>,
    /// The requested work-items.
    pub grid: [u64; 3],
    /// The work-group size: the kernel's if it fixes one, else an arbitrary one.
    pub group: [u32; 3],
    /// The arguments.
    pub args: Vec<CaseArg>,
    /// Index of the argument for transcendental results.
    pub approximate: Option<usize>,
}

/// An argument.
#[derive(Clone, Debug, PartialEq)]
pub enum CaseArg {
    /// Bytes of a buffer in native order.
    Buffer(Vec<u8>),
    /// A scalar.
    Scalar(Scalar),
    /// An index.
    Index(u64),
}

/// Returns the random case of a seed. Equal seeds and options give equal cases.
pub fn case(seed: u64, options: &Options) -> Case {
    shape::Generator::new(seed, options).case()
}

/// Returns only the kernel of [`case`].
pub fn kernel(seed: u64, options: &Options) -> Verified<Kernel> {
    case(seed, options).kernel
}

impl Case {
    /// Runs the interpreter with this subgroup size (see [`interpret::run_in_subgroups`]); returns the buffers in the order of the
    /// arguments, empty for scalars.
    ///
    /// # Errors
    /// The interpreter rejects the launch.
    pub fn interpret(&self, subgroup: u32) -> Result<Vec<Vec<u8>>> {
        let mut buffers = self.buffers();
        let args = self.args.iter().zip(&mut buffers).map(|(arg, bytes)| match arg {
            CaseArg::Buffer(_) => Arg::Write(bytes),
            CaseArg::Scalar(value) => Arg::Scalar(*value),
            CaseArg::Index(value) => Arg::Index(*value),
        });
        let args = &mut args.collect::<Vec<Arg>>();
        interpret::run_in_subgroups(&self.kernel, self.grid, self.group, subgroup, args, &mut ())?;
        Ok(buffers)
    }

    /// Returns the buffers before a run, empty for scalars.
    pub fn buffers(&self) -> Vec<Vec<u8>> {
        let bytes = |arg: &CaseArg| match arg {
            CaseArg::Buffer(bytes) => bytes.clone(),
            CaseArg::Scalar(_) | CaseArg::Index(_) => Vec::new(),
        };
        self.args.iter().map(bytes).collect()
    }

    /// Compares the results of two executors: elements must be equal or both NaN; transcendental results can differ by `ulps` units in the
    /// last place.
    ///
    /// # Errors
    /// The first difference, with seed, argument, element and both values.
    pub fn compare(&self, expected: &[Vec<u8>], found: &[Vec<u8>], ulps: f64) -> Result<(), String> {
        for (position, param) in self.kernel.params.iter().enumerate() {
            let Param::Buffer(mem) = param else { continue };
            let memory = self.kernel.mem(*mem);
            let size = memory.dtype.bytes();
            let (expected, found) = (&expected[position], &found[position]);
            if expected.len() != found.len() {
                return Err(format!(
                    "{}: {} has {} bytes, not {}",
                    self.name(),
                    memory.name,
                    found.len(),
                    expected.len()
                ));
            }
            for (element, (want, have)) in expected.chunks(size).zip(found.chunks(size)).enumerate() {
                let (want, have) = (data::read(memory.dtype, want), data::read(memory.dtype, have));
                let close = self.approximate == Some(position) && data::within(want, have, ulps);
                if !data::same(want, have) && !close {
                    let location = format!("{}: {}[{element}]", self.name(), memory.name);
                    return Err(format!("{location} is {have}, expected {want}\n{}", *self.kernel));
                }
            }
        }
        Ok(())
    }

    fn name(&self) -> String {
        format!("random kernel {}, grid {:?}, group {:?}", self.seed, self.grid, self.group)
    }

    /// Returns true if the argument is a buffer that the kernel can write.
    pub fn is_written(&self, position: usize) -> bool {
        match &self.kernel.params[position] {
            Param::Buffer(mem) => self.kernel.mem(*mem).space != Space::Buffer(Access::In),
            Param::Scalar { .. } => false,
        }
    }
}

/// Chooses the value types of a kernel: few, so that operations find operands of equal type.
fn types(options: &Options, random: &mut Random) -> Vec<DType> {
    let mut dtypes = options.dtypes.clone();
    while dtypes.len() > 3 {
        let dropped = random.below(dtypes.len() as u64) as usize;
        dtypes.swap_remove(dropped);
    }
    dtypes.extend([DType::Bool, DType::U32]);
    dtypes.sort();
    dtypes.dedup();
    dtypes
}

/// Returns the scalar or vector type with this number of lanes.
fn with_lanes(dtype: DType, lanes: u8) -> Type {
    if lanes == 1 { Type::Scalar(dtype) } else { Type::Vector(dtype, lanes) }
}
