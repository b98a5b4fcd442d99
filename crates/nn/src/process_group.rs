//! Data-parallel training: several processes train one model, each on its rows of every batch.
//!
//! All processes hold the same model, optimizer state and random generator. Each computes the gradients of its rows, weighted by their
//! share of the batch. The sums over all processes are the gradients of the whole batch, and every process applies the same update. A
//! [`ProcessGroup`] implements the communication.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use panoply_tensor::{DType, Device, Result, Tensor, eval};

use crate::layer::ForwardContext;

/// The processes that train one model together. All must make the same calls in the same order.
pub trait ProcessGroup: Debug + Send + Sync {
    /// Returns the index of this process, below [`ProcessGroup::ranks`].
    fn rank(&self) -> usize;

    /// Returns the number of processes.
    #[doc(alias = "world_size")]
    fn ranks(&self) -> usize;

    /// Sums each element over all processes in the order of ranks, so all processes get bitwise equal sums.
    ///
    /// # Errors
    /// If the communication fails.
    fn all_reduce(&self, values: &mut [f32]) -> Result<()>;

    /// Copies the values of rank 0 to all processes.
    ///
    /// # Errors
    /// If the communication fails.
    fn broadcast(&self, values: &mut [f64]) -> Result<()>;
}

/// The rows of a batch that one process computes.
#[derive(Clone, Debug)]
pub(crate) struct Shard {
    pub group: Arc<dyn ProcessGroup>,
    /// Rows of the batch that this process computes.
    pub rows: Range<usize>,
    /// Number of rows of the whole batch.
    pub batch: usize,
    /// Weight of these rows in a mean over the batch.
    pub share: f64,
}

impl Shard {
    /// Returns the rows of this process; the numbers of rows differ by at most one. `mass` returns the weight of a range of rows. A process
    /// without rows computes the first row with weight 0, so that all processes take part in every sum.
    pub fn new(group: &Arc<dyn ProcessGroup>, batch: usize, mass: impl Fn(Range<usize>) -> f64) -> Shard {
        let (rank, ranks) = (group.rank(), group.ranks());
        let rows = batch * rank / ranks..batch * (rank + 1) / ranks;
        let share = if rows.is_empty() { 0.0 } else { mass(rows.clone()) / mass(0..batch) };
        let rows = if rows.is_empty() { 0..1 } else { rows };
        Shard { group: group.clone(), rows, batch, share }
    }

    /// Returns these rows of a tensor whose first axis is the batch.
    pub fn of(&self, whole: &Tensor) -> Tensor {
        whole.narrow(0, self.rows.start, self.rows.len())
    }

    /// Sums loss and gradients over all processes, and averages the float buffers that the pass updates. Sums are in f32. The results are
    /// detached.
    pub fn all_reduce(
        &self,
        loss: &Tensor,
        gradients: Vec<Tensor>,
        pass: &mut ForwardContext<'_>,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let device = loss.device().cloned().map_or_else(Device::current, Ok)?;
        let floats = |tensor: &Tensor| tensor.cast(DType::F32);
        let states: Vec<&mut Tensor> = pass.next_float_states().collect();
        let mut parts = vec![floats(loss)];
        parts.extend(gradients.iter().map(floats));
        parts.extend(states.iter().map(|state| floats(state) * self.share));
        eval(&parts.iter().collect::<Vec<&Tensor>>())?;
        let mut values = Vec::new();
        for part in &parts {
            values.extend(part.to_vec::<f32>()?);
        }
        self.group.all_reduce(&mut values)?;
        let mut left = &values[..];
        let mut next = |like: &Tensor| {
            let shape = like.shape()?.clone();
            let (own, rest) = left.split_at(shape.numel());
            left = rest;
            Ok(Tensor::from_slice_on(&device, own, shape).cast(like.dtype()))
        };
        let loss = next(loss)?;
        let gradients = gradients.iter().map(&mut next).collect::<Result<Vec<Tensor>>>()?;
        for state in states {
            *state = next(state)?;
        }
        Ok((loss, gradients))
    }
}

/// Returns true if all processes want to continue.
pub(crate) fn all_agree(group: Option<&Arc<dyn ProcessGroup>>, go_on: bool) -> Result<bool> {
    let Some(group) = group else { return Ok(go_on) };
    let mut against = [f32::from(u8::from(!go_on))];
    group.all_reduce(&mut against)?;
    Ok(against[0] == 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Alone(usize, usize);

    impl ProcessGroup for Alone {
        fn rank(&self) -> usize {
            self.0
        }

        fn ranks(&self) -> usize {
            self.1
        }

        fn all_reduce(&self, _: &mut [f32]) -> Result<()> {
            Ok(())
        }

        fn broadcast(&self, _: &mut [f64]) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn shards_cover_a_batch_once_and_their_shares_sum_to_1() {
        for (batch, ranks) in [(1, 2), (7, 3), (64, 2), (30, 4), (2, 5)] {
            let shards: Vec<Shard> = (0..ranks)
                .map(|rank| {
                    let group: Arc<dyn ProcessGroup> = Arc::new(Alone(rank, ranks));
                    Shard::new(&group, batch, |rows| rows.map(|row| 1.0 + row as f64).sum())
                })
                .collect();
            let counted = shards.iter().filter(|shard| shard.share > 0.0);
            let rows: Vec<usize> = counted.clone().flat_map(|shard| shard.rows.clone()).collect();
            assert_eq!(rows, (0..batch).collect::<Vec<usize>>(), "{batch} rows on {ranks}");
            let lens: Vec<usize> = counted.map(|shard| shard.rows.len()).collect();
            assert!(lens.iter().max().unwrap() - lens.iter().min().unwrap() <= 1);
            assert!((shards.iter().map(|shard| shard.share).sum::<f64>() - 1.0).abs() < 1e-12);
        }
    }
}
