//! Functions for the web page: the devices of a browser, the built-in kernels, and the first training steps, checked
//! on each device.
//!
//! The page decides what is shown and knows nothing about devices; this crate knows nothing about the page. It is
//! empty on targets other than WebAssembly.

#![forbid(unsafe_code)]
#![cfg(target_family = "wasm")]

use panoply::kernels::{self, Size};
use panoply::nn::conformance::{FirstSteps, STEPS, oracle};
use panoply::{Device, Result};
use wasm_bindgen::prelude::*;

/// Seed of the kernels' inputs.
const SEED: u64 = 0x5eed;

/// Requests the browser's GPU. Returns the device strings of all devices.
///
/// # Errors
/// The reason why the GPU is not available, thrown as an exception.
#[wasm_bindgen]
pub async fn open() -> std::result::Result<Vec<String>, JsError> {
    panoply::runtime::request_webgpu_device().await?;
    let devices = Device::list()?.into_iter().filter(|device| device.info().variant.is_none());
    Ok(devices.map(|device| device.device_string().to_string()).collect())
}

/// Returns the name and driver of a device.
///
/// # Errors
/// There is no such device.
#[wasm_bindgen]
pub fn describe(device: &str) -> std::result::Result<String, JsError> {
    let device = Device::get(device)?;
    let info = device.info();
    Ok(format!("{} ({})", info.name, info.driver))
}

/// Returns the names of the built-in kernels.
#[wasm_bindgen]
pub fn names() -> Vec<String> {
    kernels::ALL.iter().map(|builtin| builtin.name.to_string()).collect()
}

/// Runs a kernel on a device and checks its results. Returns a summary.
///
/// # Errors
/// The failed check, thrown as an exception.
#[wasm_bindgen]
pub async fn check(name: &str, device: &str) -> std::result::Result<String, JsError> {
    let mut verdicts = Vec::new();
    for size in [Size::Tiny, Size::Small] {
        let verdict = verdict(name, device, size).await?;
        if !verdict.passed() {
            return Err(JsError::new(&format!("{size:?}: {verdict}")));
        }
        verdicts.push(verdict.to_string());
    }
    Ok(verdicts.swap_remove(1))
}

/// Trains a network on the digits for a few steps and compares with another device. Returns a summary with the first
/// and the last loss.
///
/// # Errors
/// The first difference, thrown as an exception.
#[wasm_bindgen]
pub async fn train(device: &str) -> std::result::Result<String, JsError> {
    let device = Device::get(device)?;
    let oracle = oracle(&device)?;
    let steps = FirstSteps::run_async(&device).await?;
    let outcomes = steps.compare(&FirstSteps::run_async(&oracle).await?);
    if let Some(wrong) = outcomes.iter().find(|outcome| !outcome.passed()) {
        return Err(JsError::new(&format!("{} compared with {oracle}: {wrong}", wrong.name)));
    }
    let [losses, _] = outcomes;
    let (first, last) = (steps.losses[0], steps.losses[STEPS - 1]);
    Ok(format!("loss {first:.4} to {last:.4} in {STEPS} steps; compared with {oracle}: {losses}"))
}

/// Returns the error of a blocking read, which browsers do not allow.
///
/// # Errors
/// The read did not fail, or failed for another reason.
#[wasm_bindgen]
pub fn refusal(device: &str) -> std::result::Result<String, JsError> {
    let waited = Device::get(device)?.buffer(&[1.0f32])?.to_vec();
    match waited {
        Err(error) if error.is_unsupported() => Ok(error.message().to_string()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(JsError::new("the blocking read did not fail")),
    }
}

async fn verdict(name: &str, device: &str, size: Size) -> Result<kernels::CheckResult> {
    let builtin = kernels::find(name).ok_or_else(|| panoply::Error::mistake(format!("{name}: no such kernel")))?;
    builtin.check_async(&Device::get(device)?, size, SEED).await
}
