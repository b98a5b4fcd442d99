//! From a verified kernel to a [`Program`].
//!
//! In the order of work: [`shapes`] (what all lanes share, and where they part), then in one walk over the statements
//! [`stmt`] and [`control`], with [`uniform`] for values in slots and [`lanes`] for values in registers, all on one
//! [`state`]; at last [`forward`] and [`layout`]. It optimises nothing that the kernel IR can express: that was done before.

mod control;
mod forward;
mod lanes;
mod layout;
mod shapes;
mod state;
mod stmt;
mod uniform;

use panoply_ir::kernel::{CollectiveOp, Kernel, Op};
use panoply_ir::{Error, Result, Verified};

use self::shapes::Place;
use self::state::State;
use super::ops::Ops;
use super::program::{Cover, Program};

/// Compiles a kernel for blocks that cover work-items in a certain way.
pub fn compile(kernel: &Verified<Kernel>, cover: Cover, ops: &'static Ops) -> Result<Program> {
    let mut multiplies = false;
    kernel.walk(&mut |stmt| multiplies |= matches!(stmt.op, Op::Collective { op: CollectiveOp::Mma(_), .. }));
    if multiplies {
        let what = "the vector machine multiplies no matrices; optimise it for this target, which writes that out";
        return Err(Error::unsupported(format!("kernel {}: {what}", kernel.name)));
    }
    let facts = shapes::analyse(kernel, cover);
    let mut state = State::new(kernel, cover, ops, facts);
    state.block(&kernel.body, Place::Body);
    layout::finish(state)
}
