//! Backends and device properties.

use std::fmt;
use std::str::FromStr;

use panoply_ir::Error;

/// A backend (device interface), in the order in which `auto` prefers them.
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
    /// All backends, in order of preference.
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

    /// Returns the name used in `PANOPLY_DEVICE` and on the command line.
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

    /// Returns the name for display.
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
            Error::mistake(format!("{name}: unknown backend; expected one of {}", known.join(", ")))
        })
    }
}

/// Properties of a device, as reported by its driver.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// The backend.
    pub kind: Backend,
    /// Index in the interface's enumeration, from 0.
    pub index: usize,
    /// Suffix of the device string that replaces the index, if any: `checked` for `cpu:checked`.
    pub variant: Option<String>,
    /// Name of the device.
    pub name: String,
    /// Name of the vendor.
    pub vendor: String,
    /// Name and version of the driver.
    pub driver: String,
    /// True for a software implementation, which `auto` never selects. False for the CPU backend.
    pub is_software: bool,
    /// True if the device shares memory with the host.
    pub unified_memory: bool,
    /// Number of compute units, multiprocessors or cores.
    pub compute_units: u32,
    /// Identity of the physical device (PCI address, UUID or LUID as text), if the driver reports it.
    pub physical_id: Option<String>,
    /// Further properties, as name and value.
    pub details: Vec<(String, String)>,
}

impl DeviceInfo {
    /// Returns the name that a user writes: `opencl:0`, `cpu` or `cpu:checked`.
    pub fn device_string(&self) -> String {
        match (&self.variant, self.kind) {
            (Some(variant), kind) => format!("{kind}:{variant}"),
            (None, Backend::Cpu) => "cpu".to_string(),
            (None, kind) => format!("{kind}:{}", self.index),
        }
    }
}

/// Memory of a device, as reported by its driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Total bytes.
    pub total: u64,
    /// Free bytes, if the driver reports them.
    pub free: Option<u64>,
}
