//! Allocation and iterators.

use panoply::kernel;

#[kernel]
fn grow(x: &[f32], y: &mut [f32]) {
    let mut kept = Vec::new();
    kept.push(x[0]);
    y[0] = x.iter().sum();
    for v in x {
        y[1] += *v;
    }
}

fn main() {}
