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
//! | `OMPI_COMM_WORLD_SIZE`, `PMI_SIZE` | set by the launchers of Open MPI and MPICH: the number of processes |
//!
//! An invalid value is an error of the first operation that needs a device; it is never ignored.

use std::cell::Cell;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
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
    pub accuracy: MathMode,
    /// True if f32 matrix products can use TF32.
    pub tf32: bool,
    /// True if plans measure several kernels and keep the fastest.
    pub tune: bool,
    /// Maximum bytes of memory for reading one data file, if set.
    pub read_limit: Option<u64>,
    /// Log level.
    pub log: LogLevel,
    /// True if a mistake panics where it is detected.
    pub panic_on_mistake: bool,
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

/// The MPI launcher that started this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// MPI implementation of the launcher.
    pub kind: LauncherKind,
    /// Number of processes that it started.
    pub ranks: usize,
    /// Environment variable that holds the number.
    pub variable: &'static str,
}

/// MPI implementations, distinguished by the variables that their launchers set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LauncherKind {
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH and its relatives.
    Mpich,
}

/// Returns the launcher that started this process, or `None`.
///
/// # Errors
/// A launcher's variable is not a number of processes.
pub fn launcher() -> Result<Option<Launcher>> {
    Launcher::read(|name| std::env::var_os(name))
}

impl Launcher {
    /// Finds the launcher by the variables that `variable` looks up.
    ///
    /// # Errors
    /// A launcher's variable is not a number of processes.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<Launcher>> {
        let known = [(LauncherKind::OpenMpi, "OMPI_COMM_WORLD_SIZE"), (LauncherKind::Mpich, "PMI_SIZE")];
        for (kind, name) in known {
            let Some(value) = variable(name) else { continue };
            let ranks = value.to_str().and_then(|text| text.parse::<usize>().ok()).filter(|ranks| *ranks > 0);
            let wrong = || Error::mistake(format!("{name}={}: not a number of processes", value.to_string_lossy()));
            return Ok(Some(Launcher { kind, ranks: ranks.ok_or_else(wrong)?, variable: name }));
        }
        Ok(None)
    }
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
            accuracy: text("PANOPLY_MATH_MODE")?.map_or(Ok(MathMode::default()), |value| accuracy(&value))?,
            tf32: text("PANOPLY_ALLOW_TF32")?.map_or(Ok(false), |value| switch("PANOPLY_ALLOW_TF32", &value))?,
            tune: text("PANOPLY_AUTOTUNE")?.map_or(Ok(false), |value| switch("PANOPLY_AUTOTUNE", &value))?,
            read_limit: text("PANOPLY_READ_LIMIT")?.map(|value| read_limit_of(&value)).transpose()?,
            log: text("PANOPLY_LOG")?.map_or(Ok(LogLevel::default()), |value| level(&value))?,
            panic_on_mistake: text("PANOPLY_PANIC")?.map_or(Ok(false), |value| switch("PANOPLY_PANIC", &value))?,
        })
    }
}

fn pool(value: &str) -> Result<PoolSetting> {
    const LEAST_CAP: u64 = 1 << 20;
    match (value, parse_bytes(value)) {
        ("0", _) => Ok(PoolSetting::Off),
        ("1", _) => Ok(PoolSetting::On),
        (_, Some(bytes)) if bytes >= LEAST_CAP => Ok(PoolSetting::Cap(bytes)),
        (_, Some(bytes)) => Err(Error::mistake(format!(
            "PANOPLY_POOL={value}: a cap of {} is too small; write 0, 1 or at least {}",
            human(bytes),
            human(LEAST_CAP)
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

fn accuracy(value: &str) -> Result<MathMode> {
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
        assert_eq!((settings.accuracy, settings.tf32, settings.tune), (MathMode::Standard, false, false));
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
        ])
        .unwrap();
        assert_eq!(settings.device.as_deref(), Some("opencl:1"));
        assert_eq!(settings.pool, PoolSetting::Cap(64 << 20));
        assert_eq!(settings.cache_dir, Some(PathBuf::from("/var/tmp/programs")));
        assert_eq!(settings.threads.map(NonZeroUsize::get), Some(3));
        assert_eq!((settings.accuracy, settings.tf32, settings.tune), (MathMode::Exact, true, true));
        assert_eq!(settings.read_limit, Some(64 << 30));
        assert_eq!(settings.log, LogLevel::Debug);
        assert!(settings.panic_on_mistake);
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
        let found = read(&[("OMPI_COMM_WORLD_SIZE", "2")]).unwrap().unwrap();
        assert_eq!((found.kind, found.ranks), (LauncherKind::OpenMpi, 2));
        let found = read(&[("PMI_SIZE", "3")]).unwrap().unwrap();
        assert_eq!((found.kind, found.ranks, found.variable), (LauncherKind::Mpich, 3, "PMI_SIZE"));
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
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.is_mistake());
            assert_eq!(error.message(), message);
        }
    }
}
