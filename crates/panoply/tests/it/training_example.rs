//! Runs the example of a custom model with a complete training loop on the CPU.

#[path = "../../examples/07_custom_training_loop.rs"]
mod example;

use panoply::Device;

#[test]
fn the_training_example_learns_stops_and_resumes() {
    Device::get("cpu").unwrap().scope(|| example::main().unwrap());
}
