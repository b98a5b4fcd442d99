//! Helpers of the cases: memory and programs that are released automatically, and launches.

use std::sync::Arc;

use panoply_ir::builder::Builder;
use panoply_ir::verify::verify;
use panoply_ir::{Element, Result};

use super::{Render, broken};
use crate::command::{AllocId, Arg, DeviceCommand, Dispatch, ProgramId, QueueId, Region};
use crate::driver_api::{RawDevice, Ticket};

/// A device under test with the renderer for its programs.
#[derive(Clone, Copy)]
pub struct Bench<'a> {
    pub device: &'a dyn RawDevice,
    pub render: Render<'a>,
}

/// An allocation that is freed on drop.
pub struct Memory<'a> {
    device: &'a dyn RawDevice,
    pub id: AllocId,
    pub bytes: u64,
}

/// A program that is released on drop.
pub struct HeldProgram<'a> {
    device: &'a dyn RawDevice,
    pub id: ProgramId,
}

impl<'a> Bench<'a> {
    /// Allocates memory with undefined contents.
    pub fn allocate(&self, bytes: u64) -> Result<Memory<'a>> {
        Ok(Memory { device: self.device, id: self.device.allocate(bytes)?, bytes })
    }

    /// Allocates memory and writes these elements.
    pub fn holding<T: Element>(&self, values: &[T]) -> Result<Memory<'a>> {
        let bytes = bytes_of(values);
        let memory = self.allocate(bytes.len() as u64)?;
        self.device.write(QueueId::DEFAULT, memory.all(), &bytes)?;
        Ok(memory)
    }

    /// Compiles a kernel.
    pub fn compile(&self, kernel: Builder) -> Result<HeldProgram<'a>> {
        let kernel = Arc::new(verify(kernel.finish()?)?);
        let program = (self.render)(&kernel, self.device.target())?;
        Ok(self.own(self.device.compile(&program)?))
    }

    /// Wraps a program so that it is released on drop.
    pub fn own(&self, id: ProgramId) -> HeldProgram<'a> {
        HeldProgram { device: self.device, id }
    }

    /// Submits commands to the default queue.
    pub fn run(&self, steps: &[DeviceCommand]) -> Result<Ticket> {
        self.device.submit(QueueId::DEFAULT, steps, false)
    }

    /// Limits a work-group size to what the device supports.
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
    /// Returns a range of the memory.
    pub fn region(&self, offset: u64, bytes: u64) -> Region {
        Region { alloc: self.id, offset, bytes }
    }

    /// Returns the whole memory.
    pub fn all(&self) -> Region {
        self.region(0, self.bytes)
    }

    /// Returns the contents after all work on the default queue.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        self.device.read(QueueId::DEFAULT, self.all())?.take()
    }

    /// Returns the contents as 32-bit words.
    pub fn words(&self) -> Result<Vec<u32>> {
        let bytes = self.bytes()?;
        let chunks = bytes.chunks_exact(4);
        match chunks.remainder() {
            [] => Ok(chunks.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect()),
            _ => Err(broken(format_args!("{} bytes are not a whole number of words", bytes.len()))),
        }
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        self.device.free(self.id);
    }
}

impl Drop for HeldProgram<'_> {
    fn drop(&mut self) {
        self.device.release(self.id);
    }
}

/// Returns a launch as a command.
pub fn launch(program: &HeldProgram<'_>, grid: [u64; 3], group: [u32; 3], args: Vec<Arg>) -> DeviceCommand {
    DeviceCommand::Dispatch(Dispatch { program: program.id, grid, group_size: group, args, parts: Vec::new() })
}

/// Returns the memory representation of elements.
pub fn bytes_of<T: Element>(values: &[T]) -> Vec<u8> {
    values.iter().flat_map(|value| (*value).into().bits.to_le_bytes()[..T::DTYPE.bytes()].to_vec()).collect()
}
