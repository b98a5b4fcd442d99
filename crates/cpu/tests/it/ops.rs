//! Every operation on every type it is defined for, and every conversion, against the interpreter: with vector
//! operands, uniform operands, and the destination as an operand.

use crate::support::differential;

use differential::{CaseArg, Tolerance, check_within};
use panoply_ir::builder::Builder;
use panoply_ir::kernel::*;
use panoply_ir::random::Random;
use panoply_ir::{Alu, DType, Scalar, Type};

const N: usize = 600;

fn tolerance(alu: Alu, dtype: DType) -> Tolerance {
    match (alu.is_transcendental(), dtype) {
        (false, _) => Tolerance::Exact,
        (true, DType::F64) => Tolerance::Ulps(5),
        (true, DType::F32) => Tolerance::Ulps(2),
        // The f32 result may fall on the other side of a tie.
        (true, _) => Tolerance::Ulps(1),
    }
}

/// Returns values at the edges of a type, and some in between.
fn values(dtype: DType, seed: u64) -> Vec<Scalar> {
    let mut random = Random::new(seed);
    let bits = dtype.bits();
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    let mut edges: Vec<Scalar> = if dtype.is_float() {
        let of = |value: f64| Scalar::from_f64(dtype, value);
        let mut edges: Vec<Scalar> = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1.5,
            2.5,
            -2.5,
            3.0,
            1e-3,
            -7.25,
            100.0,
            1e30,
            -1e30,
            1e-40,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            65504.0,
            65520.0,
            2147483648.0,
            -2147483648.0,
            4294967296.0,
            9.3e18,
            -9.3e18,
            255.0,
            256.0,
            -0.75,
        ]
        .map(of)
        .to_vec();
        edges.push(Scalar { dtype, bits: 1 });
        edges
    } else {
        let limit = 1_i128 << (bits - u32::from(dtype.is_signed())).min(127);
        let least = if dtype.is_signed() { -limit } else { 0 };
        [0, 1, 2, 3, 7, least, least + 1, limit - 1, limit - 2, -1, -2, 31, 32, 33]
            .map(|value| Scalar::from_i128(dtype, value))
            .to_vec()
    };
    for i in 0.. {
        if edges.len() >= N {
            break;
        }
        let raw = random.bits();
        edges.push(match (dtype.is_float(), i % 3) {
            (true, 0) => Scalar::from_f64(dtype, (raw % 2001) as f64 / 100.0 - 10.0),
            (true, 1) => Scalar::from_f64(dtype, ((raw % 2_000_001) as f64 / 1e6 - 1.0) * 90.0),
            (false, 0) => Scalar::from_i128(dtype, i128::from(raw % 20)),
            _ => Scalar { dtype, bits: raw & mask },
        });
    }
    // Edge values must be combined with edge values, so each operand's values are rotated differently.
    let by = (seed as usize * 7) % N;
    edges.rotate_left(by);
    edges
}

/// Checks an operation; if bit i of `uniform` is set, operand i is one value for all lanes.
fn run(alu: Alu, dtype: DType, uniform: u32, in_place: bool) {
    let mut b = Builder::new(format!("{}_{dtype}_{uniform}", alu.name()));
    let types: Vec<DType> = (0..alu.arity())
        .map(|position| if alu == Alu::Select && position == 0 { DType::Bool } else { dtype })
        .collect();
    let out = if alu.is_comparison() { DType::Bool } else { dtype };
    let i = b.builtin(Builtin::GlobalId(0));
    let mut given = Vec::new();
    let mut operands = Vec::new();
    for (position, ty) in types.iter().enumerate() {
        let data = values(*ty, position as u64 + 1);
        if uniform >> position & 1 == 1 {
            // Testing every edge value as a uniform operand would need many kernels, so one value of the sequence is used.
            operands.push(b.scalar("s", *ty));
            given.push(CaseArg::Scalar(data[N / 2 + position]));
        } else {
            let mem = b.buffer("x", *ty, Access::In);
            operands.push(b.load(mem, i, Guard::Checked));
            given.push(differential::of(&data));
        }
    }
    let y = b.buffer("y", out, Access::Out);
    given.push(differential::of(&vec![Scalar::from_i128(out, 0); N]));
    if in_place {
        // `acc` starts as the operand that can be updated, is updated twice, and then once more for some lanes only.
        let position = if alu.arity() == 3 { 2 } else { 0 };
        let acc = b.declare("acc", operands[position], true);
        operands[position] = b.get(acc);
        for _ in 0..2 {
            let next = b.alu(alu, &operands);
            b.assign(acc, next);
        }
        let three = b.index(3);
        let third = b.alu(Alu::Rem, &[i, three]);
        let zero = b.index(0);
        let some = b.alu(Alu::Ne, &[third, zero]);
        b.begin_if(some);
        let next = b.alu(alu, &operands);
        b.assign(acc, next);
        b.end();
        let result = b.get(acc);
        b.store(y, i, result, Guard::Checked);
    } else {
        let result = b.alu(alu, &operands);
        b.store(y, i, result, Guard::Checked);
    }
    check_within(b.finish().expect("the kernel is valid"), [N as u64, 1, 1], &given, tolerance(alu, dtype));
}

#[test]
fn every_operation_equals_the_interpreter() {
    for alu in Alu::ALL {
        for dtype in DType::ALL {
            let types: Vec<Type> = (0..alu.arity())
                .map(|position| if alu == Alu::Select && position == 0 { Type::BOOL } else { dtype.into() })
                .collect();
            if alu.result_type(&types).is_err() {
                continue;
            }
            for uniform in 0..1 << alu.arity() {
                run(alu, dtype, uniform, false);
            }
            if !alu.is_transcendental() && alu.result_type(&types) == Ok(dtype.into()) {
                run(alu, dtype, 0, true);
                run(alu, dtype, if alu.arity() > 1 { 2 } else { 0 }, true);
            }
        }
    }
}

#[test]
fn every_conversion_equals_the_interpreter() {
    for from in DType::ALL {
        for to in DType::ALL {
            for (bitcast, uniform) in [(false, false), (false, true), (true, false), (true, true)] {
                if bitcast && from.bits() != to.bits() {
                    continue;
                }
                let mut b = Builder::new(format!("{from}_{to}_{bitcast}"));
                let i = b.builtin(Builtin::GlobalId(0));
                let data = values(from, 1);
                let (value, given) = if uniform {
                    (b.scalar("x", from), CaseArg::Scalar(data[3]))
                } else {
                    let x = b.buffer("x", from, Access::In);
                    (b.load(x, i, Guard::Checked), differential::of(&data))
                };
                let y = b.buffer("y", to, Access::Out);
                let result = if bitcast { b.bitcast(to, value) } else { b.cast(to, value) };
                b.store(y, i, result, Guard::Checked);
                let kernel = b.finish().expect("the kernel is valid");
                let empty = differential::of(&vec![Scalar::from_i128(to, 0); N]);
                check_within(kernel, [N as u64, 1, 1], &[given, empty], Tolerance::Exact);
            }
        }
    }
}
