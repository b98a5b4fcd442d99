//! Measures the runtime's overhead per launch and allocation: `cargo run --release -p panoply-runtime --example launch_cost`.
//!
//! A no-op device shows the runtime's own cost. On each real device, the same dispatch is submitted through the runtime and directly
//! to the driver. Each figure is the best of several rounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use panoply_device::{
    AllocId, Arg, Backend, DeviceCommand, DeviceInfo, Dispatch, Driver, MemoryInfo, Program, ProgramId, QueueId,
    RawDevice, Region, Routine, Target, Ticket,
};
use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, Builtin, Guard, Kernel};
use panoply_ir::{DType, Result};
use panoply_runtime::{BindingKind, BindingSlot, Buffer, Command, Device, DeviceOptions, Grid, Launch, LaunchArg};

/// Number of rounds: many short ones, so that at least one runs undisturbed.
const ROUNDS: usize = 300;

fn main() -> Result<()> {
    let idle = Device::new(Arc::new(Idle::new()), DeviceOptions::default());
    println!("{:34} {:>10}", "runtime only (no-op device)", "ns");
    row("allocate 4 KiB from the pool and drop", time(5000, || idle.allocate(4096).map(drop))?);
    row("allocate 8 MiB from the pool and drop", time(5000, || idle.allocate(8 << 20).map(drop))?);
    row("launch, 3 arguments", launch(&idle)?);
    row("launch in a list of 100", listed(&idle)?);
    row("launch in a command buffer of 100", recorded(&idle)?);
    Device::auto()?;
    row("Device::auto()", time(5000, || Device::auto().map(drop))?);
    for raw in real() {
        let device = Device::new(raw.clone(), DeviceOptions::default());
        println!("\n{:34} {:>10}", device.to_string(), "ns");
        row("launch 64 items through the runtime", launch(&device)?);
        row("the same directly on the driver", straight(&device, &raw)?);
        row("launch in a list of 100", listed(&device)?);
        row("launch in a command buffer of 100", recorded(&device)?);
    }
    Ok(())
}

fn row(what: &str, time: Duration) {
    println!("{what:38} {:>6.0}", time.as_secs_f64() * 1e9);
}

/// Returns the best mean time per call over all rounds.
fn time(calls: u32, mut work: impl FnMut() -> Result<()>) -> Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        (0..calls).try_for_each(|_| work())?;
        best = best.min(start.elapsed() / calls);
    }
    Ok(best)
}

fn real() -> Vec<Arc<dyn RawDevice>> {
    // SAFETY: only `runtime` uses the devices, and it validates its arguments.
    let cpu = unsafe { panoply_cpu::CpuDriver::default().probe() }.unwrap_or_default();
    // SAFETY: only `runtime` uses the devices, and it validates its arguments.
    let opencl = unsafe { panoply_driver::OpenClDriver::default().probe() }.unwrap_or_default();
    // SAFETY: only `runtime` uses the devices, and it validates its arguments.
    let vulkan = unsafe { panoply_driver::WgpuDriver::new(Backend::Vulkan).probe() }.unwrap_or_default();
    cpu.into_iter().chain(opencl).chain(vulkan).filter(|raw| raw.info().variant.is_none()).collect()
}

/// Builds a kernel whose condition is never true: it loads one element and stores nothing.
fn build() -> Result<Kernel> {
    let mut b = Builder::new("empty");
    let a = b.scalar("a", DType::F32);
    let x = b.buffer("x", DType::F32, Access::In);
    let y = b.buffer("y", DType::F32, Access::InOut);
    let i = b.builtin(Builtin::GlobalId(0));
    let (xi, len) = (b.load(x, i, Guard::Checked), b.len(y));
    let beyond = b.alu(panoply_ir::Alu::Lt, &[len, i]);
    b.begin_if(beyond);
    let sum = b.alu(panoply_ir::Alu::Add, &[xi, a]);
    b.store(y, i, sum, Guard::Checked);
    b.end();
    b.finish()
}

fn empty<'a>(a: f32, x: &'a Buffer<f32>, y: &'a mut Buffer<f32>) -> Launch<'a> {
    Launch::new(build, vec![a.into(), x.into(), y.into()])
}

fn launch(device: &Device) -> Result<Duration> {
    let (x, mut y) = (device.zeros(64)?, device.zeros(64)?);
    let calls = if device.device_string().starts_with("opencl") { 100 } else { 2000 };
    time(calls, || empty(1.0, &x, &mut y).launch(64)).and_then(|time| device.synchronize().map(|()| time))
}

fn listed(device: &Device) -> Result<Duration> {
    const LEN: u32 = 100;
    let (x, y) = (device.zeros::<f32>(64)?, device.zeros::<f32>(64)?);
    let prepared = device.compile_fn(build)?;
    let work = |_| {
        let (read, write) = (LaunchArg::read(x.storage(), DType::F32), LaunchArg::write(y.storage(), DType::F32));
        Command::Kernel { prepared: &prepared, grid: Grid::from(64), args: vec![1f32.into(), read, write] }
    };
    let list: Vec<Command<'_>> = (0..LEN).map(work).collect();
    let calls = if device.info().kind == Backend::Cpu { 50 } else { 5 };
    let best = time(calls, || device.submit(&list))? / LEN;
    device.synchronize().map(|()| best)
}

