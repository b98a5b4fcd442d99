//! Code shared by the commands: choosing a device, explaining the choice, and printing JSON.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use panoply::runtime::{Rejection, Selection, select_device};
use panoply::{Device, Error, Result};
use serde_json::{Value, json};

use crate::{console, driver_probe};

/// Exit code under `--strict` if no accelerator was found.
const DEGRADED: u8 = 3;

/// Exit code of a program that Ctrl-C ended.
pub const INTERRUPTED: i32 = 130;

/// Options that select the device of a command.
#[derive(Args)]
pub struct DeviceArgs {
    /// Device: `cuda:0`, `opencl:1`, `cpu`, `cpu:checked`, or `auto` for the best one [default: PANOPLY_DEVICE or auto]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Exit with code 3 if no accelerator is found and the CPU was not requested
    #[arg(long)]
    strict: bool,
}

/// The device that was selected for a command.
pub struct DeviceSelection {
    selection: Selection,
    strict: bool,
}

impl DeviceArgs {
    /// Returns the device of `--device`, else of `PANOPLY_DEVICE`, else the best of this machine.
    pub fn select(&self) -> Result<DeviceSelection> {
        driver_probe::for_device(self.device.as_deref())?;
        Ok(DeviceSelection::of(select_device(self.device.as_deref())?, self.strict))
    }
}

impl DeviceSelection {
    /// Wraps a selection; under `strict`, a fallback to the CPU is a failure.
    pub fn of(selection: Selection, strict: bool) -> DeviceSelection {
        DeviceSelection { selection, strict }
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.selection.device
    }

    /// Returns one line with the device and the reason for its choice.
    pub fn in_words(&self) -> String {
        self.selection.to_string()
    }

    /// Writes the device and why others were rejected to stderr.
    pub fn explain(&self) {
        self.lines().for_each(|line| eprintln!("{line}"));
    }

    /// Returns one line with the selected device, then one line per rejected candidate.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let refused = self.selection.rejected.iter();
        let refused = refused.map(|(candidate, refusal)| format!("  not {candidate}: {refusal}"));
        std::iter::once(format!("device: {}", self.selection)).chain(refused)
    }

    /// Returns the selection for `--json`.
    pub fn report(&self) -> Value {
        let Selection { device, selected_by: how, rejected: refused, is_fallback: degraded } = &self.selection;
        let refused: Vec<Value> = refused
            .iter()
            .map(|(candidate, why)| {
                let mut document = refusal(why);
                document["candidate"] = candidate.clone().into();
                document
            })
            .collect();
        json!({
            "device": device.to_string(), "name": device.info().name, "selected_by": how.to_string(),
            "is_fallback": degraded, "rejected": refused,
        })
    }

    /// Returns 0, or 3 for a fallback under `--strict`.
    pub fn exit_code(&self) -> ExitCode {
        if self.strict && self.selection.is_fallback { ExitCode::from(DEGRADED) } else { ExitCode::SUCCESS }
    }
}

/// Returns an error if JSON is requested and one of the paths is not UTF-8.
pub fn check_paths<'a>(json: bool, paths: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    match paths.into_iter().find(|path| json && path.to_str().is_none()) {
        Some(path) => {
            let message =
                format!("--json: the path {} is not valid UTF-8 and cannot be written as JSON", path.display());
            Err(Error::mistake(message).note("rename it, or run without --json"))
        }
        None => Ok(()),
    }
}

/// Prints one JSON document.
pub fn print_json(document: &Value) {
    console::print_json(document);
}

/// Prints one document in one line.
pub fn print_json_line(document: &Value) {
    console::print_json_line(document);
}

/// Returns a rejection for `--json`.
pub fn refusal(Rejection { reason, fix, notes }: &Rejection) -> Value {
    json!({"reason": reason, "fix": fix, "notes": notes})
}
