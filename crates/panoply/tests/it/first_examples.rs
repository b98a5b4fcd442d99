//! The first examples, which check what they compute, on every device.

#[path = "../../examples/02_work_groups.rs"]
mod groups;
#[path = "../../examples/03_mandelbrot.rs"]
mod mandelbrot;
#[path = "../../examples/01_saxpy.rs"]
mod saxpy;
#[path = "../../examples/04_builtin_kernels.rs"]
mod shipped;

#[test]
fn they_run_on_every_device() {
    let report = panoply::device_report().expect("the environment is in order");
    for device in report.devices() {
        for example in [saxpy::main, groups::main, mandelbrot::main] {
            device.scope(example).unwrap_or_else(|error| panic!("{device}: {error}"));
        }
    }
}

#[test]
fn the_shipped_kernels_are_right_everywhere() {
    shipped::main().expect("it visits all devices itself");
}
