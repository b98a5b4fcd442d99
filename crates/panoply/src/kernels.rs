//! Built-in kernels: twelve well-known programs, each in one file with an independent check.
//!
//! They serve as examples of the language, as demonstration of a device, and as a test that runs on every device. Each
//! file holds the kernels, a `job` (inputs, launches and expected results) and the check. The check is plain Rust,
//! written from the definition of the algorithm, and shares no code with the kernel. [`ALL`] is the table that the
//! command line, the tests and the benchmarks use.

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

/// A built-in program.
pub struct BuiltinKernel {
    /// Name on the command line.
    pub name: &'static str,
    /// Short description.
    pub about: &'static str,
    /// Text of its source file.
    pub source: &'static str,
    /// Kernels that it launches, with their names.
    pub kernels: &'static [(&'static str, Build)],
    /// Returns inputs, launches and expected results for a size and a seed.
    pub job: fn(Size, u64) -> Job,
}

/// Amount of work of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A few groups, with partial groups at the edges: for the interpreter and the checked device.
    Tiny,
    /// Takes milliseconds: for a demonstration.
    Small,
    /// Exceeds the caches: for a benchmark.
    Large,
}

impl Size {
    /// Returns the value for this size.
    pub const fn pick(self, tiny: usize, small: usize, large: usize) -> usize {
        match self {
            Size::Tiny => tiny,
            Size::Small => small,
            Size::Large => large,
        }
    }
}

/// Result of running a program on a device.
#[derive(Clone, Debug)]
pub struct BenchResult {
    /// Result of the check.
    pub verdict: CheckResult,
    /// Shortest wall time of the timed runs, without compilation and transfers.
    pub time: Duration,
    /// Number of timed runs.
    pub runs: u32,
    /// Bytes that the algorithm must move.
    pub bytes: u64,
    /// Operations that the algorithm must do: floating-point or integer operations, depending on the program.
    pub ops: u64,
}

impl BenchResult {
    /// Returns the throughput in 10⁹ bytes per second.
    pub fn gb_per_s(&self) -> f64 {
        self.bytes as f64 / self.time.as_secs_f64().max(1e-9) / 1e9
    }

    /// Returns the throughput in 10⁹ operations per second.
    pub fn gop_per_s(&self) -> f64 {
        self.ops as f64 / self.time.as_secs_f64().max(1e-9) / 1e9
    }
}

impl BuiltinKernel {
    /// Runs the program once on a device and checks the results.
    ///
    /// # Errors
    /// Errors of allocation, compilation, launches and transfers. A wrong result is not an error but a failed [`CheckResult`].
    pub fn check(&self, device: &Device, size: Size, seed: u64) -> Result<CheckResult> {
        let job = (self.job)(size, seed);
        verdict(&job, &job.upload(device)?)
    }

    /// [`BuiltinKernel::check`] without blocking, as required in browsers.
    ///
    /// # Errors
    /// Same as [`BuiltinKernel::check`].
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

    /// Checks the results on a device, then runs the program repeatedly for about `budget`, at least once, and times
    /// it.
    ///
    /// # Errors
    /// Same as [`BuiltinKernel::check`].
    pub fn run(&self, device: &Device, size: Size, seed: u64, budget: Duration) -> Result<BenchResult> {
        let job = (self.job)(size, seed);
        let memory = job.upload(device)?;
        let verdict = verdict(&job, &memory)?;
        let (mut time, mut runs) = (Duration::MAX, 0);
        let start = Instant::now();
        while runs == 0 || (start.elapsed() < budget && runs < MAX_RUNS) {
            let begin = Instant::now();
            job.launch(&memory)?;
            device.synchronize()?;
            time = time.min(begin.elapsed());
            runs += 1;
        }
        Ok(BenchResult { verdict, time, runs, bytes: job.bytes, ops: job.ops })
    }

    /// Runs the program on the IR's interpreter, which defines the semantics, and checks the results.
    ///
    /// # Errors
    /// If a kernel cannot be built, fails verification, or violates the IR's semantics.
    pub fn interpret(&self, size: Size, seed: u64) -> Result<CheckResult> {
        let job = (self.job)(size, seed);
        let data = job.interpret()?;
        Ok((job.check)(&job, &data))
    }
}

const MAX_RUNS: u32 = 1000;

/// Launches a job and checks its results.
fn verdict(job: &Job, memory: &[Storage]) -> Result<CheckResult> {
    job.launch(memory)?;
    Ok((job.check)(job, &job.download(memory)?))
}

/// Returns the built-in program with a name.
pub fn find(name: &str) -> Option<&'static BuiltinKernel> {
    ALL.iter().find(|builtin| builtin.name == name)
}

/// All built-in programs.
pub static ALL: &[BuiltinKernel] = &[
    saxpy::BUILTIN,
    reduction::BUILTIN,
    transpose::BUILTIN,
    matmul::BUILTIN,
    histogram::BUILTIN,
    prefix_scan::BUILTIN,
    softmax::BUILTIN,
    mandelbrot::BUILTIN,
    nbody::BUILTIN,
    stencil::BUILTIN,
    philox::BUILTIN,
    bitonic_sort::BUILTIN,
];
