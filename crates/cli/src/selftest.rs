//! `panoply selftest`: tests that a device computes correct results.

mod exhaustive;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use panoply::internal::conformance::{Outcome, functions, rows};
use panoply::kernels::{ALL, Size};
use panoply::nn::conformance::first_steps;
use panoply::runtime::CaseResult;
use panoply::{Device, Error, Result};
use serde_json::{Value, json};

use self::exhaustive::ExhaustiveArgs;
use crate::driver_probe;
use crate::output::{self, DeviceArgs};

/// Check that a device computes correct results; one line per check
#[derive(Args)]
pub struct SelftestCommand {
    /// Test every device of this machine, including software implementations
    #[arg(long, visible_alias = "all", conflicts_with = "device")]
    all_devices: bool,
    #[command(flatten)]
    suites: SuiteArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print one JSON document on stdout
    #[arg(long)]
    json: bool,
}

/// Options of the checks.
#[derive(Args)]
pub struct SuiteArgs {
    /// Run only these suites, separated by commas [default: all suites]
    #[arg(long, value_enum, value_delimiter = ',')]
    suite: Vec<Suite>,
    /// Seed of the inputs of the built-in kernels
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    exhaustive: ExhaustiveArgs,
}

/// A group of checks.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// Requirements on the driver: memory, order, launches, errors
    Contract,
    /// The built-in kernels, against plain Rust
    Kernels,
    /// Errors of transcendental functions
    Functions,
    /// Every tensor operation and its gradient, against an f64 interpreter
    Ops,
    /// The first training steps on the digits, against the CPU
    Training,
}

/// Result of a check.
pub struct Check {
    pub part: Suite,
    pub name: String,
    /// `None` if the check was skipped.
    pub passed: Option<bool>,
    pub result: String,
    /// The largest error and its tolerance, if applicable.
    pub worst: Option<(f64, f64)>,
}

impl Suite {
    /// Returns the spelling on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Suite::Contract => "contract",
            Suite::Kernels => "kernels",
            Suite::Functions => "functions",
            Suite::Ops => "ops",
            Suite::Training => "training",
        }
    }
}

/// Runs every requested check on every requested device.
pub fn run(arguments: &SelftestCommand) -> Result<ExitCode> {
    arguments.suites.check()?;
    if arguments.all_devices {
        driver_probe::for_all()?;
    }
    let choice = arguments.device.select()?;
    let devices = if arguments.all_devices { Device::list()? } else { vec![choice.device().clone()] };
    let (mut documents, mut passed, mut left_out, mut failed) = (Vec::new(), 0, 0, 0);
    for device in &devices {
        test(device, &arguments.suites, &mut |check| {
            match check.passed {
                Some(true) => passed += 1,
                Some(false) => failed += 1,
                None => left_out += 1,
            }
            if arguments.json {
                let mut document = check.json();
                document["device"] = device.device_string().into();
                documents.push(document);
            } else {
                check.print(device);
            }
        });
    }
    if arguments.json {
        let devices: Vec<Value> = devices.iter().map(|device| json!(device.device_string())).collect();
        output::print_json(&json!({
            "schema": 1, "devices": devices, "checks": documents, "passed": passed, "skipped": left_out, "failed": failed,
        }));
    } else {
        println!("{passed} passed, {left_out} skipped, {failed} failed");
    }
    Ok(if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl SuiteArgs {
    /// Fails if `--exhaustive` would check nothing.
    pub fn check(&self) -> Result<()> {
        if self.exhaustive.exhaustive && !self.suite.is_empty() && !self.suite.contains(&Suite::Functions) {
            let message = "--exhaustive checks the suite `functions`, which `--suite` leaves out";
            return Err(Error::mistake(message).note("add `--suite functions`"));
        }
        self.exhaustive.check()
    }
}

/// Runs the checks on a device.
pub fn test(device: &Device, arguments: &SuiteArgs, see: &mut dyn FnMut(Check)) {
    let wanted = |part: Suite| arguments.suite.is_empty() || arguments.suite.contains(&part);
    if wanted(Suite::Contract) {
        device.conformance(|outcome| see(Check::contract(outcome.name, outcome.verdict)));
    }
    if wanted(Suite::Kernels) {
        // The checked device interprets every work-item; larger sizes would take minutes.
        let sizes: &[Size] = if device.info().variant.is_some() { &[Size::Tiny] } else { &[Size::Tiny, Size::Small] };
        for (builtin, size) in ALL.iter().flat_map(|builtin| sizes.iter().map(move |size| (builtin, *size))) {
            let (passed, result) = match builtin.run(device, size, arguments.seed, Duration::ZERO) {
                Ok(outcome) => (Some(outcome.verdict.passed()), outcome.verdict.to_string()),
                Err(error) => refused(&error),
            };
            let name = format!("{}, {}", builtin.name, format!("{size:?}").to_lowercase());
            see(Check { part: Suite::Kernels, name, passed, result, worst: None });
        }
    }
    if wanted(Suite::Functions) && arguments.exhaustive.exhaustive {
        arguments.exhaustive.run(device, &mut |outcome| see(Check::computed(Suite::Functions, outcome)));
    } else if wanted(Suite::Functions) {
        functions(device).for_each(|outcome| see(Check::computed(Suite::Functions, outcome)));
    }
    if wanted(Suite::Ops) {
        for row in rows() {
            see(Check::computed(Suite::Ops, row.value(device)));
            row.gradient(device).into_iter().for_each(|outcome| see(Check::computed(Suite::Ops, outcome)));
        }
    }
    if wanted(Suite::Training) {
        match first_steps(device) {
            Ok(outcomes) => outcomes.into_iter().for_each(|outcome| see(Check::computed(Suite::Training, outcome))),
            Err(error) => {
                let (passed, result) = refused(&error);
                let name = "steps on the digits".to_string();
                see(Check { part: Suite::Training, name, passed, result, worst: None });
            }
        }
    }
}

/// Converts an error to a result: skipped if the device lacks a capability, otherwise failed.
fn refused(error: &Error) -> (Option<bool>, String) {
    if error.is_unsupported() { (None, format!("skipped: {error}")) } else { (Some(false), error.to_string()) }
}

impl Check {
    fn contract(name: &str, verdict: CaseResult) -> Check {
        let (passed, result) = match verdict {
            CaseResult::Passed => (Some(true), String::new()),
            CaseResult::Skipped(why) => (None, format!("skipped: {why}")),
            CaseResult::Failed(error) => (Some(false), error.to_string()),
        };
        Check { part: Suite::Contract, name: name.to_string(), passed, result, worst: None }
    }

    fn computed(part: Suite, outcome: Outcome) -> Check {
        let worst = outcome.worst.as_ref().ok().map(|worst| (worst.error, outcome.limit));
        let (passed, result) = match &outcome.worst {
            Ok(_) => (Some(outcome.passed()), outcome.to_string()),
            Err(error) => refused(error),
        };
        Check { part, passed, result, name: outcome.name, worst }
    }

    fn print(&self, device: &Device) {
        let mark = match self.passed {
            Some(true) => '✓',
            Some(false) => '✗',
            None => '-',
        };
        let line = format!("{mark} {device:<12} {:<9} {:<50} {}", self.part.name(), self.name, self.result);
        println!("{}", line.trim_end());
    }

    /// Returns the check for JSON.
    pub fn json(&self) -> Value {
        json!({
            "suite": self.part.name(), "check": self.name, "passed": self.passed,
            "result": self.result, "max_error": self.worst.map(|(error, _)| error), "tolerance": self.worst.map(|(_, limit)| limit),
        })
    }
}
