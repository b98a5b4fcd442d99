//! What commands share: choosing a device, saying why, and printing JSON.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use panoply::runtime::{Selection, select_device};
use panoply::{Device, Error, Result};
use serde_json::{Value, json};

use crate::devices::refusal;
use crate::{console, driver_probe};

/// The exit code of a run that had to do without an accelerator, under `--strict`.
const DEGRADED: u8 = 3;

/// The exit code of a program that Ctrl-C ended.
pub const INTERRUPTED: i32 = 130;

/// Which device a command runs on.
#[derive(Args)]
pub struct DeviceArgs {
    /// The device: `cuda:0`, `opencl:1`, `cpu`, `cpu:checked`, or `auto` for the best there is.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Exit with 3 if no accelerator was found and nobody asked for the CPU.
    #[arg(long)]
    strict: bool,
}

/// A device that was chosen for a command.
pub struct DeviceSelection {
    selection: Selection,
    strict: bool,
}

impl DeviceArgs {
    /// The device asked for, or what `PANOPLY_DEVICE` or the machine suggests.
    pub fn select(&self) -> Result<DeviceSelection> {
        driver_probe::for_device(self.device.as_deref())?;
        Ok(DeviceSelection::of(select_device(self.device.as_deref())?, self.strict))
    }
}

impl DeviceSelection {
    /// A choice, and whether having to do without an accelerator is a failure.
    pub fn of(selection: Selection, strict: bool) -> DeviceSelection {
        DeviceSelection { selection, strict }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.selection.device
    }

    /// The device and why this one, in a line.
    pub fn in_words(&self) -> String {
        self.selection.to_string()
    }

    /// Says on stderr which device this is and why not another.
    pub fn explain(&self) {
        self.lines().for_each(|line| eprintln!("{line}"));
    }

    /// Which device this is, and why not another.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let refused = self.selection.rejected.iter();
        let refused = refused.map(|(candidate, refusal)| format!("  not {candidate}: {refusal}"));
        std::iter::once(format!("device: {}", self.selection)).chain(refused)
    }

    /// The choice for `--json`.
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

    /// 0, or 3 for a fallback under `--strict`.
    pub fn exit_code(&self) -> ExitCode {
        if self.strict && self.selection.is_fallback { ExitCode::from(DEGRADED) } else { ExitCode::SUCCESS }
    }
}

/// An error if JSON is asked for and one of these paths is not text, which JSON consists of.
pub fn check_paths<'a>(json: bool, paths: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    match paths.into_iter().find(|path| json && path.to_str().is_none()) {
        Some(path) => {
            let message = format!("--json: the path {} is not valid UTF-8, so JSON cannot hold it", path.display());
            Err(Error::mistake(message).note("rename it, or leave out --json"))
        }
        None => Ok(()),
    }
}

/// Prints one document.
pub fn print_json(document: &Value) {
    console::print_json(document);
}

/// Prints one document in one line.
pub fn print_json_line(document: &Value) {
    console::print_json_line(document);
}
