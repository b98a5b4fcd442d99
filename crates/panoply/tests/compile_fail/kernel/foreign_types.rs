//! Types that devices do not have.

use panoply::kernel;

#[kernel]
fn foreign(x: &[f32], y: &mut [f64]) {
    let count = 5isize;
    y[count as usize] = x[0] as f64;
    atomic_add(&mut y[0], 1.0);
}

fn main() {}
