//! Data-parallel training: the same bits on any number of ranks with a fixed number of shards, and one exchange of gradients for each step.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use panoply_device::Wire;
use panoply_mesh::{RankGroup, ThreadWire};
use panoply_nn::data::{Dataset, digits};
use panoply_nn::module::Param;
use panoply_nn::optim::AdamWRule;
use panoply_nn::trainer::{Callback, NoCallback, StepReport};
use panoply_nn::{AdamW, BatchNorm, Dropout, Lambda, Linear, Module, ProcessGroup, Sequential, TrainConfig, Trainer};
use panoply_tensor::{Device, Result, Rng, Tensor};

/// A run with all kinds of state: dropout, running statistics, moments.
type Run = Trainer<Sequential, AdamWRule>;

fn fresh() -> Run {
    let mut rng = Rng::seed_from_u64(1);
    let model = Sequential::new()
        .add(Linear::new(64, 24, &mut rng))
        .add(BatchNorm::new(24))
        .add(Lambda(Tensor::relu))
        .add(Dropout { p: 0.2 })
        .add(Linear::new(24, 10, &mut rng));
    Trainer::new(model, AdamW::new(1e-2).clip_grad_norm(1.0), rng)
}

/// Returns a run whose gradients are exchanged in three parts: messages of a CPU have up to 2¹⁸ values.
fn fresh_wide() -> Run {
    let mut rng = Rng::seed_from_u64(1);
    let mut model = Sequential::new();
    for [inputs, outputs] in [[64, 700], [700, 500], [500, 530]] {
        model =
            model.add(Linear::new(inputs, outputs, &mut rng)).add(BatchNorm::new(outputs)).add(Lambda(Tensor::relu));
    }
    let model = model.add(Dropout { p: 0.2 }).add(Linear::new(530, 10, &mut rng));
    Trainer::new(model, AdamW::new(1e-3).clip_grad_norm(1.0), rng)
}

/// Returns 450 training examples, which batches of 60 leave with one of 30, and further ones for validation.
fn data() -> (Dataset, Dataset) {
    let (half, _) = digits::load().unwrap().train_test_split(0.5, &mut Rng::seed_from_u64(3)).unwrap();
    let part = |positions: std::ops::Range<usize>| half.select(&positions.collect::<Vec<usize>>());
    (part(0..450), part(450..half.len()))
}

/// Returns the bits of parameters and running statistics, of the losses, and of the random generator.
fn bits(run: &Run) -> Vec<u64> {
    let params = run.model.named_parameters();
    let numbers = params.iter().flat_map(|(_, param)| param.tensor().to_vec::<f32>().unwrap());
    let losses = run.state.history.iter().flat_map(|epoch| [epoch.train_loss, epoch.val_loss]);
    let mut bits: Vec<u64> = numbers.map(f64::from).chain(losses).map(f64::to_bits).collect();
    bits.extend([run.rng.seed, run.rng.counter, run.rng.forks, run.optimizer.steps]);
    bits
}

/// Counters of all ranks.
#[derive(Debug, Default)]
struct Counters {
    messages: AtomicU64,
    bytes: AtomicU64,
    sums: AtomicU64,
}

/// A wire that counts what is sent.
#[derive(Debug)]
struct Counted(ThreadWire, Arc<Counters>);

impl Wire for Counted {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn ranks(&self) -> usize {
        self.0.ranks()
    }

    fn send(&self, to: usize, bytes: &[u8]) -> Result<()> {
        self.1.messages.fetch_add(1, Ordering::Relaxed);
        self.1.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.0.send(to, bytes)
    }

    fn receive(&self, from: usize, bytes: &mut [u8]) -> Result<()> {
        self.0.receive(from, bytes)
    }

    fn all_reduce(&self, values: &mut [f32]) -> Result<()> {
        self.1.sums.fetch_add(1, Ordering::Relaxed);
        self.0.all_reduce(values)
    }

    fn abort(&self, code: i32) -> ! {
        self.0.abort(code)
    }

    fn close(&self) -> Result<()> {
        self.0.close()
    }
}

/// Asks a rank to stop after a batch of an epoch, as Ctrl-C or SIGTERM would.
#[derive(Clone, Copy)]
struct StopAt {
    rank: usize,
    epoch: usize,
    batch: usize,
}

