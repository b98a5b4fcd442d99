//! cuBLASLt, NVIDIA's library for matrix products, if it is installed. It is a part of the CUDA toolkit and of many Python packages, not of
//! the driver.
//!
//! [`crate::stream::blaslt`] holds what it has in common with hipBLASLt. f32 products are computed in f32: TF32 is used only if a product
//! allows it, from compute capability 8.0 on. f16 and bf16 are accumulated in f32, including partial sums. A sum is never split among
//! blocks that add to the result in the order in which they finish.

use std::path::Path;
use std::sync::Arc;

use panoply_device::{Backend, DType, Error, ErrorKind, Result};

use crate::error_codes::Codes;
use crate::library::{Opened, Words, functions};
use crate::stream::blas::{Blas, Library};
use crate::stream::blas_gemm::Product;
use crate::stream::blaslt::{Interface, Lt, Numbers, Types};
use crate::stream::handles::Context;

functions! {
    /// The function that only NVIDIA's library has.
    Only
    needed {
        property(i32, *mut i32) "cublasLtGetProperty";
    }
    optional {}
}

/// Constants of NVIDIA's headers, the same from CUDA 11 to 13.
const NUMBERS: Numbers = Numbers {
    // CUBLASLT_MATMUL_DESC_TRANSA and TRANSB, and CUBLAS_OP_T for them.
    transpose: [3, 4],
    transposed: 1,
    // CUBLASLT_MATMUL_DESC_EPILOGUE and BIAS_POINTER, and CUBLASLT_EPILOGUE_BIAS.
    epilogue: 7,
    bias_pointer: 8,
    bias: 4,
    // CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT and STRIDED_BATCH_OFFSET.
    batch_count: 5,
    batch_offset: 6,
    // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, REDUCTION_SCHEME_MASK, and MIN_ALIGNMENT of A, B, C and D.
    max_workspace: 1,
    reduction_schemes: Some(3),
    min_alignment: Some([5, 6, 7, 8]),
    // CUBLAS_STATUS_NOT_SUPPORTED and ARCH_MISMATCH.
    not_here: &[15, 8],
    // cublasLtMatmulAlgo_t.
    algorithm_words: 8,
    writes_operation: false,
    handle_per_queue: false,
    types,
    before: |_| Ok(()),
};

/// Values of libraryPropertyType: major and minor version.
const VERSION: [i32; 2] = [0, 1];
/// CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE and OUTPUT_TYPE: partial sums are kept in the workspace, in the compute type or in the type of
/// the result.
const IN_COMPUTE_TYPE: u32 = 2;
const IN_OUTPUT_TYPE: u32 = 4;

/// The lowest compute capability whose tensor cores support TF32.
const TF32_FROM: u32 = 80;

/// Workspace sizes in bytes that NVIDIA recommends: from compute capability 9.0 on, and before.
const WORKSPACE: [usize; 2] = [32 << 20, 4 << 20];

/// File names in descending order of the CUDA version; a driver takes no library newer than itself. The last two carry no version.
const FILES: &[&str] = if cfg!(windows) {
    &["cublasLt64_13.dll", "cublasLt64_12.dll", "cublasLt64_11.dll"]
} else {
    &[
        "libcublasLt.so.13",
        "libcublasLt.so.12",
        "libcublasLt.so.11",
        "libcublasLt.so",
        "/usr/local/cuda/lib64/libcublasLt.so",
    ]
};
/// The CUDA version of the first name.
const NEWEST: i32 = 13;
/// The oldest CUDA version with these functions.
const OLDEST: i32 = 11;

const CODES: Codes = Codes {
    prefix: "CUBLAS_STATUS_",
    known: &[
        (1, "NOT_INITIALIZED", ErrorKind::Driver, INSTALL_ANOTHER),
        (3, "ALLOC_FAILED", ErrorKind::OutOfMemory, "free buffers or use smaller ones"),
        (7, "INVALID_VALUE", ErrorKind::Driver, REPORT),
        (8, "ARCH_MISMATCH", ErrorKind::Unsupported, INSTALL_ANOTHER),
        (11, "MAPPING_ERROR", ErrorKind::Driver, REPORT),
        (13, "EXECUTION_FAILED", ErrorKind::Driver, REPORT),
        (14, "INTERNAL_ERROR", ErrorKind::Driver, REPORT),
        (15, "NOT_SUPPORTED", ErrorKind::Unsupported, REPORT),
        (16, "LICENSE_ERROR", ErrorKind::Driver, REPORT),
    ],
    unknown: "UNKNOWN",
    otherwise: REPORT,
};

