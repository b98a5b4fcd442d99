//! cuBLASLt, NVIDIA's matrix products, where somebody installed it: a part of the CUDA toolkit and of many Python packages, not of the
//! driver.
//!
//! Its matrices are stored by columns. f32 is f32: TF32 is asked for only where a product says so, from compute capability 8.0 on. f16 and bf16 are summed in f32, parts of a sum too, and a sum
//! is never divided among blocks that add to the result in the order in which they finish. Of its epilogues only the bias has the bits of
//! our own kernel behind the product, and only where the elements are those that sums are computed in: halves are added to before they are rounded.

use std::ffi::c_void;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex};

use panoply_device::{DType, Error, ErrorKind, Kind, Result};

use crate::codes::Codes;
use crate::library::{DevicePtr, Handle, Opened, Words, check, functions};
use crate::lock::locked;
use crate::stream::handles::Context;
use crate::stream::product::{Matrix, Product};
use crate::stream::products::{Blas, Library, Ready};

functions! {
    /// The library's functions; each is what NVIDIA's documentation says.
    Lt
    needed {
        property(i32, *mut i32) "cublasLtGetProperty";
        create(*mut Handle) "cublasLtCreate";
        destroy(Handle) "cublasLtDestroy";
        operation_create(*mut Handle, i32, i32) "cublasLtMatmulDescCreate";
        operation_set(Handle, i32, *const c_void, usize) "cublasLtMatmulDescSetAttribute";
        operation_destroy(Handle) "cublasLtMatmulDescDestroy";
        layout_create(*mut Handle, i32, u64, u64, i64) "cublasLtMatrixLayoutCreate";
        layout_set(Handle, i32, *const c_void, usize) "cublasLtMatrixLayoutSetAttribute";
        layout_destroy(Handle) "cublasLtMatrixLayoutDestroy";
        preference_create(*mut Handle) "cublasLtMatmulPreferenceCreate";
        preference_set(Handle, i32, *const c_void, usize) "cublasLtMatmulPreferenceSetAttribute";
        preference_destroy(Handle) "cublasLtMatmulPreferenceDestroy";
        heuristic(
            Handle, Handle, Handle, Handle, Handle, Handle, Handle, i32, *mut Heuristic, *mut i32,
        ) "cublasLtMatmulAlgoGetHeuristic";
        matmul(
            Handle, Handle, *const c_void, DevicePtr, Handle, DevicePtr, Handle, *const c_void, DevicePtr, Handle, DevicePtr, Handle,
            *const Algorithm, DevicePtr, usize, Handle,
        ) "cublasLtMatmul";
    }
    optional {}
}

/// cublasLtMatmulAlgo_t.
pub type Algorithm = [u64; 8];

/// cublasLtMatmulHeuristicResult_t.
#[repr(C)]
#[derive(Default)]
pub struct Heuristic {
    algorithm: Algorithm,
    workspace: usize,
    state: i32,
    waves: f32,
    reserved: [i32; 4],
}

// Numbers of NVIDIA's headers, the same from CUDA 11 to 13.
/// libraryPropertyType: major and minor.
const VERSION: [i32; 2] = [0, 1];
/// CUBLASLT_MATMUL_DESC_TRANSA and TRANSB, and CUBLAS_OP_T for them.
const TRANSPOSE: [i32; 2] = [3, 4];
const TRANSPOSED: i32 = 1;
/// CUBLASLT_MATMUL_DESC_EPILOGUE and BIAS_POINTER, and CUBLASLT_EPILOGUE_BIAS.
const EPILOGUE: i32 = 7;
const BIAS_POINTER: i32 = 8;
const BIAS: i32 = 4;
/// CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT and STRIDED_BATCH_OFFSET.
const BATCH_COUNT: i32 = 5;
const BATCH_OFFSET: i32 = 6;
/// CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, REDUCTION_SCHEME_MASK, and MIN_ALIGNMENT of A, B, C and D.
const MAX_WORKSPACE: i32 = 1;
const REDUCTION_SCHEMES: i32 = 3;
const MIN_ALIGNMENT: [i32; 4] = [5, 6, 7, 8];
/// CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE and OUTPUT_TYPE: parts of a sum wait in the workspace, in the type it is computed in, or in that
/// of the result.
const IN_COMPUTE_TYPE: u32 = 2;
const IN_OUTPUT_TYPE: u32 = 4;
/// CUBLAS_STATUS_NOT_SUPPORTED and ARCH_MISMATCH: nothing here does this product.
const NOT_HERE: [i32; 2] = [15, 8];

/// The compute capability from which tensor cores know TF32.
const TF32_FROM: u32 = 80;

/// What NVIDIA recommends from compute capability 9.0 on, and before.
const WORKSPACE: [usize; 2] = [32 << 20, 4 << 20];

/// Names by the version of CUDA they are for; a driver takes none that is newer than itself. The last two say no version.
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
/// The version of the first name.
const NEWEST: i32 = 13;
/// The oldest version with these functions.
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

