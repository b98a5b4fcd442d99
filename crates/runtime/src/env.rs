//! Environment variables. No other module reads the environment.
//!
//! | variable | values |
//! |---|---|
//! | `PANOPLY_DEVICE` | a device as `panoply devices` prints it (`cpu`, `opencl:0`), or `auto` |
//! | `PANOPLY_POOL` | `0` no pool, `1` pool (the default), or a maximum pool size: `64MiB`, `8GB`, plain bytes |
//! | `PANOPLY_CACHE_DIR` | directory of the program cache; empty disables it |
//! | `PANOPLY_THREADS` | threads of the CPU device, from 1 to 1024 |
//! | `PANOPLY_MATH_MODE` | `exact`, `standard` (the default) or `fast` arithmetic of tensors |
//! | `PANOPLY_ALLOW_TF32` | `1` allows TF32 for f32 matrix products on GPUs that have it |
//! | `PANOPLY_AUTOTUNE` | `1` measures several kernels in the first run of a tensor plan and keeps the fastest |
//! | `PANOPLY_READ_LIMIT` | maximum memory for reading a data file: `64GiB`, plain bytes; default max(4 GiB, 32 × file size) |
//! | `PANOPLY_LOG` | `off`, `warn` (the default), `info` or `debug` |
//! | `PANOPLY_PANIC` | `1` panics where a mistake is detected, for a backtrace |
//! | `PANOPLY_LAUNCHER` | the MPI launcher of `panoply mesh run` and `Mesh::launch_ranks`: a program such as `mpiexec.mpich`, or a path |
//! | `PANOPLY_MPI_LIBRARY` | path of the MPI library that the ranks of a launcher open |
//! | `PANOPLY_LAUNCHED_RANKS` | set by `panoply mesh run` and `Mesh::launch_ranks`: the number of processes that they started |
//! | `OMPI_COMM_WORLD_SIZE`, `PMI_SIZE`, `SLURM_STEP_NUM_TASKS`, `PMIX_RANK` | set by the launchers of Open MPI, MPICH, Slurm and PMIx, see [`Launcher`] |
//!
//! An invalid value is an error of the first operation that needs a device; it is never ignored.

use std::cell::Cell;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use panoply_host::pool::MAX_THREADS;
use panoply_ir::{Error, MathMode, Result};

use crate::byte_size::{human, parse_bytes};

/// The settings read from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvSettings {
    /// Device to use if the program chooses none.
    pub device: Option<String>,
    /// Handling of freed memory.
    pub pool: PoolSetting,
    /// Directory of the program cache; `None` disables it.
    pub cache_dir: Option<PathBuf>,
    /// Threads of the CPU device; `None` uses all processors available to the process.
    pub threads: Option<NonZeroUsize>,
    /// Floating-point transformations allowed in plans of tensors.
    pub math_mode: MathMode,
    /// True if f32 matrix products can use TF32.
    pub tf32: bool,
    /// True if plans measure several kernels and keep the fastest.
    pub autotune: bool,
    /// Maximum bytes of memory for reading one data file, if set.
    pub read_limit: Option<u64>,
    /// Log level.
    pub log: LogLevel,
    /// True if a mistake panics where it is detected.
    pub panic_on_mistake: bool,
    /// MPI launcher to use instead of the first on the search path.
    pub launcher: Option<String>,
    /// MPI library to open instead of the first that the system finds.
    pub mpi_library: Option<PathBuf>,
    /// Number of processes that this program started through a launcher; this process is one of them.
    pub launched_ranks: Option<usize>,
}

/// Handling of freed memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolSetting {
    /// Freed memory returns to the driver immediately.
    Off,
    /// Freed memory is kept for the next allocation.
    #[default]
    On,
    /// Freed memory is kept, and the pool takes at most this many bytes from the driver.
    Cap(u64),
}

/// Verbosity of the log on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// No output.
    Off,
    /// Problems that the user should act on.
    #[default]
    Warn,
    /// Choices: which device and why.
    Info,
    /// Compilations, allocations from the driver, cache files.
    Debug,
}

/// The launcher that started this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// MPI implementation or protocol of the launcher.
    pub kind: LauncherKind,
    /// Number of processes; `None` if the launcher sets no variable for it.
    pub ranks: Option<usize>,
    /// Number of this process; `None` if the launcher sets no variable for it.
    pub rank: Option<usize>,
    /// Environment variable that tells the launcher, with its value: `PMI_SIZE=2`.
    pub variable: String,
}

