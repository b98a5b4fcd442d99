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
    assert!(refusal.contains("nothing is called nothing; one of ") && refusal.contains("prefix_scan"), "{refusal}");
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
