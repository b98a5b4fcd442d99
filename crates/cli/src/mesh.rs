//! `panoply mesh`: runs one command in several processes.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Args, Subcommand};
use panoply::mesh::{MpiLauncher, launch};
use panoply::runtime::env::{self, LauncherKind};
#[cfg(unix)]
use panoply::runtime::log;
use panoply::{Error, Result};
#[cfg(unix)]
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
#[cfg(unix)]
use signal_hook::iterator::Signals;

/// Time in which the launcher passes the report of a rank on, before it learns of the end and stops the other ranks.
const SETTLE: Duration = Duration::from_millis(200);

#[derive(Args)]
pub struct MeshCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Start several processes (ranks) of `panoply` with `mpirun` or `mpiexec`; `train` then trains one model on all of them
    Run(RunArguments),
    /// Start the command as one rank; `mesh run` lets the launcher run this
    #[command(hide = true)]
    Rank(RankArguments),
}

#[derive(Args)]
struct RunArguments {
    /// Number of processes
    #[arg(short = 'n', long, value_name = "N")]
    ranks: NonZeroUsize,
    /// Launcher of Open MPI or MPICH: a program such as `mpiexec.mpich`, or a path [default: PANOPLY_LAUNCHER, mpirun or mpiexec]
    #[arg(long, value_name = "PROGRAM")]
    launcher: Option<String>,
    /// Write the output of each rank but rank 0 to rank-K.log in this folder [default: every rank writes to the terminal]
    #[arg(long, value_name = "FOLDER")]
    log_dir: Option<PathBuf>,
    /// The command and its options, after `--`: `train digits --epochs 5`
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

#[derive(Args)]
struct RankArguments {
    /// Folder for the output, unless this is rank 0
    #[arg(long)]
    log_dir: Option<PathBuf>,
    /// Write no colors: Open MPI gives the ranks a terminal even if `mesh run` writes to a file
    #[arg(long)]
    no_color: bool,
    /// The command and its options
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Runs the action; the error of `mesh run` names the rank that ended first.
pub fn run(arguments: &MeshCommand) -> Result<ExitCode> {
    match &arguments.action {
        Action::Run(arguments) => run_ranks(arguments),
        Action::Rank(arguments) => run_as_rank(arguments),
    }
}

/// Returns the number of this process, if it is a rank of `mesh run`.
pub fn own_rank() -> Option<usize> {
    let launched = env::settings().is_ok_and(|settings| settings.launched_ranks.is_some());
    launched.then(|| env::launcher().ok()??.rank).flatten()
}

fn run_ranks(arguments: &RunArguments) -> Result<ExitCode> {
    // Otherwise each rank would report the same mistake.
    let command = std::iter::once("panoply").chain(arguments.command.iter().map(String::as_str));
    match crate::parse(command.map(Into::into)) {
        Err(error) if error.use_stderr() => return Ok(crate::refused(&error)),
        _ => {}
    }
    let launcher = match &arguments.launcher {
        Some(program) => MpiLauncher::open(program)?,
        None => MpiLauncher::find()?,
    };
    let mut rank = vec!["mesh".to_string(), "rank".to_string()];
    if let Some(folder) = &arguments.log_dir {
        std::fs::create_dir_all(folder).map_err(|error| log_error(folder, error))?;
        let folder = std::path::absolute(folder).map_err(|error| log_error(folder, error))?;
        (1..arguments.ranks.get()).try_for_each(|rank| remove_log(&log_file(&folder, rank)))?;
        rank.extend(["--log-dir".to_string(), folder.to_string_lossy().into_owned()]);
    }
    if !std::io::stdout().is_terminal() {
        rank.push("--no-color".to_string());
    }
    rank.push("--".to_string());
    rank.extend(arguments.command.iter().cloned());
    let forwarded = SignalForwarder::new()?;
    let done = launcher.run_with(arguments.ranks, &own_program()?, &rank, |launcher| forwarded.to(launcher));
    let done = done.map_err(|error| match &arguments.log_dir {
        Some(folder) => error.note(note_of_logs(folder, arguments.ranks.get())),
        None => error,
    });
    done.map(|()| ExitCode::SUCCESS)
}

/// Receives the signals that would end this process, which waits for the launcher instead.
#[cfg(unix)]
struct SignalForwarder(Signals);

#[cfg(unix)]
impl SignalForwarder {
    fn new() -> Result<SignalForwarder> {
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
        signals.map(SignalForwarder).map_err(|error| Error::io("cannot receive signals", error))
    }

