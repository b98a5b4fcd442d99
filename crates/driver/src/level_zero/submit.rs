//! Submits commands, each of which is complete when the call returns.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use panoply_device::{DeviceCommand, Dispatch, Error, Pending, Region, Result, StepTime, Ticket};

use super::api::Functions;
use super::device::{Context, Queue, Tables};
use super::program::Program;
use crate::arguments::{Value, values};
use crate::fill::parts;
use crate::library::{Handle, check};
use crate::lock::locked;

/// Submits commands to a queue's command list.
pub struct Encoder<'a> {
    pub context: &'a Context,
    pub tables: &'a Tables,
    pub queue: &'a Queue,
}

impl Encoder<'_> {
    /// Runs the commands.
    pub fn run(&self, steps: &[DeviceCommand], timed: bool) -> Result<Ticket> {
        let list = locked(&self.queue.list);
        let mut times = Vec::new();
        for step in steps {
            let start_ns = self.context.now();
            self.step(*list, step)?;
            let waited = matches!(step, DeviceCommand::Wait(_));
            times.push(StepTime { start_ns, end_ns: if waited { start_ns } else { self.context.now() } });
        }
        Ok(if timed { Done::ticket(times, None) } else { Ticket::Done })
    }

    fn step(&self, list: Handle, step: &DeviceCommand) -> Result<()> {
        let label = &self.context.label;
        match step {
            DeviceCommand::Dispatch(dispatch) => self.dispatch(list, dispatch),
            DeviceCommand::Copy { from, to } => {
                let (source, target) = (self.tables.address(from, label)?, self.tables.address(to, label)?);
                self.copy(list, target as *mut c_void, source as *const c_void, from.bytes)
            }
            DeviceCommand::Fill { to, pattern } => self.fill(list, to, pattern),
            // All commands of this device are complete.
            DeviceCommand::Wait(ticket) => match ticket.poll() {
                Ok(true) => Ok(()),
                _ => Err(Error::mistake(format!("{label}: the ticket to wait for belongs to another device"))),
            },
            DeviceCommand::Routine(routine, ..) => {
                Err(Error::unsupported(format!("{label}: supports no library routine: {routine:?}")))
            }
        }
    }

    /// Copies between any two addresses; one of them can be in host memory.
    pub fn copy(&self, list: Handle, to: *mut c_void, from: *const c_void, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the list is live; the ranges are inside memory that outlives the call, which waits for the copy.
        self.ask(format_args!("copying {bytes} bytes"), |functions| unsafe {
            (functions.copy)(list, to, from, bytes as usize, 0, 0, ptr::null())
        })
    }

    fn fill(&self, list: Handle, to: &Region, pattern: &[u8]) -> Result<()> {
        let start = self.tables.address(to, &self.context.label)?;
        // Allocations are aligned, so an address in one is aligned as its offset is.
        for part in parts(to.offset, to.bytes, pattern) {
            let (at, length) = (start + (part.offset - to.offset), part.pattern.len());
            // SAFETY: the list is live; the range is inside a live allocation, and its address and length are multiples of the pattern's
            // length.
            self.ask(format_args!("filling {} bytes", part.bytes), |functions| unsafe {
                (functions.fill)(list, at, part.pattern.as_ptr(), length, part.bytes as usize, 0, 0, ptr::null())
            })?;
        }
        Ok(())
    }

    fn dispatch(&self, list: Handle, dispatch: &Dispatch) -> Result<()> {
        let label = &self.context.label;
        let found = self.tables.programs.get(dispatch.program.0);
        let program = found.ok_or_else(|| Error::mistake(format!("{label}: {:?} was released", dispatch.program)))?;
        let values = values(label, &program.signature, dispatch, |region| self.tables.address(region, label))?;
        // The number of work-groups is rounded up; the requested grid size is passed as an argument.
        let count = |axis: usize| {
            let count = dispatch.grid[axis].div_ceil(u64::from(dispatch.group_size[axis].max(1)));
            let most = self.context.max_groups[axis];
            u32::try_from(count).ok().filter(|count| *count <= most).ok_or_else(|| {
                Error::unsupported(format!(
                    "{label}: {count} groups along axis {axis}, {most} at most; use larger groups or split the launch"
                ))
            })
        };
        self.launch(list, program, dispatch, &values, [count(0)?, count(1)?, count(2)?])
    }

    fn launch(
        &self,
        list: Handle,
        program: &Program,
        dispatch: &Dispatch,
        values: &[Value],
        groups: [u32; 3],
    ) -> Result<()> {
        let kernel = locked(&program.kernel);
        let (entry, [x, y, z]) = (&program.entry, dispatch.group_size);
        let doing = format_args!("launching {entry} over {:?} in groups of {:?}", dispatch.grid, dispatch.group_size);
        // SAFETY: list and kernel are live; the lock protects the arguments set here, which are copied; the call waits for the work.
        self.ask(doing, |functions| unsafe {
            let mut code = (functions.kernel_group)(*kernel, x, y, z);
            for (index, value) in values.iter().enumerate() {
                if code != 0 {
                    return code;
                }
                let bits = ptr::from_ref(&value.bits).cast();
                code = (functions.kernel_argument)(*kernel, index as u32, value.bytes, bits);
            }
            if code == 0 { (functions.launch)(list, *kernel, &groups, 0, 0, ptr::null()) } else { code }
        })
    }

    fn ask(&self, doing: impl std::fmt::Display, call: impl FnOnce(&Functions) -> i32) -> Result<()> {
        check(call(&self.context.functions)).map_err(|code| self.context.failed(doing, code))
    }
}

/// The ticket of work that was complete before the ticket was created.
pub struct Done {
    times: Vec<StepTime>,
    bytes: Mutex<Option<Vec<u8>>>,
    token: u64,
}

impl Done {
    /// Creates a ticket with the times and the bytes that were read.
    pub fn ticket(times: Vec<StepTime>, bytes: Option<Vec<u8>>) -> Ticket {
        static TOKENS: AtomicU64 = AtomicU64::new(0);
        let token = TOKENS.fetch_add(1, Ordering::Relaxed);
        Ticket::Pending(Arc::new(Done { times, bytes: Mutex::new(bytes), token }))
    }
}

impl Pending for Done {
    fn poll(&self) -> Result<bool> {
        Ok(true)
    }

    fn wait(&self) -> Result<()> {
        Ok(())
    }

    fn take(&self) -> Option<Vec<u8>> {
        locked(&self.bytes).take()
    }

    fn times(&self) -> Vec<StepTime> {
        self.times.clone()
    }

    fn token(&self) -> u64 {
        self.token
    }
}

impl Context {
    /// Nanoseconds since the device was opened.
    fn now(&self) -> u64 {
        Instant::now().duration_since(self.opened).as_nanos() as u64
    }
}
