//! Choosing a device, and the reasons.

use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError};

use panoply_device::Backend;
use panoply_ir::{Error, ErrorKind, Result};

use super::device_string::{DeviceSpec, parse};
use super::registry::Registry;
use super::report::{BackendReport, Rejection};
use super::scope;
use crate::byte_size::human;
use crate::device::Device;
use crate::env;
use crate::log;

/// A device that was chosen, and why not another.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The device.
    pub device: Device,
    /// Who chose it.
    pub selected_by: SelectedBy,
    /// What was considered before it and not taken: a kind or device as a user spells it, and why.
    pub rejected: Arc<[(String, Rejection)]>,
    /// Whether this is a fallback: nobody chose it and no accelerator was found.
    pub is_fallback: bool,
}

/// Who chose a device, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SelectedBy {
    /// The code named it.
    Explicit,
    /// [`Device::scope`].
    Scope,
    /// [`Device::set_default`].
    Default,
    /// `PANOPLY_DEVICE`.
    Environment,
    /// Nobody: the best there is.
    Auto,
}

/// The first hardware device in the order of preference that works. Software devices are never taken.
pub(super) fn auto(backends: &[BackendReport], works: fn(&Device) -> Result<()>) -> Result<Selection> {
    let mut refused = Vec::new();
    for BackendReport { backend: kind, devices: state, .. } in backends {
        match state {
            Err(refusal) => refused.push((kind.to_string(), refusal.clone())),
            Ok(devices) => {
                for device in devices {
                    let info = device.info();
                    let refusal = if info.is_software {
                        Rejection {
                            reason: format!("{} is software that only pretends to be a device", info.name),
                            fix: Some(format!("name {} to use it all the same", device.device_string())),
                            notes: Vec::new(),
                        }
                    } else if info.variant.is_some() {
                        continue;
                    } else if let Err(error) = works(device) {
                        Rejection::of(*kind, &error)
                    } else {
                        let (device, how) = (device.clone(), SelectedBy::Auto);
                        return Ok(Selection {
                            device,
                            selected_by: how,
                            rejected: refused.into(),
                            is_fallback: *kind == Backend::Cpu,
                        });
                    };
                    refused.push((device.device_string().to_string(), refusal));
                }
            }
        }
    }
    let error = Error::unavailable("no device can be used");
    Err(refused.iter().fold(error, |error, (candidate, refusal)| error.note(format!("{candidate}: {refusal}"))))
}

impl Registry {
    /// What `auto` takes, and why nothing before it: a device that cannot be opened is passed over, and so the next interface to the same
    /// GPU is tried. After the first time this costs a few nanoseconds.
    pub fn recommended(&self) -> Result<Selection> {
        if let Some(selection) = &*self.recommended.read().unwrap_or_else(PoisonError::into_inner) {
            return Ok(selection.clone());
        }
        let selection = auto(&self.backend_reports(), Device::opens)?;
        log::info(|| selection.to_string());
        *self.recommended.write().unwrap_or_else(PoisonError::into_inner) = Some(selection.clone());
        Ok(selection)
    }

    /// The device a user spells so.
    pub fn get(&self, spelling: &str) -> Result<Device> {
        let wanted = parse(spelling)?;
        let kind = match wanted {
            DeviceSpec::Auto => return Ok(self.recommended()?.device),
            DeviceSpec::Index(kind, _) | DeviceSpec::Variant(kind, _) => kind,
        };
        let devices = self.devices(kind).map_err(|error| {
            let Rejection { reason, fix, notes } = Rejection::of(kind, &error);
            let fix = fix.unwrap_or_else(|| "see `panoply devices`".to_string());
            let sentence = format!("{}: no such device; no {} here: {reason}; {fix}", spelling.trim(), kind.title());
            notes.into_iter().fold(Error::unavailable(sentence), Error::note)
        })?;
        let is_wanted = |device: &&Device| match &wanted {
            DeviceSpec::Variant(_, variant) => device.info().variant.as_ref() == Some(variant),
            DeviceSpec::Index(_, index) => device.info().variant.is_none() && device.info().index == *index,
            DeviceSpec::Auto => false,
        };
        devices.iter().find(is_wanted).cloned().ok_or_else(|| no_such(spelling.trim(), kind, &devices))
    }
}

/// `cuda:1: no such device; 1 CUDA device here (cuda:0, H200); try cuda:0 or `panoply devices``.
fn no_such(spelling: &str, kind: Backend, devices: &[Device]) -> Error {
    let here: Vec<String> =
        devices.iter().map(|device| format!("{}, {}", device.device_string(), device.info().name)).collect();
    let (count, plural) = (here.len(), if here.len() == 1 { "" } else { "s" });
    let (title, here, first) = (kind.title(), here.join("; "), devices[0].device_string());
    Error::unavailable(format!(
        "{spelling}: no such device; {count} {title} device{plural} here ({here}); try {first} or `panoply devices`"
    ))
}

