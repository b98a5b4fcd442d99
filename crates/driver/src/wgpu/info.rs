//! Queries an adapter's properties.

use panoply_device::{Backend, BinaryFormat, DeviceInfo, Language, MemoryInfo, ProgramForm, Style, Target};
use wgpu::{Adapter, DeviceType, Features, Limits};

use super::discovery::DiscoveredDevice;
use super::subgroups;

/// Vendor names by PCI id; others are shown as the number.
const VENDORS: [(u32, &str); 12] = [
    (0, "unknown"),
    (0x1002, "AMD"),
    (0x1010, "Imagination"),
    (0x106B, "Apple"),
    (0x10DE, "NVIDIA"),
    (0x13B5, "Arm"),
    (0x1414, "Microsoft"),
    (0x14E4, "Broadcom"),
    (0x1AE0, "Google"),
    (0x5143, "Qualcomm"),
    (0x8086, "Intel"),
    (0x10005, "Mesa"),
];

/// Largest number of bytes that a 32-bit byte offset can address, minus a margin.
const REACHED: u64 = (4 << 30) - (64 << 10);

/// Returns the adapter's features that are useful for computing.
pub fn features(adapter: &Adapter) -> Features {
    let wanted = Features::SHADER_F16
        | Features::SHADER_F64
        | Features::SHADER_INT64
        | Features::SUBGROUP
        | Features::TIMESTAMP_QUERY
        | Features::TIMESTAMP_QUERY_INSIDE_ENCODERS
        | Features::PIPELINE_CACHE
        | Features::PASSTHROUGH_SHADERS;
    adapter.features() & wanted
}

/// Returns the accepted forms of programs, those that need no compilation here first.
pub fn takes(place: &DiscoveredDevice) -> Vec<ProgramForm> {
    let passed: &[ProgramForm] = match place.kind {
        _ if !features(&place.adapter).contains(Features::PASSTHROUGH_SHADERS) => &[],
        Backend::Vulkan => &[ProgramForm::Image(BinaryFormat::SpirV)],
        Backend::Metal => &[ProgramForm::Image(BinaryFormat::MetalLibrary), ProgramForm::Text(Language::Msl)],
        Backend::Cuda
        | Backend::Rocm
        | Backend::OneApi
        | Backend::OpenCl
        | Backend::Dx12
        | Backend::WebGpu
        | Backend::Cpu => &[],
    };
    [passed, &[ProgramForm::Text(Language::Wgsl)]].concat()
}

/// Returns the adapter's limits.
pub fn limits(adapter: &Adapter) -> Limits {
    adapter.limits()
}

/// Returns the description of a device.
pub fn info(place: &DiscoveredDevice) -> DeviceInfo {
    let info = place.adapter.get_info();
    let (features, limits) = (features(&place.adapter), limits(&place.adapter));
    let driver = format!("{} {}", info.driver, info.driver_info);
    let software = info.device_type == DeviceType::Cpu || is_program(&info.name);
    let vendor = VENDORS.iter().find(|(number, _)| *number == info.vendor);
    let has = |feature| if features.contains(feature) { "yes" } else { "no" };
    let subgroups = match [info.subgroup_min_size, info.subgroup_max_size] {
        _ if !features.contains(Features::SUBGROUP) => "no".to_string(),
        [least, most] if least == most => format!("of {least}"),
        [least, most] => format!("of {least} to {most}, used as {least}"),
    };
    DeviceInfo {
        kind: place.kind,
        index: place.index,
        variant: None,
        // Browsers do not report the name.
        name: if info.name.is_empty() { "a GPU behind the browser".to_string() } else { info.name.clone() },
        vendor: vendor.map_or_else(|| format!("vendor {:#06x}", info.vendor), |(_, name)| (*name).to_string()),
        driver: if place.kind == Backend::WebGpu { "WebGPU".into() } else { driver.trim().to_string() },
        is_software: software,
        unified_memory: matches!(info.device_type, DeviceType::IntegratedGpu | DeviceType::Cpu),
        // None of these APIs reports it.
        compute_units: 0,
        physical_id: (!info.device_pci_bus_id.is_empty() && !software).then(|| info.device_pci_bus_id.clone()),
        details: vec![
            ("f16".into(), has(Features::SHADER_F16).into()),
            ("f64".into(), has(Features::SHADER_F64).into()),
            ("64-bit integers".into(), has(Features::SHADER_INT64).into()),
            ("subgroups".into(), subgroups),
            ("timestamps".into(), has(Features::TIMESTAMP_QUERY_INSIDE_ENCODERS).into()),
            ("largest binding".into(), format!("{} bytes", limits.max_storage_buffer_binding_size)),
            ("work-groups along an axis".into(), limits.max_compute_workgroups_per_dimension.to_string()),
        ],
    }
}

/// Returns true if an adapter is a known software implementation, which some drivers do not report.
fn is_program(name: &str) -> bool {
    let name = name.to_lowercase();
    ["llvmpipe", "lavapipe", "swiftshader", "softpipe", "microsoft basic render"]
        .iter()
        .any(|known| name.contains(known))
}

