//! Launches in parts, on devices that see only so much of a buffer at once.
//!
//! Groups of a launch know nothing of each other, so they may run part by part. A part is right if what its groups touch of each
//! buffer, which is read off the kernel, is no more than a launch sees; the grid is halved until all parts are.

use std::ops::Range;

use panoply_device::{Arg, GridPart};
use panoply_ir::{Error, Result, Target};

use super::group_size;
use crate::byte_size::human;
use crate::device::Device;
use crate::program::compiled_kernel::CompiledKernel;

/// Parts of a launch, at most: more would take longer than computing in pieces.
const MOST: usize = 1 << 12;

/// The groups of a launch whose arguments were checked, and its parts: none if it sees all of its buffers. Where the kernel leaves the size
/// of its groups open, they are as small as the parts want it.
pub(super) fn split_grid(
    device: &Device,
    prepared: &CompiledKernel,
    grid: [u64; 3],
    args: &[Arg],
) -> Result<([u32; 3], Vec<GridPart>)> {
    let mut group =
        prepared.group().unwrap_or_else(|| group_size::size(device.target(), grid, prepared.private_bytes()));
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
            (Err(_), Some(axis)) if prepared.group().is_none() => group[axis] = group[axis].div_ceil(2),
            (Err(refused), _) => return Err(splitter.explained(device, &refused)),
        }
    }
}

/// Bytes from where a launch may begin to see a buffer to the end of what it touches.
fn reaches(first: u64, bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { first % Target::BINDING_ALIGN + bytes }
}

/// A part that sees too much.
struct OversizedPart {
    part: GridPart,
    /// Whether its halves would be one part too many, not as large.
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
    /// The parts, or one that sees too much and cannot be halved.
    fn parts(&self) -> std::result::Result<Vec<GridPart>, OversizedPart> {
        let groups = [0, 1, 2].map(|axis| 0..self.grid[axis].div_ceil(u64::from(self.group[axis].max(1))));
        // The last is the next.
        let (mut pending, mut parts) = (vec![self.part(groups)], Vec::new());
        while let Some(part) = pending.pop() {
            if self.excess(&part) == 0 {
                parts.push(part);
                continue;
            }
            let many = parts.len() + pending.len() >= MOST;
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

    /// Bytes of an argument that a launch of this part would not see.
    fn beyond(&self, part: &GridPart, at: usize) -> u64 {
        let window = &part.windows[at];
        let of = |offset: u64| reaches(offset + window.start, window.end - window.start).saturating_sub(self.most);
        self.args[at].region().map_or(0, |region| of(region.offset))
    }

    fn excess(&self, part: &GridPart) -> u64 {
        (0..self.args.len()).map(|at| self.beyond(part, at)).sum()
    }

    /// Both halves along the axis that leaves them the least to hide, if there is one: the outermost of several.
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
            true => format!("it would be more than {MOST} launches; compute in pieces, such as `narrow` gives"),
            false => "nothing says where in it a group reads or writes, as positions may come from data; compute with \
                      pieces of it, such as `narrow` gives"
                .to_string(),
        };
        let at = (0..self.args.len()).max_by_key(|at| self.beyond(part, *at)).unwrap_or(0);
        let bytes = self.args[at].region().map_or(0, |region| region.bytes);
        Error::mistake(format!(
            "kernel {}: {} of {} exceeds the largest that a launch sees on {device}, {}, and {why}",
            self.prepared.name(),
            self.prepared.params()[at].name,
            human(bytes),
            human(self.most)
        ))
    }
}
