//! Validation of what the contract requires of a device's caller.

use panoply_ir::kernel::Kernel;
use panoply_ir::target::Language;
use panoply_ir::{Error, Result, Type, Verified};

use super::{Compiled, NullDevice, State};
use crate::command::{Arg, DeviceCommand, Dispatch, QueueId, Region};
use crate::driver_api::{RawDevice, Ticket};
use crate::host::HostFunction;
use crate::program::{ParamType, Program, Signature, SourceText};

/// Prefix of the text in a simulated binary.
const BINARY: &[u8] = b"null ";

impl NullDevice {
    pub(super) fn check_queue(&self, state: &State, queue: QueueId) -> Result<()> {
        match u64::from(queue.0) < state.counts.queues {
            true => Ok(()),
            false => Err(self.mistake(format_args!("no queue {}; there are {}", queue.0, state.counts.queues))),
        }
    }

    pub(super) fn check_region(&self, state: &State, region: Region) -> Result<()> {
        let Some(allocation) = state.allocations.get(&region.alloc) else {
            return Err(self.mistake(format_args!("{:?} is not allocated", region.alloc)));
        };
        match region.offset.checked_add(region.bytes) {
            Some(end) if end <= allocation.bytes => Ok(()),
            _ => Err(self.mistake(format_args!("{region:?} exceeds its allocation of {} bytes", allocation.bytes))),
        }
    }

    pub(super) fn check_step(&self, state: &State, step: &DeviceCommand) -> Result<()> {
        match step {
            DeviceCommand::Dispatch(dispatch) => self.check_dispatch(state, dispatch),
            DeviceCommand::Routine(routine, regions, epilogue) => {
                if !self.supports_routine(routine) {
                    return Err(self.mistake(format_args!("{routine:?} is not supported")));
                }
                regions.iter().try_for_each(|region| self.check_region(state, *region))?;
                epilogue.as_ref().map_or(Ok(()), |epilogue| self.check_dispatch(state, &epilogue.dispatch))
            }
            DeviceCommand::Copy { from, to } => {
                self.check_region(state, *from)?;
                self.check_region(state, *to)?;
                match from.bytes == to.bytes && !overlap(*from, *to) {
                    true => Ok(()),
                    false => Err(self.mistake(format_args!("an invalid copy from {from:?} to {to:?}"))),
                }
            }
            DeviceCommand::Fill { to, pattern } => {
                self.check_region(state, *to)?;
                match matches!(pattern.len(), 1 | 2 | 4 | 8) && to.bytes.is_multiple_of(pattern.len() as u64) {
                    true => Ok(()),
                    false => Err(self.mistake(format_args!("{} pattern bytes for {} bytes", pattern.len(), to.bytes))),
                }
            }
            DeviceCommand::Wait(Ticket::Done) => Ok(()),
            DeviceCommand::Wait(Ticket::Pending(pending)) => match state.tokens.contains(&pending.token()) {
                true => Ok(()),
                false => Err(self.mistake("a wait for a ticket of another device")),
            },
        }
    }

    fn check_dispatch(&self, state: &State, dispatch: &Dispatch) -> Result<()> {
        let Some(program) = state.programs.get(&dispatch.program) else {
            return Err(self.mistake(format_args!("{:?} is not a live program", dispatch.program)));
        };
        let (group, target) = (dispatch.group_size, self.target());
        let items = group.iter().map(|size| u64::from(*size)).product::<u64>();
        let fits = (0..3).all(|i| (1..=target.max_group[i]).contains(&group[i]));
        if !fits || items > u64::from(target.max_group_items) || program.group.is_some_and(|needed| needed != group) {
            return Err(self.mistake(format_args!("{} in work-groups of {group:?}", program.entry)));
        }
        if dispatch.grid.contains(&0) {
            return Err(self.mistake(format_args!("{} over a grid of {:?}", program.entry, dispatch.grid)));
        }
        let params = &program.signature.params;
        if params.len() != dispatch.args.len() {
            return Err(self.mistake(format_args!("{} with {} arguments", program.entry, dispatch.args.len())));
        }
        let mut pairs = params.iter().zip(&dispatch.args);
        pairs.try_for_each(|(param, arg)| self.check_argument(state, &program.signature, *param, *arg))
    }

    fn check_argument(&self, state: &State, signature: &Signature, param: ParamType, arg: Arg) -> Result<()> {
        match (param, arg) {
            (ParamType::Buffer(dtype), Arg::Buffer(region)) => {
                self.check_region(state, region)?;
                let elem = dtype.bytes() as u64;
                match region.offset.is_multiple_of(elem) && region.bytes.is_multiple_of(elem) {
                    true => Ok(()),
                    false => Err(self.mistake(format_args!("{region:?} is not aligned to {dtype} elements"))),
                }
            }
            (ParamType::Scalar(Type::Index), Arg::Index(value)) => {
                match signature.index_bits >= 64 || value < 1 << signature.index_bits {
                    true => Ok(()),
                    false => Err(self.mistake(format_args!("{value} for an index of {} bits", signature.index_bits))),
                }
            }
            (ParamType::Scalar(Type::Scalar(dtype)), Arg::Scalar(scalar)) if dtype == scalar.dtype => Ok(()),
            _ => Err(self.mistake(format_args!("{arg:?} for {param:?}"))),
        }
    }

    /// Returns the compiled program, and true if it came from a binary of this device.
    pub(super) fn read_program(&self, program: &Program) -> Result<(Compiled, bool)> {
        match (program, self.target().language) {
            (Program::Ir(kernel), Language::Ir) => Ok((of_kernel(kernel), false)),
            (Program::Text(text), language) if text.language == language => Ok((of_text(text), false)),
            (Program::Binary { bytes, text }, language) if text.language == language => {
                let compiled = of_text(text);
                let known = compiled.binary.as_deref() == Some(bytes);
                Ok((compiled, known))
            }
            (Program::Host(function), Language::Ir) => Ok((of_host(function), false)),
            (_, language) => {
                let name = self.info().device_string();
                Err(Error::unsupported(format!("{name}: accepts only programs in {language:?}; render for its target")))
            }
        }
    }
}

fn of_kernel(kernel: &Verified<Kernel>) -> Compiled {
    let signature = Signature::of(kernel, 64);
    let source = Some(kernel.to_string());
    Compiled { entry: kernel.name.clone(), source, signature, group: kernel.group_size, binary: None }
}

fn of_host(function: &HostFunction) -> Compiled {
    let HostFunction { entry, signature, .. } = function.clone();
    Compiled { entry, source: None, signature, group: None, binary: None }
}

fn of_text(text: &SourceText) -> Compiled {
    Compiled {
        entry: text.entry.clone(),
        source: Some(text.source.clone()),
        signature: text.signature.clone(),
        group: None,
        binary: Some([BINARY, text.source.as_bytes()].concat()),
    }
}

fn overlap(a: Region, b: Region) -> bool {
    a.alloc == b.alloc && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes && a.bytes > 0
}
