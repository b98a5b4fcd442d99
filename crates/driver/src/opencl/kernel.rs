//! A kernel and the arguments that were last set.
//!
//! `clSetKernelArg` is the only OpenCL function that two threads must not call on one object, and a launch takes its arguments from the
//! object. Therefore setting and launching happen under one lock (`Program::kernel`). An argument equal to the last one is not set again: a
//! generated kernel has three for every buffer and three more, and most launches repeat nearly all.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use cl3::kernel::set_kernel_arg;
use cl3::memory::{CL_BUFFER_CREATE_TYPE_REGION, CL_MEM_READ_WRITE, create_sub_buffer};
use cl3::types::{cl_buffer_region, cl_mem};
use panoply_device::{AllocId, Arg, Dispatch, Error, ParamType, Region, Result, Signature, Type};

use super::errors::ErrorPhase;
use super::handles::{Buffer, KernelHandle};
use super::memory::Allocation;
use crate::table::Table;

/// A kernel with its arguments.
pub struct Kernel {
    handle: KernelHandle,
    /// The value of each OpenCL argument; `None` if it is unknown.
    set: Vec<Option<Value>>,
    /// Sub-buffers that the launch being prepared uses; OpenCL keeps them once it is enqueued.
    parts: Vec<Buffer>,
}

/// The value of an argument: bits and their size in bytes, or the id of a buffer with size 0. Allocation ids are never reused, unlike
/// addresses of buffers.
#[derive(Clone, Copy, PartialEq)]
struct Value {
    bits: u64,
    bytes: usize,
}

/// Returns the number of OpenCL arguments of a signature.
pub fn argument_count(signature: &Signature) -> usize {
    let of = |param: &ParamType| match param {
        ParamType::Buffer(_) if signature.hidden => 3,
        ParamType::Buffer(_) | ParamType::Scalar(_) => 1,
    };
    signature.params.iter().map(of).sum::<usize>() + if signature.hidden { 3 } else { 0 }
}

impl Kernel {
    /// Creates a kernel whose arguments are not set.
    pub fn new(handle: KernelHandle, signature: &Signature) -> Kernel {
        Kernel { handle, set: vec![None; argument_count(signature)], parts: Vec::new() }
    }

    /// Returns the object to enqueue.
    pub fn handle(&self) -> &KernelHandle {
        &self.handle
    }

    /// Sets the arguments of a launch.
    pub fn set_arguments(
        &mut self,
        signature: &Signature,
        dispatch: &Dispatch,
        memory: &Table<Arc<Allocation>>,
        base_align: u64,
    ) -> Result<()> {
        self.parts.clear();
        if dispatch.args.len() != signature.params.len() {
            return Err(self.mistake(format_args!("{} arguments for {}", dispatch.args.len(), signature.params.len())));
        }
        let mut next = 0;
        for (param, arg) in signature.params.iter().zip(&dispatch.args) {
            match (param, arg) {
                (ParamType::Buffer(dtype), Arg::Buffer(region)) if signature.hidden => {
                    let buffer = self.look_up(region, memory)?;
                    self.set_buffer(&mut next, region.alloc, buffer)?;
                    let elem = dtype.bytes() as u64;
                    self.set_index(&mut next, region.offset / elem, signature)?;
                    self.set_index(&mut next, region.bytes / elem, signature)?;
                }
                (ParamType::Buffer(_), Arg::Buffer(region)) => {
                    let buffer = self.look_up(region, memory)?;
                    match region.offset {
                        0 => self.set_buffer(&mut next, region.alloc, buffer)?,
                        _ => self.set_part(&mut next, region, buffer, base_align)?,
                    }
                }
                (ParamType::Scalar(Type::Index), Arg::Index(value)) => self.set_index(&mut next, *value, signature)?,
                (ParamType::Scalar(ty), Arg::Scalar(scalar)) if ty.dtype() == Some(scalar.dtype) => {
                    self.set_bits(&mut next, scalar.bits, scalar.dtype.bytes())?;
                }
                _ => return Err(self.mistake(format_args!("{arg:?} for {param:?}"))),
            }
        }
        if signature.hidden {
            for size in dispatch.grid {
                self.set_index(&mut next, size, signature)?;
            }
        }
        Ok(())
    }

