//! The drivers, and the devices they found.
//!
//! Every driver is asked once, on a thread of its own, with a deadline: one that hangs or panics is reported and left behind.
//! Drivers are asked only when their kind is wanted, so that taking the CPU never waits for a GPU's library.

use std::any::Any;
use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use panoply_cpu::{CpuDriver, CpuOptions};
use panoply_device::{Backend, Driver, RawDevice};
use panoply_ir::{Error, Result};
use web_time::Instant;

use super::select::Selection;
use crate::device::{Device, DeviceOptions};
use crate::log;

/// How long a driver may take to answer. The first start of an OpenCL compiler takes seconds; a hung driver takes for ever.
const DEADLINE: Duration = Duration::from_secs(20);

/// Drivers and the devices they found.
pub struct Registry {
    entries: RwLock<Vec<Arc<Entry>>>,
    /// What `auto` takes, until a driver is registered.
    pub(super) recommended: RwLock<Option<Selection>>,
    deadline: Duration,
    options: DeviceOptions,
}

struct Entry {
    driver: Arc<dyn Driver>,
    state: Mutex<State>,
    answered: Condvar,
}

enum State {
    Unasked,
    Asked { since: Instant },
    Answered(DriverReport),
}

/// What a driver answered.
#[derive(Clone)]
pub(super) struct DriverReport {
    pub kind: Backend,
    /// Its devices, or why it has none.
    pub devices: Result<Vec<Device>>,
    /// What is here but cannot be used.
    pub refused: Vec<Error>,
}

impl Registry {
    /// A registry of these drivers, for programs that want one of their own; most use [`Registry::global`].
    pub fn new(drivers: Vec<Arc<dyn Driver>>, options: DeviceOptions) -> Registry {
        Registry::with_deadline(drivers, options, DEADLINE)
    }

    /// [`Registry::new`], with the time a driver may take to answer.
    pub fn with_deadline(drivers: Vec<Arc<dyn Driver>>, options: DeviceOptions, deadline: Duration) -> Registry {
        let entries = drivers.into_iter().map(Entry::new).collect();
        Registry { entries: RwLock::new(entries), recommended: RwLock::default(), deadline, options }
    }

    /// The registry of this process: the drivers it was built with, and those it registered. An error if the environment says
    /// something that means nothing.
    pub fn global() -> Result<&'static Registry> {
        static GLOBAL: OnceLock<Result<Registry>> = OnceLock::new();
        let make = || Ok(Registry::new(built_in()?, DeviceOptions::from_env()?));
        GLOBAL.get_or_init(make).as_ref().map_err(Error::clone)
    }

    /// Adds a driver; its devices follow those of earlier drivers of its kind.
    pub fn register(&self, driver: Arc<dyn Driver>) {
        self.entries.write().unwrap_or_else(PoisonError::into_inner).push(Entry::new(driver));
        *self.recommended.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Never asks the drivers of a kind, which have no devices for this reason: the remedy for one that takes its process down.
    pub fn disable_backend(&self, kind: Backend, reason: &Error) {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let drivers = entries.iter().filter(|entry| entry.driver.kind() == kind);
        drivers.for_each(|entry| entry.settle(Err(reason.clone()), Vec::new()));
    }

    /// The kinds there are drivers for, each once.
    pub fn backends(&self) -> Vec<Backend> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        Backend::ALL.into_iter().filter(|kind| entries.iter().any(|entry| entry.driver.kind() == *kind)).collect()
    }

    /// What the drivers of these kinds answered, asking those that were not yet asked, all at once.
    pub(super) fn answers(&self, wanted: impl Fn(Backend) -> bool) -> Vec<DriverReport> {
        let entries: Vec<Arc<Entry>> = {
            let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
            entries.iter().filter(|entry| wanted(entry.driver.kind())).cloned().collect()
        };
        entries.iter().for_each(|entry| entry.ask(&self.options));
        entries.iter().map(|entry| entry.answer(self.deadline)).collect()
    }

    /// The devices of a kind, in the order of their drivers; the reason if there are none.
    pub fn devices(&self, kind: Backend) -> Result<Vec<Device>> {
        joined(kind, &self.answers(|other| other == kind))
    }
}

