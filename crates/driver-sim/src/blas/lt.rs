//! cuBLASLt, from NVIDIA's documentation of CUDA 12, and hipBLASLt, from AMD's headers of 0.10. Both have one implementation, because AMD's
//! is modeled on NVIDIA's with other constants ([`Dialect`]).
//!
//! Descriptors are checked when an algorithm is queried and again when it is used; an algorithm is valid only for the product that it was
//! queried for. From a depth of 128 on the best algorithm splits sums and requires workspace: NVIDIA's in the way that the preference
//! allows, AMD's so that partial sums are added in a different order in every run. AMD's handles belong to the stream they were first used
//! on, allocate memory of the device, and end the process if there is none.

use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Matrix, Product, Sum, Ty, on_device};
use crate::cuda::api::{exported, give};
use crate::cuda::state::State;
use crate::cuda::streams::StreamCommand;

/// The depth from which sums are split, and the size of the workspace that this takes.
const DIVIDED_FROM: u64 = 128;
const DIVIDED_BYTES: u64 = 1 << 20;
/// The device memory that AMD's handles take, and the architectures they have kernels for, in the configuration's notation.
const HANDLE_BYTES: u64 = 25 << 20;
const KERNELS: [u64; 3] = [0x90a, 0x942, 0x1100];

/// The constants of a vendor.
pub struct Dialect {
    hip: bool,
    not_initialized: i32,
    invalid_value: i32,
    internal_error: i32,
    not_supported: i32,
    /// CUBLAS_OP_N and T, or HIPBLAS_OP_N and T.
    operations: [i32; 2],
    /// Attributes of an operation: transpositions, the epilogue, the bias' address.
    transpose: [i32; 2],
    epilogue: i32,
    bias_pointer: i32,
    /// Attributes of a matrix.
    batch_count: i32,
    batch_offset: i32,
    /// Attributes of a preference that only NVIDIA's library has: reduction schemes and alignments.
    reductions: Option<i32>,
    alignments: Option<[i32; 4]>,
    /// The required alignment of the workspace.
    workspace_align: u64,
}

const CUDA: Dialect = Dialect {
    hip: false,
    not_initialized: 1,
    invalid_value: 7,
    internal_error: 14,
    not_supported: 15,
    operations: [0, 1],
    transpose: [3, 4],
    epilogue: 7,
    bias_pointer: 8,
    batch_count: 5,
    batch_offset: 6,
    reductions: Some(3),
    alignments: Some([5, 6, 7, 8]),
    workspace_align: 256,
};

const HIP: Dialect = Dialect {
    hip: true,
    not_initialized: 1,
    invalid_value: 3,
    internal_error: 6,
    not_supported: 7,
    operations: [111, 112],
    transpose: [0, 1],
    epilogue: 2,
    bias_pointer: 3,
    batch_count: 0,
    batch_offset: 1,
    reductions: None,
    alignments: None,
    workspace_align: 16,
};

/// Returns the vendor of a function.
fn dialect(name: &str) -> &'static Dialect {
    if name.starts_with("hip") { &HIP } else { &CUDA }
}

impl Dialect {
    /// Returns true if these types are supported: compute, scale, A, B and D, as in the documentation's table of types.
    fn takes(&self, types: (i32, i32, i32, i32, i32), state: &State) -> bool {
        if self.hip {
            return KERNELS.contains(&state.config.architecture)
                && matches!(types, (2, 0, 0, 0, 0) | (2, 0, 2, 2, 2) | (2, 0, 14, 14, 14) | (7, 1, 1, 1, 1));
        }
        match types {
            (68, 0, 0, 0, 0) | (77, 0, 0, 0, 0) | (70, 1, 1, 1, 1) | (68, 0, 2, 2, 2) | (68, 0, 2, 2, 0) => true,
            (68, 0, 14, 14, 14) | (68, 0, 14, 14, 0) => state.config.capability >= 80,
            _ => false,
        }
    }

    /// Returns how a sum is computed, from the compute type, the reduction scheme and whether it is split.
    fn sum(&self, compute: i32, scheme: u64, divided: bool, call: u64) -> Sum {
        match compute {
            77 => Sum::Tf32,
            70 | 7 => Sum::F64,
            _ if divided && self.hip => Sum::Unordered(call),
            // In place, or in the type of the result.
            _ if scheme == 1 || divided && scheme == 0 => Sum::Parts,
            _ => Sum::F32,
        }
    }
}

