//! Matrix products by vendor libraries, end to end from a tensor to the library call, without a GPU: simulated
//! cuBLASLt, hipBLASLt and rocBLAS libraries check their arguments and multiply. The CPU is the oracle.
//!
//! Call counters and injected failures of the libraries are global to a process, so each job runs in a separate
//! process: the test binary again, with `child` as its only test.

mod bias_epilogue;
mod hipblaslt;
mod tf32;
mod two_queues;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use panoply::runtime::{self, CaseResult, DeviceOptions, Registry};
use panoply::{Backend, Buffer, DType, Device, Tensor, jit};
use panoply_cpu::CpuDriver;
use panoply_driver::{CudaDriver, HipDriver};
use panoply_driver_sim::{Control, library};
use panoply_ir::routine::{Gemm, Layout, Routine};

use crate::training_steps;
use two_queues::two_queues;

const CHILD: &str = "PANOPLY_TEST_PRODUCTS";

/// Jobs of child processes, by name.
const JOBS: &[(&str, fn())] = &[
    ("cuda agrees", || agrees(&cuda(library()), CUBLASLT, &[DType::F32, DType::F16, DType::BF16, DType::F64])),
    ("cuda, before Ampere", before_ampere),
    ("cuda, TF32", tf32::asked),
    ("cuda, no TF32", tf32::absent),
    ("cuda, bias", || bias_epilogue::added(&bias_epilogue::cublaslt())),
    ("cuda trains", trains),
    ("a product fails", a_product_fails),
    ("a replay fails", a_replay_fails),
    ("the library does not start", does_not_start),
    ("the heuristic fails", cannot_say),
    ("no room for a workspace", no_workspace),
    ("no library", no_library),
    ("reported", reported),
    ("a library too new", too_new),
    ("all objects are released", || given_back(|| cuda(library()), 1 + 2 * 4 + 1)),
    ("two queues", || two_queues(&cuda(library()), CUBLASLT, "cuMemAlloc_v2", 2)),
    ("the contract", the_contract),
    ("rocm agrees", rocm_agrees),
    ("rocm, halves of gfx90a", halves_of_gfx90a),
    ("rocm, no kernels", || on_linux(no_kernels)),
    ("rocm, a product fails", || executed(rocm_fails)),
    ("hipBLASLt agrees", || executed(hipblaslt::agrees)),
    ("hipBLASLt, halves of gfx90a", || executed(hipblaslt::halves_of_gfx90a)),
    ("hipBLASLt alone", || executed(hipblaslt::alone)),
    ("hipBLASLt, bias", || executed(|| bias_epilogue::added(&hipblaslt::with_bias()))),
    ("hipBLASLt is not found", || executed(hipblaslt::not_found)),
    ("hipBLASLt, a product fails", || executed(hipblaslt::a_product_fails)),
    ("hipBLASLt does not start", || executed(hipblaslt::does_not_start)),
    ("neither starts", || executed(hipblaslt::neither_starts)),
    ("hipBLASLt, no algorithm", || executed(hipblaslt::no_algorithm)),
    ("hipBLASLt, the heuristic fails", || executed(hipblaslt::cannot_say)),
    ("hipBLASLt, no room for a queue", || executed(hipblaslt::no_room_for_a_queue)),
    ("hipBLASLt releases its objects", || on_linux(hipblaslt::given_back)),
    ("hipBLASLt, two queues", || on_linux(hipblaslt::two_queues)),
];

const CUBLASLT: &str = "cublasLtMatmul";
const ROCBLAS: &str = "rocblas_gemm_strided_batched_ex";

#[test]
fn child() {
    let Ok(job) = std::env::var(CHILD) else { return };
    let known = JOBS.iter().find(|(name, _)| *name == job);
    known.unwrap_or_else(|| panic!("no job {job}")).1();
}

