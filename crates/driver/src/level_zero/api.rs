//! Level Zero's loader: the functions that are called and the structures that they take, as declared in the specification's header.

use std::ffi::{c_char, c_void};
use std::path::Path;
use std::ptr;

use panoply_device::{Backend, Result};

use crate::library::{DevicePtr, Handle, Opened, Words, functions};

pub const WORDS: Words = Words {
    kind: Backend::OneApi.name(),
    files: if cfg!(windows) { &["ze_loader.dll"] } else { &["libze_loader.so.1"] },
    prefix: "ze",
    install: "install Level Zero's loader (package libze1) and Intel's GPU driver (package intel-level-zero-gpu)",
    lacking: "so it is not the loader of Level Zero 1; update it",
};

functions! {
    /// The functions of Level Zero; its specification describes them.
    Functions
    needed {
        init(u32) "zeInit";
        drivers(*mut u32, *mut Handle) "zeDriverGet";
        driver(Handle, *mut DriverProperties) "zeDriverGetProperties";
        devices(Handle, *mut u32, *mut Handle) "zeDeviceGet";
        properties(Handle, *mut DeviceProperties) "zeDeviceGetProperties";
        compute(Handle, *mut ComputeProperties) "zeDeviceGetComputeProperties";
        arithmetic(Handle, *mut ModuleProperties) "zeDeviceGetModuleProperties";
        memories(Handle, *mut u32, *mut MemoryProperties) "zeDeviceGetMemoryProperties";
        context_create(Handle, *const ContextDescription, *mut Handle) "zeContextCreate";
        context_destroy(Handle) "zeContextDestroy";
        allocate(Handle, *const MemoryDescription, usize, usize, Handle, *mut DevicePtr) "zeMemAllocDevice";
        free(Handle, DevicePtr) "zeMemFree";
        list_create(Handle, Handle, *const QueueDescription, *mut Handle) "zeCommandListCreateImmediate";
        list_destroy(Handle) "zeCommandListDestroy";
        launch(Handle, Handle, *const [u32; 3], Handle, u32, *const Handle) "zeCommandListAppendLaunchKernel";
        copy(Handle, *mut c_void, *const c_void, usize, Handle, u32, *const Handle) "zeCommandListAppendMemoryCopy";
        fill(Handle, DevicePtr, *const u8, usize, usize, Handle, u32, *const Handle) "zeCommandListAppendMemoryFill";
        module_create(Handle, Handle, *const ModuleDescription, *mut Handle, *mut Handle) "zeModuleCreate";
        module_destroy(Handle) "zeModuleDestroy";
        module_binary(Handle, *mut usize, *mut u8) "zeModuleGetNativeBinary";
        log_text(Handle, *mut usize, *mut u8) "zeModuleBuildLogGetString";
        log_destroy(Handle) "zeModuleBuildLogDestroy";
        kernel_create(Handle, *const KernelDescription, *mut Handle) "zeKernelCreate";
        kernel_destroy(Handle) "zeKernelDestroy";
        kernel_group(Handle, u32, u32, u32) "zeKernelSetGroupSize";
        kernel_argument(Handle, u32, usize, *const c_void) "zeKernelSetArgumentValue";
    }
    optional {
        pci(Handle, *mut PciProperties) "zeDevicePciGetPropertiesExt";
    }
}

/// Opens the loader; `chosen` is the path of another library to use instead.
pub fn open(chosen: Option<&Path>) -> Result<Functions> {
    let library = Opened::open(&WORDS, chosen)?;
    Functions::find(&library, &WORDS)
}

/// The first members of every structure: its type, and a null pointer to extensions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Head {
    kind: u32,
    next: *const c_void,
}

/// Declares structures of the specification with their type tag as the first member.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident $kind:literal { $($field:ident: $ty:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            pub head: Head,
            $(pub $field: $ty,)*
        }

        impl $name {
            /// Returns a structure that is zero except for the head.
            pub fn new() -> $name {
                // SAFETY: every member is a number, an array of numbers or a pointer, for which zero is a valid value.
                let zero: $name = unsafe { std::mem::zeroed() };
                $name { head: Head { kind: $kind, next: ptr::null() }, ..zero }
            }
        }
    )*};
}

