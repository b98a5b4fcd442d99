//! `panoply train` in several processes: the same losses as one process, one report, and an error for all if a rank is lost.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::mpi::{Installation, installations};
use crate::support::temp_dir::{TempDir, text};
use serde_json::Value;

/// Relative tolerance for losses compared to one process: sums over a batch are rounded in another order, and errors accumulate over the
/// steps.
const TOLERANCE: f64 = 1e-5;

/// Time limit for the end of all ranks after one is lost.
const END: Duration = Duration::from_secs(5);

/// Returns `panoply mesh run` of a command in a folder.
fn mesh_run(dir: &TempDir, installation: &Installation, ranks: usize, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
    command.args(["mesh", "run", "-n", &ranks.to_string(), "--"]).args(arguments);
    command.args(["--device", "cpu"]).current_dir(&dir.0).stdin(Stdio::null());
    installation.choose(&mut command);
    command
}

/// Returns the installations with different launchers.
fn launchers(what: &str) -> Vec<Installation> {
    let mut found = installations(what);
    found.dedup_by(|a, b| a.launcher == b.launcher);
    found
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
    let dir = TempDir::new("mesh-train");
    let installations = installations("training in several processes");
    // 1438 examples: the last batch of 100 has 38, and 3 ranks have parts of unequal size. Dropout draws the same numbers.
    let short = &["--epochs", "2"][..];
    let uneven =
        &["--epochs", "2", "--batch-size", "100", "--accumulate-grad-batches", "2", "--class-weights", "balanced"][..];
    for (options, ranks, installations) in
        [(short, 2, &installations[..]), (uneven, 3, &installations[..installations.len().min(1)])]
    {
        let train = [&["train", "digits", "--json"], options].concat();
        let alone = dir.json(&[&["train", "digits"], options].concat());
        for installation in installations {
            let before = dir.entries("runs");
            let (together, stderr) = report(mesh_run(&dir, installation, ranks, &train));
            assert_close(&together, &alone);
            assert_eq!(stderr.matches("training and").count(), 1, "one rank reports: {stderr}");
            assert_eq!(dir.entries("runs"), before + 1, "one folder for each run");
        }
    }
    let Some(installation) = installations.first() else { return };
    // A run of several ranks resumes like one of a single process.
    let alone = dir.json(&["train", "digits", "--epochs", "4"]);
    let resume = ["train", "--resume", "runs/digits-2", "--epochs", "4", "--json"];
    assert_close(&report(mesh_run(&dir, installation, 2, &resume)).0, &alone);
}

