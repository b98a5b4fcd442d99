//! What the page calls: the devices of a browser, the kernels that ship, and the first steps of a training, checked on each.
//!
//! The page decides what is shown, and knows nothing of devices; this knows nothing of the page. On other machines than browsers there is
//! nothing in it.

#![forbid(unsafe_code)]
#![cfg(target_family = "wasm")]

use panoply::kernels::{self, Size};
use panoply::nn::conformance::{FirstSteps, STEPS, oracle};
use panoply::{Device, Result};
use wasm_bindgen::prelude::*;

/// Determines the inputs of the kernels.
const SEED: u64 = 0x5eed;

/// Asks the browser for its GPU. Gives the devices that there are then, as a user spells them, and throws why the GPU is not among them.
#[wasm_bindgen]
pub async fn open() -> std::result::Result<Vec<String>, JsError> {
    panoply::runtime::request_webgpu_device().await?;
    let devices = Device::list()?.into_iter().filter(|device| device.info().variant.is_none());
    Ok(devices.map(|device| device.device_string().to_string()).collect())
}

/// What a device says about itself.
#[wasm_bindgen]
pub fn describe(device: &str) -> std::result::Result<String, JsError> {
    let device = Device::get(device)?;
    let info = device.info();
    Ok(format!("{} ({})", info.name, info.driver))
}

/// The kernels that ship.
#[wasm_bindgen]
pub fn names() -> Vec<String> {
    kernels::ALL.iter().map(|shipped| shipped.name.to_string()).collect()
}

/// Runs a kernel on a device. Gives what came of it, and throws what is wrong.
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

/// Trains a network on the digits for a few steps. Gives the first loss and the last, and throws where they differ from another device's.
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

/// What a device says to a program that waits for it, which no browser allows; throws if it did not refuse.
#[wasm_bindgen]
pub fn refusal(device: &str) -> std::result::Result<String, JsError> {
    let waited = Device::get(device)?.buffer(&[1.0f32])?.to_vec();
    match waited {
        Err(error) if error.is_unsupported() => Ok(error.message().to_string()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(JsError::new("it waited")),
    }
}

async fn verdict(name: &str, device: &str, size: Size) -> Result<kernels::CheckResult> {
    let shipped = kernels::find(name).ok_or_else(|| panoply::Error::mistake(format!("{name}: no such kernel")))?;
    shipped.check_async(&Device::get(device)?, size, SEED).await
}
