//! Device discovery in a child process: a driver that crashes or hangs disables only its backend.
//!
//! A library cannot do this, since it would have to run its user's program twice. There a driver that hangs keeps its thread, and one
//! that crashes ends the program.

use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use panoply::runtime::{Backend, Registry, env};
use panoply::{Error, Result};

/// Time limit for device discovery. The first start of some drivers takes seconds.
const DEADLINE: Duration = Duration::from_secs(20);
/// Time limit for the end of a killed process.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// Query the drivers of these backends without output; other commands run this in a child process first
#[derive(Args)]
pub struct ProbeDriversCommand {
    /// The backends to query
    kinds: Vec<Backend>,
}

/// Runs in the child process.
pub fn run(arguments: &ProbeDriversCommand) -> Result<ExitCode> {
    let registry = Registry::global()?;
    std::thread::scope(|threads| {
        for kind in &arguments.kinds {
            // The parent queries the devices itself; here it only matters that the driver returns.
            threads.spawn(|| drop(registry.devices(*kind)));
        }
    });
    Ok(ExitCode::SUCCESS)
}

/// Ensures that querying this device, or the best one, returns.
pub fn for_device(spelling: Option<&str>) -> Result<()> {
    let spelling = spelling.or(env::settings()?.device.as_deref()).unwrap_or("auto");
    match spelling.split(':').next().map(str::parse::<Backend>) {
        Some(Ok(kind)) => contain(vec![kind]),
        // An invalid name is reported where it is parsed.
        _ => for_all(),
    }
}

/// Ensures that querying every driver returns.
pub fn for_all() -> Result<()> {
    contain(Registry::global()?.backends())
}

fn contain(mut kinds: Vec<Backend>) -> Result<()> {
    static PROBED: Mutex<Vec<Backend>> = Mutex::new(Vec::new());
    let mut probed = PROBED.lock().unwrap_or_else(PoisonError::into_inner);
    kinds.retain(|kind| *kind != Backend::Cpu && !probed.contains(kind));
    probed.extend(&kinds);
    // If no process can be started, the drivers are queried without this protection.
    let fine = |child: std::io::Result<Child>| child.map_or(true, |child| wait(child, DEADLINE).is_ok());
    if kinds.is_empty() || fine(spawn_probe(&kinds)) {
        return Ok(());
    }
    let alone: Vec<(Backend, std::io::Result<Child>)> =
        kinds.iter().map(|kind| (*kind, spawn_probe(&[*kind]))).collect();
    for (kind, child) in alone {
        let Ok(child) = child else { continue };
        if let Err(end) = wait(child, DEADLINE) {
            let tool = match kind {
                Backend::Cuda => "nvidia-smi",
                Backend::Rocm => "rocminfo",
                Backend::OpenCl => "clinfo",
                Backend::Vulkan => "vulkaninfo",
                _ => "the vendor's information tool",
            };
            Registry::global()?.disable_backend(
                kind,
                &Error::unavailable(format!(
                    "the driver {end} during device discovery; check whether {tool} fails too, and reinstall or remove the driver"
                )),
            );
        }
    }
    Ok(())
}

/// Returns the seconds that a process takes to query every driver.
pub fn time() -> Result<f64> {
    let kinds = Registry::global()?.backends();
    let started = Instant::now();
    let child = spawn_probe(&kinds).map_err(|error| Error::io("cannot start a process for device discovery", error))?;
    let ended = wait(child, DEADLINE);
    ended.map_err(|end| {
        Error::unavailable(format!("a process for device discovery {end}; run `panoply status` to find the driver"))
    })?;
    Ok(started.elapsed().as_secs_f64())
}

fn spawn_probe(kinds: &[Backend]) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("probe-drivers").args(kinds.iter().map(|kind| kind.name()));
    // Messages of the driver are shown when this process queries it.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn()
}

/// Waits for a child; the error says how it failed.
fn wait(mut child: Child, deadline: Duration) -> std::result::Result<(), String> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(ending(status)),
            Ok(None) if started.elapsed() < deadline => std::thread::sleep(pause),
            Ok(None) => {
                // It can have ended by now. A process that hangs in the kernel may never end, so the wait is limited.
                let _ = child.kill();
                let killed = Instant::now();
                while killed.elapsed() < KILL_TIMEOUT && matches!(child.try_wait(), Ok(None)) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                return Err(format!("did not answer within {} s", deadline.as_secs()));
            }
            Err(error) => return Err(format!("cannot be waited for ({error})")),
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

#[cfg(unix)]
fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    status
        .signal()
        .map_or_else(|| format!("ended the process ({status})"), |signal| format!("crashed (signal {signal})"))
}

#[cfg(not(unix))]
fn ending(status: ExitStatus) -> String {
    format!("crashed ({status})")
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn exit_crash_and_timeout_are_distinguished() {
        let shell = |script: &str| Command::new("sh").args(["-c", script]).spawn().unwrap();
        assert_eq!(wait(shell("exit 0"), DEADLINE), Ok(()));
        assert_eq!(wait(shell("kill -SEGV $$"), DEADLINE), Err("crashed (signal 11)".to_string()));
        assert_eq!(wait(shell("exit 3"), DEADLINE), Err("ended the process (exit status: 3)".to_string()));
        let started = Instant::now();
        assert_eq!(wait(shell("exec sleep 60"), Duration::from_secs(1)), Err("did not answer within 1 s".to_string()));
        assert!(started.elapsed() < Duration::from_secs(30), "the child is killed");
    }
}
