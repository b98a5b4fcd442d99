//! Tests of the suite on the null device, and on devices with injected failures.

use super::*;
use crate::null::{InjectedFailure, NullDevice};
use crate::program::{Signature, SourceText};

/// Returns source text that only names the kernel, which suffices for the null device.
fn render(kernel: &Arc<Verified<Kernel>>, target: &Target) -> Result<Program> {
    Ok(match target.language {
        panoply_ir::target::Language::Ir => Program::Ir(kernel.clone()),
        language => Program::Text(SourceText {
            language,
            source: kernel.name.clone(),
            entry: kernel.name.clone(),
            signature: Signature::of(kernel, 64),
        }),
    })
}

fn computes_nothing(case: &Case) -> Option<String> {
    case.needs.contains(&Requirement::Computing).then(|| "the null device computes nothing".to_string())
}

#[test]
fn case_names_are_unique() {
    let mut names: Vec<_> = cases().iter().map(|case| case.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases().len());
}

#[test]
fn null_device_passes_cases_without_computing() {
    for target in [Target::cpu(), Target::opencl_minimum()] {
        let device = NullDevice::new(target);
        let outcomes: Vec<_> = run_all(&device, &render, computes_nothing).collect();
        let report = report(&device, &outcomes).unwrap();
        assert!(
            report.contains("SKIPPED: conformance of") && report.contains("the null device computes nothing"),
            "{report}"
        );
        let passed = outcomes.iter().filter(|outcome| matches!(outcome.verdict, CaseResult::Passed)).count();
        assert!(passed >= 12, "{report}");
        let counts = device.counts();
        assert_eq!((counts.allocations, counts.bytes, counts.programs), (0, 0, 0), "the suite releases everything");
    }
}

/// Checks that no case passes vacuously: the null device fails every case that needs computing.
#[test]
fn cases_that_need_computing_fail_without_it() {
    let device = NullDevice::new(Target::opencl_minimum());
    // The null device supports no routine, and its work is complete before any empty submission.
    let excused = ["supported routines are correct", "an empty submission completes after earlier ones"];
    let skip =
        |case: &Case| (!case.needs.contains(&Requirement::Computing) || excused.contains(&case.name)).then(String::new);
    for outcome in run_all(&device, &render, skip) {
        assert!(!matches!(outcome.verdict, CaseResult::Passed), "{outcome:?}");
    }
}

#[test]
fn report_lists_every_failure() {
    let device = NullDevice::new(Target::cpu());
    device.fail(InjectedFailure::Allocation { after: 3 });
    let outcomes: Vec<_> = run_all(&device, &render, computes_nothing).collect();
    let error = report(&device, &outcomes).unwrap_err();
    assert!(error.message().contains("fails 1 of"), "{error}");
    assert!(error.notes()[0].contains("allocations of any size are disjoint: out of memory"), "{error}");
}