/// All objects that were created and not destroyed.
#[derive(Default)]
pub struct Objects {
    handles: HashMap<u64, Handle>,
    operations: HashMap<u64, Operation>,
    /// The address of the bias of an operation.
    biases: HashMap<u64, u64>,
    layouts: HashMap<u64, Layout>,
    preferences: HashMap<u64, Preference>,
    /// Number of products so far, which varies the order of partial sums.
    unordered: u64,
}

impl Objects {
    /// Returns the number of objects.
    pub fn live(&self) -> usize {
        self.handles.len() + self.operations.len() + self.layouts.len() + self.preferences.len()
    }
}

struct Handle {
    device: usize,
    /// The memory of AMD's handle, and the stream that it was first used on.
    memory: u64,
    stream: Option<u64>,
}

#[derive(Clone, Copy, Hash)]
struct Operation {
    compute: i32,
    scale: i32,
    transposed: [bool; 2],
    /// cublasLtEpilogue_t and hipblasLtEpilogue_t: 1 is none, 4 adds the bias.
    epilogue: i32,
}

#[derive(Clone, Copy, Hash, PartialEq, Eq)]
struct Layout {
    ty: i32,
    rows: u64,
    columns: u64,
    leading: i64,
    count: i32,
    offset: i64,
}

#[derive(Clone, Copy)]
struct Preference {
    workspace: u64,
    reductions: u32,
    /// The alignments of A, B, C and D.
    alignments: [u32; 4],
}

/// The contents of an algorithm: hash of the product, required alignments, workspace, reduction scheme, and 1 if sums are split.
type Algorithm = [u64; 8];

/// The words of a heuristic result: the algorithm (three words for AMD), the workspace, state and utilization, four reserved words.
pub type Heuristic = [u64; 12];

impl Dialect {
    fn write(&self, algorithm: &Algorithm) -> Heuristic {
        let (mut words, waves) = ([0; 12], u64::from(1f32.to_bits()) << 32);
        if self.hip {
            let [mark, .., workspace, _, _, _] = *algorithm;
            words[..5].copy_from_slice(&[mark, workspace, workspace, workspace, waves]);
        } else {
            words[..8].copy_from_slice(algorithm);
            words[8..10].copy_from_slice(&[algorithm[4], waves]);
        }
        words
    }

    /// # Safety
    /// `from` must point at the words of an algorithm.
    unsafe fn read(&self, from: *const u64, width: u64) -> Algorithm {
        if self.hip {
            // SAFETY: guaranteed by the caller.
            let [mark, workspace, _] = unsafe { from.cast::<[u64; 3]>().read() };
            return [mark, width, width, width, workspace, 0, u64::from(workspace > 0), 0];
        }
        // SAFETY: guaranteed by the caller.
        unsafe { from.cast::<Algorithm>().read() }
    }
}

/// A product as described by the caller's objects.
struct MatmulDescription {
    operation: Operation,
    /// A, B, C and D.
    layouts: [Layout; 4],
    by: &'static Dialect,
}

impl MatmulDescription {
    fn of(state: &State, by: &'static Dialect, operation: u64, layouts: [u64; 4]) -> Result<MatmulDescription, i32> {
        let objects = &state.lt;
        let operation = *objects.operations.get(&operation).ok_or(by.invalid_value)?;
        let mut found = [None; 4];
        for (to, layout) in found.iter_mut().zip(layouts) {
            *to = objects.layouts.get(&layout).copied();
        }
        let [Some(a), Some(b), Some(c), Some(d)] = found else { return Err(by.invalid_value) };
        let described = MatmulDescription { operation, layouts: [a, b, c, d], by };
        described.check(state)?;
        Ok(described)
    }

    /// Returns the rows of the result, its columns, and the depth.
    fn extents(&self) -> (u64, u64, u64) {
        let [a, b, ..] = self.layouts;
        let [left, right] = self.operation.transposed;
        let (m, k) = if left { (a.columns, a.rows) } else { (a.rows, a.columns) };
        (m, if right { b.rows } else { b.columns }, k)
    }

