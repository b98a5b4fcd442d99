//! Sums of a step over all shards, and the places of its values in the vectors that processes exchange.

use std::ops::Range;
use std::sync::Arc;

use panoply_tensor::{AlignedBuffer, DType, Device, HostBytes, Result, Shape, Storage, Tensor, eval};

use crate::layer::StateUpdate;

/// Number of values whose multiples are the places of gradients: 64 bytes, at which devices of the host use memory in place.
const ALIGN: usize = 16;

/// Number of parts into which a step is divided at most, but for one: each is submitted to the device separately.
const MAX_PARTS: usize = 32;

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

impl ShardValues {
    /// Computes the values.
    ///
    /// # Errors
    /// A mistake in an expression, or a failure of the device.
    pub fn evaluate(&mut self) -> Result<()> {
        eval(&self.tensors(0..self.gradients.len(), true))?;
        self.losses.iter_mut().chain(&mut self.gradients).for_each(|tensor| *tensor = tensor.detach());
        detach_updates(&mut self.updates);
        Ok(())
    }

    /// Returns some gradients, those of the last layers first, after all other values if `with_others` is true. The parts of a step one after
    /// the other are all values in this order, so that all shards have one plan.
    fn tensors(&self, gradients: Range<usize>, with_others: bool) -> Vec<&Tensor> {
        let others = self.losses.iter().chain(self.updates.iter().map(|update| &update.next));
        others.filter(|_| with_others).chain(self.gradients[gradients].iter().rev()).collect()
    }

    /// Returns the new values of float buffers.
    fn buffers(&self) -> impl Iterator<Item = &Tensor> {
        self.updates.iter().map(|update| &update.next).filter(|next| next.dtype().is_float())
    }
}

fn detach_updates(updates: &mut [StateUpdate]) {
    updates.iter_mut().for_each(|update| update.next = update.next.detach());
}

/// Places of the values of a step in vectors, one for each part. The first part has the last gradients, which backpropagation computes first,
/// then the losses of the micro-batches, the float buffers, and a number that is positive if a process was asked to stop before the step.
pub(crate) struct StepPlaces {
    parts: Vec<PartPlaces>,
    losses: Range<usize>,
    buffers: Vec<Range<usize>>,
    stop: usize,
    updates: Vec<StateUpdate>,
}

/// Places of consecutive gradients in the vector of a part.
struct PartPlaces {
    /// Number of the first gradient.
    first: usize,
    /// Places at multiples of 64 bytes, with the shapes and types of the gradients.
    gradients: Vec<(Range<usize>, Shape, DType)>,
}

impl PartPlaces {
    fn new(first: usize, gradients: &[Tensor]) -> Result<PartPlaces> {
        let mut end = 0usize;
        let gradients = gradients.iter().map(|gradient| {
            let shape = gradient.shape()?.clone();
            let start = end.next_multiple_of(ALIGN);
            end = start + shape.numel();
            Ok((start..end, shape, gradient.dtype()))
        });
        Ok(PartPlaces { first, gradients: gradients.collect::<Result<_>>()? })
    }

    /// Returns the number of values of the gradients with the gaps between them.
    fn len(&self) -> usize {
        self.gradients.last().map_or(0, |(place, ..)| place.end)
    }

    fn numbers(&self) -> Range<usize> {
        self.first..self.first + self.gradients.len()
    }
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
    /// Memory of each part that gradients can use in place.
    pub memory: Vec<Arc<HostBytes>>,
}

