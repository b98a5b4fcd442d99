//! The example of a model of one's own with all that belongs to training, on the CPU.

#[path = "../../examples/07_custom_training_loop.rs"]
mod example;

use panoply::Device;

#[test]
fn the_example_of_training_learns_stops_and_goes_on() {
    Device::get("cpu").unwrap().scope(|| example::main().unwrap());
}
