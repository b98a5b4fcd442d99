//! AMD's HIP and its runtime compiler, as far as Panoply's driver calls them.
//!
//! Memory, streams and events are those of [`crate::cuda`]. A launch is checked (sizes, the work-group size that the program requires, and
//! that every buffer is live memory of the device), and the text can request a fault. The compiler parses as much of a program as that
//! requires, and rejects one with an `#error` line. **Kernels are executed only on request**, by clang for the host ([`host`]); otherwise
//! they do nothing.
//!
//! A test configures it in `PANOPLY_FAKE_HIP`, as for CUDA: `devices`, `memory`, `pools`, `init`, `broken`, and `hip` (the driver's
//! version, 60032831), `architecture` (of the devices, 90a), `hipblaslt` (its version in its own counting, 1000) and `execute` (1 to
//! execute kernels, 0).

pub mod host;

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use crate::cuda::api::{exported, give};
use crate::cuda::codes::*;
use crate::cuda::devices::known;
use crate::cuda::state::{CURRENT, State};
use crate::cuda::streams::StreamCommand;
use crate::ptx::memory::Memory;
use crate::ptx::run::ILLEGAL_ADDRESS;

/// First bytes of a compiled image; its length and the text follow. The first line of the text is the architecture.
const MAGIC: &[u8; 8] = b"\x7FFAKEHIP";
/// `HIPRTC_ERROR_COMPILATION`.
const REFUSED: i32 = 6;
/// Offset of `gcnArchName` in the properties, since ROCm 6 and before.
const ARCHITECTURE_AT: [usize; 2] = [1160, 396];

/// A program of the compiler.
#[derive(Default)]
pub struct HipProgram {
    text: String,
    log: String,
    binary: Vec<u8>,
}

/// A loaded module.
pub struct Code {
    text: String,
    host: Option<Arc<host::Program>>,
}

impl Code {
    /// Returns the text between an entry point's parentheses.
    fn arguments(&self, entry: &str) -> Option<&str> {
        let head = format!("void {entry}(");
        let start = self.text.find(&head).filter(|at| {
            let line = self.text[..*at].rfind('\n').map_or(0, |end| end + 1);
            host::is_entry(&self.text[line..*at])
        })?;
        let arguments = &self.text[start + head.len()..];
        arguments.find(')').map(|end| &arguments[..end])
    }

    /// Returns the work-group size that the text requires.
    fn group(&self) -> Option<u64> {
        let head = "amdgpu_flat_work_group_size(";
        let start = self.text.find(head)? + head.len();
        self.text[start..].split(',').next()?.parse().ok()
    }
}

