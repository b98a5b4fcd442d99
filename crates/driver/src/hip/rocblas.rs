//! rocBLAS, AMD's library for matrix products, if it is installed beside the HIP runtime.
//!
//! It ends the process for a GPU that it has no kernels for, so those are searched for first ([`super::kernels`]). Its matrices are
//! column-major. Atomics are disabled: with them sums would change from run to run.

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex};

use panoply_device::{Backend, DType, Error, ErrorKind, Result};

use super::kernels::Kernels;
use crate::error_codes::Codes;
use crate::library::{DevicePtr, Handle, Opened, Words, check, functions};
use crate::lock::locked;
use crate::stream::blas::{Blas, Library, PreparedGemm};
use crate::stream::blas_gemm::{Matrix, Product};
use crate::stream::handles::Context;
use crate::stream::queue::Queue;

functions! {
    /// The library's functions; AMD's documentation describes them.
    Roc
    needed {
        create(*mut Handle) "rocblas_create_handle";
        destroy(Handle) "rocblas_destroy_handle";
        set_stream(Handle, Handle) "rocblas_set_stream";
        set_workspace(Handle, DevicePtr, usize) "rocblas_set_workspace";
        set_atomics(Handle, i32) "rocblas_set_atomics_mode";
        gemm(
            Handle, i32, i32, i32, i32, i32, *const c_void, DevicePtr, i32, i32, i64, DevicePtr, i32, i32, i64, *const c_void, DevicePtr, i32,
            i32, i64, DevicePtr, i32, i32, i64, i32, i32, i32, i32, u32,
        ) "rocblas_gemm_strided_batched_ex";
    }
    optional {
        version(*mut c_char, usize) "rocblas_get_version_string";
    }
}

// Constants of AMD's headers, the same from ROCm 5 to 7.
/// rocblas_operation_none and transpose.
const OPERATIONS: [i32; 2] = [111, 112];
/// rocblas_atomics_not_allowed.
const NO_ATOMICS: i32 = 0;
/// rocblas_gemm_algo_standard, no solution index, rocblas_gemm_flags_none.
const PLAIN: (i32, i32, u32) = (0, 0, 0);
/// rocblas_datatype.
const F16: i32 = 150;
const F32: i32 = 151;
const F64: i32 = 152;
const BF16: i32 = 168;

/// The architecture whose matrix instructions flush subnormal f16 to zero.
pub const FLUSHES_F16: &str = "gfx90a";
/// Size in bytes of the workspace that rocBLAS allocates itself by default.
const WORKSPACE: usize = 32 << 20;

const WORDS: Words = Words {
    kind: Backend::Rocm.name(),
    files: &[
        "librocblas.so.5",
        "librocblas.so.4",
        "librocblas.so.3",
        "librocblas.so.0",
        "librocblas.so",
        "/opt/rocm/lib/librocblas.so",
    ],
    prefix: "rocblas_",
    install: "install rocBLAS, a part of ROCm, for faster matrix products",
    lacking: "so it is not rocBLAS of ROCm 5 or later; update ROCm",
};

const CODES: Codes = Codes {
    prefix: "rocblas_status_",
    known: &[
        (1, "invalid_handle", ErrorKind::Driver, UPDATE),
        (2, "not_implemented", ErrorKind::Unsupported, UPDATE),
        (3, "invalid_pointer", ErrorKind::Driver, UPDATE),
        (4, "invalid_size", ErrorKind::Driver, UPDATE),
        (5, "memory_error", ErrorKind::OutOfMemory, "free buffers or use smaller ones"),
        (6, "internal_error", ErrorKind::Driver, UPDATE),
        (11, "invalid_value", ErrorKind::Driver, UPDATE),
    ],
    unknown: "unknown",
    otherwise: UPDATE,
};

const UPDATE: &str = "update ROCm or report this";

/// The opened library.
pub struct RocBlas {
    functions: Arc<Roc>,
    title: String,
    kernels: Kernels,
    /// Never closed.
    _library: Opened,
}

impl RocBlas {
    /// Opens a library; `None` opens the one that the system finds.
    pub fn open(chosen: Option<&Path>) -> Result<RocBlas> {
        if cfg!(not(target_os = "linux")) {
            let message =
                "rocm: rocBLAS is supported on Linux only, where its kernels can be found before it is initialized";
            return Err(Error::unavailable(message));
        }
        let library = Opened::open(&WORDS, chosen)?;
        let functions = Roc::find(&library, &WORDS)?;
        let mut text = [0u8; 64];
        // SAFETY: the buffer has one byte more than the size that is passed.
        let known = functions.version.is_some_and(|version| unsafe { version(text.as_mut_ptr().cast(), 63) } == 0);
        let version = CStr::from_bytes_until_nul(&text).ok().filter(|_| known).map(CStr::to_string_lossy);
        // The part after the third number names a commit.
        let version: Vec<&str> = version.iter().flat_map(|version| version.split('.')).take(3).collect();
        let title = format!("rocBLAS {} ({})", version.join("."), library.file).replace("  ", " ");
        let kernels = Kernels::beside(functions.gemm as usize, "rocblas", "");
        Ok(RocBlas { functions: Arc::new(functions), title, kernels, _library: library })
    }