/// The library, found.
pub struct CublasLt {
    functions: Arc<Lt>,
    title: String,
    /// Never closed.
    _library: Opened,
}

impl CublasLt {
    /// The library that the system finds for a driver, whose version is as it counts; or a chosen one.
    pub fn open(chosen: Option<&Path>, driver: i32) -> Result<CublasLt> {
        let driver = driver / 1000;
        let newer = usize::try_from(NEWEST - driver).unwrap_or(0).min((NEWEST - OLDEST) as usize + 1);
        let words = Words {
            kind: Kind::Cuda.name(),
            files: FILES.get(newer..).filter(|files| !files.is_empty()).unwrap_or(FILES),
            prefix: "cublasLt",
            install: "install cuBLASLt, a part of the CUDA toolkit, for faster products",
            lacking: "so it is no cuBLASLt of CUDA 11 or later; update the CUDA toolkit",
        };
        let library = Opened::open(&words, chosen)?;
        let functions = Lt::find(&library, &words)?;
        let [major, minor] = VERSION.map(|part| {
            let mut number = 0;
            // SAFETY: the pointer is valid, and this function may be called at any time.
            let code = unsafe { (functions.property)(part, &mut number) };
            if code == 0 { number } else { 0 }
        });
        if !(OLDEST..=driver).contains(&major) {
            return Err(Error::unavailable(format!(
                "cuda: {} is cuBLASLt {major}.{minor}, this program needs {OLDEST}.0 or later and the driver {driver}.x or earlier; install \
                 that of CUDA {driver}",
                library.file
            )));
        }
        let title = format!("cuBLASLt {major}.{minor} ({})", library.file);
        Ok(CublasLt { functions: Arc::new(functions), title, _library: library })
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
        let mut raw = 0;
        // SAFETY: the pointer is valid and the context current.
        check(unsafe { (self.functions.create)(&mut raw) })?;
        let capability = context.traits.architecture.trim_start_matches("sm_").parse().unwrap_or(0);
        let workspace = WORKSPACE[usize::from(capability < 90)];
        let (functions, context) = (self.functions.clone(), context.clone());
        let started = Started { raw, functions, context, capability, workspace };
        Ok(Box::new(Arc::new(started)))
    }
}

/// The library at work on a device.
struct Started {
    raw: Handle,
    functions: Arc<Lt>,
    context: Arc<Context>,
    /// Ten times the major version plus the minor one.
    capability: u32,
    workspace: usize,
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // SAFETY: nobody else has the handle.
            unsafe { (self.functions.destroy)(self.raw) };
        }
    }
}

impl Blas for Arc<Started> {
    fn workspace(&self) -> usize {
        self.workspace
    }

    fn ready(&self, product: &Product, alignments: [u32; 3], workspace: usize) -> Result<Option<Arc<dyn Ready>>, i32> {
        let Some(types) = Types::of(product, self.capability) else { return Ok(None) };
        let lt = &*self.functions;
        let mut matmul = Matmul {
            operation: 0,
            layouts: [0; 3],
            algorithm: [0; 8],
            workspace: 0,
            wide: product.dtype == DType::F64,
            bias: product.bias.then(Mutex::default),
            started: self.clone(),
        };
        matmul.describe(product, &types)?;
        let preference = Preference::new(lt)?;
        preference.set(MAX_WORKSPACE, &(workspace as u64))?;
        preference.set(REDUCTION_SCHEMES, &types.reductions)?;
        let [a, b, c] = alignments;
        MIN_ALIGNMENT.iter().zip([a, b, c, c]).try_for_each(|(attribute, bytes)| preference.set(*attribute, &bytes))?;
        let ([a, b, c], operation, mut found, mut count) = (matmul.layouts, matmul.operation, Heuristic::default(), 0);
        // SAFETY: all are live, and there is room for the one that is asked for.
        let code =
            unsafe { (lt.heuristic)(self.raw, operation, a, b, c, c, preference.raw, 1, &mut found, &mut count) };
        if NOT_HERE.contains(&code) || code == 0 && (count == 0 || NOT_HERE.contains(&found.state)) {
            return Ok(None);
        }
        check(code).and(check(found.state))?;
        (matmul.algorithm, matmul.workspace) = (found.algorithm, found.workspace);
        Ok(Some(Arc::new(matmul)))
    }
}

/// A type of elements in NVIDIA's numbers.
struct Types {
    /// cublasComputeType_t.
    compute: i32,
    /// cudaDataType_t of alpha and beta.
    scale: i32,
    /// cudaDataType_t of the elements.
    elements: i32,
    /// How the parts of a sum that was divided may be added.
    reductions: u32,
}

