//! The project's own chores, as `cargo xtask <chore>`.
//!
//! Plain std on purpose: this is the first thing a new machine compiles, and what checks the dependencies should have none.
#![forbid(unsafe_code)]

mod devices;
mod features;
mod icd;
mod install;
mod peers;
mod place;
mod programs;
mod shell;
mod size;
mod tally;
mod targets;
mod test;
mod tidy;
mod vnn;
mod web;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <chore>

  install              put what the tests need on this machine (apt, .tools/); safe to repeat
  test                 install, format, lint, tidy, test, docs, features: all that must hold
       --quick         the inner loop: installs nothing, builds no docs
       --full          also the exhaustive sweeps and every target
  peers                our benchmarks beside PyTorch's, Burn's and candle's in the same session, as docs/measured/peers-cpu.md and operations-cpu.md
  devices              README's table of devices and docs/ops.md's, from what the last test run ran on
  web                  the page that runs the shipped kernels in a browser, built and served here
       --check         opened in Chromium instead, and what it says
  tidy                 the rules of this repository that no compiler checks
  vnn --data DIR       `panoply verify` on the instances of a folder of VNN-LIB properties; --seconds N limits each
  size                 lines of code per crate, and the size of the release binary
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let place = match place::Place::find() {
        Ok(place) => place,
        Err(message) => return fail(&message),
    };
    let green = match words.as_slice() {
        ["install"] => install::run(&place),
        ["test"] => test::run(&place, test::Tier::Default),
        ["test", "--quick"] => test::run(&place, test::Tier::Quick),
        ["test", "--full"] => test::run(&place, test::Tier::Full),
        ["devices"] => devices::run(&place),
        ["peers"] => peers::run(&place),
        ["web"] => web::run(&place),
        ["web", "--check"] => web::run_check(&place),
        ["tidy"] => tidy::run(&place),
        ["vnn", "--data", data] => vnn::run(&place, data, None),
        ["vnn", "--data", data, "--seconds", seconds] => vnn::run(&place, data, Some(seconds)),
        ["size"] => size::run(&place),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            true
        }
        [] => return fail("no chore named"),
        _ => return fail(&format!("`{}`: no such chore", words.join(" "))),
    };
    if green { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fail(message: &str) -> ExitCode {
    eprint!("xtask: {message}\n\n{USAGE}");
    ExitCode::from(2)
}