/// Runs a job in a separate process and returns its output.
fn run(job: &str, settings: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["products::child", "--exact", "--nocapture"]).env(CHILD, job).envs(settings.iter().copied());
    let output = command.output().unwrap();
    let log = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() && log.contains("1 passed"),
        "{job} with {settings:?} failed ({}):\n{log}",
        output.status
    );
    log.lines().filter(|line| line.contains("SKIPPED")).for_each(|line| eprintln!("{line}"));
    log
}

/// Returns the simulated NVIDIA GPU with this cuBLASLt library.
fn cuda(products: PathBuf) -> Device {
    let driver = CudaDriver { library: Some(library()), products: Some(products) };
    let registry = Registry::new(vec![Arc::new(driver)], DeviceOptions::default());
    registry.devices(Backend::Cuda).expect("the simulated driver has a device").swap_remove(0)
}

/// Returns the simulated AMD GPU with this rocBLAS library.
fn rocm(rocblas: PathBuf) -> Device {
    amd(HipDriver { rocblas: Some(rocblas), ..HipDriver::default() })
}

/// Returns the simulated AMD GPU with these libraries, which have kernels for some GPUs.
fn amd(libraries: HipDriver) -> Device {
    let beside = library();
    let beside = beside.parent().expect("a library is in a folder");
    for (folder, architectures) in
        [("rocblas/library", &["gfx90a", "gfx1100"][..]), ("hipblaslt/library", &["gfx90a", "gfx942", "gfx1100"])]
    {
        let kernels = beside.join(folder);
        std::fs::create_dir_all(&kernels).unwrap();
        for architecture in architectures {
            std::fs::write(kernels.join(format!("TensileLibrary_lazy_{architecture}.dat")), "").unwrap();
        }
    }
    // This file has no products, only extension operations.
    std::fs::write(beside.join("hipblaslt/library/extop_gfx1031.co"), "").unwrap();
    let driver = HipDriver { library: Some(library()), ..libraries };
    let registry = Registry::new(vec![Arc::new(driver)], DeviceOptions::default());
    registry.devices(Backend::Rocm).expect("the simulated driver has a device").swap_remove(0)
}

/// Runs `act` on systems where rocBLAS is searched for.
fn on_linux(act: impl FnOnce()) {
    if cfg!(target_os = "linux") {
        return act();
    }
    println!("SKIPPED: rocBLAS is supported on Linux only");
}

/// Runs `act` if clang, which compiles HIP kernels for the host, is installed as well.
fn executed(act: impl FnOnce()) {
    on_linux(|| executed_there(act));
}

fn executed_there(act: impl FnOnce()) {
    if Control::open().execute() {
        return act();
    }
    println!("SKIPPED: products with HIP kernels: clang-19 is not installed; `cargo xtask install` installs it");
}

/// Returns numbers between -1 and 1, the same in every run.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(next).collect()
}

