//! Measures the driver's overhead per launch: host time of an empty kernel through `RawDevice::submit`, compared with `wgpu`'s own calls.
//!
//! `cargo run --release -p panoply-driver --example wgpu_launch`

use std::error::Error;
use std::time::Instant;

use panoply_device::{
    Arg, Backend, DType, DeviceCommand, Dispatch, Driver, Language, ParamType, Program, QueueId, RawDevice, Region,
    Signature, SourceText, Ticket,
};
use panoply_driver::WgpuDriver;
use wgpu::{
    Adapter, Backends, BindGroup, BindGroupDescriptor, BindGroupEntry, Buffer, BufferDescriptor, BufferUsages,
    CommandEncoderDescriptor, ComputePassDescriptor, ComputePipeline, ComputePipelineDescriptor, DeviceDescriptor,
    Instance, InstanceDescriptor, InstanceFlags, PipelineCompilationOptions, PollType, ShaderModuleDescriptor,
    ShaderSource,
};

const SOURCE: &str = "
@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 1>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@compute @workgroup_size(1)
fn empty(@builtin(global_invocation_id) at: vec3<u32>) {
    if at.x > launch[0].x { x[0] = 1.0; }
}
";
const LAUNCHES: usize = 100;
const ROUNDS: usize = 101;

/// `wgpu`'s own objects: a pipeline with its arguments bound.
struct Bare {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: ComputePipeline,
    bound: BindGroup,
    words: Buffer,
}

impl Bare {
    async fn new(adapter: &Adapter) -> Result<Bare, Box<dyn Error>> {
        let (device, queue) = adapter.request_device(&DeviceDescriptor::default()).await?;
        let module = ShaderModuleDescriptor { label: None, source: ShaderSource::Wgsl(SOURCE.into()) };
        let module = device.create_shader_module(module);
        let pipeline = device.create_compute_pipeline(&ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: Some("empty"),
            compilation_options: PipelineCompilationOptions::default(),
            cache: None,
        });
        let buffer = |size, usage| {
            device.create_buffer(&BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
        };
        let words = buffer(16, BufferUsages::UNIFORM | BufferUsages::COPY_DST);
        let x = buffer(4096, BufferUsages::STORAGE);
        let entries = [(0, &words), (1, &x)]
            .map(|(binding, buffer)| BindGroupEntry { binding, resource: buffer.as_entire_binding() });
        let layout = pipeline.get_bind_group_layout(0);
        let bound = device.create_bind_group(&BindGroupDescriptor { label: None, layout: &layout, entries: &entries });
        Ok(Bare { device, queue, pipeline, bound, words })
    }

    /// Returns the host nanoseconds per launch.
    fn launches(&self) -> Result<f64, wgpu::PollError> {
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            self.queue.write_buffer(&self.words, 0, &[0; 16]);
            let mut encoder = self.device.create_command_encoder(&CommandEncoderDescriptor::default());
            let mut pass = encoder.begin_compute_pass(&ComputePassDescriptor::default());
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &self.bound, &[]);
            pass.dispatch_workgroups(1, 1, 1);
            drop(pass);
            self.queue.submit([encoder.finish()]);
        }
        let elapsed = start.elapsed();
        self.device.poll(PollType::wait_indefinitely())?;
        Ok(elapsed.as_nanos() as f64 / LAUNCHES as f64)
    }
}

/// The same launches through the driver.
struct Ours {
    device: std::sync::Arc<dyn RawDevice>,
    step: DeviceCommand,
}

impl Ours {
    fn new(device: std::sync::Arc<dyn RawDevice>) -> Result<Ours, panoply_device::Error> {
        let signature = Signature {
            params: vec![ParamType::Buffer(DType::F32), ParamType::Scalar(DType::U32.into())],
            index_bits: 32,
            hidden: false,
        };
        let source = SOURCE.into();
        let program = device.compile(&Program::Text(SourceText {
            language: Language::Wgsl,
            source,
            entry: "empty".into(),
            signature,
        }))?;
        let region = Region { alloc: device.allocate(4096)?, offset: 0, bytes: 4096 };
        let dispatch = Dispatch {
            program,
            grid: [1; 3],
            group_size: [1; 3],
            args: vec![Arg::Buffer(region), Arg::Scalar(0u32.into())],
            parts: Vec::new(),
        };
        Ok(Ours { device, step: DeviceCommand::Dispatch(dispatch) })
    }

    fn launches(&self) -> Result<f64, panoply_device::Error> {
        let mut last = Ticket::Done;
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            last = self.device.submit(QueueId::DEFAULT, std::slice::from_ref(&self.step), false)?;
        }
        let elapsed = start.elapsed();
        last.wait()?;
        Ok(elapsed.as_nanos() as f64 / LAUNCHES as f64)
    }
}

/// Returns the lower decile, because other processes only add time.
fn typical(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 10]
}

/// Returns the result of a future that is ready without an executor, as `wgpu`'s are outside of browsers.
fn now<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let descriptor =
        InstanceDescriptor { flags: InstanceFlags::empty(), ..InstanceDescriptor::new_without_display_handle() };
    let adapters = now(Instance::new(descriptor).enumerate_adapters(Backends::VULKAN));
    // SAFETY: all arguments passed here are valid.
    for device in unsafe { WgpuDriver::new(Backend::Vulkan).probe() }? {
        let info = device.info().clone();
        let bare = now(Bare::new(&adapters[info.index]))?;
        let ours = Ours::new(device)?;
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            times[0].push(bare.launches()?);
            times[1].push(ours.launches()?);
        }
        let [bare, ours] = times.map(typical);
        println!(
            "{} ({}): bare {bare:.0} ns, driver {ours:.0} ns, {:+.0} ns",
            info.device_string(),
            info.name,
            ours - bare
        );
    }
    Ok(())
}
