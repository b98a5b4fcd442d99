//! Which device this is, in the driver's own words.

use std::fmt;
use std::str::FromStr;

use panoply_ir::Error;

/// A family of devices, in the order in which `auto` prefers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the variants are the interfaces' own names")]
pub enum Backend {
    Cuda,
    Rocm,
    Metal,
    OneApi,
    OpenCl,
    Vulkan,
    Dx12,
    WebGpu,
    Cpu,
}

impl Backend {
    /// Every kind, the preferred first.
    pub const ALL: [Backend; 9] = [
        Backend::Cuda,
        Backend::Rocm,
        Backend::Metal,
        Backend::OneApi,
        Backend::OpenCl,
        Backend::Vulkan,
        Backend::Dx12,
        Backend::WebGpu,
        Backend::Cpu,
    ];

    /// The spelling in `PANOPLY_DEVICE` and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Cuda => "cuda",
            Backend::Rocm => "rocm",
            Backend::Metal => "metal",
            Backend::OneApi => "oneapi",
            Backend::OpenCl => "opencl",
            Backend::Vulkan => "vulkan",
            Backend::Dx12 => "dx12",
            Backend::WebGpu => "webgpu",
            Backend::Cpu => "cpu",
        }
    }

    /// The name in a sentence.
    pub const fn title(self) -> &'static str {
        match self {
            Backend::Cuda => "CUDA",
            Backend::Rocm => "ROCm",
            Backend::Metal => "Metal",
            Backend::OneApi => "oneAPI",
            Backend::OpenCl => "OpenCL",
            Backend::Vulkan => "Vulkan",
            Backend::Dx12 => "DirectX 12",
            Backend::WebGpu => "WebGPU",
            Backend::Cpu => "CPU",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(name: &str) -> Result<Backend, Error> {
        Backend::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let known: Vec<&str> = Backend::ALL.iter().map(|kind| kind.name()).collect();
            Error::mistake(format!("{name}: no such kind of device; one of {}", known.join(", ")))
        })
    }
}

/// What a driver says about one device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// The family.
    pub kind: Backend,
    /// Position in the interface's own enumeration, from 0.
    pub index: usize,
    /// What stands after the colon instead of the index, if anything: `checked` for `cpu:checked`.
    pub variant: Option<String>,
    /// The device's name.
    pub name: String,
    /// Who made it.
    pub vendor: String,
    /// The driver and its version.
    pub driver: String,
    /// Whether this is a program that only pretends to be a device; never taken by `auto` (the CPU kind is none).
    pub is_software: bool,
    /// Whether it shares memory with the host.
    pub unified_memory: bool,
    /// Compute units, multiprocessors or cores.
    pub compute_units: u32,
    /// The physical device: PCI address, UUID or LUID as text, if the driver tells.
    pub physical_id: Option<String>,
    /// What else is worth showing, as name and value.
    pub details: Vec<(String, String)>,
}

impl DeviceInfo {
    /// How a user spells this device: `opencl:0`, `cpu`, `cpu:checked`.
    pub fn device_string(&self) -> String {
        match (&self.variant, self.kind) {
            (Some(variant), kind) => format!("{kind}:{variant}"),
            (None, Backend::Cpu) => "cpu".to_string(),
            (None, kind) => format!("{kind}:{}", self.index),
        }
    }
}

/// A device's memory as the driver sees it now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes in all.
    pub total: u64,
    /// Bytes free, if the driver tells.
    pub free: Option<u64>,
}
