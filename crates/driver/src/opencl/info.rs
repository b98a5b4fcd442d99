//! Queries a device's properties from its driver.

use cl3::device::*;
use cl3::ext::CL_DEVICE_SUB_GROUP_SIZES_INTEL;
use cl3::platform::{CL_PLATFORM_NAME, CL_PLATFORM_VERSION, get_platform_data};
use panoply_device::{Backend, DeviceInfo, Language, MemoryInfo, Style, Target};

use super::discovery::{DiscoveredDevice, version};
use super::query::{Query, text};
use super::stack;

/// Limits that only this driver needs.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest single buffer in bytes.
    pub max_alloc: u64,
    /// Required alignment in bytes of the start of a sub-buffer.
    pub base_align: u64,
    /// True if correctly rounded f32 division and square root can be requested.
    pub rounds: bool,
    /// True if the driver reports the amount of free memory.
    tells_free: bool,
}

/// Number of work-items that the compiler of a CPU driver runs side by side: several f32 vectors, so that loops over them are unrolled.
const CPU_BLOCK: u32 = 128;

/// Returns the description of a device.
pub fn info(place: &DiscoveredDevice) -> DeviceInfo {
    let query = Query(place.device);
    let platform = |what| text(&get_platform_data(place.platform, what).unwrap_or_default());
    let name = platform(CL_PLATFORM_NAME);
    DeviceInfo {
        kind: Backend::OpenCl,
        index: place.index,
        variant: None,
        name: query.text(CL_DEVICE_NAME),
        vendor: query.text(CL_DEVICE_VENDOR),
        driver: format!("{name} {}", query.text(CL_DRIVER_VERSION)),
        is_software: is_cpu(query),
        unified_memory: query.flag(CL_DEVICE_HOST_UNIFIED_MEMORY),
        compute_units: query.small(CL_DEVICE_MAX_COMPUTE_UNITS),
        physical_id: identity(query),
        details: vec![
            ("type".into(), kind(query).into()),
            ("platform".into(), platform(CL_PLATFORM_VERSION)),
            ("version".into(), query.text(CL_DEVICE_VERSION)),
            ("language".into(), query.text(CL_DEVICE_OPENCL_C_VERSION)),
            ("intermediate language".into(), none_if_empty(query.text(CL_DEVICE_IL_VERSION))),
            ("clock".into(), format!("{} MHz", query.number(CL_DEVICE_MAX_CLOCK_FREQUENCY))),
            ("largest buffer".into(), format!("{} bytes", query.number(CL_DEVICE_MAX_MEM_ALLOC_SIZE))),
            ("shared memory".into(), format!("{} bytes per work-group", query.number(CL_DEVICE_LOCAL_MEM_SIZE))),
        ],
    }
}

fn none_if_empty(text: String) -> String {
    if text.is_empty() { "none".into() } else { text }
}

fn is_cpu(query: Query) -> bool {
    query.number(CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU != 0
}

fn kind(query: Query) -> &'static str {
    match query.number(CL_DEVICE_TYPE) {
        kind if kind & CL_DEVICE_TYPE_GPU != 0 => "gpu",
        kind if kind & CL_DEVICE_TYPE_CPU != 0 => "cpu",
        kind if kind & CL_DEVICE_TYPE_ACCELERATOR != 0 => "accelerator",
        _ => "other",
    }
}

