//! `panoply predict --output`: predictions beside the rows of the data, as CSV, JSON and Parquet.

use std::fmt::Write;

use panoply::nn::data::csv::CsvTable;
use serde_json::Value;

use crate::support::temp_dir::{TempDir, text};

/// A table with quoted cells, line breaks in cells, a blank line and names of columns that predictions add, with the line in which each row
/// begins.
fn people(count: usize) -> (String, Vec<usize>) {
    let (mut table, mut lines) = ("name,age,code,row,predicted,kind\n".to_string(), Vec::new());
    for at in 0..count {
        if at == 10 {
            table.push('\n');
        }
        lines.push(table.matches('\n').count() + 1);
        let name = match at % 5 {
            0 => format!("\"Ann \"\"{at}\"\", née\nSmith\""),
            1 => format!("\"Smith, {at}\""),
            _ => format!("person {at}"),
        };
        let age = at * 7 % 50;
        let kind = if age < 25 { "low" } else { "high" };
        writeln!(table, "{name},{age},{at:03},{},guess,{kind}", 900 + at).unwrap();
    }
    (table, lines)
}

/// The cells of a table of text by name.
struct Read(CsvTable);

impl Read {
    fn open(dir: &TempDir, name: &str) -> Read {
        Read(CsvTable::read(&dir.0.join(name)).unwrap())
    }

    #[track_caller]
    fn cell(&self, row: usize, column: &str) -> &str {
        self.0.cell(row, self.0.names.iter().position(|name| name == column).unwrap())
    }

    fn number(&self, row: usize, column: &str) -> f64 {
        self.cell(row, column).parse().unwrap()
    }
}

/// Trains for an epoch and returns the classification's folder and data.
fn trained(dir: &TempDir) -> Vec<usize> {
    let (table, lines) = people(60);
    dir.write("people.csv", table);
    let dropped = ["--drop-columns", "name,code,row,predicted", "--missing", "median"];
    dir.json(&[&["train", "people.csv", "--label", "kind", "--epochs", "1", "--out", "run"][..], &dropped].concat());
    lines
}

/// Returns the line of an example of `predict --json`.
fn line(example: &Value) -> usize {
    example["example"].as_str().unwrap().strip_prefix("line ").unwrap().parse().unwrap()
}

#[test]
fn csv_output_joins_the_input_by_line() {
    let dir = TempDir::new("output-csv");
    let lines = trained(&dir);
    let printed = dir.json(&["predict", "run", "people.csv"]);
    let output = dir.run(&["predict", "run", "people.csv", "--output", "out.csv"]);
    let stdout = text(&output.stdout);
    assert!(output.status.success() && stdout.ends_with("saved out.csv: 60 rows\n"), "{stdout}");
    assert!(stdout.starts_with("accuracy ") && stdout.lines().next().unwrap().ends_with(" of 60)"), "{stdout}");
    assert_eq!(stdout.lines().count(), 2, "the summary and no rows: {stdout}");
    let (input, out) = (Read::open(&dir, "people.csv"), Read::open(&dir, "out.csv"));
    let names = ["row_1", "name", "age", "code", "row", "predicted", "kind", "predicted_1", "probability"];
    assert_eq!((out.0.rows(), &out.0.names[..]), (60, &names.map(str::to_string)[..]));
    for (at, example) in printed["predictions"].as_array().unwrap().iter().enumerate() {
        assert_eq!((out.number(at, "row_1") as usize, line(example)), (lines[at], lines[at]));
        assert_eq!(out.cell(at, "predicted_1"), example["predicted"].as_str().unwrap());
        assert_eq!(out.number(at, "probability") as f32, example["probability"].as_f64().unwrap() as f32);
        for column in &input.0.names {
            assert_eq!(out.cell(at, column), input.cell(at, column), "{column} of line {}", lines[at]);
        }
    }
    assert!(out.cell(0, "name").contains("née\nSmith"), "{}", out.cell(0, "name"));
    // A sample keeps the lines of the file; `--out` and `-o` are other names of the option.
    let sample = ["--num-examples", "7", "--seed", "3"];
    let report = dir.json(&[&["predict", "run", "people.csv", "-o", "few.csv"], &sample[..]].concat());
    assert_eq!((&report["output"], report["predictions"].as_array().unwrap().len()), (&"few.csv".into(), 7));
    let few = Read::open(&dir, "few.csv");
    for (at, example) in report["predictions"].as_array().unwrap().iter().enumerate() {
        assert_eq!(few.number(at, "row_1") as usize, line(example));
        let row = lines.iter().position(|of| *of == line(example)).unwrap();
        assert_eq!(few.cell(at, "name"), input.cell(row, "name"));
    }
    // Without DATA, all rows of the training data.
    dir.json(&["predict", "run", "--out", "all.csv"]);
    assert_eq!(std::fs::read(dir.0.join("all.csv")).unwrap(), std::fs::read(dir.0.join("out.csv")).unwrap());
}

