//! What is here, what is not and why, and what `auto` would take.

use std::fmt;

use panoply_device::Backend;
use panoply_ir::{Error, Result};

use super::registry::{Registry, joined};
use super::select::{Selection, auto};
use crate::byte_size::human;
use crate::device::Device;

/// Every kind of device there is, and what was found of it.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// All kinds, in the order in which `auto` prefers them.
    pub backends: Vec<BackendReport>,
    /// What `auto` takes.
    pub recommended: Selection,
}

/// One kind of device.
#[derive(Clone, Debug)]
pub struct BackendReport {
    /// Which.
    pub backend: Backend,
    /// Its devices, in the interface's order, software ones included; or why there are none.
    pub devices: std::result::Result<Vec<Device>, Rejection>,
    /// What is here but cannot be used, such as a driver that does not load.
    pub rejected: Vec<Rejection>,
}

/// Why something is not here or was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// What is the matter.
    pub reason: String,
    /// What would change it, if anything is known to.
    pub fix: Option<String>,
    /// What else was found out.
    pub notes: Vec<String>,
}

impl Rejection {
    /// An error's sentence: the reason up to its last semicolon, then the remedy. The kind's name before it is left out.
    pub(super) fn of(kind: Backend, error: &Error) -> Rejection {
        let message = error.message();
        let message = message.strip_prefix(kind.name()).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(message);
        let (reason, fix) = message.rsplit_once("; ").map_or((message, None), |(reason, fix)| (reason, Some(fix)));
        Rejection { reason: reason.to_string(), fix: fix.map(str::to_string), notes: error.notes().to_vec() }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        self.fix.as_ref().map_or(Ok(()), |fix| write!(f, "; {fix}"))
    }
}

impl Registry {
    /// Asks every driver, all at once. No device is opened, so what is recommended is what works as far as its driver says.
    pub fn device_report(&self) -> Result<DeviceReport> {
        let backends = self.backend_reports();
        let recommended = auto(&backends, |_| Ok(()))?;
        Ok(DeviceReport { backends, recommended })
    }

    pub(super) fn backend_reports(&self) -> Vec<BackendReport> {
        let answers = self.answers(|_| true);
        let backend = |kind| {
            let state = joined(kind, &answers).map_err(|error| Rejection::of(kind, &error));
            let refused = answers.iter().filter(|answer| answer.kind == kind).flat_map(|answer| &answer.refused);
            BackendReport {
                backend: kind,
                devices: state,
                rejected: refused.map(|error| Rejection::of(kind, error)).collect(),
            }
        };
        Backend::ALL.into_iter().map(backend).collect()
    }
}

/// What is on this machine, in words.
pub fn device_report() -> Result<DeviceReport> {
    Registry::global()?.device_report()
}

impl DeviceReport {
    /// All devices, the preferred kinds first.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.backends.iter().filter_map(|backend| backend.devices.as_ref().ok()).flatten()
    }

    /// The device through which a preferred interface reaches the same GPU, if one does.
    pub fn alias_of(&self, device: &Device) -> Option<&Device> {
        let identity = device.info().physical_id.as_ref()?;
        self.devices()
            .find(|other| other.info().physical_id.as_ref() == Some(identity))
            .filter(|other| *other != device)
    }
}

impl fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for backend in &self.backends {
            writeln!(f, "{backend}")?;
            for device in backend.devices.iter().flatten() {
                let same = self.alias_of(device).map_or(String::new(), |other| format!(", the same GPU as {other}"));
                writeln!(f, "    {}{same}", line(device))?;
                device.blas_library().map_or(Ok(()), |products| writeln!(f, "        matrix products: {products}"))?;
            }
            backend.problems().try_for_each(|line| writeln!(f, "    {line}"))?;
        }
        write!(f, "Recommended: {}", self.recommended)
    }
}

impl BackendReport {
    /// What else is to be said of it: the remedy where there are no devices, and what was refused beside those there are.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        let absent = self.devices.as_ref().err().into_iter();
        let remedies = absent.flat_map(|refusal| refusal.fix.iter().chain(&refusal.notes).cloned());
        let refused = self.rejected.iter().filter(|_| self.devices.is_ok());
        remedies.chain(refused.map(|refusal| format!("✗ {refusal}")))
    }
}

/// `✓ CPU`, `✓ OpenCL, software only`, or `✗ CUDA: libcuda.so.1 cannot be loaded`.
impl fmt::Display for BackendReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.devices {
            Ok(devices) => {
                let software = devices.iter().all(|device| device.info().is_software);
                write!(f, "✓ {}{}", self.backend.title(), if software { ", software only" } else { "" })
            }
            Err(refusal) => write!(f, "✗ {}: {}", self.backend.title(), refusal.reason),
        }
    }
}

/// `opencl:0  name (vendor, driver), 16 units, 22.5 GiB, software`.
fn line(device: &Device) -> String {
    let info = device.info();
    let total = human(device.memory().total);
    let software = if info.is_software { ", software" } else { "" };
    // Some interfaces do not tell.
    let units = if info.compute_units == 0 { String::new() } else { format!("{} units, ", info.compute_units) };
    format!("{}  {} ({}, {}), {units}{total}{software}", device.device_string(), info.name, info.vendor, info.driver)
}
