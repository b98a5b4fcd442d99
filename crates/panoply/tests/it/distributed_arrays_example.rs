//! Runs the example of distributed arrays, which checks its own results, on the CPU.

#[path = "../../examples/09_distributed_arrays.rs"]
mod example;

use panoply::Device;

#[test]
fn the_distributed_arrays_example_is_right() {
    Device::get("cpu").unwrap().scope(|| example::main().unwrap());
}
