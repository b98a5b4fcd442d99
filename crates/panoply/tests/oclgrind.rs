//! The kernels that ship on oclgrind, which executes OpenCL work-item by work-item and logs what none of them may do: accesses out of bounds,
//! data races, reads of what nobody wrote, barriers that some miss.

#[path = "../../driver/tests/opencl/vendors.rs"]
mod vendors;

use panoply::kernels::{self, Size};
use panoply::{Device, Kind};

const SEED: u64 = 0x5eed;

/// Runs the kernels if another process asked for it; nothing by itself.
#[test]
fn child() {
    if vendors::job().is_none() {
        return;
    }
    let device = Device::get("opencl:0").expect("oclgrind is the one driver here");
    assert!(device.info().kind == Kind::OpenCl && device.info().name.contains("Oclgrind"), "{device}");
    for shipped in kernels::ALL {
        let started = std::time::Instant::now();
        let verdict = shipped.check(&device, Size::Tiny, SEED);
        let verdict = verdict.unwrap_or_else(|error| panic!("{}: {error}", shipped.name));
        assert!(verdict.passed(), "{}: {verdict}", shipped.name);
        println!("{}: {:.1?}", shipped.name, started.elapsed());
    }
}

#[test]
fn it_has_no_complaint_about_the_kernels_that_ship() {
    if let Some(log) = vendors::vendor("oclgrind").run("kernels", vendors::OCLGRIND) {
        vendors::assert_clean(&log);
        for shipped in kernels::ALL {
            assert!(log.contains(&format!("{}: ", shipped.name)), "{} did not run\n{log}", shipped.name);
        }
        println!("{log}");
    }
}
