//! Starts a program in several processes (ranks) with an MPI launcher, and names the rank that ended first.
//!
//! Launchers report a lost process in different words. MPICH's tells its process id instead of its rank, and can take one that it has ended
//! itself for the first. Therefore each rank announces its process id ([`announce`]), or a process that waits for it reports how it ended
//! ([`report`]), in a line that only the process that started the launcher reads.

mod lost_rank;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use panoply_runtime::env::{self, LauncherKind};
use panoply_runtime::ranks;
use panoply_tensor::{Error, Result};

use lost_rank::{Line, Lost};

/// Programs that are tried if none is chosen.
const PROGRAMS: [&str; 2] = ["mpirun", "mpiexec"];

/// Hint for installing a launcher.
const INSTALL: &str = "install Open MPI 4 or 5 (Debian: openmpi-bin) or MPICH (Debian: mpich)";

/// Time between the error message of a rank and the end of all ranks. MPICH's launcher does not end the other ranks if one ends before it
/// has initialized MPI.
const GRACE: Duration = Duration::from_secs(2);

/// A launcher program of MPI: `mpirun` or `mpiexec`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MpiLauncher {
    /// Path of the program.
    pub program: PathBuf,
    /// Its implementation of MPI: Open MPI, or MPICH and compatible ones.
    pub kind: LauncherKind,
    /// Name and version, such as `Open MPI 4.1.4`.
    pub version: String,
}

impl MpiLauncher {
    /// Finds the launcher: the one that `PANOPLY_LAUNCHER` names, else `mpirun` or `mpiexec` on the search path.
    ///
    /// # Errors
    /// There is none, or it belongs to neither Open MPI nor MPICH.
    pub fn find() -> Result<MpiLauncher> {
        if let Some(program) = &env::settings()?.launcher {
            return MpiLauncher::open(program);
        }
        match PROGRAMS.iter().find(|program| env::find_program(program).is_some()) {
            Some(program) => MpiLauncher::open(program),
            None => Err(Error::unavailable(format!("no MPI launcher found ({}); {INSTALL}", PROGRAMS.join(", ")))),
        }
    }

