//! `panoply train` in several processes: the same losses as one process, one report, and an error for all if a rank is lost.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::temp_dir::{TempDir, text};
use serde_json::Value;

/// Relative tolerance for losses compared to one process: sums over a batch are rounded in another order, and errors accumulate over the
/// steps.
const TOLERANCE: f64 = 1e-5;

/// Time limit for the end of all ranks after one is lost.
const END: Duration = Duration::from_secs(5);

/// Returns true if `mpirun` is installed; otherwise prints which test is skipped.
fn has_launcher(what: &str) -> bool {
    let here = Command::new("mpirun").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if here.is_err() {
        println!("SKIPPED: {what}: mpirun is not installed; run `cargo xtask install`");
    }
    here.is_ok()
}

/// Returns `panoply mesh run` of a command in a folder.
fn mesh_run(dir: &TempDir, ranks: usize, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
    command.args(["mesh", "run", "-n", &ranks.to_string(), "--"]).args(arguments);
    command.args(["--device", "cpu"]).current_dir(&dir.0).stdin(Stdio::null());
    command
}

/// Returns the stdout document of a command that succeeds, and its stderr.
#[track_caller]
fn report(mut command: Command) -> (Value, String) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = serde_json::from_slice(&output.stdout);
    (report.unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout))), text(&output.stderr))
}

/// Returns the losses and the score of each epoch.
fn history(report: &Value) -> Vec<[f64; 3]> {
    let number = |epoch: &Value, name: &str| epoch[name].as_f64().unwrap();
    let epochs = report["history"].as_array().unwrap().iter();
    epochs.map(|epoch| ["train_loss", "val_loss", "val_score"].map(|name| number(epoch, name))).collect()
}

#[track_caller]
fn assert_close(several: &Value, one: &Value) {
    let (several, one) = (history(several), history(one));
    assert_eq!(several.len(), one.len());
    for ([loss, validation, score], [loss1, validation1, score1]) in several.iter().zip(&one) {
        for (have, want) in [(loss, loss1), (validation, validation1)] {
            assert!((have - want).abs() <= TOLERANCE * want, "{have} and {want}: {several:?} {one:?}");
        }
        // One example of 359 can change its class.
        assert!((score - score1).abs() <= 1.0 / 350.0, "{several:?} {one:?}");
    }
}

#[test]
fn ranks_train_to_the_loss_of_one_process() {
    if !has_launcher("training in several processes") {
        return;
    }
    let dir = TempDir::new("mesh-train");
    // 1438 examples: the last batch of 100 has 38, and 3 ranks have parts of unequal size. Dropout draws the same numbers.
    for (ranks, options) in [
        (2, &["--epochs", "4"][..]),
        (3, &["--epochs", "2", "--batch-size", "100", "--accumulate-grad-batches", "2", "--class-weights", "balanced"]),
    ] {
        let train = [&["train", "digits", "--json"], options].concat();
        let alone = dir.json(&[&["train", "digits"], options].concat());
        let (together, stderr) = report(mesh_run(&dir, ranks, &train));
        assert_close(&together, &alone);
        assert_eq!(stderr.matches("training and").count(), 1, "one rank reports: {stderr}");
    }
    let folders = std::fs::read_dir(dir.0.join("runs")).unwrap().count();
    assert_eq!(folders, 4, "one folder for each run");
    // A run of several ranks resumes like one of a single process.
    let alone = dir.json(&["train", "digits", "--epochs", "6"]);
    let (together, _) = report(mesh_run(&dir, 2, &["train", "--resume", "runs/digits-2", "--epochs", "6", "--json"]));
    assert_close(&together, &alone);
}