impl StepPlaces {
    /// Returns the places of values with these shapes. Each part but the last has at least `smallest_part` values, and more if there would be
    /// more than about [`MAX_PARTS`] parts.
    ///
    /// # Errors
    /// If a tensor carries a mistake.
    pub fn of(values: &ShardValues, smallest_part: usize) -> Result<StepPlaces> {
        let all = values.gradients.iter().try_fold(0, |sum, gradient| Ok(sum + gradient.shape()?.numel()))?;
        let smallest_part = smallest_part.max(all / MAX_PARTS).max(1);
        let (mut parts, mut end) = (Vec::new(), values.gradients.len());
        while end > 0 || parts.is_empty() {
            let (mut start, mut count) = (end, 0);
            while start > 0 && count < smallest_part {
                start -= 1;
                count += values.gradients[start].shape()?.numel();
            }
            parts.push(PartPlaces::new(start, &values.gradients[start..end])?);
            end = start;
        }
        let mut end = parts[0].len();
        let losses = end..end + values.losses.len();
        end = losses.end;
        let buffers = values.buffers().map(|next| {
            let start = end;
            end += next.shape()?.numel();
            Ok(start..end)
        });
        let buffers = buffers.collect::<Result<Vec<_>>>()?;
        Ok(StepPlaces { parts, losses, buffers, stop: end, updates: values.updates.clone() })
    }

    /// Returns the number of parts.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Returns the number of values of a part.
    pub fn len(&self, part: usize) -> usize {
        if part == 0 { self.stop + 1 } else { self.parts[part].len() }
    }

    /// Returns the values of a shard that a part holds.
    pub fn tensors<'a>(&self, part: usize, values: &'a ShardValues) -> Vec<&'a Tensor> {
        values.tensors(self.parts[part].numbers(), part == 0)
    }

    /// Copies the values of a part of a shard, its buffers weighted by the shard, to their places. `stops` is true if the process was asked to
    /// stop.
    ///
    /// # Errors
    /// If a value cannot be computed or read.
    pub fn copy(&self, part: usize, values: &ShardValues, stops: bool, to: &mut AlignedBuffer) -> Result<()> {
        to.resize(self.len(part));
        let copy = |tensor: &Tensor, to: &mut [f32]| tensor.cast(DType::F32).copy_to_slice(to);
        let mut end = 0;
        for ((place, ..), number) in self.parts[part].gradients.iter().zip(self.parts[part].numbers()) {
            to[end..place.start].fill(0.0);
            copy(&values.gradients[number], &mut to[place.clone()])?;
            end = place.end;
        }
        if part > 0 {
            return Ok(());
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

    /// Returns the sums of all parts as tensors. The gradients use their memory in place if the device can.
    ///
    /// # Errors
    /// The device is unusable.
    pub fn into_total(self, device: &Device, sums: Vec<AlignedBuffer>) -> Result<StepTotal> {
        let (losses, stops) = (sums[0][self.losses].to_vec(), sums[0][self.stop] > 0.0);
        let mut updates = self.updates;
        detach_updates(&mut updates);
        let floats = updates.iter_mut().filter(|update| update.next.dtype().is_float());
        for (update, place) in floats.zip(self.buffers) {
            // A model keeps its buffers, so that they have their own memory.
            let shape = update.next.shape()?.clone();
            update.next = Tensor::from_slice_on(device, &sums[0][place], shape).cast(update.next.dtype());
        }
        let memory: Vec<Arc<HostBytes>> = sums.into_iter().map(|sums| Arc::new(HostBytes::from(sums))).collect();
        let mut gradients = Vec::new();
        for (part, memory) in self.parts.into_iter().zip(&memory).rev() {
            let whole = device.adopt(memory)?;
            for (place, shape, dtype) in part.gradients {
                let bytes = place.start * size_of::<f32>()..place.end * size_of::<f32>();
                let sum = match &whole {
                    Some(whole) if !bytes.is_empty() => in_place(whole, bytes, shape)?,
                    _ => {
                        Tensor::from_slice_on(device, bytemuck::cast_slice::<u8, f32>(&memory.as_slice()[bytes]), shape)
                    }
                };
                gradients.push(sum.cast(dtype));
            }
        }
        Ok(StepTotal { gradients, losses, updates, stops, memory })
    }
}

/// Returns a tensor over bytes of a storage.
fn in_place(whole: &Storage, bytes: Range<usize>, shape: Shape) -> Result<Tensor> {
    Ok(Tensor::from_storage(whole.slice(bytes.start as u64..bytes.end as u64)?, shape, DType::F32))
}
