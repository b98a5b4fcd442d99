//! Runs the built-in kernels on every device, checks their results and measures their speed.

use std::time::Duration;

use panoply::kernels::{self, Size};
use panoply::prelude::*;

/// Runs all kernels on all devices.
pub fn main() -> Result<()> {
    // Variants, such as the checked CPU, are for debugging and not for speed.
    for device in Device::list()?.iter().filter(|device| device.info().variant.is_none()) {
        println!("{device}");
        for builtin in kernels::ALL {
            let outcome = builtin.run(device, Size::Small, 1, Duration::from_millis(50))?;
            let ms = outcome.time.as_secs_f64() * 1e3;
            println!("  {:14} {ms:8.3} ms {:8.2} GB/s  {}", builtin.name, outcome.gb_per_s(), outcome.verdict);
            assert!(outcome.verdict.passed(), "{} on {device}: {}", builtin.name, outcome.verdict);
        }
    }
    Ok(())
}
