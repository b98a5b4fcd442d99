//! `panoply train` for regression on tables and for text, and errors in their input.

use std::path::Path;
use std::process::Command;

use crate::support::temp_dir::{TempDir, text};
use serde_json::Value;

/// Wisconsin breast cancer table (see `data/README.md`): the area of a nucleus, up to 2500, depends on the other columns, roughly on the
/// square of its radius.
#[test]
fn regression_on_a_real_table_is_learned() {
    let dir = TempDir::new("numbers");
    let table =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/breast_cancer.csv")).unwrap();
    let (head, rows) = table.split_once('\n').unwrap();
    let names: Vec<&str> = head.split(',').collect();
    // Without the diagnosis, which is categorical.
    let last = names.iter().position(|name| *name == "diagnosis").unwrap();
    let kept = |line: &str| {
        let cells: Vec<&str> =
            line.split(',').enumerate().filter(|(at, _)| *at != last).map(|(_, cell)| cell).collect();
        cells.join(",")
    };
    let rows: Vec<String> = rows.lines().map(kept).collect();
    dir.write("cells.csv", format!("{}\n{}\n", kept(head), rows.join("\n")));
    let train = [
        "train",
        "cells.csv",
        "--label",
        "mean area",
        "--epochs",
        "30",
        "--batch-size",
        "16",
        "--hidden-sizes",
        "32",
        "--dropout",
        "0",
    ];
    let report = dir.json(&train);
    assert!(report["r2"].as_f64().unwrap() > 0.97 && report["accuracy"].is_null(), "{report}");
    assert!(report["mae"].as_f64().unwrap() < 60.0, "{report}");
    let folder = dir.0.join(report["run_dir"].as_str().unwrap());
    let predictions = std::fs::read_to_string(folder.join("predictions.csv")).unwrap();
    assert_eq!(predictions.lines().count(), 1 + 114);
    assert!(std::fs::read_to_string(folder.join("predictions.svg")).unwrap().contains("</svg>"));
    assert!(
        std::fs::read_to_string(folder.join("history.csv"))
            .unwrap()
            .starts_with("epoch,train_loss,val_loss,metric,train_score,val_score,")
    );

    // Other rows of the table, with the target.
    dir.write("more.csv", format!("{}\n{}\n{}\n", kept(head), rows[0], rows[7]));
    let seen = dir.json(&["predict", "runs/cells-1", "more.csv"]);
    for row in seen["predictions"].as_array().unwrap() {
        let (right, read) = (row["actual"][0].as_f64().unwrap(), row["predicted"][0].as_f64().unwrap());
        assert!((right - read).abs() < 0.25 * right, "{row}");
    }
    assert_eq!(seen["labeled"], 2);
    let refusal = dir.refused(&["predict", "runs/cells-1", "--prompt", "a"]);
    assert!(refusal.contains("this model generates no text"), "{refusal}");

    // A resumed run continues the history.
    let longer = ["train", "--resume", "runs/cells-1", "--epochs", "31"];
    assert_eq!(dir.json(&longer)["history"].as_array().unwrap().len(), 31);

    let net = "input = [29]\n[[layer]]\nkind = \"linear\"\nout_features = 1\n";
    dir.write("net.toml", net);
    let refusal = dir.refused(&[&train[..6], &["--model", "net.toml"]].concat());
    assert!(refusal.contains("the loss cross_entropy does not fit regression targets"), "{refusal}");
    assert!(refusal.contains("\n  use mse, l1, huber") && refusal.contains("is set in net.toml"), "{refusal}");
    dir.write("net.toml", format!("loss = {{ kind = \"l1\", label_smoothing = 0.1 }}\n{net}"));
    let refusal = dir.refused(&[&train[..6], &["--model", "net.toml"]].concat());
    assert!(refusal.contains("label_smoothing applies to cross_entropy"), "{refusal}");
    dir.write("net.toml", format!("loss = {{ kind = \"huber\" }}\n{net}"));
    let report = dir.json(&[&train[..4], &["--epochs", "1", "--model", "net.toml"]].concat());
    assert!(report["r2"].as_f64().is_some(), "{report}");
}