    /// Asks a launcher for its version. `program` is a name on the search path, such as `mpiexec.mpich`, or a path.
    ///
    /// # Errors
    /// The program is missing, or belongs to neither Open MPI nor MPICH.
    pub fn open(program: &str) -> Result<MpiLauncher> {
        let missing = || Error::unavailable(format!("{program} not found; {INSTALL}"));
        let path = env::find_program(program).ok_or_else(missing)?;
        let output = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| Error::io(format!("cannot run {}", path.display()), error))?;
        let text = String::from_utf8_lossy(&output.stdout);
        match version(&text) {
            Some((kind, version)) => Ok(MpiLauncher { program: path, kind, version }),
            None => {
                let first = text.lines().next().unwrap_or_default();
                let message =
                    format!("{program} is not a launcher of Open MPI or MPICH but `{}`; {INSTALL}", first.trim());
                Err(Error::unavailable(message)
                    .note("other launchers start the program directly: `srun -n 4 panoply train …`"))
            }
        }
    }

    /// Returns the path of the MPI library that was installed with this launcher, or that `PANOPLY_MPI_LIBRARY` names. `None` leaves
    /// the choice to the system's loader.
    pub fn library(&self) -> Option<PathBuf> {
        if let Some(path) = env::settings().ok().and_then(|settings| settings.mpi_library.clone()) {
            return Some(path);
        }
        let program = std::fs::canonicalize(&self.program).ok()?;
        let prefix = program.parent()?.parent()?;
        ["lib", "lib64"].iter().find_map(|folder| ranks::library_in(&prefix.join(folder), self.kind))
    }

    /// Runs a program in several processes and waits for them. Each finds the others by [`RankGroup::open`](crate::RankGroup::open).
    ///
    /// # Errors
    /// The launcher cannot be started, or a rank ended without success: the error names the first one and its signal or exit code.
    pub fn run(&self, ranks: NonZeroUsize, program: &Path, arguments: &[impl AsRef<OsStr>]) -> Result<()> {
        self.run_with(ranks, program, arguments, |_| ())
    }

    /// [`MpiLauncher::run`] that calls `started` with the process id of the launcher, which passes a signal to end on to the ranks.
    ///
    /// # Errors
    /// As for [`MpiLauncher::run`].
    pub fn run_with(
        &self,
        ranks: NonZeroUsize,
        program: &Path,
        arguments: &[impl AsRef<OsStr>],
        started: impl FnOnce(u32),
    ) -> Result<()> {
        let failed = |error| Error::io(format!("cannot run {}", self.program.display()), error);
        let mut command = self.command(ranks.get(), program)?;
        command.args(arguments).stderr(Stdio::piped());
        if self.kind != LauncherKind::OpenMpi {
            // This launcher writes its own messages to stdout.
            command.stdout(Stdio::piped());
        }
        let mut child = command.spawn().map_err(failed)?;
        let (lost, launcher) = (Mutex::new(Lost::default()), child.id());
        started(launcher);
        let (failure, failures) = mpsc::channel();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        std::thread::scope(|threads| {
            let lost = &lost;
            threads.spawn(move || stop_after_failure(&failures, launcher));
            if let Some(stdout) = stdout {
                let failure = failure.clone();
                threads.spawn(move || forward(stdout, &mut std::io::stdout(), lost, &failure));
            }
            if let Some(stderr) = stderr {
                forward(stderr, &mut std::io::stderr(), lost, &failure);
            }
            // Without senders, the first thread ends.
            drop(failure);
        });
        let status = child.wait().map_err(failed)?;
        let lost = lost.into_inner().unwrap_or_else(PoisonError::into_inner);
        if status.success() { Ok(()) } else { Err(lost.error(status, ranks.get(), &self.program)) }
    }

    /// Returns the launcher's command line up to the program.
    fn command(&self, ranks: usize, program: &Path) -> Result<Command> {
        let cores = available_parallelism().map_or(1, NonZeroUsize::get);
        let mut command = Command::new(&self.program);
        command.args(["-n", &ranks.to_string()]);
        if self.kind == LauncherKind::OpenMpi {
            // Open MPI counts cores as slots, and there can be half as many cores as hardware threads.
            if ranks > cores.div_ceil(2) {
                command.arg("--oversubscribe");
            }
            if is_root() {
                command.arg("--allow-run-as-root");
            }
            // The threads of a rank can run on any core.
            command.args(["--bind-to", "none"]);
        }
        if env::settings()?.threads.is_none() {
            command.env("PANOPLY_THREADS", (cores / ranks).max(1).to_string());
        }
        if let Some(library) = self.library() {
            command.env("PANOPLY_MPI_LIBRARY", library);
        }
        command.env("PANOPLY_LAUNCHED_RANKS", ranks.to_string());
        if self.kind == LauncherKind::OpenMpi {
            // Other launchers give all variables to the ranks on other hosts. The number of threads is for the ranks on this one.
            let inherited = std::env::vars_os().map(|(name, _)| name).filter(|name| is_ours(name));
            let names: BTreeSet<OsString> = inherited.chain(["PANOPLY_LAUNCHED_RANKS".into()]).collect();
            for name in names {
                command.arg("-x").arg(name);
            }
        }
        command.arg(program);
        Ok(command)
    }
}

/// Returns true for the name of an environment variable of Panoply.
fn is_ours(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("PANOPLY_"))
}

