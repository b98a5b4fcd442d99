//! Integration tests of task graphs: one program, a module for each capability under test.

mod array_programs;
mod arrays;
mod data_parallel;
mod nested_tasks;
mod processes;
mod support;
mod task_graph;
mod tasks;
mod timeline;

use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, Builtin, Guard, Kernel};
use panoply_ir::{Alu, DType};
use panoply_tensor::Result;

/// Builds the kernel `to[i] += from[i]`.
fn add_kernel() -> Result<Kernel> {
    let mut b = Builder::new("add");
    let from = b.buffer("from", DType::F32, Access::In);
    let to = b.buffer("to", DType::F32, Access::InOut);
    let i = b.builtin(Builtin::GlobalId(0));
    let (x, y) = (b.load(from, i, Guard::Checked), b.load(to, i, Guard::Checked));
    let sum = b.alu(Alu::Add, &[x, y]);
    b.store(to, i, sum, Guard::Checked);
    b.finish()
}
