//! `panoply bench`: devices, cases and the fields of each row. The measured values are not tested.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::support::temp_dir::{TempDir, text};
use panoply::nn::data::npy;
use panoply::nn::{ForwardContext, Layer, LayerSpec, Network, onnx};
use panoply::{Device, Rng, Tensor};
use serde_json::Value;

#[test]
fn training_case_reports_time_and_memory() {
    let dir = TempDir::new("bench");
    let name = "MLP 784-512-256-10, batch 64";
    let output = dir.run(&["bench", "training", "--seconds", "0", "--jsonl", "--case", name]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let row: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((row["name"].as_str(), row["dtype"].as_str()), (Some(name), Some("f32")));
    let number = |name: &str| row[name].as_f64().unwrap();
    let params = (784 * 512 + 512 + 512 * 256 + 256 + 256 * 10 + 10) as f64;
    assert_eq!(number("num_parameters"), params);
    assert!(number("seconds") > 0.0 && number("host_seconds") > 0.0, "{row}");
    // Parameters and the two moments of AdamW, before and after the step.
    assert!(number("pool_bytes") > 3.0 * 4.0 * params && number("pool_bytes") < 100.0 * params, "{row}");
    if cfg!(target_os = "linux") {
        assert!(number("rss_bytes") > 3.0 * 4.0 * params, "{row}");
    }
    let refusal = dir.refused(&["bench", "training", "--case", "MLP"]);
    assert!(refusal.contains("--case MLP: unknown case") && refusal.contains(name), "{refusal}");
}

#[test]
fn onnx_row_has_times_and_the_output_of_the_network() {
    let dir = TempDir::new("bench-onnx");
    Device::get("cpu").unwrap().scope(|| {
        let network = Network::with_input_size(3).add_layer(LayerSpec::linear(4)).add_layer(LayerSpec::Tanh {});
        let model = network.add_layer(LayerSpec::linear(2)).build(&mut Rng::seed_from_u64(1)).unwrap();
        onnx::export(&model, &dir.0.join("net.onnx")).unwrap();
        let x = Tensor::from_slice(&[0.5f32, -1.0, 2.0], [1, 3]);
        npy::save(&x, &dir.0.join("x.npy")).unwrap();
        let files = ["--input", "x.npy", "--save-output", "y.npy"];
        let row = dir.json(&[&["bench", "onnx", "net.onnx", "--min-time", "0", "--threads", "1"], &files[..]].concat());
        assert_eq!((&row["model"], &row["threads"]), (&"net.onnx".into(), &1.into()));
        for name in ["load_seconds", "first_run_seconds", "seconds"] {
            assert!(row[name].as_f64().is_some_and(|seconds| seconds > 0.0), "{row}");
        }
        let have = npy::load(&dir.0.join("y.npy")).unwrap().to_vec::<f32>().unwrap();
        let want = model.forward(&x, &mut ForwardContext::eval()).to_vec::<f32>().unwrap();
        assert_eq!(have.len(), want.len());
        assert!(have.iter().zip(&want).all(|(have, want)| (have - want).abs() < 1e-5), "{have:?}, expected {want:?}");
        // Without files the inputs are random.
        let shown = text(&dir.run(&["bench", "onnx", "net.onnx", "--min-time", "0"]).stdout);
        assert!(shown.starts_with("net.onnx  cpu") && shown.lines().last().unwrap().starts_with("run "), "{shown}");
        let refusal = dir.refused(&["bench", "onnx", "net.onnx", "--input", "x.npy", "--input", "x.npy"]);
        assert!(refusal.contains("--input: net.onnx has 1 input, but 2 files are given"), "{refusal}");
        let refusal = dir.refused(&["bench", "onnx", "none.onnx", "--save-output", "none/y.npy"]);
        assert!(refusal.contains("cannot write none/y.npy"), "{refusal}");
        npy::save(&Tensor::from_slice(&[0.5f32], [1, 1]), &dir.0.join("short.npy")).unwrap();
        let refusal = dir.refused(&["bench", "onnx", "net.onnx", "--input", "short.npy"]);
        assert!(refusal.contains("[1, 1]"), "{refusal}");

        let images = Network::with_input(&[2, 5, 5]).add_layer(LayerSpec::conv(3, &[3, 3]));
        let model = images.add_layer(LayerSpec::batch_norm()).build(&mut Rng::seed_from_u64(1)).unwrap();
        onnx::export(&model, &dir.0.join("images.onnx")).unwrap();
        let arguments = ["bench", "onnx", "images.onnx", "--min-time", "0"];
        assert_eq!(dir.json(&arguments)["folded_batch_norms"], 1);
        let shown = text(&dir.run(&arguments).stdout);
        assert_eq!(shown.lines().last(), Some("folded      1 batch norm into convolutions"));
    });
}

/// Without a device, the first row is of the discovery of all devices.
#[test]
fn devices_are_those_of_the_environment() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
    command.args(["bench", "devices", "--min-time", "0", "--jsonl"]).env("PANOPLY_DEVICE", "cpu");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    // The other rows take long.
    child.kill().unwrap();
    child.wait().unwrap();
    let row: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&row["device"], &row["name"]), (&"cpu".into(), &"copy on the device".into()));
}

