//! Modules and launches.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use super::api::{exported, give};
use super::codes::*;
use super::state::State;
use super::streams::StreamCommand;
use crate::ptx::{Module, module};

/// First bytes of a linked image; its length and the text follow.
const MAGIC: &[u8; 8] = b"\x7FFAKEPTX";

/// CU_JIT_ERROR_LOG_BUFFER and CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES.
const LOG: i32 = 5;
const LOG_BYTES: i32 = 6;

exported! {
    fn cuLinkCreate_v2(count: u32, options: *const i32, values: *const *mut c_void, link: *mut u64) {
        State::on_device(NAME, |state, _| {
            let handle = state.handle();
            // The log's address and size are kept before the linked text.
            // SAFETY: the caller's arrays have `count` elements.
            let log = unsafe { log(count, options, values) };
            state.links.insert(handle, [log.0.to_le_bytes(), log.1.to_le_bytes()].concat());
            // SAFETY: the caller's pointer.
            unsafe { give(link, handle) };
            Ok(())
        })
    }

    fn cuLinkAddData_v2(
        link: u64,
        kind: i32,
        data: *const c_void,
        bytes: usize,
        _name: *const c_char,
        _count: u32,
        _options: *const i32,
        _values: *const *mut c_void,
    ) {
        State::on_device(NAME, |state, _| {
            // CU_JIT_INPUT_PTX.
            if kind != 1 {
                return Err(INVALID_VALUE);
            }
            // SAFETY: the caller's bytes.
            let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes) };
            let text = std::str::from_utf8(bytes.strip_suffix(&[0]).unwrap_or(bytes)).map_err(|_| INVALID_PTX)?;
            let capability = state.config.capability as u32;
            let linked = state.links.get_mut(&link).ok_or(INVALID_HANDLE)?;
            match module(text) {
                Ok(module) if module.target > capability => Err(NO_BINARY_FOR_GPU),
                Ok(_) => {
                    linked.truncate(16);
                    linked.extend(text.as_bytes());
                    Ok(())
                }
                Err(why) => {
                    let word = |at: usize| u64::from_le_bytes(linked[at..at + 8].try_into().expect("eight bytes"));
                    // SAFETY: the buffer was passed with its length, and lives until the link is destroyed.
                    unsafe { write_log(word(0) as *mut u8, word(8) as usize, &why) };
                    Err(INVALID_PTX)
                }
            }
        })
    }

    fn cuLinkComplete(link: u64, image: *mut *const c_void, bytes: *mut usize) {
        State::on_device(NAME, |state, _| {
            let linked = state.links.get_mut(&link).ok_or(INVALID_HANDLE)?;
            let text = linked.split_off(16);
            *linked = [&MAGIC[..], &(text.len() as u64).to_le_bytes(), &text].concat();
            // SAFETY: the caller's pointers; the bytes live until the link is destroyed.
            unsafe {
                give(image, linked.as_ptr().cast());
                give(bytes, linked.len());
            }
            Ok(())
        })
    }

    fn cuLinkDestroy(link: u64) {
        State::on_device(NAME, |state, _| state.links.remove(&link).map(drop).ok_or(INVALID_HANDLE))
    }

    fn cuModuleLoadData(handle: *mut u64, image: *const c_void) {
        State::on_device(NAME, |state, _| {
            // SAFETY: an image begins with a magic number and its length.
            let module = unsafe { load(image.cast()) }?;
            if module.target > state.config.capability as u32 {
                return Err(NO_BINARY_FOR_GPU);
            }
            let new = state.handle();
            state.modules.insert(new, Arc::new(module));
            // SAFETY: the caller's pointer.
            unsafe { give(handle, new) };
            Ok(())
        })
    }

    fn cuModuleUnload(handle: u64) {
        State::on_device(NAME, |state, device| {
            state.drain_device(device)?;
            let module = state.modules.remove(&handle).ok_or(INVALID_HANDLE)?;
            state.functions.retain(|_, (of, _)| !Arc::ptr_eq(of, &module));
            Ok(())
        })
    }

    fn cuModuleGetFunction(function: *mut u64, handle: u64, name: *const c_char) {
        State::on_device(NAME, |state, _| {
            let module = state.modules.get(&handle).ok_or(INVALID_HANDLE)?.clone();
            // SAFETY: the caller's string.
            let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
            if !module.entries.contains_key(&name) {
                return Err(NOT_FOUND);
            }
            let new = state.handle();
            state.functions.insert(new, (module, name));
            // SAFETY: the caller's pointer.
            unsafe { give(function, new) };
            Ok(())
        })
    }

    fn cuLaunchKernel(
        function: u64,
        gx: u32,
        gy: u32,
        gz: u32,
        bx: u32,
        by: u32,
        bz: u32,
        shared: u32,
        stream: u64,
        params: *const *const c_void,
        extra: *const *const c_void,
    ) {
        State::on_device(NAME, |state, _| {
            // SAFETY: the caller's arguments.
            let work = unsafe { kernel(state, function, ([gx, gy, gz], [bx, by, bz]), shared, params, extra) }?;
            state.push(stream, work)
        })
    }
}

