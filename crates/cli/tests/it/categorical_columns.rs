//! Tables with columns of words: learned from, judged, gone on with; and what wrong ones get.

use crate::place;

use std::fmt::Write;

use place::{Place, text};

/// Passengers who were saved if they were women of any class but the third, or children: words alone do not tell, numbers neither.
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
fn words_are_learned_from() {
    let place = Place::new("words");
    place.write("ship.csv", passengers(600, 0));
    let train = ["train", "ship.csv", "--drop-columns", "name"];
    let report = place.json(&[&train[..], &["--label", "saved", "--epochs", "12"]].concat());
    assert!(report["accuracy"].as_f64().unwrap() > 0.95, "{report}");
    let said = text(&place.run(&["train", "--resume", "runs/ship-1", "--epochs", "13"]).stderr);
    assert!(said.contains("saved as one of 2 classes, words in class, sex; mlp"), "{said}");
    // Columns in another order, and what need not be there is not.
    place.write("more.csv", "class,age,sex\nthird,40,female\nfirst,40,female\nfirst,5,male\nsecond,40,male\n");
    let judged = place.json(&["predict", "runs/ship-1", "more.csv"]);
    let read: Vec<&str> =
        judged["predictions"].as_array().unwrap().iter().map(|one| one["prediction"].as_str().unwrap()).collect();
    assert_eq!(read, ["no", "yes", "yes", "no"]);
    place.write("crew.csv", "class,age,sex\nthird,40,female\ncrew,40,male\n");
    // As scikit-learn's OneHotEncoder(handle_unknown="ignore") does.
    let judged = place.run(&["predict", "runs/ship-1", "crew.csv"]);
    assert_eq!((judged.status.success(), text(&judged.stdout).lines().count()), (true, 2));
    let said = text(&judged.stderr);
    assert!(said.contains("crew.csv: class: 1 of 2 cells hold words that the network does not know (crew)"), "{said}");
    // A word is learned as a class, a number from words.
    let report = place.json(&[&train[..], &["--label", "sex", "--epochs", "1"]].concat());
    assert_eq!(report["r2"], serde_json::Value::Null);
    let report = place.json(&[&train[..], &["--drop-columns", "saved", "--label", "age", "--epochs", "1"]].concat());
    assert!(report["r2"].is_f64(), "{report}");
}

#[test]
fn wrong_words_are_named() {
    let place = Place::new("wrong-words");
    place.write("ship.csv", passengers(80, 0));
    place.write("gaps.csv", passengers(80, 0).replace("male,0,", "male,,"));
    place.write("odd.csv", passengers(80, 0).replace("male,37,", "male,old,"));
    for (arguments, refused) in [
        (&["ship.csv"][..], "ship.csv: name: 80 different words are no kinds of anything"),
        (&["ship.csv"], "\n  `--drop-columns \"name\"` leaves the column out"),
        (&["gaps.csv", "--drop-columns", "name"], "gaps.csv:2: age: is empty"),
        (&["gaps.csv", "--drop-columns", "1"], "\n  `--drop-columns COLUMN` leaves a column out"),
        (&["odd.csv", "--drop-columns", "name"], "odd.csv:3: age: `old` is no finite number"),
        (
            &["ship.csv", "--label", "saved", "--drop-columns", "saved"],
            "ship.csv: saved is learned, so it cannot be left out",
        ),
        (
            &["ship.csv", "--drop-columns", "cabin"],
            "there is no column `cabin`; there are name, sex, age, class, saved",
        ),
        (&["digits", "--drop-columns", "name"], "--drop-columns: digits have no use for it"),
    ] {
        let refusal = place.refused(&[&["train"], arguments].concat());
        assert!(refusal.contains(refused), "{arguments:?}: {refusal}");
    }
    assert!(!place.0.join("runs").exists(), "nothing was begun");
}
