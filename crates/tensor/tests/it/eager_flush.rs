//! Pending operations are evaluated automatically when there are too many of them.

use panoply_tensor::{Device, Tensor, jit, plan_cache_stats};

/// All parts run in one test, because the statistics are global to the process.
#[test]
fn long_pending_graphs_are_evaluated_in_equal_segments() {
    Device::get("cpu").expect("the CPU is always present").scope(|| {
        sums();
        gradients_of_a_sine();
        gradients_of_constants();
    });
}

/// Returns the number of plans compiled and of plans found in the cache during `work`.
fn counted<T>(work: impl FnOnce() -> T) -> (T, [u64; 2]) {
    let before = plan_cache_stats();
    let done = work();
    let after = plan_cache_stats();
    (done, [after.misses - before.misses, after.hits - before.hits])
}

/// Additions whose results are exact.
fn sums() {
    const STEPS: usize = 100_000;
    let start = Tensor::from_slice(&[0.0f32, 1.0], [2]);
    start.eval().expect("it is data");
    let (end, done) = counted(|| (0..STEPS).fold(start.clone(), |x, _| x + 1.0));
    assert_eq!(done, [1, 5], "six segments of 16384 nodes, planned once");
    assert_eq!(end.to_vec::<f32>().expect("it is computed"), [100_000.0, 100_001.0]);
    let gradient = end.sum(..).gradients(&[&start]).expect("a sum has a gradient");
    assert_eq!(gradient[0].to_vec::<f32>().expect("it is computed"), [1.0, 1.0]);

    // Inside a traced function nothing can be evaluated, which must be harmless.
    let long = jit(|[x]: [&Tensor; 1]| [(0..40_000).fold(x.clone(), |x, _| x + 1.0)]);
    let [sum] = long.call([&start]).expect("it is traced as a whole");
    assert_eq!(sum.to_vec::<f32>().expect("it is computed"), [40_000.0, 40_001.0]);
}

/// The backward pass visits every step again. Within a segment, where only the last step has a value, it recomputes all steps.
fn gradients_of_a_sine() {
    const STEPS: usize = 80_000;
    let start = Tensor::from_slice(&[0.5f64, 1.0], [2]);
    start.eval().expect("it is data");
    let (end, done) = counted(|| (0..STEPS).fold(start.clone(), |x, _| x.sin()));
    assert_eq!(done, [1, 3], "four segments of 16384 nodes, planned once");
    let (gradient, done) = counted(|| end.sum(..).gradients(&[&start]).expect("a sine has a gradient").remove(0));
    assert_eq!(done, [2, 3], "the end of the last segment, then four equal pieces of two segments, planned once");
    let (values, done) = counted(|| gradient.to_vec::<f64>().expect("it is computed"));
    assert_eq!(done, [1, 0], "the rest");
    for (have, start) in values.iter().zip([0.5f64, 1.0]) {
        let (_, want) = (0..STEPS).fold((start, 1.0), |(x, gradient), _| (x.sin(), gradient * x.cos()));
        assert!((have / want - 1.0).abs() < 1e-9, "{have}, expected {want}");
    }
}

/// Gradients with respect to constants are not requested, and nothing is evaluated for them.
fn gradients_of_constants() {
    const STEPS: usize = 40_000;
    let start = Tensor::from_slice(&[0.5f64, 1.0], [2]);
    start.eval().expect("it is data");
    let end = (0..STEPS).fold(start.clone(), |x, _| &x * 0.9999);
    let (gradient, done) = counted(|| end.sum(..).gradients(&[&start]).expect("a product has a gradient").remove(0));
    assert_eq!(done, [0, 0], "a product of scalars stays pending until it is read");
    let want = 0.9999f64.powi(STEPS as i32);
    for have in gradient.to_vec::<f64>().expect("it is computed") {
        assert!((have / want - 1.0).abs() < 1e-9, "{have}, expected {want}");
    }
}
