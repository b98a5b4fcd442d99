//! `cargo xtask card`: a folder for a machine with a GPU and Python with PyTorch, but without Rust.
//!
//! `target/card/` contains the release binary, the comparison with PyTorch and the script `run.sh`, which leaves its results in one folder.

use crate::repo::Repo;
use crate::shell::{cargo, stream};
use std::path::{Path, PathBuf};

/// Maximum size of the binary, which is copied over slow networks.
const MAX_BYTES: u64 = 60 << 20;

/// Prepares the folder, with this binary or a release build.
pub fn run(repo: &Repo, binary: Option<&str>) -> bool {
    match prepare(repo, binary) {
        Ok(folder) => {
            println!(
                "prepared {}: copy it to the machine and run `./run.sh`; it takes at most ten minutes",
                folder.display()
            );
            true
        }
        Err(why) => {
            println!("card: {why}");
            false
        }
    }
}

fn prepare(repo: &Repo, binary: Option<&str>) -> Result<PathBuf, String> {
    let binary = match binary {
        Some(path) => repo.root.join(path),
        None => {
            // The release profile strips it.
            if !stream(&mut cargo(repo, &["build", "--release", "--package", "panoply-cli"]), |_| true)? {
                return Err("the release build failed".to_string());
            }
            repo.target().join("release").join("panoply")
        }
    };
    let bytes = std::fs::metadata(&binary).map_err(|error| format!("{}: {error}", binary.display()))?.len();
    if bytes > MAX_BYTES {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        return Err(format!(
            "{} has {:.1} MiB, more than {:.0}; strip it",
            binary.display(),
            mib(bytes),
            mib(MAX_BYTES)
        ));
    }
    let folder = repo.target().join("card");
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| failed(&folder, error))?;
    }
    std::fs::create_dir_all(&folder).map_err(|error| failed(&folder, error))?;
    let sources = repo.root.join("crates/xtask/src");
    // `fs::copy` keeps the permission to execute.
    for (from, name) in
        [(binary, "panoply"), (sources.join("card.sh"), "run.sh"), (sources.join("peers.py"), "peers.py")]
    {
        std::fs::copy(&from, folder.join(name)).map_err(|error| failed(&from, error))?;
    }
    Ok(folder)
}