/// A named product of two tensors.
type Case = (&'static str, &'static [usize], &'static [usize], fn(&Tensor, &Tensor) -> Tensor);

/// All layouts of operands; dimensions that could be confused have different lengths.
const CASES: &[Case] = &[
    ("plain", &[5, 7], &[7, 3], |a, b| a.matmul(b)),
    ("left transposed", &[7, 5], &[7, 3], |a, b| a.t().matmul(b)),
    ("right transposed", &[5, 7], &[3, 7], |a, b| a.matmul(&b.t())),
    ("both transposed", &[7, 5], &[3, 7], |a, b| a.t().matmul(&b.t())),
    ("batch", &[4, 5, 7], &[4, 7, 3], |a, b| a.matmul(b)),
    ("batch, transposed", &[4, 7, 5], &[4, 3, 7], |a, b| a.transpose(1, 2).matmul(&b.transpose(1, 2))),
    ("batch that shares its right", &[4, 5, 7], &[7, 3], |a, b| a.matmul(b)),
    ("batch that shares its left", &[5, 7], &[4, 7, 3], |a, b| a.matmul(b)),
    ("batch that shares a transposed left", &[7, 5], &[4, 7, 3], |a, b| a.t().matmul(b)),
    ("interleaved heads", &[5, 4, 7], &[6, 4, 7], |a, b| a.permute([1, 0, 2]).matmul(&b.permute([1, 2, 0]))),
    ("slices", &[9, 20], &[12, 9], |a, b| a.narrow(0, 2, 5).narrow(1, 5, 7).matmul(&b.narrow(0, 3, 7).narrow(1, 1, 3))),
    ("odd offsets", &[5, 9], &[9, 3], |a, b| a.narrow(1, 1, 7).matmul(&b.narrow(0, 1, 7))),
    ("one row", &[1, 7], &[7, 3], |a, b| a.matmul(b)),
    ("one column", &[5, 7], &[7, 1], |a, b| a.matmul(b)),
    ("outer", &[5, 1], &[1, 3], |a, b| a.matmul(b)),
    ("deep", &[6, 300], &[300, 5], |a, b| a.matmul(b)),
    ("deep, batch, transposed", &[3, 300, 6], &[3, 5, 300], |a, b| a.transpose(1, 2).matmul(&b.transpose(1, 2))),
];

/// Computes a case on a device and returns the result in f64.
fn computed(device: &Device, case: &Case, dtype: DType, seed: u64) -> Vec<f64> {
    let (name, a, b, product) = case;
    let tensor = |dims: &[usize], seed| {
        let values = numbers(dims.iter().product(), seed);
        Tensor::from_slice(&values, dims).to(device).cast(dtype)
    };
    // The operands are evaluated first, as parameters are.
    let (a, b) = (tensor(a, seed), tensor(b, seed + 1));
    a.eval().and(b.eval()).unwrap_or_else(|error| panic!("{name} of {dtype}: {error}"));
    let c = product(&a, &b);
    c.eval().unwrap_or_else(|error| panic!("{name} of {dtype} on {device}: {error}"));
    c.to(&cpu()).cast(DType::F64).to_vec().unwrap()
}

fn cpu() -> Device {
    Device::get("cpu").unwrap()
}

/// Returns how far a product can differ from the same sums in another order: one unit in the last place for f16 and
/// bf16, little for types that are summed directly.
fn tolerance(dtype: DType, expected: f64) -> f64 {
    match dtype {
        DType::F16 => expected.abs().max(2f64.powi(-14)) * 2f64.powi(-10),
        DType::BF16 => expected.abs().max(2f64.powi(-100)) * 2f64.powi(-7),
        DType::F64 => 1e-13,
        _ => 1e-5,
    }
}

#[track_caller]
fn agree(device: &Device, case: &Case, dtype: DType, seed: u64) {
    let (found, expected) = (computed(device, case, dtype, seed), computed(&cpu(), case, dtype, seed));
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
        // f32 sums in two orders can round to different 16-bit values.
        let near = (found - expected).abs() <= tolerance(dtype, *expected);
        assert!(near, "{} of {dtype} at {at}: {found}, expected {expected}", case.0);
    }
}

/// Checks that every case agrees with the CPU in every type, with one library call each.
fn agrees(device: &Device, function: &str, dtypes: &[DType]) {
    let control = Control::open();
    for dtype in dtypes {
        for case in CASES {
            for seed in [1, 77] {
                let calls = control.calls(function);
                agree(device, case, *dtype, seed);
                assert_eq!(control.calls(function) - calls, 1, "{} of {dtype}: the library computes it", case.0);
            }
        }
    }
}

/// Trains networks that consist mostly of products; from the second step on, recorded command buffers are replayed.
fn trains() {
    let before = panoply::plan_cache_stats().replays;
    training_steps::agree(&cuda(library()));
    assert!(panoply::plan_cache_stats().replays > before + 10, "steps are replayed");
    let (calls, graphs) = (Control::open().calls(CUBLASLT), Control::open().calls("cuGraphLaunch"));
    // Two products forward and three backward, in each of twenty steps of two networks.
    assert_eq!(calls, 200, "the library computes the products");
    assert!(graphs > 20, "{graphs} graph launches: the launches between products are graphs");
}

