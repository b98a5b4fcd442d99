//! The row `MPI` of `panoply status`: the launcher that `panoply mesh run` starts, and the library that its ranks open.

use panoply::Result;
use panoply::mesh::MpiLauncher;
use panoply::runtime::ranks::{self, MpiLibrary};
use serde_json::{Value, json};

/// The launcher, and the library that goes with it.
pub struct MpiRow {
    launcher: Result<MpiLauncher>,
    /// `None` without a launcher, since that decides which library is opened.
    library: Option<Result<MpiLibrary>>,
}

impl MpiRow {
    /// Asks launcher and library for their versions; MPI is not initialized. A build without MPI asks neither.
    pub fn read() -> MpiRow {
        let launcher = ranks::check_support().and_then(|()| MpiLauncher::find());
        let library =
            launcher.as_ref().ok().map(|launcher| ranks::library(launcher.kind, launcher.library().as_deref()));
        MpiRow { launcher, library }
    }

    /// Prints the row.
    pub fn print(&self) {
        match (&self.launcher, &self.library) {
            (Err(error), _) | (Ok(_), Some(Err(error))) => println!("✗ MPI: {error}"),
            (Ok(_), Some(Ok(library))) => {
                println!("✓ MPI: {}, with the interface of {}", library.version, library.interface)
            }
            (Ok(_), None) => {}
        }
        if let Some(Ok(library)) = &self.library {
            println!("    library {}", library.path.display());
        }
        if let Ok(launcher) = &self.launcher {
            println!("    launcher {} ({})", launcher.program.display(), launcher.version);
        }
    }

    /// Returns the row as JSON.
    pub fn json(&self) -> Value {
        let launcher = self.launcher.as_ref().ok();
        let library = self.library.as_ref().and_then(|library| library.as_ref().ok());
        let error = self.launcher.as_ref().err().or(self.library.as_ref().and_then(|library| library.as_ref().err()));
        json!({
            "available": library.is_some(),
            "reason": error.map(ToString::to_string),
            "launcher": launcher.map(|launcher| launcher.program.display().to_string()),
            "launcher_version": launcher.map(|launcher| &launcher.version),
            "library": library.map(|library| library.path.display().to_string()),
            "interface": library.map(|library| library.interface),
            "version": library.map(|library| &library.version),
        })
    }
}
