//! hipBLASLt, AMD's library for matrix products with epilogues, if it is installed beside the HIP runtime.
//!
//! [`crate::stream::blaslt`] holds what it has in common with cuBLASLt. It is preferred over rocBLAS for f32, f16 and bf16. Differences
//! from NVIDIA's library:
//! - It has no setting for how partial sums are reduced, and it has kernels in which the block that finishes last adds them. Therefore it
//!   is given no workspace, which would hold partial sums, and it splits no sum of f16 or bf16. Partial sums of f32 could be added to the
//!   result itself by atomics: AMD's kernel generator supports that, but the shipped f32 kernels that were examined (gfx90a, 0.x) do not do
//!   it, and no setting here could forbid it.
//! - A handle belongs to one stream, and running an operation writes to the operation.
//! - It ends the process if there is no memory for a handle, so free memory is checked before one is created.

use std::path::Path;
use std::sync::Arc;

use panoply_device::{Backend, DType, Error, ErrorKind, Result};

use super::kernels::Kernels;
use super::rocblas::FLUSHES_F16;
use crate::error_codes::Codes;
use crate::library::{Handle, Opened, Words, functions};
use crate::stream::blas::{Blas, Library};
use crate::stream::blas_gemm::{Matrix, Product};
use crate::stream::blaslt::{Interface, Lt, Numbers, Types};
use crate::stream::handles::Context;

functions! {
    /// The function that only AMD's library has.
    Only
    needed {
        version(Handle, *mut i32) "hipblasLtGetVersion";
    }
    optional {}
}

/// Constants of AMD's headers: hipblaslt.h of hipBLASLt 0.10 (ROCm 6.3) and 1.5 (ROCm 10.1), and hipblas-common.h 1.0 for operations,
/// compute types and codes. Bindings generated from the headers of 0.6, 0.7, 0.8, 0.12, 1.0, 1.1 and 1.2 (ROCm 6.0 to 7.2) have the same.
const NUMBERS: Numbers = Numbers {
    // HIPBLASLT_MATMUL_DESC_TRANSA and TRANSB, and HIPBLAS_OP_T for them.
    transpose: [0, 1],
    transposed: 112,
    // HIPBLASLT_MATMUL_DESC_EPILOGUE and BIAS_POINTER, and HIPBLASLT_EPILOGUE_BIAS. By default the bias has the result's type.
    epilogue: 2,
    bias_pointer: 3,
    bias: 4,
    // HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT and STRIDED_BATCH_OFFSET.
    batch_count: 0,
    batch_offset: 1,
    // HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES.
    max_workspace: 1,
    reduction_schemes: None,
    min_alignment: None,
    // HIPBLAS_STATUS_NOT_SUPPORTED, ARCH_MISMATCH, and INTERNAL_ERROR, which the library's own `not_implemented` is mapped to.
    not_here: &[7, 8, 6],
    // hipblasLtMatmulAlgo_t: 16 bytes and a size.
    algorithm_words: 3,
    writes_operation: true,
    handle_per_queue: true,
    types,
    before: has_room,
};

/// HIPBLAS_COMPUTE_32F.
const COMPUTE_F32: i32 = 2;
/// hipDataType.
const F32: i32 = 0;
const F16: i32 = 2;
const BF16: i32 = 14;

/// HIPBLAS_STATUS_ALLOC_FAILED and NOT_SUPPORTED.
const ALLOC_FAILED: i32 = 2;
const NOT_SUPPORTED: i32 = 7;

/// Free bytes required to create a handle: one takes 25 MiB of device memory, from 1.5 on 33 MiB.
const ROOM: usize = 64 << 20;
/// Largest extent of a matrix in bytes: 1.x drops the elements beyond it (hipBLASLt issue 2299).
const MAX_MATRIX_BYTES: usize = 1 << 31;
/// Version 0.6 in the library's own counting; older ones have other constants.
const OLDEST: i32 = 600;
/// Workspace in bytes: none, because with one the library would split sums.
const WORKSPACE: usize = 0;

const WORDS: Words = Words {
    kind: Backend::Rocm.name(),
    files: &["libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so", "/opt/rocm/lib/libhipblaslt.so"],
    prefix: "hipblasLt",
    install: "install hipBLASLt, a part of ROCm, for faster matrix products",
    lacking: "so it is not hipBLASLt of ROCm 6 or later; update ROCm",
};

const CODES: Codes = Codes {
    prefix: "HIPBLAS_STATUS_",
    known: &[
        (1, "NOT_INITIALIZED", ErrorKind::Driver, UPDATE),
        // Not `OutOfMemory`: the kernel that computes the product instead needs no such memory.
        (ALLOC_FAILED, "ALLOC_FAILED", ErrorKind::Unsupported, "keep 64 MiB of the GPU free for it"),
        (3, "INVALID_VALUE", ErrorKind::Driver, UPDATE),
        (4, "MAPPING_ERROR", ErrorKind::Driver, UPDATE),
        (5, "EXECUTION_FAILED", ErrorKind::Driver, UPDATE),
        (6, "INTERNAL_ERROR", ErrorKind::Driver, UPDATE),
        (NOT_SUPPORTED, "NOT_SUPPORTED", ErrorKind::Unsupported, "update ROCm to 6.0 or later or report this"),
        (8, "ARCH_MISMATCH", ErrorKind::Unsupported, UPDATE),
        (9, "HANDLE_IS_NULLPTR", ErrorKind::Driver, UPDATE),
        (10, "INVALID_ENUM", ErrorKind::Driver, UPDATE),
    ],
    unknown: "UNKNOWN",
    otherwise: UPDATE,
};

