//! Mutability follows Rust's rules.

use panoply::kernel;

#[kernel]
fn writing(a: f32, x: &[f32], y: &mut [f32]) {
    let sum = 0.0;
    sum += a;
    x[0] = sum;
    y[0] = a;
}

fn main() {}
