//! Two queues of a device compute products at the same time, each with a workspace.

use panoply::{Buffer, Device};
use panoply_driver_sim::Control;

use super::{DEEP, buffers, work};

/// Checks the number of workspaces that are allocated, and by which function.
pub fn two_queues(device: &Device, function: &str, allocates: &str, workspaces: u64) {
    let control = Control::open();
    let queues = [device.default_queue(), device.queue().unwrap()];
    let runs: Vec<[Buffer<f32>; 3]> = (0..6).map(|_| buffers(device)).collect();
    let before = control.calls(allocates);
    for (buffers, queue) in runs.iter().zip(queues.iter().cycle()) {
        device.submit_to(queue, &[work(buffers)]).unwrap();
    }
    let first = runs[0][2].to_vec().unwrap();
    let (a, b) = (runs[0][0].to_vec().unwrap(), runs[0][1].to_vec().unwrap());
    let sum =
        |i: usize| (0..DEEP.k).map(|p| f64::from(a[i / 3 * DEEP.k + p]) * f64::from(b[p * 3 + i % 3])).sum::<f64>();
    assert!((0..15).all(|i| (sum(i) - f64::from(first[i])).abs() < 1e-4), "{first:?}");
    runs.iter().for_each(|run| assert_eq!(run[2].to_vec().unwrap(), first, "the same bits in every run"));
    assert_eq!((control.calls(function), control.calls(allocates) - before), (6, workspaces));
}
