//! Macros.

use panoply::kernel;

#[kernel]
fn macros(y: &mut [f32]) {
    println!("{}", y[0]);
    assert!(y[0] > 0.0);
    let table = vec![1.0; 4];
    y[0] = table[0];
}

fn main() {}
