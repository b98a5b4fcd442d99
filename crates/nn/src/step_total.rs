//! Sums of a step over all shards, and their places in the vector that processes exchange.

use std::ops::Range;
use std::sync::Arc;

use panoply_tensor::{AlignedBuffer, DType, Device, HostBytes, Result, Shape, Storage, Tensor};

use crate::layer::StateUpdate;

/// Number of values whose multiples are the places of gradients: 64 bytes, at which devices of the host use memory in place.
const ALIGN: usize = 16;

/// Values of one shard, summed over the micro-batches of a step.
#[derive(Debug)]
pub(crate) struct ShardValues {
    /// Loss of each micro-batch, `[1]`, weighted by the shard's share of the micro-batch.
    pub losses: Vec<Tensor>,
    pub gradients: Vec<Tensor>,
    pub updates: Vec<StateUpdate>,
    /// Weight of the shard in the last micro-batch.
    pub weight: f64,
}

/// Places of the values of a step in a vector: gradients at multiples of 64 bytes, then the losses of the micro-batches, the float
/// buffers, and a number that is positive if a process was asked to stop before the step, without gaps.
pub(crate) struct StepPlaces {
    gradients: Vec<(Range<usize>, Shape, DType)>,
    losses: Range<usize>,
    buffers: Vec<Range<usize>>,
    stop: usize,
    updates: Vec<StateUpdate>,
}

/// Sums of a step over all shards.
pub(crate) struct StepTotal {
    pub gradients: Vec<Tensor>,
    /// Loss of each micro-batch.
    pub losses: Vec<f32>,
    /// Updates of buffers; float ones are means over the shards.
    pub updates: Vec<StateUpdate>,
    /// True if a process was asked to stop before the step.
    pub stops: bool,
    /// Memory that gradients can use in place.
    pub memory: Arc<HostBytes>,
}

impl ShardValues {
    /// Returns the new values of float buffers.
    pub fn buffers(&self) -> impl Iterator<Item = &Tensor> {
        self.updates.iter().map(|update| &update.next).filter(|next| next.dtype().is_float())
    }
}

impl StepPlaces {
    /// Returns the places of values with these shapes.
    ///
    /// # Errors
    /// If a tensor carries a mistake.
    pub fn of(values: &ShardValues) -> Result<StepPlaces> {
        let mut end = 0usize;
        let gradients = values.gradients.iter().map(|gradient| {
            let shape = gradient.shape()?.clone();
            let start = end.next_multiple_of(ALIGN);
            end = start + shape.numel();
            Ok((start..end, shape, gradient.dtype()))
        });
        let gradients = gradients.collect::<Result<Vec<_>>>()?;
        let losses = end..end + values.losses.len();
        end = losses.end;
        let buffers = values.buffers().map(|next| {
            let start = end;
            end += next.shape()?.numel();
            Ok(start..end)
        });
        let buffers = buffers.collect::<Result<Vec<_>>>()?;
        Ok(StepPlaces { gradients, losses, buffers, stop: end, updates: values.updates.clone() })
    }

    /// Copies the values of a shard, its buffers weighted by the shard, to their places. `stops` is true if the process was asked to stop.
    ///
    /// # Errors
    /// If a value cannot be computed or read.
    pub fn copy(&self, values: &ShardValues, stops: bool, to: &mut AlignedBuffer) -> Result<()> {
        to.resize(self.stop + 1);
        let copy = |tensor: &Tensor, to: &mut [f32]| tensor.cast(DType::F32).copy_to_slice(to);
        let mut end = 0;
        for ((place, ..), gradient) in self.gradients.iter().zip(&values.gradients) {
            to[end..place.start].fill(0.0);
            copy(gradient, &mut to[place.clone()])?;
            end = place.end;
        }
        for (place, loss) in self.losses.clone().zip(&values.losses) {
            copy(loss, &mut to[place..=place])?;
        }
        for (place, next) in self.buffers.iter().zip(values.buffers()) {
            copy(next, &mut to[place.clone()])?;
            to[place.clone()].iter_mut().for_each(|value| *value *= values.weight as f32);
        }
        to[self.stop] = f32::from(u8::from(stops));
        Ok(())
    }

    /// Returns the sums in a vector as tensors. The gradients use its memory in place if the device can.
    ///
    /// # Errors
    /// The device is unusable.
    pub fn into_total(self, device: &Device, sums: AlignedBuffer) -> Result<StepTotal> {
        let (losses, stops) = (sums[self.losses].to_vec(), sums[self.stop] > 0.0);
        let mut updates = self.updates;
        let floats = updates.iter_mut().filter(|update| update.next.dtype().is_float());
        for (update, place) in floats.zip(self.buffers) {
            // A model keeps its buffers, so that they have their own memory.
            let shape = update.next.shape()?.clone();
            update.next = Tensor::from_slice_on(device, &sums[place], shape).cast(update.next.dtype());
        }
        let memory = Arc::new(HostBytes::from(sums));
        let whole = device.adopt(&memory)?;
        let gradients = self.gradients.into_iter().map(|(place, shape, dtype)| {
            let bytes = place.start * size_of::<f32>()..place.end * size_of::<f32>();
            let sum = match &whole {
                Some(whole) if !bytes.is_empty() => in_place(whole, bytes, shape)?,
                _ => Tensor::from_slice_on(device, bytemuck::cast_slice::<u8, f32>(&memory.as_slice()[bytes]), shape),
            };
            Ok(sum.cast(dtype))
        });
        let gradients = gradients.collect::<Result<Vec<Tensor>>>()?;
        Ok(StepTotal { gradients, losses, updates, stops, memory })
    }
}

/// Returns a tensor over bytes of a storage.
fn in_place(whole: &Storage, bytes: Range<usize>, shape: Shape) -> Result<Tensor> {
    Ok(Tensor::from_storage(whole.slice(bytes.start as u64..bytes.end as u64)?, shape, DType::F32))
}
