//! Code shared by the commands: choosing a device, explaining the choice, and printing JSON.

use std::path::Path;

use clap::Args;
use panoply::mesh::Scope;
use panoply::nn::checkpoint::WholeFile;
use panoply::runtime::{Rejection, SelectedBy, Selection, select_device};
use panoply::{Device, Error, Result};
use serde_json::{Value, json};

use crate::{console, driver_probe, protect};

/// Exit code under `--strict` if no accelerator was found.
pub const DEGRADED: u8 = 3;

/// Exit code of a program that Ctrl-C ended.
pub const INTERRUPTED: i32 = 130;

/// Options that select the device of a command.
#[derive(Args)]
pub struct DeviceArgs {
    /// Device: `cuda:0`, `opencl:1`, `cpu`, `cpu:checked`, or `auto` for the best one [default: PANOPLY_DEVICE or auto]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Exit with code 3, before anything is done, if no accelerator is found and the CPU was not requested
    #[arg(long)]
    strict: bool,
}

/// The device that was selected for a command.
pub struct DeviceSelection(Selection);

/// Source of the error of `--strict`, by which the program finds its exit code.
#[derive(Debug)]
pub struct NoAccelerator;

impl std::error::Error for NoAccelerator {}

impl std::fmt::Display for NoAccelerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no accelerator was found")
    }
}

impl DeviceArgs {
    /// Returns the name of the device, if one was given.
    pub fn name(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Returns the devices of a list such as `cuda:*,cpu`.
    pub fn select_all(list: &str) -> Result<Vec<DeviceSelection>> {
        list.split(',').try_for_each(|name| driver_probe::for_device(Some(name.trim())))?;
        let devices = list.devices()?;
        devices.iter().map(|device| select_device(Some(device.device_string())).map(DeviceSelection)).collect()
    }

    /// Returns the device of `--device`, else of `PANOPLY_DEVICE`, else the best of this machine. Under `--strict` a fallback to the CPU
    /// is an error.
    pub fn select(&self) -> Result<DeviceSelection> {
        driver_probe::for_device(self.name())?;
        let choice = DeviceSelection(select_device(self.name())?);
        if self.strict && choice.0.is_fallback {
            let error = Error::unavailable("--strict: no accelerator was found; run `panoply devices` for the reasons");
            return Err(choice.rejections().fold(error, Error::note).with_source(NoAccelerator));
        }
        Ok(choice)
    }
}

impl DeviceSelection {
    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Returns true if `--device` or `PANOPLY_DEVICE` names the device.
    pub fn is_named(&self) -> bool {
        matches!(self.0.selected_by, SelectedBy::Explicit | SelectedBy::Environment)
    }

    /// Returns one line with the device and the reason for its choice.
    pub fn summary(&self) -> String {
        self.0.to_string()
    }

    /// Writes the device to stderr in one line, with `--verbose` also why others were rejected.
    pub fn explain(&self) {
        note!("device: {}", self.0);
        if console::is_verbose() {
            self.rejections().for_each(|line| note!("  {line}"));
        }
    }

    /// Returns one line per rejected candidate.
    pub fn rejections(&self) -> impl Iterator<Item = String> {
        self.0.rejected.iter().map(|(candidate, refusal)| format!("not {candidate}: {refusal}"))
    }

    /// Returns a document for `--json`: these entries, the schema number and the device.
    pub fn document(&self, mut entries: Value) -> Value {
        entries["schema"] = 1.into();
        entries["device"] = self.device().device_string().into();
        entries["device_info"] = self.report();
        entries
    }

    /// Returns the selection for `--json`.
    pub fn report(&self) -> Value {
        let Selection { device, selected_by: how, rejected: refused, is_fallback: degraded } = &self.0;
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

/// Returns an error if a file cannot be created, before the work whose result it receives. An existing file is not changed.
pub fn check_writable(path: &Path) -> Result<()> {
    // The reader of a pipe would see its end.
    if protect::is_stream(path) { Ok(()) } else { WholeFile::create(path).map(drop) }
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
