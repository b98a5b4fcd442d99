//! Several target columns: multilabel classification and regression of several outputs, with options from the command line and from
//! files, resuming, `predict` and `inspect`.

use std::process::Command;

use crate::support::temp_dir::{TempDir, text};
use serde_json::Value;

fn manifest(dir: &TempDir, run: &str) -> Value {
    serde_json::from_slice(&std::fs::read(dir.0.join(run).join("manifest.json")).unwrap()).unwrap()
}

/// Returns a pseudorandom number in -1 .. 1.
fn number(row: usize, column: usize) -> f64 {
    (((row * 7919 + column * 104_729 + row * row * 31 * (column + 1)) % 2003) as f64) / 1001.5 - 1.0
}

/// Labels that depend on different columns, and two numbers in very different units.
fn drinks(rows: usize) -> String {
    let row = |row: usize| {
        let [a, b, c] = [0, 1, 2].map(|column| number(row, column));
        let answers = [a + b > 0.0, b - c > 0.3, a > -0.5].map(|yes| u8::from(yes).to_string()).join(",");
        let (litres, grams) = (0.01 * a - 0.02 * b + 0.5, 4000.0 * c + 1000.0 * a);
        format!("{a:.4},{b:.4},{c:.4},{answers},{litres:.5},{grams:.1}\n")
    };
    format!("a,b,c,sweet,sour,\"cold, or iced\",litres,grams\n{}", (0..rows).map(row).collect::<String>())
}

const TRAIN: [&str; 8] = ["--epochs", "30", "--batch-size", "16", "--hidden-sizes", "24", "--dropout", "0"];

#[test]
fn multilabel_columns_are_trained_together() {
    let dir = TempDir::new("answers");
    dir.write("drinks.csv", drinks(400));
    let without = ["--drop-columns", "litres", "--drop-columns", "grams"];
    let train = [&["train", "drinks.csv", "--label", "sweet,sour", "--target", "cold, or iced"][..], &without, &TRAIN];
    let report = dir.json(&[&train.concat()[..], &["--out", "run"]].concat());
    let number = |value: &Value| value.as_f64().unwrap();
    assert!(number(&report["accuracy"]) > 0.93 && report["r2"].is_null(), "{report}");
    assert!(number(&report["roc_auc"]) > 0.97, "{report}");
    let each = report["per_label"].as_array().unwrap();
    let names: Vec<&str> = each.iter().map(|each| each["label"].as_str().unwrap()).collect();
    assert_eq!(names, ["sweet", "sour", "cold, or iced"]);
    for (whole, part) in [("accuracy", "accuracy"), ("macro_f1", "f1"), ("roc_auc", "roc_auc")] {
        let mean = each.iter().map(|each| number(&each[part])).sum::<f64>() / 3.0;
        assert!((number(&report[whole]) - mean).abs() < 1e-6, "{whole}: {mean} in {report}");
    }
    let saved = manifest(&dir, "run");
    assert_eq!(saved["data"]["format"]["label_columns"], serde_json::json!(["sweet", "sour", "cold, or iced"]));
    assert_eq!(
        (&saved["data"]["format"]["task"], &saved["network"]["loss"]["kind"]),
        (&"multi_label".into(), &"bce_with_logits".into())
    );
    let shown = std::fs::read_to_string(dir.0.join("run/classification_report.txt")).unwrap();
    assert!(shown.lines().count() == 4 && shown.contains("\ncold, or iced"), "{shown}");

    let table = std::fs::read_to_string(dir.0.join("run/predictions.csv")).unwrap();
    let labels = "sweet actual,sweet predicted,sour actual,sour predicted";
    let head = format!("row,{labels},\"cold, or iced actual\",\"cold, or iced predicted\"\n");
    assert!(table.starts_with(&head) && table.lines().count() == 81, "{table}");

    // Predictions with and without actual labels.
    let seen = dir.json(&["predict", "run", "drinks.csv"]);
    assert_eq!(seen["labeled"], 400);
    let mut right = 0;
    for row in seen["predictions"].as_array().unwrap() {
        for name in names.iter().copied() {
            let share = number(&row["predicted"][name]);
            assert!((0.0..=1.0).contains(&share), "{row}");
            right += u64::from(row["actual"][name] == Value::Bool(share >= 0.5));
        }
    }
    assert_eq!(seen["correct_labels"].as_u64(), Some(right));
    assert!(right > 1100, "{right} of 1200");
    let stdout = text(&dir.run(&["predict", "run", "drinks.csv"]).stdout);
    assert!(stdout.ends_with(&format!(" % ({right} of 1200 labels)\n")), "{}", stdout.lines().last().unwrap());
    dir.write("more.csv", "c,b,a\n0,0.9,0.9\n");
    let stdout = text(&dir.run(&["predict", "run", "more.csv"]).stdout);
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(lines.len() == 2 && lines[0].ends_with("  sweet     sour  cold, or iced"), "{stdout}");
    assert!(lines[1].starts_with("line 2  ") && lines[1].matches('%').count() == 3, "{stdout}");
    let mut inspect = Command::new(env!("CARGO_BIN_EXE_panoply"));
    let stdout = text(&inspect.args(["inspect", "run"]).current_dir(&dir.0).output().unwrap().stdout);
    assert!(stdout.contains("\ntargets sweet, sour and cold, or iced as yes/no labels\n"), "{stdout}");
    assert!(stdout.contains("\nvalidation accuracy "), "{stdout}");

    let longer = dir.json(&["train", "--resume", "run", "--epochs", "31"]);
    assert_eq!(
        (longer["history"].as_array().unwrap().len(), &manifest(&dir, "run")["network"]),
        (31, &saved["network"])
    );
}

