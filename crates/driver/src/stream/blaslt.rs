//! Matrix products by cuBLASLt or hipBLASLt: AMD's library was made after NVIDIA's, with the same functions under other names, so there is one text
//! over a vendor's numbers ([`Numbers`]).
//!
//! Matrices are stored by columns. f16 and bf16 are summed in f32. Of the epilogues only the bias has the bits of our own kernel behind the
//! product, and only where the elements are those that sums are computed in: halves are added to before they are rounded.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex};

use panoply_device::DType;

use super::blas::{Blas, Ready};
use super::blas_gemm::{Matrix, Product};
use super::handles::{Context, Session};
use super::queue::Queue;
use crate::library::{DevicePtr, Handle, check, functions};
use crate::lock::locked;

functions! {
    /// The functions that both libraries have; each is what NVIDIA's and AMD's documentation say.
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
            Handle, Handle, Handle, Handle, Handle, Handle, Handle, i32, *mut Found, *mut i32,
        ) "cublasLtMatmulAlgoGetHeuristic" "hipblasLtMatmulAlgoGetHeuristic";
        matmul(
            Handle, Handle, *const c_void, DevicePtr, Handle, DevicePtr, Handle, *const c_void, DevicePtr, Handle, DevicePtr, Handle,
            *const Found, DevicePtr, usize, Handle,
        ) "cublasLtMatmul" "hipblasLtMatmul";
    }
    optional {}
}

/// Room for either vendor's matmulHeuristicResult_t, whose first part is the algorithm; NVIDIA's is the larger one, of 96 bytes.
type Found = [u64; 12];

/// What the two libraries say otherwise.
pub struct Numbers {
    /// The attributes of an operation for its factors' transposition, and what stands for a transposition.
    pub transpose: [i32; 2],
    /// HIPBLAS_OP_T or CUBLAS_OP_T.
    pub transposed: i32,
    /// The attribute for what the result goes through, that for the bias' address, and the epilogue that adds it.
    pub epilogue: i32,
    pub bias_pointer: i32,
    pub bias: i32,
    /// The attributes of a matrix: how many there are, and elements from one to the next.
    pub batch_count: i32,
    pub batch_offset: i32,
    /// The attribute of a preference for the most workspace.
    pub max_workspace: i32,
    /// That for the ways in which parts of a sum may be added, where that can be said.
    pub reduction_schemes: Option<i32>,
    /// Those for the alignments of A, B, C and D, where they can be said.
    pub min_alignment: Option<[i32; 4]>,
    /// Codes of an algorithm that was asked for and is not there.
    pub not_here: &'static [i32],
    /// Words of 64 bits of an algorithm; the workspace, in bytes, and the state follow it.
    pub algorithm_words: usize,
    /// Whether a product writes to its operation, of which only one may be under way then.
    pub writes_operation: bool,
    /// Whether a handle is for one stream only.
    pub handle_per_queue: bool,
    /// The product's types on a device of an architecture; none if the library is not to do it.
    pub types: fn(&Product, &str) -> Option<Types>,
    /// What must hold before a handle is made.
    pub before: fn(&Context) -> Result<(), i32>,
}

/// A type of elements in a vendor's numbers.
pub struct Types {
    /// What is computed in.
    pub compute: i32,
    /// The type of alpha and beta.
    pub scale: i32,
    /// The type of the elements.
    pub elements: i32,
    /// How the parts of a sum that was divided may be added, where that can be said.
    pub reductions: u32,
}

/// A library's functions and numbers.
#[derive(Clone)]
pub struct Interface {
    pub functions: Arc<Lt>,
    pub numbers: &'static Numbers,
}

impl Interface {
    /// A handle on a device, which is the thread's own.
    pub fn session(&self, context: &Arc<Context>) -> Result<Session, i32> {
        (self.numbers.before)(context)?;
        let mut raw = 0;
        // SAFETY: the pointer is valid and the device the thread's own.
        check(unsafe { (self.functions.create)(&mut raw) })?;
        Ok(Session { raw, destroy: self.functions.destroy, context: context.clone() })
    }

    /// The library at work through a handle, with so much workspace at most.
    pub fn start(&self, session: Session, workspace: usize) -> Box<dyn Blas> {
        Box::new(Arc::new(Started { interface: self.clone(), session, workspace }))
    }
}

/// The library at work on a device.
struct Started {
    interface: Interface,
    session: Session,
    workspace: usize,
}

impl Blas for Arc<Started> {
    fn workspace(&self) -> usize {
        self.workspace
    }

    fn ready(&self, product: &Product, alignments: [u32; 3], workspace: usize) -> Result<Option<Arc<dyn Ready>>, i32> {
        let Interface { functions: lt, numbers } = &self.interface;
        let Some(types) = (numbers.types)(product, &self.session.context.traits.architecture) else { return Ok(None) };
        let mut matmul = Matmul {
            operation: 0,
            layouts: [0; 3],
            found: Found::default(),
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
        // SAFETY: all are live, and there is room for the one that is asked for.
        let code = unsafe { (lt.heuristic)(raw, operation, a, b, c, c, preference.raw, 1, found, &mut count) };
        let state = matmul.state();
        if numbers.not_here.contains(&code) || code == 0 && (count == 0 || numbers.not_here.contains(&state)) {
            return Ok(None);
        }
        check(code).and(check(state))?;
        Ok(Some(Arc::new(matmul)))
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
    /// The algorithm and what it needs.
    found: Found,
    /// Whether alpha and beta are f64.
    wide: bool,
    bias: bool,
    /// Held while the operation is one run's: it names its bias, or is written to.
    alone: Option<Mutex<()>>,
    started: Arc<Started>,
}

impl Matmul {
    /// Describes a product to the library.
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
            // Wherever one lies it is aligned to its elements: this address says no more.
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
                // SAFETY: the layout is live, and the values have as many bytes as the attributes.
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
        // SAFETY: the operation is live, and the value has as many bytes as the attribute.
        check(unsafe { set(self.operation, attribute, value, size_of::<T>()) })
    }

    /// The code that came with the algorithm, which is the first half of its word.
    fn state(&self) -> i32 {
        let [a, b, c, d, ..] = self.found[self.started.interface.numbers.algorithm_words + 1].to_ne_bytes();
        i32::from_ne_bytes([a, b, c, d])
    }

    /// The library's handle for a queue.
    fn session(&self, queue: &Queue) -> Result<Handle, i32> {
        let Started { interface, session, .. } = &*self.started;
        match interface.numbers.handle_per_queue {
            true => queue.session(|| interface.session(&session.context)),
            false => Ok(session.raw),
        }
    }
}

impl Ready for Matmul {
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
        // SAFETY: everything is live; the matrices lie inside their buffers, and the workspace is as large as the library's largest.
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
