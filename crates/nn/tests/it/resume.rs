//! A run that was stopped, saved and loaded continues bit for bit like an uninterrupted one. Classification metrics.

use std::ops::ControlFlow;

use panoply_nn::data::digits;
use panoply_nn::metrics::{ConfusionMatrix, roc_auc, top_k_accuracy};
use panoply_nn::trainer::{Callback, StepReport};
use panoply_nn::{
    AdamW, BatchNorm, Dropout, DropoutExt, EpochReport, Lambda, Linear, LrSchedule, Module, Monitor, Sequential,
    TrainConfig, Trainer,
};
use panoply_tensor::{Device, Rng, Tensor};

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

/// Stops at a step of an epoch.
struct StopAt(usize, usize);

impl Callback for StopAt {
    fn on_train_batch_end(&mut self, report: &StepReport) -> ControlFlow<()> {
        match (report.epoch, report.step) == (self.0, self.1) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Returns a run with all kinds of state: dropout, running statistics, moments, a schedule.
fn fresh(seed: u64) -> Trainer<Sequential, panoply_nn::optim::AdamWRule> {
    let mut rng = Rng::seed_from_u64(seed);
    let model = Sequential::new()
        .add(Linear::new(64, 24, &mut rng))
        .add(BatchNorm::new(24))
        .add(Lambda(Tensor::relu))
        .add(Dropout { p: 0.2 })
        .add(Linear::new(24, 10, &mut rng));
    Trainer::new(model, AdamW::new(1e-2).clip_grad_norm(1.0), rng)
}

fn bits(model: &dyn Module) -> Vec<u32> {
    let params = model.named_parameters();
    params.iter().flat_map(|(_, param)| param.tensor().to_vec::<f32>().unwrap()).map(f32::to_bits).collect()
}

#[test]
fn a_resumed_run_equals_an_uninterrupted_one() {
    on_cpu(|| {
        let (train, held) = digits::load().unwrap().train_test_split(0.5, &mut Rng::seed_from_u64(3)).unwrap();
        let folder = std::env::temp_dir().join(format!("panoply-resume-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("run.safetensors");
        let training =
            TrainConfig { lr_schedule: LrSchedule::Cosine { t_max: 45, min_factor: 0.1 }, ..TrainConfig::new(3, 64) };
        let mut whole = fresh(1);
        whole.fit(&training, &train, &held, &mut StopAt(0, 0)).unwrap();

        // The run stops in the middle of the second epoch, and again at the end of it.
        let saved = TrainConfig { checkpoint_path: Some(file.clone()), ..training.clone() };
        let mut run = fresh(1);
        run.fit(&saved, &train, &held, &mut StopAt(2, 5)).unwrap();
        assert_eq!((run.state.history.len(), run.state.step), (1, 5));
        // JSON has no infinite numbers, but scores and losses can be infinite.
        let mut odd = run.clone();
        let report = &mut odd.state.history[0];
        (report.val_score, report.train_score, report.train_loss) = (f64::NEG_INFINITY, f64::INFINITY, f64::NAN);
        odd.save_checkpoint(&folder.join("odd.safetensors")).unwrap();
        let mut back = fresh(1);
        back.load_checkpoint(&folder.join("odd.safetensors")).unwrap();
        let [report, read] = [&odd, &back].map(|run| run.state.history[0].clone());
        assert_eq!(
            (read.val_score, read.train_score, read.seconds),
            (report.val_score, report.train_score, report.seconds)
        );
        assert!(read.train_loss.is_nan());
        // A score of NaN, that of a single example, is null; the loss chooses the best epoch.
        assert!(serde_json::to_value(&read).unwrap()["train_loss"].is_null());
        let undefined = |val_loss: f64| EpochReport {
            val_loss,
            val_score: f64::NAN,
            monitor: Monitor::Score,
            ..run.state.history[0].clone()
        };
        let history = [undefined(2.0), undefined(1.0), undefined(3.0)];
        assert_eq!(EpochReport::best(&history).unwrap().val_loss, 1.0);
        for stop in [StopAt(2, 15), StopAt(0, 0)] {
            // The run starts from a different seed, of which nothing must remain.
            run = fresh(99);
            run.load_checkpoint(&file).unwrap();
            run.fit(&saved, &train, &held, &mut { stop }).unwrap();
        }
        assert_eq!(bits(&run.model), bits(&whole.model));
        assert_eq!(bits(run.best_model()), bits(whole.best_model()));
        assert_eq!(
            (&run.rng, &run.epoch_rng, run.optimizer.steps),
            (&whole.rng, &whole.epoch_rng, whole.optimizer.steps)
        );
        let losses = |run: &Trainer<_, _>| -> Vec<(f64, f64, f64)> {
            let history: &[EpochReport] = &run.state.history;
            history.iter().map(|epoch| (epoch.train_loss, epoch.val_loss, epoch.val_score)).collect()
        };
        assert_eq!(losses(&run), losses(&whole));
        assert!(whole.state.history.len() == 3 && whole.state.history[2].val_score > 0.9);

        // A checkpoint of another model, a truncated one, and one with parameters only change nothing.
        let mut other = fresh(5);
        other.model.layers.pop();
        let before = bits(&other.model);
        let error = other.load_checkpoint(&file).unwrap_err();
        assert!(error.message().contains("2 extra (4.bias, 4.weight)"), "{error}");
        let bytes = std::fs::read(&file).unwrap();
        std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
        assert!(other.load_checkpoint(&file).unwrap_err().is_corrupt());
        whole.state.best_epoch = Some(4);
        whole.save_checkpoint(&file).unwrap();
        let error = fresh(5).load_checkpoint(&file).unwrap_err();
        assert!(
            error.is_corrupt() && error.message().contains("best_epoch is 4, but the history has 3 epochs"),
            "{error}"
        );
        panoply_nn::checkpoint::save(&whole.model, &file, Default::default()).unwrap();
        let error = other.load_checkpoint(&file).unwrap_err();
        assert!(error.message().contains("has no training state"), "{error}");
        assert_eq!((bits(&other.model), other.optimizer.steps), (before, 0));
        std::fs::remove_dir_all(&folder).unwrap();
    });
}

#[test]
fn an_invalid_dropout_probability_is_a_mistake() {
    on_cpu(|| {
        let mut rng = Rng::seed_from_u64(0);
        let wrong = Tensor::ones([2], panoply_tensor::DType::F32)
            .dropout(1.5, &mut panoply_nn::ForwardContext::train(&mut rng));
        assert!(wrong.check().unwrap_err().message().contains("p = 1.5"));
    });
}

#[test]
fn classification_metrics() {
    on_cpu(|| {
        let labels = Tensor::from_slice(&[0i32, 0, 0, 1, 1, 2], [6]);
        let predicted = Tensor::from_slice(&[0i32, 0, 1, 1, 0, 1], [6]);
        let confusion = ConfusionMatrix::new(&labels, &predicted, 3).unwrap();
        let cells: Vec<_> = confusion.cells().collect();
        assert_eq!(cells, [(0, 0, 2), (0, 1, 1), (1, 0, 1), (1, 1, 1), (2, 1, 1)], "only nonzero cells are listed");
        assert_eq!((confusion.support(0), confusion.errors(0), confusion.errors(2)), (3, 2, 1));
        assert_eq!(confusion.accuracy(), 0.5);
        assert_eq!((confusion.precision(0), confusion.recall(0)), (2.0 / 3.0, 2.0 / 3.0));
        assert_eq!((confusion.precision(2), confusion.recall(2), confusion.f1(2)), (0.0, 0.0, 0.0));
        // scikit-learn: f1_score(..., average="macro") of these is 0.3555…
        assert!((confusion.macro_f1() - (2.0 / 3.0 + 0.4) / 3.0).abs() < 1e-12);
        // A class that has no examples and no predictions is ignored, as in scikit-learn without `labels`.
        let wider = ConfusionMatrix::new(&labels, &predicted, 7).unwrap();
        assert_eq!(wider.macro_f1(), confusion.macro_f1());
        // As likely as one of four: ln 4 nats.
        assert!((panoply_nn::metrics::perplexity(4f64.ln()) - 4.0).abs() < 1e-12);
        let logits = Tensor::from_slice(&[0.1f32, 0.9, 0.5, 0.3, 0.2, 0.1, 1.0, 2.0, 3.0], [3, 3]);
        let labels = Tensor::from_slice(&[2i32, 1, 0], [3]);
        let share = |count| top_k_accuracy(&logits, &labels, count).item::<f64>().unwrap();
        assert_eq!((share(1), share(3)), (0.0, 1.0));
        assert!((share(2) - 2.0 / 3.0).abs() < 1e-6);
    });
    // Counted by hand: of 2 · 3 pairs, 3 are in order and 2 are ties.
    assert_eq!(roc_auc(&[0.9, 0.4, 0.4, 0.1, 0.9], &[true, true, false, false, false]).unwrap(), (3.0 + 1.0) / 6.0);
    assert_eq!(roc_auc(&[1.0, 2.0], &[true, false]).unwrap(), 0.0);
    assert!(roc_auc(&[1.0, 2.0], &[true, true]).unwrap_err().message().contains("2 positive and 0 negative"));
}
