//! Checks that the simulated libraries reject invalid arguments: one test case per rule of the vendors' documentation.

use std::ffi::c_void;
use std::ptr;

use super::lt::*;
use super::rocblas::*;
use crate::cuda::api::{cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuMemAlloc_v2, cuStreamCreate, cuStreamSynchronize};
use crate::cuda::devices::{cuDevicePrimaryCtxRetain, cuInit};

type Set = unsafe extern "C" fn(u64, i32, *const c_void, usize) -> i32;

/// A library's functions and constants.
struct Interface {
    create: unsafe extern "C" fn(*mut u64) -> i32,
    destroy: unsafe extern "C" fn(u64) -> i32,
    operation: unsafe extern "C" fn(*mut u64, i32, i32) -> i32,
    operation_set: Set,
    layout: unsafe extern "C" fn(*mut u64, i32, u64, u64, i64) -> i32,
    layout_set: Set,
    preference: unsafe extern "C" fn(*mut u64) -> i32,
    preference_set: Set,
    heuristic: unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, i32, *mut u64, *mut i32) -> i32,
    matmul: unsafe extern "C" fn(
        u64,
        u64,
        *const c_void,
        u64,
        u64,
        u64,
        u64,
        *const c_void,
        u64,
        u64,
        u64,
        u64,
        *const u64,
        u64,
        usize,
        u64,
    ) -> i32,
    /// Attributes of an operation: the epilogue, and the bias' address.
    epilogue: [i32; 2],
    /// Attributes of a matrix: batch count and batch stride.
    batch: [i32; 2],
    /// Attributes of a preference, if the library has them.
    schemes: Option<i32>,
    alignments: &'static [i32],
    /// The code for invalid arguments.
    invalid: i32,
}

const CUBLASLT: Interface = Interface {
    create: cublasLtCreate,
    destroy: cublasLtDestroy,
    operation: cublasLtMatmulDescCreate,
    operation_set: cublasLtMatmulDescSetAttribute,
    layout: cublasLtMatrixLayoutCreate,
    layout_set: cublasLtMatrixLayoutSetAttribute,
    preference: cublasLtMatmulPreferenceCreate,
    preference_set: cublasLtMatmulPreferenceSetAttribute,
    heuristic: cublasLtMatmulAlgoGetHeuristic,
    matmul: cublasLtMatmul,
    epilogue: [7, 8],
    batch: [5, 6],
    schemes: Some(3),
    alignments: &[5, 6, 7, 8],
    invalid: 7,
};

const HIPBLASLT: Interface = Interface {
    create: hipblasLtCreate,
    destroy: hipblasLtDestroy,
    operation: hipblasLtMatmulDescCreate,
    operation_set: hipblasLtMatmulDescSetAttribute,
    layout: hipblasLtMatrixLayoutCreate,
    layout_set: hipblasLtMatrixLayoutSetAttribute,
    preference: hipblasLtMatmulPreferenceCreate,
    preference_set: hipblasLtMatmulPreferenceSetAttribute,
    heuristic: hipblasLtMatmulAlgoGetHeuristic,
    matmul: hipblasLtMatmul,
    epilogue: [2, 3],
    batch: [0, 1],
    schemes: None,
    alignments: &[],
    invalid: 3,
};

/// A product of 4×6 and 6×5 column-major matrices; tests change single fields to invalid values.
#[derive(Clone)]
struct Request {
    compute: i32,
    scale: i32,
    types: [i32; 3],
    /// The epilogue, and the offset of the bias from an aligned address, if one is set.
    epilogue: i32,
    bias: Option<u64>,
    /// Rows, columns and leading dimension of A, B and C.
    layouts: [(u64, u64, i64); 3],
    counts: [i32; 3],
    offsets: [i64; 3],
    /// Workspace limit of the heuristic, and workspace size of the product.
    workspace: (u64, usize),
    /// Offset of each matrix from an aligned address, in bytes.
    behind: [u64; 3],
    /// Alignment that is passed to the heuristic.
    aligned: u32,
}

const PLAIN: Request = Request {
    compute: 68,
    scale: 0,
    types: [0; 3],
    epilogue: 1,
    bias: None,
    layouts: [(4, 6, 4), (6, 5, 6), (4, 5, 4)],
    counts: [1; 3],
    offsets: [0; 3],
    workspace: (0, 0),
    behind: [0; 3],
    aligned: 256,
};

