//! The processes that train one model together.
//!
//! All processes hold the same model, optimizer state and random generator. Each computes the gradients of its rows of every batch, weighted
//! by their share of the batch. The sums over all processes are the gradients of the whole batch, and every process
//! applies the same update. A [`ProcessGroup`] implements the communication.

use std::fmt::Debug;
use std::sync::Arc;

use panoply_tensor::Result;

/// The processes that train one model together. All must make the same calls in the same order.
#[doc(alias = "all_reduce")]
#[doc(alias = "DistributedDataParallel")]
#[doc(alias = "init_process_group")]
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

    /// Sends values to other processes and receives values from others, all at the same time. Messages between two processes are received in
    /// the order in which they are sent, and have the same lengths on both. May block until the other processes receive them.
    ///
    /// # Errors
    /// If the communication fails.
    fn exchange(&self, sends: &[(usize, &[f32])], receives: &mut [(usize, &mut [f32])]) -> Result<()>;
}

/// Returns true if all processes want to continue.
pub(crate) fn all_agree(group: Option<&Arc<dyn ProcessGroup>>, go_on: bool) -> Result<bool> {
    let Some(group) = group else { return Ok(go_on) };
    let mut against = [f32::from(u8::from(!go_on))];
    group.all_reduce(&mut against)?;
    Ok(against[0] == 0.0)
}
