//! ONNX files as models: exported runs predict the same, and files of other programs are predicted, inspected, exported and trained.

use std::fmt::Write;

use panoply::nn::{ForwardContext, Layer, LayerSpec, Network, onnx};
use panoply::{Device, Rng, Tensor};
use serde_json::Value;

use crate::support::temp_dir::{TempDir, text};

/// Exports a model without the option `--device`, which `export` does not have.
#[track_caller]
fn export(dir: &TempDir, model: &str, out: &str) -> String {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_panoply"))
        .args(["export", model, "--output", out])
        .current_dir(&dir.0)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Returns the output of `inspect`.
#[track_caller]
fn inspect(dir: &TempDir, arguments: &[&str]) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_panoply"));
    let output = command.arg("inspect").args(arguments).current_dir(&dir.0).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Checks that two documents are equal, with numbers to within 1e-5 of their size.
#[track_caller]
fn assert_same(have: &Value, want: &Value) {
    match (have, want) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{a}, expected {b}");
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len());
            a.iter().zip(b).for_each(|(a, b)| assert_same(a, b));
        }
        (Value::Object(a), Value::Object(b)) => {
            assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
            a.iter().for_each(|(key, value)| assert_same(value, &b[key]));
        }
        _ => assert_eq!(have, want),
    }
}

/// A table with a column of categories, missing values, numbers far from 0, a class and two targets.
fn table(rows: usize, first: usize) -> String {
    let mut table = "size,color,time,kind,price,weight\n".to_string();
    for at in first..first + rows {
        let color = ["red", "green", "blue"][at * 7 % 3];
        let size = if at % 11 == 4 { String::new() } else { (at % 13).to_string() };
        let kind = ["small", "large", "odd"][usize::from(at % 13 > 6) + usize::from(at * 7 % 3 == 2 && at % 13 > 6)];
        let time = 1_700_000_000 + at * 3;
        writeln!(table, "{size},{color},{time},{kind},{},{}", at % 13 * 3 + at * 7 % 3, (at % 5) as f32 * 0.5).unwrap();
    }
    table
}

#[test]
fn exported_runs_predict_the_same() {
    let dir = TempDir::new("onnx-predict");
    dir.write("t.csv", table(120, 0));
    dir.write("more.csv", table(30, 500));
    // Two walks of the same length in each group.
    let walks: String = (0..240)
        .map(|at| format!("{},{},{}\n", at / 4, (at * 31 % 17) as f32 - 8.0, ["up", "down"][at / 4 % 2]))
        .collect();
    dir.write("walks.csv", format!("walk,step,direction\n{walks}"));
    dir.write("story.txt", "the cat sat on the mat, and the dog sat on the log. ".repeat(40));
    let without = ["--drop-columns", "price,weight"];
    let runs: [(&str, &[&str], &[&str]); 7] = [
        ("classes", &[&["train", "t.csv", "--label", "kind"], &without[..]].concat(), &["more.csv"]),
        ("number", &["train", "t.csv", "--label", "price", "--drop-columns", "weight"], &["more.csv"]),
        ("numbers", &["train", "t.csv", "--label", "price,weight", "--task", "regression"], &["more.csv"]),
        ("time", &["train", "t.csv", "--label", "time", "--task", "regression"], &["more.csv"]),
        (
            "digits",
            &["train", "digits", "--model", "cnn", "--hidden-sizes", "4"],
            &["--num-examples", "50", "--seed", "3"],
        ),
        ("walks", &["train", "walks.csv", "--sequence-column", "walk", "--label", "direction"], &["walks.csv"]),
        ("story", &["train", "story.txt", "--hidden-sizes", "16", "--context-length", "12"], &["story.txt"]),
    ];
    for (name, train, data) in runs {
        dir.json(&[train, &["--epochs", "2", "--out", name]].concat());
        let file = format!("{name}.onnx");
        export(&dir, name, &file);
        let predict = |model: &str| dir.json(&[&["predict", model], data].concat());
        assert_same(&predict(&file), &predict(name));
        let shown = |model: &str| text(&dir.run(&[&["predict", model], data].concat()).stdout).lines().count();
        assert_eq!(shown(&file), shown(name), "{name}");
    }
    let written = |model: &str| {
        let output = dir.json(&["predict", model, "--prompt", "the ", "--temperature", "0", "--max-new-tokens", "30"]);
        output["text"].clone()
    };
    assert_eq!(written("story.onnx"), written("story"));

    // Without data, and with data that do not fit.
    let stderr = dir.refused(&["predict", "classes.onnx"]);
    assert!(stderr.contains("DATA is missing: classes.onnx does not name the data of its training"), "{stderr}");
    dir.write("other.csv", "a,b\n1,2\n3,4\n");
    let stderr = dir.refused(&["predict", "classes.onnx", "other.csv"]);
    assert!(stderr.contains("size"), "{stderr}");
    let shorter: String = walks.lines().skip(1).map(|line| format!("{line}\n")).collect();
    dir.write("shorter.csv", format!("walk,step,direction\n{shorter}"));
    let stderr = dir.refused(&["predict", "walks.onnx", "shorter.csv"]);
    assert!(stderr.contains("sequence walk 0 has 3 rows, but walks.onnx takes sequences of 4 rows"), "{stderr}");
    assert!(dir.run(&["predict", "walks", "shorter.csv"]).status.success());

    // Metadata that contradict the network.
    let bytes = std::fs::read(dir.0.join("classes.onnx")).unwrap();
    dir.write("changed.onnx", replaced(&bytes, b"\"feature_columns\":[\"size\"", b"\"feature_columns\":[\"si\\u\""));
    let stderr = dir.refused(&["predict", "changed.onnx", "more.csv"]);
    assert!(stderr.contains("changed.onnx: its metadata are inconsistent: panoply.data cannot be read"), "{stderr}");
}

