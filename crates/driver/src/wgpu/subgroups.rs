//! Tests which work-items form a subgroup.
//!
//! Kernels rely on consecutive work-items, otherwise the order of a sum would differ between devices. WGSL and the APIs below do not
//! specify an order, and no API reports it. So a device runs examples with work-groups of several widths: every lane broadcasts its
//! work-item's index to all others. If one is wrong, kernels exchange words through workgroup memory.

use panoply_device::{DType, Result, Target};
use wgpu::{AdapterInfo, Features};

use super::arithmetic::{Example, computed};
use super::device::WgpuDevice;

/// Returns the subgroup size that kernels can rely on: the device's smallest, because larger subgroups contain aligned parts of that size.
/// 1 if the device has no subgroups.
pub fn size(features: Features, info: &AdapterInfo) -> u32 {
    let least = info.subgroup_min_size;
    if features.contains(Features::SUBGROUP) && least.is_power_of_two() { least } else { 1 }
}

/// Number of work-groups of each width that are tested.
const GROUPS: u32 = 4;

/// Returns true if consecutive work-items form subgroups, or aligned parts of them.
pub async fn are_consecutive(device: &WgpuDevice, target: &Target) -> Result<bool> {
    let (subgroup, most) = (target.subgroup, target.max_group_items.min(target.max_group[0]));
    // One subgroup, several, and a width that is not a multiple of the subgroup size.
    for width in [subgroup, 64, 100, 256].into_iter().filter(|width| *width <= most) {
        let lanes = (GROUPS * width * subgroup) as usize;
        let example = Example {
            source: source(subgroup),
            entry: "lanes",
            dtype: DType::U32,
            grid: u64::from(GROUPS * width),
            group: width,
            inputs: &[],
            results: 4 * lanes as u64,
        };
        let found = computed(device, example).await?;
        let consecutive = found.chunks_exact(4).enumerate().all(|(at, word)| {
            let (item, lane) = (at as u32 / subgroup % width, at as u32 % subgroup);
            let expected = item - item % subgroup + lane;
            // The value from a lane that does not exist is undefined.
            expected >= width || word == expected.to_le_bytes()
        });
        if !consecutive {
            return Ok(false);
        }
    }
    Ok(true)
}

fn source(subgroup: u32) -> String {
    let first = !(subgroup - 1);
    format!(
        "override items0: u32 = 1u; override items1: u32 = 1u; override items2: u32 = 1u;
@group(0) @binding(1) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(items0, items1, items2) fn lanes(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>,
        @builtin(subgroup_invocation_id) own: u32) {{
    let item = group.x * items0 + local.x;
    for (var lane = 0u; lane < {subgroup}u; lane = lane + 1u) {{
        x[item * {subgroup}u + lane] = subgroupShuffle(local.x, (own & {first}u) | lane);
    }}
}}
"
    )
}
