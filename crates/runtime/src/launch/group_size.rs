//! Selection of the work-group size for kernels that fix none. It affects the speed, never the result: such a kernel uses no
//! work-group features.

use panoply_ir::Target;
use panoply_ir::target::Style;

/// Work-items per work-group on a GPU: enough to hide latency, few enough to occupy every compute unit in a small launch.
const GPU_ITEMS: u32 = 256;

/// Width of a two-dimensional work-group along the first axis on a GPU, so that a row reads whole cache lines.
const GPU_ROW: u32 = 32;

/// Returns the work-group size for a grid. Each work-item has `private_bytes` bytes of private arrays.
pub fn size(target: &Target, grid: [u64; 3], private_bytes: u64) -> [u32; 3] {
    let (items, row) = match target.style {
        Style::Cpu { block } => (block, block),
        Style::Gpu => (GPU_ITEMS, if grid[1] * grid[2] > 1 { GPU_ROW } else { GPU_ITEMS }),
    };
    let room = target.private_bytes.checked_div(private_bytes).unwrap_or(u64::MAX);
    let mut left = items.min(target.max_group_items).min(u32::try_from(room).unwrap_or(u32::MAX)).max(1);
    let mut group = [1; 3];
    for axis in 0..3 {
        let most = if axis == 0 { left.min(row) } else { left };
        group[axis] = power_of_two_for(grid[axis], most.min(target.max_group[axis]).max(1));
        left /= group[axis];
    }
    group
}

/// Returns the smallest power of two that is at least `length`, limited to the largest power of two up to `most`.
fn power_of_two_for(length: u64, most: u32) -> u32 {
    let greatest = 1 << most.ilog2();
    if length >= greatest as u64 { greatest } else { (length as u32).next_power_of_two().min(greatest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_sizes_respect_limits_and_grid() {
        let (gpu, cpu) = (Target::opencl_minimum(), Target::cpu());
        let small = Target { max_group: [8, 4, 2], max_group_items: 16, ..gpu.clone() };
        for target in [&gpu, &cpu, &small] {
            for grid in
                [[1, 1, 1], [3, 1, 1], [1 << 40, 1, 1], [5, 7, 1], [1, 1000, 1], [100, 100, 100], [1, 1, 1 << 33]]
            {
                let group = size(target, grid, 0);
                let items: u32 = group.iter().product();
                assert!(items <= target.max_group_items, "{group:?} for {grid:?}");
                for axis in 0..3 {
                    assert!(group[axis] >= 1 && group[axis] <= target.max_group[axis], "{group:?} for {grid:?}");
                    assert!(u64::from(group[axis]) < 2 * grid[axis].max(1), "{group:?} for {grid:?}");
                }
            }
        }
    }

    #[test]
    fn group_sizes_of_common_grids() {
        let (gpu, cpu) = (Target::opencl_minimum(), Target::cpu());
        assert_eq!(size(&gpu, [1 << 20, 1, 1], 0), [256, 1, 1]);
        assert_eq!(size(&gpu, [1 << 10, 1 << 10, 1], 0), [32, 8, 1]);
        assert_eq!(size(&gpu, [64, 64, 64], 0), [32, 8, 1]);
        assert_eq!(size(&gpu, [4, 1 << 20, 1], 0), [4, 64, 1]);
        assert_eq!(size(&cpu, [1 << 20, 1, 1], 0), [512, 1, 1]);
        assert_eq!(size(&cpu, [640, 480, 1], 0), [512, 1, 1]);
        assert_eq!(size(&cpu, [100, 480, 1], 0), [128, 4, 1]);
    }
    #[test]
    fn private_arrays_limit_the_group_size() {
        let target = Target { private_bytes: 4 << 20, ..Target::opencl_minimum() };
        for (private_bytes, items) in
            [(0, 256), (16 << 10, 256), (64 << 10, 64), (65 << 10, 32), (4 << 20, 1), (1 << 30, 1)]
        {
            assert_eq!(size(&target, [1 << 20, 1, 1], private_bytes), [items, 1, 1], "{private_bytes}");
        }
        assert_eq!(size(&target, [4, 1 << 20, 1], 64 << 10), [4, 16, 1]);
    }
}
