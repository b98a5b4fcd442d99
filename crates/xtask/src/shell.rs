//! Running other programs. Every child has no stdin unless someone is at the keyboard, so nothing can wait for an answer.

use crate::place::Place;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;

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
    Err(format!("{program}: {}", last.unwrap_or("failed and said nothing")))
}

/// Runs to the end; each line of output, as it comes, is first given to `watch` and shown if that answers true.
/// Answers whether the program succeeded.
pub fn stream(command: &mut Command, watch: impl FnMut(&str) -> bool + Send) -> Result<bool, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{program}: {e}"))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let watch = Mutex::new(watch);
    std::thread::scope(|scope| {
        scope.spawn(|| pump(out, &watch, std::io::stdout()));
        scope.spawn(|| pump(err, &watch, std::io::stderr()));
    });
    let status = child.wait().map_err(|e| format!("{program}: {e}"))?;
    Ok(status.success())
}

fn pump(from: Option<impl Read>, watch: &Mutex<impl FnMut(&str) -> bool>, mut to: impl Write) {
    let Some(from) = from else { return };
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    // Bytes, not `lines()`: a test may print something that is not UTF-8.
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line);
        let mut watch = watch.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if watch(text.trim_end_matches(['\n', '\r'])) {
            // A closed pipe on our side (`| head`) must not stop the tests.
            let _ = to.write_all(&line).and_then(|()| to.flush());
        }
        line.clear();
    }
}
