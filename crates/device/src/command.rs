//! What a device is asked to do: steps, in order, on a queue.

use std::ops::Range;

use panoply_ir::Scalar;
use panoply_ir::routine::Routine;

use crate::driver_api::Ticket;

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

/// Where memory of a device lies, for other devices of the same driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Which of the drivers that this process opened.
    pub driver: usize,
    /// The device, as the driver counts.
    pub device: i32,
    /// What the process shares of it, in the driver's words.
    pub context: usize,
    /// The first byte.
    pub address: u64,
}

/// One thing to do.
#[derive(Clone, Debug)]
pub enum DeviceCommand {
    /// Run a program over a grid.
    Dispatch(Dispatch),
    /// Run one of the device's routines, regions in the order the routine names; and the launch that its first result goes
    /// through.
    Routine(Routine, Vec<Region>, Option<Box<Epilogue>>),
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

/// A launch that a routine's first result goes through, after the routine or while it is at it.
///
/// Of that result, which it is given once and whole, each work-item reads the element of its own number. What it writes is
/// apart from all that the routine touches.
#[derive(Clone, Debug)]
pub struct Epilogue {
    /// What runs; it has no groups.
    pub dispatch: Dispatch,
    /// Whether the result is wanted besides; if not, nobody looks at its memory afterwards.
    pub keep_output: bool,
}

/// A launch.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// What runs.
    pub program: ProgramId,
    /// Work-items asked for along each axis; at least 1 each.
    pub grid: [u64; 3],
    /// Work-items of a group along each axis.
    pub group_size: [u32; 3],
    /// The program's parameters, in order.
    pub args: Vec<Arg>,
    /// Parts of it that run one after the other, in place of all at once: where a buffer is larger than
    /// [`Target::max_binding_bytes`](panoply_ir::Target::max_binding_bytes), and nowhere else.
    pub parts: Vec<GridPart>,
}

/// Some groups of a launch, and what they touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridPart {
    /// The groups along each axis.
    pub groups: [Range<u64>; 3],
    /// For each argument, the bytes of its buffer that they touch, counted from its first; none of a number.
    pub windows: Vec<Range<u64>>,
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

impl DeviceCommand {
    /// A buffer it works on: an argument of a launch, a buffer of a routine or behind those an argument of its epilogue, a
    /// copy's source (0) or destination (1), a fill's (0).
    pub fn region(&self, operand: usize) -> Option<Region> {
        match (self, operand) {
            (DeviceCommand::Dispatch(_), _) => self.arg(operand)?.region(),
            (DeviceCommand::Routine(_, regions, _), _) => match regions.get(operand) {
                Some(region) => Some(*region),
                None => self.arg(operand)?.region(),
            },
            (DeviceCommand::Copy { from, .. }, 0) => Some(*from),
            (DeviceCommand::Copy { to, .. }, 1) | (DeviceCommand::Fill { to, .. }, 0) => Some(*to),
            (DeviceCommand::Copy { .. } | DeviceCommand::Fill { .. } | DeviceCommand::Wait(_), _) => None,
        }
    }

    /// The same, to be replaced.
    pub fn region_mut(&mut self, operand: usize) -> Option<&mut Region> {
        match self {
            DeviceCommand::Routine(_, regions, end) => {
                let behind = operand.checked_sub(regions.len());
                let args = end.as_mut().map(|end| &mut end.dispatch.args);
                match behind {
                    None => regions.get_mut(operand),
                    Some(behind) => args?.get_mut(behind)?.region_mut(),
                }
            }
            DeviceCommand::Dispatch(dispatch) => dispatch.args.get_mut(operand)?.region_mut(),
            DeviceCommand::Copy { from, to } => [from, to].into_iter().nth(operand),
            DeviceCommand::Fill { to, .. } => (operand == 0).then_some(to),
            DeviceCommand::Wait(_) => None,
        }
    }

    /// An argument of a launch or an epilogue, counted as [`DeviceCommand::region`] does.
    pub fn arg(&self, operand: usize) -> Option<&Arg> {
        match self {
            DeviceCommand::Dispatch(dispatch) => dispatch.args.get(operand),
            DeviceCommand::Routine(_, regions, Some(end)) => end.dispatch.args.get(operand.checked_sub(regions.len())?),
            DeviceCommand::Routine(_, _, None)
            | DeviceCommand::Copy { .. }
            | DeviceCommand::Fill { .. }
            | DeviceCommand::Wait(_) => None,
        }
    }

    /// The same, to be replaced.
    pub fn arg_mut(&mut self, operand: usize) -> Option<&mut Arg> {
        match self {
            DeviceCommand::Dispatch(dispatch) => dispatch.args.get_mut(operand),
            DeviceCommand::Routine(_, regions, Some(end)) => {
                end.dispatch.args.get_mut(operand.checked_sub(regions.len())?)
            }
            DeviceCommand::Routine(_, _, None)
            | DeviceCommand::Copy { .. }
            | DeviceCommand::Fill { .. }
            | DeviceCommand::Wait(_) => None,
        }
    }
}

impl Arg {
    /// The buffer, if it is one.
    pub fn region(&self) -> Option<Region> {
        match self {
            Arg::Buffer(region) => Some(*region),
            Arg::Scalar(_) | Arg::Index(_) => None,
        }
    }

    /// The same, to be replaced.
    pub fn region_mut(&mut self) -> Option<&mut Region> {
        match self {
            Arg::Buffer(region) => Some(region),
            Arg::Scalar(_) | Arg::Index(_) => None,
        }
    }
}