/// Makes a context current, which every test needs.
fn current() {
    let mut context = 0;
    // SAFETY: the pointers are valid.
    unsafe {
        assert_eq!(cuInit(0), 0);
        assert_eq!(cuDevicePrimaryCtxRetain(&mut context, 0), 0);
        assert_eq!(cuCtxPushCurrent_v2(context), 0);
    }
}

/// Allocates four mebibytes and creates a stream.
fn place() -> (u64, u64) {
    let (mut memory, mut stream) = (0, 0);
    // SAFETY: the pointers are valid.
    unsafe {
        assert_eq!(cuMemAlloc_v2(&mut memory, 4 << 20), 0);
        assert_eq!(cuStreamCreate(&mut stream, 0), 0);
    }
    (memory, stream)
}

fn value<T>(value: &T) -> (*const c_void, usize) {
    (ptr::from_ref(value).cast(), size_of::<T>())
}

/// Returns the codes of the heuristic and, if it succeeds, of the product.
fn product(by: &Interface, request: &Request) -> (i32, i32) {
    let (memory, stream) = place();
    // SAFETY: all arguments are valid, except for the values that a test changed.
    unsafe {
        let (mut handle, mut operation, mut layouts, mut preference) = (0, 0, [0; 3], 0);
        assert_eq!((by.create)(&mut handle), 0);
        assert_eq!((by.operation)(&mut operation, request.compute, request.scale), 0);
        let (epilogue, four) = value(&request.epilogue);
        assert_eq!((by.operation_set)(operation, by.epilogue[0], epilogue, four), 0);
        if let Some(behind) = request.bias {
            let place = memory + (2 << 20) + behind;
            let (bias, eight) = value(&place);
            assert_eq!(
                (by.operation_set)(operation, by.epilogue[1], bias, four),
                by.invalid,
                "an address has eight bytes"
            );
            assert_eq!((by.operation_set)(operation, by.epilogue[1], bias, eight), 0);
        }
        for (at, layout) in layouts.iter_mut().enumerate() {
            let (rows, columns, leading) = request.layouts[at];
            assert_eq!((by.layout)(layout, request.types[at], rows, columns, leading), 0);
            let ((count, four), (offset, eight)) = (value(&request.counts[at]), value(&request.offsets[at]));
            assert_eq!((by.layout_set)(*layout, by.batch[0], count, four), 0);
            assert_eq!((by.layout_set)(*layout, by.batch[1], offset, eight), 0);
            assert_eq!((by.layout_set)(*layout, by.batch[1], offset, four), by.invalid, "an offset has eight bytes");
        }
        assert_eq!((by.preference)(&mut preference), 0);
        let ((room, eight), (schemes, four)) = (value(&request.workspace.0), value(&2u32));
        assert_eq!((by.preference_set)(preference, 1, room, eight), 0);
        for (attribute, known) in [(3, by.schemes.is_some()), (5, !by.alignments.is_empty())] {
            let code = if known { 0 } else { by.invalid };
            assert_eq!((by.preference_set)(preference, attribute, schemes, four), code, "{attribute}");
        }
        for attribute in by.alignments {
            let (aligned, four) = value(&request.aligned);
            assert_eq!((by.preference_set)(preference, *attribute, aligned, four), 0);
        }
        let (mut found, mut count) = (Heuristic::default(), 0);
        let [a, b, c] = layouts;
        let answer = (by.heuristic)(handle, operation, a, b, c, c, preference, 1, found.as_mut_ptr(), &mut count);
        if answer != 0 {
            assert_eq!((by.destroy)(handle), 0);
            return (answer, -1);
        }
        assert_eq!(count, 1);
        let [x, y, z] = request.behind;
        let (left, right, result) = (memory + x, memory + 65_536 + y, memory + 131_072 + z);
        let (one, nought) = ([1f32, 0.0, 0.0], [0f32; 3]);
        let done = (by.matmul)(
            handle,
            operation,
            one.as_ptr().cast(),
            left,
            a,
            right,
            b,
            nought.as_ptr().cast(),
            result,
            c,
            result,
            c,
            found.as_ptr(),
            memory + (1 << 20),
            request.workspace.1,
            stream,
        );
        assert_eq!(cuStreamSynchronize(stream), 0);
        // An algorithm of another product.
        let mut other = found;
        other[0] ^= 2;
        let (alpha, beta) = (one.as_ptr().cast(), nought.as_ptr().cast());
        let stolen = (by.matmul)(
            handle,
            operation,
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
            other.as_ptr(),
            0,
            0,
            stream,
        );
        assert_eq!(stolen, by.invalid, "an algorithm is valid only for its product");
        assert_eq!((by.destroy)(handle), 0);
        (answer, done)
    }
}

