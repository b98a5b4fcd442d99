//! Networks of every kind learn real digits, from fixed seeds, with a margin below what they reach.

use panoply_nn::data::digits;
use panoply_nn::fit::Quiet;
use panoply_nn::{
    AdamW, BatchNorm, Cell, Conv2d, DropoutLayer, Flatten, Linear, Loss, Map, MaxPool, Recurrent, Run, Schedule,
    Sequential, Training, Unflatten,
};
use panoply_tensor::{Conv, Device, Rng, Tensor};

/// The best share of held-out digits read rightly.
fn best(network: fn(&mut Rng) -> Sequential, training: Training, rate: f64) -> f64 {
    Device::get("cpu").unwrap().scope(|| {
        let mut rng = Rng::seed(0);
        let (train, held) = digits::load().unwrap().split(0.2, &mut rng).unwrap();
        let model = network(&mut rng);
        let mut run = Run::new(model, AdamW::new(rate).clip_norm(1.0), rng);
        run.fit(&training, (&train, &held), &mut Quiet).unwrap();
        let history = &run.progress.history;
        history.iter().for_each(|epoch| eprintln!("{epoch:?}"));
        history.iter().map(|epoch| epoch.score).fold(0.0, f64::max)
    })
}

#[test]
fn a_dense_network_learns_digits() {
    let network = |rng: &mut Rng| {
        let network = Sequential::new().then(Linear::new(64, 128, rng)).then(Map(Tensor::relu));
        network.then(DropoutLayer { probability: 0.2 }).then(Linear::new(128, 10, rng))
    };
    let schedule = Schedule::one_cycle(20 * 23);
    let accuracy = best(network, Training { schedule, ..Training::new(20, 64) }, 1e-2);
    assert!(accuracy > 0.97, "{accuracy} of the held-out digits right");
}

#[test]
fn a_convolutional_network_learns_digits() {
    let network = |rng: &mut Rng| {
        let padded = Conv { padding: [1, 1], ..Conv::default() };
        let block = |network: Sequential, from: usize, to: usize, rng: &mut Rng| {
            let filters = Conv2d::with(from, to, [3, 3], padded, rng).without_bias();
            network.then(filters).then(BatchNorm::new(to)).then(Map(Tensor::relu))
        };
        let network = block(Sequential::new().then(Unflatten(vec![1, 8, 8])), 1, 16, rng);
        let network = block(network, 16, 32, rng).then(MaxPool::new([2, 2]));
        let network = block(network, 32, 64, rng).then(MaxPool::new([2, 2])).then(Flatten);
        network.then(DropoutLayer { probability: 0.3 }).then(Linear::new(256, 10, rng))
    };
    let schedule = Schedule::one_cycle(6 * 23);
    let loss = Loss { label_smoothing: 0.1, ..Loss::default() };
    let accuracy = best(network, Training { schedule, loss, ..Training::new(6, 64) }, 1e-2);
    assert!(accuracy > 0.98, "{accuracy} of the held-out digits right");
}

#[test]
fn an_lstm_over_rows_learns_digits() {
    let network = |rng: &mut Rng| {
        Sequential::new()
            .then(Unflatten(vec![8, 8]))
            .then(Recurrent::new(Cell::Lstm, 8, 48, 1, false, rng))
            .then(Map(|x| x.slice((.., -1))))
            .then(Linear::new(48, 10, rng))
    };
    let schedule = Schedule::one_cycle(12 * 23);
    let accuracy = best(network, Training { schedule, ..Training::new(12, 64) }, 2e-2);
    assert!(accuracy > 0.95, "{accuracy} of the held-out digits right");
}
