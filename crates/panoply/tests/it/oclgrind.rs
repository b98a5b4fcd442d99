//! oclgrind executes OpenCL work-item by work-item. It logs errors that no built-in kernel may have: out-of-bounds
//! accesses, data races, reads of uninitialized memory, and barriers that some work-items miss. It is also one more
//! driver that must pass the conformance suite.

#[path = "../../../driver/tests/it/opencl/vendors.rs"]
mod vendors;

use std::sync::Arc;

use panoply::kernels::{self, Size};
use panoply::nn::conformance::first_steps;
use panoply::{Backend, Device, Result};
use panoply_compile::opt::{self, optimize};
use panoply_compile::render::{Options, render_with};
use panoply_device::conformance::{Case, Requirement, report, run_all};
use panoply_device::{Program, Signature, SourceText};
use panoply_driver::OpenClDriver;
use panoply_ir::kernel::Kernel;
use panoply_ir::{Target, Verified};

const SEED: u64 = 0x5eed;

/// Does the job that a parent process requests; does nothing by itself.
#[test]
fn child() {
    match vendors::job().as_deref() {
        None => {}
        Some("kernels") => kernels_that_ship(),
        Some("conformance") => conforms(),
        Some("training") => trains(),
        Some(job) => panic!("no job {job}"),
    }
}

#[test]
fn oclgrind_reports_no_errors_in_builtin_kernels() {
    if let Some(log) = vendors::vendor("oclgrind").run("kernels", vendors::OCLGRIND) {
        vendors::assert_clean(&log);
        for builtin in kernels::ALL {
            assert!(log.contains(&format!("{}: ", builtin.name)), "{} did not run\n{log}", builtin.name);
        }
        println!("{log}");
    }
}

#[test]
fn oclgrind_passes_the_conformance_suite() {
    if let Some(log) = vendors::vendor("oclgrind").run("conformance", &[]) {
        log.lines().filter(|line| line.contains("conformance of")).for_each(|line| println!("{line}"));
    }
}

/// A network that trains: gradients, and an optimizer that updates in place.
#[test]
fn a_network_trains_as_on_the_cpu() {
    // Uninitialized memory is not checked: oclgrind's check aborts at the instruction `freeze`, which it does not
    // support.
    if let Some(log) = vendors::vendor("oclgrind").run("training", &vendors::OCLGRIND[..1]) {
        vendors::assert_clean(&log);
        log.lines().filter(|line| line.contains("steps on the digits")).for_each(|line| println!("{line}"));
    }
}

fn trains() {
    let device = Device::get("opencl:0").expect("oclgrind is the only driver");
    let started = std::time::Instant::now();
    for outcome in first_steps(&device).unwrap() {
        assert!(outcome.passed(), "{}: {outcome}", outcome.name);
        println!("{}: {outcome} ({:.1?})", outcome.name, started.elapsed());
    }
}

fn kernels_that_ship() {
    let device = Device::get("opencl:0").expect("oclgrind is the only driver");
    assert!(device.info().kind == Backend::OpenCl && device.info().name.contains("Oclgrind"), "{device}");
    for builtin in kernels::ALL {
        let started = std::time::Instant::now();
        let verdict = builtin.check(&device, Size::Tiny, SEED);
        let verdict = verdict.unwrap_or_else(|error| panic!("{}: {error}", builtin.name));
        assert!(verdict.passed(), "{}: {verdict}", builtin.name);
        println!("{}: {:.1?}", builtin.name, started.elapsed());
    }
}

fn conforms() {
    // SAFETY: only `runtime` uses the devices, and it validates what it passes on.
    let device = unsafe { OpenClDriver::default().devices() }.expect("oclgrind is the only driver").swap_remove(0);
    let skip = |case: &Case| {
        let beyond = |need: &Requirement| match need {
            Requirement::Threads => Some("oclgrind is single-threaded".to_string()),
            Requirement::LargeMemory => Some("oclgrind keeps much shadow memory for every byte".to_string()),
            Requirement::Computing
            | Requirement::Groups
            | Requirement::Mma
            | Requirement::BoundsGuards
            | Requirement::Text => None,
        };
        case.needs.iter().find_map(beyond)
    };
    let outcomes: Vec<_> = run_all(&*device, &program, skip).collect();
    println!("{}", report(&*device, &outcomes).unwrap_or_else(|error| panic!("{error}")));
}

fn program(kernel: &Arc<Verified<Kernel>>, target: &Target) -> Result<Program> {
    let kernel = optimize((**kernel).clone(), target, &opt::Options::default());
    let text = render_with(&kernel, target, &Options { index_bits: 64 })?;
    let signature = Signature::of(&kernel, 64);
    Ok(Program::Text(SourceText { language: target.language, source: text.source, entry: text.entry, signature }))
}
