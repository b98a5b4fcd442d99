//! Finds the usable devices, and the reasons why others cannot be used.

use std::io::ErrorKind as Io;
use std::path::Path;

use panoply_device::{Error, Result};

use super::api::{self, WantedProducts};
use super::info::{MAX_GRID, WAVE};
use crate::stream::discovery::{self, DiscoveredDevice, Found, Query, Traits};

/// GFX 9, Vega: the oldest that ROCm 5 supports.
const OLDEST_MAJOR: u32 = 9;
/// ROCm 6.0: earlier compilers abort the process for an architecture that they do not know.
const NAMES_WHAT_IT_DOES_NOT_KNOW: i32 = 60_000_000;
/// Architectures that compilers support, by the first version that does. Later compilers are queried.
const KNOWN: [(i32, &[&str]); 2] = [
    (
        50_000_000,
        &[
            "gfx900", "gfx902", "gfx904", "gfx906", "gfx908", "gfx909", "gfx90a", "gfx90c", "gfx1010", "gfx1011",
            "gfx1012", "gfx1013", "gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035",
        ],
    ),
    (50_500_000, &["gfx940", "gfx1036", "gfx1100", "gfx1101", "gfx1102", "gfx1103"]),
];

/// Opens the library and enumerates its devices.
pub fn enumerate(library: Option<&Path>, products: WantedProducts) -> Result<Found> {
    discovery::enumerate(api::open(library, products)?).map_err(|error| match obstacle(Path::new("/dev/kfd")) {
        Some(why) if cfg!(target_os = "linux") => error.note(why),
        _ => error,
    })
}

/// Returns the reason why this user cannot open the kernel driver's device node, if there is one.
fn obstacle(node: &Path) -> Option<String> {
    let error = std::fs::File::options().read(true).write(true).open(node).err()?;
    let node = node.display();
    Some(match error.kind() {
        Io::NotFound => format!(
            "{node} does not exist: no AMD GPU, the kernel module amdgpu is not loaded, or a container was started without \
             --device=/dev/kfd --device=/dev/dri"
        ),
        Io::PermissionDenied => {
            format!(
                "{node} cannot be opened by this user: add the user to the groups render and video and log in again"
            )
        }
        _ => format!("{node} cannot be opened: {error}"),
    })
}

/// Returns the traits of a device, or the reason why it cannot be used.
pub fn traits(place: &DiscoveredDevice, architecture: String) -> Result<Traits> {
    let query = Query(place);
    let label = format!("rocm:{} ({})", place.index, query.name());
    if let Some(why) = objection(&architecture, place.driver) {
        return Err(Error::unavailable(format!("{label} {why}")));
    }
    let wave = query.number(WAVE);
    if ![32, 64].contains(&wave) {
        return Err(Error::unavailable(format!(
            "{label} has a wavefront size of {wave}, this program supports 32 and 64; report this"
        )));
    }
    Ok(Traits { architecture, max_groups: MAX_GRID.map(|axis| u64::from(query.number(axis).max(1))) })
}

/// Returns the reason why the compiler of a driver's version cannot compile for an architecture; `None` if it can.
pub fn objection(architecture: &str, driver: i32) -> Option<String> {
    let number = architecture.strip_prefix("gfx").filter(|number| number.len() >= 3 && number.is_ascii());
    let major = number.and_then(|number| number[..number.len() - 2].parse::<u32>().ok());
    let Some(major) = major else {
        return Some(format!("reports the architecture {architecture:?}, which is not a valid name; update ROCm"));
    };
    if major < OLDEST_MAJOR {
        return Some(format!("is {architecture}, this program needs gfx900 or later; use it through OpenCL or Vulkan"));
    }
    let knows = |(since, names): &(i32, &[&str])| driver >= *since && names.contains(&architecture);
    if driver < NAMES_WHAT_IT_DOES_NOT_KNOW && !KNOWN.iter().any(knows) {
        return Some(format!(
            "is {architecture}, which the compiler of {} does not support; update ROCm to 6.0 or later",
            (api::BRAND.version)(driver)
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objection_names_unsupported_architectures() {
        for (architecture, driver, why) in [
            ("gfx90a", 50_221_153, None),
            ("gfx1030", 50_221_153, None),
            ("gfx1100", 50_221_153, Some("which the compiler of ROCm 5.2 does not support; update ROCm to 6.0")),
            ("gfx1100", 50_700_000, None),
            ("gfx942", 50_700_000, Some("does not support")),
            ("gfx942", 60_000_000, None),
            ("gfx1201", 60_400_000, None),
            ("gfx1399", 90_000_000, None),
            ("gfx803", 60_000_000, Some("is gfx803, this program needs gfx900 or later; use it through OpenCL")),
            ("", 60_000_000, Some("is not a valid name")),
            ("gfxé", 60_000_000, Some("is not a valid name")),
            ("sm_90", 60_000_000, Some("is not a valid name")),
        ] {
            let found = objection(architecture, driver);
            let fits = match (&found, why) {
                (Some(found), Some(why)) => found.contains(why),
                (None, None) => true,
                _ => false,
            };
            assert!(fits, "{architecture} with {driver}: {found:?}");
        }
    }

    #[test]
    fn obstacle_names_the_device_node_and_the_remedy() {
        let missing = obstacle(Path::new("/nowhere/kfd")).unwrap();
        assert!(
            missing.starts_with("/nowhere/kfd does not exist: ") && missing.contains("--device=/dev/kfd"),
            "{missing}"
        );
        let folder = obstacle(&std::env::temp_dir()).unwrap();
        assert!(folder.contains("cannot be opened: ") || folder.contains("cannot be opened by this user"), "{folder}");
        // Linux lets no user write this file, not even root.
        let denied = obstacle(Path::new("/sys/devices/system/cpu/online"));
        match denied.filter(|why| !why.contains("Read-only file system") && !why.contains("does not exist")) {
            Some(why) => assert_eq!(
                why,
                "/sys/devices/system/cpu/online cannot be opened by this user: add the user to the groups render and video and \
                 log in again"
            ),
            None => println!(
                "SKIPPED: a device node without permission: this system has no file that is read-only for every user"
            ),
        }
    }
}
