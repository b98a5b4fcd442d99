//! `cargo xtask test`: all checks that a change must pass, as a table of stages.
//!
//! A failed stage does not stop the next one. The summary repeats every skip, lists the failed stages and counts the tests.

use crate::devices;
use crate::features;
use crate::icd;
use crate::install::{self, Missing};
use crate::programs::{self, Program};
use crate::repo::Repo;
use crate::shell::{cargo, command, on_path, quiet, stream};
use crate::tally::Tally;
use crate::targets::TARGETS;
use crate::tidy;
use crate::tier::Tier;
use crate::web;
use std::process::Command;
use std::time::{Duration, Instant};

/// A stage of the run.
struct Stage {
    name: &'static str,
    /// The lowest tier that includes it.
    from: Tier,
    run: fn(&mut Run) -> Outcome,
}

const STAGES: &[Stage] = &[
    Stage { name: "install", from: Tier::Quick, run: install_tools },
    Stage { name: "format", from: Tier::Quick, run: format },
    Stage { name: "lint", from: Tier::Quick, run: lint },
    Stage { name: "tidy", from: Tier::Quick, run: tidy },
    Stage { name: "tests", from: Tier::Quick, run: tests },
    Stage { name: "no OpenCL and no Vulkan", from: Tier::Default, run: no_opencl },
    Stage { name: "docs", from: Tier::Default, run: docs },
    Stage { name: "features", from: Tier::Default, run: features },
    Stage { name: "browser", from: Tier::Default, run: browser },
    Stage { name: "undefined behavior", from: Tier::Full, run: miri },
    Stage { name: "addresses", from: Tier::Full, run: address_sanitizer },
    Stage { name: "other targets", from: Tier::Default, run: other_targets },
];

/// Test modules of `panoply-host` that run in minutes under Miri; the vector machine (`panoply-cpu`) would take hours.
const MIRI_TESTS: &[&str] = &["pool::"];

/// Environment variable with which the runtime's tests expect a machine without OpenCL.
const NO_OPENCL: &str = "PANOPLY_TEST_NO_OPENCL";
/// Environment variable with which they expect a machine without Vulkan.
const NO_VULKAN: &str = "PANOPLY_TEST_NO_VULKAN";
/// Loader libraries of OpenCL and Vulkan.
const LOADERS: [&str; 2] = ["libOpenCL.so.1", "libvulkan.so.1"];

/// Test modules that `--quick` leaves out: they wait for compilers, train until a network has learned, or take long and concern code that
/// changes rarely.
const SLOW: [&str; 17] = [
    "crates/cli/tests/it/regression_and_text",
    "crates/cli/tests/it/mesh",
    "crates/cli/tests/it/report",
    "crates/cli/tests/it/sequences",
    "crates/cli/tests/it/train",
    "crates/mesh/tests/it/processes",
    "crates/nn/tests/it/digits",
    "crates/nn/tests/it/buffer_donation",
    "crates/nn/tests/it/convergence",
    "crates/panoply/tests/it/first_examples",
    "crates/panoply/tests/it/hip",
    "crates/panoply/tests/it/programs",
    "crates/tensor/tests/it/dynamic_dims",
    "crates/tensor/tests/it/buffer_donation",
    "crates/tensor/tests/it/linalg",
    "crates/tensor/tests/it/fourier",
    "crates/tensor/tests/it/strided_inputs",
];

/// Number of test programs that the summary lists, the longest first.
const LONGEST_SHOWN: usize = 16;

/// Result of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Skipped,
}

/// State of a run.
struct Run<'a> {
    repo: &'a Repo,
    tier: Tier,
    tally: Tally,
    /// Name and duration of each test program.
    durations: Vec<(String, Duration)>,
}

/// Runs the stages of `tier`; returns true if none failed.
pub fn run(repo: &Repo, tier: Tier) -> bool {
    let started = Instant::now();
    let mut run = Run { repo, tier, tally: Tally::default(), durations: Vec::new() };
    let mut results = Vec::new();
    for stage in STAGES.iter().filter(|stage| stage.from <= tier) {
        println!("\n── {} ──", stage.name);
        let stage_started = Instant::now();
        let outcome = (stage.run)(&mut run);
        results.push((stage.name, outcome, stage_started.elapsed()));
    }
    // A quick run leaves out devices.
    if tier > Tier::Quick
        && let Err(error) = devices::keep(repo, &run.tally.tested)
    {
        println!("cannot store the tested devices: {error}");
    }
    summary(&results, &run, started.elapsed());
    results.iter().all(|(_, outcome, _)| *outcome != Outcome::Failed)
}

