//! Queries a device's properties from its driver.

use panoply_device::{Backend, DeviceInfo, Language, Style, Target};

use super::CudaDevice;
use crate::stream::discovery::{DiscoveredDevice, Query};

// Values of `CUdevice_attribute` in NVIDIA's header.
const MAX_THREADS: i32 = 1;
const MAX_BLOCK: [i32; 3] = [2, 3, 4];
const SHARED_BYTES: i32 = 8;
const WARP: i32 = 10;
const CLOCK_KHZ: i32 = 13;
const MULTIPROCESSORS: i32 = 16;
const INTEGRATED: i32 = 18;
pub const COMPUTE_MODE: i32 = 20;
/// Domain, bus and device.
const PCI: [i32; 3] = [50, 33, 34];
const CAPABILITY: [i32; 2] = [75, 76];

/// Number of buffers whose pointer, offset and length fit, beside sizes and scalars, into the 4096 argument bytes that every device
/// supports.
const MAX_BINDINGS: u32 = 128;

/// Returns the compute capability; 86 is 8.6.
pub fn capability(query: Query<'_>) -> u32 {
    let [major, minor] = CAPABILITY.map(|half| query.number(half));
    10 * major + minor
}

/// Creates the device for a discovered one.
pub fn device(place: DiscoveredDevice) -> CudaDevice {
    let info = info(&place);
    let target = target(&place, &info);
    CudaDevice::new(place, info, target)
}

/// Returns the description of a device.
fn info(place: &DiscoveredDevice) -> DeviceInfo {
    let query = Query(place);
    let capability = capability(query);
    DeviceInfo {
        kind: Backend::Cuda,
        index: place.index,
        variant: None,
        name: query.name(),
        vendor: "NVIDIA".into(),
        driver: (place.api.brand().version)(place.driver),
        is_software: false,
        unified_memory: query.attribute(INTEGRATED) != 0,
        compute_units: query.number(MULTIPROCESSORS),
        physical_id: query.identity(PCI),
        details: vec![
            ("compute capability".into(), format!("{}.{}", capability / 10, capability % 10)),
            ("clock".into(), format!("{} MHz", query.number(CLOCK_KHZ) / 1000)),
            ("warp".into(), format!("{} threads", query.number(WARP))),
            ("shared memory".into(), format!("{} bytes per block", query.number(SHARED_BYTES))),
            ("stream-ordered allocation".into(), if query.has_pools() { "yes" } else { "no" }.into()),
        ],
    }
}

/// Returns the device properties that code generation needs.
fn target(place: &DiscoveredDevice, info: &DeviceInfo) -> Target {
    let query = Query(place);
    let capability = capability(query);
    let items = query.number(MAX_THREADS).max(1);
    Target {
        name: format!("PTX sm_{capability}; {}; {}", info.driver, info.name),
        language: Language::Ptx { capability },
        style: Style::Gpu,
        max_group: MAX_BLOCK.map(|axis| query.number(axis).clamp(1, items)),
        max_group_items: items,
        subgroup: 32,
        shared_bytes: query.number(SHARED_BYTES),
        max_bindings: MAX_BINDINGS,
        max_buffer_bytes: query.memory(),
        private_bytes: u64::MAX,
        max_binding_bytes: u64::MAX,
        f16: capability >= 53,
        bf16: capability >= 80,
        f64: true,
        int64: true,
        atomic_f32: true,
        mma: capability >= 80,
    }
}
