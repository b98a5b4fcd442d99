//! Intel's GPUs, through whichever of this machine's interfaces reaches them.
//!
//! Each is served by a device of another driver, which does all the work; what is told of it names that device. Intel's OpenCL driver comes
//! first and is given SPIR-V; where it is missing Vulkan takes its place, and where that is missing too Level Zero, which waits for every step.
//! A GPU that one interface shows twice, by drivers of two makers, is one device, the first. Where the bus of the machine shows none, no
//! interface is asked: starting their drivers a second time costs a fifth of a second.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use panoply_device::{
    AllocId, Backend, DeviceCommand, DeviceInfo, Driver, Error, MemoryInfo, Program, ProgramForm, ProgramId, QueueId,
    RawCommandBuffer, RawDevice, Region, Result, Routine, Scalar, Target, Ticket, command_buffer,
};

/// Finds Intel's GPUs.
#[derive(Clone)]
pub struct OneApiDriver {
    /// The drivers that may reach them, the preferred first.
    pub routes: Vec<Arc<dyn Driver>>,
    /// The folder in which the system lists what is on its bus; without one nobody knows before asking.
    pub bus: Option<PathBuf>,
    /// Takes Intel's software devices too, for tests on machines without a GPU.
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
            // Under Windows a GPU is not on the bus that its guest sees.
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
            return Err(Error::unavailable("oneapi: no Intel GPU is on this machine's bus; use another kind"));
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
    /// Whether the bus says that nothing would be found.
    fn is_pointless(&self) -> bool {
        !self.software && self.bus.as_deref().is_some_and(lacks_gpu)
    }

    /// The devices that stand for Intel's GPUs among those of a driver.
    fn served(&self, devices: &[Arc<dyn RawDevice>]) -> Vec<Arc<dyn RawDevice>> {
        let mut found: Vec<Arc<dyn RawDevice>> = Vec::new();
        for inner in devices.iter().filter(|device| self.accepts(device.info())) {
            let identity = &inner.info().physical_id;
            if identity.is_none() || found.iter().all(|known| known.info().physical_id != *identity) {
                found.push(Arc::new(Served::new(inner.clone(), found.len())));
            }
        }
        found
    }

    /// Whether it is a GPU of Intel's.
    fn accepts(&self, info: &DeviceInfo) -> bool {
        let kind = info.details.iter().find(|(name, _)| name == "type");
        let gpu = !info.is_software && kind.is_none_or(|(_, kind)| kind == "gpu");
        info.vendor.contains("Intel") && (gpu || self.software && info.is_software)
    }
}

/// Whether a bus has devices, and no display adapter of Intel's among them.
fn lacks_gpu(bus: &Path) -> bool {
    let Ok(listing) = std::fs::read_dir(bus) else { return false };
    let places: Vec<PathBuf> = listing.flatten().map(|entry| entry.path()).collect();
    let says = |place: &Path, file: &str, what: &str| {
        std::fs::read_to_string(place.join(file)).is_ok_and(|text| text.starts_with(what))
    };
    !places.is_empty() && !places.iter().any(|place| says(place, "vendor", "0x8086") && says(place, "class", "0x03"))
}

/// Why there is none: no interface works, or none of those that do shows one.
fn absent(others: &[String], reasons: &[Error]) -> Error {
    let error = match others {
        [] => "oneapi: no interface that reaches Intel's GPUs is here; install Intel's GPU driver (package intel-opencl-icd), \
               or Mesa's for Vulkan (package mesa-vulkan-drivers)"
            .to_string(),
        _ => format!(
            "oneapi: no Intel GPU is here, {}; if this machine has one, install its driver (package intel-opencl-icd)",
            others.join(" and ")
        ),
    };
    reasons.iter().fold(Error::unavailable(error), |error, reason| error.note(reason.message()))
}

fn others_of(devices: usize) -> String {
    if devices == 1 { "one other device".into() } else { format!("{devices} other devices") }
}

/// A device of another driver under a name of its own.
struct Served {
    inner: Arc<dyn RawDevice>,
    info: DeviceInfo,
}

impl Served {
    fn new(inner: Arc<dyn RawDevice>, index: usize) -> Served {
        let known = inner.info();
        // Level Zero's devices are of this kind themselves, and their driver says so.
        let own = known.kind == Backend::OneApi;
        let through = if own { "Level Zero".to_string() } else { known.device_string() };
        let mut info = DeviceInfo {
            kind: Backend::OneApi,
            index,
            driver: if own { known.driver.clone() } else { format!("{}, through {through}", known.driver) },
            ..known.clone()
        };
        info.details.push(("served through".into(), through));
        Served { inner, info }
    }
}

impl RawDevice for Served {
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

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.info.device_string(), self.info.name)
    }
}
