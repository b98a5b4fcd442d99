//! The vector machine against the interpreter: each form of control flow and memory access, and each size of a remainder.

use std::sync::Arc;

use differential::{CaseArg, check, of};
use panoply_cpu::vm::launch::Compiled;
use panoply_host::isa::Isa;
use panoply_ir::builder::Builder;
use panoply_ir::kernel::*;
use panoply_ir::verify::verify;
use panoply_ir::{Alu, DType, Scalar, Type};

use crate::support::differential;

/// Sizes around every boundary: of a vector, of a block, and of a short row.
const SIZES: [u64; 12] = [1, 2, 15, 16, 17, 63, 95, 96, 511, 512, 513, 2100];

fn floats(n: u64) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 0.37).sin() * 4.0).collect()
}

fn global_id(b: &mut Builder) -> ExprId {
    b.builtin(Builtin::GlobalId(0))
}

/// Builds `y[i] += a * x[i]` where `i < y.len()`.
fn saxpy(guard: Guard) -> Kernel {
    let mut b = Builder::new("saxpy");
    let a = b.scalar("a", DType::F32);
    let x = b.buffer("x", DType::F32, Access::In);
    let y = b.buffer("y", DType::F32, Access::InOut);
    let i = global_id(&mut b);
    let len = b.len(y);
    let inside = b.alu(Alu::Lt, &[i, len]);
    b.begin_if(inside);
    let (xi, yi) = (b.load(x, i, guard), b.load(y, i, guard));
    let product = b.alu(Alu::Mul, &[a, xi]);
    let sum = b.alu(Alu::Add, &[yi, product]);
    b.store(y, i, sum, guard);
    b.end();
    b.finish().expect("saxpy is valid")
}

#[test]
fn saxpy_with_every_remainder() {
    for n in SIZES {
        for len in [n, n - n / 3, n + 5] {
            let given = [CaseArg::Scalar(2.5_f32.into()), of(&floats(len)), of(&floats(len + 1)[1..])];
            check(saxpy(Guard::Checked), [n, 1, 1], &given);
            check(saxpy(Guard::Proven), [n, 1, 1], &given);
        }
    }
}

#[test]
fn out_of_bounds_reads_give_zero() {
    let mut b = Builder::new("stencil");
    let x = b.buffer("x", DType::F32, Access::In);
    let y = b.buffer("y", DType::F32, Access::Out);
    let i = global_id(&mut b);
    let one = b.index(1);
    let (left, right) = (b.alu(Alu::Sub, &[i, one]), b.alu(Alu::Add, &[i, one]));
    let (l, c, r) = (b.load(x, left, Guard::Checked), b.load(x, i, Guard::Checked), b.load(x, right, Guard::Checked));
    let sum = b.alu(Alu::Add, &[l, c]);
    let sum = b.alu(Alu::Add, &[sum, r]);
    b.store(y, i, sum, Guard::Checked);
    let kernel = b.finish().expect("the stencil is valid");
    for n in SIZES {
        check(kernel.clone(), [n, 1, 1], &[of(&floats(n)), of(&vec![0_f32; n as usize])]);
        check(kernel.clone(), [n, 1, 1], &[of(&floats(n / 2)), of(&vec![0_f32; n as usize])]);
        check(kernel.clone(), [n + 40, 1, 1], &[of(&floats(n)), of(&vec![0_f32; n as usize])]);
    }
}

#[test]
fn in_place_updates_read_before_they_write() {
    // Lanes run in lockstep: y[i] = y[i] * y[i] + y[i], with all three reads of the same element.
    let mut b = Builder::new("square");
    let y = b.buffer("y", DType::F32, Access::InOut);
    let i = global_id(&mut b);
    let v = b.load(y, i, Guard::Checked);
    let square = b.alu(Alu::Mul, &[v, v]);
    let sum = b.alu(Alu::Add, &[square, v]);
    b.store(y, i, sum, Guard::Checked);
    let again = b.alu(Alu::Mul, &[v, v]);
    b.store(y, i, again, Guard::Checked);
    let kernel = b.finish().expect("the kernel is valid");
    for n in SIZES {
        check(kernel.clone(), [n, 1, 1], &[of(&floats(n))]);
    }
}

