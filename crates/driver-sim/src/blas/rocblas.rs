//! rocBLAS, from AMD's documentation of ROCm 6. For a GPU that it has no kernels for it aborts the process, as AMD's does.

use std::ffi::{c_char, c_void};

use super::{Matrix, Product, Sum, Ty, on_device};
use crate::cuda::api::{exported, give};
use crate::cuda::streams::StreamCommand;

/// rocblas_status.
const INVALID_HANDLE: i32 = 1;
const NOT_IMPLEMENTED: i32 = 2;
const INVALID_POINTER: i32 = 3;
const INVALID_SIZE: i32 = 4;
const MEMORY_ERROR: i32 = 5;
const INTERNAL_ERROR: i32 = 6;
const INVALID_VALUE: i32 = 11;

/// The architectures with kernels, in the configuration's notation.
const KERNELS: [u64; 2] = [0x90a, 0x1100];
/// Size of the workspace that f16 and bf16 products require.
const WANTED_BYTES: u64 = 1 << 20;

/// The settings of a handle.
pub struct Handle {
    device: usize,
    stream: u64,
    workspace: (u64, u64),
    atomics: bool,
}

/// Returns true if an operation is a transposition.
fn turned(operation: i32) -> Result<bool, i32> {
    match operation {
        111 => Ok(false),
        112 => Ok(true),
        _ => Err(INVALID_VALUE),
    }
}

fn ty(number: i32) -> Result<Ty, i32> {
    match number {
        150 => Ok(Ty::F16),
        151 => Ok(Ty::F32),
        152 => Ok(Ty::F64),
        168 => Ok(Ty::BF16),
        _ => Err(NOT_IMPLEMENTED),
    }
}

