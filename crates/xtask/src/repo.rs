//! The repository's root and the folders in it that tasks write to.

use std::path::{Path, PathBuf};

/// The repository this program works on.
#[derive(Debug, Clone)]
pub struct Repo {
    /// Absolute path of the workspace root.
    pub root: PathBuf,
}

impl Repo {
    /// Returns the workspace that contains the manifest from which cargo started this program, else the current folder.
    pub fn find() -> Result<Repo, String> {
        let start = match std::env::var_os("CARGO_MANIFEST_DIR") {
            Some(manifest) => PathBuf::from(manifest),
            None => std::env::current_dir().map_err(|e| format!("cannot read the current folder: {e}"))?,
        };
        let root = start.ancestors().find(|folder| is_workspace(folder));
        match root {
            Some(root) => Ok(Repo { root: root.to_path_buf() }),
            None => Err(format!("{}: not inside a cargo workspace", start.display())),
        }
    }

    /// Folder of installed tools, which git ignores.
    pub fn tools(&self) -> PathBuf {
        self.root.join(".tools")
    }

    /// The Python virtual environment inside [`Repo::tools`].
    pub fn venv(&self) -> PathBuf {
        self.tools().join("venv")
    }

    /// Cargo's output folder.
    pub fn target(&self) -> PathBuf {
        match std::env::var_os("CARGO_TARGET_DIR") {
            Some(folder) => self.root.join(folder),
            None => self.root.join("target"),
        }
    }
}

fn is_workspace(folder: &Path) -> bool {
    std::fs::read_to_string(folder.join("Cargo.toml")).is_ok_and(|text| text.lines().any(|line| line == "[workspace]"))
}
