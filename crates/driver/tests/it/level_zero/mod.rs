//! The Level Zero driver on a simulated loader: messages when something is missing or broken, calls of the driver, and release of all
//! objects. The simulated library executes kernels with Intel's CPU runtime for OpenCL if it is installed; `crates/runtime/tests` runs the
//! conformance suite and random kernels on it.

#![cfg(feature = "oneapi")]

mod child_process;
use crate::support::fake_library;

use std::path::PathBuf;

use panoply_device::{Driver, ErrorKind};
use panoply_driver::LevelZeroDriver;

#[test]
fn child() {
    fake_library::child(child_process::JOBS);
}

/// Runs a job in a child process whose driver is configured by `choices`.
fn run(job: &str, choices: &str) {
    fake_library::run(module_path!(), job, &[("PANOPLY_FAKE_ZE", choices)]);
}

/// The simulated loader aborts the process if it is called after a failed `zeInit`, as Debian's does.
#[test]
fn nothing_is_called_after_a_failed_init() {
    for (choices, expected) in [
        (
            "devices=0",
            "starting Level Zero: ZE_RESULT_ERROR_UNINITIALIZED (2013265921); no driver for an Intel GPU is installed",
        ),
        ("init=1879113728", "ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS (1879113728); add the user to the group render"),
        ("init=1879179264", "ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE (1879179264); reinstall Intel's GPU driver"),
        ("init=2147483646", "ZE_RESULT_ERROR_UNKNOWN (2147483646)"),
    ] {
        fake_library::run(module_path!(), "absent", &[("PANOPLY_FAKE_ZE", choices), ("EXPECT", expected)]);
    }
}

/// Uses the loader that Debian installs, on a machine that has it.
#[test]
fn the_installed_loader_fails_cleanly() {
    // SAFETY: no device is used.
    match unsafe { LevelZeroDriver::default().probe() } {
        Ok(devices) => println!("{} GPUs through Level Zero", devices.len()),
        Err(error) if error.message().contains("cannot be loaded") => {
            println!("SKIPPED: the installed loader of Level Zero: {}", error.message());
        }
        Err(error) => assert!(error.is_unavailable() && error.message().contains("Level Zero"), "{error}"),
    }
}

#[test]
fn missing_and_wrong_libraries_are_reported() {
    let message = |library: &str| {
        let driver = LevelZeroDriver { library: Some(PathBuf::from(library)) };
        // SAFETY: no device is used.
        let error = unsafe { driver.probe() }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(driver.rejected().is_empty());
        error.to_string()
    };
    let missing = message("/nowhere/libze_loader.so.1");
    assert!(
        missing.starts_with("oneapi: /nowhere/libze_loader.so.1 cannot be loaded; install Level Zero's"),
        "{missing}"
    );
    if cfg!(target_os = "linux") {
        let other = message("libm.so.6");
        assert!(
            other.starts_with("oneapi: libm.so.6 lacks zeInit, so it is not the loader of Level Zero 1"),
            "{other}"
        );
    } else {
        println!("SKIPPED: a library that is not Intel's: only Linux has one with a known name");
    }
}

#[test]
fn devices_describe_themselves() {
    run("describes itself", "");
}

#[test]
fn devices_other_than_gpus_are_skipped() {
    run("one of two is a GPU", "devices=2");
}

#[test]
fn kernels_compute() {
    run("computes", "");
}

#[test]
fn memory_runs_out_and_is_freed() {
    run("out of memory", "memory=16777216");
    run("all objects are released", "");
    run("bytes are copied", "");
}

#[test]
fn failures_have_the_right_error_kind() {
    run("a lost device", "");
    run("a refused launch is an error once", "");
    run("refused programs", "");
}