const UPDATE: &str = "update ROCm or report this";

/// The opened library.
pub struct HipBlasLt {
    interface: Interface,
    only: Only,
    title: String,
    kernels: Kernels,
    /// Never closed.
    _library: Opened,
}

impl HipBlasLt {
    /// Opens a library; `None` opens the one that the system finds.
    pub fn open(chosen: Option<&Path>) -> Result<HipBlasLt> {
        if cfg!(not(target_os = "linux")) {
            let message =
                "rocm: hipBLASLt is supported on Linux only, where its kernels can be found before it is initialized";
            return Err(Error::unavailable(message));
        }
        let library = Opened::open(&WORDS, chosen)?;
        let only = Only::find(&library, &WORDS)?;
        let functions = Arc::new(Lt::find(&library, &WORDS)?);
        let kernels = Kernels::beside(functions.matmul as usize, "hipblaslt", "Tensile");
        let title = format!("hipBLASLt ({})", library.file);
        Ok(HipBlasLt { interface: Interface { functions, numbers: &NUMBERS }, only, title, kernels, _library: library })
    }

    /// Returns an error unless there are kernels for an architecture.
    pub fn serves(&self, architecture: &str) -> Result<()> {
        self.kernels.serve(architecture, &self.title)
    }
}

impl Library for HipBlasLt {
    fn title(&self) -> &str {
        &self.title
    }

    fn codes(&self) -> &'static Codes {
        &CODES
    }

    fn start(&self, context: &Arc<Context>) -> Result<Box<dyn Blas>, i32> {
        let session = self.interface.session(context)?;
        let mut version = 0;
        // SAFETY: the handle is live and the pointer valid.
        let code = unsafe { (self.only.version)(session.raw, &mut version) };
        if code != 0 || version < OLDEST {
            return Err(NOT_SUPPORTED);
        }
        Ok(self.interface.start(session, WORKSPACE))
    }
}

/// Checks that there is enough free memory for a handle.
fn has_room(context: &Context) -> Result<(), i32> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the pointers are valid, and the device is current on this thread.
    let code = unsafe { (context.api.functions.free_memory)(&mut free, &mut total) };
    if code == 0 && free >= ROOM { Ok(()) } else { Err(ALLOC_FAILED) }
}

/// Returns the types of a product, or `None` if this library must not compute it.
fn types(product: &Product, architecture: &str) -> Option<Types> {
    let halves = matches!(product.dtype, DType::F16 | DType::BF16);
    let reach = |(matrix, (rows, columns)): (Matrix, (usize, usize))| {
        (columns - 1).saturating_mul(matrix.leading).saturating_add(rows).saturating_mul(product.dtype.bytes())
    };
    let large = product.matrices().into_iter().zip(product.stored()).any(|matrix| reach(matrix) > MAX_MATRIX_BYTES);
    if product.tf32 || product.bias && halves || large {
        return None;
    }
    let elements = match product.dtype {
        DType::F32 => F32,
        DType::BF16 => BF16,
        DType::F16 if architecture != FLUSHES_F16 => F16,
        DType::F16
        | DType::F64
        | DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => return None,
    };
    Some(Types { compute: COMPUTE_F32, scale: F32, elements, reductions: 0 })
}

#[cfg(test)]
mod tests {
    use panoply_device::{Gemm, Layout};

    use super::*;

    #[test]
    fn error_codes_map_to_kinds_and_messages() {
        CODES.check(&[
            (2, ErrorKind::Unsupported),
            (6, ErrorKind::Driver),
            (7, ErrorKind::Unsupported),
            (11, ErrorKind::Driver),
        ]);
    }

    #[test]
    fn types_reject_products_that_would_change_results() {
        let by_rows = |row: usize| Layout { offset: 0, batch: 0, row, column: 1 };
        let plain = Gemm {
            dtype: DType::F32,
            tf32: false,
            bias: false,
            batch: 1,
            m: 4,
            n: 5,
            k: 6,
            a: by_rows(6),
            b: by_rows(5),
            c: by_rows(5),
        };
        let far = Gemm { c: by_rows(1 << 28), ..plain };
        for (gemm, architecture, expected) in [
            (plain, "gfx942", Some(F32)),
            (Gemm { bias: true, ..plain }, "gfx942", Some(F32)),
            (Gemm { dtype: DType::BF16, ..plain }, "gfx90a", Some(BF16)),
            (Gemm { dtype: DType::F16, ..plain }, "gfx942", Some(F16)),
            (Gemm { dtype: DType::F16, ..plain }, "gfx90a", None),
            (Gemm { dtype: DType::F16, bias: true, ..plain }, "gfx942", None),
            (Gemm { dtype: DType::F64, ..plain }, "gfx942", None),
            (Gemm { tf32: true, ..plain }, "gfx942", None),
            (far, "gfx942", None),
            (Gemm { dtype: DType::BF16, m: 3, ..far }, "gfx942", Some(BF16)),
        ] {
            let product = Product::of(&gemm).unwrap();
            assert_eq!(
                types(&product, architecture).map(|types| types.elements),
                expected,
                "{gemm:?} on {architecture}"
            );
        }
    }
}
