//! Runs that fail and are resumed: missing, corrupt or inconsistent files, diverging training, output that cannot be written, and locked
//! folders.

use std::path::Path;
use std::process::Command;

use crate::support::temp_dir::{TempDir, text};
use serde_json::Value;

#[test]
fn run_without_its_checkpoint_is_not_restarted() {
    let dir = TempDir::new("stateless");
    dir.json(&["train", "digits", "--epochs", "2", "--out", "run"]);
    let read = |name: &str| std::fs::read(dir.0.join("run").join(name)).unwrap();
    let before = ["history.jsonl", "model.safetensors", "manifest.json"].map(read);
    std::fs::remove_file(dir.0.join("run/checkpoint.safetensors")).unwrap();
    let stderr = dir.refused(&["train", "--resume", "run", "--epochs", "4"]);
    assert!(stderr.contains("run/checkpoint.safetensors is missing, but run/model.safetensors exists"), "{stderr}");
    assert_eq!(["history.jsonl", "model.safetensors", "manifest.json"].map(read), before, "nothing was changed");
}

/// The loss overflows: the run stops, keeps its files, and these can be read again.
#[test]
fn diverged_run_gives_advice_and_can_be_read_again() {
    let dir = TempDir::new("diverging");
    let train = line(&dir, "mse");
    let rate = ["--optimizer", "sgd", "--learning-rate", "3", "--clip-norm", "1e30", "--epochs", "300", "--out", "run"];
    let stderr = dir.refused(&[&train[..], &rate].concat());
    assert!(stderr.contains("smaller `--learning-rate`") && !stderr.contains("continues from it"), "{stderr}");
    let history = std::fs::read_to_string(dir.0.join("run/history.jsonl")).unwrap();
    assert!(!history.is_empty() && !history.contains("null"), "{history}");
    let again = dir.refused(&["train", "--resume", "run"]);
    assert!(again.contains("smaller `--learning-rate`") && !again.contains("invalid type"), "{again}");
}

/// Data on a line, and a network of one layer.
fn line(dir: &TempDir, loss: &str) -> [&'static str; 8] {
    let rows: Vec<String> = (0..60).map(|i| format!("{i},{}\n", 3 * i)).collect();
    dir.write("line.csv", format!("x,y\n{}", rows.concat()));
    let net = format!("input = [1]\n[loss]\nkind = \"{loss}\"\n[[layer]]\nkind = \"linear\"\nout_features = 1\n");
    dir.write("line.toml", net);
    ["train", "line.csv", "--label", "y", "--task", "regression", "--model", "line.toml"]
}

#[test]
fn run_that_diverges_in_the_first_epoch_gives_advice() {
    let dir = TempDir::new("diverging-at-once");
    let train = line(&dir, "mse");
    let rate = ["--optimizer", "sgd", "--learning-rate", "1e30", "--clip-norm", "1e30", "--out", "run"];
    let stderr = dir.refused(&[&train[..], &rate].concat());
    assert!(stderr.contains("after epoch 1\n"), "{stderr}");
    let advice = "no model was saved, because no epoch was completed; start another run in another folder with a \
                  smaller `--learning-rate`";
    assert!(stderr.contains(advice) && !stderr.contains("best model"), "{stderr}");
    assert!(!dir.0.join("run/model.safetensors").exists() && !stderr.contains("--resume"), "{stderr}");
    // Following the advice in the same folder is an error.
    let again = dir.refused(&[&train[..], &["--learning-rate", "0.01", "--out", "run"]].concat());
    assert!(
        again.contains("run already contains a run") && again.contains("or another `--output-dir` for a new run"),
        "{again}"
    );
}

#[test]
fn infinite_score_is_written_as_minus_inf() {
    let dir = TempDir::new("infinite");
    let train = line(&dir, "l1");
    let rate = ["--optimizer", "sgd", "--learning-rate", "1e25", "--clip-norm", "1e30", "--epochs", "1"];
    let report = dir.json(&[&train[..], &rate].concat());
    assert_eq!((&report["history"][0]["val_score"], &report["r2"]), (&"-inf".into(), &"-inf".into()), "{report}");
}

