//! Tables with categorical columns: training, prediction, resuming, and errors.

use std::fmt::Write;

use crate::support::temp_dir::{TempDir, text};

/// A passenger is saved if a woman of class 1 or 2, or a child: neither categorical nor numeric columns alone determine the label.
fn passengers(count: usize, first: usize) -> String {
    let mut table = "name,sex,age,class,saved\n".to_string();
    for at in first..first + count {
        let (sex, class, age) = (["male", "female"][at % 2], ["first", "second", "third"][at / 2 % 3], at * 37 % 70);
        let saved = age < 15 || (sex == "female" && class != "third");
        writeln!(table, "passenger {at},{sex},{age},{class},{}", if saved { "yes" } else { "no" }).unwrap();
    }
    table
}

#[test]
fn categorical_columns_are_trained_and_predicted() {
    let dir = TempDir::new("words");
    dir.write("ship.csv", passengers(600, 0));
    let train = ["train", "ship.csv", "--drop-columns", "name"];
    let report = dir.json(&[&train[..], &["--label", "saved", "--epochs", "12"]].concat());
    assert!(report["accuracy"].as_f64().unwrap() > 0.95, "{report}");
    let stderr = text(&dir.run(&["train", "--resume", "runs/ship-1", "--epochs", "13"]).stderr);
    assert!(stderr.contains("target saved with 2 classes, categorical columns class, sex; mlp"), "{stderr}");
    // Columns in another order, and without those that are not needed.
    dir.write("more.csv", "class,age,sex\nthird,40,female\nfirst,40,female\nfirst,5,male\nsecond,40,male\n");
    let predicted = dir.json(&["predict", "runs/ship-1", "more.csv"]);
    let read: Vec<&str> =
        predicted["predictions"].as_array().unwrap().iter().map(|one| one["predicted"].as_str().unwrap()).collect();
    assert_eq!(read, ["no", "yes", "yes", "no"]);
    dir.write("crew.csv", "class,age,sex\nthird,40,female\ncrew,40,male\n");
    // As scikit-learn's OneHotEncoder(handle_unknown="ignore") does.
    let output = dir.run(&["predict", "runs/ship-1", "crew.csv"]);
    assert_eq!((output.status.success(), text(&output.stdout).lines().count()), (true, 2));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("crew.csv: class: 1 of 2 cells have categories unknown to the network (crew)"), "{stderr}");
    // A categorical column can be the target; so can a number that depends on categories.
    let report = dir.json(&[&train[..], &["--label", "sex", "--epochs", "1"]].concat());
    assert_eq!(report["r2"], serde_json::Value::Null);
    let report = dir.json(&[&train[..], &["--drop-columns", "saved", "--label", "age", "--epochs", "1"]].concat());
    assert!(report["r2"].is_f64(), "{report}");
}

#[test]
fn invalid_categorical_columns_are_reported() {
    let dir = TempDir::new("wrong-words");
    dir.write("ship.csv", passengers(80, 0));
    dir.write("gaps.csv", passengers(80, 0).replace("male,0,", "male,,"));
    dir.write("odd.csv", passengers(80, 0).replace("male,37,", "male,old,"));
    for (arguments, refused) in [
        (
            &["gaps.csv", "--drop-columns", "name", "--missing", "error"][..],
            "gaps.csv:2: age: the value is missing\n  `--missing median` replaces missing values",
        ),
        (&["odd.csv", "--drop-columns", "name"], "odd.csv:3: age: `old` is not a finite number"),
        (
            &["ship.csv", "--label", "saved", "--drop-columns", "saved"],
            "ship.csv: saved is a label, so it cannot be ignored",
        ),
        (
            &["ship.csv", "--drop-columns", "cabin"],
            "no column `cabin`; did you mean `name`, `age`, `class`? the columns are name, sex, age, class, saved",
        ),
        (&["digits", "--drop-columns", "name"], "--drop-columns does not apply to digits"),
    ] {
        let refusal = dir.refused(&[&["train"], arguments].concat());
        assert!(refusal.contains(refused), "{arguments:?}: {refusal}");
    }
    assert!(!dir.0.join("runs").exists(), "no run is started");
}
