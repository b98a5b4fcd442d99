//! `panoply backends`, `devices`, `summary` and `default`: views of the same device report.

use std::process::ExitCode;

use clap::Args;
use panoply::runtime::{BackendReport, DeviceReport, device_report, select_device};
use panoply::{Device, Result};
use serde_json::{Value, json};

use crate::driver_probe;
use crate::output::{self, DeviceSelection, refusal};

/// Output options.
#[derive(Args)]
pub struct DevicesCommand {
    /// Print one JSON document on stdout
    #[arg(long)]
    json: bool,
}

/// Arguments of `panoply default`.
#[derive(Args)]
pub struct DefaultArguments {
    #[command(flatten)]
    printed: DevicesCommand,
    /// Exit with code 3 if no accelerator is found and the CPU was not requested
    #[arg(long)]
    strict: bool,
}

impl DevicesCommand {
    /// Returns true for JSON output.
    pub fn json(&self) -> bool {
        self.json
    }
}

/// Prints the backends that work here, and why the others do not.
pub fn backends(arguments: &DevicesCommand) -> Result<ExitCode> {
    let report = asked()?;
    if arguments.json {
        output::print_json(
            &json!({"schema": 1, "backends": report.backends.iter().map(backend).collect::<Vec<Value>>()}),
        );
    } else {
        for backend in &report.backends {
            println!("{backend}");
            backend.problems().for_each(|line| println!("    {line}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints every device with its properties, and the recommended one.
pub fn devices(arguments: &DevicesCommand) -> Result<ExitCode> {
    let report = asked()?;
    if arguments.json {
        let backends: Vec<Value> = report
            .backends
            .iter()
            .map(|one| {
                let mut document = backend(one);
                if let Ok(devices) = &one.devices {
                    let described = |one: &Device| {
                        let mut document = device(one);
                        document["same_as"] = report.alias_of(one).map(Device::device_string).into();
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
            "recommended": {"device": recommended.device.to_string(), "is_fallback": recommended.is_fallback},
        }));
    } else {
        println!("{report}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the number of devices of each backend, one line each.
pub fn summary(arguments: &DevicesCommand) -> Result<ExitCode> {
    let report = asked()?;
    let groups = [("hardware", "hardware"), ("same", "also listed above"), ("software", "software")];
    // A GPU that a preferred backend also supports is counted there.
    let group = |device: &Device| match report.alias_of(device) {
        _ if device.info().is_software => 2,
        Some(_) => 1,
        None => 0,
    };
    let count = |backend: &BackendReport| {
        let devices = backend.devices.iter().flatten().filter(|device| device.info().variant.is_none());
        devices.map(group).fold([0; 3], |mut counts, group| {
            counts[group] += 1;
            counts
        })
    };
    let kinds: Vec<(&BackendReport, [usize; 3])> =
        report.backends.iter().map(|backend| (backend, count(backend))).collect();
    let kinds: Vec<_> = kinds.into_iter().filter(|(_, counts)| counts.iter().any(|count| *count > 0)).collect();
    if arguments.json {
        let document = |(backend, counts): &(&BackendReport, [usize; 3])| {
            let mut document = json!({"backend": backend.backend.name()});
            groups.iter().zip(counts).for_each(|((key, _), count)| document[*key] = (*count).into());
            document
        };
        output::print_json(&json!({
            "schema": 1, "backends": kinds.iter().map(document).collect::<Vec<Value>>(),
            "recommended": report.recommended.device.to_string(),
        }));
    } else {
        for (backend, counts) in &kinds {
            let parts = groups.iter().zip(counts).filter(|(_, count)| **count > 0);
            let parts: Vec<String> = parts.map(|((_, what), count)| format!("{count} {what}")).collect();
            println!("{:<10} {}", backend.backend.title(), parts.join(", "));
        }
        println!(
            "{} of {} backends available; recommended: {}",
            kinds.len(),
            report.backends.len(),
            report.recommended
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the default device, and why others were rejected.
pub fn default(arguments: &DefaultArguments) -> Result<ExitCode> {
    driver_probe::for_device(None)?;
    let choice = DeviceSelection::of(select_device(None)?, arguments.strict);
    if arguments.printed.json {
        let mut document = choice.report();
        document["schema"] = 1.into();
        output::print_json(&document);
    } else {
        choice.lines().for_each(|line| println!("{line}"));
    }
    Ok(choice.exit_code())
}

/// Queries all drivers; a faulty driver cannot end this process.
pub fn asked() -> Result<DeviceReport> {
    driver_probe::for_all()?;
    device_report()
}

/// Returns a backend for `--json`, with the names of its devices.
pub fn backend(BackendReport { backend: kind, devices: state, rejected: refused }: &BackendReport) -> Value {
    match state {
        Ok(devices) => json!({
            "backend": kind.name(), "available": true,
            "devices": devices.iter().map(Device::device_string).collect::<Vec<&str>>(),
            "rejected": refused.iter().map(refusal).collect::<Vec<Value>>(),
        }),
        Err(why) => {
            let mut document = refusal(why);
            document["backend"] = kind.name().into();
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
        "device": device.device_string(), "name": info.name, "vendor": info.vendor, "driver": info.driver,
        "is_software": info.is_software, "unified_memory": info.unified_memory, "compute_units": info.compute_units,
        "physical_id": info.physical_id, "memory_total": memory.total, "memory_free": memory.free,
        "max_group_size": target.max_group, "max_group_invocations": target.max_group_items, "subgroup_size": target.subgroup,
        "shared_memory_bytes": target.shared_bytes, "max_bindings": target.max_bindings, "max_buffer_bytes": target.max_buffer_bytes,
        "max_binding_bytes": target.max_binding_bytes,
        "f16": target.f16, "bf16": target.bf16, "f64": target.f64, "int64": target.int64, "blas_library": device.blas_library(), "details": details,
    })
}
