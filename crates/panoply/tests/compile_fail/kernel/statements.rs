//! Statements and expressions that are not allowed in a kernel.

use panoply::kernel;

struct Point {
    x: f32,
}

#[kernel]
fn statements(n: u32, x: &[f32], y: &mut [f32]) {
    let kind = match n {
        0 => 1.0,
        _ => 2.0,
    };
    let late;
    let point = Point { x: kind };
    y[0] = point.x;
    unsafe { y[1] = 2.0 };
    let double = |v: f32| v * 2.0;
    'outer: for i in 0..=n {
        break 'outer;
    }
    if let Some(v) = x.first() {
        y[2] = v?;
    }
    fn inner() {}
    late = 1.0;
    #[cfg(unix)]
    let portable = 1.0;
}

fn main() {}