#[test]
fn lets_keep_the_loaded_value() {
    let mut b = Builder::new("keep");
    let y = b.buffer("y", DType::F32, Access::InOut);
    let z = b.buffer("z", DType::F32, Access::Out);
    let i = global_id(&mut b);
    let v = b.load(y, i, Guard::Checked);
    let old = b.bind("old", v);
    let doubled = b.alu(Alu::Add, &[v, v]);
    b.store(y, i, doubled, Guard::Checked);
    let new = b.load(y, i, Guard::Checked);
    let difference = b.alu(Alu::Sub, &[new, old]);
    b.store(z, i, difference, Guard::Checked);
    let kernel = b.finish().expect("the kernel is valid");
    check(kernel, [700, 1, 1], &[of(&floats(700)), of(&vec![0_f32; 700])]);
}

/// Rows over three axes, long and short: `y[x + nx * (y + ny * z)] = x - 2 y + 3 z`.
#[test]
fn grids_of_three_axes() {
    let mut b = Builder::new("axes");
    let nx = b.scalar("nx", Type::Index);
    let ny = b.scalar("ny", Type::Index);
    let y = b.buffer("y", DType::I32, Access::Out);
    let [gx, gy, gz] = [0, 1, 2].map(|axis| b.builtin(Builtin::GlobalId(axis)));
    let plane = b.alu(Alu::Mul, &[ny, gz]);
    let row = b.alu(Alu::Add, &[gy, plane]);
    let offset = b.alu(Alu::Mul, &[nx, row]);
    let at = b.alu(Alu::Add, &[gx, offset]);
    let [x, yy, z] = [gx, gy, gz].map(|id| b.cast(DType::I32, id));
    let (two, three) = (b.constant(2_i32), b.constant(3_i32));
    let (yy, z) = (b.alu(Alu::Mul, &[yy, two]), b.alu(Alu::Mul, &[z, three]));
    let value = b.alu(Alu::Sub, &[x, yy]);
    let value = b.alu(Alu::Add, &[value, z]);
    let limit = b.index(5);
    let small = b.alu(Alu::Lt, &[gx, limit]);
    let other = b.alu(Alu::Ne, &[gy, gx]);
    let both = b.alu(Alu::And, &[small, other]);
    b.begin_if(both);
    let negative = b.alu(Alu::Neg, &[value]);
    b.store(y, at, negative, Guard::Proven);
    b.begin_else();
    b.store(y, at, value, Guard::Checked);
    b.end();
    let kernel = b.finish().expect("the kernel is valid");
    for [x, y, z] in [[1, 1, 1], [3, 5, 7], [10, 51, 1], [10, 200, 2], [95, 3, 2], [96, 3, 2], [600, 2, 2], [1, 700, 1]]
    {
        let given = [CaseArg::Index(x), CaseArg::Index(y), of(&vec![-1_i32; (x * y * z) as usize])];
        check(kernel.clone(), [x, y, z], &given);
    }
}

/// Transposes through an affine index of both axes.
#[test]
fn transposed_reads_and_writes() {
    for write_transposed in [false, true] {
        let mut b = Builder::new("transpose");
        let (nx, ny) = (b.scalar("nx", Type::Index), b.scalar("ny", Type::Index));
        let x = b.buffer("x", DType::U16, Access::In);
        let y = b.buffer("y", DType::U16, Access::Out);
        let (gx, gy) = (b.builtin(Builtin::GlobalId(0)), b.builtin(Builtin::GlobalId(1)));
        let (row, column) = (b.alu(Alu::Mul, &[gy, nx]), b.alu(Alu::Mul, &[gx, ny]));
        let straight = b.alu(Alu::Add, &[row, gx]);
        let across = b.alu(Alu::Add, &[column, gy]);
        let (from, to) = if write_transposed { (straight, across) } else { (across, straight) };
        let value = b.load(x, from, Guard::Checked);
        b.store(y, to, value, Guard::Checked);
        let kernel = b.finish().expect("the kernel is valid");
        for [nx, ny] in [[7, 5], [33, 64], [130, 9], [600, 3]] {
            let values: Vec<u16> = (0..nx * ny).map(|i| (i * 7) as u16).collect();
            let given = [CaseArg::Index(nx), CaseArg::Index(ny), of(&values), of(&vec![0_u16; values.len()])];
            check(kernel.clone(), [nx, ny, 1], &given);
        }
    }
}

