//! What a device is asked to do: steps, in order, on a queue.

use panoply_ir::Scalar;
use panoply_ir::routine::Routine;

use crate::contract::Ticket;

/// Memory a device handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllocId(pub u64);

/// A program a device accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProgramId(pub u64);

/// A queue of a device. Steps of one queue happen in order; [`QueueId::DEFAULT`] always exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(pub u32);

impl QueueId {
    /// The queue every device has.
    pub const DEFAULT: QueueId = QueueId(0);
}

/// Bytes of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Whose.
    pub alloc: AllocId,
    /// First byte.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// One thing to do.
#[derive(Clone, Debug)]
pub enum Step {
    /// Run a program over a grid.
    Dispatch(Dispatch),
    /// Run one of the device's routines; regions in the order the routine names.
    Routine(Routine, Vec<Region>),
    /// Copy bytes within the device; the regions are equally long and do not overlap.
    Copy {
        /// Source.
        from: Region,
        /// Destination.
        to: Region,
    },
    /// Repeat a pattern of 1, 2, 4 or 8 bytes over a region whose length is a multiple of it.
    Fill {
        /// Destination.
        to: Region,
        /// The pattern.
        pattern: Vec<u8>,
    },
    /// Do nothing before this is done; it may belong to another queue of the same device.
    Wait(Ticket),
}

/// A launch.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// What runs.
    pub program: ProgramId,
    /// Work-items asked for along each axis; at least 1 each.
    pub grid: [u64; 3],
    /// Work-items of a group along each axis.
    pub group: [u32; 3],
    /// The program's parameters, in order.
    pub args: Vec<Arg>,
}

/// One argument of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// A buffer.
    Buffer(Region),
    /// A scalar of the parameter's type.
    Scalar(Scalar),
    /// An index.
    Index(u64),
}

impl Step {
    /// A buffer it works on: an argument of a launch, a buffer of a routine, a copy's source (0) or destination (1), a fill's (0).
    pub fn region(&self, operand: usize) -> Option<Region> {
        match (self, operand) {
            (Step::Dispatch(dispatch), _) => match dispatch.args.get(operand)? {
                Arg::Buffer(region) => Some(*region),
                Arg::Scalar(_) | Arg::Index(_) => None,
            },
            (Step::Routine(_, regions), _) => regions.get(operand).copied(),
            (Step::Copy { from, .. }, 0) => Some(*from),
            (Step::Copy { to, .. }, 1) | (Step::Fill { to, .. }, 0) => Some(*to),
            (Step::Copy { .. } | Step::Fill { .. } | Step::Wait(_), _) => None,
        }
    }

    /// The same, to be replaced.
    pub fn region_mut(&mut self, operand: usize) -> Option<&mut Region> {
        match (self, operand) {
            (Step::Dispatch(dispatch), _) => match dispatch.args.get_mut(operand)? {
                Arg::Buffer(region) => Some(region),
                Arg::Scalar(_) | Arg::Index(_) => None,
            },
            (Step::Routine(_, regions), _) => regions.get_mut(operand),
            (Step::Copy { from, .. }, 0) => Some(from),
            (Step::Copy { to, .. }, 1) | (Step::Fill { to, .. }, 0) => Some(to),
            (Step::Copy { .. } | Step::Fill { .. } | Step::Wait(_), _) => None,
        }
    }
}