/// A file sets data options like the command line, which takes precedence.
#[test]
fn network_file_sets_data_options() {
    let dir = TempDir::new("view");
    dir.write("drinks.csv", drinks(120));
    let net = "input = [3]\nloss = { kind = \"bce_with_logits\" }\n[data]\nlabel = [\"sweet\", \"sour\"]\ntask = \"multilabel\"\n\
               drop_columns = [\"litres\", \"grams\", \"cold, or iced\"]\n[training]\nepochs = 2\n[[layer]]\nkind = \"linear\"\nout_features = 2\n";
    dir.write("net.toml", net);
    let train = ["train", "drinks.csv", "--model", "net.toml"];
    let report = dir.json(&[&train[..], &["--out", "run"]].concat());
    assert_eq!(report["per_label"].as_array().unwrap().len(), 2);
    assert_eq!(manifest(&dir, "run")["data"]["label_columns"], serde_json::json!(["sweet", "sour"]));
    let refusal = dir.refused(&[&train[..], &["--label", "sweet"]].concat());
    assert!(refusal.contains("net.toml: input [3] does not match examples of shape [4]"), "{refusal}");
    for (from, to, what) in [
        (
            "\"multilabel\"",
            "\"guesses\"",
            "net.toml:5: data: task: unknown value `guesses`; did you mean `regression`, ",
        ),
        ("task = ", "tusk = ", "net.toml:5: data: unknown key `tusk`; did you mean `task`, "),
        ("\"bce_with_logits\"", "\"mse\"", "the loss mse does not fit multi-label targets"),
        (
            "\"sour\"",
            "\"soar\"",
            "no column `soar`; did you mean `sour`, `a`, `sweet`? the columns are a, b, c, sweet, sour, cold, or iced, litres, grams",
        ),
    ] {
        dir.write("net.toml", net.replace(from, to));
        let refusal = dir.refused(&train);
        assert!(refusal.contains(what), "{to}: {refusal}");
    }
}