    fn check(&self, state: &State) -> Result<(), i32> {
        let [a, b, c, d] = self.layouts;
        let (m, n, k) = self.extents();
        let inner = if self.operation.transposed[1] { b.columns } else { b.rows };
        let fits = inner == k && [c, d].iter().all(|layout| (layout.rows, layout.columns) == (m, n));
        let leads = |layout: &Layout| layout.leading >= layout.rows.max(1) as i64;
        let counts = self.layouts.iter().all(|layout| layout.count == d.count && layout.count >= 1);
        // Results of a batch must not overlap; factors can be shared.
        let apart = d.count == 1 || d.offset >= d.leading * (d.columns as i64 - 1) + d.rows as i64;
        if !fits || !self.layouts.iter().all(leads) || !counts || !apart || c != d || m * n * k == 0 {
            return Err(self.by.invalid_value);
        }
        // The activations are not specified precisely enough to be computed here.
        if !matches!(self.operation.epilogue, 1 | 4) {
            return Err(self.by.not_supported);
        }
        let types = (self.operation.compute, self.operation.scale, a.ty, b.ty, d.ty);
        if self.by.takes(types, state) { Ok(()) } else { Err(self.by.not_supported) }
    }

    fn mark(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.operation, self.layouts).hash(&mut hasher);
        hasher.finish() | 1
    }

    fn matrix(&self, which: usize, address: u64) -> Result<Matrix, i32> {
        let Layout { ty, rows, columns, leading, offset, .. } = self.layouts[which];
        let ty = match ty {
            0 => Ty::F32,
            1 => Ty::F64,
            2 => Ty::F16,
            14 => Ty::BF16,
            _ => return Err(self.by.not_supported),
        };
        let transposed = self.operation.transposed.get(which).copied().unwrap_or(false);
        Ok(Matrix { address, ty, rows, columns, leading: leading as u64, stride: offset as u64, transposed })
    }
}

/// Reads an attribute's value, whose size must be `bytes`.
///
/// # Safety
/// `from` must have `bytes` bytes.
unsafe fn value<T: Copy>(by: &Dialect, from: *const c_void, bytes: usize) -> Result<T, i32> {
    if bytes != size_of::<T>() || from.is_null() {
        return Err(by.invalid_value);
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { from.cast::<T>().read_unaligned() })
}

