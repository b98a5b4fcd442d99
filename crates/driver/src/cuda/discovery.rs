//! Which devices are here, and which are here but cannot be used.

use std::path::Path;
use std::sync::Arc;

use panoply_device::{Error, Result};

use super::api::{Api, check};
use super::errors::unavailable;
use super::info::{Query, version};

/// CUDA 9, the first whose PTX knows every device from Volta on and whose functions are all there.
const OLDEST_DRIVER: i32 = 9000;
/// Maxwell: older devices lack instructions that are rendered.
const OLDEST_CAPABILITY: u32 = 50;
/// The compute mode in which a device takes nobody.
const PROHIBITED: i32 = 2;

/// A device that can be used.
#[derive(Clone)]
pub struct Place {
    /// The library it was found through.
    pub api: Arc<Api>,
    /// The driver's name for it.
    pub device: i32,
    /// Its position in the driver's enumeration.
    pub index: usize,
    /// The driver's version, as 12040 for CUDA 12.4.
    pub driver: i32,
}

/// What is here.
pub struct Found {
    /// What can be used.
    pub devices: Vec<Place>,
    /// Why others cannot.
    pub refused: Vec<Error>,
}

/// Asks the driver.
pub fn enumerate(library: Option<&Path>) -> Result<Found> {
    let api = Api::open(library)?;
    let mut driver = 0;
    // SAFETY: the pointer is valid, and this function may be called before `cuInit`.
    let known = check(unsafe { (api.cuDriverGetVersion)(&mut driver) });
    known.map_err(|code| unavailable("cuda: asking for the driver's version", code))?;
    if driver < OLDEST_DRIVER {
        return Err(Error::unavailable(format!(
            "cuda: the driver is for CUDA {}, this program needs {} or later; update NVIDIA's driver",
            version(driver),
            version(OLDEST_DRIVER)
        )));
    }
    // SAFETY: the only flags there are is 0.
    check(unsafe { (api.cuInit)(0) }).map_err(|code| unavailable("cuda: starting the driver", code))?;
    let mut count = 0;
    // SAFETY: the pointer is valid and the driver was started.
    let counted = check(unsafe { (api.cuDeviceGetCount)(&mut count) });
    counted.map_err(|code| unavailable("cuda: counting devices", code))?;
    let mut found = Found { devices: Vec::new(), refused: Vec::new() };
    for index in 0..count {
        match place(&api, index, driver) {
            Ok(place) => found.devices.push(place),
            Err(error) => found.refused.push(error),
        }
    }
    Ok(found)
}

fn place(api: &Arc<Api>, index: i32, driver: i32) -> Result<Place> {
    let label = format!("cuda:{index}");
    let mut device = 0;
    // SAFETY: the pointer is valid and the index below the count.
    let got = check(unsafe { (api.cuDeviceGet)(&mut device, index) });
    got.map_err(|code| unavailable(format_args!("{label}: looking at the device"), code))?;
    let place = Place { api: api.clone(), device, index: index as usize, driver };
    let query = Query(&place);
    let (capability, name) = (query.capability(), query.name());
    if capability < OLDEST_CAPABILITY {
        return Err(Error::unavailable(format!(
            "{label} ({name}) has compute capability {}.{}, this program needs 5.0 or later; use it through OpenCL",
            capability / 10,
            capability % 10
        )));
    }
    if query.attribute(super::info::COMPUTE_MODE) == PROHIBITED {
        return Err(Error::unavailable(format!(
            "{label} ({name}) is in a compute mode that admits nobody; `nvidia-smi -i {index} -c 0` admits all"
        )));
    }
    Ok(place)
}
