//! Commands that are recorded once and submitted many times.
//!
//! A command buffer holds commands and lists those of their operands that each replay replaces: ranges of a **binding** (a buffer that
//! the replay supplies), or a **slot** (a scalar). Everything else (program, grid, lengths) is the same in every replay.

use panoply_ir::Scalar;

use crate::command::{Arg, DeviceCommand, Region};

/// Commands to be replayed with other buffers and scalars. Waits cannot be recorded.
#[derive(Debug)]
pub struct RawCommandBuffer {
    steps: Vec<DeviceCommand>,
    places: Vec<BindingSlot>,
    /// The device's handle for its compiled form of the commands; 0 if there is none.
    pub graph: u64,
}

/// An operand that each replay replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindingSlot {
    /// Index of the command.
    pub step: u32,
    /// Operand of the command, numbered as in [`DeviceCommand::region`].
    pub operand: u32,
    /// Source of the new value.
    pub source: BindingKind,
}

/// Source of a replaced operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingKind {
    /// A range of a binding, of the recorded length.
    Binding {
        /// Index of the binding.
        binding: u32,
        /// Offset of the first byte in the binding.
        offset: u64,
    },
    /// The scalar of this index.
    Slot(u32),
}

impl RawCommandBuffer {
    /// Creates a command buffer whose operands at `places` are replaced.
    pub fn new(steps: Vec<DeviceCommand>, places: Vec<BindingSlot>) -> RawCommandBuffer {
        RawCommandBuffer { steps, places, graph: 0 }
    }

    /// Returns the commands with the operands set last.
    pub fn steps(&self) -> &[DeviceCommand] {
        &self.steps
    }

    /// Returns the operands that are replaced.
    pub fn places(&self) -> &[BindingSlot] {
        &self.places
    }

    /// Sets the operands from these bindings and slots, whose numbers must match the recorded ones.
    pub fn set(&mut self, bindings: &[Region], slots: &[Scalar]) {
        for BindingSlot { step, operand, source } in &self.places {
            let (step, operand) = (&mut self.steps[*step as usize], *operand as usize);
            match *source {
                BindingKind::Slot(slot) => {
                    if let Some(arg) = step.arg_mut(operand) {
                        *arg = Arg::Scalar(slots[slot as usize]);
                    }
                }
                BindingKind::Binding { binding, offset } => {
                    let binding = &bindings[binding as usize];
                    if let Some(region) = step.region_mut(operand) {
                        (region.alloc, region.offset) = (binding.alloc, binding.offset + offset);
                    }
                }
            }
        }
    }
}
