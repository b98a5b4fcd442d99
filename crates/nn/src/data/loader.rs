//! Batches of a data set, made ready by threads: shuffled, changed at random, and the same whatever the threads do.
//!
//! All that decides a batch is the loader's seed and two numbers, the epoch and the batch in it: where a program stood is no more
//! than those. Tensors are made where the batches are asked for, on that thread's device.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use panoply_tensor::{Error, Result, Rng};

use super::prefetch::Prefetcher;
use super::{Batch, Cuts, Dataset};

/// More threads than this make nothing faster.
const MOST_THREADS: usize = 64;

/// An example that a transform may change.
#[derive(Debug)]
pub struct ExampleMut<'a> {
    /// Its place in the data set, counted from 0.
    pub index: usize,
    /// Its numbers.
    pub features: &'a mut [f32],
    /// Lengths of its axes.
    pub shape: &'a [usize],
}

type Transform = dyn Fn(&mut ExampleMut<'_>, &mut Rng) -> Result<()> + Send + Sync;

/// Batches of a data set, epoch after epoch.
///
/// ```
/// # use panoply_nn::data::{DataLoader, digits};
/// # panoply_tensor::Device::get("cpu")?.scope(|| {
/// let loader = DataLoader::new(digits::load()?, 64).shuffle(7).num_workers(2).map(|digit, rng| {
///     let by = rng.random_below(3) as f32 / 100.0;
///     digit.features.iter_mut().for_each(|point| *point += by);
///     Ok(())
/// });
/// for batch in loader.epoch(0).skip_batches(3) {
///     let batch = batch?;
///     assert_eq!(batch.inputs.shape()?.dims()[1], 64);
/// }
/// # Ok::<(), panoply_tensor::Error>(())
/// # })?;
/// # Ok::<(), panoply_tensor::Error>(())
/// ```
#[derive(Clone)]
pub struct DataLoader {
    data: Arc<Dataset>,
    batch: usize,
    threads: usize,
    seed: u64,
    shuffled: bool,
    transforms: Vec<Arc<Transform>>,
}

impl fmt::Debug for DataLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DataLoader { data, batch, threads, seed, shuffled, transforms } = self;
        let (examples, transforms) = (data.len(), transforms.len());
        write!(f, "DataLoader({examples} examples by {batch}, {threads} threads, seed {seed}, ")?;
        write!(f, "shuffled {shuffled}, {transforms} transforms)")
    }
}

impl DataLoader {
    /// Batches of so many examples in their order, the last of which may be shorter, made ready by one thread.
    pub fn new(data: impl Into<Arc<Dataset>>, batch: usize) -> DataLoader {
        let (data, batch) = (data.into(), batch.max(1));
        DataLoader { data, batch, threads: 1, seed: 0, shuffled: false, transforms: Vec::new() }
    }

    /// Each epoch in an order of its own, which the seed decides, as it does what transforms draw.
    #[must_use]
    pub fn shuffle(mut self, seed: u64) -> DataLoader {
        (self.seed, self.shuffled) = (seed, true);
        self
    }

    /// So many threads, at most 64, each of which is one batch ahead; without any a batch is made when it is asked for.
    #[must_use]
    pub fn num_workers(mut self, threads: usize) -> DataLoader {
        self.threads = threads.min(MOST_THREADS);
        self
    }

    /// With examples changed after what changes them already. The random numbers are the example's own in this epoch. An error or a
    /// panic is the batch's, and names the example.
    #[must_use]
    pub fn map(
        mut self,
        transform: impl Fn(&mut ExampleMut<'_>, &mut Rng) -> Result<()> + Send + Sync + 'static,
    ) -> DataLoader {
        self.transforms.push(Arc::new(transform));
        self
    }

    /// The examples, unchanged.
    pub fn dataset(&self) -> &Dataset {
        &self.data
    }

    /// Examples of a batch.
    pub fn batch_size(&self) -> usize {
        self.batch
    }

    /// Batches of an epoch.
    pub fn num_batches(&self) -> usize {
        self.data.len().div_ceil(self.batch)
    }

    /// The batches of an epoch from the first one on.
    pub fn epoch(&self, epoch: u64) -> DataLoaderIter {
        self.cut_epoch(epoch, None)
    }

    /// The batches of an epoch as [`crate::Trainer::fit`] takes them.
    pub(super) fn merged_epoch(&self, epoch: u64) -> DataLoaderIter {
        self.cut_epoch(epoch, Some(Cuts::new(self.data.len(), self.batch)))
    }

    fn cut_epoch(&self, epoch: u64, cuts: Option<Cuts>) -> DataLoaderIter {
        let (order, rng) = self.drawn(epoch);
        DataLoaderIter { work: Arc::new(EpochPlan { loader: self.clone(), rng, order, cuts }), step: 0, running: None }
    }

    /// The order of an epoch.
    pub(super) fn order(&self, epoch: u64) -> Vec<usize> {
        self.drawn(epoch).0
    }

    /// The order of an epoch, and the random numbers that follow.
    fn drawn(&self, epoch: u64) -> (Vec<usize>, Rng) {
        let mut rng = forked(&Rng::seed_from_u64(self.seed), epoch);
        let order = match self.shuffled {
            true => rng.permutation(self.data.len()),
            false => (0..self.data.len()).collect(),
        };
        (order, rng)
    }
}

/// The generator of the fork with this number.
fn forked(rng: &Rng, number: u64) -> Rng {
    let mut rng = rng.clone();
    rng.forks = number;
    rng.fork()
}

/// What decides the batches of an epoch.
struct EpochPlan {
    loader: DataLoader,
    rng: Rng,
    order: Vec<usize>,
    /// How the order is cut if not into batches of the loader's size alone.
    cuts: Option<Cuts>,
}

impl EpochPlan {
    /// Batches of the epoch.
    fn batches(&self) -> usize {
        self.cuts.map_or_else(|| self.loader.num_batches(), Cuts::count)
    }