#[test]
fn mesh_rows_compare_with_the_same_work_without_a_mesh() {
    let dir = TempDir::new("bench-mesh");
    // It takes no `--device`.
    let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
    command.args(["bench", "mesh", "--quick", "--min-time", "0", "--jsonl"]).current_dir(&dir.0);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    let rows: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    let expected =
        ["empty task", "matmul 256², blocks of 64", "cholesky 256², tiles of 32", "SGD step, MLP 64-32-10, batch 64"];
    let number = |row: usize, name: &str| rows[row][name].as_f64().unwrap();
    for (row, name, one, other) in
        [(1, "ratio", "seconds", "plain_seconds"), (3, "ratio", "seconds", "one_process_seconds")]
    {
        if row == 3 && rows.len() == 3 {
            println!("SKIPPED: the training row of `bench mesh`: mpirun is not installed; run `cargo xtask install`");
            assert!(text(&output.stderr).contains("mpirun"));
            continue;
        }
        assert!(
            (number(row, name) - number(row, one) / number(row, other)).abs() < 1e-9 * number(row, name),
            "{stdout}"
        );
    }
    assert_eq!(names, expected[..rows.len()]);
    assert!(rows.len() >= 3 && number(0, "seconds") > 0.0, "{stdout}");
    assert!(number(2, "residual") > 0.0 && number(2, "residual") < 1e-5, "{stdout}");
}

#[test]
fn invalid_seconds_are_rejected() {
    let dir = TempDir::new("seconds");
    for seconds in ["nan", "inf", "1e30", "-1", "soon"] {
        for what in ["kernels", "devices"] {
            let output = dir.run(&["bench", what, &format!("--seconds={seconds}")]);
            let error = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{seconds}: {error}");
            assert!(error.contains("--min-time") && error.contains("second"), "{error}");
        }
    }
}

#[test]
fn data_rows_have_the_size_of_the_file() {
    let dir = TempDir::new("bench-data");
    let rows: String = (0..200).map(|row| format!("{row}.5,{},{}\n", row * 3 % 7, row % 2)).collect();
    let table = format!("a,b,label\n{rows}");
    dir.write("table.csv", &table);
    let bench = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
        command.args(["bench", "data"]).args(arguments).current_dir(&dir.0).output().unwrap()
    };
    let output = bench(&["table.csv", "--repeats", "2", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let row: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((row["examples"].as_u64(), row["features"].as_u64()), (Some(200), Some(2)), "{row}");
    assert_eq!(row["bytes"].as_u64(), Some(table.len() as u64));
    assert!(row["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{row}");
    let shown = text(&bench(&["table.csv", "--repeats", "1"]).stdout);
    assert!(shown.starts_with("table.csv: 200 examples of 2 features, "), "{shown}");
    let output = bench(&["none.csv"]);
    assert!(!output.status.success() && text(&output.stderr).contains("cannot read none.csv"));
}
