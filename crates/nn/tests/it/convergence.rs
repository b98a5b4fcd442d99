//! Networks of every kind learn real digits from fixed seeds; thresholds have a margin to the accuracy that is reached.

use panoply_nn::data::{Dataset, digits};
use panoply_nn::trainer::NoCallback;
use panoply_nn::{
    AdamW, BatchNorm, Conv2d, Dropout, Flatten, Lambda, Linear, Loss, LrSchedule, Lstm, MaxPool, Mlp, Network,
    Sequential, TrainConfig, Trainer, Unflatten, evaluate, train,
};
use panoply_tensor::{Device, Rng, Tensor};

/// Returns the best validation accuracy.
fn best(network: fn(&mut Rng) -> Sequential, training: TrainConfig, rate: f64) -> f64 {
    Device::get("cpu").unwrap().scope(|| {
        let mut rng = Rng::seed_from_u64(0);
        let (train, held) = digits::load().unwrap().train_test_split(0.2, &mut rng).unwrap();
        let model = network(&mut rng);
        let mut run = Trainer::new(model, AdamW::new(rate).clip_grad_norm(1.0), rng);
        run.fit(&training, &train, &held, &mut NoCallback).unwrap();
        let history = &run.state.history;
        history.iter().for_each(|epoch| eprintln!("{epoch:?}"));
        history.iter().map(|epoch| epoch.val_score).fold(0.0, f64::max)
    })
}

#[test]
fn a_dense_network_learns_digits() {
    let network = |rng: &mut Rng| {
        let network = Sequential::new().add(Linear::new(64, 128, rng)).add(Lambda(Tensor::relu));
        network.add(Dropout { p: 0.2 }).add(Linear::new(128, 10, rng))
    };
    let schedule = LrSchedule::one_cycle(20 * 23);
    let accuracy = best(network, TrainConfig { lr_schedule: schedule, ..TrainConfig::new(20, 64) }, 1e-2);
    assert!(accuracy > 0.97, "validation accuracy {accuracy}");
}

#[test]
fn a_convolutional_network_learns_digits() {
    let network = |rng: &mut Rng| {
        let block = |network: Sequential, from: usize, to: usize, rng: &mut Rng| {
            let filters = Conv2d::new(from, to, [3, 3], rng).padding([1, 1]).without_bias();
            network.add(filters).add(BatchNorm::new(to)).add(Lambda(Tensor::relu))
        };
        let network = block(Sequential::new().add(Unflatten(vec![1, 8, 8])), 1, 16, rng);
        let network = block(network, 16, 32, rng).add(MaxPool::new([2, 2]));
        let network = block(network, 32, 64, rng).add(MaxPool::new([2, 2])).add(Flatten);
        network.add(Dropout { p: 0.3 }).add(Linear::new(256, 10, rng))
    };
    let schedule = LrSchedule::one_cycle(6 * 23);
    let loss = Loss { label_smoothing: 0.1, ..Loss::default() };
    let accuracy = best(network, TrainConfig { lr_schedule: schedule, loss, ..TrainConfig::new(6, 64) }, 1e-2);
    assert!(accuracy > 0.98, "validation accuracy {accuracy}");
}

#[test]
fn an_lstm_over_rows_learns_digits() {
    let network = |rng: &mut Rng| {
        Sequential::new()
            .add(Unflatten(vec![8, 8]))
            .add(Lstm::new(8, 48, rng))
            .add(Lambda(|x| x.slice((.., -1))))
            .add(Linear::new(48, 10, rng))
    };
    let schedule = LrSchedule::one_cycle(12 * 23);
    let accuracy = best(network, TrainConfig { lr_schedule: schedule, ..TrainConfig::new(6, 64) }, 2e-2);
    assert!(accuracy > 0.95, "validation accuracy {accuracy}");
}

#[test]
fn train_in_one_call() {
    Device::get("cpu").unwrap().scope(|| {
        let all = digits::load().unwrap();
        let model = Mlp::new(&[64, 32, 10], 0.0, &mut Rng::seed_from_u64(0));
        let run = train(model, &all, AdamW::new(5e-3), Loss::default(), 8).unwrap();
        let best = run.state.history[run.state.best_epoch.unwrap() - 1].val_score;
        assert!(run.state.history.len() == 8 && best > 0.93, "validation accuracy {best}");
        // Almost nine tenths of all examples are training examples.
        let evaluated = evaluate(run.best_model(), &all, &Loss::default()).unwrap();
        assert!(evaluated.score > best - 0.01, "{evaluated:?}");
        let one = all.select(&[0]);
        let error = train(run.model.clone(), &one, AdamW::new(5e-3), Loss::default(), 8).unwrap_err();
        assert!(error.message().contains("1 training and 0 validation examples"), "{error}");
    });
}

/// Every position of the output depends on one position of the memory and on nothing else.
const REVERSER: &str = r#"
input = [10]
[[layer]]
kind = "embedding"
num_embeddings = 7
embedding_dim = 16
[[layer]]
kind = "positional_encoding"
[[layer]]
kind = "transformer_decoder"
num_heads = 2
dim_feedforward = 32
norm_first = false
target = [{ kind = "narrow", start = 5, length = 5 }]
[[layer.memory]]
kind = "narrow"
length = 5
[[layer.memory]]
kind = "transformer_encoder_layer"
num_heads = 2
dim_feedforward = 32
norm_first = false
[[layer]]
kind = "linear"
out_features = 6
"#;

/// Returns strings of five letters, each followed by the beginning of its reversal. The labels are the next letters of the reversal.
fn reversed(words: usize, rng: &mut Rng) -> Dataset {
    let (mut features, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..words {
        let word: Vec<i32> = (0..5).map(|_| (rng.next_words()[0] % 6) as i32).collect();
        let back: Vec<i32> = word.iter().rev().copied().collect();
        features.extend(word.iter().chain([&6]).chain(&back[..4]).map(|letter| *letter as f32));
        labels.extend(back);
    }
    Dataset::classification(features, labels).targets_per_example(5).num_classes(6).build().unwrap()
}

#[test]
fn a_decoder_attends_to_its_memory() {
    Device::get("cpu").unwrap().scope(|| {
        let mut rng = Rng::seed_from_u64(3);
        let (train, held) = (reversed(1024, &mut rng), reversed(128, &mut rng));
        let network = Network::parse(REVERSER).unwrap();
        let mut run = Trainer::new(network.build(&mut rng).unwrap(), AdamW::new(1e-2), rng);
        run.fit(&TrainConfig::new(6, 64), &train, &held, &mut NoCallback).unwrap();
        let score = run.state.history.iter().map(|epoch| epoch.val_score).fold(0.0, f64::max);
        assert!(score > 0.9, "accuracy {score}; guessing gives a sixth");
    });
}
