//! Compilers of the vendors' C++ that are libraries of their own: hiprtc and NVRTC, whose functions are the same under two names.

use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::Mutex;

use panoply_device::{Error, ErrorKind, Result, SourceText};

use super::program::{LOG_BYTES, refusal, source};
use crate::library::{Handle, Opened, Words, functions};
use crate::lock::locked;

functions! {
    /// A compiler's functions; each is what the vendors' documentation says. AMD's lacks the optional ones.
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

/// What differs between the compilers.
pub struct Rtcs {
    /// How the library is found.
    pub words: Words,
    /// What it is called in a sentence.
    pub name: &'static str,
    /// Who brings newer versions.
    pub update: &'static str,
    /// What sources are called in its log.
    pub file: &'static std::ffi::CStr,
}

/// The compiler.
pub struct Compiler {
    kind: &'static Rtcs,
    functions: Rtc,
    /// Never closed; none if the driver's library has the compiler's functions itself, as before ROCm 7.
    _library: Option<Opened>,
    /// Old versions do not promise that two threads may compile at once.
    one_at_a_time: Mutex<()>,
}

impl Compiler {
    /// The compiler of a driver's library, or the one the system finds.
    pub fn of(kind: &'static Rtcs, driver: &Opened) -> Result<Compiler> {
        let one_at_a_time = Mutex::default();
        if let Ok(functions) = Rtc::find(driver, &kind.words) {
            return Ok(Compiler { kind, functions, _library: None, one_at_a_time });
        }
        let library = Opened::open(&kind.words, None)?;
        let functions = Rtc::find(&library, &kind.words)?;
        Ok(Compiler { kind, functions, _library: Some(library), one_at_a_time })
    }

    /// The architectures it compiles for, as NVIDIA counts; none if it does not say.
    #[cfg(feature = "cuda")]
    pub fn architectures(&self) -> Vec<i32> {
        let Rtc { architecture_count: Some(count), architectures: Some(list), .. } = &self.functions else {
            return Vec::new();
        };
        let mut length = 0;
        // SAFETY: the pointer is valid.
        let known = unsafe { count(&mut length) };
        let mut found = vec![0; if known == 0 { length.max(0) as usize } else { 0 }];
        // SAFETY: there is room for as many as the compiler said.
        let listed = found.is_empty() || unsafe { list(found.as_mut_ptr()) } == 0;
        if listed { found } else { Vec::new() }
    }

    /// What a text becomes with these options, which must name an architecture that the compiler knows: some versions of hiprtc end the
    /// process over others.
    pub fn compile(&self, label: &str, options: &[&str], text: &SourceText) -> Result<Vec<u8>> {
        let (entry, kind) = (&text.entry, self.kind);
        let source = source(label, text)?;
        let options: Vec<CString> = options.iter().map(|option| CString::new(*option).unwrap_or_default()).collect();
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let _only = locked(&self.one_at_a_time);
        let mut program = Compilation { raw: 0, functions: &self.functions };
        let failed = |doing: &str, code: i32| {
            let Rtcs { name, update, .. } = kind;
            Error::new(ErrorKind::Driver, format!("{label}: {doing} {entry}: {name} answers {code}; {update}"))
        };
        // SAFETY: the texts end in zero bytes and live as long as the program; there are no headers.
        let code = unsafe {
            let (name, none) = (kind.file.as_ptr(), ptr::null());
            (self.functions.create)(&mut program.raw, source.as_ptr(), name, 0, none, none)
        };
        if code != 0 {
            return Err(failed("taking", code));
        }
        // SAFETY: there are as many options as said, each ending in a zero byte.
        let code = unsafe { (self.functions.compile)(program.raw, pointers.len() as i32, pointers.as_ptr()) };
        if code != 0 {
            let failure = failed("compiling", code);
            return Err(refusal(label, kind.name, entry, &program.log(), failure.message()));
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
