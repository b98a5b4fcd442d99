//! Maps HIP's error codes to [`ErrorKind`].

use panoply_device::ErrorKind;

use crate::error_codes::Codes;

/// HIP's error codes.
pub const CODES: Codes = Codes { prefix: "hipError", known: KNOWN, unknown: "Unknown", otherwise: UPDATE };

const KNOWN: &[(i32, &str, ErrorKind, &str)] = &[
    (1, "InvalidValue", ErrorKind::Driver, UPDATE),
    (2, "OutOfMemory", ErrorKind::OutOfMemory, "free buffers or use smaller ones"),
    (3, "NotInitialized", ErrorKind::Unavailable, "check `rocminfo` and `dmesg`, then restart the program"),
    (4, "Deinitialized", ErrorKind::DeviceLost, "the program is ending; use no device from exit handlers"),
    (9, "InvalidConfiguration", ErrorKind::Unsupported, "use smaller groups or fewer of them"),
    (35, "InsufficientDriver", ErrorKind::Unavailable, "the kernel's amdgpu is older than ROCm; update it"),
    (98, "InvalidDeviceFunction", ErrorKind::CompileFailed, "the program is for another GPU; render it for this one"),
    (100, "NoDevice", ErrorKind::Unavailable, LOOK),
    (101, "InvalidDevice", ErrorKind::Unavailable, LOOK),
    (200, "InvalidImage", ErrorKind::CompileFailed, "clear the program cache, or report this"),
    (201, "InvalidContext", ErrorKind::DeviceLost, LOST),
    (209, "NoBinaryForGpu", ErrorKind::CompileFailed, "the program is for another GPU; render it for this one"),
    (214, "ECCNotCorrectable", ErrorKind::DeviceLost, "the GPU's memory is failing; check `rocm-smi --showrasinfo`"),
    (218, "InvalidKernelFile", ErrorKind::CompileFailed, "clear the program cache, or report this"),
    (301, "FileNotFound", ErrorKind::Unavailable, "reinstall ROCm"),
    (302, "SharedObjectSymbolNotFound", ErrorKind::Unavailable, "reinstall ROCm; two versions may be mixed"),
    (303, "SharedObjectInitFailed", ErrorKind::Unavailable, "reinstall ROCm; two versions may be mixed"),
    (
        304,
        "OperatingSystem",
        ErrorKind::Unavailable,
        "the operating system denied access; check the permissions of /dev/kfd and /dev/dri",
    ),
    (400, "InvalidHandle", ErrorKind::Driver, UPDATE),
    (500, "NotFound", ErrorKind::CompileFailed, "report this"),
    (700, "IllegalAddress", ErrorKind::DeviceLost, LOST),
    (701, "LaunchOutOfResources", ErrorKind::Unsupported, "use a smaller group"),
    (702, "LaunchTimeOut", ErrorKind::DeviceLost, "a watchdog stopped the kernel; make launches shorter"),
    (709, "ContextIsDestroyed", ErrorKind::DeviceLost, LOST),
    (710, "Assert", ErrorKind::DeviceLost, LOST),
    (719, "LaunchFailure", ErrorKind::DeviceLost, LOST),
    (801, "NotSupported", ErrorKind::Unsupported, UPDATE),
    (1052, "RuntimeMemory", ErrorKind::Driver, "check `dmesg`, then restart the program"),
    (1053, "RuntimeOther", ErrorKind::DeviceLost, LOST),
];

const UPDATE: &str = "update ROCm or report this";
const LOOK: &str = "the driver sees no GPU; check HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES and `rocminfo`";
const LOST: &str = "its buffers are gone; restart the program";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_map_to_kinds_and_messages() {
        assert_eq!(CODES.prefix, "hipError");
        CODES.check(&[
            (2, ErrorKind::OutOfMemory),
            (100, ErrorKind::Unavailable),
            (209, ErrorKind::CompileFailed),
            (700, ErrorKind::DeviceLost),
            (719, ErrorKind::DeviceLost),
            (999, ErrorKind::Driver),
        ]);
    }
}
