//! Device capabilities, as far as code generation depends on them.
//!
//! Passes and renderers take a [`Target`] and never ask for the device's identity. Values come from the driver, not from built-in
//! tables. It is plain data, so a test can simulate any device.

use crate::dtype::DType;

/// Limits and capabilities of a device that affect the code generated for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Everything else that the code depends on: language, driver and version, architecture. Part of cache keys.
    pub name: String,
    /// Language of the device's programs.
    pub language: Language,
    /// Mapping of loops.
    pub style: Style,
    /// Maximum work-group size along each axis.
    pub max_group: [u32; 3],
    /// Maximum number of work-items in a work-group.
    pub max_group_items: u32,
    /// Subgroup size, a power of two; 1 if programs cannot use subgroups.
    pub subgroup: u32,
    /// Maximum bytes of shared memory per work-group.
    pub shared_bytes: u32,
    /// Maximum bytes of the private arrays of a work-group, where its work-items share the stack of a thread. `u64::MAX` where each
    /// work-item has separate memory.
    pub private_bytes: u64,
    /// Maximum number of buffers that a kernel can bind.
    pub max_bindings: u32,
    /// Maximum size of a buffer in bytes.
    pub max_buffer_bytes: u64,
    /// Maximum bytes of a buffer that a launch can bind, from a multiple of [`Target::BINDING_ALIGN`] on; `u64::MAX` if unlimited.
    pub max_binding_bytes: u64,
    /// True if f16 arithmetic is supported; storage always is.
    pub f16: bool,
    /// True if bf16 arithmetic is supported; storage always is.
    pub bf16: bool,
    /// True if f64 is supported.
    pub f64: bool,
    /// True if 64-bit integers are supported, so that indices can have 64 bits.
    pub int64: bool,
    /// True if atomic addition of f32 is supported; otherwise it is a compare-exchange loop.
    pub atomic_f32: bool,
    /// True if small matrix products of f16 and bf16 are supported, as defined by [`Mma`](crate::collective::Mma).
    pub mma: bool,
}

/// Language of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// The kernel IR; the device has its own code generator.
    Ir,
    /// OpenCL C 1.2.
    OpenClC,
    /// HIP C++ for the device's architecture, without HIP's headers.
    Hip,
    /// NVIDIA PTX for this compute capability (86 is 8.6) or newer.
    Ptx {
        /// Ten times the major version plus the minor version.
        capability: u32,
    },
    /// WGSL, with the extensions for 64-bit numbers if the device has them.
    Wgsl,
    /// SPIR-V of the Kernel flavor as assembly text, which drivers assemble.
    SpirV,
    /// NVIDIA CUDA C++, only for user-supplied programs.
    CudaC,
    /// Apple's Metal Shading Language, only for user-supplied programs.
    Msl,
}

impl Language {
    /// Returns the name for display.
    pub const fn name(self) -> &'static str {
        match self {
            Language::Ir => "kernel IR",
            Language::OpenClC => "OpenCL C",
            Language::Hip => "HIP C++",
            Language::Ptx { .. } => "PTX",
            Language::Wgsl => "WGSL",
            Language::SpirV => "SPIR-V",
            Language::CudaC => "CUDA C++",
            Language::Msl => "MSL",
        }
    }
}

/// Mapping of loops that suits the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Style {
    /// Many small work-groups; neighboring work-items access neighboring addresses.
    Gpu,
    /// Few cores, each running a block of this many work-items in lockstep; the contiguous axis is mapped to lanes.
    Cpu {
        /// Work-items per block.
        block: u32,
    },
}

impl Target {
    /// Alignment of the start of a binding within a buffer.
    pub const BINDING_ALIGN: u64 = 256;

    /// Returns the maximum size of a buffer that one launch can bind whole.
    pub fn max_seen_bytes(&self) -> u64 {
        self.max_buffer_bytes.min(self.max_binding_bytes)
    }

    /// Returns the target of the CPU's vector machine, for the CPU device and for tests.
    pub fn cpu() -> Target {
        Target {
            name: "vm".into(),
            language: Language::Ir,
            style: Style::Cpu { block: 512 },
            max_group: [1024; 3],
            max_group_items: 1024,
            subgroup: 1,
            shared_bytes: 64 << 10,
            private_bytes: u64::MAX,
            max_bindings: 64,
            max_buffer_bytes: u64::MAX,
            max_binding_bytes: u64::MAX,
            f16: true,
            bf16: true,
            f64: true,
            int64: true,
            atomic_f32: true,
            mma: false,
        }
    }

