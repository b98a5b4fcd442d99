//! Compares the expansions, run on the interpreter, with the interpreter's own functions.

use panoply_ir::alu::Math as Function;
use panoply_ir::interpret::{Arg, run};
use panoply_ir::kernel::{Access, Builtin, Guard, Kernel};
use panoply_ir::verify::verify;
use panoply_ir::{Alu, DType, builder::Builder};

use super::expand;

/// Permitted distance in ULP between two results that satisfy the contract, one of which is correctly rounded.
const LIMIT_F32: u64 = 2;
const LIMIT_F64: u64 = 5;

/// Builds a kernel that computes `out[i] = op(x[i], y[i])`.
fn kernel(op: Alu, dtype: DType, lanes: u8) -> Kernel {
    let mut b = Builder::new("k");
    let x = b.buffer("x", dtype, Access::In);
    let y = b.buffer("y", dtype, Access::In);
    let out = b.buffer("out", dtype, Access::Out);
    let i = b.builtin(Builtin::GlobalId(0));
    let step = b.index(lanes as u64);
    let i = b.alu(Alu::Mul, &[i, step]);
    let operands = [x, y].map(|mem| b.load_vector(mem, i, lanes, Guard::Checked));
    let value = b.alu(op, &operands[..op.arity()]);
    b.store(out, i, value, Guard::Checked);
    b.finish().expect("builds")
}

fn results(kernel: Kernel, items: usize, x: &[u8], y: &[u8]) -> Vec<u8> {
    let kernel = verify(kernel).expect("verifies");
    let mut out = vec![0; x.len()];
    let args = &mut [Arg::Read(x), Arg::Read(y), Arg::Write(&mut out)];
    run(&kernel, [items as u64, 1, 1], [1, 1, 1], args, &mut ()).expect("runs");
    out
}

/// Maps the bits of a float to an integer with the same order, so that differences are units in the last place.
fn ordered(bits: u64, width: u32) -> i64 {
    let magnitude = (bits & ((1 << (width - 1)) - 1)) as i64;
    if bits >> (width - 1) == 1 { -magnitude } else { magnitude }
}

fn distance(dtype: DType, a: u64, b: u64) -> u64 {
    let nan = |bits: u64| match dtype {
        DType::F32 => f32::from_bits(bits as u32).is_nan(),
        DType::F64 => f64::from_bits(bits).is_nan(),
        _ => bits & 0x7FFF > 0x7C00,
    };
    if nan(a) || nan(b) {
        return if nan(a) == nan(b) { 0 } else { u64::MAX };
    }
    ordered(a, dtype.bits()).abs_diff(ordered(b, dtype.bits()))
}

fn element(bytes: &[u8], at: usize, dtype: DType) -> u64 {
    let width = dtype.bytes();
    let mut word = [0; 8];
    word[..width].copy_from_slice(&bytes[at * width..][..width]);
    u64::from_le_bytes(word)
}

/// Returns special values, values near overflow, underflow and interval boundaries, and numbers of every magnitude.
fn numbers() -> Vec<f64> {
    let mut values =
        vec![0.0, 1.0, 0.5, 2.0, 3.0, 0.6, 0.92, 4.0, 5.95, 10.0, 18.0, 38.0, 87.3, 88.7, 89.0, 103.9, 104.0];
    values.extend([
        126.0, 127.0, 128.0, 149.5, 709.7, 710.0, 745.1, 1023.0, 1074.0, 32_768.0, 262_144.0, 1e9, 1e18, 1e22,
    ]);
    values.extend([
        f64::INFINITY,
        f64::NAN,
        1e-40,
        1e-310,
        5e-324,
        f64::MAX,
        f64::MIN_POSITIVE,
        3.0e38,
        1.2e-38,
        1e-45,
    ]);
    values.extend((1..12).map(|n| n as f64 * std::f64::consts::FRAC_PI_4));
    // The f32 closest to a multiple of pi / 2.
    values.push(16_367_173.0 * 2f64.powi(72));
    values.extend((-150..128).map(|n| 1.37 * 2f64.powi(n)));
    values.extend((-1000..1000).step_by(83).map(|n| 1.77 * 2f64.powi(n)));
    let mut state = 0x2545_F491_4F6C_DD1Du64;
    // Various significands at every magnitude, which are hard for angle reduction.
    values.extend(
        (-2..128).flat_map(|n| [1.999_999_9, 1.570_9, 1.273_239_6, 1.0].map(|m| f64::from(m as f32) * 2f64.powi(n))),
    );
    values.extend((0..400).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64 * 40.0
    }));
    let near = |x: f64| [x, (x as f32).next_up() as f64, (x as f32).next_down() as f64, x.next_up(), x.next_down()];
    values.iter().flat_map(|x| near(*x)).flat_map(|x| [x, -x]).collect()
}

