//! The ROCm driver on a simulated AMD library: messages when something is missing, forbidden, outdated or broken, calls of the compiler,
//! and release of all objects. **No kernel is executed here**: the simulated library copies bytes and checks launches.
//! `crates/runtime/tests/it/conformance.rs` and `crates/panoply/tests/it/hip.rs` execute kernels.

#![cfg(feature = "rocm")]

mod child_process;
use crate::support::fake_library;

use std::path::PathBuf;

use panoply_device::{Driver, ErrorKind};
use panoply_driver::HipDriver;

#[test]
fn child() {
    fake_library::child(child_process::JOBS);
}

/// Runs a job in a child process whose driver is configured by `choices`.
fn run(job: &str, choices: &str) {
    fake_library::run(module_path!(), job, &[("PANOPLY_FAKE_HIP", choices)]);
}

/// Checks that discovery fails with the expected message.
fn absent(choices: &str, expected: &str) {
    fake_library::run(module_path!(), "absent", &[("PANOPLY_FAKE_HIP", choices), ("EXPECT", expected)]);
}

#[test]
fn missing_devices_are_reported_with_a_remedy() {
    absent("devices=0", "hipErrorInvalidDevice (101); the driver sees no GPU; check HIP_VISIBLE_DEVICES");
    absent("init=100", "hipErrorNoDevice (100); the driver sees no GPU");
    absent("hip=40321822", "the driver is for ROCm 4.3, this program needs 5.0 or later; update ROCm");
    absent("init=35", "hipErrorInsufficientDriver (35); the kernel's amdgpu is older than ROCm; update it");
    absent(
        "init=304",
        "hipErrorOperatingSystem (304); the operating system denied access; check the permissions of /dev/kfd and /dev/dri",
    );
    absent("init=999", "hipErrorUnknown (999)");
    absent("architecture=803", "is gfx803, this program needs gfx900 or later; use it through OpenCL or Vulkan");
    if cfg!(target_os = "linux") && !PathBuf::from("/dev/kfd").exists() {
        absent(
            "devices=0",
            "/dev/kfd does not exist: no AMD GPU, the kernel module amdgpu is not loaded, or a container",
        );
    }
}

/// The simulated compiler aborts the process for these, as AMD's did before ROCm 6, so it must not be called.
#[test]
fn old_compilers_are_not_called_for_unknown_architectures() {
    absent(
        "hip=50221153,architecture=1201",
        "is gfx1201, which the compiler of ROCm 5.2 does not support; update ROCm to 6.0",
    );
    absent("hip=50731921,architecture=942", "is gfx942, which the compiler of ROCm 5.7 does not support");
    run("programs are compiled for the device", "hip=60400000,architecture=1201");
    run("programs are compiled for the device", "hip=50221153,architecture=1030");
}

#[test]
fn missing_and_wrong_libraries_are_reported() {
    let message = |library: &str| {
        let driver = HipDriver { library: Some(PathBuf::from(library)), ..HipDriver::default() };
        // SAFETY: no device is used.
        let error = unsafe { driver.probe() }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(driver.rejected().is_empty());
        error.to_string()
    };
    let missing = message("/nowhere/libamdhip64.so.6");
    assert!(
        missing.starts_with("rocm: /nowhere/libamdhip64.so.6 cannot be loaded; install ROCm's HIP runtime"),
        "{missing}"
    );
    if cfg!(target_os = "linux") {
        let other = message("libm.so.6");
        assert!(other.starts_with("rocm: libm.so.6 lacks hipInit, so it is not a HIP runtime"), "{other}");
    } else {
        println!("SKIPPED: a library that is not AMD's: only Linux has one with a known name");
    }
}

#[test]
fn devices_describe_themselves() {
    run("a wavefront of 64", "architecture=90a,pools=1");
    run("a wavefront of 32", "architecture=1100,pools=0");
}

#[test]
fn one_of_two_devices_is_broken_and_the_other_works() {
    run("first is broken", "devices=2,broken=0");
}

#[test]
fn memory_with_and_without_pools() {
    for choices in ["pools=1", "pools=0"] {
        run("out of memory", &format!("memory=16777216,{choices}"));
        run("all objects are released", choices);
        run("bytes are copied", choices);
        run("the thread keeps its device", &format!("devices=2,{choices}"));
    }
}

#[test]
fn failures_have_the_right_error_kind() {
    run("a fault loses the device", "");
    run("a refused launch is an error once", "");
    run("refused programs", "");
}

#[test]
fn compiled_code_and_graphs() {
    run("compiled code", "");
    run("graphs", "");
}
