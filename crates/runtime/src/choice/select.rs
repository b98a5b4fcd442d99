//! Choosing a device, and the reasons.

use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError};

use panoply_device::Kind;
use panoply_ir::{Error, ErrorKind, Result};

use super::registry::Registry;
use super::report::{Backend, Refusal};
use super::scope;
use super::spelling::{Wanted, parse};
use crate::bytes::human;
use crate::device::Device;
use crate::env;
use crate::log;

/// A device that was chosen, and why not another.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The device.
    pub device: Device,
    /// Who chose it.
    pub how: How,
    /// What was considered before it and not taken: a kind or device as a user spells it, and why.
    pub refused: Arc<[(String, Refusal)]>,
    /// Whether this is a fallback: nobody chose it and no accelerator was found.
    pub degraded: bool,
}

/// Who chose a device, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
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
pub(super) fn auto(backends: &[Backend], works: fn(&Device) -> Result<()>) -> Result<Selection> {
    let mut refused = Vec::new();
    for Backend { kind, state, .. } in backends {
        match state {
            Err(refusal) => refused.push((kind.to_string(), refusal.clone())),
            Ok(devices) => {
                for device in devices {
                    let info = device.info();
                    let refusal = if info.software {
                        Refusal {
                            reason: format!("{} is software that only pretends to be a device", info.name),
                            fix: Some(format!("name {} to use it all the same", device.spelling())),
                            notes: Vec::new(),
                        }
                    } else if info.variant.is_some() {
                        continue;
                    } else if let Err(error) = works(device) {
                        Refusal::of(*kind, &error)
                    } else {
                        let (device, how) = (device.clone(), How::Auto);
                        return Ok(Selection { device, how, refused: refused.into(), degraded: *kind == Kind::Cpu });
                    };
                    refused.push((device.spelling().to_string(), refusal));
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
    pub fn recommend(&self) -> Result<Selection> {
        if let Some(selection) = &*self.recommended.read().unwrap_or_else(PoisonError::into_inner) {
            return Ok(selection.clone());
        }
        let selection = auto(&self.backends(), Device::opens)?;
        log::info(|| selection.to_string());
        *self.recommended.write().unwrap_or_else(PoisonError::into_inner) = Some(selection.clone());
        Ok(selection)
    }

    /// The device a user spells so.
    pub fn get(&self, spelling: &str) -> Result<Device> {
        let wanted = parse(spelling)?;
        let kind = match wanted {
            Wanted::Auto => return Ok(self.recommend()?.device),
            Wanted::Index(kind, _) | Wanted::Variant(kind, _) => kind,
        };
        let devices = self.devices(kind).map_err(|error| {
            let Refusal { reason, fix, notes } = Refusal::of(kind, &error);
            let fix = fix.unwrap_or_else(|| "see `panoply devices`".to_string());
            let sentence = format!("{}: no such device; no {} here: {reason}; {fix}", spelling.trim(), kind.title());
            notes.into_iter().fold(Error::unavailable(sentence), Error::note)
        })?;
        let is_wanted = |device: &&Device| match &wanted {
            Wanted::Variant(_, variant) => device.info().variant.as_ref() == Some(variant),
            Wanted::Index(_, index) => device.info().variant.is_none() && device.info().index == *index,
            Wanted::Auto => false,
        };
        devices.iter().find(is_wanted).cloned().ok_or_else(|| no_such(spelling.trim(), kind, &devices))
    }
}

/// `cuda:1: no such device; 1 CUDA device here (cuda:0, H200); try cuda:0 or `panoply devices``.
fn no_such(spelling: &str, kind: Kind, devices: &[Device]) -> Error {
    let here: Vec<String> =
        devices.iter().map(|device| format!("{}, {}", device.spelling(), device.info().name)).collect();
    let (count, plural) = (here.len(), if here.len() == 1 { "" } else { "s" });
    let (title, here, first) = (kind.title(), here.join("; "), devices[0].spelling());
    Error::unavailable(format!(
        "{spelling}: no such device; {count} {title} device{plural} here ({here}); try {first} or `panoply devices`"
    ))
}

/// Chooses: what is named here, else the scope of this thread, else the default of this process, else `PANOPLY_DEVICE`, else
/// the best hardware. A choice somebody made that cannot be had is an error, never replaced.
pub fn select(explicit: Option<&str>) -> Result<Selection> {
    let chosen = |device, how| Selection { device, how, refused: Arc::default(), degraded: false };
    if let Some(spelling) = explicit {
        return match parse(spelling)? {
            Wanted::Auto => Registry::global()?.recommend(),
            Wanted::Index(..) | Wanted::Variant(..) => Ok(chosen(Registry::global()?.get(spelling)?, How::Explicit)),
        };
    }
    if let Some(device) = scope::current() {
        return Ok(chosen(device, How::Scope));
    }
    if let Some(device) = scope::default() {
        return Ok(chosen(device, How::Default));
    }
    unnamed()
}

/// What `PANOPLY_DEVICE` names, else the best hardware.
fn unnamed() -> Result<Selection> {
    match env::settings()?.device.as_deref() {
        None | Some("auto") => Registry::global()?.recommend(),
        Some(spelling) => {
            let device = from_environment(spelling)?;
            Ok(Selection { device, how: How::Environment, refused: Arc::default(), degraded: false })
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
    /// The device that `PANOPLY_DEVICE` names, else the best hardware device, else the CPU; [`select`] tells the reasons, and what others chose.
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

    /// The device that is taken where none is named: [`select`].
    pub fn current() -> Result<Device> {
        Ok(select(None)?.device)
    }

    /// The best device with room for so many bytes.
    pub fn for_bytes(bytes: u64) -> Result<Device> {
        Registry::global()?.for_bytes(bytes)
    }

    /// Every device here, software ones included, the preferred kinds first.
    pub fn all() -> Result<Vec<Device>> {
        Ok(Registry::global()?.report()?.devices().cloned().collect())
    }

    /// How many devices of a kind are here; the diagnosis if none.
    pub fn count(kind: Kind) -> Result<usize> {
        Ok(Registry::global()?.devices(kind)?.iter().filter(|device| device.info().variant.is_none()).count())
    }
}

impl Registry {
    /// The best hardware device with room for so many bytes; the error states need against have for each refused.
    pub fn for_bytes(&self, bytes: u64) -> Result<Device> {
        let report = self.report()?;
        let hardware = report.devices().filter(|device| !device.info().software && device.info().variant.is_none());
        let mut error = Error::new(
            ErrorKind::OutOfMemory,
            format!("no device has room for {}; use a smaller batch or model", human(bytes)),
        );
        for device in hardware {
            // Some drivers tell what is free of a device in use only.
            let opened = device.opens();
            let memory = device.memory();
            let room = memory.free.unwrap_or(memory.total).min(device.stats().cap.unwrap_or(u64::MAX));
            error = match opened {
                Ok(()) if bytes <= room => return Ok(device.clone()),
                Ok(()) => error.note(format!("{device}: {} free of {}", human(room), human(memory.total))),
                Err(why) => error.note(why.message()),
            };
        }
        Err(error)
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            How::Explicit => "the one that was named",
            How::Scope => "chosen by a scope",
            How::Default => "the default of the process",
            How::Environment => "asked for by PANOPLY_DEVICE",
            How::Auto => "the best here",
        })
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Selection { device, how, degraded, .. } = self;
        let how = if *degraded { "no accelerator was found".to_string() } else { how.to_string() };
        write!(f, "{device} ({}), {how}", device.info().name)
    }
}
