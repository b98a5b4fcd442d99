//! Streams and events: work is executed as late as the API allows.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::codes::*;
use super::state::{Answer, State};
use crate::blas::Product;
use crate::hip;
use crate::ptx::Module;
use crate::ptx::run::{Launch, run};

/// A stream of a device.
pub struct Stream {
    pub device: usize,
    pub work: VecDeque<StreamCommand>,
}

/// An event.
pub struct Event {
    pub device: usize,
    pub timing: bool,
    /// False once the event was destroyed.
    pub live: bool,
    /// All recordings, with their streams and completion. A wait refers to the latest recording at the time of the call.
    pub recordings: Vec<Recording>,
    pub at: Duration,
}

/// A recording of an event.
#[derive(Clone, Copy)]
pub struct Recording {
    pub stream: u64,
    pub done: bool,
}

impl Event {
    /// Returns the latest recording; a completed one if there was none.
    pub fn latest(&self) -> Recording {
        self.recordings.last().copied().unwrap_or(Recording { stream: 0, done: true })
    }
}

/// A host address that outlives the work, as guaranteed by the caller.
#[derive(Clone, Copy)]
pub struct Host(pub *mut u8);

// SAFETY: the API's callers guarantee that pinned memory lives until the work that uses it is complete.
unsafe impl Send for Host {}

/// A unit of work in a stream.
#[derive(Clone)]
pub enum StreamCommand {
    Kernel {
        module: Arc<Module>,
        entry: String,
        grid: [u32; 3],
        block: [u32; 3],
        params: Vec<u64>,
    },
    /// A HIP kernel.
    Hip(hip::Launch),
    Upload {
        to: u64,
        bytes: Vec<u8>,
    },
    UploadPinned {
        to: u64,
        from: Host,
        bytes: u64,
    },
    Download {
        to: Host,
        from: u64,
        bytes: u64,
    },
    Copy {
        to: u64,
        from: u64,
        bytes: u64,
    },
    /// A copy between two devices.
    Peer {
        to: u64,
        from: u64,
        from_device: usize,
        bytes: u64,
    },
    /// Writes `pattern` `rows` times, with a pitch of `pitch` bytes.
    Fill {
        to: u64,
        pattern: Vec<u8>,
        pitch: u64,
        rows: u64,
    },
    Record {
        event: u64,
        serial: usize,
    },
    Wait {
        event: u64,
        serial: usize,
    },
    /// A matrix product.
    Product(Product),
    Free(u64),
}

impl State {
    /// Enqueues work on a stream.
    pub fn push(&mut self, stream: u64, work: StreamCommand) -> Answer {
        self.streams.get_mut(&stream).ok_or(INVALID_HANDLE)?.work.push_back(work);
        Ok(())
    }

    /// Enqueues a copy between two devices; the stream belongs to the destination device.
    pub fn copy_peer(&mut self, to: (usize, u64), from: (usize, u64), bytes: u64, stream: u64) -> Answer {
        let here = self.streams.get(&stream).ok_or(INVALID_HANDLE)?.device;
        if to.0 != here || from.0 >= self.devices.len() {
            return Err(INVALID_CONTEXT);
        }
        self.push(stream, StreamCommand::Peer { to: to.1, from: from.1, from_device: from.0, bytes })
    }

    /// Executes all work of a stream.
    pub fn drain(&mut self, stream: u64) -> Answer {
        while self.step(stream)? {}
        Ok(())
    }

    /// Executes all work of a device.
    pub fn drain_device(&mut self, device: usize) -> Answer {
        let streams = self.streams.iter().filter(|(_, stream)| stream.device == device);
        let streams: Vec<u64> = streams.map(|(handle, _)| *handle).collect();
        streams.into_iter().try_for_each(|stream| self.drain(stream))
    }

