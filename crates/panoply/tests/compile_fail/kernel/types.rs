//! rustc checks types and reports errors at the author's source.

use panoply::kernel;

#[kernel]
fn types(n: u32, x: &[f32], y: &mut [f32]) {
    let i = global_index();
    y[i] = n;
    let flag: bool = x[i];
    if n {
        y[i] = 1;
    }
    let half = if flag { 0.5 } else { n };
    y[i] = half.sqrt();
}

fn main() {}
