//! The node test cases of the Python package `onnx`: expected outputs of every operator. They need a Python with `onnx`: the one named by
//! PANOPLY_TEST_PYTHON, or `python3`. The example `onnx_cases` lists the cases with the reasons.

use crate::support::onnx_cases::{self, Outcome};

/// Passing cases by the number of cases, which differs between versions of the package. A number may only grow.
const PASSING: &[(usize, usize)] = &[(1288, 0)];

/// Cases that pass if no version of the package is known, in percent.
const MIN_PERCENT: usize = 65;

#[test]
fn node_cases_pass() {
    let python = std::env::var("PANOPLY_TEST_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let Some(folder) = onnx_cases::folder(&python) else {
        eprintln!(
            "SKIPPED: node cases of ONNX: {python} has no package onnx with test data; set PANOPLY_TEST_PYTHON to another Python"
        );
        return;
    };
    let cases = onnx_cases::run(&folder, "", |_| ());
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| match &case.outcome {
            Outcome::Wrong(why) => Some(format!("{}: {why}", case.name)),
            Outcome::Passed | Outcome::Refused(_) => None,
        })
        .collect();
    assert!(wrong.is_empty(), "wrong results:\n{}", wrong.join("\n"));
    let passed = cases.iter().filter(|case| case.outcome == Outcome::Passed).count();
    let golden = PASSING.iter().find(|(count, _)| *count == cases.len());
    let least = golden.map_or(cases.len() * MIN_PERCENT / 100, |(_, passed)| *passed);
    assert!(passed >= least, "{passed} of {} cases pass, {least} are expected; run the example onnx_cases", cases.len());
}
