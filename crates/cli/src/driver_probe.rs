//! Drivers are asked for devices in a child process first: one that crashes or hangs costs its own kind and nothing else.
//!
//! A library cannot do that, it would have to run its user's program twice; there a driver that hangs is left behind on its
//! thread, and one that crashes takes the program with it.

use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use panoply::runtime::{Backend, Registry, env};
use panoply::{Error, Result};

/// How long drivers may take to answer. The first start of some takes seconds.
const DEADLINE: Duration = Duration::from_secs(20);
/// How long a killed process may take to be gone.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// Ask drivers for devices and say nothing: what other commands do first, in a child process.
#[derive(Args)]
pub struct ContainCommand {
    /// The kinds whose drivers are asked.
    kinds: Vec<Backend>,
}

/// What runs in the child process.
pub fn run(arguments: &ContainCommand) -> Result<ExitCode> {
    let registry = Registry::global()?;
    std::thread::scope(|threads| {
        for kind in &arguments.kinds {
            // What it answers is heard when the parent asks; here it only matters that it does.
            threads.spawn(|| drop(registry.devices(*kind)));
        }
    });
    Ok(ExitCode::SUCCESS)
}

/// Makes sure that asking for this device, or for the best one, ends.
pub fn for_device(spelling: Option<&str>) -> Result<()> {
    let spelling = spelling.or(env::settings()?.device.as_deref()).unwrap_or("auto");
    match spelling.split(':').next().map(str::parse::<Backend>) {
        Some(Ok(kind)) => contain(vec![kind]),
        // What is spelled wrong is refused where it is read.
        _ => for_all(),
    }
}

/// Makes sure that asking every driver ends.
pub fn for_all() -> Result<()> {
    contain(Registry::global()?.backends())
}

fn contain(mut kinds: Vec<Backend>) -> Result<()> {
    static ASKED: Mutex<Vec<Backend>> = Mutex::new(Vec::new());
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    kinds.retain(|kind| *kind != Backend::Cpu && !asked.contains(kind));
    asked.extend(&kinds);
    // Where no process can be started the drivers are asked without this care.
    let fine = |child: std::io::Result<Child>| child.map_or(true, |child| wait(child, DEADLINE).is_ok());
    if kinds.is_empty() || fine(ask(&kinds)) {
        return Ok(());
    }
    let alone: Vec<(Backend, std::io::Result<Child>)> = kinds.iter().map(|kind| (*kind, ask(&[*kind]))).collect();
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
                    "the driver {end} when it was asked for devices; see whether {tool} does too, and reinstall or remove the driver"
                )),
            );
        }
    }
    Ok(())
}

/// Seconds that a process takes which asks every driver and ends.
pub fn time() -> Result<f64> {
    let kinds = Registry::global()?.backends();
    let started = Instant::now();
    let child = ask(&kinds).map_err(|error| Error::io("starting a process that asks the drivers", error))?;
    let ended = wait(child, DEADLINE);
    ended.map_err(|end| {
        Error::unavailable(format!("a process that asked the drivers {end}; `panoply status` names the driver"))
    })?;
    Ok(started.elapsed().as_secs_f64())
}

fn ask(kinds: &[Backend]) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("probe").args(kinds.iter().map(|kind| kind.name()));
    // What a driver has to say is heard once, when this process asks.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn()
}

/// How a child that did not end well ended.
fn wait(mut child: Child, deadline: Duration) -> std::result::Result<(), String> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(ending(status)),
            Ok(None) if started.elapsed() < deadline => std::thread::sleep(pause),
            Ok(None) => {
                // It may have ended by itself by now. One that hangs inside the kernel is not waited for: it may never end.
                let _ = child.kill();
                let killed = Instant::now();
                while killed.elapsed() < KILL_TIMEOUT && matches!(child.try_wait(), Ok(None)) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                return Err(format!("did not answer within {} s", deadline.as_secs()));
            }
            Err(error) => return Err(format!("could not be waited for ({error})")),
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

#[cfg(unix)]
fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    status
        .signal()
        .map_or_else(|| format!("ended its process ({status})"), |signal| format!("crashed (signal {signal})"))
}

#[cfg(not(unix))]
fn ending(status: ExitStatus) -> String {
    format!("crashed ({status})")
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn endings_are_told_apart() {
        let shell = |script: &str| Command::new("sh").args(["-c", script]).spawn().unwrap();
        assert_eq!(wait(shell("exit 0"), DEADLINE), Ok(()));
        assert_eq!(wait(shell("kill -SEGV $$"), DEADLINE), Err("crashed (signal 11)".to_string()));
        assert_eq!(wait(shell("exit 3"), DEADLINE), Err("ended its process (exit status: 3)".to_string()));
        let started = Instant::now();
        assert_eq!(wait(shell("exec sleep 60"), Duration::from_secs(1)), Err("did not answer within 1 s".to_string()));
        assert!(started.elapsed() < Duration::from_secs(30), "it was killed");
    }
}
