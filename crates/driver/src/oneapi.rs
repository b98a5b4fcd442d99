//! Intel GPUs, through the interface of this machine that supports them.
//!
//! Each device wraps a device of another driver, which does all the work; its description names that device. Intel's OpenCL driver is
//! preferred and is given SPIR-V. If it is missing Vulkan is used, and if that is missing too Level Zero, which waits for every command. A
//! GPU that one interface lists twice, from two vendors' drivers, becomes one device, the first. If the machine's bus lists no Intel GPU,
//! no interface is queried: initializing their drivers a second time costs 0.2 seconds.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use panoply_device::{
    AllocId, Backend, DeviceCommand, DeviceInfo, Driver, Error, MemoryInfo, Program, ProgramForm, ProgramId, QueueId,
    RawCommandBuffer, RawDevice, Region, Result, Routine, Scalar, Target, Ticket, command_buffer,
};

/// Finds Intel GPUs.
#[derive(Clone)]
pub struct OneApiDriver {
    /// Drivers through which Intel GPUs can be used, in order of preference.
    pub routes: Vec<Arc<dyn Driver>>,
    /// Folder in which the system lists the devices of its bus; with `None` the drivers are always queried.
    pub bus: Option<PathBuf>,
    /// True if Intel's software devices are accepted too, for tests on machines without a GPU.
    pub software: bool,
}

impl Default for OneApiDriver {
    fn default() -> Self {
        OneApiDriver {
            routes: vec![
                #[cfg(feature = "opencl")]
                Arc::new(crate::OpenClDriver { spirv: true }),
                #[cfg(feature = "wgpu")]
                Arc::new(crate::WgpuDriver::new(Backend::Vulkan)),
                Arc::new(crate::LevelZeroDriver::default()),
            ],
            // Under WSL a GPU is not on the PCI bus that the guest sees.
            bus: Some(PathBuf::from("/sys/bus/pci/devices")).filter(|_| !Path::new("/dev/dxg").exists()),
            software: false,
        }
    }
}

impl Driver for OneApiDriver {
    fn kind(&self) -> Backend {
        Backend::OneApi
    }

    unsafe fn probe(&self) -> Result<Vec<Arc<dyn RawDevice>>> {
        if self.is_pointless() {
            return Err(Error::unavailable("oneapi: no Intel GPU is on this machine's bus"));
        }
        let (mut others, mut reasons) = (Vec::new(), Vec::new());
        for route in &self.routes {
            // SAFETY: as for this function.
            match unsafe { route.probe() } {
                Ok(devices) => {
                    let found = self.served(&devices);
                    if !found.is_empty() {
                        return Ok(found);
                    }
                    others.push(format!("{} has {}", route.kind().title(), others_of(devices.len())));
                }
                Err(error) => reasons.push(error),
            }
        }
        Err(absent(&others, &reasons))
    }

    fn rejected(&self) -> Vec<Error> {
        if self.is_pointless() {
            return Vec::new();
        }
        // SAFETY: the devices are counted and dropped.
        let serves =
            |route: &&Arc<dyn Driver>| unsafe { route.probe() }.is_ok_and(|devices| !self.served(&devices).is_empty());
        self.routes.iter().find(serves).map(|route| route.rejected()).unwrap_or_default()
    }
}

impl OneApiDriver {
    /// Returns true if the bus lists no Intel GPU, so that querying the drivers is pointless.
    fn is_pointless(&self) -> bool {
        !self.software && self.bus.as_deref().is_some_and(lacks_gpu)
    }

    /// Wraps the Intel GPUs among the devices of a driver.
    fn served(&self, devices: &[Arc<dyn RawDevice>]) -> Vec<Arc<dyn RawDevice>> {
        let mut found: Vec<Arc<dyn RawDevice>> = Vec::new();
        for inner in devices.iter().filter(|device| self.accepts(device.info())) {
            let identity = &inner.info().physical_id;
            if identity.is_none() || found.iter().all(|known| known.info().physical_id != *identity) {
                found.push(Arc::new(RenamedDevice::new(inner.clone(), found.len())));
            }
        }
        found
    }

    /// Returns true if a device is an Intel GPU, or an accepted software device. PoCL on an Intel CPU has the vendor `GenuineIntel`.
    fn accepts(&self, info: &DeviceInfo) -> bool {
        let kind = info.details.iter().find(|(name, _)| name == "type");
        let gpu = !info.is_software && kind.is_none_or(|(_, kind)| kind == "gpu");
        info.vendor.starts_with("Intel") && (gpu || self.software && info.is_software)
    }
}

