//! Runs a kernel on the interpreter and on the vector machine with every instruction set of this machine, and compares every byte.

#![allow(dead_code, reason = "each test uses only some items")]

use std::sync::Arc;

use panoply_cpu::vm::exec::Buffer;
use panoply_cpu::vm::launch::Compiled;
use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::interpret::{self, Arg};
use panoply_ir::kernel::{Access, Kernel, Param, Space};
pub use panoply_ir::random::CaseArg;
use panoply_ir::verify::verify_proven;
use panoply_ir::{DType, Scalar, Verified};

/// Creates a buffer with these elements.
pub fn of<T: Into<Scalar> + Copy>(values: &[T]) -> CaseArg {
    let bytes = values.iter().flat_map(|value| {
        let scalar: Scalar = (*value).into();
        scalar.bits.to_le_bytes()[..scalar.dtype.bytes()].to_vec()
    });
    CaseArg::Buffer(bytes.collect())
}

/// The allowed difference between results.
#[derive(Clone, Copy, Debug)]
pub enum Tolerance {
    /// None, except that any NaN equals any NaN.
    Exact,
    /// A number of units in the last place of the element's type.
    Ulps(u64),
}

/// Checks a kernel on pools of one and two threads, requiring equal results.
pub fn check(kernel: Kernel, grid: [u64; 3], given: &[CaseArg]) {
    check_within(kernel, grid, given, Tolerance::Exact);
}

/// Checks a kernel on pools of one and two threads with a tolerance.
pub fn check_within(kernel: Kernel, grid: [u64; 3], given: &[CaseArg], tolerance: Tolerance) {
    // SAFETY: if a test marks a guard proven, it keeps the index below the length.
    let kernel = Arc::new(unsafe { verify_proven(kernel) }.expect("the test's kernel is valid"));
    let expected = interpreted(&kernel, grid, given);
    for isa in Isa::available() {
        let compiled = Compiled::new(Arc::clone(&kernel), isa).expect("the test's kernel compiles");
        for threads in [1, 2] {
            let found = executed(&compiled, &Pool::new(threads), grid, given);
            compare(&kernel, &compiled, &expected, &found, tolerance);
        }
    }
}

/// Returns the buffers after running the kernel on the interpreter.
pub fn interpreted(kernel: &Verified<Kernel>, grid: [u64; 3], given: &[CaseArg]) -> Vec<Vec<u8>> {
    let mut buffers = buffers(given);
    let mut rest = buffers.iter_mut();
    let mut args: Vec<Arg<'_>> = given
        .iter()
        .map(|given| match given {
            CaseArg::Buffer(_) => Arg::Write(rest.next().expect("there is a buffer for each buffer argument")),
            CaseArg::Scalar(value) => Arg::Scalar(*value),
            CaseArg::Index(value) => Arg::Index(*value),
        })
        .collect();
    let group = kernel.group_size.unwrap_or([7, 1, 1]);
    interpret::run(kernel, grid, group, &mut args, &mut ()).expect("the test's kernel can be interpreted");
    drop(args);
    buffers
}

fn buffers(given: &[CaseArg]) -> Vec<Vec<u8>> {
    let buffer = |given: &CaseArg| match given {
        CaseArg::Buffer(bytes) => Some(bytes.clone()),
        CaseArg::Scalar(_) | CaseArg::Index(_) => None,
    };
    given.iter().filter_map(buffer).collect()
}

/// Returns the buffers after running the kernel on the vector machine.
pub fn executed(compiled: &Compiled, pool: &Pool, grid: [u64; 3], given: &[CaseArg]) -> Vec<Vec<u8>> {
    let kernel = compiled.kernel();
    // Buffers are u64 words, so that every element is aligned; a guard word after each buffer must not change.
    const GUARD: u64 = 0x5ca1_ab1e_0ddb_a115;
    let mut words: Vec<Vec<u64>> = buffers(given)
        .iter()
        .map(|bytes| {
            let mut words = vec![GUARD; bytes.len().div_ceil(8) + 1];
            bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
            words
        })
        .collect();
    let lengths: Vec<usize> = buffers(given).iter().map(Vec::len).collect();
    let mems: Vec<Buffer> = words
        .iter_mut()
        .zip(&kernel.mems)
        .zip(&lengths)
        .map(|((words, memory), bytes)| Buffer {
            ptr: words.as_mut_ptr().cast(),
            len: (bytes / memory.dtype.bytes()) as u64,
        })
        .collect();
    let scalars: Vec<u64> = given
        .iter()
        .map(|given| match given {
            CaseArg::Buffer(_) => 0,
            CaseArg::Scalar(value) => panoply_cpu::vm::launch::scalar_bits(*value),
            CaseArg::Index(value) => *value,
        })
        .collect();
    // SAFETY: the buffers have the given lengths and are accessed only by this call.
    unsafe { compiled.launch(pool, grid, &mems, &scalars) }.expect("the test's kernel runs");
    words
        .iter()
        .zip(lengths)
        .map(|(words, len)| {
            let bytes: &[u8] = bytemuck::cast_slice(words);
            let guard = GUARD.to_le_bytes();
            let behind = &bytes[len..];
            let expected: Vec<u8> = (len..bytes.len()).map(|at| guard[at % 8]).collect();
            assert_eq!(behind, expected, "{}: bytes after a buffer were overwritten", kernel.name);
            bytes[..len].to_vec()
        })
        .collect()
}

fn compare(kernel: &Kernel, compiled: &Compiled, expected: &[Vec<u8>], found: &[Vec<u8>], tolerance: Tolerance) {
    let memories = kernel.params.iter().filter_map(|param| match param {
        Param::Buffer(mem) => Some(kernel.mem(*mem)),
        Param::Scalar { .. } => None,
    });
    for ((memory, expected), found) in memories.zip(expected).zip(found) {
        let size = memory.dtype.bytes();
        for (element, (want, have)) in expected.chunks(size).zip(found.chunks(size)).enumerate() {
            if want != have && !close(memory.dtype, want, have, tolerance) {
                panic!(
                    "{}: element {element} of {} ({}) is {} and should be {}\n{}",
                    kernel.name,
                    memory.name,
                    compiled.program().isa,
                    scalar(memory.dtype, have),
                    scalar(memory.dtype, want),
                    compiled.program()
                );
            }
        }
        assert!(matches!(memory.space, Space::Buffer(Access::In | Access::Out | Access::InOut)));
    }
}

fn scalar(dtype: DType, bytes: &[u8]) -> Scalar {
    let mut bits = [0; 8];
    bits[..bytes.len()].copy_from_slice(bytes);
    Scalar { dtype, bits: u64::from_le_bytes(bits) }
}

fn close(dtype: DType, want: &[u8], have: &[u8], tolerance: Tolerance) -> bool {
    if !dtype.is_float() {
        return false;
    }
    let (want, have) = (scalar(dtype, want), scalar(dtype, have));
    if want.to_f64().is_nan() || have.to_f64().is_nan() {
        return want.to_f64().is_nan() && have.to_f64().is_nan();
    }
    match tolerance {
        Tolerance::Exact => false,
        Tolerance::Ulps(most) => ordered(want).abs_diff(ordered(have)) <= u128::from(most),
    }
}

/// Maps consecutive floats to consecutive integers.
fn ordered(value: Scalar) -> i128 {
    let sign = 1_u64 << (value.dtype.bits() - 1);
    let magnitude = i128::from(value.bits & (sign - 1));
    if value.bits & sign != 0 { -magnitude } else { magnitude }
}
