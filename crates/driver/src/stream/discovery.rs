//! Which devices are here, and which are here but cannot be used.

use std::ffi::CStr;
use std::sync::Arc;

use panoply_device::{Backend, Error, Result};

use super::device::StreamDevice;
use super::functions::Functions;
use super::vendor::{Brand, Vendor};
use crate::library::{Opened, check};

/// An open driver library.
pub struct Api {
    /// What it shares with the other vendor's.
    pub functions: Functions,
    /// What it does not.
    pub vendor: Box<dyn Vendor>,
    /// Never closed.
    pub library: Opened,
}

impl Api {
    /// Words and numbers of its vendor.
    pub fn brand(&self) -> &'static Brand {
        self.vendor.brand()
    }
}

/// A device that can be used.
#[derive(Clone)]
pub struct DiscoveredDevice {
    /// The library it was found through.
    pub api: Arc<Api>,
    /// The driver's name for it.
    pub device: i32,
    /// Its position in the driver's enumeration.
    pub index: usize,
    /// The driver's version, as the driver counts.
    pub driver: i32,
    /// What its vendor said of it.
    pub traits: Traits,
}

/// What a device has that only its vendor knows how to ask for.
#[derive(Clone, Debug, Default)]
pub struct Traits {
    /// What code is compiled for.
    pub architecture: String,
    /// Most groups of a launch along each axis.
    pub max_groups: [u64; 3],
}

/// What is here.
pub struct Found {
    /// What can be used.
    pub devices: Vec<DiscoveredDevice>,
    /// Why others cannot.
    pub refused: Vec<Error>,
}

impl Found {
    /// Every device that can be used, in the driver's order; if there is none, why not.
    pub fn devices(
        self,
        kind: Backend,
        device: fn(DiscoveredDevice) -> StreamDevice,
    ) -> Result<Vec<Arc<StreamDevice>>> {
        if self.devices.is_empty() {
            let none = Error::unavailable(format!("{kind}: no device here can be used; see the notes"));
            return Err(self.refused.iter().fold(none, |error, refused| error.note(refused.message())));
        }
        Ok(self.devices.into_iter().map(|place| Arc::new(device(place))).collect())
    }
}

/// Asks a driver.
pub fn enumerate(api: Api) -> Result<Found> {
    let api = Arc::new(api);
    let brand = api.brand();
    let kind = brand.words.kind;
    let mut driver = 0;
    // SAFETY: the pointer is valid, and this function may be called before the driver is started.
    let known = check(unsafe { (api.functions.driver_version)(&mut driver) });
    known.map_err(|code| brand.codes.unavailable(format_args!("{kind}: asking for the driver's version"), code))?;
    if driver < brand.oldest_driver {
        return Err(Error::unavailable(format!(
            "{kind}: the driver is for {}, this program needs {} or later; {}",
            (brand.version)(driver),
            (brand.version)(brand.oldest_driver).rsplit(' ').next().unwrap_or_default(),
            brand.update
        )));
    }
    // SAFETY: the only flags there are is 0.
    let started = check(unsafe { (api.functions.init)(0) });
    started.map_err(|code| brand.codes.unavailable(format_args!("{kind}: starting the driver"), code))?;
    let mut count = 0;
    // SAFETY: the pointer is valid and the driver was started.
    let counted = check(unsafe { (api.functions.device_count)(&mut count) });
    counted.map_err(|code| brand.codes.unavailable(format_args!("{kind}: counting devices"), code))?;
    let mut found = Found { devices: Vec::new(), refused: Vec::new() };
    for index in 0..count {
        match place(&api, index, driver) {
            Ok(place) => found.devices.push(place),
            Err(error) => found.refused.push(error),
        }
    }
    Ok(found)
}

fn place(api: &Arc<Api>, index: i32, driver: i32) -> Result<DiscoveredDevice> {
    let (brand, mut device) = (api.brand(), 0);
    // SAFETY: the pointer is valid and the index below the count.
    let got = check(unsafe { (api.functions.device)(&mut device, index) });
    got.map_err(|code| {
        brand.codes.unavailable(format_args!("{}:{index}: looking at the device", brand.words.kind), code)
    })?;
    let place = DiscoveredDevice { api: api.clone(), device, index: index as usize, driver, traits: Traits::default() };
    let traits = api.vendor.traits(&place)?;
    Ok(DiscoveredDevice { traits, ..place })
}

/// Asks one device. A question the driver does not know has the answer 0.
#[derive(Clone, Copy)]
pub struct Query<'a>(pub &'a DiscoveredDevice);

impl Query<'_> {
    /// A number, as it is.
    pub fn attribute(self, attribute: i32) -> i32 {
        let mut value = 0;
        // SAFETY: the pointer is valid and the device was enumerated.
        let code = unsafe { (self.0.api.functions.attribute)(&mut value, attribute, self.0.device) };
        if code == 0 { value } else { 0 }
    }

    /// A number that is not negative.
    pub fn number(self, attribute: i32) -> u32 {
        u32::try_from(self.attribute(attribute)).unwrap_or(0)
    }

    /// What the device is called.
    pub fn name(self) -> String {
        let mut text = [0u8; 256];
        // SAFETY: the buffer has as many bytes as it says, and one more for the zero.
        unsafe { (self.0.api.functions.device_name)(text.as_mut_ptr().cast(), 255, self.0.device) };
        CStr::from_bytes_until_nul(&text).map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned())
    }

    /// Bytes in all.
    pub fn memory(self) -> u64 {
        let mut bytes = 0;
        // SAFETY: the pointer is valid and the device was enumerated.
        let code = unsafe { (self.0.api.functions.device_memory)(&mut bytes, self.0.device) };
        if code == 0 { bytes as u64 } else { 0 }
    }

    /// Whether memory can be had and given back in the order of a stream.
    pub fn has_pools(self) -> bool {
        let functions = &self.0.api.functions;
        let known = functions.allocate_ordered.is_some() && functions.free_ordered.is_some();
        known && self.attribute(self.0.api.brand().pools_attribute) != 0
    }

    /// The PCI address as `lspci -D` writes it, and as other interfaces name the same card.
    pub fn identity(self, [domain, bus, device]: [i32; 3]) -> Option<String> {
        let [domain, bus, device] = [domain, bus, device].map(|part| self.number(part));
        Some(format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
    }
}
