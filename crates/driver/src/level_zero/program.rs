//! Text or binary to a kernel that can be launched.

use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::{Arc, Mutex};

use panoply_device::{Error, ErrorKind, Language, Program as Given, Result, Signature, SourceText};

use super::api::{KernelDescription, ModuleDescription};
use super::device::Context;
use super::errors::{CODES, REFUSED};
use crate::library::{Handle, check};
use crate::seal;
use crate::spirv::assemble;

/// Forms of a module: Khronos' and the driver's own.
const SPIRV: u32 = 0;
const NATIVE: u32 = 1;

/// A module and its one kernel.
pub struct Program {
    /// What the kernel is called.
    pub entry: String,
    /// How it is called.
    pub signature: Signature,
    /// Its arguments and group belong to whoever holds the lock.
    pub kernel: Mutex<Handle>,
    module: Handle,
    context: Arc<Context>,
}

impl Program {
    /// Makes a program ready. A binary that the driver does not take is made of its text.
    pub fn build(context: &Arc<Context>, program: &Given) -> Result<Program> {
        match program {
            Given::Text(text) => Program::compile(context, text),
            Given::Binary { bytes, text } => match seal::open(bytes, &context.made_for) {
                Some(binary) => {
                    Program::load(context, NATIVE, binary, text).or_else(|_| Program::compile(context, text))
                }
                None => Program::compile(context, text),
            },
            Given::Ir(kernel) => Err(Error::unsupported(format!(
                "{}: takes SPIR-V, not the kernel {} itself; render it first",
                context.label, kernel.name
            ))),
        }
    }

    fn compile(context: &Arc<Context>, text: &SourceText) -> Result<Program> {
        if text.language != Language::SpirV {
            let (label, entry, language) = (&context.label, &text.entry, text.language);
            return Err(Error::unsupported(format!("{label}: takes SPIR-V, {entry} is {language:?}")));
        }
        Program::load(context, SPIRV, &assemble(&context.label, text)?, text)
    }

    fn load(context: &Arc<Context>, format: u32, input: &[u8], text: &SourceText) -> Result<Program> {
        // What Intel's compiler takes from OpenCL it takes here too.
        let flags = if context.rounds { c"-cl-fp32-correctly-rounded-divide-sqrt" } else { c"" };
        let description = ModuleDescription {
            format,
            bytes: input.len(),
            input: input.as_ptr(),
            flags: flags.as_ptr(),
            ..ModuleDescription::new()
        };
        let (mut module, mut log) = (0, 0);
        // SAFETY: context and device are live, and all that the description points at outlives the call.
        let code = unsafe {
            (context.functions.module_create)(context.raw, context.device, &description, &mut module, &mut log)
        };
        let words = context.log(log);
        check(code).map_err(|code| context.refused(code, &text.entry, words))?;
        let mut program = Program {
            entry: text.entry.clone(),
            signature: text.signature.clone(),
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
        let wrong = |what: String| Error::new(ErrorKind::Build, format!("{label}: {what}"));
        let name =
            CString::new(entry.as_str()).map_err(|_| wrong(format!("{entry:?} is no name; it holds a zero byte")))?;
        let description = KernelDescription { name: name.as_ptr(), ..KernelDescription::new() };
        let mut kernel = 0;
        // SAFETY: the module is live, and the name outlives the call.
        let found = check(unsafe { (self.context.functions.kernel_create)(self.module, &description, &mut kernel) });
        found.map_err(|_| wrong(format!("the program has no entry point {entry}")))?;
        Ok(kernel)
    }

    /// What the compiler made of it, in the driver's own format, sealed.
    pub fn binary(&self) -> Option<Vec<u8>> {
        let ask = self.context.functions.module_binary;
        let mut bytes = 0;
        // SAFETY: the module is live, and no bytes are asked for.
        check(unsafe { ask(self.module, &mut bytes, ptr::null_mut()) }).ok()?;
        let mut binary = vec![0; bytes];
        // SAFETY: as above, and there is room for as many as were told.
        check(unsafe { ask(self.module, &mut bytes, binary.as_mut_ptr()) }).ok()?;
        binary.truncate(bytes);
        (!binary.is_empty()).then(|| seal::seal(&binary, &self.context.made_for))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let kernel = *self.kernel.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        // SAFETY: nobody else has them, and no work is under way; a kernel that was never found is no handle.
        unsafe {
            if kernel != 0 {
                (self.context.functions.kernel_destroy)(kernel);
            }
            (self.context.functions.module_destroy)(self.module);
        }
    }
}

impl Context {
    /// What a build log says; it is given back.
    fn log(&self, log: Handle) -> String {
        if log == 0 {
            return String::new();
        }
        let mut bytes = 0;
        // SAFETY: the log is live and ours; room is made for as many bytes as it tells.
        unsafe {
            (self.functions.log_text)(log, &mut bytes, ptr::null_mut());
            let mut text = vec![0u8; bytes];
            (self.functions.log_text)(log, &mut bytes, text.as_mut_ptr());
            (self.functions.log_destroy)(log);
            CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().trim().to_string()
        }
    }

    /// A module's failure: the compiler's refusal with its log, unless the device or the memory is gone.
    fn refused(&self, code: i32, entry: &str, log: String) -> Error {
        let error = CODES.failed(format_args!("{}: compiling {entry}", self.label), code);
        if !REFUSED.contains(&code) {
            return error;
        }
        let refusal = format!("{}: the driver's compiler refused {entry}; its log follows", self.label);
        Error::new(ErrorKind::Build, refusal).note(if log.is_empty() { error.message().to_string() } else { log })
    }
}
