//! Runs the first examples, which check their own results, on every device.

#[path = "../../examples/04_builtin_kernels.rs"]
mod builtin;
#[path = "../../examples/02_work_groups.rs"]
mod groups;
#[path = "../../examples/03_mandelbrot.rs"]
mod mandelbrot;
#[path = "../../examples/01_saxpy.rs"]
mod saxpy;

#[test]
fn the_examples_run_on_every_device() {
    let report = panoply::device_report().expect("the environment variables are valid");
    for device in report.devices() {
        for example in [saxpy::main, groups::main, mandelbrot::main] {
            device.scope(example).unwrap_or_else(|error| panic!("{device}: {error}"));
        }
    }
}

#[test]
fn the_builtin_kernels_are_right_on_every_device() {
    builtin::main().expect("the example runs on all devices");
}
