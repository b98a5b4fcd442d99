//! Finds the usable devices, and the reasons why others cannot be used.

use std::ffi::CStr;
use std::sync::Arc;

use panoply_device::{Backend, Error, Result};

use super::device::StreamDevice;
use super::functions::Functions;
use super::vendor::{Brand, Vendor};
use crate::library::{Opened, check};

/// An open driver library.
pub struct Api {
    /// The functions common to both vendors.
    pub functions: Functions,
    /// The vendor's own functions.
    pub vendor: Box<dyn Vendor>,
    /// Never closed.
    pub library: Opened,
}

impl Api {
    /// Returns names, messages and constants of its vendor.
    pub fn brand(&self) -> &'static Brand {
        self.vendor.brand()
    }
}

/// A usable device.
#[derive(Clone)]
pub struct DiscoveredDevice {
    /// The library that lists it.
    pub api: Arc<Api>,
    /// The driver's id of it.
    pub device: i32,
    /// Its position in the driver's enumeration.
    pub index: usize,
    /// The driver's version in its own counting.
    pub driver: i32,
    /// Traits that the vendor's code determined.
    pub traits: Traits,
}

/// Traits of a device that are queried differently for each vendor.
#[derive(Clone, Debug, Default)]
pub struct Traits {
    /// The architecture that code is compiled for.
    pub architecture: String,
    /// Largest number of work-groups of a launch along each axis.
    pub max_groups: [u64; 3],
}

/// The result of the discovery.
pub struct Found {
    /// Usable devices.
    pub devices: Vec<DiscoveredDevice>,
    /// Reasons why other devices cannot be used.
    pub refused: Vec<Error>,
}

impl Found {
    /// Returns all usable devices in the driver's order; if there is none, an error with the reasons.
    pub fn devices(
        self,
        kind: Backend,
        device: fn(DiscoveredDevice) -> StreamDevice,
    ) -> Result<Vec<Arc<StreamDevice>>> {
        if self.devices.is_empty() {
            let none = Error::unavailable(format!("{kind}: no usable device; see the notes"));
            return Err(self.refused.iter().fold(none, |error, refused| error.note(refused.message())));
        }
        Ok(self.devices.into_iter().map(|place| Arc::new(device(place))).collect())
    }
}

/// Initializes a driver and enumerates its devices.
pub fn enumerate(api: Api) -> Result<Found> {
    let api = Arc::new(api);
    let brand = api.brand();
    let kind = brand.words.kind;
    let mut driver = 0;
    // SAFETY: the pointer is valid, and this function can be called before the driver is initialized.
    let known = check(unsafe { (api.functions.driver_version)(&mut driver) });
    known.map_err(|code| brand.codes.unavailable(format_args!("{kind}: querying the driver's version"), code))?;
    if driver < brand.oldest_driver {
        return Err(Error::unavailable(format!(
            "{kind}: the driver is for {}, this program needs {} or later; {}",
            (brand.version)(driver),
            (brand.version)(brand.oldest_driver).rsplit(' ').next().unwrap_or_default(),
            brand.update
        )));
    }
    // SAFETY: 0 is the only valid value for the flags.
    let started = check(unsafe { (api.functions.init)(0) });
    started.map_err(|code| brand.codes.unavailable(format_args!("{kind}: starting the driver"), code))?;
    let mut count = 0;
    // SAFETY: the pointer is valid and the driver is initialized.
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
        brand.codes.unavailable(format_args!("{}:{index}: querying the device", brand.words.kind), code)
    })?;
    let place = DiscoveredDevice { api: api.clone(), device, index: index as usize, driver, traits: Traits::default() };
    let traits = api.vendor.traits(&place)?;
    Ok(DiscoveredDevice { traits, ..place })
}

/// Queries of one device. A query that the driver does not support returns 0.
#[derive(Clone, Copy)]
pub struct Query<'a>(pub &'a DiscoveredDevice);

impl Query<'_> {
    /// Returns an attribute.
    pub fn attribute(self, attribute: i32) -> i32 {
        let mut value = 0;
        // SAFETY: the pointer is valid and the device was enumerated.
        let code = unsafe { (self.0.api.functions.attribute)(&mut value, attribute, self.0.device) };
        if code == 0 { value } else { 0 }
    }

    /// Returns an attribute as an unsigned number, 0 if it is negative.
    pub fn number(self, attribute: i32) -> u32 {
        u32::try_from(self.attribute(attribute)).unwrap_or(0)
    }

    /// Returns the device's name.
    pub fn name(self) -> String {
        let mut text = [0u8; 256];
        // SAFETY: the buffer has the size that is passed, and one more byte for the terminator.
        unsafe { (self.0.api.functions.device_name)(text.as_mut_ptr().cast(), 255, self.0.device) };
        CStr::from_bytes_until_nul(&text).map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned())
    }

    /// Returns the total memory in bytes.
    pub fn memory(self) -> u64 {
        let mut bytes = 0;
        // SAFETY: the pointer is valid and the device was enumerated.
        let code = unsafe { (self.0.api.functions.device_memory)(&mut bytes, self.0.device) };
        if code == 0 { bytes as u64 } else { 0 }
    }

    /// Returns true if memory can be allocated and freed in stream order.
    pub fn has_pools(self) -> bool {
        let functions = &self.0.api.functions;
        let known = functions.allocate_ordered.is_some() && functions.free_ordered.is_some();
        known && self.attribute(self.0.api.brand().pools_attribute) != 0
    }

    /// Returns the PCI address in the format of `lspci -D`, which is the same in other APIs.
    pub fn identity(self, [domain, bus, device]: [i32; 3]) -> Option<String> {
        let [domain, bus, device] = [domain, bus, device].map(|part| self.number(part));
        Some(format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
    }
}
