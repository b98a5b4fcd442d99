//! `panoply verify`: verdicts, exit codes and errors.

use crate::support::temp_dir::{TempDir, text};

/// Returns a property of a network with two inputs and two outputs.
fn property(asserted: &str) -> String {
    let declared: String = ["X_0", "X_1", "Y_0", "Y_1"].map(|name| format!("(declare-const {name} Real)\n")).concat();
    let set = "(assert (<= X_0 1)) (assert (>= X_0 0)) (assert (<= X_1 1)) (assert (>= X_1 0))\n";
    declared + set + asserted
}

#[test]
fn exported_network_is_verified() {
    let dir = TempDir::new("verify");
    let rows: String =
        (0..80).map(|at| format!("{},{},{}\n", at % 9, at % 7, ["a", "b"][usize::from(at % 9 > at % 7)])).collect();
    dir.write("t.csv", format!("x,y,kind\n{rows}"));
    dir.json(&["train", "t.csv", "--label", "kind", "--epochs", "2", "--out", "run"]);
    let export = std::process::Command::new(env!("CARGO_BIN_EXE_panoply"))
        .args(["export", "run", "--out", "net.onnx"])
        .current_dir(&dir.0)
        .output()
        .unwrap();
    assert!(export.status.success(), "{}", text(&export.stderr));
    dir.write("proven.vnnlib", property("(assert (>= Y_0 1e6))"));
    dir.write("violated.vnnlib", property("(assert (>= Y_0 -1e6))"));
    let verify = |arguments: &[&str]| {
        let output = dir.run(&[&["verify", "net.onnx"], arguments].concat());
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, stdout, stderr) = verify(&["proven.vnnlib"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.starts_with("proven for real numbers and for f32 arithmetic with sums in any order: "), "{stdout}");
    let (_, stdout, _) = verify(&["proven.vnnlib", "--arithmetic", "real"]);
    assert!(stdout.starts_with("proven for real numbers; the rounding of f32 arithmetic is not covered: "), "{stdout}");
    let (code, stdout, _) = verify(&["violated.vnnlib"]);
    assert_eq!(code, Some(5), "{stdout}");
    assert!(
        stdout.starts_with("counterexample: ") && stdout.contains("X_1 = ") && stdout.contains("Y_1 = "),
        "{stdout}"
    );
    let (code, stdout, _) = verify(&["violated.vnnlib", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &document["verdict"]), (Some(5), &"counterexample".into()));
    assert_eq!(document["counterexample"]["input"].as_array().unwrap().len(), 2);
    let claim = |holds: &str| format!("[[claim]]\nexample = 3\nball = 0.01\nholds = \"{holds}\"\n");
    dir.write("proven.toml", claim("y[0] < 1e6 and y[1] > y[0] - 1e6") + &claim("finite"));
    dir.write("violated.toml", claim("finite") + &claim("y[0] < -1e6"));
    dir.write("no.toml", claim("stable"));
    let claims = |arguments: &[&str]| {
        let output = dir.run(&[&["verify", "run"], arguments].concat());
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, stdout, stderr) = claims(&["proven.toml"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.starts_with("claim 1: proven for real numbers") && stdout.contains("claim 2: proven"), "{stdout}");
    let (code, stdout, _) = claims(&["violated.toml", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &document["claims"][0]["verdict"]), (Some(5), &"proven".into()), "{stdout}");
    assert_eq!(
        (&document["claims"][1]["name"], &document["claims"][1]["verdict"]),
        (&"claim 2".into(), &"counterexample".into())
    );
    let (code, _, stderr) = claims(&["no.toml"]);
    assert!(code == Some(1) && stderr.contains("no.toml: claim 1: expected `finite`"), "{stderr}");
    let (code, _, stderr) = verify(&["proven.toml"]);
    assert!(code == Some(1) && stderr.contains("an ONNX network has no examples"), "{stderr}");
    let (code, stdout, _) = verify(&["proven.vnnlib", "--seconds", "-1"]);
    assert_eq!(code, Some(2), "{stdout}");
    for (name, content, expected) in [
        ("a.vnnlib", property("(assert (<= Y_2 0))"), "a.vnnlib:6:13: `Y_2` is not declared"),
        ("b.vnnlib", property("(assert (<= X_0 -1)) (assert (<= Y_0 0))"), "the set of inputs is empty"),
        (
            "c.vnnlib",
            property("(assert (<= Y_0 0))").replace("(declare-const Y_1 Real)", ""),
            "the property has 1 f32 outputs, but the network has 2",
        ),
    ] {
        dir.write(name, content);
        let (code, _, stderr) = verify(&[name]);
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stderr.contains(expected), "{expected}: {stderr}");
    }
    largest_radius(&dir);
    competition_files(&dir);
    let stderr = dir.refused(&["verify", "t.csv", "proven.vnnlib"]);
    assert!(stderr.contains("t.csv: not a readable ONNX model"), "{stderr}");
}

/// A wide margin that shrinks with the radius: the two radii enclose the one at which the claim ceases to hold.
fn largest_radius(dir: &TempDir) {
    let claim = "[[claim]]\nname = \"near\"\npoint = [2.0, 6.0]\nball = 0.5\nholds = \"class unchanged\"\n";
    dir.write("radius.toml", claim);
    let output = dir.run(&["verify", "run", "radius.toml", "--largest-radius", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let radius = |key: &str| document["claims"][0][key].as_f64().unwrap();
    let (proven, violated) = (radius("largest_proven_radius"), radius("smallest_violated_radius"));
    assert!(proven > 0.0 && proven <= violated, "{document}");
    assert_eq!(output.status.code(), Some(0), "{document}");
    // The claims for these two radii have the same verdicts.
    for (radius, code) in [(proven, 0), (violated * 1.0001, 5)] {
        dir.write("radius.toml", claim.replace("0.5", &format!("{radius:?}")));
        assert_eq!(dir.run(&["verify", "run", "radius.toml"]).status.code(), Some(code), "{radius}");
    }
    let output = dir.run(&["verify", "run", "radius.toml", "--largest-radius"]);
    let stdout = text(&output.stdout);
    assert!(stdout.starts_with("near: proven for real numbers and for f32 arithmetic"), "{stdout}");
    let stderr = dir.refused(&["verify", "net.onnx", "proven.vnnlib", "--largest-radius"]);
    assert!(stderr.contains("`--largest-radius` needs claims in TOML"), "{stderr}");
    dir.write("ranges.toml", "[[claim]]\ninputs = [[0, 1]]\nholds = \"finite\"\n");
    let stderr = dir.refused(&["verify", "run", "ranges.toml", "--largest-radius"]);
    assert!(stderr.contains("claim 1: `--largest-radius` needs a `point` or an `example`, and a `ball`"), "{stderr}");
    // The last claim is checked before the first one is searched.
    for (last, expected) in [
        ("inputs = [[0, 1]]\nholds = \"finite\"", "claim 2: `--largest-radius` needs a `point`"),
        ("point = [1.0, 2.0]\nball = 0.1\nholds = \"y[7] > 0\"", "claim 2: y[7] is out of range: y has 2 elements"),
    ] {
        dir.write("last.toml", format!("{claim}[[claim]]\n{last}\n"));
        let output = dir.run(&["verify", "run", "last.toml", "--largest-radius"]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}

/// Compressed files, result files, replayed counterexamples, and the competition's entry scripts.
fn competition_files(dir: &TempDir) {
    for name in ["net.onnx", "proven.vnnlib", "violated.vnnlib"] {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut packed, &std::fs::read(dir.0.join(name)).unwrap()).unwrap();
        std::fs::write(dir.0.join(format!("{name}.gz")), packed.finish().unwrap()).unwrap();
    }
    let result = || std::fs::read_to_string(dir.0.join("result.txt")).unwrap();
    let verify = |property: &str, flag: &str| {
        let output = dir.run(&["verify", "net.onnx.gz", property, flag, "result.txt"]);
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    assert_eq!(verify("proven.vnnlib.gz", "--result").0, Some(0));
    assert_eq!(result(), "unsat\n");
    assert_eq!(verify("violated.vnnlib.gz", "--result").0, Some(5));
    let found = result();
    assert!(found.starts_with("sat\n((X_0 ") && found.contains("(Y_1 "), "{found}");
    replay_by_predict(dir, &found);
    // It is a counterexample of the one property and not of the other.
    assert_eq!(verify("violated.vnnlib", "--replay").0, Some(5));
    let (code, output) = verify("proven.vnnlib", "--replay");
    assert!(code == Some(4) && output.contains("the input in result.txt does not violate the property"), "{output}");
    dir.write("result.txt", "sat\n((X_0 1))");
    let (code, output) = verify("violated.vnnlib", "--replay");
    assert!(code == Some(1) && output.contains("the counterexample has 1 inputs, the property 2"), "{output}");
    let stderr = dir.refused(&["verify", "run", "proven.toml", "--result", "result.txt"]);
    assert!(stderr.contains("`--result` and `--replay` need a property in VNN-LIB"), "{stderr}");
    if cfg!(unix) {
        entry_scripts(dir);
    }
}

/// `predict` computes the outputs of the input that `verify` found, which violate the property `Y_0 < -1e6`.
fn replay_by_predict(dir: &TempDir, found: &str) {
    // The ONNX file and the model that it was exported from, whose outputs can differ by rounding.
    for (model, tolerance) in [("net.onnx", 0.0), ("net.onnx.gz", 0.0), ("run", 1e-4)] {
        let document = dir.json(&["predict", model, "result.txt"]);
        let numbers = |key: &str| -> Vec<f64> {
            document[key].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
        };
        let (input, output, stored) = (numbers("input"), numbers("output"), numbers("stored_output"));
        assert_eq!((input.len(), output.len(), stored.len()), (2, 2, 2), "{document}");
        assert!(input.iter().all(|x| (0.0..=1.0).contains(x)) && output[0] >= -1e6, "{document}");
        let assigned = |name: &str| -> f64 {
            let (_, after) = found.split_once(&format!("({name} ")).unwrap();
            after.split_once(')').unwrap().0.parse().unwrap()
        };
        for (name, value) in [("X_0", input[0]), ("X_1", input[1]), ("Y_0", stored[0]), ("Y_1", stored[1])] {
            assert_eq!(assigned(name) as f32, value as f32, "{name} in {found}");
        }
        let largest = (0..2).map(|n| (output[n] - stored[n]).abs()).fold(0.0, f64::max);
        assert!(largest <= tolerance, "{model}: {document}");
        assert!((document["largest_difference"].as_f64().unwrap() - largest).abs() < 1e-9, "{document}");
    }
    let shown = text(&dir.run(&["predict", "net.onnx", "result.txt"]).stdout);
    assert!(shown.starts_with("X_0 = ") && shown.contains("Y_1 = ") && shown.contains(" (stored "), "{shown}");
    assert!(shown.ends_with("largest difference from the stored outputs: 0\n"), "{shown}");
    // Other stored outputs, and none.
    dir.write("other.txt", "((X_0 0.5) (X_1 0.25) (Y_0 1e9) (Y_1 0))");
    let document = dir.json(&["predict", "net.onnx", "other.txt"]);
    assert!(document["largest_difference"].as_f64().unwrap() > 9e8, "{document}");
    dir.write("other.txt", "((X_0 0.5) (X_1 0.25))");
    let document = dir.json(&["predict", "net.onnx", "other.txt"]);
    assert!(document["stored_output"].is_null() && document["largest_difference"].is_null(), "{document}");
    for (content, expected) in [
        ("unsat\n", "other.txt:1:1: the verdict is `unsat`; the file contains no counterexample"),
        ("sat\n((X_0 0.5)\n(X_1 half))", "other.txt:3:6: expected the value of X_1, found `half`"),
        ("sat\n((X_0 0.5)", "other.txt:2:11: expected `(` or `)`, found the end of the file"),
        ("((X_0 0.5) (X_1 1) (X_2 1))", "other.txt: the counterexample has 3 inputs, but net.onnx has 2"),
        ("((X_0 0.5) (X_1 1) (Y_0 1))", "other.txt: the counterexample has 1 outputs, but net.onnx has 2"),
    ] {
        dir.write("other.txt", content);
        let stderr = dir.refused(&["predict", "net.onnx", "other.txt"]);
        assert!(stderr.contains(expected), "{expected}: {stderr}");
    }
    let stderr = dir.refused(&["predict", "net.onnx", "result.txt", "--output", "out.csv"]);
    assert!(stderr.contains("--output: result.txt is a counterexample of one input"), "{stderr}");
}

fn entry_scripts(dir: &TempDir) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../verify/vnncomp");
    let script = |name: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new("sh");
        command.arg(folder.join(name)).args(arguments).current_dir(&dir.0);
        command.env("PANOPLY", env!("CARGO_BIN_EXE_panoply")).output().unwrap()
    };
    for (property, expected) in
        [("proven.vnnlib", "unsat\n"), ("violated.vnnlib.gz", "sat\n((X_0 "), ("missing.vnnlib", "error\n")]
    {
        let instance = ["v1", "test", "net.onnx.gz", property];
        let prepared = script("prepare_instance.sh", &instance);
        assert_eq!(prepared.status.success(), property != "missing.vnnlib", "{}", text(&prepared.stderr));
        let ran = script("run_instance.sh", &[&instance[..], &["result.txt", "30"]].concat());
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        let result = std::fs::read_to_string(dir.0.join("result.txt")).unwrap();
        assert!(result.starts_with(expected), "{property}: {result}");
    }
    let refused = script("run_instance.sh", &["v2", "test", "net.onnx", "proven.vnnlib", "result.txt", "30"]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("expected version v1, found 'v2'"));
    assert!(!script("install_tool.sh", &["v2"]).status.success());
}
