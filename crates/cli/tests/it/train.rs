//! `panoply train`, `predict` and `inspect` on all file formats: errors, stopping and resuming.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::temp_dir::{TempDir, text};
use serde_json::{Value, json};

const FILES: [&str; 9] = [
    "checkpoint.safetensors",
    "confusion_matrix.svg",
    "confusion_matrix.txt",
    "curves.svg",
    "history.csv",
    "history.jsonl",
    "manifest.json",
    "model.safetensors",
    "predictions.csv",
];

#[test]
fn run_folder_contains_all_results() {
    let dir = TempDir::new("folder");
    let report = dir.json(&["train", "digits", "--epochs", "3"]);
    assert_eq!(report["run_dir"], "runs/digits-1");
    let mut files: Vec<String> = std::fs::read_dir(dir.0.join("runs/digits-1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    files.sort();
    assert_eq!(files, FILES);
    let read = |name: &str| std::fs::read_to_string(dir.0.join("runs/digits-1").join(name)).unwrap();
    assert_eq!((read("history.jsonl").lines().count(), read("history.csv").lines().count()), (3, 4));
    let predictions = read("predictions.csv");
    assert!(predictions.starts_with("row,actual,predicted,probability\n"), "{predictions}");
    assert_eq!(predictions.lines().count(), 1 + 359);
    let digits = panoply::nn::data::digits::load().unwrap();
    for line in predictions.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(digits.labels()[cells[0].parse::<usize>().unwrap()].to_string(), cells[1], "{line}");
    }
    let manifest: Value = serde_json::from_str(&read("manifest.json")).unwrap();
    assert_eq!(manifest["result"]["best_epoch_report"]["val_score"], report["accuracy"]);
    assert_eq!(manifest["commands"]["resume"], "panoply train --resume runs/digits-1");
    assert_eq!(manifest["device"]["device"], "cpu");
    let [accuracy, top, f1] = ["accuracy", "top_3_accuracy", "macro_f1"].map(|name| report[name].as_f64().unwrap());
    assert!(accuracy < top && top <= 1.0 && (f1 - accuracy).abs() < 0.1 && report["roc_auc"].is_null(), "{report}");
    assert_eq!(manifest["result"]["top_3_accuracy"], report["top_3_accuracy"]);

    let refusal = dir.refused(&["predict", "runs/digits-1", "--max-new-tokens", "3"]);
    assert!(refusal.contains("--max-new-tokens: this model generates no text; --num-examples"), "{refusal}");
    let seen = dir.json(&["predict", "runs/digits-1/model.safetensors", "--num-examples", "9"]);
    assert_eq!((seen["predictions"].as_array().unwrap().len(), seen["labeled"].as_u64()), (9, Some(9)));
    assert!(seen["correct"].as_u64().unwrap() >= 5, "{seen}");
    let inspected = Command::new(env!("CARGO_BIN_EXE_panoply"))
        .args(["inspect", "runs/digits-1"])
        .current_dir(&dir.0)
        .output()
        .unwrap();
    let inspected = text(&inspected.stdout);
    assert!(inspected.contains("17226 trainable parameters, 68904 bytes"), "{inspected}");
    assert!(inspected.contains("6 tensors, 17226 elements, 68904 bytes, 0 NaN or infinite"), "{inspected}");

    let export = |out: &str| {
        let arguments = ["export", "runs/digits-1/model.safetensors", "--out", out];
        Command::new(env!("CARGO_BIN_EXE_panoply")).args(arguments).current_dir(&dir.0).output().unwrap()
    };
    let stdout = text(&export("digits.onnx").stdout);
    assert!(stdout.ends_with("input [batch, 1, 8, 8], output [batch, 10] of logits\n"), "{stdout}");
    assert!(std::fs::metadata(dir.0.join("digits.onnx")).unwrap().len() > 68904);
    assert!(text(&export("runs/digits-1/model.safetensors").stderr).contains("is the model itself"));

    // A second run has the next number. The first one resumes to the state of a run of four epochs, with 23 steps each.
    let longer = dir.json(&["train", "digits", "--min-steps", "70"]);
    assert_eq!(longer["run_dir"], "runs/digits-2");
    let resumed = dir.json(&["train", "--resume", "runs/digits-1", "--epochs", "4"]);
    assert_eq!(resumed["history"].as_array().unwrap().len(), 4);
    let ends = ["runs/digits-1", "runs/digits-2"].map(|run| dir.digest(&format!("{run}/checkpoint.safetensors")));
    assert_eq!(ends[0], ends[1]);

    let refusal = dir.refused(&["train", "--resume", "runs/digits-1"]);
    assert!(refusal.contains("epoch 4 is the last one of this run; use `--epochs 8` to continue"), "{refusal}");
    let refusal = dir.refused(&["train", "--out", "runs/digits-1"]);
    assert!(refusal.contains("runs/digits-1 already contains a run"), "{refusal}");
    // Other files are not overwritten either.
    dir.write("old/model.safetensors", "precious");
    dir.write("old/history.csv", "notes");
    let refusal = dir.refused(&["train", "--out", "old"]);
    assert!(refusal.contains("old is not empty: it contains history.csv"), "{refusal}");
    assert!(refusal.contains("must name a new or empty folder"), "{refusal}");
    let left = ["model.safetensors", "history.csv"].map(|name| std::fs::read_to_string(dir.0.join("old").join(name)));
    assert_eq!(left.map(Result::unwrap), ["precious", "notes"]);
    std::fs::create_dir(dir.0.join("bare")).unwrap();
    dir.json(&["train", "--epochs", "1", "--out", "bare"]);
    let refusal = dir.refused(&["train", "digits", "--epochs", "0"]);
    assert!(refusal.contains("expected a number of at least 1"), "{refusal}");
    let refusal = dir.refused(&["train", "--resume", "runs"]);
    assert!(refusal.contains("is this the folder of a run?"), "{refusal}");
    let output = dir.run(&["train", "--resume", "runs/digits-1", "--model", "cnn"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

/// A run that is killed at any time resumes bit for bit from its last checkpoint.
#[test]
fn killed_run_resumes_bit_for_bit() {
    let dir = TempDir::new("killed");
    let train = ["train", "digits", "--epochs", "9", "--batch-size", "32", "--hidden-sizes", "16"];
    dir.json(&[&train[..], &["--out", "whole"]].concat());
    let mut child = dir.command(&[&train[..], &["--out", "killed"]].concat()).stderr(Stdio::null()).spawn().unwrap();
    let begun = dir.0.join("killed/checkpoint.safetensors");
    wait_for(&mut child, || begun.exists());
    // Killed twice during a write and once within an epoch.
    let lines = || std::fs::read_to_string(dir.0.join("killed/history.jsonl")).unwrap_or_default().lines().count();
    for saving in [true, false, true] {
        let before = lines();
        let part = dir.0.join(format!("killed/checkpoint.safetensors.part{}-0", child.id()));
        wait_for(&mut child, || if saving { part.exists() } else { lines() > before });
        child.kill().unwrap();
        child.wait().unwrap();
        let mut resume = dir.command(&["train", "--resume", "killed"]);
        child = resume.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // Files that a process killed during a write leaves behind.
    let parts = ["killed/training.part4711", "killed/checkpoint.safetensors.part4711-0"];
    parts.iter().for_each(|part| dir.write(part, "half"));
    dir.json(&["train", "--resume", "killed"]);
    for file in ["checkpoint.safetensors", "model.safetensors"] {
        assert_eq!(dir.digest(&format!("killed/{file}")), dir.digest(&format!("whole/{file}")), "{file}");
    }
    assert!(!parts.iter().any(|part| dir.0.join(part).exists()));
}

/// A file size limit simulates a full disk while the run is saved: nothing is lost, and the run can be resumed.
#[cfg(unix)]
#[test]
fn full_disk_loses_no_checkpoint() {
    let dir = TempDir::new("full");
    let train = ["train", "digits", "--batch-size", "128", "--epochs"];
    dir.json(&[&train[..], &["2", "--out", "whole"]].concat());
    dir.json(&[&train[..], &["1", "--out", "full"]].concat());
    let before = dir.digest("full/checkpoint.safetensors");
    // `ulimit -f` counts blocks of 512 or 1024 bytes: less than half, or less than all, of the 250 KiB of a checkpoint.
    let limited = format!("trap '' XFSZ; ulimit -f 200; exec '{}' \"$@\"", env!("CARGO_BIN_EXE_panoply"));
    let mut full = Command::new("sh");
    full.args(["-c", &limited, "sh", "train", "--resume", "full", "--epochs", "2", "--device", "cpu"]);
    let output = full.current_dir(&dir.0).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot write full/checkpoint.safetensors: File too large"), "{stderr}");
    assert!(
        stderr.contains("\n  the file is unchanged") && stderr.contains("`panoply train --resume full` continues"),
        "{stderr}"
    );
    assert_eq!(dir.digest("full/checkpoint.safetensors"), before);
    dir.json(&["train", "--resume", "full", "--epochs", "2"]);
    assert_eq!(dir.digest("full/checkpoint.safetensors"), dir.digest("whole/checkpoint.safetensors"));
}

/// Every optimizer and learning rate schedule resumes bit for bit after the process was killed.
#[test]
fn optimizers_and_schedules_resume_bit_for_bit() {
    let dir = TempDir::new("movers");
    let kinds: [(&str, &[&str]); 9] = [
        ("constant", &["adamw", "--clip-norm", "0.1"]),
        ("step", &["sgd", "--momentum", "0.9"]),
        ("constant", &["sgd"]),
        ("exponential", &["adam"]),
        ("cosine-with-warmup", &["rmsprop", "--momentum", "0.5"]),
        ("cosine", &["adagrad"]),
        ("one-cycle", &["lion"]),
        ("reduce-on-plateau", &["adamw", "--weight-decay", "0.3", "--ema-decay", "0.9", "--loss", "bce-with-logits"]),
        ("cosine", &["sgd", "--weight-decay", "1e-3", "--accumulate-grad-batches", "3", "--class-weights", "balanced"]),
    ];
    let mut ends = std::collections::BTreeSet::new();
    for (number, (schedule, optimizer)) in kinds.into_iter().enumerate() {
        let [whole, part] = ["whole", "part"].map(|name| format!("{name}{number}"));
        let train =
            [&["train", "digits", "--epochs", "4", "--lr-schedule", schedule, "--optimizer"][..], optimizer].concat();
        let report = dir.json(&[&train[..], &["--out", &whole]].concat());
        // The defaults train; chance level is 0.1.
        assert!(report["accuracy"].as_f64().unwrap() > 0.5, "{optimizer:?}: {report}");
        let mut child = dir.command(&[&train[..], &["--out", &part]].concat()).stderr(Stdio::null()).spawn().unwrap();
        let begun = dir.0.join(&part).join("checkpoint.safetensors");
        wait_for(&mut child, || begun.exists());
        child.kill().unwrap();
        child.wait().unwrap();
        dir.json(&["train", "--resume", &part]);
        let [whole, part] = [whole, part].map(|run| dir.digest(&format!("{run}/checkpoint.safetensors")));
        assert_eq!(whole, part, "{optimizer:?} {schedule}");
        ends.insert(whole);
    }
    assert_eq!(ends.len(), kinds.len(), "all configurations differ");

    let refusal = dir.refused(&["train", "--momentum", "0.9"]);
    assert!(refusal.contains("--momentum 0.9 cannot be used with --optimizer adamw"), "{refusal}");
    for (wrong, right) in [
        (["--optimizer", "adamax"], "adamw, adam, sgd, rmsprop, adagrad, lion"),
        (
            ["--lr-schedule", "linear"],
            "constant, cosine, cosine-with-warmup, one-cycle, step, exponential, reduce-on-plateau",
        ),
        (["--clip-norm", "-1"], "expected a number above 0"),
        (["--momentum", "1"], "expected a number in 0 .. 1"),
    ] {
        let output = dir.run(&[&["train", "digits"][..], &wrong].concat());
        let stderr = text(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.contains(right), "{stderr}");
    }
}

/// Waits up to 30 s for a condition while a child runs.
#[track_caller]
fn wait_for(child: &mut Child, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(child.try_wait().unwrap().is_none(), "the run ended early");
        assert!(start.elapsed() < Duration::from_secs(30), "nothing happened");
        std::thread::yield_now();
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_saves_and_twice_ends_at_once() {
    let send = |signal: &str, child: &Child| {
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    };
    let interrupt = |child: &Child| send("-INT", child);
    let dir = TempDir::new("stopped");
    for (signal, run) in [("-TERM", "ended"), ("-INT", "run")] {
        let train = ["train", "digits", "--epochs", "1000", "--out", run, "--json"];
        let mut child = dir.command(&train).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        wait_for(&mut child, || dir.0.join(run).join("checkpoint.safetensors").exists());
        send(signal, &child);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["interrupted"], true);
        assert!(dir.0.join(run).join("model.safetensors").exists());
        // The launcher of ranks sends SIGTERM: then the message is about keys that were not pressed.
        assert_eq!(text(&output.stderr).contains("press Ctrl-C again"), signal == "-INT", "{}", text(&output.stderr));
    }
    let resume = ["train", "--resume", "run"];
    let mut child = dir.command(&resume).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let lines = || std::fs::read_to_string(dir.0.join("run/history.jsonl")).unwrap().lines().count();
    let before = lines();
    wait_for(&mut child, || lines() > before);
    // The second signal can arrive after the first one has ended the process.
    interrupt(&child);
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status();
    let code = child.wait().unwrap().code();
    assert!(code == Some(130) || code == Some(0), "{code:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_in_the_first_epoch_saves_a_checkpoint() {
    let dir = TempDir::new("stopped_first");
    let train = ["train", "digits", "--hidden-sizes", "2048,2048", "--batch-size", "1", "--out", "run", "--json"];
    let mut child = dir.command(&train).stderr(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    // The mask of caught signals; bit 0 is signal 1.
    let catches = |signal: u32| {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim();
        u64::from_str_radix(caught, 16).unwrap() >> (signal - 1) & 1 == 1
    };
    wait_for(&mut child, || catches(2));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        report["interrupted"] == true && report["model_path"].is_null() && report["history"] == json!([]),
        "{report}"
    );
    assert!(dir.0.join("run/checkpoint.safetensors").exists() && !dir.0.join("run/model.safetensors").exists());
}

/// Points of two linearly separable classes.
fn table(rows: usize) -> String {
    let mut table = "width,kind,\"height, in cm\"\n".to_string();
    for row in 0..rows {
        let x = (row * 7 % rows) as f64 / rows as f64 * 200.0;
        let kind = if row % 2 == 0 { "tulip" } else { "rose" };
        let y = if row % 2 == 0 { x / 100.0 + 1.5 } else { x / 100.0 - 1.5 };
        table += &format!("{x:.2},{kind},{y:.3}\n");
    }
    table
}

#[test]
fn tables_are_trained_and_predicted() {
    let dir = TempDir::new("table");
    dir.write("flowers.csv", table(120));
    let report = dir.json(&[
        "train",
        "flowers.csv",
        "--label",
        "kind",
        "--epochs",
        "25",
        "--batch-size",
        "16",
        "--learning-rate",
        "1e-2",
    ]);
    assert_eq!(report["run_dir"], "runs/flowers-1");
    assert!(report["accuracy"].as_f64().unwrap() > 0.9, "{report}");
    let model = "runs/flowers-1/model.safetensors";
    // Without the label column, and with the columns in another order.
    dir.write("more.csv", "\"height, in cm\",width\n3.4,190\n-1.4,10\n");
    let seen = dir.json(&["predict", model, "more.csv"]);
    let read: Vec<&str> =
        seen["predictions"].as_array().unwrap().iter().map(|row| row["predicted"].as_str().unwrap()).collect();
    assert_eq!(read, ["tulip", "rose"]);
    assert_eq!(seen["predictions"][0]["example"], "line 2");
    dir.write("other.csv", "width,depth\n1,2\n");
    assert!(dir.refused(&["predict", model, "other.csv"]).contains("1 columns are missing (height, in cm)"));
    dir.write("mixed.csv", table(120).replace("\n0.00,tulip", "\n0.00,"));
    let refusal = dir.refused(&["train", "mixed.csv", "--missing", "error"]);
    assert!(refusal.contains("mixed.csv:2: kind: the value is missing"), "{refusal}");
    let notes = ["`--missing median` replaces missing values", "height, in cm is the label; use `--label COLUMN`"];
    assert!(notes.iter().all(|note| refusal.contains(note)), "{refusal}");
    let refusal = dir.refused(&["train", "flowers.csv", "--task", "classification"]);
    assert!(
        refusal.contains("flowers.csv:2: height, in cm: `1.500` is not a class")
            && refusal.contains("--task regression")
    );
    let refusal = dir.refused(&["train", "flowers.csv", "--task", "regression", "--label", "kind"]);
    assert!(refusal.contains("flowers.csv:2: kind: `tulip` is not a finite number"), "{refusal}");
    assert!(
        dir.refused(&["train", "flowers.csv", "--label", "kin"])
            .contains("no column `kin`; the columns are kind, width, height, in cm")
    );
    let refusal = dir.refused(&["train", "flowers.csv", "--label", "9"]);
    assert!(refusal.contains("no column `9`; columns 1 to 3 are width, kind, height, in cm"), "{refusal}");
    dir.write("flowers.csv", table(120).replace("20.00", "20,00"));
    assert!(
        dir.refused(&["train", "flowers.csv", "--label", "kind"]).contains("4 cells, expected 3 as in the first row")
    );
    dir.write("flowers.csv", table(120).replace("\n0.00,", "\nnil,"));
    let refusal = dir.refused(&["train", "flowers.csv", "--label", "kind"]);
    assert!(refusal.contains("flowers.csv:2: width: `nil` is not a finite number"), "{refusal}");
    dir.write("flowers.csv", table(121));
    let refusal = dir.refused(&["train", "--resume", "runs/flowers-1"]);
    assert!(refusal.contains("flowers.csv has changed since runs/flowers-1 began"), "{refusal}");
    // A gzipped table; the run folder is named after the table.
    if cfg!(unix) {
        dir.write("packed.csv", table(40));
        assert!(Command::new("gzip").arg(dir.0.join("packed.csv")).status().unwrap().success());
        let report = dir.json(&["train", "packed.csv.gz", "--label", "kind", "--epochs", "1"]);
        assert_eq!(report["run_dir"], "runs/packed-1");
    }
    dir.write("one.csv", "a,label\n1,x\n2,x\n");
    assert!(dir.refused(&["train", "one.csv"]).contains("label: 1 classes in 2 rows"));
    dir.write("few.csv", "a,label\n1,x\n2,y\n");
    assert!(dir.refused(&["train", "few.csv"]).contains("splits 2 examples into 2 for training and 0 for validation"));
    assert!(dir.refused(&["train", "nothing.csv"]).contains("cannot read nothing.csv"));
    assert!(dir.refused(&["train", "few.csv", "--val-split", "0.5", "--model", "cnn"]).contains("cnn needs images"));
}

/// Real tables (see `data/README.md`), on which a linear classifier reaches 95 %.
#[test]
fn real_tables_are_learned() {
    let dir = TempDir::new("real");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    for (name, label, examples, features) in [("wine", "cultivar", 178, 13), ("breast_cancer", "diagnosis", 569, 30)] {
        let table = data.join(format!("{name}.csv")).display().to_string();
        let report = dir.json(&[
            "train",
            &table,
            "--label",
            label,
            "--epochs",
            "20",
            "--batch-size",
            "16",
            "--hidden-sizes",
            "16",
        ]);
        assert!(report["accuracy"].as_f64().unwrap() > 0.93, "{name}: {report}");
        let folder = dir.0.join(report["run_dir"].as_str().unwrap());
        let manifest: Value = serde_json::from_slice(&std::fs::read(folder.join("manifest.json")).unwrap()).unwrap();
        // ROC AUC needs two classes; a linear classifier reaches 0.99.
        let auc = report["roc_auc"].as_f64();
        assert!(if name == "wine" { auc.is_none() } else { auc > Some(0.97) && auc <= Some(1.0) }, "{name}: {report}");
        let held = &manifest["data"];
        assert_eq!(held["train_examples"].as_u64().unwrap() + held["val_examples"].as_u64().unwrap(), examples);
        assert_eq!(manifest["network"]["input"][0], features);
    }
}

/// An image with a bright left or right half.
fn image(side: u32, right: bool, shade: u8) -> image::GrayImage {
    image::GrayImage::from_fn(side, side, |x, _| {
        image::Luma([if (x >= side / 2) == right { 200 + shade } else { shade }])
    })
}

#[test]
fn image_folders_are_trained_and_predicted() {
    let dir = TempDir::new("images");
    for shade in 0..20 {
        for (class, right) in [("left", false), ("right", true)] {
            let path = dir.0.join(format!("halves/{class}/{shade}.png"));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            image(8, right, shade).save(path).unwrap();
        }
    }
    let network = "input = [1, 8, 8]\n[[layer]]\nkind = \"flatten\"\n[[layer]]\nkind = \"linear\"\nout_features = 2\n";
    dir.write("net.toml", network);
    let train = ["train", "halves", "--epochs", "8", "--batch-size", "8", "--learning-rate", "1e-2"];
    let report = dir.json(&[&train[..], &["--model", "net.toml"]].concat());
    assert_eq!((report["accuracy"].as_f64(), report["num_parameters"].as_u64()), (Some(1.0), Some(130)));
    image(12, true, 3).save(dir.0.join("new.png")).unwrap();
    let seen = dir.json(&["predict", "runs/halves-1/model.safetensors", "new.png"]);
    assert_eq!(seen["predictions"][0]["predicted"], "right");
    dir.write("net.toml", network.replace("out_features = 2", "out_features = 3"));
    let refusal = dir.refused(&[&train[..], &["--model", "net.toml"]].concat());
    assert!(refusal.contains("net.toml: its output is [3], but there are 2 classes"), "{refusal}");
    dir.write("net.toml", network.replace("out_features = 2", "out_features = 0"));
    let refusal = dir.refused(&[&train[..], &["--model", "net.toml"]].concat());
    assert!(refusal.contains("net.toml:6: layer 1 (linear): out_features 0 is not in 1 ..="), "{refusal}");
    dir.write("halves/left/broken.png", "no image");
    assert!(dir.refused(&train).contains("halves/left/broken.png: "));
    image(9, true, 3).save(dir.0.join("halves/left/broken.png")).unwrap();
    let refusal = dir.refused(&train);
    assert!(
        refusal.contains("broken.png has 9 × 9 pixels, not 8 × 8 as") && refusal.contains("--image-size"),
        "{refusal}"
    );
    std::fs::create_dir_all(dir.0.join("halves/none")).unwrap();
    assert!(dir.refused(&train).contains("halves/none: it holds no image"));
    std::fs::create_dir_all(dir.0.join("empty")).unwrap();
    assert!(dir.refused(&["train", "empty"]).contains("empty: no sub-folder contains images"));
}

/// Twelve examples of 2 × 3 bytes in the format of MNIST, and their classes.
#[test]
fn idx_and_numpy_files_are_learned() {
    let dir = TempDir::new("pairs");
    let points: Vec<u8> = (0..12u8).flat_map(|i| [if i % 2 == 0 { 0 } else { 250 }; 6].map(|p| p + i % 5)).collect();
    let classes: Vec<u8> = (0..12).map(|i| i % 2).collect();
    let header = |dims: &[u32]| {
        let lengths = dims.iter().flat_map(|dim| dim.to_be_bytes());
        [0, 0, 8, dims.len() as u8].into_iter().chain(lengths).collect::<Vec<u8>>()
    };
    dir.write("mnist/train-images-idx3-ubyte", [header(&[12, 2, 3]), points.clone()].concat());
    dir.write("mnist/train-labels-idx1-ubyte", [header(&[12]), classes.clone()].concat());
    let train = ["--epochs", "6", "--batch-size", "4", "--learning-rate", "2e-2"];
    let report = dir.json(&[&["train", "mnist"], &train[..]].concat());
    assert_eq!(report["accuracy"], 1.0);
    panoply::Device::get("cpu").unwrap().scope(|| {
        let numbers: Vec<f32> = points.iter().map(|point| f32::from(*point) / 255.0).collect();
        let labels: Vec<i32> = classes.iter().map(|class| i32::from(*class)).collect();
        std::fs::create_dir_all(dir.0.join("arrays")).unwrap();
        let save = |tensor: panoply::Tensor, name: &str| {
            panoply::nn::data::npy::save(&tensor, &dir.0.join("arrays").join(name)).unwrap();
        };
        save(panoply::Tensor::from_slice(&numbers, [12, 2, 3]), "x.npy");
        save(panoply::Tensor::from_slice(&labels, [12]), "y.npy");
    });
    let report = dir.json(&[&["train", "arrays/x.npy", "--model", "lstm", "--hidden-sizes", "8"], &train[..]].concat());
    assert_eq!((report["run_dir"].as_str(), report["accuracy"].as_f64()), (Some("runs/x-1"), Some(1.0)));
    let seen = dir.json(&["predict", "runs/mnist-1/model.safetensors"]);
    assert_eq!(seen["correct"], 4);
    // The same arrays in one file.
    panoply::Device::get("cpu").unwrap().scope(|| {
        let arrays = ["x", "y"].map(|name| {
            let file = dir.0.join(format!("arrays/{name}.npy"));
            (name.to_string(), panoply::nn::data::npy::load(&file).unwrap())
        });
        panoply::nn::data::npz::save(&arrays, &dir.0.join("both.npz")).unwrap();
    });
    let report = dir.json(&[&["train", "both.npz"], &train[..]].concat());
    assert_eq!((report["run_dir"].as_str(), report["accuracy"].as_f64()), (Some("runs/both-1"), Some(1.0)));
    assert_eq!(dir.json(&["predict", "runs/both-1", "both.npz", "--num-examples", "12"])["correct"], 12);
    panoply::Device::get("cpu").unwrap().scope(|| {
        let labels = panoply::Tensor::from_slice(&[0i32, 1, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1], [12]);
        panoply::nn::data::npy::save(&labels, &dir.0.join("arrays/y.npy")).unwrap();
    });
    let seen = dir.json(&["predict", "runs/x-1/model.safetensors", "arrays/x.npy"]);
    // Unknown labels count as wrong, as in `accuracy_score`.
    let unknown = &seen["unknown_labels"];
    let counted: u64 = unknown.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!((&seen["labeled"], counted, &unknown["6"]), (&12.into(), 9, &1.into()), "{seen}");
    assert!(seen["correct"].as_u64().unwrap() <= 3, "{seen}");
    // Classes are the values that occur; the only example of a class is used for training.
    panoply::Device::get("cpu").unwrap().scope(|| {
        let labels = panoply::Tensor::from_slice(&[0i32, 4, 0, 4, 0, 4, 2, 4, 0, 4, 0, 4], [12]);
        panoply::nn::data::npy::save(&labels, &dir.0.join("arrays/y.npy")).unwrap();
    });
    let stderr = text(&dir.run(&["train", "arrays/x.npy", "--min-steps", "4", "--val-split", "0.5"]).stderr);
    assert!(
        stderr.contains(", 3 classes (`--task regression` treats it as a number); ")
            && stderr.contains("\nno validation example has class 2\n"),
        "{stderr}"
    );
    // A single class cannot be trained, but can be predicted.
    panoply::Device::get("cpu").unwrap().scope(|| {
        let labels = panoply::Tensor::from_slice(&[0i32; 12], [12]);
        panoply::nn::data::npy::save(&labels, &dir.0.join("arrays/y.npy")).unwrap();
    });
    assert_eq!(dir.json(&["predict", "runs/x-1", "arrays/x.npy"])["labeled"], 12);
    std::fs::remove_file(Path::new(&dir.0).join("mnist/train-labels-idx1-ubyte")).unwrap();
    let refusal = dir.refused(&["train", "mnist"]);
    assert!(refusal.contains("no labels found beside it; looked for"), "{refusal}");
}

/// Parquet files written by pyarrow.
#[cfg(feature = "parquet")]
#[test]
fn parquet_tables_are_trained_and_predicted() {
    let dir = TempDir::new("parquet");
    let houses = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nn/tests/fixtures/snappy.parquet");
    std::fs::copy(houses, dir.0.join("houses.parquet")).unwrap();
    let train = ["train", "houses.parquet", "--label", "city", "--val-split", "0.4", "--epochs", "2"];
    let report = dir.json(&train);
    assert_eq!((report["run_dir"].as_str(), report["accuracy"].is_number()), (Some("runs/houses-1"), true));
    let seen = dir.json(&["predict", "runs/houses-1", "houses.parquet"]);
    assert_eq!((seen["labeled"].as_u64(), seen["predictions"][4]["actual"].as_str()), (Some(5), Some("Bergen")));
    let refusal = dir.refused(&["train", "houses.parquet", "--task", "regression", "--label", "city"]);
    assert!(refusal.contains("houses.parquet:1: city: `Bergen` is not a finite number"), "{refusal}");
    let refusal = dir.refused(&["train", "houses.parquet", "--no-header"]);
    assert!(refusal.contains("--header: houses.parquet is a Parquet table, which has column names"), "{refusal}");
    dir.write("cut.parquet", &std::fs::read(dir.0.join("houses.parquet")).unwrap()[..900]);
    assert!(dir.refused(&["train", "cut.parquet"]).contains("cut.parquet: "));
}

#[test]
fn every_network_and_precision_trains() {
    let dir = TempDir::new("networks");
    for model in [
        &["cnn", "--hidden-sizes", "4"][..],
        &["lstm", "--hidden-sizes", "8"],
        &["transformer", "--hidden-sizes", "8,1"],
    ] {
        let report = dir.json(&[&["train", "digits", "--epochs", "1", "--model"], model].concat());
        assert!(report["accuracy"].as_f64().unwrap() > 0.1, "{report}");
        let folder = report["run_dir"].as_str().unwrap();
        let seen = dir.json(&["predict", &format!("{folder}/model.safetensors"), "--num-examples", "2"]);
        assert_eq!(seen["labeled"], 2);
    }
    // A network file with a residual block.
    dir.write(
        "block.toml",
        "input = [1, 8, 8]\n[[layer]]\nkind = \"residual\"\nshortcut = [{ kind = \"conv\", out_channels = 4, kernel_size = [1, 1] }]\n\
         [[layer.layers]]\nkind = \"conv\"\nout_channels = 4\nkernel_size = [3, 3]\npadding = [1, 1]\n[[layer.layers]]\nkind = \"batch_norm\"\n\
         [[layer]]\nkind = \"hardswish\"\n[[layer]]\nkind = \"flatten\"\n[[layer]]\nkind = \"linear\"\nout_features = 10\n",
    );
    let report = dir.json(&["train", "digits", "--epochs", "2", "--model", "block.toml", "--out", "block"]);
    assert!(report["accuracy"].as_f64().unwrap() > 0.6, "{report}");
    assert_eq!(dir.json(&["predict", "block", "--num-examples", "3"])["labeled"], 3);
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_panoply")).args(arguments).current_dir(&dir.0).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let inspected = run(&["inspect", "block"]);
    assert!(
        inspected.contains("  0  residual   [4, 8, 8]  ") && inspected.contains("0.layers.1.running_mean"),
        "{inspected}"
    );
    run(&["export", "block/model.safetensors", "--out", "block.onnx"]);
    for precision in ["bf16", "f16"] {
        let report = dir.json(&[
            "train",
            "digits",
            "--epochs",
            "2",
            "--precision",
            precision,
            "--batch-size",
            "auto",
            "--hidden-sizes",
            "16",
        ]);
        assert!(report["accuracy"].as_f64().unwrap() > 0.1, "{report}");
    }
    let capped = dir.command(&["train", "digits", "--batch-size", "1024"]).env("PANOPLY_POOL", "2M").output().unwrap();
    let stderr = text(&capped.stderr);
    assert!(
        stderr.contains("out of memory on cpu: a step of 1024 examples needs") && stderr.contains("fits"),
        "{stderr}"
    );
    let refusal = dir.refused(&["train", "--model", "perceptron"]);
    assert!(refusal.contains("unknown network `perceptron`; did you mean `"), "{refusal}");
}