#[test]
fn class_missing_from_one_split_is_reported() {
    let dir = TempDir::new("one-sided");
    let rows: Vec<String> = (0..40).map(|i| format!("{i}.5,{}\n", if i == 7 { "odd" } else { "even" })).collect();
    dir.write("few.csv", format!("x,label\n{}", rows.concat()));
    let stderr = text(&dir.run(&["train", "few.csv", "--epochs", "1"]).stderr);
    assert!(
        stderr.contains("no validation example has class odd") || stderr.contains("no training example has class odd"),
        "{stderr}"
    );
}

#[test]
fn unreadable_files_are_reported_with_location_and_fix() {
    let dir = TempDir::new("unread");
    let refused = |name: &str, content: &[u8]| {
        dir.write(name, content);
        dir.refused(&["train", name, "--epochs", "1"])
    };
    let stderr = refused("latin.csv", b"x,label\n1,caf\xe9\n2,b\n");
    assert!(stderr.contains("latin.csv:2: byte 0xe9 is not UTF-8") && stderr.contains("--encoding latin1"), "{stderr}");
    let stderr = refused("head.csv", b"x,label\n");
    assert!(stderr.contains("head.csv: there is only one line; if it is a header, there are no rows"), "{stderr}");
    let stderr = refused("only.csv", b"x,label\n1,a\n");
    assert!(stderr.contains("only.csv: there is only one row after the header"), "{stderr}");
    let stderr = refused("cut.csv.gz", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x4b]);
    assert!(stderr.contains("gzip") && stderr.contains("another copy"), "{stderr}");
    dir.json(&["train", "digits", "--epochs", "1", "--out", "run"]);
    let model = std::fs::read(dir.0.join("run/model.safetensors")).unwrap();
    dir.write("run/model.safetensors", &model[..model.len() / 2]);
    let stderr = dir.refused(&["predict", "run"]);
    assert!(stderr.contains("run/model.safetensors: ") && stderr.contains("another copy"), "{stderr}");
    // A checkpoint has no other copy.
    let state = std::fs::read(dir.0.join("run/checkpoint.safetensors")).unwrap();
    dir.write("run/checkpoint.safetensors", &state[..state.len() / 2]);
    let stderr = dir.refused(&["train", "--resume", "run", "--epochs", "2"]);
    assert!(stderr.contains("run/checkpoint.safetensors: it is not a complete safetensors file"), "{stderr}");
    assert!(
        stderr.contains("cannot be resumed from it; run/model.safetensors is kept; start another run")
            && !stderr.contains("copy"),
        "{stderr}"
    );
}

/// A table with two features and a class, and a model trained on it for one epoch.
fn trained(dir: &TempDir) {
    let row = |at: usize| format!("{},{},{}\n", at % 7, (at * 5) % 11, if at % 7 > 3 { "high" } else { "low" });
    dir.write("d.csv", format!("a,b,y\n{}", (0..60).map(row).collect::<String>()));
    dir.json(&["train", "d.csv", "--label", "y", "--epochs", "1", "--hidden-sizes", "8", "--out", "run"]);
}

/// Runs `panoply` without `--device`, which some commands do not accept.
fn plain(dir: &TempDir, arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_panoply")).args(arguments).current_dir(&dir.0).output().unwrap()
}

#[track_caller]
fn export_refused(dir: &TempDir, arguments: &[&str]) -> String {
    let output = plain(dir, &[&["export"], arguments].concat());
    assert!(!output.status.success(), "{arguments:?}: {}", text(&output.stdout));
    text(&output.stderr)
}

/// Returns every file of a folder with its content.
fn contents(folder: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut all: Vec<_> = entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap())).collect();
    all.sort();
    all
}

