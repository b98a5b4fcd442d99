//! Layers with a dynamic batch dimension, whose valid length is unknown to the plan.

use panoply_nn::Sgd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use panoply_nn::data::{Batch, DataLoader, Targets, digits};
use panoply_nn::layers::{
    Embedding, Gru, LastTimeStep, Lstm, PositionalEncoding, RandomHorizontalFlip, RandomShift, RnnOptions, RnnState,
    TimeMean, TransformerConfig, TransformerEncoderLayer,
};
use panoply_nn::{ForwardContext, Layer, LayerSpec, Loss, LossKind, Module, Network, Padding};
use panoply_tensor::{Dim, Rng, Tensor, jit, plan_cache_stats};

/// Statistics are global to the process, so tests run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn near(have: &Tensor, want: &Tensor, what: &str) {
    assert_eq!(have.shape().unwrap(), want.shape().unwrap(), "{what}");
    let [have, want] = [have, want].map(|x| x.to_vec::<f32>().unwrap());
    let equal = have.iter().zip(&want).all(|(a, b)| (a - b).abs() <= 2e-5 * b.abs().max(1.0));
    assert!(equal, "{what}: {have:?}, expected {want:?}");
}

#[test]
fn a_short_batch_trains_as_a_static_one_and_is_not_planned_again() {
    let _alone = alone();
    let network = Network::with_input(&[2, 6, 6])
        .add_layer(LayerSpec::conv(4, &[3, 3]).with_padding(Padding::Same))
        .add_layer(LayerSpec::batch_norm())
        .add_layer(LayerSpec::Relu {})
        .add_layer(LayerSpec::Flatten {})
        .add_layer(LayerSpec::Dropout { p: 0.3 })
        .add_layer(LayerSpec::linear(3));
    let dim = Dim::new("batch", 8);
    let mut models = [0, 1].map(|_| network.build(&mut Rng::seed_from_u64(1)).unwrap());
    let mut optimizers = [0, 1].map(|_| Sgd::new(0.1));
    let mut plans = Vec::new();
    for (turn, rows) in [8, 8, 8, 5, 3, 7].into_iter().enumerate() {
        let x = Rng::seed_from_u64(turn as u64).normal([rows, 2, 6, 6]).to_vec::<f32>().unwrap();
        let x = Tensor::from_slice(&x, [rows, 2, 6, 6]);
        let classes = Tensor::from_slice(&(0..rows as i32).map(|row| row % 3).collect::<Vec<i32>>(), [rows]);
        let inputs = [(x.mark_dynamic(0, &dim), classes.mark_dynamic(0, &dim)), (x, classes)];
        let mut losses = Vec::new();
        for (which, (x, classes)) in inputs.iter().enumerate() {
            let before = plan_cache_stats().misses;
            // The same random words are drawn for the valid examples.
            let mut rng = Rng::seed_from_u64(turn as u64);
            let mut pass = ForwardContext::train(&mut rng);
            let loss = models[which].forward(x, &mut pass).cross_entropy(classes);
            losses.push(loss.clone());
            optimizers[which].step(&mut models[which], loss, pass).unwrap();
            plans.extend((which == 0).then(|| plan_cache_stats().misses - before));
        }
        near(&losses[0], &losses[1], &format!("the loss of {rows} examples"));
    }
    assert_eq!(plans[3..], [0, 0, 0], "plans of each step: {plans:?}");
    let [have, want] = [&models[0], &models[1]].map(Module::named_parameters);
    for ((name, have), (_, want)) in have.iter().zip(&want) {
        near(have.tensor(), want.tensor(), name);
    }
}

