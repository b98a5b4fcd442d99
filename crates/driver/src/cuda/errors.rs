//! Maps CUDA's error codes to [`ErrorKind`].

use panoply_device::ErrorKind;

use crate::error_codes::Codes;

/// CUDA's error codes.
pub const CODES: Codes = Codes { prefix: "CUDA_ERROR_", known: KNOWN, unknown: "UNKNOWN", otherwise: UPDATE };

const KNOWN: &[(i32, &str, ErrorKind, &str)] = &[
    (1, "INVALID_VALUE", ErrorKind::Driver, UPDATE),
    (2, "OUT_OF_MEMORY", ErrorKind::OutOfMemory, "free buffers or use smaller ones"),
    (3, "NOT_INITIALIZED", ErrorKind::Unavailable, RESTART),
    (4, "DEINITIALIZED", ErrorKind::DeviceLost, "the program is ending; use no device from exit handlers"),
    (
        34,
        "STUB_LIBRARY",
        ErrorKind::Unavailable,
        "a toolkit's stub was found before the driver; remove it from the library path",
    ),
    (
        46,
        "DEVICE_UNAVAILABLE",
        ErrorKind::Unavailable,
        "another process uses the device exclusively; wait for it or change the compute mode",
    ),
    (100, "NO_DEVICE", ErrorKind::Unavailable, "the driver sees no GPU; check CUDA_VISIBLE_DEVICES and `nvidia-smi`"),
    (101, "INVALID_DEVICE", ErrorKind::Unavailable, "check CUDA_VISIBLE_DEVICES and `nvidia-smi`"),
    (200, "INVALID_IMAGE", ErrorKind::CompileFailed, LOG),
    (201, "INVALID_CONTEXT", ErrorKind::DeviceLost, LOST),
    (209, "NO_BINARY_FOR_GPU", ErrorKind::CompileFailed, "the program is for a newer GPU; render it for this one"),
    (214, "ECC_UNCORRECTABLE", ErrorKind::DeviceLost, "the GPU's memory is failing; check `nvidia-smi -q`"),
    (218, "INVALID_PTX", ErrorKind::CompileFailed, LOG),
    (
        221,
        "JIT_COMPILER_NOT_FOUND",
        ErrorKind::Unavailable,
        "the driver's PTX compiler is missing; install the driver's complete package",
    ),
    (222, "UNSUPPORTED_PTX_VERSION", ErrorKind::Unavailable, "the driver is older than the GPU's PTX; update it"),
    (301, "FILE_NOT_FOUND", ErrorKind::Unavailable, "reinstall the driver"),
    (
        304,
        "OPERATING_SYSTEM",
        ErrorKind::Unavailable,
        "the operating system denied access; check the permissions of /dev/nvidia*",
    ),
    (400, "INVALID_HANDLE", ErrorKind::Driver, UPDATE),
    (500, "NOT_FOUND", ErrorKind::CompileFailed, LOG),
    (700, "ILLEGAL_ADDRESS", ErrorKind::DeviceLost, LOST),
    (701, "LAUNCH_OUT_OF_RESOURCES", ErrorKind::Unsupported, "use a smaller group"),
    (702, "LAUNCH_TIMEOUT", ErrorKind::DeviceLost, "the display watchdog stopped the kernel; make launches shorter"),
    (709, "CONTEXT_IS_DESTROYED", ErrorKind::DeviceLost, LOST),
    (710, "ASSERT", ErrorKind::DeviceLost, LOST),
    (714, "HARDWARE_STACK_ERROR", ErrorKind::DeviceLost, LOST),
    (715, "ILLEGAL_INSTRUCTION", ErrorKind::DeviceLost, LOST),
    (716, "MISALIGNED_ADDRESS", ErrorKind::DeviceLost, LOST),
    (717, "INVALID_ADDRESS_SPACE", ErrorKind::DeviceLost, LOST),
    (718, "INVALID_PC", ErrorKind::DeviceLost, LOST),
    (719, "LAUNCH_FAILED", ErrorKind::DeviceLost, LOST),
    (800, "NOT_PERMITTED", ErrorKind::Unavailable, "run as a user with access to the GPU"),
    (801, "NOT_SUPPORTED", ErrorKind::Unsupported, UPDATE),
    (802, "SYSTEM_NOT_READY", ErrorKind::Unavailable, "start NVIDIA's fabric manager"),
    (
        803,
        "SYSTEM_DRIVER_MISMATCH",
        ErrorKind::Unavailable,
        "library and kernel module differ; restart the machine after an update",
    ),
    (
        804,
        "COMPAT_NOT_SUPPORTED_ON_DEVICE",
        ErrorKind::Unavailable,
        "remove the compatibility library from the library path",
    ),
];

const UPDATE: &str = "update the driver or report this";
const RESTART: &str = "restart the program";
const LOG: &str = "the notes hold the compiler's log";
const LOST: &str = "its buffers are gone; restart the program";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_map_to_kinds_and_messages() {
        assert_eq!(CODES.prefix, "CUDA_ERROR_");
        CODES.check(&[
            (2, ErrorKind::OutOfMemory),
            (34, ErrorKind::Unavailable),
            (218, ErrorKind::CompileFailed),
            (700, ErrorKind::DeviceLost),
            (719, ErrorKind::DeviceLost),
            (999, ErrorKind::Driver),
        ]);
    }
}
