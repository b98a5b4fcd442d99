//! The Level Zero driver on a library that only pretends to be Intel's loader: what it says when something is missing or broken, what
//! it asks of the driver, and that it gives back what it took. The library has kernels executed by Intel's CPU runtime for OpenCL where that is
//! here; `crates/runtime/tests` run the conformance suite and random kernels on it.

#![cfg(feature = "oneapi")]

mod jobs;
use crate::shared;

use std::path::PathBuf;

use panoply_device::{Driver, ErrorKind};
use panoply_driver::LevelZeroDriver;

#[test]
fn child() {
    shared::child(jobs::ALL);
}

/// Does a job in a process of its own, whose driver offers what `choices` say.
fn run(job: &str, choices: &str) {
    shared::run(module_path!(), job, &[("PANOPLY_FAKE_ZE", choices)]);
}

/// The pretended loader ends the process if it is asked for drivers after a start that failed, as Debian's does.
#[test]
fn without_a_gpu_nothing_is_asked_after_the_start() {
    for (choices, expected) in [
        (
            "devices=0",
            "starting Level Zero: ZE_RESULT_ERROR_UNINITIALIZED (2013265921); no GPU of Intel's has a driver here",
        ),
        ("init=1879113728", "ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS (1879113728); add the user to the group render"),
        ("init=1879179264", "ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE (1879179264); reinstall Intel's GPU driver"),
        ("init=2147483646", "ZE_RESULT_ERROR_UNKNOWN (2147483646)"),
    ] {
        shared::run(module_path!(), "absent", &[("PANOPLY_FAKE_ZE", choices), ("EXPECT", expected)]);
    }
}

/// The loader that Debian installs, on a machine that has it.
#[test]
fn the_real_loader_stops_cleanly() {
    // SAFETY: no device is used.
    match unsafe { LevelZeroDriver::default().probe() } {
        Ok(devices) => println!("{} GPUs through Level Zero", devices.len()),
        Err(error) if error.message().contains("cannot be loaded") => {
            println!("SKIPPED: the real loader of Level Zero: {}", error.message());
        }
        Err(error) => assert!(error.is_unavailable() && error.message().contains("Level Zero"), "{error}"),
    }
}

#[test]
fn a_library_that_is_missing_or_another() {
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
        assert!(other.starts_with("oneapi: libm.so.6 lacks zeInit, so it is no loader of Level Zero 1"), "{other}");
    } else {
        println!("SKIPPED: a library that is not Intel's: only Linux surely has one of a known name");
    }
}

#[test]
fn a_device_says_what_it_is() {
    run("describes itself", "");
}

#[test]
fn what_is_no_gpu_is_no_device() {
    run("one of two is a gpu", "devices=2");
}

#[test]
fn kernels_compute() {
    run("computes", "");
}

#[test]
fn memory_runs_out_and_is_given_back() {
    run("out of memory", "memory=16777216");
    run("everything is given back", "");
    run("bytes arrive", "");
}

#[test]
fn failures_have_their_kind() {
    run("a lost device", "");
    run("a refused launch is an error once", "");
    run("refused programs", "");
}
