//! Finds the usable GPUs, their properties, and the reasons why others cannot be used.

use std::path::Path;
use std::sync::Arc;

use panoply_device::{Backend, DeviceInfo, Error, Language, Result, Style, Target};

use super::api::{
    self, ComputeProperties, DeviceProperties, DriverProperties, Functions, MemoryProperties, ModuleProperties,
    PciProperties,
};
use super::errors::CODES;
use crate::library::{Handle, check};

const GPU: u32 = 1;
const INTEGRATED: u32 = 1;
const INTEL: u32 = 0x8086;
/// Flags of [`ModuleProperties`].
const F16: u32 = 1;
const F64: u32 = 2;
const ROUNDED_DIVIDE_SQRT: u32 = 1 << 6;
/// SPIR-V 1.1, which introduces the required subgroup size.
const SPIRV_1_1: u32 = 0x0001_0100;

/// The result of the discovery.
pub struct Discovery {
    pub devices: Vec<DiscoveredDevice>,
    /// Reasons why other GPUs cannot be used.
    pub refused: Vec<Error>,
}

/// A usable GPU.
#[derive(Clone)]
pub struct DiscoveredDevice {
    pub functions: Arc<Functions>,
    pub driver: Handle,
    pub device: Handle,
    pub info: DeviceInfo,
    pub target: Target,
    /// Total device memory in bytes.
    pub memory: u64,
    /// Largest number of work-groups of a launch along each axis.
    pub max_groups: [u32; 3],
    /// True if correctly rounded f32 division and square root can be requested.
    pub rounds: bool,
}

/// Enumerates all GPUs of all drivers, in their order.
pub fn enumerate(library: Option<&Path>) -> Result<Discovery> {
    let functions = Arc::new(api::open(library)?);
    // SAFETY: zero is a valid set of flags.
    let started = check(unsafe { (functions.init)(0) });
    started.map_err(|code| CODES.unavailable("oneapi: starting Level Zero", code))?;
    // SAFETY: the library was started, and the pointers are valid.
    let drivers = list(|count, to| unsafe { (functions.drivers)(count, to) });
    let drivers = drivers.map_err(|code| CODES.unavailable("oneapi: listing Level Zero's drivers", code))?;
    let mut found = Discovery { devices: Vec::new(), refused: Vec::new() };
    for driver in drivers {
        // SAFETY: the driver was just listed, and the pointers are valid.
        match list(|count, to| unsafe { (functions.devices)(driver, count, to) }) {
            Ok(devices) => devices.into_iter().for_each(|device| look(&functions, driver, device, &mut found)),
            Err(code) => found.refused.push(CODES.unavailable("oneapi: listing a driver's devices", code)),
        }
    }
    Ok(found)
}

/// Returns the handles listed by a function that is called first for the number and then for the handles.
fn list(mut call: impl FnMut(*mut u32, *mut Handle) -> i32) -> Result<Vec<Handle>, i32> {
    let mut count = 0;
    check(call(&mut count, std::ptr::null_mut()))?;
    let mut handles = vec![0; count as usize];
    check(call(&mut count, handles.as_mut_ptr()))?;
    handles.truncate(count as usize);
    Ok(handles)
}

