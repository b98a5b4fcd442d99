//! The device handle.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use panoply_device::null::NullDevice;
use panoply_device::{Backend, DeviceInfo, HostBytes, MemoryInfo, RawDevice};
use panoply_ir::kernel::{Kernel, MAX_LAUNCH_SIZE};
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
use crate::parallel::parallel_map;
use crate::profile::recording::Profiler;
use crate::program::cache::Programs;
use crate::program::compiled_kernel::CompiledKernel;
use crate::program::compiler::ProgramCacheStats;
use crate::program::external_kernel::ExternalKernel;
use crate::queue::Queues;

/// A device with its memory pool, programs and queues. Clones refer to the same device.
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
    in_place: AtomicI64,
    math_mode: Mutex<MathMode>,
    tf32: AtomicBool,
    autotune: AtomicBool,
    is_dry_run: bool,
}

/// Options of a device: memory pool, program cache and arithmetic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Handling of freed memory.
    pub pool: PoolSetting,
    /// Directory of the on-disk program cache; `None` disables it.
    pub cache_dir: Option<PathBuf>,
    /// Floating-point transformations allowed in plans of tensors on the device.
    pub math_mode: MathMode,
    /// True if f32 matrix products can use TF32; see [`Device::set_allow_tf32`].
    pub tf32: bool,
    /// True if plans of tensors measure several kernels and keep the fastest.
    pub autotune: bool,
}

impl DeviceOptions {
    /// Returns the options that the environment sets.
    ///
    /// # Errors
    /// A `PANOPLY_*` variable has an invalid value.
    pub fn from_env() -> Result<DeviceOptions> {
        let settings = env::settings()?;
        let env::EnvSettings { pool, cache_dir, math_mode, tf32, autotune, .. } = settings.clone();
        Ok(DeviceOptions { pool, cache_dir, math_mode, tf32, autotune })
    }
}

impl Device {
    /// Creates a handle to a device that a driver found, with its own memory pool and program cache. [`Device::get`] returns the
    /// registry's handle instead.
    pub fn new(raw: Arc<dyn RawDevice>, options: DeviceOptions) -> Device {
        Device::create(raw, options, false)
    }

    fn create(raw: Arc<dyn RawDevice>, options: DeviceOptions, is_dry_run: bool) -> Device {
        Device(Arc::new(Shared {
            spelling: raw.info().device_string(),
            pool: Pool::new(raw.clone(), options.pool),
            programs: Programs::new(raw.clone(), options.cache_dir),
            queues: Queues::default(),
            profiler: Profiler::default(),
            submissions: AtomicU64::new(0),
            uploaded: AtomicU64::new(0),
            downloaded: AtomicU64::new(0),
            in_place: AtomicI64::new(0),
            math_mode: Mutex::new(options.math_mode),
            tf32: AtomicBool::new(options.tf32),
            autotune: AtomicBool::new(options.autotune),
            is_dry_run,
            raw,
        }))
    }

    /// Returns the device's properties.
    pub fn info(&self) -> &DeviceInfo {
        self.0.raw.info()
    }

    /// Returns the target description for code generation.
    pub fn target(&self) -> &Target {
        self.0.raw.target()
    }

    /// Returns the device's name as a user writes it, such as `cpu` or `opencl:0`.
    pub fn device_string(&self) -> &str {
        &self.0.spelling
    }

    /// Returns the device's total and free memory as the driver reports it.
    pub fn memory(&self) -> MemoryInfo {
        self.0.raw.memory()
    }

    /// Returns true if the routine is valid and the device supports it.
    pub fn supports_routine(&self, routine: &Routine) -> bool {
        routine.check().is_ok() && self.0.raw.supports_routine(routine)
    }

