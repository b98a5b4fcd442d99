//! Running other programs. Every child has no stdin unless someone is at the keyboard, so nothing can wait for an answer.

use crate::place::Place;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::{Command, Stdio};

/// A command in the repository's root, without what `cargo run` added to our own environment: a leaked
/// `CARGO_MANIFEST_DIR` makes build scripts run again on each change between `cargo xtask` and plain cargo.
pub fn command(place: &Place, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(&place.root).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_NAME"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name.as_ref());
        }
    }
    command
}

/// The cargo that runs us.
pub fn cargo(place: &Place, arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = command(place, program);
    command.args(arguments);
    if std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    command
}

/// Someone can be asked for a password.
pub fn interactive() -> bool {
    std::io::stdin().is_terminal() && std::env::var_os("CI").is_none()
}

/// An executable of this name is on the PATH.
pub fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .any(|folder| folder.join(program).is_file() || folder.join(format!("{program}.exe")).is_file())
}

/// Runs to the end in silence; the error is the last line the program wrote.
pub fn quiet(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    let last = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
    Err(last.map_or_else(|| format!("{program} failed and said nothing"), str::to_string))
}

/// Runs to the end; each line of output, as it comes, is first given to `watch` and shown if that answers true.
/// Answers whether the program succeeded.
pub fn stream(command: &mut Command, mut watch: impl FnMut(&str) -> bool) -> Result<bool, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let named = |e: std::io::Error| format!("{program}: {e}");
    // One pipe for both streams keeps the order in which the lines were written.
    let (reader, writer) = std::io::pipe().map_err(named)?;
    command.stdout(writer.try_clone().map_err(named)?).stderr(writer);
    let mut child = command.spawn().map_err(named)?;
    // The command would keep the pipe open, and the reader would never see its end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (mut reader, mut shown) = (BufReader::new(reader), std::io::stdout());
    let mut line = Vec::new();
    // Bytes, not `lines()`: a test may print something that is not UTF-8.
    while reader.read_until(b'\n', &mut line).map_err(named)? > 0 {
        if watch(String::from_utf8_lossy(&line).trim_end()) {
            // A closed pipe on our side (`| head`) must not stop the tests.
            let _ = shown.write_all(&line).and_then(|()| shown.flush());
        }
        line.clear();
    }
    Ok(child.wait().map_err(named)?.success())
}
