//! ROCm's runtime compiler, hiprtc: text to machine code for one architecture.

use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::Mutex;

use panoply_device::{Error, ErrorKind, Kind, Result, SourceText};

use crate::library::{Handle, Opened, Words, functions};
use crate::lock::locked;
use crate::stream::program::{LOG_BYTES, refusal, source};

const WORDS: Words = Words {
    kind: Kind::Rocm.name(),
    files: if cfg!(windows) {
        &["hiprtc0701.dll", "hiprtc0700.dll", "hiprtc0604.dll", "hiprtc0602.dll", "hiprtc.dll"]
    } else {
        &["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so", "/opt/rocm/lib/libhiprtc.so"]
    },
    prefix: "hiprtc",
    install: "install hiprtc, ROCm's runtime compiler, beside the HIP runtime",
    lacking: "so it is no hiprtc of ROCm 5 or later; update ROCm",
};

functions! {
    /// The compiler's functions; each is what AMD's documentation says.
    Rtc
    needed {
        create(
            *mut Handle, *const c_char, *const c_char, i32, *const *const c_char, *const *const c_char,
        ) "hiprtcCreateProgram";
        compile(Handle, i32, *const *const c_char) "hiprtcCompileProgram";
        log_size(Handle, *mut usize) "hiprtcGetProgramLogSize";
        log(Handle, *mut c_char) "hiprtcGetProgramLog";
        code_size(Handle, *mut usize) "hiprtcGetCodeSize";
        code(Handle, *mut c_char) "hiprtcGetCode";
        destroy(*mut Handle) "hiprtcDestroyProgram";
    }
    optional {}
}

/// The compiler.
pub struct Compiler {
    functions: Rtc,
    /// Never closed; none if the driver's library has the compiler's functions itself, as before ROCm 7.
    _library: Option<Opened>,
    /// Old versions do not promise that two threads may compile at once.
    one_at_a_time: Mutex<()>,
}

impl Compiler {
    /// The compiler of a driver's library, or the one the system finds.
    pub fn of(driver: &Opened) -> Result<Compiler> {
        if let Ok(functions) = Rtc::find(driver, &WORDS) {
            return Ok(Compiler { functions, _library: None, one_at_a_time: Mutex::default() });
        }
        let library = Opened::open(&WORDS, None)?;
        let functions = Rtc::find(&library, &WORDS)?;
        Ok(Compiler { functions, _library: Some(library), one_at_a_time: Mutex::default() })
    }

    /// Machine code of a text for an architecture that the compiler knows: some versions end the process over others.
    pub fn compile(&self, label: &str, architecture: &str, text: &SourceText) -> Result<Vec<u8>> {
        let entry = &text.entry;
        let source = source(label, text)?;
        let options = [&format!("--offload-arch={architecture}"), "-O3", "-ffp-contract=off"];
        let options = options.map(|option| CString::new(option).unwrap_or_default());
        let pointers = options.each_ref().map(|option| option.as_ptr());
        let _only = locked(&self.one_at_a_time);
        let mut program = Compilation { raw: 0, functions: &self.functions };
        let failed = |doing: &str, code: i32| {
            Error::new(ErrorKind::Driver, format!("{label}: {doing} {entry}: hiprtc answers {code}; update ROCm"))
        };
        // SAFETY: the texts end in zero bytes and live as long as the program; there are no headers.
        let code = unsafe {
            let (name, none) = (c"kernel.hip".as_ptr(), ptr::null());
            (self.functions.create)(&mut program.raw, source.as_ptr(), name, 0, none, none)
        };
        if code != 0 {
            return Err(failed("taking", code));
        }
        // SAFETY: there are as many options as said, each ending in a zero byte.
        let code = unsafe { (self.functions.compile)(program.raw, pointers.len() as i32, pointers.as_ptr()) };
        if code != 0 {
            let failure = failed("compiling", code);
            return Err(refusal(label, "ROCm's compiler", entry, &program.log(), failure.message()));
        }
        program.code().map_err(|code| failed("compiling", code))
    }
}

/// A program of the compiler.
struct Compilation<'a> {
    raw: Handle,
    functions: &'a Rtc,
}

impl Compilation<'_> {
    fn log(&self) -> Vec<u8> {
        let mut bytes = 0;
        // SAFETY: the pointer is valid.
        let code = unsafe { (self.functions.log_size)(self.raw, &mut bytes) };
        let mut log = vec![0u8; if code == 0 { bytes } else { 0 } + 1];
        // SAFETY: there is room for as many bytes as the compiler said.
        unsafe { (self.functions.log)(self.raw, log.as_mut_ptr().cast()) };
        log.truncate(LOG_BYTES);
        log
    }

    fn code(&self) -> Result<Vec<u8>, i32> {
        let mut bytes = 0;
        // SAFETY: the pointer is valid.
        match unsafe { (self.functions.code_size)(self.raw, &mut bytes) } {
            0 => {}
            code => return Err(code),
        }
        let mut binary = vec![0u8; bytes];
        // SAFETY: there is room for as many bytes as the compiler said.
        match unsafe { (self.functions.code)(self.raw, binary.as_mut_ptr().cast()) } {
            0 => Ok(binary),
            code => Err(code),
        }
    }
}

impl Drop for Compilation<'_> {
    fn drop(&mut self) {
        if self.raw != 0 {
            // SAFETY: nobody else has the program.
            unsafe { (self.functions.destroy)(&mut self.raw) };
        }
    }
}