    /// Executes work until an event's recording, counted from 1, is complete; 0 is complete immediately.
    pub fn reach(&mut self, event: u64, serial: usize) -> Answer {
        loop {
            let known = self.events.get(&event).ok_or(INVALID_HANDLE)?;
            let Some(recording) = serial.checked_sub(1).map(|at| known.recordings[at]) else { return Ok(()) };
            if recording.done {
                return Ok(());
            }
            if !self.step(recording.stream)? {
                return Err(UNKNOWN);
            }
        }
    }

    /// Executes one unit of work of a stream; returns false if there is none. After a failure the device is lost.
    pub fn step(&mut self, stream: u64) -> Result<bool, i32> {
        let Some(known) = self.streams.get_mut(&stream) else { return Ok(false) };
        let device = known.device;
        if let Some(code) = self.devices[device].lost {
            return Err(code);
        }
        let Some(work) = known.work.pop_front() else { return Ok(false) };
        let done = self.perform(device, work);
        if let Err(code) = done {
            self.devices[device].lost = Some(code);
        }
        done.map(|()| true)
    }

    fn perform(&mut self, device: usize, work: StreamCommand) -> Answer {
        const ILLEGAL: i32 = crate::ptx::run::ILLEGAL_ADDRESS;
        let memory = &mut self.devices[device].memory;
        match work {
            StreamCommand::Kernel { module, entry, grid, block, params } => {
                let [blocks, y, z] = grid;
                let left_out = u32::from(self.config.wrong.as_ref() == Some(&entry));
                let (entry, grid) = (&module.entries[&entry], [blocks - left_out, y, z]);
                run(&Launch { entry, grid, block, params: &params }, memory).map_err(|fault| {
                    eprintln!("fake cuda: {}", fault.what);
                    fault.code
                })
            }
            StreamCommand::Hip(launch) => launch.run(memory),
            StreamCommand::Upload { to, bytes } => {
                memory.at(to, bytes.len() as u64).ok_or(ILLEGAL)?.copy_from_slice(&bytes);
                Ok(())
            }
            StreamCommand::UploadPinned { to, from, bytes } => {
                let place = memory.at(to, bytes).ok_or(ILLEGAL)?;
                // SAFETY: the caller of the API guarantees that the memory lives until this work is complete.
                place.copy_from_slice(unsafe { std::slice::from_raw_parts(from.0, bytes as usize) });
                Ok(())
            }
            StreamCommand::Download { to, from, bytes } => {
                let place = memory.at(from, bytes).ok_or(ILLEGAL)?;
                // SAFETY: the caller of the API guarantees that the memory lives until this work is complete.
                unsafe { std::slice::from_raw_parts_mut(to.0, bytes as usize) }.copy_from_slice(place);
                Ok(())
            }
            StreamCommand::Copy { to, from, bytes } => {
                let moved = memory.at(from, bytes).ok_or(ILLEGAL)?.to_vec();
                memory.at(to, bytes).ok_or(ILLEGAL)?.copy_from_slice(&moved);
                Ok(())
            }
            StreamCommand::Peer { to, from, from_device, bytes } => {
                // The other device is not synchronized: that is the caller's responsibility.
                let moved = self.devices[from_device].memory.at(from, bytes).ok_or(ILLEGAL)?.to_vec();
                self.devices[device].memory.at(to, bytes).ok_or(ILLEGAL)?.copy_from_slice(&moved);
                Ok(())
            }
            StreamCommand::Fill { to, pattern, pitch, rows } => (0..rows).try_for_each(|row| {
                memory.at(to + row * pitch, pattern.len() as u64).ok_or(ILLEGAL)?.copy_from_slice(&pattern);
                Ok(())
            }),
            StreamCommand::Record { event, serial } => {
                let at = self.started.elapsed();
                if let Some(event) = self.events.get_mut(&event) {
                    event.recordings[serial - 1].done = true;
                    event.at = at;
                }
                Ok(())
            }
            StreamCommand::Wait { event, serial } => self.reach(event, serial),
            StreamCommand::Product(product) => product.run(memory),
            StreamCommand::Free(address) => {
                if memory.free(address) {
                    Ok(())
                } else {
                    Err(INVALID_VALUE)
                }
            }
        }
    }
}