#[test]
fn json_output_has_types_and_null() {
    let dir = TempDir::new("output-json");
    trained(&dir);
    dir.write("new.csv", "code,age,name\n007,4.50,a\n012,NA,\"b \"\"c\"\"\"\n\n100,7,\n");
    let printed = dir.json(&["predict", "run", "new.csv", "--output", "new.json"]);
    let rows: Value = serde_json::from_slice(&std::fs::read(dir.0.join("new.json")).unwrap()).unwrap();
    let rows = rows.as_array().unwrap();
    let input: Vec<Value> =
        rows.iter().map(|row| serde_json::json!([row["row"], row["code"], row["age"], row["name"]])).collect();
    let expected = serde_json::json!([[2, "007", 4.5, "a"], [3, "012", null, "b \"c\""], [5, "100", 7, null]]);
    assert_eq!(Value::from(input), expected);
    for (row, example) in rows.iter().zip(printed["predictions"].as_array().unwrap()) {
        assert_eq!((row.as_object().unwrap().len(), &row["predicted"]), (6, &example["predicted"]));
        assert_eq!(row["probability"].as_f64().unwrap() as f32, example["probability"].as_f64().unwrap() as f32);
    }
    // Cells of CSV are those of the file.
    dir.json(&["predict", "run", "new.csv", "--output", "new-out.csv"]);
    assert!(std::fs::read_to_string(dir.0.join("new-out.csv")).unwrap().contains("\n3,012,NA,\"b \"\"c\"\"\","));
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_output_is_read_back() {
    use panoply::nn::data::Targets;
    use panoply::nn::data::reader::{self, DataFormat, ReadOptions, Task};
    let dir = TempDir::new("output-parquet");
    let lines = trained(&dir);
    let printed = dir.json(&["predict", "run", "people.csv", "--output", "out.parquet"]);
    let examples = printed["predictions"].as_array().unwrap();
    let read = |label: &str, task: Task| {
        let others =
            ["name", "code", "row", "predicted", "kind", "predicted_1"].into_iter().filter(|name| *name != label);
        let options = ReadOptions {
            label_columns: vec![label.to_string()],
            drop_columns: others.map(str::to_string).collect(),
            task: Some(task),
            ..ReadOptions::default()
        };
        reader::open(&dir.0.join("out.parquet"), &options).unwrap()
    };
    let numbers = |label: &str| -> Vec<f64> {
        let read = read(label, Task::Regression);
        let DataFormat::Csv { offsets, .. } = &read.format else { panic!("{:?}", read.format) };
        let Targets::Regression { values, .. } = &read.dataset.targets else { panic!("{:?}", read.dataset.targets) };
        values.iter().map(|value| f64::from(*value) + offsets.get(label).unwrap_or(&0.0)).collect()
    };
    assert_eq!(numbers("row_1"), lines.iter().map(|line| *line as f64).collect::<Vec<f64>>());
    for (number, example) in numbers("probability").iter().zip(examples) {
        assert!((number - example["probability"].as_f64().unwrap()).abs() < 1e-6, "{number}: {example}");
    }
    assert_eq!(read("kind", Task::Classification).class_names, ["high", "low"]);
    // The model reads its own output, which has all columns of the data.
    let again = dir.json(&["predict", "run", "out.parquet"]);
    assert_eq!(again["accuracy"], printed["accuracy"]);
    for (again, example) in again["predictions"].as_array().unwrap().iter().zip(examples) {
        assert_eq!((&again["predicted"], &again["probability"]), (&example["predicted"], &example["probability"]));
    }
    // Texts such as 007 are kept, and rows of a Parquet table are counted from 1.
    dir.json(&["predict", "run", "out.parquet", "--output", "back.csv"]);
    let (back, input) = (Read::open(&dir, "back.csv"), Read::open(&dir, "people.csv"));
    for at in 0..60 {
        assert_eq!(back.number(at, "row_2") as usize, at + 1);
        for column in ["name", "code", "age", "kind"] {
            assert_eq!(back.cell(at, column), input.cell(at, column));
        }
    }
}

/// A file that pyarrow wrote from days and seconds since 1970: the dates are `datetime(1970, 1, 1) + timedelta(seconds=…)`.
#[cfg(feature = "parquet")]
#[test]
fn dates_of_parquet_are_written_as_text() {
    let dir = TempDir::new("output-dates");
    let rows: String = (0..40).map(|at| format!("{},{}\n", at * 7 % 40, ["no", "yes"][at * 7 % 40 / 20])).collect();
    dir.write("numbers.csv", format!("int16,label\n{rows}"));
    dir.json(&["train", "numbers.csv", "--label", "label", "--epochs", "1", "--output-dir", "run"]);
    let typed = concat!(env!("CARGO_MANIFEST_DIR"), "/../nn/tests/fixtures/types.parquet");
    let dates = ["1970-01-01", "1969-12-31", "2022-01-08", "", "2000-02-29", "1970-01-02", "1970-01-03"];
    let seconds = [
        "1970-01-01",
        "1969-12-31 23:59:59",
        "2023-11-14 22:13:20",
        "",
        "2000-02-29",
        "2100-01-01",
        "1970-01-01 00:00:01",
    ];
    dir.json(&["predict", "run", typed, "--output", "out.csv"]);
    let out = Read::open(&dir, "out.csv");
    dir.json(&["predict", "run", typed, "--output", "out.json"]);
    let rows: Value = serde_json::from_slice(&std::fs::read(dir.0.join("out.json")).unwrap()).unwrap();
    assert_eq!((out.0.rows(), rows.as_array().unwrap().len()), (7, 7));
    for (column, expected) in [("date", dates), ("s", seconds)] {
        for (at, text) in expected.into_iter().enumerate() {
            assert_eq!(out.cell(at, column), text, "{column} of row {at}");
            let value = if text.is_empty() { Value::Null } else { text.into() };
            assert_eq!(rows[at][column], value, "{column} of row {at}");
        }
    }
    assert_eq!((out.cell(1, "int16"), &rows[1]["int16"], out.cell(6, "row")), ("32767", &32767.into(), "7"));
}

#[test]
fn targets_and_labels_have_columns_of_their_names() {
    let dir = TempDir::new("output-targets");
    let rows: String = (0..40).map(|at| format!("{at},{},{},{}\n", at * at % 9, 1e9 + at as f64, at % 2)).collect();
    dir.write("numbers.csv", format!("a,b,far,yes\n{rows}"));
    let train = ["train", "numbers.csv", "--epochs", "1"];
    dir.json(&[&train[..], &["--label", "far,b", "--task", "regression", "--out", "two"]].concat());
    let printed = dir.json(&["predict", "two", "numbers.csv", "--output", "two.csv"]);
    let out = Read::open(&dir, "two.csv");
    assert_eq!(out.0.names, ["row", "a", "b", "far", "yes", "far predicted", "b predicted"]);
    for (at, example) in printed["predictions"].as_array().unwrap().iter().enumerate() {
        // The offset of 10⁹ is added in f64.
        let far = example["predicted"][0].as_f64().unwrap();
        assert!((out.number(at, "far predicted") - far).abs() < 1e-6 && far > 9e8, "{example}");
        assert_eq!(out.number(at, "b predicted") as f32, example["predicted"][1].as_f64().unwrap() as f32);
    }
    dir.json(&[&train[..], &["--label", "yes", "--task", "multilabel", "--out", "label"]].concat());
    let printed = dir.json(&["predict", "label", "numbers.csv", "--output", "label.csv"]);
    let out = Read::open(&dir, "label.csv");
    for (at, example) in printed["predictions"].as_array().unwrap().iter().enumerate() {
        assert_eq!(out.number(at, "yes predicted") as f32, example["predicted"]["yes"].as_f64().unwrap() as f32);
    }
    // Examples that are not rows of a table have their names.
    dir.json(&["train", "digits", "--epochs", "1", "--hidden-sizes", "8", "--out", "digits"]);
    let printed = dir.json(&["predict", "digits", "--num-examples", "5", "--output", "digits.csv"]);
    let out = Read::open(&dir, "digits.csv");
    assert_eq!(out.0.names, ["row", "predicted", "probability"]);
    for (at, example) in printed["predictions"].as_array().unwrap().iter().enumerate() {
        let expected = [&example["example"], &example["predicted"]].map(|value| value.as_str().unwrap());
        assert_eq!([out.cell(at, "row"), out.cell(at, "predicted")], expected);
    }
}

/// Each row of a sequence has the prediction of the sequence.
#[test]
fn rows_of_sequences_are_written() {
    let dir = TempDir::new("output-sequences");
    let rows: String =
        (0..60).map(|at| format!("{},{},{}\n", at / 6 * 2 + at % 2, at % 7, ["u", "d"][at / 6 % 2])).collect();
    dir.write("walks.csv", format!("walk,step,way\n{rows}"));
    let train = ["train", "walks.csv", "--sequence-column", "walk", "--label", "way", "--epochs", "1"];
    dir.json(&[&train[..], &["--hidden-sizes", "4", "--out", "run"]].concat());
    let printed = dir.json(&["predict", "run", "walks.csv", "--output", "out.csv"]);
    let (input, out) = (Read::open(&dir, "walks.csv"), Read::open(&dir, "out.csv"));
    let mut lines = Vec::new();
    for row in 0..60 {
        let line = out.number(row, "row") as usize;
        lines.push(line);
        for column in &input.0.names {
            assert_eq!(out.cell(row, column), input.cell(line - 2, column), "line {line}");
        }
        let name = format!("walk {}", out.cell(row, "walk"));
        let example = printed["predictions"].as_array().unwrap().iter().find(|one| one["example"] == name).unwrap();
        assert_eq!(out.cell(row, "predicted"), example["predicted"].as_str().unwrap());
    }
    lines.sort_unstable();
    assert_eq!(lines, (2..62).collect::<Vec<usize>>(), "each row once");
}

#[test]
fn unsuitable_output_files_are_refused() {
    let dir = TempDir::new("output-refused");
    trained(&dir);
    std::fs::hard_link(dir.0.join("run/model.safetensors"), dir.0.join("model.csv")).unwrap();
    std::fs::hard_link(dir.0.join("people.csv"), dir.0.join("link.csv")).unwrap();
    dir.write("other.csv", people(4).0);
    dir.write("held.csv", people(4).0);
    dir.json(&["train", "people.csv", "--val-split", "file:held.csv", "--epochs", "1", "--out", "split"]);
    let refusal = dir.refused(&["predict", "split", "other.csv", "--output", "held.csv"]);
    assert!(refusal.contains("--output held.csv is the data itself"), "{refusal}");
    let mut cases = vec![
        ("out.txt", "--output out.txt: the extension must be .csv, .json or .parquet"),
        ("out", "--output out: the extension must be .csv, .json or .parquet"),
        ("other.csv", "--output other.csv is the data itself"),
        ("people.csv", "--output people.csv is the data itself"),
        ("link.csv", "--output link.csv is the data itself"),
        ("model.csv", "--output model.csv is the model itself\n  choose another file, such as predictions.csv"),
        ("run/history.csv", "--output run/history.csv is a file of a run"),
        ("run/timeline.json", "--output run/timeline.json is a file of a run"),
        ("missing/out.csv", "cannot write missing/out.csv"),
    ];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("/dev/null", dir.0.join("null.csv")).unwrap();
        cases.push(("null.csv", "--output null.csv is a pipe or a device"));
    }
    let before: Vec<Vec<u8>> =
        ["people.csv", "other.csv", "run/history.csv"].map(|name| std::fs::read(dir.0.join(name)).unwrap()).into();
    let entries = dir.entries(".");
    for (out, refused) in cases {
        let refusal = dir.refused(&["predict", "run", "other.csv", "--output", out]);
        assert!(refusal.contains(refused), "{out}: {refusal}");
    }
    let after: Vec<Vec<u8>> =
        ["people.csv", "other.csv", "run/history.csv"].map(|name| std::fs::read(dir.0.join(name)).unwrap()).into();
    assert!(before == after && dir.entries(".") == entries, "no file is changed or left");
}
