//! Finds the usable OpenCL devices, and the reasons why others cannot be used.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cl3::device::{
    CL_DEVICE_AVAILABLE, CL_DEVICE_COMPILER_AVAILABLE, CL_DEVICE_ENDIAN_LITTLE, CL_DEVICE_NAME,
    CL_DEVICE_OPENCL_C_VERSION, CL_DEVICE_TYPE_ALL, CL_DEVICE_VERSION, get_device_ids,
};
use cl3::error_codes::{CL_PLATFORM_NOT_FOUND_KHR, DLOPEN_RUNTIME_LOAD_FAILED};
use cl3::platform::{CL_PLATFORM_NAME, get_platform_data, get_platform_ids};
use cl3::types::{cl_device_id, cl_platform_id};
use panoply_device::{Error, Result};

use super::errors::{ErrorPhase, failed};
use super::query::{Query, text};
use crate::library_search;

/// The result of the discovery.
pub struct Discovery {
    /// Usable devices.
    pub devices: Vec<DiscoveredDevice>,
    /// Reasons why other devices cannot be used.
    pub refused: Vec<Error>,
}

/// A device that was found.
#[derive(Clone, Copy)]
pub struct DiscoveredDevice {
    /// Position among all devices of all platforms, including the rejected ones.
    pub index: usize,
    /// Its platform, which lives as long as the process.
    pub platform: cl_platform_id,
    /// The device itself; root devices live as long as the process.
    pub device: cl_device_id,
}

/// Held during discovery: PoCL initializes its devices at the first query, and returns half-initialized devices to a second thread that
/// queries meanwhile.
static ASKING: Mutex<()> = Mutex::new(());

/// Enumerates all devices in the loader's order.
pub fn enumerate() -> Result<Discovery> {
    let _asking = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    let platforms = get_platform_ids().map_err(no_platform)?;
    let mut found = Discovery { devices: Vec::new(), refused: Vec::new() };
    let mut index = 0;
    for platform in platforms {
        let name = text(&get_platform_data(platform, CL_PLATFORM_NAME).unwrap_or_default());
        let devices = match get_device_ids(platform, CL_DEVICE_TYPE_ALL) {
            Ok(devices) if devices.is_empty() => {
                let message = format!("opencl: {name} has no device; connect one or remove the driver");
                found.refused.push(Error::unavailable(message));
                continue;
            }
            Ok(devices) => devices,
            Err(code) => {
                let error = failed(format_args!("opencl: {name}: listing devices"), code, ErrorPhase::Asking);
                found.refused.push(Error::unavailable(error.message()));
                continue;
            }
        };
        for device in devices {
            match objection(Query(device)) {
                None => found.devices.push(DiscoveredDevice { index, platform, device }),
                Some(why) => {
                    let device = Query(device).text(CL_DEVICE_NAME);
                    found.refused.push(Error::unavailable(format!("opencl:{index}: {device} on {name} {why}")));
                }
            }
            index += 1;
        }
    }
    Ok(found)
}

/// Returns the reason why a device cannot be used, if there is one.
fn objection(query: Query) -> Option<String> {
    let language = query.text(CL_DEVICE_OPENCL_C_VERSION);
    let version = version(&query.text(CL_DEVICE_VERSION));
    if !query.flag(CL_DEVICE_AVAILABLE) {
        Some("reports that it is not available; free it or restart its driver".into())
    } else if version < (1, 2) {
        Some(format!("supports OpenCL {}.{}, 1.2 is needed; update its driver", version.0, version.1))
    } else if !query.flag(CL_DEVICE_COMPILER_AVAILABLE) || language.is_empty() {
        Some("has no compiler; install its driver with one".into())
    } else if !query.flag(CL_DEVICE_ENDIAN_LITTLE) {
        Some("is big-endian, which generated kernels do not support; use another device".into())
    } else {
        None
    }
}