/// Launchers, distinguished by the variables that they set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LauncherKind {
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH and compatible implementations.
    Mpich,
    /// Slurm's `srun`, for MPICH and compatible implementations (protocol PMI).
    SlurmPmi,
    /// Slurm's `srun`, for Open MPI (protocol PMIx).
    SlurmPmix,
    /// Another launcher with the protocol PMIx, such as `prterun`, which does not tell the number of processes.
    Pmix,
}

impl LauncherKind {
    /// Returns the name for messages.
    pub fn name(self) -> &'static str {
        match self {
            LauncherKind::OpenMpi => "Open MPI's launcher",
            LauncherKind::Mpich => "MPICH's launcher",
            LauncherKind::SlurmPmi | LauncherKind::SlurmPmix => "Slurm's `srun`",
            LauncherKind::Pmix => "a PMIx launcher",
        }
    }
}

/// Returns the launcher that started this process, or `None`.
///
/// # Errors
/// A launcher's variable is not a number of processes.
pub fn launcher() -> Result<Option<Launcher>> {
    Launcher::read(|name| std::env::var_os(name))
}

impl Launcher {
    /// Finds the launcher by the variables that `variable` looks up. Within a job of Slurm, `mpirun` and `mpiexec` set their variables
    /// beside Slurm's; `srun` sets those of MPICH if it serves the protocol PMI-2, but not `MPI_LOCALNRANKS`.
    ///
    /// # Errors
    /// A launcher's variable is not a number of processes.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<Launcher>> {
        let has = |name: &str| variable(name).is_some();
        let slurm = if has("PMIX_NAMESPACE") { LauncherKind::SlurmPmix } else { LauncherKind::SlurmPmi };
        let pmi = if has("SLURM_STEP_NUM_TASKS") && !has("MPI_LOCALNRANKS") { slurm } else { LauncherKind::Mpich };
        let known = [
            (LauncherKind::OpenMpi, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
            (pmi, "PMI_SIZE", "PMI_RANK"),
            (slurm, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
        ];
        let number = |name: &str| variable(name).and_then(|value| value.to_str()?.parse::<usize>().ok());
        for (kind, size, rank) in known {
            let Some(value) = variable(size) else { continue };
            let text = format!("{size}={}", value.to_string_lossy());
            let Some(ranks) = number(size).filter(|ranks| *ranks > 0) else {
                return Err(Error::mistake(format!("{text}: not a number of processes")));
            };
            return Ok(Some(Launcher { kind, ranks: Some(ranks), rank: number(rank), variable: text }));
        }
        let pmix = number("PMIX_RANK").filter(|_| has("PMIX_NAMESPACE"));
        Ok(pmix.map(|rank| Launcher {
            kind: LauncherKind::Pmix,
            ranks: None,
            rank: Some(rank),
            variable: format!("PMIX_RANK={rank}"),
        }))
    }
}

/// Returns the path of a program: the first executable file of its name in the folders of the variable `PATH`, or the name itself if it
/// contains a folder.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(name);
    if path.components().count() > 1 {
        return path.is_file().then_some(path);
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| is_executable(path))
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}

/// Returns the settings of this process. The environment is read at the first call.
///
/// # Errors
/// A `PANOPLY_*` variable has an invalid value.
pub fn settings() -> Result<&'static EnvSettings> {
    static SETTINGS: OnceLock<Result<EnvSettings>> = OnceLock::new();
    SETTINGS.get_or_init(|| EnvSettings::read(|name| std::env::var_os(name))).as_ref().map_err(Error::clone)
}

