//! cuBLASLt, from NVIDIA's documentation of CUDA 12.
//!
//! Descriptors are checked when an algorithm is asked for and again when it is used, by an algorithm that is tied to what it was asked
//! for. From a depth of 128 on the best algorithm divides sums and wants workspace, in the way that the preference leaves it.

use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Matrix, Product, Sum, Ty, on_device};
use crate::cuda::api::{exported, give};
use crate::cuda::state::State;
use crate::cuda::streams::Work;

/// cublasStatus_t.
const NOT_INITIALIZED: i32 = 1;
const INVALID_VALUE: i32 = 7;
const INTERNAL_ERROR: i32 = 14;
const NOT_SUPPORTED: i32 = 15;

/// The depth from which sums are divided, and the workspace that takes.
const DIVIDED_FROM: u64 = 128;
const DIVIDED_BYTES: u64 = 1 << 20;
/// What the workspace is aligned to.
const WORKSPACE_ALIGN: u64 = 256;

/// Everything made and not destroyed.
#[derive(Default)]
pub struct Objects {
    handles: HashMap<u64, usize>,
    operations: HashMap<u64, Operation>,
    /// Where the bias of an operation lies.
    biases: HashMap<u64, u64>,
    layouts: HashMap<u64, Layout>,
    preferences: HashMap<u64, Preference>,
}

impl Objects {
    /// How many there are.
    pub fn live(&self) -> usize {
        self.handles.len() + self.operations.len() + self.layouts.len() + self.preferences.len()
    }
}

#[derive(Clone, Copy, Hash)]
struct Operation {
    compute: i32,
    scale: i32,
    transposed: [bool; 2],
    /// cublasLtEpilogue_t: 1 is none, 4 adds the bias.
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
    /// Of A, B, C and D.
    alignments: [u32; 4],
}

/// What stands in an algorithm: whose it is, the least alignments, workspace, how sums are divided.
pub type Algorithm = [u64; 8];

#[repr(C)]
#[derive(Default)]
pub struct Heuristic {
    pub algorithm: Algorithm,
    workspace: usize,
    state: i32,
    waves: f32,
    reserved: [i32; 4],
}

/// A product as it was described.
struct Described {
    operation: Operation,
    /// A, B, C and D.
    layouts: [Layout; 4],
}

impl Described {
    fn of(state: &State, operation: u64, layouts: [u64; 4]) -> Result<Described, i32> {
        let objects = &state.cublaslt;
        let operation = *objects.operations.get(&operation).ok_or(INVALID_VALUE)?;
        let mut found = [None; 4];
        for (to, layout) in found.iter_mut().zip(layouts) {
            *to = objects.layouts.get(&layout).copied();
        }
        let [Some(a), Some(b), Some(c), Some(d)] = found else { return Err(INVALID_VALUE) };
        let described = Described { operation, layouts: [a, b, c, d] };
        described.check(state.config.capability)?;
        Ok(described)
    }

    /// Rows of the result, its columns, and the depth.
    fn extents(&self) -> (u64, u64, u64) {
        let [a, b, ..] = self.layouts;
        let [left, right] = self.operation.transposed;
        let (m, k) = if left { (a.columns, a.rows) } else { (a.rows, a.columns) };
        (m, if right { b.rows } else { b.columns }, k)
    }

    fn check(&self, capability: i32) -> Result<(), i32> {
        let [a, b, c, d] = self.layouts;
        let (m, n, k) = self.extents();
        let inner = if self.operation.transposed[1] { b.columns } else { b.rows };
        let fits = inner == k && [c, d].iter().all(|layout| (layout.rows, layout.columns) == (m, n));
        let leads = |layout: &Layout| layout.leading >= layout.rows.max(1) as i64;
        let counts = self.layouts.iter().all(|layout| layout.count == d.count && layout.count >= 1);
        // Results of a batch lie apart; factors may be shared.
        let apart = d.count == 1 || d.offset >= d.leading * (d.columns as i64 - 1) + d.rows as i64;
        if !fits || !self.layouts.iter().all(leads) || !counts || !apart || c != d || m * n * k == 0 {
            return Err(INVALID_VALUE);
        }
        // What an activation makes of a number is not told well enough to be computed here.
        if !matches!(self.operation.epilogue, 1 | 4) {
            return Err(NOT_SUPPORTED);
        }
        // The documentation's table of types: compute, scale, A, B, C, D.
        let types = (self.operation.compute, self.operation.scale, a.ty, b.ty, d.ty);
        match types {
            (68, 0, 0, 0, 0) | (77, 0, 0, 0, 0) | (70, 1, 1, 1, 1) | (68, 0, 2, 2, 2) | (68, 0, 2, 2, 0) => Ok(()),
            (68, 0, 14, 14, 14) | (68, 0, 14, 14, 0) if capability >= 80 => Ok(()),
            _ => Err(NOT_SUPPORTED),
        }
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
            _ => return Err(NOT_SUPPORTED),
        };
        let transposed = self.operation.transposed.get(which).copied().unwrap_or(false);
        Ok(Matrix { address, ty, rows, columns, leading: leading as u64, stride: offset as u64, transposed })
    }
}

