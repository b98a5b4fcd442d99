//! Differences between CUDA and HIP: data in [`Brand`], behavior in [`Vendor`].

use std::ffi::c_void;
use std::sync::Arc;

use panoply_device::{Peer, ProgramForm, Result, SourceText};

use super::blas::Library;
use super::discovery::{DiscoveredDevice, Traits};
use super::functions::Functions;
use super::handles::Context;
use crate::error_codes::Codes;
use crate::library::{DevicePtr, Handle, Words};

/// The code for incomplete work, the same in both APIs.
pub const NOT_READY: i32 = 600;
/// The code for exhausted memory, the same in both APIs.
pub const OUT_OF_MEMORY: i32 = 2;

/// Names, messages and constants of a vendor.
pub struct Brand {
    /// File names and messages of the library.
    pub words: Words,
    /// Its error codes.
    pub codes: Codes,
    /// The oldest supported version of the driver, in its own counting.
    pub oldest_driver: i32,
    /// Formats a version, such as `CUDA 12.4`.
    pub version: fn(i32) -> String,
    /// The remedy that installs a newer version.
    pub update: &'static str,
    /// The accepted forms of programs, those that need no compiler first.
    pub takes: &'static [ProgramForm],
    /// Largest number of work-items of a launch along an axis.
    pub max_items: u64,
    /// True if generated programs can be launched in parts along the second and third axis.
    pub launches_in_parts: bool,
    /// True if the driver has copied pageable host memory when an upload returns.
    pub copies_pageable: bool,
    /// Encodes a launch as the driver's structure for a kernel node of a graph.
    pub node: fn(&Launch) -> NodeParams,
    /// The device attribute for the support of stream-ordered allocation.
    pub pools_attribute: i32,
}

/// The parameters of a launch.
pub struct Launch {
    /// The entry point.
    pub function: Handle,
    /// Number of work-groups along each axis.
    pub groups: [u32; 3],
    /// Number of work-items of a work-group along each axis.
    pub size: [u32; 3],
    /// Pointers to the arguments.
    pub params: *const *const c_void,
}

/// Buffer for either vendor's structure, in 64-bit words.
pub type NodeParams = [u64; 8];

/// Packs two 32-bit numbers into a 64-bit word, `first` at the lower address.
pub const fn halves(first: u32, second: u32) -> u64 {
    if cfg!(target_endian = "little") {
        (second as u64) << 32 | first as u64
    } else {
        (first as u64) << 32 | second as u64
    }
}

/// Operations that differ between vendors. A code of 0 is success.
pub trait Vendor: Send + Sync {
    /// Returns names, messages and constants.
    fn brand(&self) -> &'static Brand;
    /// Returns the traits of a device, or the reason why it cannot be used.
    fn traits(&self, place: &DiscoveredDevice) -> Result<Traits>;
    /// Retains the state that the process shares for a device; the result is passed to [`Vendor::enter`].
    fn retain(&self, device: i32) -> Result<Handle, i32>;
    /// Releases the reference that [`Vendor::retain`] took.
    fn give_back(&self, device: i32);
    /// Makes a device current on the thread; the result is passed to [`Vendor::leave`].
    fn enter(&self, device: i32, shared: Handle) -> Result<Handle, i32>;
    /// Restores the thread's previous device.
    fn leave(&self, device: i32, before: Handle);
    /// Fills memory with a 64-bit word; the address is a multiple of 8.
    fn fill_64(&self, functions: &Functions, to: DevicePtr, word: u64, count: usize, stream: Handle) -> i32;
    /// Copies between two devices of the driver; the stream belongs to the destination device, which is current on the thread.
    fn copy_peer(&self, to: Peer, from: Peer, bytes: usize, stream: Handle) -> i32;
    /// Returns the libraries for matrix products on a device in order of preference, or the reason why there are none.
    fn products(&self, place: &DiscoveredDevice) -> Result<Vec<Arc<dyn Library>>>;
    /// Compiles a text to machine code for a context's device.
    fn compile(&self, context: &Context, text: &SourceText) -> Result<Vec<u8>>;
}