#[test]
fn shards_give_the_same_model_file_on_any_number_of_ranks() {
    if !has_launcher("training with shards in several processes") {
        return;
    }
    let dir = TempDir::new("mesh-shards");
    // Dropout and batch norm; 1438 examples leave a batch of 38, whose shards have 9 or 10 examples.
    let network = "input = [64]\n[[layer]]\nkind = \"linear\"\nout_features = 24\n[[layer]]\nkind = \"batch_norm\"\n\
                   [[layer]]\nkind = \"relu\"\n[[layer]]\nkind = \"dropout\"\np = 0.2\n[[layer]]\nkind = \"linear\"\nout_features = 10\n";
    dir.write("norm.toml", network);
    let train = |epochs: &'static str, out: &'static str| {
        let options = ["--model", "norm.toml", "--batch-size", "100", "--accumulate-grad-batches", "2"];
        [&["train", "digits", "--shards", "4", "--json", "--epochs", epochs, "--out", out], &options[..]].concat()
    };
    let model = |out: &str| std::fs::read(dir.0.join(out).join("model.safetensors")).unwrap();
    let alone = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
        command.args(arguments).args(["--device", "cpu"]).current_dir(&dir.0);
        report(command).0
    };
    let one = alone(&train("4", "one"));
    assert!(history(&one)[3][2] > 0.7, "{one}");
    for (ranks, out) in [(2, "two"), (4, "four")] {
        let (report, _) = report(mesh_run(&dir, ranks, &train("4", out)));
        assert_eq!(history(&report), history(&one), "{ranks} ranks");
        assert!(model(out) == model("one"), "{ranks} ranks write another model file");
    }
    // A run of two ranks continues on one and on four.
    report(mesh_run(&dir, 2, &train("2", "first")));
    copy_folder(&dir.0.join("first"), &dir.0.join("second"));
    alone(&["train", "--resume", "first", "--epochs", "4", "--json"]);
    report(mesh_run(&dir, 4, &["train", "--resume", "second", "--epochs", "4", "--json"]));
    assert!(model("first") == model("one"), "resumed on one rank");
    assert!(model("second") == model("one"), "resumed on four ranks");
    let refused = mesh_run(&dir, 2, &["train", "digits", "--shards", "1", "--out", "few"]).output().unwrap();
    let stderr = text(&refused.stderr);
    assert!(stderr.contains("--shards 1 is less than the number of ranks or devices, 2"), "{stderr}");
    assert!(!dir.0.join("few").exists());
}

fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[test]
fn lost_rank_ends_all_ranks_and_is_named() {
    if !has_launcher("the end of a rank") || !cfg!(target_os = "linux") {
        return;
    }
    let dir = TempDir::new("mesh-lost");
    let mut command = mesh_run(&dir, 2, &["train", "digits", "--epochs", "100000", "--out", "lost"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = dir.0.join("lost/checkpoint.safetensors");
    while !begun.exists() {
        assert!(child.try_wait().unwrap().is_none(), "the run ended early");
        std::thread::yield_now();
    }
    let rank = process_of_rank(&dir, 1);
    let start = Instant::now();
    assert!(Command::new("kill").args(["-9", &rank]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let (took, stderr) = (start.elapsed(), text(&output.stderr));
    assert!(took < END, "{took:?}");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let message = "panoply: rank 1 of 2 ended by signal 9 (Killed); all other ranks were stopped";
    assert!(stderr.contains(message), "{stderr}");
}

/// Returns the id of the process of a rank that runs in this folder.
fn process_of_rank(dir: &TempDir, rank: usize) -> String {
    let variable = format!("OMPI_COMM_WORLD_RANK={rank}");
    let found = std::fs::read_dir("/proc").unwrap().flatten().find(|process| {
        let own = std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == dir.0);
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        own && environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
    });
    found.expect("the rank runs").file_name().to_string_lossy().into_owned()
}

#[test]
fn failing_rank_ends_all_ranks() {
    if !has_launcher("a failure of a rank") {
        return;
    }
    let dir = TempDir::new("mesh-fails");
    let start = Instant::now();
    // Only the first rank uses the folder, so only it fails.
    dir.write("taken/notes.txt", "precious");
    let output = mesh_run(&dir, 2, &["train", "digits", "--out", "taken"]).output().unwrap();
    let stderr = text(&output.stderr);
    assert!(start.elapsed() < 2 * END, "{stderr}");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("panoply: rank 0: taken is not empty: it contains notes.txt"), "{stderr}");
    assert!(stderr.contains("panoply: rank 0 of 2 ended"), "{stderr}");
    // An error that all ranks find is reported once, by rank 0.
    let train = ["train", "digits", "--learning-rate", "1e38", "--out", "diverged"];
    let stderr = text(&mesh_run(&dir, 2, &train).output().unwrap().stderr);
    assert_eq!(stderr.matches("panoply: rank").count(), 2, "{stderr}");
    assert!(
        stderr.contains("panoply: rank 0: ") && stderr.contains("the parameters from before the step are kept"),
        "{stderr}"
    );
}

#[test]
fn unsupported_launchers_are_reported() {
    let dir = TempDir::new("mesh-launcher");
    let with = |variable: &str, value: &str| {
        let output = dir.command(&["train", "digits", "--epochs", "1"]).env(variable, value).output().unwrap();
        assert!(!output.status.success());
        text(&output.stderr)
    };
    let stderr = with("PMI_SIZE", "2");
    assert!(
        stderr.contains("MPICH's launcher started this process (PMI_SIZE=2); only Open MPI is supported"),
        "{stderr}"
    );
    let stderr = with("OMPI_COMM_WORLD_SIZE", "two");
    assert!(stderr.contains("OMPI_COMM_WORLD_SIZE=two: not a number of processes"), "{stderr}");
    if has_launcher("a library that belongs to another launcher") {
        let stderr = with("OMPI_COMM_WORLD_SIZE", "2");
        assert!(stderr.contains("mpi: the launcher started 2 processes, but libmpi.so.40 sees 1 of them"), "{stderr}");
    }
    let output = mesh_run(&dir, 2, &["train"]).env("PATH", "").output().unwrap();
    let stderr = text(&output.stderr);
    assert!(stderr.contains("panoply: mpirun not found; install Open MPI 4 or 5"), "{stderr}");
    assert!(!dir.0.join("runs").exists());
}

#[test]
fn several_devices_train_one_model() {
    let dir = TempDir::new("devices");
    // Small, as `cpu:checked` interprets kernels.
    let size = ["--hidden-sizes", "8", "--val-split", "0.8", "--epochs", "2", "--batch-size", "63"];
    let train = [&["train", "digits", "--seed", "3", "--json"], &size[..]].concat();
    let on = |devices: &str, output: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
        command.args(&train).args(["--devices", devices, "--output-dir", output]).current_dir(&dir.0);
        command
    };
    let (one, _) = report(on("cpu", "one"));
    assert_eq!(one["devices"], Value::Array(Vec::new()));
    let (two, stderr) = report(on("cpu,cpu:checked", "two"));
    assert_close(&two, &one);
    assert_eq!(two["devices"].as_array().unwrap().len(), 2);
    assert_eq!(stderr.matches("training and").count(), 1, "one device reports: {stderr}");
    // A vendor's device beside the CPU, where there is one.
    let listed = Command::new(env!("CARGO_BIN_EXE_panoply")).args(["devices", "--json"]).output().unwrap();
    if text(&listed.stdout).contains("\"opencl:0\"") {
        assert_close(&report(on("cpu,opencl:0", "opencl")).0, &one);
    } else {
        println!("SKIPPED: training on the CPU and an OpenCL device: there is no OpenCL device");
    }
    // The run continues on another number of devices.
    let resume = ["train", "--resume", "two", "--epochs", "3", "--devices", "cpu", "--json"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
    command.args(resume).current_dir(&dir.0);
    assert_eq!(history(&report(command).0).len(), 3);
}

#[test]
fn errors_of_several_devices_are_reported_once() {
    let dir = TempDir::new("devices-refused");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
        let output = command.args(["train"]).args(arguments).current_dir(&dir.0).output().unwrap();
        assert!(!output.status.success());
        text(&output.stderr)
    };
    for (arguments, message) in [
        (&["digits", "--devices", "cpu,cpu:7"][..], "devices of this machine: "),
        (&["missing.csv", "--devices", "cpu,cpu:checked"], "missing.csv"),
        (&["digits", "--devices", "cpu", "--device", "cpu"], "cannot be used with"),
        (
            &["digits", "--hidden-sizes", "8", "--devices", "cpu,cpu:checked", "--learning-rate", "1e30"],
            "use a smaller learning rate",
        ),
    ] {
        let stderr = run(arguments);
        assert_eq!(stderr.matches(message).count().min(2), 1, "{arguments:?}: {stderr}");
    }
}
