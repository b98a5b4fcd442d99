//! `panoply report`, on the checked CPU device and on a simulated NVIDIA driver with one wrong kernel.

use std::process::{Command, Output};

use crate::support::temp_dir::{TempDir, text};
use serde_json::Value;

/// Runs `panoply report` with a simulated driver, whose settings are `choices`.
#[cfg(target_os = "linux")]
fn simulated(dir: &TempDir, choices: &str) -> Output {
    let library = dir.0.join("libcuda.so.1");
    if !library.exists() {
        std::os::unix::fs::symlink(panoply_driver_sim::library(), library).unwrap();
    }
    Command::new(env!("CARGO_BIN_EXE_panoply"))
        .args(["report", "--device", "cuda:0", "--suite", "kernels", "--out", "report.json", "--quiet", "--no-bench"])
        .current_dir(&dir.0)
        .envs([("LD_LIBRARY_PATH", dir.0.as_os_str()), ("PANOPLY_FAKE_CUDA", choices.as_ref())])
        .env("PANOPLY_CACHE_DIR", "")
        .output()
        .unwrap()
}

fn read(dir: &TempDir, name: &str) -> String {
    std::fs::read_to_string(dir.0.join(name)).unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn wrong_kernel_fails_the_report() {
    let dir = TempDir::new("report-wrong");
    let right = simulated(&dir, "");
    assert_eq!((right.status.code(), text(&right.stderr)), (Some(0), String::new()));
    let document: Value = serde_json::from_str(&read(&dir, "report.json")).unwrap();
    assert_eq!((&document["failed"], document["failures"].as_array().unwrap().len()), (&0.into(), 0));
    assert_eq!((&document["backend"], &document["device"]), (&"cuda".into(), &"cuda:0".into()));
    assert!(document["passed"].as_u64().unwrap() > 20, "{document}");

    // The next report replaces the first one.
    let wrong = simulated(&dir, "wrong=saxpy_");
    assert_eq!(wrong.status.code(), Some(1), "{}", text(&wrong.stderr));
    let document: Value = serde_json::from_str(&read(&dir, "report.json")).unwrap();
    let failures = document["failures"].as_array().unwrap();
    assert!(!failures.is_empty() && document["failed"] == failures.len(), "{document}");
    assert!(failures.iter().all(|one| one["check"].as_str().unwrap().starts_with("saxpy, ")), "{failures:?}");
    let page = read(&dir, "report.md");
    assert!(page.contains("## Failed checks") && page.contains("| kernels | saxpy, "), "{page}");
    assert!(text(&wrong.stdout).contains("failed on cuda:0"), "{}", text(&wrong.stdout));
}

#[test]
fn report_names_no_place_and_overwrites_no_other_file() {
    let dir = TempDir::new("report-private");
    let report = ["report", "--suite", "contract,kernels", "--json", "--out", "here.json"];
    let output = Command::new(env!("CARGO_BIN_EXE_panoply"))
        .args(report)
        .args(["--device", "cpu:checked"])
        .current_dir(&dir.0)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let files = read(&dir, "here.json") + &read(&dir, "here.md");
    let folder = dir.0.display().to_string();
    let home = std::env::home_dir().map_or(folder.clone(), |home| home.display().to_string());
    assert!(
        !files.contains(&folder)
            && !files.contains(&home)
            && !files.contains(dir.0.parent().unwrap().to_str().unwrap())
    );
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let suites: Vec<&str> =
        document["suites"].as_array().unwrap().iter().map(|one| one["suite"].as_str().unwrap()).collect();
    assert_eq!(suites, ["contract", "kernels"]);
    assert!(document["bench"]["skipped"].is_string() && document["panoply_version"].is_string(), "{document}");
    dir.write("notes.md", "mine");
    let refusal = dir.refused(&["report", "--suite", "contract", "--out", "notes.json"]);
    assert!(refusal.contains("notes.md exists and is not a report"), "{refusal}");
    assert_eq!(read(&dir, "notes.md"), "mine");
    // A report that cannot be written is refused before the tests run.
    std::fs::create_dir(dir.0.join("folder")).unwrap();
    for (output, expected) in [
        ("missing/report.json", "panoply: --output: the folder missing does not exist\n"),
        ("folder", "panoply: --output folder is a folder\n  name a file in it, such as report.json\n"),
    ] {
        assert_eq!(dir.refused(&["report", "--suite", "contract", "--out", output]), expected);
    }
}
