//! Matrix products by cuBLASLt or hipBLASLt. AMD's library is modeled on NVIDIA's, with the same functions under other names, so there is
//! one implementation parameterized by a vendor's constants ([`Numbers`]).
//!
//! Matrices are column-major. f16 and bf16 are accumulated in f32. Of the epilogues only the bias gives bitwise the result of our own
//! kernel after the product, and only if the element type equals the compute type: to f16 and bf16 the library adds the bias before
//! rounding.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex};

use panoply_device::DType;

use super::blas::{Blas, PreparedGemm};
use super::blas_gemm::{Matrix, Product};
use super::handles::{Context, Session};
use super::queue::Queue;
use crate::library::{DevicePtr, Handle, check, functions};
use crate::lock::locked;

functions! {
    /// The functions that both libraries have; NVIDIA's and AMD's documentation describe them.
    Lt
    needed {
        create(*mut Handle) "cublasLtCreate" "hipblasLtCreate";
        destroy(Handle) "cublasLtDestroy" "hipblasLtDestroy";
        operation_create(*mut Handle, i32, i32) "cublasLtMatmulDescCreate" "hipblasLtMatmulDescCreate";
        operation_set(Handle, i32, *const c_void, usize) "cublasLtMatmulDescSetAttribute" "hipblasLtMatmulDescSetAttribute";
        operation_destroy(Handle) "cublasLtMatmulDescDestroy" "hipblasLtMatmulDescDestroy";
        layout_create(*mut Handle, i32, u64, u64, i64) "cublasLtMatrixLayoutCreate" "hipblasLtMatrixLayoutCreate";
        layout_set(Handle, i32, *const c_void, usize) "cublasLtMatrixLayoutSetAttribute" "hipblasLtMatrixLayoutSetAttribute";
        layout_destroy(Handle) "cublasLtMatrixLayoutDestroy" "hipblasLtMatrixLayoutDestroy";
        preference_create(*mut Handle) "cublasLtMatmulPreferenceCreate" "hipblasLtMatmulPreferenceCreate";
        preference_set(
            Handle, i32, *const c_void, usize,
        ) "cublasLtMatmulPreferenceSetAttribute" "hipblasLtMatmulPreferenceSetAttribute";
        preference_destroy(Handle) "cublasLtMatmulPreferenceDestroy" "hipblasLtMatmulPreferenceDestroy";
        heuristic(
            Handle, Handle, Handle, Handle, Handle, Handle, Handle, i32, *mut HeuristicResult, *mut i32,
        ) "cublasLtMatmulAlgoGetHeuristic" "hipblasLtMatmulAlgoGetHeuristic";
        matmul(
            Handle, Handle, *const c_void, DevicePtr, Handle, DevicePtr, Handle, *const c_void, DevicePtr, Handle, DevicePtr, Handle,
            *const HeuristicResult, DevicePtr, usize, Handle,
        ) "cublasLtMatmul" "hipblasLtMatmul";
    }
    optional {}
}

/// Buffer for either vendor's matmulHeuristicResult_t, which begins with the algorithm; NVIDIA's is the larger one, of 96 bytes.
type HeuristicResult = [u64; 12];

/// The constants that differ between the two libraries.
pub struct Numbers {
    /// The attributes of an operation for the transposition of its two factors.
    pub transpose: [i32; 2],
    /// HIPBLAS_OP_T or CUBLAS_OP_T.
    pub transposed: i32,
    /// The attribute for the epilogue, the attribute for the bias' address, and the epilogue that adds a bias.
    pub epilogue: i32,
    pub bias_pointer: i32,
    pub bias: i32,
    /// The attributes of a matrix layout for the number of batches and the batch stride.
    pub batch_count: i32,
    pub batch_offset: i32,
    /// The attribute of a preference for the largest workspace.
    pub max_workspace: i32,
    /// The attribute of a preference for the allowed reduction schemes, if the library has it.
    pub reduction_schemes: Option<i32>,
    /// The attributes of a preference for the alignments of A, B, C and D, if the library has them.
    pub min_alignment: Option<[i32; 4]>,
    /// Codes for an unsupported product.
    pub not_here: &'static [i32],
    /// Size of an algorithm in 64-bit words; it is followed by the workspace size in bytes and the state.
    pub algorithm_words: usize,
    /// True if running a product writes to its operation, which must then not be used by two runs at once.
    pub writes_operation: bool,
    /// True if a handle is for one stream only.
    pub handle_per_queue: bool,
    /// Returns the product's types on a device of an architecture; `None` if the library must not compute it.
    pub types: fn(&Product, &str) -> Option<Types>,
    /// Checks the precondition for creating a handle.
    pub before: fn(&Context) -> Result<(), i32>,
}

