//! The exported functions, except those for devices and modules.

use std::ffi::{CStr, c_char, c_void};

use super::codes::*;
use super::state::{CURRENT, State};
use super::streams::{Event, Host, Recording, Stream, StreamCommand};

/// Writes a result to the caller's pointer.
///
/// # Safety
/// `to` must be valid for writing.
pub(crate) unsafe fn give<T>(to: *mut T, value: T) {
    // SAFETY: guaranteed by the caller.
    unsafe { to.write(value) }
}

/// Exports functions; one with several names is the same in several APIs. `NAME` is the called name.
macro_rules! exported {
    (@one $name:ident ($($arg:ident: $ty:ty),* $(,)?) $body:block) => {
        /// The API function of this name.
        ///
        /// # Safety
        /// The requirements of the vendor's documentation.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the vendors' names and arguments")]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> i32 {
            #[allow(dead_code, reason = "not every function uses its name")]
            const NAME: &str = stringify!($name);
            $body
        }
    };
    () => {};
    (fn [$($name:ident)+] $args:tt $body:block $($rest:tt)*) => {
        $($crate::cuda::api::exported! { @one $name $args $body })+
        $crate::cuda::api::exported! { $($rest)* }
    };
    (fn $name:ident $args:tt $body:block $($rest:tt)*) => {
        $crate::cuda::api::exported! { @one $name $args $body }
        $crate::cuda::api::exported! { $($rest)* }
    };
}

pub(crate) use exported;

