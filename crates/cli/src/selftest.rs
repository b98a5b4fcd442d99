//! `panoply selftest`: does this device compute what it must?

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use panoply::internal::conformance::{Outcome, functions, rows};
use panoply::kernels::{ALL, Size};
use panoply::nn::conformance::first_steps;
use panoply::runtime::Verdict;
use panoply::{Device, Error, Result};
use serde_json::{Value, json};

use crate::contain;
use crate::output::{self, DeviceChoice};

/// Does this device compute what it must? One line for each check.
#[derive(Args)]
pub struct Arguments {
    /// Test every device here, software ones included.
    #[arg(long)]
    all: bool,
    /// Leave the other parts out.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Determines the inputs of the shipped kernels.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    device: DeviceChoice,
    /// One JSON document on stdout.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// What its driver must do: memory, order, launches, errors.
    Contract,
    /// The kernels that ship, against plain Rust.
    Kernels,
    /// How far transcendental functions are from the truth.
    Functions,
    /// Every tensor operation and its gradient, against an interpreter in f64.
    Ops,
    /// The first steps of a network on the digits, against the CPU.
    Training,
}

/// A check that was made.
struct Check {
    part: Part,
    name: String,
    /// None if it was left out.
    passed: Option<bool>,
    result: String,
    /// The largest error and its limit, where there are such.
    worst: Option<(f64, f64)>,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Contract => "contract",
            Part::Kernels => "kernels",
            Part::Functions => "functions",
            Part::Ops => "ops",
            Part::Training => "training",
        }
    }
}

/// Makes every check on every device that is asked for.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.all {
        contain::for_all()?;
    }
    let choice = arguments.device.select()?;
    let devices = if arguments.all { Device::all()? } else { vec![choice.device().clone()] };
    let (mut documents, mut passed, mut left_out, mut failed) = (Vec::new(), 0, 0, 0);
    for device in &devices {
        test(device, arguments, &mut |check| {
            match check.passed {
                Some(true) => passed += 1,
                Some(false) => failed += 1,
                None => left_out += 1,
            }
            if arguments.json {
                documents.push(check.json(device));
            } else {
                check.print(device);
            }
        });
    }
    if arguments.json {
        let devices: Vec<Value> = devices.iter().map(|device| json!(device.spelling())).collect();
        output::print_json(&json!({
            "schema": 1, "devices": devices, "checks": documents, "passed": passed, "left_out": left_out, "failed": failed,
        }));
    } else {
        println!("{passed} passed, {left_out} left out, {failed} failed");
    }
    Ok(if failed > 0 { ExitCode::FAILURE } else { choice.exit_code() })
}

fn test(device: &Device, arguments: &Arguments, see: &mut dyn FnMut(Check)) {
    let wanted = |part: Part| arguments.only.is_empty() || arguments.only.contains(&part);
    if wanted(Part::Contract) {
        device.conformance().into_iter().for_each(|outcome| see(Check::contract(outcome.name, outcome.verdict)));
    }
    if wanted(Part::Kernels) {
        // The checked device interprets every work-item; a real size would take minutes.
        let sizes: &[Size] = if device.info().variant.is_some() { &[Size::Tiny] } else { &[Size::Tiny, Size::Small] };
        for (shipped, size) in ALL.iter().flat_map(|shipped| sizes.iter().map(move |size| (shipped, *size))) {
            let (passed, result) = match shipped.run(device, size, arguments.seed, Duration::ZERO) {
                Ok(outcome) => (Some(outcome.verdict.passed()), outcome.verdict.to_string()),
                Err(error) => refused(&error),
            };
            let name = format!("{}, {}", shipped.name, format!("{size:?}").to_lowercase());
            see(Check { part: Part::Kernels, name, passed, result, worst: None });
        }
    }
    if wanted(Part::Functions) {
        functions(device).for_each(|outcome| see(Check::computed(Part::Functions, outcome)));
    }
    if wanted(Part::Ops) {
        for row in rows() {
            see(Check::computed(Part::Ops, row.value(device)));
            row.gradient(device).into_iter().for_each(|outcome| see(Check::computed(Part::Ops, outcome)));
        }
    }
    if wanted(Part::Training) {
        match first_steps(device) {
            Ok(outcomes) => outcomes.into_iter().for_each(|outcome| see(Check::computed(Part::Training, outcome))),
            Err(error) => {
                let (passed, result) = refused(&error);
                let name = "steps on the digits".to_string();
                see(Check { part: Part::Training, name, passed, result, worst: None });
            }
        }
    }
}

/// What a device has no means for is left out; any other error is a failure.
fn refused(error: &Error) -> (Option<bool>, String) {
    if error.is_unsupported() { (None, format!("left out: {error}")) } else { (Some(false), error.to_string()) }
}

impl Check {
    fn contract(name: &str, verdict: Verdict) -> Check {
        let (passed, result) = match verdict {
            Verdict::Passed => (Some(true), String::new()),
            Verdict::Skipped(why) => (None, format!("left out: {why}")),
            Verdict::Failed(error) => (Some(false), error.to_string()),
        };
        Check { part: Part::Contract, name: name.to_string(), passed, result, worst: None }
    }

    fn computed(part: Part, outcome: Outcome) -> Check {
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

    fn json(&self, device: &Device) -> Value {
        json!({
            "device": device.spelling(), "part": self.part.name(), "check": self.name, "passed": self.passed,
            "result": self.result, "worst_error": self.worst.map(|(error, _)| error), "limit": self.worst.map(|(_, limit)| limit),
        })
    }
}