/// An attribute's value, which must have as many bytes.
///
/// # Safety
/// `from` has `bytes` bytes.
unsafe fn value<T: Copy>(from: *const c_void, bytes: usize) -> Result<T, i32> {
    if bytes != size_of::<T>() || from.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: as the caller promised.
    Ok(unsafe { from.cast::<T>().read_unaligned() })
}

exported! {
    fn cublasLtGetProperty(property: i32, to: *mut i32) {
        State::call(NAME, |state| {
            let part = *[state.config.cublas, 4, 1].get(property as usize).ok_or(INVALID_VALUE)?;
            // SAFETY: the caller's pointer.
            unsafe { give(to, part) };
            Ok(())
        })
    }

    fn cublasLtCreate(handle: *mut u64) {
        on_device(NAME, NOT_INITIALIZED, |state, device| {
            let new = state.handle();
            state.cublaslt.handles.insert(new, device);
            // SAFETY: the caller's pointer.
            unsafe { give(handle, new) };
            Ok(())
        })
    }

    fn cublasLtDestroy(handle: u64) {
        on_device(NAME, NOT_INITIALIZED, |state, _| {
            state.cublaslt.handles.remove(&handle).map(drop).ok_or(NOT_INITIALIZED)
        })
    }

    fn cublasLtMatmulDescCreate(operation: *mut u64, compute: i32, scale: i32) {
        State::call(NAME, |state| {
            let new = state.handle();
            state.cublaslt.operations.insert(new, Operation { compute, scale, transposed: [false; 2], epilogue: 1 });
            // SAFETY: the caller's pointer.
            unsafe { give(operation, new) };
            Ok(())
        })
    }

    fn cublasLtMatmulDescSetAttribute(operation: u64, attribute: i32, from: *const c_void, bytes: usize) {
        State::call(NAME, |state| {
            let known = state.cublaslt.operations.get_mut(&operation).ok_or(INVALID_VALUE)?;
            if attribute == 8 {
                // SAFETY: the caller's bytes.
                state.cublaslt.biases.insert(operation, unsafe { value(from, bytes) }?);
                return Ok(());
            }
            // SAFETY: the caller's bytes.
            match (attribute, unsafe { value::<i32>(from, bytes) }?) {
                (3 | 4, turned @ 0..=1) => known.transposed[attribute as usize - 3] = turned == 1,
                // None, RELU, BIAS, both, GELU, with a bias.
                (7, epilogue @ (1 | 2 | 4 | 6 | 32 | 36)) => known.epilogue = epilogue,
                _ => return Err(INVALID_VALUE),
            }
            Ok(())
        })
    }

    fn cublasLtMatmulDescDestroy(operation: u64) {
        State::call(NAME, |state| {
            state.cublaslt.biases.remove(&operation);
            state.cublaslt.operations.remove(&operation).map(drop).ok_or(INVALID_VALUE)
        })
    }

    fn cublasLtMatrixLayoutCreate(layout: *mut u64, ty: i32, rows: u64, columns: u64, leading: i64) {
        State::call(NAME, |state| {
            let new = state.handle();
            state.cublaslt.layouts.insert(new, Layout { ty, rows, columns, leading, count: 1, offset: 0 });
            // SAFETY: the caller's pointer.
            unsafe { give(layout, new) };
            Ok(())
        })
    }

    fn cublasLtMatrixLayoutSetAttribute(layout: u64, attribute: i32, from: *const c_void, bytes: usize) {
        State::call(NAME, |state| {
            let layout = state.cublaslt.layouts.get_mut(&layout).ok_or(INVALID_VALUE)?;
            // SAFETY: the caller's bytes.
            unsafe {
                match attribute {
                    5 => layout.count = value(from, bytes)?,
                    6 => layout.offset = value(from, bytes)?,
                    _ => return Err(INVALID_VALUE),
                }
            }
            Ok(())
        })
    }

    fn cublasLtMatrixLayoutDestroy(layout: u64) {
        State::call(NAME, |state| state.cublaslt.layouts.remove(&layout).map(drop).ok_or(INVALID_VALUE))
    }

    fn cublasLtMatmulPreferenceCreate(preference: *mut u64) {
        State::call(NAME, |state| {
            let new = state.handle();
            state.cublaslt.preferences.insert(new, Preference { workspace: 0, reductions: 7, alignments: [256; 4] });
            // SAFETY: the caller's pointer.
            unsafe { give(preference, new) };
            Ok(())
        })
    }

    fn cublasLtMatmulPreferenceSetAttribute(preference: u64, attribute: i32, from: *const c_void, bytes: usize) {
        State::call(NAME, |state| {
            let preference = state.cublaslt.preferences.get_mut(&preference).ok_or(INVALID_VALUE)?;
            // SAFETY: the caller's bytes.
            unsafe {
                match attribute {
                    1 => preference.workspace = value(from, bytes)?,
                    3 => preference.reductions = value(from, bytes)?,
                    5..=8 => preference.alignments[attribute as usize - 5] = value(from, bytes)?,
                    _ => return Err(INVALID_VALUE),
                }
            }
            Ok(())
        })
    }

    fn cublasLtMatmulPreferenceDestroy(preference: u64) {
        State::call(NAME, |state| state.cublaslt.preferences.remove(&preference).map(drop).ok_or(INVALID_VALUE))
    }

    fn cublasLtMatmulAlgoGetHeuristic(
        handle: u64,
        operation: u64,
        a: u64,
        b: u64,
        c: u64,
        d: u64,
        preference: u64,
        wanted: i32,
        results: *mut Heuristic,
        count: *mut i32,
    ) {
        on_device(NAME, INTERNAL_ERROR, |state, device| {
            if state.cublaslt.handles.get(&handle) != Some(&device) {
                return Err(NOT_INITIALIZED);
            }
            let preference = *state.cublaslt.preferences.get(&preference).ok_or(INVALID_VALUE)?;
            if wanted < 1 || results.is_null() || count.is_null() {
                return Err(INVALID_VALUE);
            }
            let described = Described::of(state, operation, [a, b, c, d])?;
            let (scheme, workspace) = if described.extents().2 < DIVIDED_FROM {
                (0, 0)
            } else {
                match preference.reductions {
                    schemes if schemes & 1 != 0 => (1, 0),
                    schemes if schemes & 6 != 0 && preference.workspace >= DIVIDED_BYTES => (schemes & 2, DIVIDED_BYTES),
                    _ => (0, 0),
                }
            };
            let [a, b, _, d] = preference.alignments.map(|bytes| u64::from(bytes.min(16)));
            let scheme = u64::from(scheme);
            let algorithm = [described.mark(), a, b, d, workspace, scheme, u64::from(workspace > 0), 0];
            // SAFETY: the caller's pointers.
            unsafe {
                give(results, Heuristic { algorithm, workspace: workspace as usize, state: 0, waves: 1.0, reserved: [0; 4] });
                give(count, 1);
            }
            Ok(())
        })
    }

    fn cublasLtMatmul(
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
        algorithm: *const Algorithm,
        workspace: u64,
        bytes: usize,
        stream: u64,
    ) {
        on_device(NAME, INTERNAL_ERROR, |state, device| {
            if state.cublaslt.handles.get(&handle) != Some(&device) {
                return Err(NOT_INITIALIZED);
            }
            let described = Described::of(state, operation, [a_layout, b_layout, c_layout, d_layout])?;
            // SAFETY: the caller's structure.
            let [mark, a_align, b_align, d_align, needed, scheme, divided, _] = unsafe { algorithm.read() };
            let aligned = [(a, a_align), (b, b_align), (c, d_align), (d, d_align)];
            let aligned = aligned.iter().all(|(address, align)| address.is_multiple_of((*align).max(1)));
            let room = bytes as u64 >= needed && (needed == 0 || workspace != 0 && workspace.is_multiple_of(WORKSPACE_ALIGN));
            if mark != described.mark() || !aligned || !room || c != d {
                return Err(INVALID_VALUE);
            }
            if state.streams.get(&stream).is_none_or(|stream| stream.device != device) {
                return Err(INVALID_VALUE);
            }
            let bias = match described.operation.epilogue {
                4 => Some(*state.cublaslt.biases.get(&operation).ok_or(INVALID_VALUE)?),
                _ => None,
            };
            // A vector of the result's type, as long as the result has rows.
            if bias.is_some_and(|at| at == 0 || !at.is_multiple_of(described.matrix(3, d).map_or(1, |to| to.ty.bytes()))) {
                return Err(INVALID_VALUE);
            }
            let wide = described.operation.scale == 1;
            let scalar = |from: *const c_void| {
                // SAFETY: the caller's numbers, of the scale's type.
                unsafe { if wide { from.cast::<f64>().read() } else { f64::from(from.cast::<f32>().read()) } }
            };
            let sum = match described.operation.compute {
                77 => Sum::Tf32,
                70 => Sum::F64,
                // In place, or in the type of the result.
                _ if scheme == 1 || divided != 0 && scheme == 0 => Sum::Parts,
                _ => Sum::F32,
            };
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
            state.push(stream, Work::Product(product))
        })
    }
}
