//! The drivers and the devices that they found.
//!
//! Each driver is probed once, on a separate thread and with a deadline. A driver that hangs or panics is reported and abandoned.
//! Drivers are probed only when their backend is needed, so that selecting the CPU never waits for a GPU library, and at the same time, but
//! for those of OpenCL ([`super::turns`]).

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
use super::turns::Turn;
use crate::build_profile;
use crate::device::{Device, DeviceOptions};
use crate::log;

/// Time limit for probing a driver. The first start of an OpenCL compiler takes seconds; a hung driver never returns.
const DEADLINE: Duration = Duration::from_secs(20);

/// The drivers and the devices that they found.
pub struct Registry {
    entries: RwLock<Vec<Arc<Entry>>>,
    /// Cached result of `auto`, cleared when a driver is registered.
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
    /// Probing will begin once the probes that must not run at the same time have ended.
    Waiting,
    Probing {
        since: Instant,
        _turn: Turn,
    },
    Answered(DriverReport),
}

/// Result of probing a driver.
#[derive(Clone)]
pub(super) struct DriverReport {
    pub kind: Backend,
    /// Devices found, or the reason why there are none.
    pub devices: Result<Vec<Device>>,
    /// Reasons why hardware or drivers found here are unusable.
    pub refused: Vec<Error>,
}

impl Registry {
    /// Creates a registry of these drivers. Most programs use [`Registry::global`] instead.
    pub fn new(drivers: Vec<Arc<dyn Driver>>, options: DeviceOptions) -> Registry {
        Registry::with_deadline(drivers, options, DEADLINE)
    }

    /// Like [`Registry::new`], with a time limit for probing a driver.
    pub fn with_deadline(drivers: Vec<Arc<dyn Driver>>, options: DeviceOptions, deadline: Duration) -> Registry {
        let entries = drivers.into_iter().map(Entry::new).collect();
        Registry { entries: RwLock::new(entries), recommended: RwLock::default(), deadline, options }
    }

    /// Returns the registry of this process, with the built-in and the registered drivers.
    ///
    /// # Errors
    /// A `PANOPLY_*` variable has an invalid value.
    pub fn global() -> Result<&'static Registry> {
        static GLOBAL: OnceLock<Result<Registry>> = OnceLock::new();
        let make = || {
            build_profile::warn_if_unoptimized();
            Ok(Registry::new(built_in()?, DeviceOptions::from_env()?))
        };
        GLOBAL.get_or_init(make).as_ref().map_err(Error::clone)
    }

    /// Adds a driver. Its devices follow those of earlier drivers of its backend.
    pub fn register(&self, driver: Arc<dyn Driver>) {
        self.entries.write().unwrap_or_else(PoisonError::into_inner).push(Entry::new(driver));
        *self.recommended.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Sets the number of threads of the CPU, from 1 to 1024, for devices requested from now on. A CPU that
    /// [`Registry::disable_backend`] disabled is enabled again.
    pub fn set_cpu_threads(&self, threads: NonZeroUsize) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let options = CpuOptions { threads: Some(threads.get()), ..CpuOptions::default() };
        let driver = Entry::new(Arc::new(CpuDriver::new(options)));
        match entries.iter_mut().find(|entry| entry.driver.kind() == Backend::Cpu) {
            Some(entry) => *entry = driver,
            None => entries.push(driver),
        }
        *self.recommended.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Disables a backend, whose drivers are then never probed and have no devices for this reason. This is a workaround for drivers
    /// that crash the process.
    pub fn disable_backend(&self, kind: Backend, reason: &Error) {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let drivers = entries.iter().filter(|entry| entry.driver.kind() == kind);
        drivers.for_each(|entry| entry.settle(Err(reason.clone()), Vec::new()));
    }

    /// Returns the backends with a driver, without duplicates.
    pub fn backends(&self) -> Vec<Backend> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        Backend::ALL.into_iter().filter(|kind| entries.iter().any(|entry| entry.driver.kind() == *kind)).collect()
    }

    /// Probes those drivers of the wanted backends that have not been probed, and returns the results of all.
    pub(super) fn answers(&self, wanted: impl Fn(Backend) -> bool) -> Vec<DriverReport> {
        let entries: Vec<Arc<Entry>> = {
            let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
            entries.iter().filter(|entry| wanted(entry.driver.kind())).cloned().collect()
        };
        entries.iter().for_each(|entry| entry.ask(&self.options, self.deadline));
        entries.iter().map(|entry| entry.answer(self.deadline)).collect()
    }

    /// Returns the devices of a backend, in the order of their drivers.
    ///
    /// # Errors
    /// There are none; the error names the reason.
    pub fn devices(&self, kind: Backend) -> Result<Vec<Device>> {
        joined(kind, &self.answers(|other| other == kind))
    }
}

