//! `--tui` in a terminal emulated by tmux.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::temp_dir::TempDir;

/// A terminal of 110 × 32 characters that runs a program.
struct Screen {
    socket: String,
}

impl Screen {
    fn tmux(&self, arguments: &[&str]) -> String {
        let output =
            Command::new("tmux").args(["-L", &self.socket, "-f", "/dev/null"]).args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn shows(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", "0"])
    }

    /// Waits until the screen shows all of these, and returns its content.
    #[track_caller]
    fn wait_for(&self, parts: &[&str]) -> String {
        let start = Instant::now();
        loop {
            let shown = self.shows();
            if parts.iter().all(|part| shown.contains(part)) {
                return shown;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{parts:?} did not all appear on\n{shown}");
            std::thread::yield_now();
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// Keys are handled during a step that takes seconds: all examples through tens of millions of parameters.
#[test]
fn keys_are_read_during_a_step() {
    let there = Command::new("tmux").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: keys during a step: tmux is not installed");
        return;
    }
    let dir = TempDir::new("keys");
    let screen = Screen { socket: format!("panoply-keys-{}", std::process::id()) };
    let (folder, program) = (dir.0.display().to_string(), env!("CARGO_BIN_EXE_panoply"));
    let train = format!(
        "'{program}' train digits --tui --device cpu --batch-size 2000 --hidden-sizes 4096,4096,4096; echo ended with $?; exec cat"
    );
    screen.tmux(&["new-session", "-d", "-x", "110", "-y", "32", "-c", &folder, &train]);
    screen.wait_for(&["compiling the first step", "q or Ctrl-C finishes this step and saves"]);
    screen.tmux(&["send-keys", "-t", "0", "C-c"]);
    screen.wait_for(&["compiling the first step", "finishing this step; Ctrl-C again stops immediately"]);
    screen.tmux(&["send-keys", "-t", "0", "C-c"]);
    let after = screen.wait_for(&["ended with 130"]);
    assert!(!after.contains("compiling the first step"), "the previous screen is restored\n{after}");
}

#[test]
fn dashboard_shows_a_run_and_restores_the_terminal() {
    let there = Command::new("tmux").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: the dashboard in a terminal: tmux is not installed");
        return;
    }
    let dir = TempDir::new("dashboard");
    let screen = Screen { socket: format!("panoply-{}", std::process::id()) };
    let (folder, program) = (dir.0.display().to_string(), env!("CARGO_BIN_EXE_panoply"));
    let train =
        format!("'{program}' train digits --tui --device cpu --epochs 100000 --out run; echo ended with $?; exec cat");
    screen.tmux(&["new-session", "-d", "-x", "110", "-y", "32", "-c", &folder, &train]);
    let shown = screen.wait_for(&[
        "panoply train digits · mlp with 17226 parameters · batch 64",
        "device: cpu",
        " of 100000, step ",
        " loss ",
        " accuracy ",
        "examples/s",
        "MiB to the device",
        "best ",
        "q or Ctrl-C finishes this step and saves",
    ]);
    assert!(shown.chars().any(|c| ('\u{2801}'..='\u{28ff}').contains(&c)), "no curve in\n{shown}");
    screen.tmux(&["send-keys", "-t", "0", "q"]);
    let after = screen.wait_for(&["validation accuracy", "saved run: the model", "resume:", "ended with 0"]);
    assert!(!after.contains("examples/s"), "the previous screen is restored\n{after}");
    assert!(dir.0.join("run/model.safetensors").exists());

    // Ctrl-C stops the run too; a dashboard needs a terminal.
    let train = format!("'{program}' train --resume run --tui --device cpu; echo ended with $?; exec cat");
    screen.tmux(&["new-window", "-t", "0:1", "-c", &folder, &train]);
    screen.tmux(&["select-window", "-t", "0:1"]);
    screen.wait_for(&["examples/s"]);
    screen.tmux(&["send-keys", "-t", "0:1", "C-c"]);
    screen.wait_for(&["ended with 0", "resume:"]);

    // SIGTERM as well.
    let train = format!(
        "sh -c 'echo $$ > pid; exec \"{program}\" train --resume run --tui --device cpu'; echo ended with $?; exec cat"
    );
    screen.tmux(&["new-window", "-t", "0:2", "-c", &folder, &train]);
    screen.tmux(&["select-window", "-t", "0:2"]);
    screen.wait_for(&["examples/s"]);
    let pid = std::fs::read_to_string(dir.0.join("pid")).unwrap();
    assert!(Command::new("kill").args(["-TERM", pid.trim()]).status().unwrap().success());
    let after = screen.wait_for(&["ended with 0", "resume:"]);
    assert!(!after.contains("examples/s"), "the previous screen is restored\n{after}");
    assert!(dir.refused(&["train", "digits", "--tui"]).contains("--tui needs a terminal"));
    assert!(!dir.0.join("runs").exists(), "no run is started");
}

/// Waits until a condition holds.
#[track_caller]
fn wait_until(what: &str, so: impl Fn() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} did not happen");
        std::thread::yield_now();
    }
}

/// Closes the terminal: a run that receives SIGHUP is saved and ends; one that does not continues without the dashboard.
#[cfg(target_os = "linux")]
#[test]
fn closing_the_terminal_ends_the_dashboard() {
    let there = Command::new("tmux").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: a terminal that is closed: tmux is not installed");
        return;
    }
    let dir = TempDir::new("gone");
    let (folder, program) = (dir.0.display().to_string(), env!("CARGO_BIN_EXE_panoply"));
    let epochs = |run: &str| {
        std::fs::read_to_string(dir.0.join(run).join("history.jsonl")).map_or(0, |text| text.lines().count())
    };
    // The second run is in a separate session and receives no SIGHUP.
    for (run, session) in [("hung-up", ""), ("alone", "setsid ")] {
        let screen = Screen { socket: format!("panoply-{run}-{}", std::process::id()) };
        let train = format!(
            "{session}sh -c 'echo $$ > {run}.pid; exec \"{program}\" train digits --tui --device cpu --epochs 100000 --out {run}'; exec cat"
        );
        screen.tmux(&["new-session", "-d", "-x", "110", "-y", "32", "-c", &folder, &train]);
        screen.wait_for(&["examples/s", "best "]);
        let pid = std::fs::read_to_string(dir.0.join(format!("{run}.pid"))).unwrap();
        let pid = pid.trim();
        drop(screen);
        if !session.is_empty() {
            let before = epochs(run);
            wait_until("training without its terminal", || epochs(run) > before + 2);
            assert!(Command::new("kill").args(["-TERM", pid]).status().unwrap().success());
        }
        // A zombie has ended too.
        let ended = || match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => stat.contains(") Z "),
            Err(_) => true,
        };
        wait_until("the end of the run", ended);
        for file in ["model.safetensors", "checkpoint.safetensors"] {
            assert!(dir.0.join(run).join(file).exists(), "{run}/{file}");
        }
        let more = (epochs(run) + 1).to_string();
        dir.json(&["train", "--resume", run, "--epochs", &more]);
    }
}
