//! `panoply devices`: what is here, what is not and why, and what `auto` would take.

use std::process::ExitCode;

use clap::Args;
use panoply::runtime::{Backend, Report, report};
use panoply::{Device, Result};
use serde_json::{Value, json};

use crate::output;

/// What is here, what was refused and why, which device `auto` would take.
#[derive(Args)]
pub struct Arguments {
    /// One JSON document on stdout.
    #[arg(long)]
    json: bool,
}

/// Asks every driver and prints the answers.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let report = report()?;
    if arguments.json {
        output::print_json(&document(&report));
    } else {
        println!("{report}");
    }
    Ok(ExitCode::SUCCESS)
}

fn document(report: &Report) -> Value {
    let backends: Vec<Value> = report
        .backends
        .iter()
        .map(|Backend { kind, state, refused }| match state {
            Ok(devices) => json!({
                "kind": kind.name(), "available": true, "devices": devices.iter().map(device).collect::<Vec<Value>>(),
                "refused": refused.iter().map(|one| json!({"reason": one.reason, "fix": one.fix})).collect::<Vec<Value>>(),
            }),
            Err(refusal) => json!({"kind": kind.name(), "available": false, "reason": refusal.reason, "fix": refusal.fix}),
        })
        .collect();
    let recommended = &report.recommended;
    json!({
        "schema": 1, "backends": backends,
        "recommended": {"device": recommended.device.to_string(), "degraded": recommended.degraded},
    })
}

fn device(device: &Device) -> Value {
    let (info, target, memory) = (device.info(), device.target(), device.memory());
    let details: serde_json::Map<String, Value> =
        info.details.iter().map(|(name, value)| (name.clone(), Value::from(value.clone()))).collect();
    json!({
        "device": device.spelling(), "name": info.name, "vendor": info.vendor, "driver": info.driver,
        "software": info.software, "unified_memory": info.unified_memory, "compute_units": info.compute_units,
        "identity": info.identity, "memory_total": memory.total, "memory_free": memory.free,
        "max_group": target.max_group, "max_group_items": target.max_group_items, "subgroup": target.subgroup,
        "shared_bytes": target.shared_bytes, "max_bindings": target.max_bindings, "max_buffer_bytes": target.max_buffer_bytes,
        "f16": target.f16, "bf16": target.bf16, "f64": target.f64, "int64": target.int64, "details": details,
    })
}