/// Parses a version: `OpenCL 3.0 PoCL …` is (3, 0). Any other text is (0, 0).
pub fn version(text: &str) -> (u32, u32) {
    let number = text.strip_prefix("OpenCL ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let (major, minor) = number.split_once('.').unwrap_or_default();
    (major.parse().unwrap_or(0), minor.parse().unwrap_or(0))
}

fn no_platform(code: i32) -> Error {
    let error = match code {
        DLOPEN_RUNTIME_LOAD_FAILED => {
            let error = Error::unavailable(format!("opencl: {} cannot be loaded; {}", LOADER.0, LOADER.1));
            return library_search::passed_over(&[LOADER.0]).into_iter().fold(error, Error::note);
        }
        CL_PLATFORM_NOT_FOUND_KHR => Error::unavailable(
            "opencl: the loader found no driver that works; install your GPU's driver, or PoCL to run on the CPU",
        ),
        code => Error::unavailable(failed("opencl: listing platforms", code, ErrorPhase::Asking).message()),
    };
    broken_drivers().iter().fold(error, |error, broken| error.note(broken.message()))
}

/// The loader's library, and how to install it.
const LOADER: (&str, &str) = if cfg!(windows) {
    ("OpenCL.dll", "install your GPU's driver, which contains it")
} else if cfg!(target_os = "macos") {
    ("OpenCL.framework", "it is part of macOS on machines that have OpenCL")
} else {
    ("libOpenCL.so.1", "install the loader (package ocl-icd-libopencl1 or ocl-icd) and your GPU's driver")
};

/// Returns an error for each driver that is registered with the loader and does not load. The loader skips them silently.
pub fn broken_drivers() -> Vec<Error> {
    if !cfg!(target_os = "linux") {
        return Vec::new();
    }
    // This is not a setting of Panoply: the loader itself searches there.
    let chosen = std::env::var_os("OCL_ICD_VENDORS").map(PathBuf::from);
    registrations(chosen.as_deref().unwrap_or(Path::new("/etc/OpenCL/vendors")))
        .iter()
        .filter_map(|icd| broken(icd))
        .collect()
}

/// Returns the `.icd` files of a folder; for a file, the file itself.
fn registrations(place: &Path) -> Vec<PathBuf> {
    let is_icd = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "icd");
    let Ok(folder) = std::fs::read_dir(place) else {
        return Some(place.to_path_buf()).filter(is_icd).into_iter().collect();
    };
    let mut paths: Vec<PathBuf> = folder.flatten().map(|entry| entry.path()).filter(is_icd).collect();
    paths.sort();
    paths
}

fn broken(icd: &Path) -> Option<Error> {
    let file = icd.display();
    let message = match std::fs::read_to_string(icd) {
        Err(error) => format!("opencl: {file} cannot be read: {error}; fix the permissions of its folder"),
        Ok(text) => {
            let library = text.lines().next().unwrap_or_default().trim();
            let why = dlopen2::raw::Library::open(library).err()?;
            format!(
                "opencl: {file} names {library:?}, which does not load ({why}); reinstall that driver or delete the file"
            )
        }
    };
    Some(Error::unavailable(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_parses_and_maps_invalid_text_to_zero() {
        let table = [("OpenCL 3.0 PoCL 3.1", (3, 0)), ("OpenCL 1.2 ", (1, 2)), ("OpenCL x.y", (0, 0)), ("", (0, 0))];
        for (text, expected) in table {
            assert_eq!(version(text), expected, "{text:?}");
        }
    }

    #[test]
    fn broken_names_a_registration_that_does_not_load() {
        let folder = std::env::temp_dir().join(format!("panoply-driver-icd-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("gone.icd");
        std::fs::write(&file, "libno-such-driver.so\n").unwrap();
        std::fs::write(folder.join("readme.txt"), "not a registration").unwrap();
        for place in [&folder, &file] {
            let found = registrations(place);
            assert_eq!(found, std::slice::from_ref(&file));
            let error = broken(&found[0]).unwrap();
            assert!(
                error.is_unavailable() && error.message().contains("gone.icd names \"libno-such-driver.so\""),
                "{error}"
            );
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