    /// Returns an error unless there are kernels for an architecture.
    pub fn serves(&self, architecture: &str) -> Result<()> {
        self.kernels.serve(architecture, &self.title)
    }
}

impl Library for RocBlas {
    fn title(&self) -> &str {
        &self.title
    }

    fn codes(&self) -> &'static Codes {
        &CODES
    }

    fn start(&self, context: &Arc<Context>) -> Result<Box<dyn Blas>, i32> {
        let mut raw = 0;
        // SAFETY: the pointer is valid and the device is current on this thread.
        check(unsafe { (self.functions.create)(&mut raw) })?;
        let functions = self.functions.clone();
        let started = Started { raw, functions, context: context.clone(), one_at_a_time: Mutex::default() };
        // SAFETY: the handle is live.
        check(unsafe { (self.functions.set_atomics)(raw, NO_ATOMICS) })?;
        Ok(Box::new(Arc::new(started)))
    }
}

/// A handle of the library on a device.
struct Started {
    raw: Handle,
    functions: Arc<Roc>,
    context: Arc<Context>,
    /// Held during a call: stream and workspace are properties of the handle, which the next call changes.
    one_at_a_time: Mutex<()>,
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // SAFETY: this is the only reference to the handle.
            unsafe { (self.functions.destroy)(self.raw) };
        }
    }
}

impl Blas for Arc<Started> {
    fn workspace(&self) -> usize {
        WORKSPACE
    }

    fn prepare(
        &self,
        product: &Product,
        _alignments: [u32; 3],
        workspace: usize,
    ) -> Result<Option<Arc<dyn PreparedGemm>>, i32> {
        let (elements, compute) = match product.dtype {
            _ if product.tf32 || product.bias => return Ok(None),
            DType::F32 => (F32, F32),
            DType::F64 => (F64, F64),
            DType::BF16 => (BF16, F32),
            DType::F16 if self.context.traits.architecture != FLUSHES_F16 => (F16, F32),
            DType::F16
            | DType::Bool
            | DType::I8
            | DType::I16
            | DType::I32
            | DType::I64
            | DType::U8
            | DType::U16
            | DType::U32
            | DType::U64 => return Ok(None),
        };
        // Without a workspace the library would allocate memory itself, without a bound.
        let prepared = Gemm { product: *product, elements, compute, started: self.clone() };
        Ok((workspace == WORKSPACE).then(|| Arc::new(prepared) as Arc<dyn PreparedGemm>))
    }
}

/// A product in terms of AMD's constants.
struct Gemm {
    product: Product,
    elements: i32,
    compute: i32,
    started: Arc<Started>,
}

impl PreparedGemm for Gemm {
    fn workspace(&self) -> usize {
        WORKSPACE
    }

    fn run(
        &self,
        [left, right, result]: [DevicePtr; 3],
        _bias: DevicePtr,
        workspace: DevicePtr,
        queue: &Queue,
    ) -> Result<(), i32> {
        let (roc, raw) = (&*self.started.functions, self.started.raw);
        let Product { m, n, k, batch, .. } = self.product;
        let counts = [m, n, k, batch].map(|count| count as i32);
        let [a, b, c] = self.product.matrices();
        let operation = |matrix: Matrix| OPERATIONS[usize::from(matrix.transposed)];
        let (leading, stride) = (|matrix: Matrix| matrix.leading as i32, |matrix: Matrix| matrix.batch as i64);
        let (f32s, f64s) = ([1f32, 0.0], [1f64, 0.0]);
        let pointer = |at: usize| match self.compute {
            F64 => ptr::from_ref(&f64s[at]).cast::<c_void>(),
            _ => ptr::from_ref(&f32s[at]).cast(),
        };
        let ([m, n, k, batch], ty, (algorithm, solution, flags)) = (counts, self.elements, PLAIN);
        let _only = locked(&self.started.one_at_a_time);
        // SAFETY: all objects are live; the matrices are inside their buffers, and the workspace has the size that is passed.
        unsafe {
            check((roc.set_stream)(raw, queue.stream.raw))?;
            check((roc.set_workspace)(raw, workspace, WORKSPACE))?;
            check((roc.gemm)(
                raw,
                operation(a),
                operation(b),
                m,
                n,
                k,
                pointer(0),
                left,
                ty,
                leading(a),
                stride(a),
                right,
                ty,
                leading(b),
                stride(b),
                pointer(1),
                result,
                ty,
                leading(c),
                stride(c),
                result,
                ty,
                leading(c),
                stride(c),
                batch,
                self.compute,
                algorithm,
                solution,
                flags,
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_map_to_kinds_and_messages() {
        CODES.check(&[
            (5, ErrorKind::OutOfMemory),
            (2, ErrorKind::Unsupported),
            (6, ErrorKind::Driver),
            (99, ErrorKind::Driver),
        ]);
    }
}