/// The types of a product, as a vendor's constants.
pub struct Types {
    /// The compute type.
    pub compute: i32,
    /// The type of alpha and beta.
    pub scale: i32,
    /// The type of the elements.
    pub elements: i32,
    /// Mask of the allowed reduction schemes for split sums, if the library has that setting.
    pub reductions: u32,
}

/// A library's functions and constants.
#[derive(Clone)]
pub struct Interface {
    pub functions: Arc<Lt>,
    pub numbers: &'static Numbers,
}

impl Interface {
    /// Creates a handle on a device, which is current on the thread.
    pub fn session(&self, context: &Arc<Context>) -> Result<Session, i32> {
        (self.numbers.before)(context)?;
        let mut raw = 0;
        // SAFETY: the pointer is valid and the device is current on this thread.
        check(unsafe { (self.functions.create)(&mut raw) })?;
        Ok(Session { raw, destroy: self.functions.destroy, context: context.clone() })
    }

    /// Returns the library with a handle and the largest workspace.
    pub fn start(&self, session: Session, workspace: usize) -> Box<dyn Blas> {
        Box::new(Arc::new(Started { interface: self.clone(), session, workspace }))
    }
}

/// An initialized library on a device.
struct Started {
    interface: Interface,
    session: Session,
    workspace: usize,
}

impl Blas for Arc<Started> {
    fn workspace(&self) -> usize {
        self.workspace
    }

    fn prepare(
        &self,
        product: &Product,
        alignments: [u32; 3],
        workspace: usize,
    ) -> Result<Option<Arc<dyn PreparedGemm>>, i32> {
        let Interface { functions: lt, numbers } = &self.interface;
        let Some(types) = (numbers.types)(product, &self.session.context.traits.architecture) else { return Ok(None) };
        let mut matmul = Matmul {
            operation: 0,
            layouts: [0; 3],
            found: HeuristicResult::default(),
            wide: product.dtype == DType::F64,
            bias: product.bias,
            alone: (product.bias || numbers.writes_operation).then(Mutex::default),
            started: self.clone(),
        };
        matmul.describe(product, &types)?;
        let preference = Preference::new(lt)?;
        preference.set(numbers.max_workspace, &(workspace as u64))?;
        numbers.reduction_schemes.map_or(Ok(()), |attribute| preference.set(attribute, &types.reductions))?;
        let [a, b, c] = alignments;
        let attributes = numbers.min_alignment.into_iter().flatten();
        attributes.zip([a, b, c, c]).try_for_each(|(attribute, bytes)| preference.set(attribute, &bytes))?;
        let ([a, b, c], operation, mut count) = (matmul.layouts, matmul.operation, 0);
        let (raw, found) = (self.session.raw, &mut matmul.found);
        // SAFETY: all objects are live, and there is room for the one result that is requested.
        let code = unsafe { (lt.heuristic)(raw, operation, a, b, c, c, preference.raw, 1, found, &mut count) };
        let state = matmul.state();
        if numbers.not_here.contains(&code) || code == 0 && (count == 0 || numbers.not_here.contains(&state)) {
            return Ok(None);
        }
        check(code).and(check(state))?;
        Ok(Some(Arc::new(matmul)))
    }
}

/// A preference for the heuristic that selects an algorithm.
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
        // SAFETY: the preference is live, and the value has the size of the attribute.
        check(unsafe { (self.lt.preference_set)(self.raw, attribute, ptr::from_ref(value).cast(), size_of::<T>()) })
    }
}

impl Drop for Preference<'_> {
    fn drop(&mut self) {
        // SAFETY: this is the only reference to it.
        unsafe { (self.lt.preference_destroy)(self.raw) };
    }
}

/// A product with its algorithm.
struct Matmul {
    operation: Handle,
    /// The layouts of both factors and the result.
    layouts: [Handle; 3],
    /// The algorithm and its requirements.
    found: HeuristicResult,
    /// True if alpha and beta are f64.
    wide: bool,
    bias: bool,
    /// Held during a run if the operation belongs to that run: its bias is set in it, or the run writes to it.
    alone: Option<Mutex<()>>,
    started: Arc<Started>,
}

