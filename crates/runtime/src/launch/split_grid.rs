//! Splits launches on devices that can bind only a limited range of a buffer at once.
//!
//! Work-groups of a launch are independent, so subsets can run one after the other. A part is valid if the range of each buffer that
//! its work-groups access, as derived from the kernel, is at most the maximum binding size. The grid is halved until all parts are
//! valid.

use std::ops::Range;

use panoply_device::{Arg, GridPart};
use panoply_ir::{Error, Result, Target};

use super::group_size;
use crate::byte_size::human;
use crate::device::Device;
use crate::program::compiled_kernel::CompiledKernel;

/// Maximum number of parts; with more, computing in slices is faster.
const MAX_PARTS: usize = 1 << 12;

/// Returns the work-group size and the parts of a launch with validated arguments. There are no parts if every buffer can be bound
/// whole. If the kernel does not fix its work-group size, the size is reduced until the parts are valid.
pub(super) fn split_grid(
    device: &Device,
    prepared: &CompiledKernel,
    grid: [u64; 3],
    args: &[Arg],
) -> Result<([u32; 3], Vec<GridPart>)> {
    let mut group =
        prepared.group_size().unwrap_or_else(|| group_size::size(device.target(), grid, prepared.private_bytes()));
    let most = device.target().max_binding_bytes;
    let whole = args.iter().all(|arg| arg.region().is_none_or(|region| reaches(region.offset, region.bytes) <= most));
    if whole {
        return Ok((group, Vec::new()));
    }
    loop {
        let splitter = GridSplitter { prepared, grid, group, args, most };
        let wide = [2, 1, 0].into_iter().find(|axis| group[*axis] > 1);
        match (splitter.parts(), wide) {
            (Ok(parts), _) => return Ok((group, parts)),
            (Err(_), Some(axis)) if prepared.group_size().is_none() => group[axis] = group[axis].div_ceil(2),
            (Err(refused), _) => return Err(splitter.explained(device, &refused)),
        }
    }
}

/// Returns the bytes from the aligned start of a binding to the end of the accessed range.
fn reaches(first: u64, bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { first % Target::BINDING_ALIGN + bytes }
}

/// A part that accesses more than a binding can hold.
struct OversizedPart {
    part: GridPart,
    /// True if halving it would exceed the maximum number of parts; false if halving does not help.
    many: bool,
}

struct GridSplitter<'a> {
    prepared: &'a CompiledKernel,
    grid: [u64; 3],
    group: [u32; 3],
    args: &'a [Arg],
    most: u64,
}

impl GridSplitter<'_> {
    /// Returns the parts, or an oversized part that cannot be halved.
    fn parts(&self) -> std::result::Result<Vec<GridPart>, OversizedPart> {
        let groups = [0, 1, 2].map(|axis| 0..self.grid[axis].div_ceil(u64::from(self.group[axis].max(1))));
        // A stack: the last element is processed next.
        let (mut pending, mut parts) = (vec![self.part(groups)], Vec::new());
        while let Some(part) = pending.pop() {
            if self.excess(&part) == 0 {
                parts.push(part);
                continue;
            }
            let many = parts.len() + pending.len() >= MAX_PARTS;
            match self.halves(&part) {
                Some([first, second]) if !many => pending.extend([second, first]),
                halves => return Err(OversizedPart { part, many: halves.is_some() }),
            }
        }
        Ok(parts)
    }

    fn part(&self, groups: [Range<u64>; 3]) -> GridPart {
        let items = [0, 1, 2].map(|axis| {
            let width = u64::from(self.group[axis].max(1));
            groups[axis].start * width..groups[axis].end * width
        });
        let windows = self.prepared.reach(self.grid, self.args, &items);
        GridPart { groups, windows }
    }

    /// Returns the bytes of an argument that exceed the binding in this part.
    fn beyond(&self, part: &GridPart, at: usize) -> u64 {
        let window = &part.windows[at];
        let of = |offset: u64| reaches(offset + window.start, window.end - window.start).saturating_sub(self.most);
        self.args[at].region().map_or(0, |region| of(region.offset))
    }

    fn excess(&self, part: &GridPart) -> u64 {
        (0..self.args.len()).map(|at| self.beyond(part, at)).sum()
    }

    /// Returns both halves along the axis that leaves the least excess, the outermost if several are equal; `None` if none helps.
    fn halves(&self, part: &GridPart) -> Option<[GridPart; 2]> {
        let along = |axis: usize| {
            let Range { start, end } = part.groups[axis];
            let middle = start + (end - start) / 2;
            let half = |range: Range<u64>| {
                let mut groups = part.groups.clone();
                groups[axis] = range;
                self.part(groups)
            };
            (end - start > 1).then(|| [half(start..middle), half(middle..end)])
        };
        let left = |halves: &[GridPart; 2]| self.excess(&halves[0]).max(self.excess(&halves[1]));
        let best = [2, 1, 0].into_iter().filter_map(along).min_by_key(left)?;
        (left(&best) < self.excess(part)).then_some(best)
    }

    #[cold]
    fn explained(&self, device: &Device, OversizedPart { part, many }: &OversizedPart) -> Error {
        let why = match many {
            true => format!("it takes more than {MAX_PARTS} launches; compute on slices, for example with `narrow`"),
            false => "the range that a work-group accesses is unknown, as indices can depend on data; compute on \
                      slices, for example with `narrow`"
                .to_string(),
        };
        let at = (0..self.args.len()).max_by_key(|at| self.beyond(part, *at)).unwrap_or(0);
        let bytes = self.args[at].region().map_or(0, |region| region.bytes);
        Error::mistake(format!(
            "kernel {}: {} of {} exceeds the maximum binding size on {device}, {}, and {why}",
            self.prepared.name(),
            self.prepared.params()[at].name,
            human(bytes),
            human(self.most)
        ))
    }
}
