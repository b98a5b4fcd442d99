//! Products by the simulated hipBLASLt: which ones it computes, and the fallback where it is missing, does not start,
//! has no algorithm or fails.

use std::path::PathBuf;

use panoply::{DType, Device};
use panoply_driver::HipDriver;
use panoply_driver_sim::{Control, library};

use crate::products::bias_epilogue::Subject;
use crate::products::{CASES, ROCBLAS, agree, amd, computed, run};

const HIPBLASLT: &str = "hipblasLtMatmul";

/// Returns the simulated AMD GPU with both libraries.
fn both() -> Device {
    amd(HipDriver { hipblaslt: Some(library()), rocblas: Some(library()), ..HipDriver::default() })
}

/// Returns the simulated AMD GPU with hipBLASLt and without rocBLAS.
fn only() -> Device {
    amd(HipDriver { hipblaslt: Some(library()), ..HipDriver::default() })
}

/// Returns the number of products that hipBLASLt and rocBLAS computed.
fn calls() -> (u64, u64) {
    let control = Control::open();
    (control.calls(HIPBLASLT), control.calls(ROCBLAS))
}

#[test]
fn hipblaslt_agrees_with_the_cpu_and_rocblas() {
    run("hipBLASLt agrees", &[("PANOPLY_FAKE_HIP", "architecture=1100")]);
    run("hipBLASLt, halves of gfx90a", &[("PANOPLY_FAKE_HIP", "architecture=90a")]);
    run("hipBLASLt alone", &[("PANOPLY_FAKE_HIP", "architecture=942")]);
}

/// rocBLAS computes f64; all other types have the same bits as with rocBLAS.
pub fn agrees() {
    let (device, place) = (both(), library().display().to_string());
    assert_eq!(device.blas_library().unwrap(), format!("hipBLASLt ({place}), rocBLAS 4.2.0 ({place})"));
    crate::products::agrees(&device, HIPBLASLT, &[DType::F32, DType::F16, DType::BF16]);
    assert_eq!(calls().1, 0);
    crate::products::agrees(&device, ROCBLAS, &[DType::F64]);
    let other = crate::products::rocm(library());
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for case in CASES {
            let before = calls();
            let [ours, theirs] = [&device, &other].map(|device| computed(device, case, dtype, 5));
            assert_eq!(ours, theirs, "{} of {dtype}", case.0);
            assert_eq!((calls().0 - before.0, calls().1 - before.1), (1, 1));
        }
    }
}

/// The matrix instructions of gfx90a flush subnormal f16 to zero, so kernels compute f16.
pub fn halves_of_gfx90a() {
    let device = both();
    crate::products::agrees(&device, HIPBLASLT, &[DType::F32, DType::BF16]);
    let before = calls();
    agree(&device, &CASES[0], DType::F16, 5);
    assert_eq!(calls(), before);
}

/// Kernels compute f64 in that case.
pub fn alone() {
    let device = only();
    assert_eq!(device.blas_library().unwrap(), format!("hipBLASLt ({})", library().display()));
    crate::products::agrees(&device, HIPBLASLT, &[DType::F32, DType::F16, DType::BF16]);
    let before = calls();
    agree(&device, &CASES[0], DType::F64, 5);
    assert_eq!(calls(), before);
}

#[test]
fn a_bias_is_added_by_hipblaslt() {
    run("hipBLASLt, bias", &[("PANOPLY_FAKE_HIP", "architecture=1100")]);
}

/// Only f32 has a fused bias; rocBLAS computes f64 and has none.
pub fn with_bias() -> Subject {
    let (products, launches) = (&[HIPBLASLT, ROCBLAS], "hipModuleLaunchKernel");
    Subject { device: both(), products, launches, wide: &[DType::F32], code: 5 }
}

#[test]
fn without_hipblaslt_rocblas_computes_products() {
    run("hipBLASLt is not found", &[("PANOPLY_FAKE_HIP", "architecture=1100")]);
    run("hipBLASLt, no algorithm", &[("PANOPLY_FAKE_HIP", "architecture=1100")]);
    let cases = [
        ("architecture=1100", "initializing: HIPBLAS_STATUS_NOT_INITIALIZED (1); update ROCm or report this"),
        (
            "architecture=1100,hipblaslt=300",
            "initializing: HIPBLAS_STATUS_NOT_SUPPORTED (7); update ROCm to 6.0 or later",
        ),
        // The library would end the process.
        (
            "architecture=1100,memory=60000000",
            "initializing: HIPBLAS_STATUS_ALLOC_FAILED (2); keep 64 MiB of the GPU free",
        ),
    ];
    for (settings, expected) in cases {
        let output = run("hipBLASLt does not start", &[("PANOPLY_FAKE_HIP", settings)]);
        assert!(output.contains(expected) || output.contains("SKIPPED"), "{settings}: {output}");
    }
    run("neither starts", &[("PANOPLY_FAKE_HIP", "architecture=1100")]);
}

pub fn not_found() {
    let nowhere = || Some(PathBuf::from("/nowhere/libhipblaslt.so"));
    let device = amd(HipDriver { hipblaslt: nowhere(), rocblas: Some(library()), ..HipDriver::default() });
    assert!(device.blas_library().unwrap().starts_with("rocBLAS 4.2.0 ("), "{:?}", device.blas_library());
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
        agree(&device, &CASES[0], dtype, 1);
    }
    assert_eq!(calls(), (0, 4));
    let device = amd(HipDriver { hipblaslt: nowhere(), rocblas: nowhere(), ..HipDriver::default() });
    assert!(device.blas_library().unwrap().starts_with("own kernels: rocm: /nowhere/"), "{:?}", device.blas_library());
    agree(&device, &CASES[0], DType::F32, 1);
    assert_eq!(calls(), (0, 4));
}