/// Returns true if a bus lists devices, but no display adapter by Intel.
fn lacks_gpu(bus: &Path) -> bool {
    let Ok(listing) = std::fs::read_dir(bus) else { return false };
    let places: Vec<PathBuf> = listing.flatten().map(|entry| entry.path()).collect();
    let says = |place: &Path, file: &str, what: &str| {
        std::fs::read_to_string(place.join(file)).is_ok_and(|text| text.starts_with(what))
    };
    !places.is_empty() && !places.iter().any(|place| says(place, "vendor", "0x8086") && says(place, "class", "0x03"))
}

/// Returns the error for no device: no driver works, or none of the working ones lists an Intel GPU.
fn absent(others: &[String], reasons: &[Error]) -> Error {
    let error = match others {
        [] => "oneapi: no driver for Intel GPUs is installed; install Intel's GPU driver (package intel-opencl-icd), \
               or Mesa's for Vulkan (package mesa-vulkan-drivers)"
            .to_string(),
        _ => format!(
            "oneapi: no Intel GPU was found, {}; if this machine has one, install its driver (package intel-opencl-icd)",
            others.join(" and ")
        ),
    };
    reasons.iter().fold(Error::unavailable(error), |error, reason| error.note(reason.message()))
}

fn others_of(devices: usize) -> String {
    if devices == 1 { "one other device".into() } else { format!("{devices} other devices") }
}

/// A device of another driver, renamed to a `oneapi` device.
struct RenamedDevice {
    inner: Arc<dyn RawDevice>,
    info: DeviceInfo,
}

impl RenamedDevice {
    fn new(inner: Arc<dyn RawDevice>, index: usize) -> RenamedDevice {
        let known = inner.info();
        // Level Zero's devices are `oneapi` devices already, and their driver string names Level Zero.
        let own = known.kind == Backend::OneApi;
        let through = if own { "Level Zero".to_string() } else { known.device_string() };
        let mut info = DeviceInfo {
            kind: Backend::OneApi,
            index,
            driver: if own { known.driver.clone() } else { format!("{}, through {through}", known.driver) },
            ..known.clone()
        };
        info.details.push(("served through".into(), through));
        RenamedDevice { inner, info }
    }
}

impl RawDevice for RenamedDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn target(&self) -> &Target {
        self.inner.target()
    }

    fn memory(&self) -> MemoryInfo {
        self.inner.memory()
    }

    fn supports_routine(&self, routine: &Routine) -> bool {
        self.inner.supports_routine(routine)
    }

    fn allocate(&self, bytes: u64) -> Result<AllocId> {
        self.inner.allocate(bytes)
    }

    fn free(&self, alloc: AllocId) {
        self.inner.free(alloc);
    }

    fn accepted_forms(&self) -> Vec<ProgramForm> {
        self.inner.accepted_forms()
    }

    fn compile(&self, program: &Program) -> Result<ProgramId> {
        self.inner.compile(program)
    }

    fn binary(&self, program: ProgramId) -> Option<Vec<u8>> {
        self.inner.binary(program)
    }

    fn release(&self, program: ProgramId) {
        self.inner.release(program);
    }

    fn queue(&self) -> Result<QueueId> {
        self.inner.queue()
    }

    fn submit(&self, queue: QueueId, steps: &[DeviceCommand], timed: bool) -> Result<Ticket> {
        self.inner.submit(queue, steps, timed)
    }

    fn record(&self, steps: Vec<DeviceCommand>, places: Vec<command_buffer::BindingSlot>) -> Result<RawCommandBuffer> {
        self.inner.record(steps, places)
    }

    fn replay(
        &self,
        queue: QueueId,
        command_buffer: &mut RawCommandBuffer,
        bindings: &[Region],
        slots: &[Scalar],
    ) -> Result<Ticket> {
        self.inner.replay(queue, command_buffer, bindings, slots)
    }

    fn destroy_command_buffer(&self, command_buffer: RawCommandBuffer) {
        self.inner.destroy_command_buffer(command_buffer);
    }

    fn write(&self, queue: QueueId, to: Region, bytes: &[u8]) -> Result<()> {
        self.inner.write(queue, to, bytes)
    }

    fn read(&self, queue: QueueId, from: Region) -> Result<Ticket> {
        self.inner.read(queue, from)
    }

    fn read_into(&self, queue: QueueId, from: Region, bytes: &mut [u8]) -> Result<()> {
        self.inner.read_into(queue, from, bytes)
    }

    fn synchronize(&self) -> Result<()> {
        self.inner.synchronize()
    }
}

impl fmt::Debug for RenamedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.info.device_string(), self.info.name)
    }
}
