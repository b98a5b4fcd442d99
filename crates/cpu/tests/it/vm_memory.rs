//! The vector machine against the interpreter: atomics, private arrays and vectors.

use std::sync::Arc;

use differential::{CaseArg, check, of};
use panoply_cpu::vm::launch::Compiled;
use panoply_host::isa::Isa;
use panoply_ir::builder::Builder;
use panoply_ir::kernel::*;
use panoply_ir::verify::verify;
use panoply_ir::{Alu, DType, Scalar, Type};

use crate::support::differential;

fn floats(n: u64) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 0.37).sin() * 4.0).collect()
}

fn global_id(b: &mut Builder) -> ExprId {
    b.builtin(Builtin::GlobalId(0))
}

#[test]
fn atomics_count_exactly() {
    for (dtype, op) in [
        (DType::U32, AtomicOp::Add),
        (DType::I32, AtomicOp::Min),
        (DType::I32, AtomicOp::Max),
        (DType::U32, AtomicOp::Max),
        (DType::F32, AtomicOp::Add),
    ] {
        let mut b = Builder::new("histogram");
        let y = b.buffer("y", dtype, Access::InOut);
        let i = global_id(&mut b);
        let bins = b.index(13);
        let bin = b.alu(Alu::Rem, &[i, bins]);
        let four = b.index(4);
        let value = b.alu(Alu::Rem, &[i, four]);
        let value = b.cast(dtype, value);
        let three = b.index(3);
        let skip = b.alu(Alu::Rem, &[i, three]);
        let zero = b.index(0);
        let taken = b.alu(Alu::Ne, &[skip, zero]);
        b.begin_if(taken);
        b.atomic(op, y, bin, value, None, Guard::Checked);
        b.end();
        let kernel = b.finish().expect("the kernel is valid");
        let empty = vec![Scalar::from_i128(dtype, 1); 11];
        let many = if cfg!(miri) { 200 } else { 20_000 };
        check(kernel, [many, 1, 1], &[of(&empty)]);
    }
}

/// Each work-item has its own element, so the returned value is deterministic.
#[test]
fn atomics_return_the_previous_value() {
    for op in [AtomicOp::Add, AtomicOp::Exchange, AtomicOp::CompareExchange, AtomicOp::Min] {
        let mut b = Builder::new("own");
        let y = b.buffer("y", DType::I32, Access::InOut);
        let z = b.buffer("z", DType::I32, Access::Out);
        let i = global_id(&mut b);
        let value = b.cast(DType::I32, i);
        let ten = b.constant(10_i32);
        let expected = (op == AtomicOp::CompareExchange).then_some(ten);
        let old = b.atomic(op, y, i, value, expected, Guard::Checked);
        b.store(z, i, old, Guard::Checked);
        let kernel = b.finish().expect("the kernel is valid");
        let values: Vec<i32> = (0..700).map(|i| i % 20).collect();
        check(kernel, [710, 1, 1], &[of(&values), of(&[-1_i32; 710])]);
    }
}

/// Private arrays indexed by constants, by counters and by data.
#[test]
fn private_arrays() {
    let mut b = Builder::new("private");
    let x = b.buffer("x", DType::U32, Access::In);
    let y = b.buffer("y", DType::U32, Access::Out);
    let p = b.private("p", DType::U32, 8);
    let i = global_id(&mut b);
    let (zero, eight, one) = (b.index(0), b.index(8), b.index(1));
    let k = b.begin_for("k", zero, eight, one);
    let kv = b.cast(DType::U32, k);
    let xv = b.load(x, i, Guard::Checked);
    let sum = b.alu(Alu::Add, &[kv, xv]);
    b.store(p, k, sum, Guard::Checked);
    b.end();
    let which = b.cast(Type::Index, xv);
    let nine = b.index(9);
    let which = b.alu(Alu::Rem, &[which, nine]);
    let hundred = b.constant(100_u32);
    let even = b.alu(Alu::And, &[xv, hundred]);
    let nothing = b.constant(0_u32);
    let even = b.alu(Alu::Eq, &[even, nothing]);
    b.begin_if(even);
    b.store(p, which, hundred, Guard::Checked);
    let seven = b.index(7);
    b.store(p, seven, xv, Guard::Checked);
    b.end();
    let total = b.declare("total", nothing, true);
    let k = b.begin_for("k", zero, nine, one);
    let ten = b.constant(10_u32);
    let so_far = b.get(total);
    let shifted = b.alu(Alu::Mul, &[so_far, ten]);
    let part = b.load(p, k, Guard::Checked);
    let more = b.alu(Alu::Add, &[shifted, part]);
    b.assign(total, more);
    b.end();
    let chosen = b.load(p, which, Guard::Checked);
    let so_far = b.get(total);
    let result = b.alu(Alu::Xor, &[so_far, chosen]);
    b.store(y, i, result, Guard::Checked);
    let kernel = b.finish().expect("the kernel is valid");
    for n in [1_u64, 30, 600] {
        let values: Vec<u32> = (0..n as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 20).collect();
        check(kernel.clone(), [n, 1, 1], &[of(&values), of(&vec![0_u32; n as usize])]);
    }
}

