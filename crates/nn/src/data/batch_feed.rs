//! Transfer of examples to the device during training.
//!
//! If a quarter of the device's free memory holds all examples, they are copied once, and each step gathers its rows on the device. Only
//! the order is transferred then, four bytes per example. Otherwise a thread gathers the rows of the next batches on the host while the
//! device computes. Both produce the same batches. A [`DataLoader`] always produces its own batches and order.

use panoply_tensor::{Device, Error, Result, Rng, Tensor, eval};

use super::prefetch::Prefetcher;
use super::{Batch, Cuts, DataLoader, Dataset, Targets};

/// Number of batches that are prepared ahead of the current one.
const AHEAD: usize = 3;

/// Returns the bytes that the examples need on a device with this much free memory; 0 if they stay on the host.
pub(crate) fn resident_bytes(data: &Dataset, free: u64) -> u64 {
    let targets = match &data.targets {
        Targets::Classes { labels, .. } => labels.len(),
        Targets::Regression { values, .. } | Targets::MultiLabel { values, .. } => values.len(),
    };
    let times = data.seq_lengths.as_ref().map_or(0, Vec::len);
    let bytes = 4 * (data.features.len() + targets + times) as u64;
    if bytes <= free / 4 { bytes } else { 0 }
}

/// Source of training examples.
#[derive(Clone, Copy, Debug)]
pub enum TrainData<'a> {
    /// A data set, shuffled in each epoch by the run's random generator.
    Dataset(&'a Dataset),
    /// A data loader with its own transforms and order.
    Loader(&'a DataLoader),
}

impl<'a> From<&'a Dataset> for TrainData<'a> {
    fn from(data: &'a Dataset) -> TrainData<'a> {
        TrainData::Dataset(data)
    }
}

impl<'a> From<&'a DataLoader> for TrainData<'a> {
    fn from(loader: &'a DataLoader) -> TrainData<'a> {
        TrainData::Loader(loader)
    }
}

impl<'a> TrainData<'a> {
    /// Returns the examples without transforms.
    pub fn data(self) -> &'a Dataset {
        match self {
            TrainData::Dataset(data) => data,
            TrainData::Loader(loader) => loader.dataset(),
        }
    }
}

/// Source of batches for training or evaluation.
pub(crate) struct BatchFeed<'a> {
    data: &'a Dataset,
    loader: Option<&'a DataLoader>,
    resident: Option<Batch>,
}

impl<'a> BatchFeed<'a> {
    /// Creates a feed that keeps the examples on the host.
    pub fn on_host(data: &'a Dataset) -> BatchFeed<'a> {
        BatchFeed { data, loader: None, resident: None }
    }

    /// Creates a feed of batches of this size. The examples of a data set are copied to the device if they fit.
    pub fn of(supply: TrainData<'a>, batch: usize, free: Option<u64>) -> Result<BatchFeed<'a>> {
        match supply {
            TrainData::Dataset(data) => BatchFeed::new(data, free),
            TrainData::Loader(loader) if loader.batch_size() != batch => {
                let message =
                    format!("the loader's batch size is {}, that of the training {batch}", loader.batch_size());
                Err(Error::mistake(message)
                    .note("make both equal; `accumulate_grad_batches` combines several batches into one step"))
            }
            TrainData::Loader(loader) => Ok(BatchFeed { loader: Some(loader), ..BatchFeed::on_host(loader.dataset()) }),
        }
    }

    /// Returns the examples.
    pub fn data(&self) -> &'a Dataset {
        self.data
    }

    /// Creates a feed with the examples on the device if they fit into one buffer and a quarter of the free memory (of the total memory if
    /// the free memory is unknown). Otherwise they stay on the host.
    pub fn new(data: &'a Dataset, free: Option<u64>) -> Result<BatchFeed<'a>> {
        let device = Device::current()?;
        let bytes = resident_bytes(data, free.unwrap_or_else(|| device.memory().total));
        if bytes == 0 || bytes > device.target().max_seen_bytes() {
            return Ok(BatchFeed::on_host(data));
        }
        let all = data.full_batch();
        // Copied now, so that later queries of the free memory account for them.
        match eval(&all.tensors().collect::<Vec<&Tensor>>()) {
            Ok(()) => Ok(BatchFeed { data, loader: None, resident: Some(all) }),
            Err(error) if error.is_out_of_memory() => Ok(BatchFeed::on_host(data)),
            Err(error) => Err(error),
        }
    }

    /// Returns the order of the examples in an epoch, counted from 0.
    pub fn order(&self, epoch: u64, rng: &Rng) -> Vec<usize> {
        self.loader.map_or_else(|| self.data.order(&mut rng.clone()), |loader| loader.order(epoch))
    }

    /// Calls `step` with each batch of an epoch from number `first` on, until it returns false. Returns false if it did.
    pub fn each(
        &self,
        (epoch, first): (u64, usize),
        (order, size): (&[usize], usize),
        mut step: impl FnMut(Batch) -> Result<bool>,
    ) -> Result<bool> {
        if let Some(loader) = self.loader {
            for batch in loader.merged_epoch(epoch).skip_batches(first) {
                if !step(batch?)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let cuts = Cuts::new(order.len(), size);
        let Some(all) = &self.resident else { return self.over((order, cuts), first, step) };
        for part in (first..cuts.count()).map(|batch| &order[cuts.range(batch)]) {
            let places: Vec<i32> = part.iter().map(|place| *place as i32).collect();
            let places = Tensor::from_slice(&places, [places.len()]);
            places.check()?;
            if !step(all.map(|part| part.index_select(0, &places)))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns all examples in order, in batches of `size`.
    pub fn parts(&self, size: usize) -> impl Iterator<Item = Batch> + '_ {
        let (size, all) = (size.max(1), self.data.len());
        (0..all).step_by(size).map(move |start| {
            let count = size.min(all - start);
            match &self.resident {
                Some(all) => all.map(|part| part.narrow(0, start, count)),
                None => self.data.select(&(start..start + count).collect::<Vec<usize>>()).full_batch(),
            }
        })
    }

    /// [`BatchFeed::each`] with rows that a thread gathers on the host.
    fn over(
        &self,
        (order, cuts): (&[usize], Cuts),
        first: usize,
        mut step: impl FnMut(Batch) -> Result<bool>,
    ) -> Result<bool> {
        let ready = Prefetcher::new(first, cuts.count(), AHEAD);
        std::thread::scope(|scope| {
            // Stops the thread on every exit path.
            let _ending = ready.ending();
            scope.spawn(|| {
                ready.work(|at| self.data.select(&order[cuts.range(at)]));
            });
            while let Some(part) = ready.take() {
                let batch = part.full_batch();
                batch.check()?;
                if !step(batch)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }
}
