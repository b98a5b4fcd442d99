//! What a device is and can do, asked from its driver.

use std::ffi::CStr;

use panoply_device::{DeviceInfo, Kind, Language, Style, Target};

use super::discovery::Place;

// Numbers of `CUdevice_attribute` in NVIDIA's header.
const MAX_THREADS: i32 = 1;
const MAX_BLOCK: [i32; 3] = [2, 3, 4];
const SHARED_BYTES: i32 = 8;
const WARP: i32 = 10;
const CLOCK_KHZ: i32 = 13;
const MULTIPROCESSORS: i32 = 16;
const INTEGRATED: i32 = 18;
pub const COMPUTE_MODE: i32 = 20;
const PCI_BUS: i32 = 33;
const PCI_DEVICE: i32 = 34;
const PCI_DOMAIN: i32 = 50;
const CAPABILITY: [i32; 2] = [75, 76];
const POOLS: i32 = 115;

/// Buffers whose pointer, offset and length fit beside sizes and scalars into the 4096 bytes of arguments every device takes.
const MAX_BINDINGS: u32 = 128;

/// Asks one device. A question the driver does not know has the answer 0.
#[derive(Clone, Copy)]
pub struct Query<'a>(pub &'a Place);

impl Query<'_> {
    pub fn attribute(self, attribute: i32) -> i32 {
        let mut value = 0;
        // SAFETY: the pointer is valid and the device was enumerated.
        let code = unsafe { (self.0.api.cuDeviceGetAttribute)(&mut value, attribute, self.0.device) };
        if code == 0 { value } else { 0 }
    }

    fn number(self, attribute: i32) -> u32 {
        u32::try_from(self.attribute(attribute)).unwrap_or(0)
    }

    pub fn name(self) -> String {
        let mut text = [0u8; 256];
        // SAFETY: the buffer has as many bytes as it says, and one more for the zero.
        unsafe { (self.0.api.cuDeviceGetName)(text.as_mut_ptr().cast(), 255, self.0.device) };
        CStr::from_bytes_until_nul(&text).map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned())
    }

    pub fn capability(self) -> u32 {
        let [major, minor] = CAPABILITY.map(|half| self.number(half));
        10 * major + minor
    }

    /// Bytes in all.
    pub fn memory(self) -> u64 {
        let mut bytes = 0;
        // SAFETY: the pointer is valid and the device was enumerated.
        let code = unsafe { (self.0.api.cuDeviceTotalMem_v2)(&mut bytes, self.0.device) };
        if code == 0 { bytes as u64 } else { 0 }
    }

    /// Whether memory can be had and given back in the order of a stream.
    pub fn has_pools(self) -> bool {
        let api = &self.0.api;
        api.cuMemAllocAsync.is_some() && api.cuMemFreeAsync.is_some() && self.attribute(POOLS) != 0
    }
}

/// `12.4` for 12040.
pub fn version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// A device in words.
pub fn info(place: &Place) -> DeviceInfo {
    let query = Query(place);
    let capability = query.capability();
    let [domain, bus, slot] = [PCI_DOMAIN, PCI_BUS, PCI_DEVICE].map(|part| query.number(part));
    DeviceInfo {
        kind: Kind::Cuda,
        index: place.index,
        variant: None,
        name: query.name(),
        vendor: "NVIDIA".into(),
        driver: format!("CUDA {}", version(place.driver)),
        software: false,
        unified_memory: query.attribute(INTEGRATED) != 0,
        compute_units: query.number(MULTIPROCESSORS),
        // As `lspci -D` writes it, and as other interfaces name the same card.
        identity: Some(format!("{domain:04x}:{bus:02x}:{slot:02x}.0")),
        details: vec![
            ("compute capability".into(), format!("{}.{}", capability / 10, capability % 10)),
            ("clock".into(), format!("{} MHz", query.number(CLOCK_KHZ) / 1000)),
            ("warp".into(), format!("{} threads", query.number(WARP))),
            ("shared memory".into(), format!("{} bytes a group", query.number(SHARED_BYTES))),
            ("memory in stream order".into(), if query.has_pools() { "yes" } else { "no" }.into()),
        ],
    }
}

/// A device as far as generated code must know it.
pub fn target(place: &Place, info: &DeviceInfo) -> Target {
    let query = Query(place);
    let capability = query.capability();
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
        f16: capability >= 53,
        bf16: capability >= 80,
        f64: true,
        int64: true,
        atomic_f32: true,
    }
}