/// Vectors are scalarized: loads, arithmetic, lanes and stores, also at the ends of buffers.
#[test]
fn vectors_are_scalarized() {
    for lanes in [2_u8, 4, 8] {
        let mut b = Builder::new("vectors");
        let x = b.buffer("x", DType::F32, Access::In);
        let y = b.buffer("y", DType::F32, Access::InOut);
        let i = global_id(&mut b);
        let width = b.index(u64::from(lanes));
        let at = b.alu(Alu::Mul, &[i, width]);
        let one = b.index(1);
        let shifted = b.alu(Alu::Sub, &[at, one]);
        let a = b.load_vector(x, at, lanes, Guard::Checked);
        let c = b.load_vector(x, shifted, lanes, Guard::Checked);
        let v = b.declare("v", a, true);
        let now = b.get(v);
        let last = b.extract(now, lanes - 1);
        let spread = b.splat(last, lanes);
        let sum = b.alu(Alu::Add, &[spread, c]);
        b.assign(v, sum);
        let old = b.load_vector(y, at, lanes, Guard::Checked);
        let product = b.alu(Alu::Mul, &[old, now]);
        b.store(y, at, product, Guard::Checked);
        let kernel = b.finish().expect("the kernel is valid");
        for n in [1_u64, 20, 300] {
            let len = n * u64::from(lanes) - 1;
            check(kernel.clone(), [n, 1, 1], &[of(&floats(len)), of(&floats(len))]);
        }
    }
}

/// Conditions that combine ranges, in every combination, negated and not.
#[test]
fn ranges_of_lanes() {
    for (alu, swapped) in [Alu::Lt, Alu::Le, Alu::Eq, Alu::Ne].into_iter().flat_map(|alu| [(alu, false), (alu, true)]) {
        for how in 0..4 {
            let mut b = Builder::new("ranges");
            let bound = b.scalar("bound", Type::Index);
            let y = b.buffer("y", DType::U32, Access::Out);
            let i = global_id(&mut b);
            let (two, three) = (b.index(2), b.index(3));
            let scaled = b.alu(Alu::Mul, &[i, two]);
            let moved = b.alu(Alu::Sub, &[scaled, three]);
            let downward = b.alu(Alu::Sub, &[bound, i]);
            let compare = |b: &mut Builder, value: ExprId, with: ExprId| {
                let operands = if swapped { [with, value] } else { [value, with] };
                b.alu(alu, &operands)
            };
            let (p, q) = (compare(&mut b, moved, bound), compare(&mut b, downward, three));
            let condition = match how {
                0 => p,
                1 => b.alu(Alu::And, &[p, q]),
                2 => b.alu(Alu::Or, &[p, q]),
                _ => {
                    let not = b.alu(Alu::Not, &[p]);
                    b.alu(Alu::Or, &[not, q])
                }
            };
            b.begin_if(condition);
            let one = b.constant(1_u32);
            b.store(y, i, one, Guard::Checked);
            b.begin_else();
            let five = b.constant(5_u32);
            b.store(y, i, five, Guard::Checked);
            b.end();
            let kernel = b.finish().expect("the kernel is valid");
            for bound in [0, 1, 2, 40, 600, 1197, 1198, 5000, u64::MAX - 1, u64::MAX] {
                check(kernel.clone(), [600, 1, 1], &[CaseArg::Index(bound), of(&[0_u32; 600])]);
            }
        }
    }
}

/// Optimizing a kernel for this target expands matrix products beforehand.
#[test]
fn matrix_products_are_rejected() {
    let mut b = Builder::new("multiply");
    b.group_size([32, 1, 1]);
    let y = b.buffer("y", DType::F32, Access::Out);
    let (word, zero, first) = (b.constant(7u32), b.constant(0f32), b.index(0));
    let zeros = b.splat(zero, Mma::ELEMENTS);
    let mma = Mma { dtype: DType::F16, a: [word; 4], b: [word; 2] };
    let product = b.collective(CollectiveOp::Mma(mma), Scope::Group, zeros);
    b.store(y, first, product, Guard::Checked);
    let kernel = verify(b.finish().expect("the kernel is valid")).expect("it verifies");
    let error = Compiled::new(Arc::new(kernel), Isa::best()).map(|_| ()).expect_err("there is no such instruction");
    assert!(
        error.to_string().contains("kernel multiply: the vector machine does not support matrix products"),
        "{error}"
    );
}
