//! Level Zero's loader, as far as Panoply's driver calls it: simulated GPUs, host memory as device memory, synchronous command lists, and
//! modules of SPIR-V. An OpenCL driver of this machine executes them if one supports SPIR-V and arbitrary host addresses ([`execute`];
//! Intel's CPU runtime does). Otherwise kernels are checked and do nothing.
//!
//! A test configures it in `PANOPLY_FAKE_ZE`, as for CUDA: `devices`, `memory`, and `init` (the result of `zeInit`; with 0 devices it fails
//! as the real loader does without a GPU). A call after a failed `zeInit` aborts the process, as on Debian.

pub mod execute;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use crate::cuda::api::{exported, give};
use crate::cuda::state::State;

const UNINITIALIZED: i32 = 0x7800_0001;
const OUT_OF_DEVICE_MEMORY: i32 = 0x7000_0003;
const BUILD_FAILURE: i32 = 0x7000_0004;
const INVALID_NULL_HANDLE: i32 = 0x7800_0005;
const INVALID_NATIVE_BINARY: i32 = 0x7800_000F;
const INVALID_KERNEL_NAME: i32 = 0x7800_0011;
const INVALID_GROUP_SIZE: i32 = 0x7800_0013;

/// First bytes of the native binary format; the SPIR-V words follow.
const NATIVE: &[u8; 8] = b"\x7FFAKEZE1";

/// All live objects.
#[derive(Default)]
pub struct Objects {
    contexts: Vec<u64>,
    lists: Vec<u64>,
    /// Size and device of each allocation, by address.
    memory: BTreeMap<u64, (usize, usize)>,
    modules: HashMap<u64, Arc<Module>>,
    kernels: HashMap<u64, Kernel>,
    logs: HashMap<u64, String>,
}

struct Module {
    words: Vec<u8>,
    program: Option<execute::Program>,
}

struct Kernel {
    module: Arc<Module>,
    name: String,
    group_size: [u32; 3],
    /// The bytes of each argument.
    arguments: BTreeMap<u32, Vec<u8>>,
}

impl Objects {
    /// Returns the number of objects.
    pub fn live(&self) -> usize {
        let made = self.contexts.len() + self.lists.len() + self.memory.len();
        made + self.modules.len() + self.kernels.len() + self.logs.len()
    }

    /// Returns true if an address is in an allocation.
    fn holds(&self, address: u64) -> bool {
        let before = self.memory.range(..=address).next_back();
        before.is_some_and(|(start, (bytes, _))| address < start + *bytes as u64)
    }
}

const ALIGNMENT: usize = 4096;

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes.max(1), ALIGNMENT).expect("sizes of tests are small")
}

/// Executes a call; aborts the process if `zeInit` was not called or failed.
fn call(name: &'static str, act: impl FnOnce(&mut State) -> Result<(), i32>) -> i32 {
    State::call(name, |state| {
        if !state.initialized {
            eprintln!("{name} was called after a failed zeInit");
            std::process::abort();
        }
        act(state)
    })
}

/// Writes a member of a structure at an offset.
///
/// # Safety
/// The structure must be large enough.
unsafe fn put<T>(structure: *mut u8, at: usize, value: T) {
    // SAFETY: guaranteed by the caller.
    unsafe { structure.add(at).cast::<T>().write_unaligned(value) }
}

/// Reads a member of a structure at an offset.
///
/// # Safety
/// The structure must be large enough.
unsafe fn get<T>(structure: *const u8, at: usize) -> T {
    // SAFETY: guaranteed by the caller.
    unsafe { structure.add(at).cast::<T>().read_unaligned() }
}

/// Returns the index of a device by its handle.
fn device(state: &State, handle: u64) -> Result<usize, i32> {
    let index = handle.wrapping_sub(1) as usize;
    if index < state.config.devices { Ok(index) } else { Err(INVALID_NULL_HANDLE) }
}