/// Returns the `PANOPLY_*` variables that are set, valid or not, sorted by name.
pub fn defined_variables() -> Vec<(String, String)> {
    let text = |(name, value): (OsString, OsString)| {
        (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
    };
    let mut set: Vec<(String, String)> =
        std::env::vars_os().map(text).filter(|(name, _)| name.starts_with("PANOPLY_")).collect();
    set.sort();
    set
}

/// Returns true if a variable of this name is one of the settings.
pub fn is_known(name: &str) -> bool {
    let asked = Cell::new(false);
    let look = |known: &str| {
        asked.set(asked.get() || known == name);
        None
    };
    EnvSettings::read(look).is_ok() && asked.get()
}

/// Returns the maximum bytes of memory for reading one data file, if the environment sets one.
///
/// # Errors
/// A `PANOPLY_*` variable has an invalid value.
pub fn read_limit() -> Result<Option<u64>> {
    Ok(settings()?.read_limit)
}

/// Returns true if a mistake should panic where it is detected.
pub fn panic_on_mistake() -> bool {
    settings().is_ok_and(|settings| settings.panic_on_mistake)
}

impl EnvSettings {
    /// Reads the settings through a lookup function. An empty value counts as unset, except for `PANOPLY_CACHE_DIR`.
    ///
    /// # Errors
    /// A variable has an invalid value.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<EnvSettings> {
        let text = |name: &str| -> Result<Option<String>> {
            match variable(name).map(OsString::into_string) {
                None => Ok(None),
                Some(Ok(value)) => Ok(Some(value.trim().to_string()).filter(|value| !value.is_empty())),
                Some(Err(value)) => Err(Error::mistake(format!("{name}={}: not Unicode", value.to_string_lossy()))),
            }
        };
        Ok(EnvSettings {
            device: text("PANOPLY_DEVICE")?,
            pool: text("PANOPLY_POOL")?.map_or(Ok(PoolSetting::On), |value| pool(&value))?,
            cache_dir: cache_dir(&variable),
            threads: text("PANOPLY_THREADS")?.map(|value| threads(&value)).transpose()?,
            math_mode: text("PANOPLY_MATH_MODE")?.map_or(Ok(MathMode::default()), |value| math_mode(&value))?,
            tf32: text("PANOPLY_ALLOW_TF32")?.map_or(Ok(false), |value| switch("PANOPLY_ALLOW_TF32", &value))?,
            autotune: text("PANOPLY_AUTOTUNE")?.map_or(Ok(false), |value| switch("PANOPLY_AUTOTUNE", &value))?,
            read_limit: text("PANOPLY_READ_LIMIT")?.map(|value| read_limit_of(&value)).transpose()?,
            log: text("PANOPLY_LOG")?.map_or(Ok(LogLevel::default()), |value| level(&value))?,
            panic_on_mistake: text("PANOPLY_PANIC")?.map_or(Ok(false), |value| switch("PANOPLY_PANIC", &value))?,
            launcher: text("PANOPLY_LAUNCHER")?,
            mpi_library: variable("PANOPLY_MPI_LIBRARY").filter(|value| !value.is_empty()).map(PathBuf::from),
            launched_ranks: text("PANOPLY_LAUNCHED_RANKS")?.map(|value| launched_ranks(&value)).transpose()?,
        })
    }
}

fn pool(value: &str) -> Result<PoolSetting> {
    const MIN_CAP: u64 = 1 << 20;
    match (value, parse_bytes(value)) {
        ("0", _) => Ok(PoolSetting::Off),
        ("1", _) => Ok(PoolSetting::On),
        (_, Some(bytes)) if bytes >= MIN_CAP => Ok(PoolSetting::Cap(bytes)),
        (_, Some(bytes)) => Err(Error::mistake(format!(
            "PANOPLY_POOL={value}: a cap of {} is too small; write 0, 1 or at least {}",
            human(bytes),
            human(MIN_CAP)
        ))),
        (_, None) => Err(Error::mistake(format!("PANOPLY_POOL={value}: write 0, 1 or a size such as 64MiB"))),
    }
}

fn read_limit_of(value: &str) -> Result<u64> {
    let bytes = parse_bytes(value).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| Error::mistake(format!("PANOPLY_READ_LIMIT={value}: write a size such as 64GiB")))
}

fn threads(value: &str) -> Result<NonZeroUsize> {
    let count = value.parse::<NonZeroUsize>().ok().filter(|count| count.get() <= MAX_THREADS);
    count.ok_or_else(|| Error::mistake(format!("PANOPLY_THREADS={value}: write a number from 1 to {MAX_THREADS}")))
}

fn launched_ranks(value: &str) -> Result<usize> {
    let wrong = || Error::mistake(format!("PANOPLY_LAUNCHED_RANKS={value}: not a number of processes"));
    value.parse().map_err(|_| wrong())
}

fn math_mode(value: &str) -> Result<MathMode> {
    let wrong = || Error::mistake(format!("PANOPLY_MATH_MODE={value}: write exact, standard or fast"));
    MathMode::from_name(value).ok_or_else(wrong)
}