/// Prints the reason for the parent process.
pub fn does_not_start() {
    let (device, control) = (both(), Control::open());
    if std::env::var("PANOPLY_FAKE_HIP").is_ok_and(|settings| settings == "architecture=1100") {
        control.fail("hipblasLtCreate", 1, 0, u32::MAX);
    }
    agree(&device, &CASES[0], DType::F32, 1);
    agree(&device, &CASES[1], DType::F16, 1);
    assert_eq!(calls(), (0, 2));
    let products = device.blas_library().unwrap();
    assert!(products.starts_with("rocBLAS 4.2.0 ("), "{products}");
    assert!(products.contains("); without rocm:0: hipBLASLt ("), "{products}");
    println!("{products}");
}

pub fn neither_starts() {
    let (device, control) = (both(), Control::open());
    control.fail("hipblasLtCreate", 6, 0, u32::MAX);
    control.fail("rocblas_create_handle", 6, 0, u32::MAX);
    for seed in 1..4 {
        agree(&device, &CASES[0], DType::F32, seed);
    }
    assert_eq!(calls(), (0, 0));
    assert_eq!((control.calls("hipblasLtCreate"), control.calls("rocblas_create_handle")), (1, 1));
    let products = device.blas_library().unwrap();
    assert!(products.starts_with("own kernels: rocm:0: hipBLASLt ("), "{products}");
    assert!(products.contains("HIPBLAS_STATUS_INTERNAL_ERROR (6)"), "{products}");
    assert!(products.contains("; rocm:0: rocBLAS 4.2.0 (") && products.contains("rocblas_status_internal_error (6)"));
}

/// Tests each error code that means that no algorithm is available.
pub fn no_algorithm() {
    let (device, control) = (both(), Control::open());
    for (at, code) in [6, 7, 8].into_iter().enumerate() {
        // The heuristic is queried once for any alignment and once for the actual alignment.
        control.fail("hipblasLtMatmulAlgoGetHeuristic", code, 0, 2);
        agree(&device, &CASES[at], DType::F32, 1);
        assert_eq!(calls(), (0, at as u64 + 1), "{code}");
    }
    agree(&device, &CASES[3], DType::F32, 1);
    assert_eq!(calls(), (1, 3));
}

#[test]
fn hipblaslt_failures_are_reported_once_and_fall_back_to_kernels() {
    for (job, settings, expected) in [
        ("hipBLASLt, a product fails", "", "EXECUTION_FAILED (5); update ROCm or report this; using kernels instead"),
        ("hipBLASLt, the heuristic fails", "", "INVALID_VALUE (3); update ROCm or report this; using kernels instead"),
        // Enough memory for the handle that answers queries, but not for the queue's handle.
        (
            "hipBLASLt, no room for a queue",
            ",memory=80000000",
            "ALLOC_FAILED (2); keep 64 MiB of the GPU free for it; using kernels instead",
        ),
    ] {
        let output = run(job, &[("PANOPLY_FAKE_HIP", &format!("architecture=1100{settings}"))]);
        let expected = format!(": f32 1×5×3×7: HIPBLAS_STATUS_{expected}");
        assert!(output.matches(&expected).count() == 1 || output.contains("SKIPPED"), "{output}");
    }
}

/// The library would end the process.
pub fn no_room_for_a_queue() {
    let device = both();
    for seed in 0..3 {
        agree(&device, &CASES[0], DType::F32, seed);
    }
    assert_eq!(calls(), (0, 0));
    assert_eq!(Control::open().calls("hipblasLtCreate"), 1);
}

pub fn a_product_fails() {
    let (device, control) = (both(), Control::open());
    control.fail(HIPBLASLT, 5, 0, 1);
    for seed in 0..4 {
        agree(&device, &CASES[0], DType::F32, seed);
        assert_eq!(calls(), (1, 0), "a failed product is not retried");
    }
    agree(&device, &CASES[1], DType::F32, 3);
    assert_eq!(calls(), (2, 0), "the library computes other products");
}

pub fn cannot_say() {
    let (device, control) = (both(), Control::open());
    control.fail("hipblasLtMatmulAlgoGetHeuristic", 3, 0, u32::MAX);
    agree(&device, &CASES[0], DType::F32, 1);
    agree(&device, &CASES[0], DType::F32, 2);
    assert_eq!(calls(), (0, 0));
}

#[test]
fn hipblaslt_has_a_handle_for_each_queue_and_releases_all_objects() {
    run("hipBLASLt, two queues", &[("PANOPLY_FAKE_HIP", "architecture=942")]);
    run("hipBLASLt releases its objects", &[("PANOPLY_FAKE_HIP", "architecture=942")]);
}

/// With a workspace the library would add the parts of a long sum in a different order each time.
pub fn two_queues() {
    // The driver's counters do not include the library's own allocations, and no workspace is passed to it.
    crate::products::two_queues::two_queues(&only(), HIPBLASLT, "hipMalloc", 0);
    assert_eq!(Control::open().calls("hipblasLtCreate"), 3, "one for queries, and one for each of the two queues");
}

/// Two handles with their memory, and the descriptors of a product for two alignments.
pub fn given_back() {
    crate::products::given_back(only, 2 * 2 + 2 * 4);
    let control = Control::open();
    assert_eq!((control.calls("hipblasLtCreate"), control.calls("hipblasLtDestroy")), (2, 2));
}