exported! {
    fn zeInit(_flags: u32) {
        State::call(NAME, |state| match state.config.init {
            0 if state.config.devices == 0 => Err(UNINITIALIZED),
            0 => {
                state.initialized = true;
                Ok(())
            }
            code => Err(code),
        })
    }

    fn zeDriverGet(count: *mut u32, drivers: *mut u64) {
        call(NAME, |_| {
            // SAFETY: the caller's pointers.
            unsafe {
                give(count, 1);
                if !drivers.is_null() {
                    give(drivers, 1);
                }
            }
            Ok(())
        })
    }

    fn zeDriverGetProperties(_driver: u64, properties: *mut u8) {
        call(NAME, |_| {
            // SAFETY: the caller's structure.
            unsafe { put(properties, 32, 0x0103_7531u32) };
            Ok(())
        })
    }

    fn zeDeviceGet(_driver: u64, count: *mut u32, devices: *mut u64) {
        call(NAME, |state| {
            // SAFETY: the caller's pointers; the array has room for the reported number of devices.
            unsafe {
                give(count, state.config.devices as u32);
                if !devices.is_null() {
                    (0..state.config.devices).for_each(|at| give(devices.add(at), at as u64 + 1));
                }
            }
            Ok(())
        })
    }

    fn zeDeviceGetProperties(handle: u64, properties: *mut u8) {
        call(NAME, |state| {
            let index = device(state, handle)?;
            let name = format!("SPIR-V simulator {index}, no card\0");
            // SAFETY: the caller's structure.
            unsafe {
                // The last of several devices is not a GPU but a VPU.
                let last = index > 0 && index + 1 == state.config.devices;
                put(properties, 16, if last { 5u32 } else { 1 });
                put(properties, 20, 0x8086u32);
                put(properties, 40, state.config.memory);
                [64, 68, 72].into_iter().for_each(|at| put(properties, at, 2u32));
                put(properties, 96, [index as u8 + 1; 16]);
                std::ptr::copy_nonoverlapping(name.as_ptr(), properties.add(112), name.len());
            }
            Ok(())
        })
    }

    fn zeDeviceGetComputeProperties(handle: u64, properties: *mut u8) {
        call(NAME, |state| {
            device(state, handle)?;
            let numbers = [1024u32, 1024, 1024, 1024, 1 << 20, 1 << 20, 1 << 20, 64 << 10, 3, 8, 16, 32];
            // SAFETY: the caller's structure.
            unsafe { numbers.into_iter().enumerate().for_each(|(at, number)| put(properties, 16 + 4 * at, number)) };
            Ok(())
        })
    }

    fn zeDeviceGetModuleProperties(handle: u64, properties: *mut u8) {
        call(NAME, |state| {
            device(state, handle)?;
            let numbers = [0x0001_0200u32, 3, 0, 1 << 6, 0, 2048, 0];
            // SAFETY: the caller's structure.
            unsafe { numbers.into_iter().enumerate().for_each(|(at, number)| put(properties, 16 + 4 * at, number)) };
            Ok(())
        })
    }

    fn zeDeviceGetMemoryProperties(handle: u64, count: *mut u32, properties: *mut u8) {
        call(NAME, |state| {
            device(state, handle)?;
            // SAFETY: the caller's pointers.
            unsafe {
                give(count, 1);
                put(properties, 32, state.config.memory);
            }
            Ok(())
        })
    }

    fn zeDevicePciGetPropertiesExt(handle: u64, properties: *mut u8) {
        call(NAME, |state| {
            let index = device(state, handle)? as u32;
            // SAFETY: the caller's structure.
            unsafe { [0, 3 + index, 0, 0].into_iter().enumerate().for_each(|(at, part)| put(properties, 16 + 4 * at, part)) };
            Ok(())
        })
    }

    fn zeContextCreate(_driver: u64, _description: *const u8, context: *mut u64) {
        call(NAME, |state| {
            let handle = state.handle();
            state.level_zero.contexts.push(handle);
            // SAFETY: the caller's pointer.
            unsafe { give(context, handle) };
            Ok(())
        })
    }

    fn zeContextDestroy(context: u64) {
        call(NAME, |state| {
            state.level_zero.contexts.retain(|known| *known != context);
            Ok(())
        })
    }

    fn zeMemAllocDevice(
        _context: u64,
        _description: *const u8,
        bytes: usize,
        _alignment: usize,
        on: u64,
        address: *mut u64,
    ) {
        call(NAME, |state| {
            let index = device(state, on)?;
            let held = state.level_zero.memory.values().filter(|(_, of)| *of == index);
            let used: usize = held.map(|(bytes, _)| bytes).sum();
            if used + bytes > state.config.memory as usize {
                return Err(OUT_OF_DEVICE_MEMORY);
            }
            // SAFETY: the layout is of at least one byte.
            let start = unsafe { alloc_zeroed(layout(bytes)) } as u64;
            state.level_zero.memory.insert(start, (bytes, index));
            // SAFETY: the caller's pointer.
            unsafe { give(address, start) };
            Ok(())
        })
    }

    fn zeMemFree(_context: u64, address: u64) {
        call(NAME, |state| {
            let (bytes, _) = state.level_zero.memory.remove(&address).ok_or(INVALID_NULL_HANDLE)?;
            // SAFETY: it was allocated with this layout, and this is the only reference to it.
            unsafe { dealloc(address as *mut u8, layout(bytes)) };
            Ok(())
        })
    }

    fn zeCommandListCreateImmediate(_context: u64, _device: u64, _description: *const u8, list: *mut u64) {
        call(NAME, |state| {
            let handle = state.handle();
            state.level_zero.lists.push(handle);
            // SAFETY: the caller's pointer.
            unsafe { give(list, handle) };
            Ok(())
        })
    }

    fn zeCommandListDestroy(list: u64) {
        call(NAME, |state| {
            state.level_zero.lists.retain(|known| *known != list);
            Ok(())
        })
    }

    fn zeCommandListAppendMemoryCopy(
        _list: u64,
        to: *mut u8,
        from: *const u8,
        bytes: usize,
        _signal: u64,
        _waits: u32,
        _events: *const u64,
    ) {
        call(NAME, |_| {
            // SAFETY: the caller's ranges.
            unsafe { std::ptr::copy(from, to, bytes) };
            Ok(())
        })
    }

    fn zeCommandListAppendMemoryFill(
        _list: u64,
        to: *mut u8,
        pattern: *const u8,
        length: usize,
        bytes: usize,
        _signal: u64,
        _waits: u32,
        _events: *const u64,
    ) {
        call(NAME, |_| {
            // SAFETY: the caller's range and pattern.
            unsafe { (0..bytes).for_each(|at| to.add(at).write(*pattern.add(at % length))) };
            Ok(())
        })
    }

    fn zeModuleCreate(_context: u64, _device: u64, description: *const u8, module: *mut u64, log: *mut u64) {
        call(NAME, |state| {
            // SAFETY: the caller's structure, and the bytes and flags that it points at.
            let (native, input, flags) = unsafe {
                let bytes = std::slice::from_raw_parts(get::<*const u8>(description, 32), get::<usize>(description, 24));
                (get::<u32>(description, 16) == 1, bytes, CStr::from_ptr(get(description, 40)))
            };
            let words = if native { input.strip_prefix(NATIVE).ok_or(INVALID_NATIVE_BINARY)? } else { input };
            let program = execute::Program::build(words, flags);
            let program = program.map_err(|text| {
                let handle = state.handle();
                state.level_zero.logs.insert(handle, text);
                // SAFETY: the caller's pointer.
                unsafe { give(log, handle) };
                BUILD_FAILURE
            })?;
            let handle = state.handle();
            state.level_zero.modules.insert(handle, Arc::new(Module { words: words.to_vec(), program }));
            // SAFETY: the caller's pointer.
            unsafe { give(module, handle) };
            Ok(())
        })
    }

    fn zeModuleDestroy(module: u64) {
        call(NAME, |state| state.level_zero.modules.remove(&module).map(drop).ok_or(INVALID_NULL_HANDLE))
    }

    fn zeModuleGetNativeBinary(module: u64, bytes: *mut usize, to: *mut u8) {
        call(NAME, |state| {
            let module = state.level_zero.modules.get(&module).ok_or(INVALID_NULL_HANDLE)?;
            let binary = [NATIVE, &module.words[..]].concat();
            // SAFETY: the caller's pointers; the buffer has the size that was reported.
            unsafe {
                give(bytes, binary.len());
                if !to.is_null() {
                    std::ptr::copy_nonoverlapping(binary.as_ptr(), to, binary.len());
                }
            }
            Ok(())
        })
    }

    fn zeModuleBuildLogGetString(log: u64, bytes: *mut usize, to: *mut u8) {
        call(NAME, |state| {
            let text = format!("{}\0", state.level_zero.logs.get(&log).ok_or(INVALID_NULL_HANDLE)?);
            // SAFETY: as above.
            unsafe {
                give(bytes, text.len());
                if !to.is_null() {
                    std::ptr::copy_nonoverlapping(text.as_ptr(), to, text.len());
                }
            }
            Ok(())
        })
    }

    fn zeModuleBuildLogDestroy(log: u64) {
        call(NAME, |state| state.level_zero.logs.remove(&log).map(drop).ok_or(INVALID_NULL_HANDLE))
    }

    fn zeKernelCreate(module: u64, description: *const u8, kernel: *mut u64) {
        call(NAME, |state| {
            let module = state.level_zero.modules.get(&module).ok_or(INVALID_NULL_HANDLE)?.clone();
            // SAFETY: the caller's structure and the name in it.
            let name = unsafe { CStr::from_ptr(get::<*const c_char>(description, 24)) }.to_string_lossy().into_owned();
            if !execute::entries(&module.words).contains(&name) {
                return Err(INVALID_KERNEL_NAME);
            }
            let handle = state.handle();
            let made = Kernel { module, name, group_size: [0; 3], arguments: BTreeMap::new() };
            state.level_zero.kernels.insert(handle, made);
            // SAFETY: the caller's pointer.
            unsafe { give(kernel, handle) };
            Ok(())
        })
    }

    fn zeKernelDestroy(kernel: u64) {
        call(NAME, |state| state.level_zero.kernels.remove(&kernel).map(drop).ok_or(INVALID_NULL_HANDLE))
    }

    fn zeKernelSetGroupSize(kernel: u64, x: u32, y: u32, z: u32) {
        call(NAME, |state| {
            let kernel = state.level_zero.kernels.get_mut(&kernel).ok_or(INVALID_NULL_HANDLE)?;
            let items = u64::from(x) * u64::from(y) * u64::from(z);
            kernel.group_size = [x, y, z];
            if (1..=1024).contains(&items) { Ok(()) } else { Err(INVALID_GROUP_SIZE) }
        })
    }

    fn zeKernelSetArgumentValue(kernel: u64, index: u32, bytes: usize, value: *const c_void) {
        call(NAME, |state| {
            let kernel = state.level_zero.kernels.get_mut(&kernel).ok_or(INVALID_NULL_HANDLE)?;
            // SAFETY: the caller's bytes.
            let value = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), bytes) };
            kernel.arguments.insert(index, value.to_vec());
            Ok(())
        })
    }

    fn zeCommandListAppendLaunchKernel(
        _list: u64,
        kernel: u64,
        groups: *const [u32; 3],
        _signal: u64,
        _waits: u32,
        _events: *const u64,
    ) {
        call(NAME, |state| {
            let objects = &state.level_zero;
            let kernel = objects.kernels.get(&kernel).ok_or(INVALID_NULL_HANDLE)?;
            let Some(program) = &kernel.module.program else { return Ok(()) };
            let arguments: Vec<&[u8]> = kernel.arguments.values().map(Vec::as_slice).collect();
            // SAFETY: the caller's pointer.
            let groups = unsafe { *groups };
            program.run(&kernel.name, groups, kernel.group_size, &arguments, &|address| objects.holds(address))
        })
    }
}
