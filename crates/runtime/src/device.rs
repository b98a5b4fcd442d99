//! The handle of a device.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use panoply_device::{DeviceInfo, MemoryInfo, RawDevice};
use panoply_ir::kernel::Kernel;
use panoply_ir::routine::Routine;
use panoply_ir::target::Language;
use panoply_ir::{Element, Error, MathMode, Result, Target, Verified};

use crate::env::{self, PoolSetting};
use crate::log;
use crate::memory::buffer::Buffer;
use crate::memory::pool::Pool;
use crate::memory::stats::{MemoryEstimate, MemoryStats, TaggedMemory};
use crate::memory::storage::Storage;
use crate::memory::tag;
use crate::profile::recording::Profiler;
use crate::program::cache::Programs;
use crate::program::compiled_kernel::CompiledKernel;
use crate::program::compiler::ProgramCacheStats;
use crate::program::external_kernel::ExternalKernel;
use crate::program::parallel::parallel_map;
use crate::queue::Queues;

/// A device with its memory pool, its programs and its queues. Clones are the same device.
#[derive(Clone)]
pub struct Device(Arc<Shared>);

struct Shared {
    raw: Arc<dyn RawDevice>,
    spelling: String,
    pool: Pool,
    programs: Programs,
    queues: Queues,
    profiler: Profiler,
    submissions: AtomicU64,
    uploaded: AtomicU64,
    downloaded: AtomicU64,
    accuracy: Mutex<MathMode>,
    tf32: AtomicBool,
    tunes: AtomicBool,
}

/// How a device keeps what it made, and how it computes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Freed memory.
    pub pool: PoolSetting,
    /// Where compiled programs are kept for the next process; none keeps none.
    pub cache_dir: Option<PathBuf>,
    /// What tensors on it let their plans do to float arithmetic.
    pub accuracy: MathMode,
    /// Whether they may do products of f32 in TF32, as [`Device::set_allow_tf32`] says.
    pub tf32: bool,
    /// Whether plans of tensors on it measure which of several kernels is the fastest.
    pub autotune: bool,
}

impl DeviceOptions {
    /// What the environment asks for.
    pub fn from_env() -> Result<DeviceOptions> {
        let settings = env::settings()?;
        let env::EnvSettings { pool, cache_dir, accuracy, tf32, tune, .. } = settings.clone();
        Ok(DeviceOptions { pool, cache_dir, accuracy, tf32, autotune: tune })
    }
}

impl Device {
    /// A handle to a device that a driver found. Devices of the registry have theirs: [`Device::get`]. Each call makes a pool
    /// and a program cache of its own.
    pub fn new(raw: Arc<dyn RawDevice>, options: DeviceOptions) -> Device {
        Device(Arc::new(Shared {
            spelling: raw.info().device_string(),
            pool: Pool::new(raw.clone(), options.pool),
            programs: Programs::new(raw.clone(), options.cache_dir),
            queues: Queues::default(),
            profiler: Profiler::default(),
            submissions: AtomicU64::new(0),
            uploaded: AtomicU64::new(0),
            downloaded: AtomicU64::new(0),
            accuracy: Mutex::new(options.accuracy),
            tf32: AtomicBool::new(options.tf32),
            tunes: AtomicBool::new(options.autotune),
            raw,
        }))
    }

    /// What it says about itself.
    pub fn info(&self) -> &DeviceInfo {
        self.0.raw.info()
    }

    /// What code for it must know.
    pub fn target(&self) -> &Target {
        self.0.raw.target()
    }

    /// How a user spells it: `cpu`, `opencl:0`.
    pub fn device_string(&self) -> &str {
        &self.0.spelling
    }

    /// Its memory now, as the driver sees it.
    pub fn memory(&self) -> MemoryInfo {
        self.0.raw.memory()
    }

    /// Whether it runs this routine, whose description is valid.
    pub fn supports_routine(&self, routine: &Routine) -> bool {
        routine.check().is_ok() && self.0.raw.supports_routine(routine)
    }

