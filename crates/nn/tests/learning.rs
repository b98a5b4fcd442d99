//! Networks of every kind learn real digits, from fixed seeds, with a margin below what they reach.

use panoply_nn::data::digits;
use panoply_nn::fit::{StepReport, Watch};
use panoply_nn::*;
use panoply_tensor::{Device, Rng, Tensor};

struct Loud;

impl Watch for Loud {
    fn step(&mut self, _: &StepReport) -> bool {
        true
    }

    fn epoch(&mut self, report: &EpochReport) -> bool {
        eprintln!("{report:?}");
        true
    }
}

fn best(mut model: Sequential, epochs: usize, rate: f64, rng: &mut Rng) -> f64 {
    Device::get("cpu").unwrap().scope(|| {
        let (train, held) = digits::load().unwrap().split(0.2, rng).unwrap();
        let mut optimiser = AdamW::new(rate).clip_norm(1.0);
        let training = Training { epochs, batch: 64, patience: None };
        let history = training.classify(&mut model, &mut optimiser, (&train, &held), rng, &mut Loud).unwrap();
        history.iter().map(|epoch| epoch.accuracy).fold(0.0, f64::max)
    })
}

#[test]
fn a_convolutional_network_learns_digits() {
    let rng = &mut Rng::seed(0);
    let padded = panoply_tensor::Conv { padding: [1, 1], ..Default::default() };
    let model = Sequential::new()
        .then(Unflatten(vec![1, 8, 8]))
        .then(Conv2d::with(1, 16, [3, 3], padded, rng))
        .then(BatchNorm::new(16))
        .then(Map(Tensor::relu))
        .then(MaxPool::new([2, 2]))
        .then(Conv2d::with(16, 32, [3, 3], padded, rng))
        .then(BatchNorm::new(32))
        .then(Map(Tensor::relu))
        .then(MaxPool::new([2, 2]))
        .then(Flatten)
        .then(Linear::new(128, 10, rng));
    let accuracy = best(model, 8, 5e-3, rng);
    assert!(accuracy > 0.98, "{accuracy} of the held-out digits right");
}

#[test]
fn an_lstm_over_rows_learns_digits() {
    let rng = &mut Rng::seed(0);
    let model = Sequential::new()
        .then(Unflatten(vec![8, 8]))
        .then(Recurrent::new(Cell::Lstm, 8, 48, 1, false, rng))
        .then(Map(|x| x.slice((.., -1))))
        .then(Linear::new(48, 10, rng));
    let accuracy = best(model, 12, 1e-2, rng);
    assert!(accuracy > 0.95, "{accuracy} of the held-out digits right");
}