#[test]
fn cublaslt_agrees_with_the_cpu() {
    run("cuda agrees", &[]);
    run("cuda agrees", &[("PANOPLY_FAKE_CUDA", "capability=90")]);
    run("cuda, before Ampere", &[("PANOPLY_FAKE_CUDA", "capability=75")]);
}

/// The library does not support bf16 there; this is known before planning.
fn before_ampere() {
    let (device, control) = (cuda(library()), Control::open());
    agrees(&device, CUBLASLT, &[DType::F32, DType::F16, DType::F64]);
    let calls = control.calls(CUBLASLT);
    agree(&device, &CASES[0], DType::BF16, 5);
    assert_eq!(control.calls(CUBLASLT), calls, "kernels compute bf16");
}

#[test]
fn tf32_is_used_only_if_allowed() {
    run("cuda, TF32", &[]);
    run("cuda, TF32", &[("PANOPLY_FAKE_CUDA", "capability=90")]);
    run("cuda, no TF32", &[("PANOPLY_FAKE_CUDA", "capability=75")]);
}

#[test]
fn a_bias_is_added_by_cublaslt() {
    run("cuda, bias", &[]);
}

#[test]
fn a_network_trains_through_cublaslt() {
    run("cuda trains", &[]);
}

#[test]
fn cublaslt_failures_are_reported_once_and_fall_back_to_kernels() {
    let output = run("a product fails", &[]);
    let line = "panoply: cuda:0: cuBLASLt 12.4 (";
    let lines: Vec<&str> = output.lines().filter(|text| text.starts_with(line)).collect();
    assert_eq!(lines.len(), 1, "{output}");
    assert!(
        lines[0].ends_with(
            "): f32 1×5×3×7: CUBLAS_STATUS_INTERNAL_ERROR (14); update the CUDA toolkit or report this; using kernels instead \
             from now on"
        ),
        "{output}"
    );
    let output = run("a replay fails", &[]);
    assert_eq!(output.matches("CUBLAS_STATUS_INTERNAL_ERROR (14)").count(), 2, "{output}");
    let output = run("the library does not start", &[]);
    assert_eq!(output.matches("initializing: CUBLAS_STATUS_NOT_INITIALIZED (1)").count(), 1, "{output}");
    let output = run("the heuristic fails", &[]);
    assert_eq!(output.matches("CUBLAS_STATUS_INTERNAL_ERROR (14)").count(), 1, "{output}");
}

fn a_product_fails() {
    let (device, control) = (cuda(library()), Control::open());
    assert!(device.blas_library().unwrap().starts_with("cuBLASLt 12.4 ("), "{:?}", device.blas_library());
    control.fail(CUBLASLT, 14, 0, 1);
    for seed in 0..5 {
        agree(&device, &CASES[0], DType::F32, seed);
        assert_eq!(control.calls(CUBLASLT), 1, "a failed product is not retried");
    }
    agree(&device, &CASES[1], DType::F32, 3);
    assert_eq!(control.calls(CUBLASLT), 2, "the library computes other products");
}

/// The third run of a plan replays its command buffer, and so does that of a captured function.
fn a_replay_fails() {
    let (device, control) = (cuda(library()), Control::open());
    control.fail(CUBLASLT, 14, 2, 1);
    for seed in 0..6 {
        agree(&device, &CASES[0], DType::F32, seed);
    }
    assert_eq!(control.calls(CUBLASLT), 3, "two that succeed, and one that fails");
    let weight = Tensor::from_slice(&numbers(35, 7), [5, 7]).to(&device);
    let captured = jit(|[x]| [x.matmul(&weight).relu()]);
    control.fail(CUBLASLT, 14, 3, 1);
    for seed in 0..8 {
        let x = Tensor::from_slice(&numbers(20, seed), [4, 5]);
        let [found] = captured.call([&x.to(&device)]).unwrap();
        let found: Vec<f32> = found.to_vec().unwrap();
        let expected: Vec<f32> = x.to(&cpu()).matmul(&weight.to(&cpu())).relu().to_vec().unwrap();
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?}, expected {expected:?}");
    }
    assert_eq!(control.calls(CUBLASLT), 3 + 4);
    assert!(panoply::plan_cache_stats().replays >= 4, "{:?}", panoply::plan_cache_stats());
}