    /// Whether it stopped offering one of these routines when work with them failed: planned anew, kernels do the same. The user is told.
    pub fn has_lost_routine<'r>(&self, routines: impl IntoIterator<Item = &'r Routine>, failure: &Error) -> bool {
        let gone = routines.into_iter().any(|routine| !self.supports_routine(routine));
        if gone {
            log::warn(|| format!("{}; kernels do it from now on", failure.message()));
        }
        gone
    }

    /// Who does matrix products, where that is a matter of what is installed: a vendor's library and its place, or its own kernels and
    /// why. Looking may take a tenth of a second.
    pub fn blas_library(&self) -> Option<String> {
        self.0.raw.blas_library()
    }

    /// Whether it can be used at all, which opens it. One that is full can.
    pub(crate) fn opens(&self) -> Result<()> {
        match self.0.raw.allocate(1) {
            Ok(alloc) => {
                self.0.raw.free(alloc);
                Ok(())
            }
            Err(error) if error.is_out_of_memory() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Waits for everything submitted to every queue.
    pub fn synchronize(&self) -> Result<()> {
        self.0.raw.synchronize()
    }

    // Memory.

    /// A buffer holding these elements.
    #[track_caller]
    pub fn buffer<T: Element>(&self, data: &[T]) -> Result<Buffer<T>> {
        let mut buffer = Buffer::undefined(self, data.len())?;
        buffer.write(data)?;
        Ok(buffer)
    }

    /// A buffer of zeros.
    pub fn zeros<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        self.full(len, bytemuck::Zeroable::zeroed())
    }

    /// A buffer of equal elements.
    pub fn full<T: Element>(&self, len: usize, value: T) -> Result<Buffer<T>> {
        let mut buffer = Buffer::undefined(self, len)?;
        buffer.fill(value)?;
        Ok(buffer)
    }

    /// A buffer of anything: whatever its memory held before.
    pub fn empty<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::undefined(self, len)
    }

    /// Bytes of anything.
    pub fn allocate(&self, bytes: u64) -> Result<Storage> {
        Storage::allocate(self, bytes)
    }

    /// A storage holding these bytes.
    pub fn upload(&self, bytes: &[u8]) -> Result<Storage> {
        let storage = self.allocate(bytes.len() as u64)?;
        storage.write_bytes(bytes)?;
        Ok(storage)
    }

    /// Runs work; buffers it makes on this thread count under a tag in reports about memory.
    pub fn with_memory_tag<R>(tag: &str, work: impl FnOnce() -> R) -> R {
        tag::with(tag, work)
    }

    /// What this process did with the device's memory.
    pub fn memory_stats(&self) -> MemoryStats {
        let (uploaded, downloaded) = (&self.0.uploaded, &self.0.downloaded);
        MemoryStats {
            uploaded: uploaded.load(Ordering::Relaxed),
            downloaded: downloaded.load(Ordering::Relaxed),
            ..self.0.pool.stats()
        }
    }

    /// What allocations of so many bytes each would need beside all that is held now, and whether they fit, without making one. A buffer
    /// larger than the device takes is an error, as it is when it is made.
    ///
    /// ```
    /// use panoply_runtime::Device;
    ///
    /// let device = Device::get("cpu")?;
    /// let weights = [4 * 784 * 512, 4 * 512, 4 * 512 * 10, 4 * 10];
    /// let estimate = device.estimate_memory(weights)?;
    /// assert!(estimate.fits && estimate.reserved >= estimate.requested, "{estimate}");
    /// # Ok::<(), panoply_runtime::Error>(())
    /// ```
    pub fn estimate_memory(&self, bytes: impl IntoIterator<Item = u64>) -> Result<MemoryEstimate> {
        self.0.pool.estimate(bytes)
    }

    /// Lets the peaks of [`Device::memory_stats`] start from what is held now.
    pub fn reset_peak_memory_stats(&self) {
        self.0.pool.reset_peaks();
    }

    /// Who holds memory, by tag, the largest first. Nobody, once every buffer is dropped.
    pub fn memory_by_tag(&self) -> Vec<TaggedMemory> {
        self.0.pool.holders()
    }

    /// Gives memory and programs that nobody holds back to the driver; returns the bytes of memory.
    pub fn trim(&self) -> u64 {
        self.0.programs.trim();
        self.trim_memory()
    }

    /// Gives memory that nobody holds back to the driver; returns the bytes.
    pub fn trim_memory(&self) -> u64 {
        self.0.pool.trim()
    }

    /// Sets the most bytes the pool may take from the driver; none leaves it to the driver.
    pub fn set_memory_limit(&self, cap: Option<u64>) {
        self.0.pool.set_cap(cap);
    }

    // Programs.

    /// A kernel ready to launch here; compiled the first time, remembered after.
    pub fn compile(&self, kernel: &Arc<Verified<Kernel>>) -> Result<Arc<CompiledKernel>> {
        self.0.programs.prepare(kernel)
    }

    /// Several kernels ready to launch here, in their order. What must be compiled is compiled side by side, on as many threads as there are
    /// processors.
    pub fn compile_all(&self, kernels: &[&Arc<Verified<Kernel>>]) -> Result<Vec<Arc<CompiledKernel>>> {
        match self.target().language {
            // Nothing is compiled: that takes less than starting a thread.
            Language::Ir => kernels.iter().map(|kernel| self.compile(kernel)).collect(),
            _ => parallel_map(kernels, |kernel| self.compile(kernel)),
        }
    }

    /// The kernel a function builds, ready to launch here. The second time costs one lookup.
    pub fn compile_fn(&self, build: fn() -> Result<Kernel>) -> Result<Arc<CompiledKernel>> {
        self.0.programs.prepare_built(build)
    }

    /// A kernel that was written elsewhere, ready to launch here; compiled or loaded the first time, remembered after.
    pub fn load_external(&self, package: &ExternalKernel) -> Result<Arc<CompiledKernel>> {
        self.0.programs.prepare_package(package)
    }

    /// Compiles kernels before they are needed, as many at once as there are cores.
    pub fn warm_up(&self, builds: &[fn() -> Result<Kernel>]) -> Result<()> {
        let panicked = || Error::mistake("warm_up: a function that builds a kernel panicked");
        let prepare = |build: &fn() -> Result<Kernel>| {
            catch_unwind(AssertUnwindSafe(|| self.compile_fn(*build))).unwrap_or_else(|_| Err(panicked()))
        };
        parallel_map(builds, prepare).map(drop)
    }

    /// How programs were come by.
    pub fn program_cache_stats(&self) -> ProgramCacheStats {
        self.0.programs.counts()
    }

    // How tensors on it are computed.

    /// What plans of tensors on this device may do to float arithmetic.
    pub fn math_mode(&self) -> MathMode {
        *self.0.accuracy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses what they may do from now on; values that are there stay as they are.
    pub fn set_math_mode(&self, accuracy: MathMode) {
        *self.0.accuracy.lock().unwrap_or_else(PoisonError::into_inner) = accuracy;
    }

    /// Whether plans of tensors on this device may do products of f32 in TF32.
    pub fn is_tf32_allowed(&self) -> bool {
        self.0.tf32.load(Ordering::Relaxed)
    }

    /// Chooses whether products of matrices of f32 may be done in TF32 from now on, as PyTorch's `torch.backends.cuda.matmul.allow_tf32`
    /// does: NVIDIA's tensor cores from compute capability 8.0 on, which keep 10 of the 23 bits behind the point of each factor and add in
    /// f32. The error of a sum is then up to 2⁻⁹ of the sum of its products' magnitudes, in place of some 2⁻²⁴ for each addition. Nobody
    /// else has such products, and neither [`MathMode::Fast`] nor anything but this asks for them; under [`MathMode::Exact`] there are none.
    pub fn set_allow_tf32(&self, allow: bool) {
        self.0.tf32.store(allow, Ordering::Relaxed);
    }

    /// Whether plans of tensors on this device measure which of several kernels is the fastest.
    pub fn is_autotune_enabled(&self) -> bool {
        self.0.tunes.load(Ordering::Relaxed)
    }

    /// Chooses whether plans that are made from now on measure, in their first run, which of several kernels is the fastest. What they give is
    /// the same, bit for bit; which kernel it was is kept beside the compiled programs, so that the next process knows it.
    pub fn set_autotune(&self, tune: bool) {
        self.0.tunes.store(tune, Ordering::Relaxed);
    }

    // For the rest of the crate.

    pub(crate) fn programs(&self) -> &Programs {
        &self.0.programs
    }

    pub(crate) fn raw(&self) -> &Arc<dyn RawDevice> {
        &self.0.raw
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.0.pool
    }

    pub(crate) fn queues(&self) -> &Queues {
        &self.0.queues
    }

    pub(crate) fn profiler(&self) -> &Profiler {
        &self.0.profiler
    }

    /// Submissions that have returned.
    pub(crate) fn submissions(&self) -> u64 {
        self.0.submissions.load(Ordering::Acquire)
    }

    /// Counts one more that has returned, and gives their number.
    pub(crate) fn count_submission(&self) -> u64 {
        self.0.submissions.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(crate) fn count_upload(&self, bytes: u64) {
        self.0.uploaded.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_download(&self, bytes: u64) {
        self.0.downloaded.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Device {}

impl std::hash::Hash for Device {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.spelling)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.0.spelling)
    }
}
