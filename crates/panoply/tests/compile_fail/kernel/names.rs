//! Names that do not exist, reported once.

use panoply::kernel;

#[kernel]
fn names(x: &[f32], y: &mut [f32]) {
    y[global_index()] = x[0] * SCALE + missing + unknown(x[0]);
}

fn main() {}