fn summary(results: &[(&str, Outcome, Duration)], run: &Run<'_>, total: Duration) {
    let tally = &run.tally;
    println!("\n── summary ──");
    for (name, outcome, duration) in results {
        let word = match outcome {
            Outcome::Passed => "ok",
            Outcome::Failed => "FAILED",
            Outcome::Skipped => "skipped",
        };
        println!("{name:<18} {word:<8} {:>7.1} s", duration.as_secs_f64());
    }
    println!("{:<18} {:<8} {:>7.1} s", "all", "", total.as_secs_f64());
    let mut longest: Vec<_> = run.durations.iter().collect();
    longest.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
    let longest: Vec<String> =
        longest.iter().take(LONGEST_SHOWN).map(|(name, took)| format!("{name} {:.0} s", took.as_secs_f64())).collect();
    println!("longest: {}", longest.join(", "));
    for line in tally.skipped.iter().chain(&tally.failures) {
        println!("{line}");
    }
    let failed: Vec<&str> =
        results.iter().filter(|(_, outcome, _)| *outcome == Outcome::Failed).map(|(name, ..)| *name).collect();
    if !failed.is_empty() {
        println!("FAILED: {}", failed.join(", "));
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
}

impl Run<'_> {
    /// Runs a command of a stage and shows all its output.
    fn step(&mut self, command: &mut Command) -> Outcome {
        finish(stream(command, |_| true))
    }

    /// Runs a command that runs tests, and counts them.
    fn tests(&mut self, command: &mut Command) -> Outcome {
        let failed_before = self.tally.failed;
        let tally = &mut self.tally;
        let outcome = finish(stream(command, |line| tally.watch(line)));
        // A test binary that does not compile or crashes has no line of results.
        if outcome == Outcome::Failed && self.tally.failed == failed_before {
            self.tally.failed += 1;
        }
        outcome
    }

    /// Runs test programs; shows their output and counts their tests as each ends.
    fn programs(&mut self, programs: Result<Vec<Program>, String>, prepare: impl Fn(&mut Command) + Sync) -> Outcome {
        let (mut outcome, tally, durations) = (Outcome::Passed, &mut self.tally, &mut self.durations);
        let on_result = |result: programs::ProgramResult| {
            println!("{} ({:.1} s)", result.name, result.duration.as_secs_f64());
            durations.push((result.name.clone(), result.duration));
            let failed_before = tally.failed;
            result.lines.iter().filter(|line| tally.watch(line)).for_each(|line| println!("{line}"));
            if finish(result.succeeded) == Outcome::Failed {
                outcome = Outcome::Failed;
                // A program that crashed, even after its tests, has no line of results that reports it.
                if tally.failed == failed_before {
                    let line = format!("FAILED: {} ended without success", result.name);
                    println!("{line}");
                    tally.failures.push(line);
                    tally.failed += 1;
                }
            }
        };
        match programs {
            Ok(programs) => programs::run(programs, prepare, on_result),
            Err(why) => {
                self.tally.failed += 1;
                return finish(Err(why));
            }
        }
        outcome
    }

    fn skip(&mut self, what: &str, why: &str) -> Outcome {
        let line = format!("SKIPPED: {what}: {why}");
        println!("{line}");
        self.tally.skipped.push(line);
        Outcome::Skipped
    }

    /// Returns true if cargo has this subcommand; otherwise the install stage has reported it as missing.
    fn has(&self, subcommand: &str) -> bool {
        quiet(&mut cargo(self.repo, &[subcommand, "--version"])).is_ok()
    }
}

fn finish(result: Result<bool, String>) -> Outcome {
    match result {
        Ok(true) => Outcome::Passed,
        Ok(false) => Outcome::Failed,
        Err(message) => {
            println!("{message}");
            Outcome::Failed
        }
    }
}

