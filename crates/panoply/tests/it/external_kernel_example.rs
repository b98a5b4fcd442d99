//! Runs the example of an external kernel on every device.

#[path = "../../examples/06_external_kernel.rs"]
mod example;

#[test]
fn the_example_runs_on_every_device() {
    let report = panoply::device_report().expect("the environment variables are valid");
    for device in report.devices() {
        device.scope(example::main).unwrap_or_else(|error| panic!("{device}: {error}"));
    }
}
