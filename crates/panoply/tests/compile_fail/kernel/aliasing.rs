//! A buffer that a kernel writes cannot be borrowed by another argument.

use panoply::{Buffer, Result, kernel};

#[kernel]
fn add(x: &[f32], y: &mut [f32]) {
    let i = global_index();
    y[i] += x[i];
}

fn twice(y: &mut Buffer<f32>) -> Result<()> {
    add(y, y).launch(3)
}

fn main() {}
