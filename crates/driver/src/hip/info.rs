//! Queries a device's properties from its driver.

use panoply_device::{Backend, DeviceInfo, Language, Style, Target};

use super::HipDevice;
use crate::stream::discovery::{DiscoveredDevice, Query};

// Values of `hipDeviceAttribute_t` in AMD's header, the same from ROCm 5 to 7.
const CLOCK_KHZ: i32 = 5;
const INTEGRATED: i32 = 16;
const MAX_BLOCK: [i32; 3] = [26, 27, 28];
pub const MAX_GRID: [i32; 3] = [29, 30, 31];
const MAX_THREADS: i32 = 56;
const COMPUTE_UNITS: i32 = 63;
/// Domain, bus and device.
const PCI: [i32; 3] = [69, 67, 68];
const SHARED_BYTES: i32 = 74;
pub const WAVE: i32 = 87;

/// Number of buffers whose pointer, offset and length fit, beside sizes and scalars, into the 4096 argument bytes that every device
/// supports.
const MAX_BINDINGS: u32 = 128;

/// Creates the device for a discovered one.
pub fn device(place: DiscoveredDevice) -> HipDevice {
    let info = info(&place);
    let target = target(&place, &info);
    HipDevice::new(place, info, target)
}

fn info(place: &DiscoveredDevice) -> DeviceInfo {
    let query = Query(place);
    let architecture = &place.traits.architecture;
    DeviceInfo {
        kind: Backend::Rocm,
        index: place.index,
        variant: None,
        name: Some(query.name()).filter(|name| !name.is_empty()).unwrap_or_else(|| architecture.clone()),
        vendor: "AMD".into(),
        driver: (place.api.brand().version)(place.driver),
        is_software: false,
        unified_memory: query.attribute(INTEGRATED) != 0,
        compute_units: query.number(COMPUTE_UNITS),
        physical_id: query.identity(PCI),
        details: vec![
            ("architecture".into(), architecture.clone()),
            ("clock".into(), format!("{} MHz", query.number(CLOCK_KHZ) / 1000)),
            ("wavefront".into(), format!("{} work-items", query.number(WAVE))),
            ("shared memory".into(), format!("{} bytes per work-group", query.number(SHARED_BYTES))),
            ("stream-ordered allocation".into(), if query.has_pools() { "yes" } else { "no" }.into()),
        ],
    }
}

fn target(place: &DiscoveredDevice, info: &DeviceInfo) -> Target {
    let query = Query(place);
    let items = query.number(MAX_THREADS).max(1);
    Target {
        // The compiler comes with the driver, whose numeric version is more precise than the version string.
        name: format!("HIP {}; {} ({}); {}", place.traits.architecture, info.driver, place.driver, info.name),
        language: Language::Hip,
        style: Style::Gpu,
        max_group: MAX_BLOCK.map(|axis| query.number(axis).clamp(1, items)),
        max_group_items: items,
        subgroup: query.number(WAVE),
        shared_bytes: query.number(SHARED_BYTES),
        max_bindings: MAX_BINDINGS,
        max_buffer_bytes: query.memory(),
        private_bytes: u64::MAX,
        max_binding_bytes: u64::MAX,
        f16: true,
        bf16: false,
        f64: true,
        int64: true,
        atomic_f32: true,
        mma: false,
    }
}
