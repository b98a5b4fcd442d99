//! The OpenCL driver on every implementation of this machine: PoCL, Intel's CPU runtime, oclgrind, and none.
//!
//! The loader's drivers are fixed for a process, so each configuration is a child process: this binary again, with [`child`] as its only
//! test and the environment set.

#![cfg(feature = "opencl")]

mod checks;
mod vendors;

use std::path::Path;

use panoply_device::{Driver, ErrorKind, RawDevice};
use panoply_driver::OpenClDriver;

use vendors::{Child, vendor};

/// Runs the job that the parent process named; does nothing otherwise.
#[test]
fn child() {
    match vendors::job().as_deref() {
        None => {}
        Some("checks") => run_checks(),
        Some("two devices") => two_devices(),
        Some("concurrent discovery") => asked_at_once(),
        Some("absent") => absent(),
        Some("broken beside good") => broken_beside_good(),
        Some(job) => panic!("no job {job}"),
    }
}

#[test]
fn pocl() {
    vendor("pocl").run("checks", &[]);
}

#[test]
fn intel() {
    vendor("intel").run("checks", &[]);
}

/// Out-of-bounds accesses, data races and uninitialized reads of the test kernels would appear in its log.
#[test]
fn oclgrind() {
    if let Some(log) = vendor("oclgrind").run("checks", vendors::OCLGRIND) {
        log.lines().filter(|line| line.starts_with("SKIPPED")).for_each(|line| println!("{line}"));
        vendors::assert_clean(&log);
    }
}

#[test]
fn two_pocl_devices_are_listed() {
    vendor("pocl").run("two devices", &[("POCL_DEVICES", "pthread pthread")]);
}

/// PoCL returned half-initialized devices to a second thread that queried them meanwhile.
#[test]
fn concurrent_discovery() {
    (0..10).for_each(|_| drop(vendor("pocl").run("concurrent discovery", &[])));
}

/// The loader cannot be loaded: an empty file with its name comes first.
#[test]
fn no_loader() {
    if cfg!(target_os = "linux") {
        let folder = scratch("no-loader");
        std::fs::write(folder.join("libOpenCL.so.1"), "").unwrap();
        Child::new(&[])
            .run("absent", &[("LD_LIBRARY_PATH", text(&folder)), ("EXPECT", "libOpenCL.so.1 cannot be loaded")]);
        std::fs::remove_dir_all(folder).unwrap();
    } else {
        println!("SKIPPED: hiding the OpenCL loader: only possible on Linux");
    }
}

#[test]
fn no_driver() {
    if vendor("pocl").is_missing() {
        return;
    }
    let folder = scratch("no-driver");
    Child::new(&[]).run("absent", &[("OCL_ICD_VENDORS", text(&folder)), ("EXPECT", "found no driver")]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_broken_driver_alone() {
    if vendor("pocl").is_missing() {
        return;
    }
    let folder = scratch("broken");
    std::fs::write(folder.join("broken.icd"), "/nowhere/libbroken.so\n").unwrap();
    let expect = "broken.icd names \"/nowhere/libbroken.so\", which does not load";
    Child::new(&[]).run("absent", &[("OCL_ICD_VENDORS", text(&folder)), ("EXPECT", expect)]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_broken_driver_beside_a_good_one() {
    let Some(good) = vendor("pocl").registration() else { return };
    let folder = scratch("beside");
    std::fs::write(folder.join("a-broken.icd"), "/nowhere/libbroken.so\n").unwrap();
    std::fs::copy(good, folder.join("pocl.icd")).unwrap();
    Child::new(&[]).run("broken beside good", &[("OCL_ICD_VENDORS", text(&folder))]);
    std::fs::remove_dir_all(folder).unwrap();
}

fn run_checks() {
    // SAFETY: this test passes only valid arguments.
    let devices = unsafe { OpenClDriver::default().devices() }.unwrap();
    for device in devices {
        let live = device.live();
        for (name, check) in checks::ALL {
            let (spelling, device_name) = (device.info().device_string(), &device.info().name);
            if device_name.contains("Oclgrind") && checks::BEYOND_OCLGRIND.contains(name) {
                println!("SKIPPED: {name} on {device_name}: it crashes or takes minutes");
                continue;
            }
            println!("{spelling} ({device_name}): {name}");
            check(&device);
        }
        drop(device);
        assert_eq!(live(), panoply_driver::opencl::Live::default(), "objects that were not released");
    }
}

fn two_devices() {
    // SAFETY: this test passes only valid arguments.
    let devices = unsafe { OpenClDriver::default().devices() }.unwrap();
    let indices: Vec<usize> = devices.iter().map(|device| device.info().index).collect();
    assert_eq!(indices, [0, 1]);
    for device in &devices {
        checks::saxpy(device);
    }
    checks::tickets_of_other_devices_are_refused(&devices[0], &devices[1]);
}

fn asked_at_once() {
    let start = std::sync::Barrier::new(8);
    let ask = || {
        start.wait();
        // SAFETY: this test passes only valid arguments.
        unsafe { OpenClDriver::default().devices() }.unwrap().len()
    };
    let counts = std::thread::scope(|scope| [(); 8].map(|()| scope.spawn(ask)).map(|thread| thread.join().unwrap()));
    assert!(counts.iter().all(|count| *count == counts[0] && *count > 0), "{counts:?}");
}

fn absent() {
    let expected = std::env::var("EXPECT").unwrap();
    // SAFETY: this test passes only valid arguments.
    let error = unsafe { OpenClDriver::default().probe() }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(&expected), "{error}");
    assert_eq!(
        // SAFETY: this test passes only valid arguments.
        unsafe { OpenClDriver::default().probe() }.unwrap_err().to_string(),
        error.to_string(),
        "a second query returns the same error"
    );
}

fn broken_beside_good() {
    // SAFETY: this test passes only valid arguments.
    assert_eq!(unsafe { OpenClDriver::default().probe() }.unwrap().len(), 1);
    let refused = OpenClDriver::default().rejected();
    assert!(refused.len() == 1 && refused[0].message().contains("a-broken.icd"), "{refused:?}");
}

fn scratch(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("panoply-driver-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
