//! Tapes: launches whose programs and arguments were looked up once, so that a replay only puts addresses and numbers into place.
//!
//! What is no launch of the vector machine (a routine, a copy, the watched interpreter) has no such form and runs as a step.

use std::sync::Arc;

use panoply_device::command_buffer::{BindingKind, BindingSlot};
use panoply_device::{Arg, DeviceCommand, Dispatch, Result};
use panoply_ir::Scalar;

use crate::pool::Pool;
use crate::vm::exec::Buffer;
use crate::vm::launch::{Compiled, scalar_bits};

/// The launches among a command buffer's steps.
pub struct Launches {
    /// One for each step, of a routine that of its epilogue; none for what is no launch of the vector machine alone.
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

// SAFETY: the addresses are put into place by the replay that uses them; in between nobody follows them.
unsafe impl Send for Launches {}

/// Where a buffer of a launch begins.
struct Address {
    step: usize,
    buffer: usize,
    binding: usize,
    offset: u64,
}

/// Which slot a number of a launch is.
struct Number {
    step: usize,
    operand: usize,
    slot: usize,
}

impl Launches {
    /// The launches of a command buffer whose programs are these.
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

    /// One launch, whose arguments are a step's operands from one on; none if some buffer is not part of a binding.
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

    /// Runs the command buffer's steps over bindings that begin at these addresses. `other` runs what is no launch; of a routine whose
    /// epilogue is one, it is told to run the routine alone.
    ///
    /// # Safety
    /// The bindings are as large as those recorded and stay alive; what a launch writes aliases no other argument of it.
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
                    // SAFETY: the caller's promise; every address was put into place above.
                    unsafe { program.launch(pool, *grid, buffers, scalars)? };
                }
            }
        }
        Ok(())
    }
}