/// Replaces all occurrences of bytes by others of the same length.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut result = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at..].starts_with(from) {
            true => {
                result.extend(to);
                at += from.len();
            }
            false => {
                result.push(bytes[at]);
                at += 1;
            }
        }
    }
    result
}

/// A network without metadata, as another program writes it.
fn foreign(dir: &TempDir, name: &str, network: &Network) -> panoply::nn::Model {
    let model = network.build(&mut Rng::seed_from_u64(1)).unwrap();
    onnx::export(&model, &dir.0.join(name)).unwrap();
    model
}

#[test]
fn files_of_other_programs_are_predicted() {
    let dir = TempDir::new("onnx-foreign");
    Device::get("cpu").unwrap().scope(|| {
        let network = Network::with_input_size(3).add_layer(LayerSpec::linear(4)).add_layer(LayerSpec::Tanh {});
        let model = foreign(&dir, "net.onnx", &network.add_layer(LayerSpec::linear(2)));
        let rows: Vec<f32> = (0..18).map(|at| (at as f32 * 0.7).cos()).collect();
        let lines = |target: &str| -> String {
            rows.chunks(3).map(|row| format!("{},{},{}{target}\n", row[0], row[1], row[2])).collect()
        };
        dir.write("t.csv", format!("a,b,c\n{}", lines("")));
        dir.write("named.csv", format!("a,b,c,kind\n{}", lines(",x")));
        dir.write("wide.csv", format!("a,b,c,d,e,f\n{}", lines(",1,2,3")));
        let x = Tensor::from_slice(&rows, [6, 3]);
        panoply::nn::data::npy::save(&x, &dir.0.join("x.npy")).unwrap();
        panoply::nn::data::npy::save(&Tensor::from_slice(&[0i32, 1, 0, 1, 0, 1], [6]), &dir.0.join("y.npy")).unwrap();
        let want = model.forward(&x, &mut ForwardContext::eval()).to_vec::<f32>().unwrap();
        for data in ["t.csv", "named.csv", "x.npy"] {
            let output = dir.json(&["predict", "net.onnx", data]);
            let rows = output["predictions"].as_array().unwrap();
            let have: Vec<f64> =
                rows.iter().flat_map(|row| row["predicted"].as_array().unwrap()).map(|y| y.as_f64().unwrap()).collect();
            assert_eq!((have.len(), &output["labels"]), (want.len(), &serde_json::json!(["y[0]", "y[1]"])), "{data}");
            assert!(have.iter().zip(&want).all(|(have, want)| (have - f64::from(*want)).abs() < 1e-5), "{data}");
        }
        let stderr = dir.refused(&["predict", "net.onnx", "wide.csv"]);
        assert!(stderr.contains("wide.csv has 6 columns, but net.onnx takes 3 numbers"), "{stderr}");
        panoply::nn::data::npy::save(&Tensor::from_slice(&rows, [9, 2]), &dir.0.join("two.npy")).unwrap();
        let stderr = dir.refused(&["predict", "net.onnx", "two.npy"]);
        assert!(stderr.contains("the examples have shape [2], expected [3]"), "{stderr}");
        // A matrix for each example: a network that takes sequences reads it as it is.
        let network = Network::with_input(&[3, 2]).add_layer(LayerSpec::Flatten {}).add_layer(LayerSpec::linear(2));
        let model = foreign(&dir, "sequences.onnx", &network);
        let x = Tensor::from_slice(&rows, [3, 3, 2]);
        panoply::nn::data::npy::save(&x, &dir.0.join("steps.npy")).unwrap();
        let want = model.forward(&x, &mut ForwardContext::eval()).to_vec::<f32>().unwrap();
        let output = dir.json(&["predict", "sequences.onnx", "steps.npy"]);
        let predicted = output["predictions"].as_array().unwrap().iter().flat_map(|row| row["predicted"].as_array());
        let have: Vec<f64> = predicted.flatten().map(|y| y.as_f64().unwrap()).collect();
        assert_eq!(have.len(), want.len(), "{output}");
        assert!(have.iter().zip(&want).all(|(have, want)| (have - f64::from(*want)).abs() < 1e-5), "{output}");
        panoply::nn::data::npy::save(&Tensor::from_slice(&rows, [3, 2, 3]), &dir.0.join("turned.npy")).unwrap();
        let stderr = dir.refused(&["predict", "sequences.onnx", "turned.npy"]);
        assert!(stderr.contains("the examples have shape [2, 3], expected [3, 2]"), "{stderr}");
        // Images with one channel can lack its axis.
        let network = Network::with_input(&[1, 3, 2]).add_layer(LayerSpec::Flatten {}).add_layer(LayerSpec::linear(2));
        foreign(&dir, "images.onnx", &network);
        assert!(dir.run(&["predict", "images.onnx", "steps.npy"]).status.success());
        let stderr = dir.refused(&["predict", "net.onnx", "--prompt", "a"]);
        assert!(stderr.contains("--prompt: this model generates no text"), "{stderr}");
        dir.write("broken.onnx", "not a model");
        let stderr = dir.refused(&["predict", "broken.onnx", "t.csv"]);
        assert!(stderr.contains("broken.onnx: not a readable ONNX model"), "{stderr}");

        let stdout = inspect(&dir, &["net.onnx"]);
        for part in [
            "ONNX opset 17, IR version 8, written by panoply",
            "input   input  f32[?, 3]",
            "output  output  f32[?, 2]",
            "MatMul × 2",
            "4 constants, 26 elements, 104 bytes (104 in f32); 26 trainable parameters",
        ] {
            assert!(stdout.contains(part), "{part}: {stdout}");
        }
        let document: Value = serde_json::from_str(&inspect(&dir, &["net.onnx", "--json"])).unwrap();
        assert_eq!(
            (&document["num_parameters"], &document["operators"]["Tanh"]),
            (&26.into(), &1.into()),
            "{document}"
        );
        assert!(export(&dir, "net.onnx", "net.safetensors").contains("4 tensors"));
        let weights: Value = serde_json::from_str(&inspect(&dir, &["net.safetensors", "--json"])).unwrap();
        assert_eq!(weights["numel"], 26);
        export(&dir, "net.onnx", "again.onnx");
        assert_same(&dir.json(&["predict", "again.onnx", "t.csv"]), &dir.json(&["predict", "net.onnx", "t.csv"]));
    });
}

