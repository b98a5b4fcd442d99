//! A kernel and a tensor expression on the best device of this machine.

use panoply::Rng;
use panoply::prelude::*;

/// y += a x, once for each element.
#[kernel]
fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
    let i = global_index();
    if i < y.len() {
        y[i] += a * x[i];
    }
}

fn main() -> Result<()> {
    let device = Device::auto()?;
    println!("device: {device} ({})", device.info().name);

    let x = device.buffer(&[1.0f32, 2.0, 3.0])?;
    let mut y = device.buffer(&[0.5f32, 0.5, 0.5])?;
    saxpy(2.0, &x, &mut y).launch(3)?;
    println!("2 x + y = {:?}", y.to_vec()?);

    let mut rng = Rng::seed_from_u64(0);
    let (input, weight) = (rng.normal([2, 8]), rng.normal([8, 3]));
    let probabilities = input.matmul(&weight).softmax(-1);
    println!("probabilities = {:?}", probabilities.to_vec::<f32>()?);
    Ok(())
}