const INSTALL_ANOTHER: &str = "install a cuBLASLt for this driver and GPU";
const REPORT: &str = "update the CUDA toolkit or report this";

/// The opened library.
pub struct CublasLt {
    interface: Interface,
    title: String,
    /// Never closed.
    _library: Opened,
}

impl CublasLt {
    /// Opens the library that the system finds for a driver, or a chosen one. `driver` is the version in the driver's own counting.
    pub fn open(chosen: Option<&Path>, driver: i32) -> Result<CublasLt> {
        let driver = driver / 1000;
        let newer = usize::try_from(NEWEST - driver).unwrap_or(0).min((NEWEST - OLDEST) as usize + 1);
        let words = Words {
            kind: Backend::Cuda.name(),
            files: FILES.get(newer..).filter(|files| !files.is_empty()).unwrap_or(FILES),
            prefix: "cublasLt",
            install: "install cuBLASLt, a part of the CUDA toolkit, for faster matrix products",
            lacking: "so it is not cuBLASLt of CUDA 11 or later; update the CUDA toolkit",
        };
        let library = Opened::open(&words, chosen)?;
        let only = Only::find(&library, &words)?;
        let functions = Arc::new(Lt::find(&library, &words)?);
        let [major, minor] = VERSION.map(|part| {
            let mut number = 0;
            // SAFETY: the pointer is valid, and this function can be called at any time.
            let code = unsafe { (only.property)(part, &mut number) };
            if code == 0 { number } else { 0 }
        });
        if !(OLDEST..=driver).contains(&major) {
            return Err(Error::unavailable(format!(
                "cuda: {} is cuBLASLt {major}.{minor}, this program needs {OLDEST}.0 or later and the driver {driver}.x or earlier; \
                 install the one of CUDA {driver}",
                library.file
            )));
        }
        let title = format!("cuBLASLt {major}.{minor} ({})", library.file);
        Ok(CublasLt { interface: Interface { functions, numbers: &NUMBERS }, title, _library: library })
    }
}

impl Library for CublasLt {
    fn title(&self) -> &str {
        &self.title
    }

    fn codes(&self) -> &'static Codes {
        &CODES
    }

    fn start(&self, context: &Arc<Context>) -> Result<Box<dyn Blas>, i32> {
        let session = self.interface.session(context)?;
        let workspace = WORKSPACE[usize::from(capability(&context.traits.architecture) < 90)];
        Ok(self.interface.start(session, workspace))
    }
}

/// Returns ten times the major version of an architecture such as `sm_90` plus the minor one.
fn capability(architecture: &str) -> u32 {
    architecture.trim_start_matches("sm_").parse().unwrap_or(0)
}

/// Returns the types of a product: cublasComputeType_t, cudaDataType_t of alpha and beta, and that of the elements.
fn types(product: &Product, architecture: &str) -> Option<Types> {
    let halves = matches!(product.dtype, DType::F16 | DType::BF16);
    let knows_tf32 = product.dtype == DType::F32 && capability(architecture) >= TF32_FROM;
    if product.tf32 && !knows_tf32 || product.bias && halves {
        return None;
    }
    let (compute, scale, elements, reductions) = match product.dtype {
        // CUBLAS_COMPUTE_32F_FAST_TF32.
        DType::F32 if product.tf32 => (77, 0, 0, IN_COMPUTE_TYPE | IN_OUTPUT_TYPE),
        DType::F32 => (68, 0, 0, IN_COMPUTE_TYPE | IN_OUTPUT_TYPE),
        DType::F64 => (70, 1, 1, IN_COMPUTE_TYPE | IN_OUTPUT_TYPE),
        DType::F16 => (68, 0, 2, IN_COMPUTE_TYPE),
        DType::BF16 => (68, 0, 14, IN_COMPUTE_TYPE),
        DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => return None,
    };
    Some(Types { compute, scale, elements, reductions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_map_to_kinds_and_messages() {
        CODES.check(&[
            (3, ErrorKind::OutOfMemory),
            (13, ErrorKind::Driver),
            (15, ErrorKind::Unsupported),
            (99, ErrorKind::Driver),
        ]);
    }
}