fn does_not_start() {
    let (device, control) = (cuda(library()), Control::open());
    control.fail("cublasLtCreate", 1, 0, u32::MAX);
    assert!(
        device.blas_library().unwrap().starts_with("cuBLASLt 12.4 ("),
        "the library is not started before the device is used"
    );
    device.zeros::<f32>(4).unwrap();
    assert!(
        device.blas_library().unwrap().starts_with("own kernels"),
        "the library is started when the device is used"
    );
    for (seed, case) in CASES.iter().enumerate() {
        agree(&device, case, DType::F32, seed as u64);
    }
    assert_eq!((control.calls("cublasLtCreate"), control.calls(CUBLASLT)), (1, 0));
    let products = device.blas_library().unwrap();
    assert!(products.starts_with("own kernels: cuda:0: cuBLASLt 12.4 ("), "{products}");
    assert!(products.contains("initializing: CUBLAS_STATUS_NOT_INITIALIZED (1); install a cuBLASLt for"), "{products}");
}

fn cannot_say() {
    let (device, control) = (cuda(library()), Control::open());
    control.fail("cublasLtMatmulAlgoGetHeuristic", 14, 0, u32::MAX);
    agree(&device, &CASES[0], DType::F32, 1);
    assert_eq!(control.calls(CUBLASLT), 0);
}

#[test]
fn products_run_without_a_workspace_if_memory_is_short() {
    run("no room for a workspace", &[("PANOPLY_FAKE_CUDA", "pools=1")]);
}

fn no_workspace() {
    let (device, control) = (cuda(library()), Control::open());
    let deep = CASES.iter().find(|case| case.0 == "deep").unwrap();
    // Tensor memory comes from the stream's pool, so this call allocates the workspace.
    control.fail("cuMemAlloc_v2", 2, 0, 1);
    agree(&device, deep, DType::F32, 1);
    assert_eq!((control.calls(CUBLASLT), control.calls("cuMemAlloc_v2")), (1, 1));
    for seed in 2..6 {
        agree(&device, deep, DType::F16, seed);
    }
    assert_eq!((control.calls(CUBLASLT), control.calls("cuMemAlloc_v2")), (5, 2), "one workspace for the queue");
    let asked = control.calls("cublasLtMatmulAlgoGetHeuristic");
    agree(&device, deep, DType::F16, 9);
    assert_eq!(control.calls("cublasLtMatmulAlgoGetHeuristic"), asked, "the heuristic is queried once for each shape");
}

#[test]
fn without_cublaslt_the_reason_is_reported_and_kernels_are_used() {
    run("no library", &[]);
    run("reported", &[]);
    run("a library too new", &[("PANOPLY_FAKE_CUDA", "cublas=13")]);
}