#[test]
fn a_recurrent_network_accepts_a_short_batch() {
    let _alone = alone();
    let dim = Dim::new("batch", 6);
    let mut rng = Rng::seed_from_u64(3);
    let lstm =
        Lstm::with_options(3, 4, RnnOptions { num_layers: 2, bidirectional: true, ..RnnOptions::default() }, &mut rng);
    let x = Tensor::from_slice(&rng.normal([4, 5, 3]).to_vec::<f32>().unwrap(), [4, 5, 3]);
    let times = Tensor::from_slice(&[5i32, 2, 4, 1], [4]);
    let of = |x: &Tensor, times: &Tensor| {
        let mut pass = ForwardContext::eval();
        let (whole, memory) = lstm.forward_with_state(x, None, &mut pass);
        let loss = whole.square().mean(..) + lstm.forward_packed(x, times, None, &mut pass).0.sin().mean(..);
        let weight = lstm.named_parameters()[0].1.tensor().clone();
        [loss.gradients(&[&weight]).unwrap().remove(0), whole, memory.cell]
    };
    let have = of(&x.mark_dynamic(0, &dim), &times.mark_dynamic(0, &dim));
    have.iter().zip(of(&x, &times)).for_each(|(have, want)| near(have, &want, "an LSTM"));
}

#[test]
fn a_transformer_accepts_a_short_batch() {
    let _alone = alone();
    let dim = Dim::new("batch", 6);
    let mut rng = Rng::seed_from_u64(2);
    let words = Embedding::new(10, 8, &mut rng);
    let shape = TransformerConfig {
        d_model: 8,
        num_heads: 2,
        dim_feedforward: 16,
        norm_first: true,
        is_causal: true,
        dropout: 0.0,
    };
    let block = TransformerEncoderLayer::new(shape, &mut rng);
    let classes = Tensor::from_slice(&(0..4 * 5).map(|i| i * 7 % 10).collect::<Vec<i32>>(), [4, 5]);
    let of = |classes: &Tensor| {
        let mut pass = ForwardContext::eval();
        let all = block.forward(&words.forward(classes, &mut pass), &mut pass);
        LastTimeStep.forward(&all, &mut pass)
    };
    near(&of(&classes.mark_dynamic(0, &dim)), &of(&classes), "the last time step");
}

#[test]
fn random_augmentation_rejects_a_dynamic_batch() {
    let _alone = alone();
    let images = Tensor::from_slice(&[1.0f32; 3 * 16], [3, 1, 4, 4]).mark_dynamic(0, &Dim::new("batch", 5));
    let layers: [&(dyn Layer + Sync); 2] = [&RandomShift { max_shift: 1 }, &RandomHorizontalFlip { p: 0.5 }];
    for layer in layers {
        let error =
            layer.forward(&images, &mut ForwardContext::train(&mut Rng::seed_from_u64(0))).to_vec::<f32>().unwrap_err();
        assert!(error.is_mistake(), "{error}");
        let captured = jit(|[x]| [layer.forward(x, &mut ForwardContext::train(&mut Rng::seed_from_u64(0)))]);
        assert!(captured.call([&images]).unwrap_err().is_mistake());
    }
}

#[test]
fn the_last_batch_of_a_loader_uses_the_plan_of_the_others() {
    let _alone = alone();
    let (dim, loader) = (Dim::new("batch", 40), DataLoader::new(digits::load().unwrap(), 40));
    let model = Network::with_input(&[64]).add_layer(LayerSpec::linear(10)).build(&mut Rng::seed_from_u64(4)).unwrap();
    let loss = |batch: &Batch| model.forward(&batch.inputs, &mut ForwardContext::eval()).cross_entropy(&batch.targets);
    for batch in loader.epoch(0).skip_batches(loader.num_batches() - 2) {
        let batch = batch.unwrap();
        let (open, before) = (loss(&batch.with_dim(&dim)), plan_cache_stats().misses);
        open.eval().unwrap();
        let short = batch.len().unwrap() < 40;
        assert_eq!(plan_cache_stats().misses - before, u64::from(!short));
        assert_eq!(batch.with_dim(&dim).len().unwrap(), batch.len().unwrap());
        near(&open, &loss(&batch), "the loss");
    }
}

