//! Measures the driver's overhead per launch: host time of an empty kernel through `RawDevice::submit`, compared with the bare OpenCL
//! calls.
//!
//! `OCL_ICD_VENDORS=<folder> cargo run --release -p panoply-driver --example opencl_launch`

use std::error::Error;
use std::ffi::CString;
use std::ptr;
use std::time::Instant;

use cl3::types::{cl_command_queue, cl_context, cl_device_id, cl_event, cl_kernel};
use cl3::{command_queue, context, device, event, kernel, memory, platform, program};
use panoply_device::{
    Arg, DType, DeviceCommand, Dispatch, Language, ParamType, Program, QueueId, RawDevice, Region, Signature,
    SourceText, Ticket,
};
use panoply_driver::OpenClDriver;
use panoply_driver::opencl::OpenClDevice;

const SOURCE: &str = "kernel void empty(global float *x, ulong xoff, ulong xlen, ulong s0, ulong s1, ulong s2) {}";
const LAUNCHES: usize = 1_000;
const ROUNDS: usize = 301;

/// The bare OpenCL calls: a kernel with its arguments set, and a queue.
struct Bare {
    queue: cl_command_queue,
    kernel: cl_kernel,
}

impl Bare {
    fn new(device: cl_device_id, profiling: u64) -> Result<Bare, i32> {
        let context: cl_context = context::create_context(&[device], ptr::null(), None, ptr::null_mut())?;
        let program = program::create_program_with_source(context, &[SOURCE])?;
        let options = CString::new("-cl-std=CL1.2").expect("no zero byte");
        program::build_program(program, &[device], &options, None, ptr::null_mut())?;
        let kernel = kernel::create_kernel(program, &CString::new("empty").expect("no zero byte"))?;
        // SAFETY: all objects are live and belong together; arguments have the declared types.
        unsafe {
            let buffer = memory::create_buffer(context, memory::CL_MEM_READ_WRITE, 4096, ptr::null_mut())?;
            kernel::set_kernel_arg(kernel, 0, size_of_val(&buffer), ptr::from_ref(&buffer).cast())?;
            (1..6).try_for_each(|i| kernel::set_kernel_arg(kernel, i, 8, ptr::from_ref(&1u64).cast()))?;
            Ok(Bare { queue: command_queue::create_command_queue(context, device, profiling)?, kernel })
        }
    }

    /// Returns the host nanoseconds per launch. The last event is kept, as a caller that waits must do.
    fn launches(&self) -> Result<f64, i32> {
        let mut last: Option<cl_event> = None;
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            let (one, none) = ([1usize], ptr::null());
            // SAFETY: queue and kernel are live; the sizes outlive the call.
            let event = unsafe {
                let (size, no_offset, no_events) = (one.as_ptr(), ptr::null(), none);
                command_queue::enqueue_nd_range_kernel(self.queue, self.kernel, 1, no_offset, size, size, 0, no_events)?
            };
            if let Some(before) = last.replace(event) {
                // SAFETY: the event's reference is owned here.
                unsafe { event::release_event(before)? };
            }
        }
        let elapsed = start.elapsed();
        command_queue::finish(self.queue)?;
        // SAFETY: as above.
        last.map_or(Ok(()), |event| unsafe { event::release_event(event) })?;
        Ok(elapsed.as_nanos() as f64 / LAUNCHES as f64)
    }
}

/// The same launches through the driver.
struct Ours<'a> {
    device: &'a OpenClDevice,
    step: DeviceCommand,
}

impl Ours<'_> {
    fn new(device: &OpenClDevice) -> Result<Ours<'_>, panoply_device::Error> {
        let program = device.compile(&Program::Text(SourceText {
            language: Language::OpenClC,
            source: SOURCE.into(),
            entry: "empty".into(),
            signature: Signature { params: vec![ParamType::Buffer(DType::F32)], index_bits: 64, hidden: true },
        }))?;
        let region = Region { alloc: device.allocate(4096)?, offset: 0, bytes: 4096 };
        let dispatch =
            Dispatch { program, grid: [1; 3], group_size: [1; 3], args: vec![Arg::Buffer(region)], parts: Vec::new() };
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

fn main() -> Result<(), Box<dyn Error>> {
    let code = |code: i32| format!("OpenCL returned {code}");
    let mut ids = Vec::new();
    for platform in platform::get_platform_ids().map_err(code)? {
        ids.extend(device::get_device_ids(platform, device::CL_DEVICE_TYPE_ALL).map_err(code)?);
    }
    // SAFETY: all arguments passed here are valid.
    for device in unsafe { OpenClDriver::default().devices() }? {
        let id = ids[device.info().index];
        let bare = Bare::new(id, 0).map_err(code)?;
        let profiled = Bare::new(id, command_queue::CL_QUEUE_PROFILING_ENABLE).map_err(code)?;
        let ours = Ours::new(&device)?;
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            times[0].push(bare.launches().map_err(code)?);
            times[1].push(profiled.launches().map_err(code)?);
            times[2].push(ours.launches()?);
        }
        let [bare, profiled, ours] = times.map(typical);
        println!(
            "{} ({}): bare {bare:.0} ns, bare with profiling {profiled:.0} ns, driver {ours:.0} ns = {:.2} × bare",
            device.info().device_string(),
            device.info().name,
            ours / bare
        );
    }
    Ok(())
}