exported! {
    fn cuCtxPushCurrent_v2(context: u64) {
        State::call(NAME, |state| {
            let device = (context as usize).checked_sub(1).filter(|device| *device < state.devices.len());
            let device = device.filter(|device| state.devices[*device].retained > 0).ok_or(INVALID_CONTEXT)?;
            CURRENT.with_borrow_mut(|stack| stack.push(device));
            Ok(())
        })
    }

    fn cuCtxPopCurrent_v2(context: *mut u64) {
        State::call(NAME, |_| {
            let popped = CURRENT.with_borrow_mut(Vec::pop).ok_or(INVALID_CONTEXT)?;
            if !context.is_null() {
                // SAFETY: the caller's pointer.
                unsafe { give(context, popped as u64 + 1) };
            }
            Ok(())
        })
    }

    fn cuCtxSynchronize() {
        State::on_device(NAME, |state, device| state.drain_device(device))
    }

    fn [cuMemGetInfo_v2 hipMemGetInfo](free: *mut usize, total: *mut usize) {
        State::on_device(NAME, |state, device| {
            let used = state.devices[device].memory.used;
            // SAFETY: the caller's pointers.
            unsafe {
                give(free, (state.config.memory - used) as usize);
                give(total, state.config.memory as usize);
            }
            Ok(())
        })
    }

    fn [cuMemAlloc_v2 hipMalloc](address: *mut u64, bytes: usize) {
        State::on_device(NAME, |state, device| {
            let found = allocate(state, device, bytes as u64)?;
            // SAFETY: the caller's pointer.
            unsafe { give(address, found) };
            Ok(())
        })
    }

    fn [cuMemFree_v2 hipFree](address: u64) {
        State::on_device(NAME, |state, device| {
            state.drain_device(device)?;
            if state.devices[device].memory.free(address) { Ok(()) } else { Err(INVALID_VALUE) }
        })
    }

    fn [cuMemAllocAsync hipMallocAsync](address: *mut u64, bytes: usize, stream: u64) {
        State::on_device(NAME, |state, device| {
            if state.config.pools == 0 {
                return Err(NOT_SUPPORTED);
            }
            if !state.streams.contains_key(&stream) {
                return Err(INVALID_HANDLE);
            }
            if state.devices[device].memory.used + bytes as u64 > state.config.memory {
                // Work that frees memory can make room.
                state.drain(stream)?;
            }
            let found = allocate(state, device, bytes as u64)?;
            // SAFETY: the caller's pointer.
            unsafe { give(address, found) };
            Ok(())
        })
    }

    fn [cuMemFreeAsync hipFreeAsync](address: u64, stream: u64) {
        State::on_device(NAME, |state, _| state.push(stream, StreamCommand::Free(address)))
    }

    fn [cuMemHostAlloc hipHostMalloc](address: *mut *mut c_void, bytes: usize, _flags: u32) {
        State::on_device(NAME, |state, _| {
            let mut memory = vec![0u8; bytes.max(1)].into_boxed_slice();
            let start = memory.as_mut_ptr();
            state.pinned.insert(start as u64, memory);
            // SAFETY: the caller's pointer.
            unsafe { give(address, start.cast()) };
            Ok(())
        })
    }

    fn [cuMemFreeHost hipHostFree](address: *mut c_void) {
        State::on_device(NAME, |state, device| {
            state.drain_device(device)?;
            state.pinned.remove(&(address as u64)).map(drop).ok_or(INVALID_VALUE)
        })
    }

    fn [cuMemcpyHtoDAsync_v2 hipMemcpyHtoDAsync](to: u64, from: *const c_void, bytes: usize, stream: u64) {
        State::on_device(NAME, |state, _| {
            if state.is_pinned(from as u64) {
                let from = Host(from as *mut u8);
                return state.push(stream, StreamCommand::UploadPinned { to, from, bytes: bytes as u64 });
            }
            // Pageable memory is copied before the call returns.
            // SAFETY: the caller's slice.
            let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) }.to_vec();
            state.push(stream, StreamCommand::Upload { to, bytes })
        })
    }

    fn [cuMemcpyDtoHAsync_v2 hipMemcpyDtoHAsync](to: *mut c_void, from: u64, bytes: usize, stream: u64) {
        State::on_device(NAME, |state, _| {
            let pinned = state.is_pinned(to as u64);
            state.push(stream, StreamCommand::Download { to: Host(to.cast()), from, bytes: bytes as u64 })?;
            // Pageable memory is written before the call returns.
            if pinned { Ok(()) } else { state.drain(stream) }
        })
    }

    fn [cuMemcpyDtoDAsync_v2 hipMemcpyDtoDAsync](to: u64, from: u64, bytes: usize, stream: u64) {
        State::on_device(NAME, |state, _| {
            state.push(stream, StreamCommand::Copy { to, from, bytes: bytes as u64 })
        })
    }

    fn cuMemcpyPeerAsync(to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, stream: u64) {
        State::on_device(NAME, |state, _| {
            let [to_device, from_device] = [to_context, from_context].map(|context| (context as usize).wrapping_sub(1));
            state.copy_peer((to_device, to), (from_device, from), bytes as u64, stream)
        })
    }

    fn hipMemcpyPeerAsync(to: u64, to_device: i32, from: u64, from_device: i32, bytes: usize, stream: u64) {
        State::on_device(NAME, |state, _| {
            state.copy_peer((to_device as usize, to), (from_device as usize, from), bytes as u64, stream)
        })
    }

    fn [cuMemsetD8Async hipMemsetD8Async](to: u64, value: u8, count: usize, stream: u64) {
        fill(NAME, to, &[value], 1, count, stream)
    }

    fn [cuMemsetD16Async hipMemsetD16Async](to: u64, value: u16, count: usize, stream: u64) {
        fill(NAME, to, &value.to_le_bytes(), 2, count, stream)
    }

    fn [cuMemsetD32Async hipMemsetD32Async](to: u64, value: u32, count: usize, stream: u64) {
        fill(NAME, to, &value.to_le_bytes(), 4, count, stream)
    }

    fn cuMemsetD2D32Async(to: u64, pitch: usize, value: u32, width: usize, height: usize, stream: u64) {
        let row: Vec<u8> = std::iter::repeat_n(value.to_le_bytes(), width).flatten().collect();
        fill(NAME, to, &row, pitch as u64, height, stream)
    }

    fn [cuStreamCreate hipStreamCreateWithFlags](stream: *mut u64, _flags: u32) {
        State::on_device(NAME, |state, device| {
            let handle = state.handle();
            state.streams.insert(handle, Stream { device, work: Default::default() });
            // SAFETY: the caller's pointer.
            unsafe { give(stream, handle) };
            Ok(())
        })
    }

    fn [cuStreamDestroy_v2 hipStreamDestroy](stream: u64) {
        State::on_device(NAME, |state, _| {
            state.drain(stream)?;
            state.streams.remove(&stream).map(drop).ok_or(INVALID_HANDLE)
        })
    }

    fn [cuStreamSynchronize hipStreamSynchronize](stream: u64) {
        State::on_device(NAME, |state, _| {
            if state.streams.contains_key(&stream) { state.drain(stream) } else { Err(INVALID_HANDLE) }
        })
    }

    fn [cuStreamWaitEvent hipStreamWaitEvent](stream: u64, event: u64, _flags: u32) {
        State::on_device(NAME, |state, _| {
            let serial = state.events.get(&event).filter(|event| event.live).ok_or(INVALID_HANDLE)?.recordings.len();
            state.push(stream, StreamCommand::Wait { event, serial })
        })
    }

    fn [cuEventCreate hipEventCreateWithFlags](event: *mut u64, flags: u32) {
        State::on_device(NAME, |state, device| {
            let handle = state.handle();
            let timing = flags & 2 == 0;
            let new = Event { device, timing, live: true, recordings: Vec::new(), at: Default::default() };
            state.events.insert(handle, new);
            // SAFETY: the caller's pointer.
            unsafe { give(event, handle) };
            Ok(())
        })
    }

    fn [cuEventRecord hipEventRecord](event: u64, stream: u64) {
        State::on_device(NAME, |state, device| {
            let known = state.events.get_mut(&event).filter(|event| event.live).ok_or(INVALID_HANDLE)?;
            if known.device != device {
                return Err(INVALID_HANDLE);
            }
            known.recordings.push(Recording { stream, done: false });
            let serial = known.recordings.len();
            state.push(stream, StreamCommand::Record { event, serial })
        })
    }

    fn [cuEventQuery hipEventQuery](event: u64) {
        State::on_device(NAME, |state, _| {
            let known = state.events.get(&event).filter(|event| event.live).ok_or(INVALID_HANDLE)?;
            let Recording { stream, done } = known.latest();
            if done {
                return Ok(());
            }
            state.step(stream)?;
            Err(NOT_READY)
        })
    }

    fn [cuEventSynchronize hipEventSynchronize](event: u64) {
        State::on_device(NAME, |state, _| {
            let serial = state.events.get(&event).filter(|event| event.live).ok_or(INVALID_HANDLE)?.recordings.len();
            state.reach(event, serial)
        })
    }

    fn [cuEventElapsedTime hipEventElapsedTime](milliseconds: *mut f32, start: u64, end: u64) {
        State::on_device(NAME, |state, _| {
            let known = |event: u64| state.events.get(&event).filter(|event| event.live).ok_or(INVALID_HANDLE);
            let (start, end) = (known(start)?, known(end)?);
            if !start.timing || !end.timing || start.recordings.is_empty() || end.recordings.is_empty() {
                return Err(INVALID_HANDLE);
            }
            if !start.latest().done || !end.latest().done {
                return Err(NOT_READY);
            }
            let seconds = end.at.as_secs_f64() - start.at.as_secs_f64();
            // SAFETY: the caller's pointer.
            unsafe { give(milliseconds, (seconds * 1e3) as f32) };
            Ok(())
        })
    }

    fn [cuEventDestroy_v2 hipEventDestroy](event: u64) {
        State::on_device(NAME, |state, _| {
            state.events.get_mut(&event).filter(|event| event.live).ok_or(INVALID_HANDLE)?.live = false;
            Ok(())
        })
    }

    fn cuGetErrorName(code: i32, text: *mut *const c_char) {
        // SAFETY: the caller's pointer.
        unsafe { give(text, name(code).as_ptr()) };
        SUCCESS
    }
}