/// Training does not depend on the unit of a number.
#[test]
fn regression_does_not_depend_on_the_scale_of_numbers() {
    let dir = TempDir::new("scales");
    let net = "input = [2]\nloss = { kind = \"LOSS\" }\n[[layer]]\nkind = \"standardize\"\n[[layer]]\nkind = \"linear\"\n\
               out_features = 16\n[[layer]]\nkind = \"tanh\"\n[[layer]]\nkind = \"linear\"\nout_features = 1\n";
    for (name, unit) in [("femto", 1e-15), ("nano", 1e-9), ("small", 1e-5), ("large", 1e7)] {
        let rows: Vec<String> = (0..200)
            .map(|i| {
                let (a, b) = (f64::from(i % 17) * unit, f64::from(i % 23));
                format!("{a:e},{b},{:e}\n", (3.0 * a / unit - b + 0.05 * b * b) * unit)
            })
            .collect();
        dir.write(&format!("{name}.csv"), format!("a,b,target\n{}", rows.concat()));
        let train =
            ["train", &format!("{name}.csv"), "--epochs", "40", "--batch-size", "16", "--learning-rate", "1e-2"];
        let report = dir.json(&[&train[..], &["--hidden-sizes", "16", "--dropout", "0"]].concat());
        assert!(report["r2"].as_f64().unwrap() > 0.97, "{name}: {}", report["r2"]);
        assert!(report["mae"].as_f64().unwrap() < 3.0 * unit, "{name}: {report}");
        let folder = report["run_dir"].as_str().unwrap().to_string();
        let seen = dir.json(&["predict", &folder, &format!("{name}.csv"), "--num-examples", "5"]);
        for row in seen["predictions"].as_array().unwrap() {
            let (right, read) = (row["actual"][0].as_f64().unwrap(), row["predicted"][0].as_f64().unwrap());
            assert!((right - read).abs() < 12.0 * unit, "{name}: {row}");
        }
        // A network file trains as well, with every regression loss; its outputs are rescaled too.
        for loss in ["mse", "huber", "l1"] {
            dir.write("net.toml", net.replace("LOSS", loss));
            let report = dir.json(&[&train[..], &["--model", "net.toml"]].concat());
            assert!(report["r2"].as_f64().unwrap() > 0.97, "{name}, {loss}: {}", report["r2"]);
        }
    }
    let read = |folder: &str| -> Value {
        serde_json::from_slice(&std::fs::read(dir.0.join(folder).join("manifest.json")).unwrap()).unwrap()
    };
    let manifest = read("runs/nano-2");
    assert!(manifest["network"]["layers"][4]["inverse_standardize"].is_object(), "{manifest}");
    let scale = manifest["network"]["loss"]["target_scale"].as_f64().unwrap();
    assert!((1e-9..1e-7).contains(&scale), "{scale}");
    // An explicit scale of 1 differs from an unset one.
    dir.write("net.toml", net.replace("\"LOSS\"", "\"mse\", target_scale = 1.0"));
    let output = dir.run(&["train", "large.csv", "--epochs", "1", "--model", "net.toml", "--output", "unscaled"]);
    assert_eq!(read("unscaled")["network"]["loss"]["target_scale"], 1.0);
    // The default of the gradient norm is printed with four significant digits.
    let stderr = text(&output.stderr);
    let norm = stderr.split_once("gradient norm up to ").unwrap().1.split(',').next().unwrap();
    assert!(norm.parse::<f64>().unwrap() > 1.0 && norm.trim_end_matches('0').len() <= 5, "{stderr}");
    for (loss, what) in [
        ("{ kind = \"mse\", target_scale = 0.0 }", "target_scale 0 is not a positive number"),
        ("{ target_scale = 2.0 }", "target_scale applies to mse, l1 and huber, not to cross_entropy"),
    ] {
        dir.write("net.toml", net.replace("{ kind = \"LOSS\" }", loss));
        let refusal = dir.refused(&["train", "nano.csv", "--model", "net.toml"]);
        assert!(refusal.contains(what), "{refusal}");
    }
}

