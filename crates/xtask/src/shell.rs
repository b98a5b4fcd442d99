//! Runs other programs. A child has no stdin unless a user is at the terminal, so it cannot wait for input.

use crate::repo::Repo;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::{Command, Stdio};

/// Returns a command in the repository's root, without the environment variables that `cargo run` added: with a leaked
/// `CARGO_MANIFEST_DIR`, build scripts would run again on each change between `cargo xtask` and plain cargo.
pub fn command(repo: &Repo, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(&repo.root).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_NAME"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name.as_ref());
        }
    }
    command
}

/// Returns the cargo that runs this program.
pub fn cargo(repo: &Repo, arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = command(repo, program);
    command.args(arguments);
    if std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    command
}

/// Returns true if a user can be asked for a password.
pub fn interactive() -> bool {
    std::io::stdin().is_terminal() && std::env::var_os("CI").is_none()
}

/// Returns true if an executable of this name is on the PATH.
pub fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .any(|folder| folder.join(program).is_file() || folder.join(format!("{program}.exe")).is_file())
}

/// Runs a program without showing its output, and returns its stdout; the error is the last line of output.
pub fn quiet(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    Err(last.map_or_else(|| format!("{program} failed without output"), str::to_string))
}

/// Runs a program; each line of output is passed to `watch`, and shown if that returns true. Returns true if the program
/// succeeded.
pub fn stream(command: &mut Command, mut watch: impl FnMut(&str) -> bool) -> Result<bool, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let named = |e: std::io::Error| format!("{program}: {e}");
    // One pipe for both streams keeps the order of the lines.
    let (reader, writer) = std::io::pipe().map_err(named)?;
    command.stdout(writer.try_clone().map_err(named)?).stderr(writer);
    let mut child = command.spawn().map_err(named)?;
    // The command would keep the pipe open, so that the reader would never see its end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (mut reader, mut shown) = (BufReader::new(reader), std::io::stdout());
    let mut line = Vec::new();
    // Bytes, not `lines()`: a test can print text that is not UTF-8.
    while reader.read_until(b'\n', &mut line).map_err(named)? > 0 {
        if watch(String::from_utf8_lossy(&line).trim_end()) {
            // A closed stdout (`| head`) must not stop the tests.
            let _ = shown.write_all(&line).and_then(|()| shown.flush());
        }
        line.clear();
    }
    Ok(child.wait().map_err(named)?.success())
}
