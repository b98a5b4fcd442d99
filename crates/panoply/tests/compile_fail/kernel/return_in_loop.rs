//! `return` inside a loop of an inlined function.

use panoply::kernel_fn;

#[kernel_fn]
fn find(x: &[f32], wanted: f32) -> u32 {
    for i in 0..x.len() {
        if x[i] == wanted {
            return i as u32;
        }
    }
    0
}

fn main() {}
