//! A custom model, trained with everything around it: random augmentation in worker threads, callbacks, early stopping,
//! and a run that is interrupted in the middle of an epoch and resumes with identical results.
//!
//! `cargo run --release --example 07_custom_training_loop`; `PANOPLY_DEVICE=cpu` chooses another device.

use std::ops::ControlFlow;

use panoply::nn::data::{DataLoader, digits};
use panoply::nn::trainer::{Callback, EpochReport, StepReport};
use panoply::nn::{
    AdamW, BatchNorm, Conv2d, DropoutExt, ForwardContext, Layer, Linear, Loss, LrSchedule, MaxPool2d, TrainConfig,
    Trainer, checkpoint, evaluate,
};
use panoply::prelude::*;
use panoply::{Module, Rng, Tensor};

/// The model: plain fields, each a layer.
#[derive(Module, Clone)]
struct Reader {
    strokes: Conv2d,
    norm: BatchNorm,
    pool: MaxPool2d,
    digit: Linear,
}

impl Reader {
    fn new(rng: &mut Rng) -> Reader {
        let strokes = Conv2d::new(1, 16, [3, 3], rng).padding([1, 1]).without_bias();
        let digit = Linear::new(16 * 4 * 4, 10, rng);
        Reader { strokes, norm: BatchNorm::new(16), pool: MaxPool2d::new([2, 2]), digit }
    }
}

impl Layer for Reader {
    fn forward(&self, images: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let strokes = self.strokes.forward(images, pass);
        let strokes = self.norm.forward(&strokes, pass).relu();
        let seen = self.pool.forward(&strokes, pass).flatten(1, -1).dropout(0.2, pass);
        self.digit.forward(&seen, pass)
    }
}

/// A callback that prints the result of every epoch and optionally stops at a step.
struct Report {
    stop_at: Option<(usize, usize)>,
}

impl Callback for Report {
    fn on_train_batch_end(&mut self, report: &StepReport) -> ControlFlow<()> {
        match self.stop_at == Some((report.epoch, report.step)) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn on_epoch_end(&mut self, report: &EpochReport) -> ControlFlow<()> {
        let EpochReport { epoch, train_loss: loss, val_loss: validation_loss, val_score: score, .. } = report;
        println!(
            "epoch {epoch:>2}: loss {loss:.4}, validation loss {validation_loss:.4}, accuracy {:.1} %",
            score * 100.0
        );
        ControlFlow::Continue(())
    }
}

const BATCH: usize = 64;

/// Trains the model, interrupts the training, resumes it, and uses the result.
pub fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("panoply-own-training-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| panoply::Error::io("cannot create the folder", error))?;
    let (train, held) = digits::load()?.with_shape(&[1, 8, 8])?.train_test_split(0.2, &mut Rng::seed_from_u64(0))?;

    // Shifts each digit by a column to the left or right, or not, and scales its brightness.
    let loader = DataLoader::new(train, BATCH).shuffle(1).num_workers(2).map(|digit, rng| {
        let by = rng.random_below(3) as usize;
        for row in digit.features.chunks_exact_mut(8) {
            let wider = [&[0.0][..], row, &[0.0]].concat();
            row.copy_from_slice(&wider[by..by + 8]);
        }
        let light = 0.8 + rng.random_below(41) as f32 / 100.0;
        digit.features.iter_mut().for_each(|point| *point *= light);
        Ok(())
    });

    let epochs = 12;
    let training = TrainConfig {
        patience: Some(3),
        checkpoint_path: Some(folder.join("training.safetensors")),
        ..TrainConfig::new(epochs, BATCH)
    };
    let schedule = LrSchedule::one_cycle(training.optimizer_steps(loader.dataset().len()));
    let training = TrainConfig { lr_schedule: schedule, ..training };
    let fresh = || {
        let mut rng = Rng::seed_from_u64(2);
        Trainer::new(Reader::new(&mut rng), AdamW::new(4e-3).clip_grad_norm(1.0).exclude_1d_from_weight_decay(), rng)
    };

    // The run stops in the middle of the second epoch; a new trainer resumes from the file.
    fresh().fit(&training, &loader, &held, &mut Report { stop_at: Some((2, 7)) })?;
    let mut run = fresh();
    run.load_checkpoint(&folder.join("training.safetensors"))?;
    println!("stopped after {} steps; resuming", run.optimizer.steps);
    run.fit(&training, &loader, &held, &mut Report { stop_at: None })?;
    let made = run.state.history.len();
    println!("{made} of {epochs} epochs trained; epoch {} is the best", run.state.best_epoch.unwrap_or_default());

    // Saves the best model alone, and loads it for use.
    let file = folder.join("reader.safetensors");
    checkpoint::save(run.best_model(), &file, Default::default())?;
    let mut reader = Reader::new(&mut Rng::seed_from_u64(3));
    checkpoint::load(&mut reader, &file)?;
    let found = evaluate(&reader, &held, &Loss::default())?;
    println!("validation accuracy {:.1} % on {}", found.score * 100.0, Device::current()?);
    std::fs::remove_dir_all(&folder).ok();
    assert!(found.score > 0.95, "the network did not learn");
    Ok(())
}
