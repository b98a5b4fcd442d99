//! Multi-threaded data loading with shuffling and random transforms; the results do not depend on the threads.
//!
//! A batch is determined by the loader's seed, the epoch and the number of the batch, so these two numbers are sufficient to resume.
//! Tensors are created on the thread that takes the batches, on its current device.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use panoply_tensor::{Error, Result, Rng};

use super::prefetch::Prefetcher;
use super::{Batch, Cuts, Dataset};

/// Maximum number of threads; more do not increase the speed.
const MAX_THREADS: usize = 64;

/// An example that a transform can change.
#[derive(Debug)]
pub struct ExampleMut<'a> {
    /// Position in the data set, counted from 0.
    pub index: usize,
    /// Features of the example.
    pub features: &'a mut [f32],
    /// Shape of the example.
    pub shape: &'a [usize],
}

type Transform = dyn Fn(&mut ExampleMut<'_>, &mut Rng) -> Result<()> + Send + Sync;

/// Loader of the batches of a data set, epoch by epoch.
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
    /// Creates a loader of batches in the order of the data set, with one thread. The last batch can be smaller.
    pub fn new(dataset: impl Into<Arc<Dataset>>, batch_size: usize) -> DataLoader {
        let (dataset, batch_size) = (dataset.into(), batch_size.max(1));
        DataLoader { data: dataset, batch: batch_size, threads: 1, seed: 0, shuffled: false, transforms: Vec::new() }
    }

    /// Shuffles each epoch differently. The seed determines the order and the random numbers of transforms.
    #[must_use]
    pub fn shuffle(mut self, seed: u64) -> DataLoader {
        (self.seed, self.shuffled) = (seed, true);
        self
    }

    /// Sets the number of threads, at most 64, each of which prepares batches ahead. With 0, a batch is made when it is requested.
    #[must_use]
    pub fn num_workers(mut self, threads: usize) -> DataLoader {
        self.threads = threads.min(MAX_THREADS);
        self
    }

    /// Adds a transform of each example, after those already added. Its random generator depends on the epoch and the example. An error or
    /// a panic becomes the error of the batch and names the example.
    #[must_use]
    pub fn map(
        mut self,
        transform: impl Fn(&mut ExampleMut<'_>, &mut Rng) -> Result<()> + Send + Sync + 'static,
    ) -> DataLoader {
        self.transforms.push(Arc::new(transform));
        self
    }

    /// Returns the data set without transforms.
    pub fn dataset(&self) -> &Dataset {
        &self.data
    }

    /// Returns the batch size.
    pub fn batch_size(&self) -> usize {
        self.batch
    }

    /// Returns the number of batches in an epoch.
    pub fn num_batches(&self) -> usize {
        self.data.len().div_ceil(self.batch)
    }

    /// Returns the batches of an epoch.
    pub fn epoch(&self, epoch: u64) -> DataLoaderIter {
        self.cut_epoch(epoch, None)
    }

    /// Returns the batches of an epoch with the division of [`crate::Trainer::fit`].
    pub(super) fn merged_epoch(&self, epoch: u64) -> DataLoaderIter {
        self.cut_epoch(epoch, Some(Cuts::new(self.data.len(), self.batch)))
    }

    fn cut_epoch(&self, epoch: u64, cuts: Option<Cuts>) -> DataLoaderIter {
        let (order, rng) = self.drawn(epoch);
        DataLoaderIter { work: Arc::new(EpochPlan { loader: self.clone(), rng, order, cuts }), step: 0, running: None }
    }

    /// Returns the order of the examples in an epoch.
    pub(super) fn order(&self, epoch: u64) -> Vec<usize> {
        self.drawn(epoch).0
    }

    /// Returns the order of the examples in an epoch, and the generator for its transforms.
    fn drawn(&self, epoch: u64) -> (Vec<usize>, Rng) {
        let mut rng = forked(&Rng::seed_from_u64(self.seed), epoch);
        let order = match self.shuffled {
            true => rng.permutation(self.data.len()),
            false => (0..self.data.len()).collect(),
        };
        (order, rng)
    }
}

/// Returns the generator of the fork with this number.
fn forked(rng: &Rng, number: u64) -> Rng {
    let mut rng = rng.clone();
    rng.forks = number;
    rng.fork()
}

/// All that determines the batches of an epoch.
struct EpochPlan {
    loader: DataLoader,
    rng: Rng,
    order: Vec<usize>,
    /// Division of the order into batches, if other than by the batch size alone.
    cuts: Option<Cuts>,
}

impl EpochPlan {
    /// Returns the number of batches.
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

/// Applies a transform to an example; errors and panics name the example.
fn changed(transform: &Transform, record: &mut ExampleMut<'_>, rng: &mut Rng) -> Result<()> {
    let at = record.index;
    match catch_unwind(AssertUnwindSafe(|| transform(record, rng))) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            let named = Error::new(error.kind(), format!("example {at}: {}", error.message()));
            Err(error.notes().iter().fold(named, |named, note| named.note(note)).with_source(error))
        }
        Err(panic) => Err(Error::mistake(format!("example {at}: its transform panicked: {}", panic_message(&*panic)))),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

/// Iterator over the batches of an epoch. Its threads start with the first batch and stop when it is dropped.
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
    /// Skips to this batch, counted from 0.
    #[must_use]
    pub fn skip_batches(mut self, step: usize) -> DataLoaderIter {
        (self.step, self.running) = (step.min(self.work.batches()), None);
        self
    }

    /// Returns the number of the next batch, counted from 0, at which to resume.
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
                // The iterator ends after this error.
                self.step = self.work.batches() - 1;
                Err(running.broken())
            }),
        };
        self.step += 1;
        Some(made.and_then(|part| {
            let batch = part.full_batch();
            batch.check().map(|()| batch)
        }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.work.batches() - self.step;
        (left, Some(left))
    }
}

impl ExactSizeIterator for DataLoaderIter {}

/// Running threads.
struct Workers {
    ahead: Arc<Prefetcher<Result<Dataset>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts up to `threads` threads, fewer if the system does not provide them.
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

    /// Returns the panic of a thread as an error.
    fn broken(&mut self) -> Error {
        self.ahead.end();
        let ends = self.threads.drain(..).map(JoinHandle::join).collect::<Vec<_>>();
        let panic = ends.iter().find_map(|end| end.as_ref().err());
        let word = panic.map_or("without a message", |panic| panic_message(&**panic));
        Error::mistake(format!("a data loading thread panicked: {word}"))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.ahead.end();
        for thread in self.threads.drain(..) {
            // A panic was already reported by the iterator.
            let _ = thread.join();
        }
    }
}
