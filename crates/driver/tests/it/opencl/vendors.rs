//! Child processes with a selection of OpenCL drivers, and checks of oclgrind's log. Tests of other crates use it too.

#![allow(dead_code, reason = "each test program uses a part")]

use std::path::PathBuf;
use std::process::Command;

const JOB: &str = "PANOPLY_TEST_CHILD";

/// Settings with which oclgrind reports all errors that it can detect.
pub const OCLGRIND: &[(&str, &str)] = &[("OCLGRIND_DATA_RACES", "1"), ("OCLGRIND_UNINITIALIZED", "1")];

/// Asserts that oclgrind's log reports no error.
pub fn assert_clean(log: &str) {
    let complaints = ["Invalid read", "Invalid write", "data race", "Uninitialized", "Divergence"];
    assert!(!complaints.iter().any(|complaint| log.contains(complaint)), "{log}");
}

/// Returns the job of this process, if it is a child.
pub fn job() -> Option<String> {
    std::env::var(JOB).ok()
}

/// A child process to start; `None` if the machine lacks its prerequisites.
pub struct Child(Option<Vec<(String, String)>>);

/// Returns a child that sees only this vendor's driver.
pub fn vendor(name: &str) -> Child {
    if name != "pocl" && std::env::var("PANOPLY_TEST_QUICK").is_ok_and(|value| value == "1") {
        println!("SKIPPED: opencl on {name}: `--quick` was requested");
        return Child(None);
    }
    let tools = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.tools");
    let folder = tools.join(format!("icd-{name}"));
    let registered = std::fs::read_dir(&folder).is_ok_and(|mut files| files.next().is_some());
    if !registered {
        println!("SKIPPED: opencl on {name}: not installed here; `cargo xtask test` installs it");
        return Child(None);
    }
    let folder = folder.canonicalize().unwrap();
    Child::new(&[("OCL_ICD_VENDORS", folder.to_str().unwrap())])
}

impl Child {
    /// Creates a child with these environment variables.
    pub fn new(settings: &[(&str, &str)]) -> Child {
        Child(Some(settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()))
    }

    /// Returns true if the machine lacks its prerequisites.
    pub fn is_missing(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the vendor's first registration file.
    pub fn registration(&self) -> Option<PathBuf> {
        let (_, folder) = self.0.as_ref()?.first()?;
        std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).next()
    }

    /// Runs a job in the process and returns its output; panics if it fails.
    pub fn run(&self, job: &str, settings: &[(&str, &str)]) -> Option<String> {
        let mut command = Command::new(std::env::current_exe().unwrap());
        // `child` of the module that includes this one.
        let module =
            module_path!().split("::").skip(1).filter(|name| *name != "vendors").collect::<Vec<_>>().join("::");
        command.args([&format!("{module}::child"), "--exact", "--nocapture"]).env(JOB, job);
        command.envs(self.0.as_ref()?.iter().map(|(name, value)| (name, value)));
        let output = command.envs(settings.iter().copied()).output().unwrap();
        let log = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && log.contains("1 passed"), "the child failed ({}):\n{log}", output.status);
        Some(log)
    }
}
