//! `cpu:checked`: the interpreter with checks on every access.
//!
//! A kernel runs with the semantics of [`panoply_ir::interpret`], and every access is checked. Detected defects:
//!
//! - **Out-of-bounds accesses**, even where the guard makes them harmless: a kernel that relies on guards hides
//!   mistakes, so it should compare with the length itself.
//! - **Data races**: two work-items access one element, at least one writes, and nothing orders them. A barrier orders
//!   the work-items of its group; nothing orders different groups. Atomics race with plain accesses but not with each
//!   other.
//! - **Reads of uninitialized shared or private elements.**
//! - **Barriers and collectives that only a part of a group reaches**; the verifier already rejects them except in
//!   unchecked kernels.
//! - **Index arithmetic without a mathematical result**, where Rust's `usize` would panic: negative results, overflow
//!   of 64 bits, division by zero.
//!
//! Reads and arithmetic that the Rust source would not execute are ignored: the side of a select that is not taken, and
//! the operands short-circuited by `&&` or `||`. The kernel must be the one as written, before optimization passes. The
//! run continues after a defect and its effects remain; all defects are reported in one error, with the first in its
//! message.

mod report;
mod shadow;

use panoply_ir::interpret::{self, Access, AccessKind, Arg, Divergence, Observer, Overflow, WorkItem};
use panoply_ir::kernel::{Kernel, Loc, Space};
use panoply_ir::{Result, Verified};

use report::{Finding, Reports};
use shadow::{Conflict, Mark, Shadow};

/// Runs a kernel over a grid and reports every defect of its accesses. `group` must equal the kernel's own group size
/// if it has one.
///
/// # Errors
/// Those of [`interpret::run`], and a mistake that lists all defects found.
pub fn run_checked(kernel: &Verified<Kernel>, grid: [u64; 3], group: [u32; 3], args: &mut [Arg<'_>]) -> Result<()> {
    let mut checker = Checker::new(kernel, grid, group);
    interpret::run(kernel, grid, group, args, &mut checker)?;
    checker.reports.into_result()
}

struct Checker<'k> {
    kernel: &'k Kernel,
    /// One shadow per memory.
    shadows: Vec<Shadow>,
    reports: Reports<'k>,
    /// Counts barriers and groups: two accesses with the same epoch have no barrier between them.
    epoch: u32,
}

impl<'k> Checker<'k> {
    fn new(kernel: &'k Kernel, grid: [u64; 3], group: [u32; 3]) -> Checker<'k> {
        let items = group.iter().product();
        let shadows = kernel.mems.iter().map(|memory| Shadow::new(memory.space, items)).collect();
        Checker { kernel, shadows, reports: Reports::new(kernel, grid, group), epoch: 0 }
    }
}

impl Observer for Checker<'_> {
    fn group(&mut self, _: u64) -> Result<()> {
        self.epoch += 1;
        self.shadows.iter_mut().for_each(Shadow::start_group);
        Ok(())
    }

    fn barrier(&mut self, _: Loc) -> Result<()> {
        self.epoch += 1;
        Ok(())
    }

    fn access(&mut self, access: Access) -> Result<()> {
        let Access { touch, mem, element, len, item, at } = access;
        let Some(element) = element.filter(|element| *element < len) else {
            self.reports.add(Finding::OutOfBounds(access));
            return Ok(());
        };
        let shadow = &mut self.shadows[mem.index()];
        let space = self.kernel.mem(mem).space;
        if touch != AccessKind::Store && !shadow.is_written(element, item.local) {
            self.reports.add(Finding::Uninitialized(access));
        }
        let mark = Mark { group: item.group, item: item.local, epoch: self.epoch, at };
        if let Some(Conflict { touch: before, mark }) = shadow.touch(touch, element, mark) {
            let other = self.reports.item(mark);
            let between_groups = other.group != item.group && matches!(space, Space::Buffer(_));
            self.reports.add(Finding::Race { access, before, other, other_at: mark.at, between_groups });
        }
        Ok(())
    }

    fn diverged(&mut self, divergence: Divergence) -> Result<()> {
        self.reports.add(Finding::Divergence(divergence));
        Ok(())
    }

    fn overflow(&mut self, overflow: Overflow) -> Result<()> {
        self.reports.add(Finding::Overflow(overflow));
        Ok(())
    }
}

/// Returns the work-item with a linear group id and a linear id within the group.
fn item_of(grid: [u64; 3], size: [u32; 3], group: u64, local: u32) -> WorkItem {
    let counts: [u64; 3] = std::array::from_fn(|axis| grid[axis].div_ceil(size[axis] as u64));
    let group_id = [group % counts[0], group / counts[0] % counts[1], group / (counts[0] * counts[1])];
    let local_id = [local % size[0], local / size[0] % size[1], local / (size[0] * size[1])];
    let global = std::array::from_fn(|axis| group_id[axis] * size[axis] as u64 + local_id[axis] as u64);
    WorkItem { global, local, group }
}
