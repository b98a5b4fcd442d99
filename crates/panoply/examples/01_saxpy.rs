//! A first kernel: write it, pick a device, launch it, read the result.
//!
//! `cargo run --example 01_saxpy`; `PANOPLY_DEVICE=cpu` chooses another device.

use panoply::prelude::*;

/// y += a x, one element for each work-item.
#[kernel]
fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
    let i = global_index();
    if i < y.len() {
        y[i] += a * x[i];
    }
}

/// Runs the kernel.
pub fn main() -> Result<()> {
    let device = Device::current()?;
    let x = device.buffer(&[1.0f32, 2.0, 3.0, 4.0])?;
    let mut y = device.buffer(&[10.0f32, 20.0, 30.0, 40.0])?;
    saxpy(0.5, &x, &mut y).launch(x.len())?;
    println!("{:?} on {device}", y.to_vec()?);
    assert_eq!(y.to_vec()?, [10.5, 21.0, 31.5, 42.0]);
    Ok(())
}
