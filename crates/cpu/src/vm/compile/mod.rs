//! From a verified kernel to a [`Program`].
//!
//! In the order of work: [`uniformity`] (what all lanes share, and where they part), then in one walk over the statements
//! [`stmt`] and [`control`], with [`uniform`] for values in slots and [`lanes`] for values in registers, all on one
//! [`state`]; at last [`copy_coalescing`] and [`layout`]. It optimizes nothing that the kernel IR can express: that was done before.

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

/// Compiles a kernel for blocks that cover work-items in a certain way.
pub fn compile(kernel: &Verified<Kernel>, cover: TileShape, ops: &'static Ops) -> Result<Program> {
    let mut multiplies = false;
    kernel.walk(&mut |stmt| multiplies |= matches!(stmt.op, Op::Collective { op: CollectiveOp::Mma(_), .. }));
    if multiplies {
        let what = "the vector machine multiplies no matrices; optimize it for this target, which writes that out";
        return Err(Error::unsupported(format!("kernel {}: {what}", kernel.name)));
    }
    let facts = uniformity::analyze(kernel, cover);
    let mut state = State::new(kernel, cover, ops, facts);
    state.block(&kernel.body, LaneSet::Body);
    layout::finish(state)
}
