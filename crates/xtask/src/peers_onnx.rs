//! `cargo xtask peers onnx`: latency of ONNX networks beside onnxruntime, in the same session.

use crate::install::{self, PackageLists};
use crate::repo::Repo;
use crate::shell::{cargo, command, quiet, stream};

const PACKAGES: &[&str] = &["numpy", "onnx==1.20.1", "onnxruntime==1.32.0"];

/// Writes `docs/measured/onnx-latency.md`.
pub fn run(repo: &Repo) -> bool {
    match measure(repo) {
        Ok(green) => green,
        Err(why) => {
            println!("peers onnx: {why}");
            false
        }
    }
}

fn measure(repo: &Repo) -> Result<bool, String> {
    let venv = repo.tools().join("peers-onnx");
    let python = venv.join("bin").join("python");
    if quiet(command(repo, &python).args(["-c", "import onnx, onnxruntime"])).is_err() {
        println!("installing onnxruntime …");
        install::venv(repo, &venv, &mut PackageLists::Unknown)?;
        install::pip(repo, &venv, PACKAGES)?;
    }
    if !stream(&mut cargo(repo, &["build", "--release", "--package", "panoply-cli"]), |_| true)? {
        return Ok(false);
    }
    let mut script = command(repo, &python);
    script.arg(repo.root.join("crates/xtask/src/peers_onnx.py"));
    script.arg(repo.target().join("release").join("panoply"));
    script.arg(repo.tools().join("onnx-models"));
    script.arg(repo.root.join("docs/measured/onnx-latency.md"));
    stream(&mut script, |_| true)
}