/// Returns failed if any failed, else passed if any passed, else skipped.
fn worst(outcomes: impl IntoIterator<Item = Outcome>) -> Outcome {
    outcomes.into_iter().fold(Outcome::Skipped, |worst, outcome| match (worst, outcome) {
        (Outcome::Failed, _) | (_, Outcome::Failed) => Outcome::Failed,
        (Outcome::Passed, _) | (_, Outcome::Passed) => Outcome::Passed,
        (Outcome::Skipped, Outcome::Skipped) => Outcome::Skipped,
    })
}

fn install_tools(run: &mut Run) -> Outcome {
    let missing = if run.tier == Tier::Quick { Missing::Name } else { Missing::Install };
    let skipped = install::ensure(run.repo, missing);
    skipped.iter().for_each(|line| println!("{line}"));
    run.tally.skipped.extend(skipped);
    Outcome::Passed
}

fn format(run: &mut Run) -> Outcome {
    match run.has("fmt") {
        true => run.step(&mut cargo(run.repo, &["fmt", "--all", "--check"])),
        false => Outcome::Skipped,
    }
}

fn lint(run: &mut Run) -> Outcome {
    let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    match run.has("clippy") {
        true => run.step(&mut cargo(run.repo, &arguments)),
        false => Outcome::Skipped,
    }
}

fn tidy(run: &mut Run) -> Outcome {
    if tidy::run(run.repo) { Outcome::Passed } else { Outcome::Failed }
}

fn tests(run: &mut Run) -> Outcome {
    let repo = run.repo;
    let python = install::onnxruntime(repo);
    let (vendors, swiftshader, size) = match run.tier {
        Tier::Quick => {
            // These take most of the time.
            let left_out = format!("Intel's OpenCL, SwiftShader, the documentation examples, {}", SLOW.join(", "));
            run.skip(&left_out, "`--quick` was given");
            (icd::one(repo), None, Some("PANOPLY_TEST_QUICK"))
        }
        Tier::Default => (icd::all(repo), icd::swiftshader(), None),
        Tier::Full => (icd::all(repo), icd::swiftshader(), Some("PANOPLY_TEST_FULL")),
    };
    let is_quick = run.tier == Tier::Quick;
    let mut programs = programs::built(repo, |source| !(is_quick && SLOW.contains(&source)));
    if let (Ok(programs), false) = (&mut programs, is_quick) {
        // The documentation examples take longest.
        programs.insert(0, programs::documentation(repo));
    }
    run.programs(programs, |command| {
        command.env("OCL_ICD_VENDORS", &vendors).envs(size.map(|name| (name, "1")));
        command.envs(swiftshader.as_ref().map(|manifest| ("VK_ADD_DRIVER_FILES", manifest)));
        command.envs(python.as_ref().map(|python| ("PANOPLY_TEST_PYTHON", python)));
    })
}

fn no_opencl(run: &mut Run) -> Outcome {
    // Files that are not libraries but have the names of the loaders precede the real ones.
    let hiding = run.repo.root.join("target").join("no-loaders");
    let hide = |name: &str| std::fs::write(hiding.join(name), "");
    let hidden = std::fs::create_dir_all(&hiding).and_then(|()| LOADERS.iter().try_for_each(|name| hide(name)));
    if let Err(error) = hidden {
        eprintln!("cannot hide the loaders of OpenCL and Vulkan: {error}");
        return Outcome::Failed;
    }
    let programs = programs::built(run.repo, |source| source.starts_with("crates/runtime/tests/"));
    run.programs(programs, |command| {
        command.env(NO_OPENCL, "1").env(NO_VULKAN, "1").env("LD_LIBRARY_PATH", &hiding);
    })
}

