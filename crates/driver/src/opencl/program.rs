//! Compiles source text or a binary to a kernel.

use std::ffi::CString;
use std::ptr;
use std::sync::{Arc, Mutex};

use cl3::error_codes::CL_INVALID_VALUE;
use cl3::info_type::InfoType;
use cl3::kernel::{
    CL_KERNEL_ARG_ADDRESS_CONSTANT, CL_KERNEL_ARG_ADDRESS_GLOBAL, CL_KERNEL_ARG_ADDRESS_LOCAL,
    CL_KERNEL_ARG_ADDRESS_PRIVATE, CL_KERNEL_ARG_ADDRESS_QUALIFIER, CL_KERNEL_NUM_ARGS, create_kernel,
    get_kernel_arg_info, get_kernel_info,
};
use cl3::program::{
    CL_PROGRAM_BINARIES, CL_PROGRAM_BUILD_LOG, CL_PROGRAM_KERNEL_NAMES, CL_PROGRAM_NUM_KERNELS, build_program,
    create_program_with_binary, create_program_with_il, create_program_with_source, get_program_build_data,
    get_program_data, get_program_info,
};
use cl3::types::{cl_device_id, cl_program};
use panoply_device::{
    BinaryFormat, Error, ErrorKind, Image, Language, ParamType, Program as DeviceProgram, ProgramForm, Result,
    Signature, SourceText,
};

use super::errors::{ErrorPhase, is_rejection};
use super::handles::{Context, KernelHandle, ProgramHandle, Shared};
use super::info::build_options;
use super::kernel::{Kernel, argument_count};
use super::query::text;
use crate::binary_checksum;
use crate::spirv::assemble;
use crate::spirv_words::words;

/// A built program and its single entry point.
pub struct Program {
    /// Name of the entry point.
    pub entry: String,
    /// Signature of the entry point.
    pub signature: Signature,
    /// The kernel; its arguments are set only while holding the lock.
    pub kernel: Mutex<Kernel>,
    handle: ProgramHandle,
}

/// Context and options for building programs.
pub struct Builder<'a> {
    /// The context of the programs.
    pub context: &'a Context,
    /// The device of the programs.
    pub device: cl_device_id,
    /// True if correctly rounded f32 division and square root can be requested.
    pub rounds: bool,
    /// Everything that a binary depends on besides its source text.
    pub made_for: &'a str,
    /// Program forms that the device accepts.
    pub takes: &'a [ProgramForm],
}

/// Returns the program forms that a device accepts whose generated programs are in this language.
pub fn takes(language: Language) -> Vec<ProgramForm> {
    let source = ProgramForm::Text(Language::OpenClC);
    match language {
        Language::SpirV => vec![ProgramForm::Text(language), ProgramForm::Image(BinaryFormat::SpirV), source],
        _ => vec![source],
    }
}

/// Number of bytes of a compiler's log that an error keeps.
const LOG_LIMIT: usize = 16 << 10;

