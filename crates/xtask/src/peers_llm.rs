//! `cargo xtask peers llm`: tokens per second of language models beside llama.cpp and candle, in the same session.
//!
//! llama.cpp is built natively from the source of the package `llama-cpp-python`, candle with a program in a package outside of the
//! workspace (some minutes each). `peers_llm.py` makes the models, lets the programs take turns, and writes the table.

use crate::install::{self, PackageLists};
use crate::repo::Repo;
use crate::shell::{cargo, command, quiet, stream};

const PACKAGES: &[&str] = &["numpy", "gguf"];
const LLAMA_CPP: &str = "llama-cpp-python==0.3.36";

/// Writes a section of `docs/measured/llm-cpu.md`.
pub fn run(repo: &Repo) -> bool {
    match measure(repo) {
        Ok(green) => green,
        Err(why) => {
            println!("peers llm: {why}");
            false
        }
    }
}

fn measure(repo: &Repo) -> Result<bool, String> {
    let venv = repo.tools().join("peers-llm");
    let python = venv.join("bin").join("python");
    if quiet(command(repo, &python).args(["-c", "import gguf, llama_cpp"])).is_err() {
        println!("building llama.cpp …");
        install::venv(repo, &venv, &mut PackageLists::Unknown)?;
        install::pip(repo, &venv, PACKAGES)?;
        let mut build = command(repo, &python);
        build.args(["-m", "pip", "install", "--quiet", "--no-binary", "llama-cpp-python", LLAMA_CPP]);
        quiet(build.env("CMAKE_ARGS", "-DGGML_NATIVE=ON"))?;
    }
    if !stream(&mut cargo(repo, &["build", "--release", "--package", "panoply-cli"]), |_| true)? {
        return Ok(false);
    }
    let candle = repo.target().join("peers");
    let manifest = "crates/xtask/peers/Cargo.toml";
    let mut build =
        cargo(repo, &["build", "--release", "--no-default-features", "--manifest-path", manifest, "--target-dir"]);
    // candle chooses its instructions when it is compiled.
    if !stream(build.arg(&candle).env("RUSTFLAGS", "-Ctarget-cpu=native"), |_| true)? {
        return Ok(false);
    }
    let mut script = command(repo, &python);
    script.arg(repo.root.join("crates/xtask/src/peers_llm.py"));
    script.arg(repo.target().join("release").join("panoply"));
    script.arg(repo.tools().join("models"));
    script.arg(repo.root.join("docs/measured/llm-cpu.md"));
    script.arg("--candle").arg(candle.join("release").join("candle_llm"));
    stream(&mut script, |_| true)
}
