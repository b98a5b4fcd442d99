//! Reports of the available and unavailable devices, and of the device that `auto` selects.

use std::fmt;

use panoply_device::Backend;
use panoply_ir::{Error, Result};

use super::registry::{Registry, joined};
use super::select::{Selection, auto};
use crate::byte_size::human;
use crate::device::Device;

/// Report of all backends and their devices.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// All backends, in the order in which `auto` prefers them.
    pub backends: Vec<BackendReport>,
    /// Device that `auto` selects.
    pub recommended: Selection,
}

/// Report of one backend.
#[derive(Clone, Debug)]
pub struct BackendReport {
    /// The backend.
    pub backend: Backend,
    /// Its devices, in the interface's order and including software implementations; or the reason why there are none.
    pub devices: std::result::Result<Vec<Device>, Rejection>,
    /// Reasons why hardware or drivers found here are unusable, such as a driver that does not load.
    pub rejected: Vec<Rejection>,
}

/// Reason why a device or backend is unavailable or was not selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The reason.
    pub reason: String,
    /// A remedy, if one is known.
    pub fix: Option<String>,
    /// Further details.
    pub notes: Vec<String>,
}

impl Rejection {
    /// Splits an error's message at its last semicolon into the reason and the remedy, without the leading name of the backend.
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
    /// Probes every driver in parallel. No device is opened, so the recommendation relies on the drivers' statements.
    ///
    /// # Errors
    /// No device is available.
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

/// Returns a report of this machine's devices.
///
/// # Errors
/// The environment is invalid, or no device is available.
pub fn device_report() -> Result<DeviceReport> {
    Registry::global()?.device_report()
}

impl DeviceReport {
    /// Returns all devices, those of preferred backends first.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.backends.iter().filter_map(|backend| backend.devices.as_ref().ok()).flatten()
    }

    /// Returns the same GPU's device in a preferred backend, if there is one.
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
    /// Returns the remedies if there are no devices, else the unusable hardware or drivers found beside them.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        let absent = self.devices.as_ref().err().into_iter();
        let remedies = absent.flat_map(|refusal| refusal.fix.iter().chain(&refusal.notes).cloned());
        let refused = self.rejected.iter().filter(|_| self.devices.is_ok());
        remedies.chain(refused.map(|refusal| format!("✗ {refusal}")))
    }
}

/// Prints `✓ CPU`, `✓ OpenCL, software only`, or `✗ CUDA: libcuda.so.1 cannot be loaded`.
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

/// Returns a line such as `opencl:0  name (vendor, driver), 16 units, 22.5 GiB, software`.
fn line(device: &Device) -> String {
    let info = device.info();
    let total = human(device.memory().total);
    let software = if info.is_software { ", software" } else { "" };
    // Some interfaces do not report the number of units.
    let units = if info.compute_units == 0 { String::new() } else { format!("{} units, ", info.compute_units) };
    format!("{}  {} ({}, {}), {units}{total}{software}", device.device_string(), info.name, info.vendor, info.driver)
}
