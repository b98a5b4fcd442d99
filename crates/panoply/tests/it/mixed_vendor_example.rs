//! Runs the example of a model on several devices, which checks that it learns.

#[path = "../../examples/11_mixed_vendor_model.rs"]
mod example;

use panoply::Device;

#[test]
fn the_model_on_two_devices_learns() {
    Device::get("cpu").unwrap().scope(|| example::main().unwrap());
}
