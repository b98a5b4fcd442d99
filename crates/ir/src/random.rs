//! Random kernels with random arguments, for executors to agree on.
//!
//! [`case`] makes a verified kernel, a launch and data from a seed. Whatever runs it must give, byte for byte, what
//! [`Case::interpret`] gives, but for two freedoms that [`Case::compare`] grants: one NaN is as good as another, and the
//! buffer of transcendental results, if [`Options::transcendentals`] asked for one, is right within some units in the last
//! place. The generator therefore keeps away from everything that is not defined to the bit:
//!
//! - No race: an element of a buffer is written by one work-item only, which alone reads it; work-items meet only in shared
//!   arrays between barriers, in collectives and in atomics, whose order shows nowhere (one commutative operation for a
//!   buffer, the old value is not used).
//! - No float sums over work-items but of small whole numbers, which matrices are made of; what minimum and maximum say of zeros
//!   of either sign is covered by adding 0.
//! - Bits of a float are looked at only if it is no NaN; transcendental results go to their buffer and nowhere else.
//! - Indices stay below 2^31, so that their width does not show.
//! - Every loop ends after few turns; private and shared arrays are written before they are read.

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

/// What random kernels may use.
#[derive(Clone, Debug)]
pub struct Options {
    /// Element types, of which a kernel uses three at most, besides `bool` and `u32`.
    pub dtypes: Vec<DType>,
    /// Whether one buffer takes results of transcendental functions.
    pub transcendentals: bool,
    /// Whether there are vectors.
    pub vectors: bool,
    /// Whether there are group sizes, shared arrays, barriers and collectives.
    pub groups: bool,
    /// Whether some of the collectives are of subgroups.
    pub subgroups: bool,
    /// Whether some groups are of 32 work-items and multiply matrices.
    pub matrices: bool,
    /// Whether there are atomics.
    pub atomics: bool,
    /// Whether some accesses lie beyond the length, where their guards make them harmless.
    pub beyond: bool,
    /// About how many statements.
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
            beyond: true,
            statements: 24,
        }
    }
}

/// A kernel, a launch, and what is passed.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it was made from.
    pub seed: u64,
    /// What runs.
    pub kernel: Verified<Kernel>,
    /// Work-items asked for.
    pub grid: [u64; 3],
    /// The kernel's group size, or any if it has none.
    pub group: [u32; 3],
    /// What is passed.
    pub args: Vec<CaseArg>,
    /// The position of the argument that takes transcendental results.
    pub approximate: Option<usize>,
}

/// One argument.
#[derive(Clone, Debug, PartialEq)]
pub enum CaseArg {
    /// A buffer's bytes in the machine's own order.
    Buffer(Vec<u8>),
    /// A scalar.
    Scalar(Scalar),
    /// An index.
    Index(u64),
}

/// The random kernel of a seed; equal seeds and options give equal cases.
pub fn case(seed: u64, options: &Options) -> Case {
    shape::Generator::new(seed, options).case()
}

/// The kernel of [`case`] alone.
pub fn kernel(seed: u64, options: &Options) -> Verified<Kernel> {
    case(seed, options).kernel
}

impl Case {
    /// The buffers after a run of the interpreter with subgroups of this size (see [`interpret::run_in_subgroups`]), in the
    /// order of the arguments; scalars give empty ones.
    pub fn interpret(&self, subgroup: u32) -> Result<Vec<Vec<u8>>> {
        let mut buffers = self.buffers();
        let args = self.args.iter().zip(&mut buffers).map(|(given, bytes)| match given {
            CaseArg::Buffer(_) => Arg::Write(bytes),
            CaseArg::Scalar(value) => Arg::Scalar(*value),
            CaseArg::Index(value) => Arg::Index(*value),
        });
        let args = &mut args.collect::<Vec<Arg>>();
        interpret::run_in_subgroups(&self.kernel, self.grid, self.group, subgroup, args, &mut ())?;
        Ok(buffers)
    }

    /// The buffers before a run; scalars give empty ones.
    pub fn buffers(&self) -> Vec<Vec<u8>> {
        let bytes = |given: &CaseArg| match given {
            CaseArg::Buffer(bytes) => bytes.clone(),
            CaseArg::Scalar(_) | CaseArg::Index(_) => Vec::new(),
        };
        self.args.iter().map(bytes).collect()
    }

    /// Whether two executors agree: equal elements, NaN with NaN, and in the buffer of transcendental results a difference
    /// of at most `ulps` units in the last place. The error names seed, argument, element and both values.
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
                    let place = format!("{}: {}[{element}]", self.name(), memory.name);
                    return Err(format!("{place} is {have}, expected {want}\n{}", *self.kernel));
                }
            }
        }
        Ok(())
    }

    fn name(&self) -> String {
        format!("random kernel {}, grid {:?}, group {:?}", self.seed, self.grid, self.group)
    }

    /// Whether an argument is a buffer that the kernel may write.
    pub fn is_written(&self, position: usize) -> bool {
        match &self.kernel.params[position] {
            Param::Buffer(mem) => self.kernel.mem(*mem).space != Space::Buffer(Access::In),
            Param::Scalar { .. } => false,
        }
    }
}

/// The types that values of one kernel have: few, so that they meet.
fn types(options: &Options, random: &mut Random) -> Vec<DType> {
    let mut dtypes = options.dtypes.clone();
    while dtypes.len() > 3 {
        let unlucky = random.below(dtypes.len() as u64) as usize;
        dtypes.swap_remove(unlucky);
    }
    dtypes.extend([DType::Bool, DType::U32]);
    dtypes.sort();
    dtypes.dedup();
    dtypes
}

/// An element type with as many lanes.
fn with_lanes(dtype: DType, lanes: u8) -> Type {
    if lanes == 1 { Type::Scalar(dtype) } else { Type::Vector(dtype, lanes) }
}