/// The kernels of both ranks and the messages between them are on one axis.
#[test]
fn ranks_write_a_timeline() {
    let dir = TempDir::new("mesh-timeline");
    for installation in launchers("a timeline of two processes").iter().take(1) {
        let train = ["train", "digits", "--json", "--epochs", "1", "--timeline", "--output-dir", "run"];
        report(mesh_run(&dir, installation, 2, &train));
        let trace: Value = serde_json::from_slice(&std::fs::read(dir.0.join("run/timeline.json")).unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        for rank in [0, 1] {
            let of_kind =
                |kind: &str| events.iter().filter(|event| event["pid"] == rank && event["cat"] == kind).count();
            // 1438 examples in batches of 64: 23 steps, each with an exchange of gradients.
            assert!(of_kind("kernel") >= 23 && of_kind("message") >= 23, "rank {rank}: {} kernels", of_kind("kernel"));
        }
        let chart = std::fs::read_to_string(dir.0.join("run/timeline.svg")).unwrap();
        assert!(chart.contains(">rank 0: cpu queue 0</text>") && chart.contains(">rank 1: messages</text>"));
    }
}

#[test]
fn shards_give_the_same_model_file_on_any_number_of_ranks() {
    let installations = installations("training with shards in several processes");
    let Some(installation) = installations.first() else { return };
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
        let (report, _) = report(mesh_run(&dir, installation, ranks, &train("4", out)));
        assert_eq!(history(&report), history(&one), "{ranks} ranks");
        assert!(model(out) == model("one"), "{ranks} ranks write another model file");
    }
    // A run of two ranks continues on one and on four.
    report(mesh_run(&dir, installation, 2, &train("2", "first")));
    copy_folder(&dir.0.join("first"), &dir.0.join("second"));
    alone(&["train", "--resume", "first", "--epochs", "4", "--json"]);
    report(mesh_run(&dir, installation, 4, &["train", "--resume", "second", "--epochs", "4", "--json"]));
    assert!(model("first") == model("one"), "resumed on one rank");
    assert!(model("second") == model("one"), "resumed on four ranks");
    let refused =
        mesh_run(&dir, installation, 2, &["train", "digits", "--shards", "1", "--out", "few"]).output().unwrap();
    let stderr = text(&refused.stderr);
    assert!(stderr.contains("shards = 1 is less than the number of ranks or devices, 2"), "{stderr}");
    assert!(!dir.0.join("few").exists());
    let refused = dir.refused(&["train", "digits", "--batch-size", "50", "--shards", "51", "--out", "many"]);
    assert!(refused.contains("shards = 51 is more than the number of examples in a batch, 50"), "{refused}");
    assert!(!dir.0.join("many").exists());
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
    if !cfg!(target_os = "linux") {
        println!("SKIPPED: the end of a rank: the test finds its process in /proc");
        return;
    }
    for installation in launchers("the end of a rank") {
        let dir = TempDir::new("mesh-lost");
        let mut command = mesh_run(&dir, &installation, 3, &["train", "digits", "--epochs", "100000", "--out", "lost"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let begun = dir.0.join("lost/checkpoint.safetensors");
        while !begun.exists() {
            assert!(child.try_wait().unwrap().is_none(), "{}: the run ended early", installation.name);
            std::thread::yield_now();
        }
        let rank = process_of_rank(&dir, 1).expect("the rank runs");
        let start = Instant::now();
        assert!(Command::new("kill").args(["-9", &rank]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let (took, stderr) = (start.elapsed(), text(&output.stderr));
        assert!(took < END, "{}: {took:?}", installation.name);
        assert_eq!(output.status.code(), Some(1), "{}: {stderr}", installation.name);
        let message = "panoply: rank 1 of 3 ended by signal 9 (Killed); all other ranks were stopped";
        assert!(stderr.contains(message), "{}: {stderr}", installation.name);
        assert_eq!(stderr.matches(" ended by ").count(), 1, "reports of ranks are not shown: {stderr}");
        for rank in 0..3 {
            assert_eq!(process_of_rank(&dir, rank), None, "{}: rank {rank} runs", installation.name);
        }
    }
}

/// A signal to `mesh run` alone, as `timeout`, systemd and Slurm send it, ends the launcher and all ranks.
#[test]
fn a_signal_to_the_command_ends_all_ranks() {
    if !cfg!(target_os = "linux") {
        println!("SKIPPED: the end by a signal: the test finds the ranks in /proc");
        return;
    }
    for installation in launchers("the end by a signal") {
        for signal in ["-TERM", "-HUP"] {
            let dir = TempDir::new("mesh-signal");
            let mut command =
                mesh_run(&dir, &installation, 2, &["train", "digits", "--epochs", "100000", "--out", "signal"]);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let begun = dir.0.join("signal/checkpoint.safetensors");
            while !begun.exists() {
                assert!(child.try_wait().unwrap().is_none(), "{}: the run ended early", installation.name);
                std::thread::yield_now();
            }
            let start = Instant::now();
            assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
            child.wait().unwrap();
            assert!(start.elapsed() < 2 * END, "{} {signal}: {:?}", installation.name, start.elapsed());
            // The launcher waits for its ranks, each up to some seconds.
            let is_left = || (0..2).any(|rank| process_of_rank(&dir, rank).is_some());
            while is_left() {
                assert!(start.elapsed() < 2 * END, "{} {signal}: a rank runs", installation.name);
                std::thread::yield_now();
            }
        }
    }
}

/// A signal between the batches of a step, to one process of a run, stops all processes after that step, and the run continues with the
/// bits of a run that was not stopped.
#[cfg(target_os = "linux")]
#[test]
fn run_stopped_within_an_accumulated_step_resumes_exactly() {
    let dir = TempDir::new("stopped-step");
    let arguments = |command: String| command.split(' ').map(str::to_string).collect::<Vec<String>>();
    // 1438 examples are 72 batches, with steps after batches 30, 60 and 72: the signal is almost always within a step.
    let train = |epochs: usize, out: &str| {
        let options = "--shards 4 --batch-size 20 --accumulate-grad-batches 30 --json";
        arguments(format!("train digits {options} --epochs {epochs} --out {out}"))
    };
    let alone = |arguments: &[String]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
        command.args(arguments).args(["--device", "cpu"]).current_dir(&dir.0).stdin(Stdio::null());
        command
    };
    let model = |out: &str| std::fs::read(dir.0.join(out).join("model.safetensors")).unwrap();
    let launchers = launchers("a signal to a rank");
    for (number, installation) in std::iter::once(None).chain(launchers.iter().map(Some)).enumerate() {
        let name = installation.map_or("one process", |installation| installation.name);
        let out = format!("run-{number}");
        let run = train(100_000, &out);
        let mut command = match installation {
            None => alone(&run),
            Some(installation) => {
                mesh_run(&dir, installation, 2, &run.iter().map(String::as_str).collect::<Vec<&str>>())
            }
        };
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let begun = dir.0.join(&out).join("checkpoint.safetensors");
        while !begun.exists() {
            assert!(child.try_wait().unwrap().is_none(), "{name}: the run ended early");
            std::thread::yield_now();
        }
        let process = match installation {
            None => child.id().to_string(),
            Some(_) => process_of_rank(&dir, 1).expect("the rank runs"),
        };
        assert!(Command::new("kill").args(["-TERM", &process]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{name}");
        let stopped: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(stopped["interrupted"], true, "{name}");
        let epochs = stopped["history"].as_array().unwrap().len() + 2;
        report(alone(&arguments(format!("train --resume {out} --epochs {epochs} --json"))));
        let whole = format!("{out}-whole");
        report(alone(&train(epochs, &whole)));
        assert!(model(&out) == model(&whole), "{name}, {epochs} epochs");
    }
}

/// Errors of ranks that fail at once are on lines of their own, since each is one write: here one datagram.
#[cfg(unix)]
#[test]
fn error_is_written_at_once() {
    let (receiver, stderr) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
    command.args(["mesh", "run", "-n", "2", "--launcher", "missing-launcher", "--", "devices"]);
    let status = command.stderr(std::os::fd::OwnedFd::from(stderr)).status().unwrap();
    assert_eq!(status.code(), Some(1));
    let mut bytes = [0; 4096];
    let length = receiver.recv(&mut bytes).unwrap();
    let message = text(&bytes[..length]);
    assert!(message.starts_with("panoply: missing-launcher not found; ") && message.ends_with('\n'), "{message:?}");
}

/// Returns the id of the process that trains as a rank in this folder; another can wait for it.
fn process_of_rank(dir: &TempDir, rank: usize) -> Option<String> {
    let variables = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"].map(|name| format!("{name}={rank}"));
    let found = std::fs::read_dir("/proc").unwrap().flatten().find(|process| {
        let read = |file: &str| std::fs::read(process.path().join(file)).unwrap_or_default();
        let own = std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == dir.0);
        let trains = own && read("cmdline").split(|byte| *byte == 0).nth(1) == Some(b"train");
        let environment = if trains { read("environ") } else { Vec::new() };
        environment.split(|byte| *byte == 0).any(|entry| variables.iter().any(|name| entry == name.as_bytes()))
    });
    Some(found?.file_name().to_string_lossy().into_owned())
}

#[test]
fn failing_rank_ends_all_ranks() {
    for installation in launchers("a failure of a rank") {
        let dir = TempDir::new("mesh-fails");
        let start = Instant::now();
        // Only the first rank uses the folder, so only it fails.
        dir.write("taken/notes.txt", "precious");
        let output = mesh_run(&dir, &installation, 2, &["train", "digits", "--out", "taken"]).output().unwrap();
        let stderr = text(&output.stderr);
        assert!(start.elapsed() < 2 * END, "{}: {stderr}", installation.name);
        assert_eq!(output.status.code(), Some(1), "{}: {stderr}", installation.name);
        assert!(stderr.contains("panoply: rank 0: taken is not empty: it contains notes.txt"), "{stderr}");
        assert!(stderr.contains("panoply: rank 0 of 2 ended"), "{}: {stderr}", installation.name);
        // An error that all ranks find is reported once, by rank 0.
        let train = ["train", "digits", "--learning-rate", "1e38", "--out", "diverged"];
        let stderr = text(&mesh_run(&dir, &installation, 2, &train).output().unwrap().stderr);
        assert_eq!(stderr.matches("panoply: rank").count(), 2, "{}: {stderr}", installation.name);
        assert!(
            stderr.contains("panoply: rank 0: ") && stderr.contains("the parameters from before the step are kept"),
            "{}: {stderr}",
            installation.name
        );
    }
}

#[test]
fn output_of_other_ranks_goes_to_the_log_folder() {
    for installation in launchers("--log-dir") {
        let dir = TempDir::new("mesh-logs");
        let run = ["mesh", "run", "-n", "3", "--log-dir", "logs", "--launcher", &installation.launcher, "--"];
        let panoply = |arguments: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
            command.args(run).args(arguments).current_dir(&dir.0).stdin(Stdio::null());
            command.envs([("PANOPLY_DEVICE", "cpu"), ("PANOPLY_LOG", "debug")]).output().unwrap()
        };
        let version = format!("panoply {}\n", env!("CARGO_PKG_VERSION"));
        let output = panoply(&["--version"]);
        assert!(output.status.success(), "{}: {}", installation.name, text(&output.stderr));
        assert_eq!(text(&output.stdout), version, "{}", installation.name);
        let log = |rank: usize| std::fs::read_to_string(dir.0.join(format!("logs/rank-{rank}.log")));
        assert!(log(0).is_err());
        assert_eq!([log(1), log(2)].map(Result::unwrap), [version.as_str(); 2], "{}", installation.name);
        // Stderr too; the log of an earlier run is replaced.
        let output = panoply(&["default"]);
        let (stdout, stderr, log) = (text(&output.stdout), text(&output.stderr), log(1).unwrap());
        assert!(output.status.success() && !stdout.is_empty(), "{}: {stderr}", installation.name);
        assert_eq!(stderr.matches("panoply: cpu: device discovery").count(), 1, "{}: {stderr}", installation.name);
        assert!(
            log.contains(&stdout) && log.contains("panoply: cpu: device discovery"),
            "{}: {log}",
            installation.name
        );
        assert!(!log.contains(&version), "{}: {log}", installation.name);
        // The ranks of Open MPI write to a terminal of their own.
        let listed = text(&panoply(&["devices"]).stdout);
        assert!(listed.contains("✓ cpu ") && !listed.contains('\u{1b}'), "{}: {listed}", installation.name);
    }
}

/// A mistake in the command is reported once, before ranks are started.
#[test]
fn wrong_command_is_refused_before_the_start() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
    command.args(["mesh", "run", "-n", "2", "--launcher", "missing-launcher", "--", "trian", "digits"]);
    let output = command.output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.starts_with("error: unrecognized subcommand 'trian'\n"), "{stderr}");
}

#[test]
fn unsupported_launchers_are_reported() {
    let dir = TempDir::new("mesh-launcher");
    let with = |variable: &str, value: &str| {
        let output = dir.command(&["train", "digits", "--epochs", "1"]).env(variable, value).output().unwrap();
        assert!(!output.status.success());
        text(&output.stderr)
    };
    let stderr = with("OMPI_COMM_WORLD_SIZE", "two");
    assert!(stderr.contains("OMPI_COMM_WORLD_SIZE=two: not a number of processes"), "{stderr}");
    // The variables of a launcher, but no launcher.
    for (interface, variable, launcher, file) in [
        ("Open MPI", "OMPI_COMM_WORLD_SIZE", "Open MPI's launcher", "libmpi.so.40 (Open MPI v4"),
        ("MPICH", "PMI_SIZE", "MPICH's launcher", "libmpich.so.12 (MPICH 4"),
    ] {
        if installations("a launcher that is not there")
            .iter()
            .any(|known| known.interface == interface && !known.launcher.contains(".tools"))
        {
            let stderr = with(variable, "2");
            let message = format!("mpi: {launcher} started 2 processes ({variable}=2), but {file}");
            assert!(stderr.contains(&message) && stderr.contains("sees 1 of them"), "{stderr}");
        }
    }
    let run = |arguments: &[&str], path: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
        command.args(["mesh", "run", "-n", "2"]).args(arguments).args(["--", "train"]).current_dir(&dir.0);
        let output = command.env("PATH", path).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    let stderr = run(&[], "");
    assert!(stderr.contains("panoply: no MPI launcher found (mpirun, mpiexec); install Open MPI 4 or 5"), "{stderr}");
    let stderr = run(&["--launcher", "aprun"], "");
    assert!(stderr.contains("panoply: aprun not found; install Open MPI 4 or 5"), "{stderr}");
    if cfg!(unix) {
        let stderr = run(&["--launcher", "true"], "/usr/bin:/bin");
        assert!(stderr.contains("panoply: true is not a launcher of Open MPI or MPICH but `"), "{stderr}");
    }
    assert!(!dir.0.join("runs").exists());
}

#[test]
fn library_of_another_launcher_is_an_error() {
    let dir = TempDir::new("mesh-mismatch");
    let launchers = launchers("a library that belongs to another launcher");
    for (is_openmpi, library, message) in [
        (
            true,
            "libmpich.so.12",
            "mpi: Open MPI's launcher started this process (OMPI_COMM_WORLD_SIZE=2), but libmpich.so.12 is MPICH 4",
        ),
        (
            false,
            "libmpi.so.40",
            "mpi: MPICH's launcher started this process (PMI_SIZE=2), but libmpi.so.40 is Open MPI v4",
        ),
    ] {
        // Debian's library and another launcher.
        let has_library =
            launchers.iter().any(|known| known.is_openmpi != is_openmpi && !known.launcher.contains(".tools"));
        for installation in launchers.iter().filter(|known| has_library && known.is_openmpi == is_openmpi) {
            let start = Instant::now();
            let mut command = installation.command(2);
            command.arg(env!("CARGO_BIN_EXE_panoply")).args(["train", "digits", "--epochs", "1"]).current_dir(&dir.0);
            let output = command.env("PANOPLY_MPI_LIBRARY", library).output().unwrap();
            let stderr = text(&output.stderr);
            assert!(!output.status.success() && stderr.contains(message), "{}: {stderr}", installation.name);
            assert!(stderr.contains("start the program with the `mpiexec` that came with this library"), "{stderr}");
            assert!(start.elapsed() < END, "{}", installation.name);
        }
    }
    assert!(!dir.0.join("runs").exists());
}

#[test]
fn status_names_launcher_and_library() {
    let dir = TempDir::new("mesh-status");
    let status = |prepare: &dyn Fn(&mut Command)| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
        command.args(["status", "--json"]).current_dir(&dir.0);
        prepare(&mut command);
        let document: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        document["mpi"].clone()
    };
    for installation in installations("the row of `status`") {
        let row = status(&|command| installation.choose(command));
        assert_eq!(row["available"], true, "{}: {row}", installation.name);
        assert_eq!(row["interface"], installation.interface, "{}", installation.name);
        let name = if installation.is_openmpi { "Open MPI" } else { "MPICH" };
        for version in ["version", "launcher_version"] {
            assert!(row[version].as_str().unwrap().starts_with(name), "{}: {row}", installation.name);
        }
        assert!(row["library"].as_str().unwrap().contains(".so."), "{row}");
    }
    let row = status(&|command| {
        command.env("PATH", "");
    });
    assert_eq!(row["available"], false);
    assert!(row["reason"].as_str().unwrap().starts_with("no MPI launcher found"), "{row}");
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
