//! The test cases of the Python package `onnx`: expected outputs of every operator and of PyTorch's exporter. They need a Python interpreter with
//! `onnx`: the one named by PANOPLY_TEST_PYTHON, or `python3`. The example `onnx_cases` lists the cases with the reasons.

use std::path::Path;

use crate::support::onnx_cases::{self, Outcome};

/// Folder, number of all cases, which differs between versions of the package, and number of passing cases, which may only grow.
const PASSING: &[(&str, usize, usize)] =
    &[("node", 1288, 1111), ("node", 1653, 1381), ("pytorch-converted", 82, 82), ("pytorch-operator", 35, 35)];

/// Cases that pass if the version of the package is not known, in percent.
const MIN_PERCENT: usize = 80;

/// Cases whose expected outputs contradict the specification in some versions of the package.
const DISPUTED: &[(&str, &str)] = &[
    ("test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True", "corrected in 1.20"),
    ("test_cast_FLOAT_to_BFLOAT16", "truncated instead of rounded; corrected in 1.20"),
    ("test_castlike_FLOAT_to_BFLOAT16", "as above"),
    ("test_castlike_FLOAT_to_BFLOAT16_expanded", "as above"),
    ("test_l2normalization_axis_0", "NaN in 1.20; the specification says 0 if the norm is 0"),
    ("test_qlinearmatmul_2D_int8_float16", "wraps around; the specification says that it saturates"),
    ("test_qlinearmatmul_2D_int8_float32", "as above"),
    ("test_qlinearmatmul_3D_int8_float16", "as above"),
    ("test_qlinearmatmul_3D_int8_float32", "as above"),
];

#[test]
fn node_cases_pass() {
    let python = std::env::var("PANOPLY_TEST_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let Some(nodes) = onnx_cases::folder(&python) else {
        eprintln!(
            "SKIPPED: cases of ONNX operators: {python} has no package onnx with test data; set PANOPLY_TEST_PYTHON to another Python"
        );
        return;
    };
    ["node", "pytorch-converted", "pytorch-operator"].iter().for_each(|name| check(name, &nodes.with_file_name(name)));
}

/// Checks that no case of a folder is wrong and that enough pass.
fn check(name: &str, folder: &Path) {
    let cases = onnx_cases::run(folder, "", |_| ());
    let wrong = cases.iter().filter_map(|case| match &case.outcome {
        Outcome::Wrong(_) if DISPUTED.iter().any(|(name, _)| *name == case.name) => None,
        Outcome::Wrong(why) => Some(format!("{}: {why}", case.name)),
        Outcome::Passed | Outcome::Refused(_) => None,
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "wrong results:\n{}", wrong.join("\n"));
    let passed = cases.iter().filter(|case| case.outcome == Outcome::Passed).count();
    let golden = PASSING.iter().find(|(folder, count, _)| *folder == name && *count == cases.len());
    let least = golden.map_or(cases.len() * MIN_PERCENT / 100, |(.., passed)| *passed);
    assert!(
        passed >= least,
        "{passed} of {} cases in {name} pass, {least} are expected; run the example onnx_cases",
        cases.len()
    );
}
