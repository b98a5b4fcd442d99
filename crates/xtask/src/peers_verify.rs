//! `cargo xtask peers verify --data DIR`: proofs of ACAS Xu properties beside Marabou, and for f32 beside those for real numbers.

use std::path::Path;

use crate::install;
use crate::repo::Repo;
use crate::shell::{cargo, command, on_path, quiet, stream};

/// Marabou, and what it imports.
const PACKAGES: &[&str] = &["maraboupy==2.0.0", "numpy==2.4.6", "onnx==1.20.1", "onnxruntime==1.32.0"];

/// The only Python for which both maraboupy 2.0.0 (3.8 to 3.11, x86-64) and numpy 2.4.6 (from 3.11) are published.
const PYTHON: &str = "python3.11";

/// Writes `docs/measured/verify-marabou.md` from a folder of networks, properties, `instances.csv` and `expected.csv`.
pub fn run(repo: &Repo, data: &str) -> bool {
    match measure(repo, Path::new(data)) {
        Ok(green) => green,
        Err(why) => {
            println!("peers verify: {why}");
            false
        }
    }
}

fn measure(repo: &Repo, data: &Path) -> Result<bool, String> {
    let data = data.canonicalize().map_err(|error| format!("{}: {error}", data.display()))?;
    let venv = repo.tools().join("peers-verify");
    let python = venv.join("bin").join("python");
    if quiet(command(repo, &python).args(["-W", "ignore", "-c", "import maraboupy.Marabou"])).is_err() {
        if !on_path(PYTHON) {
            return Err(format!("{} is published for {PYTHON}, which is not on the PATH; install it", PACKAGES[0]));
        }
        println!("installing {} …", PACKAGES[0]);
        quiet(&mut install::limited(repo, PYTHON, 5, &["-m", "venv", "--clear", &venv.to_string_lossy()]))?;
        install::pip(repo, &venv, PACKAGES)?;
    }
    if !stream(&mut cargo(repo, &["build", "--release", "--package", "panoply-cli"]), |_| true)? {
        return Ok(false);
    }
    let mut script = command(repo, &python);
    script.arg(repo.root.join("crates/xtask/src/peers_verify.py"));
    script.arg(repo.target().join("release").join("panoply"));
    script.arg(data).arg(repo.root.join("docs/measured/verify-marabou.md"));
    stream(&mut script, |_| true)
}
