//! Parsing of device names.

use panoply_device::Backend;
use panoply_ir::{Error, Result};

/// A device as named by a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeviceSpec {
    /// The best device.
    Auto,
    /// A device of a backend by index; index 0 if none is given.
    Index(Backend, usize),
    /// A named variant, such as `cpu:checked`.
    Variant(Backend, String),
}

pub(super) fn parse(text: &str) -> Result<DeviceSpec> {
    let text = text.trim();
    if text == "auto" {
        return Ok(DeviceSpec::Auto);
    }
    if text.is_empty() {
        return Err(Error::mistake(
            "the device name is empty; write auto, cpu, cuda:0 or another that `panoply devices` lists",
        ));
    }
    let (kind, rest) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
    let kind: Backend = kind.parse()?;
    match rest {
        None => Ok(DeviceSpec::Index(kind, 0)),
        Some(rest) if rest.is_empty() || rest.starts_with(|c: char| !c.is_ascii_alphanumeric()) => {
            Err(Error::mistake(format!("{text}: not a device name; write {kind}:0")))
        }
        Some(rest) if rest.bytes().all(|byte| byte.is_ascii_digit()) => {
            let index = rest.parse().map_err(|_| Error::mistake(format!("{text}: the device index is too large")))?;
            Ok(DeviceSpec::Index(kind, index))
        }
        Some(rest) => Ok(DeviceSpec::Variant(kind, rest.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_are_parsed() {
        for (text, wanted) in [
            ("auto", DeviceSpec::Auto),
            ("cpu", DeviceSpec::Index(Backend::Cpu, 0)),
            (" opencl:7 ", DeviceSpec::Index(Backend::OpenCl, 7)),
            ("cpu:checked", DeviceSpec::Variant(Backend::Cpu, "checked".into())),
        ] {
            assert_eq!(parse(text).unwrap(), wanted);
        }
    }

    #[test]
    fn invalid_device_names_are_mistakes() {
        for (text, message) in [
            (
                "gpu:0",
                "gpu: unknown backend; expected one of cuda, rocm, metal, oneapi, opencl, vulkan, dx12, webgpu, cpu",
            ),
            (" ", "the device name is empty; write auto, cpu, cuda:0 or another that `panoply devices` lists"),
            ("cuda:", "cuda:: not a device name; write cuda:0"),
            ("cuda:-1", "cuda:-1: not a device name; write cuda:0"),
            ("cuda:99999999999999999999999", "cuda:99999999999999999999999: the device index is too large"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.is_mistake());
            assert_eq!(error.message(), message);
        }
    }
}
