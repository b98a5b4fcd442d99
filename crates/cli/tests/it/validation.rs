//! Validation and test examples: `--val-split`, `--monitor`, `--test-data` and folders `train`, `val` and `test`; `inspect` of data.

use std::collections::HashMap;
use std::fmt::Write;
use std::process::Command;

use crate::support::temp_dir::{TempDir, text};
use serde_json::Value;

/// Five rows per person with the same features; the label is that of the person and says nothing about others.
fn people(count: usize) -> String {
    let mut table = "person,x,z,label\n".to_string();
    for at in 0..count {
        let (x, z) = (at * 7919 % 1013, at * 104_729 % 997);
        let label = at.wrapping_mul(2_654_435_761) >> 13 & 1;
        (0..5).for_each(|_| writeln!(table, "p{at},{x},{z},{label}").unwrap());
    }
    table
}

#[test]
fn groups_stay_together() {
    let dir = TempDir::new("groups");
    dir.write("people.csv", people(300));
    let train = ["train", "people.csv", "--label", "label", "--drop-columns", "person", "--epochs", "20"];
    let stderr = text(&dir.run(&[&train[..7], &["1", "--out", "random"]].concat()).stderr);
    assert!(stderr.contains("validation examples have the same features as a training example"), "{stderr}");
    let train = [
        "train",
        "people.csv",
        "--label",
        "label",
        "--val-split",
        "group:person",
        "--epochs",
        "20",
        "--out",
        "grouped",
    ];
    let report = dir.json(&train);
    // As a random guess does: scikit-learn's GroupShuffleSplit gives 0.5 as well, and a random split 1.0.
    assert!(report["accuracy"].as_f64().unwrap() < 0.75, "{report}");
    let resumed = dir.json(&["train", "--resume", "grouped", "--epochs", "21"]);
    assert_eq!(resumed["history"].as_array().unwrap().len(), 21);
    let refusal = dir.refused(&["train", "digits", "--val-split", "group:person"]);
    assert!(refusal.contains("does not apply to digits"), "{refusal}");
    let refusal = dir.refused(&["train", "people.csv", "--val-split", "group:team"]);
    assert!(refusal.contains("no column `team`"), "{refusal}");
}

/// Rows with a distinct `y` each, a blank line, and without `x` in every seventh row; the rows without `x` are blank lines in the second text.
fn gaps() -> (String, String) {
    let (mut table, mut whole) = ("x,z,y,kind\n".to_string(), "x,z,y,kind\n".to_string());
    for at in 0..80 {
        if at == 10 {
            table.push('\n');
            whole.push('\n');
        }
        let y = at * 37 % 80;
        let rest = format!("{},{},{}", at % 5, 2 * y, if y < 40 { "low" } else { "\"high, or equal\"" });
        if at % 7 == 3 {
            writeln!(table, ",{rest}").unwrap();
            whole.push('\n');
        } else {
            writeln!(table, "{y}.5,{rest}").unwrap();
            writeln!(whole, "{y}.5,{rest}").unwrap();
        }
    }
    (table, whole)
}

/// Returns the predictions of a file by its lines.
fn predictions(dir: &TempDir, run: &str, data: &str) -> HashMap<usize, Value> {
    let seen = dir.json(&["predict", run, data]);
    let line = |one: &Value| one["example"].as_str().unwrap().strip_prefix("line ").unwrap().parse().unwrap();
    seen["predictions"].as_array().unwrap().iter().map(|one| (line(one), one.clone())).collect()
}

