//! The available devices, for tests that run on all of them.

#![allow(dead_code, reason = "each test program uses a part of the module")]

use std::sync::{Arc, OnceLock};

use panoply_device::{Driver, RawDevice};
use panoply_driver::{CudaDriver, HipDriver, LevelZeroDriver, OneApiDriver, WgpuDriver};
use panoply_runtime::{Backend, Device, DeviceOptions};

/// Returns every device, except those that `PANOPLY_TEST_NO_OPENCL` and `PANOPLY_TEST_NO_VULKAN` hide. Each has a separate pool and program
/// cache, so that concurrent tests can count. Skipped devices are reported once.
pub fn devices() -> Vec<Device> {
    raw_devices().iter().map(|raw| Device::new(raw.clone(), DeviceOptions::default())).collect()
}

/// Returns the raw devices of the drivers.
pub fn raw_devices() -> &'static [Arc<dyn RawDevice>] {
    static FOUND: OnceLock<Vec<Arc<dyn RawDevice>>> = OnceLock::new();
    FOUND.get_or_init(|| {
        cuda().into_iter().chain(rocm()).chain(oneapi()).chain(opencl()).chain(vulkan()).chain(cpu()).collect()
    })
}

/// Returns NVIDIA's devices, and the simulated CUDA driver, which interprets PTX on the CPU.
fn cuda() -> Vec<Arc<dyn RawDevice>> {
    let pretended = CudaDriver { library: Some(panoply_driver_sim::library()), ..CudaDriver::default() };
    // SAFETY: only `runtime` uses the devices, and it validates its arguments.
    let mut devices = unsafe { pretended.probe() }.expect("the simulated driver is always available");
    // SAFETY: only `runtime` uses the devices, and it validates its arguments.
    devices.extend(unsafe { CudaDriver::default().probe() }.unwrap_or_else(|error| {
        eprintln!("SKIPPED: nothing ran on an NVIDIA GPU: {}", error.message());
        Vec::new()
    }));
    devices
}

/// Returns AMD's devices, and the simulated HIP driver, which compiles programs for the host with clang.
fn rocm() -> Vec<Arc<dyn RawDevice>> {
    let mut devices = Vec::new();
    if panoply_driver_sim::Control::open().execute() {
        let pretended = HipDriver { library: Some(panoply_driver_sim::library()), ..HipDriver::default() };
        // SAFETY: only `runtime` uses the devices, and it validates its arguments.
        devices.extend(unsafe { pretended.probe() }.expect("the simulated driver is always available"));
    } else {
        eprintln!("SKIPPED: no HIP was executed: clang-19 is not installed; `cargo xtask install` installs it");
    }
    // SAFETY: only `runtime` uses the devices, and it validates its arguments.
    devices.extend(unsafe { HipDriver::default().probe() }.unwrap_or_else(|error| {
        eprintln!("SKIPPED: nothing ran on an AMD GPU through ROCm: {}", error.message());
        Vec::new()
    }));
    devices
}

/// Returns Intel's GPUs or Intel's CPU runtime for OpenCL, which takes the same SPIR-V; also behind a simulated Level Zero library.
fn oneapi() -> Vec<Arc<dyn RawDevice>> {
    if std::env::var_os("PANOPLY_TEST_NO_OPENCL").is_some() {
        eprintln!("SKIPPED: nothing ran as SPIR-V: PANOPLY_TEST_NO_OPENCL is set");
        return Vec::new();
    }
    // SAFETY: only `runtime` uses the devices, and it validates its arguments.
    let mut devices =
        unsafe { OneApiDriver { software: true, ..OneApiDriver::default() }.probe() }.unwrap_or_else(|error| {
            eprintln!("SKIPPED: nothing ran as SPIR-V: {error}");
            Vec::new()
        });
    if panoply_driver_sim::Control::open().executes_spirv() {
        let pretended = LevelZeroDriver { library: Some(panoply_driver_sim::library()) };
        // SAFETY: only `runtime` uses the devices, and it validates its arguments.
        devices.extend(unsafe { pretended.probe() }.expect("the simulated driver is always available"));
    } else {
        eprintln!(
            "SKIPPED: nothing ran behind Level Zero: no OpenCL driver here supports SPIR-V and arbitrary addresses"
        );
    }
    devices
}

fn vulkan() -> Vec<Arc<dyn RawDevice>> {
    if std::env::var_os("PANOPLY_TEST_NO_VULKAN").is_some() {
        eprintln!("SKIPPED: nothing ran on Vulkan: PANOPLY_TEST_NO_VULKAN is set");
        return Vec::new();
    }
    // SAFETY: only `runtime` uses the devices, and it validates its arguments.
    unsafe { WgpuDriver::new(Backend::Vulkan).probe() }.unwrap_or_else(|error| {
        eprintln!("SKIPPED: nothing ran on Vulkan: {error}");
        Vec::new()
    })
}

fn cpu() -> Vec<Arc<dyn RawDevice>> {
    // SAFETY: only `runtime` uses the devices, and it validates its arguments.
    unsafe { panoply_cpu::CpuDriver::default().probe() }.expect("the CPU is always available")
}

fn opencl() -> Vec<Arc<dyn RawDevice>> {
    if std::env::var_os("PANOPLY_TEST_NO_OPENCL").is_some() {
        eprintln!("SKIPPED: nothing ran on OpenCL: PANOPLY_TEST_NO_OPENCL is set");
        return Vec::new();
    }
    // SAFETY: only `runtime` uses the devices, and it validates its arguments.
    unsafe { panoply_driver::OpenClDriver::default().probe() }.unwrap_or_else(|error| {
        eprintln!("SKIPPED: nothing ran on OpenCL: {error}");
        Vec::new()
    })
}

/// Returns true if the device reports accesses that are legal but unreliable, such as a guarded out-of-bounds access.
pub fn is_checked(device: &Device) -> bool {
    device.info().variant.as_deref() == Some("checked")
}
