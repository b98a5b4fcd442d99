//! Device memory that an evaluation needs, computed before it runs.

use std::collections::BTreeSet;

use panoply_ir::Result;
use panoply_ir::graph::Op;
use panoply_runtime::Device;

use crate::eval::{TracedGraph, TracedNodes};
use crate::plan_cache;
use crate::tensor::Tensor;

/// Device memory of an evaluation, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Memory that is allocated already: data and values that the evaluation reads.
    pub inputs: u64,
    /// Memory of the outputs, except outputs in donated buffers.
    pub outputs: u64,
    /// Peak memory of the intermediate values.
    pub temp: u64,
}

impl MemoryPlan {
    /// Plans the evaluation of these tensors on one device. Nothing runs, but data is uploaded to the device; the
    /// plan is cached for the run.
    ///
    /// # Errors
    /// A mistake in an expression, or a failure of the device.
    pub fn for_eval(roots: &[&Tensor]) -> Result<MemoryPlan> {
        MemoryPlan::for_eval_donated(&[], roots)
    }

    /// Plans a [`crate::eval_donated`] of these old tensors, assuming that they have no other handles.
    ///
    /// # Errors
    /// As [`MemoryPlan::for_eval`].
    pub fn for_eval_donated(old: &[&Tensor], roots: &[&Tensor]) -> Result<MemoryPlan> {
        let device = roots.iter().find_map(|root| root.device().cloned()).map_or_else(Device::current, Ok)?;
        let waiting: Vec<&Tensor> = roots.iter().copied().filter(|root| root.0.value.get().is_none()).collect();
        let donated = |reached: &TracedNodes<'_>| {
            let leaves = old.iter().filter_map(|tensor| match reached.graph.node(reached.id(tensor)?).op {
                Op::Input(number) => Some(number),
                _ => None,
            });
            leaves.collect::<BTreeSet<u32>>().into_iter().collect()
        };
        let mut traced = TracedGraph::with_donation(&device, &waiting, donated)?;
        let ready = plan_cache::lookup_or_compile(&device, std::mem::take(&mut traced.graph))?;
        traced.upload_tables(&device, |leaf| ready.reads(leaf))?;
        let inputs = traced.leaves.iter().map(panoply_runtime::Storage::bytes).sum();
        let (outputs, scratch) = ready.memory();
        Ok(MemoryPlan { inputs, outputs, temp: scratch })
    }

    /// Returns the bytes that the run allocates.
    pub fn allocated_bytes(&self) -> u64 {
        self.outputs + self.temp
    }
}