#[test]
fn cublaslt_accepts_valid_and_rejects_invalid_products() {
    current();
    let refused = (7, -1);
    let batch = Request { counts: [3; 3], offsets: [24, 0, 20], ..PLAIN };
    let deep = Request { layouts: [(4, 200, 4), (200, 5, 200), (4, 5, 4)], workspace: (4 << 20, 1 << 20), ..PLAIN };
    for (what, request, expected) in [
        ("plain", PLAIN, (0, 0)),
        ("a batch that shares a factor", batch.clone(), (0, 0)),
        ("doubles", Request { compute: 70, scale: 1, types: [1; 3], ..PLAIN }, (0, 0)),
        ("halves", Request { types: [2; 3], ..PLAIN }, (0, 0)),
        ("bf16", Request { types: [14; 3], ..PLAIN }, (0, 0)),
        ("f32 in TF32", Request { compute: 77, ..PLAIN }, (0, 0)),
        ("halves in TF32", Request { compute: 77, types: [2; 3], ..PLAIN }, (15, -1)),
        ("doubles in TF32", Request { compute: 77, scale: 1, types: [1; 3], ..PLAIN }, (15, -1)),
        ("a bias", Request { epilogue: 4, bias: Some(4), ..PLAIN }, (0, 0)),
        ("no bias", Request { epilogue: 4, ..PLAIN }, (0, 7)),
        ("a bias between elements", Request { epilogue: 4, bias: Some(2), ..PLAIN }, (0, 7)),
        (
            "a bias of doubles between them",
            Request { epilogue: 4, bias: Some(4), compute: 70, scale: 1, types: [1; 3], ..PLAIN },
            (0, 7),
        ),
        ("an activation", Request { epilogue: 2, ..PLAIN }, (15, -1)),
        ("deep, with a workspace", deep.clone(), (0, 0)),
        ("columns overlap", Request { layouts: [(4, 6, 3), PLAIN.layouts[1], PLAIN.layouts[2]], ..PLAIN }, refused),
        ("lengths differ", Request { layouts: [PLAIN.layouts[0], (7, 5, 7), PLAIN.layouts[2]], ..PLAIN }, refused),
        (
            "a result of another shape",
            Request { layouts: [PLAIN.layouts[0], PLAIN.layouts[1], (5, 4, 5)], ..PLAIN },
            refused,
        ),
        ("batches of other lengths", Request { counts: [3, 1, 3], ..batch.clone() }, refused),
        ("results over each other", Request { offsets: [24, 0, 8], ..batch }, refused),
        ("doubles in f32", Request { types: [1; 3], ..PLAIN }, (15, -1)),
        ("types mixed", Request { types: [2, 0, 0], ..PLAIN }, (15, -1)),
        ("an integer", Request { types: [10; 3], ..PLAIN }, (15, -1)),
        ("less aligned than declared", Request { behind: [4, 0, 0], ..PLAIN }, (0, 7)),
        ("less aligned, as declared", Request { behind: [4, 8, 12], aligned: 4, ..PLAIN }, (0, 0)),
        ("less workspace than needed", Request { workspace: (4 << 20, 1 << 19), ..deep.clone() }, (0, 7)),
        ("no workspace allowed", Request { workspace: (0, 0), ..deep }, (0, 0)),
    ] {
        assert_eq!(product(&CUBLASLT, &request), expected, "{what}");
    }
    // SAFETY: null is allowed.
    assert_eq!(unsafe { cuCtxPopCurrent_v2(ptr::null_mut()) }, 0);
}

