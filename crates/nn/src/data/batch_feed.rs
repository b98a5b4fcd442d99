//! Examples on their way to the device.
//!
//! Where a quarter of its free memory holds all of them they go there once, and a step picks its rows on the device: after that
//! only the order crosses over, four bytes for an example. Otherwise a thread picks the rows of the next batches on the host
//! while the device works. Both give the same batches. What a loader makes of examples is the loader's own, order included.

use panoply_tensor::{Device, Error, Result, Rng, Tensor, eval};

use super::prefetch::Prefetcher;
use super::{Batch, Cuts, DataLoader, Dataset, Targets};

/// Batches that are made ready or under way ahead of the one in use.
const AHEAD: usize = 3;

/// The bytes that examples take of a device with so many free ones; 0 if they stay on the host.
pub(crate) fn resident_bytes(data: &Dataset, free: u64) -> u64 {
    let targets = match &data.targets {
        Targets::Classes { labels, .. } => labels.len(),
        Targets::Regression { values, .. } | Targets::MultiLabel { values, .. } => values.len(),
    };
    let times = data.seq_lengths.as_ref().map_or(0, Vec::len);
    let bytes = 4 * (data.features.len() + targets + times) as u64;
    if bytes <= free / 4 { bytes } else { 0 }
}

/// What is learned from.
#[derive(Clone, Copy, Debug)]
pub enum TrainData<'a> {
    /// Examples as they are, each epoch in an order that the run's random numbers decide.
    Dataset(&'a Dataset),
    /// What a loader makes of examples, in its own order.
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
    /// The examples before anything is made of them.
    pub fn data(self) -> &'a Dataset {
        match self {
            TrainData::Dataset(data) => data,
            TrainData::Loader(loader) => loader.dataset(),
        }
    }
}

/// Examples that steps take their batches from.
pub(crate) struct BatchFeed<'a> {
    data: &'a Dataset,
    loader: Option<&'a DataLoader>,
    resident: Option<Batch>,
}

impl<'a> BatchFeed<'a> {
    /// Examples that stay on the host.
    pub fn on_host(data: &'a Dataset) -> BatchFeed<'a> {
        BatchFeed { data, loader: None, resident: None }
    }

    /// What gives batches of this size, from the device where the examples go there as they are.
    pub fn of(supply: TrainData<'a>, batch: usize, free: Option<u64>) -> Result<BatchFeed<'a>> {
        match supply {
            TrainData::Dataset(data) => BatchFeed::new(data, free),
            TrainData::Loader(loader) if loader.batch_size() != batch => {
                let message =
                    format!("the loader's batches are of {}, those of the training of {batch}", loader.batch_size());
                Err(Error::mistake(message)
                    .note("make both the same; `accumulate_grad_batches` makes steps of several batches"))
            }
            TrainData::Loader(loader) => Ok(BatchFeed { loader: Some(loader), ..BatchFeed::on_host(loader.dataset()) }),
        }
    }

    /// The examples.
    pub fn data(&self) -> &'a Dataset {
        self.data
    }

    /// On the device, if they fit into one of its buffers and a quarter of these free bytes, of all its bytes if nobody knows how
    /// many are free.
    pub fn new(data: &'a Dataset, free: Option<u64>) -> Result<BatchFeed<'a>> {
        let device = Device::current()?;
        let bytes = resident_bytes(data, free.unwrap_or_else(|| device.memory().total));
        if bytes == 0 || bytes > device.target().max_seen_bytes() {
            return Ok(BatchFeed::on_host(data));
        }
        let all = data.examples();
        // They go there now, so that whoever asks next what is free knows.
        match eval(&all.tensors().collect::<Vec<&Tensor>>()) {
            Ok(()) => Ok(BatchFeed { data, loader: None, resident: Some(all) }),
            Err(error) if error.is_out_of_memory() => Ok(BatchFeed::on_host(data)),
            Err(error) => Err(error),
        }
    }

    /// The order of the examples in an epoch, counted from 0.
    pub fn order(&self, epoch: u64, rng: &Rng) -> Vec<usize> {
        self.loader.map_or_else(|| self.data.order(&mut rng.clone()), |loader| loader.order(epoch))
    }

    /// Calls `step` with each batch of an epoch in its order, from one of them on, until it says to stop. Whether it never did.
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

    /// All examples in order, so many at a time.
    pub fn parts(&self, size: usize) -> impl Iterator<Item = Batch> + '_ {
        let (size, all) = (size.max(1), self.data.len());
        (0..all).step_by(size).map(move |start| {
            let count = size.min(all - start);
            match &self.resident {
                Some(all) => all.map(|part| part.narrow(0, start, count)),
                None => self.data.select(&(start..start + count).collect::<Vec<usize>>()).examples(),
            }
        })
    }

    /// The same from the host.
    fn over(
        &self,
        (order, cuts): (&[usize], Cuts),
        first: usize,
        mut step: impl FnMut(Batch) -> Result<bool>,
    ) -> Result<bool> {
        let ready = Prefetcher::new(first, cuts.count(), AHEAD);
        std::thread::scope(|scope| {
            // However this ends, nobody takes any more.
            let _ending = ready.ending();
            scope.spawn(|| {
                ready.work(|at| self.data.select(&order[cuts.range(at)]));
            });
            while let Some(part) = ready.take() {
                let batch = part.examples();
                batch.check()?;
                if !step(batch)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }
}