fn level(value: &str) -> Result<LogLevel> {
    match value {
        "off" => Ok(LogLevel::Off),
        "warn" => Ok(LogLevel::Warn),
        "info" => Ok(LogLevel::Info),
        "debug" => Ok(LogLevel::Debug),
        _ => Err(Error::mistake(format!("PANOPLY_LOG={value}: write off, warn, info or debug"))),
    }
}

fn switch(name: &str, value: &str) -> Result<bool> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(Error::mistake(format!("{name}={value}: write 0 or 1"))),
    }
}

/// Returns the folder for compiled programs: the user's choice, else the platform's cache folder.
fn cache_dir(variable: &impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(chosen) = variable("PANOPLY_CACHE_DIR") {
        return (!chosen.is_empty()).then(|| PathBuf::from(chosen));
    }
    let folder = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = if cfg!(windows) {
        folder("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        folder("HOME").map(|home| home.join("Library/Caches"))
    } else {
        folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))
    };
    base.map(|base| base.join("panoply"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<EnvSettings> {
        EnvSettings::read(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
    }

    #[test]
    fn empty_environment_gives_defaults() {
        let settings = read(&[("PANOPLY_DEVICE", ""), ("PANOPLY_THREADS", " ")]).unwrap();
        assert_eq!(settings.device, None);
        assert_eq!(settings.pool, PoolSetting::On);
        assert_eq!(settings.threads, None);
        assert_eq!((settings.math_mode, settings.tf32, settings.autotune), (MathMode::Standard, false, false));
        assert_eq!(settings.log, LogLevel::Warn);
        assert_eq!(settings.cache_dir, None);
        assert!(!settings.panic_on_mistake);
    }

    #[test]
    fn known_variables_are_recognized() {
        for name in [
            "DEVICE",
            "POOL",
            "CACHE_DIR",
            "THREADS",
            "MATH_MODE",
            "ALLOW_TF32",
            "AUTOTUNE",
            "READ_LIMIT",
            "LOG",
            "PANIC",
            "LAUNCHER",
            "MPI_LIBRARY",
            "LAUNCHED_RANKS",
        ] {
            assert!(is_known(&format!("PANOPLY_{name}")), "{name}");
        }
        assert!(!is_known("PANOPLY_DEVCIE") && !is_known(""));
    }

    #[test]
    fn values_are_parsed() {
        let settings = read(&[
            ("PANOPLY_DEVICE", "opencl:1"),
            ("PANOPLY_POOL", "64MiB"),
            ("PANOPLY_CACHE_DIR", "/var/tmp/programs"),
            ("PANOPLY_THREADS", "3"),
            ("PANOPLY_MATH_MODE", "exact"),
            ("PANOPLY_ALLOW_TF32", "1"),
            ("PANOPLY_AUTOTUNE", "1"),
            ("PANOPLY_READ_LIMIT", "64GiB"),
            ("PANOPLY_LOG", "debug"),
            ("PANOPLY_PANIC", "1"),
            ("PANOPLY_LAUNCHER", "mpiexec.mpich"),
            ("PANOPLY_MPI_LIBRARY", "/opt/lib/libmpi_abi.so.1"),
            ("PANOPLY_LAUNCHED_RANKS", "4"),
        ])
        .unwrap();
        assert_eq!(settings.device.as_deref(), Some("opencl:1"));
        assert_eq!(settings.pool, PoolSetting::Cap(64 << 20));
        assert_eq!(settings.cache_dir, Some(PathBuf::from("/var/tmp/programs")));
        assert_eq!(settings.threads.map(NonZeroUsize::get), Some(3));
        assert_eq!((settings.math_mode, settings.tf32, settings.autotune), (MathMode::Exact, true, true));
        assert_eq!(settings.read_limit, Some(64 << 30));
        assert_eq!(settings.log, LogLevel::Debug);
        assert!(settings.panic_on_mistake);
        assert_eq!(settings.launcher.as_deref(), Some("mpiexec.mpich"));
        assert_eq!(settings.mpi_library, Some(PathBuf::from("/opt/lib/libmpi_abi.so.1")));
        assert_eq!(settings.launched_ranks, Some(4));
    }

    #[cfg(all(unix, not(target_os = "macos")))]
    #[test]
    fn cache_dir_is_below_home() {
        let dir = |pairs| read(pairs).unwrap().cache_dir;
        assert_eq!(dir(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")]), Some(PathBuf::from("/c/panoply")));
        assert_eq!(dir(&[("HOME", "/h")]), Some(PathBuf::from("/h/.cache/panoply")));
        assert_eq!(dir(&[("HOME", "/h"), ("PANOPLY_CACHE_DIR", "")]), None);
        assert_eq!(dir(&[("HOME", "relative")]), None);
    }

    #[test]
    fn launcher_is_detected_by_its_variable() {
        let read = |pairs: &[(&str, &str)]| {
            Launcher::read(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
        };
        assert_eq!(read(&[]).unwrap(), None);
        // A shell script of a batch job in Slurm, outside of `srun`.
        assert_eq!(read(&[("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0")]).unwrap(), None);
        let step = [("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "3")];
        let pmi = [("PMI_SIZE", "4"), ("PMI_RANK", "3")];
        let pmix = [("PMIX_NAMESPACE", "job"), ("PMIX_RANK", "3")];
        for (variables, kind, ranks, rank) in [
            (vec![("OMPI_COMM_WORLD_SIZE", "2")], LauncherKind::OpenMpi, Some(2), None),
            (
                [&[("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "3")], &step[..], &pmix].concat(),
                LauncherKind::OpenMpi,
                Some(4),
                Some(3),
            ),
            (pmi.to_vec(), LauncherKind::Mpich, Some(4), Some(3)),
            // Hydra starts its proxies by `srun`, one on each host.
            (
                [&pmi[..], &[("MPI_LOCALNRANKS", "2"), ("SLURM_STEP_NUM_TASKS", "2")]].concat(),
                LauncherKind::Mpich,
                Some(4),
                Some(3),
            ),
            (step.to_vec(), LauncherKind::SlurmPmi, Some(4), Some(3)),
            ([step, pmi].concat(), LauncherKind::SlurmPmi, Some(4), Some(3)),
            ([step, pmix].concat(), LauncherKind::SlurmPmix, Some(4), Some(3)),
            (pmix.to_vec(), LauncherKind::Pmix, None, Some(3)),
        ] {
            let found = read(&variables).unwrap().unwrap();
            assert_eq!((found.kind, found.ranks, found.rank), (kind, ranks, rank), "{variables:?}");
        }
        assert_eq!(read(&pmi).unwrap().unwrap().variable, "PMI_SIZE=4");
        let error = read(&[("PMI_SIZE", "0")]).unwrap_err();
        assert_eq!(error.message(), "PMI_SIZE=0: not a number of processes");
    }

    #[test]
    fn invalid_values_are_errors() {
        for (name, value, message) in [
            ("PANOPLY_POOL", "lots", "PANOPLY_POOL=lots: write 0, 1 or a size such as 64MiB"),
            ("PANOPLY_POOL", "64", "PANOPLY_POOL=64: a cap of 64 B is too small; write 0, 1 or at least 1.0 MiB"),
            ("PANOPLY_THREADS", "0", "PANOPLY_THREADS=0: write a number from 1 to 1024"),
            ("PANOPLY_THREADS", "1025", "PANOPLY_THREADS=1025: write a number from 1 to 1024"),
            ("PANOPLY_THREADS", "many", "PANOPLY_THREADS=many: write a number from 1 to 1024"),
            ("PANOPLY_MATH_MODE", "high", "PANOPLY_MATH_MODE=high: write exact, standard or fast"),
            ("PANOPLY_AUTOTUNE", "on", "PANOPLY_AUTOTUNE=on: write 0 or 1"),
            ("PANOPLY_READ_LIMIT", "none", "PANOPLY_READ_LIMIT=none: write a size such as 64GiB"),
            ("PANOPLY_READ_LIMIT", "0", "PANOPLY_READ_LIMIT=0: write a size such as 64GiB"),
            ("PANOPLY_LOG", "loud", "PANOPLY_LOG=loud: write off, warn, info or debug"),
            ("PANOPLY_PANIC", "yes", "PANOPLY_PANIC=yes: write 0 or 1"),
            ("PANOPLY_LAUNCHED_RANKS", "two", "PANOPLY_LAUNCHED_RANKS=two: not a number of processes"),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.is_mistake());
            assert_eq!(error.message(), message);
        }
    }
}
