//! Products with a fused epilogue, against the same kernel run afterwards: bit for bit, with every instruction set of the machine.

use std::sync::Arc;

use panoply_cpu::vm::exec::Buffer;
use panoply_cpu::vm::launch::{Args, Compiled};
use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, Builtin, Guard, Kernel};
use panoply_ir::routine::{Gemm, Layout, Routine};
use panoply_ir::verify::verify;
use panoply_ir::{Alu, DType, Math, Scalar, Verified};
use panoply_routines::{Epilogue, run, run_with_epilogue, supports_epilogue};

/// `y[i] = tanh(p[i] + row[i % n])` as f32, and `z[i] = p[i] * row[i % n]` in the product's type.
fn kernel(dtype: DType, n: u64) -> Arc<Verified<Kernel>> {
    let mut b = Builder::new("end");
    let [p, row] = ["p", "row"].map(|name| b.buffer(name, dtype, Access::In));
    let (y, z) = (b.buffer("y", DType::F32, Access::Out), b.buffer("z", dtype, Access::Out));
    let [column, at, batch] = [0, 1, 2].map(|axis| b.builtin(Builtin::GlobalId(axis)));
    let (length, height) = (b.index(n), b.builtin(Builtin::GlobalSize(1)));
    let above = b.alu(Alu::Mul, &[batch, height]);
    let at = b.alu(Alu::Add, &[above, at]);
    let first = b.alu(Alu::Mul, &[at, length]);
    let i = b.alu(Alu::Add, &[first, column]);
    let (product, bias) = (b.load(p, i, Guard::Checked), b.load(row, column, Guard::Checked));
    let (sum, scaled) = (b.alu(Alu::Add, &[product, bias]), b.alu(Alu::Mul, &[product, bias]));
    let sum = b.cast(DType::F32, sum);
    let activated = b.alu(Alu::Math(Math::Tanh), &[sum]);
    b.store(y, i, activated, Guard::Checked);
    b.store(z, i, scaled, Guard::Checked);
    Arc::new(verify(b.finish().unwrap()).unwrap())
}

fn numbers(count: usize, dtype: DType) -> Vec<u8> {
    let value = |i: usize| Scalar::from_f64(dtype, ((i * 37 + i / 11) % 129) as f64 / 64.0 - 1.0);
    (0..count).flat_map(|i| value(i).bits.to_le_bytes().into_iter().take(dtype.bytes())).collect()
}

/// Returns the product if it is kept, `y` and `z`.
fn results(isa: Isa, threads: usize, gemm: &Gemm, at_once: bool, keeps: bool) -> [Vec<u8>; 3] {
    let Gemm { dtype, batch, m, n, k, .. } = *gemm;
    let (pool, width) = (Pool::new(threads), dtype.bytes());
    let [mut a, mut b, mut row] = [batch * m * k, k * n, n].map(|count| numbers(count, dtype));
    let elems = batch * m * n;
    let [mut p, mut y, mut z] = [width, 4, width].map(|width| vec![0xAAu8; elems * width]);
    let (routine, grid) = (Routine::Gemm(*gemm), [n as u64, m as u64, batch as u64]);
    let compiled = Compiled::new(kernel(dtype, n as u64), isa).unwrap();
    let operands = [&mut a, &mut b, &mut p].map(|bytes| bytes.as_mut_ptr());
    let buffer = |ptr, len: usize| Buffer { ptr, len: len as u64 };
    let [row, y_at, z_at] = [&mut row, &mut y, &mut z].map(|bytes| bytes.as_mut_ptr());
    let buffers = [buffer(operands[2], elems), buffer(row, n), buffer(y_at, elems), buffer(z_at, elems)];
    let args = Args { buffers: &buffers, scalars: &[0; 4] };
    // SAFETY: the buffers have these lengths and do not overlap; each element of the product is read by the work-item
    // of the same index.
    unsafe {
        if at_once {
            assert!(supports_epilogue(&routine), "{routine}");
            let pieces = compiled.chunks(grid, 0, args).unwrap();
            run_with_epilogue(&pool, isa, &routine, &operands, Some(Epilogue { pieces: &pieces, keep_output: keeps }));
        } else {
            run(&pool, isa, &routine, &operands);
            compiled.launch(&pool, grid, &buffers, args.scalars).unwrap();
        }
    }
    [if keeps { p } else { Vec::new() }, y, z]
}

#[test]
fn fused_epilogues_equal_a_separate_kernel() {
    let shapes =
        [[1, 16, 97, 3], [1, 70, 500, 600], [1, 600, 130, 1], [3, 40, 1000, 40], [2, 33, 250, 1100], [1, 20, 96, 0]];
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            for [batch, m, n, k] in shapes {
                let layout = |batch, row| Layout { offset: 0, batch, row, column: 1 };
                let (a, b, c) = (layout(m * k, k), layout(0, n), layout(m * n, n));
                let gemm = Gemm { dtype, tf32: false, bias: false, batch, m, n, k, a, b, c };
                let want = results(isa, 1, &gemm, false, true);
                for (threads, keeps) in [(1, true), (3, true), (3, false)] {
                    let [p, y, z] = results(isa, threads, &gemm, true, keeps);
                    assert!((y, z) == (want[1].clone(), want[2].clone()), "{isa} {gemm} on {threads} threads");
                    assert!(!keeps || p == want[0], "{isa} {gemm} on {threads} threads: the product itself");
                }
            }
        }
    }
}