/// Tells the process that started the launcher which process this rank is. Without one, this does nothing.
///
/// # Errors
/// The environment variables of Panoply or of the launcher are malformed.
pub fn announce() -> Result<()> {
    if let (Some(_), Some(launcher)) = (env::settings()?.launched_ranks, env::launcher()?)
        && let Some(rank) = launcher.rank
    {
        // One write, so that the line is not divided by those of other ranks.
        let line = format!("{RANK}{rank}{PROCESS}{}\n", std::process::id());
        // If stderr is closed, a lost rank is reported without its number.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    Ok(())
}

/// Tells the process that started the launcher how the process of a rank failed: by a signal, or an exit code other than 0.
pub fn report(rank: usize, status: ExitStatus) {
    let line = format!("{RANK}{rank}{ENDED}{}\n", ending(status));
    // If stderr is closed, the launcher's own message remains.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

#[cfg(unix)]
fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    let Some(signal) = status.signal() else {
        return format!("exit code {}", status.code().unwrap_or_default());
    };
    let name = match signal {
        4 => " (Illegal instruction)",
        6 => " (Aborted)",
        7 => " (Bus error)",
        8 => " (Floating point exception)",
        9 => " (Killed)",
        11 => " (Segmentation fault)",
        15 => " (Terminated)",
        _ => "",
    };
    format!("signal {signal}{name}")
}

#[cfg(not(unix))]
fn ending(status: ExitStatus) -> String {
    format!("exit code {}", status.code().unwrap_or_default())
}

/// Start of each message of a rank.
const RANK: &str = "panoply: rank ";
/// Text between rank and process id in the line of [`announce`].
const PROCESS: &str = " is process ";
/// Text between rank and end in the line of [`report`].
const ENDED: &str = " ended by ";

/// Returns the implementation and the version of a launcher, from the output of `--version`.
fn version(text: &str) -> Option<(LauncherKind, String)> {
    let first = text.lines().next().unwrap_or_default();
    if first.contains("Open MPI") || first.contains("OpenRTE") {
        return Some((LauncherKind::OpenMpi, format!("Open MPI {}", first.split_whitespace().last()?)));
    }
    if first.starts_with("HYDRA") {
        let number = text.lines().find_map(|line| line.trim().strip_prefix("Version:"))?;
        return Some((LauncherKind::Mpich, format!("MPICH {}", number.trim())));
    }
    let intel = first.split_once(" Build").map_or(first, |(version, _)| version);
    first.contains("Intel(R) MPI").then(|| (LauncherKind::Mpich, intel.replace(" for Linux* OS, Version", "")))
}

/// Copies lines to `to`. Messages of the launcher about a lost process go to stderr, and announcements of ranks nowhere.
fn forward(from: impl Read, to: &mut dyn Write, lost: &Mutex<Lost>, failure: &Sender<()>) {
    let (mut from, mut line) = (BufReader::new(from), Vec::new());
    // A rule, held back until the next line tells whether it is the launcher's.
    let mut rule: Vec<u8> = Vec::new();
    // If the reader of `to` has ended, the launcher must still be able to write.
    while from.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        let text = String::from_utf8_lossy(&line);
        // The lock ends here: a write can block.
        let origin = lost.lock().unwrap_or_else(PoisonError::into_inner).read(text.trim_end());
        if !rule.is_empty() {
            let _ = if origin == Line::Launcher { std::io::stderr().write_all(&rule) } else { to.write_all(&rule) };
            rule.clear();
        }
        match origin {
            Line::Announcement(start) => drop(to.write_all(&text.as_bytes()[..start])),
            Line::Report(start) => {
                let _ = to.write_all(&text.as_bytes()[..start]);
                let _ = failure.send(());
            }
            Line::Launcher => drop(std::io::stderr().write_all(&line)),
            Line::Rule => rule.extend_from_slice(&line),
            Line::Failure | Line::Other => {
                let _ = to.write_all(&line).and_then(|()| to.flush());
                if origin == Line::Failure {
                    let _ = failure.send(());
                }
            }
        }
        line.clear();
    }
    let _ = to.write_all(&rule).and_then(|()| to.flush());
}

