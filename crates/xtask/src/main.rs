//! Development tasks of the project: `cargo xtask <task>`.
//!
//! It uses only std: it is the first program that a new machine compiles, and a checker of dependencies should have none.
#![forbid(unsafe_code)]

mod card;
mod devices;
mod features;
mod icd;
mod install;
mod peers;
mod peers_bounds;
mod peers_llm;
mod peers_mesh;
mod peers_onnx;
mod peers_verify;
mod programs;
mod repo;
mod shell;
mod size;
mod tally;
mod targets;
mod test;
mod tidy;
mod tier;
mod vnn;
mod web;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <task>

  setup, install       install what the tests need (apt, .tools/); safe to repeat
  test                 say what is missing here and install it, then run all checks: format, lint, tidy, tests, docs, features
       --quick         installs nothing, builds no docs, leaves out slow tests
       --full          also exhaustive sweeps and every target
  peers                benchmark against PyTorch, Burn and candle; writes docs/measured/peers-cpu.md and operations-cpu.md
  peers tables         train on tables with the defaults, beside scikit-learn; writes docs/measured/tables.md
  peers llm            benchmark language models against llama.cpp and candle; writes docs/measured/llm-cpu.md
  peers mesh           benchmark tasks, block matrices and data-parallel training against Dask, Ray and PyTorch; writes
                       docs/measured/mesh-cpu.md
  peers bounds         compare linear bounds of networks with bound-propagation; writes docs/measured/verify-bounds.md
  peers verify --data DIR
                       compare `panoply verify` with Marabou on ten ACAS Xu instances of a folder, and proofs for f32 with proofs for
                       real numbers on all of them; writes docs/measured/verify-marabou.md
  peers onnx           benchmark the latency of ONNX networks against onnxruntime; writes docs/measured/onnx-latency.md
  devices              update the device tables of README and docs/ops.md from the last test run and docs/measured/hardware/
  card                 prepare target/card/ for a machine with a GPU but no Rust: binary, script, comparison with PyTorch
       --binary FILE   use this binary instead of a release build
  web                  build and serve the page that runs the built-in kernels in a browser
       --check         open it in Chromium and print its result
  tidy                 check the rules of this repository that the compiler does not check
  vnn --data DIR       run `panoply verify` on a folder of VNN-LIB instances; --seconds N limits each
  size                 print lines of code per crate and the size of the release binary
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let repo = match repo::Repo::find() {
        Ok(repo) => repo,
        Err(message) => return fail(&message),
    };
    let green = match words.as_slice() {
        ["setup" | "install"] => install::run(&repo),
        ["test"] => test::run(&repo, tier::Tier::Default),
        ["test", "--quick"] => test::run(&repo, tier::Tier::Quick),
        ["test", "--full"] => test::run(&repo, tier::Tier::Full),
        ["devices"] => devices::run(&repo),
        ["card"] => card::run(&repo, None),
        ["card", "--binary", file] => card::run(&repo, Some(file)),
        ["peers"] => peers::run(&repo),
        ["peers", "tables"] => peers::run_tables(&repo),
        ["peers", "llm"] => peers_llm::run(&repo),
        ["peers", "mesh"] => peers_mesh::run(&repo),
        ["peers", "bounds"] => peers_bounds::run(&repo),
        ["peers", "verify", "--data", data] => peers_verify::run(&repo, data),
        ["peers", "onnx"] => peers_onnx::run(&repo),
        ["web"] => web::run(&repo),
        ["web", "--check"] => web::run_check(&repo),
        ["tidy"] => tidy::run(&repo),
        ["vnn", "--data", data] => vnn::run(&repo, data, None),
        ["vnn", "--data", data, "--seconds", seconds] => vnn::run(&repo, data, Some(seconds)),
        ["size"] => size::run(&repo),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            true
        }
        [] => return fail("missing task"),
        _ => return fail(&format!("unknown task `{}`", words.join(" "))),
    };
    if green { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fail(message: &str) -> ExitCode {
    eprint!("xtask: {message}\n\n{USAGE}");
    ExitCode::from(2)
}
