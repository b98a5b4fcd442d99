//! Work that nobody asks for is done all the same when too much of it waits.

use panoply_tensor::{Device, Tensor, capture, plan_counts};

/// Additions of numbers that are exact, in one process alone: the counts are the process's.
#[test]
fn what_waits_too_long_is_computed_in_equal_stretches() {
    const STEPS: usize = 100_000;
    let device = Device::get("cpu").expect("the CPU is there");
    device.scope(|| {
        let start = Tensor::from_slice(&[0.0f32, 1.0], [2]);
        start.eval().expect("it is data");
        let before = plan_counts();
        let end = (0..STEPS).fold(start.clone(), |x, _| x + 1.0);
        let after = plan_counts();
        let done = (after.plans - before.plans, after.hits - before.hits);
        assert_eq!(done, (1, 5), "six stretches of 16384 nodes, planned once");
        assert_eq!(end.to_vec::<f32>().expect("it is computed"), [100_000.0, 100_001.0]);
        let slope = end.sum(..).gradients(&[&start]).expect("a sum has a gradient");
        assert_eq!(slope[0].to_vec::<f32>().expect("it is computed"), [1.0, 1.0]);

        // Nothing can be computed where the function is traced, and no harm is done by that.
        let long = capture(|[x]: [&Tensor; 1]| [(0..40_000).fold(x.clone(), |x, _| x + 1.0)]);
        let [sum] = long.run([&start]).expect("it is traced whole");
        assert_eq!(sum.to_vec::<f32>().expect("it is computed"), [40_000.0, 40_001.0]);
    });
}
