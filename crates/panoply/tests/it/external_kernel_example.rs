//! The example of a kernel in the devices' own languages, on every device here.

#[path = "../../examples/06_external_kernel.rs"]
mod example;

#[test]
fn the_example_runs_on_every_device() {
    let report = panoply::device_report().expect("the environment is in order");
    for device in report.devices() {
        device.scope(example::main).unwrap_or_else(|error| panic!("{device}: {error}"));
    }
}
