//! Losses for classes, probabilities and numbers compared with NumPy in f64, predictions from outputs, and targets that do not fit a loss.

use panoply_nn::data::{Dataset, Targets};
use panoply_nn::trainer::NoCallback;
use panoply_nn::{
    AdamW, ClassWeights, Lambda, LayerSpec, Loss, LossKind, Network, TargetScale, TrainConfig, Trainer, evaluate,
    predict,
};
use panoply_tensor::{Device, Rng, Tensor};

const LOGITS: [f32; 12] = [1.5, -0.5, 0.25, -2.0, 0.75, 1.0, 0.1, 0.2, -3.0, 4.0, -1.0, 2.5];
const CLASSES: [i32; 4] = [0, 2, 1, 2];
const WEIGHTS: [f64; 3] = [0.5, 2.0, 1.25];

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

#[track_caller]
fn near(have: &Tensor, want: f64) {
    let have = have.item::<f64>().unwrap();
    assert!((have - want).abs() < 2e-6, "{have}, expected {want}");
}

/// With x the logits, c the classes and w the weights, in NumPy: `ls = x - log(exp(x).sum(1, keepdims=True))`, `(-ls[i, c] * w[c]).sum() /
/// w[c].sum()`; `s = 1 / (1 + exp(-x))`, `e = -(t * log(s) + (1 - t) * log(1 - s)).mean(1)` with t the one-hot classes, `(e * w[c]).sum() /
/// w[c].sum()`; `(p * (log(p) - ls)).sum(1).mean()` where p is not 0.
#[test]
fn losses_agree_with_numpy() {
    on_cpu(|| {
        let (x, c) = (Tensor::from_slice(&LOGITS, [4, 3]), Tensor::from_slice(&CLASSES, [4]));
        let weighted = |kind| Loss::new(kind).class_weights(ClassWeights::PerClass(WEIGHTS.to_vec()));
        near(&weighted(LossKind::CrossEntropy).compute(&x, &c), 0.8790360079750841);
        near(&Loss::new(LossKind::BceWithLogits).compute(&x, &c), 0.7399928847896071);
        near(&weighted(LossKind::BceWithLogits).compute(&x, &c), 0.7344775447389672);
        // The same numbers with a time axis.
        let (at_times, classes) = (x.reshape([2, 2, 3]), c.reshape([2, 2]));
        near(&weighted(LossKind::CrossEntropy).compute(&at_times, &classes), 0.8790360079750841);
        near(&weighted(LossKind::BceWithLogits).compute(&at_times, &classes), 0.7344775447389672);
        // Two classes have a single logit.
        let (one, yes) =
            (Tensor::from_slice(&[1.2f32, -0.3, 2.0, -1.5], [4, 1]), Tensor::from_slice(&[1i32, 1, 0, 0], [4]));
        near(&Loss::new(LossKind::BceWithLogits).compute(&one, &yes), 0.8614947502080705);
        let weights = ClassWeights::PerClass(vec![0.5, 3.0]);
        near(&Loss::new(LossKind::BceWithLogits).class_weights(weights).compute(&one, &yes), 0.6452976828475052);
        let third = 1.0 / 3.0;
        let probabilities = [0.2f32, 0.3, 0.5, 0.0, 1.0, 0.0, 0.6, 0.4, 0.0, third, third, third];
        near(&Loss::new(LossKind::KlDiv).compute(&x, &Tensor::from_slice(&probabilities, [4, 3])), 0.6820906789998085);
        let probabilities = [0.2f32, 1.0, 0.0, 0.0, 1.0, 0.5, 0.6, 0.4, 0.0, 1.0, 1.0, 0.25];
        near(
            &Loss::new(LossKind::BceWithLogits).compute(&x, &Tensor::from_slice(&probabilities, [4, 3])),
            0.7720762181229405,
        );
        let wrong =
            Loss::new(LossKind::BceWithLogits).compute(&x, &Tensor::from_slice(&[0i32, 1], [2])).check().unwrap_err();
        assert!(wrong.message().starts_with("bce_with_logits: needs logits [batch, classes]"), "{wrong}");
        let unfitted = Loss::default().class_weights(ClassWeights::Balanced).compute(&x, &c).check().unwrap_err();
        assert!(
            unfitted.message().starts_with("balanced class weights must be computed from the training targets"),
            "{unfitted}"
        );
    });
}

