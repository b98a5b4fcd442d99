//! Device scopes: which devices can run a task.

use panoply_runtime::Backend;
use panoply_tensor::{Device, Error, Result};

/// A description of devices: a string, a device, or several devices.
///
/// A string is a list separated by commas of names for [`Device::get`] (`cpu`, `opencl:0`), of backends with all their devices
/// (`cuda:*`), and of `all`, which is every device of the machine that is not a software implementation of a GPU.
pub trait Scope {
    /// Returns the devices, at least one, without duplicates.
    ///
    /// # Errors
    /// A name is malformed or no device matches it; the notes list the devices of this machine.
    fn devices(&self) -> Result<Vec<Device>>;
}

impl Scope for str {
    fn devices(&self) -> Result<Vec<Device>> {
        let mut devices = Vec::new();
        for term in self.split(',').map(str::trim) {
            let found = matching(term).map_err(|error| error.note(list()))?;
            found.into_iter().for_each(|device| add(&mut devices, device));
        }
        Ok(devices)
    }
}

impl Scope for String {
    fn devices(&self) -> Result<Vec<Device>> {
        self.as_str().devices()
    }
}

impl Scope for Device {
    fn devices(&self) -> Result<Vec<Device>> {
        Ok(vec![self.clone()])
    }
}

impl Scope for [Device] {
    fn devices(&self) -> Result<Vec<Device>> {
        let mut devices = Vec::new();
        self.iter().for_each(|device| add(&mut devices, device.clone()));
        if devices.is_empty() { Err(Error::mistake("a scope needs at least one device")) } else { Ok(devices) }
    }
}

impl Scope for Vec<Device> {
    fn devices(&self) -> Result<Vec<Device>> {
        self.as_slice().devices()
    }
}

fn add(devices: &mut Vec<Device>, device: Device) {
    if !devices.contains(&device) {
        devices.push(device);
    }
}

/// Returns the devices of a term.
fn matching(term: &str) -> Result<Vec<Device>> {
    let found: Vec<Device> = match (term, term.strip_suffix(":*")) {
        ("all", _) => {
            let usable = |device: &Device| device.info().kind == Backend::Cpu || !device.info().is_software;
            Device::list()?.into_iter().filter(|device| device.info().variant.is_none() && usable(device)).collect()
        }
        (_, None) => return Ok(vec![Device::get(term)?]),
        (_, Some(kind)) => {
            // Its error says why the backend is unavailable or has no device.
            let first = Device::get(&format!("{kind}:0"))?;
            let same = |device: &Device| device.info().kind == first.info().kind && device.info().variant.is_none();
            let mut found = vec![first.clone()];
            Device::list()?.into_iter().filter(same).for_each(|device| add(&mut found, device));
            found
        }
    };
    if found.is_empty() { Err(Error::unavailable(format!("{term}: no device matches"))) } else { Ok(found) }
}

/// Returns a note that lists the devices of this machine.
fn list() -> String {
    match Device::list() {
        Ok(devices) => {
            let names: Vec<&str> = devices.iter().map(Device::device_string).collect();
            format!("devices of this machine: {}", names.join(", "))
        }
        Err(error) => format!("no device of this machine can be listed: {}", error.message()),
    }
}
