//! Compiles a verified kernel to a [`Program`].
//!
//! In order: [`uniformity`] analyzes which values are uniform and where control flow diverges. Then one walk over the
//! statements with [`stmt`] and [`control`] emits code, using [`uniform`] for values in slots and [`lanes`] for values
//! in registers, all on one [`state`]. Finally [`copy_coalescing`] and [`layout`] run. Optimizations that the kernel IR
//! can express have been done before.

mod control;
mod copy_coalescing;
mod lanes;
mod layout;
mod state;
mod stmt;
mod uniform;
mod uniformity;

use panoply_ir::kernel::{CollectiveOp, Kernel, Op};
use panoply_ir::{Error, Result, Verified};

use self::state::State;
use self::uniformity::LaneSet;
use super::ops::Ops;
use super::program::{Program, TileShape};

/// Compiles a kernel for blocks of a tile shape.
///
/// # Errors
/// If the kernel uses matrix products, or if its arrays are too large for a block.
pub fn compile(kernel: &Verified<Kernel>, cover: TileShape, ops: &'static Ops) -> Result<Program> {
    let mut multiplies = false;
    kernel.walk(&mut |stmt| multiplies |= matches!(stmt.op, Op::Collective { op: CollectiveOp::Mma(_), .. }));
    if multiplies {
        let what = "the vector machine does not support matrix products; optimize the kernel for this target, which expands them";
        return Err(Error::unsupported(format!("kernel {}: {what}", kernel.name)));
    }
    let facts = uniformity::analyze(kernel, cover);
    let mut state = State::new(kernel, cover, ops, facts);
    state.block(&kernel.body, LaneSet::Body);
    layout::finish(state)
}