/// Counts the steps of the Collatz sequence, with `break` and `continue`.
#[test]
fn lanes_leave_loops_at_different_times() {
    let mut b = Builder::new("collatz");
    let y = b.buffer("y", DType::U32, Access::Out);
    let i = global_id(&mut b);
    let one = b.constant(1_u32);
    let zero = b.constant(0_u32);
    let two = b.constant(2_u32);
    let three = b.constant(3_u32);
    let start = b.cast(DType::U32, i);
    let start = b.alu(Alu::Add, &[start, one]);
    let n = b.declare("n", start, true);
    let steps = b.declare("steps", zero, true);
    let always = b.constant(true);
    b.begin_while(always);
    let now = b.get(n);
    let done = b.alu(Alu::Eq, &[now, one]);
    b.begin_if(done);
    b.break_loop();
    b.end();
    let so_far = b.get(steps);
    let more = b.alu(Alu::Add, &[so_far, one]);
    b.assign(steps, more);
    let odd = b.alu(Alu::And, &[now, one]);
    let even = b.alu(Alu::Eq, &[odd, zero]);
    b.begin_if(even);
    let half = b.alu(Alu::Div, &[now, two]);
    b.assign(n, half);
    b.continue_loop();
    b.end();
    let tripled = b.alu(Alu::Mul, &[now, three]);
    let tripled = b.alu(Alu::Add, &[tripled, one]);
    b.assign(n, tripled);
    b.end();
    let result = b.get(steps);
    b.store(y, i, result, Guard::Checked);
    let kernel = b.finish().expect("the kernel is valid");
    for n in SIZES {
        check(kernel.clone(), [n, 1, 1], &[of(&vec![0_u32; n as usize])]);
    }
}

#[test]
fn copies_into_locals_are_coalesced() {
    let mut b = Builder::new("spiral");
    let out = b.buffer("out", DType::F32, Access::Out);
    let i = global_id(&mut b);
    let start = b.cast(DType::F32, i);
    let (hundredth, limit) = (b.constant(0.01_f32), b.constant(4_f32));
    let start = b.alu(Alu::Mul, &[start, hundredth]);
    let (x, y) = (b.declare("x", start, true), b.declare("y", hundredth, true));
    let (xv, yv) = (b.get(x), b.get(y));
    let (xx, yy) = (b.alu(Alu::Mul, &[xv, xv]), b.alu(Alu::Mul, &[yv, yv]));
    let norm = b.alu(Alu::Add, &[xx, yy]);
    let (none, one, fifty) = (b.constant(0_u32), b.constant(1_u32), b.constant(50_u32));
    let iterations = b.declare("iterations", none, true);
    let iteration = b.get(iterations);
    let (near, early) = (b.alu(Alu::Le, &[norm, limit]), b.alu(Alu::Lt, &[iteration, fifty]));
    let going = b.alu(Alu::And, &[near, early]);
    b.begin_while(going);
    let difference = b.alu(Alu::Sub, &[xx, yy]);
    let next = b.alu(Alu::Add, &[difference, start]);
    let next = b.bind("next", next);
    let product = b.alu(Alu::Mul, &[xv, yv]);
    let doubled = b.alu(Alu::Add, &[product, product]);
    b.assign(y, doubled);
    b.assign(x, next);
    let more = b.alu(Alu::Add, &[iteration, one]);
    b.assign(iterations, more);
    b.end();
    b.store(out, i, xv, Guard::Checked);
    let kernel = b.finish().expect("the kernel is valid");
    for n in SIZES {
        check(kernel.clone(), [n, 1, 1], &[of(&vec![0_f32; n as usize])]);
    }
    let program = Compiled::new(Arc::new(verify(kernel).expect("it is valid")), Isa::best()).expect("it compiles");
    let program = program.program().to_string();
    assert_eq!(program.matches("copy").count(), 1, "only the store copies: {program}");
    for both in ["sub+add", "add+le", "and+lt", "square"] {
        assert!(program.contains(both), "{both}: {program}");
    }
}