/// Each target is learned, even if the units are very different.
#[test]
fn several_regression_targets_of_a_table_are_learned() {
    let dir = TempDir::new("numbers");
    dir.write("drinks.csv", drinks(400));
    let without = ["--drop-columns", "sweet, sour", "--drop-columns", "cold, or iced"];
    let train =
        [&["train", "drinks.csv", "--label", "litres", "--label", "grams", "--out", "run"][..], &without, &TRAIN];
    let report = dir.json(&train.concat());
    assert!(report["accuracy"].is_null() && report["r2"].as_f64().unwrap() > 0.9, "{report}");
    for each in report["per_label"].as_array().unwrap() {
        assert!(each["r2"].as_f64().unwrap() > 0.9, "{report}");
    }
    let table = std::fs::read_to_string(dir.0.join("run/predictions.csv")).unwrap();
    assert!(table.starts_with("row,litres actual,litres predicted,grams actual,grams predicted\n"), "{table}");
    assert!(table.lines().count() == 81 && table.lines().all(|line| line.matches(',').count() == 4), "{table}");
    let seen = dir.json(&["predict", "run", "drinks.csv"]);
    assert_eq!((&seen["labels"], &seen["labeled"]), (&serde_json::json!(["litres", "grams"]), &400.into()));
    assert_eq!(seen["predictions"][0]["predicted"].as_array().unwrap().len(), 2);
    let stdout = text(&dir.run(&["train", "--resume", "run", "--epochs", "31"]).stdout);
    assert!(stdout.contains("over 2 targets") && stdout.contains("\ngrams: R² "), "{stdout}");
}

/// A uniform target scale gives the same loss and the same gradient norm as equal scales per target.
#[test]
fn uniform_target_scale_equals_equal_scales_per_target() {
    let dir = TempDir::new("scale");
    dir.write("drinks.csv", drinks(120));
    let loss = |scale: &str, out: &str| {
        let net = "input = [3]\n[data]\nlabel = [\"litres\", \"grams\"]\ndrop_columns = [\"sweet, sour\", \"cold, or iced\"]\n[[layer]]\n\
                   kind = \"linear\"\nout_features = 2\n";
        dir.write("net.toml", format!("loss = {{ kind = \"mse\", target_scale = {scale} }}\n{net}"));
        let train = ["train", "drinks.csv", "--model", "net.toml", "--optimizer", "sgd", "--learning-rate", "1e-8"];
        let report = dir.json(&[&train[..], &["--epochs", "2", "--out", out]].concat());
        report["history"][1]["val_loss"].as_f64().unwrap()
    };
    let (all, each) = (loss("1.0", "all"), loss("[1.0, 1.0]", "each"));
    assert!((all - each).abs() < 1e-6 * all, "{all} and {each}");
}