/// The devices of a kind that its drivers found together; the first reason if they found none.
pub(super) fn joined(kind: Backend, answers: &[DriverReport]) -> Result<Vec<Device>> {
    let mut devices = Vec::new();
    let mut reason = None;
    for answer in answers.iter().filter(|answer| answer.kind == kind) {
        match &answer.devices {
            Ok(found) if found.is_empty() => {
                reason = reason.or_else(|| Some(Error::unavailable("the driver found none")))
            }
            Ok(found) => devices.extend(found.iter().cloned()),
            Err(error) => reason = reason.or_else(|| Some(error.clone())),
        }
    }
    if devices.is_empty() { Err(reason.unwrap_or_else(|| absent(kind))) } else { Ok(devices) }
}

/// Asks the browser for its GPU, which then is a device of this process like any other: in a program for browsers this comes first.
/// Asking again changes nothing.
#[cfg(all(feature = "wgpu", target_family = "wasm"))]
pub async fn request_webgpu_device() -> Result<()> {
    let registry = Registry::global()?;
    let is_open = || registry.backends().contains(&Backend::WebGpu);
    if !is_open() {
        let driver = panoply_driver::BrowserDriver::ask().await?;
        // Another call may have been answered in between.
        if !is_open() {
            registry.register(Arc::new(driver));
        }
    }
    Ok(())
}

/// Why a kind for which there is no driver has no devices.
fn absent(kind: Backend) -> Error {
    if cfg!(target_family = "wasm") && kind != Backend::WebGpu {
        return Error::unavailable("a browser opens no libraries; use webgpu or cpu here");
    }
    let feature = match kind {
        Backend::Cuda if cfg!(not(feature = "cuda")) => Some("cuda"),
        Backend::Rocm if cfg!(not(feature = "rocm")) => Some("rocm"),
        Backend::OneApi if cfg!(not(feature = "oneapi")) => Some("oneapi"),
        Backend::OpenCl if cfg!(not(feature = "opencl")) => Some("opencl"),
        Backend::Vulkan | Backend::Metal | Backend::Dx12 if cfg!(not(feature = "wgpu")) => Some("wgpu"),
        Backend::Cuda
        | Backend::Rocm
        | Backend::Metal
        | Backend::OneApi
        | Backend::OpenCl
        | Backend::Vulkan
        | Backend::Dx12
        | Backend::WebGpu
        | Backend::Cpu => None,
    };
    if let Some(feature) = feature {
        return Error::unavailable(format!(
            "this program was built without it; build with the feature `{feature}`, which is on by default"
        ));
    }
    Error::unavailable(match kind {
        Backend::WebGpu if cfg!(target_family = "wasm") => {
            "the browser was not asked for its GPU; `panoply::runtime::request_webgpu_device().await` first"
        }
        Backend::WebGpu => "it is for programs in browsers; use vulkan, metal or dx12 here",
        Backend::Cuda
        | Backend::Rocm
        | Backend::Metal
        | Backend::OneApi
        | Backend::OpenCl
        | Backend::Vulkan
        | Backend::Dx12
        | Backend::Cpu => "no driver for it was registered; register one",
    })
}

/// The drivers this program was built with.
fn built_in() -> Result<Vec<Arc<dyn Driver>>> {
    let threads = crate::env::settings()?.threads.map(NonZeroUsize::get);
    let mut drivers = libraries();
    drivers.push(Arc::new(CpuDriver::new(CpuOptions { threads, ..CpuOptions::default() })));
    Ok(drivers)
}