/// Returns the PCI address in the format of `lspci -D`, otherwise the UUID, otherwise `None`.
fn identity(query: Query) -> Option<String> {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[4 * at..4 * at + 4].try_into().expect("four bytes"));
    if has(query, "cl_khr_pci_bus_info") {
        let info = query.bytes(CL_DEVICE_PCI_BUS_INFO_KHR);
        if info.len() == 16 {
            return Some(pci(word(&info, 0), word(&info, 1), word(&info, 2), word(&info, 3)));
        }
    }
    if has(query, "cl_nv_device_attribute_query") {
        /// Undocumented, but used by every tool that matches devices between NVIDIA's interfaces.
        const CL_DEVICE_PCI_DOMAIN_ID_NV: u32 = 0x400A;
        let slot = query.small(CL_DEVICE_PCI_SLOT_ID_NV);
        let (domain, bus) = (query.small(CL_DEVICE_PCI_DOMAIN_ID_NV), query.small(CL_DEVICE_PCI_BUS_ID_NV));
        return Some(pci(domain, bus, slot >> 3, slot & 7));
    }
    if has(query, "cl_amd_device_attribute_query") {
        // A tagged union of 24 bytes: tag 1 is PCI Express, whose last three bytes are bus, device and function.
        let topology = query.bytes(CL_DEVICE_TOPOLOGY_AMD);
        if topology.len() == 24 && word(&topology, 0) == 1 {
            return Some(pci(0, topology[21].into(), topology[22].into(), topology[23].into()));
        }
    }
    let uuid = if has(query, "cl_khr_device_uuid") { query.bytes(CL_DEVICE_UUID_KHR) } else { Vec::new() };
    let known = uuid.len() == 16 && uuid.iter().any(|byte| *byte != 0);
    known.then(|| uuid.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn pci(domain: u32, bus: u32, device: u32, function: u32) -> String {
    format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
}

fn has(query: Query, extension: &str) -> bool {
    query.text(CL_DEVICE_EXTENSIONS).split_ascii_whitespace().any(|name| name == extension)
}

/// Returns the device properties that code generation needs. With `spirv` programs are SPIR-V if the device supports it.
pub fn target(place: &DiscoveredDevice, info: &DeviceInfo, limits: &Limits, spirv: bool) -> Target {
    let query = Query(place.device);
    let versions = if spirv { spirv_versions(query) } else { Vec::new() };
    let (language, title) = match versions.is_empty() {
        true => (Language::OpenClC, "OpenCL C"),
        false => (Language::SpirV, "SPIR-V"),
    };
    let options = build_options(language, limits.rounds);
    let version = query.text(CL_DEVICE_VERSION);
    let full = query.text(CL_DEVICE_PROFILE) != "EMBEDDED_PROFILE";
    let group_items = query.small(CL_DEVICE_MAX_WORK_GROUP_SIZE).max(1);
    let axes = query.sizes(CL_DEVICE_MAX_WORK_ITEM_SIZES);
    let axis = |i: usize| axes.get(i).map_or(1, |size| u32::try_from(*size).unwrap_or(u32::MAX)).min(group_items);
    Target {
        name: format!("{title}; {options}; {}; {}; {version}", info.driver, info.name),
        language,
        style: if is_cpu(query) { Style::Cpu { block: CPU_BLOCK.min(group_items) } } else { Style::Gpu },
        max_group: [axis(0), axis(1), axis(2)],
        max_group_items: group_items,
        subgroup: match language == Language::OpenClC || demands_subgroups(query, &versions) {
            true => subgroup(query),
            false => 1,
        },
        shared_bytes: query.small(CL_DEVICE_LOCAL_MEM_SIZE),
        private_bytes: private_bytes(query),
        max_bindings: bindings(query.number(CL_DEVICE_MAX_PARAMETER_SIZE)),
        max_buffer_bytes: query.number(CL_DEVICE_MAX_MEM_ALLOC_SIZE),
        max_binding_bytes: u64::MAX,
        f16: has(query, "cl_khr_fp16"),
        bf16: false,
        f64: query.number(CL_DEVICE_DOUBLE_FP_CONFIG) != 0,
        int64: full || has(query, "cles_khr_int64"),
        atomic_f32: false,
        mma: false,
    }
}

/// Returns the minor versions of SPIR-V 1 that a device supports. `clCreateProgramWithIL` requires OpenCL 2.1.
///
/// Generated modules use 64-bit pointers and integers of all widths, which the full profile guarantees.
fn spirv_versions(query: Query) -> Vec<u32> {
    let full = query.text(CL_DEVICE_PROFILE) != "EMBEDDED_PROFILE";
    if !full || version(&query.text(CL_DEVICE_VERSION)) < (2, 1) || query.number(CL_DEVICE_ADDRESS_BITS) != 64 {
        return Vec::new();
    }
    let named = query.text(CL_DEVICE_IL_VERSION);
    let minor = |name: &str| name.strip_prefix("SPIR-V_1.").and_then(|minor| minor.parse().ok());
    named.split_ascii_whitespace().filter_map(minor).collect()
}

/// Returns true if SPIR-V programs can require a subgroup size, which needs version 1.1, and shuffle values within a subgroup.
fn demands_subgroups(query: Query, versions: &[u32]) -> bool {
    versions.iter().any(|minor| *minor >= 1) && has(query, "cl_intel_spirv_subgroups")
}

/// Returns the subgroup size if it can be required and values can be shuffled: 16, or the largest supported size below. Otherwise 1.
///
/// Drivers that have subgroups without these extensions choose a size while compiling, which no kernel could be written for.
fn subgroup(query: Query) -> u32 {
    if !has(query, "cl_intel_required_subgroup_size") || !has(query, "cl_intel_subgroups") {
        return 1;
    }
    let sizes = query.sizes(CL_DEVICE_SUB_GROUP_SIZES_INTEL);
    let known = sizes.into_iter().filter(|size| size.is_power_of_two() && *size <= 16);
    known.max().and_then(|size| u32::try_from(size).ok()).unwrap_or(1)
}

/// Returns the number of bytes available for the private arrays of a work-group. CPU drivers keep them on the stack of the thread that runs
/// the work-group; half of the stack is left for everything else. PoCL's `basic` device runs work-groups in the thread that submits them,
/// and Rust's threads have 2 MiB.
fn private_bytes(query: Query) -> u64 {
    const CALLER: u64 = 2 << 20;
    match (is_cpu(query), query.text(CL_DEVICE_NAME).starts_with("basic")) {
        (true, true) => stack::bytes().min(CALLER) / 2,
        (true, false) => stack::bytes() / 2,
        (false, _) => u64::MAX,
    }
}

/// Returns the number of buffers whose pointer, offset and length fit beside three sizes and sixteen scalars.
fn bindings(parameter_bytes: u64) -> u32 {
    let others = (3 + 16) * 8;
    (parameter_bytes.saturating_sub(others) / 24).clamp(8, 256) as u32
}

/// Returns the limits that the driver itself must respect.
pub fn limits(place: &DiscoveredDevice) -> Limits {
    let query = Query(place.device);
    Limits {
        max_alloc: query.number(CL_DEVICE_MAX_MEM_ALLOC_SIZE),
        base_align: (query.number(CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8).max(1),
        rounds: query.number(CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT != 0,
        tells_free: has(query, "cl_amd_device_attribute_query"),
    }
}

/// Returns the build options for a language. Relaxed or unsafe arithmetic is never enabled: f32 means f32 on every device.
pub fn build_options(language: Language, rounds: bool) -> &'static str {
    match (language == Language::OpenClC, rounds) {
        (true, true) => "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt",
        (true, false) => "-cl-std=CL1.2",
        (false, true) => "-cl-fp32-correctly-rounded-divide-sqrt",
        (false, false) => "",
    }
}

/// Returns the current memory information. Only AMD's driver reports free memory, in KiB.
pub fn memory(place: &DiscoveredDevice, limits: &Limits) -> MemoryInfo {
    let query = Query(place.device);
    let free = || query.sizes(CL_DEVICE_GLOBAL_FREE_MEMORY_AMD).first().map(|kib| kib * 1024);
    let free = if limits.tells_free { free() } else { None };
    MemoryInfo { total: query.number(CL_DEVICE_GLOBAL_MEM_SIZE), free }
}