/// The mean over a dataset does not depend on how it is divided into parts, weighted or not.
#[test]
fn a_weighted_mean_is_independent_of_the_parts() {
    on_cpu(|| {
        // More examples than are evaluated together; almost all of the first ones have class 0.
        let count = 3000;
        let labels: Vec<i32> = (0..count).map(|i| if i < 1100 { i32::from(i % 50 == 0) } else { i % 3 }).collect();
        let logits: Vec<f32> = (0..3 * count).map(|i| LOGITS[(i % 12) as usize] * (i % 7) as f32 / 7.0).collect();
        let data = Dataset::classification(logits.clone(), labels.clone()).num_classes(3).build().unwrap();
        let loss = Loss::default().class_weights(ClassWeights::PerClass(WEIGHTS.to_vec()));
        let same = Lambda(|x: &Tensor| x.clone());
        let have = evaluate(&same, &data, &loss).unwrap().loss;
        let (mut sum, mut all) = (0.0, 0.0);
        for (row, label) in logits.chunks(3).zip(&labels) {
            let total: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
            let weight = WEIGHTS[*label as usize];
            sum += weight * (total.ln() - f64::from(row[*label as usize]));
            all += weight;
        }
        assert!((have - sum / all).abs() < 1e-6, "{have}, expected {}", sum / all);
    });
}

#[test]
fn balanced_weights_agree_with_scikit_learn() {
    let labels = vec![0, 0, 0, 0, 0, 1, 2, 2];
    let fitted = |classes| {
        let targets = Targets::Classes { labels: labels.clone(), num_classes: classes, labels_per_example: 1 };
        Loss::default().class_weights(ClassWeights::Balanced).for_targets(&targets).unwrap().class_weights
    };
    // n / (classes · count), as compute_class_weight("balanced", …).
    let want = vec![8.0 / 15.0, 8.0 / 3.0, 8.0 / 6.0];
    assert_eq!(fitted(3), Some(ClassWeights::PerClass(want.clone())));
    // A class without examples does not change the weights of the others.
    assert_eq!(fitted(4), Some(ClassWeights::PerClass([want, vec![1.0]].concat())));
    let text = "input = [2]\nloss = { class_weights = \"balanced\" }\n[[layer]]\nkind = \"linear\"\nout_features = 2\n";
    let read = |text: &str| Network::parse(text);
    assert_eq!(read(text).unwrap().loss.class_weights, Some(ClassWeights::Balanced));
    let written = serde_json::to_string(&read(text).unwrap()).unwrap();
    assert_eq!(serde_json::from_str::<Network>(&written).unwrap(), read(text).unwrap());
    let each = read(&text.replace("\"balanced\"", "[1, 2.5]")).unwrap().loss;
    assert_eq!(each.class_weights, Some(ClassWeights::PerClass(vec![1.0, 2.5])));
    for (loss, what) in [
        ("class_weights = \"even\"", "`even` is neither balanced nor a list of class weights"),
        ("class_weights = 3", "class_weights must be \"balanced\" or a list with a number for each class"),
        ("class_weights = [1, -2]", "class_weights holds -2, which is not a number above 0"),
        (
            "kind = \"mse\", class_weights = [1, 2]",
            "class_weights apply to cross_entropy and bce_with_logits, not to mse",
        ),
        (
            "kind = \"bce_with_logits\", label_smoothing = 0.1",
            "label_smoothing applies to cross_entropy, not to bce_with_logits",
        ),
        ("kind = \"kl_div\", target_scale = 2", "target_scale applies to mse, l1 and huber, not to kl_div"),
        (
            "kind = \"ctc\"",
            "unknown variant `ctc`; did you mean `cross_entropy`, `bce_with_logits`, `kl_div`? expected one of `cross_entropy`, `bce_with_logits`, `kl_div`, `mse`, `l1`, `huber`",
        ),
    ] {
        let (_, message) = read(&text.replace("class_weights = \"balanced\"", loss)).unwrap_err();
        assert!(message.contains(what), "{loss}: {message}");
    }
}