fn allocate(state: &mut State, device: usize, bytes: u64) -> Result<u64, i32> {
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    if bytes > state.config.memory - state.devices[device].memory.used {
        return Err(OUT_OF_MEMORY);
    }
    Ok(state.devices[device].memory.allocate(bytes))
}

fn fill(name: &'static str, to: u64, row: &[u8], pitch: u64, rows: usize, stream: u64) -> i32 {
    State::on_device(name, |state, _| {
        if !to.is_multiple_of(row.len().min(4) as u64) || pitch < row.len() as u64 {
            return Err(INVALID_VALUE);
        }
        state.push(stream, StreamCommand::Fill { to, pattern: row.to_vec(), pitch, rows: rows as u64 })
    })
}

/// Makes calls fail; see `Control::fail`.
///
/// # Safety
/// `function` must be a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn panoply_driver_sim_fail(function: *const c_char, code: i32, skip: u32, times: u32) {
    // SAFETY: guaranteed by the caller.
    let function = unsafe { CStr::from_ptr(function) }.to_string_lossy().into_owned();
    State::with(|state| state.fail(function, code, skip, times));
}

/// Returns the number of calls of a function.
///
/// # Safety
/// `function` must be a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn panoply_driver_sim_calls(function: *const c_char) -> u64 {
    // SAFETY: guaranteed by the caller.
    let function = unsafe { CStr::from_ptr(function) }.to_string_lossy();
    State::with(|state| state.calls(&function))
}

/// Enables the execution of HIP kernels.
#[unsafe(no_mangle)]
pub extern "C" fn panoply_driver_sim_execute() {
    State::with(|state| state.config.execute = true);
}

/// Returns true if Level Zero kernels can be executed.
#[unsafe(no_mangle)]
pub extern "C" fn panoply_driver_sim_executes_spirv() -> bool {
    crate::level_zero::execute::available()
}

/// Returns the index of the thread's current device plus 1; 0 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn panoply_driver_sim_current() -> u64 {
    CURRENT.with_borrow(|stack| stack.last().map_or(0, |device| *device as u64 + 1))
}

/// Returns the number of live objects.
#[unsafe(no_mangle)]
pub extern "C" fn panoply_driver_sim_live() -> u64 {
    State::with(|state| state.live())
}