/// Chooses: what is named here, else the scope of this thread, else the default of this process, else `PANOPLY_DEVICE`, else
/// the best hardware. A choice somebody made that cannot be had is an error, never replaced.
pub fn select_device(explicit: Option<&str>) -> Result<Selection> {
    let chosen = |device, how| Selection { device, selected_by: how, rejected: Arc::default(), is_fallback: false };
    if let Some(spelling) = explicit {
        return match parse(spelling)? {
            DeviceSpec::Auto => Registry::global()?.recommended(),
            DeviceSpec::Index(..) | DeviceSpec::Variant(..) => {
                Ok(chosen(Registry::global()?.get(spelling)?, SelectedBy::Explicit))
            }
        };
    }
    if let Some(device) = scope::current() {
        return Ok(chosen(device, SelectedBy::Scope));
    }
    if let Some(device) = scope::default() {
        return Ok(chosen(device, SelectedBy::Default));
    }
    unnamed()
}

/// What `PANOPLY_DEVICE` names, else the best hardware.
fn unnamed() -> Result<Selection> {
    match env::settings()?.device.as_deref() {
        None | Some("auto") => Registry::global()?.recommended(),
        Some(spelling) => {
            let device = from_environment(spelling)?;
            Ok(Selection { device, selected_by: SelectedBy::Environment, rejected: Arc::default(), is_fallback: false })
        }
    }
}

/// The environment does not change under a program, so its device is looked for once; a failure is looked for again.
fn from_environment(spelling: &str) -> Result<Device> {
    static FOUND: OnceLock<Device> = OnceLock::new();
    if let Some(device) = FOUND.get() {
        return Ok(device.clone());
    }
    let device = Registry::global()?.get(spelling).map_err(|error| error.note("asked for by PANOPLY_DEVICE"))?;
    Ok(FOUND.get_or_init(|| device).clone())
}

impl Device {
    /// The device that `PANOPLY_DEVICE` names, else the best hardware device, else the CPU; [`select_device`] tells the reasons, and what others chose.
    ///
    /// # Errors
    /// `PANOPLY_DEVICE` names no device that is here.
    pub fn auto() -> Result<Device> {
        Ok(unnamed()?.device)
    }

    /// The device a user spells so: `cpu`, `opencl:0`, `cpu:checked`, `auto`.
    pub fn get(spelling: &str) -> Result<Device> {
        Registry::global()?.get(spelling)
    }

    /// The device that is taken where none is named: [`select_device`].
    pub fn current() -> Result<Device> {
        Ok(select_device(None)?.device)
    }

    /// The best device with room for so many bytes.
    pub fn with_free_memory(bytes: u64) -> Result<Device> {
        Registry::global()?.for_bytes(bytes)
    }

    /// Every device here, software ones included, the preferred kinds first.
    pub fn list() -> Result<Vec<Device>> {
        Ok(Registry::global()?.device_report()?.devices().cloned().collect())
    }

    /// How many devices of a kind are here; the diagnosis if none.
    pub fn count(kind: Backend) -> Result<usize> {
        Ok(Registry::global()?.devices(kind)?.iter().filter(|device| device.info().variant.is_none()).count())
    }
}

impl Registry {
    /// The best hardware device with room for so many bytes; the error states need against have for each refused.
    pub fn for_bytes(&self, bytes: u64) -> Result<Device> {
        let report = self.device_report()?;
        let hardware = report.devices().filter(|device| !device.info().is_software && device.info().variant.is_none());
        let mut error = Error::new(
            ErrorKind::OutOfMemory,
            format!("no device has room for {}; use a smaller batch or model", human(bytes)),
        );
        for device in hardware {
            // Some drivers tell what is free of a device in use only.
            let opened = device.opens();
            let memory = device.memory();
            let room = memory.free.unwrap_or(memory.total).min(device.memory_stats().limit.unwrap_or(u64::MAX));
            error = match opened {
                Ok(()) if bytes <= room => return Ok(device.clone()),
                Ok(()) => error.note(format!("{device}: {} free of {}", human(room), human(memory.total))),
                Err(why) => error.note(why.message()),
            };
        }
        Err(error)
    }
}

impl fmt::Display for SelectedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SelectedBy::Explicit => "the one that was named",
            SelectedBy::Scope => "chosen by a scope",
            SelectedBy::Default => "the default of the process",
            SelectedBy::Environment => "asked for by PANOPLY_DEVICE",
            SelectedBy::Auto => "the best here",
        })
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Selection { device, selected_by: how, is_fallback: degraded, .. } = self;
        let how = if *degraded { "no accelerator was found".to_string() } else { how.to_string() };
        write!(f, "{device} ({}), {how}", device.info().name)
    }
}