#[test]
fn a_captured_loss_with_dynamic_and_static_batches() {
    let _alone = alone();
    let dim = Dim::new("batch", 6);
    let numbers = |seed: u64, dims: &[usize]| {
        let x = Rng::seed_from_u64(seed).normal(dims.to_vec()).to_vec::<f32>().unwrap();
        Tensor::from_slice(&x, dims.to_vec())
    };
    let classes = |many: i32, dims: &[usize]| {
        let count = dims.iter().product::<usize>() as i32;
        Tensor::from_slice(&(0..count).map(|i| i * 5 % many).collect::<Vec<i32>>(), dims.to_vec())
    };
    let cases: [(LossKind, Tensor, Tensor); 8] = [
        (LossKind::BceWithLogits, numbers(1, &[4, 1]), classes(2, &[4])),
        (LossKind::BceWithLogits, numbers(2, &[4, 3]), classes(3, &[4])),
        (LossKind::BceWithLogits, numbers(3, &[4, 3]), numbers(4, &[4, 3]).sigmoid()),
        (LossKind::Mse, numbers(5, &[4, 1]), numbers(6, &[4])),
        (LossKind::Mse, numbers(5, &[4, 1]), numbers(6, &[4, 1])),
        (LossKind::CrossEntropy, numbers(7, &[4, 3]), classes(3, &[4])),
        (LossKind::CrossEntropy, numbers(8, &[4, 2, 3]), classes(3, &[4, 2])),
        (LossKind::KlDiv, numbers(9, &[4, 3]).log_softmax(-1), numbers(10, &[4, 3]).softmax(-1)),
    ];
    for (kind, outputs, targets) in cases {
        let loss = jit(|[x, y]| [Loss::new(kind).compute(x, y)]);
        let plain = Loss::new(kind).compute(&outputs, &targets);
        let [x, y] = [&outputs, &targets].map(|x| x.mark_dynamic(0, &dim));
        for have in [loss.call([&x, &y]).map(|[loss]| loss), loss.call([&outputs, &targets]).map(|[loss]| loss)] {
            match (have, plain.check()) {
                (Ok(have), Ok(())) => near(&have, &plain, &format!("{kind:?} of {outputs:?}")),
                (have, plain) => assert!(have.is_err() && plain.is_err(), "{kind:?} of {outputs:?}: {have:?}"),
            }
        }
    }
    let two = Targets::Classes { labels: vec![0, 1], num_classes: 2, labels_per_example: 1 };
    let bce = Loss::new(LossKind::BceWithLogits);
    let values = jit(|[x]| [bce.predictions(x, &two)]);
    let logit = numbers(1, &[4, 1]);
    near(
        &values.call([&logit.mark_dynamic(0, &dim)]).unwrap()[0],
        &bce.predictions(&logit, &two),
        "probabilities of two classes",
    );
}

#[test]
fn a_captured_model_checks_the_axes_of_examples() {
    let _alone = alone();
    let dim = Dim::new("batch", 6);
    let layers = Network::with_input(&[1, 2, 3]).add_layer(LayerSpec::Flatten {}).add_layer(LayerSpec::linear(2));
    let model = layers.build(&mut Rng::seed_from_u64(1)).unwrap();
    let run = jit(|[x]| [model.forward(x, &mut ForwardContext::eval())]);
    for dims in [[4, 1, 2, 3], [4, 3, 2, 1]] {
        let x = Tensor::from_slice(&Rng::seed_from_u64(2).normal(dims).to_vec::<f32>().unwrap(), dims);
        match (run.call([&x.mark_dynamic(0, &dim)]), run.call([&x])) {
            (Ok([have]), Ok([want])) => near(&have, &want, "a model"),
            (Err(have), Err(want)) => assert_eq!(have.message(), want.message()),
            (have, want) => panic!("{dims:?}: {have:?}, {want:?}"),
        }
    }
}

