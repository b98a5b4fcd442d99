//! Optimization passes over kernels.
//!
//! [`PASSES`] is the complete list, in order; each pass is one file with a function from kernel to kernel. The kernel
//! is verified after each pass, so an invalid result is attributed to the pass by name. Each rewrite costs one unit of
//! fuel: with [`Options::fuel`] a wrong result can be bisected to the rewrite that caused it.
//!
//! A pass preserves the kernel's results bit for bit as defined by the interpreter (except the bits of a NaN), and does
//! not reorder float arithmetic. Multiplication and addition are never contracted: a fused multiply-add occurs only
//! where the program contains `Fma`, because results would otherwise depend on the device. If the user permits
//! contraction, [`contract`] is applied before the passes.
//!
//! Two common passes are deliberately omitted. **Affine strength reduction** (advancing addresses and quotients of loop
//! counters by addition): the CPU's vector machine advances affine addresses itself, and so do compilers of rendered
//! text. A loop of 512 iterations over `x[k * s + i]` took 0.41 ms either way on Intel's OpenCL runtime (two EPYC
//! cores, 16384 work-items), and one with `k / w` and `k % w` took 0.49 ms unchanged but 1.17 ms with running counters.
//! **Vectorizing adjacent loads**: OpenCL's `vload` promises only the alignment of one element, so a device can do no
//! more with it than with the scalar loads, which its compiler merges where possible. The renderers do emit the vectors
//! that a kernel contains. Measurements of both: `docs/measured/2026-11-22-passes-left-out.md`.

pub(crate) mod alignment;
pub(crate) mod contract;
pub(crate) mod expand_collectives;
pub(crate) mod expand_math;
pub(crate) mod expand_mma;
pub(crate) mod walk;

pub mod access_footprint;
mod bounds;
mod clone;
mod cse;
mod dce;
mod effects;
mod facts;
mod fold;
mod guards;
pub mod index_width;
mod licm;
mod range_dataflow;
mod ranges;
mod unroll;

use panoply_ir::kernel::Kernel;
use panoply_ir::{Target, Verified};

use crate::proven::verify;

/// Options of optimization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum number of rewrites in total; `None` for no limit.
    pub fuel: Option<u32>,
}

/// An optimization pass.
pub struct Pass {
    /// Name, equal to that of its file.
    pub name: &'static str,
    change: fn(Kernel, &mut Context<'_>) -> Kernel,
}

/// Information available to a pass besides the kernel.
pub(crate) struct Context<'t> {
    pub target: &'t Target,
    pub fuel: Fuel,
}

/// Remaining number of rewrites.
pub(crate) struct Fuel(Option<u32>);

impl Fuel {
    /// Consumes one unit and returns true if a rewrite is permitted. The caller must then make it.
    pub fn spend(&mut self) -> bool {
        match &mut self.0 {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }
}

/// All passes, in execution order.
pub const PASSES: &[Pass] = &[
    FOLD,
    DCE,
    Pass { name: "unroll", change: unroll::run },
    FOLD,
    Pass { name: "bounds", change: bounds::run },
    Pass { name: "guards", change: guards::run },
    Pass { name: "licm", change: licm::run },
    Pass { name: "cse", change: cse::run },
    FOLD,
    DCE,
];

const FOLD: Pass = Pass { name: "fold", change: fold::run };
const DCE: Pass = Pass { name: "dce", change: dce::run };

impl Pass {
    /// Applies this pass alone to a kernel.
    ///
    /// # Panics
    ///
    /// Panics if the result does not verify, which is a bug; the message contains the original kernel.
    pub fn apply(&self, kernel: Verified<Kernel>, target: &Target, options: &Options) -> Verified<Kernel> {
        self.run(kernel, &mut Context { target, fuel: Fuel(options.fuel) })
    }

    fn run(&self, kernel: Verified<Kernel>, context: &mut Context<'_>) -> Verified<Kernel> {
        let before = cfg!(debug_assertions).then(|| kernel.to_string());
        let mut after = (self.change)(kernel.into_inner(), context);
        walk::recheck_guards(&mut after);
        verify(after).unwrap_or_else(|error| {
            let before = before.unwrap_or_default();
            panic!("pass {} produced a kernel that does not verify: {error}\noriginal kernel:\n{before}", self.name)
        })
    }
}

/// Runs all passes on a kernel.
///
/// # Panics
///
/// Panics if a pass produces a kernel that does not verify, which is a bug; the message contains the original kernel.
pub fn optimize(kernel: Verified<Kernel>, target: &Target, options: &Options) -> Verified<Kernel> {
    optimize_observed(kernel, target, options, &mut |_, _| {})
}

/// Runs all passes on a kernel, after expanding matrix products that the target does not support. Calls `observe` with
/// each pass and its result.
///
/// # Panics
///
/// Panics if a pass produces a kernel that does not verify, which is a bug.
pub fn optimize_observed(
    mut kernel: Verified<Kernel>,
    target: &Target,
    options: &Options,
    observe: &mut dyn FnMut(&Pass, &Verified<Kernel>),
) -> Verified<Kernel> {
    if expand_mma::applies(&kernel, target) {
        let written = verify(expand_mma::expand(kernel.into_inner(), target));
        kernel = written.unwrap_or_else(|error| panic!("expansion of a matrix product is invalid: {error}"));
    }
    let mut context = Context { target, fuel: Fuel(options.fuel) };
    for pass in PASSES {
        kernel = pass.run(kernel, &mut context);
        observe(pass, &kernel);
    }
    kernel
}
