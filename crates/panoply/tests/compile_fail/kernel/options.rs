//! Options of the attribute.

use panoply::kernel;

#[kernel(grup = 256)]
fn misspelt(y: &mut [f32]) {
    y[0] = 1.0;
}

#[kernel(group_size = (2, 2, 2, 2))]
fn four_axes(y: &mut [f32]) {
    y[0] = 1.0;
}

#[kernel]
struct NotAFunction;

#[kernel]
fn no_group(y: &mut [f32]) {
    y[0] = group_sum(1.0);
    barrier();
}

fn main() {}
