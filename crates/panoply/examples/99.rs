//! tmp
use panoply::kernels::{self, Size};
use panoply::prelude::*;
use std::time::Duration;
fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let device = Device::get(&args[1])?;
    let size = match args[2].as_str() {
        "t" => Size::Tiny,
        "s" => Size::Small,
        _ => Size::Large,
    };
    for shipped in kernels::ALL {
        if args.len() > 3 && args[3] != shipped.name {
            continue;
        }
        match shipped.run(&device, size, 1, Duration::from_millis(300)) {
            Ok(outcome) => println!(
                "  {:14} {:8.3} ms {:8.2} GB/s {:8.2} Gop/s {}",
                shipped.name,
                outcome.time.as_secs_f64() * 1e3,
                outcome.gigabytes_per_second(),
                outcome.gigaops_per_second(),
                outcome.verdict
            ),
            Err(e) => println!("{}: {e}", shipped.name),
        }
    }
    Ok(())
}