    /// Returns a GPU target with the minimum of OpenCL 1.2, for tests.
    pub fn opencl_minimum() -> Target {
        Target {
            name: "opencl".into(),
            language: Language::OpenClC,
            style: Style::Gpu,
            max_group: [256; 3],
            max_group_items: 256,
            subgroup: 1,
            shared_bytes: 32 << 10,
            private_bytes: u64::MAX,
            max_bindings: 32,
            max_buffer_bytes: 128 << 20,
            max_binding_bytes: u64::MAX,
            f16: false,
            bf16: false,
            f64: false,
            int64: true,
            atomic_f32: false,
            mma: false,
        }
    }

    /// Like [`Target::opencl_minimum`] with SPIR-V instead of OpenCL C, for tests.
    pub fn spirv_minimum() -> Target {
        Target { name: "spirv".into(), language: Language::SpirV, ..Target::opencl_minimum() }
    }

    /// Returns an NVIDIA GPU target with the minimum of a compute capability, for tests.
    pub fn cuda_minimum(capability: u32) -> Target {
        Target {
            name: format!("PTX sm_{capability}"),
            language: Language::Ptx { capability },
            style: Style::Gpu,
            max_group: [1024, 1024, 64],
            max_group_items: 1024,
            subgroup: 32,
            shared_bytes: 48 << 10,
            private_bytes: u64::MAX,
            max_bindings: 64,
            max_buffer_bytes: 1 << 40,
            max_binding_bytes: u64::MAX,
            f16: false,
            bf16: false,
            f64: true,
            int64: true,
            atomic_f32: true,
            mma: capability >= 80,
        }
    }

    /// Returns an AMD GPU target with the minimum for this wavefront size, for tests.
    pub fn hip_minimum(wave: u32) -> Target {
        Target {
            name: format!("HIP, waves of {wave}"),
            language: Language::Hip,
            style: Style::Gpu,
            max_group: [1024; 3],
            max_group_items: 1024,
            subgroup: wave,
            shared_bytes: 64 << 10,
            private_bytes: u64::MAX,
            max_bindings: 64,
            max_buffer_bytes: 1 << 40,
            max_binding_bytes: u64::MAX,
            f16: true,
            bf16: false,
            f64: true,
            int64: true,
            atomic_f32: true,
            mma: false,
        }
    }

    /// Returns a GPU target with WebGPU's default limits and no extensions, for tests.
    pub fn webgpu_minimum() -> Target {
        Target {
            name: "webgpu".into(),
            language: Language::Wgsl,
            style: Style::Gpu,
            max_group: [256, 256, 64],
            max_group_items: 256,
            subgroup: 1,
            shared_bytes: 16 << 10,
            private_bytes: u64::MAX,
            max_bindings: 8,
            max_buffer_bytes: 256 << 20,
            max_binding_bytes: 128 << 20,
            f16: false,
            bf16: false,
            f64: false,
            int64: false,
            atomic_f32: false,
            mma: false,
        }
    }

    /// Returns the subgroup size of a kernel with this work-group size.
    ///
    /// Subgroups consist of consecutive linear ids. Only PTX and HIP guarantee that for work-groups with several axes. Elsewhere such a
    /// kernel, or one without a fixed work-group size, has no subgroups: each work-item is a separate subgroup.
    pub fn subgroup_of(&self, group: Option<[u32; 3]>) -> u32 {
        match (self.language, group) {
            (Language::Hip | Language::Ptx { .. }, Some(_)) | (_, Some([_, 1, 1])) => self.subgroup,
            _ => 1,
        }
    }

    /// Returns the bytes of an element in shared memory; at least 4 in WGSL, which has no smaller types.
    pub fn shared_elem_bytes(&self, dtype: DType) -> u64 {
        let least = if self.language == Language::Wgsl { 4 } else { 1 };
        dtype.bytes().max(least) as u64
    }

    /// Returns true if arithmetic on this element type is supported (storage of f16 and bf16 always is).
    pub fn computes(&self, dtype: DType) -> bool {
        match dtype {
            DType::F64 => self.f64,
            // WGSL emulates them as pairs of 32-bit words if there is no native type.
            DType::I64 | DType::U64 => self.int64 || self.language == Language::Wgsl,
            DType::F16 => self.f16,
            DType::BF16 => self.bf16,
            DType::Bool | DType::I8 | DType::I16 | DType::I32 | DType::U8 | DType::U16 | DType::U32 | DType::F32 => {
                true
            }
        }
    }
}
