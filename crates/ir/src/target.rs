//! What a device can do, as far as generated code must know.
//!
//! Passes and renderers take a [`Target`] and never ask which device it is. Values come from the driver, not from tables
//! of ours. It is plain data, so a test can impersonate any device.

use crate::dtype::DType;

/// The limits and abilities of a device that shape the code made for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// What the code depends on besides these fields: language, driver and version, architecture. Part of cache keys.
    pub name: String,
    /// What a program handed to the device is.
    pub language: Language,
    /// How loops are mapped.
    pub style: Style,
    /// Largest group along each axis.
    pub max_group: [u32; 3],
    /// Largest group in all.
    pub max_group_items: u32,
    /// Work-items of a subgroup, a power of two; 1 if the device has none that programs can use.
    pub subgroup: u32,
    /// Shared memory a group can have, in bytes.
    pub shared_bytes: u32,
    /// Bytes that the private arrays of a whole group may take: where work-items of a group share the stack of a thread. `u64::MAX` where
    /// each has memory of its own.
    pub private_bytes: u64,
    /// Buffers a kernel can bind.
    pub max_bindings: u32,
    /// Largest buffer in bytes.
    pub max_buffer_bytes: u64,
    /// Most bytes of one buffer that a launch sees, from a multiple of [`Target::BINDING_ALIGN`] on; `u64::MAX` where it sees all.
    pub max_binding_bytes: u64,
    /// Whether f16 arithmetic exists; storage always does.
    pub f16: bool,
    /// Whether bf16 arithmetic exists; storage always does.
    pub bf16: bool,
    /// Whether f64 exists.
    pub f64: bool,
    /// Whether 64-bit integers exist, so that indices may have as many bits.
    pub int64: bool,
    /// Whether atomic addition of f32 exists; otherwise it is a compare-exchange loop.
    pub atomic_f32: bool,
    /// Whether it multiplies small matrices of f16 and bf16 itself, as [`Mma`](crate::collective::Mma) says.
    pub mma: bool,
}

/// What a program is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// The kernel IR itself: the device has its own back half.
    Ir,
    /// OpenCL C 1.2.
    OpenClC,
    /// HIP C++ for the architecture of the device, without HIP's headers.
    Hip,
    /// NVIDIA's PTX for devices of this compute capability (86 is 8.6) and later ones.
    Ptx {
        /// Ten times the major version plus the minor one.
        capability: u32,
    },
    /// WGSL, with the extensions for 64-bit numbers where the device has those.
    Wgsl,
    /// SPIR-V of the kernel flavour as assembly text, of which drivers make words.
    SpirV,
    /// NVIDIA's CUDA C++: programs of a user's own, never a target's.
    CudaC,
    /// Apple's Metal Shading Language: programs of a user's own, never a target's.
    Msl,
}

impl Language {
    /// The name in a sentence.
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

/// Which mapping of loops suits the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Style {
    /// Many small groups, neighboring work-items read neighboring addresses.
    Gpu,
    /// Few cores, each running a block of this many work-items in lockstep; lanes want the contiguous axis.
    Cpu {
        /// Work-items of a block.
        block: u32,
    },
}

impl Target {
    /// Where the bytes that a launch sees of a buffer may begin: multiples of this.
    pub const BINDING_ALIGN: u64 = 256;

    /// The largest buffer that one launch sees as a whole.
    pub fn max_seen_bytes(&self) -> u64 {
        self.max_buffer_bytes.min(self.max_binding_bytes)
    }

    /// The CPU's vector machine, as a starting point for tests and for the CPU device.
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

    /// A plain GPU of OpenCL 1.2's minimum, for tests.
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

    /// The same through its intermediate language instead of OpenCL C, for tests.
    pub fn spirv_minimum() -> Target {
        Target { name: "spirv".into(), language: Language::SpirV, ..Target::opencl_minimum() }
    }

    /// An NVIDIA GPU of a compute capability, with what every one of them has, for tests.
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

    /// An AMD GPU whose waves have this many work-items, with what every one of them has, for tests.
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

    /// A GPU with WebGPU's default limits and no extension, for tests.
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

    /// Work-items of a subgroup of a kernel with this group size.
    ///
    /// Subgroups are made of consecutive linear ids. Only PTX and HIP promise that for groups of several axes; elsewhere such a
    /// kernel, or one without a fixed group, has none: every work-item is a subgroup of its own.
    pub fn subgroup_of(&self, group: Option<[u32; 3]>) -> u32 {
        match (self.language, group) {
            (Language::Hip | Language::Ptx { .. }, Some(_)) | (_, Some([_, 1, 1])) => self.subgroup,
            _ => 1,
        }
    }

    /// Bytes that an element takes in shared memory, which is words where the language has nothing smaller.
    pub fn shared_elem_bytes(&self, dtype: DType) -> u64 {
        let least = if self.language == Language::Wgsl { 4 } else { 1 };
        dtype.bytes().max(least) as u64
    }

    /// Whether arithmetic on this element type exists here (storage of f16 and bf16 always does).
    pub fn computes(&self, dtype: DType) -> bool {
        match dtype {
            DType::F64 => self.f64,
            // In WGSL they are pairs of words where they are nothing else.
            DType::I64 | DType::U64 => self.int64 || self.language == Language::Wgsl,
            DType::F16 => self.f16,
            DType::BF16 => self.bf16,
            DType::Bool | DType::I8 | DType::I16 | DType::I32 | DType::U8 | DType::U16 | DType::U32 | DType::F32 => {
                true
            }
        }
    }
}
