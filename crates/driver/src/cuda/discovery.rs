//! Finds the usable devices, and the reasons why others cannot be used.

use std::path::Path;

use panoply_device::{Error, Result};

use super::api;
use super::info::{COMPUTE_MODE, capability};
use crate::stream::blas::GemmRequest;
use crate::stream::discovery::{self, DiscoveredDevice, Found, Query, Traits};

/// Maxwell: older devices lack instructions that the generated code uses.
const OLDEST_CAPABILITY: u32 = 50;
/// Largest grid of a launch, in blocks, on every device from Kepler on.
const MAX_GROUPS: [u64; 3] = [i32::MAX as u64, 65_535, 65_535];
/// The compute mode in which a device accepts no process.
const PROHIBITED: i32 = 2;

/// Opens the library and enumerates its devices.
pub fn enumerate(library: Option<&Path>, products: GemmRequest) -> Result<Found> {
    discovery::enumerate(api::open(library, products)?)
}

/// Returns the traits of a device, or the reason why it cannot be used.
pub fn traits(place: &DiscoveredDevice) -> Result<Traits> {
    let (query, index) = (Query(place), place.index);
    let (capability, name) = (capability(query), query.name());
    if capability < OLDEST_CAPABILITY {
        return Err(Error::unavailable(format!(
            "cuda:{index} ({name}) has compute capability {}.{}, this program needs 5.0 or later; use it through OpenCL",
            capability / 10,
            capability % 10
        )));
    }
    if query.attribute(COMPUTE_MODE) == PROHIBITED {
        return Err(Error::unavailable(format!(
            "cuda:{index} ({name}) is in compute mode Prohibited; run `nvidia-smi -i {index} -c 0` to allow processes"
        )));
    }
    Ok(Traits { architecture: format!("sm_{capability}"), max_groups: MAX_GROUPS })
}