#[test]
fn hipblaslt_accepts_valid_and_rejects_invalid_products() {
    current();
    let (refused, unknown) = ((3, -1), (7, -1));
    let plain = Request { compute: 2, ..PLAIN };
    let batch = Request { counts: [3; 3], offsets: [24, 0, 20], ..plain.clone() };
    let deep =
        Request { layouts: [(4, 200, 4), (200, 5, 200), (4, 5, 4)], workspace: (4 << 20, 1 << 20), ..plain.clone() };
    for (what, request, expected) in [
        ("plain", plain.clone(), (0, 0)),
        ("a batch that shares a factor", batch.clone(), (0, 0)),
        ("doubles", Request { compute: 7, scale: 1, types: [1; 3], ..PLAIN }, (0, 0)),
        ("halves", Request { types: [2; 3], ..plain.clone() }, (0, 0)),
        ("bf16", Request { types: [14; 3], ..plain.clone() }, (0, 0)),
        ("f32 in TF32", Request { compute: 6, ..PLAIN }, unknown),
        ("NVIDIA's number", PLAIN, unknown),
        ("a bias", Request { epilogue: 4, bias: Some(4), ..plain.clone() }, (0, 0)),
        ("no bias", Request { epilogue: 4, ..plain.clone() }, (0, 3)),
        ("a bias between elements", Request { epilogue: 4, bias: Some(2), ..plain.clone() }, (0, 3)),
        ("an activation", Request { epilogue: 2, ..plain.clone() }, unknown),
        (
            "columns overlap",
            Request { layouts: [(4, 6, 3), PLAIN.layouts[1], PLAIN.layouts[2]], ..plain.clone() },
            refused,
        ),
        ("results over each other", Request { offsets: [24, 0, 8], ..batch }, refused),
        ("types mixed", Request { types: [2, 0, 0], ..plain.clone() }, unknown),
        ("aligned to elements", Request { behind: [4, 8, 12], ..plain.clone() }, (0, 0)),
        ("between elements", Request { behind: [2, 0, 0], ..plain }, (0, 3)),
        ("deep, with a workspace", deep.clone(), (0, 0)),
        ("less workspace than needed", Request { workspace: (4 << 20, 1 << 19), ..deep.clone() }, (0, 3)),
        ("no workspace allowed", Request { workspace: (0, 0), ..deep }, (0, 0)),
    ] {
        assert_eq!(product(&HIPBLASLT, &request), expected, "{what}");
    }
    // SAFETY: null is allowed.
    assert_eq!(unsafe { cuCtxPopCurrent_v2(ptr::null_mut()) }, 0);
}

#[test]
fn rocblas_accepts_valid_and_rejects_invalid_products() {
    current();
    let (memory, stream) = place();
    let mut handle = 0;
    // SAFETY: the pointers are valid, the handle and the stream are live.
    unsafe {
        assert_eq!(rocblas_create_handle(&mut handle), 0);
        assert_eq!((rocblas_set_stream(handle, stream), rocblas_set_atomics_mode(handle, 0)), (0, 0));
    }
    let (one, nought) = ([1f32, 0.0], [0f32; 2]);
    let call = |operations: [i32; 2], types: [i32; 2], leading: [i32; 3], result: [u64; 2], algorithm: i32| {
        let ([x, y], [ty, compute], [a, b, c], [from, to]) = (operations, types, leading, result);
        let (left, right) = (memory, memory + 65_536);
        let (alpha, beta) = (one.as_ptr().cast(), nought.as_ptr().cast());
        // SAFETY: all arguments are valid, except for the values that a test changed.
        unsafe {
            rocblas_gemm_strided_batched_ex(
                handle, x, y, 4, 5, 6, alpha, left, ty, a, 24, right, ty, b, 30, beta, from, ty, c, 20, to, ty, c, 20,
                2, compute, algorithm, 0, 0,
            )
        }
    };
    let (plain, f32s, fits, result) = ([111; 2], [151; 2], [4, 6, 4], [memory + 131_072; 2]);
    assert_eq!(call(plain, f32s, fits, result, 0), 0);
    assert_eq!(call([112; 2], f32s, [6, 5, 4], result, 0), 0);
    assert_eq!(call([112; 2], f32s, fits, result, 0), 4, "columns overlap");
    assert_eq!(call([0; 2], f32s, fits, result, 0), 11, "no operation");
    assert_eq!(call(plain, [151, 152], fits, result, 0), 2, "types mixed");
    assert_eq!(call(plain, f32s, fits, [memory, memory + 131_072], 0), 11, "the result is elsewhere");
    assert_eq!(call(plain, f32s, fits, [0; 2], 0), 3, "no result");
    assert_eq!(call(plain, f32s, fits, result, 1), 11, "a nonzero algorithm");
    assert_eq!(call(plain, [150, 151], fits, result, 0), 5, "halves without a workspace");
    // SAFETY: as above.
    unsafe {
        assert_eq!(rocblas_set_workspace(handle, memory + (1 << 20), 1 << 20), 0);
        assert_eq!(call(plain, [150, 151], fits, result, 0), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!((rocblas_destroy_handle(handle), rocblas_destroy_handle(handle)), (0, 1));
        assert_eq!(call(plain, f32s, fits, result, 0), 1, "the handle was destroyed");
        assert_eq!(cuCtxPopCurrent_v2(ptr::null_mut()), 0);
    }
}
