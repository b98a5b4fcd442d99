//! Parameters and results.

use panoply::{kernel, kernel_fn};

#[kernel]
fn parameters<'a>(v: Vec<f32>, x: &'a [f32], r: &f32, (a, b): (u32, u32), y: &mut [f32]) {
    y[0] = x[0];
}

#[kernel]
async fn result(x: &[f32]) -> f32 {
    x[0]
}

#[kernel_fn]
fn takes_an_array(x: [f32; 4]) -> f32 {
    x[0]
}

fn main() {
    // Callers of a rejected kernel get no further errors.
    let _ = result::build();
}
