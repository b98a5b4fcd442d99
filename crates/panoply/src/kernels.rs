//! The kernels that ship: twelve programs everybody knows, each in one file with a check that shares no code with it.
//!
//! They are examples of the language, the demonstration of a device, and a test that runs on every one. A file holds the
//! kernels, a `job` (inputs, launches, what to expect) and the check: plain Rust, written from the definition and not from
//! the kernel. [`ALL`] is the table that the command line, the tests and the benchmarks share.

mod bitonic_sort;
mod histogram;
mod job;
mod mandelbrot;
mod matmul;
mod nbody;
mod philox;
mod prefix_scan;
mod reduction;
mod saxpy;
mod softmax;
mod stencil;
mod transpose;
mod verdict;

use std::time::Duration;

use panoply_ir::Result;
use panoply_ir::kernel::Kernel;
use panoply_runtime::{Device, Storage};
use web_time::Instant;

pub use job::{Data, Job, JobArg, JobLaunch};
pub use verdict::CheckResult;

/// A function that builds a kernel.
pub type Build = fn() -> Result<Kernel>;

/// A program that ships.
pub struct BuiltinKernel {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it does, in a few words.
    pub about: &'static str,
    /// The file it is written in.
    pub source: &'static str,
    /// The kernels it launches, with their names.
    pub kernels: &'static [(&'static str, Build)],
    /// Inputs, launches and expectations for a size and a seed.
    pub job: fn(Size, u64) -> Job,
}

/// How much work a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A few groups, with ragged ends: for the interpreter and the checked device.
    Tiny,
    /// Milliseconds: for a demonstration.
    Small,
    /// Larger than caches: for a benchmark.
    Large,
}

impl Size {
    /// The number for this size.
    pub const fn pick(self, tiny: usize, small: usize, large: usize) -> usize {
        match self {
            Size::Tiny => tiny,
            Size::Small => small,
            Size::Large => large,
        }
    }
}

/// What came of running a program on a device.
#[derive(Clone, Debug)]
pub struct BenchResult {
    /// Whether the results are what they should be.
    pub verdict: CheckResult,
    /// Wall time of one run, the shortest of those that were timed; compilation and transfers are outside.
    pub time: Duration,
    /// How many runs were timed.
    pub runs: u32,
    /// Bytes the algorithm must move.
    pub bytes: u64,
    /// Operations the algorithm must do, in its own unit (floating-point operations, or integer ones).
    pub ops: u64,
}

impl BenchResult {
    /// 10⁹ bytes a second.
    pub fn gb_per_s(&self) -> f64 {
        self.bytes as f64 / self.time.as_secs_f64().max(1e-9) / 1e9
    }

    /// 10⁹ operations a second.
    pub fn gop_per_s(&self) -> f64 {
        self.ops as f64 / self.time.as_secs_f64().max(1e-9) / 1e9
    }
}

impl BuiltinKernel {
    /// Runs the program on a device once and checks the results.
    pub fn check(&self, device: &Device, size: Size, seed: u64) -> Result<CheckResult> {
        let job = (self.job)(size, seed);
        verdict(&job, &job.upload(device)?)
    }

    /// [`BuiltinKernel::check`] where nothing may wait, as in browsers.
    pub async fn check_async(&self, device: &Device, size: Size, seed: u64) -> Result<CheckResult> {
        let job = (self.job)(size, seed);
        let memory = job.upload(device)?;
        job.launch(&memory)?;
        let mut data = Vec::new();
        for (before, reading) in job.data.iter().zip(job.read(&memory)?) {
            data.push(Data { dtype: before.dtype, bytes: reading.await? });
        }
        Ok((job.check)(&job, &data))
    }

    /// Checks the results on a device, then times the program for about `budget`, at least once.
    pub fn run(&self, device: &Device, size: Size, seed: u64, budget: Duration) -> Result<BenchResult> {
        let job = (self.job)(size, seed);
        let memory = job.upload(device)?;
        let verdict = verdict(&job, &memory)?;
        let (mut time, mut runs) = (Duration::MAX, 0);
        let start = Instant::now();
        while runs == 0 || (start.elapsed() < budget && runs < MOST_RUNS) {
            let begin = Instant::now();
            job.launch(&memory)?;
            device.synchronize()?;
            time = time.min(begin.elapsed());
            runs += 1;
        }
        Ok(BenchResult { verdict, time, runs, bytes: job.bytes, ops: job.ops })
    }

    /// Runs the program on the IR's interpreter, the definition of what it means, and checks the results.
    pub fn interpret(&self, size: Size, seed: u64) -> Result<CheckResult> {
        let job = (self.job)(size, seed);
        let data = job.interpret()?;
        Ok((job.check)(&job, &data))
    }
}

const MOST_RUNS: u32 = 1000;

/// Launches a job on fresh memory and compares.
fn verdict(job: &Job, memory: &[Storage]) -> Result<CheckResult> {
    job.launch(memory)?;
    Ok((job.check)(job, &job.download(memory)?))
}

/// The program with a name.
pub fn find(name: &str) -> Option<&'static BuiltinKernel> {
    ALL.iter().find(|shipped| shipped.name == name)
}

/// Every program that ships.
pub static ALL: &[BuiltinKernel] = &[
    saxpy::SHIPPED,
    reduction::SHIPPED,
    transpose::SHIPPED,
    matmul::SHIPPED,
    histogram::SHIPPED,
    prefix_scan::SHIPPED,
    softmax::SHIPPED,
    mandelbrot::SHIPPED,
    nbody::SHIPPED,
    stencil::SHIPPED,
    philox::SHIPPED,
    bitonic_sort::SHIPPED,
];
