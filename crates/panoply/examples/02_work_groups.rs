//! Work-items that cooperate: a sum over each group, first with shared memory and a barrier, then with one collective
//! call.

use panoply::prelude::*;

const GROUP: usize = 64;

/// Computes one sum for each group by a tree reduction in shared memory.
#[kernel(group_size = GROUP)]
fn sum_by_hand(x: &[f32], sums: &mut [f32]) {
    let mut part = shared::<f32>(GROUP);
    let local = local_index();
    let i = global_index();
    part[local] = if i < x.len() { x[i] } else { 0.0 }; // the last group extends beyond the end
    barrier();
    let mut half = GROUP / 2;
    while half > 0 {
        if local < half {
            part[local] += part[local + half];
        }
        barrier();
        half /= 2;
    }
    if local == 0 {
        sums[group_id(0)] = part[0];
    }
}

/// Does the same with a collective, for any number type.
#[kernel(group_size = GROUP)]
fn sum_by_call<T: panoply::kernel::Number>(x: &[T], sums: &mut [T]) {
    let i = global_index();
    let sum = group_sum(if i < x.len() { x[i] } else { T::ZERO });
    if local_index() == 0 {
        sums[group_id(0)] = sum;
    }
}

/// Runs both kernels.
pub fn main() -> Result<()> {
    let device = Device::current()?;
    let numbers: Vec<f32> = (0..200).map(|i| i as f32).collect();
    let x = device.buffer(&numbers)?;
    let mut sums = device.zeros::<f32>(numbers.len().div_ceil(GROUP))?;
    sum_by_hand(&x, &mut sums).launch(x.len())?;
    let by_hand = sums.to_vec()?;
    println!("by hand {by_hand:?} on {device}");
    sum_by_call(&x, &mut sums).launch(x.len())?;
    println!("by call {:?}", sums.to_vec()?);
    // Small integers: their sums are exact in any order.
    let right: Vec<f32> = numbers.chunks(GROUP).map(|part| part.iter().sum()).collect();
    assert_eq!((by_hand, sums.to_vec()?), (right.clone(), right));
    Ok(())
}