exported! {
    fn rocblas_create_handle(handle: *mut u64) {
        on_device(NAME, INTERNAL_ERROR, |state, device| {
            if !KERNELS.contains(&state.config.architecture) {
                eprintln!("rocBLAS error: Cannot read TensileLibrary.dat for GPU arch : gfx{:x}", state.config.architecture);
                std::process::abort();
            }
            let new = state.handle();
            state.rocblas.insert(new, Handle { device, stream: 0, workspace: (0, 0), atomics: true });
            // SAFETY: the caller's pointer.
            unsafe { give(handle, new) };
            Ok(())
        })
    }

    fn rocblas_destroy_handle(handle: u64) {
        on_device(NAME, INTERNAL_ERROR, |state, _| state.rocblas.remove(&handle).map(drop).ok_or(INVALID_HANDLE))
    }

    fn rocblas_get_version_string(to: *mut c_char, bytes: usize) {
        const VERSION: &[u8] = b"4.2.0.9a1b2c3\0";
        if bytes < VERSION.len() {
            return INVALID_SIZE;
        }
        // SAFETY: the caller's buffer.
        unsafe { std::ptr::copy_nonoverlapping(VERSION.as_ptr().cast(), to, VERSION.len()) };
        0
    }

    fn rocblas_set_stream(handle: u64, stream: u64) {
        on_device(NAME, INTERNAL_ERROR, |state, device| {
            if state.streams.get(&stream).is_none_or(|stream| stream.device != device) {
                return Err(INVALID_VALUE);
            }
            state.rocblas.get_mut(&handle).ok_or(INVALID_HANDLE)?.stream = stream;
            Ok(())
        })
    }

    fn rocblas_set_workspace(handle: u64, address: u64, bytes: usize) {
        on_device(NAME, INTERNAL_ERROR, |state, _| {
            state.rocblas.get_mut(&handle).ok_or(INVALID_HANDLE)?.workspace = (address, bytes as u64);
            Ok(())
        })
    }

    fn rocblas_set_atomics_mode(handle: u64, mode: i32) {
        on_device(NAME, INTERNAL_ERROR, |state, _| {
            state.rocblas.get_mut(&handle).ok_or(INVALID_HANDLE)?.atomics = mode != 0;
            Ok(())
        })
    }

    fn rocblas_gemm_strided_batched_ex(
        handle: u64,
        a_operation: i32,
        b_operation: i32,
        m: i32,
        n: i32,
        k: i32,
        alpha: *const c_void,
        a: u64,
        a_type: i32,
        a_leading: i32,
        a_stride: i64,
        b: u64,
        b_type: i32,
        b_leading: i32,
        b_stride: i64,
        beta: *const c_void,
        c: u64,
        c_type: i32,
        c_leading: i32,
        c_stride: i64,
        d: u64,
        d_type: i32,
        d_leading: i32,
        d_stride: i64,
        batch: i32,
        compute: i32,
        algorithm: i32,
        solution: i32,
        flags: u32,
    ) {
        on_device(NAME, INTERNAL_ERROR, |state, device| {
            let known = state.rocblas.get(&handle).filter(|handle| handle.device == device).ok_or(INVALID_HANDLE)?;
            let (stream, workspace, atomics) = (known.stream, known.workspace, known.atomics);
            let (left, right) = (turned(a_operation)?, turned(b_operation)?);
            let stored = |turned: bool, rows: i32, columns: i32| if turned { (columns, rows) } else { (rows, columns) };
            let [a_stored, b_stored, d_stored] = [stored(left, m, k), stored(right, k, n), (m, n)];
            let leads = [(a_leading, a_stored), (b_leading, b_stored), (c_leading, d_stored), (d_leading, d_stored)];
            if [m, n, k, batch].iter().any(|count| *count < 0) || leads.iter().any(|(leading, (rows, _))| leading < rows) {
                return Err(INVALID_SIZE);
            }
            if [a, b, c, d].contains(&0) || alpha.is_null() || beta.is_null() {
                return Err(INVALID_POINTER);
            }
            // The result is in place, so it has the layout of the matrix that is added.
            if c != d || (c_leading, c_stride) != (d_leading, d_stride) || (algorithm, solution, flags) != (0, 0, 0) {
                return Err(INVALID_VALUE);
            }
            let sum = match (ty(a_type)?, ty(b_type)?, ty(c_type)?, ty(d_type)?, ty(compute)?) {
                (Ty::F64, Ty::F64, Ty::F64, Ty::F64, Ty::F64) => Sum::F64,
                (Ty::F32, Ty::F32, Ty::F32, Ty::F32, Ty::F32) => Sum::F32,
                (Ty::F16, Ty::F16, Ty::F16, Ty::F16, Ty::F32) => Sum::F32,
                (Ty::BF16, Ty::BF16, Ty::BF16, Ty::BF16, Ty::F32) => Sum::F32,
                _ => return Err(NOT_IMPLEMENTED),
            };
            // With atomics partial sums are added in the order of completion.
            let sum = if atomics && sum == Sum::F32 { Sum::Parts } else { sum };
            let halves = matches!(ty(a_type)?, Ty::F16 | Ty::BF16);
            if halves && workspace.1 < WANTED_BYTES {
                return Err(MEMORY_ERROR);
            }
            let scalar = |from: *const c_void| {
                // SAFETY: the caller's numbers, of the compute type.
                unsafe { if sum == Sum::F64 { from.cast::<f64>().read() } else { f64::from(from.cast::<f32>().read()) } }
            };
            let matrix = |address, number, (rows, columns): (i32, i32), leading: i32, stride: i64, transposed| {
                let (rows, columns, leading, stride) = (rows as u64, columns as u64, leading as u64, stride as u64);
                Ok::<_, i32>(Matrix { address, ty: ty(number)?, rows, columns, leading, stride, transposed })
            };
            if [m, n, batch].contains(&0) {
                return Ok(());
            }
            let product = Product {
                batch: batch as u64,
                depth: k as u64,
                a: matrix(a, a_type, a_stored, a_leading, a_stride, left)?,
                b: matrix(b, b_type, b_stored, b_leading, b_stride, right)?,
                c: matrix(d, d_type, d_stored, d_leading, d_stride, false)?,
                alpha: scalar(alpha),
                beta: scalar(beta),
                sum,
                bias: None,
                workspace,
            };
            state.push(stream, StreamCommand::Product(product))
        })
    }
}
