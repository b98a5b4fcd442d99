//! `panoply status`: tests every device of this machine and reports how to fix problems.
//!
//! [`machine`](crate::machine) reads the state of the operating system, [`diagnosis`](crate::diagnosis) finds the cause if a driver does
//! not work.

mod mpi;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use panoply::runtime::byte_size::human;
use panoply::runtime::{BackendReport, env};
use panoply::{Device, Result};
use serde_json::{Value, json};

use crate::console::print_wrapped;
use crate::diagnosis::{Diagnosis, diagnose, library};
use crate::machine::{self, Machine};
use crate::{devices, output};

/// Result of a test kernel on a device.
struct DeviceTest<'a> {
    device: &'a Device,
    seconds: f64,
    outcome: Result<()>,
}

/// A backend with its library, diagnosis and device tests.
struct Row<'a> {
    backend: &'a BackendReport,
    library: Option<String>,
    diagnosis: Option<Diagnosis>,
    tried: Vec<DeviceTest<'a>>,
}

/// Tests all devices and prints the problems; fails if a device that is present does not work.
pub fn run(arguments: &devices::ViewCommand) -> Result<ExitCode> {
    let report = devices::probed_report()?;
    let machine = Machine::read_system();
    let rows: Vec<Row> = report.backends.iter().map(|backend| row(backend, &machine)).collect();
    let wrong = rows.iter().map(Row::wrong).sum::<usize>();
    let hints = rows.iter().filter(|row| row.diagnosis.is_some()).count();
    let mpi = mpi::MpiRow::read();
    let failed = |tried: &DeviceTest| *tried.device == report.recommended.device && tried.outcome.is_err();
    let warning = if rows.iter().flat_map(|row| &row.tried).any(failed) { ", which failed above" } else { "" };
    if arguments.json() {
        let mut document = machine_json(&machine);
        document["schema"] = 1.into();
        document["backends"] = rows.iter().map(Row::json).collect();
        document["mpi"] = mpi.json();
        document["recommended"] = report.recommended.device.to_string().into();
        document["problems"] = wrong.into();
        document["hints"] = hints.into();
        output::print_json(&document);
    } else {
        print_machine(&machine);
        println!();
        rows.iter().for_each(Row::print);
        mpi.print();
        println!();
        println!("Recommended: {}{warning}", report.recommended);
        let found = match wrong {
            0 => "All devices that were found work".to_string(),
            1 => "1 problem was found".to_string(),
            _ => format!("{wrong} problems were found"),
        };
        let fixable = if hints > 0 { "; lines with ! say how to make a backend work" } else { "" };
        println!("{found}; ✗ marks what fails or is unavailable on this machine{fixable}.");
    }
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn row<'a>(backend: &'a BackendReport, machine: &Machine) -> Row<'a> {
    let found = library(backend.backend, machine);
    let try_out = |device: &'a Device| {
        let started = Instant::now();
        let outcome = device.smoke_test();
        DeviceTest { device, seconds: started.elapsed().as_secs_f64(), outcome }
    };
    Row {
        backend,
        library: found.filter(|library| library.flaw.is_none()).map(|library| library.path.display().to_string()),
        diagnosis: backend.devices.is_err().then(|| diagnose(backend.backend, machine)).flatten(),
        tried: backend.devices.iter().flatten().map(try_out).collect(),
    }
}

impl Row<'_> {
    /// Returns the number of present devices that do not work. A missing backend is not counted, since that can be intended.
    fn wrong(&self) -> usize {
        let refused = if self.backend.devices.is_ok() { self.backend.rejected.len() } else { 0 };
        refused + self.tried.iter().filter(|tried| tried.outcome.is_err()).count()
    }

    fn print(&self) {
        println!("{}", self.backend);
        if let Some(library) = &self.library {
            println!("    library {library}");
        }
        self.backend.problems().for_each(|line| print_wrapped(&format!("    {line}")));
        if let Some(Diagnosis { problem, fix }) = &self.diagnosis {
            print_wrapped(&format!("    ! {problem}"));
            print_wrapped(&format!("      {fix}"));
        }
        for DeviceTest { device, seconds, outcome } in &self.tried {
            match outcome {
                Ok(()) => println!("    ✓ {device} works, compilation and first launch took {:.0} ms", seconds * 1e3),
                Err(error) => print_wrapped(&format!("    ✗ {device}: {error}")),
            }
            if let Some(products) = device.blas_library() {
                println!("      matrix products: {products}");
            }
        }
    }

    fn json(&self) -> Value {
        let mut document = devices::backend(self.backend);
        document["library"] = self.library.clone().into();
        document["diagnosis"] = self
            .diagnosis
            .as_ref()
            .map_or(Value::Null, |Diagnosis { problem, fix }| json!({"reason": problem, "fix": fix}));
        let tried = |DeviceTest { device, seconds, outcome }: &DeviceTest| {
            let error = outcome.as_ref().err().map(ToString::to_string);
            json!({
                "device": device.device_string(), "passed": outcome.is_ok(), "seconds": seconds, "error": error,
                "blas_library": device.blas_library(),
            })
        };
        document["tests"] = self.tried.iter().map(tried).collect();
        document
    }
}

fn print_machine(machine: &Machine) {
    let container = machine.container.map_or(String::new(), |name| format!(", in a container ({name})"));
    println!("system     {}{container}", machine.system);
    for card in &machine.cards {
        let driver = card.driver.as_deref().unwrap_or("no kernel driver");
        println!("card       {} {} ({:04x}:{:04x}), {driver}", card.address, card.maker(), card.vendor, card.device);
    }
    if machine.bus && machine.cards.is_empty() {
        println!("card       none on the PCI bus");
    }
    for node in &machine.nodes {
        println!("node       {}, {}", node.path, if node.allowed { "accessible" } else { "permission denied" });
    }
    let cache = cache();
    println!("programs   {}", cache.as_deref().unwrap_or("not cached on disk"));
    for (name, value) in env::defined_variables() {
        let nothing = if env::is_known(&name) { "" } else { ", unknown variable: check its spelling" };
        println!("setting    {name}={value}{nothing}");
    }
}

fn machine_json(machine: &Machine) -> Value {
    let card = |card: &machine::Card| {
        json!({
            "address": card.address, "vendor": card.maker(), "driver": card.driver,
            "id": format!("{:04x}:{:04x}", card.vendor, card.device),
        })
    };
    json!({
        "system": machine.system, "container": machine.container, "program_cache": cache(),
        "gpus": machine.cards.iter().map(card).collect::<Vec<Value>>(),
        "device_nodes": machine.nodes.iter().map(|node| json!({"path": node.path, "accessible": node.allowed})).collect::<Vec<Value>>(),
        "unknown_variables": env::defined_variables().into_iter().map(|(name, _)| name).filter(|name| !env::is_known(name)).collect::<Vec<String>>(),
        "environment": env::defined_variables().into_iter().collect::<BTreeMap<String, String>>(),
    })
}

/// Returns the number, folder and size of cached device programs.
fn cache() -> Option<String> {
    let folder = env::settings().ok()?.cache_dir.as_ref()?.join("programs");
    let files = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let sizes: Vec<u64> = files.filter_map(|file| file.metadata().ok()).map(|data| data.len()).collect();
    Some(format!("{} in {}, {}", sizes.len(), folder.display(), human(sizes.iter().sum())))
}
