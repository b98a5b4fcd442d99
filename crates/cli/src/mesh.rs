//! `panoply mesh`: runs one command in several processes.

use std::io::{BufRead, BufReader};
use std::num::NonZeroUsize;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::thread::available_parallelism;

use clap::{Args, Subcommand};
use panoply::{Error, Result, runtime};

/// Name of the launcher.
const MPIRUN: &str = "mpirun";

/// Hint for installing the launcher.
const INSTALL: &str = "install Open MPI 4 or 5 (Debian: openmpi-bin)";

#[derive(Args)]
pub struct MeshCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Start several processes of `panoply` with Open MPI's `mpirun`; `train` then trains one model on all of them
    Run(RunArguments),
}

#[derive(Args)]
struct RunArguments {
    /// Number of processes
    #[arg(short = 'n', long, value_name = "N")]
    ranks: NonZeroUsize,
    /// The command and its options, after `--`: `train digits --epochs 5`
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Runs the command under `mpirun`; the error names the rank that ended first.
pub fn run(arguments: &MeshCommand) -> Result<ExitCode> {
    let Action::Run(RunArguments { ranks, command }) = &arguments.action;
    check_launcher()?;
    let own = std::env::current_exe().map_err(|error| Error::io("cannot find this program", error))?;
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    let mut mpirun = Command::new(MPIRUN);
    mpirun.args(["-n", &ranks.to_string()]);
    // Open MPI counts cores as slots, and there can be half as many cores as hardware threads.
    if ranks.get() > cores.div_ceil(2) {
        mpirun.arg("--oversubscribe");
    }
    if is_root() {
        mpirun.arg("--allow-run-as-root");
    }
    if runtime::env::settings()?.threads.is_none() {
        mpirun.env("PANOPLY_THREADS", (cores / ranks.get()).max(1).to_string());
    }
    // The threads of a rank can run on any core.
    mpirun.args(["--bind-to", "none"]);
    mpirun.arg(own).args(command).stderr(Stdio::piped());
    let failed = |error| Error::io(format!("cannot run {MPIRUN}"), error);
    // The launcher receives Ctrl-C too and ends the ranks; this process waits for them.
    ctrlc::set_handler(|| ())
        .map_err(|error| Error::mistake(format!("cannot install a handler for Ctrl-C: {error}")))?;
    let mut child = mpirun.spawn().map_err(failed)?;
    let mut lost = Lost::default();
    if let Some(errors) = child.stderr.take() {
        for line in BufReader::new(errors).split(b'\n') {
            let line = String::from_utf8_lossy(&line.map_err(failed)?).into_owned();
            lost.read(&line);
            eprintln!("{line}");
        }
    }
    let status = child.wait().map_err(failed)?;
    if status.success() { Ok(ExitCode::SUCCESS) } else { Err(lost.error(status, ranks.get())) }
}

/// Returns an error if `mpirun` is missing or belongs to another MPI implementation.
fn check_launcher() -> Result<()> {
    let output = Command::new(MPIRUN).arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::unavailable(format!("{MPIRUN} not found; {INSTALL}")),
        _ => Error::io(format!("cannot run {MPIRUN}"), error),
    })?;
    let version = String::from_utf8_lossy(&output.stdout);
    if version.contains("Open MPI") {
        return Ok(());
    }
    let first = version.lines().next().unwrap_or_default();
    Err(Error::unavailable(format!("{MPIRUN} is not from Open MPI but `{}`; {INSTALL}", first.trim())))
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

/// The rank that ended first, parsed from its message or from those of `mpirun`, some of which can be missing.
#[derive(Debug, Default, PartialEq)]
struct Lost {
    rank: Option<usize>,
    how: Option<String>,
}

impl Lost {
    /// Parses a line of a rank or of `mpirun`.
    fn read(&mut self, line: &str) {
        let number =
            |text: &str| text.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok());
        let behind = |mark: &str| line.split_once(mark).map(|(_, rest)| rest);
        if let Some(rest) = behind("process rank ") {
            self.rank = self.rank.or(number(rest));
            let how = rest.split_once("exited on ").map(|(_, how)| how.trim_end_matches('.').to_string());
            self.how = self.how.take().or(how);
        } else if let Some(rest) = line.strip_prefix("panoply: rank ") {
            self.rank = self.rank.or(number(rest));
        } else if let Some(rest) = behind("MPI_ABORT was invoked on rank ") {
            self.rank = self.rank.or(number(rest));
        } else if let Some(name) = behind("Process name: [[") {
            self.rank = self.rank.or(name.rsplit_once(',').and_then(|(_, rank)| number(rank)));
        } else if let Some(code) = behind("Exit code:") {
            self.how = self.how.take().or(Some(format!("exit code {}", code.trim())));
        }
    }

    fn error(&self, status: ExitStatus, ranks: usize) -> Error {
        match (self.rank, &self.how) {
            (Some(rank), how) => {
                let how = how.as_ref().map_or(String::new(), |how| format!(" by {how}"));
                Error::unavailable(format!("rank {rank} of {ranks} ended{how}; all other ranks were stopped"))
                    .note("its error message, if any, is above")
            }
            (None, _) => Error::unavailable(format!("{MPIRUN} ended with {status}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_rank_is_parsed_from_every_message() {
        let signal = "mpirun noticed that process rank 1 with PID 42 on node host exited on signal 9 (Killed).";
        for (lines, rank, how) in [
            (vec![signal], 1, Some("signal 9 (Killed)")),
            (vec!["MPI_ABORT was invoked on rank 12 in communicator MPI_COMM_WORLD"], 12, None),
            (vec!["panoply: rank 2: out of memory"], 2, None),
            (vec!["  Process name: [[46862,1],3]", "  Exit code:    7"], 3, Some("exit code 7")),
            (
                vec!["prterun noticed that process rank 2 with PID 7 on node h exited on signal 11 (S)."],
                2,
                Some("signal 11 (S)"),
            ),
        ] {
            let mut lost = Lost::default();
            lines.iter().for_each(|line| lost.read(line));
            assert_eq!(lost, Lost { rank: Some(rank), how: how.map(str::to_string) });
        }
    }
}