#[test]
fn few_distinct_integers_are_classes_and_many_are_numbers() {
    let dir = TempDir::new("whole");
    let rows = |values: usize| -> String {
        let rows: Vec<String> = (0..60).map(|i| format!("{},{}\n", i % values, (i % values) * 3)).collect();
        format!("a,target\n{}", rows.concat())
    };
    dir.write("few.csv", rows(3));
    dir.write("many.csv", rows(40));
    let train = ["--epochs", "1", "--hidden-sizes", "4"];
    let few = dir.json(&[&["train", "few.csv"], &train[..]].concat());
    assert!(few["accuracy"].is_number() && few["r2"].is_null(), "{few}");
    let many = dir.json(&[&["train", "many.csv"], &train[..]].concat());
    assert!(many["accuracy"].is_null() && many["r2"].is_number(), "{many}");
    let classes = dir.json(&[&["train", "few.csv", "--task", "regression"], &train[..]].concat());
    assert!(classes["r2"].is_number(), "{classes}");
}

/// 40 copies of 37 characters are 24 windows of 60 + 1 characters, of which a twentieth is less than the smallest default batch.
#[test]
fn short_texts_are_trained_in_small_batches() {
    let dir = TempDir::new("short-text");
    dir.write("short.txt", "once upon a time there was a network ".repeat(40));
    dir.write("longer.txt", "once upon a time there was a network ".repeat(200));
    let manifest = |run: &str| {
        let text = std::fs::read_to_string(dir.0.join(run).join("manifest.json")).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["settings"]["batch_size"].clone()
    };
    let options = ["--epochs", "1", "--hidden-sizes", "4", "--context-length", "60"];
    for (name, batch, expected, note) in [
        ("short", &[][..], 4, Some("default for a text of 24 windows: batch size 4\n")),
        ("longer", &[], 6, Some("default for a text of 123 windows: batch size 6\n")),
        ("longer", &["--batch-size", "5"], 5, None),
    ] {
        let run = format!("{name}-{expected}");
        let output = dir.run(&[&["train", &format!("{name}.txt"), "--out", &run], &options[..], batch].concat());
        let stderr = text(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        assert_eq!(stderr.contains("default for a text"), note.is_some(), "{stderr}");
        assert!(stderr.contains(note.unwrap_or_default()), "{stderr}");
        assert!(stderr.contains(&format!("batch size {expected}, ")), "{stderr}");
        assert_eq!(manifest(&run), expected);
    }
    // A resumed run keeps the size.
    let resumed = dir.run(&["train", "--resume", "longer-6", "--epochs", "2"]);
    let stderr = text(&resumed.stderr);
    assert!(resumed.status.success() && stderr.contains("batch size 6, "), "{stderr}");
    assert_eq!(manifest("longer-6"), 6);
}

/// In this text the previous character tells much about the next: a sequence model beats the entropy of character frequencies.
#[test]
fn text_is_trained_evaluated_and_generated() {
    let dir = TempDir::new("text");
    let license = include_str!("../../../../LICENSE-APACHE");
    let text: String = license.split_whitespace().collect::<Vec<&str>>().join(" ").to_lowercase();
    dir.write("license.txt", &text);
    let mut counts = std::collections::BTreeMap::<char, f64>::new();
    text.chars().for_each(|letter| *counts.entry(letter).or_default() += 1.0);
    let all: f64 = counts.values().sum();
    let entropy: f64 = counts.values().map(|count| -(count / all) * (count / all).ln()).sum();
    let train = [
        "train",
        "license.txt",
        "--epochs",
        "3",
        "--batch-size",
        "4",
        "--learning-rate",
        "1e-2",
        "--context-length",
        "24",
    ];
    for model in [&["--hidden-sizes", "32"][..], &["--model", "transformer", "--hidden-sizes", "16,1"]] {
        let report = dir.json(&[&train[..], model].concat());
        let loss = report["perplexity"].as_f64().unwrap().ln();
        assert!(loss < entropy - 0.3, "{loss} is not below the entropy of single characters, {entropy}: {report}");
    }
    // It takes no `--device`.
    let inspect = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
        let output = command.arg("inspect").args(arguments).current_dir(&dir.0).output().unwrap();
        crate::support::temp_dir::text(&output.stdout)
    };
    let shown = inspect(&["runs/license-1"]);
    assert!(shown.contains(&format!("vocabulary of {} characters, context length 24\n", counts.len())), "{shown}");
    for path in ["runs/license-1", "license.txt"] {
        let document: Value = serde_json::from_str(&inspect(&[path, "--json"])).unwrap();
        let context = if path == "license.txt" { document["shape"][0].clone() } else { 24.into() };
        assert_eq!((&document["vocab_size"], &document["context_length"]), (&counts.len().into(), &context), "{path}");
    }
    let predicted = dir.json(&["predict", "runs/license-1", "license.txt"]);
    assert!(predicted["loss"].as_f64().unwrap() < entropy - 0.3, "{predicted}");
    let written =
        || dir.json(&["predict", "runs/license-2", "--prompt", "the licens", "--max-new-tokens", "40"])["text"].clone();
    let once = written();
    assert!(once.as_str().unwrap().starts_with("the licens") && once.as_str().unwrap().chars().count() == 50, "{once}");
    assert_eq!(once, written(), "the same seed gives the same text");
    let refusal = dir.refused(&["predict", "runs/license-1", "--num-examples", "3"]);
    assert!(refusal.contains("--num-examples: this model reads text; --max-new-tokens"), "{refusal}");
    let refusal = dir.refused(&["predict", "runs/license-1", "license.txt", "--output", "out.csv"]);
    assert!(refusal.contains("--output: this model reads text, which has no rows; remove the option"), "{refusal}");
    let sample = std::fs::read_to_string(dir.0.join("runs/license-1/sample.txt")).unwrap();
    assert_eq!(sample.chars().count(), 401);

    let refusal = dir.refused(&["predict", "runs/license-1", "--prompt", "the License"]);
    assert!(refusal.contains("'L' is not in the network's vocabulary"), "{refusal}");
    dir.write("other.txt", format!("{text}\nÅ {text}"));
    let known = dir.run(&["predict", "runs/license-1", "other.txt"]);
    assert!(known.status.success());
    let note = crate::support::temp_dir::text(&known.stderr);
    assert!(note.contains("characters that training did not have are left out (") && note.contains("'Å'"), "{note}");
    let refusal = dir.refused(&["train", "license.txt", "--model", "cnn"]);
    assert!(refusal.contains("cnn cannot be trained on text") && refusal.contains("`--model lstm`"), "{refusal}");
    for (both, seen) in [(true, true), (false, false)] {
        let layers = format!(
            "[[layer]]\nkind = \"embedding\"\nnum_embeddings = {0}\nembedding_dim = 8\n[[layer]]\nkind = \"lstm\"\nhidden_size = 8\nbidirectional = {both}\n\
             [[layer]]\nkind = \"linear\"\nout_features = {0}\n",
            counts.len()
        );
        dir.write("net.toml", format!("input = [24]\n{layers}"));
        let output =
            dir.run(&["train", "license.txt", "--context-length", "24", "--model", "net.toml", "--epochs", "1"]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stderr.contains("the output at a position depends on later characters"), seen, "{stderr}");
        assert_eq!(output.status.success(), !seen, "{stderr}");
    }
    let refusal = dir.refused(&["train", "license.txt", "--context-length", "9000"]);
    assert!(
        refusal.contains("characters are too few for two windows of 9000") && refusal.contains("--context-length N"),
        "{refusal}"
    );
    dir.write("wide.txt", [0xff, 0xfe, 0x61]);
    let refusal = dir.refused(&["train", "wide.txt"]);
    assert!(
        refusal.contains("wide.txt: it is not text in UTF-16LE") && refusal.contains("--encoding NAME"),
        "{refusal}"
    );
    dir.write("bytes.txt", [0xff, 0x61, 0x00]);
    assert!(dir.refused(&["train", "bytes.txt"]).contains("bytes.txt:1: byte 0xff is not UTF-8"));
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(dir.0.join("runs/license-1/manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["data"]["format"]["context_length"], 24);
}

/// No option is ignored.
#[test]
fn options_that_do_not_apply_to_the_data_are_rejected() {
    let dir = TempDir::new("options");
    dir.write("few.csv", "a,b\n1,x\n2,y\n3,x\n4,y\n5,x\n6,y\n7,x\n8,y\n");
    for (arguments, refused) in [
        (&["digits", "--label", "foo"][..], "--label does not apply to digits"),
        (&["digits", "--task", "text"], "--task does not apply to digits"),
        (&["few.csv", "--context-length", "9"], "--context-length does not apply to tables"),
        (&["few.csv", "--image-size", "8x8"], "--image-size does not apply to tables"),
    ] {
        let refusal = dir.refused(&[&["train"], arguments].concat());
        assert!(refusal.contains(refused), "{arguments:?}: {refusal}");
        assert!(!dir.0.join("runs").exists(), "no run is started");
    }
}

/// Usage errors have a message with the fix.
#[test]
fn usage_errors_are_reported_with_a_fix() {
    let dir = TempDir::new("slips");
    dir.write("text.csv", "Call me Ishmael.");
    for (arguments, refused) in [
        (&["train", "digit"][..], "cannot read digit: No such file"),
        (&["train", "digit"], "\n  DATA must be `digits`, a file or a folder"),
        (&["train", "--learning-rate", "-1"], "expected a number above 0, such as 1e-3"),
        (&["train", "--learning-rate", "NaN"], "expected a number above 0, such as 1e-3"),
        (&["train", "--hidden-sizes", "0"], "'0' for '--hidden-sizes <N>': expected a number of at least 1"),
        (&["train", "--resume", "runs"], "\n  is this the folder of a run?"),
        (&["predict", "text.csv"], "text.csv: it is a text file, not a safetensors file"),
    ] {
        let refusal = dir.refused(arguments);
        assert!(refusal.contains(refused), "{arguments:?}: {refusal}");
        assert!(!dir.0.join("runs").exists(), "no run is started");
    }
}

/// A command whose stdout is a closed pipe ends with 141 and without a panic.
#[cfg(unix)]
#[test]
fn closed_stdout_pipe_ends_the_command_quietly() {
    let dir = TempDir::new("reader");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = dir.command(&["demo", "--json"]).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).contains("panicked")), (Some(141), false));
}