fn docs(run: &mut Run) -> Outcome {
    let mut docs = cargo(run.repo, &["doc", "--workspace", "--no-deps"]);
    run.step(docs.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Without its default features the facade must be a working CPU build without drivers; `--full` also builds each feature alone.
fn features(run: &mut Run) -> Outcome {
    let findings = [features::findings(run.repo), features::pulled_in(run.repo)].concat();
    findings.iter().for_each(|finding| println!("{finding}"));
    let subcommand = if run.has("clippy") { "clippy" } else { "check" };
    let deny: &[&str] = if subcommand == "clippy" { &["--", "-D", "warnings"] } else { &[] };
    let bare = [subcommand, "--package", "panoply", "--no-default-features"];
    let mut outcomes = vec![if findings.is_empty() { Outcome::Passed } else { Outcome::Failed }];
    outcomes.push(run.step(&mut cargo(run.repo, &[&bare[..], deny].concat())));
    if run.tier == Tier::Full {
        for feature in features::names(run.repo, "panoply") {
            println!("feature {feature} alone");
            let alone = [&bare[..], &["--features", &feature], deny].concat();
            outcomes.push(run.step(&mut cargo(run.repo, &alone)));
        }
    }
    worst(outcomes)
}

/// Runs the `unsafe` code of the CPU's thread pool under Miri, which detects undefined behavior.
fn miri(run: &mut Run) -> Outcome {
    if let Err(why) = nightly(run, "miri,rust-src") {
        return run.skip("the check for undefined behavior", &why);
    }
    let mut tests = on_nightly(run, "miri");
    tests.args(["cargo", "miri", "test", "--package", "panoply-host"]);
    tests.args(["--test", "it", "--"]).args(MIRI_TESTS);
    // The vector machine's registers hold addresses as integers.
    run.tests(tests.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance"))
}

/// Runs the loops of the vector machine and the routines under AddressSanitizer, with every instruction set of this machine. Miri, which
/// detects more, would take days.
fn address_sanitizer(run: &mut Run) -> Outcome {
    let host = quiet(command(run.repo, "rustc").arg("-vV"));
    let host = host.map(|text| text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or("").to_string());
    let host = match nightly(run, "rust-src").and(host) {
        Ok(host) => host,
        Err(why) => return run.skip("the check with AddressSanitizer", &why),
    };
    let mut tests = on_nightly(run, "addresses");
    // With an explicit target, build scripts and macros are not instrumented.
    tests.args([
        "cargo",
        "test",
        "--package",
        "panoply-cpu",
        "--package",
        "panoply-routines",
        "--tests",
        "--target",
        &host,
    ]);
    run.tests(tests.env("RUSTFLAGS", "-Zsanitizer=address"))
}

/// Installs a nightly toolchain, which only Miri and AddressSanitizer need.
fn nightly(run: &Run, components: &str) -> Result<(), String> {
    if !on_path("rustup") {
        return Err("rustup not found; it is needed to install a nightly toolchain".to_string());
    }
    let install = ["toolchain", "install", "nightly", "--profile", "minimal", "--component", components];
    quiet(command(run.repo, "rustup").args(install)).map(drop)
}

/// Returns a command of the nightly toolchain with a separate build folder.
fn on_nightly(run: &Run, folder: &str) -> Command {
    let mut command = command(run.repo, "rustup");
    command.args(["run", "nightly"]).env("CARGO_TARGET_DIR", run.repo.root.join("target").join(folder));
    command
}

fn browser(run: &mut Run) -> Outcome {
    if let Some(why) = web::obstacle(run.repo) {
        return run.skip("WebGPU", &why);
    }
    match web::check(run.repo) {
        Ok(verdict) => {
            println!("{}: {}", verdict.device, verdict.summary);
            if verdict.passed {
                run.tally.watch(&format!("TESTED webgpu | {}", verdict.device));
                return Outcome::Passed;
            }
            Outcome::Failed
        }
        Err(web::PageError::Unavailable(why)) => run.skip("WebGPU", &why),
        Err(web::PageError::Failed(why)) => {
            println!("{why}");
            Outcome::Failed
        }
    }
}

fn other_targets(run: &mut Run) -> Outcome {
    let subcommand = if run.has("clippy") { "clippy" } else { "check" };
    let (tier, mut outcomes) = (run.tier, Vec::new());
    for target in TARGETS.iter().filter(|target| target.from <= tier) {
        println!("target {}", target.triple);
        outcomes.push(match target.add(run.repo) {
            Ok(()) => run.step(&mut cargo(run.repo, &target.arguments(subcommand))),
            Err(why) => run.skip(&format!("compiling for {}", target.triple), &why),
        });
    }
    worst(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_tests_exist() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert!(SLOW.iter().all(|module| root.join(format!("{module}.rs")).is_file()));
    }

    #[test]
    fn worst_outcome_is_failed_if_any_failed() {
        use Outcome::{Failed, Passed, Skipped};
        assert_eq!(worst([Passed, Failed, Skipped]), Failed);
        assert_eq!(worst([Skipped, Passed]), Passed);
        assert_eq!(worst([Skipped, Skipped]), Skipped);
    }
}
