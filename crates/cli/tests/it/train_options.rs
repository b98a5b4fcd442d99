//! Training options from the command line and from files: losses, class weights, the section `[training]`, precedence, the recorded
//! settings, and errors.

use std::path::Path;
use std::process::Command;

use crate::support::temp_dir::{TempDir, text};
use serde_json::Value;

fn manifest(dir: &TempDir, run: &str) -> Value {
    serde_json::from_slice(&std::fs::read(dir.0.join(run).join("manifest.json")).unwrap()).unwrap()
}

fn inspected(dir: &TempDir, run: &str) -> String {
    let mut inspect = Command::new(env!("CARGO_BIN_EXE_panoply"));
    let output = inspect.args(["inspect", run]).current_dir(&dir.0).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// A single output with BCE separates two classes as well as two outputs; `predict` shows its probability.
#[test]
fn binary_classification_with_one_output_is_learned() {
    let dir = TempDir::new("bce");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/breast_cancer.csv").display().to_string();
    let train =
        ["train", &data, "--label", "diagnosis", "--epochs", "15", "--batch-size", "16", "--hidden-sizes", "16"];
    let line = [&train[..], &["--loss", "bce-with-logits", "--class-weights", "balanced", "--out", "run"]].concat();
    let report = dir.json(&line);
    assert!(report["accuracy"].as_f64().unwrap() > 0.93, "{report}");
    assert!(report["roc_auc"].as_f64().unwrap() > 0.97, "{report}");
    let network = manifest(&dir, "run")["network"].clone();
    let layers = network["layers"].as_array().unwrap();
    assert_eq!(
        (layers[layers.len() - 1]["linear"]["out_features"].as_u64(), &network["loss"]["kind"]),
        (Some(1), &"bce_with_logits".into())
    );
    // 170 and 286 of 456 training examples: weights 456 / (2 · 286) and 456 / (2 · 170), in either order.
    let mut weights: Vec<f64> =
        network["loss"]["class_weights"].as_array().unwrap().iter().map(|weight| weight.as_f64().unwrap()).collect();
    weights.sort_by(f64::total_cmp);
    assert!((weights[0] - 456.0 / 572.0).abs() < 0.01 && (weights[1] - 456.0 / 340.0).abs() < 0.02, "{weights:?}");
    let shown = inspected(&dir, "run");
    assert!(
        shown.contains(
            "\noptimizer adamw, learning rate 0.002, weight decay 0.01, batch size 16, EMA decay 0.99; loss bce_with_logits, class weights "
        ),
        "{shown}"
    );
    let seen = dir.json(&["predict", "run", "--num-examples", "50"]);
    assert!(seen["correct"].as_u64().unwrap() > 44, "{seen}");
    for row in seen["predictions"].as_array().unwrap() {
        assert!((0.5..=1.0).contains(&row["probability"].as_f64().unwrap()), "{row}");
    }
    // A resumed run keeps its loss.
    let longer = dir.json(&["train", "--resume", "run", "--epochs", "16"]);
    assert_eq!(manifest(&dir, "run")["network"], network);
    assert!(longer["accuracy"].as_f64().unwrap() > 0.93, "{longer}");
    let refusal = dir.refused(&[&train[..], &["--class-weights", "1,2,3"]].concat());
    assert!(refusal.contains("class_weights has 3 numbers, but there are 2 classes"), "{refusal}");
    assert!(refusal.contains("\n  the classes are, in this order, "), "{refusal}");
}

/// The weight of a rare class raises its recall.
#[test]
fn class_weights_raise_the_recall_of_rare_classes() {
    let dir = TempDir::new("rare");
    // Overlapping: a rare `yes` around 1, a common `no` around 0, with the same spread.
    let rows: Vec<String> = (0..400)
        .map(|i| {
            let (yes, spread) = (i % 16 == 0, f64::from((i * 37) % 101) / 50.0 - 1.0);
            format!("{:.3},{}\n", spread * 1.2 + f64::from(u8::from(yes)), if yes { "yes" } else { "no" })
        })
        .collect();
    dir.write("rare.csv", format!("x,kind\n{}", rows.concat()));
    let recall = |weights: &[&str], out: &str| {
        let train = ["train", "rare.csv", "--epochs", "40", "--hidden-sizes", "8", "--dropout", "0", "--out", out];
        dir.json(&[&train[..], weights].concat());
        let seen = dir.json(&["predict", out, "rare.csv"]);
        let yes = seen["predictions"].as_array().unwrap().iter().filter(|row| row["actual"] == "yes");
        yes.clone().filter(|row| row["predicted"] == "yes").count() as f64 / yes.count() as f64
    };
    let plain = recall(&[], "plain");
    for (weights, out) in [("balanced", "balanced"), ("1,16", "given")] {
        let weighted = recall(&["--class-weights", weights], out);
        assert!(weighted > plain + 0.3, "{weighted} of the rare ones found, {plain} without weights");
    }
}

const NETWORK: &str = r#"input = [64]
loss = { label_smoothing = 0.1, class_weights = "balanced" }

[training]
epochs = 2
optimizer = "sgd"
momentum = 0.8
learning_rate = 1e-2
weight_decay = 0.05
lr_schedule = "reduce-on-plateau"
clip_norm = 2
ema_decay = 0.95
accumulate_grad_batches = 2
batch_size = 32
precision = "bf16"
val_split = 0.3
seed = 7
patience = 9

[[layer]]
kind = "linear"
out_features = 10
"#;

#[test]
fn command_line_overrides_training_options_of_a_file() {
    let dir = TempDir::new("recipe");
    dir.write("net.toml", NETWORK);
    dir.json(&["train", "digits", "--model", "net.toml", "--out", "file"]);
    let settings = manifest(&dir, "file")["settings"].clone();
    for (name, want) in [
        ("epochs", 2.into()),
        ("optimizer", "sgd".into()),
        ("momentum", 0.8.into()),
        ("learning_rate", 0.01.into()),
        ("weight_decay", 0.05.into()),
        ("lr_schedule", "reduce-on-plateau".into()),
        ("clip_norm", 2.0.into()),
        ("ema_decay", 0.95.into()),
        ("accumulate_grad_batches", 2.into()),
        ("batch_size", 32.into()),
        ("precision", "bf16".into()),
        ("val_split", 0.3.into()),
        ("seed", 7.into()),
        ("patience", 9.into()),
    ] as [(&str, Value); 14]
    {
        assert_eq!(settings[name], want, "{name}");
    }
    let words = "optimizer sgd, learning rate 0.01, momentum 0.8, weight decay 0.05, gradient norm up to 2, schedule reduce-on-plateau, \
                 batch size 32, 2 batches per step, EMA decay 0.95, bf16; loss cross_entropy, label smoothing 0.1, class weights ";
    let shown = inspected(&dir, "file");
    assert!(shown.contains(words), "{shown}");
    // Settings of the file that belong to its optimizer and loss are dropped for others.
    let more = ["--min-steps", "50", "--optimizer", "lion", "--batch-size", "64"];
    let line = ["train", "digits", "--model", "net.toml", "--loss", "bce-with-logits", "--out", "line"];
    dir.json(&[&line[..], &more].concat());
    let of_line = manifest(&dir, "line");
    let settings = &of_line["settings"];
    assert_eq!((&settings["optimizer"], &settings["batch_size"]), (&"lion".into(), &64.into()));
    // 1258 training examples are 20 batches of 64, so 50 steps are three epochs.
    assert_eq!((&settings["epochs"], &settings["weight_decay"]), (&3.into(), &0.05.into()));
    assert_eq!((&settings["learning_rate"], &settings["momentum"]), (&0.001.into(), &Value::Null));
    let loss = &of_line["network"]["loss"];
    assert_eq!((&loss["kind"], &loss["label_smoothing"]), (&"bce_with_logits".into(), &0.0.into()));
    assert!(loss["class_weights"].is_null(), "{loss}");
    let adagrad =
        ["train", "digits", "--model", "net.toml", "--optimizer", "adagrad", "--epochs", "1", "--out", "adagrad"];
    dir.json(&adagrad);
    let settings = manifest(&dir, "adagrad")["settings"].clone();
    assert_eq!((&settings["learning_rate"], &settings["weight_decay"]), (&0.02.into(), &Value::Null));
    // Clipping by value replaces clipping by norm and is kept when resuming: with a tiny limit the loss hardly changes.
    let limited = ["train", "digits", "--model", "net.toml", "--clip-value", "1e-9", "--weight-decay", "0"];
    dir.json(&[&limited[..], &["--epochs", "1", "--out", "limited"]].concat());
    let longer = dir.json(&["train", "--resume", "limited", "--epochs", "3"]);
    let settings = manifest(&dir, "limited")["settings"].clone();
    assert_eq!((&settings["clip_value"], &settings["clip_norm"]), (&1e-9.into(), &Value::Null));
    assert!(inspected(&dir, "limited").contains("gradient elements up to ±0.000000001"));
    let loss = |epoch: usize| longer["history"][epoch]["val_loss"].as_f64().unwrap();
    assert!((loss(0) - loss(2)).abs() < 1e-4, "{longer}");
    let refusal = dir.refused(&["train", "digits", "--clip-value", "1", "--clip-norm", "1"]);
    assert!(refusal.contains("'--clip-value <CLIP_VALUE>' cannot be used with '--clip-norm <CLIP_NORM>'"), "{refusal}");
    let refusal = dir.refused(&[&adagrad[..8], &["--momentum", "0.8"]].concat());
    assert!(refusal.contains("--momentum 0.8 cannot be used with --optimizer adagrad"), "{refusal}");
    // Naming the optimizer and loss of the file keeps its settings.
    let same = ["--optimizer", "sgd", "--loss", "cross-entropy", "--epochs", "1", "--out", "same"];
    dir.json(&[&["train", "digits", "--model", "net.toml"][..], &same].concat());
    let of_same = manifest(&dir, "same");
    assert_eq!((&of_same["settings"]["learning_rate"], &of_same["settings"]["momentum"]), (&0.01.into(), &0.8.into()));
    assert_eq!(of_same["network"]["loss"]["label_smoothing"], 0.1);
    dir.write("turned.toml", NETWORK.replace("[64]", "[4, 16]"));
    let refusal = dir.refused(&["train", "digits", "--model", "turned.toml"]);
    assert!(refusal.contains("turned.toml: input [4, 16] does not match examples of shape [1, 8, 8]"), "{refusal}");

    dir.write("wide.toml", NETWORK.replace("[64]", "[1, 8, 8]"));
    let refusal = dir.refused(&["train", "digits", "--model", "wide.toml"]);
    assert!(refusal.contains("wide.toml: its output is [1, 8, 10], but there are 10 classes"), "{refusal}");
    assert!(refusal.contains("\n  a `flatten` layer turns each example into one row"), "{refusal}");

    for (from, to, what) in [
        (
            "epochs = 2",
            "epochs = 0",
            "net.toml:5: training: epochs: invalid value '0' for 'epochs': expected a number of",
        ),
        (
            "\"sgd\"",
            "\"sdg\"",
            "net.toml:6: training: optimizer: unknown value `sdg`; did you mean `sgd`, `adagrad`, `adam`? expected one of \
             `adamw`, `adam`, `sgd`, `rmsprop`, `adagrad`, `lion`",
        ),
        ("weight_decay = 0.05", "weight_decay = -1", "net.toml:9: training: weight_decay: invalid value '-1'"),
        (
            "ema_decay = 0.95",
            "ema_decay = 1",
            "net.toml:12: training: ema_decay: invalid value '1' for 'ema_decay': expected a",
        ),
        (
            "seed = 7",
            "sead = 7",
            "net.toml:17: training: unknown key `sead`; did you mean `seed`, `shards`, `min_steps`? expected one of `epochs`, `min_steps`, ",
        ),
        ("seed = 7", "hidden = [7]", "net.toml:17: training: unknown key `hidden`; did you mean "),
        ("seed = 7", "min_steps = 7", "net.toml:5: training: the setting 'epochs' cannot be used with 'min_steps'"),
        (
            "loss = { label_smoothing = 0.1, class_weights = \"balanced\" }",
            "loss = \"mes\"",
            "net.toml:2: unknown variant `mes`; did you mean `mse`, ",
        ),
        ("input = [64]\nloss", "input = [64]\nlos", "net.toml:2: unknown field `los`; did you mean `loss`, "),
        (
            "loss = { label_smoothing = 0.1, class_weights = \"balanced\" }",
            "loss = 3",
            "net.toml:2: invalid type: integer `3`, expected a loss such as \"mse\", or a table such as { kind = \"mse\" }",
        ),
        ("\"balanced\"", "\"even\"", "net.toml:2: `even` is neither balanced nor a list of class weights"),
    ] {
        dir.write("net.toml", NETWORK.replace(from, to));
        let refusal = dir.refused(&["train", "digits", "--model", "net.toml"]);
        assert!(refusal.contains(what), "{to}: {refusal}");
    }
}

/// An error about an option that a file sets names its key and line, unless the command line overrides it.
#[test]
fn errors_about_options_of_a_file_name_key_and_line() {
    let dir = TempDir::new("keys");
    dir.write("numbers.csv", "a,b\n1,2.5\n2,3.5\n3,4.5\n4,5.5\n5,6.5\n6,7.5\n");
    let train = ["train", "digits", "--model", "net.toml", "--epochs", "1"];
    for (section, arguments, expected) in [
        (
            "[training]\nseed = 1\nmomentum = 0.9\n",
            &train[..],
            "panoply: net.toml:4: training: momentum 0.9 cannot be used with optimizer adamw\n  only sgd and rmsprop",
        ),
        (
            "[training]\noptimizer = \"adagrad\"\nwd = 0.1\n",
            &train,
            "panoply: net.toml:4: training: weight_decay 0.1 cannot be used with optimizer adagrad",
        ),
        (
            "[training]\nmonitor = \"r2\"\n",
            &train,
            "panoply: net.toml:3: training: monitor r2: a classification has loss, accuracy and f1",
        ),
        (
            "[data]\ncontext_length = 5\n",
            &train,
            "panoply: net.toml:3: data: context_length does not apply to digits; remove it",
        ),
        (
            "[data]\ncontext_length = 5\n",
            &["train", "numbers.csv", "--model", "net.toml"],
            "panoply: net.toml:3: data: context_length does not apply to tables; remove it",
        ),
        (
            "[data]\ncontext_length = 5\n",
            &[&train[..], &["--context-length", "6"]].concat(),
            "panoply: --context-length does not apply to digits; remove it",
        ),
        (
            "[training]\nmomentum = 0.9\n",
            &[&train[..], &["--momentum", "0.5"]].concat(),
            "panoply: --momentum 0.5 cannot be used with --optimizer adamw",
        ),
        (
            "[data]\nheader = \"maybe\"\n",
            &train,
            "panoply: net.toml:3: data: header: invalid value 'maybe' for 'header': expected true or false",
        ),
        (
            "[training]\nseed = 1\npatience = 2\nepochs = 2\nmin_steps = 4\n",
            &train[..4],
            "panoply: net.toml:5: training: the setting 'epochs' cannot be used with 'min_steps'",
        ),
        (
            "[training]\nseed = 1\nlr = 0.1\nlearning_rate = 0.2\n",
            &train,
            "panoply: net.toml:5: training: the setting 'learning_rate' cannot be used multiple times",
        ),
    ] {
        dir.write("net.toml", format!("input = [64]\n{section}[[layer]]\nkind = \"linear\"\nout_features = 10\n"));
        let refusal = dir.refused(arguments);
        assert!(refusal.contains(expected), "{section}: {refusal}");
    }
    assert!(!dir.0.join("runs").exists(), "no run is started");
    // A loss without settings is its name.
    dir.write(
        "net.toml",
        "input = [64]\nloss = \"bce_with_logits\"\n[[layer]]\nkind = \"linear\"\nout_features = 10\n",
    );
    dir.json(&[&train[..], &["--out", "named"]].concat());
    assert_eq!(manifest(&dir, "named")["network"]["loss"]["kind"], "bce_with_logits");
    for (arguments, expected) in [
        (["--model", "mpl"], "unknown network `mpl`; did you mean `mlp`, `transformer`, `cnn`? use mlp, cnn, lstm, "),
        (["--loss", "mes"], "unknown loss `mes`; did you mean `mse`, `huber`, `bce-with-logits`? expected one of "),
    ] {
        let refusal = dir.refused(&[&["train", "digits"][..], &arguments].concat());
        assert!(refusal.contains(expected), "{refusal}");
    }
}

/// Augmentations are layers that are active in training only: kept bit for bit when resuming, and also set by files.
#[test]
fn augmentations_are_applied_in_training_only() {
    let dir = TempDir::new("augment");
    let train =
        ["train", "digits", "--hidden-sizes", "16", "--epochs", "3", "--augment", "random-shift=1,gaussian-noise=0.05"];
    dir.json(&[&train[..], &["--out", "whole"]].concat());
    let layers = manifest(&dir, "whole")["network"]["layers"].clone();
    assert_eq!(
        (&layers[0]["random_shift"]["max_shift"], &layers[1]["gaussian_noise"]["stddev"]),
        (&1.into(), &0.05.into())
    );
    dir.json(&[&train[..4], &["--epochs", "2"], &train[6..], &["--out", "part"]].concat());
    dir.json(&["train", "--resume", "part", "--epochs", "3"]);
    let digest = |run: &str| dir.digest(&format!("{run}/checkpoint.safetensors"));
    assert_eq!(digest("whole"), digest("part"));
    dir.json(&[&train[..6], &["--out", "plain"]].concat());
    assert_ne!(digest("whole"), digest("plain"));
    let seen = || dir.json(&["predict", "whole", "--num-examples", "20"]);
    assert_eq!(seen(), seen());

    dir.write("kinds.csv", "a,b\n1,x\n2,y\n3,x\n4,y\n5,x\n6,y\n7,x\n8,y\n");
    dir.write(
        "net.toml",
        "input = [1]\n[training]\naugment = [\"gaussian-noise=0.1\"]\nepochs = 1\n[[layer]]\nkind = \"standardize\"\n[[layer]]\n\
         kind = \"linear\"\nout_features = 2\n",
    );
    dir.json(&["train", "kinds.csv", "--model", "net.toml", "--val-split", "0.5", "--out", "kinds"]);
    let layers = manifest(&dir, "kinds")["network"]["layers"].clone();
    assert!(layers[0]["standardize"].is_object() && layers[1]["gaussian_noise"].is_object(), "{layers}");
    dir.write("tale.txt", "once upon a time there was a network ".repeat(40));
    for (arguments, refused) in [
        (
            &["digits", "--augment", "turn=9"][..],
            "expected random-shift=PIXELS, horizontal-flip, horizontal-flip=PROBABILITY or gaussian-noise=STDDEV",
        ),
        (&["digits", "--augment", "random-shift"], "expected random-shift=PIXELS"),
        (&["digits", "--augment", "random-shift=8"], "max_shift 8 is not smaller than the axis length 8"),
        (&["digits", "--augment", "horizontal-flip=2"], "p 2"),
        (&["digits", "--augment", "gaussian-noise=-1"], "stddev -1 must be at least 0"),
        (&["kinds.csv", "--augment", "random-shift=1"], "\n  the layers of `--augment` come first"),
        (
            &["kinds.csv", "--augment", "horizontal-flip"],
            "layer 1 (random_horizontal_flip): expected [channels, lengths], got [1] from layer 0",
        ),
        (&["tale.txt", "--augment", "gaussian-noise=1"], "--augment cannot be used with text"),
    ] {
        let refusal = dir.refused(&[&["train"], arguments].concat());
        assert!(refusal.contains(refused), "{arguments:?}: {refusal}");
    }
}

#[test]
fn incompatible_options_are_rejected_before_the_run_starts() {
    let dir = TempDir::new("unfit");
    dir.write("numbers.csv", "a,b\n1,2.5\n2,3.5\n3,4.5\n4,5.5\n5,6.5\n6,7.5\n");
    dir.write("walks.csv", "walk,y,kind\na,2,up\na,3,up\nb,2,down\n");
    dir.write("tale.txt", "once upon a time there was a network ".repeat(40));
    for (arguments, refused) in [
        (&["digits", "--loss", "mse"][..], "the loss mse does not fit class targets"),
        (&["digits", "--loss", "mse"], "\n  use cross_entropy or bce"),
        (
            &["digits", "--loss", "hinge"],
            "expected one of `cross-entropy`, `bce-with-logits`, `kl-div`, `mse`, `l1`, `huber`",
        ),
        (&["digits", "--class-weights", "1,x"], "expected balanced, or numbers above 0 such as 1,2.5"),
        (&["digits", "--weight-decay", "-1"], "expected a number of at least 0, such as 0.01"),
        (
            &["digits", "--weight-decay", "0.1", "--optimizer", "adagrad"],
            "--weight-decay 0.1 cannot be used with --optimizer adagrad",
        ),
        (&["numbers.csv", "--loss", "cross-entropy"], "the loss cross_entropy does not fit regression targets"),
        (
            &["numbers.csv", "--loss", "bce-with-logits"],
            "the loss bce_with_logits does not fit: example 0 has 2.5, which is not in 0 ..= 1",
        ),
        (
            &["numbers.csv", "--class-weights", "balanced"],
            "class_weights apply to cross_entropy and bce_with_logits, not to mse",
        ),
        (&["tale.txt", "--loss", "bce-with-logits"], "the loss bce_with_logits cannot be used for text"),
        (&["tale.txt", "--class-weights", "balanced"], "class weights cannot be used for text"),
        (&["walks.csv", "--sequence-column", "walk"], "walks.csv:3: y: `3`, but `2` in line 2 of the same sequence"),
        (&["walks.csv", "--sequence-column", "walk"], "\n  y is the label; use `--label COLUMN` to select another"),
        (&["digits", "--no-header"], "--header does not apply to digits"),
        (&["--resume", "run", "--ema-decay", "0.9"], "cannot be used with"),
    ] {
        let refusal = dir.refused(&[&["train"], arguments].concat());
        assert!(refusal.contains(refused), "{arguments:?}: {refusal}");
        assert!(!dir.0.join("runs").exists(), "no run is started");
    }
}

/// A table of text columns whose first line occurs only once: it is taken as the header with a warning, unless `--header` says otherwise.
#[test]
fn ambiguous_header_is_reported() {
    let dir = TempDir::new("header");
    let rows = "green,pear\nred,apple\nred,apple\nblack,plum\nblack,plum\nred,apple\nblack,plum\n";
    dir.write("fruit.csv", rows);
    let train = ["train", "fruit.csv", "--epochs", "1", "--val-split", "0.3"];
    let stderr = text(&dir.run(&[&train[..], &["--out", "named"]].concat()).stderr);
    let guess =
        "fruit.csv: its first line (green, pear) is taken as the header; if it is an example, use `--no-header`";
    assert!(stderr.contains(guess) && stderr.contains("target pear with 2 classes"), "{stderr}");
    let stderr = text(&dir.run(&[&train[..], &["--no-header", "--out", "bare"]].concat()).stderr);
    assert!(!stderr.contains("its first line") && stderr.contains("target column 2 with 3 classes"), "{stderr}");
    assert_eq!(manifest(&dir, "bare")["data"]["train_examples"].as_u64().unwrap() + 2, 7);
    assert_eq!(dir.json(&["predict", "bare", "fruit.csv"])["labeled"], 7);
    // A resumed run keeps the option.
    let longer = dir.json(&["train", "--resume", "bare", "--epochs", "2"]);
    assert_eq!(longer["history"].as_array().unwrap().len(), 2);
}

/// Array targets with several outputs: probabilities that sum to 1, and independent labels.
#[test]
fn array_targets_with_several_outputs_are_learned() {
    use panoply::nn::data::npy;
    use panoply::{Device, Rng};

    let dir = TempDir::new("arrays");
    Device::get("cpu").unwrap().scope(|| {
        let x = Rng::seed_from_u64(3).normal([300, 2]);
        let logits = x.matmul(&panoply::Tensor::from_slice(&[1.0f32, -1.0, 0.5, 2.0, 0.0, -1.5], [2, 3]));
        let both = |folder: &str, y: &panoply::Tensor| {
            std::fs::create_dir_all(dir.0.join(folder)).unwrap();
            npy::save(&x, &dir.0.join(folder).join("x.npy")).unwrap();
            npy::save(y, &dir.0.join(folder).join("y.npy")).unwrap();
        };
        both("shares", &logits.softmax(-1));
        both("answers", &logits.gt(&(&logits * 0.0)).cast(panoply::DType::U8));
    });
    let train =
        ["--epochs", "40", "--batch-size", "16", "--hidden-sizes", "16", "--dropout", "0", "--learning-rate", "1e-2"];
    for (data, loss, sum) in
        [("shares", "kl-div", true), ("answers", "bce-with-logits", false), ("shares", "huber", false)]
    {
        let out = format!("{data}-{loss}");
        let report = dir.json(&[&["train", data, "--loss", loss, "--out", &out][..], &train].concat());
        assert!(report["r2"].as_f64().unwrap() > 0.8 && report["accuracy"].is_null(), "{report}");
        assert!(loss == "bce-with-logits" || inspected(&dir, &out).contains(", over 3 targets (epoch "));
        let seen = dir.json(&["predict", &out, &format!("{data}/x.npy")]);
        assert_eq!(seen["labeled"], 300);
        let mut off = 0.0;
        for row in seen["predictions"].as_array().unwrap() {
            let numbers = |name: &str| -> Vec<f64> {
                row[name].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
            };
            let (read, right) = (numbers("predicted"), numbers("actual"));
            assert!(read.len() == 3 && (!sum || (read.iter().sum::<f64>() - 1.0).abs() < 1e-5), "{row}");
            assert!(loss == "huber" || read.iter().all(|share| (0.0..=1.0).contains(share)), "{row}");
            off += read.iter().zip(&right).map(|(read, right)| (read - right).abs()).sum::<f64>() / 900.0;
        }
        assert!((seen["mae"].as_f64().unwrap() - off).abs() < 1e-6 && off < 0.12, "{off}");
        let stdout = text(&dir.run(&["predict", &out, &format!("{data}/x.npy"), "--num-examples", "1"]).stdout);
        assert_eq!(stdout.matches(", ").count(), 5, "{stdout}");
    }
    let refusal = dir.refused(&["train", "answers", "--loss", "kl-div"]);
    assert!(refusal.contains("which are not probabilities that sum to 1"), "{refusal}");
    let refusal = dir.refused(&["train", "answers", "--task", "classification"]);
    assert!(refusal.contains("y.npy: u8[300, 3] is not one label for each example"), "{refusal}");
}

/// The learning rate rises until the loss is not finite: the error names the cause, and the best model is kept.
#[test]
fn diverged_run_keeps_its_best_model() {
    let dir = TempDir::new("breaks");
    let rows: Vec<String> = (0..200)
        .map(|i| {
            let (a, b) = (f64::from(i * 37 % 101) / 101.0, f64::from(i * 53 % 97) / 97.0);
            format!("{a},{b},{}\n", 3.0 * a - b)
        })
        .collect();
    dir.write("line.csv", format!("a,b,c\n{}", rows.concat()));
    dir.write(
        "net.toml",
        "input = [2]\nloss = { kind = \"mse\" }\n[training]\noptimizer = \"sgd\"\nlearning_rate = 20\nclip_norm = 1e30\n\
         lr_schedule = \"one-cycle\"\nepochs = 40\nbatch_size = 16\n[[layer]]\nkind = \"standardize\"\n[[layer]]\nkind = \"linear\"\n\
         out_features = 1\n",
    );
    let refusal = dir.refused(&["train", "line.csv", "--model", "net.toml", "--out", "run"]);
    assert!(refusal.contains("panoply: the loss became "), "{refusal}");
    assert!(refusal.contains("the first non-finite values are in the loss; the outputs are finite"), "{refusal}");
    assert!(
        refusal.contains(
            "the best model so far is in run; start another run in another folder with a smaller `--learning-rate`"
        ),
        "{refusal}"
    );
    let result = &manifest(&dir, "run")["result"];
    assert_eq!(result["interrupted"], true);
    assert!(
        result["best_epoch_report"]["val_score"].as_f64().unwrap() > 0.9
            && result["best_epoch_report"]["epoch"] != result["epochs"],
        "{result}"
    );
    let seen = dir.json(&["predict", "run", "line.csv"]);
    assert!(seen["mae"].as_f64().unwrap() < 0.3, "{seen}");
}

/// Options by the names that PyTorch, Lightning and Keras give them, and the resolved settings that training prints when it starts.
#[test]
fn options_have_the_names_of_other_frameworks() {
    let dir = TempDir::new("aliases");
    let words = "train digits --num-epochs 2 --bs 32 --optim sgd --lr 0.1 --momentum 0.9 --wd 0.001 --max-grad-norm 2 \
                 --lr-scheduler cosine --validation 0.3 --early-stopping 5 --random-seed 3 --hidden-size 16 --dtype bf16 \
                 --gradient-accumulation-steps 2 --output run";
    let output = dir.run(&words.split_whitespace().collect::<Vec<&str>>());
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let settings = &manifest(&dir, "run")["settings"];
    for (name, value) in [
        ("epochs", Value::from(2)),
        ("batch_size", 32.into()),
        ("accumulate_grad_batches", 2.into()),
        ("optimizer", "sgd".into()),
        ("learning_rate", 0.1.into()),
        ("momentum", 0.9.into()),
        ("weight_decay", 0.001.into()),
        ("clip_norm", 2.0.into()),
        ("lr_schedule", "cosine".into()),
        ("val_split", 0.3.into()),
        ("patience", 5.into()),
        ("seed", 3.into()),
        ("precision", "bf16".into()),
    ] {
        assert_eq!(settings[name], value, "{name}");
    }
    let resolved = "2 epochs, optimizer sgd, learning rate 0.1, momentum 0.9, weight decay 0.001, gradient norm up to 2, \
                    schedule cosine, batch size 32, 2 batches per step, bf16, seed 3; loss cross_entropy\n";
    assert!(stderr.contains(resolved), "{stderr}");
    // Defaults are printed too, the gradient norm among them.
    let stderr = text(&dir.run(&["train", "digits", "--epochs", "1"]).stderr);
    let resolved = "1 epoch, optimizer adamw, learning rate 0.002, weight decay 0.01, gradient norm up to 1, batch size 64, \
                    seed 0; loss cross_entropy\n";
    assert!(stderr.contains(resolved), "{stderr}");
}

/// Errors about options name those that were given, and how a value is written.
#[test]
fn errors_about_options_name_what_was_given() {
    let dir = TempDir::new("option-errors");
    dir.write("x.csv", "a,b\n1,2\n3,4\n");
    let refusal = dir.refused(&["train", "--resume", "run", "--lr", "0.1"]);
    assert!(refusal.contains("cannot be used with '--learning-rate <LEARNING_RATE>'"), "{refusal}");
    let refusal = dir.refused(&["train", "--resume", "run", "--lr=0.1", "--seed", "3"]);
    assert!(refusal.contains("--learning-rate") && refusal.contains("--seed"), "{refusal}");
    assert!(!refusal.contains("--epochs"), "{refusal}");
    let refusal = dir.refused(&["train", "x.csv", "--header", "maybe"]);
    assert!(refusal.contains("'--header=maybe'"), "{refusal}");
    let refusal = dir.refused(&["train", "x.csv", "--header=maybe"]);
    assert!(refusal.contains("invalid value 'maybe'") && refusal.contains("expected true or false"), "{refusal}");
    // PyTorch's and Keras' spelling with underscores.
    let refusal = dir.refused(&["train", "x.csv", "--batch_size", "0"]);
    assert!(refusal.contains("invalid value '0' for '--batch-size"), "{refusal}");
    for (option, value, expected) in [
        ("--dropout", "1.5", "'--dropout <DROPOUT>': expected a number in 0 .. 1, such as 0.9"),
        ("--patience", "0", "'--patience <EPOCHS>': expected a number of at least 1"),
        ("--epochs", "-3", "'--epochs <EPOCHS>': expected a number of at least 1"),
        ("--seed", "-1", "'--seed <SEED>': expected a whole number"),
        ("--hidden-sizes", "64,x", "'--hidden-sizes <N>': expected a number of at least 1"),
    ] {
        let output = dir.run(&["train", "x.csv", option, value]);
        let refusal = text(&output.stderr);
        assert!(output.status.code() == Some(2) && refusal.contains(expected), "{option} {value}: {refusal}");
    }
}