/// Rows that are left out and blank lines count, so that `row` is a line of the file for every kind of split.
#[test]
fn predictions_of_a_run_join_the_data_by_line() {
    let dir = TempDir::new("joined");
    let (table, whole) = gaps();
    dir.write("gaps.csv", &table);
    dir.write("whole.csv", &whole);
    let lines: Vec<&str> = table.lines().collect();
    for (split, count) in [("0.25", Some(17)), ("last:0.25", Some(17)), ("group:z", None), ("file:whole.csv", Some(69))]
    {
        let out = split.replace(':', "-");
        let train = ["train", "gaps.csv", "--label", "y", "--task", "regression", "--drop-columns", "kind"];
        let rest = ["--missing", "drop", "--epochs", "1", "--val-split", split, "--out", &out];
        dir.json(&[&train[..], &rest[..]].concat());
        let written = std::fs::read_to_string(dir.0.join(&out).join("predictions.csv")).unwrap();
        let seen = predictions(&dir, &out, "whole.csv");
        assert!(written.starts_with("row,actual,predicted\n"), "{written}");
        assert!(count.is_none_or(|count| written.lines().count() == 1 + count), "{split}: {written}");
        for row in written.lines().skip(1) {
            let cells: Vec<f64> = row.split(',').map(|cell| cell.parse().unwrap()).collect();
            let line = cells[0] as usize;
            let input: Vec<&str> = lines[line - 1].split(',').collect();
            assert!(!input[0].is_empty() && input[2].parse() == Ok(cells[1]), "{split}: {row}: {}", lines[line - 1]);
            let predicted = seen[&line]["predicted"][0].as_f64().unwrap();
            assert!((predicted - cells[2]).abs() < 1e-3, "{split}: {row}: {predicted}");
        }
    }
    let train = ["train", "gaps.csv", "--label", "kind", "--drop-columns", "y", "--missing", "drop"];
    dir.json(&[&train[..], &["--epochs", "1", "--out", "classes"]].concat());
    let written = std::fs::read_to_string(dir.0.join("classes/predictions.csv")).unwrap();
    let seen = predictions(&dir, "classes", "whole.csv");
    let quoted = |class: &str| if class.contains(',') { format!("\"{class}\"") } else { class.to_string() };
    for row in written.lines().skip(1) {
        let line: usize = row.split(',').next().unwrap().parse().unwrap();
        let actual = if lines[line - 1].ends_with(",low") { "low" } else { "\"high, or equal\"" };
        let predicted = quoted(seen[&line]["predicted"].as_str().unwrap());
        assert!(row.starts_with(&format!("{line},{actual},{predicted},")), "{row}: {}", lines[line - 1]);
        let probability: f64 = row.rsplit(',').next().unwrap().parse().unwrap();
        assert!((probability - seen[&line]["probability"].as_f64().unwrap()).abs() < 1e-5, "{row}");
    }
    // Resuming splits again, and gives the same rows.
    dir.json(&["train", "--resume", "classes", "--epochs", "2"]);
    let again = std::fs::read_to_string(dir.0.join("classes/predictions.csv")).unwrap();
    let rows = |table: &str| -> Vec<String> {
        table.lines().map(|line| line.split(',').next().unwrap().to_string()).collect()
    };
    assert_eq!(rows(&again), rows(&written));
}

/// y follows a straight line and turns in its last fifth, which only a validation set of the last rows shows.
#[test]
fn the_last_rows_and_other_files_validate() {
    let dir = TempDir::new("last");
    let turn = |at: usize| if at < 160 { at } else { 320 - at };
    let table = |range: std::ops::Range<usize>| {
        range.fold("t,y\n".to_string(), |table, at| format!("{table}{at}.5,{}.25\n", turn(at)))
    };
    dir.write("series.csv", table(0..200));
    dir.write("later.csv", table(160..200));
    dir.write("earlier.csv", table(0..160));
    let score = |data: &str, split: &str, out: &str| {
        let train = ["train", data, "--val-split", split, "--epochs", "40", "--learning-rate", "1e-2", "--out", out];
        dir.json(&train)["r2"].as_f64().unwrap()
    };
    assert!(score("series.csv", "0.2", "random") > 0.9);
    let (last, other) = (score("series.csv", "last", "last"), score("earlier.csv", "file:later.csv", "file"));
    assert!(last < 0.0 && other < 0.0 && (last - other).abs() < 1e-9, "{last} {other}: the same examples");
    let stderr = text(&dir.run(&["train", "series.csv", "--epochs", "1", "--out", "once"]).stderr);
    assert!(stderr.contains("as in a time series") && stderr.contains("--val-split last"), "{stderr}");
    // Another validation file is another run.
    dir.write("later.csv", table(150..200));
    let refusal = dir.refused(&["train", "--resume", "file", "--epochs", "41"]);
    assert!(refusal.contains("the validation examples have changed"), "{refusal}");
    for (split, message) in [
        ("-0.1", "-0.1 is not a fraction between 0 and 1"),
        ("often", "take a fraction such as 0.2, last, last:0.3, stratified, group:COLUMN or file:PATH"),
        ("stratified", "only a classification can be stratified"),
        ("file:none.csv", "none.csv"),
    ] {
        let refusal = dir.refused(&["train", "series.csv", "--val-split", split]);
        assert!(refusal.contains(message), "{split}: {refusal}");
    }
}