/// Measures the time per launch of replaying 100 recorded launches with bindings that change each time.
fn recorded(device: &Device) -> Result<Duration> {
    const LEN: u32 = 100;
    let memory = [device.zeros::<f32>(64)?, device.zeros::<f32>(64)?, device.zeros::<f32>(64)?];
    let [x, y, z] = memory.each_ref().map(Buffer::storage);
    let prepared = device.compile_fn(build)?;
    let work = |_| {
        let (read, write) = (LaunchArg::read(x, DType::F32), LaunchArg::write(y, DType::F32));
        Command::Kernel { prepared: &prepared, grid: Grid::from(64), args: vec![1f32.into(), read, write] }
    };
    let list: Vec<Command<'_>> = (0..LEN).map(work).collect();
    let at = |step, operand, source| BindingSlot { step, operand, source };
    let places = |step| {
        let buffer = |binding| BindingKind::Binding { binding, offset: 0 };
        [at(step, 0, BindingKind::Slot(0)), at(step, 1, buffer(0)), at(step, 2, buffer(1))]
    };
    let recorded = device.record_commands(&list, &[x, y], &[1f32.into()], (0..LEN).flat_map(places).collect())?;
    let mut round = 0u32;
    let replay = || {
        round += 1;
        let bindings = if round.is_multiple_of(2) { [x, y] } else { [z, y] };
        recorded.replay(&bindings, &[(round as f32).into()]).map(drop)
    };
    let calls = if device.info().kind == Backend::Cpu { 50 } else { 5 };
    let best = time(calls, replay)? / LEN;
    device.synchronize().map(|()| best)
}

/// Measures the same dispatch, submitted directly to the driver.
fn straight(device: &Device, raw: &Arc<dyn RawDevice>) -> Result<Duration> {
    let target = raw.target();
    let kernel = panoply_ir::verify::verify(build()?)?;
    let kernel = panoply_compile::opt::optimize(kernel, target, &panoply_compile::opt::Options::default());
    let program = if target.language == panoply_ir::target::Language::Ir {
        Program::Ir(Arc::new(kernel))
    } else {
        let rendered = panoply_compile::render::render(&kernel, target)?;
        let signature = panoply_device::Signature::of(&kernel, rendered.index_bits);
        let panoply_compile::render::GeneratedSource { source, entry, .. } = rendered;
        Program::Text(panoply_device::SourceText { language: target.language, source, entry, signature })
    };
    let program = raw.compile(&program)?;
    let region = || -> Result<Region> { Ok(Region { alloc: raw.allocate(256)?, offset: 0, bytes: 256 }) };
    let (x, y) = (region()?, region()?);
    let calls = if device.device_string().starts_with("opencl") { 100 } else { 2000 };
    let best = time(calls, || {
        let args = vec![Arg::Scalar(1f32.into()), Arg::Buffer(x), Arg::Buffer(y)];
        let dispatch = Dispatch { program, grid: [64, 1, 1], group_size: [64, 1, 1], args, parts: Vec::new() };
        raw.submit(QueueId::DEFAULT, &[DeviceCommand::Dispatch(dispatch)], false).map(drop)
    });
    raw.synchronize()?;
    best
}

/// A no-op device that completes everything immediately.
#[derive(Debug)]
struct Idle {
    info: DeviceInfo,
    target: Target,
    next: AtomicU64,
}

impl Idle {
    fn new() -> Idle {
        let info = DeviceInfo {
            kind: Backend::Cpu,
            index: 0,
            variant: None,
            name: "idle".into(),
            vendor: String::new(),
            driver: String::new(),
            is_software: true,
            unified_memory: true,
            compute_units: 0,
            physical_id: None,
            details: Vec::new(),
        };
        Idle { info, target: Target::cpu(), next: AtomicU64::new(1) }
    }
}

impl RawDevice for Idle {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn memory(&self) -> MemoryInfo {
        MemoryInfo { total: 1 << 40, free: None }
    }

    fn supports_routine(&self, _: &Routine) -> bool {
        false
    }

    fn allocate(&self, _: u64) -> Result<AllocId> {
        Ok(AllocId(self.next.fetch_add(1, Ordering::Relaxed)))
    }

    fn free(&self, _: AllocId) {}

    fn compile(&self, _: &Program) -> Result<ProgramId> {
        Ok(ProgramId(0))
    }

    fn binary(&self, _: ProgramId) -> Option<Vec<u8>> {
        None
    }

    fn release(&self, _: ProgramId) {}

    fn queue(&self) -> Result<QueueId> {
        Ok(QueueId::DEFAULT)
    }

    fn submit(&self, _: QueueId, _: &[DeviceCommand], _: bool) -> Result<Ticket> {
        Ok(Ticket::Done)
    }

    fn write(&self, _: QueueId, _: Region, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn read(&self, _: QueueId, _: Region) -> Result<Ticket> {
        Ok(Ticket::Done)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}