impl Types {
    fn of(product: &Product, capability: u32) -> Option<Types> {
        let halves = matches!(product.dtype, DType::F16 | DType::BF16);
        if product.tf32 && (product.dtype != DType::F32 || capability < TF32_FROM) || product.bias && halves {
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
}

/// What is preferred of an algorithm.
struct Preference<'a> {
    raw: Handle,
    lt: &'a Lt,
}

impl Preference<'_> {
    fn new(lt: &Lt) -> Result<Preference<'_>, i32> {
        let mut raw = 0;
        // SAFETY: the pointer is valid.
        check(unsafe { (lt.preference_create)(&mut raw) })?;
        Ok(Preference { raw, lt })
    }

    fn set<T>(&self, attribute: i32, value: &T) -> Result<(), i32> {
        // SAFETY: the preference is live, and the value has as many bytes as the attribute.
        check(unsafe { (self.lt.preference_set)(self.raw, attribute, ptr::from_ref(value).cast(), size_of::<T>()) })
    }
}

impl Drop for Preference<'_> {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { (self.lt.preference_destroy)(self.raw) };
    }
}

/// A product with the way to do it.
struct Matmul {
    operation: Handle,
    /// Of both factors and the result.
    layouts: [Handle; 3],
    algorithm: Algorithm,
    workspace: usize,
    /// Whether alpha and beta are f64.
    wide: bool,
    /// Held while the operation names the bias of one run, if it has one.
    bias: Option<Mutex<()>>,
    started: Arc<Started>,
}

impl Matmul {
    /// Describes a product to the library.
    fn describe(&mut self, product: &Product, types: &Types) -> Result<(), i32> {
        let lt = &*self.started.functions;
        // SAFETY: the pointer is valid.
        check(unsafe { (lt.operation_create)(&mut self.operation, types.compute, types.scale) })?;
        for (attribute, matrix) in TRANSPOSE.into_iter().zip([product.left, product.right]) {
            if matrix.transposed {
                self.set(attribute, &TRANSPOSED)?;
            }
        }
        if product.bias {
            self.set(EPILOGUE, &BIAS)?;
            // Wherever one lies it is aligned to its elements: this address says no more.
            self.set(BIAS_POINTER, &(product.dtype.bytes() as DevicePtr))?;
        }
        let (matrices, stored) = (product.matrices(), product.stored());
        for (layout, (matrix, (rows, columns))) in self.layouts.iter_mut().zip(matrices.into_iter().zip(stored)) {
            let Matrix { leading, batch, .. } = matrix;
            let create = lt.layout_create;
            // SAFETY: the pointer is valid.
            check(unsafe { create(layout, types.elements, rows as u64, columns as u64, leading as i64) })?;
            if product.batch > 1 {
                let (count, offset) = (product.batch as i32, batch as i64);
                // SAFETY: the layout is live, and the values have as many bytes as the attributes.
                unsafe {
                    check((lt.layout_set)(*layout, BATCH_COUNT, ptr::from_ref(&count).cast(), size_of::<i32>()))?;
                    check((lt.layout_set)(*layout, BATCH_OFFSET, ptr::from_ref(&offset).cast(), size_of::<i64>()))?;
                }
            }
        }
        Ok(())
    }
}

impl Matmul {
    /// Sets an attribute of the operation.
    fn set<T>(&self, attribute: i32, value: &T) -> Result<(), i32> {
        let (set, value) = (self.started.functions.operation_set, ptr::from_ref(value).cast());
        // SAFETY: the operation is live, and the value has as many bytes as the attribute.
        check(unsafe { set(self.operation, attribute, value, size_of::<T>()) })
    }
}

impl Ready for Matmul {
    fn workspace(&self) -> usize {
        self.workspace
    }

    fn run(&self, [left, right, result]: [DevicePtr; 3], bias: DevicePtr, workspace: DevicePtr, stream: Handle) -> i32 {
        let _named = self.bias.as_ref().map(locked);
        if self.bias.is_some()
            && let Err(code) = self.set(BIAS_POINTER, &bias)
        {
            return code;
        }
        let (lt, [a, b, c]) = (&*self.started.functions, self.layouts);
        let (f32s, f64s) = ([1f32, 0.0], [1f64, 0.0]);
        let pointer = |at: usize| match self.wide {
            true => ptr::from_ref(&f64s[at]).cast::<c_void>(),
            false => ptr::from_ref(&f32s[at]).cast(),
        };
        let [alpha, beta] = [pointer(0), pointer(1)];
        // SAFETY: everything is live; the matrices lie inside their buffers, and the workspace is as large as the library's largest.
        unsafe {
            (lt.matmul)(
                self.started.raw,
                self.operation,
                alpha,
                left,
                a,
                right,
                b,
                beta,
                result,
                c,
                result,
                c,
                &self.algorithm,
                workspace,
                self.workspace,
                stream,
            )
        }
    }
}

impl Drop for Matmul {
    fn drop(&mut self) {
        let lt = &*self.started.functions;
        // SAFETY: nobody else has them; what was never made is not given back.
        unsafe {
            for layout in self.layouts.into_iter().filter(|layout| *layout != 0) {
                (lt.layout_destroy)(layout);
            }
            if self.operation != 0 {
                (lt.operation_destroy)(self.operation);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_kind_and_a_sentence() {
        CODES.check(&[
            (3, ErrorKind::OutOfMemory),
            (13, ErrorKind::Driver),
            (15, ErrorKind::Unsupported),
            (99, ErrorKind::Driver),
        ]);
    }
}