/// An export never overwrites files of a run or the training data.
#[test]
fn export_overwrites_no_model_run_or_data() {
    let dir = TempDir::new("spared");
    trained(&dir);
    std::fs::copy(dir.0.join("run/model.safetensors"), dir.0.join("self.safetensors")).unwrap();
    dir.write("notes.txt", "precious");
    dir.write("other/manifest.json", "{}");
    let before = [contents(&dir.0.join("run")), contents(&dir.0.join("other"))];
    let kept = || ["self.safetensors", "d.csv", "notes.txt"].map(|name| std::fs::read(dir.0.join(name)).unwrap());
    let files = kept();
    let absolute = dir.0.join("self.safetensors").display().to_string();
    let mut cases = vec![
        ("self.safetensors", "./self.safetensors", "the model itself"),
        ("self.safetensors", &absolute, "the model itself"),
        ("self.safetensors", "run/../self.safetensors", "the model itself"),
        ("run", "./run/model.safetensors", "the model itself"),
        ("run", "run/checkpoint.safetensors", "checkpoint.safetensors, a file of a run"),
        ("self.safetensors", "run/manifest.json", "manifest.json, a file of a run"),
        ("run", "run/next.bin", "in the folder of a run"),
        ("run", "other/manifest.json", "manifest.json, a file of a run"),
        ("run", "d.csv", "the training data of the model"),
        ("run", "./notes.txt", "an existing file that is not named NAME.onnx"),
    ];
    if cfg!(unix) {
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("self.safetensors", dir.0.join("soft.onnx")).unwrap();
            std::fs::hard_link(dir.0.join("run/checkpoint.safetensors"), dir.0.join("hard.onnx")).unwrap();
            std::os::unix::fs::symlink("self.safetensors", dir.0.join("linked.safetensors")).unwrap();
            std::os::unix::fs::symlink("notes.txt", dir.0.join("notes.onnx")).unwrap();
        }
        cases.extend([
            ("self.safetensors", "soft.onnx", "the model itself"),
            ("run", "hard.onnx", "checkpoint.safetensors, a file of a run"),
            ("linked.safetensors", "self.safetensors", "the model itself"),
            ("run", "notes.onnx", "an existing file that is not named NAME.onnx"),
        ]);
    }
    for (model, out, expected) in cases {
        let refusal = export_refused(&dir, &[model, "--out", out]);
        assert!(
            refusal.contains(&format!("--output {out} is ")) && refusal.contains(expected),
            "{model} {out}: {refusal}"
        );
    }
    assert_eq!([contents(&dir.0.join("run")), contents(&dir.0.join("other"))], before);
    assert_eq!(kept(), files);
    // An earlier export is overwritten, beside the run and in its folder.
    for arguments in [&["export", "run"][..], &["export", "run"], &["export", "run", "--out", "new.onnx"]] {
        assert!(plain(&dir, arguments).status.success());
    }
    assert_eq!(std::fs::read(dir.0.join("run/model.onnx")).unwrap(), std::fs::read(dir.0.join("new.onnx")).unwrap());
    dir.json(&["train", "--resume", "run", "--epochs", "2"]);
}

/// Resuming keeps modes and links of a run's files; exports can be written to a pipe and to a device.
#[cfg(unix)]
#[test]
fn file_modes_and_links_are_kept() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    let dir = TempDir::new("modes");
    trained(&dir);
    std::fs::create_dir(dir.0.join("disk")).unwrap();
    std::fs::rename(dir.0.join("run/model.safetensors"), dir.0.join("disk/model.safetensors")).unwrap();
    symlink("../disk/model.safetensors", dir.0.join("run/model.safetensors")).unwrap();
    let names = ["checkpoint.safetensors", "manifest.json", "history.jsonl", "curves.svg", "model.safetensors"];
    let mode = |name: &str| std::fs::metadata(dir.0.join("run").join(name)).unwrap().permissions().mode() & 0o777;
    for name in names {
        std::fs::set_permissions(dir.0.join("run").join(name), PermissionsExt::from_mode(0o600)).unwrap();
    }
    let before = std::fs::read(dir.0.join("disk/model.safetensors")).unwrap();
    dir.json(&["train", "--resume", "run", "--epochs", "3"]);
    assert_eq!(names.map(mode), [0o600; 5]);
    assert!(dir.0.join("run/model.safetensors").is_symlink());
    assert_ne!(std::fs::read(dir.0.join("disk/model.safetensors")).unwrap(), before);

    assert!(plain(&dir, &["export", "run", "--out", "whole.onnx"]).status.success());
    let whole = std::fs::read(dir.0.join("whole.onnx")).unwrap();
    let pipe = plain(&dir, &["export", "run", "--out", "/dev/stdout"]);
    assert!(pipe.status.success() && pipe.stdout == whole, "{}", text(&pipe.stderr));
    assert!(text(&pipe.stderr).contains("wrote /dev/stdout: "), "{}", text(&pipe.stderr));
    assert!(plain(&dir, &["export", "run", "--out", "/dev/null"]).status.success());
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    let long = format!("{}.onnx", "n".repeat(250));
    assert!(plain(&dir, &["export", "run", "--out", &long]).status.success());
}