    fn make(&self, step: usize) -> Result<Dataset> {
        let DataLoader { data, batch, transforms, .. } = &self.loader;
        let plain = step * batch..((step + 1) * batch).min(self.order.len());
        let positions = &self.order[self.cuts.map_or(plain, |cuts| cuts.range(step))];
        let mut part = data.select(positions);
        for (features, at) in part.features.chunks_exact_mut(data.num_features).zip(positions) {
            let mut rng = forked(&self.rng, *at as u64);
            let mut record = ExampleMut { index: *at, features, shape: &data.example_shape };
            transforms.iter().try_for_each(|transform| changed(&**transform, &mut record, &mut rng))?;
        }
        Ok(part)
    }
}

/// What a transform makes of an example; whatever goes wrong names it.
fn changed(transform: &Transform, record: &mut ExampleMut<'_>, rng: &mut Rng) -> Result<()> {
    let at = record.index;
    match catch_unwind(AssertUnwindSafe(|| transform(record, rng))) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            let named = Error::new(error.kind(), format!("example {at}: {}", error.message()));
            Err(error.notes().iter().fold(named, |named, note| named.note(note)).with_source(error))
        }
        Err(panic) => Err(Error::mistake(format!("example {at}: its transform panicked: {}", said(&*panic)))),
    }
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

/// The batches of an epoch that are left. Threads begin with the first that is asked for and end with this.
pub struct DataLoaderIter {
    work: Arc<EpochPlan>,
    step: usize,
    running: Option<Workers>,
}

impl fmt::Debug for DataLoaderIter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Loading(batch {} of {:?})", self.step, self.work.loader)
    }
}

impl DataLoaderIter {
    /// From this batch on, counted from 0, as if those before had been taken.
    #[must_use]
    pub fn skip_batches(mut self, step: usize) -> DataLoaderIter {
        (self.step, self.running) = (step.min(self.work.batches()), None);
        self
    }

    /// The batch that comes next, counted from 0: where to go on.
    pub fn batch_index(&self) -> usize {
        self.step
    }
}

impl Iterator for DataLoaderIter {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        let DataLoader { threads, .. } = self.work.loader;
        if self.step >= self.work.batches() {
            return None;
        }
        let running = self.running.get_or_insert_with(|| Workers::begin(&self.work, self.step, threads));
        let made = match running.threads.is_empty() {
            true => self.work.make(self.step),
            false => running.ahead.take().unwrap_or_else(|| {
                // No batch comes after this.
                self.step = self.work.batches() - 1;
                Err(running.broken())
            }),
        };
        self.step += 1;
        Some(made.and_then(|part| {
            let batch = part.examples();
            batch.check().map(|()| batch)
        }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.work.batches() - self.step;
        (left, Some(left))
    }
}

impl ExactSizeIterator for DataLoaderIter {}

/// Threads under way.
struct Workers {
    ahead: Arc<Prefetcher<Result<Dataset>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// As many threads as the system gives, none where it has none.
    fn begin(work: &Arc<EpochPlan>, step: usize, threads: usize) -> Workers {
        let ahead = Arc::new(Prefetcher::new(step, work.batches(), 2 * threads));
        let begun = (0..threads).map_while(|_| {
            let (ahead, work) = (ahead.clone(), work.clone());
            let named = Builder::new().name("panoply-loader".to_string());
            named.spawn(move || ahead.work(|step| work.make(step))).ok()
        });
        let threads = begun.collect();
        Workers { ahead, threads }
    }

    /// What made a thread panic.
    fn broken(&mut self) -> Error {
        self.ahead.end();
        let ends = self.threads.drain(..).map(JoinHandle::join).collect::<Vec<_>>();
        let panic = ends.iter().find_map(|end| end.as_ref().err());
        let word = panic.map_or("without a word", |panic| said(&**panic));
        Error::mistake(format!("a thread that makes batches ready panicked: {word}"))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.ahead.end();
        for thread in self.threads.drain(..) {
            // Whoever asked for the batch was told.
            let _ = thread.join();
        }
    }
}
