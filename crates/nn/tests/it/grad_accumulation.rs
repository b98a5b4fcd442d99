//! State that spans several batches: gradient accumulation, averaged parameters, learning rates reduced on a plateau. All of it resumes bit
//! for bit.

use std::ops::ControlFlow;

use panoply_nn::data::{Dataset, digits};
use panoply_nn::optim::{GradScaler, SgdRule, UpdateRule};
use panoply_nn::trainer::{Callback, NoCallback, StepReport};
use panoply_nn::{
    Adagrad, Adam, AdamW, ClassWeights, Embedding, ForwardContext, Lambda, Layer, Linear, Lion, Loss, LossKind,
    LrSchedule, Module, Optimizer, Param, ReduceLrOnPlateau, RmsProp, Sequential, Sgd, TrainConfig, Trainer,
};
use panoply_tensor::{DType, Device, Rng, Tensor};

/// Stops after a step of an epoch.
struct StopAt(usize, usize);

impl Callback for StopAt {
    fn on_train_batch_end(&mut self, report: &StepReport) -> ControlFlow<()> {
        match (report.epoch, report.step) == (self.0, self.1) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

fn network(rng: &mut Rng) -> Sequential {
    Sequential::new().add(Linear::new(64, 12, rng)).add(Lambda(Tensor::tanh)).add(Linear::new(12, 10, rng))
}

fn fresh() -> Trainer<Sequential, SgdRule> {
    let mut rng = Rng::seed_from_u64(4);
    Trainer::new(network(&mut rng), Sgd::new(0.2).momentum(0.5), rng)
}

fn parts() -> (Dataset, Dataset) {
    let all = digits::load().unwrap();
    let part = |from: usize, count: usize| all.select(&(from..from + count).collect::<Vec<usize>>());
    (part(0, 150), part(1000, 60))
}

fn numbers(model: &dyn Module) -> Vec<f32> {
    model.named_parameters().iter().flat_map(|(_, param)| param.tensor().to_vec::<f32>().unwrap()).collect()
}

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

/// Three batches of 16 in each step equal a batch of 48, including the short batches at the end of the epoch: 150 is three times 48 and 6.
#[test]
fn accumulated_batches_equal_one_batch() {
    on_cpu(|| {
        let (train, held) = parts();
        let (mut whole, mut parts) = (fresh(), fresh());
        let schedule = LrSchedule::Cosine { t_max: 8, min_factor: 0.0 };
        let of = |batch, accumulate| TrainConfig {
            accumulate_grad_batches: accumulate,
            lr_schedule: schedule.clone(),
            ..TrainConfig::new(2, batch)
        };
        whole.fit(&of(48, 1), &train, &held, &mut NoCallback).unwrap();
        parts.fit(&of(16, 3), &train, &held, &mut NoCallback).unwrap();
        assert_eq!((whole.optimizer.steps, parts.optimizer.steps), (8, 8));
        assert_eq!((of(48, 1).optimizer_steps(150), of(16, 3).optimizer_steps(150)), (8, 8));
        for (a, b) in numbers(&whole.model).iter().zip(numbers(&parts.model)) {
            assert!((a - b).abs() < 1e-5, "{a} in one step, {b} in parts");
        }
        let losses = |run: &Trainer<_, _>| run.state.history.iter().map(|epoch| epoch.train_loss).collect::<Vec<f64>>();
        for (a, b) in losses(&whole).iter().zip(losses(&parts)) {
            assert!((a - b).abs() < 1e-5, "{a} in one step, {b} in parts");
        }
    });
}

/// The same with class weights: a part is weighted by its examples.
#[test]
fn accumulated_batches_equal_one_batch_with_class_weights() {
    on_cpu(|| {
        let (train, held) = parts();
        for kind in [LossKind::CrossEntropy, LossKind::BceWithLogits] {
            let weights = (0..10).map(|class| if class < 3 { 20.0 } else { 0.1 * f64::from(class) }).collect();
            let loss = Loss::new(kind).class_weights(ClassWeights::PerClass(weights));
            let (mut whole, mut parts) = (fresh(), fresh());
            let of = |batch, accumulate| TrainConfig {
                accumulate_grad_batches: accumulate,
                loss: loss.clone(),
                ..TrainConfig::new(2, batch)
            };
            whole.fit(&of(48, 1), &train, &held, &mut NoCallback).unwrap();
            parts.fit(&of(4, 12), &train, &held, &mut NoCallback).unwrap();
            for (a, b) in numbers(&whole.model).iter().zip(numbers(&parts.model)) {
                assert!((a - b).abs() < 1e-5, "{a} in one step, {b} in parts");
            }
            for (a, b) in whole.state.history.iter().zip(&parts.state.history) {
                assert!(
                    (a.train_loss - b.train_loss).abs() < 1e-5 && (a.val_loss - b.val_loss).abs() < 1e-5,
                    "{a:?}, {b:?}"
                );
            }
            // At a learning rate of almost zero, the loss of an epoch is that of its examples, however they are divided into batches.
            let mut still = Trainer::new(whole.model.clone(), Sgd::new(1e-12), Rng::seed_from_u64(1));
            still.fit(&TrainConfig { epochs: 1, ..of(7, 1) }, &train, &held, &mut NoCallback).unwrap();
            let want = panoply_nn::evaluate(&whole.model, &train, &loss).unwrap().loss;
            let have = still.state.history[0].train_loss;
            assert!((have - want).abs() < 1e-5, "{have}, expected {want}");
        }
    });
}

/// A part that overflows in f16, anywhere in its step, skips the whole step, halves the scale once, and leaves nothing for the next step.
#[test]
fn an_overflowing_part_skips_its_step_only() {
    on_cpu(|| {
        let (small, large) = (Rng::seed_from_u64(1).normal([4, 8]) * 0.1, Rng::seed_from_u64(2).normal([4, 8]) * 100.0);
        let scaled = |factor: f64| {
            Sgd::new(0.1).momentum(0.5).grad_scaler(GradScaler { scale: factor, ..GradScaler::default() })
        };
        let start = Linear::new(8, 2, &mut Rng::seed_from_u64(0));
        let group = |model: &mut Linear, optimizer: &mut Sgd, parts: [&Tensor; 3]| {
            let mut rng = Rng::seed_from_u64(0);
            for (at, x) in parts.into_iter().enumerate() {
                let mut pass = ForwardContext::train(&mut rng).autocast(DType::F16);
                let loss = model.forward(x, &mut pass).cast(DType::F32).square().mean(..) * (1.0 / 3.0);
                let value = match at {
                    2 => optimizer.step_keeping_graph(model, &loss, pass),
                    _ => optimizer.accumulate(model, &loss, pass),
                };
                assert!(value.unwrap().is_finite());
            }
        };
        let (mut model, mut optimizer) = (start.clone(), scaled(32768.0));
        group(&mut model, &mut optimizer, [&small; 3]);
        let want = numbers(&model);
        assert!(want != numbers(&start));
        for overflowing in 0..3 {
            let (mut model, mut optimizer) = (start.clone(), scaled(65536.0));
            let mut parts = [&small; 3];
            // All parts after it overflow as well.
            parts[overflowing..].fill(&large);
            group(&mut model, &mut optimizer, parts);
            assert_eq!(numbers(&model), numbers(&start), "{overflowing}");
            let scale = optimizer.grad_scaler.unwrap();
            assert_eq!((scale.scale, scale.skipped_steps, optimizer.steps), (32768.0, 1, 0), "{overflowing}");
            assert!(
                optimizer.accumulated_grads.is_empty() && optimizer.state.is_empty() && !optimizer.overflowed,
                "{overflowing}"
            );
            group(&mut model, &mut optimizer, [&small; 3]);
            assert_eq!((numbers(&model), optimizer.steps), (want.clone(), 1), "{overflowing}");
        }
    });
}

/// Each step is taken or skipped as a whole, and the averaged model follows the steps that are taken. A run that is stopped within an
/// overflowing step resumes bit for bit.
#[test]
fn an_overflowing_step_is_skipped_after_resuming() {
    on_cpu(|| {
        let (train, held) = parts();
        let folder = std::env::temp_dir().join(format!("panoply-overflow-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("run.safetensors");
        let training = TrainConfig {
            accumulate_grad_batches: 4,
            ema_decay: Some(0.9),
            precision: DType::F16,
            checkpoint_path: Some(file.clone()),
            ..TrainConfig::new(5, 16)
        };
        let run = || {
            let mut run = fresh();
            run.optimizer.grad_scaler = Some(GradScaler { scale: 2f64.powi(26), ..GradScaler::default() });
            run
        };
        let mut whole = run();
        whole.fit(&training, &train, &held, &mut NoCallback).unwrap();
        let scale = whole.optimizer.grad_scaler.unwrap();
        // 150 examples are ten batches, which are three steps per epoch.
        assert_eq!(whole.optimizer.steps + scale.skipped_steps, 15);
        assert!(scale.skipped_steps > 2 && whole.optimizer.steps > 2, "{scale:?}");
        assert_eq!(scale.scale, 2f64.powi(26 - scale.skipped_steps as i32));
        let mut part = run();
        part.fit(&training, &train, &held, &mut StopAt(1, 2)).unwrap();
        assert!(part.optimizer.overflowed);
        let average = &part.averaged_model.as_ref().unwrap().model;
        assert_eq!(numbers(average), numbers(&fresh().model));
        let mut part = run();
        part.load_checkpoint(&file).unwrap();
        assert!(part.optimizer.overflowed);
        part.fit(&training, &train, &held, &mut NoCallback).unwrap();
        assert_eq!(part.optimizer.grad_scaler, whole.optimizer.grad_scaler);
        assert_eq!(numbers(&part.model), numbers(&whole.model));
        assert_eq!(numbers(part.best_model()), numbers(whole.best_model()));
        std::fs::remove_dir_all(&folder).unwrap();
    });
}

/// The averaged model equals the average computed from the models after each step. The decay of step n is
/// min(`ema_decay`, (1 + n) / (10 + n)).
#[test]
fn an_averaged_model_is_updated_and_evaluated() {
    on_cpu(|| {
        let (train, held) = parts();
        let training = TrainConfig { ema_decay: Some(0.3), ..TrainConfig::new(1, 50) };
        let mut want: Vec<f64> = numbers(&fresh().model).into_iter().map(f64::from).collect();
        for step in 1..=3 {
            let mut run = fresh();
            run.fit(&TrainConfig::new(1, 50), &train, &held, &mut StopAt(1, step)).unwrap();
            let kept = 0.3f64.min((1.0 + step as f64) / (10.0 + step as f64));
            for (average, now) in want.iter_mut().zip(numbers(&run.model)) {
                *average = *average * kept + f64::from(now) * (1.0 - kept);
            }
        }
        let mut run = fresh();
        run.fit(&training, &train, &held, &mut NoCallback).unwrap();
        for (have, want) in numbers(&run.averaged_model.as_ref().unwrap().model).iter().zip(&want) {
            assert!((f64::from(*have) - want).abs() < 1e-6, "{have}, expected {want}");
        }
        assert_eq!(numbers(run.best_model()), numbers(&run.averaged_model.as_ref().unwrap().model));
        let evaluation = panoply_nn::evaluate(run.best_model(), &held, &training.loss).unwrap();
        assert!((evaluation.loss - run.state.history[0].val_loss).abs() < 1e-9);
    });
}

/// A run that does not improve lowers its learning rate after three epochs without a better loss, and again after three more.
#[test]
fn a_plateau_lowers_the_learning_rate() {
    on_cpu(|| {
        let (train, held) = parts();
        let mut rng = Rng::seed_from_u64(4);
        let mut run = Trainer::new(network(&mut rng), Sgd::new(1e-9), rng);
        let rates: Vec<f64> = (1..=8)
            .map(|epochs| {
                let plateau = Some(ReduceLrOnPlateau::new(0.5, 2));
                run.fit(
                    &TrainConfig { reduce_on_plateau: plateau, ..TrainConfig::new(epochs, 75) },
                    &train,
                    &held,
                    &mut NoCallback,
                )
                .unwrap();
                run.optimizer.learning_rate
            })
            .collect();
        assert_eq!(rates, [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25].map(|factor| factor * 1e-9));
    });
}

/// A run that is stopped between two batches of one step, with an averaged model and on a plateau, resumes bit for bit.
#[test]
fn accumulation_averaging_and_plateaus_resume() {
    on_cpu(|| {
        let (train, held) = parts();
        let folder = std::env::temp_dir().join(format!("panoply-steps-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("run.safetensors");
        let mut plateau = ReduceLrOnPlateau::new(0.1, 0);
        plateau.threshold = 0.5;
        let training = TrainConfig {
            accumulate_grad_batches: 4,
            ema_decay: Some(0.9),
            reduce_on_plateau: Some(plateau),
            checkpoint_path: Some(file.clone()),
            ..TrainConfig::new(4, 16)
        };
        let run = || {
            let mut rng = Rng::seed_from_u64(9);
            Trainer::new(network(&mut rng), AdamW::new(1e-2).weight_decay(0.1).exclude_1d_from_weight_decay(), rng)
        };
        let mut whole = run();
        whole.fit(&training, &train, &held, &mut NoCallback).unwrap();
        assert!(whole.optimizer.learning_rate < 1e-3, "the plateau was not reached");
        let mut part = run();
        for stop in [StopAt(1, 2), StopAt(2, 7), StopAt(3, 9), StopAt(0, 0)] {
            let StopAt(_, step) = stop;
            part.fit(&training, &train, &held, &mut { stop }).unwrap();
            assert_eq!(part.optimizer.accumulated_grads.is_empty(), [0, 4, 8].contains(&step), "{step}");
            part = run();
            part.load_checkpoint(&file).unwrap();
        }
        let bits = |model: &dyn Module| numbers(model).into_iter().map(f32::to_bits).collect::<Vec<u32>>();
        assert_eq!(bits(&part.model), bits(&whole.model));
        assert_eq!(bits(part.best_model()), bits(whole.best_model()));
        let average = |run: &Trainer<Sequential, _>| bits(&run.averaged_model.as_ref().unwrap().model);
        assert_eq!(average(&part), average(&whole));
        assert_eq!(part.state.history.len(), 4);
        std::fs::remove_dir_all(&folder).unwrap();
    });
}

/// All gradients are zero, so only weight decay changes parameters: it applies to matrices but not to biases.
#[test]
fn weight_decay_excludes_vectors() {
    on_cpu(|| {
        let mut rng = Rng::seed_from_u64(0);
        let mut model = network(&mut rng);
        let before = model.named_parameters();
        let nothing = before.iter().map(|(_, param)| (param.tensor() * 0.0).sum(..)).reduce(|a, b| a + b).unwrap();
        let mut optimizer = AdamW::new(0.1).weight_decay(0.5).exclude_1d_from_weight_decay();
        optimizer.step_keeping_graph(&mut model, &nothing, panoply_nn::ForwardContext::train(&mut rng)).unwrap();
        for ((name, old), (_, new)) in before.iter().zip(model.named_parameters()) {
            let factor = if name.ends_with("weight") { 0.95 } else { 1.0 };
            let [old, new] = [old, &new].map(|param| param.tensor().to_vec::<f32>().unwrap());
            assert!(old.iter().zip(new).all(|(old, new)| (old * factor - new).abs() < 1e-6), "{name}");
        }
    });
}

/// 7 examples with a batch size of 3 are batches of 3 and 4, from the host, the device or a loader: batch norm needs two values per
/// channel.
#[test]
fn a_last_batch_of_one_example_is_merged() {
    struct Count(usize);
    impl Callback for Count {
        fn on_train_batch_end(&mut self, report: &StepReport) -> ControlFlow<()> {
            (self.0, _) = (self.0 + 1, assert_eq!(report.steps, 2));
            ControlFlow::Continue(())
        }
    }
    on_cpu(|| {
        let all = digits::load().unwrap();
        let part = |from: usize, count: usize| all.select(&(from..from + count).collect::<Vec<usize>>());
        let (train, held) = (part(0, 7), part(100, 5));
        let loader = panoply_nn::data::DataLoader::new(train.clone(), 3).shuffle(1).num_workers(2);
        let fresh = || {
            let mut rng = Rng::seed_from_u64(4);
            let network = Sequential::new().add(Linear::new(64, 8, &mut rng)).add(panoply_nn::BatchNorm::new(8));
            Trainer::new(network.add(Linear::new(8, 10, &mut rng)), Sgd::new(0.1), rng)
        };
        let training = TrainConfig::new(2, 3);
        assert_eq!(training.optimizer_steps(7), 4);
        for from_loader in [false, true] {
            let (mut run, mut count) = (fresh(), Count(0));
            match from_loader {
                true => run.fit(&training, &loader, &held, &mut count).unwrap(),
                false => run.fit(&training, &train, &held, &mut count).unwrap(),
            }
            assert_eq!((count.0, run.optimizer.steps), (4, 4));
            assert!(numbers(&run.model).iter().all(|number| number.is_finite()));
        }
        let error = fresh().fit(&TrainConfig::new(1, 1), &train, &held, &mut NoCallback).unwrap_err();
        assert!(error.message().contains("expected more than 1 value per channel"), "{error}");
    });
}

/// The score is like `sklearn.metrics.r2_score` over all rows of a table sorted by its target. Patience counts as in Keras'
/// `EarlyStopping`.
#[test]
fn training_scores_are_from_a_random_sample_and_patience_restarts() {
    on_cpu(|| {
        let data = |count: usize| {
            let x: Vec<f32> = (0..count).map(|i| i as f32 / count as f32).collect();
            Dataset::regression(x.clone(), x).build().unwrap()
        };
        let (train, held) = (data(1000), data(200));
        let loss = Loss::new(LossKind::Mse);
        let mut rng = Rng::seed_from_u64(2);
        let mut run = Trainer::new(Linear::new(1, 1, &mut rng), Sgd::new(0.0), rng);
        let training = TrainConfig { loss: loss.clone(), patience: Some(3), ..TrainConfig::new(50, 100) };
        run.fit(&training, &train, &held, &mut NoCallback).unwrap();
        let all = panoply_nn::evaluate(&run.model, &train, &loss).unwrap().score;
        let train_score = run.state.history[0].train_score;
        assert!((train_score - all).abs() < 0.2 * (1.0 + all.abs()), "{train_score} on a sample, {all} on all rows");
        assert_eq!(run.state.history.len(), 4, "the model does not change");
        run.fit(&training, &train, &held, &mut NoCallback).unwrap();
        assert_eq!(run.state.history.len(), 7, "three more epochs without improvement");
    });
}

/// An element with gradient 0 does not change, and one whose squared gradient is below the smallest f16 is updated as in f32.
#[test]
fn half_precision_parameters_are_updated_in_f32() {
    fn steps<R: UpdateRule + 'static>(optimizer: Optimizer<R>, dtype: DType) -> Vec<f64> {
        let mut optimizer = optimizer.boxed();
        let start = Tensor::from_slice(&[1f32, 2.0, -1.0, 0.5], [4]).cast(dtype);
        let scale = Tensor::from_slice(&[0f32, 1.0, -0.5, 2f32.powi(-14)], [4]).cast(dtype);
        let mut model = Embedding::new(4, 1, &mut Rng::seed_from_u64(0));
        model.weight = Param::new(start.reshape([4, 1]));
        for _ in 0..3 {
            let mut rng = Rng::seed_from_u64(0);
            let pass = ForwardContext::train(&mut rng);
            let loss = (model.weight.tensor().reshape([4]) * &scale).sum(..);
            let loss = optimizer.step(&mut model, loss, pass).unwrap();
            assert!(loss.is_finite(), "{loss}");
        }
        assert_eq!(model.weight.tensor().dtype(), dtype);
        model.weight.tensor().cast(DType::F64).to_vec().unwrap()
    }
    fn check<R: UpdateRule + Clone + 'static>(name: &str, optimizer: Optimizer<R>) {
        let exact = steps(optimizer.clone(), DType::F32);
        for (dtype, unit) in [(DType::F16, 2f64.powi(-11)), (DType::BF16, 2f64.powi(-8))] {
            let found = steps(optimizer.clone(), dtype);
            // Each of three steps rounds the parameter once.
            let near = |(x, y): (&f64, &f64)| (x - y).abs() <= 3.0 * unit * y.abs().max(1.0);
            assert!(found.iter().zip(&exact).all(near), "{name} of {dtype}: {found:?}, expected {exact:?}");
        }
    }
    on_cpu(|| {
        check("adam", Adam::new(0.125));
        check("adamw", AdamW::new(0.125));
        check("rmsprop", RmsProp::new(0.03));
        check("rmsprop, centered", RmsProp::new(0.03).momentum(0.5).centered());
        check("adagrad", Adagrad::new(0.125));
        check("lion", Lion::new(0.125));
        check("sgd", Sgd::new(0.125).momentum(0.5));
    });
}
