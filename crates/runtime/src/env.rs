//! The environment, read in one place and nowhere else.
//!
//! | variable | values |
//! |---|---|
//! | `PANOPLY_DEVICE` | a device as `panoply devices` spells it (`cpu`, `opencl:0`), or `auto` |
//! | `PANOPLY_POOL` | `0` no pool, `1` pool (the default), or the most it may take: `64MiB`, `8GB`, plain bytes |
//! | `PANOPLY_CACHE_DIR` | where compiled programs are kept; empty keeps none |
//! | `PANOPLY_THREADS` | threads of the CPU device, from 1 to 1024 |
//! | `PANOPLY_MATH_MODE` | `exact`, `standard` (the default) or `fast` arithmetic of tensors |
//! | `PANOPLY_ALLOW_TF32` | 1: products of f32 may be done in TF32, where a GPU has that |
//! | `PANOPLY_AUTOTUNE` | `1` measures which of several kernels is the fastest when a plan of tensors runs first |
//! | `PANOPLY_READ_LIMIT` | the most memory that reading a file of data may take: `64GiB`, plain bytes; otherwise 4 GiB, or 32 times the size of the file |
//! | `PANOPLY_LOG` | `off`, `warn` (the default), `info` or `debug` |
//! | `PANOPLY_PANIC` | `1` panics where a mistake is made, for a backtrace |
//! | `OMPI_COMM_WORLD_SIZE`, `PMI_SIZE` | set by the launchers of Open MPI and MPICH: the number of processes |
//!
//! A value that means nothing is an error of whatever first asks for a device, never ignored.

use std::cell::Cell;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::OnceLock;

use panoply_cpu::pool::MAX_THREADS;
use panoply_ir::{Error, MathMode, Result};

use crate::byte_size::{human, parse_bytes};

/// What the environment asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvSettings {
    /// The device that is taken when nobody chose one.
    pub device: Option<String>,
    /// How memory is kept.
    pub pool: PoolSetting,
    /// Where compiled programs are kept; none keeps none.
    pub cache_dir: Option<PathBuf>,
    /// Threads of the CPU device; none takes as many as the process may run on.
    pub threads: Option<NonZeroUsize>,
    /// What plans of tensors may do to float arithmetic.
    pub accuracy: MathMode,
    /// Whether they may do products of f32 in TF32.
    pub tf32: bool,
    /// Whether they measure which of several kernels is the fastest.
    pub tune: bool,
    /// The most bytes of memory that one read of data may take, if it was said.
    pub read_limit: Option<u64>,
    /// What is logged.
    pub log: LogLevel,
    /// Whether a mistake panics where it is made.
    pub panic_on_mistake: bool,
}

/// How freed memory is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolSetting {
    /// Given back to the driver at once.
    Off,
    /// Kept for the next allocation.
    #[default]
    On,
    /// Kept, and never more than this many bytes taken from the driver.
    Cap(u64),
}

/// What is worth a line on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What a user should do something about.
    #[default]
    Warn,
    /// Choices: which device and why.
    Info,
    /// Compilations, allocations from the driver, cache files.
    Debug,
}

/// The launcher that started this process as one of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The implementation of MPI that it belongs to.
    pub kind: LauncherKind,
    /// The number of processes it started.
    pub ranks: usize,
    /// The variable that holds the number.
    pub variable: &'static str,
}

/// Implementations of MPI, told apart by the variables that their launchers set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LauncherKind {
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH and its relatives.
    Mpich,
}

/// The launcher that started this process, if one did.
pub fn launcher() -> Result<Option<Launcher>> {
    Launcher::read(|name| std::env::var_os(name))
}

impl Launcher {
    /// The launcher whose variables are set.
    ///
    /// # Errors
    /// A variable holds no number of processes.
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

/// The settings of this process; the environment is read at the first call.
pub fn settings() -> Result<&'static EnvSettings> {
    static SETTINGS: OnceLock<Result<EnvSettings>> = OnceLock::new();
    SETTINGS.get_or_init(|| EnvSettings::read(|name| std::env::var_os(name))).as_ref().map_err(Error::clone)
}

/// Our variables that are set, whatever they say.
pub fn defined_variables() -> Vec<(String, String)> {
    let text = |(name, value): (OsString, OsString)| {
        (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
    };
    let mut set: Vec<(String, String)> =
        std::env::vars_os().map(text).filter(|(name, _)| name.starts_with("PANOPLY_")).collect();
    set.sort();
    set
}

/// Whether a variable is one of the settings.
pub fn is_known(name: &str) -> bool {
    let asked = Cell::new(false);
    let look = |known: &str| {
        asked.set(asked.get() || known == name);
        None
    };
    EnvSettings::read(look).is_ok() && asked.get()
}

/// The most bytes of memory that one read of data may take, if the environment says so.
pub fn read_limit() -> Result<Option<u64>> {
    Ok(settings()?.read_limit)
}

/// Whether a mistake should panic where it is made.
pub fn panic_on_mistake() -> bool {
    settings().is_ok_and(|settings| settings.panic_on_mistake)
}

impl EnvSettings {
    /// Settings from whatever answers for the environment; an empty value counts as unset but for `PANOPLY_CACHE_DIR`.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<EnvSettings> {
        let text = |name: &str| -> Result<Option<String>> {
            match variable(name).map(OsString::into_string) {
                None => Ok(None),
                Some(Ok(value)) => Ok(Some(value.trim().to_string()).filter(|value| !value.is_empty())),
                Some(Err(value)) => Err(Error::mistake(format!("{name}={}: not valid text", value.to_string_lossy()))),
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
            "PANOPLY_POOL={value}: a cap of {} holds nothing useful; write 0, 1 or at least {}",
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

/// The folder for compiled programs: the user's choice, else the platform's folder for what can be made again.
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
    fn an_empty_environment_has_defaults() {
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
    fn settings_are_known_by_name() {
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
    fn values_are_understood() {
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
    fn the_cache_is_the_users_own() {
        let dir = |pairs| read(pairs).unwrap().cache_dir;
        assert_eq!(dir(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")]), Some(PathBuf::from("/c/panoply")));
        assert_eq!(dir(&[("HOME", "/h")]), Some(PathBuf::from("/h/.cache/panoply")));
        assert_eq!(dir(&[("HOME", "/h"), ("PANOPLY_CACHE_DIR", "")]), None);
        assert_eq!(dir(&[("HOME", "relative")]), None);
    }

    #[test]
    fn a_launcher_is_known_by_its_variable() {
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
    fn nonsense_is_an_error() {
        for (name, value, message) in [
            ("PANOPLY_POOL", "lots", "PANOPLY_POOL=lots: write 0, 1 or a size such as 64MiB"),
            (
                "PANOPLY_POOL",
                "64",
                "PANOPLY_POOL=64: a cap of 64 B holds nothing useful; write 0, 1 or at least 1.0 MiB",
            ),
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
