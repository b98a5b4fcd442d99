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
    let stderr = dir.refused(&["verify", "t.csv", "proven.vnnlib"]);
    assert!(stderr.contains("t.csv: not a readable ONNX model"), "{stderr}");
}