fn no_library() {
    for (path, expected) in [
        (
            "/nowhere/libcublasLt.so.12",
            "own kernels: cuda: /nowhere/libcublasLt.so.12 cannot be loaded; install cuBLASLt",
        ),
        (
            "libm.so.6",
            "own kernels: cuda: libm.so.6 lacks cublasLtGetProperty, so it is not cuBLASLt of CUDA 11 or later",
        ),
    ] {
        if cfg!(not(target_os = "linux")) && path == "libm.so.6" {
            println!("SKIPPED: a library that is not NVIDIA's: only on Linux is the name of one known");
            continue;
        }
        let device = cuda(PathBuf::from(path));
        let products = device.blas_library().unwrap();
        assert!(products.starts_with(expected), "{products}");
        agree(&device, &CASES[0], DType::F32, 1);
    }
    let driver = CudaDriver { library: Some(library()), ..CudaDriver::default() };
    let registry = Registry::new(vec![Arc::new(driver)], DeviceOptions::default());
    let device = registry.devices(Backend::Cuda).unwrap().swap_remove(0);
    assert_eq!(
        device.blas_library().unwrap(),
        "own kernels: cuda: no matrix product library was chosen with the driver's",
        "the system's library cannot use simulated memory"
    );
    assert_eq!(Control::open().calls(CUBLASLT), 0);
    assert_eq!(cpu().blas_library(), None);
}

/// `panoply devices` names the library that computes products.
fn reported() {
    let driver = CudaDriver { library: Some(library()), products: Some(library()) };
    let registry = Registry::new(vec![Arc::new(driver), Arc::new(CpuDriver::default())], DeviceOptions::default());
    let report = registry.device_report().unwrap().to_string();
    let lines: Vec<&str> = report.lines().filter(|line| line.contains("matrix products")).collect();
    let place = library().display().to_string();
    assert_eq!(lines, [format!("        matrix products: cuBLASLt 12.4 ({place})")], "{report}");
    assert_eq!(Control::open().calls("cublasLtCreate"), 0, "the library is found but not started");
}

fn too_new() {
    let device = cuda(library());
    let products = device.blas_library().unwrap();
    assert!(
        products
            .contains(" is cuBLASLt 13.4, this program needs 11.0 or later and the driver 12.x or earlier; install"),
        "{products}"
    );
    agree(&device, &CASES[0], DType::F32, 1);
    assert_eq!(Control::open().calls("cublasLtCreate"), 0);
}

#[test]
fn the_library_releases_all_objects() {
    run("all objects are released", &[]);
}

/// `c = a × b` of 5×200 and 200×3, for which the library wants a workspace.
const DEEP: Gemm = Gemm {
    dtype: DType::F32,
    tf32: false,
    bias: false,
    batch: 1,
    m: 5,
    n: 3,
    k: 200,
    a: by_rows(200),
    b: by_rows(3),
    c: by_rows(3),
};

const fn by_rows(row: usize) -> Layout {
    Layout { offset: 0, batch: 0, row, column: 1 }
}

/// Returns buffers for [`DEEP`].
fn buffers(device: &Device) -> [Buffer<f32>; 3] {
    let Gemm { m, n, k, .. } = DEEP;
    let [a, b] = [(m * k, 1), (k * n, 2)].map(|(count, seed)| device.buffer(&numbers(count, seed)).unwrap());
    [a, b, device.zeros::<f32>(m * n).unwrap()]
}

fn work([a, b, c]: &[Buffer<f32>; 3]) -> runtime::Command<'_> {
    runtime::Command::Routine {
        routine: Routine::Gemm(DEEP),
        buffers: vec![a.storage(), b.storage(), c.storage()],
        epilogue: None,
    }
}

/// Checks that a device releases everything its library creates for a product, at least `made` objects: handles,
/// descriptors of the product for any alignment and for the actual one, and a workspace.
fn given_back(open: impl FnOnce() -> Device, made: u64) {
    let control = Control::open();
    {
        let device = open();
        let buffers = buffers(&device);
        let kept = control.live();
        assert!(device.supports_routine(&Routine::Gemm(DEEP)));
        device.submit(&[work(&buffers)]).unwrap();
        assert!(control.live() >= kept + made, "{kept} and {}", control.live());
        for vendor in ["cublas", "hipblas"] {
            let [made, gone] =
                ["Create", "Destroy"].map(|what| control.calls(&format!("{vendor}LtMatmulPreference{what}")));
            assert_eq!(made, gone);
        }
    }
    // The thread that waits for the device's work releases the device last.
    let late = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while control.live() > 0 && std::time::Instant::now() < late {
        std::thread::yield_now();
    }
    assert_eq!(control.live(), 0, "objects that were not released");
    assert_eq!(
        control.calls("cuCtxPushCurrent_v2"),
        control.calls("cuCtxPopCurrent_v2"),
        "every pushed context is popped"
    );
}

