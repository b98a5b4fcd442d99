//! Maps Level Zero's error codes to [`ErrorKind`].

use panoply_device::ErrorKind;

use crate::error_codes::Codes;

/// The codes for exhausted memory, on the host and on the device.
pub const OUT_OF_MEMORY: [i32; 2] = [0x7000_0002, 0x7000_0003];
/// The codes with which the driver's compiler rejects a program or fails to link it.
pub const REFUSED: [i32; 2] = [0x7000_0004, 0x7000_0005];

/// Level Zero's error codes.
pub const CODES: Codes = Codes { prefix: "ZE_RESULT_ERROR_", known: KNOWN, unknown: "UNKNOWN", otherwise: UPDATE };

const KNOWN: &[(i32, &str, ErrorKind, &str)] = &[
    (0x7000_0001, "DEVICE_LOST", ErrorKind::DeviceLost, LOST),
    (0x7000_0002, "OUT_OF_HOST_MEMORY", ErrorKind::OutOfMemory, SMALLER),
    (0x7000_0003, "OUT_OF_DEVICE_MEMORY", ErrorKind::OutOfMemory, SMALLER),
    (0x7000_0004, "MODULE_BUILD_FAILURE", ErrorKind::CompileFailed, "the notes hold the compiler's log"),
    (0x7000_0005, "MODULE_LINK_FAILURE", ErrorKind::CompileFailed, "the notes hold the compiler's log"),
    (0x7000_0006, "DEVICE_REQUIRES_RESET", ErrorKind::DeviceLost, "reset the GPU or restart the machine"),
    (0x7000_0007, "DEVICE_IN_LOW_POWER_STATE", ErrorKind::DeviceLost, LOST),
    (
        0x7001_0000,
        "INSUFFICIENT_PERMISSIONS",
        ErrorKind::Unavailable,
        "add the user to the group render and log in again",
    ),
    (0x7001_0001, "NOT_AVAILABLE", ErrorKind::Unavailable, "another program uses the GPU exclusively; stop it"),
    (0x7002_0000, "DEPENDENCY_UNAVAILABLE", ErrorKind::Unavailable, "reinstall Intel's GPU driver"),
    (
        0x7800_0001,
        "UNINITIALIZED",
        ErrorKind::Unavailable,
        "no driver for an Intel GPU is installed; install it (package intel-level-zero-gpu)",
    ),
    (0x7800_0002, "UNSUPPORTED_VERSION", ErrorKind::Unavailable, UPDATE),
    (0x7800_0003, "UNSUPPORTED_FEATURE", ErrorKind::Unsupported, UPDATE),
    (0x7800_0008, "INVALID_SIZE", ErrorKind::Driver, UPDATE),
    (0x7800_0009, "UNSUPPORTED_SIZE", ErrorKind::OutOfMemory, SMALLER),
    (0x7800_000F, "INVALID_NATIVE_BINARY", ErrorKind::CompileFailed, "clear the program cache, or report this"),
    (0x7800_0011, "INVALID_KERNEL_NAME", ErrorKind::CompileFailed, "report this"),
    (0x7800_0013, "INVALID_GROUP_SIZE_DIMENSION", ErrorKind::Unsupported, "use a smaller group"),
];

const UPDATE: &str = "update Intel's GPU driver or report this";
const LOST: &str = "its buffers are gone; restart the program";
const SMALLER: &str = "free buffers or use smaller ones";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_map_to_kinds_and_messages() {
        CODES.check(&[
            (0x7000_0001, ErrorKind::DeviceLost),
            (0x7000_0003, ErrorKind::OutOfMemory),
            (0x7000_0004, ErrorKind::CompileFailed),
            (0x7800_0001, ErrorKind::Unavailable),
            (0x7FFF_FFFE, ErrorKind::Driver),
        ]);
    }
}