    /// Returns true if the device no longer supports one of these routines after work with them failed. The work can then be planned
    /// again with kernels in place of the routines. Logs a warning.
    pub fn has_lost_routine<'r>(&self, routines: impl IntoIterator<Item = &'r Routine>, failure: &Error) -> bool {
        let gone = routines.into_iter().any(|routine| !self.supports_routine(routine));
        if gone {
            log::warn(|| format!("{}; using kernels instead from now on", failure.message()));
        }
        gone
    }

    /// Returns the implementation of matrix products if that depends on the installation: a vendor library and its path, or the
    /// built-in kernels and the reason. The search can take 0.1 s.
    pub fn blas_library(&self) -> Option<String> {
        self.0.raw.blas_library()
    }

    /// Opens the device; fails if it is unusable. Running out of memory counts as success.
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

    /// Returns a device with the same properties that stores and computes nothing: reads return zeros. Its statistics count the memory that
    /// the same work needs on this device. Library routines of GPU drivers are not simulated.
    #[must_use]
    pub fn dry_run(&self) -> Device {
        let target = Target { max_buffer_bytes: MAX_LAUNCH_SIZE, ..self.target().clone() };
        let null = NullDevice::new(target).without_memory().in_memory(u64::MAX / 2);
        let null = match self.info().kind {
            Backend::Cpu => null.with_routines(panoply_routines::offers),
            _ => null,
        };
        let options =
            DeviceOptions { math_mode: self.math_mode(), tf32: self.is_tf32_allowed(), ..DeviceOptions::default() };
        Device::create(Arc::new(null), options, true)
    }

    /// Returns true for a device of [`Device::dry_run`]: data that are written to it are not kept, and need not be computed.
    pub fn is_dry_run(&self) -> bool {
        self.0.is_dry_run
    }

    /// Waits for all work submitted to all queues.
    ///
    /// # Errors
    /// Work on the device failed.
    pub fn synchronize(&self) -> Result<()> {
        self.0.raw.synchronize()
    }

    // Memory.

    /// Allocates a buffer and copies `data` into it.
    ///
    /// # Errors
    /// Out of memory, or the upload failed.
    #[track_caller]
    pub fn buffer<T: Element>(&self, data: &[T]) -> Result<Buffer<T>> {
        let mut buffer = Buffer::empty(self, data.len())?;
        buffer.write(data)?;
        Ok(buffer)
    }

    /// Allocates a buffer of `len` zeros.
    ///
    /// # Errors
    /// Out of memory, or the fill failed.
    pub fn zeros<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        self.full(len, bytemuck::Zeroable::zeroed())
    }

    /// Allocates a buffer of `len` elements equal to `value`.
    ///
    /// # Errors
    /// Out of memory, or the fill failed.
    pub fn full<T: Element>(&self, len: usize, value: T) -> Result<Buffer<T>> {
        let mut buffer = Buffer::empty(self, len)?;
        buffer.fill(value)?;
        Ok(buffer)
    }

    /// Allocates a buffer of `len` elements with undefined contents.
    ///
    /// # Errors
    /// Out of memory.
    pub fn empty<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::empty(self, len)
    }

    /// Allocates `bytes` bytes with undefined contents.
    ///
    /// # Errors
    /// Out of memory.
    pub fn allocate(&self, bytes: u64) -> Result<Storage> {
        Storage::allocate(self, bytes)
    }

    /// Allocates a storage and copies `bytes` into it.
    ///
    /// # Errors
    /// Out of memory, or the upload failed.
    pub fn upload(&self, bytes: &[u8]) -> Result<Storage> {
        let storage = self.allocate(bytes.len() as u64)?;
        storage.write_bytes(bytes)?;
        Ok(storage)
    }

    /// Returns host bytes as a storage that cannot be written, without a copy; `None` if the device cannot use them in place. Only the
    /// CPU can, if they are aligned to 64 bytes, as those of [`crate::map_file`] and [`crate::AlignedBuffer`] are.
    ///
    /// # Errors
    /// The device is unusable.
    pub fn adopt(&self, bytes: &Arc<HostBytes>) -> Result<Option<Storage>> {
        Storage::adopt(self, bytes)
    }

    /// Runs `work`; memory reports list the buffers that it allocates on this thread under `tag`.
    pub fn with_memory_tag<R>(tag: &str, work: impl FnOnce() -> R) -> R {
        tag::with(tag, work)
    }

    /// Returns the statistics of this process's use of the device's memory.
    #[doc(alias = "memory_allocated")]
    #[doc(alias = "max_memory_allocated")]
    #[doc(alias = "memory_reserved")]
    pub fn memory_stats(&self) -> MemoryStats {
        let (uploaded, downloaded) = (&self.0.uploaded, &self.0.downloaded);
        MemoryStats {
            uploaded: uploaded.load(Ordering::Relaxed),
            downloaded: downloaded.load(Ordering::Relaxed),
            in_place: self.0.in_place.load(Ordering::Relaxed).max(0) as u64,
            ..self.0.pool.stats()
        }
    }

    /// Estimates, without allocating, the memory that allocations of the given sizes need in addition to the memory now held, and
    /// whether they fit.
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

    /// Resets the peaks of [`Device::memory_stats`] to the memory now held.
    pub fn reset_peak_memory_stats(&self) {
        self.0.pool.reset_peaks();
    }

    /// Returns the memory held, by tag, largest first. The list is empty once every buffer is dropped.
    pub fn memory_by_tag(&self) -> Vec<TaggedMemory> {
        self.0.pool.memory_by_tag()
    }

    /// Returns unused memory and programs to the driver; returns the number of bytes of memory freed.
    pub fn trim(&self) -> u64 {
        self.0.programs.trim();
        self.trim_memory()
    }

    /// Returns unused memory to the driver; returns the number of bytes freed.
    pub fn trim_memory(&self) -> u64 {
        self.0.pool.trim()
    }

    /// Sets the maximum number of bytes that the pool takes from the driver; `None` removes the limit.
    pub fn set_memory_limit(&self, cap: Option<u64>) {
        self.0.pool.set_cap(cap);
    }

    // Programs.

    /// Compiles a kernel for this device, or returns it from the cache.
    ///
    /// # Errors
    /// The kernel exceeds a limit of the device, or does not compile.
    pub fn compile(&self, kernel: &Arc<Verified<Kernel>>) -> Result<Arc<CompiledKernel>> {
        self.0.programs.prepare(kernel)
    }

    /// Compiles several kernels, using one thread per processor, and returns them in order.
    ///
    /// # Errors
    /// A kernel exceeds a limit of the device, or does not compile.
    pub fn compile_all(&self, kernels: &[&Arc<Verified<Kernel>>]) -> Result<Vec<Arc<CompiledKernel>>> {
        match self.target().language {
            // The IR is not compiled: preparing a kernel costs less than starting a thread.
            Language::Ir => kernels.iter().map(|kernel| self.compile(kernel)).collect(),
            _ => parallel_map(kernels, |kernel| self.compile(kernel)),
        }
    }

    /// Compiles the kernel that `build` constructs. Later calls with the same function cost one lookup.
    ///
    /// # Errors
    /// `build` fails, or the kernel does not compile.
    pub fn compile_fn(&self, build: fn() -> Result<Kernel>) -> Result<Arc<CompiledKernel>> {
        self.0.programs.prepare_built(build)
    }

    /// Compiles or loads a user-supplied kernel, or returns it from the cache.
    ///
    /// # Errors
    /// The kernel has no program for this device, or does not compile or load.
    pub fn load_external(&self, kernel: &ExternalKernel) -> Result<Arc<CompiledKernel>> {
        self.0.programs.load_external(kernel)
    }

    /// Compiles kernels before their first use, on one thread per core.
    ///
    /// # Errors
    /// A function fails or panics, or its kernel does not compile.
    pub fn warm_up(&self, builds: &[fn() -> Result<Kernel>]) -> Result<()> {
        let panicked = || Error::mistake("warm_up: a function that builds a kernel panicked");
        let prepare = |build: &fn() -> Result<Kernel>| {
            catch_unwind(AssertUnwindSafe(|| self.compile_fn(*build))).unwrap_or_else(|_| Err(panicked()))
        };
        parallel_map(builds, prepare).map(drop)
    }

    /// Returns the counts of compiled and cached programs.
    pub fn program_cache_stats(&self) -> ProgramCacheStats {
        self.0.programs.counts()
    }

    // Arithmetic of tensors on the device.

    /// Returns the floating-point transformations allowed in plans of tensors on this device.
    pub fn math_mode(&self) -> MathMode {
        *self.0.math_mode.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the floating-point transformations allowed in plans made from now on. Existing values do not change.
    #[doc(alias = "use_deterministic_algorithms")]
    pub fn set_math_mode(&self, math_mode: MathMode) {
        *self.0.math_mode.lock().unwrap_or_else(PoisonError::into_inner) = math_mode;
    }

    /// Returns true if f32 matrix products of tensors on this device can use TF32.
    pub fn is_tf32_allowed(&self) -> bool {
        self.0.tf32.load(Ordering::Relaxed)
    }

    /// Allows or forbids TF32 for f32 matrix products from now on, as PyTorch's `torch.backends.cuda.matmul.allow_tf32` does.
    ///
    /// TF32 runs on NVIDIA tensor cores of compute capability 8.0 or newer, keeps 10 of the 23 mantissa bits of each factor and
    /// accumulates in f32. The error of a sum is then up to 2⁻⁹ of the sum of its products' magnitudes, instead of some 2⁻²⁴ for each
    /// addition. Other devices have no TF32 and ignore the setting. [`MathMode::Fast`] does not imply it, and [`MathMode::Exact`]
    /// disables it.
    #[doc(alias = "set_float32_matmul_precision")]
    #[doc(alias = "allow_tf32")]
    pub fn set_allow_tf32(&self, allow: bool) {
        self.0.tf32.store(allow, Ordering::Relaxed);
    }

    /// Returns true if plans of tensors on this device measure several kernels and keep the fastest.
    pub fn is_autotune_enabled(&self) -> bool {
        self.0.autotune.load(Ordering::Relaxed)
    }

    /// Enables or disables autotuning: plans made from now on measure, in their first run, which of several kernels is the fastest.
    /// The results are bitwise equal. The choice is saved with the compiled programs for later processes.
    pub fn set_autotune(&self, enabled: bool) {
        self.0.autotune.store(enabled, Ordering::Relaxed);
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

    /// Returns the number of submissions that have returned.
    pub(crate) fn submissions(&self) -> u64 {
        self.0.submissions.load(Ordering::Acquire)
    }

    /// Counts a submission that has returned; returns the new total.
    pub(crate) fn count_submission(&self) -> u64 {
        self.0.submissions.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(crate) fn count_upload(&self, bytes: u64) {
        self.0.uploaded.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_in_place(&self, bytes: i64) {
        self.0.in_place.fetch_add(bytes, Ordering::Relaxed);
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