#[test]
fn the_monitored_figure_chooses_the_best_epoch() {
    let dir = TempDir::new("monitor");
    let best = |monitor: &[&str], figure: fn(&serde_json::Value) -> f64, out: &str| {
        let train =
            ["train", "digits", "--epochs", "6", "--hidden-sizes", "8", "--learning-rate", "3e-2", "--out", out];
        let report = dir.json(&[&train[..], monitor].concat());
        let history = report["history"].as_array().unwrap().clone();
        let figures: Vec<f64> = history.iter().map(figure).collect();
        let most = figures.iter().fold(f64::NEG_INFINITY, |most, figure| most.max(*figure));
        let best = report["best_epoch"].as_u64().unwrap() as usize;
        assert_eq!(figures[best - 1], most, "{monitor:?}: {figures:?}");
    };
    best(&[], |epoch| epoch["val_score"].as_f64().unwrap(), "default");
    best(&["--monitor", "loss"], |epoch| -epoch["val_loss"].as_f64().unwrap(), "loss");
    best(&["--monitor", "f1"], |epoch| epoch["val_macro_f1"].as_f64().unwrap(), "f1");
    let refusal = dir.refused(&["train", "digits", "--monitor", "r2"]);
    assert!(refusal.contains("--monitor r2: a classification has loss, accuracy and f1"), "{refusal}");
}

#[test]
fn test_data_are_evaluated_at_the_end() {
    let dir = TempDir::new("test-set");
    let table = |range: std::ops::Range<usize>| {
        range.fold("x,label\n".to_string(), |table, at| {
            format!("{table}{at},{}\n", ["low", "high"][usize::from(at % 100 > 50)])
        })
    };
    dir.write("train.csv", table(0..200));
    // Of the test labels a quarter is turned, so no model is better than 75 %.
    dir.write("test.csv", table(0..100).replace("3,low", "3,high").replace("7,low", "7,high"));
    let report =
        dir.json(&["train", "train.csv", "--test-data", "test.csv", "--epochs", "60", "--learning-rate", "1e-2"]);
    let (test, own) = (report["test"]["score"].as_f64().unwrap(), report["accuracy"].as_f64().unwrap());
    assert_eq!(report["test"]["examples"], 100);
    assert!(own > 0.9 && (test - (own - 0.1)).abs() < 0.09, "10 of 100 labels are turned: {own} {test}");
    let seen = dir.json(&["predict", "runs/train-1", "test.csv"]);
    assert!((seen["correct"].as_f64().unwrap() / 100.0 - test).abs() < 1e-6, "{test}, as predict counts");
}