#[test]
fn onnx_networks_are_trained_further() {
    let dir = TempDir::new("onnx-train");
    let small = ["--hidden-sizes", "16", "--dropout", "0", "--learning-rate", "0.01", "--epochs", "6"];
    let first = dir.json(&[&["train", "digits", "--out", "first"], &small[..]].concat());
    export(&dir, "first", "first.onnx");
    let tuned = dir.json(&["train", "digits", "--from", "first.onnx", "--epochs", "2", "--out", "tuned"]);
    assert_eq!((&tuned["num_parameters"], &tuned["model_name"]), (&first["num_parameters"], &"first.onnx".into()));
    let accuracy = |report: &Value| report["accuracy"].as_f64().unwrap();
    assert!(accuracy(&tuned) > accuracy(&first) - 0.03, "{tuned}, from {first}");
    // The first epoch begins where the file ended, far below the loss of a new network.
    let losses = [&first, &tuned].map(|report| report["history"][0]["train_loss"].as_f64().unwrap());
    assert!(losses[1] < 0.5 * losses[0], "{losses:?}");
    let resumed = dir.json(&["train", "--resume", "tuned", "--epochs", "3"]);
    assert_eq!(resumed["history"].as_array().unwrap().len(), 3);
    let sample = ["--num-examples", "40"];
    let want = dir.json(&[&["predict", "tuned"], &sample[..]].concat());
    assert_ne!(want["predictions"], dir.json(&[&["predict", "first"], &sample[..]].concat())["predictions"]);
    assert!(export(&dir, "tuned", "tuned.onnx").contains("input [batch, 1, 8, 8], output [batch, 10] of logits"));
    assert_same(&dir.json(&[&["predict", "tuned.onnx"], &sample[..]].concat()), &want);
    assert!(inspect(&dir, &["tuned"]).contains("onnx"));
    // A run that ended before its first checkpoint starts over from the file.
    for file in ["checkpoint.safetensors", "model.safetensors", "history.jsonl"] {
        std::fs::remove_file(dir.0.join("tuned").join(file)).unwrap();
    }
    let again = dir.json(&["train", "--resume", "tuned"]);
    assert_same(&again["history"][0]["train_loss"], &tuned["history"][0]["train_loss"]);

    // Data are read as the file says: classes and categories in its order, and its offsets.
    dir.write("t.csv", table(120, 0));
    dir.json(&[
        "train",
        "t.csv",
        "--label",
        "kind",
        "--drop-columns",
        "price,weight",
        "--epochs",
        "2",
        "--out",
        "table",
    ]);
    export(&dir, "table", "table.onnx");
    let rows: String =
        table(120, 300).lines().filter(|row| !row.contains("green")).map(|row| format!("{row}\n")).collect();
    dir.write("later.csv", &rows);
    dir.json(&[
        "train",
        "later.csv",
        "--model",
        "table.onnx",
        "--epochs",
        "1",
        "--learning-rate",
        "1e-12",
        "--out",
        "later",
    ]);
    assert_same(
        &dir.json(&["predict", "later", "later.csv"])["predictions"],
        &dir.json(&["predict", "table", "later.csv"])["predictions"],
    );
    dir.json(&["train", "--resume", "later", "--epochs", "2"]);
    dir.write("new.csv", rows.replace("odd", "new"));
    let stderr = dir.refused(&["train", "new.csv", "--model", "table.onnx"]);
    assert!(stderr.contains("the label `new` is not a class of the training data"), "{stderr}");

    // Files of other programs, and networks that do not fit.
    Device::get("cpu").unwrap().scope(|| {
        foreign(&dir, "net.onnx", &Network::with_input_size(3).add_layer(LayerSpec::linear(3)));
        foreign(&dir, "none.onnx", &Network::with_input_size(3).add_layer(LayerSpec::Relu {}));
    });
    let plain: String =
        (0..60).map(|at| format!("{},{},{},{}\n", at % 7, at % 5, at % 3, ["u", "v", "w"][at % 3])).collect();
    dir.write("plain.csv", format!("a,b,c,kind\n{plain}"));
    let report = dir.json(&["train", "plain.csv", "--model", "net.onnx", "--epochs", "30", "--learning-rate", "0.1"]);
    assert!(accuracy(&report) > 0.9, "{report}");
    let stderr = dir.refused(&["train", "digits", "--model", "net.onnx"]);
    assert!(stderr.contains("net.onnx: "), "{stderr}");
    let stderr = dir.refused(&["train", "plain.csv", "--model", "none.onnx"]);
    assert!(stderr.contains("none.onnx cannot be trained: it has no float weights"), "{stderr}");
    let stderr = dir.refused(&["train", "plain.csv", "--model", "net.onnx", "--precision", "bf16"]);
    assert!(stderr.contains("the network of an ONNX file is trained in f32"), "{stderr}");
}
