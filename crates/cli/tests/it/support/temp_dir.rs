//! A temporary folder for a test, and `panoply` in it.

// Not every test program uses all functions.
#![allow(dead_code)]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A temporary folder, removed when dropped.
pub struct TempDir(pub PathBuf);

impl TempDir {
    /// Creates an empty folder.
    pub fn new(name: &str) -> TempDir {
        let folder = std::env::temp_dir().join(format!("panoply-cli-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        TempDir(folder)
    }

    /// Returns a command of `panoply` in the folder, on the CPU.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
        command.args(arguments).args(["--device", "cpu"]).current_dir(&self.0).stdin(Stdio::null());
        command
    }

    /// Runs the command to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Returns the stdout document of a command that succeeds.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the stderr of a command that fails.
    #[track_caller]
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?} succeeded: {}", text(&output.stdout));
        text(&output.stderr)
    }

    /// Returns the number of entries of a folder in it, 0 if there is none.
    pub fn entries(&self, folder: &str) -> usize {
        std::fs::read_dir(self.0.join(folder)).map_or(0, Iterator::count)
    }

    /// Writes a file in the folder.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Returns a digest of the tensors in a model file.
    #[track_caller]
    pub fn digest(&self, file: &str) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_panoply"))
            .args(["inspect", file, "--json"])
            .current_dir(&self.0)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        document["digest"].as_str().unwrap().to_string()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the output of a program as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