/// Loops with uniform and varying starts, ends and steps, with signed and unsigned counters of various widths.
#[test]
fn counting_loops_with_uniform_and_varying_bounds() {
    for (dtype, start_varies, end_varies, step_varies) in [DType::I32, DType::U8, DType::I64, DType::U64, DType::I16]
        .into_iter()
        .flat_map(|dtype| (0..8).map(move |bits| (dtype, bits & 1 == 1, bits & 2 == 2, bits & 4 == 4)))
    {
        let mut b = Builder::new("count");
        let y = b.buffer("y", DType::I64, Access::Out);
        let i = global_id(&mut b);
        let seven = b.index(7);
        let small = b.alu(Alu::Rem, &[i, seven]);
        let varying = b.cast(dtype, small);
        let constant = |b: &mut Builder, value: i128| b.constant(Scalar::from_i128(dtype, value));
        let (one, two, nine) = (constant(&mut b, 1), constant(&mut b, 2), constant(&mut b, 9));
        let start = if start_varies { varying } else { two };
        let end = if end_varies { b.alu(Alu::Add, &[varying, two]) } else { nine };
        let step = if step_varies { b.alu(Alu::Add, &[varying, one]) } else { two };
        let zero = b.constant(0_i64);
        let sum = b.declare("sum", zero, true);
        let counter = b.begin_for("k", start, end, step);
        let wide = b.cast(DType::I64, counter);
        let so_far = b.get(sum);
        let ten = b.constant(10_i64);
        let shifted = b.alu(Alu::Mul, &[so_far, ten]);
        let next = b.alu(Alu::Add, &[shifted, wide]);
        b.assign(sum, next);
        b.end();
        let total = b.get(sum);
        b.store(y, i, total, Guard::Checked);
        let kernel = b.finish().expect("the kernel is valid");
        check(kernel, [600, 1, 1], &[of(&vec![0_i64; 600])]);
    }
}

/// Counters near the limits of their type do not wrap.
#[test]
fn counters_do_not_overflow() {
    for dtype in [DType::I8, DType::U8, DType::I32, DType::U64, DType::I64] {
        for varies in [false, true] {
            let mut b = Builder::new("edge");
            let y = b.buffer("y", DType::U32, Access::Out);
            let i = global_id(&mut b);
            let largest = if dtype.is_signed() { (1_i128 << (dtype.bits() - 1)) - 1 } else { (1 << dtype.bits()) - 1 };
            let constant = |b: &mut Builder, value: i128| b.constant(Scalar::from_i128(dtype, value));
            let (start, end, step) = (constant(&mut b, largest - 9), constant(&mut b, largest), constant(&mut b, 4));
            let start = if varies {
                let two = b.index(2);
                let bit = b.alu(Alu::Rem, &[i, two]);
                let bit = b.cast(dtype, bit);
                b.alu(Alu::Sub, &[start, bit])
            } else {
                start
            };
            let zero = b.constant(0_u32);
            let iterations = b.declare("iterations", zero, true);
            b.begin_for("k", start, end, step);
            let so_far = b.get(iterations);
            let one = b.constant(1_u32);
            let more = b.alu(Alu::Add, &[so_far, one]);
            b.assign(iterations, more);
            b.end();
            let result = b.get(iterations);
            b.store(y, i, result, Guard::Checked);
            check(b.finish().expect("the kernel is valid"), [40, 1, 1], &[of(&[0_u32; 40])]);
        }
    }
}

/// A grid-stride loop: the index is affine and advances.
#[test]
fn affine_locals_advance() {
    let mut b = Builder::new("stride");
    let x = b.buffer("x", DType::F32, Access::In);
    let y = b.buffer("y", DType::F32, Access::Out);
    let i = global_id(&mut b);
    let size = b.builtin(Builtin::GlobalSize(0));
    let at = b.declare("at", i, true);
    let zero = b.constant(0_f32);
    let sum = b.declare("sum", zero, true);
    let len = b.len(x);
    let now = b.get(at);
    let inside = b.alu(Alu::Lt, &[now, len]);
    b.begin_while(inside);
    let (value, so_far) = (b.load(x, now, Guard::Proven), b.get(sum));
    let more = b.alu(Alu::Add, &[so_far, value]);
    b.assign(sum, more);
    let next = b.alu(Alu::Add, &[now, size]);
    b.assign(at, next);
    b.end();
    let total = b.get(sum);
    b.store(y, i, total, Guard::Checked);
    let kernel = b.finish().expect("the kernel is valid");
    for (n, len) in [(1, 10), (100, 1234), (512, 512), (700, 10_000), (700, 3), (513, 0)] {
        check(kernel.clone(), [n, 1, 1], &[of(&floats(len)), of(&vec![0_f32; n as usize])]);
    }
}