/// Printed commands name the current folder of the run, quoted for a shell.
#[cfg(unix)]
#[test]
fn copied_run_names_its_current_folder() {
    let dir = TempDir::new("copied");
    trained(&dir);
    let copy = "it's a copy";
    std::fs::create_dir(dir.0.join(copy)).unwrap();
    for (name, content) in contents(&dir.0.join("run")) {
        std::fs::write(dir.0.join(copy).join(name), content).unwrap();
    }
    std::fs::rename(dir.0.join("run"), dir.0.join("gone")).unwrap();
    let report = dir.json(&["train", "--resume", copy, "--epochs", "2"]);
    let resume = "panoply train --resume 'it'\\''s a copy'";
    let predict = "panoply predict 'it'\\''s a copy/model.safetensors'";
    let commands = |document: &Value| {
        [&document["commands"]["resume"], &document["commands"]["predict"]].map(|c| c.as_str().unwrap().to_string())
    };
    assert_eq!(commands(&report), [resume, predict]);
    let manifest = std::fs::read(dir.0.join(copy).join("manifest.json")).unwrap();
    assert_eq!(commands(&serde_json::from_slice(&manifest).unwrap()), [resume, predict]);
    let stdout = text(&dir.run(&["train", "--resume", copy, "--epochs", "3"]).stdout);
    assert!(
        stdout.contains(&format!("\npredict:  {predict}\n"))
            && stdout.contains(&format!("\nresume:   {resume} --epochs 6\n")),
        "{stdout}"
    );
    // The printed commands work as they are.
    for (command, more) in [(predict, " d.csv --device cpu"), (resume, " --epochs 4 --device cpu")] {
        let line = command.replacen("panoply", env!("CARGO_BIN_EXE_panoply"), 1) + more;
        let output = Command::new("sh").args(["-c", &line]).current_dir(&dir.0).output().unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    }
}

/// Renamed columns or classes count as changed data, even with equal numbers.
#[test]
fn resume_rejects_renamed_columns_and_classes() {
    let dir = TempDir::new("renamed");
    trained(&dir);
    let table = std::fs::read_to_string(dir.0.join("d.csv")).unwrap();
    for (changed, expected) in [
        (table.replace("a,b,y", "b,a,y"), "column 1 is `b` now and was `a`"),
        (table.replace("a,b,y", "a,c,y"), "column 2 is `c` now and was `b`"),
        (table.replace("low", "lower"), "class 2 is `lower` now and was `low`"),
        (table.replacen("0,0,", "0,3,", 1), "its examples have changed"),
    ] {
        dir.write("d.csv", changed);
        let refusal = dir.refused(&["train", "--resume", "run", "--epochs", "2"]);
        assert!(refusal.contains("d.csv has changed since run began: ") && refusal.contains(expected), "{refusal}");
        let refusal = dir.refused(&["predict", "run"]);
        assert!(
            refusal.contains("d.csv is not what this model was trained on: ") && refusal.contains(expected),
            "{refusal}"
        );
    }
    dir.write("d.csv", &table);
    assert_eq!(dir.json(&["predict", "run"])["labeled"], 4);
    dir.json(&["train", "--resume", "run", "--epochs", "2"]);
    // With another file of the same name in the current folder, the file of the run is read.
    dir.write("elsewhere/d.csv", "a,b,y\n1,2,low\n3,4,high\n");
    let elsewhere = TempDir(dir.0.join("elsewhere"));
    assert_eq!(elsewhere.json(&["predict", "../run"])["labeled"], 4);
    // A changed category, which `predict` finds by its spelling.
    let rows: String =
        (0..40).map(|at| format!("{},{},{}\n", at % 5, if at % 3 == 0 { "red" } else { "blue" }, at % 2)).collect();
    dir.write("words.csv", format!("n,color,y\n{rows}"));
    dir.json(&["train", "words.csv", "--label", "y", "--epochs", "1", "--out", "words"]);
    dir.write("words.csv", format!("n,color,y\n{}", rows.replace("red", "green")));
    let refusal = dir.refused(&["train", "--resume", "words", "--epochs", "2"]);
    assert!(refusal.contains("words.csv has changed since words began: the categories of column `color`"), "{refusal}");
}