structures! {
    /// Version of a driver.
    DriverProperties 0x1 {
        uuid: [u8; 16],
        version: u32,
    }
    /// Properties of a device.
    DeviceProperties 0x3 {
        ty: u32,
        vendor: u32,
        device: u32,
        flags: u32,
        subdevice: u32,
        clock: u32,
        largest: u64,
        contexts: u32,
        priorities: u32,
        threads_of_unit: u32,
        width_of_unit: u32,
        units_of_subslice: u32,
        subslices_of_slice: u32,
        slices: u32,
        timer: u64,
        timestamp_bits: u32,
        kernel_timestamp_bits: u32,
        uuid: [u8; 16],
        name: [u8; 256],
    }
    /// Limits of work-groups.
    ComputeProperties 0x4 {
        group_items: u32,
        group: [u32; 3],
        groups: [u32; 3],
        shared_bytes: u32,
        subgroup_count: u32,
        subgroups: [u32; 8],
    }
    /// Arithmetic capabilities of programs.
    ModuleProperties 0x5 {
        spirv: u32,
        flags: u32,
        f16: u32,
        f32: u32,
        f64: u32,
        argument_bytes: u32,
        print_bytes: u32,
        native: [u8; 16],
    }
    /// Properties of a memory of a device.
    MemoryProperties 0x7 {
        flags: u32,
        clock: u32,
        bus: u32,
        bytes: u64,
        name: [u8; 256],
    }
    /// Address of a device on the bus.
    PciProperties 0x10008 {
        domain: u32,
        bus: u32,
        device: u32,
        function: u32,
        generation: i32,
        width: i32,
        bandwidth: i64,
    }
    /// Parameters for creating a context.
    ContextDescription 0xD {
        flags: u32,
    }
    /// Parameters for creating an immediate command list.
    QueueDescription 0xE {
        ordinal: u32,
        index: u32,
        flags: u32,
        mode: u32,
        priority: u32,
    }
    /// Parameters for allocating device memory.
    MemoryDescription 0x15 {
        flags: u32,
        ordinal: u32,
    }
    /// Parameters for creating a module.
    ModuleDescription 0x1B {
        format: u32,
        bytes: usize,
        input: *const u8,
        flags: *const c_char,
        constants: *const c_void,
    }
    /// Parameters for creating a kernel.
    KernelDescription 0x1D {
        flags: u32,
        name: *const c_char,
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    /// Sizes and offsets from a C compiler for the header of Level Zero 1.8 on x86-64 Linux.
    #[test]
    fn structures_are_laid_out_as_in_c() {
        let sizes = [
            (size_of::<DriverProperties>(), 40),
            (size_of::<DeviceProperties>(), 368),
            (size_of::<ComputeProperties>(), 88),
            (size_of::<ModuleProperties>(), 64),
            (size_of::<MemoryProperties>(), 296),
            (size_of::<PciProperties>(), 48),
            (size_of::<ContextDescription>(), 24),
            (size_of::<QueueDescription>(), 40),
            (size_of::<MemoryDescription>(), 24),
            (size_of::<ModuleDescription>(), 56),
            (size_of::<KernelDescription>(), 32),
        ];
        let places = [
            (offset_of!(DeviceProperties, largest), 40),
            (offset_of!(DeviceProperties, timer), 80),
            (offset_of!(DeviceProperties, name), 112),
            (offset_of!(ComputeProperties, subgroups), 52),
            (offset_of!(MemoryProperties, bytes), 32),
            (offset_of!(ModuleDescription, input), 32),
        ];
        assert!(sizes.iter().chain(&places).all(|(ours, theirs)| ours == theirs), "{sizes:?} {places:?}");
    }
}
