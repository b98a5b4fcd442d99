//! Examples on their way to the device.
//!
//! Where a quarter of its free memory holds all of them they go there once, and a step picks its rows on the device: after that
//! only the order crosses over, four bytes for an example. Otherwise a thread picks the rows of the next batches on the host
//! while the device works. Both give the same batches.

use panoply_tensor::{Device, Result, Tensor, eval};

use super::ahead::Ahead;
use super::{Dataset, Examples, Targets};

/// Batches that are made ready or under way ahead of the one in use.
const AHEAD: usize = 3;

/// The bytes that examples take of a device with so many free ones; 0 if they stay on the host.
pub(crate) fn resident_bytes(data: &Dataset, free: u64) -> u64 {
    let targets = match &data.targets {
        Targets::Classes { labels, .. } => labels.len(),
        Targets::Numbers { values, .. } => values.len(),
    };
    let times = data.times.as_ref().map_or(0, Vec::len);
    let bytes = 4 * (data.features.len() + targets + times) as u64;
    if bytes <= free / 4 { bytes } else { 0 }
}

/// Examples that steps take their batches from.
pub(crate) struct Feed<'a> {
    data: &'a Dataset,
    resident: Option<Examples>,
}

impl<'a> Feed<'a> {
    /// Examples that stay on the host.
    pub fn on_host(data: &'a Dataset) -> Feed<'a> {
        Feed { data, resident: None }
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
        if bytes == 0 || bytes > device.target().max_buffer_bytes {
            return Ok(Feed::on_host(data));
        }
        let all = data.examples();
        // They go there now, so that whoever asks next what is free knows.
        match eval(&all.tensors().collect::<Vec<&Tensor>>()) {
            Ok(()) => Ok(Feed { data, resident: Some(all) }),
            Err(error) if error.is_out_of_memory() => Ok(Feed::on_host(data)),
            Err(error) => Err(error),
        }
    }

    /// Calls `step` with each batch of these positions, until it says to stop. Whether it never did.
    pub fn each(&self, order: &[usize], size: usize, mut step: impl FnMut(Examples) -> Result<bool>) -> Result<bool> {
        let Some(all) = &self.resident else { return self.over(order, size, step) };
        for part in order.chunks(size.max(1)) {
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
    fn over(&self, order: &[usize], size: usize, mut step: impl FnMut(Examples) -> Result<bool>) -> Result<bool> {
        let size = size.max(1);
        let ready = Ahead::new(0, order.len().div_ceil(size), AHEAD);
        std::thread::scope(|scope| {
            // However this ends, nobody takes any more.
            let _ending = ready.ending();
            scope.spawn(|| {
                ready.work(|at| self.data.select(&order[at * size..((at + 1) * size).min(order.len())]));
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
