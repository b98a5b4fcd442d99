//! Runs the example of data-parallel training, which checks its own results, on the CPU.

#[path = "../../examples/10_data_parallel.rs"]
mod example;

use panoply::Device;

#[test]
fn the_data_parallel_example_learns_the_same_as_one_process() {
    Device::get("cpu").unwrap().scope(|| example::main().unwrap());
}