#[test]
fn each_queue_has_its_own_workspace() {
    run("two queues", &[]);
}

#[test]
fn a_device_with_a_library_passes_the_conformance_suite() {
    run("the contract", &[]);
}

/// The conformance suite of every device, with products by the library.
fn the_contract() {
    let (device, control) = (cuda(library()), Control::open());
    device.conformance(|outcome| {
        assert!(!matches!(outcome.verdict, CaseResult::Failed(_)), "{}: {:?}", outcome.name, outcome.verdict);
    });
    assert_eq!(control.calls(CUBLASLT), 3);
}

#[test]
fn rocblas_agrees_with_the_cpu() {
    run("rocm agrees", &[("PANOPLY_FAKE_HIP", "architecture=1100")]);
    run("rocm, halves of gfx90a", &[("PANOPLY_FAKE_HIP", "architecture=90a")]);
}

fn rocm_agrees() {
    executed(|| {
        let device = rocm(library());
        assert!(device.blas_library().unwrap().starts_with("rocBLAS 4.2.0 ("), "{:?}", device.blas_library());
        agrees(&device, ROCBLAS, &[DType::F32, DType::F16, DType::BF16, DType::F64]);
        assert_eq!(
            Control::open().calls("rocblas_set_atomics_mode"),
            1,
            "atomics are disabled, so sums are reproducible"
        );
    });
}

/// The matrix instructions of gfx90a flush subnormal f16 to zero, so kernels compute f16.
fn halves_of_gfx90a() {
    executed(|| {
        let (device, control) = (rocm(library()), Control::open());
        agrees(&device, ROCBLAS, &[DType::F32, DType::BF16]);
        let calls = control.calls(ROCBLAS);
        agree(&device, &CASES[0], DType::F16, 5);
        assert_eq!(control.calls(ROCBLAS), calls);
    });
}

#[test]
fn rocblas_is_not_started_on_gpus_it_has_no_kernels_for() {
    run("rocm, no kernels", &[("PANOPLY_FAKE_HIP", "architecture=1031")]);
}

/// The library would end the process.
fn no_kernels() {
    let device = rocm(library());
    let products = device.blas_library().unwrap();
    assert!(products.starts_with("own kernels: rocm: rocBLAS 4.2.0 ("), "{products}");
    assert!(
        products.contains("has no kernels for gfx1031 in ") && products.contains("; install rocBLAS's"),
        "{products}"
    );
    executed(|| agree(&device, &CASES[0], DType::F32, 1));
    assert_eq!(Control::open().calls("rocblas_create_handle"), 0);
    let device = rocm(PathBuf::from("/nowhere/librocblas.so"));
    let products = device.blas_library().unwrap();
    assert!(
        products.starts_with("own kernels: rocm: /nowhere/librocblas.so cannot be loaded; install rocBLAS"),
        "{products}"
    );
}

#[test]
fn rocblas_failures_fall_back_to_kernels() {
    let output = run("rocm, a product fails", &[]);
    let reported = output.contains(": f32 1×5×3×7: rocblas_status_internal_error (6); update ROCm");
    assert!(reported || output.contains("SKIPPED"), "{output}");
}

fn rocm_fails() {
    let (device, control) = (rocm(library()), Control::open());
    control.fail(ROCBLAS, 6, 0, 1);
    agree(&device, &CASES[0], DType::F32, 1);
    agree(&device, &CASES[0], DType::F32, 2);
    assert_eq!(control.calls(ROCBLAS), 1);
}