#[test]
fn sequence_layers_accept_dynamic_dims_eagerly_and_captured() {
    let _alone = alone();
    let (batch, time) = (Dim::new("batch", 6), Dim::new("time", 7));
    let mut rng = Rng::seed_from_u64(2);
    let shape = TransformerConfig {
        d_model: 8,
        num_heads: 2,
        dim_feedforward: 16,
        norm_first: true,
        is_causal: true,
        dropout: 0.0,
    };
    let block = TransformerEncoderLayer::new(shape, &mut rng);
    let both = RnnOptions { bidirectional: true, ..RnnOptions::default() };
    let (gru, lstm) = (Gru::with_options(8, 4, both, &mut rng), Lstm::with_options(8, 4, both, &mut rng));
    let x = Tensor::from_slice(&rng.normal([4, 5, 8]).to_vec::<f32>().unwrap(), [4, 5, 8]);
    let times = Tensor::from_slice(&[5i32, 2, 4, 1], [4]);
    // The flag is true if the time axis can be dynamic as well.
    let layers: [(&str, &(dyn Layer + Sync), bool); 6] = [
        ("a block", &block, true),
        ("positions", &PositionalEncoding, true),
        ("a GRU", &gru, false),
        ("an LSTM", &lstm, false),
        ("the mean over the time", &TimeMean, true),
        ("the last time", &LastTimeStep, false),
    ];
    for (name, layer, any_time) in layers {
        for ends in [false, true] {
            let of = |x: &Tensor, times: &Tensor| {
                layer.forward(x, &mut ForwardContext::eval().with_seq_lengths(ends.then_some(times)))
            };
            let captured = jit(|[x, times]| [of(x, times)]);
            let want = of(&x, &times);
            let short = [x.mark_dynamic(0, &batch), times.mark_dynamic(0, &batch)];
            near(&of(&short[0], &short[1]), &want, name);
            near(&captured.call([&short[0], &short[1]]).unwrap()[0], &want, &format!("{name}, captured"));
            if any_time {
                let long = [short[0].mark_dynamic(1, &time), short[1].clone()];
                near(&of(&long[0], &long[1]), &want, &format!("{name} of any time"));
                let have = captured.call([&long[0], &long[1]]);
                near(&have.unwrap()[0], &want, &format!("{name} of any time, captured"));
            }
        }
    }
}

#[test]
fn gradients_of_many_recurrent_runs_equal_the_sum_of_separate_ones() {
    let _alone = alone();
    let deep = RnnOptions { num_layers: 2, ..RnnOptions::default() };
    let gru = Gru::with_options(3, 4, deep, &mut Rng::seed_from_u64(3));
    let numbers = |seed: u64, dims: [usize; 3]| {
        let x = Rng::seed_from_u64(seed).normal(dims).to_vec::<f32>().unwrap();
        Tensor::from_slice(&x, dims)
    };
    let x = numbers(1, [1, 5, 3]);
    let params: Vec<Tensor> = gru.named_parameters().iter().map(|(_, param)| param.tensor().clone()).collect();
    let wanted: Vec<&Tensor> = params.iter().chain([&x]).collect();
    let places = numbers(9, [1, 5, 4]);
    let run = |seed: u64| {
        let memory = RnnState { hidden: numbers(seed, [2, 1, 4]), cell: numbers(seed, [2, 1, 4]) };
        (gru.forward_with_state(&x, Some(&memory), &mut ForwardContext::eval()).0 * &places).sum(..)
    };
    for runs in 2..5 {
        let together = (0..runs).map(run).reduce(|sum, one| sum + one).unwrap().gradients(&wanted).unwrap();
        let alone: Vec<Vec<Tensor>> = (0..runs).map(|seed| run(seed).gradients(&wanted).unwrap()).collect();
        for (at, have) in together.iter().enumerate() {
            let sum = alone.iter().map(|grads| grads[at].to_vec::<f32>().unwrap());
            let sum = sum.reduce(|sum, one| sum.iter().zip(&one).map(|(a, b)| a + b).collect()).unwrap();
            near(
                have,
                &Tensor::from_slice(&sum, have.shape().unwrap().clone()),
                &format!("gradient {at} of {runs} runs"),
            );
        }
    }
}
