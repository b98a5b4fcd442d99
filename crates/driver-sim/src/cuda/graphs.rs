//! Kernel graphs of CUDA and HIP. Nodes are executed in the reverse of the order in which they were added, as far as their dependencies
//! allow, so that a missing dependency is detected.

use std::ffi::c_void;

use super::api::{exported, give};
use super::codes::*;
use super::modules;
use super::state::State;
use super::streams::StreamCommand;
use crate::hip;

/// A node: its handle, its dependencies, and its work.
#[derive(Clone)]
pub struct Node {
    handle: u64,
    before: Vec<u64>,
    work: StreamCommand,
}

exported! {
    fn [cuGraphCreate hipGraphCreate](graph: *mut u64, _flags: u32) {
        State::on_device(NAME, |state, _| {
            let new = state.handle();
            state.graphs.insert(new, Vec::new());
            // SAFETY: the caller's pointer.
            unsafe { give(graph, new) };
            Ok(())
        })
    }

    fn [cuGraphAddKernelNode hipGraphAddKernelNode](
        node: *mut u64,
        graph: u64,
        before: *const u64,
        count: usize,
        params: *const c_void,
    ) {
        State::on_device(NAME, |state, _| {
            // SAFETY: the caller's structure and array.
            let (work, before) = unsafe { (described(NAME, state, params)?, nodes(before, count)) };
            let handle = state.handle();
            let known = state.graphs.get_mut(&graph).ok_or(INVALID_HANDLE)?;
            if !before.iter().all(|before| known.iter().any(|node| node.handle == *before)) {
                return Err(INVALID_VALUE);
            }
            known.push(Node { handle, before, work });
            // SAFETY: the caller's pointer.
            unsafe { give(node, handle) };
            Ok(())
        })
    }

    fn [cuGraphInstantiateWithFlags hipGraphInstantiateWithFlags](instance: *mut u64, graph: u64, _flags: u64) {
        State::on_device(NAME, |state, _| {
            let nodes = state.graphs.get(&graph).ok_or(INVALID_HANDLE)?.clone();
            let new = state.handle();
            state.instances.insert(new, nodes);
            // SAFETY: the caller's pointer.
            unsafe { give(instance, new) };
            Ok(())
        })
    }

    fn [cuGraphExecKernelNodeSetParams hipGraphExecKernelNodeSetParams](instance: u64, node: u64, params: *const c_void) {
        State::on_device(NAME, |state, _| {
            // SAFETY: the caller's structure.
            let work = unsafe { described(NAME, state, params) }?;
            let nodes = state.instances.get_mut(&instance).ok_or(INVALID_HANDLE)?;
            nodes.iter_mut().find(|known| known.handle == node).ok_or(INVALID_VALUE)?.work = work;
            Ok(())
        })
    }

    fn [cuGraphLaunch hipGraphLaunch](instance: u64, stream: u64) {
        State::on_device(NAME, |state, _| {
            let mut waiting = state.instances.get(&instance).ok_or(INVALID_HANDLE)?.clone();
            while !waiting.is_empty() {
                let ready = |node: &Node| node.before.iter().all(|before| waiting.iter().all(|other| other.handle != *before));
                let next = waiting.iter().rposition(ready).ok_or(INVALID_VALUE)?;
                state.push(stream, waiting.remove(next).work)?;
            }
            Ok(())
        })
    }

    fn [cuGraphExecDestroy hipGraphExecDestroy](instance: u64) {
        State::on_device(NAME, |state, _| state.instances.remove(&instance).map(drop).ok_or(INVALID_HANDLE))
    }

    fn [cuGraphDestroy hipGraphDestroy](graph: u64) {
        State::on_device(NAME, |state, _| state.graphs.remove(&graph).map(drop).ok_or(INVALID_HANDLE))
    }
}

/// Copies a list of nodes.
///
/// # Safety
/// The array must have `count` elements; it can be null if there are none.
unsafe fn nodes(list: *const u64, count: usize) -> Vec<u64> {
    // SAFETY: guaranteed by the caller.
    if count == 0 { Vec::new() } else { unsafe { std::slice::from_raw_parts(list, count) }.to_vec() }
}

/// Reads the launch from a structure: the first version of `CUDA_KERNEL_NODE_PARAMS`, or `hipKernelNodeParams`.
///
/// # Safety
/// `params` must point at that structure, and its pointers must be valid.
unsafe fn described(name: &str, state: &State, params: *const c_void) -> Result<StreamCommand, i32> {
    /// As in cuda.h.
    #[repr(C)]
    struct Cuda {
        function: u64,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        params: *const *const c_void,
        extra: *const *const c_void,
    }
    /// As in hip_runtime_api.h.
    #[repr(C)]
    struct Hip {
        block: [u32; 3],
        extra: *const *const c_void,
        function: u64,
        grid: [u32; 3],
        params: *const *const c_void,
        shared: u32,
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        if name.starts_with("hip") {
            let Hip { block, extra, function, grid, params, shared } = params.cast::<Hip>().read();
            hip::kernel(state, function, (grid, block), shared, params, extra)
        } else {
            let Cuda { function, grid, block, shared, params, extra } = params.cast::<Cuda>().read();
            modules::kernel(state, function, (grid, block), shared, params, extra)
        }
    }
}
