//! SPIR-V executed by an OpenCL driver of this machine that supports arbitrary host addresses as buffers (fine-grained system SVM).

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::OnceLock;

use dlopen2::raw::Library;

const DEVICE_TYPE_ALL: u64 = 0xFFFF_FFFF;
const DEVICE_SVM_CAPABILITIES: u32 = 0x1053;
const DEVICE_IL_VERSION: u32 = 0x105B;
const FINE_GRAIN_SYSTEM: u64 = 4;
const PROGRAM_BUILD_LOG: u32 = 0x1183;
/// `ZE_RESULT_ERROR_UNKNOWN`
const UNKNOWN: i32 = 0x7FFF_FFFE;

/// Calls a function of the loader by its name, with explicit argument types.
macro_rules! ask {
    ($opencl:expr, $name:literal, ($($ty:ty),*) -> $answer:ty, $($value:expr),*) => {{
        let function: unsafe extern "C" fn($($ty),*) -> $answer =
            // SAFETY: the types are those of OpenCL's header.
            unsafe { $opencl.library.symbol($name) }.expect("a loader has the functions of OpenCL 2.1");
        // SAFETY: handles are live, pointers are valid, and lists have the lengths that are passed.
        unsafe { function($($value),*) }
    }};
}

/// A context and queue of an OpenCL device.
struct OpenCl {
    library: Library,
    device: usize,
    context: usize,
    queue: usize,
}

/// Returns the first suitable device, if there is one.
fn opencl() -> Option<&'static OpenCl> {
    static FOUND: OnceLock<Option<OpenCl>> = OnceLock::new();
    FOUND.get_or_init(OpenCl::open).as_ref()
}

/// Returns true if kernels are executed.
pub fn available() -> bool {
    opencl().is_some()
}

impl OpenCl {
    fn open() -> Option<OpenCl> {
        let library = Library::open("libOpenCL.so.1").ok()?;
        let mut opencl = OpenCl { library, device: 0, context: 0, queue: 0 };
        let mut platforms = [0usize; 16];
        let mut count = 0u32;
        ask!(opencl, "clGetPlatformIDs", (u32, *mut usize, *mut u32) -> i32, 16, platforms.as_mut_ptr(), &mut count);
        for platform in &platforms[..(count as usize).min(16)] {
            let mut devices = [0usize; 16];
            count = 0;
            ask!(
                opencl, "clGetDeviceIDs", (usize, u64, u32, *mut usize, *mut u32) -> i32,
                *platform, DEVICE_TYPE_ALL, 16, devices.as_mut_ptr(), &mut count
            );
            let able = devices[..(count as usize).min(16)].iter().find(|device| opencl.is_able(**device));
            if let Some(device) = able {
                opencl.device = *device;
                let mut code = 0;
                opencl.context = ask!(
                    opencl, "clCreateContext",
                    (*const isize, u32, *const usize, *const c_void, *const c_void, *mut i32) -> usize,
                    ptr::null(), 1, device, ptr::null(), ptr::null(), &mut code
                );
                opencl.queue = ask!(
                    opencl, "clCreateCommandQueue", (usize, usize, u64, *mut i32) -> usize,
                    opencl.context, *device, 0, &mut code
                );
                return (opencl.queue != 0).then_some(opencl);
            }
        }
        None
    }

    fn is_able(&self, device: usize) -> bool {
        let (mut memory, mut language) = ([0u8; 8], [0u8; 256]);
        self.info(device, DEVICE_SVM_CAPABILITIES, &mut memory);
        self.info(device, DEVICE_IL_VERSION, &mut language);
        u64::from_ne_bytes(memory) & FINE_GRAIN_SYSTEM != 0 && language.starts_with(b"SPIR-V_1")
    }

    fn info(&self, device: usize, what: u32, to: &mut [u8]) {
        let (bytes, start) = (to.len(), to.as_mut_ptr());
        ask!(
            self, "clGetDeviceInfo", (usize, u32, usize, *mut u8, *mut usize) -> i32,
            device, what, bytes, start, ptr::null_mut()
        );
    }
}

/// A program that can be executed.
pub struct Program {
    opencl: &'static OpenCl,
    raw: usize,
}

