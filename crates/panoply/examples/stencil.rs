//! The heat equation on a square, by a five-point stencil, compared with its exact solution.
//!
//! `cargo run --release --example stencil`

use std::f64::consts::PI;

use panoply::prelude::*;

const SIZE: usize = 64;
const STEPS: usize = 1000;

/// Computes one explicit Euler step at the inner points; those of the boundary stay 0.
#[kernel]
fn heat_step(u: &[f32], next: &mut [f32], size: usize, rate: f32) {
    let (column, row) = (global_id(0), global_id(1));
    if row > 0 && row < size - 1 && column > 0 && column < size - 1 {
        let i = row * size + column;
        next[i] = u[i] + rate * (u[i - 1] + u[i + 1] + u[i - size] + u[i + size] - 4.0 * u[i]);
    }
}

/// Runs the steps and compares with the exact solution.
pub fn main() -> Result<()> {
    let (device, rate) = (Device::current()?, 0.2);
    let wave = |i: usize| (PI * i as f64 / (SIZE - 1) as f64).sin();
    let start: Vec<f32> = (0..SIZE * SIZE).map(|i| (wave(i / SIZE) * wave(i % SIZE)) as f32).collect();
    let mut u = device.buffer(&start)?;
    let mut next = device.zeros(SIZE * SIZE)?;
    for _ in 0..STEPS {
        heat_step(&u, &mut next, SIZE, rate).launch((SIZE, SIZE))?;
        std::mem::swap(&mut u, &mut next);
    }
    // Each step multiplies this wave by the same number.
    let decay = (1.0 - 8.0 * f64::from(rate) * (PI / (2 * (SIZE - 1)) as f64).sin().powi(2)).powi(STEPS as i32);
    let errors = u.to_vec()?.into_iter().zip(&start).map(|(u, start)| (f64::from(u) - f64::from(*start) * decay).abs());
    let error = errors.fold(0.0, f64::max);
    println!("after {STEPS} steps the wave has {decay:.4} of its height; largest error {error:.1e} on {device}");
    assert!(error < 1e-4, "the stencil is wrong");
    Ok(())
}
