//! What is here, what is not and why, and what `auto` would take.

use std::fmt;

use panoply_device::Kind;
use panoply_ir::{Error, Result};

use super::registry::{Registry, joined};
use super::select::{Selection, auto};
use crate::bytes::human;
use crate::device::Device;

/// Every kind of device there is, and what was found of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// All kinds, in the order in which `auto` prefers them.
    pub backends: Vec<Backend>,
    /// What `auto` takes.
    pub recommended: Selection,
}

/// One kind of device.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Which.
    pub kind: Kind,
    /// Its devices, in the interface's order, software ones included; or why there are none.
    pub state: std::result::Result<Vec<Device>, Refusal>,
    /// What is here but cannot be used, such as a driver that does not load.
    pub refused: Vec<Refusal>,
}

/// Why something is not here or was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is the matter.
    pub reason: String,
    /// What would change it, if anything is known to.
    pub fix: Option<String>,
    /// What else was found out.
    pub notes: Vec<String>,
}

impl Refusal {
    /// An error's sentence: the reason up to its last semicolon, then the remedy. The kind's name before it is left out.
    pub(super) fn of(kind: Kind, error: &Error) -> Refusal {
        let message = error.message();
        let message = message.strip_prefix(kind.name()).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(message);
        let (reason, fix) = message.rsplit_once("; ").map_or((message, None), |(reason, fix)| (reason, Some(fix)));
        Refusal { reason: reason.to_string(), fix: fix.map(str::to_string), notes: error.notes().to_vec() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        self.fix.as_ref().map_or(Ok(()), |fix| write!(f, "; {fix}"))
    }
}

impl Registry {
    /// Asks every driver, all at once. No device is opened, so what is recommended is what works as far as its driver says.
    pub fn report(&self) -> Result<Report> {
        let backends = self.backends();
        let recommended = auto(&backends, |_| Ok(()))?;
        Ok(Report { backends, recommended })
    }

    pub(super) fn backends(&self) -> Vec<Backend> {
        let answers = self.answers(|_| true);
        let backend = |kind| {
            let state = joined(kind, &answers).map_err(|error| Refusal::of(kind, &error));
            let refused = answers.iter().filter(|answer| answer.kind == kind).flat_map(|answer| &answer.refused);
            Backend { kind, state, refused: refused.map(|error| Refusal::of(kind, error)).collect() }
        };
        Kind::ALL.into_iter().map(backend).collect()
    }
}

/// What is on this machine, in words.
pub fn report() -> Result<Report> {
    Registry::global()?.report()
}

impl Report {
    /// All devices, the preferred kinds first.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.backends.iter().filter_map(|backend| backend.state.as_ref().ok()).flatten()
    }

    /// The device through which a preferred interface reaches the same GPU, if one does.
    pub fn same_as(&self, device: &Device) -> Option<&Device> {
        let identity = device.info().identity.as_ref()?;
        self.devices().find(|other| other.info().identity.as_ref() == Some(identity)).filter(|other| *other != device)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for backend in &self.backends {
            writeln!(f, "{backend}")?;
            for device in backend.state.iter().flatten() {
                let same = self.same_as(device).map_or(String::new(), |other| format!(", the same GPU as {other}"));
                writeln!(f, "    {}{same}", line(device))?;
                device.products().map_or(Ok(()), |products| writeln!(f, "        matrix products: {products}"))?;
            }
            backend.objections().try_for_each(|line| writeln!(f, "    {line}"))?;
        }
        write!(f, "Recommended: {}", self.recommended)
    }
}

impl Backend {
    /// What else is to be said of it: the remedy where there are no devices, and what was refused beside those there are.
    pub fn objections(&self) -> impl Iterator<Item = String> {
        let absent = self.state.as_ref().err().into_iter();
        let remedies = absent.flat_map(|refusal| refusal.fix.iter().chain(&refusal.notes).cloned());
        let refused = self.refused.iter().filter(|_| self.state.is_ok());
        remedies.chain(refused.map(|refusal| format!("✗ {refusal}")))
    }
}

/// `✓ CPU`, `✓ OpenCL, software only`, or `✗ CUDA: libcuda.so.1 cannot be loaded`.
impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            Ok(devices) => {
                let software = devices.iter().all(|device| device.info().software);
                write!(f, "✓ {}{}", self.kind.title(), if software { ", software only" } else { "" })
            }
            Err(refusal) => write!(f, "✗ {}: {}", self.kind.title(), refusal.reason),
        }
    }
}

/// `opencl:0  name (vendor, driver), 16 units, 22.5 GiB, software`.
fn line(device: &Device) -> String {
    let info = device.info();
    let total = human(device.memory().total);
    let software = if info.software { ", software" } else { "" };
    // Some interfaces do not tell.
    let units = if info.compute_units == 0 { String::new() } else { format!("{} units, ", info.compute_units) };
    format!("{}  {} ({}, {}), {units}{total}{software}", device.spelling(), info.name, info.vendor, info.driver)
}
