//! Several things to do, submitted at once.

use std::sync::Arc;

use panoply_device::{Region, Step};
use panoply_ir::kernel::Access;
use panoply_ir::routine::{Gemm, Layout, Routine};
use panoply_ir::{Error, Result};

use super::argument::{LaunchArg, touches};
use super::{Grid, check, entry};
use crate::device::Device;
use crate::memory::storage::{Storage, Touch};
use crate::profile::entry::{Entry, What};
use crate::program::prepared::Prepared;
use crate::queue::event::Event;
use crate::queue::{Queue, copy_step, fill_step};

/// One thing to do.
#[derive(Debug)]
pub enum Work<'a> {
    /// Run a kernel.
    Kernel {
        /// Which.
        prepared: &'a Arc<Prepared>,
        /// Over how many work-items.
        grid: Grid,
        /// On what.
        args: Vec<LaunchArg<'a>>,
    },
    /// Run a routine that the device offers.
    Routine {
        /// Which.
        routine: Routine,
        /// Its buffers, in the order the routine names.
        buffers: Vec<&'a Storage>,
    },
    /// Copy bytes within the device.
    Copy {
        /// Source.
        from: &'a Storage,
        /// Destination, as long and elsewhere.
        to: &'a Storage,
    },
    /// Repeat a pattern of 1, 2, 4 or 8 bytes.
    Fill {
        /// Destination.
        to: &'a Storage,
        /// The pattern.
        pattern: &'a [u8],
    },
}

impl Device {
    /// Submits work to the default queue, in order. Either all of it is valid and submitted, or nothing is.
    pub fn submit(&self, work: &[Work<'_>]) -> Result<()> {
        self.submit_to(&self.default_queue(), work, false).map(drop)
    }

    /// [`Device::submit`] to a queue of this device; with `timed`, the event knows the time on the device.
    pub fn submit_to(&self, queue: &Queue, work: &[Work<'_>], timed: bool) -> Result<Event> {
        if queue.device() != self {
            let theirs = queue.device();
            return Err(Error::mistake(format!(
                "work for {self} was given to a queue of {theirs}; take a queue of {self}"
            )));
        }
        let mut steps = Vec::with_capacity(work.len());
        for one in work {
            steps.push(one.step(self)?);
        }
        let touches = work.iter().flat_map(Work::touches);
        let ticket = self.enqueue(queue.id(), &steps, touches, timed, |position| work[position].entry())?;
        Ok(Event::new(self.clone(), queue.id(), ticket))
    }
}

impl Work<'_> {
    fn step(&self, device: &Device) -> Result<Step> {
        let at_home = |storage: &Storage| {
            let home = storage.device() == device;
            let message = || format!("a buffer on {} was given to work for {device}", storage.device());
            if home { Ok(()) } else { Err(Error::mistake(message() + "; copy it with `.to(&device)`")) }
        };
        match self {
            Work::Kernel { prepared, grid, args } => {
                if prepared.is_unchecked() {
                    let name = prepared.name();
                    return Err(Error::mistake(format!(
                        "kernel {name}: its author marked it unchecked; it cannot be part of a list of work"
                    )));
                }
                check::dispatch(device, prepared, *grid, args).map(Step::Dispatch)
            }
            Work::Routine { routine, buffers } => {
                buffers.iter().try_for_each(|storage| at_home(storage))?;
                routine_step(device, routine, buffers)
            }
            Work::Copy { from, to } => {
                at_home(from)?;
                at_home(to)?;
                copy_step(from, to)
            }
            Work::Fill { to, pattern } => {
                at_home(to)?;
                fill_step(to, pattern)
            }
        }
    }

    fn touches(&self) -> impl Iterator<Item = Touch<'_>> + Clone {
        let mut kernel = None;
        let mut others: [Option<Touch<'_>>; 3] = [None; 3];
        match self {
            Work::Kernel { prepared, args, .. } => kernel = Some(touches(prepared, args)),
            Work::Routine { routine: Routine::Gemm(_), buffers } => {
                let accesses = [Access::In, Access::In, Access::Out];
                let pairs = buffers.iter().copied().zip(accesses);
                others.iter_mut().zip(pairs).for_each(|(other, touch)| *other = Some(touch));
            }
            Work::Copy { from, to } => others = [Some((*from, Access::In)), Some((*to, Access::Out)), None],
            Work::Fill { to, .. } => others = [Some((*to, Access::Out)), None, None],
        }
        kernel.into_iter().flatten().chain(others.into_iter().flatten())
    }

    fn entry(&self) -> Entry {
        match self {
            Work::Kernel { prepared, args, .. } => entry(prepared, args),
            Work::Routine { routine: Routine::Gemm(gemm), buffers } => {
                let Gemm { dtype, batch, m, n, k, .. } = gemm;
                let name = format!("gemm {dtype} {batch}×{m}×{n}×{k}");
                Entry::new(What::Routine, name, buffers.iter().map(|storage| storage.bytes()).sum())
            }
            Work::Copy { to, .. } => Entry::new(What::Copy, "copy", 2 * to.bytes()),
            Work::Fill { to, .. } => Entry::new(What::Fill, "fill", to.bytes()),
        }
    }
}

/// A routine whose buffers hold all that it will touch.
fn routine_step(device: &Device, routine: &Routine, buffers: &[&Storage]) -> Result<Step> {
    if !device.offers(routine) {
        return Err(Error::unsupported(format!(
            "{device} does not offer {routine:?}; run the kernel that does the same"
        )));
    }
    let Routine::Gemm(gemm) = routine;
    let &[a, b, c] = buffers else {
        return Err(Error::mistake(format!("gemm takes 3 buffers (a, b, c), not {}", buffers.len())));
    };
    let Gemm { dtype, batch, m, n, k, .. } = *gemm;
    for (name, storage, layout, rows, columns) in
        [("a", a, gemm.a, m, k), ("b", b, gemm.b, k, n), ("c", c, gemm.c, m, n)]
    {
        let have = storage.bytes() / dtype.bytes() as u64;
        let needs = elems_reached(&layout, batch, rows, columns);
        if needs.is_none_or(|needs| needs > have) {
            let needs = needs.map_or("more than 64 bits of".to_string(), |needs| needs.to_string());
            return Err(Error::mistake(format!("gemm: {name} reaches {needs} elements, its buffer has {have}")));
        }
        if !storage.offset().is_multiple_of(dtype.bytes() as u64) {
            return Err(Error::mistake(format!("gemm: {name} is not aligned to {dtype} elements")));
        }
    }
    for (name, storage) in [("a", a), ("b", b)] {
        if c.overlaps(storage) {
            return Err(Error::mistake(format!(
                "gemm: c is written and shares bytes with {name}; use a buffer of its own"
            )));
        }
    }
    let regions: Vec<Region> = buffers.iter().map(|storage| storage.region()).collect();
    Ok(Step::Routine(*routine, regions))
}

/// One more than the last element a matrix of each batch touches; none beyond 64 bits.
fn elems_reached(layout: &Layout, batch: usize, rows: usize, columns: usize) -> Option<u64> {
    if batch == 0 || rows == 0 || columns == 0 {
        return Some(0);
    }
    let mut last = layout.offset as u64;
    for (count, stride) in [(batch, layout.batch), (rows, layout.row), (columns, layout.column)] {
        last = last.checked_add((count as u64 - 1).checked_mul(stride as u64)?)?;
    }
    last.checked_add(1)
}