exported! {
    fn hipInit(_flags: u32) {
        State::call(NAME, |state| match state.config.init {
            // As AMD's runtime, which returns "invalid device" here.
            0 if state.config.devices == 0 => Err(INVALID_DEVICE),
            0 => {
                state.initialized = true;
                Ok(())
            }
            code => Err(code),
        })
    }

    fn hipDriverGetVersion(version: *mut i32) {
        State::call(NAME, |state| {
            // SAFETY: the caller's pointer.
            unsafe { give(version, state.config.hip) };
            Ok(())
        })
    }

    fn hipDeviceGetName(text: *mut c_char, length: i32, device: i32) {
        State::call(NAME, |state| {
            known(state, device)?;
            let name = format!("HIP simulator {device}, no card\0");
            let bytes = name.len().min(length as usize);
            // SAFETY: the caller's buffer has `length` bytes.
            unsafe { std::ptr::copy_nonoverlapping(name.as_ptr().cast(), text, bytes) };
            Ok(())
        })
    }

    fn hipDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) {
        State::call(NAME, |state| {
            let index = known(state, device)?;
            // SAFETY: the caller's pointer.
            unsafe { give(value, attribute_of(state, index, attribute).ok_or(INVALID_VALUE)?) };
            Ok(())
        })
    }

    fn hipGetDevicePropertiesR0600(properties: *mut u8, device: i32) {
        State::call(NAME, |state| describe(state, properties, device, ARCHITECTURE_AT[0]))
    }

    fn hipGetDeviceProperties(properties: *mut u8, device: i32) {
        State::call(NAME, |state| describe(state, properties, device, ARCHITECTURE_AT[1]))
    }

    fn hipGetDevice(device: *mut i32) {
        let current = CURRENT.with_borrow(|stack| stack.last().copied()).unwrap_or(0);
        State::call(NAME, |_| {
            // SAFETY: the caller's pointer.
            unsafe { give(device, current as i32) };
            Ok(())
        })
    }

    fn hipSetDevice(device: i32) {
        State::call(NAME, |state| {
            let index = known(state, device)?;
            if state.config.broken == Some(index) {
                return Err(UNKNOWN);
            }
            CURRENT.with_borrow_mut(|stack| *stack = vec![index]);
            Ok(())
        })
    }

    fn hipModuleLoadData(handle: *mut u64, image: *const u8) {
        State::on_device(NAME, |state, _| {
            // SAFETY: an image begins with a magic number and its length.
            let text = unsafe { load(image) }?;
            let (made_for, text) = text.split_once('\n').ok_or(INVALID_IMAGE)?;
            if made_for != architecture(state) {
                return Err(NO_BINARY_FOR_GPU);
            }
            let host = match state.config.execute {
                true => Some(executable(state, text).map_err(|why| refuse(&why))?),
                false => None,
            };
            let new = state.handle();
            state.code.insert(new, Arc::new(Code { text: text.to_string(), host }));
            // SAFETY: the caller's pointer.
            unsafe { give(handle, new) };
            Ok(())
        })
    }

    fn hipModuleUnload(handle: u64) {
        State::on_device(NAME, |state, device| {
            state.drain_device(device)?;
            let code = state.code.remove(&handle).ok_or(INVALID_HANDLE)?;
            state.entries.retain(|_, (of, _)| !Arc::ptr_eq(of, &code));
            Ok(())
        })
    }

    fn hipModuleGetFunction(function: *mut u64, handle: u64, name: *const c_char) {
        State::on_device(NAME, |state, _| {
            // SAFETY: the caller's C string.
            let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
            let code = state.code.get(&handle).ok_or(INVALID_HANDLE)?.clone();
            code.arguments(&name).ok_or(NOT_FOUND)?;
            let new = state.handle();
            state.entries.insert(new, (code, name));
            // SAFETY: the caller's pointer.
            unsafe { give(function, new) };
            Ok(())
        })
    }

    fn hipModuleLaunchKernel(
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

    fn hiprtcCreateProgram(
        program: *mut u64,
        text: *const c_char,
        _name: *const c_char,
        _headers: i32,
        _texts: *const *const c_char,
        _names: *const *const c_char,
    ) {
        State::call(NAME, |state| {
            // SAFETY: the caller's C string.
            let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
            let new = state.handle();
            state.sources.insert(new, HipProgram { text, ..HipProgram::default() });
            // SAFETY: the caller's pointer.
            unsafe { give(program, new) };
            Ok(())
        })
    }

    fn hiprtcCompileProgram(program: u64, count: i32, options: *const *const c_char) {
        State::call(NAME, |state| {
            // SAFETY: the caller's array of C strings.
            let option = |at: usize| unsafe { CStr::from_ptr(*options.add(at)) }.to_string_lossy().into_owned();
            let options: Vec<String> = (0..count as usize).map(option).collect();
            let architecture = options.iter().find_map(|option| option.strip_prefix("--offload-arch="));
            let architecture = architecture.unwrap_or_default().to_string();
            // Before ROCm 6 the compiler aborts the process for unknown architectures.
            if state.config.hip < 60_000_000 && ["gfx1201", "gfx942"].contains(&architecture.as_str()) {
                std::process::abort();
            }
            let source = state.sources.get_mut(&program).ok_or(INVALID_VALUE)?;
            let wrong = source.text.lines().position(|line| line.starts_with("#error"));
            if let Some(line) = wrong {
                let text = source.text.lines().nth(line).unwrap_or_default();
                let what = text.trim_start_matches("#error ");
                source.log = format!("kernel.hip:{}:2: error: {what}\n{text}\n", line + 1);
                return Err(REFUSED);
            }
            let text = source.text.clone();
            if state.config.execute
                && let Err(why) = executable(state, &text)
            {
                state.sources.get_mut(&program).ok_or(INVALID_VALUE)?.log = why;
                return Err(REFUSED);
            }
            let source = state.sources.get_mut(&program).ok_or(INVALID_VALUE)?;
            let text = format!("{architecture}\n{text}");
            source.binary = [&MAGIC[..], &(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
            Ok(())
        })
    }

    fn hiprtcGetProgramLogSize(program: u64, bytes: *mut usize) {
        State::call(NAME, |state| {
            let source = state.sources.get(&program).ok_or(INVALID_VALUE)?;
            // SAFETY: the caller's pointer.
            unsafe { give(bytes, source.log.len() + 1) };
            Ok(())
        })
    }

    fn hiprtcGetProgramLog(program: u64, log: *mut u8) {
        State::call(NAME, |state| {
            let source = state.sources.get(&program).ok_or(INVALID_VALUE)?;
            // SAFETY: the caller's buffer has the size that was returned, including the terminator.
            unsafe {
                std::ptr::copy_nonoverlapping(source.log.as_ptr(), log, source.log.len());
                log.add(source.log.len()).write(0);
            }
            Ok(())
        })
    }

    fn hiprtcGetCodeSize(program: u64, bytes: *mut usize) {
        State::call(NAME, |state| {
            let source = state.sources.get(&program).ok_or(INVALID_VALUE)?;
            // SAFETY: the caller's pointer.
            unsafe { give(bytes, source.binary.len()) };
            Ok(())
        })
    }

    fn hiprtcGetCode(program: u64, code: *mut u8) {
        State::call(NAME, |state| {
            let source = state.sources.get(&program).ok_or(INVALID_VALUE)?;
            // SAFETY: the caller's buffer has the size that was returned.
            unsafe { std::ptr::copy_nonoverlapping(source.binary.as_ptr(), code, source.binary.len()) };
            Ok(())
        })
    }

    fn hiprtcDestroyProgram(program: *mut u64) {
        State::call(NAME, |state| {
            // SAFETY: the caller's pointer.
            let handle = unsafe { program.read() };
            state.sources.remove(&handle).map(drop).ok_or(INVALID_VALUE)
        })
    }
}

/// Checks a launch and returns its work.
///
/// # Safety
/// `params` must have a pointer to the value of every parameter, each in eight bytes.
pub unsafe fn kernel(
    state: &State,
    function: u64,
    (groups, size): ([u32; 3], [u32; 3]),
    shared: u32,
    params: *const *const c_void,
    extra: *const *const c_void,
) -> Result<StreamCommand, i32> {
    let (code, name) = state.entries.get(&function).ok_or(INVALID_HANDLE)?.clone();
    let items = size.iter().map(|size| u64::from(*size)).product::<u64>();
    let counted = |(groups, size): (&u32, &u32)| u64::from(*groups) * u64::from(*size) <= u64::from(u32::MAX);
    let fits = (1..=1024).contains(&items) && groups.iter().zip(&size).all(counted);
    let asked = code.group().is_none_or(|group| group == items);
    if !fits || !asked || groups.contains(&0) || shared != 0 || !extra.is_null() {
        return Err(INVALID_CONFIGURATION);
    }
    let arguments = code.arguments(&name).ok_or(NOT_FOUND)?;
    let argument = |(at, argument): (usize, &str)| {
        // SAFETY: guaranteed by the caller.
        let bits = unsafe { (*params.add(at)).cast::<u64>().read() };
        Argument { bits, buffer: argument.contains('*') }
    };
    let arguments = arguments.split(',').enumerate().map(argument).collect();
    let wave = if state.config.architecture < 0x1000 { 64 } else { 32 };
    Ok(StreamCommand::Hip(Launch { code, groups, size, wave, arguments }))
}

/// An argument of a launch.
#[derive(Clone)]
pub struct Argument {
    bits: u64,
    buffer: bool,
}

/// A launched kernel.
#[derive(Clone)]
pub struct Launch {
    code: Arc<Code>,
    groups: [u32; 3],
    size: [u32; 3],
    wave: u32,
    arguments: Vec<Argument>,
}

impl Launch {
    /// Checks the buffers, faults if the text requests it, and executes the kernel if it was compiled for the host.
    pub fn run(&self, memory: &mut Memory) -> Result<(), i32> {
        let place = |argument: &Argument| match argument.buffer {
            true => memory.at(argument.bits, 1).map(|bytes| bytes.as_mut_ptr() as u64).ok_or(ILLEGAL_ADDRESS),
            false => Ok(argument.bits),
        };
        let arguments = self.arguments.iter().map(place).collect::<Result<Vec<u64>, i32>>()?;
        if self.code.text.contains("__builtin_trap()") {
            return Err(LAUNCH_FAILURE);
        }
        match &self.code.host {
            // SAFETY: buffers are memory of the device, whose lock is held, and generated kernels access no memory outside them.
            Some(host) if !unsafe { host.launch(&self.groups, &self.size, self.wave, &arguments) } => {
                Err(LAUNCH_FAILURE)
            }
            _ => Ok(()),
        }
    }
}

/// Returns a text compiled for the host; it is compiled once.
fn executable(state: &mut State, text: &str) -> Result<Arc<host::Program>, String> {
    if let Some(known) = state.executables.get(text) {
        return Ok(known.clone());
    }
    let new = Arc::new(host::Program::new(text)?);
    state.executables.insert(text.to_string(), new.clone());
    Ok(new)
}

/// Reports a failure of the host's compiler, which is an error of the test.
fn refuse(why: &str) -> i32 {
    eprintln!("fake hip: {why}");
    INVALID_IMAGE
}

/// Returns the architecture's name, such as `gfx90a`.
fn architecture(state: &State) -> String {
    format!("gfx{:x}", state.config.architecture)
}

/// Returns an attribute by its number in `hipDeviceAttribute_t`.
fn attribute_of(state: &State, index: usize, attribute: i32) -> Option<i32> {
    Some(match attribute {
        // Clock in kHz, 1 if memory is shared with the host.
        5 => 1_000_000,
        16 => 0,
        // Work-items of a work-group along x, y, z, and in total.
        26..=28 | 56 => 1024,
        // Work-groups along x, y, z.
        29 => i32::MAX,
        30 | 31 => 65_536,
        // Compute units.
        63 => 4,
        // PCI bus, device, domain.
        67 => index as i32 + 1,
        68 | 69 => 0,
        // Shared memory of a work-group.
        74 => 64 << 10,
        // Work-items of a wavefront: before GFX 10, and since.
        87 if state.config.architecture < 0x1000 => 64,
        87 => 32,
        88 => state.config.pools,
        _ => return None,
    })
}

/// Writes the architecture's name at its offset in the properties.
fn describe(state: &State, properties: *mut u8, device: i32, at: usize) -> Result<(), i32> {
    known(state, device)?;
    let name = format!("{}:sramecc+:xnack-\0", architecture(state));
    // SAFETY: the caller's structure has 256 bytes for the name at this offset.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), properties.add(at), name.len()) };
    Ok(())
}

/// Returns the text of a compiled image.
///
/// # Safety
/// The image must have at least 8 bytes; if they are the magic number, the image must have the length in the next 8 bytes.
unsafe fn load<'a>(image: *const u8) -> Result<&'a str, i32> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if std::slice::from_raw_parts(image, 8) != MAGIC {
            return Err(INVALID_IMAGE);
        }
        let bytes = image.add(8).cast::<u64>().read_unaligned() as usize;
        std::str::from_utf8(std::slice::from_raw_parts(image.add(16), bytes)).map_err(|_| INVALID_IMAGE)
    }
}
