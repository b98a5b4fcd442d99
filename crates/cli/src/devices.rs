//! `panoply backends`, `devices`, `summary` and `default`: views of one report, each as short as its question.

use std::process::ExitCode;

use clap::Args;
use panoply::runtime::{Backend, Refusal, Report, report, select};
use panoply::{Device, Result};
use serde_json::{Value, json};

use crate::contain;
use crate::output::{self, Choice};

/// How the answer is printed.
#[derive(Args)]
pub struct Arguments {
    /// One JSON document on stdout.
    #[arg(long)]
    json: bool,
}

/// How the default is printed, and what it must be.
#[derive(Args)]
pub struct DefaultArguments {
    #[command(flatten)]
    printed: Arguments,
    /// Exit with 3 if no accelerator was found and nobody asked for the CPU.
    #[arg(long)]
    strict: bool,
}

impl Arguments {
    /// Whether the answer is for a program.
    pub fn json(&self) -> bool {
        self.json
    }
}

/// Which interfaces work here, and why the others do not.
pub fn backends(arguments: &Arguments) -> Result<ExitCode> {
    let report = asked()?;
    if arguments.json {
        output::print_json(
            &json!({"schema": 1, "backends": report.backends.iter().map(backend).collect::<Vec<Value>>()}),
        );
    } else {
        for backend in &report.backends {
            println!("{backend}");
            backend.objections().for_each(|line| println!("    {line}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Every device with what its driver says of it, and the one that would be taken.
pub fn devices(arguments: &Arguments) -> Result<ExitCode> {
    let report = asked()?;
    if arguments.json {
        let backends: Vec<Value> = report
            .backends
            .iter()
            .map(|one| {
                let mut document = backend(one);
                if let Ok(devices) = &one.state {
                    let described = |one: &Device| {
                        let mut document = device(one);
                        document["same_as"] = report.same_as(one).map(Device::spelling).into();
                        document
                    };
                    document["devices"] = devices.iter().map(described).collect();
                }
                document
            })
            .collect();
        let recommended = &report.recommended;
        output::print_json(&json!({
            "schema": 1, "backends": backends,
            "recommended": {"device": recommended.device.to_string(), "degraded": recommended.degraded},
        }));
    } else {
        println!("{report}");
    }
    Ok(ExitCode::SUCCESS)
}

/// How many devices of each kind, in one line each.
pub fn summary(arguments: &Arguments) -> Result<ExitCode> {
    let report = asked()?;
    let groups = [("hardware", "hardware"), ("same", "the same as above"), ("software", "software")];
    // A GPU that a preferred interface reaches too is counted there.
    let group = |device: &Device| match report.same_as(device) {
        _ if device.info().software => 2,
        Some(_) => 1,
        None => 0,
    };
    let count = |backend: &Backend| {
        let devices = backend.state.iter().flatten().filter(|device| device.info().variant.is_none());
        devices.map(group).fold([0; 3], |mut counts, group| {
            counts[group] += 1;
            counts
        })
    };
    let kinds: Vec<(&Backend, [usize; 3])> = report.backends.iter().map(|backend| (backend, count(backend))).collect();
    let kinds: Vec<_> = kinds.into_iter().filter(|(_, counts)| counts.iter().any(|count| *count > 0)).collect();
    if arguments.json {
        let document = |(backend, counts): &(&Backend, [usize; 3])| {
            let mut document = json!({"kind": backend.kind.name()});
            groups.iter().zip(counts).for_each(|((key, _), count)| document[*key] = (*count).into());
            document
        };
        output::print_json(&json!({
            "schema": 1, "kinds": kinds.iter().map(document).collect::<Vec<Value>>(),
            "recommended": report.recommended.device.to_string(),
        }));
    } else {
        for (backend, counts) in &kinds {
            let parts = groups.iter().zip(counts).filter(|(_, count)| **count > 0);
            let parts: Vec<String> = parts.map(|((_, what), count)| format!("{count} {what}")).collect();
            println!("{:<10} {}", backend.kind.title(), parts.join(", "));
        }
        println!("{} of {} kinds; recommended: {}", kinds.len(), report.backends.len(), report.recommended);
    }
    Ok(ExitCode::SUCCESS)
}

/// What a program that names no device runs on, and why nothing before it.
pub fn default(arguments: &DefaultArguments) -> Result<ExitCode> {
    contain::for_device(None)?;
    let choice = Choice::of(select(None)?, arguments.strict);
    if arguments.printed.json {
        let mut document = choice.report();
        document["schema"] = 1.into();
        output::print_json(&document);
    } else {
        choice.lines().for_each(|line| println!("{line}"));
    }
    Ok(choice.exit_code())
}

/// What every driver answered, none of them able to end this process.
pub fn asked() -> Result<Report> {
    contain::for_all()?;
    report()
}

/// A refusal for `--json`.
pub fn refusal(Refusal { reason, fix, notes }: &Refusal) -> Value {
    json!({"reason": reason, "fix": fix, "notes": notes})
}

/// A kind for `--json`, its devices by their spelling.
pub fn backend(Backend { kind, state, refused }: &Backend) -> Value {
    match state {
        Ok(devices) => json!({
            "kind": kind.name(), "available": true,
            "devices": devices.iter().map(Device::spelling).collect::<Vec<&str>>(),
            "refused": refused.iter().map(refusal).collect::<Vec<Value>>(),
        }),
        Err(why) => {
            let mut document = refusal(why);
            document["kind"] = kind.name().into();
            document["available"] = false.into();
            document
        }
    }
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
        "max_binding_bytes": target.max_binding_bytes,
        "f16": target.f16, "bf16": target.bf16, "f64": target.f64, "int64": target.int64, "matrix_products": device.products(), "details": details,
    })
}
