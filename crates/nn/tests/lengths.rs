//! Layers see the length of a batch whose plan does not know it.

use panoply_nn::Sgd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use panoply_nn::data::{Examples, Loader, digits};
use panoply_nn::layers::{BlockShape, Cell, Embedding, EncoderBlock, Flip, Last, Recurrent, Shift};
use panoply_nn::{Layer, LayerSpec, Module, Network, Pass};
use panoply_tensor::{Dim, Rng, Tensor, capture, plan_counts};

/// Counts are of the process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn near(have: &Tensor, want: &Tensor, what: &str) {
    assert_eq!(have.shape().unwrap(), want.shape().unwrap(), "{what}");
    let [have, want] = [have, want].map(|x| x.to_vec::<f32>().unwrap());
    let equal = have.iter().zip(&want).all(|(a, b)| (a - b).abs() <= 2e-5 * b.abs().max(1.0));
    assert!(equal, "{what}: {have:?} is not {want:?}");
}

#[test]
fn a_short_batch_trains_as_without_a_dim_and_is_not_planned_anew() {
    let _alone = alone();
    let network = Network::with_input(&[2, 6, 6])
        .add_layer(LayerSpec::conv(4, &[3, 3]))
        .add_layer(LayerSpec::batch_norm())
        .add_layer(LayerSpec::Relu {})
        .add_layer(LayerSpec::Flatten {})
        .add_layer(LayerSpec::Dropout { probability: 0.3 })
        .add_layer(LayerSpec::linear(3));
    let dim = Dim::new("batch", 8);
    let mut models = [0, 1].map(|_| network.build(&mut Rng::seed(1)).unwrap());
    let mut optimisers = [0, 1].map(|_| Sgd::new(0.1));
    let mut plans = Vec::new();
    for (turn, rows) in [8, 8, 8, 5, 3, 7].into_iter().enumerate() {
        let x = Rng::seed(turn as u64).normal([rows, 2, 6, 6]).to_vec::<f32>().unwrap();
        let x = Tensor::from_slice(&x, [rows, 2, 6, 6]);
        let classes = Tensor::from_slice(&(0..rows as i32).map(|row| row % 3).collect::<Vec<i32>>(), [rows]);
        let inputs = [(x.with_dim(0, &dim), classes.with_dim(0, &dim)), (x, classes)];
        let mut losses = Vec::new();
        for (which, (x, classes)) in inputs.iter().enumerate() {
            let before = plan_counts().plans;
            // The same words are drawn for the examples that are there.
            let mut rng = Rng::seed(turn as u64);
            let mut pass = Pass::train(&mut rng);
            let loss = models[which].forward(x, &mut pass).cross_entropy(classes);
            losses.push(loss.clone());
            optimisers[which].step(&mut models[which], loss, pass).unwrap();
            plans.extend((which == 0).then(|| plan_counts().plans - before));
        }
        near(&losses[0], &losses[1], &format!("the loss of {rows} examples"));
    }
    assert_eq!(plans[3..], [0, 0, 0], "plans of each step: {plans:?}");
    let [have, want] = [&models[0], &models[1]].map(Module::named_params);
    for ((name, have), (_, want)) in have.iter().zip(&want) {
        near(have.tensor(), want.tensor(), name);
    }
}

#[test]
fn a_recurrent_network_takes_a_short_batch() {
    let _alone = alone();
    let dim = Dim::new("batch", 6);
    let mut rng = Rng::seed(3);
    let lstm = Recurrent::new(Cell::Lstm, 3, 4, 2, true, &mut rng);
    let x = Tensor::from_slice(&rng.normal([4, 5, 3]).to_vec::<f32>().unwrap(), [4, 5, 3]);
    let times = Tensor::from_slice(&[5i32, 2, 4, 1], [4]);
    let of = |x: &Tensor, times: &Tensor| {
        let mut pass = Pass::eval();
        let (whole, memory) = lstm.run(x, None, &mut pass);
        let loss = whole.square().mean(..) + lstm.run_packed(x, times, None, &mut pass).0.sin().mean(..);
        let weight = lstm.named_params()[0].1.tensor().clone();
        [loss.gradients(&[&weight]).unwrap().remove(0), whole, memory.cell]
    };
    let have = of(&x.with_dim(0, &dim), &times.with_dim(0, &dim));
    have.iter().zip(of(&x, &times)).for_each(|(have, want)| near(have, &want, "an LSTM"));
}

#[test]
fn sequences_of_a_short_batch_go_through_a_transformer() {
    let _alone = alone();
    let dim = Dim::new("batch", 6);
    let mut rng = Rng::seed(2);
    let words = Embedding::new(10, 8, &mut rng);
    let shape = BlockShape { width: 8, heads: 2, inner: 16, norm_first: true, causal: true, dropout: 0.0 };
    let block = EncoderBlock::new(shape, &mut rng);
    let classes = Tensor::from_slice(&(0..4 * 5).map(|i| i * 7 % 10).collect::<Vec<i32>>(), [4, 5]);
    let of = |classes: &Tensor| {
        let mut pass = Pass::eval();
        let all = block.forward(&words.forward(classes, &mut pass), &mut pass);
        Last.forward(&all, &mut pass)
    };
    near(&of(&classes.with_dim(0, &dim)), &of(&classes), "the last words");
}

#[test]
fn what_draws_for_each_example_says_that_it_takes_none() {
    let _alone = alone();
    let images = Tensor::from_slice(&[1.0f32; 3 * 16], [3, 1, 4, 4]).with_dim(0, &Dim::new("batch", 5));
    let layers: [&(dyn Layer + Sync); 2] = [&Shift { by: 1 }, &Flip { probability: 0.5 }];
    for layer in layers {
        let error = layer.forward(&images, &mut Pass::train(&mut Rng::seed(0))).to_vec::<f32>().unwrap_err();
        assert!(error.is_mistake(), "{error}");
        let captured = capture(|[x]| [layer.forward(x, &mut Pass::train(&mut Rng::seed(0)))]);
        assert!(captured.run([&images]).unwrap_err().is_mistake());
    }
}

#[test]
fn the_last_batch_of_a_loader_runs_the_plan_of_the_others() {
    let _alone = alone();
    let (dim, loader) = (Dim::new("batch", 40), Loader::new(digits::load().unwrap(), 40));
    let model = Network::with_input(&[64]).add_layer(LayerSpec::linear(10)).build(&mut Rng::seed(4)).unwrap();
    let loss = |batch: &Examples| model.forward(&batch.inputs, &mut Pass::eval()).cross_entropy(&batch.targets);
    for batch in loader.epoch(0).from(loader.batches() - 2) {
        let batch = batch.unwrap();
        let (open, before) = (loss(&batch.with_dim(&dim)), plan_counts().plans);
        open.eval().unwrap();
        let short = batch.examples().unwrap() < 40;
        assert_eq!(plan_counts().plans - before, u64::from(!short));
        assert_eq!(batch.with_dim(&dim).examples().unwrap(), batch.examples().unwrap());
        near(&open, &loss(&batch), "the loss");
    }
}
