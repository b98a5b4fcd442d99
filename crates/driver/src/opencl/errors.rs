//! Maps OpenCL's error codes to [`ErrorKind`].

use cl3::error_codes::{
    CL_BUILD_PROGRAM_FAILURE, CL_COMPILE_PROGRAM_FAILURE, CL_COMPILER_NOT_AVAILABLE, CL_CONTEXT_TERMINATED_KHR,
    CL_DEVICE_NOT_AVAILABLE, CL_DEVICE_NOT_FOUND, CL_INVALID_BINARY, CL_INVALID_BUFFER_SIZE, CL_INVALID_BUILD_OPTIONS,
    CL_INVALID_COMMAND_QUEUE, CL_INVALID_CONTEXT, CL_INVALID_DEVICE, CL_INVALID_GLOBAL_WORK_SIZE,
    CL_INVALID_WORK_GROUP_SIZE, CL_INVALID_WORK_ITEM_SIZE, CL_LINK_PROGRAM_FAILURE, CL_MEM_OBJECT_ALLOCATION_FAILURE,
    CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES, CL_PLATFORM_NOT_FOUND_KHR, DLOPEN_FUNCTION_NOT_AVAILABLE,
    DLOPEN_RUNTIME_LOAD_FAILED, error_text,
};
use panoply_device::{Error, ErrorKind};

/// The code that NVIDIA's driver returns after a kernel accessed memory that it does not own.
const NVIDIA_FAULT: i32 = -9999;

/// The phase in which a code was returned, which decides the meaning of ambiguous codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorPhase {
    /// While creating or starting something: exhausted resources are an error of the request's size.
    Asking,
    /// While waiting for accepted work: exhausted resources mean that the device is lost.
    Waiting,
}

/// Returns the error for a code; `doing` names the device and the attempted operation.
pub fn failed(doing: impl std::fmt::Display, code: i32, when: ErrorPhase) -> Error {
    let kind = kind(code, when);
    let name = if code == NVIDIA_FAULT { "a kernel accessed memory that it does not own" } else { error_text(code) };
    Error::new(kind, format!("{doing}: {name} ({code}); {}", remedy(kind, code)))
}

/// Returns true if a failed build says that the compiler rejected the program, and not that memory ran out or the device is gone.
pub fn is_rejection(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::DeviceLost | ErrorKind::Unavailable)
}

fn kind(code: i32, when: ErrorPhase) -> ErrorKind {
    match code {
        CL_MEM_OBJECT_ALLOCATION_FAILURE | CL_OUT_OF_HOST_MEMORY | CL_INVALID_BUFFER_SIZE => ErrorKind::OutOfMemory,
        CL_OUT_OF_RESOURCES if when == ErrorPhase::Asking => ErrorKind::OutOfMemory,
        CL_OUT_OF_RESOURCES | NVIDIA_FAULT | CL_DEVICE_NOT_AVAILABLE | CL_CONTEXT_TERMINATED_KHR => {
            ErrorKind::DeviceLost
        }
        // Our handles are valid as long as we hold them, so these codes mean that the driver lost the device.
        CL_INVALID_COMMAND_QUEUE | CL_INVALID_CONTEXT | CL_INVALID_DEVICE => ErrorKind::DeviceLost,
        CL_BUILD_PROGRAM_FAILURE | CL_COMPILE_PROGRAM_FAILURE | CL_LINK_PROGRAM_FAILURE => ErrorKind::CompileFailed,
        CL_INVALID_BINARY | CL_INVALID_BUILD_OPTIONS => ErrorKind::CompileFailed,
        CL_INVALID_WORK_GROUP_SIZE | CL_INVALID_WORK_ITEM_SIZE | CL_INVALID_GLOBAL_WORK_SIZE => ErrorKind::Unsupported,
        CL_DEVICE_NOT_FOUND | CL_PLATFORM_NOT_FOUND_KHR | CL_COMPILER_NOT_AVAILABLE => ErrorKind::Unavailable,
        DLOPEN_RUNTIME_LOAD_FAILED | DLOPEN_FUNCTION_NOT_AVAILABLE => ErrorKind::Unavailable,
        _ => ErrorKind::Driver,
    }
}

fn remedy(kind: ErrorKind, code: i32) -> &'static str {
    match kind {
        ErrorKind::OutOfMemory if code == CL_OUT_OF_RESOURCES => "use smaller buffers, groups or shared arrays",
        ErrorKind::OutOfMemory => "free buffers or use smaller ones",
        ErrorKind::DeviceLost => "its buffers are gone; restart the program, and update the driver if it happens again",
        ErrorKind::Unsupported => "use a smaller group",
        ErrorKind::CompileFailed => "the notes hold the compiler's log",
        ErrorKind::Unavailable => "install or update the device's driver",
        ErrorKind::Driver | ErrorKind::Mistake | ErrorKind::Diverged | ErrorKind::Io | ErrorKind::Corrupt => {
            "update the driver or report this"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_map_to_kinds_and_messages() {
        let table = [
            (-4, ErrorPhase::Asking, ErrorKind::OutOfMemory),
            (-5, ErrorPhase::Asking, ErrorKind::OutOfMemory),
            (-5, ErrorPhase::Waiting, ErrorKind::DeviceLost),
            (-6, ErrorPhase::Waiting, ErrorKind::OutOfMemory),
            (-11, ErrorPhase::Asking, ErrorKind::CompileFailed),
            (-36, ErrorPhase::Asking, ErrorKind::DeviceLost),
            (-54, ErrorPhase::Asking, ErrorKind::Unsupported),
            (-61, ErrorPhase::Asking, ErrorKind::OutOfMemory),
            (-1001, ErrorPhase::Asking, ErrorKind::Unavailable),
            (-2000, ErrorPhase::Asking, ErrorKind::Unavailable),
            (-9999, ErrorPhase::Waiting, ErrorKind::DeviceLost),
            (-30, ErrorPhase::Asking, ErrorKind::Driver),
            (-123_456, ErrorPhase::Asking, ErrorKind::Driver),
        ];
        for (code, when, expected) in table {
            let error = failed("opencl:0: doing this", code, when);
            assert_eq!(error.kind(), expected, "{code} while {when:?}");
            assert!(error.message().starts_with("opencl:0: doing this: "), "{error}");
            assert!(error.message().contains(&format!("({code}); ")), "{error}");
        }
    }

    /// The error codes of `clBuildProgram` and `clCreateKernel` in section 5.8 of the OpenCL specification.
    #[test]
    fn only_the_program_is_rejected() {
        let build = |code| is_rejection(&failed("opencl:0: compiling f", code, ErrorPhase::Asking));
        for rejection in [-11, -15, -17, -42, -43, -44, -45, -46, -47] {
            assert!(build(rejection), "{rejection}");
        }
        for other in [-2, -3, -4, -5, -6, -33, -34, -9999] {
            assert!(!build(other), "{other}");
        }
    }
}
