//! Runtime compilers for the vendors' C++: hiprtc and NVRTC, separate libraries whose functions are the same under two names.

use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::Mutex;

use panoply_device::{Error, ErrorKind, Result, SourceText};

use super::program::{LOG_BYTES, refusal, source};
use crate::library::{Handle, Opened, Words, functions};
use crate::lock::locked;

functions! {
    /// A compiler's functions; the vendors' documentation describes them. AMD's lacks the optional ones.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code))]
    Rtc
    needed {
        create(
            *mut Handle, *const c_char, *const c_char, i32, *const *const c_char, *const *const c_char,
        ) "nvrtcCreateProgram" "hiprtcCreateProgram";
        compile(Handle, i32, *const *const c_char) "nvrtcCompileProgram" "hiprtcCompileProgram";
        log_size(Handle, *mut usize) "nvrtcGetProgramLogSize" "hiprtcGetProgramLogSize";
        log(Handle, *mut c_char) "nvrtcGetProgramLog" "hiprtcGetProgramLog";
        code_size(Handle, *mut usize) "nvrtcGetPTXSize" "hiprtcGetCodeSize";
        code(Handle, *mut c_char) "nvrtcGetPTX" "hiprtcGetCode";
        destroy(*mut Handle) "nvrtcDestroyProgram" "hiprtcDestroyProgram";
    }
    optional {
        architecture_count(*mut i32) "nvrtcGetNumSupportedArchs";
        architectures(*mut i32) "nvrtcGetSupportedArchs";
    }
}

/// Names and messages that differ between the compilers.
pub struct Rtcs {
    /// File names and messages of the library.
    pub words: Words,
    /// The name in messages.
    pub name: &'static str,
    /// The remedy that installs a newer version.
    pub update: &'static str,
    /// The file name of sources in its log.
    pub file: &'static std::ffi::CStr,
}

/// A runtime compiler.
pub struct Compiler {
    kind: &'static Rtcs,
    functions: Rtc,
    /// Never closed; `None` if the driver's library contains the compiler's functions, as before ROCm 7.
    _library: Option<Opened>,
    /// Old versions do not guarantee that two threads can compile at once.
    one_at_a_time: Mutex<()>,
}

impl Compiler {
    /// Returns the compiler in a driver's library, or in the library that the system finds.
    pub fn of(kind: &'static Rtcs, driver: &Opened) -> Result<Compiler> {
        let one_at_a_time = Mutex::default();
        if let Ok(functions) = Rtc::find(driver, &kind.words) {
            return Ok(Compiler { kind, functions, _library: None, one_at_a_time });
        }
        let library = Opened::open(&kind.words, None)?;
        let functions = Rtc::find(&library, &kind.words)?;
        Ok(Compiler { kind, functions, _library: Some(library), one_at_a_time })
    }

    /// Returns the compute capabilities that it compiles for, in NVIDIA's counting; empty if it does not report them.
    #[cfg(feature = "cuda")]
    pub fn architectures(&self) -> Vec<i32> {
        let Rtc { architecture_count: Some(count), architectures: Some(list), .. } = &self.functions else {
            return Vec::new();
        };
        let mut length = 0;
        // SAFETY: the pointer is valid.
        let known = unsafe { count(&mut length) };
        let mut found = vec![0; if known == 0 { length.max(0) as usize } else { 0 }];
        // SAFETY: the buffer has the length that the compiler reported.
        let listed = found.is_empty() || unsafe { list(found.as_mut_ptr()) } == 0;
        if listed { found } else { Vec::new() }
    }

    /// Compiles a text with these options, which must name an architecture that the compiler supports: some versions of hiprtc abort the
    /// process for others.
    pub fn compile(&self, label: &str, options: &[&str], text: &SourceText) -> Result<Vec<u8>> {
        let (entry, kind) = (&text.entry, self.kind);
        let source = source(label, text)?;
        let options: Vec<CString> = options.iter().map(|option| CString::new(*option).unwrap_or_default()).collect();
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let _only = locked(&self.one_at_a_time);
        let mut program = Compilation { raw: 0, functions: &self.functions };
        let failed = |doing: &str, code: i32| {
            let Rtcs { name, update, .. } = kind;
            Error::new(ErrorKind::Driver, format!("{label}: {doing} {entry}: {name} returned {code}; {update}"))
        };
        // SAFETY: the strings are zero-terminated and live as long as the program; there are no headers.
        let code = unsafe {
            let (name, none) = (kind.file.as_ptr(), ptr::null());
            (self.functions.create)(&mut program.raw, source.as_ptr(), name, 0, none, none)
        };
        if code != 0 {
            return Err(failed("reading", code));
        }
        // SAFETY: the number of options is passed, and each is zero-terminated.
        let code = unsafe { (self.functions.compile)(program.raw, pointers.len() as i32, pointers.as_ptr()) };
        if code != 0 {
            let failure = failed("compiling", code);
            return Err(refusal(label, kind.name, entry, &program.log(), failure.message()));
        }
        program.code().map_err(|code| failed("compiling", code))
    }
}

/// A program object of the compiler.
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
        // SAFETY: the buffer has the size that the compiler reported.
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
        // SAFETY: the buffer has the size that the compiler reported.
        match unsafe { (self.functions.code)(self.raw, binary.as_mut_ptr().cast()) } {
            0 => Ok(binary),
            code => Err(code),
        }
    }
}

impl Drop for Compilation<'_> {
    fn drop(&mut self) {
        if self.raw != 0 {
            // SAFETY: this is the only reference to the program.
            unsafe { (self.functions.destroy)(&mut self.raw) };
        }
    }
}
