//! Locked run folders, output that cannot be written, inconsistent manifests, and names with control characters.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::temp_dir::{TempDir, text};

/// Waits until a condition holds.
#[track_caller]
fn wait_until(what: &str, so: impl Fn() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} did not happen");
        std::thread::yield_now();
    }
}

fn lines(dir: &TempDir, file: &str) -> usize {
    std::fs::read_to_string(dir.0.join(file)).map_or(0, |text| text.lines().count())
}

/// A second run in a locked folder fails with the id of the running process and changes nothing; a killed process leaves no lock.
#[test]
fn folder_of_a_running_run_is_locked() {
    let dir = TempDir::new("locked");
    let mut first = dir.command(&["train", "digits", "--epochs", "100000", "--out", "run"]);
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("an epoch", || {
        lines(&dir, "run/history.jsonl") > 1 && dir.0.join("run/checkpoint.safetensors").exists()
    });
    // A temporary file that a running process is about to rename.
    dir.write("run/training.part4000000000", "half of a file");
    for again in [&["--resume", "run"][..], &["digits", "--out", "run"]] {
        let stderr = dir.refused(&[&["train"], again].concat());
        let holder = format!("run is in use: process {} is training there", first.id());
        assert!(stderr.contains(&holder) && stderr.contains("nothing was changed"), "{again:?}: {stderr}");
    }
    assert!(dir.0.join("run/training.part4000000000").exists(), "a file of the active run was deleted");
    assert!(first.try_wait().unwrap().is_none(), "the first run continues");
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(dir.0.join("run/run.lock").exists());
    let stderr = dir.refused(&["train", "digits", "--out", "run"]);
    assert!(stderr.contains("run already contains a run"), "{stderr}");
    let epochs = (lines(&dir, "run/history.jsonl") + 2).to_string();
    let report = dir.json(&["train", "--resume", "run", "--epochs", &epochs]);
    assert_eq!(report["history"].as_array().unwrap().len().to_string(), epochs);
    assert!(!dir.0.join("run/run.lock").exists() && !dir.0.join("run/training.part4000000000").exists());
    // Nor does a lock file that a killed process left in an otherwise empty folder.
    dir.write("empty/run.lock", "4000000000\n");
    dir.json(&["train", "digits", "--epochs", "1", "--out", "empty"]);
}

/// A full disk or closed pipe on stdout ends a command with an error, on stderr it is ignored; the run is saved before.
#[cfg(target_os = "linux")]
#[test]
fn failed_write_to_stdout_is_an_error_and_loses_no_run() {
    let dir = TempDir::new("full");
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let run = |arguments: &[&str], stdout: Stdio, stderr: Stdio| {
        let mut command = dir.command(arguments);
        let output = command.stdout(stdout).stderr(stderr).spawn().unwrap().wait_with_output().unwrap();
        let message = text(&output.stderr);
        assert!(!message.contains("panicked"), "{arguments:?}: {message}");
        (output.status.code(), message)
    };
    let cannot = "panoply: cannot write to stdout: No space left on device";
    let train = |out: &'static str| ["train", "digits", "--epochs", "1", "--out", out];
    for arguments in [&train("a")[..], &["inspect", "a"], &["predict", "a"], &["predict", "a", "--json"], &["devices"]]
    {
        let mut command = dir.command(arguments);
        if ["inspect", "devices"].contains(&arguments[0]) {
            command = Command::new(env!("CARGO_BIN_EXE_panoply"));
            command.args(arguments).current_dir(&dir.0);
        }
        let output = command.stdout(full()).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        assert!(stderr.contains(cannot) && !stderr.contains("panicked"), "{arguments:?}: {stderr}");
    }
    assert!(dir.0.join("a/model.safetensors").exists() && !dir.0.join("a/run.lock").exists());
    // Progress lines that cannot be written.
    assert_eq!(run(&train("b"), Stdio::null(), full()).0, Some(0));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(run(&train("c"), Stdio::null(), writer.into()).0, Some(0));
    assert!(["b", "c"].iter().all(|run| dir.0.join(run).join("model.safetensors").exists()));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(run(&train("d"), writer.into(), Stdio::null()).0, Some(141), "the exit code of SIGPIPE");
    assert!(dir.0.join("d/model.safetensors").exists());
}

