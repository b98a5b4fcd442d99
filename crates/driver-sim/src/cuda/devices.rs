//! Device enumeration and attributes.

use std::ffi::c_char;

use super::api::{exported, give};
use super::codes::*;
use super::state::State;

exported! {
    fn cuInit(_flags: u32) {
        State::call(NAME, |state| match state.config.init {
            0 if state.config.devices == 0 => Err(NO_DEVICE),
            0 => {
                state.initialized = true;
                Ok(())
            }
            code => Err(code),
        })
    }

    fn cuDriverGetVersion(version: *mut i32) {
        State::call(NAME, |state| {
            // SAFETY: the caller's pointer.
            unsafe { give(version, state.config.driver) };
            Ok(())
        })
    }

    fn [cuDeviceGetCount hipGetDeviceCount](count: *mut i32) {
        State::call(NAME, |state| {
            // SAFETY: the caller's pointer.
            unsafe { give(count, state.devices.len() as i32) };
            Ok(())
        })
    }

    fn [cuDeviceGet hipDeviceGet](device: *mut i32, index: i32) {
        State::call(NAME, |state| {
            known(state, index)?;
            // SAFETY: the caller's pointer.
            unsafe { give(device, index) };
            Ok(())
        })
    }

    fn cuDeviceGetName(text: *mut c_char, length: i32, device: i32) {
        State::call(NAME, |state| {
            known(state, device)?;
            let name = format!("PTX interpreter {device}, no card\0");
            let bytes = name.len().min(length as usize);
            // SAFETY: the caller's buffer has `length` bytes.
            unsafe { std::ptr::copy_nonoverlapping(name.as_ptr().cast(), text, bytes) };
            Ok(())
        })
    }

    fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: i32) {
        State::call(NAME, |state| {
            known(state, device)?;
            // SAFETY: the caller's pointer.
            unsafe { give(uuid, [0xFA + device as u8; 16]) };
            Ok(())
        })
    }

    fn [cuDeviceTotalMem_v2 hipDeviceTotalMem](bytes: *mut usize, device: i32) {
        State::call(NAME, |state| {
            known(state, device)?;
            // SAFETY: the caller's pointer.
            unsafe { give(bytes, state.config.memory as usize) };
            Ok(())
        })
    }

    fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) {
        State::call(NAME, |state| {
            let index = known(state, device)?;
            // SAFETY: the caller's pointer.
            unsafe { give(value, attribute_of(state, index, attribute).ok_or(INVALID_VALUE)?) };
            Ok(())
        })
    }

    fn cuDevicePrimaryCtxRetain(context: *mut u64, device: i32) {
        State::call(NAME, |state| {
            let index = known(state, device)?;
            if state.config.broken == Some(index) {
                return Err(UNKNOWN);
            }
            state.devices[index].retained += 1;
            // SAFETY: the caller's pointer.
            unsafe { give(context, index as u64 + 1) };
            Ok(())
        })
    }

    fn cuDevicePrimaryCtxRelease_v2(device: i32) {
        State::call(NAME, |state| {
            let index = known(state, device)?;
            let retained = &mut state.devices[index].retained;
            *retained = retained.checked_sub(1).ok_or(INVALID_CONTEXT)?;
            Ok(())
        })
    }
}

/// Returns the index of a device that exists.
pub(crate) fn known(state: &State, device: i32) -> Result<usize, i32> {
    usize::try_from(device).ok().filter(|index| *index < state.devices.len()).ok_or(INVALID_DEVICE)
}

/// Returns an attribute by its number in `CUdevice_attribute`.
fn attribute_of(state: &State, index: usize, attribute: i32) -> Option<i32> {
    Some(match attribute {
        // Threads of a block: total, along x, y, z.
        1..=3 => 1024,
        4 => 64,
        // Blocks along x, y, z.
        5 => i32::MAX,
        6 | 7 => 65_535,
        // Shared memory of a block.
        8 | 97 => 48 << 10,
        // Threads of a warp.
        10 => 32,
        // Clock in kHz, number of multiprocessors, 1 if memory is shared with the host.
        13 => 1_000_000,
        16 => 2,
        18 => 0,
        // Compute mode: 2 is prohibited.
        20 => 2 * i32::from(state.config.prohibited == Some(index)),
        // PCI bus, device, domain.
        33 => index as i32 + 1,
        34 | 50 => 0,
        75 => state.config.capability / 10,
        76 => state.config.capability % 10,
        115 => state.config.pools,
        _ => return None,
    })
}