/// Adds a device to the usable or the rejected ones; a device that is not a GPU is skipped.
fn look(functions: &Arc<Functions>, driver: Handle, device: Handle, found: &mut Discovery) {
    let index = found.devices.len() + found.refused.len();
    let mut properties = DeviceProperties::new();
    // SAFETY: the device was just listed, and the pointer is valid.
    let code = unsafe { (functions.properties)(device, &mut properties) };
    if let Err(code) = check(code) {
        return found
            .refused
            .push(CODES.unavailable(format_args!("oneapi:{index}: querying the device's properties"), code));
    }
    if properties.ty != GPU {
        return;
    }
    let (mut of_driver, mut compute) = (DriverProperties::new(), ComputeProperties::new());
    let (mut arithmetic, mut pci) = (ModuleProperties::new(), PciProperties::new());
    let (mut count, mut memory) = (1, MemoryProperties::new());
    // SAFETY: the handles were just listed, and the pointers are valid; one memory is requested.
    let codes = unsafe {
        [
            (functions.driver)(driver, &mut of_driver),
            (functions.compute)(device, &mut compute),
            (functions.arithmetic)(device, &mut arithmetic),
            (functions.memories)(device, &mut count, &mut memory),
        ]
    };
    if let Some(code) = codes.into_iter().find(|code| *code != 0) {
        return found.refused.push(CODES.unavailable(format_args!("oneapi:{index}: querying the device"), code));
    }
    // SAFETY: as above; a device that reports an error has no address.
    let on_bus = functions.pci.is_some_and(|ask| unsafe { ask(device, &mut pci) } == 0);
    let identity = match on_bus {
        true => format!("{:04x}:{:02x}:{:02x}.{:x}", pci.domain, pci.bus, pci.device, pci.function),
        false => properties.uuid.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    let info = info(index, &properties, of_driver.version, Some(identity), arithmetic.spirv);
    let rounds = arithmetic.f32 & ROUNDED_DIVIDE_SQRT != 0;
    let target = target(&info, &properties, &compute, &arithmetic);
    let (functions, max_groups) = (functions.clone(), compute.groups);
    found.devices.push(DiscoveredDevice {
        functions,
        driver,
        device,
        info,
        target,
        memory: memory.bytes,
        max_groups,
        rounds,
    });
}

fn info(index: usize, properties: &DeviceProperties, driver: u32, identity: Option<String>, spirv: u32) -> DeviceInfo {
    let name: Vec<u8> = properties.name.into_iter().take_while(|byte| *byte != 0).collect();
    let units = properties.units_of_subslice * properties.subslices_of_slice * properties.slices;
    DeviceInfo {
        kind: Backend::OneApi,
        index,
        variant: None,
        name: String::from_utf8_lossy(&name).trim().to_string(),
        vendor: match properties.vendor {
            INTEL => "Intel".into(),
            other => format!("vendor {other:#06x}"),
        },
        driver: format!("Level Zero {}.{}.{}", driver >> 24, driver >> 16 & 0xFF, driver & 0xFFFF),
        is_software: false,
        unified_memory: properties.flags & INTEGRATED != 0,
        compute_units: units,
        physical_id: identity,
        details: vec![
            ("type".into(), "gpu".into()),
            ("intermediate language".into(), format!("SPIR-V {}.{}", spirv >> 16, spirv >> 8 & 0xFF)),
            ("clock".into(), format!("{} MHz", properties.clock)),
            ("largest buffer".into(), format!("{} bytes", properties.largest)),
        ],
    }
}

fn target(
    info: &DeviceInfo,
    properties: &DeviceProperties,
    compute: &ComputeProperties,
    arithmetic: &ModuleProperties,
) -> Target {
    let sizes = compute.subgroups.iter().take(compute.subgroup_count as usize);
    let demanded = sizes.copied().filter(|size| size.is_power_of_two() && *size <= 16).max();
    let items = compute.group_items.max(1);
    // Each buffer takes a pointer, an offset and a length, beside three sizes and sixteen scalars.
    let bindings = arithmetic.argument_bytes.saturating_sub((3 + 16) * 8) / 24;
    Target {
        name: format!("SPIR-V; {}; {}", info.driver, info.name),
        language: Language::SpirV,
        style: Style::Gpu,
        max_group: compute.group.map(|axis| axis.clamp(1, items)),
        max_group_items: items,
        subgroup: demanded.filter(|_| arithmetic.spirv >= SPIRV_1_1).unwrap_or(1),
        shared_bytes: compute.shared_bytes,
        max_bindings: bindings.clamp(8, 256),
        max_buffer_bytes: properties.largest,
        private_bytes: u64::MAX,
        max_binding_bytes: u64::MAX,
        f16: arithmetic.flags & F16 != 0,
        bf16: false,
        f64: arithmetic.flags & F64 != 0,
        int64: true,
        atomic_f32: false,
        mma: false,
    }
}
