//! Steps that are submitted many times.
//!
//! A command buffer holds steps and says which of their operands are other ones each time: bytes of a **binding**, of which each replay gives all,
//! or a **slot**, a number. The rest of a step (its program, its grid, how many bytes) is the same in every replay.

use panoply_ir::Scalar;

use crate::command::{Arg, DeviceCommand, Region};

/// Steps to be replayed over other memory and with other numbers. Waits are no part of it.
#[derive(Debug)]
pub struct RawCommandBuffer {
    steps: Vec<DeviceCommand>,
    places: Vec<BindingSlot>,
    /// The device's own number of what it made of the steps; 0 if it made nothing.
    pub graph: u64,
}

/// An operand that each replay gives anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindingSlot {
    /// Which step.
    pub step: u32,
    /// Which operand of it, counted as [`DeviceCommand::region`] does.
    pub operand: u32,
    /// What it is.
    pub source: BindingKind,
}

/// What an operand of a command buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingKind {
    /// As many bytes of a binding as were recorded, from this one on.
    Binding {
        /// Which.
        binding: u32,
        /// Its first byte that is used.
        offset: u64,
    },
    /// A number.
    Slot(u32),
}

impl RawCommandBuffer {
    /// A command buffer of steps, whose operands at these places are replaced.
    pub fn new(steps: Vec<DeviceCommand>, places: Vec<BindingSlot>) -> RawCommandBuffer {
        RawCommandBuffer { steps, places, graph: 0 }
    }

    /// The steps as they were set last.
    pub fn steps(&self) -> &[DeviceCommand] {
        &self.steps
    }

    /// The operands that are replaced.
    pub fn places(&self) -> &[BindingSlot] {
        &self.places
    }

    /// Puts bindings and slots, of which there are as many as the places name, into the steps.
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