/// Returns at different times, also from inside loops and branches.
#[test]
fn lanes_return_early() {
    let mut b = Builder::new("early");
    let y = b.buffer("y", DType::U32, Access::InOut);
    let i = global_id(&mut b);
    let three = b.index(3);
    let third = b.alu(Alu::Rem, &[i, three]);
    let zero = b.index(0);
    let first = b.alu(Alu::Eq, &[third, zero]);
    b.begin_if(first);
    b.return_();
    b.end();
    let value = b.constant(1_u32);
    b.store(y, i, value, Guard::Checked);
    let (start, end, step) = (b.index(0), b.index(10), b.index(1));
    let k = b.begin_for("k", start, end, step);
    let limit = b.alu(Alu::Rem, &[i, end]);
    let reached = b.alu(Alu::Le, &[limit, k]);
    b.begin_if(reached);
    let one = b.index(1);
    let second = b.alu(Alu::Eq, &[third, one]);
    b.begin_if(second);
    b.return_();
    b.begin_else();
    let cell = b.load(y, i, Guard::Checked);
    let ten = b.constant(10_u32);
    let more = b.alu(Alu::Add, &[cell, ten]);
    b.store(y, i, more, Guard::Checked);
    b.end();
    b.end();
    let cell = b.load(y, i, Guard::Checked);
    let more = b.alu(Alu::Add, &[cell, value]);
    b.store(y, i, more, Guard::Checked);
    b.end();
    let cell = b.load(y, i, Guard::Checked);
    let hundred = b.constant(100_u32);
    let more = b.alu(Alu::Add, &[cell, hundred]);
    b.store(y, i, more, Guard::Checked);
    let kernel = b.finish().expect("the kernel is valid");
    for n in SIZES {
        check(kernel.clone(), [n, 1, 1], &[of(&vec![0_u32; n as usize])]);
    }
}

/// Both branches assign without changing the other's lanes; one of them swaps.
#[test]
fn branches_merge() {
    let mut b = Builder::new("merge");
    let x = b.buffer("x", DType::F32, Access::In);
    let y = b.buffer("y", DType::F32, Access::Out);
    let i = global_id(&mut b);
    let v = b.load(x, i, Guard::Checked);
    let (p, q) = (b.declare("p", v, true), b.declare("q", v, true));
    let zero = b.constant(0_f32);
    let negative = b.alu(Alu::Lt, &[v, zero]);
    b.begin_if(negative);
    let (pv, qv) = (b.get(p), b.get(q));
    let sum = b.alu(Alu::Add, &[pv, qv]);
    b.assign(p, sum);
    b.begin_else();
    let product = b.alu(Alu::Mul, &[pv, pv]);
    b.assign(q, product);
    let t = b.bind("t", pv);
    b.assign(p, qv);
    b.assign(q, t);
    b.end();
    let two = b.constant(2_f32);
    let double = b.alu(Alu::Mul, &[qv, two]);
    let value = b.alu(Alu::Sub, &[pv, double]);
    b.store(y, i, value, Guard::Checked);
    let kernel = b.finish().expect("the kernel is valid");
    for n in SIZES {
        check(kernel.clone(), [n, 1, 1], &[of(&floats(n)), of(&vec![0_f32; n as usize])]);
    }
}

