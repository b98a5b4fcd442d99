//! Data-parallel training: two ranks train one model, each on its shards of every batch, and end with the bits of one process.
//!
//! Without a launcher the ranks are two threads. Under MPI they are processes: `mpirun -n 2 target/release/examples/10_data_parallel`.

use std::ops::ControlFlow;
use std::sync::Arc;

use panoply::mesh::{Mesh, RankGroup, ThreadWire};
use panoply::nn::data::digits;
use panoply::nn::trainer::{Callback, StepReport};
use panoply::nn::{Module, ProcessGroup, Sgd, TrainConfig, Trainer};
use panoply::prelude::*;
use panoply::{Error, Rng};

/// Ranks without a launcher.
const RANKS: usize = 2;

/// A callback that keeps the loss of every batch.
#[derive(Default)]
struct Losses(Vec<f64>);

impl Callback for Losses {
    fn on_train_batch_end(&mut self, report: &StepReport) -> ControlFlow<()> {
        self.0.push(report.loss);
        ControlFlow::Continue(())
    }
}

/// Trains the same model on every rank. Returns the loss of every batch and the trained parameters.
fn train(group: Option<RankGroup>) -> Result<(Vec<f64>, Vec<f32>)> {
    let (train, held) = digits::load()?.train_test_split(0.2, &mut Rng::seed_from_u64(0))?;
    let mut rng = Rng::seed_from_u64(1);
    let model = panoply::nn::Mlp::new(&[64, 32, 10], 0.1, &mut rng);
    let training = TrainConfig {
        group: group.map(|group| Arc::new(group) as Arc<dyn ProcessGroup>),
        // The number of shards determines the bits, not the number of ranks that compute them.
        shards: Some(4),
        ..TrainConfig::new(4, 64)
    };
    let mut losses = Losses::default();
    let mut run = Trainer::new(model, Sgd::new(0.3), rng);
    run.fit(&training, &train, &held, &mut losses)?;
    let params = run.model.named_parameters();
    let values = params.iter().map(|(_, param)| param.tensor().to_vec::<f32>()).collect::<Result<Vec<Vec<f32>>>>()?;
    Ok((losses.0, values.concat()))
}

/// Trains on the ranks of a launcher, or on threads.
pub fn main() -> Result<()> {
    let mesh = Mesh::open()?;
    if let Some(group) = mesh.group() {
        let (losses, _) = train(Some(group.clone()))?;
        println!("rank {}: loss {:.3} → {:.3}", group.rank(), losses[0], losses[losses.len() - 1]);
        return group.close();
    }
    let device = Device::current()?;
    let ranks: Vec<Result<(Vec<f64>, Vec<f32>)>> = std::thread::scope(|threads| {
        let device = &device;
        let start =
            |wire: ThreadWire| threads.spawn(move || device.scope(|| train(Some(RankGroup::new(Arc::new(wire))))));
        let threads: Vec<_> = ThreadWire::connected(RANKS).into_iter().map(start).collect();
        let panicked = |_| Error::unavailable("a rank panicked");
        threads.into_iter().map(|thread| thread.join().map_err(panicked).and_then(|done| done)).collect()
    });
    let ranks = ranks.into_iter().collect::<Result<Vec<_>>>()?;
    let (losses, values) = &ranks[0];
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    let (first, last) = (mean(&losses[..5]), mean(&losses[losses.len() - 5..]));
    println!("{} batches on {RANKS} ranks: loss {first:.3} → {last:.3}", losses.len());
    assert!(last < 0.7 * first, "the loss fell from {first} only to {last}");
    let (alone, alone_values) = train(None)?;
    assert!(
        ranks.iter().all(|(_, values)| *values == alone_values) && *losses == alone,
        "ranks and one process differ"
    );
    println!("the {} parameters are those of one process, bit for bit", values.len());
    Ok(())
}
