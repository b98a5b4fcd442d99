//! Tables in which several rows form one example: training, prediction, resuming, and errors.

use std::fmt::Write;

use crate::support::temp_dir::{TempDir, text};
use serde_json::Value;

/// Walks of 2 to 9 steps, interleaved in pairs, each of which ends above or below its start. The class is the sign of the sum of the
/// steps; no single step determines it.
fn walks(count: i64, first: i64) -> String {
    let mut table = "walk,step,wind,direction\n".to_string();
    for pair in (first..first + count).step_by(2) {
        let walk = |id: i64| {
            let length = 2 + id * 5 % 8;
            let steps: Vec<i64> =
                (0..length).map(|at| ((id * 31 + at * at * 17 + at * id * 7) % 13) * 10 - 60).collect();
            (id, if steps.iter().sum::<i64>() > 0 { "up" } else { "down" }, steps)
        };
        let both = [walk(pair), walk(pair + 1)];
        for at in 0..10 {
            for (id, direction, steps) in &both {
                if let Some(step) = steps.get(at) {
                    writeln!(table, "{id},{step},{},{direction}", (id * 3 + at as i64) % 5).unwrap();
                }
            }
        }
    }
    table
}

/// True for a row of a walk of more than 6 steps.
fn is_long(row: &str) -> bool {
    row.split(',').next().and_then(|id| id.parse::<i64>().ok()).is_some_and(|id| 2 + id * 5 % 8 > 6)
}

#[test]
fn sequences_are_trained_and_predicted() {
    let dir = TempDir::new("sequences");
    dir.write("walks.csv", walks(400, 0));
    let train = ["train", "walks.csv", "--sequence-column", "walk", "--label", "direction", "--learning-rate", "1e-2"];
    for (model, epochs, least) in [("lstm", "20", 0.9), ("transformer", "10", 0.8)] {
        let report = dir.json(&[&train[..], &["--model", model, "--hidden-sizes", "16", "--epochs", epochs]].concat());
        assert!(report["accuracy"].as_f64().unwrap() > least, "{model}: {report}");
    }
    let plain = dir.run(&[&train[..], &["--epochs", "1", "--hidden-sizes", "4"]].concat());
    let stderr = text(&plain.stderr);
    assert!(
        stderr.contains(
            "320 training and 80 validation examples, target direction with 2 classes, sequences of up to 9 rows; lstm"
        ),
        "{stderr}"
    );
    dir.json(&["train", "--resume", "runs/walks-1", "--epochs", "21"]);

    dir.write("more.csv", walks(60, 1000));
    let predicted = dir.json(&["predict", "runs/walks-1", "more.csv"]);
    assert_eq!(predicted["predictions"].as_array().unwrap().len(), 60);
    assert_eq!(predicted["predictions"][1]["example"], "walk 1001");
    assert!(predicted["correct"].as_u64().unwrap() > 48 && predicted["labeled"] == 60, "{predicted}");
    // A sequence has the same prediction alone and in a batch with longer ones.
    let rows: Vec<String> =
        walks(2, 1000).lines().filter(|row| !row.starts_with("1001,")).map(str::to_string).collect();
    dir.write("one.csv", rows.join("\n"));
    let alone = dir.json(&["predict", "runs/walks-1", "one.csv"]);
    let share = |predicted: &Value| predicted["predictions"][0]["probability"].as_f64().unwrap();
    assert!((share(&alone) - share(&predicted)).abs() < 1e-5, "{alone}");
    // Validation and test examples may be longer than those of training, as those of a prediction.
    let short: Vec<String> = walks(400, 0).lines().filter(|row| !is_long(row)).map(str::to_string).collect();
    dir.write("short.csv", short.join("\n"));
    let split = ["--val-split", "file:more.csv", "--test-data", "more.csv", "--epochs", "15", "--hidden-sizes", "16"];
    let report = dir.json(&[&["train", "short.csv"], &train[2..], &split[..], &["--out", "longer"]].concat());
    let predicted = dir.json(&["predict", "longer", "more.csv"]);
    let share = predicted["correct"].as_f64().unwrap() / 60.0;
    for figure in [&report["accuracy"], &report["test"]["score"]] {
        assert!((figure.as_f64().unwrap() - share).abs() < 1e-6, "{share} as predict counts: {report}");
    }
    assert!(share > 0.6, "{share}");
    // A network file can read sequences too.
    dir.write(
        "mean.toml",
        "input = [9, 2]\nlayer = [{ kind = \"standardize\" }, { kind = \"time_mean\" }, { kind = \"linear\", out_features = 2 }]\n",
    );
    let report = dir.json(&[&train[..], &["--model", "mean.toml", "--epochs", "15"]].concat());
    assert!(report["accuracy"].as_f64().unwrap() > 0.9, "{report}");
}

#[test]
fn invalid_sequences_are_reported() {
    let dir = TempDir::new("wrong-sequences");
    dir.write("walks.csv", walks(40, 0));
    dir.write("two.csv", "id,x,kind\na,1,p\nb,2,q\na,3,q\nb,1,q\n");
    dir.write("flat.toml", "input = [18]\n[[layer]]\nkind = \"linear\"\nout_features = 2\n");
    let walks_by = ["train", "walks.csv", "--sequence-column", "walk"];
    for (arguments, refused) in [
        (
            &["train", "two.csv", "--sequence-column", "id"][..],
            "two.csv:4: kind: `q`, but `p` in line 2 of the same sequence",
        ),
        (&["train", "two.csv", "--sequence-column", "name"], "no column `name`; the columns are id, x, kind"),
        (
            &["train", "two.csv", "--sequence-column", "kind"],
            "two.csv: kind is a label, so it cannot identify sequences",
        ),
        (&["train", "digits", "--sequence-column", "id"], "--sequence-column does not apply to digits"),
        (&[&walks_by[..], &["--model", "mlp"]].concat(), "layer 1 (flatten): it mixes time steps"),
        (&[&walks_by[..], &["--model", "cnn"]].concat(), "cnn needs images"),
        (
            &[&walks_by[..], &["--augment", "horizontal-flip"]].concat(),
            " (random_horizontal_flip): it mixes time steps",
        ),
        (&[&walks_by[..], &["--augment", "horizontal-flip"]].concat(), "\n  the layers of `--augment` come first"),
        (&[&walks_by[..], &["--model", "flat.toml"]].concat(), "input [18] does not match examples of shape [9, 2]"),
    ] {
        let refusal = dir.refused(arguments);
        assert!(refusal.contains(refused), "{arguments:?}: {refusal}");
    }
    assert!(!dir.0.join("runs").exists(), "no run is started");
    dir.json(&[&walks_by[..], &["--epochs", "1", "--hidden-sizes", "4"]].concat());
    let longer: String = (0..10).map(|at| format!("7,{at},1\n")).collect();
    dir.write("long.csv", format!("walk,step,wind\n{longer}"));
    // As torch.nn.LSTM, the network takes sequences of any length.
    assert_eq!(dir.json(&["predict", "runs/walks-1", "long.csv"])["predictions"].as_array().unwrap().len(), 1);
    dir.write("none.csv", "step,wind\n1,2\n");
    let refusal = dir.refused(&["predict", "runs/walks-1", "none.csv"]);
    assert!(refusal.contains("none.csv: 1 columns are missing (walk)"), "{refusal}");
}
