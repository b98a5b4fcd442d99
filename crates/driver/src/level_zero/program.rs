//! Compiles source text or a binary to a kernel.

use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::{Arc, Mutex};

use panoply_device::{
    BinaryFormat, Error, ErrorKind, Language, Program as DeviceProgram, ProgramForm, Result, Signature, SourceText,
};

use super::api::{KernelDescription, ModuleDescription};
use super::device::Context;
use super::errors::{CODES, REFUSED};
use crate::binary_checksum;
use crate::library::{Handle, check};
use crate::spirv::assemble;
use crate::spirv_words::words;

/// Formats of a module: SPIR-V and the driver's native format.
const SPIRV: u32 = 0;
const NATIVE: u32 = 1;

/// Program forms that the device accepts.
pub const TAKES: &[ProgramForm] = &[ProgramForm::Text(Language::SpirV), ProgramForm::Image(BinaryFormat::SpirV)];

/// A module and its one kernel.
pub struct Program {
    /// Name of the entry point.
    pub entry: String,
    /// Signature of the entry point.
    pub signature: Signature,
    /// The kernel; its arguments and work-group size are set only while holding the lock.
    pub kernel: Mutex<Handle>,
    module: Handle,
    context: Arc<Context>,
}

impl Program {
    /// Builds a program. If the driver rejects a binary, it is compiled from its source text.
    pub fn build(context: &Arc<Context>, program: &DeviceProgram) -> Result<Program> {
        let text = |text: &SourceText| {
            let words = assemble(&context.label, text)?;
            Program::load(context, SPIRV, &words, &text.entry, &text.signature)
        };
        match program {
            DeviceProgram::Text(given) if given.language == Language::SpirV => text(given),
            DeviceProgram::Binary { bytes, text: given } if given.language == Language::SpirV => {
                let binary = binary_checksum::open(bytes, &context.made_for);
                let load = |binary| Program::load(context, NATIVE, binary, &given.entry, &given.signature);
                binary.and_then(|binary| load(binary).ok()).map_or_else(|| text(given), Ok)
            }
            DeviceProgram::Image(image) if image.format == BinaryFormat::SpirV => {
                if words(&image.bytes).is_none() {
                    let (label, entry, bytes) = (&context.label, &image.entry, image.bytes.len());
                    let message =
                        format!("{label}: {entry} as SPIR-V is truncated or damaged: {bytes} bytes; build it again");
                    return Err(Error::new(ErrorKind::CompileFailed, message));
                }
                Program::load(context, SPIRV, &image.bytes, &image.entry, &image.signature)
            }
            DeviceProgram::Text(_)
            | DeviceProgram::Binary { .. }
            | DeviceProgram::Image(_)
            | DeviceProgram::Ir(_)
            | DeviceProgram::Host(_) => Err(program.rejected_by(&context.label, TAKES)),
        }
    }

    fn load(context: &Arc<Context>, format: u32, input: &[u8], entry: &str, signature: &Signature) -> Result<Program> {
        // Intel's compiler accepts OpenCL's build options here too.
        let flags = if context.rounds { c"-cl-fp32-correctly-rounded-divide-sqrt" } else { c"" };
        let description = ModuleDescription {
            format,
            bytes: input.len(),
            input: input.as_ptr(),
            flags: flags.as_ptr(),
            ..ModuleDescription::new()
        };
        let (mut module, mut log) = (0, 0);
        // SAFETY: context and device are live, and everything that the description points at outlives the call.
        let code = unsafe {
            (context.functions.module_create)(context.raw, context.device, &description, &mut module, &mut log)
        };
        let words = context.log(log);
        check(code).map_err(|code| context.refused(code, entry, words))?;
        let mut program = Program {
            entry: entry.to_string(),
            signature: signature.clone(),
            kernel: Mutex::new(0),
            module,
            context: context.clone(),
        };
        let kernel = program.find_kernel()?;
        *program.kernel.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner) = kernel;
        Ok(program)
    }

    fn find_kernel(&self) -> Result<Handle> {
        let (label, entry) = (&self.context.label, &self.entry);
        let wrong = |what: String| Error::new(ErrorKind::CompileFailed, format!("{label}: {what}"));
        let name = CString::new(entry.as_str())
            .map_err(|_| wrong(format!("{entry:?} is not a valid name; it contains a zero byte")))?;
        let description = KernelDescription { name: name.as_ptr(), ..KernelDescription::new() };
        let mut kernel = 0;
        // SAFETY: the module is live, and the name outlives the call.
        let found = check(unsafe { (self.context.functions.kernel_create)(self.module, &description, &mut kernel) });
        found.map_err(|_| wrong(format!("the program has no entry point {entry}")))?;
        Ok(kernel)
    }

    /// Returns the compiled module in the driver's native format, with a checksum.
    pub fn binary(&self) -> Option<Vec<u8>> {
        let ask = self.context.functions.module_binary;
        let mut bytes = 0;
        // SAFETY: the module is live, and only the size is requested.
        check(unsafe { ask(self.module, &mut bytes, ptr::null_mut()) }).ok()?;
        let mut binary = vec![0; bytes];
        // SAFETY: as above, and the buffer has the size that was reported.
        check(unsafe { ask(self.module, &mut bytes, binary.as_mut_ptr()) }).ok()?;
        binary.truncate(bytes);
        (!binary.is_empty()).then(|| binary_checksum::seal(&binary, &self.context.made_for))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let kernel = *self.kernel.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        // SAFETY: this is the only reference to them, and no command uses them; the handle of a kernel that was not found is 0.
        unsafe {
            if kernel != 0 {
                (self.context.functions.kernel_destroy)(kernel);
            }
            (self.context.functions.module_destroy)(self.module);
        }
    }
}

impl Context {
    /// Returns the text of a build log and destroys the log.
    fn log(&self, log: Handle) -> String {
        if log == 0 {
            return String::new();
        }
        let mut bytes = 0;
        // SAFETY: the log is live and owned here; the buffer has the size that was reported.
        unsafe {
            (self.functions.log_text)(log, &mut bytes, ptr::null_mut());
            let mut text = vec![0u8; bytes];
            (self.functions.log_text)(log, &mut bytes, text.as_mut_ptr());
            (self.functions.log_destroy)(log);
            CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().trim().to_string()
        }
    }

    /// Returns the error of a failed build: the compiler's rejection with its log, or the code's own error if its kind is another.
    fn refused(&self, code: i32, entry: &str, log: String) -> Error {
        let error = CODES.failed(format_args!("{}: compiling {entry}", self.label), code);
        if !REFUSED.contains(&code) {
            return error;
        }
        let refusal = format!("{}: the driver's compiler refused {entry}; its log follows", self.label);
        Error::new(ErrorKind::CompileFailed, refusal).note(if log.is_empty() {
            error.message().to_string()
        } else {
            log
        })
    }
}