/// Targets that do not fit a loss are reported before anything is computed.
#[test]
fn targets_that_do_not_fit_a_loss() {
    let classes = Targets::Classes { labels: vec![0, 1], num_classes: 2, labels_per_example: 1 };
    let numbers = |values: &[f32], width| Targets::Regression { values: values.to_vec(), num_outputs: width };
    let loss = Loss::new;
    let weights = |count: usize| Loss::default().class_weights(ClassWeights::PerClass(vec![1.0; count]));
    let each = |weight: f64| Loss::default().class_weights(ClassWeights::PerClass(vec![1.0, weight]));
    let stray = |label: i32| Targets::Classes { labels: vec![0, label], num_classes: 1, labels_per_example: 1 };
    for (loss, targets, what) in [
        (loss(LossKind::Mse), &classes, "the loss mse does not fit class targets"),
        (loss(LossKind::KlDiv), &classes, "the loss kl_div does not fit class targets"),
        (weights(3), &classes, "class_weights has 3 numbers, but there are 2 classes"),
        (weights(1), &stray(1), "class weights: label 1 is not in 0 .. 1"),
        (Loss::default().class_weights(ClassWeights::Balanced), &stray(-1), "label -1 is not in 0 .. 1"),
        (each(f64::MAX), &classes, "which is not a number above 0 in f32"),
        (each(1e-300), &classes, "which is not a number above 0 in f32"),
        (loss(LossKind::CrossEntropy), &numbers(&[1.0], 1), "the loss cross_entropy does not fit regression targets"),
        (
            loss(LossKind::BceWithLogits),
            &numbers(&[0.0, 1.0, 0.5, 1.5], 2),
            "example 1 has 1.5, which is not in 0 ..= 1",
        ),
        (
            loss(LossKind::KlDiv),
            &numbers(&[0.5, 0.5, 0.5, 0.6], 2),
            "example 1 has [0.5, 0.6], which are not probabilities",
        ),
        (loss(LossKind::KlDiv), &numbers(&[-0.5, 1.5], 2), "example 0 has [-0.5, 1.5], which are not probabilities"),
    ] {
        let error = loss.for_targets(targets).unwrap_err();
        assert!(error.is_mistake() && error.message().contains(what), "{error}");
    }
}

/// Each target in its own unit: the loss is computed by hand, and the score is the mean of the R² of each target, as in scikit-learn's
/// `r2_score`.
#[test]
fn several_targets_are_weighted_equally() {
    on_cpu(|| {
        let rows = [1.0f32, 1000.0, 2.0, 3000.0, 3.0, 2000.0];
        let data = Dataset::regression(rows.to_vec(), vec![1.0, 3000.0, 2.0, 3000.0, 3.0, 0.0]);
        let data = data.targets_per_example(2).build().unwrap();
        let same = Lambda(|x: &Tensor| x.clone());
        let scaled = |scale| Loss { target_scale: Some(scale), ..Loss::new(LossKind::Mse) };
        let loss = scaled(TargetScale::PerTarget(vec![0.5, 1000.0]));
        // Differences of 0, 0, 0 and of 2000, 0, 2000: (4 + 0 + 4) / 6.
        let found = evaluate(&same, &data, &loss).unwrap();
        assert!((found.loss - 8.0 / 6.0).abs() < 1e-6, "{found:?}");
        // R² is 1 for the first target, and 1 - 8 / 6 for the second.
        assert!((found.score - (1.0 + 1.0 - 8.0 / 6.0) / 2.0).abs() < 1e-6, "{found:?}");
        // A target that is constant over all examples has no variance to explain: beside other targets it is ignored, right or wrong.
        for (read, alone) in [(5.0f32, 1.0), (7.0, 0.0)] {
            let with = Dataset::regression(vec![1.0, read, 1.0, read], vec![1.0, 5.0, 3.0, 5.0]);
            let with = with.targets_per_example(2).build().unwrap();
            assert_eq!(evaluate(&same, &with, &Loss::new(LossKind::Mse)).unwrap().score, 1.0 - 4.0 / 2.0);
            let without = Dataset::regression(vec![read; 2], vec![5.0; 2]).build().unwrap();
            assert_eq!(evaluate(&same, &without, &Loss::new(LossKind::Mse)).unwrap().score, alone);
        }
        // As sklearn.metrics.r2_score, which gives NaN for fewer than two samples.
        let single = Dataset::regression(vec![5.0], vec![5.0]).build().unwrap();
        let found = evaluate(&same, &single, &Loss::new(LossKind::Mse)).unwrap();
        assert!(found.score.is_nan() && found.loss == 0.0, "{found:?}");
        let error = scaled(TargetScale::PerTarget(vec![1.0; 3])).for_targets(&data.targets).unwrap_err();
        assert!(error.message().contains("target_scale has 3 numbers, but there are 2 targets"), "{error}");
        let error = scaled(TargetScale::PerTarget(vec![1.0, 0.0])).for_targets(&data.targets).unwrap_err();
        assert!(error.message().contains("scale 0 is not a positive number"), "{error}");
        // In files, the scale is a number or a list.
        for (text, scale) in
            [("2.5", TargetScale::Uniform(2.5)), ("[0.5, 4.0]", TargetScale::PerTarget(vec![0.5, 4.0]))]
        {
            let text =
                format!("input = [2]\nloss = {{ kind = \"l1\", target_scale = {text} }}\n[[layer]]\nkind = \"relu\"\n");
            assert_eq!(Network::parse(&text).unwrap().loss.target_scale, Some(scale));
        }
    });
}