impl Matmul {
    /// Creates the operation and the layouts of a product.
    fn describe(&mut self, product: &Product, types: &Types) -> Result<(), i32> {
        let Interface { functions: lt, numbers } = &self.started.interface;
        // SAFETY: the pointer is valid.
        check(unsafe { (lt.operation_create)(&mut self.operation, types.compute, types.scale) })?;
        for (attribute, matrix) in numbers.transpose.into_iter().zip([product.left, product.right]) {
            if matrix.transposed {
                self.set(attribute, &numbers.transposed)?;
            }
        }
        if product.bias {
            self.set(numbers.epilogue, &numbers.bias)?;
            // A bias is always aligned to its elements; this address guarantees no more.
            self.set(numbers.bias_pointer, &(product.dtype.bytes() as DevicePtr))?;
        }
        let (matrices, stored) = (product.matrices(), product.stored());
        for (layout, (matrix, (rows, columns))) in self.layouts.iter_mut().zip(matrices.into_iter().zip(stored)) {
            let Matrix { leading, batch, .. } = matrix;
            let create = lt.layout_create;
            // SAFETY: the pointer is valid.
            check(unsafe { create(layout, types.elements, rows as u64, columns as u64, leading as i64) })?;
            if product.batch > 1 {
                let (count, offset) = (product.batch as i32, batch as i64);
                let (count, offset) = (ptr::from_ref(&count).cast(), ptr::from_ref(&offset).cast());
                // SAFETY: the layout is live, and the values have the sizes of the attributes.
                unsafe {
                    check((lt.layout_set)(*layout, numbers.batch_count, count, size_of::<i32>()))?;
                    check((lt.layout_set)(*layout, numbers.batch_offset, offset, size_of::<i64>()))?;
                }
            }
        }
        Ok(())
    }

    /// Sets an attribute of the operation.
    fn set<T>(&self, attribute: i32, value: &T) -> Result<(), i32> {
        let (set, value) = (self.started.interface.functions.operation_set, ptr::from_ref(value).cast());
        // SAFETY: the operation is live, and the value has the size of the attribute.
        check(unsafe { set(self.operation, attribute, value, size_of::<T>()) })
    }

    /// Returns the state of the found algorithm, which is the first half of its word.
    fn state(&self) -> i32 {
        let [a, b, c, d, ..] = self.found[self.started.interface.numbers.algorithm_words + 1].to_ne_bytes();
        i32::from_ne_bytes([a, b, c, d])
    }

    /// Returns the library's handle for a queue.
    fn session(&self, queue: &Queue) -> Result<Handle, i32> {
        let Started { interface, session, .. } = &*self.started;
        match interface.numbers.handle_per_queue {
            true => queue.session(|| interface.session(&session.context)),
            false => Ok(session.raw),
        }
    }
}

impl PreparedGemm for Matmul {
    fn workspace(&self) -> usize {
        self.found[self.started.interface.numbers.algorithm_words] as usize
    }

    fn run(&self, matrices: [DevicePtr; 3], bias: DevicePtr, workspace: DevicePtr, queue: &Queue) -> Result<(), i32> {
        let session = self.session(queue)?;
        let _alone = self.alone.as_ref().map(locked);
        if self.bias {
            self.set(self.started.interface.numbers.bias_pointer, &bias)?;
        }
        let ([left, right, result], [a, b, c]) = (matrices, self.layouts);
        let (f32s, f64s) = ([1f32, 0.0], [1f64, 0.0]);
        let pointer = |at: usize| match self.wide {
            true => ptr::from_ref(&f64s[at]).cast::<c_void>(),
            false => ptr::from_ref(&f32s[at]).cast(),
        };
        let ([alpha, beta], room) = ([pointer(0), pointer(1)], self.workspace());
        // SAFETY: all objects are live; the matrices are inside their buffers, and the workspace has the size of the library's largest.
        check(unsafe {
            (self.started.interface.functions.matmul)(
                session,
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
                &self.found,
                workspace,
                room,
                queue.stream.raw,
            )
        })
    }
}

impl Drop for Matmul {
    fn drop(&mut self) {
        let lt = &*self.started.interface.functions;
        // SAFETY: this is the only reference to them; objects that were not created are skipped.
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
