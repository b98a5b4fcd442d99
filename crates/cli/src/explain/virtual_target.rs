//! Targets of `--target`: devices that are not present, with the minimum capabilities of their type.
//!
//! A null device represents them, so that they pass through the same stages as any other device.

use std::sync::Arc;

use panoply::internal::ir::Target;
use panoply::internal::{NullDevice, routines};
use panoply::runtime::DeviceOptions;
use panoply::{Backend, Device, DeviceInfo, Error, Result};

/// Default model of an NVIDIA GPU: the first one with tensor cores for bf16.
const CAPABILITY: &str = "sm_80";

/// Compute capabilities of NVIDIA's GPUs, ten times the version, from Maxwell to Blackwell (CUDA C++ Programming Guide and PTX ISA 9.0).
const CAPABILITIES: [u32; 21] =
    [50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121];

/// Default model of an AMD GPU: the first one with waves of 32 lanes.
const ARCHITECTURE: &str = "gfx1010";

/// A null device for a backend, such as `metal`, or for a model, such as `cuda:sm_90`.
pub struct VirtualTarget {
    pub device: Device,
    /// A line that describes the target.
    pub note: String,
}

impl VirtualTarget {
    /// Parses the spelling of `--target`.
    pub fn new(spelling: &str) -> Result<VirtualTarget> {
        let (kind, model) = spelling.split_once(':').map_or((spelling, None), |(kind, model)| (kind, Some(model)));
        let kind: Backend =
            kind.parse().map_err(|wrong: Error| Error::mistake(format!("explain: --target {wrong}")))?;
        let (target, model, what) =
            of(kind, model).ok_or_else(|| Error::mistake(format!("explain: --target {spelling}: {}", models(kind))))?;
        let target = Target { name: format!("{kind}:{model}"), ..target };
        let info = DeviceInfo {
            kind,
            index: 0,
            variant: Some(model.to_string()),
            name: what.clone(),
            vendor: "panoply".to_string(),
            driver: "none".to_string(),
            is_software: false,
            unified_memory: false,
            compute_units: 1,
            physical_id: None,
            details: Vec::new(),
        };
        // Buffers have no storage, so that any size fits.
        let null = NullDevice::new(target).with_info(info).in_memory(u64::MAX >> 1).without_memory();
        let null = if kind == Backend::Cpu { null.with_routines(routines::offers) } else { null };
        let products = match kind {
            Backend::Cuda | Backend::Rocm => ", such as its vendor's matrix products",
            Backend::Metal
            | Backend::OneApi
            | Backend::OpenCl
            | Backend::Vulkan
            | Backend::Dx12
            | Backend::WebGpu
            | Backend::Cpu => "",
        };
        let note = format!(
            "no device was queried: this is for the minimum capabilities of {what}; a real device (--device) can have \
             more{products}"
        );
        Ok(VirtualTarget { device: Device::new(Arc::new(null), DeviceOptions::from_env()?), note })
    }
}

/// Returns the minimum target of a backend and model, the model, and a description; `None` if there is no such model.
fn of(kind: Backend, model: Option<&str>) -> Option<(Target, &str, String)> {
    let least = model.unwrap_or("minimum");
    let plain = |target: Target, what: &str| model.is_none().then(|| (target, least, what.to_string()));
    match kind {
        Backend::Cuda => {
            let model = model.unwrap_or(CAPABILITY);
            let digits = model.strip_prefix("sm_")?;
            let capability = digits.parse().ok().filter(|capability| CAPABILITIES.contains(capability))?;
            if digits.starts_with(['0', '+']) {
                return None;
            }
            let (major, minor) = (capability / 10, capability % 10);
            let what = format!("NVIDIA GPUs of compute capability {major}.{minor} ({model})");
            Some((Target::cuda_minimum(capability), model, what))
        }
        Backend::Rocm => {
            let model = model.unwrap_or(ARCHITECTURE);
            // Generations from 6 on; the last digit, the stepping, is hexadecimal.
            let number = model.strip_prefix("gfx")?;
            let (generation, stepping) = number.split_at_checked(number.len().checked_sub(1)?)?;
            let is_stepping = stepping.bytes().all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit));
            let is_number = generation.bytes().all(|digit| digit.is_ascii_digit()) && !generation.starts_with('0');
            let generation: u32 = generation.parse().ok().filter(|number| is_number && (60..1000).contains(number))?;
            let wave = if generation >= 100 { 32 } else { 64 };
            let what = format!("AMD GPUs of architecture {model} with waves of {wave}");
            is_stepping.then(|| (Target::hip_minimum(wave), model, what))
        }
        Backend::OpenCl => plain(Target::opencl_minimum(), "GPUs with OpenCL 1.2"),
        Backend::OneApi => plain(Target::spirv_minimum(), "GPUs of oneAPI's Level Zero"),
        Backend::Metal | Backend::Vulkan | Backend::Dx12 | Backend::WebGpu => {
            plain(Target::webgpu_minimum(), &format!("GPUs with {} (WebGPU's default limits)", kind.title()))
        }
        Backend::Cpu => plain(Target::cpu(), "CPUs"),
    }
}

/// Describes the models of a backend.
fn models(kind: Backend) -> &'static str {
    match kind {
        Backend::Cuda => "a cuda model is the compute capability of an NVIDIA GPU from 5.0 to 12.1, such as cuda:sm_90",
        Backend::Rocm => "a rocm model is an architecture, such as rocm:gfx90a",
        Backend::Metal
        | Backend::OneApi
        | Backend::OpenCl
        | Backend::Vulkan
        | Backend::Dx12
        | Backend::WebGpu
        | Backend::Cpu => "only cuda and rocm have models, such as cuda:sm_90",
    }
}