/// Checks a launch and returns its work.
///
/// # Safety
/// `params` must have a pointer to the bytes of every parameter.
pub unsafe fn kernel(
    state: &State,
    function: u64,
    (grid, block): ([u32; 3], [u32; 3]),
    shared: u32,
    params: *const *const c_void,
    extra: *const *const c_void,
) -> Result<StreamCommand, i32> {
    let (module, name) = state.functions.get(&function).ok_or(INVALID_HANDLE)?.clone();
    let entry = &module.entries[&name];
    let items = block.iter().map(|size| u64::from(*size)).product::<u64>();
    let [gx, gy, gz] = grid;
    let fits = (1..=1024).contains(&items) && block[2] <= 64 && gy <= 65_535 && gz <= 65_535 && gx <= i32::MAX as u32;
    if !fits || grid.contains(&0) || shared != 0 || !extra.is_null() || entry.shared > 48 << 10 {
        return Err(INVALID_VALUE);
    }
    if entry.required.is_some_and(|required| required != block) {
        return Err(INVALID_VALUE);
    }
    let value = |(at, bytes): (usize, usize)| {
        let mut word = [0; 8];
        // SAFETY: guaranteed by the caller.
        unsafe { std::ptr::copy_nonoverlapping((*params.add(at)).cast::<u8>(), word.as_mut_ptr(), bytes) };
        u64::from_le_bytes(word)
    };
    let params = entry.params.iter().copied().enumerate().map(value).collect();
    Ok(StreamCommand::Kernel { module, entry: name, grid, block, params })
}

/// Returns address and size of the error log from the options.
///
/// # Safety
/// The arrays must have `count` elements.
unsafe fn log(count: u32, options: *const i32, values: *const *mut c_void) -> (u64, u64) {
    let (mut place, mut bytes) = (0, 0);
    for at in 0..count as usize {
        // SAFETY: guaranteed by the caller.
        let (option, value) = unsafe { (*options.add(at), *values.add(at) as u64) };
        match option {
            LOG => place = value,
            LOG_BYTES => bytes = value,
            _ => {}
        }
    }
    (place, bytes)
}

/// Writes zero-terminated text.
///
/// # Safety
/// The buffer must have `bytes` bytes, or be null.
unsafe fn write_log(buffer: *mut u8, bytes: usize, text: &str) {
    let length = text.len().min(bytes.saturating_sub(1));
    if buffer.is_null() || bytes == 0 {
        return;
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, length);
        buffer.add(length).write(0);
    }
}

/// Parses a linked image.
///
/// # Safety
/// The image must have at least 8 bytes; if they are the magic number, the image must have the length in the next 8 bytes.
unsafe fn load(image: *const u8) -> Result<Module, i32> {
    // SAFETY: guaranteed by the caller.
    let text = unsafe {
        if std::slice::from_raw_parts(image, 8) != MAGIC {
            return Err(INVALID_IMAGE);
        }
        let mut length = [0; 8];
        std::ptr::copy_nonoverlapping(image.add(8), length.as_mut_ptr(), 8);
        std::slice::from_raw_parts(image.add(16), u64::from_le_bytes(length) as usize)
    };
    module(std::str::from_utf8(text).map_err(|_| INVALID_IMAGE)?).map_err(|_| INVALID_PTX)
}
