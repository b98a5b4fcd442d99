//! What an evaluation takes of a device's memory, known before it runs.

use std::collections::BTreeSet;

use panoply_ir::Result;
use panoply_ir::graph::Op;
use panoply_runtime::Device;

use crate::eval::{TracedGraph, TracedNodes};
use crate::plan_cache;
use crate::tensor::Tensor;

/// Bytes that evaluating tensors takes on their device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// What is there already: data and values the work reads.
    pub inputs: u64,
    /// The values that were asked for, as far as they do not take the memory of others.
    pub outputs: u64,
    /// What is needed in between, all of it together at its fullest.
    pub temp: u64,
}

impl MemoryPlan {
    /// The plan of evaluating these on one device. Nothing runs, but data move to the device; the plan is kept for the run.
    pub fn for_eval(roots: &[&Tensor]) -> Result<MemoryPlan> {
        MemoryPlan::for_eval_donated(&[], roots)
    }

    /// The plan of an [`crate::eval_donated`] of these old tensors, if nobody holds them besides.
    pub fn for_eval_donated(old: &[&Tensor], roots: &[&Tensor]) -> Result<MemoryPlan> {
        let device = roots.iter().find_map(|root| root.device().cloned()).map_or_else(Device::current, Ok)?;
        let waiting: Vec<&Tensor> = roots.iter().copied().filter(|root| root.0.value.get().is_none()).collect();
        let spent = |reached: &TracedNodes<'_>| {
            let leaves = old.iter().filter_map(|tensor| match reached.graph.node(reached.id(tensor)?).op {
                Op::Input(number) => Some(number),
                _ => None,
            });
            leaves.collect::<BTreeSet<u32>>().into_iter().collect()
        };
        let mut traced = TracedGraph::with_donation(&device, &waiting, spent)?;
        let ready = plan_cache::lookup_or_compile(&device, std::mem::take(&mut traced.graph))?;
        traced.upload_tables(&device, |leaf| ready.reads(leaf))?;
        let inputs = traced.leaves.iter().map(panoply_runtime::Storage::bytes).sum();
        let (outputs, scratch) = ready.memory();
        Ok(MemoryPlan { inputs, outputs, temp: scratch })
    }

    /// Bytes that the run allocates.
    pub fn allocated_bytes(&self) -> u64 {
        self.outputs + self.temp
    }
}
