//! Examples on their way to the device.
//!
//! Where a quarter of its free memory holds all of them they go there once, and a step picks its rows on the device: after that
//! only the order crosses over, four bytes for an example. Otherwise a thread picks the rows of the next batches on the host
//! while the device works. Both give the same batches. What a loader makes of examples is the loader's own, order included.

use panoply_tensor::{Device, Error, Result, Rng, Tensor, eval};

use super::ahead::Ahead;
use super::{Cuts, Dataset, Examples, Loader, Targets};

/// Batches that are made ready or under way ahead of the one in use.
const AHEAD: usize = 3;

/// The bytes that examples take of a device with so many free ones; 0 if they stay on the host.
pub(crate) fn resident_bytes(data: &Dataset, free: u64) -> u64 {
    let targets = match &data.targets {
        Targets::Classes { labels, .. } => labels.len(),
        Targets::Numbers { values, .. } | Targets::Answers { values, .. } => values.len(),
    };
    let times = data.times.as_ref().map_or(0, Vec::len);
    let bytes = 4 * (data.features.len() + targets + times) as u64;
    if bytes <= free / 4 { bytes } else { 0 }
}

/// What is learned from.
#[derive(Clone, Copy, Debug)]
pub enum Supply<'a> {
    /// Examples as they are, each epoch in an order that the run's random numbers decide.
    Dataset(&'a Dataset),
    /// What a loader makes of examples, in its own order.
    Loader(&'a Loader),
}

impl<'a> From<&'a Dataset> for Supply<'a> {
    fn from(data: &'a Dataset) -> Supply<'a> {
        Supply::Dataset(data)
    }
}

impl<'a> From<&'a Loader> for Supply<'a> {
    fn from(loader: &'a Loader) -> Supply<'a> {
        Supply::Loader(loader)
    }
}

impl<'a> Supply<'a> {
    /// The examples before anything is made of them.
    pub fn data(self) -> &'a Dataset {
        match self {
            Supply::Dataset(data) => data,
            Supply::Loader(loader) => loader.data(),
        }
    }
}

/// Examples that steps take their batches from.
pub(crate) struct Feed<'a> {
    data: &'a Dataset,
    loader: Option<&'a Loader>,
    resident: Option<Examples>,
}

impl<'a> Feed<'a> {
    /// Examples that stay on the host.
    pub fn on_host(data: &'a Dataset) -> Feed<'a> {
        Feed { data, loader: None, resident: None }
    }

    /// What gives batches of this size, from the device where the examples go there as they are.
    pub fn of(supply: Supply<'a>, batch: usize, free: Option<u64>) -> Result<Feed<'a>> {
        match supply {
            Supply::Dataset(data) => Feed::new(data, free),
            Supply::Loader(loader) if loader.batch() != batch => {
                let message =
                    format!("the loader's batches are of {}, those of the training of {batch}", loader.batch());
                Err(Error::mistake(message).note("make both the same; `accumulate` makes steps of several batches"))
            }
            Supply::Loader(loader) => Ok(Feed { loader: Some(loader), ..Feed::on_host(loader.data()) }),
        }
    }

    /// The examples.
    pub fn data(&self) -> &'a Dataset {
        self.data
    }

    /// On the device, if they fit into one of its buffers and a quarter of these free bytes, of all its bytes if nobody knows how
    /// many are free.
    pub fn new(data: &'a Dataset, free: Option<u64>) -> Result<Feed<'a>> {
        let device = Device::current()?;
        let bytes = resident_bytes(data, free.unwrap_or_else(|| device.memory().total));
        if bytes == 0 || bytes > device.target().max_seen_bytes() {
            return Ok(Feed::on_host(data));
        }
        let all = data.examples();
        // They go there now, so that whoever asks next what is free knows.
        match eval(&all.tensors().collect::<Vec<&Tensor>>()) {
            Ok(()) => Ok(Feed { data, loader: None, resident: Some(all) }),
            Err(error) if error.is_out_of_memory() => Ok(Feed::on_host(data)),
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
        mut step: impl FnMut(Examples) -> Result<bool>,
    ) -> Result<bool> {
        if let Some(loader) = self.loader {
            for batch in loader.merged_epoch(epoch).from(first) {
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
    pub fn parts(&self, size: usize) -> impl Iterator<Item = Examples> + '_ {
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
        mut step: impl FnMut(Examples) -> Result<bool>,
    ) -> Result<bool> {
        let ready = Ahead::new(first, cuts.count(), AHEAD);
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
