//! `cargo xtask peers bounds`: linear bounds of networks beside the Python package `bound-propagation`, on the same ONNX files.

use crate::peers::install_pytorch;
use crate::repo::Repo;
use crate::shell::{cargo, command, quiet, stream};
use crate::{install, peers};

const PACKAGES: &[&str] = &["bound-propagation==0.4.7", "onnx==1.20.1"];

/// Writes `docs/measured/verify-bounds.md`.
pub fn run(repo: &Repo) -> bool {
    match measure(repo) {
        Ok(green) => green,
        Err(why) => {
            println!("peers bounds: {why}");
            false
        }
    }
}

fn measure(repo: &Repo) -> Result<bool, String> {
    let venv = peers::venv(repo);
    let python = venv.join("bin").join("python");
    install_pytorch(repo)?;
    if quiet(command(repo, &python).args(["-c", "import bound_propagation, onnx"])).is_err() {
        println!("installing {} …", PACKAGES.join(" and "));
        install::pip(repo, &venv, PACKAGES)?;
    }
    let example = ["build", "--release", "--package", "panoply", "--example", "network_bounds"];
    if !stream(&mut cargo(repo, &example), |_| true)? {
        return Ok(false);
    }
    let mut script = command(repo, &python);
    script.arg("-W").arg("ignore").arg(repo.root.join("crates/xtask/src/peers_bounds.py"));
    script.arg(repo.target().join("release/examples/network_bounds"));
    script.arg(repo.root.join("docs/measured/verify-bounds.md"));
    stream(&mut script, |_| true)
}