/// Results, help and version that cannot be written are an error.
#[cfg(target_os = "linux")]
#[test]
fn stdout_that_cannot_be_written_is_an_error() {
    for arguments in [&["generate", "bash"][..], &["--help"], &["train", "--help"], &["--version"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_panoply")).args(arguments).stdout(full).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("panoply: cannot write to stdout: "), "{arguments:?}: {stderr}");
    }
}

/// The model, which does not exist here, is not opened.
#[test]
fn temperatures_out_of_range_are_usage_errors() {
    let dir = TempDir::new("temperature");
    for temperature in ["-1", "nan", "inf", "warm"] {
        let output = dir.run(&["predict", "none.onnx", "--temperature", temperature]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{temperature}: {stderr}");
        assert!(stderr.contains("--temperature") && stderr.contains("expected a number of at least 0"), "{stderr}");
    }
}

/// Unknown labels count as wrong, as in `accuracy_score`, and are named.
#[test]
fn unknown_labels_count_as_wrong() {
    let dir = TempDir::new("unknown-labels");
    let rows: String = (0..60).map(|i| format!("{},0.{i},{}\n", ["red", "blue"][i % 2], ["a", "b"][i % 2])).collect();
    dir.write("train.csv", format!("color,x,label\n{rows}"));
    dir.json(&[
        "train",
        "train.csv",
        "--epochs",
        "40",
        "--batch-size",
        "8",
        "--hidden-sizes",
        "8",
        "--learning-rate",
        "1e-2",
    ]);
    let colors = ["red", "red", "red", "red", "red", "red", "blue", "blue", "blue"];
    let rows: String =
        colors.iter().zip("acccddbbb".chars()).map(|(color, label)| format!("{color},0.1,{label}\n")).collect();
    dir.write("test.csv", format!("color,x,label\n{rows}"));
    let seen = dir.json(&["predict", "runs/train-1", "test.csv"]);
    assert_eq!((&seen["labeled"], &seen["correct"]), (&9.into(), &4.into()), "{seen}");
    assert_eq!(seen["unknown_labels"], serde_json::json!({"c": 3, "d": 2}));
    let stderr = text(&dir.run(&["predict", "runs/train-1", "test.csv"]).stderr);
    assert!(
        stderr.contains("5 of 9 labels are not among the learned classes and count as wrong: c (3), d (2)"),
        "{stderr}"
    );
}

/// Reference, scikit-learn in f64: y = 10⁹ + x has R² 1.0; predictions are compared with the numbers in the file.
#[test]
fn targets_with_a_large_offset_are_predicted_in_f64() {
    let dir = TempDir::new("offset");
    let x: Vec<f64> = (0..300).map(|i| f64::from(i * 77 % 300) / 100.0).collect();
    let rows: String = x.iter().map(|x| format!("{x},{:.2}\n", 1e9 + x)).collect();
    dir.write("offset.csv", format!("x,y\n{rows}"));
    let report = dir.json(&["train", "offset.csv", "--batch-size", "16", "--dropout", "0"]);
    assert!(report["r2"].as_f64().unwrap() > 0.98, "{report}");
    let seen = dir.json(&["predict", "runs/offset-1", "offset.csv"]);
    let mut squares = 0.0;
    for (row, x) in seen["predictions"].as_array().unwrap().iter().zip(&x) {
        assert!((row["actual"][0].as_f64().unwrap() - (1e9 + x)).abs() < 1e-6, "{row}");
        squares += (row["predicted"][0].as_f64().unwrap() - (1e9 + x)).powi(2);
    }
    let mean = x.iter().sum::<f64>() / 300.0;
    let spread: f64 = x.iter().map(|x| (x - mean).powi(2)).sum();
    assert!(1.0 - squares / spread > 0.98, "R² {}", 1.0 - squares / spread);
    assert!((seen["mae"].as_f64().unwrap()) < 0.2, "{seen}");
    let predictions = std::fs::read_to_string(dir.0.join("runs/offset-1/predictions.csv")).unwrap();
    let actual = predictions.lines().nth(1).unwrap().split(',').nth(1);
    assert!(actual.unwrap().starts_with("100000000"), "{predictions}");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_panoply"))
        .args(["export", "runs/offset-1"])
        .current_dir(&dir.0)
        .output()
        .unwrap();
    assert!(text(&output.stderr).contains("y is a difference from 100000000"), "{}", text(&output.stderr));
}

/// Arrays are standardized like tables, as with scikit-learn's `StandardScaler` before an `MLPClassifier`.
#[test]
fn arrays_are_standardized_like_tables() {
    let dir = TempDir::new("arrays");
    let wine = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/wine.csv")).unwrap();
    let rows: Vec<Vec<&str>> = wine.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let width = rows[0].len() - 1;
    let numbers: Vec<f32> = rows.iter().flat_map(|row| &row[..width]).map(|cell| cell.parse().unwrap()).collect();
    let mut classes: Vec<&str> = rows.iter().map(|row| row[width]).collect();
    classes.sort_unstable();
    classes.dedup();
    let label = |row: &Vec<&str>| classes.iter().position(|class| *class == row[width]).unwrap() as i32;
    let labels: Vec<i32> = rows.iter().map(label).collect();
    panoply::Device::get("cpu").unwrap().scope(|| {
        let x = panoply::Tensor::from_slice(&numbers, [rows.len(), width]);
        let y = panoply::Tensor::from_slice(&labels, [rows.len()]);
        let arrays = [("x".to_string(), x), ("y".to_string(), y)];
        panoply::nn::data::npz::save(&arrays, &dir.0.join("wine.npz")).unwrap();
    });
    let report = dir.json(&["train", "wine.npz"]);
    assert!(report["accuracy"].as_f64().unwrap() >= 0.93, "{report}");
    let seen = dir.json(&["predict", "runs/wine-1", "wine.npz"]);
    assert!(seen["correct"].as_u64().unwrap() >= 170, "the scaler is in the model: {seen}");
}