/// Every command accepts a folder whose name is not UTF-8.
#[cfg(target_os = "linux")]
#[test]
fn folder_names_need_not_be_utf8() {
    use std::os::unix::ffi::OsStrExt;
    let dir = TempDir::new("bytes");
    trained(&dir);
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
    std::fs::rename(dir.0.join("run"), dir.0.join(name)).unwrap();
    for (before, behind) in [
        (&["train", "--resume"][..], &["--epochs", "2", "--device", "cpu"][..]),
        (&["predict"], &["d.csv", "--device", "cpu"]),
        (&["predict"], &["d.csv", "--device", "cpu", "--json"]),
        (&["inspect"], &[]),
        (&["inspect"], &["--json"]),
        (&["export"], &[]),
        (&["export"], &["--json"]),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
        let output = command.args(before).arg(name).args(behind).current_dir(&dir.0).output().unwrap();
        assert!(output.status.success(), "{before:?}: {}", text(&output.stderr));
        assert!(
            before[0] != "train"
                || text(&output.stdout).contains("resume:   panoply train --resume $'caf\\351' --epochs 4\n")
        );
    }
    assert!(dir.0.join(name).join("model.onnx").exists());
}

/// A model from a pipe is read once.
#[cfg(unix)]
#[test]
fn model_can_be_read_from_a_pipe() {
    let dir = TempDir::new("piped");
    trained(&dir);
    let panoply = env!("CARGO_BIN_EXE_panoply");
    for (line, expected) in [
        (format!("cat run/model.safetensors | {panoply} predict /dev/stdin d.csv --device cpu"), "accuracy "),
        (format!("cat run/model.safetensors | {panoply} inspect /dev/stdin"), "trained on d.csv"),
        (format!("cat run/model.safetensors | {panoply} export /dev/stdin --out piped.onnx"), "wrote piped.onnx: "),
    ] {
        let output = Command::new("sh").args(["-c", &line]).current_dir(&dir.0).output().unwrap();
        assert!(output.status.success() && text(&output.stdout).contains(expected), "{line}: {output:?}");
    }
    let line = format!("cat run/model.safetensors | {panoply} export /dev/stdin");
    let output = Command::new("sh").args(["-c", &line]).current_dir(&dir.0).output().unwrap();
    assert!(text(&output.stderr).contains("--output FILE.onnx is missing"), "{output:?}");
}

/// An 8-bit tensor does not hide the others; NaN is counted by the definition of each type.
#[test]
fn inspect_lists_unsupported_element_types() {
    let dir = TempDir::new("eight");
    let header = r#"{"e4":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]},"e5":{"dtype":"F8_E5M2","shape":[4],"data_offsets":[4,8]},"w":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}"#;
    let numbers = [&[0x7f, 0xff, 0x7e, 0][..], &[0x7c, 0xfd, 0x7b, 0]].concat();
    let floats = [1f32.to_le_bytes(), f32::NAN.to_le_bytes()].concat();
    dir.write("m.safetensors", [&header.len().to_le_bytes()[..], header.as_bytes(), &numbers, &floats].concat());
    let output = plain(&dir, &["inspect", "m.safetensors", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows: Vec<_> = report["tensors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["dtype"].as_str().unwrap(), row["bytes"].as_u64().unwrap(), row["nonfinite"].as_u64().unwrap()))
        .collect();
    assert_eq!(rows, [("F8_E4M3", 4, 2), ("F8_E5M2", 4, 2), ("f32", 8, 1)]);
    assert_eq!((&report["numel"], &report["bytes"]), (&10.into(), &16.into()));
    // Files of other programs are identified.
    dir.write("m.pt", "PK\u{3}\u{4}          model/data.pkl");
    for command in ["inspect", "predict", "export"] {
        let refusal = text(&plain(&dir, &[command, "m.pt"]).stderr);
        assert!(refusal.contains("m.pt: it is a torch.save file") && refusal.contains("torch.load"), "{refusal}");
    }
}
