//! Compiles source text or loads machine code to a function that can be launched.

use std::ffi::CString;
use std::sync::Arc;

use panoply_device::{Error, ErrorKind, Image, Program as DeviceProgram, ProgramForm, Result, Signature, SourceText};

use super::handles::{Context, Module};
use crate::binary_checksum;
use crate::library::{Handle, check};

/// Maximum number of bytes of a compiler's log that an error keeps.
pub const LOG_BYTES: usize = 16 << 10;

/// A module and its single entry point.
pub struct Program {
    /// Name of the entry point.
    pub entry: String,
    /// Signature of the entry point.
    pub signature: Signature,
    /// Handle of the entry point, which lives as long as the module.
    pub function: Handle,
    binary: Vec<u8>,
    _module: Module,
}

/// Context for building programs.
pub struct Builder<'a> {
    /// The context of the programs.
    pub context: &'a Arc<Context>,
    /// Everything that a binary depends on besides its source text.
    pub made_for: &'a str,
}

impl Builder<'_> {
    /// Builds a program. If the driver rejects a binary, it is compiled from its source text.
    pub fn build(&self, program: &DeviceProgram) -> Result<Program> {
        let takes = self.context.api.brand().takes;
        if !program.form().is_some_and(|form| takes.iter().any(|taken| taken.is_like(form))) {
            return Err(program.rejected_by(&self.context.label, takes));
        }
        match program {
            DeviceProgram::Text(text) => self.compile(text),
            DeviceProgram::Binary { bytes, text } => match binary_checksum::open(bytes, self.made_for) {
                Some(binary) => self.load(binary, &text.entry, &text.signature).or_else(|_| self.compile(text)),
                None => self.compile(text),
            },
            DeviceProgram::Image(image) => {
                self.load(&whole(image, &self.context.label)?, &image.entry, &image.signature)
            }
            DeviceProgram::Ir(_) | DeviceProgram::Host(_) => Err(program.rejected_by(&self.context.label, takes)),
        }
    }

    fn compile(&self, text: &SourceText) -> Result<Program> {
        let binary = self.context.api.vendor.compile(self.context, text)?;
        self.load(&binary, &text.entry, &text.signature)
    }

    /// Loads machine code and finds its entry point.
    fn load(&self, binary: &[u8], entry: &str, signature: &Signature) -> Result<Program> {
        let label = &self.context.label;
        let mut raw = 0;
        // SAFETY: the image came from this driver's compiler, or its author is responsible for it; it is complete.
        self.context.ask(format_args!("loading {entry}"), |functions| unsafe {
            (functions.module_load)(&mut raw, binary.as_ptr().cast())
        })?;
        let module = Module { raw, context: self.context.clone() };
        let wrong = |what: &str| Error::new(ErrorKind::CompileFailed, format!("{label}: {what}"));
        let name = CString::new(entry).map_err(|_| wrong("the entry point's name contains a zero byte"))?;
        let mut function = 0;
        let _current = self.context.enter()?;
        let functions = &self.context.api.functions;
        // SAFETY: the pointers are valid and the module is live.
        let found = check(unsafe { (functions.module_function)(&mut function, module.raw, name.as_ptr()) });
        found.map_err(|_| wrong(&format!("the program has no entry point {entry}")))?;
        Ok(Program {
            entry: entry.to_string(),
            signature: signature.clone(),
            function,
            binary: binary.to_vec(),
            _module: module,
        })
    }
}

impl Program {
    /// Returns the machine code with a checksum.
    pub fn binary(&self, made_for: &str) -> Vec<u8> {
        binary_checksum::seal(&self.binary, made_for)
    }
}

/// Magic number of NVIDIA's fat binaries.
const FAT: &[u8; 4] = &0xBA55_ED50_u32.to_le_bytes();

/// Number of zero bytes appended to a user's image, for drivers that search for its end.
const MARGIN: usize = 64;

/// Returns an image's bytes if they are complete according to the image's own header: drivers are not passed their number.
fn whole(image: &Image, label: &str) -> Result<Vec<u8>> {
    let bytes = &image.bytes;
    let number = |at: usize, count: usize| {
        let word = bytes.get(at..at + count)?;
        Some(word.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte)))
    };
    let end = |table: usize, size: usize, count: usize| {
        number(size, 2)?.checked_mul(number(count, 2)?)?.checked_add(number(table, 8)?)
    };
    let ends = || match bytes.first_chunk() {
        // Program and section headers, as in every 64-bit ELF file.
        Some(b"\x7FELF") => Some(end(32, 54, 56)?.max(end(40, 58, 60)?)),
        // A header, and the number of bytes after it.
        Some(FAT) => number(6, 2)?.checked_add(number(8, 8)?),
        Some(_) | None => Some(1),
    };
    if ends().is_none_or(|end| end > bytes.len() as u64) {
        let (form, entry) = (ProgramForm::Image(image.format).name(), &image.entry);
        let message = format!("{label}: {entry} as {form} is truncated to {} bytes; build it again", bytes.len());
        return Err(Error::new(ErrorKind::CompileFailed, message));
    }
    Ok([bytes, &[0; MARGIN][..]].concat())
}

/// Returns the source text as a C string.
pub fn source(label: &str, text: &SourceText) -> Result<CString> {
    let refused =
        |_| Error::new(ErrorKind::CompileFailed, format!("{label}: the source of {} contains a zero byte", text.entry));
    CString::new(text.source.as_str()).map_err(refused)
}

/// Returns the error for a compiler's rejection with its log as a note, or with `failure` if the log is empty.
pub fn refusal(label: &str, compiler: &str, entry: &str, log: &[u8], failure: &str) -> Error {
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let log = String::from_utf8_lossy(&log[..end]).trim().to_string();
    let refusal = Error::new(ErrorKind::CompileFailed, format!("{label}: {compiler} refused {entry}; its log follows"));
    refusal.note(if log.is_empty() { failure.to_string() } else { log })
}