/// Ends the launcher, and through it all ranks, if it goes on for long after a rank reported an error.
fn stop_after_failure(failures: &Receiver<()>, launcher: u32) {
    let Ok(()) = failures.recv() else { return };
    for signal in ["-TERM", "-KILL"] {
        let deadline = Instant::now() + GRACE;
        loop {
            match failures.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        // Its streams are open, so it still runs.
        send_signal(signal, launcher);
    }
}

/// Sends a signal, such as `-TERM`, to a launcher, which ends the ranks. Nothing happens if it has ended.
pub fn send_signal(signal: &str, launcher: u32) {
    let _ = Command::new("kill").args([signal, &launcher.to_string()]).stderr(Stdio::null()).status();
}

/// Returns true if this process runs as root, which Open MPI rejects by default.
#[cfg(target_os = "linux")]
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

#[cfg(not(target_os = "linux"))]
fn is_root() -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    /// Open MPI gives its ranks on other hosts only the variables that are named.
    #[test]
    fn variables_are_named_for_other_hosts() {
        let program = PathBuf::from("/usr/bin/mpirun");
        let launcher = |kind| MpiLauncher { program: program.clone(), kind, version: String::new() };
        let arguments = |kind| {
            let command = launcher(kind).command(2, Path::new("program")).unwrap();
            let text = |text: &OsStr| text.to_string_lossy().into_owned();
            command.get_args().map(text).collect::<Vec<String>>().join(" ")
        };
        assert!(arguments(LauncherKind::OpenMpi).contains(" -x PANOPLY_LAUNCHED_RANKS"));
        assert_eq!(arguments(LauncherKind::Mpich), "-n 2 program");
        assert!(is_ours(OsStr::new("PANOPLY_LOG")) && !is_ours(OsStr::new("PATH")));
    }

    fn message(lines: &[&str]) -> String {
        let mut lost = Lost::default();
        for line in lines {
            lost.read(line);
        }
        lost.error(ExitStatus::from_raw(256), 4, Path::new("mpirun")).message().to_string()
    }

    #[test]
    fn lost_rank_is_parsed_from_every_message() {
        let hydra = [
            "the end of this line comes laterpanoply: rank 0 is process 40",
            "panoply: rank 3 is process 42",
            "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
            "=   PID 42 RUNNING AT host",
            "=   EXIT CODE: 9",
            "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault (signal 11)",
        ];
        for (lines, expected) in [
            (
                &["mpirun noticed that process rank 1 with PID 42 on node host exited on signal 9 (Killed)."][..],
                "rank 1 of 4 ended by signal 9 (Killed); all other ranks were stopped",
            ),
            (
                &[
                    "prterun noticed that process rank 2 with PID 7 on node h exited on",
                    "signal 11 (Segmentation fault).",
                ],
                "rank 2 of 4 ended by signal 11 (Segmentation fault); all other ranks were stopped",
            ),
            (
                &["MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD"],
                "rank 2 of 4 ended; all other ranks were stopped",
            ),
            (&["panoply: rank 2: out of memory"], "rank 2 of 4 ended; all other ranks were stopped"),
            (
                &["  Process name: [[46862,1],3]", "  Exit code:    7"],
                "rank 3 of 4 ended by exit code 7; all other ranks were stopped",
            ),
            (
                &["   Process name: [prterun-vm-9304@1,1]", "   Exit code:    7"],
                "rank 1 of 4 ended by exit code 7; all other ranks were stopped",
            ),
            (
                &hydra,
                "one of 4 ranks ended by signal 11 (Segmentation fault), the launcher names rank 3; all others were stopped",
            ),
            (
                &hydra[2..],
                "one of 4 ranks (process 42) ended by signal 11 (Segmentation fault); all others were stopped",
            ),
            (
                &[&["panoply: rank 2 ended by signal 9 (Killed)"], &hydra[2..]].concat(),
                "rank 2 of 4 ended by signal 9 (Killed); all other ranks were stopped",
            ),
            (
                &[
                    "panoply: rank 1: out of memory",
                    "panoply: rank 0 ended by exit code 1",
                    "panoply: rank 1 ended by exit code 2",
                ],
                "rank 1 of 4 ended by exit code 2; all other ranks were stopped",
            ),
            (
                &[
                    "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
                    "=   RANK 2 PID 42 RUNNING AT host",
                    "=   KILLED BY SIGNAL: 9 (Killed)",
                ],
                "one of 4 ranks ended by signal 9 (Killed), the launcher names rank 2; all others were stopped",
            ),
            (
                &["Abort(4) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 4) - process 1"],
                "rank 1 of 4 ended; all other ranks were stopped",
            ),
            // A warning is not a failure.
            (&["panoply: rank 2 has waited 30 s for a sum over all ranks"], "mpirun ended with exit status: 1"),
        ] {
            assert_eq!(message(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn announcement_is_cut_from_the_line_of_another_rank() {
        let from = "panoply: rank 0 is process 40\nhalf a panoply: rank 1 is process 41\nline\n\
                    panoply: rank 1: x\n=   BAD TERMINATION OF ONE\n=   PID 41 RUNNING AT h\n";
        let (mut to, lost, (failure, failures)) = (Vec::new(), Mutex::new(Lost::default()), mpsc::channel());
        forward(from.as_bytes(), &mut to, &lost, &failure);
        assert_eq!(String::from_utf8(to).unwrap(), "half a line\npanoply: rank 1: x\n");
        assert_eq!(failures.try_iter().count(), 1);
        assert_eq!(ending(ExitStatus::from_raw(9)), "signal 9 (Killed)");
        assert_eq!(ending(ExitStatus::from_raw(3 << 8)), "exit code 3");
        let lost = lost.into_inner().unwrap();
        assert_eq!((lost.announced, lost.rank, lost.process), (vec![(0, 40), (1, 41)], Some(1), Some(41)));
    }

    #[test]
    fn rules_of_ranks_stay_in_their_output() {
        let rule = "=".repeat(83);
        let ranks = format!("{rule}\n=   epoch 1\n{rule}\n");
        let report = format!("{rule}\n=   BAD TERMINATION OF ONE\n=   PID 41 RUNNING AT h\n{rule}\n");
        for (from, expected) in [
            (ranks.clone(), ranks.clone()),
            (format!("{ranks}loss\n{report}"), format!("{ranks}loss\n")),
            (format!("loss\n{rule}"), format!("loss\n{rule}")),
        ] {
            let (mut to, lost) = (Vec::new(), Mutex::new(Lost::default()));
            forward(from.as_bytes(), &mut to, &lost, &mpsc::channel().0);
            assert_eq!(String::from_utf8(to).unwrap(), expected);
        }
    }

    #[test]
    fn launchers_are_recognized_by_their_version() {
        for (text, expected) in [
            ("mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to", Some((LauncherKind::OpenMpi, "Open MPI 4.1.4"))),
            ("mpirun (Open MPI) 5.0.11\n", Some((LauncherKind::OpenMpi, "Open MPI 5.0.11"))),
            ("HYDRA build details:\n    Version:         4.0.2\n", Some((LauncherKind::Mpich, "MPICH 4.0.2"))),
            (
                "Intel(R) MPI Library for Linux* OS, Version 2021.10 Build 20230619\n",
                Some((LauncherKind::Mpich, "Intel(R) MPI Library 2021.10")),
            ),
            ("slurm-wlm 22.05.8\n", None),
        ] {
            assert_eq!(version(text), expected.map(|(kind, version)| (kind, version.to_string())), "{text}");
        }
    }

    #[test]
    fn launcher_that_goes_on_after_a_failure_is_stopped() {
        // A rank that fails, with or without an error message, and another that does not end.
        let folder = std::env::temp_dir().join(format!("panoply-launcher-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, line, ended) in [
            ("message", "panoply: rank 1: cannot open x", "rank 1 of 2 ended"),
            ("code", "panoply: rank 1 ended by exit code 101", "rank 1 of 2 ended by exit code 101"),
        ] {
            let program = folder.join(name);
            std::fs::write(&program, format!("#!/bin/sh\necho '{line}' >&2\nexec sleep 60\n")).unwrap();
            assert!(Command::new("chmod").arg("+x").arg(&program).status().unwrap().success());
            let launcher = MpiLauncher { program, kind: LauncherKind::Mpich, version: String::new() };
            let start = Instant::now();
            let ranks = NonZeroUsize::new(2).unwrap();
            let error = launcher.run(ranks, Path::new("train"), &[] as &[&str]).unwrap_err();
            assert_eq!(error.message(), format!("{ended}; all other ranks were stopped"));
            assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