/// Returns the device properties that code generation needs.
pub fn target(place: &DiscoveredDevice, info: &DeviceInfo) -> Target {
    let (features, limits) = (features(&place.adapter), limits(&place.adapter));
    let [x, y, z] =
        [limits.max_compute_workgroup_size_x, limits.max_compute_workgroup_size_y, limits.max_compute_workgroup_size_z];
    let int64 = features.contains(Features::SHADER_INT64);
    Target {
        name: format!("WGSL {} {} {}", place.kind, info.name, info.driver),
        language: Language::Wgsl,
        style: Style::Gpu,
        max_group: [x, y, z],
        max_group_items: limits.max_compute_invocations_per_workgroup,
        subgroup: subgroups::size(features, &place.adapter.get_info()),
        shared_bytes: limits.max_compute_workgroup_storage_size,
        max_bindings: bindings(&limits),
        max_buffer_bytes: limits.max_buffer_size.min(REACHED) & !3,
        private_bytes: u64::MAX,
        max_binding_bytes: limits.max_storage_buffer_binding_size & !3,
        f16: features.contains(Features::SHADER_F16),
        bf16: false,
        // f64 operations are built from 64-bit integers.
        f64: int64 && features.contains(Features::SHADER_F64),
        int64,
        atomic_f32: false,
        mma: false,
    }
}

/// Returns the largest number of buffers of a kernel, besides that of a launch's words. Metal counts all types of buffers together.
fn bindings(limits: &Limits) -> u32 {
    let together =
        [limits.max_bindings_per_bind_group, limits.max_buffers_and_acceleration_structures_per_shader_stage];
    together
        .into_iter()
        .fold(limits.max_storage_buffers_per_shader_stage.min(128), |most, all| most.min(all.saturating_sub(1)))
}

/// Returns the device's memory. For Metal and DirectX 12 it is the size of the largest buffer.
pub fn memory(place: &DiscoveredDevice) -> MemoryInfo {
    let total = if place.kind == Backend::Vulkan { vulkan_memory(&place.adapter) } else { None };
    MemoryInfo { total: total.unwrap_or(limits(&place.adapter).max_buffer_size), free: None }
}

/// Returns the size in bytes of the largest device-local heap.
#[cfg(not(any(target_vendor = "apple", target_family = "wasm")))]
fn vulkan_memory(adapter: &Adapter) -> Option<u64> {
    // SAFETY: the adapter outlives everything that is borrowed from it, and no object is destroyed.
    let vulkan = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
    let instance = vulkan.shared_instance().raw_instance();
    // SAFETY: the physical device belongs to this instance, which lives as long as the adapter.
    let properties = unsafe { instance.get_physical_device_memory_properties(vulkan.raw_physical_device()) };
    let heaps = &properties.memory_heaps[..properties.memory_heap_count as usize];
    // The first bit of a heap's flags marks it as device-local.
    heaps.iter().filter(|heap| heap.flags.as_raw() & 1 != 0).map(|heap| heap.size).max()
}

/// Returns the widths in bits of the floats for which a SPIR-V module can have the execution mode SignedZeroInfNanPreserve.
#[cfg(not(any(target_vendor = "apple", target_family = "wasm")))]
pub fn preserved_widths(adapter: &Adapter) -> Vec<u32> {
    // SAFETY: the adapter outlives everything that is borrowed from it, and no object is destroyed.
    let Some(vulkan) = (unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }) else { return Vec::new() };
    let (shared, physical) = (vulkan.shared_instance(), vulkan.raw_physical_device());
    // SAFETY: the physical device belongs to this instance, which lives as long as the adapter.
    let version = unsafe { shared.raw_instance().get_physical_device_properties(physical) }.api_version;
    if version.min(shared.instance_api_version()) < ash::vk::API_VERSION_1_2 {
        return Vec::new();
    }
    let mut controls = ash::vk::PhysicalDeviceFloatControlsProperties::default();
    let mut properties = ash::vk::PhysicalDeviceProperties2::default().push_next(&mut controls);
    // SAFETY: as above; the structures are those of Vulkan 1.2.
    unsafe { shared.raw_instance().get_physical_device_properties2(physical, &mut properties) };
    let widths = [
        (16, controls.shader_signed_zero_inf_nan_preserve_float16),
        (32, controls.shader_signed_zero_inf_nan_preserve_float32),
        (64, controls.shader_signed_zero_inf_nan_preserve_float64),
    ];
    widths.into_iter().filter(|(_, yes)| *yes == ash::vk::TRUE).map(|(width, _)| width).collect()
}

#[cfg(any(target_vendor = "apple", target_family = "wasm"))]
pub fn preserved_widths(_adapter: &Adapter) -> Vec<u32> {
    Vec::new()
}

#[cfg(any(target_vendor = "apple", target_family = "wasm"))]
fn vulkan_memory(_adapter: &Adapter) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_reserve_one_for_the_launch_words() {
        let limits = |storage, group, together| Limits {
            max_storage_buffers_per_shader_stage: storage,
            max_bindings_per_bind_group: group,
            max_buffers_and_acceleration_structures_per_shader_stage: together,
            ..Limits::default()
        };
        for (limits, expected) in [
            (Limits::default(), 8),
            // The limits that `wgpu` reports for Metal, for lavapipe, and for an adapter with one binding in total.
            (limits(29, u32::MAX, 29), 28),
            (limits(1_000_000, 1_000_000, u32::MAX), 128),
            (limits(8, 8, 8), 7),
            (limits(8, 0, 0), 0),
        ] {
            assert_eq!(bindings(&limits), expected, "{limits:?}");
        }
    }
}
