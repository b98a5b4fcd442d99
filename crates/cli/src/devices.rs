//! `panoply backends`, `devices`, `summary` and `default`: views of the same device report.

use std::process::ExitCode;

use clap::Args;
use panoply::runtime::byte_size::human;
use panoply::runtime::{BackendReport, DeviceReport, device_report};
use panoply::{Device, Result};
use serde_json::{Value, json};

use crate::console::{self, print_wrapped};
use crate::diagnosis;
use crate::driver_probe;
use crate::machine::Machine;
use crate::output::{self, DeviceArgs, refusal};

/// List the devices that work, then what could work on this machine
///
/// `panoply summary` counts the devices of each backend, `panoply backends` lists all backends, and `panoply default` prints the device that
/// `auto` selects, with the reasons. With `--verbose` each device is listed with its driver.
#[derive(Args)]
pub struct DevicesCommand {
    /// Also list backends for other machines, with the reasons
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    printed: ViewCommand,
}

/// Output options.
#[derive(Args)]
pub struct ViewCommand {
    /// Print one JSON document on stdout
    #[arg(long)]
    json: bool,
}

/// Arguments of `panoply default`.
#[derive(Args)]
pub struct DefaultArguments {
    #[command(flatten)]
    printed: ViewCommand,
    #[command(flatten)]
    device: DeviceArgs,
}

impl ViewCommand {
    /// Returns true for JSON output.
    pub fn json(&self) -> bool {
        self.json
    }
}

/// Prints the backends that work here, and why the others do not.
pub fn backends(arguments: &ViewCommand) -> Result<ExitCode> {
    let report = probed_report()?;
    if arguments.json {
        output::print_json(
            &json!({"schema": 1, "backends": report.backends.iter().map(backend).collect::<Vec<Value>>()}),
        );
    } else {
        for backend in &report.backends {
            println!("{backend}");
            backend.problems().for_each(|line| print_wrapped(&format!("    {line}")));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints every device with its properties, and the recommended one.
pub fn devices(arguments: &DevicesCommand) -> Result<ExitCode> {
    let report = probed_report()?;
    if arguments.printed.json {
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
            "recommended": recommended.device.device_string(), "is_fallback": recommended.is_fallback,
        }));
    } else {
        print(&report, arguments.all);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the devices that work, the backends that could work, and with `all` those for other machines.
fn print(report: &DeviceReport, all: bool) {
    let mut devices: Vec<&Device> = report.devices().collect();
    // Software implementations and variants are used only by name.
    devices.sort_by_key(|device| device.info().is_software || device.info().variant.is_some());
    let width = devices.iter().map(|device| device.device_string().len()).max().unwrap_or(0);
    for device in devices {
        let mut line = format!("✓ {:width$}  {}", device.device_string(), properties(device));
        if let Some(other) = report.alias_of(device) {
            line += &format!(", the same GPU as {other}");
        }
        if *device == report.recommended.device {
            line += ", the default";
        }
        println!("{line}");
        if console::is_verbose() {
            println!("  {:width$}  {}, {}", "", device.info().vendor, device.info().driver);
            device.blas_library().iter().for_each(|library| println!("  {:width$}  matrix products: {library}", ""));
        }
    }
    let machine = Machine::read_system();
    let (possible, impossible): (Vec<&BackendReport>, Vec<&BackendReport>) =
        report.backends.iter().filter(|one| has_problems(one)).partition(|one| could_work(one, &machine));
    let list = |title: &str, backends: &[&BackendReport]| {
        println!("\n{title}");
        for one in backends {
            one.devices.iter().for_each(|_| println!("  {}", one.backend.title()));
            one.devices
                .as_ref()
                .err()
                .iter()
                .for_each(|why| print_wrapped(&format!("  {}: {}", one.backend.title(), why.reason)));
            one.problems().for_each(|line| print_wrapped(&format!("    {line}")));
        }
    };
    if !possible.is_empty() {
        list("Could work here:", &possible);
    }
    if all && !impossible.is_empty() {
        list("Not for this machine:", &impossible);
    } else if !impossible.is_empty() {
        let names: Vec<&str> = impossible.iter().map(|one| one.backend.title()).collect();
        println!();
        print_wrapped(&format!(
            "{} are not for this machine; `panoply devices --all` lists the reasons",
            names.join(", ")
        ));
    }
}

/// Returns the name of a device and its size, such as `NVIDIA H100, 132 units, 79.1 GiB`.
fn properties(device: &Device) -> String {
    let (info, total) = (device.info(), human(device.memory().total));
    let software = if info.is_software { ", software" } else { "" };
    // Some interfaces do not report the number of units.
    let units = if info.compute_units == 0 { String::new() } else { format!("{} units, ", info.compute_units) };
    format!("{}, {units}{total}{software}", info.name)
}

/// Returns true for a backend without devices, or with hardware or drivers that are unusable.
fn has_problems(report: &BackendReport) -> bool {
    report.devices.is_err() || !report.rejected.is_empty()
}

/// Returns true if the backend could have devices on this machine, or if a part of it was found.
fn could_work(report: &BackendReport, machine: &Machine) -> bool {
    let found = report.devices.as_ref().map_or_else(|why| !why.notes.is_empty(), |_| true);
    found || !report.rejected.is_empty() || diagnosis::has_hardware(report.backend, machine)
}

/// Prints the number of devices of each backend, one line each.
pub fn summary(arguments: &ViewCommand) -> Result<ExitCode> {
    let report = probed_report()?;
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
    let choice = arguments.device.select()?;
    if arguments.printed.json {
        output::print_json(&choice.document(json!({})));
    } else {
        println!("device: {}", choice.summary());
        choice.rejections().for_each(|line| print_wrapped(&format!("  {line}")));
    }
    Ok(ExitCode::SUCCESS)
}

/// Queries all drivers; a faulty driver cannot end this process.
pub fn probed_report() -> Result<DeviceReport> {
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

/// Returns a device for `--json`, with its properties.
pub fn device(device: &Device) -> Value {
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
