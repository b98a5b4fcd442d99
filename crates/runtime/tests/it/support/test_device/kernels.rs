//! Hand-built kernels for the tests.

use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, Builtin, Guard, Kernel};
use panoply_ir::{Alu, DType, Result, Type};
use panoply_runtime::{Buffer, Launch};

/// Launches `y[i] = a * x[i] + y[i]`.
pub fn saxpy<'a>(a: f32, x: &'a Buffer<f32>, y: &'a mut Buffer<f32>) -> Launch<'a> {
    Launch::new(build_saxpy, vec![a.into(), x.into(), y.into()])
}

pub fn build_saxpy() -> Result<Kernel> {
    let mut b = Builder::new("saxpy");
    let a = b.scalar("a", DType::F32);
    let x = b.buffer("x", DType::F32, Access::In);
    let y = b.buffer("y", DType::F32, Access::InOut);
    let i = b.builtin(Builtin::GlobalId(0));
    let (xi, yi) = (b.load(x, i, Guard::Checked), b.load(y, i, Guard::Checked));
    let product = b.alu(Alu::Mul, &[a, xi]);
    let sum = b.alu(Alu::Add, &[product, yi]);
    b.store(y, i, sum, Guard::Checked);
    b.finish()
}

/// Builds `to[i] = from[i] * 3 + 1` for u32; `to` is write-only.
pub fn build_step() -> Result<Kernel> {
    let mut b = Builder::new("step");
    let from = b.buffer("from", DType::U32, Access::In);
    let to = b.buffer("to", DType::U32, Access::Out);
    let i = b.builtin(Builtin::GlobalId(0));
    let (three, one) = (b.constant(3u32), b.constant(1u32));
    let value = b.load(from, i, Guard::Checked);
    let product = b.alu(Alu::Mul, &[value, three]);
    let sum = b.alu(Alu::Add, &[product, one]);
    b.store(to, i, sum, Guard::Checked);
    b.finish()
}

/// Builds `to[i] = to[i] * 5 + from[i]` for u32.
pub fn build_mix() -> Result<Kernel> {
    let mut b = Builder::new("mix");
    let from = b.buffer("from", DType::U32, Access::In);
    let to = b.buffer("to", DType::U32, Access::InOut);
    let i = b.builtin(Builtin::GlobalId(0));
    let five = b.constant(5u32);
    let (old, value) = (b.load(to, i, Guard::Checked), b.load(from, i, Guard::Checked));
    let product = b.alu(Alu::Mul, &[old, five]);
    let sum = b.alu(Alu::Add, &[product, value]);
    b.store(to, i, sum, Guard::Checked);
    b.finish()
}

/// Builds `y[i] = i + n` for u32 along all three axes.
pub fn build_count() -> Result<Kernel> {
    let mut b = Builder::new("count");
    let n = b.scalar("n", Type::Index);
    let y = b.buffer("y", DType::U32, Access::Out);
    let ids = [0, 1, 2].map(|axis| b.builtin(Builtin::GlobalId(axis)));
    let sizes = [0, 1].map(|axis| b.builtin(Builtin::GlobalSize(axis)));
    let plane = b.alu(Alu::Mul, &[ids[2], sizes[1]]);
    let row = b.alu(Alu::Add, &[plane, ids[1]]);
    let start = b.alu(Alu::Mul, &[row, sizes[0]]);
    let i = b.alu(Alu::Add, &[start, ids[0]]);
    let sum = b.alu(Alu::Add, &[i, n]);
    let value = b.cast(DType::U32, sum);
    b.store(y, i, value, Guard::Checked);
    b.finish()
}

/// Builds a kernel with unguarded accesses.
pub fn build_unchecked() -> Result<Kernel> {
    let mut b = Builder::new("daring");
    let y = b.buffer("y", DType::U32, Access::Out);
    let i = b.builtin(Builtin::GlobalId(0));
    let one = b.constant(1u32);
    b.store(y, i, one, Guard::Unchecked);
    b.finish()
}

/// Builds a kernel with one buffer of a type that not every device supports.
pub fn build_typed(dtype: DType) -> Result<Kernel> {
    let mut b = Builder::new("typed");
    let y = b.buffer("y", dtype, Access::InOut);
    let i = b.builtin(Builtin::GlobalId(0));
    let value = b.load(y, i, Guard::Checked);
    let sum = b.alu(Alu::Add, &[value, value]);
    b.store(y, i, sum, Guard::Checked);
    b.finish()
}

/// Builds a kernel with this work-group size, this many f32 of shared memory, and this many buffers.
pub fn build_grouped(group: [u32; 3], shared: u32, buffers: usize) -> Result<Kernel> {
    let mut b = Builder::new("tile");
    b.group_size(group);
    let one = b.constant(1f32);
    let i = b.builtin(Builtin::GlobalId(0));
    for n in 0..buffers {
        let y = b.buffer(&format!("y{n}"), DType::F32, Access::Out);
        b.store(y, i, one, Guard::Checked);
    }
    if shared > 0 {
        let tile = b.shared("tile", DType::F32, shared);
        let at = b.builtin(Builtin::LocalId(0));
        b.store(tile, at, one, Guard::Checked);
    }
    b.finish()
}
