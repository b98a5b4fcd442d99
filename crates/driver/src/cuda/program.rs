//! PTX or a compiled module to a function that can be launched.
//!
//! The driver's linker compiles the text, because it gives the machine code, which a disk cache can keep.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

use panoply_device::{Error, ErrorKind, Language, Program as Given, Result, Signature, SourceText};

use super::api::{Handle, check};
use super::handles::{Context, Module};
use crate::seal;

/// Numbers of `CUjit_option` and `CUjitInputType` in NVIDIA's header.
const ERROR_LOG: i32 = 5;
const ERROR_LOG_BYTES: i32 = 6;
const INPUT_PTX: i32 = 1;
/// Characters of the compiler's log that an error keeps.
const LOG_BYTES: usize = 16 << 10;

/// A module and its one entry point.
pub struct Program {
    /// What the entry point is called.
    pub entry: String,
    /// How it is called.
    pub signature: Signature,
    /// The entry point, which lives as long as the module.
    pub function: Handle,
    binary: Vec<u8>,
    _module: Module,
}

/// Where programs are made.
pub struct Builder<'a> {
    /// Where they live.
    pub context: &'a Arc<Context>,
    /// What a binary depends on besides its text.
    pub made_for: &'a str,
}

impl Builder<'_> {
    /// Makes a program ready. A binary the driver does not take is compiled from its text.
    pub fn build(&self, program: &Given) -> Result<Program> {
        let label = &self.context.label;
        match program {
            Given::Text(text) => self.compile(text),
            Given::Binary { bytes, text } => match seal::open(bytes, self.made_for) {
                Some(binary) => self.load(binary, text).or_else(|_| self.compile(text)),
                None => self.compile(text),
            },
            Given::Ir(kernel) => Err(Error::unsupported(format!(
                "{label}: takes PTX, not the kernel {} itself; render it first",
                kernel.name
            ))),
        }
    }

    fn compile(&self, text: &SourceText) -> Result<Program> {
        let (label, entry) = (&self.context.label, &text.entry);
        if !matches!(text.language, Language::Ptx { .. }) {
            return Err(Error::unsupported(format!("{label}: takes PTX, {entry} is {:?}", text.language)));
        }
        let source = CString::new(text.source.as_str())
            .map_err(|_| Error::new(ErrorKind::Build, format!("{label}: the text of {entry} holds a zero byte")))?;
        let mut log = vec![0u8; LOG_BYTES];
        let options = [ERROR_LOG, ERROR_LOG_BYTES];
        // The linker reads these as long as it lives, and writes the length of the log over the second.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(LOG_BYTES)];
        let mut link = Link { raw: 0, context: self.context };
        // SAFETY: the arrays have two elements, and the log outlives the link.
        self.context.ask(format_args!("compiling {entry}"), |api| unsafe {
            (api.cuLinkCreate_v2)(2, options.as_ptr(), values.as_mut_ptr().cast_const(), &mut link.raw)
        })?;
        let bytes = source.as_bytes_with_nul();
        let (mut image, mut length) = (ptr::null(), 0);
        let linked = self.context.ask(format_args!("compiling {entry}"), |api| {
            // SAFETY: the text outlives the call; there are no options.
            let added = unsafe {
                let (start, none) = (bytes.as_ptr().cast(), ptr::null());
                (api.cuLinkAddData_v2)(
                    link.raw,
                    INPUT_PTX,
                    start,
                    bytes.len(),
                    c"kernel".as_ptr(),
                    0,
                    none,
                    ptr::null(),
                )
            };
            // SAFETY: the pointers are valid.
            if added == 0 { unsafe { (api.cuLinkComplete)(link.raw, &mut image, &mut length) } } else { added }
        });
        linked.map_err(|error| self.refused(error, entry, &log))?;
        // SAFETY: the linker gave the address and length of what it made, which lives as long as the link.
        let binary = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), length) };
        self.load(binary, text)
    }

    /// A compilation's failure: the compiler's refusal with its log, unless something else is wrong.
    fn refused(&self, error: Error, entry: &str, log: &[u8]) -> Error {
        if !error.is_build() {
            return error;
        }
        let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
        let log = String::from_utf8_lossy(&log[..end]).trim().to_string();
        let label = &self.context.label;
        let refusal =
            Error::new(ErrorKind::Build, format!("{label}: the driver's compiler refused {entry}; its log follows"));
        refusal.note(if log.is_empty() { error.message().to_string() } else { log })
    }

    /// Loads machine code and finds its entry point.
    fn load(&self, binary: &[u8], text: &SourceText) -> Result<Program> {
        let (label, entry) = (&self.context.label, &text.entry);
        let mut raw = 0;
        // SAFETY: the image came from this driver's linker, whole.
        self.context.ask(format_args!("loading {entry}"), |api| unsafe {
            (api.cuModuleLoadData)(&mut raw, binary.as_ptr().cast())
        })?;
        let module = Module { raw, context: self.context.clone() };
        let wrong = |what: &str| Error::new(ErrorKind::Build, format!("{label}: {what}"));
        let name = CString::new(entry.as_str()).map_err(|_| wrong("the entry point's name holds a zero byte"))?;
        let mut function = 0;
        let _current = self.context.enter()?;
        // SAFETY: the pointers are valid and the module is live.
        let found = check(unsafe { (self.context.api.cuModuleGetFunction)(&mut function, module.raw, name.as_ptr()) });
        found.map_err(|_| wrong(&format!("the program has no entry point {entry}")))?;
        Ok(Program {
            entry: entry.clone(),
            signature: text.signature.clone(),
            function,
            binary: binary.to_vec(),
            _module: module,
        })
    }
}

impl Program {
    /// The machine code, sealed.
    pub fn binary(&self, made_for: &str) -> Vec<u8> {
        seal::seal(&self.binary, made_for)
    }
}

/// A linker at work.
struct Link<'a> {
    raw: Handle,
    context: &'a Context,
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        if self.raw != 0 {
            // SAFETY: nobody else has the link.
            let _ = self.context.ask("compiling", |api| unsafe { (api.cuLinkDestroy)(self.raw) });
        }
    }
}
