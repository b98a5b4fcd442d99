//! Runs that end badly and go on: what is missing, what is not finite, what nobody can read.

mod place;

use place::{Place, text};

#[test]
fn a_run_whose_state_is_gone_is_not_begun_again() {
    let place = Place::new("stateless");
    place.json(&["train", "digits", "--epochs", "2", "--out", "run"]);
    let read = |name: &str| std::fs::read(place.0.join("run").join(name)).unwrap();
    let before = ["history.jsonl", "model.safetensors", "manifest.json"].map(read);
    std::fs::remove_file(place.0.join("run/training.safetensors")).unwrap();
    let said = place.refused(&["train", "--resume", "run", "--epochs", "4"]);
    assert!(said.contains("run/training.safetensors is missing, beside run/model.safetensors"), "{said}");
    assert_eq!(["history.jsonl", "model.safetensors", "manifest.json"].map(read), before, "nothing was changed");
}

/// Numbers that grow until the loss overflows: the run stops with what it has, and what it has can be read again.
#[test]
fn a_run_that_diverges_says_what_would_help_and_can_be_read_again() {
    let place = Place::new("diverging");
    let train = line(&place, "mse");
    let rate = ["--optimiser", "sgd", "--learning-rate", "3", "--clip-norm", "1e30", "--epochs", "300", "--out", "run"];
    let said = place.refused(&[&train[..], &rate].concat());
    assert!(said.contains("smaller `--learning-rate`") && !said.contains("goes on from there"), "{said}");
    let history = std::fs::read_to_string(place.0.join("run/history.jsonl")).unwrap();
    assert!(!history.is_empty() && !history.contains("null"), "{history}");
    let again = place.refused(&["train", "--resume", "run"]);
    assert!(again.contains("smaller `--learning-rate`") && !again.contains("invalid type"), "{again}");
}

/// A line to be learned, and a network of one layer for it.
fn line(place: &Place, loss: &str) -> [&'static str; 8] {
    let rows: Vec<String> = (0..60).map(|i| format!("{i},{}\n", 3 * i)).collect();
    place.write("line.csv", format!("x,y\n{}", rows.concat()));
    let net = format!("input = [1]\n[loss]\nkind = \"{loss}\"\n[[layer]]\nkind = \"linear\"\noutputs = 1\n");
    place.write("line.toml", net);
    ["train", "line.csv", "--label", "y", "--task", "numbers", "--model", "line.toml"]
}

#[test]
fn a_run_that_diverges_at_once_says_what_would_help() {
    let place = Place::new("diverging-at-once");
    let train = line(&place, "mse");
    let rate = ["--optimiser", "sgd", "--learning-rate", "1e30", "--clip-norm", "1e30", "--out", "run"];
    let said = place.refused(&[&train[..], &rate].concat());
    assert!(said.contains("after epoch 1\n"), "{said}");
    assert!(said.contains("another run, in another folder, may take a smaller `--learning-rate`"), "{said}");
    assert!(!place.0.join("run/model.safetensors").exists() && !said.contains("--resume"), "{said}");
    // What the advice comes to in the same folder.
    let again = place.refused(&[&train[..], &["--learning-rate", "0.01", "--out", "run"]].concat());
    assert!(
        again.contains("run holds a run already") && again.contains("another run takes another `--out`"),
        "{again}"
    );
}

#[test]
fn a_score_that_is_infinite_has_one_form() {
    let place = Place::new("infinite");
    let train = line(&place, "l1");
    let rate = ["--optimiser", "sgd", "--learning-rate", "1e25", "--clip-norm", "1e30", "--epochs", "1"];
    let report = place.json(&[&train[..], &rate].concat());
    assert_eq!((&report["epochs"][0]["score"], &report["r2"]), (&"-inf".into(), &"-inf".into()), "{report}");
}

#[test]
fn a_class_that_is_not_held_out_is_named() {
    let place = Place::new("one-sided");
    let rows: Vec<String> = (0..40).map(|i| format!("{i}.5,{}\n", if i == 7 { "odd" } else { "even" })).collect();
    place.write("few.csv", format!("x,label\n{}", rows.concat()));
    let said = text(&place.run(&["train", "few.csv", "--epochs", "1"]).stderr);
    assert!(
        said.contains("no example held out is of class odd") || said.contains("to learn from is of class odd"),
        "{said}"
    );
}

#[test]
fn files_that_nobody_can_read_name_the_place_and_a_remedy() {
    let place = Place::new("unread");
    let refused = |name: &str, content: &[u8]| {
        place.write(name, content);
        place.refused(&["train", name, "--epochs", "1"])
    };
    let said = refused("latin.csv", b"x,label\n1,caf\xe9\n2,b\n");
    assert!(said.contains("latin.csv:2: byte 0xe9 is no UTF-8") && said.contains("save it as UTF-8"), "{said}");
    let said = refused("head.csv", b"x,label\n");
    assert!(said.contains("head.csv: there is one line; with names in the first there is no row"), "{said}");
    let said = refused("only.csv", b"x,label\n1,a\n");
    assert!(said.contains("only.csv: there is one row beside the names"), "{said}");
    let said = refused("cut.csv.gz", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x4b]);
    assert!(said.contains("gzip") && said.contains("another copy"), "{said}");
    place.json(&["train", "digits", "--epochs", "1", "--out", "run"]);
    let model = std::fs::read(place.0.join("run/model.safetensors")).unwrap();
    place.write("run/model.safetensors", &model[..model.len() / 2]);
    let said = place.refused(&["predict", "run"]);
    assert!(said.contains("run/model.safetensors: ") && said.contains("another copy"), "{said}");
    // Of what a run goes on from there is no other copy.
    let state = std::fs::read(place.0.join("run/training.safetensors")).unwrap();
    place.write("run/training.safetensors", &state[..state.len() / 2]);
    let said = place.refused(&["train", "--resume", "run", "--epochs", "2"]);
    assert!(said.contains("run/training.safetensors: it is no safetensors file, or not all of one"), "{said}");
    assert!(
        said.contains("cannot go on from it; run/model.safetensors stands; start another run")
            && !said.contains("copy"),
        "{said}"
    );
}