fn encode(values: &[f64], dtype: DType) -> Vec<u8> {
    let bits = |value: &f64| panoply_ir::Scalar::from_f64(dtype, *value).bits;
    values.iter().flat_map(|value| bits(value).to_le_bytes()[..dtype.bytes()].to_vec()).collect()
}

fn check(op: Alu, dtype: DType, limit: u64, xs: &[f64], ys: &[f64]) {
    let (x, y) = (encode(xs, dtype), encode(ys, dtype));
    let expected = results(kernel(op, dtype, 1), xs.len(), &x, &y);
    let expanded = expand(kernel(op, dtype, 1));
    assert!(!expanded.to_string().contains(&format!("{}(", op.name())), "{} remains in {expanded}", op.name());
    // Few shader devices support f64, and on consumer GPUs it is slow.
    assert!(dtype == DType::F64 || !expanded.to_string().contains("f64"), "{} of {dtype} uses f64", op.name());
    let found = results(expanded, xs.len(), &x, &y);
    let mut worst = (0, 0);
    for at in 0..xs.len() {
        let ulps = distance(dtype, element(&found, at, dtype), element(&expected, at, dtype));
        if ulps > worst.0 {
            worst = (ulps, at);
        }
    }
    let at = worst.1;
    let (is, should) = (element(&found, at, dtype), element(&expected, at, dtype));
    let (a, b) = (element(&x, at, dtype), element(&y, at, dtype));
    assert!(worst.0 <= limit, "{} of {dtype}: {a:#x}, {b:#x}: {is:#x}, not {should:#x}: {} ulp", op.name(), worst.0);
    println!("{} of {dtype}: at most {} ulp from the interpreter", op.name(), worst.0);
}

#[test]
fn functions_stay_within_the_contract() {
    let xs = numbers();
    for op in Alu::ALL.into_iter().filter(|op| op.is_transcendental() && op.arity() == 1) {
        check(op, DType::F32, LIMIT_F32, &xs, &xs);
        check(op, DType::F64, LIMIT_F64, &xs, &xs);
        check(op, DType::F16, 1, &xs, &xs);
    }
}

#[test]
fn powers_stay_within_the_contract() {
    let some = [
        0.0,
        1.0,
        0.5,
        2.0,
        3.0,
        7.0,
        1e9,
        0.1,
        33.3,
        f64::INFINITY,
        f64::NAN,
        1e-40,
        1e-310,
        0.999_999,
        1e30,
        4503599627370497.0,
    ];
    let all: Vec<f64> = some.iter().flat_map(|x| [*x, -*x]).collect();
    let pairs = all.iter().flat_map(|x| all.iter().map(|y| (*x, *y)));
    let (xs, ys): (Vec<f64>, Vec<f64>) = pairs.unzip();
    check(Alu::Pow, DType::F32, LIMIT_F32, &xs, &ys);
    check(Alu::Pow, DType::F64, LIMIT_F64, &xs, &ys);
}

#[test]
fn vector_lanes_match_scalars() {
    let xs: Vec<f64> = (0..32).map(|i| i as f64 * 0.7 - 9.0).collect();
    for dtype in [DType::F32, DType::F64] {
        let x = encode(&xs, dtype);
        let alone = results(expand(kernel(Alu::Math(Function::Sin), dtype, 1)), 32, &x, &x);
        let together = results(expand(kernel(Alu::Math(Function::Sin), dtype, 4)), 8, &x, &x);
        assert_eq!(alone, together);
    }
}