impl Callback for StopAt {
    fn on_train_batch_end(&mut self, report: &StepReport) -> ControlFlow<()> {
        match (report.epoch, report.step) == (self.epoch, self.batch) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Trains on threads that are ranks, from a checkpoint or from the beginning. Returns the run of each rank and the counters.
fn on_ranks(ranks: usize, training: &TrainConfig, checkpoint: Option<&Path>) -> (Vec<Run>, Arc<Counters>) {
    on_ranks_until(ranks, training, fresh, checkpoint, None)
}

/// Like [`on_ranks`], until one of the ranks is asked to stop.
fn on_ranks_until(
    ranks: usize,
    training: &TrainConfig,
    fresh: fn() -> Run,
    checkpoint: Option<&Path>,
    stop: Option<StopAt>,
) -> (Vec<Run>, Arc<Counters>) {
    let counters = Arc::new(Counters::default());
    let runs = std::thread::scope(|threads| {
        let start = |wire: ThreadWire| {
            let counters = counters.clone();
            threads.spawn(move || {
                let group = RankGroup::new(Arc::new(Counted(wire, counters)));
                let run = Device::get("cpu").unwrap().scope(|| {
                    let (train, held) = data();
                    let mut run = fresh();
                    checkpoint.iter().for_each(|file| run.load_checkpoint(file).unwrap());
                    let shared: Arc<dyn ProcessGroup> = Arc::new(group.clone());
                    let training = TrainConfig {
                        group: Some(shared),
                        checkpoint_path: training.checkpoint_path.clone().filter(|_| group.rank() == 0),
                        ..training.clone()
                    };
                    match stop.filter(|stop| stop.rank == group.rank()) {
                        Some(mut stop) => run.fit(&training, &train, &held, &mut stop).unwrap(),
                        None => run.fit(&training, &train, &held, &mut NoCallback).unwrap(),
                    }
                    run
                });
                group.close().unwrap();
                run
            })
        };
        let threads: Vec<_> = ThreadWire::connected(ranks).into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    (runs, counters)
}

fn alone(training: &TrainConfig, checkpoint: Option<&Path>) -> Run {
    alone_from(fresh, training, checkpoint)
}

fn alone_from(fresh: fn() -> Run, training: &TrainConfig, checkpoint: Option<&Path>) -> Run {
    Device::get("cpu").unwrap().scope(|| {
        let (train, held) = data();
        let mut run = fresh();
        checkpoint.iter().for_each(|file| run.load_checkpoint(file).unwrap());
        run.fit(training, &train, &held, &mut NoCallback).unwrap();
        run
    })
}

#[test]
fn shards_give_the_same_bits_on_any_number_of_ranks() {
    for accumulate in [1, 3] {
        let training = TrainConfig { shards: Some(4), accumulate_grad_batches: accumulate, ..TrainConfig::new(2, 60) };
        let one = alone(&training, None);
        let losses = [0, 1].map(|epoch: usize| one.state.history[epoch].train_loss);
        assert!(losses[1] < losses[0], "{losses:?}");
        for ranks in [1, 2, 3, 4] {
            for (rank, run) in on_ranks(ranks, &training, None).0.iter().enumerate() {
                assert!(bits(run) == bits(&one), "rank {rank} of {ranks}, {accumulate} batches a step");
            }
        }
        // Another number of shards has other dropout, batch statistics and sums.
        let other = alone(&TrainConfig { shards: Some(5), ..training.clone() }, None);
        assert!(bits(&other) != bits(&one));
    }
}

#[test]
fn gradients_in_several_parts_give_the_same_bits() {
    for accumulate in [1, 2] {
        let training = TrainConfig { shards: Some(4), accumulate_grad_batches: accumulate, ..TrainConfig::new(1, 150) };
        let one = alone_from(fresh_wide, &training, None);
        for ranks in [2, 3] {
            let (runs, counters) = on_ranks_until(ranks, &training, fresh_wide, None, None);
            for (rank, run) in runs.iter().enumerate() {
                assert!(bits(run) == bits(&one), "rank {rank} of {ranks}, {accumulate} batches a step");
            }
            // Three parts of 2, 2 and 1 messages in each direction, the size of messages, and the figures of an evaluation.
            let (others, steps) = (ranks as u64 - 1, 3u64.div_ceil(accumulate as u64));
            assert_eq!(counters.messages.load(Ordering::Relaxed), others * (2 * steps * 5 + 2), "{ranks} ranks");
        }
    }
}

#[test]
fn shards_out_of_range_are_an_error() {
    let group: Arc<dyn ProcessGroup> = Arc::new(RankGroup::new(Arc::new(ThreadWire::connected(3).remove(0))));
    let training = TrainConfig { shards: Some(2), group: Some(group), ..TrainConfig::new(1, 60) };
    let (train, held) = data();
    let error = Device::get("cpu").unwrap().scope(|| fresh().fit(&training, &train, &held, &mut NoCallback));
    assert_eq!(error.unwrap_err().message(), "shards = 2 is less than the number of ranks or devices, 3");
    let training = TrainConfig { shards: Some(100), ..TrainConfig::new(1, 60) };
    let (train, held) = data();
    let error = Device::get("cpu").unwrap().scope(|| fresh().fit(&training, &train, &held, &mut NoCallback));
    assert_eq!(error.unwrap_err().message(), "shards = 100 is more than the number of examples in a batch, 60");
}

/// Batches with fewer examples than shards, and with an uneven number.
#[test]
fn remainders_are_trained_with_any_number_of_ranks() {
    // 450 examples: 112 batches of 4 and one of 2. Batch norm needs two rows, so the third shard of each has none.
    let training = TrainConfig { shards: Some(3), ..TrainConfig::new(1, 4) };
    let plain = |training: &TrainConfig, group, norm: bool| {
        Device::get("cpu").unwrap().scope(|| {
            let (train, held) = data();
            let mut rng = Rng::seed_from_u64(1);
            let model = Sequential::new().add(Linear::new(64, 10, &mut rng));
            let model = if norm { model.add(BatchNorm::new(10)) } else { model };
            let mut run = Trainer::new(model, AdamW::new(1e-2), rng);
            let training = TrainConfig { group, ..training.clone() };
            run.fit(&training, &train, &held, &mut NoCallback).unwrap();
            run
        })
    };
    let on = |ranks: usize, norm: bool| -> Vec<Run> {
        std::thread::scope(|threads| {
            let (plain, training) = (&plain, &training);
            let start = |wire: ThreadWire| {
                let group: Arc<dyn ProcessGroup> = Arc::new(RankGroup::new(Arc::new(wire)));
                threads.spawn(move || plain(training, Some(group), norm))
            };
            let threads: Vec<_> = ThreadWire::connected(ranks).into_iter().map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    };
    let [one, with_norm] = [false, true].map(|norm| plain(&training, None, norm));
    for ranks in [2, 3] {
        assert!(on(ranks, false).iter().all(|run| bits(run) == bits(&one)), "{ranks} ranks");
        assert!(on(ranks, true).iter().all(|run| bits(run) == bits(&with_norm)), "{ranks} ranks with batch norm");
    }
    // Without random numbers and batch norm, the shards make the steps of whole batches up to rounding.
    let whole = plain(&TrainConfig { shards: None, ..training.clone() }, None, false);
    let values = |run: &Run| -> Vec<f32> {
        run.model.named_parameters().iter().flat_map(|(_, param)| param.tensor().to_vec::<f32>().unwrap()).collect()
    };
    for (have, want) in values(&one).iter().zip(values(&whole)) {
        assert!((have - want).abs() < 1e-4, "{have}, one shard {want}");
    }
}

#[test]
fn run_resumes_with_the_same_bits_on_another_number_of_ranks() {
    let training = TrainConfig { shards: Some(4), accumulate_grad_batches: 2, ..TrainConfig::new(4, 60) };
    let whole = alone(&training, None);
    let folder = std::env::temp_dir().join(format!("panoply-shards-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("run.safetensors");
    on_ranks(2, &TrainConfig { epochs: 2, checkpoint_path: Some(file.clone()), ..training.clone() }, None);
    assert!(bits(&alone(&training, Some(&file))) == bits(&whole), "resumed on one");
    for ranks in [2, 4] {
        for run in on_ranks(ranks, &training, Some(&file)).0 {
            assert!(bits(&run) == bits(&whole), "resumed on {ranks}");
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A rank that is asked to stop between the batches of a step or after the last one stops all ranks after that step, and every number of
/// ranks continues from there.
#[test]
fn run_stopped_within_an_accumulated_step_resumes_with_the_same_bits() {
    // Batches of 60 of 450 examples: steps after batches 3, 6 and 8 of an epoch.
    let training = TrainConfig { shards: Some(4), accumulate_grad_batches: 3, ..TrainConfig::new(3, 60) };
    let whole = alone(&training, None);
    let folder = std::env::temp_dir().join(format!("panoply-stopped-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("run.safetensors");
    let with_file = TrainConfig { checkpoint_path: Some(file.clone()), ..training.clone() };
    let stop = |rank, epoch, batch| StopAt { rank, epoch, batch };
    // The rank that is asked, after which batch of which epoch, and the batches and steps that are done then. Batch 7 is within the last
    // step of an epoch, which has two batches. After batches 3 and 6 ranks have computed the next step before they learn that one stops;
    // after batch 8 none follows in the epoch.
    for (ranks, stop, batches, steps) in [
        (1, stop(0, 1, 1), 3, 1),
        (1, stop(0, 2, 6), 6, 5),
        (2, stop(1, 2, 4), 6, 5),
        (2, stop(0, 1, 3), 3, 1),
        (2, stop(1, 2, 8), 8, 6),
        (3, stop(2, 2, 5), 6, 5),
        (4, stop(3, 3, 6), 6, 8),
        (4, stop(0, 3, 7), 8, 9),
    ] {
        for run in on_ranks_until(ranks, &with_file, fresh, None, Some(stop)).0 {
            let done = (run.state.history.len() + 1, run.state.step, run.optimizer.steps);
            assert_eq!(done, (stop.epoch, batches, steps), "{ranks} ranks");
        }
        assert!(bits(&alone(&training, Some(&file))) == bits(&whole), "{ranks} ranks, resumed on one");
        for more in [1, 2, 4] {
            for run in on_ranks(more, &training, Some(&file)).0 {
                assert!(bits(&run) == bits(&whole), "{ranks} ranks, resumed on {more}");
            }
        }
    }
    // Stopped again in the run that was resumed, on another number of ranks each time.
    on_ranks_until(2, &with_file, fresh, None, Some(stop(0, 1, 2)));
    on_ranks_until(4, &with_file, fresh, Some(&file), Some(stop(3, 1, 4)));
    on_ranks_until(1, &with_file, fresh, Some(&file), Some(stop(0, 2, 8)));
    assert!(bits(&alone(&training, Some(&file))) == bits(&whole), "stopped three times");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn gradients_are_exchanged_once_for_each_step() {
    // Each gradient begins at a multiple of 64 bytes, which are 16 values; running statistics follow without gaps.
    let numbers = |run: &Run| -> u64 {
        let params = run.model.named_parameters();
        let numel = |param: &Param| param.tensor().shape().unwrap().numel() as u64;
        let (trained, statistics): (Vec<&Param>, Vec<&Param>) =
            params.iter().map(|(_, param)| param).partition(|param| param.requires_grad());
        let gradients = trained.into_iter().fold(0, |end: u64, param| end.next_multiple_of(16) + numel(param));
        gradients + statistics.into_iter().map(numel).sum::<u64>()
    };
    for (ranks, accumulate, shards) in
        [(2, 1, None), (2, 1, Some(4)), (2, 4, Some(4)), (2, 4, None), (4, 4, Some(4)), (4, 2, Some(8))]
    {
        // 8 batches in an epoch.
        let training = TrainConfig { shards, accumulate_grad_batches: accumulate, ..TrainConfig::new(2, 60) };
        let (runs, counters) = on_ranks(ranks, &training, None);
        let others = ranks as u64 - 1;
        let (epochs, batches, steps) = (2, 16, 16u64.div_ceil(accumulate as u64));
        assert_eq!(runs[0].optimizer.steps, steps);
        // Up and down the tree: gradients and running statistics, whether a rank stops, and the loss of each micro-batch.
        let gradients = 2 * others * 4 * (steps * (numbers(&runs[0]) + 1) + batches);
        // The size of messages once, and five figures of each evaluation.
        let agreed = others * 8 * (1 + epochs * 5);
        let sent = counters.bytes.load(Ordering::Relaxed);
        assert_eq!(sent, gradients + agreed, "{ranks} ranks, {accumulate} batches a step, {shards:?} shards");
        assert_eq!(counters.messages.load(Ordering::Relaxed), 2 * others * steps + others * (1 + epochs));
        // Ranks agree to go on with the gradients; after the last step of an epoch and after each epoch, in a sum of its own.
        assert_eq!(counters.sums.load(Ordering::Relaxed), ranks as u64 * 2 * epochs);
    }
}
