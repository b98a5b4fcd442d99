//! What a kernel writes is borrowed by nobody else.

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
