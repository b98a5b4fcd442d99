//! What CUDA and HIP do differently: data in [`Brand`], behavior in [`Vendor`].

use std::ffi::c_void;
use std::sync::Arc;

use panoply_device::{Peer, ProgramForm, Result, SourceText};

use super::blas::Library;
use super::discovery::{DiscoveredDevice, Traits};
use super::functions::Functions;
use super::handles::Context;
use crate::error_codes::Codes;
use crate::library::{DevicePtr, Handle, Words};

/// Work is not done yet; the same in both.
pub const NOT_READY: i32 = 600;
/// There is no memory left; the same in both.
pub const OUT_OF_MEMORY: i32 = 2;

/// What differs in words and numbers.
pub struct Brand {
    /// How the library is found.
    pub words: Words,
    /// What its codes mean.
    pub codes: Codes,
    /// The oldest version of the driver that is served, as the driver counts.
    pub oldest_driver: i32,
    /// What a version is called: `CUDA 12.4`.
    pub version: fn(i32) -> String,
    /// Who brings newer versions.
    pub update: &'static str,
    /// The forms of programs, those that need no compiler first.
    pub takes: &'static [ProgramForm],
    /// Most work-items of a launch along an axis.
    pub max_items: u64,
    /// Whether generated programs can be launched in parts along the second and third axis.
    pub launches_in_parts: bool,
    /// Whether the driver has taken a copy of pageable host memory when an upload returns.
    pub copies_pageable: bool,
    /// A launch as the driver's structure for a node of a graph.
    pub node: fn(&Launch) -> NodeParams,
    /// The attribute that says whether memory can be had in the order of a stream.
    pub pools_attribute: i32,
}

/// A launch in the driver's words.
pub struct Launch {
    /// The entry point.
    pub function: Handle,
    /// Groups along each axis.
    pub groups: [u32; 3],
    /// Work-items of a group along each axis.
    pub size: [u32; 3],
    /// Pointers to the arguments.
    pub params: *const *const c_void,
}

/// Room for either vendor's structure, in the words of a 64-bit machine.
pub type NodeParams = [u64; 8];

/// Two halves of a word, the first of which lies first in memory.
pub const fn halves(first: u32, second: u32) -> u64 {
    if cfg!(target_endian = "little") {
        (second as u64) << 32 | first as u64
    } else {
        (first as u64) << 32 | second as u64
    }
}

/// What differs in behavior. Codes of 0 are success.
pub trait Vendor: Send + Sync {
    /// Words and numbers.
    fn brand(&self) -> &'static Brand;
    /// What a device has, or why it cannot be used.
    fn traits(&self, place: &DiscoveredDevice) -> Result<Traits>;
    /// Takes part in what the process shares of a device; the answer is for [`Vendor::enter`].
    fn retain(&self, device: i32) -> Result<Handle, i32>;
    /// Gives back the one part that [`Vendor::retain`] took.
    fn give_back(&self, device: i32);
    /// Makes a device the thread's own; the answer is for [`Vendor::leave`].
    fn enter(&self, device: i32, shared: Handle) -> Result<Handle, i32>;
    /// Puts back what was the thread's own before.
    fn leave(&self, device: i32, before: Handle);
    /// Fills with words of 64 bits; the address is a multiple of 8.
    fn fill_64(&self, functions: &Functions, to: DevicePtr, word: u64, count: usize, stream: Handle) -> i32;
    /// Copies between two devices of the driver; the stream is of the one that is written, which is the thread's.
    fn copy_peer(&self, to: Peer, from: Peer, bytes: usize, stream: Handle) -> i32;
    /// Who does matrix products on a device, in the order in which they are asked, or why kernels do.
    fn products(&self, place: &DiscoveredDevice) -> Result<Vec<Arc<dyn Library>>>;
    /// Machine code for a context's device.
    fn compile(&self, context: &Context, text: &SourceText) -> Result<Vec<u8>>;
}
