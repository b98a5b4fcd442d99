//! Command buffers with resolved launches: programs and arguments are looked up once, so a replay only patches
//! addresses and scalars.
//!
//! Commands that are not launches of the vector machine (routines, copies, the checking interpreter) have no such form
//! and run as ordinary commands.

use std::sync::Arc;

use panoply_device::command_buffer::{BindingKind, BindingSlot};
use panoply_device::{Arg, DeviceCommand, Dispatch, Result};
use panoply_host::pool::Pool;
use panoply_ir::Scalar;

use crate::vm::exec::Buffer;
use crate::vm::launch::{Compiled, scalar_bits};

/// The resolved launches of a command buffer.
pub struct Launches {
    /// One entry per command: its launch, or the launch of a routine's epilogue. `None` if the command runs no separate
    /// launch of the vector machine.
    launches: Vec<Option<Launch>>,
    addresses: Vec<Address>,
    numbers: Vec<Number>,
}

struct Launch {
    program: Arc<Compiled>,
    grid: [u64; 3],
    buffers: Vec<Buffer>,
    scalars: Vec<u64>,
}

// SAFETY: the addresses are set by the replay that uses them and are not dereferenced in between.
unsafe impl Send for Launches {}

/// Patch of a launch's buffer address from a binding.
struct Address {
    step: usize,
    buffer: usize,
    binding: usize,
    offset: u64,
}

/// Patch of a launch's scalar from a slot.
struct Number {
    step: usize,
    operand: usize,
    slot: usize,
}

impl Launches {
    /// Resolves the launches of a command buffer. `program` returns the program of a launch.
    pub fn of(
        steps: &[DeviceCommand],
        places: &[BindingSlot],
        program: impl Fn(&DeviceCommand, &Dispatch) -> Option<Arc<Compiled>>,
    ) -> Launches {
        let mut known = Launches { launches: Vec::new(), addresses: Vec::new(), numbers: Vec::new() };
        let mut places_of: Vec<Vec<BindingSlot>> = vec![Vec::new(); steps.len()];
        places.iter().for_each(|place| places_of[place.step as usize].push(*place));
        for (position, (step, places)) in steps.iter().zip(&places_of).enumerate() {
            let launch = match step {
                DeviceCommand::Dispatch(dispatch) => {
                    program(step, dispatch).and_then(|program| known.launch((position, 0), dispatch, program, places))
                }
                DeviceCommand::Routine(_, regions, Some(end)) => program(step, &end.dispatch)
                    .and_then(|program| known.launch((position, regions.len()), &end.dispatch, program, places)),
                DeviceCommand::Routine(_, _, None)
                | DeviceCommand::Copy { .. }
                | DeviceCommand::Fill { .. }
                | DeviceCommand::Wait(_) => None,
            };
            known.launches.push(launch);
        }
        known
    }

    /// Resolves one launch, whose arguments start at the operand `first` of a command. `None` if a buffer is not part of a binding.
    fn launch(
        &mut self,
        (step, first): (usize, usize),
        dispatch: &Dispatch,
        program: Arc<Compiled>,
        places: &[BindingSlot],
    ) -> Option<Launch> {
        let (mut buffers, mut addresses, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        let mut scalars = Vec::with_capacity(dispatch.args.len());
        for (operand, arg) in dispatch.args.iter().enumerate() {
            let source =
                places.iter().find(|place| place.operand as usize == first + operand).map(|place| place.source);
            scalars.push(match (arg, source) {
                (Arg::Buffer(region), Some(BindingKind::Binding { binding, offset })) => {
                    let dtype = program.kernel().mems.get(buffers.len())?.dtype;
                    addresses.push(Address { step, buffer: buffers.len(), binding: binding as usize, offset });
                    buffers.push(Buffer { ptr: std::ptr::null_mut(), len: region.bytes / dtype.bytes() as u64 });
                    0
                }
                (Arg::Buffer(_), None | Some(BindingKind::Slot(_))) => return None,
                (Arg::Scalar(_) | Arg::Index(_), Some(BindingKind::Slot(slot))) => {
                    numbers.push(Number { step, operand, slot: slot as usize });
                    0
                }
                (Arg::Scalar(value), _) => scalar_bits(*value),
                (Arg::Index(value), _) => *value,
            });
        }
        self.addresses.extend(addresses);
        self.numbers.extend(numbers);
        Some(Launch { program, grid: dispatch.grid, buffers, scalars })
    }

    /// Runs the commands of the command buffer over bindings that start at the given addresses. `other` runs the
    /// commands without a resolved launch. For a routine whose epilogue is a launch, its second argument is true and it
    /// must run the routine alone.
    ///
    /// # Safety
    /// The bindings have the recorded sizes and stay alive; memory that a launch writes aliases no other argument of that launch.
    ///
    /// # Errors
    /// Those of `other` and of the launches.
    pub unsafe fn run(
        &mut self,
        pool: &Pool,
        steps: &[DeviceCommand],
        bindings: &[*mut u8],
        slots: &[Scalar],
        other: impl Fn(&DeviceCommand, bool) -> Result<()>,
    ) -> Result<()> {
        for Address { step, buffer, binding, offset } in &self.addresses {
            if let Some(launch) = &mut self.launches[*step] {
                launch.buffers[*buffer].ptr = bindings[*binding].wrapping_add(*offset as usize);
            }
        }
        for Number { step, operand, slot } in &self.numbers {
            if let Some(launch) = &mut self.launches[*step] {
                launch.scalars[*operand] = scalar_bits(slots[*slot]);
            }
        }
        for (launch, step) in self.launches.iter().zip(steps) {
            match launch {
                None => other(step, false)?,
                Some(Launch { program, grid, buffers, scalars }) => {
                    if let DeviceCommand::Routine(..) = step {
                        other(step, true)?;
                    }
                    // SAFETY: the caller's promise; every address was patched above.
                    unsafe { program.launch(pool, *grid, buffers, scalars)? };
                }
            }
        }
        Ok(())
    }
}