/// A path that is not UTF-8 cannot be written as JSON; the command fails before the run starts.
#[cfg(unix)]
#[test]
fn path_that_is_not_utf8_is_rejected_only_with_json() {
    use std::os::unix::ffi::OsStrExt;
    let dir = TempDir::new("bytes-json");
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let run = |json: &[&str]| {
        dir.command(&[&["train", "digits", "--epochs", "1"], json].concat()).arg("--out").arg(name).output().unwrap()
    };
    let output = run(&["--json"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("--json: the path caf") && stderr.contains("is not valid UTF-8"), "{stderr}");
    assert!(!dir.0.join(name).exists(), "no run is started");
    assert!(run(&[]).status.success() && dir.0.join(name).join("model.safetensors").exists());
}

/// A modification of a manifest.
type Change = Box<dyn FnOnce(&mut Value)>;

/// Writes a model file of the run with a modified manifest.
fn with_manifest(dir: &TempDir, name: &str, change: impl FnOnce(&mut Value)) {
    let bytes = std::fs::read(dir.0.join("run/model.safetensors")).unwrap();
    let (length, rest) = bytes.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
    let mut header: Value = serde_json::from_slice(header).unwrap();
    let mut manifest: Value = serde_json::from_str(header["__metadata__"]["manifest"].as_str().unwrap()).unwrap();
    change(&mut manifest);
    header["__metadata__"]["manifest"] = manifest.to_string().into();
    let mut header = header.to_string();
    header += &" ".repeat(header.len().next_multiple_of(8) - header.len());
    dir.write(name, [&header.len().to_le_bytes(), header.as_bytes(), data].concat());
}

/// Each part is valid by itself, but contradicts another one.
#[test]
fn inconsistent_manifest_is_rejected() {
    let dir = TempDir::new("contradicting");
    dir.json(&["train", "digits", "--epochs", "1", "--out", "run"]);
    let images =
        |channels: u64, rows: u64| json!({"kind": "images", "channels": channels, "height": rows, "width": rows});
    let columns = vec!["a"; 64];
    let csv = |rest: Value| {
        let mut source =
            json!({"kind": "csv", "feature_columns": columns, "label_columns": ["y"], "task": "classification"});
        source.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        source
    };
    let source = |source: Value| move |manifest: &mut Value| manifest["data"]["format"] = source;
    let cases: Vec<(Change, &str)> = vec![
        (Box::new(|m| m["data"]["class_names"] = json!([])), "0 classes"),
        (Box::new(|m| m["data"]["class_names"] = json!(["only"])), "1 classes"),
        (Box::new(|m| m["data"]["class_names"] = json!(["a", "b"])), "outputs [2], but the network gives [10]"),
        (
            Box::new(source(json!({"kind": "text", "vocabulary": "", "context_length": 0}))),
            "a vocabulary of 0 characters",
        ),
        (
            Box::new(source(json!({"kind": "text", "vocabulary": "abcdefghji", "context_length": 64}))),
            "a vocabulary of 10",
        ),
        (
            Box::new(source(json!({"kind": "text", "vocabulary": "abcdefghij", "context_length": 10u64.pow(18)}))),
            "[1000000000000000000]",
        ),
        (Box::new(source(images(7, 8))), "images of 7 channels"),
        (Box::new(source(images(1, 0))), "0 × 0 pixels"),
        (Box::new(source(images(1, (1 << 32) + 8))), "4294967304 × 4294967304 pixels"),
        (Box::new(source(images(3, 8))), "examples are [3, 8, 8], but the network takes [1, 8, 8]"),
        (
            Box::new(source(json!({"kind": "idx", "shape": [1u64 << 63, 2, 1]}))),
            "examples are [9223372036854775808, 2, 1]",
        ),
        (Box::new(source(json!({"kind": "idx", "shape": []}))), "examples are []"),
        (
            Box::new(source(json!({"kind": "npy", "shape": [64], "task": "regression", "num_outputs": 10u64.pow(18)}))),
            "the loss cross_entropy does not fit",
        ),
        (
            Box::new(source(csv(json!({"sequence": {"column": "s", "max_len": 10u64.pow(18)}})))),
            "[1000000000000000000, 64]",
        ),
        (Box::new(source(csv(json!({"feature_columns": []})))), "examples are [0]"),
        (Box::new(source(csv(json!({"label_columns": ["y", "z"]})))), "classification with 2 label columns"),
        (Box::new(source(csv(json!({"label_columns": [], "task": "regression"})))), "no targets"),
        (Box::new(|m| m["settings"]["batch_size"] = json!(0)), "batch size 0"),
        (Box::new(|m| m["network"]["loss"] = json!({"kind": "mse"})), "the loss mse does not fit"),
    ];
    for (change, expected) in cases {
        with_manifest(&dir, "m.safetensors", change);
        for command in ["predict", "export"] {
            let mut panoply = Command::new(env!("CARGO_BIN_EXE_panoply"));
            let output = panoply.args([command, "m.safetensors"]).current_dir(&dir.0).output().unwrap();
            let error = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{expected}: {}: {error}", output.status);
            assert!(
                error.contains("m.safetensors: its manifest is inconsistent: ") && error.contains(expected),
                "{expected}: {error}"
            );
        }
    }
    // The manifest of a run folder is checked like that of a model file.
    let manifest = std::fs::read_to_string(dir.0.join("run/manifest.json")).unwrap();
    let mut fewer: Value = serde_json::from_str(&manifest).unwrap();
    fewer["data"]["class_names"] = json!(["a", "b", "c"]);
    dir.write("run/manifest.json", fewer.to_string());
    let stderr = dir.refused(&["train", "--resume", "run", "--epochs", "2"]);
    assert!(stderr.contains("run/manifest.json: its manifest is inconsistent"), "{stderr}");
    let mut renamed: Value = serde_json::from_str(&manifest).unwrap();
    renamed["data"]["class_names"][0] = json!("naught");
    dir.write("run/manifest.json", renamed.to_string());
    let stderr = dir.refused(&["train", "--resume", "run", "--epochs", "2"]);
    assert!(stderr.contains("digits has changed since run began: class 1 is `0` now and was `naught`"), "{stderr}");
}

/// A model file whose arrays are not those of its network description, which only a replaced part of the file explains.
#[test]
fn model_file_that_does_not_fit_its_network_description_is_rejected() {
    let dir = TempDir::new("other-network");
    dir.json(&["train", "digits", "--epochs", "1", "--out", "run"]);
    with_manifest(&dir, "m.safetensors", |manifest| {
        let layers = manifest["network"]["layers"].as_array_mut().unwrap();
        let at = layers.iter().position(|layer| layer.get("linear").is_some()).unwrap();
        layers[at]["linear"]["out_features"] = 127.into();
    });
    for command in ["predict", "inspect"] {
        // `inspect` runs nothing and has no option for a device, which `refused` adds.
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_panoply"));
        let output = program.args([command, "m.safetensors"]).current_dir(&dir.0).output().unwrap();
        assert!(!output.status.success());
        let stderr = text(&output.stderr);
        assert!(
            stderr.contains("m.safetensors: the model file does not fit its network description: ")
                && stderr.contains(" mismatched (")
                && stderr.contains("use another copy")
                && !stderr.contains("key_map"),
            "{command}: {stderr}"
        );
    }
}

/// A manifest names its data; reading a pipe without a writer would block forever.
#[cfg(unix)]
#[test]
fn manifest_must_not_name_a_pipe_or_device_as_data() {
    let dir = TempDir::new("pipe");
    dir.json(&["train", "digits", "--epochs", "1", "--out", "run"]);
    let pipe = dir.0.join("x.npy");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [pipe.to_str().unwrap(), "/dev/zero", "/proc/self/mem"] {
        with_manifest(&dir, "m.safetensors", |manifest| {
            manifest["data"]["format"] = json!({"kind": "npy", "shape": [1, 8, 8], "task": "classification"});
            manifest["data"]["path"] = path.into();
        });
        let stderr = dir.refused(&["predict", "m.safetensors"]);
        assert!(stderr.contains("it is neither a file nor a folder of data"), "{path}: {stderr}");
    }
}

/// Names with escape sequences and line feeds, from a table and from a manifest.
#[test]
fn control_characters_in_names_are_escaped() {
    let dir = TempDir::new("control");
    dir.json(&["train", "digits", "--epochs", "1", "--out", "run"]);
    let evil = "\u{1b}]0;pwned\u{7}\u{1b}[2J\u{9b}31m\ncat\u{202e}";
    with_manifest(&dir, "m.safetensors", |manifest| {
        for class in manifest["data"]["class_names"].as_array_mut().unwrap() {
            *class = format!("{evil}{}", class.as_str().unwrap()).into();
        }
        manifest["data"]["path"] = evil.into();
        manifest["settings"]["model"] = evil.into();
    });
    let rows: Vec<String> =
        (0..60).map(|at| format!("{}.5,{}\n", at % 2, ["\u{1b}[31mred", "b\u{9b}lue\u{1}"][at % 2])).collect();
    dir.write("evil.csv", format!("x,kind\u{1b}[2J\n{}", rows.concat()));
    let clean = |what: &str, bytes: &[u8]| {
        let shown = text(bytes);
        let bad = shown.chars().find(|c| (c.is_control() && *c != '\n' && *c != '\t') || *c == '\u{202e}');
        assert_eq!(bad, None, "{what}: {shown:?}");
        shown
    };
    for arguments in [
        &["predict", "m.safetensors", "--num-examples", "40"][..],
        &["predict", "m.safetensors", "--num-examples", "40", "--json"],
        &["inspect", "m.safetensors"],
        &["train", "evil.csv", "--epochs", "2", "--out", "evil"],
        &["predict", "evil", "evil.csv"],
    ] {
        let mut panoply = Command::new(env!("CARGO_BIN_EXE_panoply"));
        let output = panoply.args(arguments).current_dir(&dir.0).output().unwrap();
        let stderr = text(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        let shown = clean(&format!("{arguments:?}"), &output.stdout);
        clean(&format!("{arguments:?}"), &output.stderr);
        if arguments.contains(&"--json") {
            let document: Value = serde_json::from_str(&shown).unwrap();
            let read = document["predictions"][0]["predicted"].as_str().unwrap();
            assert!(read.starts_with(evil), "JSON contains the name unchanged: {read:?}");
        } else if arguments[1] == "m.safetensors" && arguments[0] == "predict" {
            assert!(shown.contains("\\u{1b}[2J\\u{9b}31m\\ncat\\u{202e}"), "{shown}");
        }
    }
    let read = |name: &str| std::fs::read(dir.0.join("evil").join(name)).unwrap();
    let svg = clean("confusion_matrix.svg", &read("confusion_matrix.svg"));
    assert!(svg.contains(">\\u{1b}[31mred</text>"), "{svg}");
    let table = clean("confusion_matrix.txt", &read("confusion_matrix.txt"));
    assert_eq!(table.lines().count(), 4, "a header, a line per class, and a summary: {table}");
}
