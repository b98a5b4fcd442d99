//! Commands that a device executes in order on a queue.

use std::ops::Range;

use panoply_ir::Scalar;
use panoply_ir::routine::Routine;

use crate::driver_api::Ticket;

/// Handle of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllocId(pub u64);

/// Handle of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProgramId(pub u64);

/// Handle of a queue. Commands of one queue execute in order. [`QueueId::DEFAULT`] always exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(pub u32);

impl QueueId {
    /// The default queue, which every device has.
    pub const DEFAULT: QueueId = QueueId(0);
}

/// A range of bytes of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// The allocation.
    pub alloc: AllocId,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Address of device memory, as seen by other devices of the same driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Identifies the driver among those opened by this process.
    pub driver: usize,
    /// Device ordinal of the driver.
    pub device: i32,
    /// Handle of the device's context in this process.
    pub context: usize,
    /// Address of the first byte.
    pub address: u64,
}

/// A command for a device.
#[derive(Clone, Debug)]
pub enum DeviceCommand {
    /// Launch of a program over a grid.
    Dispatch(Dispatch),
    /// Execution of a routine of the device, with its buffers in the order of the routine's operands, and an optional epilogue for its
    /// first output.
    Routine(Routine, Vec<Region>, Option<Box<Epilogue>>),
    /// Copy of bytes within the device. The regions have equal length and do not overlap.
    Copy {
        /// Source.
        from: Region,
        /// Destination.
        to: Region,
    },
    /// Fill of a region with a pattern of 1, 2, 4 or 8 bytes; the region's length is a multiple of the pattern's.
    Fill {
        /// Destination.
        to: Region,
        /// The pattern.
        pattern: Vec<u8>,
    },
    /// Barrier: later commands start after this ticket is complete. It can belong to another queue of the same device.
    Wait(Ticket),
}

/// A launch applied to a routine's first output, after the routine or fused into it.
///
/// The output is passed exactly once and whole, and each work-item reads the element at its own linear index. The memory that the
/// epilogue writes is disjoint from all operands of the routine.
#[derive(Clone, Debug)]
pub struct Epilogue {
    /// The launch; its program uses no work-group features.
    pub dispatch: Dispatch,
    /// True if the output itself is also needed. If false, its memory is not read afterwards.
    pub keep_output: bool,
}

/// A kernel launch.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// The program.
    pub program: ProgramId,
    /// Number of work-items along each axis, at least 1.
    pub grid: [u64; 3],
    /// Work-group size along each axis.
    pub group_size: [u32; 3],
    /// Arguments in the order of the program's parameters.
    pub args: Vec<Arg>,
    /// Parts of the grid that run one after the other instead of all at once. Only used if a buffer is larger than
    /// [`Target::max_binding_bytes`](panoply_ir::Target::max_binding_bytes).
    pub parts: Vec<GridPart>,
}

/// A subset of a launch's work-groups and the bytes that they access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridPart {
    /// Range of work-groups along each axis.
    pub groups: [Range<u64>; 3],
    /// For each argument, the range of bytes accessed, relative to the start of its buffer; empty for scalars.
    pub windows: Vec<Range<u64>>,
}

/// An argument of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// A buffer.
    Buffer(Region),
    /// A scalar of the parameter's type.
    Scalar(Scalar),
    /// An index value.
    Index(u64),
}

impl DeviceCommand {
    /// Returns the region of an operand. Operands are numbered as follows: the arguments of a launch; the buffers of a routine followed by
    /// the arguments of its epilogue; a copy's source (0) and destination (1); a fill's destination (0).
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

    /// Mutable version of [`DeviceCommand::region`].
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

    /// Returns an argument of a launch or epilogue, numbered as in [`DeviceCommand::region`].
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

    /// Mutable version of [`DeviceCommand::arg`].
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
    /// Returns the region if the argument is a buffer.
    pub fn region(&self) -> Option<Region> {
        match self {
            Arg::Buffer(region) => Some(*region),
            Arg::Scalar(_) | Arg::Index(_) => None,
        }
    }

    /// Mutable version of [`Arg::region`].
    pub fn region_mut(&mut self) -> Option<&mut Region> {
        match self {
            Arg::Buffer(region) => Some(region),
            Arg::Scalar(_) | Arg::Index(_) => None,
        }
    }
}
