//! The CUDA driver on a simulated NVIDIA library: messages when something is missing, forbidden, outdated or broken, and release of all
//! objects.
#![cfg(feature = "cuda")]

mod child_process;
use crate::support::fake_library;

use std::path::{Path, PathBuf};

use panoply_device::{Driver, ErrorKind};
use panoply_driver::CudaDriver;

#[test]
fn child() {
    fake_library::child(child_process::JOBS);
}

/// Runs a job in a child process whose driver is configured by `choices`.
fn run(job: &str, choices: &str) {
    fake_library::run(module_path!(), job, &[("PANOPLY_FAKE_CUDA", choices)]);
}

/// Checks that discovery fails with the expected message.
fn absent(choices: &str, expected: &str) {
    fake_library::run(module_path!(), "absent", &[("PANOPLY_FAKE_CUDA", choices), ("EXPECT", expected)]);
}

#[test]
fn missing_devices_are_reported_with_a_remedy() {
    absent("devices=0", "CUDA_ERROR_NO_DEVICE (100); the driver sees no GPU; check CUDA_VISIBLE_DEVICES");
    absent("driver=8000", "the driver is for CUDA 8.0, this program needs 9.0 or later; update NVIDIA's driver");
    absent("init=34", "CUDA_ERROR_STUB_LIBRARY (34); a toolkit's stub was found before the driver");
    absent(
        "init=304",
        "CUDA_ERROR_OPERATING_SYSTEM (304); the operating system denied access; check the permissions of /dev/nvidia*",
    );
    absent(
        "init=803",
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803); library and kernel module differ; restart the machine",
    );
    absent("init=999", "CUDA_ERROR_UNKNOWN (999)");
    absent("capability=35", "has compute capability 3.5, this program needs 5.0 or later; use it through OpenCL");
    absent("prohibited=0", "is in compute mode Prohibited; run `nvidia-smi -i 0 -c 0` to allow processes");
}

#[test]
fn missing_and_wrong_libraries_are_reported() {
    let message = |library: &str| {
        let driver = CudaDriver { library: Some(PathBuf::from(library)), ..CudaDriver::default() };
        // SAFETY: no device is used.
        let error = unsafe { driver.probe() }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(driver.rejected().is_empty());
        error.to_string()
    };
    let missing = message("/nowhere/libcuda.so.1");
    assert!(missing.starts_with("cuda: /nowhere/libcuda.so.1 cannot be loaded; install NVIDIA's driver"), "{missing}");
    if cfg!(target_os = "linux") {
        let other = message("libm.so.6");
        assert!(other.starts_with("cuda: libm.so.6 lacks cuInit, so it is not NVIDIA's driver"), "{other}");
    } else {
        println!("SKIPPED: a library that is not NVIDIA's: only Linux has one with a known name");
    }
}

#[test]
fn one_of_two_devices_is_rejected_and_the_other_works() {
    run("second of two", "devices=2,prohibited=0");
    run("first is broken", "devices=2,broken=0");
}

#[test]
fn memory_with_and_without_pools() {
    for choices in ["pools=1", "pools=0", "driver=11010,pools=0"] {
        run("out of memory", &format!("memory=16777216,{choices}"));
        run("all objects are released", choices);
        run("queues share memory", choices);
    }
}

#[test]
fn failures_have_the_right_error_kind() {
    run("an illegal address loses the device", "");
    run("a failed launch is an error once", "");
    run("the driver's compiler is missing", "");
}

#[test]
fn invalid_programs_are_rejected() {
    run("refused programs", "");
    run("newer than the device", "capability=61");
}

#[test]
fn user_written_programs() {
    run("compiled code", "");
    let Some(folder) = nvrtc() else {
        println!("SKIPPED: CUDA C++: NVRTC is not in .tools; `cargo xtask install` installs it");
        return;
    };
    let folder = folder.to_str().unwrap();
    fake_library::run(
        module_path!(),
        "CUDA C++",
        &[("PANOPLY_FAKE_CUDA", "capability=89"), ("LD_LIBRARY_PATH", folder)],
    );
    fake_library::run(
        module_path!(),
        "CUDA C++",
        &[("PANOPLY_FAKE_CUDA", "capability=120"), ("LD_LIBRARY_PATH", folder)],
    );
}

#[test]
fn command_buffers_become_graphs() {
    run("graphs", "");
    run("no graphs", "");
}

#[test]
fn missing_nvrtc_is_reported_with_a_remedy() {
    if ["/usr/local/cuda/lib64/libnvrtc.so", "/usr/lib/x86_64-linux-gnu/libnvrtc.so.12"]
        .iter()
        .any(|file| Path::new(file).exists())
    {
        println!("SKIPPED: a missing NVRTC: this system has one");
        return;
    }
    fake_library::run(module_path!(), "no NVRTC", &[("LD_LIBRARY_PATH", "")]);
}

/// Returns the folder in which `cargo xtask install` put NVIDIA's compiler.
fn nvrtc() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/venv/lib");
    let versions = std::fs::read_dir(python).ok()?;
    let folder = |version: PathBuf| version.join("site-packages/nvidia/cuda_nvrtc/lib");
    versions.flatten().map(|version| folder(version.path())).find(|folder| folder.join("libnvrtc.so.12").exists())
}