/// Gathers and scatters with indices from memory, some of them out of bounds.
#[test]
fn indices_from_memory() {
    for dtype in [DType::U8, DType::F16, DType::BF16, DType::I32, DType::F64, DType::Bool] {
        let mut b = Builder::new("permute");
        let x = b.buffer("x", dtype, Access::In);
        let at = b.buffer("at", DType::U32, Access::In);
        let y = b.buffer("y", dtype, Access::Out);
        let z = b.buffer("z", dtype, Access::Out);
        let i = global_id(&mut b);
        let index = b.load(at, i, Guard::Checked);
        let index = b.cast(Type::Index, index);
        let value = b.load(x, index, Guard::Checked);
        b.store(y, i, value, Guard::Checked);
        let straight = b.load(x, i, Guard::Checked);
        b.store(z, index, straight, Guard::Checked);
        let kernel = b.finish().expect("the kernel is valid");
        for n in [5_u64, 100, 515, 1030] {
            let at: Vec<u32> = (0..n).map(|i| ((i * 37 + 11) % (n + 3)) as u32).collect();
            let at: Vec<u32> = at
                .iter()
                .enumerate()
                .filter(|(i, v)| at.iter().position(|w| w == *v) == Some(*i))
                .map(|(_, v)| *v)
                .collect();
            let bytes: Vec<u8> = (0..n as usize * dtype.bytes()).map(|i| (i * 31 % 60) as u8).collect();
            let empty = CaseArg::Buffer(vec![0; bytes.len()]);
            check(kernel.clone(), [at.len() as u64, 1, 1], &[CaseArg::Buffer(bytes), of(&at), empty.clone(), empty]);
        }
    }
}

/// A tree reduction in shared memory, with barriers and a shrinking active half of the group.
#[test]
fn groups_reduce_in_shared_memory() {
    for group in [1_u32, 2, 64, 256, 1024] {
        let mut b = Builder::new("tree");
        b.group_size([group, 1, 1]);
        let x = b.buffer("x", DType::F32, Access::In);
        let y = b.buffer("y", DType::F32, Access::Out);
        let shared = b.shared("s", DType::F32, group);
        let (i, l, g) = (global_id(&mut b), b.builtin(Builtin::LocalId(0)), b.builtin(Builtin::GroupId(0)));
        let value = b.load(x, i, Guard::Checked);
        b.store(shared, l, value, Guard::Checked);
        b.barrier();
        let half = b.index(u64::from(group) / 2);
        let width = b.declare("width", half, true);
        let zero = b.index(0);
        let w = b.get(width);
        let more = b.alu(Alu::Lt, &[zero, w]);
        b.begin_while(more);
        let lower = b.alu(Alu::Lt, &[l, w]);
        b.begin_if(lower);
        let other = b.alu(Alu::Add, &[l, w]);
        let (mine, theirs) = (b.load(shared, l, Guard::Proven), b.load(shared, other, Guard::Proven));
        let sum = b.alu(Alu::Add, &[mine, theirs]);
        b.store(shared, l, sum, Guard::Proven);
        b.end();
        b.barrier();
        let one = b.index(1);
        let halved = b.alu(Alu::Shr, &[w, one]);
        b.assign(width, halved);
        b.end();
        let is_first = b.alu(Alu::Eq, &[l, zero]);
        b.begin_if(is_first);
        let total = b.load(shared, zero, Guard::Checked);
        b.store(y, g, total, Guard::Checked);
        b.end();
        let kernel = b.finish().expect("the kernel is valid");
        for n in [1_u64, 100, 3000] {
            let groups = n.div_ceil(u64::from(group)) as usize;
            check(kernel.clone(), [n, 1, 1], &[of(&floats(n)), of(&vec![0_f32; groups])]);
        }
    }
}

