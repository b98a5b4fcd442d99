//! A two-dimensional launch, and a function that is called from a kernel and from the host.

use panoply::prelude::*;

/// Returns the number of iterations of z² + c until |z| exceeds 2.
#[kernel_fn]
fn escape(re: f32, im: f32, most: u32) -> u32 {
    let mut x = 0.0;
    let mut y = 0.0;
    let mut turns = 0;
    while turns < most && x * x + y * y <= 4.0 {
        let next = x * x - y * y + re;
        y = 2.0 * x * y + im;
        x = next;
        turns += 1;
    }
    turns
}

#[kernel]
fn picture(turns: &mut [u32], width: usize, height: usize) {
    let (column, row) = (global_id(0), global_id(1));
    let re = column as f32 / width as f32 * 3.0 - 2.0;
    let im = row as f32 / height as f32 * 2.4 - 1.2;
    turns[row * width + column] = escape(re, im, 100);
}

/// Runs the kernel and prints the result.
pub fn main() -> Result<()> {
    let (width, height) = (72, 24);
    let device = Device::current()?;
    let mut turns = device.zeros::<u32>(width * height)?;
    picture(&mut turns, width, height).launch((width, height))?;
    for row in turns.to_vec()?.chunks(width) {
        let line: String = row.iter().map(|&turns| b" .:-=+*#%@"[(turns.min(99) / 10) as usize] as char).collect();
        println!("{line}");
    }
    // On the host, it is an ordinary function.
    assert_eq!((escape(0.0, 0.0, 100), escape(2.0, 2.0, 100)), (100, 1));
    // 0 + 0i is at column 48 and row 12; 0.96 + 0.2i is far outside.
    assert_eq!((turns.to_vec()?[12 * width + 48], turns.to_vec()?[14 * width + 71] < 5), (100, true));
    Ok(())
}
