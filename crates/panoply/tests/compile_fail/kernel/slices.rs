//! Slices and arrays are indexed, and their lengths are fixed.

use panoply::{kernel, kernel_fn};

#[kernel_fn]
fn first(x: &[f32]) -> f32 {
    x[0]
}

#[kernel(group_size = 8)]
fn slices(n: usize, x: &[f32], y: &mut [f32]) {
    let tile = shared::<f32>(n);
    let array = [1.0; 4];
    let copy = array;
    y[0] = first(&x[1..]);
    let both = x + y;
    atomic_add(y[0], 1.0);
    let axis = global_id(n);
}

fn main() {}
