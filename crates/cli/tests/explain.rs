//! `panoply explain`: which stages there are of what, and what it says where there are none.

mod place;

use std::process::Command;

use place::Place;
use serde_json::Value;

fn titles(document: &Value) -> Vec<String> {
    document["stages"].as_array().unwrap().iter().map(|stage| stage["title"].as_str().unwrap().to_string()).collect()
}

#[test]
fn a_program_is_all_its_kernels() {
    let place = Place::new("explain");
    let rust = place.json(&["explain", "prefix_scan", "--stage", "rust"]);
    assert!(titles(&rust).len() > 1, "{rust}");
    for stage in rust["stages"].as_array().unwrap() {
        let name = stage["title"].as_str().unwrap().trim_end_matches(": Rust");
        assert!(stage["text"].as_str().unwrap().contains(&format!("fn {name}")), "{stage}");
    }
}

#[test]
fn a_stage_that_is_not_there_is_named() {
    let place = Place::new("explain-stage");
    let refusal = place.refused(&["explain", "saxpy", "--stage", "graph"]);
    assert!(refusal.contains("saxpy has no stage graph; it has rust, ir, passes, optimised, device"), "{refusal}");
    let refusal = place.refused(&["explain", "relu", "--stage", "rust"]);
    assert!(refusal.contains("relu has no stage rust; it has graph, schedule, plan"), "{refusal}");
    let refusal = place.refused(&["explain", "nothing"]);
    assert!(
        refusal.contains("nothing is called nothing; give an expression, as `relu(x)`, or one of ")
            && refusal.contains("prefix_scan"),
        "{refusal}"
    );
}

fn text(document: &Value, stage: &str) -> String {
    let mut stages = document["stages"].as_array().unwrap().iter();
    stages.find(|found| found["stage"] == stage).unwrap()["text"].as_str().unwrap().to_string()
}

#[test]
fn an_expression_is_explained_however_it_is_written() {
    let place = Place::new("explain-expression");
    let of = |text: &str| place.json(&["explain", text, "--shape", "x=64x784,w=784x128,b=128"]);
    let (python, rust) = (of("softmax(x @ w + b)"), of("(x.matmul(&w) + &b).softmax(-1)"));
    assert_eq!(python["stages"], rust["stages"]);
    // The example is the same, made by the library's own methods.
    let (example, graph) = (place.json(&["explain", "dense"]), text(&python, "graph"));
    let (names, steps) = graph.split_at(graph.find("%0").unwrap());
    assert_eq!(names, "leaf 0 is x, f32[64, 784]\nleaf 1 is w, f32[784, 128]\nleaf 2 is b, f32[128]\n");
    assert_eq!(steps, text(&example, "graph"));
    assert_eq!(text(&python, "device"), text(&example, "device"));

    let graph = |text_: &str| text(&place.json(&["explain", text_, "--stage", "graph"]), "graph");
    assert_eq!(graph("2 * -x + 1 / y - 1e-3"), graph("((2.0) * (-(x))) + (1 / y) - 0.001"));
    assert_ne!(graph("x - (y - x)"), graph("x - y - x"));
    assert_eq!(graph("sum(x.exp(), 0) + mean(y, ..)"), graph("x.exp().sum(-2) + y.mean()"));
    assert!(graph("gradient(sum(tanh(x @ w)), w)").contains("matmul"));
}

#[test]
fn a_mistake_in_an_expression_names_its_column() {
    let place = Place::new("explain-mistakes");
    let brackets = "(".repeat(1000);
    for (text, part) in [
        ("softmax(x @ )", "column 13 of `softmax(x @ )`: `)` begins no tensor and no number"),
        ("x +", "column 4 of `x +`: a tensor or a number is missing"),
        ("(x + y", "column 1 of `(x + y`: this bracket is not closed"),
        ("relu(x", "column 5 of `relu(x`: this bracket is not closed"),
        ("é + softmx(x)", "column 5 of `é + softmx(x)`: no operation is called `softmx`; one of abs, "),
        ("softmax(x, 0.5)", "softmax takes a whole axis"),
        ("relu(x, y)", "column 1 of `relu(x, y)`: relu takes one tensor"),
        ("matmul(x, 2)", "matmul takes two tensors"),
        ("x.relu + y", "column 3 of `x.relu + y`: after a dot stands an operation with brackets"),
        ("x ^ y", "column 3 of `x ^ y`: `^` does not go on with what stands before it"),
        ("1 + 2", "there is no tensor in this"),
        ("1 @ x", "column 3 of `1 @ x`: `@` is not between tensors"),
        ("1..2 + x", "column 1 of `1..2 + x`: `1..2` is no number"),
        ("1.2.3 + x", "column 1 of `1.2.3 + x`: `1.2.3` is no number"),
        ("x.sum(7)", "column 3 of `x.sum(7)`: sum: axis 7 is out of range for [64, 64] with 2 axes"),
        ("gradient(x, x)", "is not a single number"),
        ("x @ w.sum(0).sum(0)", "column 3 of "),
        (brackets.as_str(), "more than 64 brackets and signs are within each other"),
    ] {
        let refusal = place.refused(&["explain", text]);
        assert!(refusal.contains(part), "{text}: {refusal}");
        assert!(!refusal.contains(".rs:"), "{text}: {refusal}");
    }
    let refusal = place.refused(&["explain", "x @ w", "--shape", "x=64x3,w=4x5"]);
    assert!(refusal.contains("column 3 of `x @ w`: matmul: inner dimensions 3 and 4 differ"), "{refusal}");
    let refusal = place.refused(&["explain", "x + y", "--shape", "z=3"]);
    assert!(refusal.contains("--shape is of z, which `x + y` does not name"), "{refusal}");
    for shape in ["x", "x=3y4", "x=-1"] {
        let refusal = place.refused(&["explain", "x + y", "--shape", shape]);
        assert!(refusal.contains("is not a name and lengths, such as x=64x128"), "{refusal}");
    }
    let refusal = place.refused(&["explain", "relu", "--shape", "x=3"]);
    assert!(refusal.contains("relu has shapes of its own"), "{refusal}");
}

#[test]
fn the_checked_device_runs_what_was_built() {
    let stages = |device: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_panoply"))
            .args(["explain", "saxpy", "--json", "--device", device])
            .output()
            .unwrap();
        titles(&serde_json::from_slice(&output.stdout).unwrap())
    };
    assert_eq!(stages("cpu:checked"), ["saxpy: Rust", "saxpy: kernel IR", "saxpy: no text"]);
    assert!(stages("cpu").iter().any(|title| title.contains("vector program")));
}
