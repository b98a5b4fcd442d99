//! A function that is not marked cannot be inlined.

use panoply::kernel;

fn plain(x: f32) -> f32 {
    x
}

#[kernel]
fn calls(y: &mut [f32]) {
    y[0] = plain(y[1]);
}

fn main() {}
