//! Passes over kernels.
//!
//! [`PASSES`] is the whole list, in order; each pass is one file, a function from kernel to kernel. Between any two the
//! kernel is verified, so a pass that breaks a rule is caught by name. Each rewrite costs one unit of fuel: with
//! [`Options::fuel`] a wrong result is bisected to the single rewrite that caused it.
//!
//! A pass keeps the kernel's meaning bit for bit as the interpreter defines it (the bits of a NaN aside), and reorders no
//! float arithmetic. Multiplication and addition are never contracted: a fused multiply-add happens where the program
//! says `Fma` and nowhere else, or results would depend on the device. Who allows that has [`contract`] before.
//!
//! Two passes one might look for are not here. **Affine strength reduction** (addresses and quotients of loop counters
//! advanced by addition): the CPU's vector machine advances affine addresses itself, and compilers of text do; a loop of
//! 512 turns over `x[k * s + i]` took 0.41 ms either way on Intel's OpenCL runtime (two EPYC cores, 16384 work-items), and
//! one with `k / w` and `k % w` 0.49 ms as it stands but 1.17 with running counters. **Merging neighboring reads into
//! vectors**: OpenCL's `vload` promises the alignment of one element only, so a device can do no more with it than with the
//! single reads, which its compiler merges where that is possible. The renderers do write vectors that a kernel asks for.
//! Figures of both: `docs/measured/2026-11-22-passes-left-out.md`.

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

/// What may be chosen about optimization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// How many rewrites may be made in all; none is no limit.
    pub fuel: Option<u32>,
}

/// A pass.
pub struct Pass {
    /// Its name: that of its file.
    pub name: &'static str,
    change: fn(Kernel, &mut Context<'_>) -> Kernel,
}

/// What a pass may know besides the kernel.
pub(crate) struct Context<'t> {
    pub target: &'t Target,
    pub fuel: Fuel,
}

/// How many rewrites may still be made.
pub(crate) struct Fuel(Option<u32>);

impl Fuel {
    /// Whether one more rewrite may be made; it must be made then.
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

/// Every pass in the order in which they run.
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
    /// What this pass alone makes of a kernel.
    ///
    /// # Panics
    /// If that does not verify: a bug of ours, shown with the kernel before.
    pub fn apply(&self, kernel: Verified<Kernel>, target: &Target, options: &Options) -> Verified<Kernel> {
        self.run(kernel, &mut Context { target, fuel: Fuel(options.fuel) })
    }

    fn run(&self, kernel: Verified<Kernel>, context: &mut Context<'_>) -> Verified<Kernel> {
        let before = cfg!(debug_assertions).then(|| kernel.to_string());
        let mut after = (self.change)(kernel.into_inner(), context);
        walk::recheck_guards(&mut after);
        verify(after).unwrap_or_else(|error| {
            let before = before.unwrap_or_default();
            panic!("pass {} made a kernel that does not verify: {error}\nit was\n{before}", self.name)
        })
    }
}

/// The kernel after all passes.
///
/// # Panics
/// If a pass makes a kernel that does not verify: a bug of ours, shown with the kernel before.
pub fn optimize(kernel: Verified<Kernel>, target: &Target, options: &Options) -> Verified<Kernel> {
    optimize_observed(kernel, target, options, &mut |_, _| {})
}

/// The kernel after all passes, and before them without products of matrices that the target does not have; each pass and what it made is shown to `observe`.
pub fn optimize_observed(
    mut kernel: Verified<Kernel>,
    target: &Target,
    options: &Options,
    observe: &mut dyn FnMut(&Pass, &Verified<Kernel>),
) -> Verified<Kernel> {
    if expand_mma::applies(&kernel, target) {
        let written = verify(expand_mma::expand(kernel.into_inner(), target));
        kernel = written.unwrap_or_else(|error| panic!("a product of matrices was written out wrongly: {error}"));
    }
    let mut context = Context { target, fuel: Fuel(options.fuel) };
    for pass in PASSES {
        kernel = pass.run(kernel, &mut context);
        observe(pass, &kernel);
    }
    kernel
}
