//! `panoply selftest`: does this device compute what it must?

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use panoply::kernels::{ALL, Size};
use panoply::{Device, Result};
use serde_json::{Value, json};

use crate::output::{self, DeviceChoice};

/// Does this device compute what it must? One line for each check.
#[derive(Args)]
pub struct Arguments {
    /// Test every device here, software ones included.
    #[arg(long)]
    all: bool,
    /// Determines the inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    device: DeviceChoice,
    /// One JSON document on stdout.
    #[arg(long)]
    json: bool,
}

/// Runs each shipped kernel at a ragged small size and at a real one, and compares with plain Rust.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let choice = arguments.device.select()?;
    let devices = if arguments.all { Device::all()? } else { vec![choice.device().clone()] };
    let (mut checks, mut failed) = (Vec::new(), 0);
    for device in &devices {
        // The checked device interprets every work-item; a real size would take minutes.
        let sizes: &[Size] = if device.info().variant.is_some() { &[Size::Tiny] } else { &[Size::Tiny, Size::Small] };
        for shipped in ALL {
            for size in sizes {
                let result = shipped.run(device, *size, arguments.seed, Duration::ZERO);
                let (passed, text) = match &result {
                    Ok(outcome) => (outcome.verdict.passed(), outcome.verdict.to_string()),
                    Err(error) => (false, error.to_string()),
                };
                failed += usize::from(!passed);
                let size = format!("{size:?}").to_lowercase();
                if arguments.json {
                    checks.push(json!({
                        "device": device.spelling(), "check": shipped.name, "size": size, "passed": passed, "result": text,
                    }));
                } else {
                    let mark = if passed { '✓' } else { '✗' };
                    println!("{mark} {device:<12} {:<14} {size:<6} {text}", shipped.name);
                }
            }
        }
    }
    if arguments.json {
        let devices: Vec<Value> = devices.iter().map(|device| json!(device.spelling())).collect();
        output::print_json(&json!({"schema": 1, "devices": devices, "checks": checks, "failed": failed}));
    } else {
        println!("{failed} failed");
    }
    Ok(if failed > 0 { ExitCode::FAILURE } else { choice.exit_code() })
}
