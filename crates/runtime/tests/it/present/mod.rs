//! The devices that are here, for tests that run on all of them.

#![allow(dead_code, reason = "each test program uses its part")]

use std::sync::{Arc, OnceLock};

use panoply_device::{Driver, RawDevice};
use panoply_driver::{CudaDriver, HipDriver, LevelZeroDriver, OneApiDriver, WgpuDriver};
use panoply_runtime::{Backend, Device, DeviceOptions};

/// Every device but those that `PANOPLY_TEST_NO_OPENCL` and `PANOPLY_TEST_NO_VULKAN` hide, each with a pool and a program cache of its own, so that tests
/// that run at the same time can count. What is skipped is said once.
pub fn devices() -> Vec<Device> {
    raw_devices().iter().map(|raw| Device::new(raw.clone(), DeviceOptions::default())).collect()
}

/// The same, as their drivers gave them.
pub fn raw_devices() -> &'static [Arc<dyn RawDevice>] {
    static FOUND: OnceLock<Vec<Arc<dyn RawDevice>>> = OnceLock::new();
    FOUND.get_or_init(|| {
        cuda().into_iter().chain(rocm()).chain(oneapi()).chain(opencl()).chain(vulkan()).chain(cpu()).collect()
    })
}

/// What NVIDIA's driver finds, and the one that only pretends to be it and runs PTX on the CPU.
fn cuda() -> Vec<Arc<dyn RawDevice>> {
    let pretended = CudaDriver { library: Some(panoply_driver_sim::library()), ..CudaDriver::default() };
    // SAFETY: only `runtime` uses the devices, and it validates what it passes on.
    let mut devices = unsafe { pretended.probe() }.expect("the pretended driver is always here");
    // SAFETY: only `runtime` uses the devices, and it validates what it passes on.
    devices.extend(unsafe { CudaDriver::default().probe() }.unwrap_or_else(|error| {
        eprintln!("SKIPPED: nothing ran on an NVIDIA GPU: {}", error.message());
        Vec::new()
    }));
    devices
}

/// What AMD's driver finds, and the one that only pretends to be it and has clang make programs for the host of HIP's.
fn rocm() -> Vec<Arc<dyn RawDevice>> {
    let mut devices = Vec::new();
    if panoply_driver_sim::Control::open().execute() {
        let pretended = HipDriver { library: Some(panoply_driver_sim::library()), ..HipDriver::default() };
        // SAFETY: only `runtime` uses the devices, and it validates what it passes on.
        devices.extend(unsafe { pretended.probe() }.expect("the pretended driver is always here"));
    } else {
        eprintln!("SKIPPED: no HIP was executed: clang-19 is not installed; `cargo xtask install` installs it");
    }
    // SAFETY: only `runtime` uses the devices, and it validates what it passes on.
    devices.extend(unsafe { HipDriver::default().probe() }.unwrap_or_else(|error| {
        eprintln!("SKIPPED: nothing ran on an AMD GPU through ROCm: {}", error.message());
        Vec::new()
    }));
    devices
}

/// Intel's GPUs, or Intel's CPU runtime for OpenCL, which takes the same SPIR-V, also behind a library that only pretends to be Level Zero's.
fn oneapi() -> Vec<Arc<dyn RawDevice>> {
    if std::env::var_os("PANOPLY_TEST_NO_OPENCL").is_some() {
        eprintln!("SKIPPED: nothing ran as SPIR-V: PANOPLY_TEST_NO_OPENCL is set");
        return Vec::new();
    }
    // SAFETY: only `runtime` uses the devices, and it validates what it passes on.
    let mut devices =
        unsafe { OneApiDriver { software: true, ..OneApiDriver::default() }.probe() }.unwrap_or_else(|error| {
            eprintln!("SKIPPED: nothing ran as SPIR-V: {error}");
            Vec::new()
        });
    if panoply_driver_sim::Control::open().executes_spirv() {
        let pretended = LevelZeroDriver { library: Some(panoply_driver_sim::library()) };
        // SAFETY: only `runtime` uses the devices, and it validates what it passes on.
        devices.extend(unsafe { pretended.probe() }.expect("the pretended driver is always here"));
    } else {
        eprintln!("SKIPPED: nothing ran behind Level Zero: no OpenCL driver here takes SPIR-V and any address");
    }
    devices
}

fn vulkan() -> Vec<Arc<dyn RawDevice>> {
    if std::env::var_os("PANOPLY_TEST_NO_VULKAN").is_some() {
        eprintln!("SKIPPED: nothing ran on Vulkan: PANOPLY_TEST_NO_VULKAN is set");
        return Vec::new();
    }
    // SAFETY: only `runtime` uses the devices, and it validates what it passes on.
    unsafe { WgpuDriver::new(Backend::Vulkan).probe() }.unwrap_or_else(|error| {
        eprintln!("SKIPPED: nothing ran on Vulkan: {error}");
        Vec::new()
    })
}

fn cpu() -> Vec<Arc<dyn RawDevice>> {
    // SAFETY: only `runtime` uses the devices, and it validates what it passes on.
    unsafe { panoply_cpu::CpuDriver::default().probe() }.expect("the CPU is always here")
}

fn opencl() -> Vec<Arc<dyn RawDevice>> {
    if std::env::var_os("PANOPLY_TEST_NO_OPENCL").is_some() {
        eprintln!("SKIPPED: nothing ran on OpenCL: PANOPLY_TEST_NO_OPENCL is set");
        return Vec::new();
    }
    // SAFETY: only `runtime` uses the devices, and it validates what it passes on.
    unsafe { panoply_driver::OpenClDriver::default().probe() }.unwrap_or_else(|error| {
        eprintln!("SKIPPED: nothing ran on OpenCL: {error}");
        Vec::new()
    })
}

/// Whether the device reports what an author may not rely on, such as an access beyond a buffer that a guard makes harmless.
pub fn is_checked(device: &Device) -> bool {
    device.info().variant.as_deref() == Some("checked")
}