#[test]
fn incompatible_columns_are_reported() {
    let dir = TempDir::new("columns");
    dir.write("drinks.csv", drinks(60));
    dir.write("odd.csv", "a,yes,odd,word\n1,0,1,red\n2,1,2,blue\n3,1,0,red\n4,0,1,blue\n");
    dir.write("unnamed.csv", ",x,y,z\n0,1.5,2.5,0.5\n1,2.5,3.5,0.5\n2,3.5,4.5,1.5\n");
    dir.write("empty.csv", "a,yes,no\n1,0,1\n2,1,\n3,1,0\n");
    for (arguments, refused) in [
        (&["drinks.csv", "--label", "sweet,bitter"][..], "no column `bitter`; did you mean `litres`, "),
        (&["drinks.csv", "--label", "sweet,sour,sweet"], "the label column sweet is given twice"),
        (&["drinks.csv", "--label", "sweet,grams"], "sweet has yes/no labels, 0 and 1, and grams other numbers"),
        (&["drinks.csv", "--label", "sweet,grams"], "\n  use `--task regression` to predict both as numbers"),
        (
            &["drinks.csv", "--label", "sweet,sour", "--task", "classification"],
            "sweet and sour cannot both be class labels",
        ),
        (
            &["drinks.csv", "--label", "sweet,sour", "--drop-columns", "sour"],
            "sour is a label, so it cannot be ignored",
        ),
        (
            &["drinks.csv", "--label", "sweet,sour", "--sequence-column", "sour"],
            "sour is a label, so it cannot identify sequences",
        ),
        (&["drinks.csv", "--label", "sweet,sour", "--loss", "mse"], "the loss mse does not fit multi-label"),
        (&["drinks.csv", "--label", "sweet,sour", "--class-weights", "balanced"], "class weights need class targets"),
        (
            &["drinks.csv", "--label", "sweet", "--task", "multilabel", "--class-weights", "1,2"],
            "class weights need class targets",
        ),
        (&["drinks.csv", "--label", "sweet,"], "a column name is empty, such as after a trailing comma"),
        (&["unnamed.csv", "--label", "y,z,"], "\n  select a column without a name by its position, counted from 1"),
        (&["odd.csv", "--label", "yes,odd", "--task", "multilabel"], "odd.csv:3: odd: `2` is neither 0 nor 1"),
        (&["odd.csv", "--label", "yes,word"], "odd.csv:2: word: `red` is not a number"),
        (
            &["empty.csv", "--label", "yes,no"],
            "empty.csv:3: no: the target is missing\n  `--missing drop` leaves such rows out",
        ),
        (&["digits", "--task", "multilabel"], "--task does not apply to digits"),
    ] {
        let refusal = dir.refused(&[&["train"], arguments].concat());
        assert!(refusal.contains(refused), "{arguments:?}: {refusal}");
        assert!(!refusal.contains("in this order"), "{arguments:?} has no classes: {refusal}");
        assert!(!dir.0.join("runs").exists(), "no run is started");
    }
}

/// Arrays of zeros and ones are labels with `--task multilabel`.
#[test]
fn multilabel_arrays_are_learned() {
    use panoply::nn::data::npy;
    use panoply::{DType, Device, Rng, Tensor};

    let dir = TempDir::new("answer-arrays");
    std::fs::create_dir_all(dir.0.join("pair")).unwrap();
    let logits = Device::get("cpu").unwrap().scope(|| {
        let x = Rng::seed_from_u64(3).normal([200, 2]);
        let logits = x.matmul(&Tensor::from_slice(&[1.0f32, -1.0, 0.5, 2.0, 0.0, -1.5], [2, 3]));
        npy::save(&x, &dir.0.join("pair/x.npy")).unwrap();
        npy::save(&logits.gt(&(&logits * 0.0)).cast(DType::U8), &dir.0.join("pair/y.npy")).unwrap();
        logits
    });
    let report = dir.json(&[&["train", "pair", "--task", "multilabel", "--out", "run"][..], &TRAIN].concat());
    assert!(report["accuracy"].as_f64().unwrap() > 0.9, "{report}");
    assert_eq!(report["per_label"][2]["label"], "y[2]");
    std::fs::create_dir_all(dir.0.join("one")).unwrap();
    std::fs::copy(dir.0.join("pair/x.npy"), dir.0.join("one/x.npy")).unwrap();
    Device::get("cpu").unwrap().scope(|| {
        let first = logits.narrow(1, 0, 1).flatten(0, -1);
        npy::save(&first.gt(&(&first * 0.0)).cast(DType::U8), &dir.0.join("one/y.npy")).unwrap();
    });
    let stderr = text(&dir.run(&["train", "one", "--task", "multilabel", "--epochs", "1"]).stderr);
    assert!(stderr.contains("a yes/no label per example") && !stderr.contains("1 a yes/no"), "{stderr}");
    let seen = dir.json(&["predict", "run", "pair/x.npy"]);
    assert!(seen["labeled"] == 200 && seen["correct_labels"].as_u64().unwrap() > 540, "{seen}");
    Device::get("cpu").unwrap().scope(|| npy::save(&logits, &dir.0.join("pair/y.npy")).unwrap());
    let refusal = dir.refused(&["train", "pair", "--task", "multilabel"]);
    assert!(
        refusal.contains("which is neither 0 nor 1") && refusal.contains("\n  in pair/y.npy; use `--task regression`"),
        "{refusal}"
    );
}
