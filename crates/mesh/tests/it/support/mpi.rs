//! The MPI installations of this machine on which tests run ranks. Each is a launcher with a library and a binary interface.

// Not every test program uses all functions.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A launcher and the library that its ranks open.
pub struct Installation {
    pub name: &'static str,
    /// Name or path of the launcher.
    pub launcher: String,
    /// Path of the library; `None` is the one that the system's loader finds.
    library: Option<PathBuf>,
    /// True for Open MPI, false for MPICH.
    pub is_openmpi: bool,
    /// Name of the binary interface.
    pub interface: &'static str,
}

/// Name, folder below `.tools` or nothing for Debian's, programs of which the first is the launcher, library and interface.
type Known = (&'static str, Option<&'static str>, &'static [&'static str], &'static str, &'static str);

const KNOWN: [Known; 5] = [
    ("Open MPI 4", None, &["mpirun.openmpi", "mpirun"], "libmpi.so.40", "Open MPI"),
    ("Open MPI 5", Some("openmpi-5"), &["mpirun"], "libmpi.so.40", "Open MPI"),
    ("MPICH 4", None, &["mpiexec.mpich", "mpiexec"], "libmpich.so.12", "MPICH"),
    ("MPICH 5", Some("mpich-5"), &["mpiexec"], "libmpi.so.12", "MPICH"),
    ("MPICH 5 with the interface of MPI 5.0", Some("mpich-5"), &["mpiexec"], "libmpi_abi.so.1", "MPI 5.0"),
];

/// Returns the installations, and prints which are missing for a test.
pub fn installations(what: &str) -> Vec<Installation> {
    let mut found = Vec::new();
    for (name, folder, programs, file, interface) in KNOWN {
        let is_openmpi = interface == "Open MPI";
        let folder = folder.map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools").join(folder));
        let library = folder.as_ref().map(|folder| folder.join("lib").join(file));
        let program = |name: &&str| match &folder {
            Some(folder) => folder.join("bin").join(name).to_string_lossy().into_owned(),
            None => name.to_string(),
        };
        let launcher = programs.iter().map(program).find(|program| is_launcher(program, is_openmpi));
        match launcher.filter(|_| library.as_ref().is_none_or(|library| library.is_file())) {
            Some(launcher) => found.push(Installation { name, launcher, library, is_openmpi, interface }),
            None => println!("SKIPPED: {what} under {name}: not installed; run `cargo xtask install`"),
        }
    }
    found
}

/// Returns true if the program is a launcher of Open MPI, or of MPICH.
fn is_launcher(program: &str, is_openmpi: bool) -> bool {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let is = if is_openmpi { &["Open MPI", "OpenRTE"][..] } else { &["HYDRA"] };
    is.iter().any(|name| text.contains(name))
}

impl Installation {
    /// Makes a command that starts ranks itself choose this installation.
    pub fn choose(&self, command: &mut Command) {
        command.env("PANOPLY_LAUNCHER", &self.launcher);
        self.choose_library(command);
    }

    /// Returns the launcher of a number of ranks, to which program and arguments are added.
    pub fn command(&self, ranks: usize) -> Command {
        let mut command = Command::new(&self.launcher);
        command.args(["-n", &ranks.to_string()]).stdin(Stdio::null());
        if self.is_openmpi {
            command.args(["--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]);
        }
        self.choose_library(&mut command);
        command
    }

    fn choose_library(&self, command: &mut Command) {
        if let Some(library) = &self.library {
            command.env("PANOPLY_MPI_LIBRARY", library);
        }
    }
}
