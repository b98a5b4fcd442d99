//! `cargo xtask peers mesh`: tasks, block matrices and data-parallel training beside Dask, Ray and PyTorch, in the same session.
//!
//! PyTorch is installed as for `cargo xtask peers`; Dask and Ray are installed beside it. `peers_mesh.py` lets the programs take turns and
//! writes the table.

use crate::peers::install_pytorch;
use crate::repo::Repo;
use crate::shell::{cargo, command, quiet, stream};
use crate::{install, peers};

const DASK: &[&str] = &["dask[array]==2026.8.0"];
const RAY: &[&str] = &["ray==2.60.0"];

/// Writes `docs/measured/mesh-cpu.md`.
pub fn run(repo: &Repo) -> bool {
    match measure(repo) {
        Ok(green) => green,
        Err(why) => {
            println!("peers mesh: {why}");
            false
        }
    }
}

fn measure(repo: &Repo) -> Result<bool, String> {
    let venv = peers::venv(repo);
    let python = venv.join("bin").join("python");
    install_pytorch(repo)?;
    for (module, packages) in [("dask.array", DASK), ("ray", RAY)] {
        if quiet(command(repo, &python).args(["-c", &format!("import {module}")])).is_err() {
            println!("installing {} …", packages[0]);
            if let Err(why) = install::pip(repo, &venv, packages) {
                println!("without {module}: {why}");
            }
        }
    }
    if !stream(&mut cargo(repo, &["build", "--release", "--package", "panoply-cli"]), |_| true)? {
        return Ok(false);
    }
    let mut script = command(repo, &python);
    script.arg(repo.root.join("crates/xtask/src/peers_mesh.py"));
    script.arg(repo.target().join("release").join("panoply"));
    script.arg(repo.root.join("docs/measured/mesh-cpu.md"));
    stream(&mut script, |_| true)
}