    fn look_up<'a>(&self, region: &Region, memory: &'a Table<Arc<Allocation>>) -> Result<&'a Buffer> {
        let found = memory.get(region.alloc.0).map(|allocation| &allocation.buffer);
        found.ok_or_else(|| self.mistake(format_args!("{:?}, which was freed", region.alloc)))
    }

    fn set_buffer(&mut self, next: &mut usize, alloc: AllocId, buffer: &Buffer) -> Result<()> {
        let raw = buffer.raw();
        self.set(next, Some(Value { bits: alloc.0, bytes: 0 }), ptr::from_ref(&raw).cast(), size_of::<cl_mem>())
    }

    /// Sets a sub-buffer that begins where the region does, because handwritten source has no offset arguments.
    fn set_part(&mut self, next: &mut usize, region: &Region, buffer: &Buffer, base_align: u64) -> Result<()> {
        if !region.offset.is_multiple_of(base_align) {
            return Err(Error::unsupported(format!(
                "{}: handwritten source requires regions that begin at a multiple of {base_align} bytes, not at {}; copy the region",
                buffer.shared().label,
                region.offset
            )));
        }
        let range = cl_buffer_region { origin: region.offset as usize, size: region.bytes as usize };
        // SAFETY: the buffer is live, the range is inside it (guaranteed by the caller), and the structure outlives the call.
        let part = unsafe {
            create_sub_buffer(
                buffer.raw(),
                CL_MEM_READ_WRITE,
                CL_BUFFER_CREATE_TYPE_REGION,
                ptr::from_ref(&range).cast(),
            )
        };
        let part = part.map_err(|code| buffer.shared().failed("creating a sub-buffer", code, ErrorPhase::Asking))?;
        // SAFETY: the call above created it, and its reference is owned here.
        let part = unsafe { Buffer::own(part, buffer.shared()) };
        let raw = part.raw();
        self.set(next, None, ptr::from_ref(&raw).cast(), size_of::<cl_mem>())?;
        self.parts.push(part);
        Ok(())
    }

    fn set_index(&mut self, next: &mut usize, value: u64, signature: &Signature) -> Result<()> {
        if signature.index_bits == 32 && value > u64::from(u32::MAX) {
            return Err(self.mistake(format_args!("{value} for a 32-bit index")));
        }
        self.set_bits(next, value, signature.index_bits as usize / 8)
    }

    fn set_bits(&mut self, next: &mut usize, bits: u64, bytes: usize) -> Result<()> {
        // The device is little-endian, independent of the host.
        let low_first = bits.to_le();
        self.set(next, Some(Value { bits, bytes }), ptr::from_ref(&low_first).cast(), bytes)
    }

    /// Sets the next argument unless it is already `value`.
    #[inline]
    fn set(&mut self, next: &mut usize, value: Option<Value>, from: *const c_void, bytes: usize) -> Result<()> {
        let index = *next;
        *next += 1;
        if value.is_some() && self.set[index] == value { Ok(()) } else { self.change(index, value, from, bytes) }
    }

    fn change(&mut self, index: usize, value: Option<Value>, from: *const c_void, bytes: usize) -> Result<()> {
        // SAFETY: `from` points at `bytes` bytes, which OpenCL copies; `&mut self` excludes other threads.
        let done = unsafe { set_kernel_arg(self.handle.raw(), index as u32, bytes, from) };
        self.set[index] = if done.is_ok() { value } else { None };
        done.map_err(|code| {
            self.handle.shared().failed(format_args!("setting argument {index}"), code, ErrorPhase::Asking)
        })
    }

    fn mistake(&self, what: std::fmt::Arguments<'_>) -> Error {
        Error::mistake(format!(
            "{}: a launch was given {what}; pass the arguments that the signature declares",
            self.handle.shared().label
        ))
    }
}
