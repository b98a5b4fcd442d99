//! What cases are written with: memory and programs that are given back, and launches.

use std::sync::Arc;

use panoply_ir::builder::Builder;
use panoply_ir::verify::verify;
use panoply_ir::{Element, Result};

use super::{Render, broken};
use crate::command::{AllocId, Arg, DeviceCommand, Dispatch, ProgramId, QueueId, Region};
use crate::driver_api::{RawDevice, Ticket};

/// A device under test.
#[derive(Clone, Copy)]
pub struct Bench<'a> {
    pub device: &'a dyn RawDevice,
    pub render: Render<'a>,
}

/// Memory that is freed with it.
pub struct Memory<'a> {
    device: &'a dyn RawDevice,
    pub id: AllocId,
    pub bytes: u64,
}

/// A program that is released with it.
pub struct Held<'a> {
    device: &'a dyn RawDevice,
    pub id: ProgramId,
}

impl<'a> Bench<'a> {
    /// Memory of undefined contents.
    pub fn allocate(&self, bytes: u64) -> Result<Memory<'a>> {
        Ok(Memory { device: self.device, id: self.device.allocate(bytes)?, bytes })
    }

    /// Memory that holds these elements.
    pub fn holding<T: Element>(&self, values: &[T]) -> Result<Memory<'a>> {
        let bytes = bytes_of(values);
        let memory = self.allocate(bytes.len() as u64)?;
        self.device.write(QueueId::DEFAULT, memory.all(), &bytes)?;
        Ok(memory)
    }

    /// The program of a kernel.
    pub fn compile(&self, kernel: Builder) -> Result<Held<'a>> {
        let kernel = Arc::new(verify(kernel.finish()?)?);
        let program = (self.render)(&kernel, self.device.target())?;
        Ok(self.own(self.device.compile(&program)?))
    }

    /// Releases a program at the end of the case.
    pub fn own(&self, id: ProgramId) -> Held<'a> {
        Held { device: self.device, id }
    }

    /// Steps on the default queue.
    pub fn run(&self, steps: &[DeviceCommand]) -> Result<Ticket> {
        self.device.submit(QueueId::DEFAULT, steps, false)
    }

    /// The largest group the device has that is no larger than this.
    pub fn group(&self, wanted: [u32; 3]) -> [u32; 3] {
        let (target, mut left) = (self.device.target(), self.device.target().max_group_items);
        std::array::from_fn(|i| {
            let size = wanted[i].min(target.max_group[i]).min(left).max(1);
            left /= size;
            size
        })
    }
}

impl Memory<'_> {
    /// Some of its bytes.
    pub fn region(&self, offset: u64, bytes: u64) -> Region {
        Region { alloc: self.id, offset, bytes }
    }

    /// All of its bytes.
    pub fn all(&self) -> Region {
        self.region(0, self.bytes)
    }

    /// What it holds once the default queue has come here.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        self.device.read(QueueId::DEFAULT, self.all())?.take()
    }

    /// The same as 32-bit words.
    pub fn words(&self) -> Result<Vec<u32>> {
        let bytes = self.bytes()?;
        let chunks = bytes.chunks_exact(4);
        match chunks.remainder() {
            [] => Ok(chunks.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect()),
            _ => Err(broken(format_args!("{} bytes are no words", bytes.len()))),
        }
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        self.device.free(self.id);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.device.release(self.id);
    }
}

/// A launch as a step.
pub fn launch(program: &Held<'_>, grid: [u64; 3], group: [u32; 3], args: Vec<Arg>) -> DeviceCommand {
    DeviceCommand::Dispatch(Dispatch { program: program.id, grid, group_size: group, args, parts: Vec::new() })
}

/// Elements as they lie in memory.
pub fn bytes_of<T: Element>(values: &[T]) -> Vec<u8> {
    values.iter().flat_map(|value| (*value).into().bits.to_le_bytes()[..T::DTYPE.bytes()].to_vec()).collect()
}