impl Builder<'_> {
    /// Builds a program. If the driver rejects a binary, it is compiled from its source text.
    pub fn build(&self, program: &DeviceProgram) -> Result<Program> {
        let refused = || Err(program.rejected_by(&self.shared().label, self.takes));
        match program {
            DeviceProgram::Text(text) | DeviceProgram::Binary { text, .. }
                if !self.takes.contains(&ProgramForm::Text(text.language)) =>
            {
                refused()
            }
            DeviceProgram::Text(text) => self.compile_text(text),
            DeviceProgram::Binary { bytes, text } => self.take_binary(bytes, text).or_else(|_| self.compile_text(text)),
            DeviceProgram::Image(image) if self.takes.contains(&ProgramForm::Image(image.format)) => {
                if words(&image.bytes).is_none() {
                    return Err(self.damaged(image));
                }
                match create_program_with_il(self.context.raw(), &image.bytes) {
                    Err(CL_INVALID_VALUE) => Err(self.damaged(image)),
                    created => self.finish(created, Language::SpirV, &image.entry, &image.signature),
                }
            }
            DeviceProgram::Ir(_) | DeviceProgram::Image(_) | DeviceProgram::Host(_) => refused(),
        }
    }

    /// Returns the error for bytes that the driver does not recognize as SPIR-V.
    fn damaged(&self, image: &Image) -> Error {
        let (label, entry, bytes) = (&self.shared().label, &image.entry, image.bytes.len());
        let message = format!("{label}: {entry} as SPIR-V is truncated or damaged: {bytes} bytes; build it again");
        Error::new(ErrorKind::CompileFailed, message)
    }

    fn compile_text(&self, text: &SourceText) -> Result<Program> {
        let (label, context) = (&self.shared().label, self.context.raw());
        let created = match text.language {
            Language::SpirV => create_program_with_il(context, &assemble(label, text)?),
            // A length of 0 means that the text is zero-terminated, which this one is not.
            _ if text.source.is_empty() => create_program_with_source(context, &[" "]),
            _ => create_program_with_source(context, &[&text.source]),
        };
        self.finish(created, text.language, &text.entry, &text.signature)
    }

    fn take_binary(&self, bytes: &[u8], text: &SourceText) -> Result<Program> {
        let Some(bytes) = binary_checksum::open(bytes, self.made_for) else {
            return Err(Error::corrupt(format!(
                "{}: the binary of {} is damaged or was made for another target",
                self.shared().label,
                text.entry
            )));
        };
        // SAFETY: the device is the one of the context, and the bytes came from its driver.
        let created = unsafe { create_program_with_binary(self.context.raw(), &[self.device], &[bytes]) };
        self.finish(created, text.language, &text.entry, &text.signature)
    }

    /// Builds a created program and finds its entry point.
    fn finish(
        &self,
        created: Result<cl_program, i32>,
        language: Language,
        entry: &str,
        signature: &Signature,
    ) -> Result<Program> {
        let failed = |code| self.shared().failed(format_args!("compiling {entry}"), code, ErrorPhase::Asking);
        // SAFETY: the program was just created, and its reference is owned here.
        let handle = unsafe { ProgramHandle::own(created.map_err(failed)?, self.shared()) };
        // The argument types of handwritten programs are checked.
        let arguments = if signature.hidden { "" } else { " -cl-kernel-arg-info" };
        let options = format!("{}{arguments}", build_options(language, self.rounds));
        let options = CString::new(options.trim_start()).expect("build options contain no zero byte");
        if let Err(code) = build_program(handle.raw(), &[self.device], &options, None, ptr::null_mut()) {
            return Err(self.refused(&handle, failed(code), entry));
        }
        let kernel = self.entry_point(&handle, entry, signature)?;
        Ok(Program {
            entry: entry.to_string(),
            signature: signature.clone(),
            kernel: Mutex::new(Kernel::new(kernel, signature)),
            handle,
        })
    }

    /// Returns the error of a failed build: the compiler's rejection with its log, unless the program is not the reason.
    fn refused(&self, handle: &ProgramHandle, error: Error, entry: &str) -> Error {
        if !is_rejection(&error) {
            return error;
        }
        let log = get_program_build_data(handle.raw(), self.device, CL_PROGRAM_BUILD_LOG).unwrap_or_default();
        let mut log = text(&log);
        if log.len() > LOG_LIMIT {
            let end = (0..=LOG_LIMIT).rev().find(|at| log.is_char_boundary(*at)).unwrap_or(0);
            log.truncate(end);
            log.push_str("\n(log truncated)");
        }
        let label = &self.shared().label;
        let refusal = Error::new(
            ErrorKind::CompileFailed,
            format!("{label}: the driver's compiler refused {entry}; its log follows"),
        );
        refusal.note(if log.is_empty() { error.message().to_string() } else { log })
    }

    fn entry_point(&self, handle: &ProgramHandle, entry: &str, signature: &Signature) -> Result<KernelHandle> {
        let label = &self.shared().label;
        let wrong = |what: String| Error::new(ErrorKind::CompileFailed, format!("{label}: {what}"));
        let name = CString::new(entry)
            .map_err(|_| wrong(format!("{entry:?} is not a valid name; it contains a zero byte")))?;
        let kernel = create_kernel(handle.raw(), &name).map_err(|code| {
            let error = self.shared().failed(format_args!("creating the kernel {entry}"), code, ErrorPhase::Asking);
            if !is_rejection(&error) {
                return error;
            }
            // If there are no kernels, some drivers write no names but report success.
            let count = get_program_info(handle.raw(), CL_PROGRAM_NUM_KERNELS);
            let any = !matches!(count, Ok(InfoType::Size(0)));
            let names = any.then(|| get_program_data(handle.raw(), CL_PROGRAM_KERNEL_NAMES).unwrap_or_default());
            let names = text(&names.unwrap_or_default());
            let names = if names.is_empty() { "none".to_string() } else { names.replace(';', ", ") };
            wrong(format!("the program has no kernel {entry}; it has: {names}"))
        })?;
        // SAFETY: the kernel was just created, and its reference is owned here.
        let kernel = unsafe { KernelHandle::own(kernel, self.shared()) };
        let (takes, given) = (get_kernel_info(kernel.raw(), CL_KERNEL_NUM_ARGS), argument_count(signature));
        match takes {
            Ok(InfoType::Uint(takes)) if takes as usize != given => Err(wrong(format!(
                "kernel {entry} takes {takes} arguments, its signature gives {given}; make them agree"
            ))),
            _ => self.check_arguments(kernel, entry, signature),
        }
    }

    /// Checks that arguments are buffers or numbers as the signature says: the driver would dereference a number that is passed as a
    /// buffer. Few drivers keep argument information unless the build option requests it.
    fn check_arguments(&self, kernel: KernelHandle, entry: &str, signature: &Signature) -> Result<KernelHandle> {
        if signature.hidden {
            return Ok(kernel);
        }
        for (position, param) in signature.params.iter().enumerate() {
            let asked = get_kernel_arg_info(kernel.raw(), position as u32, CL_KERNEL_ARG_ADDRESS_QUALIFIER);
            let Ok(InfoType::Uint(space)) = asked else { continue };
            let is_buffer = matches!(param, ParamType::Buffer(_));
            let (takes, fits) = match space {
                CL_KERNEL_ARG_ADDRESS_GLOBAL | CL_KERNEL_ARG_ADDRESS_CONSTANT => ("a buffer", is_buffer),
                CL_KERNEL_ARG_ADDRESS_LOCAL => ("local memory", false),
                CL_KERNEL_ARG_ADDRESS_PRIVATE => ("a number", !is_buffer),
                _ => continue,
            };
            if !fits {
                let (label, gives) = (&self.shared().label, if is_buffer { "a buffer" } else { "a number" });
                let number = position + 1;
                let message = format!(
                    "{label}: argument {number} of {entry} is {takes}, its signature gives {gives}; make them agree"
                );
                return Err(Error::new(ErrorKind::CompileFailed, message));
            }
        }
        Ok(kernel)
    }

    fn shared(&self) -> &Arc<Shared> {
        self.context.shared()
    }
}

impl Program {
    /// Returns the compiled program in the driver's own format, with a checksum.
    pub fn binary(&self, made_for: &str) -> Option<Vec<u8>> {
        match get_program_info(self.handle.raw(), CL_PROGRAM_BINARIES) {
            Ok(InfoType::VecVecUchar(binaries)) => {
                let bytes = binaries.into_iter().next().filter(|bytes| !bytes.is_empty())?;
                Some(binary_checksum::seal(&bytes, made_for))
            }
            _ => None,
        }
    }
}