#[test]
fn data_are_inspected() {
    let dir = TempDir::new("inspect-data");
    dir.write("table.csv", ",age,city,kind\n0,31,Oslo,a\n1,,Bonn,b\n2,47.5,Oslo,a\n3,20,?,b\n");
    let inspect = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
        let output = command.arg("inspect").args(arguments).current_dir(&dir.0).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let json = |file: &str| -> serde_json::Value { serde_json::from_str(&inspect(&[file, "--json"])).unwrap() };
    let report = json("table.csv");
    let column = |at: usize| {
        let column = &report["columns"][at];
        (
            column["role"].as_str().unwrap(),
            column["kind"].as_str().unwrap(),
            column["missing"].as_u64().unwrap(),
            column["distinct"].as_u64().unwrap(),
        )
    };
    assert_eq!(report["rows"], 4);
    let columns = [0, 1, 2, 3].map(column);
    assert_eq!(
        columns,
        [
            ("left_out", "integer", 0, 4),
            ("feature", "float", 1, 3),
            ("feature", "category", 1, 2),
            ("label", "category", 0, 2)
        ]
    );
    let shown = inspect(&["table.csv"]);
    assert!(shown.starts_with("table.csv: 4 rows, 4 columns, with a header\ncolumn"), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("age") && line.ends_with("1         3  20 .. 47.5")), "{shown}");
    dir.write("days.csv", "day,sent,size\n31.12.2024,2024-02-29,1\n1.2.2024,1970-01-02,2.5\n");
    let days = json("days.csv");
    for (at, first, last) in [(0, "1.2.2024", "31.12.2024"), (1, "1970-01-02", "2024-02-29")] {
        let column = &days["columns"][at];
        assert_eq!((&column["kind"], &column["range"]), (&"date".into(), &serde_json::Value::Null), "{days}");
        assert_eq!(column["date_range"], serde_json::json!([first, last]), "{days}");
        let shown = inspect(&["days.csv"]);
        assert!(shown.lines().any(|line| line.ends_with(&format!("2  {first} .. {last}"))), "{shown}");
    }
    dir.write("tale.txt", "once upon a time\n".repeat(30));
    assert_eq!(json("tale.txt")["shape"], serde_json::json!([64]));
    // A folder is data unless it is that of a run.
    dir.write("arrays/x.npy", npy("<f4", "(20, 2)", &[0; 160]));
    dir.write("arrays/y.npy", npy("<i4", "(20,)", &[[0, 0, 0, 0, 1, 0, 0, 0]; 10].concat()));
    let arrays = json("arrays");
    assert_eq!((&arrays["examples"], &arrays["shape"]), (&20.into(), &serde_json::json!([2])), "{arrays}");
    dir.json(&["train", "arrays", "--epochs", "1", "--out", "run"]);
    assert_eq!(json("run")["manifest"]["num_parameters"], json("run/model.safetensors")["manifest"]["num_parameters"]);
    std::fs::remove_file(dir.0.join("run/model.safetensors")).unwrap();
    let refusal = text(
        &Command::new(env!("CARGO_BIN_EXE_panoply"))
            .args(["inspect", "run"])
            .current_dir(&dir.0)
            .output()
            .unwrap()
            .stderr,
    );
    assert!(refusal.contains("model.safetensors"), "a run without a model is still a run: {refusal}");
}

/// Returns a file in NumPy's format 1.0.
fn npy(dtype: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
}

/// R² of a single validation example is undefined, as `sklearn.metrics.r2_score` says; the loss chooses the best epoch.
#[test]
fn r2_of_one_validation_example_is_undefined() {
    let dir = TempDir::new("one-example");
    let rows: String = (0..5).map(|at| format!("{},{}.5\n", at * 3 % 7, at * 5 % 11)).collect();
    dir.write("few.csv", format!("a,y\n{rows}"));
    dir.write("one.csv", "a,y\n2,3.5\n");
    let train = ["train", "few.csv", "--label", "y", "--task", "regression", "--epochs", "4"];
    let output = dir.run(&[&train[..], &["--test-data", "one.csv", "--out", "run"]].concat());
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(stdout.starts_with("validation R² undefined, mean absolute error of y "), "{stdout}{stderr}");
    assert!(stdout.contains("\ntest set: R² undefined of 1 example\n"), "{stdout}");
    assert!(stderr.contains(", R² undefined  "), "{stderr}");
    let history = std::fs::read_to_string(dir.0.join("run/history.csv")).unwrap();
    for line in history.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!((cells.len(), cells[3], cells[4], cells[5]), (7, "r2", "", ""), "{line}");
    }
    // The manifest with its null is read again.
    let report = dir.json(&["train", "--resume", "run", "--epochs", "6"]);
    assert!(report["r2"].is_null() && report["test"]["score"].is_null() && report["test"]["loss"].is_f64(), "{report}");
    let epochs = report["history"].as_array().unwrap();
    assert!(epochs.len() == 6 && epochs.iter().all(|epoch| epoch["val_score"].is_null()), "{report}");
    let losses: Vec<f64> = epochs.iter().map(|epoch| epoch["val_loss"].as_f64().unwrap()).collect();
    let best = report["best_epoch"].as_u64().unwrap() as usize - 1;
    assert_eq!(losses[best], losses.iter().copied().fold(f64::INFINITY, f64::min), "{losses:?}");
    let refusal = dir.refused(&[&train[..], &["--monitor", "r2", "--out", "refused"]].concat());
    assert!(
        refusal.contains("--monitor r2: R² of 1 validation example is undefined\n  use `--monitor loss`"),
        "{refusal}"
    );
    assert!(!dir.0.join("refused").exists(), "no run is started");
    dir.json(&[&train[..], &["--monitor", "r2", "--val-split", "0.4", "--out", "two"]].concat());
}
