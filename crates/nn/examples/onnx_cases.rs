//! Runs the node test cases of the Python package `onnx` and prints the failed and refused ones with the reason, then the totals:
//!
//! ```sh
//! cargo run -p panoply-nn --example onnx_cases -- FOLDER [FILTER] [--json FILE]
//! ```
//!
//! FOLDER is `onnx/backend/test/data/node` of the package. Only cases whose name contains FILTER are run. FILE gets a JSON list.

#[path = "../tests/it/support/onnx_cases.rs"]
mod onnx_cases;

use std::path::Path;

use onnx_cases::{Case, Outcome};

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().position(|argument| argument == "--json").map(|at| arguments.drain(at..).nth(1));
    let python = std::env::var("PANOPLY_TEST_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let folder = arguments.first().map(Path::new).map(Path::to_path_buf).or_else(|| onnx_cases::folder(&python));
    let Some(folder) = folder else {
        eprintln!("usage: onnx_cases FOLDER [FILTER] [--json FILE]");
        std::process::exit(2);
    };
    let filter = arguments.get(1).map_or("", String::as_str);
    let cases = onnx_cases::run(&folder, filter, |_| ());
    print(&cases);
    if let Some(Some(path)) = json {
        let list = cases.iter().map(|case| {
            let (outcome, reason) = described(case);
            serde_json::json!({ "name": case.name, "outcome": outcome, "reason": reason })
        });
        let text = serde_json::to_string_pretty(&list.collect::<Vec<_>>()).expect("a list of texts is JSON");
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}

fn described(case: &Case) -> (&'static str, &str) {
    match &case.outcome {
        Outcome::Passed => ("passed", ""),
        Outcome::Refused(reason) => ("refused", reason),
        Outcome::Wrong(reason) => ("wrong", reason),
    }
}

/// Prints wrong values first, because they are worse than refusals.
fn print(cases: &[Case]) {
    let of = |kind: &'static str| cases.iter().filter(move |case| described(case).0 == kind);
    for kind in ["wrong", "refused"] {
        of(kind).for_each(|case| println!("{kind:8} {}: {}", case.name, described(case).1));
    }
    let [passed, refused, wrong] = ["passed", "refused", "wrong"].map(|kind| of(kind).count());
    println!("{} cases: {passed} passed, {refused} refused, {wrong} wrong", cases.len());
}
