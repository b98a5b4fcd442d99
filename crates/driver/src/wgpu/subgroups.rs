//! Which work-items form a subgroup.
//!
//! Kernels count on consecutive ones, or the order of a sum would be a device's own. WGSL and the interfaces below promise no order, and no
//! interface tells. So a device is asked by example, in groups of several widths: every lane gives its work-item's number to all
//! others. Where one is wrong, kernels pass words through the group's memory.

use panoply_device::{DType, Result, Target};
use wgpu::{AdapterInfo, Features};

use super::arithmetic::{Example, computed};
use super::device::WgpuDevice;

/// Work-items of a subgroup that kernels may count on: as many as the device's smallest has, which an aligned part of every larger one has too.
/// One if it has none.
pub fn size(features: Features, info: &AdapterInfo) -> u32 {
    let least = info.subgroup_min_size;
    if features.contains(Features::SUBGROUP) && least.is_power_of_two() { least } else { 1 }
}

/// Groups of each width that are looked at.
const GROUPS: u32 = 4;

/// Whether consecutive work-items form subgroups, or aligned parts of them.
pub async fn are_consecutive(device: &WgpuDevice, target: &Target) -> Result<bool> {
    let (subgroup, most) = (target.subgroup, target.max_group_items.min(target.max_group[0]));
    // A subgroup, several, and a number of them that is not whole.
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
            // What a lane gives that is not there is anything.
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