/// A tiled matrix product: two local axes, shared tiles, and a loop over tiles.
#[test]
fn groups_of_two_axes_multiply_tiles() {
    const T: u32 = 8;
    let mut b = Builder::new("matmul");
    b.group_size([T, T, 1]);
    let n = b.scalar("n", Type::Index);
    let (x, y) = (b.buffer("x", DType::F32, Access::In), b.buffer("y", DType::F32, Access::In));
    let z = b.buffer("z", DType::F32, Access::Out);
    let (xs, ys) = (b.shared("xs", DType::F32, T * T), b.shared("ys", DType::F32, T * T));
    let (lx, ly) = (b.builtin(Builtin::LocalId(0)), b.builtin(Builtin::LocalId(1)));
    let (gx, gy) = (b.builtin(Builtin::GlobalId(0)), b.builtin(Builtin::GlobalId(1)));
    let (zero, one, tile) = (b.index(0), b.index(1), b.index(u64::from(T)));
    let start = b.constant(0_f32);
    let sum = b.declare("sum", start, true);
    let own = b.alu(Alu::Mul, &[ly, tile]);
    let own = b.alu(Alu::Add, &[own, lx]);
    let base = b.begin_for("base", zero, n, tile);
    let column = b.alu(Alu::Add, &[base, lx]);
    let row = b.alu(Alu::Add, &[base, ly]);
    let inside = |b: &mut Builder, r: ExprId, c: ExprId| {
        let (a, d) = (b.alu(Alu::Lt, &[r, n]), b.alu(Alu::Lt, &[c, n]));
        b.alu(Alu::And, &[a, d])
    };
    for (from, to, r, c) in [(x, xs, gy, column), (y, ys, row, gx)] {
        let at = b.alu(Alu::Mul, &[r, n]);
        let at = b.alu(Alu::Add, &[at, c]);
        let value = b.load(from, at, Guard::Checked);
        let nothing = b.constant(0_f32);
        let is_inside = inside(&mut b, r, c);
        let value = b.alu(Alu::Select, &[is_inside, value, nothing]);
        b.store(to, own, value, Guard::Proven);
    }
    b.barrier();
    let k = b.begin_for("k", zero, tile, one);
    let left = b.alu(Alu::Mul, &[ly, tile]);
    let left = b.alu(Alu::Add, &[left, k]);
    let right = b.alu(Alu::Mul, &[k, tile]);
    let right = b.alu(Alu::Add, &[right, lx]);
    let (l, r) = (b.load(xs, left, Guard::Proven), b.load(ys, right, Guard::Proven));
    let so_far = b.get(sum);
    let next = b.alu(Alu::Fma, &[l, r, so_far]);
    b.assign(sum, next);
    b.end();
    b.barrier();
    b.end();
    let is_inside = inside(&mut b, gy, gx);
    b.begin_if(is_inside);
    let at = b.alu(Alu::Mul, &[gy, n]);
    let at = b.alu(Alu::Add, &[at, gx]);
    let total = b.get(sum);
    b.store(z, at, total, Guard::Checked);
    b.end();
    let kernel = b.finish().expect("the kernel is valid");
    for n in [1_u64, 8, 13, 32] {
        let len = n * n;
        let given = [CaseArg::Index(n), of(&floats(len)), of(&floats(len)), of(&vec![0_f32; len as usize])];
        check(kernel.clone(), [n, n, 1], &given);
    }
}

#[test]
fn every_collective_equals_the_interpreter() {
    let ops = ReduceOp::ALL
        .into_iter()
        .flat_map(|op| [CollectiveOp::Reduce(op), CollectiveOp::InclusiveScan(op), CollectiveOp::ExclusiveScan(op)]);
    let ops: Vec<CollectiveOp> = ops.chain([CollectiveOp::Broadcast(0), CollectiveOp::Broadcast(5)]).collect();
    for scope in [Scope::Group, Scope::Subgroup] {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16, DType::I8, DType::I32, DType::U64, DType::U16] {
            for op in &ops {
                if scope == Scope::Subgroup && *op == CollectiveOp::Broadcast(5) {
                    continue;
                }
                let mut b = Builder::new("collective");
                b.group_size([6, 4, 1]);
                let x = b.buffer("x", dtype, Access::In);
                let y = b.buffer("y", dtype, Access::Out);
                let (gx, gy) = (b.builtin(Builtin::GlobalId(0)), b.builtin(Builtin::GlobalId(1)));
                let width = b.index(12);
                let at = b.alu(Alu::Mul, &[gy, width]);
                let at = b.alu(Alu::Add, &[at, gx]);
                let value = b.load(x, at, Guard::Checked);
                let result = b.collective(*op, scope, value);
                b.store(y, at, result, Guard::Checked);
                let kernel = b.finish().expect("the kernel is valid");
                let values: Vec<Scalar> = (0..96)
                    .map(|i| Scalar::from_f64(dtype, f64::from(i % 5) - if dtype.is_signed() { 2.0 } else { 0.0 }))
                    .collect();
                let empty = vec![Scalar::from_i128(dtype, 0); 96];
                check(kernel, [12, 8, 1], &[of(&values), of(&empty)]);
            }
        }
    }
}