/// Returns the devices found by all drivers of a backend, or the first reason if there are none.
pub(super) fn joined(kind: Backend, answers: &[DriverReport]) -> Result<Vec<Device>> {
    let mut devices = Vec::new();
    let mut reason = None;
    for answer in answers.iter().filter(|answer| answer.kind == kind) {
        match &answer.devices {
            Ok(found) if found.is_empty() => {
                reason = reason.or_else(|| Some(Error::unavailable("the driver found no devices")))
            }
            Ok(found) => devices.extend(found.iter().cloned()),
            Err(error) => reason = reason.or_else(|| Some(error.clone())),
        }
    }
    if devices.is_empty() { Err(reason.unwrap_or_else(|| absent(kind))) } else { Ok(devices) }
}

/// Requests the browser's GPU and registers it as a device. A program in a browser calls this first. Repeated calls have no effect.
///
/// # Errors
/// The browser has no usable GPU.
#[cfg(all(feature = "wgpu", target_family = "wasm"))]
pub async fn request_webgpu_device() -> Result<()> {
    let registry = Registry::global()?;
    let is_open = || registry.backends().contains(&Backend::WebGpu);
    if !is_open() {
        let driver = panoply_driver::BrowserDriver::ask().await?;
        // A concurrent call can have registered it in the meantime.
        if !is_open() {
            registry.register(Arc::new(driver));
        }
    }
    Ok(())
}

/// Returns the reason why a backend without a driver has no devices.
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
            "this program was built without it; build with the feature `{feature}` (enabled by default)"
        ));
    }
    Error::unavailable(match kind {
        Backend::WebGpu if cfg!(target_family = "wasm") => {
            "the browser's GPU was not requested; call `panoply::runtime::request_webgpu_device().await` first"
        }
        Backend::WebGpu => "WebGPU is only available in browsers",
        Backend::Cuda
        | Backend::Rocm
        | Backend::Metal
        | Backend::OneApi
        | Backend::OpenCl
        | Backend::Vulkan
        | Backend::Dx12
        | Backend::Cpu => "no driver is registered; register one",
    })
}

/// Returns the built-in drivers.
fn built_in() -> Result<Vec<Arc<dyn Driver>>> {
    let threads = crate::env::settings()?.threads.map(NonZeroUsize::get);
    let mut drivers = libraries();
    drivers.push(Arc::new(CpuDriver::new(CpuOptions { threads, ..CpuOptions::default() })));
    Ok(drivers)
}

/// Returns the drivers that load a system library.
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

    /// Starts probing the driver, unless that was done before.
    fn ask(self: &Arc<Entry>, options: &DeviceOptions, deadline: Duration) {
        let mut state = self.lock();
        if !matches!(*state, State::Unasked) {
            return;
        }
        *state = State::Waiting;
        drop(state);
        let (entry, options) = (self.clone(), options.clone());
        let probe = move || {
            let turn = Turn::wait(entry.driver.kind(), deadline);
            let started = Instant::now();
            if !entry.begin(started, turn) {
                return;
            }
            let asked =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (entry.probe(), entry.driver.rejected())));
            let (found, refused) = asked.unwrap_or_else(|panic| (Err(panicked(panic.as_ref())), Vec::new()));
            log::debug(|| format!("{}: device discovery took {:.1?}", entry.driver.kind(), started.elapsed()));
            let devices = |raw: Vec<_>| raw.into_iter().map(|raw| Device::new(raw, options.clone())).collect();
            entry.settle(found.map(devices), refused);
        };
        if cfg!(target_family = "wasm") {
            // There are no threads, but also no drivers that could hang.
            return probe();
        }
        let thread = thread::Builder::new().name(format!("panoply-probe-{}", self.driver.kind())).spawn(probe);
        if let Err(error) = thread {
            self.settle(Err(Error::io("starting a thread for device discovery", error)), Vec::new());
        }
    }

    /// Probes the driver.
    #[allow(unsafe_code, reason = "one of two places: this crate validates for devices, which validate nothing")]
    fn probe(&self) -> Result<Vec<Arc<dyn RawDevice>>> {
        // SAFETY: `Device::new` takes the devices, which stay inside this crate. It validates every launch (`launch::check`,
        // `launch::command`, `launch::command_buffer`), orders accesses to the same allocation (`memory::access`, `queue::hazard`), and
        // passes regions of live allocations only (`memory::storage`).
        unsafe { self.driver.probe() }
    }

    /// Starts the time limit, unless the backend was disabled in the meantime.
    fn begin(&self, since: Instant, turn: Turn) -> bool {
        let mut state = self.lock();
        let is_wanted = matches!(*state, State::Waiting);
        if is_wanted {
            *state = State::Probing { since, _turn: turn };
            self.answered.notify_all();
        }
        is_wanted
    }

    /// Records the result, unless there is one: a driver that responds after its deadline stays abandoned.
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
                State::Probing { since, .. } => *since,
                State::Waiting => {
                    state = self.answered.wait(state).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                State::Unasked => unreachable!("`ask` is called first"),
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
        "the driver did not respond within {deadline:?}, its library hangs; \
         try the vendor's own information tool, and reinstall or remove the driver"
    ))
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Error::unavailable(format!("the driver panicked during device discovery ({text}); report this bug"))
}