    /// Passes the signals on to the launcher, which ends the ranks. Ctrl-C reaches it without help.
    fn to(mut self, launcher: u32) {
        let forward = move || {
            for _ in self.0.forever().filter(|signal| *signal != SIGINT) {
                launch::send_signal("-TERM", launcher);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("panoply-signals".to_string()).spawn(forward) {
            log::warn(|| format!("no thread can be started, so that signals do not end the ranks: {error}"));
        }
    }
}

/// Other systems have only Ctrl-C, which the launcher receives too.
#[cfg(not(unix))]
struct SignalForwarder;

#[cfg(not(unix))]
impl SignalForwarder {
    fn new() -> Result<SignalForwarder> {
        ctrlc::set_handler(|| ())
            .map_err(|error| Error::mistake(format!("cannot install a handler for Ctrl-C: {error}")))?;
        Ok(SignalForwarder)
    }

    fn to(self, _: u32) {}
}

/// Returns the first error message in the logs of the ranks, or where these are.
fn note_of_logs(folder: &Path, ranks: usize) -> String {
    let message = |rank: usize| {
        let path = log_file(folder, rank);
        Some(format!("{}: {}", path.display(), first_error(&path, rank)?))
    };
    let output = || format!("the output of the ranks from 1 is in {}", folder.display());
    (1..ranks).find_map(message).unwrap_or_else(output)
}

/// Runs the command with the output in a file, unless this is rank 0.
fn run_as_rank(arguments: &RankArguments) -> Result<ExitCode> {
    let launcher = env::launcher()?;
    let Some((kind, rank)) = launcher.and_then(|launcher| Some((launcher.kind, launcher.rank?))) else {
        return Err(Error::mistake("`panoply mesh rank` is started by the launcher of `panoply mesh run`"));
    };
    let mut command = Command::new(own_program()?);
    command.args(&arguments.command);
    if arguments.no_color {
        command.env("NO_COLOR", "1");
    }
    let log = arguments.log_dir.as_deref().filter(|_| rank > 0).map(|folder| log_file(folder, rank));
    if let Some(path) = &log {
        let file = File::create(path).map_err(|error| log_error(path, error))?;
        command.stderr(file.try_clone().map_err(|error| log_error(path, error))?).stdout(file);
    }
    match kind {
        LauncherKind::Mpich => watch(&mut command, rank, log.as_deref()),
        _ => become_command(&mut command),
    }
}

/// Waits for the command and reports how it ended, which MPICH's launcher does not do reliably. That launcher stops a rank by a signal to
/// both processes, and learns of the end of the command only when this process ends.
fn watch(command: &mut Command, rank: usize, log: Option<&Path>) -> Result<ExitCode> {
    let failed = |error| Error::io("cannot start the command of a rank", error);
    // The command receives the same signals and decides what to do.
    ctrlc::set_handler(|| ())
        .map_err(|error| Error::mistake(format!("cannot install a handler for Ctrl-C: {error}")))?;
    let status = command.spawn().and_then(|mut child| child.wait()).map_err(failed)?;
    if status.success() {
        return Ok(ExitCode::SUCCESS);
    }
    // The first process stops the other ranks after an error message.
    if let Some(line) = log.and_then(|path| first_error(path, rank)) {
        eprintln!("{line}");
    }
    launch::report(rank, status);
    std::thread::sleep(SETTLE);
    Ok(ExitCode::FAILURE)
}

#[cfg(unix)]
fn become_command(command: &mut Command) -> Result<ExitCode> {
    use std::os::unix::process::CommandExt;
    Err(Error::io("cannot start the command of a rank", command.exec()))
}

#[cfg(not(unix))]
fn become_command(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().map_err(|error| Error::io("cannot start the command of a rank", error))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn log_file(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("rank-{rank}.log"))
}

/// Removes the log of an earlier run, whose error would be reported for a rank that does not start.
fn remove_log(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::io(format!("cannot remove {}", path.display()), error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns the first error message of a rank in its log.
fn first_error(log: &Path, rank: usize) -> Option<String> {
    let text = String::from_utf8_lossy(&std::fs::read(log).ok()?).into_owned();
    text.lines().find(|line| line.starts_with(&format!("panoply: rank {rank}: "))).map(str::to_string)
}

fn own_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|error| Error::io("cannot find this program", error))
}

fn log_error(path: &Path, error: std::io::Error) -> Error {
    Error::io(format!("cannot write {}", path.display()), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_names_the_first_error_in_the_logs() {
        let folder = std::env::temp_dir().join(format!("panoply-logs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let note = || note_of_logs(&folder, 4).replace(&folder.display().to_string(), "logs");
        std::fs::write(folder.join("rank-1.log"), "panoply: rank 2: of another rank\n").unwrap();
        assert_eq!(note(), "the output of the ranks from 1 is in logs");
        std::fs::write(folder.join("rank-3.log"), "device: cpu\npanoply: rank 3: out of memory\n").unwrap();
        assert_eq!(
            note(),
            "logs/rank-3.log: panoply: rank 3: out of memory".replace('/', std::path::MAIN_SEPARATOR_STR)
        );
        // The next run replaces the logs.
        for rank in 1..4 {
            remove_log(&log_file(&folder, rank)).unwrap();
        }
        assert_eq!(note(), "the output of the ranks from 1 is in logs");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