/// Multi-label targets with a sigmoid for each output: the accuracy, and invalid targets.
#[test]
fn multilabel_targets() {
    on_cpu(|| {
        let outputs = vec![2.0f32, -1.0, 0.5, 3.0, -2.0, 1.0];
        let data = Dataset::multilabel(outputs, vec![1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
        let data = data.targets_per_example(3).build().unwrap();
        let loss = Loss::new(LossKind::BceWithLogits);
        let same = Lambda(|x: &Tensor| x.clone());
        assert!((evaluate(&same, &data, &loss).unwrap().score - 4.0 / 6.0).abs() < 1e-6);
        let predictions = predict(&same, &data, &loss).unwrap();
        assert_eq!(predictions.shape().unwrap().dims(), [2, 3]);
        let probabilities = predictions.to_vec::<f32>().unwrap();
        assert!((probabilities[0] - 1.0 / (1.0 + (-2f32).exp())).abs() < 1e-6, "{probabilities:?}");
        let wrong = Dataset::multilabel(vec![0.0; 4], vec![1.0, 0.5]).build().unwrap_err();
        assert_eq!(wrong.message(), "example 1 has the label 0.5, which is neither 0 nor 1");
        for (loss, what) in [
            (Loss::new(LossKind::Mse), "the loss mse does not fit multi-label targets"),
            (
                loss.class_weights(ClassWeights::Balanced),
                "class weights need class targets; the targets for bce_with_logits are not classes",
            ),
        ] {
            let error = loss.for_targets(&data.targets).unwrap_err();
            assert!(error.message().contains(what), "{error}");
        }
    });
}

/// Two separated classes, one of which is rare: a single logit distinguishes them, and their probabilities sum to 1.
#[test]
fn two_classes_with_one_logit() {
    on_cpu(|| {
        let mut rng = Rng::seed_from_u64(5);
        let labels: Vec<i32> = (0..300).map(|i| i32::from(i % 10 == 0)).collect();
        let noise = rng.normal([600]).to_vec::<f32>().unwrap();
        let features = (0..600).map(|i| noise[i] * 0.4 + if labels[i / 2] == 1 { 1.5 } else { 0.0 }).collect();
        let data = Dataset::classification(features, labels).num_classes(2).build().unwrap();
        let (train, held) = data.train_test_split(0.2, &mut rng).unwrap();
        let loss = Loss::new(LossKind::BceWithLogits).class_weights(ClassWeights::Balanced);
        assert_eq!((loss.num_outputs(&data.targets), Loss::default().num_outputs(&data.targets)), (1, 2));
        let network = Network::with_input_size(2).add_layer(LayerSpec::linear(1)).loss(loss.clone());
        let mut run = Trainer::new(network.build(&mut rng).unwrap(), AdamW::new(0.05), rng);
        let training = TrainConfig { loss: loss.clone(), ..TrainConfig::new(30, 32) };
        run.fit(&training, &train, &held, &mut NoCallback).unwrap();
        let last = &run.state.history[29];
        assert!(last.val_score > 0.95 && last.val_loss < 0.3, "{last:?}");
        let probabilities = predict(&run.model, &held, &loss).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(probabilities.len(), 2 * held.len());
        let nothing = predict(&run.model, &held.select(&[]), &loss).unwrap_err();
        assert_eq!(nothing.message(), "predict: the data set has no examples");
        for (pair, label) in probabilities.chunks(2).zip(held.labels()) {
            assert!((pair[0] + pair[1] - 1.0).abs() < 1e-6 && pair.iter().all(|share| (0.0..=1.0).contains(share)));
            assert!(*label == 0 || pair[1] > 0.5, "the rare class is not predicted: {pair:?}");
        }
    });
}

/// A non-finite validation loss ends a run, and the error says whether it overflowed or is NaN.
#[test]
fn a_non_finite_validation_loss() {
    on_cpu(|| {
        for (held, loss, why) in
            [(1e30, "inf", "the loss overflows"), (f32::NAN, "NaN", "an output of the model is NaN")]
        {
            let mut rng = Rng::seed_from_u64(1);
            let train = Dataset::regression(vec![1.0, 2.0], vec![1.0, 2.0]).build().unwrap();
            let held = Dataset::regression(vec![1.0, held], vec![1.0, 2.0]).build().unwrap();
            let loss_kind = Loss::new(LossKind::Mse);
            let network = Network::with_input_size(1).add_layer(LayerSpec::linear(1)).loss(loss_kind.clone());
            let mut run = Trainer::new(network.build(&mut rng).unwrap(), AdamW::new(0.01), rng);
            let training = TrainConfig { loss: loss_kind, ..TrainConfig::new(1, 2) };
            let error = run.fit(&training, &train, &held, &mut NoCallback).unwrap_err();
            assert_eq!(error.message(), format!("the validation loss is {loss} after epoch 1"));
            assert!(error.is_diverged() && error.notes()[0].starts_with(why), "{error}");
        }
    });
}

/// Probabilities are learned as targets: predictions are closer to them than their mean is, and sum to 1.
#[test]
fn probability_targets_are_learned() {
    on_cpu(|| {
        let mut rng = Rng::seed_from_u64(2);
        let features = rng.normal([800]).to_vec::<f32>().unwrap();
        let probabilities: Vec<f32> = features
            .chunks(2)
            .flat_map(|x| {
                let e = [x[0].exp(), (2.0 * x[1]).exp(), 1.0f32];
                e.map(|part| part / e.iter().sum::<f32>())
            })
            .collect();
        let data = Dataset::regression(features, probabilities).targets_per_example(3).build().unwrap();
        let (train, held) = data.train_test_split(0.2, &mut rng).unwrap();
        for kind in [LossKind::KlDiv, LossKind::BceWithLogits] {
            let loss = Loss::new(kind);
            let network = Network::with_input_size(2).add_layer(LayerSpec::linear(3)).loss(loss.clone());
            let mut run = Trainer::new(
                network.build(&mut Rng::seed_from_u64(1)).unwrap(),
                AdamW::new(0.05),
                Rng::seed_from_u64(1),
            );
            let training = TrainConfig { loss: loss.clone(), ..TrainConfig::new(40, 32) };
            run.fit(&training, &train, &held, &mut NoCallback).unwrap();
            let last = &run.state.history[39];
            assert!(last.val_score > 0.9, "{kind:?}: {last:?}");
            let read = predict(&run.model, &held, &loss).unwrap().to_vec::<f32>().unwrap();
            if kind == LossKind::KlDiv {
                assert!(last.val_loss < 1e-2, "{last:?}");
                assert!(read.chunks(3).all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-5));
            }
            assert!(read.iter().all(|share| (0.0..=1.0).contains(share)));
        }
    });
}
