//! Device selection and its reasons.

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

/// A selected device and the reasons against the others.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The device.
    pub device: Device,
    /// Source of the selection.
    pub selected_by: SelectedBy,
    /// Candidates that were considered first and not selected: name of the backend or device, and the reason.
    pub rejected: Arc<[(String, Rejection)]>,
    /// True if the CPU was selected automatically because no accelerator was found.
    pub is_fallback: bool,
}

/// Source of a device selection, in decreasing order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SelectedBy {
    /// Named by the caller.
    Explicit,
    /// [`Device::scope`].
    Scope,
    /// [`Device::set_default`].
    Default,
    /// `PANOPLY_DEVICE`.
    Environment,
    /// Automatic: the best available device.
    Auto,
}

/// Returns the first working hardware device in order of preference. Software implementations are never selected.
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
                            reason: format!(
                                "{} is a software implementation and is not chosen automatically",
                                info.name
                            ),
                            fix: Some(format!("name {} explicitly to use it", device.device_string())),
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
    let error = Error::unavailable("no usable device");
    Err(refused.iter().fold(error, |error, (candidate, refusal)| error.note(format!("{candidate}: {refusal}"))))
}

impl Registry {
    /// Returns the device that `auto` selects, and the reasons against the preceding ones. A device that does not open is skipped, so
    /// that the next interface to the same GPU is tried. The result is cached: later calls cost a few nanoseconds.
    ///
    /// # Errors
    /// No device is usable.
    pub fn recommended(&self) -> Result<Selection> {
        if let Some(selection) = &*self.recommended.read().unwrap_or_else(PoisonError::into_inner) {
            return Ok(selection.clone());
        }
        let selection = auto(&self.backend_reports(), Device::opens)?;
        log::info(|| selection.to_string());
        *self.recommended.write().unwrap_or_else(PoisonError::into_inner) = Some(selection.clone());
        Ok(selection)
    }

    /// Returns the device of this name.
    ///
    /// # Errors
    /// The name is malformed, or there is no such device.
    pub fn get(&self, spelling: &str) -> Result<Device> {
        let wanted = parse(spelling)?;
        let kind = match wanted {
            DeviceSpec::Auto => return Ok(self.recommended()?.device),
            DeviceSpec::Index(kind, _) | DeviceSpec::Variant(kind, _) => kind,
        };
        let devices = self.devices(kind).map_err(|error| {
            let Rejection { reason, fix, notes } = Rejection::of(kind, &error);
            let fix = fix.unwrap_or_else(|| "see `panoply devices`".to_string());
            let sentence = format!("{}: device not found; no {} here: {reason}; {fix}", spelling.trim(), kind.title());
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

/// `cuda:1: device not found; 1 CUDA device here (cuda:0, H200); try cuda:0 or `panoply devices``.
fn no_such(spelling: &str, kind: Backend, devices: &[Device]) -> Error {
    let here: Vec<String> =
        devices.iter().map(|device| format!("{}, {}", device.device_string(), device.info().name)).collect();
    let (count, plural) = (here.len(), if here.len() == 1 { "" } else { "s" });
    let (title, here, first) = (kind.title(), here.join("; "), devices[0].device_string());
    Error::unavailable(format!(
        "{spelling}: device not found; {count} {title} device{plural} here ({here}); try {first} or `panoply devices`"
    ))
}

/// Selects a device: `explicit` if given, else the scope of this thread, else the process default, else `PANOPLY_DEVICE`, else the
/// best hardware. A requested device that is unavailable is an error; it is never replaced.
///
/// # Errors
/// The requested device is unavailable, or no device is usable.
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

/// Returns the device that `PANOPLY_DEVICE` names, else the best hardware.
fn unnamed() -> Result<Selection> {
    match env::settings()?.device.as_deref() {
        None | Some("auto") => Registry::global()?.recommended(),
        Some(spelling) => {
            let device = from_environment(spelling)?;
            Ok(Selection { device, selected_by: SelectedBy::Environment, rejected: Arc::default(), is_fallback: false })
        }
    }
}

/// Returns the device that `PANOPLY_DEVICE` names. Success is cached; a failure is retried.
fn from_environment(spelling: &str) -> Result<Device> {
    static FOUND: OnceLock<Device> = OnceLock::new();
    if let Some(device) = FOUND.get() {
        return Ok(device.clone());
    }
    let device = Registry::global()?.get(spelling).map_err(|error| error.note("requested by PANOPLY_DEVICE"))?;
    Ok(FOUND.get_or_init(|| device).clone())
}

impl Device {
    /// Returns the device that `PANOPLY_DEVICE` names, else the best hardware device, else the CPU. [`select_device`] also returns the
    /// reasons, and considers scopes and the process default.
    ///
    /// # Errors
    /// The device that `PANOPLY_DEVICE` names is unavailable.
    pub fn auto() -> Result<Device> {
        Ok(unnamed()?.device)
    }

    /// Returns the device of this name: `cpu`, `opencl:0`, `cpu:checked` or `auto`.
    ///
    /// # Errors
    /// The name is malformed, or there is no such device.
    pub fn get(spelling: &str) -> Result<Device> {
        Registry::global()?.get(spelling)
    }

    /// Returns the device that is used where none is named; see [`select_device`].
    ///
    /// # Errors
    /// The requested device is unavailable, or no device is usable.
    pub fn current() -> Result<Device> {
        Ok(select_device(None)?.device)
    }

    /// Returns the best hardware device with at least `bytes` bytes of free memory.
    ///
    /// # Errors
    /// No device has enough free memory.
    pub fn with_free_memory(bytes: u64) -> Result<Device> {
        Registry::global()?.with_free_memory(bytes)
    }

    /// Returns all devices, including software implementations, those of preferred backends first.
    ///
    /// # Errors
    /// The environment is invalid, or no device is available.
    pub fn list() -> Result<Vec<Device>> {
        Ok(Registry::global()?.device_report()?.devices().cloned().collect())
    }

    /// Returns the number of devices of a backend.
    ///
    /// # Errors
    /// The backend has no device; the error names the reason.
    pub fn count(backend: Backend) -> Result<usize> {
        Ok(Registry::global()?.devices(backend)?.iter().filter(|device| device.info().variant.is_none()).count())
    }
}

impl Registry {
    /// Returns the best hardware device with at least `bytes` bytes of free memory.
    ///
    /// # Errors
    /// No device has enough; the notes list the free memory of each.
    pub fn with_free_memory(&self, bytes: u64) -> Result<Device> {
        let report = self.device_report()?;
        let hardware = report.devices().filter(|device| !device.info().is_software && device.info().variant.is_none());
        let mut error = Error::new(
            ErrorKind::OutOfMemory,
            format!("no device has room for {}; use a smaller batch or model", human(bytes)),
        );
        for device in hardware {
            // Some drivers report free memory only for an open device.
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
            SelectedBy::Explicit => "named explicitly",
            SelectedBy::Scope => "current scope",
            SelectedBy::Default => "process default",
            SelectedBy::Environment => "requested by PANOPLY_DEVICE",
            SelectedBy::Auto => "best available device",
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