exported! {
    fn cublasLtGetProperty(property: i32, to: *mut i32) {
        State::call(NAME, |state| {
            let part = *[state.config.cublas, 4, 1].get(property as usize).ok_or(CUDA.invalid_value)?;
            // SAFETY: the caller's pointer.
            unsafe { give(to, part) };
            Ok(())
        })
    }

    fn hipblasLtGetVersion(handle: u64, to: *mut i32) {
        State::call(NAME, |state| {
            state.lt.handles.get(&handle).ok_or(HIP.not_initialized)?;
            // SAFETY: the caller's pointer.
            unsafe { give(to, state.config.hipblaslt) };
            Ok(())
        })
    }

    fn [cublasLtCreate hipblasLtCreate](handle: *mut u64) {
        let by = dialect(NAME);
        on_device(NAME, by.not_initialized, |state, device| {
            let mut memory = 0;
            if by.hip {
                let on = &mut state.devices[device].memory;
                if state.config.memory - on.used < HANDLE_BYTES {
                    eprintln!("Hip error: 'out of memory'(2)");
                    std::process::exit(1);
                }
                memory = on.allocate(HANDLE_BYTES);
            }
            let new = state.handle();
            state.lt.handles.insert(new, Handle { device, memory, stream: None });
            // SAFETY: the caller's pointer.
            unsafe { give(handle, new) };
            Ok(())
        })
    }

    fn [cublasLtDestroy hipblasLtDestroy](handle: u64) {
        let by = dialect(NAME);
        on_device(NAME, by.not_initialized, |state, _| {
            let Handle { device, memory, .. } = state.lt.handles.remove(&handle).ok_or(by.not_initialized)?;
            if memory != 0 {
                state.devices[device].memory.free(memory);
            }
            Ok(())
        })
    }

    fn [cublasLtMatmulDescCreate hipblasLtMatmulDescCreate](operation: *mut u64, compute: i32, scale: i32) {
        State::call(NAME, |state| {
            let new = state.handle();
            state.lt.operations.insert(new, Operation { compute, scale, transposed: [false; 2], epilogue: 1 });
            // SAFETY: the caller's pointer.
            unsafe { give(operation, new) };
            Ok(())
        })
    }

    fn [cublasLtMatmulDescSetAttribute hipblasLtMatmulDescSetAttribute](operation: u64, attribute: i32, from: *const c_void, bytes: usize) {
        State::call(NAME, |state| {
            let by = dialect(NAME);
            let known = state.lt.operations.get_mut(&operation).ok_or(by.invalid_value)?;
            if attribute == by.bias_pointer {
                // SAFETY: the caller's bytes.
                state.lt.biases.insert(operation, unsafe { value(by, from, bytes) }?);
                return Ok(());
            }
            // SAFETY: the caller's bytes.
            let number = unsafe { value::<i32>(by, from, bytes) }?;
            if let Some(which) = by.transpose.iter().position(|of| *of == attribute) {
                known.transposed[which] = by.operations.iter().position(|of| *of == number).ok_or(by.invalid_value)? == 1;
                return Ok(());
            }
            // None, RELU, BIAS, RELU_BIAS, GELU, GELU_BIAS.
            if attribute != by.epilogue || ![1, 2, 4, 6, 32, 36].contains(&number) {
                return Err(by.invalid_value);
            }
            known.epilogue = number;
            Ok(())
        })
    }

    fn [cublasLtMatmulDescDestroy hipblasLtMatmulDescDestroy](operation: u64) {
        State::call(NAME, |state| {
            state.lt.biases.remove(&operation);
            state.lt.operations.remove(&operation).map(drop).ok_or(dialect(NAME).invalid_value)
        })
    }

    fn [cublasLtMatrixLayoutCreate hipblasLtMatrixLayoutCreate](layout: *mut u64, ty: i32, rows: u64, columns: u64, leading: i64) {
        State::call(NAME, |state| {
            let new = state.handle();
            state.lt.layouts.insert(new, Layout { ty, rows, columns, leading, count: 1, offset: 0 });
            // SAFETY: the caller's pointer.
            unsafe { give(layout, new) };
            Ok(())
        })
    }

    fn [cublasLtMatrixLayoutSetAttribute hipblasLtMatrixLayoutSetAttribute](layout: u64, attribute: i32, from: *const c_void, bytes: usize) {
        State::call(NAME, |state| {
            let by = dialect(NAME);
            let layout = state.lt.layouts.get_mut(&layout).ok_or(by.invalid_value)?;
            // SAFETY: the caller's bytes.
            unsafe {
                match attribute {
                    of if of == by.batch_count => layout.count = value(by, from, bytes)?,
                    of if of == by.batch_offset => layout.offset = value(by, from, bytes)?,
                    _ => return Err(by.invalid_value),
                }
            }
            Ok(())
        })
    }

    fn [cublasLtMatrixLayoutDestroy hipblasLtMatrixLayoutDestroy](layout: u64) {
        State::call(NAME, |state| state.lt.layouts.remove(&layout).map(drop).ok_or(dialect(NAME).invalid_value))
    }

    fn [cublasLtMatmulPreferenceCreate hipblasLtMatmulPreferenceCreate](preference: *mut u64) {
        State::call(NAME, |state| {
            let new = state.handle();
            state.lt.preferences.insert(new, Preference { workspace: 0, reductions: 7, alignments: [256; 4] });
            // SAFETY: the caller's pointer.
            unsafe { give(preference, new) };
            Ok(())
        })
    }

    fn [cublasLtMatmulPreferenceSetAttribute hipblasLtMatmulPreferenceSetAttribute](preference: u64, attribute: i32, from: *const c_void, bytes: usize) {
        State::call(NAME, |state| {
            let by = dialect(NAME);
            let preference = state.lt.preferences.get_mut(&preference).ok_or(by.invalid_value)?;
            let aligned = by.alignments.and_then(|all| all.iter().position(|of| *of == attribute));
            // SAFETY: the caller's bytes.
            unsafe {
                match aligned {
                    Some(which) => preference.alignments[which] = value(by, from, bytes)?,
                    None if attribute == 1 => preference.workspace = value(by, from, bytes)?,
                    None if Some(attribute) == by.reductions => preference.reductions = value(by, from, bytes)?,
                    None => return Err(by.invalid_value),
                }
            }
            Ok(())
        })
    }

    fn [cublasLtMatmulPreferenceDestroy hipblasLtMatmulPreferenceDestroy](preference: u64) {
        State::call(NAME, |state| state.lt.preferences.remove(&preference).map(drop).ok_or(dialect(NAME).invalid_value))
    }

    fn [cublasLtMatmulAlgoGetHeuristic hipblasLtMatmulAlgoGetHeuristic](
        handle: u64,
        operation: u64,
        a: u64,
        b: u64,
        c: u64,
        d: u64,
        preference: u64,
        wanted: i32,
        results: *mut u64,
        count: *mut i32,
    ) {
        let by = dialect(NAME);
        on_device(NAME, by.internal_error, |state, device| {
            if state.lt.handles.get(&handle).is_none_or(|handle| handle.device != device) {
                return Err(by.not_initialized);
            }
            let preference = *state.lt.preferences.get(&preference).ok_or(by.invalid_value)?;
            if wanted < 1 || results.is_null() || count.is_null() {
                return Err(by.invalid_value);
            }
            let described = MatmulDescription::of(state, by, operation, [a, b, c, d])?;
            let (scheme, workspace) = if described.extents().2 < DIVIDED_FROM {
                (0, 0)
            } else {
                match preference.reductions {
                    _ if by.hip && preference.workspace >= DIVIDED_BYTES => (0, DIVIDED_BYTES),
                    _ if by.hip => (0, 0),
                    schemes if schemes & 1 != 0 => (1, 0),
                    schemes if schemes & 6 != 0 && preference.workspace >= DIVIDED_BYTES => (schemes & 2, DIVIDED_BYTES),
                    _ => (0, 0),
                }
            };
            let [a, b, _, d] = preference.alignments.map(|bytes| u64::from(bytes.min(16)));
            let scheme = u64::from(scheme);
            let algorithm = [described.mark(), a, b, d, workspace, scheme, u64::from(workspace > 0), 0];
            let words = by.write(&algorithm);
            let length = if by.hip { 7 } else { 12 };
            // SAFETY: the caller's pointers; there is room for the vendor's structure.
            unsafe {
                std::ptr::copy_nonoverlapping(words.as_ptr(), results, length);
                give(count, 1);
            }
            Ok(())
        })
    }

    fn [cublasLtMatmul hipblasLtMatmul](
        handle: u64,
        operation: u64,
        alpha: *const c_void,
        a: u64,
        a_layout: u64,
        b: u64,
        b_layout: u64,
        beta: *const c_void,
        c: u64,
        c_layout: u64,
        d: u64,
        d_layout: u64,
        algorithm: *const u64,
        workspace: u64,
        bytes: usize,
        stream: u64,
    ) {
        let by = dialect(NAME);
        on_device(NAME, by.internal_error, |state, device| {
            let known = state.lt.handles.get_mut(&handle).filter(|handle| handle.device == device);
            let known = known.ok_or(by.not_initialized)?;
            if by.hip && *known.stream.get_or_insert(stream) != stream {
                return Err(by.internal_error);
            }
            let described = MatmulDescription::of(state, by, operation, [a_layout, b_layout, c_layout, d_layout])?;
            let width = described.matrix(3, d)?.ty.bytes();
            // SAFETY: the caller's structure.
            let algorithm = unsafe { by.read(algorithm, width) };
            let [mark, a_align, b_align, d_align, needed, scheme, divided, _] = algorithm;
            let aligned = [(a, a_align), (b, b_align), (c, d_align), (d, d_align)];
            let aligned = aligned.iter().all(|(address, align)| address.is_multiple_of((*align).max(1)));
            let room = bytes as u64 >= needed && (needed == 0 || workspace != 0 && workspace.is_multiple_of(by.workspace_align));
            if mark != described.mark() || !aligned || !room || c != d {
                return Err(by.invalid_value);
            }
            if state.streams.get(&stream).is_none_or(|stream| stream.device != device) {
                return Err(by.invalid_value);
            }
            let bias = match described.operation.epilogue {
                4 => Some(*state.lt.biases.get(&operation).ok_or(by.invalid_value)?),
                _ => None,
            };
            // The bias has the result's type and one element per row of the result.
            if bias.is_some_and(|at| at == 0 || !at.is_multiple_of(width)) {
                return Err(by.invalid_value);
            }
            let wide = described.operation.scale == 1;
            let scalar = |from: *const c_void| {
                // SAFETY: the caller's numbers, of the scale type.
                unsafe { if wide { from.cast::<f64>().read() } else { f64::from(from.cast::<f32>().read()) } }
            };
            state.lt.unordered += 1;
            let sum = by.sum(described.operation.compute, scheme, divided != 0, state.lt.unordered);
            let product = Product {
                batch: described.layouts[3].count as u64,
                depth: described.extents().2,
                a: described.matrix(0, a)?,
                b: described.matrix(1, b)?,
                c: described.matrix(3, d)?,
                alpha: scalar(alpha),
                beta: scalar(beta),
                sum,
                bias,
                workspace: (workspace, needed),
            };
            state.push(stream, StreamCommand::Product(product))
        })
    }
}