/// The drivers that open a library of the system.
#[cfg(not(target_family = "wasm"))]
fn libraries() -> Vec<Arc<dyn Driver>> {
    vec![
        #[cfg(feature = "cuda")]
        Arc::new(panoply_driver::CudaDriver::default()),
        #[cfg(feature = "rocm")]
        Arc::new(panoply_driver::HipDriver::default()),
        #[cfg(feature = "oneapi")]
        Arc::new(panoply_driver::OneApiDriver::default()),
        #[cfg(feature = "opencl")]
        Arc::new(panoply_driver::OpenClDriver::default()),
        #[cfg(feature = "wgpu")]
        Arc::new(panoply_driver::WgpuDriver::new(Backend::Metal)),
        #[cfg(feature = "wgpu")]
        Arc::new(panoply_driver::WgpuDriver::new(Backend::Vulkan)),
        #[cfg(feature = "wgpu")]
        Arc::new(panoply_driver::WgpuDriver::new(Backend::Dx12)),
    ]
}

#[cfg(target_family = "wasm")]
fn libraries() -> Vec<Arc<dyn Driver>> {
    Vec::new()
}

impl Entry {
    fn new(driver: Arc<dyn Driver>) -> Arc<Entry> {
        Arc::new(Entry { driver, state: Mutex::new(State::Unasked), answered: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts asking, unless it was asked before.
    fn ask(self: &Arc<Entry>, options: &DeviceOptions) {
        let mut state = self.lock();
        if !matches!(*state, State::Unasked) {
            return;
        }
        *state = State::Asked { since: Instant::now() };
        drop(state);
        let (entry, options) = (self.clone(), options.clone());
        let probe = move || {
            let started = Instant::now();
            let asked =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (entry.probe(), entry.driver.rejected())));
            let (found, refused) = asked.unwrap_or_else(|panic| (Err(panicked(panic.as_ref())), Vec::new()));
            log::debug(|| format!("{}: asked for devices in {:.1?}", entry.driver.kind(), started.elapsed()));
            let devices = |raw: Vec<_>| raw.into_iter().map(|raw| Device::new(raw, options.clone())).collect();
            entry.settle(found.map(devices), refused);
        };
        if cfg!(target_family = "wasm") {
            // There are no threads, and drivers that could hang neither.
            return probe();
        }
        let thread = thread::Builder::new().name(format!("panoply-probe-{}", self.driver.kind())).spawn(probe);
        if let Err(error) = thread {
            self.settle(Err(Error::io("starting a thread that looks for devices", error)), Vec::new());
        }
    }

    /// Asks the driver.
    #[allow(unsafe_code, reason = "one of two places: this crate validates for devices, which validate nothing")]
    fn probe(&self) -> Result<Vec<Arc<dyn RawDevice>>> {
        // SAFETY: `Device::new` takes the devices, which stay inside this crate. It validates every launch (`launch::check`,
        // `launch::work`, `launch::record`), orders what touches the same allocation (`memory::access`, `queue::hazard`), and gives
        // regions of live allocations only (`memory::storage`).
        unsafe { self.driver.probe() }
    }

    /// The first answer stays: a driver that answers after its deadline was given up.
    fn settle(&self, devices: Result<Vec<Device>>, refused: Vec<Error>) {
        let mut state = self.lock();
        if !matches!(*state, State::Answered(_)) {
            *state = State::Answered(DriverReport { kind: self.driver.kind(), devices, refused });
            self.answered.notify_all();
        }
    }

    fn answer(&self, deadline: Duration) -> DriverReport {
        let mut state = self.lock();
        loop {
            let since = match &*state {
                State::Answered(answer) => return answer.clone(),
                State::Asked { since } => *since,
                State::Unasked => unreachable!("`ask` comes first"),
            };
            match deadline.checked_sub(since.elapsed()) {
                Some(left) if !left.is_zero() => {
                    state = self.answered.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                }
                _ => {
                    let (kind, devices) = (self.driver.kind(), Err(late(deadline)));
                    *state = State::Answered(DriverReport { kind, devices, refused: Vec::new() });
                }
            }
        }
    }
}

fn late(deadline: Duration) -> Error {
    Error::unavailable(format!(
        "the driver did not answer within {deadline:?}, its library hangs; \
         try the vendor's own information tool, and reinstall or remove the driver"
    ))
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Error::unavailable(format!("the driver panicked while it was asked for devices ({text}); report this defect"))
}