impl Program {
    /// Compiles a module; returns `None` if there is no suitable device, and the log if the module is rejected.
    pub fn build(words: &[u8], flags: &CStr) -> Result<Option<Program>, String> {
        if !words.starts_with(&0x0723_0203u32.to_ne_bytes()) {
            return Err("these words are not SPIR-V".into());
        }
        let Some(opencl) = opencl() else { return Ok(None) };
        let mut code = 0;
        let raw = ask!(
            opencl, "clCreateProgramWithIL", (usize, *const u8, usize, *mut i32) -> usize,
            opencl.context, words.as_ptr(), words.len(), &mut code
        );
        if raw == 0 {
            return Err(format!("clCreateProgramWithIL returned {code}"));
        }
        let program = Program { opencl, raw };
        let built = ask!(
            opencl, "clBuildProgram",
            (usize, u32, *const usize, *const c_char, *const c_void, *const c_void) -> i32,
            raw, 1, &opencl.device, flags.as_ptr(), ptr::null(), ptr::null()
        );
        if built == 0 { Ok(Some(program)) } else { Err(program.log()) }
    }

    fn log(&self) -> String {
        let mut text = [0u8; 4096];
        ask!(
            self.opencl, "clGetProgramBuildInfo", (usize, usize, u32, usize, *mut u8, *mut usize) -> i32,
            self.raw, self.opencl.device, PROGRAM_BUILD_LOG, text.len(), text.as_mut_ptr(), ptr::null_mut()
        );
        CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Runs a kernel and waits for it. Eight-byte arguments that point into an allocation are passed as addresses.
    pub fn run(
        &self,
        name: &str,
        groups: [u32; 3],
        group: [u32; 3],
        arguments: &[&[u8]],
        is_address: &dyn Fn(u64) -> bool,
    ) -> Result<(), i32> {
        let (opencl, mut code) = (self.opencl, 0);
        let name = CString::new(name).expect("a C string contains no zero byte");
        let kernel = ask!(
            opencl, "clCreateKernel", (usize, *const c_char, *mut i32) -> usize, self.raw, name.as_ptr(), &mut code
        );
        for (index, argument) in arguments.iter().enumerate() {
            let address = <[u8; 8]>::try_from(*argument).ok().map(u64::from_ne_bytes).filter(|at| is_address(*at));
            code |= match address {
                Some(address) => ask!(
                    opencl, "clSetKernelArgSVMPointer", (usize, u32, u64) -> i32, kernel, index as u32, address
                ),
                None => ask!(
                    opencl, "clSetKernelArg", (usize, u32, usize, *const u8) -> i32,
                    kernel, index as u32, argument.len(), argument.as_ptr()
                ),
            };
        }
        let local = group.map(|size| size as usize);
        let global = [0, 1, 2].map(|axis| groups[axis] as usize * local[axis]);
        if code == 0 {
            code = ask!(
                opencl, "clEnqueueNDRangeKernel",
                (usize, usize, u32, *const usize, *const usize, *const usize, u32, *const c_void, *mut c_void) -> i32,
                opencl.queue, kernel, 3, ptr::null(), global.as_ptr(), local.as_ptr(), 0, ptr::null(), ptr::null_mut()
            );
        }
        code |= ask!(opencl, "clFinish", (usize) -> i32, opencl.queue);
        ask!(opencl, "clReleaseKernel", (usize) -> i32, kernel);
        if code == 0 { Ok(()) } else { Err(UNKNOWN) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        ask!(self.opencl, "clReleaseProgram", (usize) -> i32, self.raw);
    }
}

/// Returns the names of a module's entry points.
pub fn entries(words: &[u8]) -> Vec<String> {
    const OP_ENTRY_POINT: u32 = 15;
    let words: Vec<u32> =
        words.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect();
    let (mut names, mut at) = (Vec::new(), 5);
    while let Some(word) = words.get(at) {
        let length = (word >> 16) as usize;
        if word & 0xFFFF == OP_ENTRY_POINT && length > 3 {
            let bytes: Vec<u8> =
                words[at + 3..(at + length).min(words.len())].iter().flat_map(|word| word.to_ne_bytes()).collect();
            names.push(CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned());
        }
        at += length.max(1);
    }
    names
}
